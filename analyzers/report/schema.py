"""The JSON Schema of the JSON report, made of the very types that it is encoded from.

`python -m analyzers.report.schema` writes it to `schema.json` beside this module, where it is published.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from analyzers.report.model import SCHEMA_VERSION, Report

SCHEMA_FILE = Path(__file__).with_name("schema.json")


def report_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of the documents of `SCHEMA_VERSION`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"dsv4bench report, schema version {SCHEMA_VERSION}",
        **msgspec.json.schema(Report),
    }


def render_schema() -> str:
    """The schema as the published file has it."""
    return msgspec.json.format(msgspec.json.encode(report_schema(), order="sorted"), indent=2).decode() + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(render_schema(), encoding="utf-8")
