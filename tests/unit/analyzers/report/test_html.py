"""The HTML report holds the report's figures, needs nothing else, and takes nothing of a file for markup."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from analyzers.analysis import analyze
from analyzers.report.html import render_html
from analyzers.report.html.axes import Scale, milliseconds, round_steps
from analyzers.report.html.markup import element, text
from analyzers.report.model import Finding, Report
from analyzers.report.tables import report_tables
from analyzers.rundir import RunDirectory
from dsv4bench.run.reporting import report_run
from tests.builders.places import TRACES
from tests.builders.strace import record

CAPTURES = sorted(TRACES.glob("*.log"))
CAPTURE = TRACES / "simpler-l3_n4_slow_rank2.log"

ELEMENTS = frozenset(
    [
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "h1",
        "p",
        "nav",
        "a",
        "main",
        "section",
        "h2",
        "dl",
        "div",
        "dt",
        "dd",
        "ul",
        "li",
        "span",
        "strong",
        "input",
        "label",
        "figure",
        "figcaption",
        "svg",
        "g",
        "rect",
        "text",
        "line",
        "circle",
        "path",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "footer",
    ]
)
ATTRIBUTES = frozenset(
    [
        "lang",
        "charset",
        "http-equiv",
        "content",
        "name",
        "class",
        "id",
        "href",
        "type",
        "for",
        "checked",
        "scope",
        "viewbox",
        "role",
        "x",
        "y",
        "x1",
        "x2",
        "y1",
        "y2",
        "cx",
        "cy",
        "r",
        "rx",
        "width",
        "height",
        "d",
        "transform",
    ]
)

HOSTILE = [
    "<script>alert(1)</script>",
    "</style><script>alert(2)</script>",
    "]]><img src=x onerror=alert(3)>",
    "\"'><svg onload=alert(4)>",
    "javascript:alert(5)",
    "</title></svg><iframe srcdoc='<script>alert(6)</script>'>",
    "--><a href='javascript:alert(7)'>x</a><!--",
    "a\x00b\x01c\x1b[31m\u202e\u2028",
    "&lt;script&gt; &#60;b&#62;",
    "{{7*7}} ${7*7} <%= 7 %>",
]


class Document(HTMLParser):
    """Every element with its attributes, and all text outside the style sheet."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.others: list[str] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        assert len(attrs) == len(dict(attrs))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.others.append(data)

    def handle_pi(self, data: str) -> None:
        self.others.append(data)

    def unknown_decl(self, data: str) -> None:
        self.others.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)


def check_only_ours(page: str) -> Document:
    document = Document(page)
    assert {tag for tag, _ in document.elements} <= ELEMENTS
    assert {name for _, attributes in document.elements for name in attributes} <= ATTRIBUTES
    assert document.others == []
    ours = re.compile(r"[A-Za-z0-9 _#.,:()-]*")
    for tag, attributes in document.elements:
        for name, value in attributes.items():
            if tag != "meta":
                assert ours.fullmatch(value or ""), (tag, name, value)
            if name == "href":
                assert re.fullmatch(r"#[a-z]+", value or "")
    assert Counter(tag for tag, _ in document.elements)["style"] == 1
    return document


@pytest.fixture(scope="module")
def report() -> Report:
    return analyze([CAPTURE])


def test_a_page_has_every_section_that_the_recording_has_data_for(report: Report) -> None:
    document = check_only_ours(render_html(report, "Analysis"))
    sections = [attributes["id"] for tag, attributes in document.elements if tag == "section"]
    assert sections == ["overview", "findings", "timeline", "steps", "skew", "distributions", "tables"]


def test_the_page_holds_every_cell_of_the_full_report(report: Report) -> None:
    document = Document(render_html(report, "Analysis"))
    texts = set(document.texts)
    for table in report_tables(report):
        cells = {cell for row in table.written() for cell in row if cell}
        if table.title == "Overview":
            cells = {
                cell
                for figure, value, source in table.written()
                for cell in (figure, value, f"source: {source}")
            }
        assert cells | {table.title, *table.notes} <= texts
    for finding in report.findings:
        assert {finding.severity, finding.title, finding.evidence} <= texts


