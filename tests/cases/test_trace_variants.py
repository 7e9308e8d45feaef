"""Damaged text of traces: more inputs of the kinds of the trace cases, each with what can be saved of it."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pytest

from analyzers.analysis import analyze, judge
from analyzers.errors import UnusableInputError
from analyzers.readers.chrome_trace import stream_chrome_trace
from analyzers.recording.recording import load_recording
from tests.cases.trace_text import A, B, C, Issues, event, issues, names, read, where


def named(name: bytes) -> bytes:
    return event("NAME", 2).encode().replace(b"NAME", name)


OPEN, SHUT = '{"traceEvents":[', "]}"


DAMAGE: list[tuple[str, str | bytes, list[str], Issues]] = [
    # 01: the end is missing
    ("object without brackets", OPEN + A + "," + B, ["a", "b"], {"unterminated": (1, 0)}),
    ("object without brace", OPEN + A + "]", ["a"], {"unterminated": (1, 0)}),
    ("array ends after a comma", "[" + A + ",", ["a"], {"unterminated": (1, 0)}),
    ("array of nothing", "[", [], {"unterminated": (1, 0)}),
    ("torn in a name", "[" + A + "," + B[:15], ["a"], {"torn_tail": (1, 1), "unterminated": (1, 0)}),
    ("torn in a number", "[" + A + "," + B[:-1], ["a"], {"torn_tail": (1, 1), "unterminated": (1, 0)}),
    ("torn behind a list", "[" + A + ',{"ph":"X","args":{"l":[1,2]', ["a"], {"torn_tail": (1, 1), "unterminated": (1, 0)}),
    ("torn in the trailer", OPEN + A + '],"distributedInfo":{"ra', ["a"],
     {"unterminated": (1, 0), "damaged_document": (1, 1)}),
    ("zeros at the end", "[" + A + ",\n\0\0\0\0", ["a"], {"malformed": (1, 1), "unterminated": (1, 0)}),
    # 03: commas
    ("three leading", "[,,," + A + "]", ["a"], {"commas_ignored": (3, 0)}),
    ("doubled between", "[" + A + ",," + B + "]", ["a", "b"], {"commas_ignored": (1, 0)}),
    ("trailing with space", "[" + A + " , \n ]", ["a"], {"commas_ignored": (1, 0)}),
    ("in an object", OPEN + "," + A + "," + SHUT, ["a"], {"commas_ignored": (2, 0)}),
    ("missing between", "[" + A + "\n" + B + " " + C + "]", ["a", "b", "c"], {"commas_missing": (2, 0)}),
    ("only commas", "[,,]", [], {"commas_ignored": (2, 0)}),
    # 05: empty objects
    ("empty ones anywhere", "[{}," + A + ",{ },{}," + B + ",{}]", ["a", "b"], {}),
    ("only empty ones", "[{},{}]", [], {}),
    ("empty lines of JSON lines", A + "\n{}\n\n" + B + "\n", ["a", "b"], {}),
    ("not empty, no event", '[{"foo":1},' + A + "]", ["a"], {"malformed": (1, 1)}),
    # 07: a damaged element among others
    ("quote on one line", "[" + A + ',{"ph":"X","na"me":"x"},' + C + "]", ["a", "c"], {"malformed": (1, 1)}),
    ("missing colon", OPEN + A + ',{"ph" "X"},' + C + SHUT, ["a", "c"], {"malformed": (1, 1)}),
    ("two damaged in a row", "[" + A + ",{x},{y}," + C + "]", ["a", "c"], {"malformed": (1, 1)}),
    ("all damaged", '[{"ph" 1},{"ph" 2},{"ph" 3}]', [], {"malformed": (1, 3)}),
    ("three in a row", "[" + A + ',{"ph" 1},{"ph" 2},{"ph" 3},' + C + "]", ["a", "c"], {"malformed": (1, 3)}),
    ("NaN in arguments", "[" + A + ',' + B[:-1] + ',"args":{"x":NaN,"rank":3}},' + C + "]", ["a", "b", "c"], {}),
    ("first damaged", "[{x}," + C + "]", ["c"], {"malformed": (1, 1)}),
    ("last damaged", "[" + A + ",{x}]", ["a"], {"malformed": (1, 1)}),
    ("a stray bracket", "[" + A + "]," + C + "]", ["a", "c"], {"malformed": (1, 1)}),
    ("elements that are no objects", "[" + A + ',7,"x",null,[1],' + C + "]", ["a", "c"], {"malformed": (4, 4)}),
    ("raw newline in a name", "[" + A + ',{"ph":"X","name":"x\ny"},' + C + "]", ["a", "c"], {"malformed": (1, 1)}),
    ("events inside a damaged one", "[" + A + ',{"x" [{"ph":"X"}]},' + C + "]", ["a", "c"], {"malformed": (1, 1)}),
    ("behind the end", OPEN + A + SHUT + "garbage", ["a"], {"trailing_data": (1, 1)}),
    ("a second document", OPEN + A + SHUT + OPEN + B + "," + C + SHUT, ["a"], {"trailing_data": (1, 2)}),
    # 08: bytes that are not UTF-8
    ("latin-1", b"[" + A.encode() + b"," + named(b"caf\xe9") + b"]", ["a", "caf\ufffd"], {"invalid_utf8": (1, 0)}),
    ("in arguments", b"[" + named(b"x")[:-1] + b',"args":{"s":"\xff"}}]', ["x"], {"invalid_utf8": (1, 0)}),
    ("in two lines", (named(b"\xff") + b"\n") * 2, ["\ufffd", "\ufffd"], {"invalid_utf8": (2, 0)}),
    ("a cut character", b"[" + named(b"\xe2\x82") + b"]", ["\ufffd"], {"invalid_utf8": (1, 0)}),
    ("in the trailer", OPEN.encode() + A.encode() + b'],"host":"\xff"}', ["a"], {"invalid_utf8": (1, 0)}),
    ("UTF-8 with its mark", b"\xef\xbb\xbf[" + A.encode() + b"]", ["a"], {}),
    ("UTF-16 with its mark", f"[{A}]".encode("utf-16"), ["a"], {"transcoded": (1, 0)}),
    # 57: JSON lines
    ("three glued", A + B + C + "\n", ["a", "b", "c"], {"glued_lines": (1, 0)}),
    ("glued with garbage between", A + "xx" + B + "\n" + C, ["a", "b", "c"], {"glued_lines": (1, 0), "bad_line": (1, 1)}),
    ("half a record in front of a whole one", A + "\n" + B[:20] + C + "\n", ["a", "c"], {"bad_line": (1, 1)}),
    ("braces in a string", event("}{") + event('"}{') + "\n", ["}{", '"}{'], {"glued_lines": (1, 0)}),
    ("commas at line ends", A + ",\n" + B + ",\n", ["a", "b"], {"commas_ignored": (2, 0)}),
    ("a damaged first line", B[:20] + "\n" + A + "\n", ["a"], {"bad_line": (1, 1)}),
    ("arguments are no events", A + '\n{"ph":"X","args":{"ph":1},"x\n' + C, ["a", "c"], {"bad_line": (1, 1)}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected", "found"), [entry[1:] for entry in DAMAGE], ids=[entry[0] for entry in DAMAGE]
)
def test_damage_costs_what_it_hit(
    text: str | bytes, expected: list[str], found: Issues, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    trace = stream_chrome_trace(path)
    assert trace is not None
    assert (names(trace), issues(trace)) == (expected, found)
    # What was found and cannot be read is a record as well.
    lost = sum(found.get(kind, (0, 0))[1] for kind in ("malformed", "torn_tail", "bad_line"))
    assert trace.report.records == len(expected) + lost
    # The same from a file that says nothing about places in it.
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    again = stream_chrome_trace(packed)
    assert again is not None
    assert (names(again), issues(again)) == (expected, found)


# Members of an envelope are read although the events are damaged.
@pytest.mark.parametrize(
    "text",
    [
        '{"distributedInfo":{"rank":2},"traceEvents":[' + A + ",{x}," + B + "]}",
        OPEN + A + ",{x}," + B + '],"distributedInfo":{"rank":2}}',
        OPEN + A + ",{x}" + '],"distributedInfo":{"rank":2}}',
        '{"meta":{"distributedInfo":{"rank":7}},"distributedInfo":{"rank":2},"traceEvents":[' + A,
        '{"meta":{"traceEvents":[]},"distributedInfo":{"rank":2},"traceEvents":[' + A + "]}",
        '{"distributedInfo":{"rank":2},"loss":NaN,"traceEvents":[' + A + "]}",
        OPEN + A + '],"distributedInfo":{"rank":2},"host":"x',
    ],
)
def test_45_the_envelope_survives_damage(text: str) -> None:
    trace = read(text)
    assert (names(trace)[0], trace.rank) == ("a", 2)


def packed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


LONG = "[\n" + ",\n".join(event(f"e{index}", index) for index in range(2000)) + "\n]"


@pytest.mark.parametrize("length", [2, 3, 9, 10, 12])
def test_13_cut_in_its_header_nothing_decodes(length: int, tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(packed(LONG)[:length])
    with pytest.raises(UnusableInputError, match=r"gzip data|not a trace"):
        load_recording([path])


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_13_cut_in_the_middle_a_prefix_is_kept(share: float, tmp_path: Path) -> None:
    data = packed(LONG)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(data[: int(len(data) * share)])
    trace = stream_chrome_trace(path)
    assert trace is not None
    found = names(trace)
    assert 0 < len(found) < 2000
    assert found == [f"e{index}" for index in range(len(found))]
    assert trace.report.count("gzip_truncated") == trace.report.count("unterminated") == 1
    decoded = zlib.decompressobj(wbits=31).decompress(path.read_bytes())
    assert where(trace, "gzip_truncated") == f"byte {len(decoded)} of the decompressed content"
    assert judge(analyze([path])).exit_code == 4


def test_13_cut_in_its_trailer_only_the_check_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(packed(LONG)[:-4])
    trace = stream_chrome_trace(path)
    assert trace is not None
    assert (len(trace.spans), issues(trace)) == (2000, {"gzip_truncated": (1, 1)})


def test_13_a_wrong_checksum_costs_no_event(tmp_path: Path) -> None:
    data = bytearray(packed(LONG))
    data[-8] ^= 1
    path = tmp_path / "trace.json.gz"
    path.write_bytes(data)
    trace = stream_chrome_trace(path)
    assert trace is not None
    assert (len(trace.spans), issues(trace)) == (2000, {"gzip_damaged": (1, 1)})


def test_13_damage_in_the_middle_keeps_what_stands_before(tmp_path: Path) -> None:
    data = bytearray(packed(LONG))
    data[len(data) // 2 : len(data) // 2 + 8] = b"\xff" * 8
    path = tmp_path / "trace.json.gz"
    path.write_bytes(data)
    trace = stream_chrome_trace(path)
    assert trace is not None
    found = names(trace)
    assert found[:500] == [f"e{index}" for index in range(500)]
    assert trace.report.lost > 0


@pytest.mark.parametrize(
    ("tail", "found"),
    [
        (b"", {}),
        (b"\0" * 700, {}),
        (b"garbage", {"trailing_data": (1, 1)}),
        (b"\0\0garbage", {"trailing_data": (1, 1)}),
    ],
)
def test_13_members_one_after_the_other(tail: bytes, found: Issues, tmp_path: Path) -> None:
    half = len(LONG) // 2
    path = tmp_path / "trace.json.gz"
    path.write_bytes(packed(LONG[:half]) + packed("") + packed(LONG[half:]) + tail)
    trace = stream_chrome_trace(path)
    assert trace is not None
    assert (len(trace.spans), issues(trace)) == (2000, found)


def test_13_a_second_member_that_is_cut(tmp_path: Path) -> None:
    half = len(LONG) // 2
    path = tmp_path / "trace.json.gz"
    path.write_bytes(packed(LONG[:half]) + packed(LONG[half:])[:11])
    trace = stream_chrome_trace(path)
    assert trace is not None
    assert 900 < len(trace.spans) < 1100
    assert trace.report.count("gzip_truncated") == 1


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"\xef\xbb\xbf", packed(""), b"[\n]", OPEN.encode() + b" ]}", b"[{}]"]
)
def test_15_nothing_in_any_form_is_no_data(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    report = analyze([path])
    assert (report.spans, judge(report).exit_code) == (0, 3)


@pytest.mark.parametrize(
    "text", ['{"a":1}', '{"traceEvents":{}}', '{"traceEvents":null}', "{}", "hello", '"x"', "{", "null"]
)
def test_04_other_shapes_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(UnusableInputError, match="not a trace"):
        load_recording([path])
