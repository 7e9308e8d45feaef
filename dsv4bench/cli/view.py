"""`dsv4bench view`: the report in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsv4bench.cli.filters import OneClockOption


def view(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Run directory, trace.json(.gz), *.jsonl or STRACE log."),
    ],
    one_clock: OneClockOption = False,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 takes any free one.")
    ] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
    perfetto: Annotated[
        bool,
        typer.Option(
            "--perfetto", help="Serve the timeline too, and open the page that hands it to Perfetto."
        ),
    ] = False,
    perfetto_ui: Annotated[
        str,
        typer.Option(
            "--perfetto-ui",
            envvar="DSV4BENCH_PERFETTO_UI",
            help="Address of the Perfetto UI; the public one needs a network.",
        ),
    ] = "https://ui.perfetto.dev",
) -> None:
    """Analyze a recording and show the report in a browser, until Ctrl-C.

    Serves on the loopback address alone, under a random path. Ctrl-C is how it ends: exit code 0.
    """
    import webbrowser

    from analyzers.analysis import analyze_runs
    from analyzers.measurement import measure
    from analyzers.recording.recording import LoadOptions, load_runs
    from analyzers.report.html import render_html
    from analyzers.serve.server import ReportServer, draw_timeline

    runs = load_runs(paths, LoadOptions(one_clock=one_clock))
    timeline = draw_timeline(measure(runs.only())) if perfetto else None
    page = render_html(analyze_runs(runs), "Analysis")
    server = ReportServer(page, port=port, timeline=timeline, perfetto_ui=perfetto_ui)
    typer.echo(f"Report:   {server.url}")
    if server.perfetto_url is not None:
        typer.echo(f"Timeline: {server.perfetto_url}")
    typer.echo("Ctrl-C ends it.", err=True)
    if browser:
        webbrowser.open(server.perfetto_url or server.url)
    try:
        server.serve()
    except KeyboardInterrupt:
        typer.echo("", err=True)
