"""The history: what is kept of a run, once, by several processes at a time; series; the command line; the drawings."""

from __future__ import annotations

import json
import multiprocessing
import re
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from analyzers.errors import NoDataError, UnusableInputError
from analyzers.history import store
from analyzers.history.entry import Entry, read_entry
from analyzers.history.html import render_history
from analyzers.history.store import open_history
from analyzers.history.trends import Selection, figure, group, known_metric, select, trend
from analyzers.machine import MachineFacts
from analyzers.rundir import RunDirectory, RunStatus, RunTiming
from dsv4bench.cli import app
from tests.builders.manifests import write_manifest
from tests.builders.requests import request, write_requests

MS = 1_000_000
DAY = 86_400 * 10**9
NOON = 1_800_000_000 * 10**9
"""2027-01-15T08:00 UTC."""


def write_run(
    root: Path,
    tpot_ms: float = 10.0,
    *,
    index: int = 0,
    revision: str = "a" * 40,
    dirty: bool = False,
    status: RunStatus = "complete",
    requests: bool = True,
    **engine: Any,
) -> Path:
    """A run directory with one request of five tokens, `tpot_ms` apart."""
    root.mkdir(parents=True, exist_ok=True)
    run = RunDirectory(root)
    write_manifest(
        run,
        tool_version="0.1.0",
        status=status,
        profile={
            "name": "smoke",
            "model": {"preset": "tiny"},
            "engine": {"backend": "torch", "depth": 2, **engine},
        },
        host=MachineFacts(processor="CPU <b>X</b>", cores=2, architecture="x86_64", memory_bytes=2**34),
        git={"revision": revision, "dirty": "true" if dirty else "false"},
        clocks={"monotonic_ns": 5_000, "wall_ns": NOON + index * DAY},
        timing=RunTiming(started_ns=4_000),
        error="RankError: rank 3 died" if status != "complete" else None,
    )
    if requests:
        times = [round((20 + tpot_ms * token) * MS) for token in range(5)]
        write_requests(run.requests, request("r0", times, steps=4))
    return root


def entry(index: int, tpot: float | None, revision: str = "a" * 40, **fields: Any) -> Entry:
    values = {
        "identity": f"run {index}", "origin": f"start {index}", "profile": "smoke", "backend": "torch",
        "model": "tiny", "machine": "one", "config": {"engine.depth": 2}, "revision": revision, "dirty": False,
        "started_ns": NOON + index * DAY, "status": "complete", "note": "", "path": f"/runs/{index}",
        "tool_version": "0.1.0", "figures": {} if tpot is None else {"tpot": tpot},
    }  # fmt: skip
    return Entry(**{**values, **fields})


def kept(path: Path) -> list[Entry]:
    with open_history(path, create=False) as history:
        return history.entries()


def add(path: Path, *entries: Entry) -> list[str]:
    with open_history(path, create=True) as history:
        return [history.add(each) for each in entries]


def test_an_entry_has_figures_configuration_machine_revision_and_time(tmp_path: Path) -> None:
    found = read_entry(write_run(tmp_path / "run", 12.5, dirty=True))
    assert found.figures["tpot"] == pytest.approx(12.5)
    assert found.figures["ttft"] == pytest.approx(20.0)
    assert (found.profile, found.backend, found.model) == ("smoke", "torch", "tiny")
    assert found.config["engine.depth"] == 2
    assert {"processor=CPU <b>X</b>", "cores=2", "memory=16 GiB"} <= set(found.machine.split("; "))
    assert re.fullmatch(r"smoke, torch, tiny, CPU <b>X</b>, 2 cores \[[0-9a-f]{4}\]", group([found])[0].title)
    assert (found.revision, found.dirty, found.label) == ("a" * 40, True, "aaaaaaaa+")
    # Started 1000 ns before the clocks were read.
    assert found.started_ns == NOON - 1_000
    assert (found.status, found.note) == ("complete", "")


