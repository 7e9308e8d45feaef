"""Runs against served engines: our own and the stand-in of the production engine, with every trace, joined."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from analyzers.analysis import analyze
from analyzers.gate.samples import samples_of_runs
from dsv4bench.server_kinds.resolve import free_port
from tests.serving.pypto_serving import ROOT, checked, install

pytestmark = pytest.mark.medium
# The stand-in starts eight ranks, as the engine that it stands in for always does.
SMALL = (
    "load.requests=2",
    "load.output_tokens=6",
    "load.warmup_output_tokens=2",
    "engine.requests_per_rank=1",
)


def run(
    out: Path, *words: str, path: Path | None = None, sets: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "160"}
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    settings = [word for item in sets for word in ("--set", item)]
    command = [sys.executable, "-m", "dsv4bench", "run", *words, "--out", str(out), *settings]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def records(out: Path) -> list[dict[str, Any]]:
    lines = (out / "requests.jsonl").read_text().splitlines()
    return [record for line in lines if "phase" not in (record := json.loads(line))]


def test_our_own_server_gives_the_tokens_and_traces_of_the_embedded_engine(tmp_path: Path) -> None:
    sets = (*SMALL, "engine.ranks=2")
    served, embedded = tmp_path / "served", tmp_path / "embedded"
    done = run(served, "serving-20", "--server", "dsv4bench", sets=sets)
    assert done.returncode == 0, done.stdout + done.stderr
    assert run(embedded, "serving-20", sets=sets).returncode == 0
    assert [record["output_token_ids"] for record in records(served)] == [
        record["output_token_ids"] for record in records(embedded)
    ]
    report = analyze([served])
    lives = report.request_lives
    assert lives is not None
    assert (lives.requests, lives.joined, lives.token_mismatches) == (2, 2, [])
    assert lives.steps.n == 2
    (figures,) = [figures for figures in report.requests if figures.phase == "measured"]
    assert figures.mtp is not None
    assert figures.output_tokens == report.run.expected_output_tokens == 12
    assert report.run.program_cache["hits"] + report.run.program_cache["misses"] == 3
    steps = {figures.callable: figures.latency.n for figures in report.steps if figures.scope == "all"}
    (decode,) = [skew for skew in report.skew if skew.scope == "all" and "decode" in skew.callable]
    # Every paired step has a root on both ranks.
    assert decode.critical_rank.root.n == steps[decode.callable] > 0
    assert {entry.rank for entry in report.ranks.devices} == {0, 1}
    # The gate takes it as any run; it is not to be compared with a run of another engine.
    samples = samples_of_runs([served])
    assert samples.config["server"] == "dsv4bench"
    assert "server" not in samples_of_runs([embedded]).config


def test_the_stand_in_of_the_production_engine_is_measured_as_its_documents_say(tmp_path: Path) -> None:
    install(tmp_path)
    out = tmp_path / "run"
    sets = (*SMALL, "server.model=/models/DeepSeek-V4", "server.devices=[0,2,4,6,8,10,12,14]")
    done = run(out, "serving-20", "--server", "pypto-serving", path=tmp_path, sets=sets)
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = json.loads((out / "run.json").read_text())
    server = manifest["server"]
    assert server["missing_traces"] == []
    # Its counters stay 0 with one draft: the lines of its log are the source, and it is said.
    assert server["drafts"]["source"] == "server.log"
    assert "server.log" in done.stdout.split("MTP drafts accepted")[1].splitlines()[0]
    assert [(entry["rank"], entry["physical_device"]) for entry in manifest["device_map"]] == [
        (rank, 2 * rank) for rank in range(8)
    ]
    for record in records(out):
        # It gives no token ids: its own count is what there is.
        assert (record["output_token_ids"], record["completion_tokens"]) == ([], 6)
        assert "error" not in record
    report = analyze([out])
    assert report.request_lives is not None
    assert report.request_lives.joined == 2
    assert report.lost == 0


def test_a_server_that_runs_already_is_asked_and_left_alone(tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    command = [
        sys.executable,
        "-m",
        "tests.serving.stub_server",
        "--port",
        str(port),
        "--tokens-per-event",
        "2",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        while server.stdout.readline() != b"stub: ready\n":
            pass
        out = tmp_path / "run"
        done = run(
            out,
            "smoke",
            "--url",
            f"http://127.0.0.1:{port}",
            sets=("load.requests=3", "load.output_tokens=5"),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert server.poll() is None
        server.terminate()
    (figures,) = [figures for figures in analyze([out]).requests if figures.phase == "measured"]
    # One token and two events of two: by the server's count five, and what an event brought nobody says.
    assert (figures.output_tokens, figures.failed, figures.tokens_per_step) == (15, 0, None)
    manifest = json.loads((out / "run.json").read_text())
    assert (manifest["server"]["started"], manifest["server"]["missing_traces"]) == (False, [])
    assert "unavailable" in done.stdout


@pytest.mark.parametrize(
    "change",
    [
        ["--seed", "1"],
        ["--tp", "2"],
        ["--devices", "0,1"],
        ["--max-num-seqs", "65"],
        ["--dev", "0"],
        ["--platform", "x"],
    ],
)
def test_the_stand_in_refuses_what_the_production_engine_does(change: list[str]) -> None:
    devices = ",".join(map(str, range(8)))
    plain = [
        "--model",
        "m",
        "--backend",
        "npu",
        "--platform",
        "a2a3",
        "--devices",
        devices,
        "--dp",
        "8",
        "--ep",
        "8",
    ]
    assert checked(plain).tp == 1
    with pytest.raises(SystemExit) as refused:
        checked([*plain, *change])
    assert refused.value.code == 2
