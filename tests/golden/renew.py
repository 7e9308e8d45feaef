"""Golden reports: what `analyze` says of six captures, whole, as text of 80 columns, Markdown and JSON.

A change that is meant to show in a report shows here as a difference to review. To accept it, from the root:

    .venv/bin/python -m tests.golden.renew

writes tests/golden/CAPTURE/report.{txt,md,json} anew; look at `git diff tests/golden` before you commit.
"""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from analyzers.analysis import analyze
from analyzers.report.json import render_json
from analyzers.report.markdown import render_markdown
from analyzers.report.tables import report_tables
from analyzers.report.terminal import render_terminal
from tests.builders.places import GOLDEN, SMOKE_RUN, TRACES

CAPTURES = {
    "healthy-run": SMOKE_RUN,
    "straggler": TRACES / "simpler-l3_n4_slow_rank2.log",
    "killed-rank": TRACES / "simpler-n3_kill_dev527.log",
    "depth-one": TRACES / "pypto-pp_win2_depth2.log",
    "two-programs": TRACES / "pypto-n2_two_programs.log",
    "no-records": TRACES / "simpler-l3_warn_level.log",
}
COLUMNS = 80


def reports_of(capture: Path) -> dict[str, str]:
    """The reports of a capture by file name; they name it as one in the working directory."""
    with contextlib.chdir(capture.parent):
        report = analyze([Path(capture.name)])
    tables = report_tables(report)
    text = io.StringIO()
    render_terminal(report, tables, Console(file=text, width=COLUMNS, force_terminal=True, color_system=None))
    return {
        "report.txt": text.getvalue(),
        "report.md": render_markdown(report, tables, "Analysis"),
        "report.json": _in_lines(json.loads(render_json(report)), 3) + "\n",
    }


def _in_lines(value: Any, depth: int) -> str:
    """JSON whose lists and objects down to `depth` have a line an item, so that a difference is a line."""
    if not depth or not value or not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[\n" + ",\n".join(_in_lines(item, depth - 1) for item in value) + "\n]"
    items = (f"{json.dumps(key)}: {_in_lines(item, depth - 1)}" for key, item in value.items())
    return "{\n" + ",\n".join(items) + "\n}"


def main() -> None:
    """Write all golden reports."""
    for name, capture in CAPTURES.items():
        (GOLDEN / name).mkdir(exist_ok=True)
        for file, text in reports_of(capture).items():
            (GOLDEN / name / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
