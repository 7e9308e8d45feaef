"""Small STRACE logs that break parsers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from analyzers.analysis import analyze, judge
from analyzers.readers.strace import read_strace
from analyzers.report.build import TRUNCATED_NAMES
from tests.builders.places import CASES

RECORD = "[STRACE] v=1 pid=10 tid=10 inv=4 hid=abc depth=0 name=chip.run ts=100 dur=5000"


def test_49_device_clock_never_meets_the_host_clock() -> None:
    report = analyze([CASES / "49-two-clock-domains-one-log" / "run.log"])
    assert report.host_window_ns == (7_000_000_000, 7_003_000_000)
    wall = next(entry for entry in report.span_names if entry.name == "chip.run.runner_run.device_wall")
    assert wall.total_ns == 1_500_000
    assert wall.clock == "device"


def test_54_two_records_on_one_line() -> None:
    path = CASES / "54-strace-two-records-one-line" / "run.log"
    log = read_strace(path.read_bytes(), str(path))
    assert (log.report.records, log.report.parsed, log.report.lost) == (2, 2, 0)
    assert log.spans.pid.tolist() == [10, 11]
    assert log.spans.duration_ns.tolist() == [5000, 6000]
    assert log.spans.args(0) == {}
    assert log.spans.args(1) == {"ntensor": 4}
    assert analyze([path]).ranks.ranks == [0, 1]


def test_56_escapes_and_cut_names() -> None:
    path = CASES / "56-strace-escapes-and-cut-names" / "run.log"
    log = read_strace(path.read_bytes(), str(path))
    assert list(log.spans.iter_names()) == [
        "ext.pypto.decode layer",
        "ext.pypto.decode_layer_with_a_very_lo~",
    ]
    assert log.report.count("truncated_names") == 1
    names = {entry.name: entry.duration.n for entry in analyze([path]).span_names}
    assert names == {"ext.pypto.decode layer": 1, TRUNCATED_NAMES: 1}


def test_a_torn_record_is_a_loss_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    torn = RECORD[: RECORD.index(" ts=")]
    path.write_text(f"{RECORD}\n{torn}\nprogress 50%\r{RECORD.replace('inv=4', 'inv=5')}\n")
    log = read_strace(path.read_bytes(), str(path))
    assert (log.report.records, log.report.parsed, log.report.lost) == (3, 2, 1)
    [issue] = log.report.issues
    assert (issue.kind, issue.where) == ("torn_record", "line 2")
    report = analyze([path])
    assert judge(report).exit_code == 4
    assert judge(report, max_loss=1).exit_code == 0


def test_a_record_torn_by_another_is_lost_and_the_other_is_not() -> None:
    log = read_strace(f"{RECORD[:40]}{RECORD}\n".encode(), "run.log")
    assert (log.report.records, log.report.parsed, log.report.lost) == (2, 1, 1)


def test_ansi_codes_text_in_front_and_bad_bytes_do_not_cost_records() -> None:
    data = b"\xff\xfe 12%|## | \x1b[32m" + RECORD.encode() + b"\x1b[0m \xfftail\n"
    log = read_strace(data, "run.log")
    assert (log.report.parsed, log.report.lost) == (1, 0)
    assert log.report.count("invalid_utf8") == 1
    assert log.spans.duration_ns.tolist() == [5000]


def test_a_record_of_another_version_is_counted_not_guessed_at() -> None:
    log = read_strace((RECORD + "\n" + RECORD.replace("v=1", "v=2")).encode(), "run.log")
    assert (log.report.records, log.report.parsed) == (2, 1)
    assert log.report.count("unsupported_version") == 1


def test_numbers_beyond_64_bits_are_lost_not_wrapped() -> None:
    log = read_strace(RECORD.replace("ts=100", f"ts={2**63}").encode(), "run.log")
    assert (log.report.records, log.report.parsed, log.report.lost) == (1, 0, 1)
    log = read_strace(RECORD.replace("inv=4", f"inv={2**64 - 2}").encode(), "run.log")
    assert log.report.parsed == 1


def test_the_older_root_name_is_the_same_root() -> None:
    text = RECORD.replace("chip.run", "simpler_run") + "\n"
    text += RECORD.replace("chip.run", "simpler_run.bind").replace("depth=0", "depth=1") + "\n"
    log = read_strace(text.encode(), "run.log")
    assert list(log.spans.iter_names()) == ["chip.run", "chip.run.bind"]


def test_node_and_foreign_spans_belong_to_no_invocation() -> None:
    text = (
        RECORD + "\n" + RECORD.replace("chip.run", "node.submit") + " worker_id=3 dispatch_id=9 slot_id=1\n"
    )
    text += (
        RECORD.replace("chip.run", "ext.serving.step") + "\n" + RECORD.replace("chip.run", "core.dma") + "\n"
    )
    log = read_strace(text.encode(), "run.log")
    assert log.spans.invocation.tolist() == [4, -1, -1, 4]
    assert log.spans.worker_id.tolist() == [-1, 3, -1, -1]
    assert log.spans.dispatch_id.tolist() == [-1, 9, -1, -1]
    assert log.spans.slot.tolist() == [-1, 1, -1, -1]


def test_hash_zero_is_unknown_and_other_hashes_are_lower_case() -> None:
    text = RECORD.replace("hid=abc", "hid=0") + "\n" + RECORD.replace("hid=abc", "hid=AbC") + "\n"
    log = read_strace(text.encode(), "run.log")
    assert [log.spans.hid_of(row) for row in range(2)] == ["", "abc"]


def test_dropped_records_are_a_loss_the_logger_admits() -> None:
    log = read_strace(f"{RECORD}\n[HOSTLOG_DROPS] dropped=7 since start\n".encode(), "run.log")
    assert log.report.count("logger_drops") == 7
    assert log.report.lost == 7


def test_anchors_and_ready_lines_are_read_in_any_order() -> None:
    text = (
        f"{RECORD}\n[chip_process pid=10 dev=3] ready\n"
        "[mono_ns=9][T0xa][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid=10 mono_ns=5 wall_ns=1700000000000000000\n"
    )
    log = read_strace(text.encode(), "run.log")
    assert log.ready_devices == {10: 3}
    assert log.anchors[10].wall_ns == 1_700_000_000_000_000_000


def test_trailing_blank_and_crlf_are_no_part_of_a_record() -> None:
    log = read_strace((RECORD + " \r\n" + RECORD + " run_id=5\r\n").encode(), "run.log")
    assert log.spans.run_id.tolist() == [-1, 5]
    np.testing.assert_array_equal(log.spans.start_ns, [100, 100])