def test_the_headline_stands_in_the_header_in_the_colour_of_its_severity(report: Report) -> None:
    page = render_html(report, "Analysis")
    header = page.partition("<nav>")[0]
    headline = '<p class="headline warning"><span class="severity">warning</span>'
    assert f"{headline}hid 95c9a089a142b608: rank 2 is persistently the last to end</p>" in header
    healthy = Finding("healthy", "info", "healthy: two in flight, nothing lost", "measured: 5 decode steps")
    page = render_html(msgspec.structs.replace(report, findings=[healthy, *report.findings]), "Analysis")
    assert '<p class="headline healthy"><span class="severity">info</span>healthy: two in flight' in page
    without = render_html(msgspec.structs.replace(report, findings=[]), "Analysis")
    assert 'class="headline' not in without


def test_the_heat_map_has_a_cell_for_every_rank_and_round(report: Report) -> None:
    document = Document(render_html(report, "Analysis"))
    classes = Counter(
        attributes["class"]
        for tag, attributes in document.elements
        if tag == "rect" and "class" in attributes
    )
    legend = 7
    heat = sum(count for name, count in classes.items() if name is not None and name.startswith("heat "))
    assert heat == 2 * (4 * 24 + legend)
    # Late by more than ten times the limit of 5 ms, as told from the series; one entry a legend is of this class.
    late = sum(
        value is not None and value > 50_000_000
        for grid in report.series.lateness
        for row in grid.after_median_ns
        for value in row
    )
    assert classes["heat h5"] == late + 2
    assert "rank 2, round 5: end 398.044 ms after the median" in document.texts


def test_a_page_needs_no_network_and_runs_no_script(report: Report) -> None:
    page = render_html(report, "Analysis")
    assert "<script" not in page
    assert re.findall(r"(?:https?:)?//|url\(|@import", page) == []
    style = re.search(r"<style>(.*)</style>", page, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    [policy] = [
        attributes["content"]
        for tag, attributes in Document(page).elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_percentiles_that_the_sample_does_not_support_are_not_drawn(report: Report) -> None:
    [distribution] = report.series.distributions
    assert distribution.summary.n == 96
    page = Document(render_html(report, "Analysis"))
    [caption] = [text for text in page.texts if text.startswith("runner_run, hid 95c9a089a142b608")]
    assert "n = 96; p50 171.722 ms, p95 239.048 ms, p99: n too small (needs 100)" in caption
    assert sum(attributes.get("class") == "markpoint" for _, attributes in page.elements) == 2


def hostile_recording(directory: Path, name: str) -> list[Path]:
    """A serving trace, a runtime log and request records in which every string of the outside is `name`."""
    events = []
    for step in range(30):
        for span, start, duration, tid in (
            (f"{name}.prepare_decode", 1000 * step, 300, 2),
            (f"{name}.worker_submit", 1000 * step + 400, 200, 3),
            (f"{name}.worker_wait", 1000 * step + 1600, 300, 4),
            (name, 1000 * step, 10, 5),
        ):
            events.append(
                {"ph": "X", "name": span, "cat": "kernel", "ts": start, "dur": duration, "pid": 7, "tid": tid}
                | {"args": {"step_id": step, name: name}}
            )
    events.append(
        {
            "ph": "X",
            "name": f"{name}.worker_wait",
            "cat": "kernel",
            "ts": 1,
            "dur": 1,
            "pid": name,
            "tid": name,
        }
    )
    events.append({"ph": "M", "name": "process_name", "pid": 7, "args": {"name": name}})
    file_name = re.sub(r"[/\x00]", "_", name)
    trace = directory / f"{file_name}.json"
    trace.write_text(json.dumps(events))
    log = directory / f"{file_name}.log"
    percent = "".join(f"%{byte:02X}" for byte in name.encode())
    lines = []
    for inv in range(1, 25):
        for rank in range(3):
            start, lasts = inv * 10_000_000, 5_000_000 + 6_000_000 * (rank == inv % 3)
            pid = 100 + rank
            lines += [
                record("chip.run.runner_run", start, lasts, pid=pid, inv=inv),
                record(f"chip.{percent}", start, lasts, pid=pid, inv=inv, depth=1),
                record(name, start, lasts, pid=pid, inv=inv, depth=1) + f" {name}={name}",
                record("chip.run", start, lasts + 1000, pid=pid, inv=inv, note=percent),
            ]
    log.write_text("\n".join(lines))
    requests = directory / f"{file_name}.jsonl"
    records = [
        {
            "request_id": f"{name}{index}", "rank": 0, "prompt_token_ids": [1], "output_token_ids": [1, 2],
            "send_ns": index, "token_times_ns": [index + 500, index + 900], "finish_reason": name,
            "prompt": name, "text": name, "error": name if index == 3 else None, "accepted": 9, "proposed": 1, "steps": 1,
        }
        for index in range(5)
    ]  # fmt: skip
    requests.write_text("\n".join(map(json.dumps, records)))
    return [trace, log, requests]


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_of_a_file_becomes_an_element_an_attribute_or_a_script(tmp_path: Path, name: str) -> None:
    report = analyze(hostile_recording(tmp_path, name))
    page = render_html(report, name)
    document = check_only_ours(page)
    plain = "".join(character if character.isprintable() else "\ufffd" for character in name)
    assert plain in document.texts
    assert f"{plain}.worker_submit" in document.texts
    assert f"{plain}0" in document.texts
    assert {"overview", "findings", "timeline", "skew", "distributions", "requests", "tables"} <= {
        attributes["id"] for tag, attributes in document.elements if tag == "section"
    }
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e]", page)


def test_a_hostile_page_has_the_same_elements_as_a_harmless_one(tmp_path: Path) -> None:
    (tmp_path / "harmless").mkdir()
    (tmp_path / "hostile").mkdir()
    pages = [
        Document(render_html(analyze(hostile_recording(tmp_path / kind, name)), "Report"))
        for kind, name in (("harmless", "(script)alert(1)(script)"), ("hostile", "<script>alert(1)<script>"))
    ]
    harmless, hostile = (Counter(tag for tag, _ in page.elements) for page in pages)
    assert harmless == hostile


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name)
def test_every_capture_makes_a_page(capture: Path) -> None:
    check_only_ours(render_html(analyze([capture]), "Analysis"))