@pytest.mark.parametrize("status", ["incomplete", "failed", "interrupted"])
def test_a_run_that_did_not_complete_has_no_figures(tmp_path: Path, status: RunStatus) -> None:
    found = read_entry(write_run(tmp_path / "run", status=status))
    assert (found.status, found.figures, found.note) == (status, {}, "RankError: rank 3 died")


def test_a_complete_run_with_nothing_to_measure_is_invalid(tmp_path: Path) -> None:
    found = read_entry(write_run(tmp_path / "run", requests=False))
    assert (found.status, found.figures) == ("invalid", {})
    assert found.note


def test_what_is_no_run_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableInputError, match=r"no run directory: run\.json"):
        read_entry(tmp_path)
    run = write_run(tmp_path / "run")
    manifest = json.loads((run / "run.json").read_text())
    del manifest["clocks"]["wall_ns"]
    (run / "run.json").write_text(json.dumps(manifest))
    with pytest.raises(UnusableInputError, match=r"clocks\.wall_ns is missing"):
        read_entry(run)
    manifest["clocks"]["wall_ns"] = -1
    (run / "run.json").write_text(json.dumps(manifest))
    with pytest.raises(UnusableInputError, match="make no time"):
        read_entry(run)


def test_a_run_is_kept_once_wherever_it_lies(tmp_path: Path) -> None:
    first, copy = (read_entry(write_run(tmp_path / name)) for name in ("here", "there"))
    other = read_entry(write_run(tmp_path / "other", 11.0))
    assert first.identity == copy.identity != other.identity
    assert add(tmp_path / "db", first, copy, other) == ["added", "there already", "added"]
    assert add(tmp_path / "db", first) == ["there already"]
    assert kept(tmp_path / "db") == sorted([first, other], key=lambda each: each.identity)


def test_the_end_of_a_run_replaces_the_state_in_which_it_was_running(tmp_path: Path) -> None:
    running = read_entry(write_run(tmp_path / "run", status="running", requests=False))
    complete = read_entry(write_run(tmp_path / "run"))
    assert running.origin == complete.origin
    assert add(tmp_path / "db", running, complete) == ["added", "replaced"]
    assert kept(tmp_path / "db") == [complete]


def _add_many(path: Path, start: int) -> None:
    for index in range(start, start + 20):
        add(path, entry(index, 10.0 + index))


def test_several_processes_may_add_at_once(tmp_path: Path) -> None:
    path = tmp_path / "db"
    context = multiprocessing.get_context("spawn")
    # Half of their runs are the same.
    processes = [context.Process(target=_add_many, args=(path, start)) for start in (0, 10)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert [each.figures["tpot"] for each in kept(path)] == [10.0 + index for index in range(30)]


def test_an_addition_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UnusableInputError, match="cannot be used as a history"):
        add(tmp_path / "db", entry(0, float("nan")))
    assert kept(tmp_path / "db") == []


