"""The report as one HTML file that needs nothing else: no network, no script, no font, no picture.

Its content security policy lets a browser apply the style sheet in it and do nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.charts.series import Distribution, LatenessGrid, StepLatency
from analyzers.charts.step_windows import StepWindow
from analyzers.report.html.curves import distribution_chart, latency_chart, unit_of
from analyzers.report.html.heatmap import heatmap
from analyzers.report.html.markup import Child, Markup, element
from analyzers.report.html.parts import figure, head, section, table_markup
from analyzers.report.html.request_lives import MOST_BARS, legend, request_lives_chart
from analyzers.report.html.requests import requests_table
from analyzers.report.html.step_windows import step_window_chart
from analyzers.report.model import Finding, Report
from analyzers.report.overview import overview
from analyzers.report.tables import report_tables
from analyzers.statistics.summary import P95_NEEDS, P99_NEEDS
from analyzers.text.figures import MILLISECOND, number
from analyzers.text.words import counted


def render_html(report: Report, title: str) -> str:
    """The whole report: overview, findings, charts, requests and every table."""
    sections = _sections(report)
    if report.runs:
        sections = [("findings", "Findings", _findings(report.findings))]
        for number_of_run, run in enumerate(report.runs, 1):
            mark = f"run-{number_of_run}-"
            sections += [
                (mark + name, f"{run.name}: {heading}", content)
                for name, heading, content in _sections(run.report, mark)
            ]
    shown = [(name, heading, content) for name, heading, content in sections if content]
    links = [element("a", heading, href=f"#{name}") for name, heading, _ in shown]
    about = _about(report)
    body = element(
        "body",
        element(
            "header",
            element("h1", title),
            element("p", about, class_="about"),
            *_headline(report.findings),
            element("nav", *links),
        ),
        element("main", *(section(*entry) for entry in shown)),
        element("footer", f"dsv4bench report, schema version {report.schema_version}"),
    )
    return "<!doctype html>\n" + element("html", head(title), body, lang="en").html + "\n"


def _sections(report: Report, mark: str = "") -> list[tuple[str, str, list[Markup]]]:
    """Name, heading and content of every section of one run; `mark` tells its timelines from those of other runs."""
    return [
        ("overview", "Overview", _overview(report)),
        ("findings", "Findings", _findings(report.findings)),
        ("timeline", "Step timeline", _timelines(report.series.timelines, mark)),
        ("steps", "Steps over time", [_latency(series) for series in report.series.step_latency]),
        ("skew", "Skew of the ranks", [_skew(grid) for grid in report.series.lateness]),
        ("distributions", "Distributions", _distributions(report.series.distributions)),
        ("requests", "Requests", _requests(report)),
        ("tables", "All tables", _tables(report)),
    ]


def _about(report: Report) -> str:
    names = [entry.path for entry in report.inputs]
    more = f" and {len(names) - 2} more files" if len(names) > 2 else ""
    return (
        f"{', '.join(names[:2])}{more}: {report.parsed} of {report.records} records read, {report.lost} lost"
    )


def _headline(findings: Sequence[Finding]) -> list[Markup]:
    """The most telling finding, the first one, in one sentence."""
    if not findings:
        return []
    first = findings[0]
    severity = element("span", first.severity, class_="severity")
    return [element("p", severity, first.title, class_=f"headline {_colour(first)}")]


def _colour(finding: Finding) -> str:
    return "healthy" if finding.code == "healthy" else finding.severity


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
        for figure, value, source in table.written()
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
        items.append(element("li", *parts, class_=f"finding {_colour(finding)}"))
    return [element("ul", *items, class_="findings")]


def _timelines(timelines: Sequence[StepWindow], mark: str) -> list[Markup]:
    if not timelines:
        return []
    inputs = []
    panels = []
    for index, timeline in enumerate(timelines):
        name = f"{mark}timeline-{index}"
        caption = (
            f"{timeline.which}: {timeline.shown} of {timeline.of}, {timeline.callable}; {timeline.notes[0]}"
        )
        inputs.append(
            element(
                "input",
                type="radio",
                name=f"{mark}timeline",
                id=name,
                checked="checked" if index == 0 else None,
            )
        )
        inputs.append(element("label", timeline.which, for_=name))
        notes = [element("p", note, class_="note") for note in timeline.notes[1:]]
        panels.append(
            element(
                "div",
                figure(caption, step_window_chart(timeline)),
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
    what = unit_of(series)
    each = f"every {what} is a point"
    if series.steps_per_point > 1:
        each = f"each bar is {series.steps_per_point} {what}s, from the least to the greatest, the dot their median"
    caption = f"{series.figure}, {series.callable}: {counted(series.steps, what)}, {each}"
    return figure(caption, latency_chart(series))


def _skew(grid: LatenessGrid) -> Markup:
    each = "a column a round; the colour is the time after the median of the round"
    if grid.rounds_per_column > 1:
        each = f"a column is {grid.rounds_per_column} rounds, the colour is the longest time after the median of its round"
    late = f"late is more than {grid.late_ns / MILLISECOND:g} ms after it"
    caption = f"runner_run {grid.edge}, {grid.callable}: {counted(grid.rounds, 'round')}, {each}; {late}"
    return figure(caption, heatmap(grid))


def _distributions(distributions: Sequence[Distribution]) -> list[Markup]:
    figures = [figure(_distribution_caption(entry), distribution_chart(entry)) for entry in distributions]
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
    columns, lives = report.series.requests, report.series.request_lives
    chart = []
    if lives:
        caption = f"{counted(min(len(lives), MOST_BARS), 'request')} from sending to the last token"
        if report.request_lives is not None and report.request_lives.joined > MOST_BARS:
            caption += f": those with the longest E2E of {report.request_lives.joined}"
        chart = [figure(caption, request_lives_chart(lives)), legend()]
    return chart + ([] if columns is None else [table_markup(requests_table(columns))])


def _tables(report: Report) -> list[Markup]:
    tables = [table for table in report_tables(report) if table.title != "Overview"]
    return [element("div", *(table_markup(table) for table in tables), class_="tables")]
