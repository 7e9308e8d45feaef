"""A run against a server, in this process: what it leaves of a server that answers, fails, or keeps its trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyzers.analysis import analyze, judge
from analyzers.rundir import RequestRecord, RunDirectory, ServerDrafts
from dsv4bench.errors import EngineError
from dsv4bench.load.requests import LoadProgress
from dsv4bench.profile import load_profile
from dsv4bench.run.launch import RunResult
from dsv4bench.run.served import ServedRun
from dsv4bench.run.tracing import RunTracing
from dsv4bench.server_kinds.load import load_kind
from dsv4bench.server_kinds.resolve import startable_server
from tests.serving.trials import kind_of

pytestmark = pytest.mark.medium

LOAD = ("load.requests=4", "load.output_tokens=5", "load.warmup_output_tokens=2", "engine.ranks=1")


class Told:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.progress: list[LoadProgress] = []

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def waiting(self, text: str) -> None:
        assert text.startswith("waiting for the server: ")

    def load(self, done: LoadProgress, expected_tokens: int) -> None:
        assert expected_tokens in (4 * 5, 4 * 2)
        self.progress.append(done)


def run(tmp_path: Path, *flags: str, sets: tuple[str, ...] = ()) -> tuple[RunResult, Told]:
    kind = tmp_path / "stub.toml"
    kind.write_text(kind_of(flags, "in-process"))
    directory = RunDirectory(tmp_path / "run")
    directory.root.mkdir()
    profile = load_profile("smoke", LOAD)
    server = startable_server(load_kind(str(kind), sets), profile, directory.server_output)
    told = Told()
    return ServedRun(profile, directory, ["dsv4bench"], told, server, RunTracing()).run(), told


def records(result: RunResult) -> list[RequestRecord]:
    lines = result.directory.requests.read_text().splitlines()
    return [RequestRecord(**{"rank": None, "finish_reason": None} | json.loads(line)) for line in lines]


def test_a_server_that_answers_leaves_a_whole_run(tmp_path: Path) -> None:
    result, told = run(tmp_path, "--return-ids", sets=("server.endpoint.return_token_ids=true",))
    assert (result.status, result.error) == ("complete", None)
    assert told.stages == [
        "starting stub",
        "warming up, batch 1 of 1",
        "measuring",
        "waiting for the server's trace",
        "stopping the server",
        "collecting",
    ]
    assert (told.progress[-1].done, told.progress[-1].tokens) == (4, 20)
    measured = [record for record in records(result) if record.phase == "measured"]
    assert [record.output_token_ids for record in measured] == [[5, 6, 7, 8, 9]] * 4
    report = analyze([result.directory.root])
    server = report.run.server
    # The stub counts 11 drafts a request, of which 10 are accepted; the warm-up's are not in it.
    assert server.drafts == ServerDrafts(40, 44, "metrics")
    assert server.profile_window_ns is not None
    assert result.directory.serving_trace.is_file()
    assert (server.started, server.missing_traces, server.exit_status) == (True, [], 0)
    assert report.requests[0].output_tokens == report.run.expected_output_tokens == 20


def test_a_server_that_ends_leaves_what_came_until_then(tmp_path: Path) -> None:
    result, _ = run(tmp_path, "--fault", "exit-mid-stream", sets=("server.health.timeout_s=20",))
    assert result.status == "incomplete"
    assert isinstance(result.error, EngineError)
    assert "exited with status 3 during the warm-up" in str(result.error)
    found = records(result)
    assert len(found) == 4
    assert all(record.error is not None for record in found)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("stop-profile-500", "/stop_profile failed: HTTP 500: the profiler broke"),
        ("no-trace", "no trace appeared in"),
    ],
)
def test_a_trace_that_does_not_come_is_missing_and_the_figures_stay(
    fault: str, says: str, tmp_path: Path
) -> None:
    result, _ = run(tmp_path, "--fault", fault, sets=("server.profiling.appears_s=0.3",))
    assert (result.status, result.error) == ("complete", None)
    report = analyze([result.directory.root])
    (reason,) = report.run.server.missing_traces
    assert reason.startswith(says)
    assert judge(report).exit_code == 4
    assert report.requests[0].output_tokens == 20


def test_a_server_that_does_not_start_is_an_incomplete_run_with_its_log(tmp_path: Path) -> None:
    result, _ = run(tmp_path, "--fault", "exit-at-start")
    assert result.status == "incomplete"
    assert "no such device" in str(result.error)
    assert b"stub: starting" in result.directory.server_log.read_bytes()
    assert records(result) == []
