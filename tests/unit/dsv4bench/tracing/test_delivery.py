"""The second place of a serving trace: what lies there before, after, and when it cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsv4bench.errors import UsageError
from dsv4bench.tracing import fragments_directory, merged_trace
from dsv4bench.tracing.delivery import deliver, prepare_output


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    directory = tmp_path / "run" / "sa_profile"
    (directory / "fragments").mkdir(parents=True)
    (directory / "fragments" / "trace.7.jsonl").write_text('{"name":"new"}\n')
    (directory / "trace.json").write_text('{"traceEvents":[{"name":"new"}]}')
    return directory


@pytest.mark.parametrize("name", ["out", "deep/er/out", "x.json", "deep/x.json"])
def test_both_layouts_get_the_fragments_and_the_trace(recorded: Path, tmp_path: Path, name: str) -> None:
    output = tmp_path / name
    prepare_output(output, tmp_path / "run")
    deliver(recorded, output)
    assert (fragments_directory(output) / "trace.7.jsonl").read_text() == '{"name":"new"}\n'
    assert merged_trace(output).read_text() == (recorded / "trace.json").read_text()
    assert not list(merged_trace(output).parent.glob("*.partial"))


def test_an_earlier_run_stays_until_the_trace_is_there_and_goes_then(recorded: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    (output / "fragments").mkdir(parents=True)
    old = output / "fragments" / "trace.3.jsonl"
    old.write_text("old")
    (output / "fragments" / "notes.txt").write_text("mine")
    (output / "trace.json").write_text("old")
    prepare_output(output, None)
    assert (old.read_text(), (output / "trace.json").read_text()) == ("old", "old")
    deliver(recorded, output)
    assert sorted(path.name for path in (output / "fragments").iterdir()) == ["notes.txt", "trace.7.jsonl"]
    assert "new" in (output / "trace.json").read_text()


def test_a_file_a_directory_of_a_files_name_and_a_place_below_a_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    (tmp_path / "d.json").mkdir()
    for output in (file, tmp_path / "d.json", file / "below", file / "x.json"):
        with pytest.raises(UsageError, match=r"cannot write the serving trace to .*; set SA_PROFILE_OUTPUT"):
            prepare_output(output, None)
    assert file.read_text() == "mine"


def test_a_place_without_the_right_to_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The superuser may write anywhere: what the system would say to others is said here by hand.
    locked = tmp_path / "locked"
    locked.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != locked)
    with pytest.raises(UsageError, match=r"Permission denied: .*locked"):
        prepare_output(locked / "x.json", None)


@pytest.mark.parametrize("inside", ["", "sa_profile", "prof", "x.json", "a/../b"])
def test_a_place_in_the_run_directory_is_refused_and_nothing_is_made(tmp_path: Path, inside: str) -> None:
    root = tmp_path / "run"
    with pytest.raises(UsageError, match=r"lies in the run directory .* sa_profile/ anyway"):
        prepare_output(root / inside, root)
    assert not root.exists()


def test_a_disk_that_is_full_is_said_and_leaves_the_recorded_trace(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    prepare_output(output, None)

    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(
        UsageError, match=r"No space left on device: .*out.*; .* the run directory keeps the trace"
    ):
        deliver(recorded, output)
    assert (recorded / "trace.json").exists()
