"""Faults, injected: how the run ends, what it leaves, and that the analysis names rank, step and cause.

Those that only cost time are in test_headlines.py.
"""

import contextlib
import os
import random
import re
import subprocess
import time
from pathlib import Path

import pytest

from analyzers.analysis import analyze, judge
from analyzers.report.model import Finding, Report
from dsv4bench.engine.engine import Engine, EngineOptions
from dsv4bench.engine.requests import Request, RequestHandle
from dsv4bench.errors import RankError
from dsv4bench.faults import Fault, FaultKind
from dsv4bench.model.checkpoint import ensure_checkpoint
from dsv4bench.model.config import preset
from dsv4bench.worker.fault_injection import FaultPlan
from tests.integration.command import SMALL, command, manifest_of, measured_of, shared_memory
from tests.integration.conftest import children_of, is_alive

TRIALS = int(os.environ.get("DSV4BENCH_FAULT_TRIALS", "100"))
FATAL = ("kill", "hang", "raise")
HARMLESS = ("slow:20ms", "drop-strace", "torn-strace")
STEP = 6
OUTPUT = 40


def run_with(
    environment: dict[str, str], out: Path, *faults: str, tokens: int = OUTPUT
) -> tuple[int, str, str]:
    """Run the command to its end: exit code, stdout, stderr. No process and no shared memory outlives it."""
    before = shared_memory()
    process = subprocess.Popen(
        command(
            *("run", "gbs32-mtp1", *SMALL, "--out", out, "--set", "load.requests=4"),
            *("--set", f"load.output_tokens={tokens}", "--set", "engine.dispatch_timeout_s=4"),
            *(argument for fault in faults for argument in ("--fault", fault)),
        ),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    children: set[int] = set()
    while process.poll() is None and not (children and (out / "strace" / "rank-3.log").exists()):
        children |= children_of(process.pid)
        time.sleep(0.02)
    children |= children_of(process.pid)
    output, errors = process.communicate(timeout=100)
    assert not any(is_alive(pid) for pid in children)
    assert shared_memory() <= before
    assert "Traceback" not in errors.partition(" raised in dispatch ")[0]
    return process.returncode, output, errors


@pytest.fixture(scope="module")
def expected(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """The tokens of each request when nothing goes wrong."""
    out = tmp_path_factory.mktemp("faultless") / "run"
    assert run_with(environment, out)[0] == 0
    return {record.request_id: record.output_token_ids for record in measured_of(out)}


def finding(report: Report, code: str) -> Finding:
    return next(finding for finding in report.findings if finding.code == code)


def tokens_of(out: Path) -> dict[str, list[int]]:
    return {record.request_id: record.output_token_ids for record in measured_of(out)}


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("kill", r"rank 2 \(pid {pid}\) was killed by SIGKILL"),
        ("hang", r"dispatch \d+ \(\w+\) did not complete within 4 s; still waiting for rank 2 \(pid {pid}\)"),
        ("raise", r"rank 2 raised in dispatch \d+ \(\w+\):"),
    ],
)  # fmt: skip
def test_a_fatal_fault_ends_the_run_and_keeps_every_token_before_it(
    environment: dict[str, str], tmp_path: Path, expected: dict[str, list[int]], kind: str, cause: str
) -> None:
    out = tmp_path / "run"
    code, _, errors = run_with(environment, out, f"rank=2,step={STEP},kind={kind}")
    assert code == 1
    manifest = manifest_of(out)
    text = r"decode step \d+: " + cause.format(pid=manifest.device_map[2].pid)
    assert re.search("dsv4bench: " + text, errors), errors
    assert manifest.status == "incomplete"
    assert re.match(text, manifest.error)
    assert re.fullmatch(rf"rank=2,step={STEP},kind={kind} \(dispatch \d+\)", manifest.faults[0])
    for record in measured_of(out):
        assert record.finish_reason == "error"
        # One token of the prefill and those of the steps before the fault: all, and nothing else.
        assert len(record.output_token_ids) == 1 + record.steps + record.accepted
        assert record.output_token_ids == expected[record.request_id][: len(record.output_token_ids)]
    # The first prefill may admit some requests only; those take part in every step.
    assert max(record.steps for record in measured_of(out)) == STEP
    report = analyze([out])
    assert re.match(text, finding(report, "run_status").evidence)
    assert f"rank=2,step={STEP},kind={kind}" in finding(report, "faults_injected").title
    if kind == "raise":
        last = "RuntimeError: injected fault: rank=2,step=6,kind=raise"
        assert finding(report, "run_status").evidence.endswith(last)
    assert report.lost == 0
    assert judge(report).exit_code == 1