def test_files_that_are_no_history_are_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no database, but long enough to have a header of a hundred bytes " * 20)
    with pytest.raises(UnusableInputError, match="no SQLite database"):
        add(text, entry(0, 1.0))
    foreign = tmp_path / "foreign.sqlite"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE runs (id)")
    connection.commit()
    connection.close()
    before = foreign.read_bytes()
    with pytest.raises(UnusableInputError, match="of something else"):
        add(foreign, entry(0, 1.0))
    assert foreign.read_bytes() == before
    with pytest.raises(UnusableInputError, match="no history is there"):
        kept(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()
    with pytest.raises(UnusableInputError, match="cannot be used as a history"):
        add(tmp_path, entry(0, 1.0))


def test_a_newer_version_is_refused_and_an_older_one_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "db"
    add(path, entry(0, 1.0))
    migrations = (*store._MIGRATIONS, ("ALTER TABLE runs ADD COLUMN color TEXT",))
    with monkeypatch.context() as later:
        later.setattr(store, "_MIGRATIONS", migrations)
        later.setattr(store, "SCHEMA_VERSION", len(migrations))
        with pytest.raises(UnusableInputError, match="older version"):
            kept(path)
        assert add(path, entry(1, 2.0)) == ["added"]
        assert len(kept(path)) == 2
    with pytest.raises(UnusableInputError, match="newer version \\(schema 2, this one reads up to 1\\)"):
        kept(path)


def test_runs_that_differ_in_configuration_are_series_of_their_own() -> None:
    entries = [
        *(entry(index, 10.0) for index in range(3)),
        entry(3, 20.0, config={"engine.depth": 1}),
        entry(4, 10.0, config={"engine.depth": 2, "engine.new_key": False}),
        entry(5, 10.0, machine="two"),
        entry(6, 10.0, profile="other"),
    ]
    found = group(entries)
    assert [(each.name, each.machine, len(each.entries)) for each in found] == [
        ("other", "one", 1),
        # A key that older runs do not name is no difference.
        ("smoke", "one", 4),
        ("smoke (engine.depth=1)", "one", 1),
        ("smoke", "two", 1),
    ]
    assert len({each.id for each in found}) == 4
    assert select(found, Selection(profile="sm*", machine="tw")) == [found[3]]
    assert select(found, Selection(id=found[2].id[:5])) == [found[2]]
    with pytest.raises(NoDataError, match="no series of the history matches"):
        select(found, Selection(backend="pypto"))
    with pytest.raises(NoDataError, match="no runs yet"):
        select([], Selection())


def stepped() -> list[Entry]:
    """Six runs at 44.1, six at 45.9 ms of a later revision, one without figures between them."""
    noise = [0.1, -0.1, 0.0, 0.2, -0.2, 0.0]
    before = [entry(index, 44.1 + each, "b" * 40) for index, each in enumerate(noise)]
    failed = entry(6, None, "c" * 40, status="failed", note="RankError")
    after = [entry(index, 45.9 + each, "d" * 40) for index, each in enumerate(noise, 7)]
    return [*before, failed, *after]


def test_a_trend_names_the_revision_since_which_it_is_on_another_level() -> None:
    (series,) = group(stepped())
    found = trend(series, "tpot")
    (step,) = found.steps
    assert (step.run, step.label, step.better, step.within_revision) == (6, "dddddddd", False, False)
    assert step.change == pytest.approx(45.9 / 44.1 - 1)
    assert step.text == "since revision dddddddd (2027-01-22T08:00): +4.1 %, from 44.10 to 45.90 ms, worse"
    assert found.without_figure == ["cccccccc failed"]
    assert [run.level for run in found.runs] == pytest.approx([44.1] * 6 + [45.9] * 6)


def test_a_step_between_runs_of_one_revision_points_at_the_machine() -> None:
    entries = [msgspec.structs.replace(each, revision="e" * 40) for each in stepped()]
    (step,) = trend(group(entries)[0], "tpot").steps
    assert step.within_revision
    assert "look at the machine" in step.text
    dirty = [msgspec.structs.replace(each, dirty=True) for each in entries]
    assert not trend(group(dirty)[0], "tpot").steps[0].within_revision


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (44.1, "44.10"),
        (0.5, "0.5000"),
        (1.7271, "1.727"),
        (426.909, "426.9"),
        (12345.6, "12346"),
        (-3.0, "-3.000"),
    ],
)
def test_figures_have_four_significant_digits(value: float, text: str) -> None:
    assert figure(value) == text


def test_metrics_are_those_of_the_registry() -> None:
    assert known_metric("tpot_ms") == "tpot"
    with pytest.raises(UnusableInputError, match="keeps no metric 'tpott'; did you mean tpot"):
        known_metric("tpott")


