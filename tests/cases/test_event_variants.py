"""What events say: times, ids, threads, begins and ends. More inputs of the kinds of the trace cases."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from analyzers.readers.chrome_trace import ChromeTrace, stream_chrome_trace
from tests.cases.trace_text import A, B, C, event, issues, names, read, where

TIMES: list[tuple[str, int | None]] = [
    ('"1000"', 1_000_000), ('" 12 "', 12_000), ('"12.5"', 12_500), ('"1e3"', 1_000_000), ("1e3", 1_000_000),
    ("1.2345e2", 123_450), ("0.0005", 0), ("0.0015", 2), ('"-7"', -7_000), ("-7.5", -7_500), ('"+5"', 5_000),
    ("-0.0", 0), ("1750000000000058.123", 1_750_000_000_000_058_123), ("4007199254740993", 4_007_199_254_740_993_000),
    ('"12x"', None), ('"n/a"', None), ('""', None), ('"0x10"', None), ("NaN", None), ("Infinity", None),
    ('"NaN"', None), ('"inf"', None), ("-Infinity", None), ("true", None), ("null", None), ("{}", None), ("[1]", None),
    ('"1,5"', None), ('"1 2"', None), ('"12us"', None), ("1e400", None), ('"1e400"', None), ("9" * 400, None),
    ("9" * 5000, None), ("99999999999999999999", None), ('"\u0661"', None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TIMES, ids=[text[:24] for text, _ in TIMES])
def test_17_what_is_a_time(text: str, expected: int | None) -> None:
    for field, kind in (("ts", "bad_ts"), ("dur", "bad_dur")):
        other = {"ts": "dur", "dur": "ts"}[field]
        trace = read(f'[{{"ph":"X","name":"x","pid":1,"tid":1,"{field}":{text},"{other}":1}},{B}]')
        if expected is None:
            assert (names(trace), issues(trace)) == (["b"], {kind: (1, 1)})
        elif field == "ts":
            assert trace.spans.start_ns.tolist() == [expected, 2_000]
        elif expected >= 0:
            assert trace.spans.duration_ns.tolist() == [expected, 1_000]


def test_16_an_event_without_its_times() -> None:
    trace = read(
        '[{"ph":"X","name":"x","pid":1,"tid":1,"dur":1},{"ph":"X","name":"y","pid":1,"tid":1,"ts":1}]'
    )
    assert issues(trace) == {"bad_ts": (1, 1), "bad_dur": (1, 1)}


def test_17_issues_name_the_byte_of_their_event(tmp_path: Path) -> None:
    text = "[\n" + A + ",\n" + event("x", ts="12x") + ",\n" + C + "]"
    path = tmp_path / "trace.json"
    for content in (text.encode(), gzip.compress(text.encode())):
        path.write_bytes(content)
        trace = stream_chrome_trace(path)
        assert trace is not None
        # In a compressed file, the byte of what it decompresses to.
        assert where(trace, "bad_ts") == f"byte {text.index(event('x', ts='12x'))}"


def test_20_only_a_duration_of_minus_one_is_unfinished() -> None:
    texts = [
        event(name, dur=dur)
        for name, dur in (("a", -1), ("b", "-1"), ("c", -1.0), ("d", -1.001), ("e", -0.001))
    ]
    trace = read("[" + ",".join(texts) + "]")
    assert names(trace) == []
    assert issues(trace) == {"unfinished": (3, 0), "invalid_dur": (2, 2)}
    assert len(trace.invalid) == 5


def test_22_times_of_zero_are_lost_only_where_the_rest_is_far_away() -> None:
    assert issues(read("[" + event("a", 0) + "," + event("b", 86_400_000_000) + "]")) == {}
    trace = read("[" + event("a", 86_400_000_001) + "," + event("b", 0) + "," + event("c", "0.0") + "]")
    assert (names(trace), issues(trace)) == (["a"], {"zero_ts": (2, 2)})
    assert where(trace, "zero_ts") == f"byte {2 + len(event('a', 86_400_000_001))}"


def test_10_huge_numbers_stay_exact(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    huge = [2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**40]
    texts = [event(str(value), pid=value, args={"id": value, "dispatch_id": value}) for value in huge]
    path.write_text("[" + ",".join(texts) + "]")
    trace = stream_chrome_trace(path)
    assert trace is not None
    spans = trace.spans
    assert [spans.args(row)["id"] for row in range(5)] == huge
    assert [spans.lane_of(row).pid for row in range(5)] == huge
    # Whatever fits a column or not: distinct ids stay distinct.
    assert [spans.id_of(code) for code in spans.dispatch_id.tolist()] == [str(value) for value in huge]
    assert len(set(spans.dispatch_id.tolist())) == 5


def test_10_an_integer_of_thousands_of_digits_costs_nothing() -> None:
    text = event("x", args={"n": 0}).replace('"n": 0', '"n": ' + "7" * 5000)
    trace = read(f"[{A},{text},{B}]")
    assert (names(trace), issues(trace)) == (["a", "x", "b"], {})
    assert trace.spans.args(1) == {"n": "7" * 5000}


def test_27_either_of_pid_and_tid_may_be_missing() -> None:
    fields: list[dict[str, Any]] = [{"tid": 1}, {"pid": 1}, {"pid": None, "tid": ""}, {"pid": 0, "tid": 0}]
    events = [{"ph": "X", "name": "x", "ts": 1, "dur": 1, **ids} for ids in fields]
    trace = read(json.dumps(events))
    assert [trace.spans.lane_of(row)[1:3] for row in range(4)] == [(None, 1), (1, None), (None, None), (0, 0)]
    assert issues(trace) == {"missing_pid": (3, 0)}


def test_29_a_pid_in_digits_is_a_number() -> None:
    events = [
        event("x", pid=pid, tid=tid) for pid, tid in (("12", "-7"), (12, -7), ("cpu", 1.5), (True, "0x1"))
    ]
    trace = read("[" + ",".join(events) + "]")
    lanes = [trace.spans.lane_of(row)[1:3] for row in range(4)]
    assert lanes == [(12, -7), (12, -7), ("cpu", "1.5"), ("True", "0x1")]


def begin_end(*shape: tuple[str, str, float]) -> ChromeTrace:
    return read(
        json.dumps(
            [{"ph": ph, "pid": 1, "tid": 1, "ts": at, **({"name": n} if n else {})} for ph, n, at in shape]
        )
    )


def test_30_an_end_without_a_begin_is_none_of_the_next() -> None:
    trace = begin_end(("E", "", 1), ("B", "a", 2), ("E", "a", 3), ("E", "", 9))
    assert (names(trace), issues(trace)) == (["a"], {"unmatched_end": (2, 0)})


def test_30_a_begin_without_an_end_is_no_span() -> None:
    trace = begin_end(("B", "a", 0), ("B", "b", 1), ("B", "c", 2), ("E", "b", 5))
    assert names(trace) == ["b"]
    assert trace.spans.duration_ns.tolist() == [4_000]
    assert issues(trace) == {"unmatched_begin": (2, 0)}


def test_30_begins_and_ends_in_any_file_order() -> None:
    trace = begin_end(
        ("E", "", 100), ("B", "it", 30), ("E", "", 20), ("B", "outer", 0), ("E", "", 40), ("B", "it", 10)
    )
    spans = sorted(zip(names(trace), trace.spans.start_ns.tolist(), trace.spans.end_ns.tolist(), strict=True))
    assert spans == [("it", 10_000, 20_000), ("it", 30_000, 40_000), ("outer", 0, 100_000)]


def test_30_threads_have_stacks_of_their_own() -> None:
    trace = read(
        json.dumps(
            [
                {"ph": ph, "name": "a", "pid": 1, "tid": tid, "ts": at}
                for ph, tid, at in (("B", 1, 0), ("B", 2, 1), ("E", 1, 5), ("E", 2, 9))
            ]
        )
    )
    assert sorted(trace.spans.duration_ns.tolist()) == [5_000, 8_000]


def asynchronous(*shape: dict[str, object]) -> dict[str, list[int]]:
    trace = read(json.dumps([{"cat": "c", "pid": 1, "tid": 1, **fields} for fields in shape]))
    found: dict[str, list[int]] = {}
    for name, duration in zip(names(trace), trace.spans.duration_ns.tolist(), strict=True):
        found.setdefault(name, []).append(duration)
    return found


def test_33_ids_as_numbers_and_as_text_are_the_same() -> None:
    for begin, end in ((7, "7"), ("0x7", 7), ("0X7", "0x7"), ("a", "a")):
        found = asynchronous(
            {"ph": "b", "name": "x", "id": begin, "ts": 0}, {"ph": "e", "name": "x", "id": end, "ts": 5}
        )
        assert found == {"x": [5_000]}


def test_33_scopes_categories_and_local_ids_tell_spans_apart() -> None:
    for key, first, second in (
        ("scope", "s", "t"),
        ("cat", "s", "t"),
        ("id2", {"global": 1}, {"global": 2}),
        ("id", "0x10", 10),
    ):
        # An id beside id2 would count before it.
        ids: dict[str, object] = {} if key == "id2" else {"id": 1}
        found = asynchronous(
            *({"ph": ph, "name": "x", **ids, key: value, "ts": at}
              for ph, value, at in (("b", first, 0), ("b", second, 1), ("e", first, 5), ("e", second, 9)))
        )  # fmt: skip
        assert found == {"x": [5_000, 8_000]}
    # A local id is one of its process.
    found = asynchronous(
        *({"ph": ph, "name": "x", "pid": pid, "id2": {"local": 1}, "ts": at}
          for ph, pid, at in (("b", 1, 0), ("b", 2, 1), ("e", 1, 5), ("e", 2, 9)))
    )  # fmt: skip
    assert found == {"x": [5_000, 8_000]}


def test_33_nested_ones_with_instants_and_ends_without_names() -> None:
    found = asynchronous(
        {"ph": "b", "name": "outer", "id": 1, "ts": 0},
        {"ph": "b", "name": "inner", "id": 1, "ts": 1},
        {"ph": "n", "name": "mark", "id": 1, "ts": 2},
        {"ph": "e", "id": 1, "ts": 4},
        {"ph": "e", "id": 1, "ts": 9},
    )
    assert found == {"mark": [0], "inner": [3_000], "outer": [9_000]}


def test_33_what_overlaps_is_no_unmatched_begin() -> None:
    trace = read(
        json.dumps(
            [
                {"ph": ph, "name": name, "cat": "c", "id": 1, "pid": 1, "tid": 1, "ts": at}
                for ph, name, at in (
                    ("b", "x", 0),
                    ("b", "y", 1),
                    ("e", "x", 5),
                    ("e", "y", 9),
                    ("b", "z", 10),
                )
            ]
        )
    )
    assert trace.spans.duration_ns.tolist() == [5_000, 8_000]
    assert issues(trace) == {"unmatched_begin": (1, 0)}
