"""Where a verdict goes: standard output or a file, further files beside it, and the log and summary of GitHub Actions."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from analyzers.gate.model import GateResult
from analyzers.gate.render import (
    github_annotations,
    render_json,
    render_junit,
    render_markdown,
    render_terminal,
)
from analyzers.text.output import drawn, write_file, write_output, writing

_FILE_WIDTH = 160


@dataclass(frozen=True)
class Outputs:
    """What is written where; `format` is `table`, `md` or `json`."""

    format: str
    out: Path | None = None
    """Instead of standard output."""
    markdown: Path | None = None
    junit: Path | None = None


def write_result(result: GateResult, outputs: Outputs) -> None:
    """Write the verdict everywhere that `outputs` says, and to GitHub Actions where it runs the command.

    Annotations go to standard output, or to standard error where that is one JSON document.

    Raises:
        UnusableInputError: a file cannot be written.
    """
    if outputs.markdown is not None:
        write_file(outputs.markdown, render_markdown(result), "--markdown")
    if outputs.junit is not None:
        write_file(outputs.junit, render_junit(result), "--junit")
    if outputs.out is None and outputs.format == "table":
        render_terminal(result, Console(highlight=False))
    else:
        write_output(_rendered(result, outputs.format), outputs.out)
    if os.environ.get("GITHUB_ACTIONS"):
        _tell_github(result, only_json=outputs.out is None and outputs.format == "json")


def _rendered(result: GateResult, output: str) -> str:
    match output:
        case "json":
            return render_json(result)
        case "md":
            return render_markdown(result)
        case _:
            return drawn(lambda console: render_terminal(result, console), _FILE_WIDTH)


def _tell_github(result: GateResult, *, only_json: bool) -> None:
    sys.stdout.flush()
    (sys.stderr if only_json else sys.stdout).write(github_annotations(result))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with writing(Path(summary), "GITHUB_STEP_SUMMARY"), Path(summary).open("a", encoding="utf-8") as file:
            file.write(render_markdown(result) + "\n")
