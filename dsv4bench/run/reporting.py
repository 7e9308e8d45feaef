"""After a run: analyze its directory, write the reports and the timelines, and show the report."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from rich.console import Console

from analyzers.analysis import Verdict, judge, report_of
from analyzers.measurement import measure
from analyzers.recording.recording import load_recording
from analyzers.report.json import render_json
from analyzers.report.model import Report
from analyzers.report.tables import report_tables
from analyzers.report.write import write_report
from analyzers.rundir import RunDirectory
from analyzers.swimlane import timeline_of, write_timeline


@dataclass(frozen=True)
class WrittenReport:
    """The report of a run directory, its verdict, and the timelines that were drawn beside it."""

    directory: RunDirectory
    report: Report
    verdict: Verdict
    timelines: bool

    def show(self, *, as_json: bool) -> None:
        """Print it: tables and where the files are, or one JSON document and nothing else."""
        if as_json:
            sys.stdout.write(render_json(self.report))
            return
        write_report(self.report, report_tables(self.report, full=False), "table", None, title="Run")
        console = Console(highlight=False, soft_wrap=True)
        console.print(f"\nRun directory: {self.directory.root}", markup=False)
        reports = ", ".join(str(self.directory.report(suffix)) for suffix in ("html", "md", "json"))
        console.print(f"Report:        {reports}", markup=False)
        if self.timelines:
            pictures = (
                f"{self.directory.swimlane_perfetto} (ui.perfetto.dev), {self.directory.swimlane_chrome}"
            )
            console.print(f"Timeline:      {pictures} (chrome://tracing)", markup=False)


def report_run(directory: RunDirectory) -> WrittenReport:
    """Analyze a run directory once and write everything that is derived from it."""
    measured = measure(load_recording([directory.root]))
    report = report_of(measured)
    tables = report_tables(report)
    write_report(report, tables, "json", directory.report("json"), title="Run")
    write_report(report, tables, "md", directory.report("md"), title="Run")
    write_report(report, tables, "html", directory.report("html"), title="Run")
    timelines = report.spans > 0
    if timelines:
        timeline = timeline_of(measured)
        write_timeline(timeline, directory.swimlane_perfetto)
        write_timeline(timeline, directory.swimlane_chrome)
    return WrittenReport(directory, report, judge(report), timelines)
