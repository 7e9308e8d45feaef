"""More logs of the kinds of the STRACE cases: glued, torn, coloured, cut, on two clocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.analysis import analyze
from analyzers.errors import UnusableInputError
from analyzers.readers.strace import StraceLog, read_strace, stream_strace
from analyzers.recording.recording import load_recording
from analyzers.report.build import TRUNCATED_NAMES


def record(pid: int = 10, dur: int = 5000, name: str = "chip.run", more: str = "", inv: int = 1) -> str:
    return (
        f"[mono_ns={pid}][T0x{pid}][TIMING] run: [STRACE] v=1 pid={pid} tid={pid} inv={inv} hid=abc depth=0 "
        f"name={name} ts=100 dur={dur}{more}"
    )


def read(text: str) -> StraceLog:
    return read_strace(text.encode(), "run.log")


def summary(log: StraceLog) -> tuple[list[int], int, int, dict[str, tuple[int, int]]]:
    issues: dict[str, tuple[int, int]] = {
        issue.kind: (issue.count, issue.lost) for issue in log.report.issues
    }
    return log.spans.pid.tolist(), log.report.records, log.report.parsed, issues


TORN = {"torn_record": (1, 1)}


@pytest.mark.parametrize(
    ("text", "pids", "heads", "issues"),
    [
        (record(1) + record(2) + record(3, more=" n=4"), [1, 2, 3], 3, {}),
        (record(1)[:90] + record(2), [2], 2, TORN),
        (record(1) + record(2)[:90] + record(3) + "\n", [1, 3], 3, TORN),
        (record(1) + "\x1b[0m" + "\r 45%|### | \x1b[32m" + record(2) + "\x1b[0m\n", [1, 2], 2, {}),
        (record(1).replace("[STRACE]", "\x1b[1m[STRACE]\x1b[0m"), [1], 1, {}),
        (record(1).replace("pid=1", "pid=\x1b[1m1"), [1], 1, {}),
        (record(1) + "\r\n" + record(2) + "\r\n", [1, 2], 2, {}),
        (record(1) + " INFO 12:00 ready\n" + record(2), [1, 2], 2, {"attributes_cut": (1, 0)}),
        (record(1) + " a=1 b", [1], 1, {"attributes_cut": (1, 0)}),
        (record(1) + "[WARN] x\n", [1], 1, {}),
        (record(1, dur=-1) + "\n" + record(2), [2], 2, {"invalid_dur": (1, 1)}),
        (record(1).replace("v=1", "v=10"), [], 1, {"unsupported_version": (1, 1)}),
        (record(1).replace("ts=100", "ts=1.5"), [], 1, TORN),
        (record(1).replace("ts=100", "ts=0x10"), [], 1, TORN),
        (record(1).replace("dur=5000", "dur=5000us"), [], 1, TORN),
        (record(1).replace("dur=5000", "dur=" + "9" * 25), [], 1, TORN),
        (record(1).replace("ts=100", "ts=" + "9" * 19), [], 1, {"out_of_range": (1, 1)}),
        ("[STRACE] v=1", [], 1, TORN),
        ("[STRACE]\n[STRACE] \n", [], 0, {}),
        ("[HOSTLOG_DROPS] 3 records dropped\n[HOSTLOG_DROPS]\n", [], 0, {"logger_drops": (4, 4)}),
    ],
)
def test_54_every_head_is_read_or_lost(
    text: str, pids: list[int], heads: int, issues: dict[str, tuple[int, int]]
) -> None:
    found_pids, records, parsed, found = summary(read(text))
    assert (found_pids, records, found) == (pids, heads, issues)
    lost = sum(count for kind, (_, count) in found.items() if kind not in ("logger_drops", "invalid_dur"))
    assert records - parsed == lost


def test_54_glued_records_are_ranks_of_one_round(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(record(12, 7000) + record(10, 5000) + record(11, 6000) + "\n")
    report = analyze([path])
    assert (report.records, report.lost, report.ranks.ranks) == (3, 0, [0, 1, 2])


def test_54_places_of_losses_are_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    lines = [record(1, inv=inv) for inv in range(3000)]
    lines[2345] = record(1)[:90]
    path.write_text("\n".join(lines) + "\n")
    [issue] = stream_strace(path).report.issues
    assert (issue.kind, issue.where) == ("torn_record", "line 2346")


def test_attributes_are_those_of_their_record_among_colours_and_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    text = "\x1b[32mé\x1b[0m " + "".join(
        f"\x1b[1m{record(pid, more=f' dispatch_id={pid} note=a%20b%5B')}\x1b[0m" for pid in range(1, 4)
    )
    for content in (text.encode(), text.encode("utf-16")):
        path.write_bytes(content)
        spans = stream_strace(path).spans
        assert [spans.args(row) for row in range(3)] == [
            {"dispatch_id": pid, "note": "a b["} for pid in (1, 2, 3)
        ]
        assert spans.dispatch_id.tolist() == [1, 2, 3]


def test_49_any_number_of_device_clocks_stays_off_the_host_window(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    device = [
        record(pid, 40, "chip.run.runner_run.device_wall", " clk=dev", inv).replace("ts=100", f"ts={at}")
        for pid, inv, at in ((10, 1, 0), (10, 2, 9_000_000_000_000), (11, 1, 5))
    ]
    host = [
        record(pid, 50, inv=inv).replace("ts=100", f"ts={7_000 + inv}")
        for pid, inv in ((10, 1), (10, 2), (11, 1))
    ]
    path.write_text("\n".join(device + host) + "\n")
    report = analyze([path])
    assert report.host_window_ns == (7_001, 7_052)
    walls = next(entry for entry in report.span_names if entry.clock == "device")
    assert (walls.duration.n, walls.total_ns, walls.self_ns) == (3, 120, None)
    # Another value of clk names no device clock.
    path.write_text(record(10, 50, more=" clk=host") + "\n")
    assert analyze([path]).host_window_ns == (100, 150)


@pytest.mark.parametrize(
    ("raw", "name", "is_cut"),
    [
        ("ext.a%20b", "ext.a b", False),
        ("ext.a%2520b", "ext.a%20b", False),
        ("ext.%E4%B8%AD", "ext.中", False),
        ("ext.%FF", "ext.\ufffd", False),
        ("ext.100%", "ext.100%", False),
        ("ext.a%zz", "ext.a%zz", False),
        ("ext.a%5Bb%5D%3D", "ext.a[b]=", False),
        ("ext.lo~", "ext.lo~", True),
        ("ext.lo%7E", "ext.lo~", True),
        ("ext.a~b", "ext.a~b", False),
    ],
)
def test_56_names_are_decoded_once(raw: str, name: str, is_cut: bool) -> None:
    log = read(record(name=raw))
    assert list(log.spans.iter_names()) == [name]
    assert log.report.count("truncated_names") == int(is_cut)


def test_56_names_cut_at_one_place_are_one_group_and_no_full_name(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    names = ["ext.decode_layer", "ext.decode_la~", "ext.decode_l~", "ext.decode_layer"]
    path.write_text("\n".join(record(name=name, dur=dur) for dur, name in enumerate(names, 1)) + "\n")
    figures = {entry.name: (entry.duration.n, entry.total_ns) for entry in analyze([path]).span_names}
    assert figures == {"ext.decode_layer": (2, 5), TRUNCATED_NAMES: (2, 5)}


@pytest.mark.parametrize(
    ("name", "content"), [("notes.txt", "hello\n"), ("x.json", "\x00\x01"), ("y", "7\n")]
)
def test_text_without_anything_of_the_runtime_is_no_log(name: str, content: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UnusableInputError, match="not a trace"):
        load_recording([path])


def test_a_log_may_begin_with_anything(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    for start in ('{"config": 1}\n', "[INFO] x\n", "x" * 3_000_000 + "\n", "loss 1.5\nloss 1.25\n"):
        path.write_text(start + record(7) + "\n" + record(8) + "\n")
        assert load_recording([path]).spans.pid.tolist() == [7, 8]
