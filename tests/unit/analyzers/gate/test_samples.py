"""Samples out of files and run directories, and the metrics of a run by name."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from analyzers.analysis import analyze
from analyzers.errors import NoDataError, NotComparableError, UnusableInputError
from analyzers.gate.baseline import baseline_path, save_baseline
from analyzers.gate.comparability import machine_name, short_machine
from analyzers.gate.metrics import REGISTRY, canonical, metric, run_values, split_tag
from analyzers.gate.model import Samples
from analyzers.gate.samples import read_samples, samples_of_runs, write_samples
from analyzers.machine import MachineFacts
from analyzers.rundir import Manifest
from dsv4bench.cli import app
from tests.builders import manifests
from tests.builders.requests import request, write_requests

MS = 1_000_000
HOST = MachineFacts(processor="Abacus", cores=2, memory_bytes=2**33, hostname="here")


def manifest(**changes: Any) -> Manifest:
    plain = manifests.manifest(
        profile={
            "name": "toy",
            "description": "words",
            "engine": {"backend": "torch", "depth": 2},
            "load": {"requests": 1, "prompts": None},
            "check": {"mtp_off": False},
            "gate": {"stage_runs": 10},
        },
        versions={"python": "3"},
        host=HOST,
        git={"revision": "abc", "dirty": "false"},
    )
    return msgspec.structs.replace(plain, **changes)


def write_run(root: Path, step_ms: int = 30, *, error: str | None = None, **changes: Any) -> Path:
    """A run of one request: the first token after 100 ms, then 4 steps that carry 2, 1, 2 and 1 tokens.

    It is sent at a time of its own, as no two runs happen at once.
    """
    send = 5 + zlib.crc32(str(root).encode()) % 10**6
    arrivals = [100]
    for step, tokens in enumerate((2, 1, 2, 1), 1):
        arrivals += [100 + step * step_ms] * tokens
    times, counts = (
        [(send + time) * MS for time in arrivals],
        {"accepted": 2, "proposed": 4, "steps": 4, "discarded": 0},
    )
    root.mkdir(parents=True)
    (root / "run.json").write_bytes(msgspec.json.encode(manifest(**changes)))
    write_requests(root / "requests.jsonl", request("r0", times, send_ns=send * MS, error=error, **counts))
    return root


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_values_of_a_run_by_name(tmp_path: Path) -> None:
    values = run_values(analyze([write_run(tmp_path / "run")]))
    assert list(values) == list(REGISTRY)
    # 4 steps of 30 ms after the first token, 6 tokens in them; the last token 220 ms after the send.
    assert values["tpot"] == 120 / 6
    assert values["tpot_token_weighted"] == 120 / 6
    assert values["step_time"] == 30
    assert values["tokens_per_step"] == 1.5
    assert values["acceptance_length"] == 1.5
    assert values["acceptance_rate"] == 0.5
    assert values["ttft"] == 100
    assert values["e2e"] == 220
    assert values["throughput"] == pytest.approx(7 / 0.220)
    assert values["effective_tpot"] == pytest.approx(220 / 7)
    assert values["runner_start_skew_p95"] is None, "no rank records, no skew"
    assert values["host_time"] is None


def test_any_figure_of_the_report_by_its_path(tmp_path: Path) -> None:
    report = analyze([write_run(tmp_path / "run")])
    assert run_values(
        report,
        [
            "requests[0].tpot.p50",
            "requests[measured].tpot.p50",
            "requests[warmup].tpot.p50",
            "requests[0].mtp.accepted",
            "step_time[0].wall.mean",
            "lifecycle.pairs",
        ],
    ) == {
        "requests[0].tpot.p50": 20 * MS,
        "requests[measured].tpot.p50": 20 * MS,
        "requests[warmup].tpot.p50": None,
        "requests[0].mtp.accepted": 2.0,
        "step_time[0].wall.mean": None,
        "lifecycle.pairs": 0.0,
    }
    for path, message in (
        ("requests[0].tpott.p50", "it has tpot"),
        ("requests[0].tpot", "is no number; it holds n, mean"),
        ("requests.tpot", "requests has no 'tpot'"),
        ("run[0].status", "is no list"),
        ("run.profile", "is no number"),
        ("tpott", "did you mean tpot"),
        ("steptime[0].wall.mean", r"did you mean step_time\[0\].wall.mean"),
    ):
        with pytest.raises(UnusableInputError, match=message):
            run_values(report, [path])


@pytest.mark.parametrize(
    ("name", "unit", "higher_is_better"),
    [
        ("tpot", "ms", False),
        ("tpot_ms[bs=32]", "ms", False),
        ("throughput", "tokens/s", True),
        ("throughput_per_s", "tokens/s", True),
        ("decode_throughput_per_s", "/s", True),
        ("requests_per_s", "/s", True),
        ("output_tokens_per_s", "/s", True),
        ("acceptance_length", "tokens", True),
        ("load_s", "s", False),
        ("copy_us", "us", False),
        ("step_time[0].wall.mean", "ns", False),
        ("skew[all,5000000].runner_start_skew.p95", "ns", False),
        ("requests[0].mtp.accepted", "", True),
    ],
)
def test_unit_and_direction_follow_from_the_name(name: str, unit: str, higher_is_better: bool) -> None:
    found = metric(name)
    assert (found.name, found.unit, found.higher_is_better) == (name, unit, higher_is_better)


def test_one_metric_has_one_canonical_name() -> None:
    assert canonical("tpot_ms") == canonical("tpot") == "tpot"
    assert canonical("tpot_ms[bs=32]") == "tpot[bs=32]"
    assert canonical("tpot_s") == "tpot_s", "another unit is another metric"
    assert canonical("latency_ms") == "latency_ms"
    assert split_tag("tpot_ms[bs=32]") == ("tpot_ms", "[bs=32]")
    assert split_tag("steps[0]") == ("steps[0]", "")


def test_runs_become_one_sample_a_run(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "runs" / str(index), step_ms) for index, step_ms in enumerate((30, 33, 36))]
    expected = samples_of_runs(runs)
    assert expected.metrics["tpot"] == [20, 22, 24]
    assert expected.runs == [str(run) for run in runs]
    assert expected.failed == []
    assert expected.revision == "abc"
    assert expected.config == {
        "profile": "toy",
        "engine.backend": "torch",
        "engine.depth": 2,
        "load.requests": 1,
    }
    for paths in ([tmp_path / "runs"], [tmp_path / "runs" / "*"], [Path("runs/[0-2]"), *runs], runs):
        found = read_samples(paths)
        assert found.metrics == expected.metrics, "however they are named, each run counts once"
    assert read_samples([runs[0] / "run.json"]).metrics["tpot"] == [20]
    assert read_samples(runs, ["requests[0].tpot.max"]).metrics["requests[0].tpot.max"] == [
        20 * MS, 22 * MS, 24 * MS,
    ]  # fmt: skip


def test_runs_that_failed_stay_with_their_reason(tmp_path: Path) -> None:
    good = write_run(tmp_path / "good")
    stopped = write_run(tmp_path / "stopped", status="incomplete")
    refused = write_run(tmp_path / "refused", error="connection reset")
    samples = samples_of_runs([good, stopped, refused])
    assert samples.metrics["tpot"] == [20, None, None]
    assert samples.failed == [f"{stopped}: status incomplete", f"{refused}: 1 of 1 requests failed"]


def test_runs_of_one_side_are_of_one_configuration_and_machine(tmp_path: Path) -> None:
    first = write_run(tmp_path / "first")
    other = write_run(tmp_path / "other", profile={"name": "toy", "engine": {"depth": 1}})
    with pytest.raises(NotComparableError, match=r"engine\.depth 2 vs 1"):
        samples_of_runs([first, other])
    elsewhere = write_run(tmp_path / "elsewhere", host=msgspec.structs.replace(HOST, cores=64))
    with pytest.raises(NotComparableError, match="machine cores 2 vs 64"):
        read_samples([first, elsewhere])
    container = write_run(tmp_path / "container", host=msgspec.structs.replace(HOST, hostname="f3a9"))
    assert len(samples_of_runs([first, container]).runs) == 2


def test_a_machine_by_its_facts_and_for_people() -> None:
    name = machine_name(manifest())
    assert name is not None
    assert "processor=Abacus" in name
    assert "here" not in name
    assert short_machine(name).startswith("Abacus, 2 cores [")
    assert short_machine(name) != short_machine(
        machine_name(manifest(host=msgspec.structs.replace(HOST, kernel="7")))
    )
    assert short_machine("a") == "a"
    assert machine_name(manifest(host=MachineFacts(), versions={})) is None


def test_what_to_know_about_runs_is_said(tmp_path: Path) -> None:
    dirty = write_run(tmp_path / "dirty", git={"revision": "abc", "dirty": "true"})
    other = write_run(tmp_path / "other", git={"revision": "def", "dirty": "false"}, faults=["kill"])
    samples = samples_of_runs([dirty, other])
    assert samples.revision is None
    text = "\n".join(samples.warnings)
    assert "several source revisions" in text
    assert "1 of 2 runs are of a source tree with uncommitted changes" in text
    assert f"{other}: faults were injected" in text


def test_a_samples_file_round_trips(tmp_path: Path) -> None:
    samples = Samples({"tpot_ms": [10.0, None]}, {"batch": 16}, "a", ["x", "y"], ["hot"], failed=["y: died"])
    path = tmp_path / "deep" / "samples.json"
    write_samples(path, samples)
    assert read_samples([path]) == msgspec.structs.replace(samples, source=str(path))


def test_text_that_no_output_could_hold_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "samples.json"
    path.write_text(r'{"config": {"note": "a\ud800"}, "metrics": {"tpot_\udfff": [1.0]}}', encoding="utf-8")
    samples = read_samples([path])
    assert samples.config == {"note": "a?"}
    assert samples.metrics == {"tpot_?": [1.0]}


def test_numbers_that_no_json_should_hold_are_read_for_the_verdict(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text('\ufeff{"metrics": {"tpot_ms": [NaN, Infinity, -Infinity, 1e999, null, 3]}, "more": 1}')
    values = read_samples([path]).metrics["tpot_ms"]
    assert [str(value) for value in values] == ["nan", "inf", "-inf", "inf", "None", "3.0"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[10, 11]",
        "{}",
        "{",
        "null",
        '{"metrics": []}',
        '{"metrics": {"a": 1}}',
        '{"metrics": {"a": ["1"]}}',
        '{"metrics": {"a": [true]}}',
        '{"metrics": {"a": [1]}, "config": 3}',
        '{"metrics": {"a": [1]}, "machine": 3}',
        '{"metrics": {"a": [1' + "0" * 400 + "]}}",
        "[" * 100_000,
    ],
    ids=range(14),
)
def test_what_is_no_samples_file_is_refused_by_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(UnusableInputError, match=r"bad\.json: not a samples file"):
        read_samples([path])


def test_paths_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, message in (
        ("none", "does not exist"),
        ("none*", "nothing matches"),
        ("empty", "not a run directory"),
    ):
        with pytest.raises(UnusableInputError, match=message):
            read_samples([tmp_path / path])
    with pytest.raises(UnusableInputError, match="nothing to read"):
        read_samples([])


def test_a_baseline_is_saved_and_shown(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "runs" / str(index)) for index in range(3)]
    done = CliRunner().invoke(app, ["gate", "baseline", "save", "main", *map(str, runs)])
    assert (done.exit_code, done.output) == (0, "baselines/main.json: 3 runs saved\n")
    saved = read_samples([Path("baselines/main.json")])
    assert saved.revision == "abc"
    assert saved.saved is not None
    assert saved.saved.startswith("20")
    shown = CliRunner().invoke(app, ["gate", "baseline", "show", "main"])
    assert shown.exit_code == 0
    assert "Abacus, 2 cores" in shown.output
    assert "20 ms" in shown.output
    as_json = CliRunner().invoke(app, ["gate", "baseline", "show", "main", "--json"])
    assert json.loads(as_json.output)["metrics"]["tpot"] == [20.0, 20.0, 20.0]


def test_a_baseline_is_neither_overwritten_nor_made_of_failed_runs(tmp_path: Path) -> None:
    good, failed = write_run(tmp_path / "good"), write_run(tmp_path / "failed", error="timeout")
    save_baseline("main", [good])
    with pytest.raises(UnusableInputError, match="--replace"):
        save_baseline("main", [good])
    assert save_baseline("main", [good], ["requests[0].tpot.p50"], replace=True)[0] == Path(
        "baselines/main.json"
    )
    with pytest.raises(NoDataError, match="1 of 1 requests failed"):
        save_baseline("other", [good, failed])
    assert not baseline_path("other").exists()
    assert baseline_path("here/x") == Path("here/x")
