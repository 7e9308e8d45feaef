"""What a file is, is told in one place, by its content, and its content is read once."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from analyzers.errors import UnusableInputError
from analyzers.readers import files, formats
from analyzers.readers.files import OpenedFile
from analyzers.readers.formats import FORMATS, Format, format_of, read_file
from analyzers.readers.load_report import IssueCounter
from analyzers.readers.observations.acceptance import AcceptanceFigure
from analyzers.readers.observations.events import EventFigure
from analyzers.readers.observations.observation import Observation, ObservedFile, report_of
from analyzers.readers.observations.rank_steps import RankStepFigure
from analyzers.recording.recording import load_recording

ROOT = Path(__file__).parents[4]

EXAMPLES = {
    "answers": '[{"index":0,"text":"x","token_ids":[1,2],"finish_reason":"length"}]',
    "Chrome trace": '{"traceEvents":[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1}]}',
    "samples": "[1, 2, 3]",
    "events": '{"ev":"submit","id":1,"mono_ns":5}',
    "rank steps": '{"step":1,"ms":{"0":10,"1":11}}',
    "draft steps": '{"step":1,"drafted":3,"accepted":2}',
    "counters": "# HELP a\na_total 3\nb_total 4\n",
    "manifest": '{"schema_version":1,"tool_version":"0","status":"complete","profile":{},"argv":[],"versions":{},'
    '"host":{},"git":{},"device_map":[],"clocks":{},"timing":{"started_ns":0}}',
    "requests": '{"id":1,"submit_ms":0,"ttft_ms":5,"end_ms":9,"output_tokens":3}',
    "STRACE log": "[STRACE] v=1 pid=1 tid=1 inv=1 hid=a depth=0 name=chip.run ts=1 dur=2",
}


def named(content: bytes, name: str = "file") -> str | None:
    found = format_of(OpenedFile(name, iter([content]), IssueCounter()))
    return None if found is None else found.name


def test_there_is_an_example_of_every_format() -> None:
    assert [known.name for known in FORMATS] == list(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_content_tells_the_format(name: str) -> None:
    text = EXAMPLES[name]
    assert named(text.encode()) == name
    assert named(b"\xef\xbb\xbf \n" + text.encode()) == name


@pytest.mark.parametrize("name", ["events", "rank steps", "draft steps", "requests"])
def test_a_damaged_first_line_hides_no_format(name: str) -> None:
    assert named(b'{"cut":\n' + EXAMPLES[name].encode()) == name


def test_json_of_no_known_shape_is_none_of_them() -> None:
    assert named(b'{"some": "thing"}') is None
    # Any other text may be a log, and JSON that is named one.
    assert named(b"hello") == "STRACE log"
    assert named(b'{"some": "thing"}', "server.log") == "STRACE log"


def test_what_is_none_of_them_is_refused_with_what_was_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"some": "thing"}')
    with pytest.raises(UnusableInputError, match="no traceEvents, no events one a line, no request records"):
        read_file(path)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "manifest"])
@pytest.mark.parametrize("compressed", [False, True])
def test_content_is_read_once_whatever_it_is(
    name: str, compressed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = EXAMPLES[name].encode()
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(content) if compressed else content)
    read = []
    iterate = files.iterate_bytes

    def counting(path: Path, issues: IssueCounter) -> Iterator[bytes]:
        for piece in iterate(path, issues):
            read.append(piece)
            yield piece

    monkeypatch.setattr(files, "iterate_bytes", counting)
    read_file(path)
    assert b"".join(read) == content


def test_a_new_format_is_a_reader_and_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def looks_like(opened: OpenedFile) -> bool:
        return opened.first_text.startswith("rank,ms\n")

    def read(opened: OpenedFile) -> ObservedFile:
        rows = opened.whole().decode().splitlines()[1:]
        figures = {"longest (ms)": max(float(row.partition(",")[2]) for row in rows)}
        observation = Observation(opened.name, "rank table", len(rows), {**figures})
        return ObservedFile(observation, report_of(opened.name, len(rows), opened.issues))

    monkeypatch.setattr(formats, "FORMATS", (Format("rank table", looks_like, read), *FORMATS))
    path = tmp_path / "ranks.csv"
    path.write_text("rank,ms\n0,10.5\n1,12\n")
    [observation] = load_recording([path]).observations
    assert (observation.kind, observation.figures) == ("rank table", {"longest (ms)": 12.0})


def test_the_docs_name_every_kind_of_small_file() -> None:
    section = (ROOT / "docs" / "formats.md").read_text().partition("## Small files of figures")[2]
    rows = [row.split("|")[1].strip() for row in section.partition("\n## ")[0].splitlines() if "|" in row]
    kinds = set(EXAMPLES) - {"Chrome trace", "manifest", "requests", "STRACE log", "answers"}
    assert set(rows[2:]) == kinds


def test_a_figure_is_a_key_and_a_unit_and_reads_as_both() -> None:
    assert (EventFigure.LATENCY, EventFigure.LATENCY.unit) == ("latency (ms)", "ms")
    assert (RankStepFigure.STEP_SKEW, RankStepFigure.STEP_SKEW.unit) == ("median step skew (ms)", "ms")
    assert (AcceptanceFigure.RATE, AcceptanceFigure.RATE.unit) == ("acceptance rate", "")
    figures: dict[str, float | None] = {EventFigure.LATENCY: 1.5, EventFigure.PAIRS: None}
    observation = Observation("file", "events", 2, figures)
    encoded = msgspec.json.encode(observation)
    assert b'{"latency (ms)":1.5,"pairs":null}' in encoded
    assert msgspec.json.decode(encoded, type=Observation) == observation