@pytest.mark.parametrize("kind", ["drop-strace", "torn-strace"])
def test_lost_records_are_counted_and_their_round_is_named(
    environment: dict[str, str], tmp_path: Path, expected: dict[str, list[int]], kind: str
) -> None:
    out = tmp_path / "run"
    code, output, errors = run_with(environment, out, f"rank=2,step={STEP},kind={kind}")
    assert code == 4
    assert "dsv4bench: the run completed, but records lost: 1, allowed: 0 (--max-loss); " in errors
    assert manifest_of(out).status == "complete"
    assert tokens_of(out) == expected
    report = analyze([out])
    (run,) = report.lost_runs
    assert run.rank == 2
    assert manifest_of(out).faults == [f"rank=2,step={STEP},kind={kind} (dispatch {run.dispatch_id})"]
    decode = next(skew for skew in report.skew if skew.scope == "all" and skew.callable == run.callable)
    assert [(item.key, item.missing_ranks) for item in decode.incomplete] == [([run.dispatch_id], [2])]
    evidence = [finding.evidence for finding in report.findings if finding.code == "lost_records"]
    assert all(str(out / "strace" / "rank-2.log") in text for text in evidence)
    assert len(evidence) == (2 if kind == "torn-strace" else 1)
    assert report.lost == 1
    assert judge(report, max_loss=1).exit_code == 0
    assert "rank 2: no chip.run record of 1 of its runs" in output


def test_a_fault_that_is_never_reached_is_said_so(
    environment: dict[str, str], tmp_path: Path, expected: dict[str, list[int]]
) -> None:
    out = tmp_path / "run"
    code, output, _ = run_with(environment, out, "rank=2,step=900,kind=kill")
    assert code == 0
    assert tokens_of(out) == expected
    assert "rank=2,step=900,kind=kill (not reached)" in output


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("rank=4,step=1,kind=kill", "this run has ranks 0..3, no rank 4"),
        ("rank=1,kind=kill", "kill needs a step"),
        ("rank=1,step=1,kind=explode", "unknown kind 'explode'; known: kill, hang, raise, slow:<duration>"),
    ],
)
def test_an_impossible_fault_is_bad_usage_and_nothing_is_made(
    environment: dict[str, str], tmp_path: Path, fault: str, message: str
) -> None:
    code, _, errors = run_with(environment, tmp_path / "run", fault)
    assert code == 2
    assert message in errors
    assert not (tmp_path / "run").exists()


# Random steps, many times: `pytest -m slow tests/integration/test_faults.py` (docs/faults.md).

CONFIG = preset("test-b")
LENGTH = 24
"""Output tokens. With one draft a step a request takes at least 12 steps."""


