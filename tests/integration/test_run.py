"""`dsv4bench run` as a user meets it: a real process, its exit code, its words, and what it leaves behind."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from analyzers.rundir import RunDirectory
from tests.integration.command import SMALL, command, manifest_of, measured_of, run, shared_memory
from tests.integration.conftest import children_of, is_alive


def test_smoke_is_the_main_job(environment: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = run(environment, "run", "smoke", "--out", out)
    assert done.returncode == 0, done.stderr
    paths = RunDirectory(out)
    manifest = manifest_of(out)
    assert manifest.status == "complete"
    assert [process.rank for process in manifest.device_map] == list(range(8))
    for path in (
        paths.serving_trace,
        paths.server_log,
        paths.responses,
        paths.performance_summary,
        paths.report("json"),
        paths.report("md"),
        paths.swimlane_perfetto,
        paths.swimlane_chrome,
        *(paths.rank_log(rank) for rank in range(8)),
    ):
        assert path.stat().st_size > 0
        if path.suffix == ".json":
            json.loads(path.read_bytes())
    measured = measured_of(out)
    assert len(measured) == 1
    (record,) = measured
    assert record.prompt == "Huawei is"
    assert len(record.output_token_ids) == 20
    assert record.finish_reason == "length"
    # K = 1: each step offers one draft and commits one token more than it accepts.
    assert record.proposed == record.steps
    assert 20 + record.discarded == 1 + record.steps + record.accepted
    summary = json.loads(paths.performance_summary.read_bytes())
    assert summary["output_tokens"] == 20
    assert summary["effective_tpot_ms"] == pytest.approx(summary["elapsed_s"] * 1e3 / 20)
    for text in ("submit_to_completion", "runner-start skew", "swimlane.pftrace"):
        assert text in done.stdout
    assert "smoke: starting 8 ranks" in done.stderr
    # The same figures from the directory alone.
    again = run(environment, "analyze", out, "--format", "json")
    assert again.returncode == 0
    fresh, stored = json.loads(again.stdout), json.loads(paths.report("json").read_bytes())
    assert fresh["steps"] == stored["steps"]
    assert fresh["skew"] == stored["skew"]


@pytest.mark.parametrize(
    ("depth", "statement"), [(2, "before the previous one completed"), (1, "depth one declared")]
)
def test_the_report_says_how_deep_the_pipeline_was(
    environment: dict[str, str], tmp_path: Path, depth: int, statement: str
) -> None:
    """How many steps a busy machine gets in flight is not for this test to say: never more than were declared."""
    done = run(
        environment,
        *("run", "gbs32-mtp1", *SMALL, "--out", tmp_path / "run", "--set", f"engine.depth={depth}"),
        *("--set", "load.output_tokens=40", "--set", "load.requests=8"),
    )
    assert done.returncode == 0, done.stderr
    assert statement in done.stdout
    report = json.loads((tmp_path / "run" / "report.json").read_bytes())
    pairs = report["lifecycle"]["pairs"]
    assert pairs >= 20
    (pipeline,) = [found for found in report["pipelines"] if "decode" in found["callable"]]
    assert pipeline["declared_depth"] == depth
    assert 1 <= pipeline["most_in_flight"] <= depth
    assert pipeline["in_flight"]["overlapping"] <= (pairs if depth == 2 else 0)
    assert report["lifecycle"]["faults"] == []
    assert report["lost"] == 0


def test_json_prints_one_document_and_nothing_else(environment: dict[str, str], tmp_path: Path) -> None:
    done = run(environment, "run", "gbs32-mtp1", *SMALL, "--out", tmp_path / "run", "--json",
               "--set", "load.output_tokens=4", "--set", "load.requests=2")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schema_version"] >= 1


def test_without_traces_the_requests_are_still_measured(environment: dict[str, str], tmp_path: Path) -> None:
    done = run(environment, "run", "gbs32-mtp1", *SMALL, "--no-trace", "--out", tmp_path / "run",
               "--set", "load.output_tokens=4", "--set", "load.requests=2")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "run" / "sa_profile").exists()
    assert "[STRACE]" not in (tmp_path / "run" / "server.log").read_text()
    assert "TTFT" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["smok"], "unknown profile 'smok' (did you mean 'smoke'?)"),
        (["smoke", "--set", "engine.dept=1"], "unknown key 'dept' in [engine] (did you mean 'depth'?)"),
        (["smoke", "--set", "engine.depth=3"], "engine.depth = 3: expected a whole number from 1 to 2"),
        (["smoke", "--ranks", "32"], "32 ranks cannot share 16 experts evenly"),
        (["smoke", "--set", "model.preset=huge"], "huge"),
        (["smoke", "--set", "model.preset=test-b"], "needs the full vocabulary"),
        (["smoke", "--out", "/proc/nowhere"], "cannot write to the output directory /proc/nowhere"),
    ],
)
def test_bad_usage_is_one_clear_line_and_exit_2(
    environment: dict[str, str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = run(environment, "run", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if line.startswith("dsv4bench: ")]
    assert len(lines) == 1
    assert message in lines[0]
    assert "Traceback" not in done.stderr


def test_an_output_directory_in_use_is_refused(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    done = run(environment, "run", "smoke", "--out", tmp_path)
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def start_long_run(environment: dict[str, str], out: Path) -> tuple[subprocess.Popen[str], set[int]]:
    """A run that would take minutes; returns it with its processes once tokens flow."""
    process = subprocess.Popen(
        command("run", "gbs32-mtp1", *SMALL, "--out", out, "--set", "engine.max_model_len=4000",
                "--set", "load.output_tokens=3900"),
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    log = out / "server.log"
    while time.monotonic() < deadline:
        if log.exists() and log.read_text(errors="replace").count(" name=chip.run ") > 80:
            break
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    return process, children_of(process.pid)


def test_a_killed_rank_ends_the_run_and_leaves_what_was_measured(
    environment: dict[str, str], tmp_path: Path
) -> None:
    out, before = tmp_path / "run", shared_memory()
    process, children = start_long_run(environment, out)
    victim = manifest_of(out).device_map[2]
    assert manifest_of(out).status == "running"
    os.kill(victim.pid, signal.SIGKILL)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert f"rank 2 (pid {victim.pid}) was killed by SIGKILL" in errors
    assert "Traceback" not in errors
    assert not any(is_alive(pid) for pid in children)
    assert shared_memory() <= before

    manifest = manifest_of(out)
    assert manifest.status == "incomplete"
    assert f"rank 2 (pid {victim.pid}) was killed by SIGKILL" in manifest.error
    measured = measured_of(out)
    assert sum(len(record.output_token_ids) for record in measured) > 0
    assert {record.finish_reason for record in measured} == {"error"}
    again = run(environment, "analyze", out)
    assert again.returncode in (0, 1)
    assert "was killed by SIGKILL" in again.stdout
    assert "submit_to_completion" in again.stdout


def test_ctrl_c_ends_the_run_and_leaves_what_was_measured(
    environment: dict[str, str], tmp_path: Path
) -> None:
    out, before = tmp_path / "run", shared_memory()
    process, children = start_long_run(environment, out)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert not any(is_alive(pid) for pid in children)
    assert shared_memory() <= before
    assert manifest_of(out).status == "interrupted"
    measured = measured_of(out)
    assert sum(len(record.output_token_ids) for record in measured) > 0
    assert {record.finish_reason for record in measured} == {"cancelled"}


def test_a_killed_command_leaves_no_rank_behind(environment: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    process, children = start_long_run(environment, out)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 10
    while any(is_alive(pid) for pid in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_alive(pid) for pid in children)
    again = run(environment, "analyze", out)
    assert again.returncode in (0, 3, 4)
    assert "Traceback" not in again.stderr


def test_mtp_on_and_off_are_compared_token_for_token(environment: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = run(environment, "run", "mtp-accuracy", *SMALL, "--out", out, "--set", "load.requests=5",
               "--set", "load.output_tokens=24")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "mtp-accuracy: running the same requests without MTP" in done.stderr
    assert "MTP on and off generate the same tokens" in done.stdout
    assert json.loads((out / "mtp_accuracy.json").read_bytes()) == {
        "mtp": 1,
        "requests": 5,
        "tokens": 5 * 24,
        "different_requests": 0,
        "first_difference": None,
    }
    assert [record.request_id for record in measured_of(out)] == [f"request-{index}" for index in range(5)]


def test_a_soak_watches_every_process(environment: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = run(environment, "run", "ep4-depth2-soak", *SMALL, "--ranks", "2", "--out", out,
               "--set", "load.requests=4", "--set", "load.output_tokens=211", "--set", "engine.mtp=0")  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((out / "report.json").read_bytes())
    grown = report["resources"]
    assert [entry["process"] for entry in grown] == [
        "engine",
        "server",
        *(f"rank {rank}" for rank in range(2)),
    ]
    pids = [process.pid for process in manifest_of(out).device_map]
    assert [entry["pid"] for entry in grown[2:]] == pids
    for entry in grown:
        # 211 tokens, one from prefill, one a round. The first sample behind round 100 is taken when the watch comes by.
        assert 100 <= entry["first_steps"] < entry["last_steps"]
        assert entry["last_steps"] >= 210
        assert entry["first_rss_bytes"] > 10 << 20
        assert entry["first_fds"] == entry["last_fds"]
        assert entry["first_shared_regions"] == entry["last_shared_regions"]
    assert report["lost"] == 0
    assert report["lifecycle"]["faults"] == []
