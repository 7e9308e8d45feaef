"""What a server leaves: device map, drafts, programs and traces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyzers.rundir import RunDirectory, ServerDrafts
from dsv4bench.profile import load_profile
from dsv4bench.server_kinds.asking import CounterError, counters, drafts_between
from dsv4bench.server_kinds.collect import collect_traces, device_map, drafts_of_log, programs_of_log
from dsv4bench.server_kinds.kind import MetricsTable
from dsv4bench.server_kinds.load import load_kind
from dsv4bench.server_kinds.resolve import ResolvedServer, resolve


def log_of(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "server.log"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("numbers", "devices", "expected"),
    [
        # The runtime names physical devices.
        ([0, 2, 4], [0, 2, 4], [(0, 0, 0), (1, 1, 2), (2, 2, 4)]),
        # It counts the devices that it sees.
        ([0, 1, 2], [0, 2, 4], [(0, 0, 0), (1, 1, 2), (2, 2, 4)]),
        # The order of ranks is that of the devices, not of their numbers.
        ([0, 2, 4], [4, 0, 2], [(0, 0, 4), (1, 1, 0), (2, 2, 2)]),
        # What it says is nothing that was asked for: no physical device is made up.
        ([3, 5], [0, 1, 2], [(0, 3, None), (1, 5, None)]),
    ],
)
def test_ready_lines_become_ranks(
    numbers: list[int], devices: list[int], expected: list[tuple[int, int, int | None]], tmp_path: Path
) -> None:
    lines = "".join(f"x [chip_process pid={100 + number} dev={number}] ready\n" for number in numbers)
    ranks = device_map(log_of(tmp_path, lines), devices)
    assert [(rank.rank, rank.logical_device, rank.physical_device) for rank in ranks] == expected
    known = numbers == list(range(len(devices))) and numbers != sorted(devices)
    for rank in ranks:
        number = rank.logical_device if known or rank.physical_device is None else rank.physical_device
        assert rank.pid == 100 + (number or 0)


def test_without_ready_lines_there_are_no_ranks(tmp_path: Path) -> None:
    assert device_map(log_of(tmp_path, "hello\n"), [0]) == []


def test_drafts_of_a_log_are_those_of_the_requests_asked_for(tmp_path: Path) -> None:
    line = "INFO DeepSeekV4 MTP acceptance for {}: accepted={} proposed={} rate=1.00%\n"
    log = log_of(
        tmp_path, line.format("cmpl-warm", 1, 9) + line.format("cmpl-a", 10, 11) + line.format("cmpl-b", 2, 4)
    )
    assert drafts_of_log(log, ["cmpl-a", "cmpl-b", "cmpl-c"]) == ServerDrafts(12, 15, "server.log")
    assert drafts_of_log(log, ["cmpl-c"]) is None


def test_programs_of_a_log(tmp_path: Path) -> None:
    text = "program prefill 0123456789abcdef: cache hit\nprogram decode 0123456789abcdef: cache miss\nprogram x: cache hit\n"
    assert programs_of_log(log_of(tmp_path, text)) == {"hits": 1, "misses": 1}


METRICS = """# TYPE vllm:accepted counter
vllm:accepted_total{{engine="0"}} {}
vllm:accepted_total{{engine="1"}} {}
vllm:accepted_created{{engine="0"}} 1.7e9
# TYPE vllm:drafts counter
vllm:drafts_total {}
"""
TABLE = MetricsTable(accepted="vllm:accepted_total", proposed="drafts_total")


def test_counters_are_summed_over_labels_and_creation_times_are_none() -> None:
    found = counters(METRICS.format(3, 4, 9))
    assert found["vllm:accepted_total"] == 7
    assert found["drafts_total"] == 9
    assert "vllm:accepted_created" not in found
    assert counters("no such text {") == {}


def test_drafts_are_the_increase_over_the_batch() -> None:
    before, after = METRICS.format(3, 4, 9), METRICS.format(10, 7, 21)
    assert drafts_between(TABLE, before, after) == ServerDrafts(10, 12, "metrics")
    assert drafts_between(TABLE, before, before) is None, "counters that stay as they are say nothing"
    assert drafts_between(MetricsTable(), before, after) is None


@pytest.mark.parametrize("after", [METRICS.format(1, 1, 30), METRICS.format(30, 30, 10)])
def test_counters_that_cannot_be_are_an_error(after: str) -> None:
    with pytest.raises(CounterError):
        drafts_between(TABLE, METRICS.format(3, 4, 9), after)


def traced(tmp_path: Path, *, kineto: bool) -> tuple[ResolvedServer, RunDirectory, Path]:
    path = tmp_path / "kind.toml"
    path.write_text(
        'name = "x"\ncommand = ["sh"]\n[profiling]\nstart = "/a"\nstop = "/b"\noutput = "{output}/profile"\n'
        f'format = "{"kineto" if kineto else "sa_profile"}"\nappears_s = 0.3\n'
    )
    run = tmp_path / "run"
    run.mkdir()
    server = resolve(load_kind(str(path)), load_profile("smoke"), tmp_path / "out", port=1)
    output = tmp_path / "out" / "profile"
    output.mkdir(parents=True)
    return server, RunDirectory(run), output


def test_a_merged_trace_and_its_fragments_move_into_the_run(tmp_path: Path) -> None:
    server, directory, output = traced(tmp_path, kineto=False)
    (output / "fragments").mkdir()
    (output / "fragments" / "trace.7.jsonl").write_text("{}\n")
    (output / "trace.json").write_text(json.dumps({"traceEvents": []}))
    assert collect_traces(server, directory) == []
    assert directory.serving_trace.is_file()
    assert [path.name for path in directory.fragments.iterdir()] == ["trace.7.jsonl"]


def test_torch_profiles_move_into_the_run(tmp_path: Path) -> None:
    server, directory, output = traced(tmp_path, kineto=True)
    (output / "deep").mkdir()
    for rank in range(2):
        (output / "deep" / f"h_{rank}.pt.trace.json.gz").write_bytes(b"x")
    assert collect_traces(server, directory) == []
    assert len(list(directory.torch_profiles.iterdir())) == 2


def test_a_trace_that_never_appears_is_said(tmp_path: Path) -> None:
    server, directory, _ = traced(tmp_path, kineto=False)
    (reason,) = collect_traces(server, directory)
    assert reason.startswith("no trace appeared in ")