class Trials:
    """Engines of two ranks, and what their requests answer when nothing goes wrong."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        draw = random.Random(5)
        self.prompts = [
            [draw.randrange(2, CONFIG.vocab_size) for _ in range(9 + index)] for index in range(4)
        ]
        with contextlib.closing(self.engine()) as engine:
            handles = self.batch(engine)
        self.expected = [handle.token_ids for handle in handles]
        assert all(handle.finish_reason == "length" for handle in handles)

    def engine(self, logs: tuple[Path, ...] = ()) -> Engine:
        return Engine(
            EngineOptions(
                CONFIG,
                self.checkpoint,
                ranks=2,
                requests_per_rank=2,
                max_model_len=128,
                dispatch_timeout_s=3.0,
                rank_logs=logs,
            )
        )

    def batch(self, engine: Engine, *faults: Fault) -> list[RequestHandle]:
        """Submit all requests and wait for their ends."""
        engine.worker.faults = FaultPlan(faults)
        requests = [Request(f"r{index}", prompt, LENGTH) for index, prompt in enumerate(self.prompts)]
        handles = [engine.submit(request) for request in requests]
        for handle in handles:
            assert handle.wait(30)
        return handles


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    return Trials(ensure_checkpoint(CONFIG, 3, tmp_path_factory.mktemp("checkpoints"), "bigram"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", FATAL)
def test_a_fatal_fault_at_any_step(trials: Trials, kind: FaultKind) -> None:
    for trial in range(TRIALS):
        draw = random.Random(f"{kind} {trial}")
        rank, step = draw.randrange(2), draw.randrange(11)
        before = shared_memory()
        engine = trials.engine()
        pids = [*engine.worker.rank_pids.values()]
        handles = trials.batch(engine, Fault(rank, kind, step))
        failure = engine.failure
        engine.close(abort=True)
        assert isinstance(failure, RankError), (trial, rank, step, failure)
        assert f"rank {rank}" in str(failure), (trial, rank, step, failure)
        assert f"rank {1 - rank}" not in str(failure), (trial, rank, step, failure)
        assert re.match(r"decode step \d+: ", str(failure)), (trial, rank, step, failure)
        for handle, tokens in zip(handles, trials.expected, strict=True):
            assert handle.finish_reason == "error"
            assert handle.token_ids == tokens[: len(handle.token_ids)], (trial, rank, step)
            # Requests may be admitted by two prefills, the later of them behind a few steps: never more than `step`.
            assert handle.steps <= step
        assert max(handle.steps for handle in handles) == step
        assert not any(is_alive(pid) for pid in pids)
        assert shared_memory() <= before


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["slow", "drop-strace", "torn-strace"])
def test_a_harmless_fault_at_any_step(trials: Trials, tmp_path: Path, kind: FaultKind) -> None:
    logs = tuple(tmp_path / f"rank-{rank}.log" for rank in range(2))
    hit = []
    with contextlib.closing(trials.engine(logs)) as engine:
        for trial in range(TRIALS):
            draw = random.Random(f"{kind} {trial}")
            fault = Fault(draw.randrange(2), kind, draw.randrange(11), 20_000_000 if kind == "slow" else 0)
            handles = trials.batch(engine, fault)
            assert [handle.token_ids for handle in handles] == trials.expected, (trial, fault)
            hit.append((fault.rank, engine.worker.faults.hit[fault]))
        # A batch without a fault last, so that the last fault lies inside of the recording.
        trials.batch(engine)
    report = analyze(logs)
    lost = sorted((run.rank, run.dispatch_id) for run in report.lost_runs)
    if kind == "slow":
        assert (report.lost, lost) == (0, [])
        late = {(event.rank, *event.key) for skew in report.skew for event in skew.long_tails}
        assert sum(fault in late for fault in hit) >= 0.9 * TRIALS
    else:
        assert lost == sorted(hit)
        assert report.lost == TRIALS
        assert judge(report).exit_code == 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*FATAL, *HARMLESS])
def test_a_fault_at_any_step_of_the_command(
    environment: dict[str, str], tmp_path: Path, expected: dict[str, list[int]], kind: str
) -> None:
    """A tenth of the trials, each a process of its own."""
    for trial in range(-(-TRIALS // 10)):
        draw = random.Random(f"command {kind} {trial}")
        fault = f"rank={draw.randrange(4)},step={draw.randrange(18)},kind={kind}"
        out = tmp_path / f"run{trial}"
        code, output, errors = run_with(environment, out, fault)
        assert code == (1 if kind in FATAL else 0 if kind.startswith("slow") else 4), (fault, output, errors)
        assert "(dispatch " in manifest_of(out).faults[0]
        for record in measured_of(out):
            tokens = record.output_token_ids
            assert tokens == expected[record.request_id][: len(tokens)], fault
