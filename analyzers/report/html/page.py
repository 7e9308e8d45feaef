"""The report as one HTML file that needs nothing else: no network, no script, no font, no picture.

Its content security policy lets a browser apply the style sheet in it and do nothing more.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from analyzers.report.html.curves import counted, distribution_chart, latency_chart
from analyzers.report.html.heatmap import heatmap
from analyzers.report.html.markup import Child, Markup, element, trusted
from analyzers.report.html.requests import requests_table
from analyzers.report.html.timeline import timeline_chart
from analyzers.report.model import Finding, Report
from analyzers.report.overview import overview
from analyzers.report.tables import report_tables
from analyzers.report.text import MILLISECOND, Table, number
from analyzers.series import Distribution, LatenessGrid, StepLatency
from analyzers.statistics import P95_NEEDS, P99_NEEDS
from analyzers.timeline import Timeline

_ASSETS = "analyzers.report.html.assets"


def render_html(report: Report, title: str) -> str:
    """The whole report: overview, findings, charts, requests and every table."""
    sections = [
        ("overview", "Overview", _overview(report)),
        ("findings", "Findings", _findings(report.findings)),
        ("timeline", "Step timeline", _timelines(report.series.timelines)),
        ("steps", "Steps over time", [_latency(series) for series in report.series.step_latency]),
        ("skew", "Skew of the ranks", [_skew(grid) for grid in report.series.lateness]),
        ("distributions", "Distributions", _distributions(report.series.distributions)),
        ("requests", "Requests", _requests(report)),
        ("tables", "All tables", _tables(report)),
    ]
    shown = [(name, heading, content) for name, heading, content in sections if content]
    links = [element("a", heading, href=f"#{name}") for name, heading, _ in shown]
    about = _about(report)
    body = element(
        "body",
        element("header", element("h1", title), element("p", about, class_="about"), element("nav", *links)),
        element("main", *(_section(*section) for section in shown)),
        element("footer", f"dsv4bench report, schema version {report.schema_version}"),
    )
    return "<!doctype html>\n" + element("html", _head(title), body, lang="en").html + "\n"


def policy(style: str, *, script: str | None = None) -> str:
    """A content security policy under which a page may use `style`, and `script` if there is one, and nothing else."""
    allowed = [f"style-src '{_digest(style)}'"]
    if script is not None:
        allowed += [f"script-src '{_digest(script)}'", "connect-src 'self'"]
    return "; ".join(["default-src 'none'", *allowed, "base-uri 'none'", "form-action 'none'"])


def stylesheet() -> str:
    """The style of every page."""
    return resources.files(_ASSETS).joinpath("report.css").read_text(encoding="utf-8")


def _digest(asset: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(asset.encode()).digest()).decode()


def _head(title: str) -> Markup:
    style = stylesheet()
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(style)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", trusted(style)),
    )


def _about(report: Report) -> str:
    names = [entry.path for entry in report.inputs]
    more = f" and {len(names) - 2} more files" if len(names) > 2 else ""
    return (
        f"{', '.join(names[:2])}{more}: {report.parsed} of {report.records} records read, {report.lost} lost"
    )


def _section(name: str, heading: str, content: Sequence[Markup]) -> Markup:
    return element("section", element("h2", heading), *content, id=name)


def _overview(report: Report) -> list[Markup]:
    table = overview(report)
    if table is None:
        return []
    cards = [
        element(
            "div",
            element("dt", figure),
            element("dd", value),
            element("dd", f"source: {source}", class_="source"),
            class_="card",
        )
        for figure, value, source in table.rows
    ]
    return [element("dl", *cards, class_="cards")]


def _findings(findings: Sequence[Finding]) -> list[Markup]:
    if not findings:
        return [element("p", "Nothing was found that a reader should know.", class_="note")]
    items = []
    for finding in findings:
        parts: list[Child] = [
            element("span", finding.severity, class_="severity"),
            element("strong", finding.title),
            element("p", finding.evidence),
        ]
        if finding.advice:
            parts.append(element("p", f"Advice: {finding.advice}", class_="advice"))
        items.append(element("li", *parts, class_=f"finding {finding.severity}"))
    return [element("ul", *items, class_="findings")]


def _timelines(timelines: Sequence[Timeline]) -> list[Markup]:
    if not timelines:
        return []
    inputs = []
    panels = []
    for index, timeline in enumerate(timelines):
        name = f"timeline-{index}"
        caption = (
            f"{timeline.which}: {timeline.shown} of {timeline.of}, {timeline.callable}; {timeline.notes[0]}"
        )
        inputs.append(
            element(
                "input", type="radio", name="timeline", id=name, checked="checked" if index == 0 else None
            )
        )
        inputs.append(element("label", timeline.which, for_=name))
        notes = [element("p", note, class_="note") for note in timeline.notes[1:]]
        panels.append(
            element(
                "div",
                _figure(caption, timeline_chart(timeline)),
                *notes,
                class_="panel" if len(timelines) > 1 else None,
            )
        )
    explanation = (
        "Every bar has the colour and number of its step. Two steps are in flight where their bars stand above each "
        "other; grey is work of no numbered step."
    )
    if len(timelines) == 1:
        return [element("p", explanation, class_="note"), element("div", *panels)]
    return [element("p", explanation, class_="note"), element("div", *inputs, *panels, class_="tabs")]


def _latency(series: StepLatency) -> Markup:
    what = counted(series)
    each = f"every {what} is a point"
    if series.steps_per_point > 1:
        each = f"each bar is {series.steps_per_point} {what}s, from the least to the greatest, the dot their median"
    caption = f"{series.figure}, {series.callable}: {series.steps} {what}s, {each}"
    return _figure(caption, latency_chart(series))


def _skew(grid: LatenessGrid) -> Markup:
    each = "a column a round; the colour is the time after the median of the round"
    if grid.rounds_per_column > 1:
        each = f"a column is {grid.rounds_per_column} rounds, the colour is the longest time after the median of its round"
    late = f"late is more than {grid.late_ns / MILLISECOND:g} ms after it"
    caption = f"runner_run {grid.edge}, {grid.callable}: {grid.rounds} rounds, {each}; {late}"
    return _figure(caption, heatmap(grid))


def _distributions(distributions: Sequence[Distribution]) -> list[Markup]:
    figures = [_figure(_distribution_caption(entry), distribution_chart(entry)) for entry in distributions]
    return [element("div", *figures, class_="pair")] if figures else []


def _distribution_caption(distribution: Distribution) -> str:
    summary = distribution.summary
    percentiles = [f"p50 {number(summary.p50)} ms"]
    for name, value, needs in (("p95", summary.p95, P95_NEEDS), ("p99", summary.p99, P99_NEEDS)):
        small = f"{name}: n too small (needs {needs})"
        percentiles.append(f"{name} {number(value)} ms" if value is not None else small)
    shown = f"n = {summary.n}"
    if summary.n > len(distribution.values_ns):
        shown += f", drawn through {len(distribution.values_ns)} of them"
    where = f"{distribution.figure}, {distribution.of} ({distribution.source}); {shown}"
    return f"{where}; {', '.join(percentiles)}; share of values at or below"


def _requests(report: Report) -> list[Markup]:
    columns = report.series.requests
    return [] if columns is None else [_table(requests_table(columns))]


def _tables(report: Report) -> list[Markup]:
    tables = [table for table in report_tables(report) if table.title != "Overview"]
    return [element("div", *(_table(table) for table in tables), class_="tables")]


def _table(table: Table) -> Markup:
    words = [_is_text(table, index) for index in range(len(table.columns))]
    head = [
        element("th", column, class_=_cell_class(words[index]), scope="col")
        for index, column in enumerate(table.columns)
    ]
    rows = [
        element(
            "tr", *(element("td", cell, class_=_cell_class(words[index])) for index, cell in enumerate(row))
        )
        for row in table.rows
    ]
    drawn = element(
        "table",
        element("caption", table.title),
        element("thead", element("tr", *head)),
        element("tbody", *rows),
    )
    notes = [element("p", note, class_="note") for note in table.notes]
    return element("div", drawn, *notes, class_="table")


def _is_text(table: Table, index: int) -> bool:
    """Whether a column holds words rather than numbers: the first one does."""
    return index == 0 or any(
        row[index] and not _is_number(row[index]) for row in table.rows if index < len(row)
    )


def _is_number(cell: str) -> bool:
    bare = cell.removesuffix(" %").lstrip("+-").replace(".", "", 1)
    return bare.isdecimal() or cell in ("-", "unavailable")


def _cell_class(words: bool) -> str | None:
    return None if words else "number"


def _figure(caption: str, chart: Markup) -> Markup:
    return element("figure", element("figcaption", caption), chart)