def test_a_run_leaves_its_page_beside_the_other_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = RunDirectory(tmp_path)
    directory.server_log.write_bytes(CAPTURE.read_bytes())
    report_run(directory).show(as_json=False)
    page = Document((tmp_path / "report.html").read_text())
    assert next(text for text in page.texts if text.strip()) == "Run"
    assert f"Report:        {tmp_path / 'report.html'}, {tmp_path / 'report.md'}, " in capsys.readouterr().out


def test_many_steps_make_a_page_of_bounded_size(tmp_path: Path) -> None:
    lines = []
    for inv in range(1, 3001):
        for rank in range(8):
            start = inv * 10_000_000 + 1000 * rank
            lines.append(record("chip.run.runner_run", start, 5_000_000, pid=100 + rank, inv=inv))
            lines.append(record("chip.run", start, 6_000_000, pid=100 + rank, inv=inv))
    (tmp_path / "server.log").write_text("\n".join(lines))
    page = render_html(analyze([tmp_path / "server.log"]), "Analysis")
    assert (
        "3000 rounds, a column is 12 rounds, the colour is the longest time after the median of its round"
        in page
    )
    assert len(page) < 1_500_000


def test_text_is_escaped_wherever_it_stands() -> None:
    made = element("a", "<b>&\"'", href="\"><script>'")
    assert made.html == ('<a href="&quot;&gt;&lt;script&gt;&#x27;">&lt;b&gt;&amp;&quot;&#x27;</a>')
    assert html.unescape(text("a\nb\x00\ud800").html) == "a\ufffdb\ufffd\ufffd"


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (3, 11, [4, 6, 8, 10]),
        (5, 5, [5]),
        (0, 0.07, [0, 0.02, 0.04, 0.06]),
    ],
)
def test_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert round_steps(low, high) == pytest.approx(ticks)


def test_a_logarithmic_scale_puts_equal_ratios_at_equal_distances() -> None:
    scale = Scale(1, 100, 0, 10, logarithmic=True)
    assert [scale(1), scale(10), scale(100), scale(1000)] == pytest.approx([0, 5, 10, 10])
    assert scale.ticks == [1, 2, 5, 10, 20, 50, 100]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (1_500_000, "1.5"), (250_000_000, "250"), (10_000, "0.01"), (-2_000_000, "-2")],
)
def test_ticks_are_in_milliseconds(value: float, shown: str) -> None:
    assert milliseconds(value) == shown
