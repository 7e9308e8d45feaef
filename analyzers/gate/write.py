"""Where a verdict goes: standard output or a file, further files beside it, and the log and summary of GitHub Actions."""

from __future__ import annotations

import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from analyzers.errors import UnusableInputError
from analyzers.gate.model import GateResult
from analyzers.gate.render import (
    github_annotations,
    render_json,
    render_junit,
    render_markdown,
    render_terminal,
)

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
        _write(outputs.markdown, render_markdown(result), "--markdown")
    if outputs.junit is not None:
        _write(outputs.junit, render_junit(result), "--junit")
    if outputs.out is not None:
        _write(outputs.out, _rendered(result, outputs.format), "--out")
    elif outputs.format == "table":
        render_terminal(result, Console(highlight=False))
    else:
        sys.stdout.write(_rendered(result, outputs.format))
    if os.environ.get("GITHUB_ACTIONS"):
        _tell_github(result, only_json=outputs.out is None and outputs.format == "json")


def _rendered(result: GateResult, output: str) -> str:
    match output:
        case "json":
            return render_json(result)
        case "md":
            return render_markdown(result)
        case _:
            text = io.StringIO()
            render_terminal(result, Console(file=text, width=_FILE_WIDTH, highlight=False))
            return text.getvalue()


def _tell_github(result: GateResult, *, only_json: bool) -> None:
    sys.stdout.flush()
    (sys.stderr if only_json else sys.stdout).write(github_annotations(result))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(render_markdown(result) + "\n")
        except OSError as error:
            raise UnusableInputError(
                f"GITHUB_STEP_SUMMARY={summary}: cannot be written: {error.strerror or error}"
            ) from error


def _write(path: Path, text: str, option: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnusableInputError(f"{option} {path}: cannot be written: {error.strerror or error}") from error
