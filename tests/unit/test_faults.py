"""The notation of faults, and which dispatch a plan gives them to."""

import os

import pytest

from dsv4bench.errors import UsageError
from dsv4bench.faults import Fault, check_faults, parse_fault
from dsv4bench.worker.fault_injection import FaultPlan, TearingEmitter, emitter_for


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
        ("rank=1,kind=slow", r"slow needs a duration above 0 in us, ms or s, as in kind=slow:20ms; got ''"),
        ("rank=1,kind=slow:0ms", r"got '0ms'"),
        ("rank=1,kind=slow:20", r"got '20'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_quoted_and_explained(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_fault(text)


def test_a_fault_needs_its_rank_and_the_records_it_spoils() -> None:
    check_faults([Fault(3, "kill", 1), Fault(0, "drop-strace", 1)], ranks=4, strace=True)
    check_faults([Fault(0, "slow", None, 1)], ranks=1, strace=False)
    with pytest.raises(UsageError, match=r"'rank=4,step=1,kind=kill': this run has ranks 0\.\.3, no rank 4"):
        check_faults([Fault(4, "kill", 1)], ranks=4, strace=True)
    with pytest.raises(UsageError, match="no STRACE records are written in this run; leave out --no-trace"):
        check_faults([Fault(0, "torn-strace", 1)], ranks=4, strace=False)


def test_steps_are_counted_behind_the_first_prefill() -> None:
    kill, slow, never = Fault(0, "kill", 1), Fault(1, "slow", None, 1), Fault(2, "hang", 9)
    plan = FaultPlan([kill, slow, never])
    # (dispatch, slot, generation): a late step of the batch before, a prefill, three steps and a second prefill.
    taken = [
        plan.take(*dispatch)
        for dispatch in [(10, 1, 5), (11, 0, 0), (12, 0, 6), (13, 0, 0), (14, 1, 6), (15, 0, 7)]
    ]
    assert taken == [(), (), (slow,), (), (kill, slow), (slow,)]
    assert plan.describe() == [
        "rank=0,step=1,kind=kill (dispatch 14)",
        "rank=1,kind=slow:1e-06ms (from dispatch 12 on)",
        "rank=2,step=9,kind=hang (not reached)",
    ]


def test_two_dispatches_of_one_slot_and_generation_are_one_step() -> None:
    second = Fault(0, "raise", 1)
    plan = FaultPlan([second])
    plan.take(1, 0, 0)
    assert [plan.take(*dispatch) for dispatch in [(2, 0, 1), (3, 0, 1), (4, 1, 1)]] == [(), (), (second,)]


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