def test_the_page_runs_nothing_and_shows_foreign_text_as_text() -> None:
    hostile = '"><script>alert(1)</script>'
    entries = [
        msgspec.structs.replace(each, profile=hostile, note=hostile, revision=f"<i>{index}")
        for index, each in enumerate(stepped())
    ]
    (series,) = group(entries)
    page = render_history([(series, [trend(series, "tpot")])], "History")
    assert "<script" not in page
    assert "<i>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "default-src &#x27;none&#x27;" in page
    assert not re.search(r"(?:src|href)=\"(?!#)", page)
    assert page.count("<circle") == 12
    assert ">+4.1 %</text>" in page


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    found = [
        write_run(tmp_path / f"run-{index}", tpot, index=index, revision=revision * 40)
        for index, (tpot, revision) in enumerate(
            [
                (44.1, "b"),
                (44.2, "b"),
                (44.0, "b"),
                (44.1, "c"),
                (46.0, "d"),
                (45.9, "d"),
                (46.1, "d"),
                (46.0, "e"),
            ]
        )
    ]
    return [str(run) for run in [*found, write_run(tmp_path / "dead", index=9, status="failed")]]


def command(*arguments: str, db: Path, code: int = 0) -> str:
    # Plain and 80 columns wide, as when piped.
    result = CliRunner().invoke(
        app, ["history", *arguments, "--db", str(db)], env={"COLUMNS": "80", "NO_COLOR": "1"}
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        assert getattr(result.exception, "exit_code", None) == code, result.exception
        return str(result.exception)
    assert result.exit_code == code, result.output
    return result.output


def test_the_commands_from_adding_to_drawing(tmp_path: Path, runs: list[str]) -> None:
    db = tmp_path / "history.sqlite"
    output = command("add", *runs, db=db)
    assert output.count("added: ") == 9
    assert "(failed, without figures: RankError: rank 3 died)" in output
    assert command("add", *runs, db=db).count("there already: ") == 9

    output = command("list", db=db)
    assert re.search(r"smoke, torch, +8/9 +2027-01-15 +2027-01-24 +46\.00", output), output
    listed = json.loads(command("list", "--json", db=db))
    assert listed["schema_version"] == 1
    (series,) = listed["series"]
    assert series["runs"] == 9

    output = command("show", "--profile", "smoke", "--metric", "tpot", db=db)
    assert "since revision dddddddd (2027-01-19T07:59): +4.3 %, from 44.10 to 46.00 ms, worse" in output
    assert re.search(r"aaaaaaaa +2027-01-24T07:59 +failed +-", output), output
    shown = json.loads(command("show", series["id"], "--json", db=db))
    assert [step["revision"] for step in shown["trend"]["steps"]] == ["d" * 40]
    assert [level["value"] for level in shown["trend"]["levels"]] == pytest.approx([44.1, 46.0])

    output = command("plot", db=db)
    lines = output.splitlines()
    assert max(map(len, lines)) <= 80 or "since revision" in max(lines, key=len)
    assert "\x1b" not in output
    drawn = [line for line in lines if "│" in line or "┤" in line]
    assert sum(line.count("●") for line in drawn) == 8
    assert all(line.count("┊") + line.count("●") + line.count("─") >= 1 for line in drawn)
    assert "bbbbbbbb" in output
    assert "dddddddd" in output

    page = tmp_path / "history.html"
    assert command("plot", "--html", str(page), db=db).startswith(str(page))
    assert "tpot +4.3 %" in page.read_text()


def test_what_a_user_can_get_wrong_has_an_exit_code(tmp_path: Path, runs: list[str]) -> None:
    db = tmp_path / "history.sqlite"
    assert "no history is there" in command("list", db=db, code=2)
    # The others are kept.
    assert "added" in command("add", str(tmp_path / "nowhere"), runs[0], db=db, code=2)
    deep = write_run(tmp_path / "deep", index=3, depth=1)
    command("add", str(deep), db=db)
    assert "2 series match; name one of" in command("show", db=db, code=2)
    assert "no series of the history matches" in command("show", "--profile", "nothing", db=db, code=3)
    assert "keeps no metric" in command("show", "--metric", "speed", db=db, code=2)
    assert "cannot be written" in command("plot", "--html", str(db / "x.html"), db=db, code=2)
