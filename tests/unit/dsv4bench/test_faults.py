"""The notation of faults, and which dispatch a plan gives them to."""

import os
import time

import pytest

from dsv4bench.errors import UsageError
from dsv4bench.faults import Fault, check_faults, parse_fault
from dsv4bench.load.requests import LoadRequest, Prompt
from dsv4bench.profile import load_profile
from dsv4bench.run.load import engine_request, spoilt_drafts
from dsv4bench.worker.fault_injection import FaultPlan, TearingEmitter, emitter_for, leave_runner


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("rank=3,step=40,kind=kill", Fault(3, "kill", 40)),
        ("kind=hang, step=0, rank=0", Fault(0, "hang", 0)),
        ("rank=1,step=2,kind=raise", Fault(1, "raise", 2)),
        ("rank=1,step=2,kind=drop-strace", Fault(1, "drop-strace", 2)),
        ("rank=1,step=2,kind=torn-strace", Fault(1, "torn-strace", 2)),
        ("rank=1,kind=slow:20ms", Fault(1, "slow", None, 20_000_000)),
        ("rank=1,step=7,kind=slow:1.5s", Fault(1, "slow", 7, 1_500_000_000)),
        ("rank=1,kind=slow:250us", Fault(1, "slow", None, 250_000)),
        ("kind=slow:2s,rank=rotate", Fault("rotate", "slow", None, 2_000_000_000)),
        ("kind=serialise", Fault(None, "serialise")),
        ("rank=1,kind=slow:10%", Fault(1, "slow", None, 0, 0.1)),
        ("rank=rotate,kind=slow:2.5%", Fault("rotate", "slow", None, 0, 0.025)),
        ("kind=spoil-drafts:0.25", Fault(None, "spoil-drafts", share=0.25)),
        ("kind=spoil-drafts:1", Fault(None, "spoil-drafts", share=1.0)),
    ],
)
def test_a_fault_is_read_and_written(text: str, fault: Fault) -> None:
    assert parse_fault(text) == fault
    assert parse_fault(str(fault)) == fault


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"--fault '': '' is no key=value; write for example rank=3,step=40,kind=kill"),
        ("rank=1,kill", r"'kill' is no key=value"),
        ("rank=,step=1,kind=kill", r"'rank=' is no key=value"),
        ("rnk=1,step=1,kind=kill", r"unknown key 'rnk' \(did you mean 'rank'\?\); known: rank, step, kind"),
        ("rank=1,rank=2,step=1,kind=kill", r"rank is given twice"),
        ("step=1,kind=kill", r"rank is missing"),
        ("rank=1,step=1", r"kind is missing"),
        ("rank=1,kind=kill", r"kill needs a step; only slow can hold for all steps"),
        ("rank=1,kind=torn-strace", r"torn-strace needs a step"),
        ("rank=-1,step=1,kind=kill", r"rank = '-1': expected a whole number of at least 0"),
        ("rank=1,step=x,kind=kill", r"step = 'x': expected a whole number of at least 0"),
        ("rank=1,step=1,kind=kil", r"unknown kind 'kil' \(did you mean 'kill'\?\); known: kill, hang, raise, slow"),
        ("rank=1,step=1,kind=kill:5ms", r"kill takes no duration; only slow does, as in kind=slow:20ms"),
        ("rank=1,kind=slow", r"slow needs a duration above 0 in us, ms or s, as in kind=slow:20ms, .*; got ''"),
        ("rank=1,kind=slow:0ms", r"got '0ms'"),
        ("rank=1,kind=slow:0%", r"or a share of the runner's own time, as in kind=slow:10%; got '0%'"),
        ("kind=spoil-drafts", r"needs a share of the drafts, above 0 and at most 1, .*; got ''"),
        ("kind=spoil-drafts:0.0", r"got '0.0'"),
        ("kind=spoil-drafts:1.5", r"got '1.5'"),
        ("rank=1,kind=spoil-drafts:0.5", r"spoil-drafts takes no rank: .*; write kind=spoil-drafts:0.5"),
        ("rank=1,kind=slow:20", r"got '20'"),
        ("rank=rotate,step=1,kind=kill", r"rank=rotate .* goes with slow alone, without a step; got kill"),
        ("rank=rotate,step=1,kind=slow:1ms", r"got step; write for example rank=rotate,kind=slow:20ms"),
        ("rank=rotat,kind=slow:1ms", r"rank = 'rotat': expected a whole number of at least 0, or rotate"),
        ("rank=1,kind=serialise", r"serialise takes no rank: it is a fault of the engine .*; write kind=serialise"),
        ("step=1,kind=serialise", r"serialise takes no step"),
        ("kind=serialise:5ms", r"serialise takes no duration"),
        ("rank=1,kind=serialize", r"unknown kind 'serialize' \(did you mean 'serialise'\?\)"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_quoted_and_explained(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_fault(text)


def test_a_fault_needs_its_rank_its_depth_and_the_records_it_spoils() -> None:
    check_faults([Fault(3, "kill", 1), Fault(0, "drop-strace", 1)], ranks=4, depth=2, mtp=1, strace=True)
    check_faults([Fault(0, "slow", None, 1)], ranks=1, depth=1, mtp=1, strace=False)
    check_faults(
        [Fault("rotate", "slow", None, 1), Fault(None, "serialise")], ranks=2, depth=2, mtp=1, strace=False
    )
    with pytest.raises(UsageError, match=r"'rank=4,step=1,kind=kill': this run has ranks 0\.\.3, no rank 4"):
        check_faults([Fault(4, "kill", 1)], ranks=4, depth=2, mtp=1, strace=True)
    with pytest.raises(UsageError, match="no STRACE records are written in this run; leave out --no-trace"):
        check_faults([Fault(0, "torn-strace", 1)], ranks=4, depth=2, mtp=1, strace=False)
    with pytest.raises(
        UsageError, match=r"'kind=spoil-drafts:0.5': this run drafts nothing; use engine.mtp=1"
    ):
        check_faults([Fault(None, "spoil-drafts", share=0.5)], ranks=4, depth=2, mtp=0, strace=True)
    with pytest.raises(UsageError, match="this run has one rank, so that none can take turns"):
        check_faults([Fault("rotate", "slow", None, 1)], ranks=1, depth=2, mtp=1, strace=True)
    with pytest.raises(
        UsageError, match=r"'kind=serialise': this run has one step in flight at a time; use engine\.depth=2"
    ):
        check_faults([Fault(None, "serialise")], ranks=4, depth=1, mtp=1, strace=True)


def test_steps_are_counted_behind_the_first_prefill() -> None:
    kill, slow, never = Fault(0, "kill", 1), Fault(1, "slow", None, 1), Fault(2, "hang", 9)
    plan = FaultPlan([kill, slow, never])
    # (dispatch, slot, generation): a late step of the batch before, a prefill, three steps and a second prefill.
    taken = [
        plan.take(*dispatch, ranks=3)
        for dispatch in [(10, 1, 5), (11, 0, 0), (12, 0, 6), (13, 0, 0), (14, 1, 6), (15, 0, 7)]
    ]
    nothing = ((), (), ())
    assert taken == [nothing, nothing, ((), (slow,), ()), nothing, ((kill,), (slow,), ()), ((), (slow,), ())]
    assert plan.describe() == [
        "rank=0,step=1,kind=kill (dispatch 14)",
        "rank=1,kind=slow:1e-06ms (from dispatch 12 on)",
        "rank=2,step=9,kind=hang (not reached)",
    ]


def test_two_dispatches_of_one_slot_and_generation_are_one_step() -> None:
    second = Fault(0, "raise", 1)
    plan = FaultPlan([second])
    plan.take(1, 0, 0, ranks=1)
    assert [plan.take(*dispatch, ranks=1) for dispatch in [(2, 0, 1), (3, 0, 1), (4, 1, 1)]] == [
        ((),),
        ((),),
        ((second,),),
    ]


def test_a_rotating_slow_rank_is_the_next_one_at_every_step() -> None:
    slow = Fault("rotate", "slow", None, 1)
    plan = FaultPlan([slow])
    plan.take(1, 0, 0, ranks=3)
    taken = [plan.take(2 + step, step % 2, 1 + step, ranks=3) for step in range(5)]
    assert [[rank for rank in range(3) if faults[rank]] for faults in taken] == [[0], [1], [2], [0], [1]]
    assert plan.describe() == ["rank=rotate,kind=slow:1e-06ms (from dispatch 2 on)"]


def test_a_serialised_engine_is_no_fault_of_a_rank_and_begins_with_the_measured_batch() -> None:
    plan = FaultPlan([Fault(None, "serialise")])
    plan.take(1, 0, 5, ranks=2)
    assert not plan.serialises
    plan.take(2, 0, 0, ranks=2)
    assert plan.serialises
    assert plan.take(3, 1, 5, ranks=2) == ((), ())
    assert plan.describe() == ["kind=serialise (from dispatch 3 on)"]
    assert not FaultPlan([Fault(0, "slow", None, 1)]).serialises


def test_drafts_are_spoilt_evenly_whatever_the_stride_and_always_at_the_same_positions() -> None:
    assert FaultPlan([Fault(None, "spoil-drafts", share=0.25), Fault(0, "kill", 1)]).spoilt_share == 0.25
    assert FaultPlan([Fault(0, "kill", 1)]).spoilt_share == 0
    drafts = spoilt_drafts(0.25, 1200)
    assert set(drafts) == {-1, -2}
    for stride in (1, 2, 3):
        taken = drafts[::stride]
        assert taken.count(-2) == pytest.approx(len(taken) / 4, abs=3)
    assert spoilt_drafts(0.25, 100) == drafts[:100]
    assert spoilt_drafts(1.0, 10) == [-2] * 10


def test_requests_carry_what_is_spoilt_of_their_drafts() -> None:
    profile = load_profile("smoke")
    request = LoadRequest("b-0", Prompt((5, 6), None), 3)
    plain = engine_request(profile, request)
    spoilt = engine_request(profile, request, spoilt_share=0.5)
    assert plain.injected_drafts is None
    assert spoilt.injected_drafts == spoilt_drafts(0.5, profile.engine.max_model_len)


def test_a_slow_runner_sleeps_a_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("dsv4bench.worker.fault_injection.time.sleep", slept.append)
    before = time.thread_time_ns()
    leave_runner([Fault(0, "slow", None, 2_000_000_000), Fault(0, "drop-strace", 1)], before)
    assert slept == [pytest.approx(2.0)]
    assert time.thread_time_ns() - before < 500_000_000


def test_a_slow_runner_computes_a_share_of_its_own_time_longer() -> None:
    before = time.thread_time_ns()
    while time.thread_time_ns() - before < 50_000_000:
        pass
    own = time.thread_time_ns() - before
    leave_runner([Fault(0, "slow", share=0.5), Fault(0, "drop-strace", 1)], before)
    assert (time.thread_time_ns() - before) / own >= 1.5
    leave_runner([Fault(0, "slow", share=0.1)], time.thread_time_ns())


def test_a_torn_root_is_cut_and_glued_to_what_follows() -> None:
    reader, writer = os.pipe()
    emitter = TearingEmitter(writer)
    for name, depth in (("chip.run.validate", 1), ("chip.run", 0), ("chip.run.bind", 1)):
        emitter.record(name, 123, 4, invocation=7, hid="ab", depth=depth)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        first, second = stream.read().decode().splitlines()
    assert " name=chip.run.validate ts=123 dur=4" in first
    assert " name=chip.run ts=123[mono_ns=" in second
    assert " name=chip.run.bind ts=123 dur=4" in second


def test_dropped_records_are_not_written_and_other_faults_write_as_always() -> None:
    emitter = TearingEmitter()
    assert not emitter_for([Fault(0, "drop-strace", 1)], emitter).enabled
    assert emitter_for([Fault(0, "slow", None, 1)], emitter) is emitter
