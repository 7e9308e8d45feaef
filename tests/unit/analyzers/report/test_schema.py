"""The published JSON Schema is that of the code, and real reports follow it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from analyzers.analysis import analyze
from analyzers.report.json import render_json
from analyzers.report.schema import SCHEMA_FILE, render_schema, report_schema
from tests.builders.places import CASES, TRACES

INPUTS = [
    *sorted(TRACES.glob("*.log")),
    CASES / "39-out-of-order-completion" / "trace.json",
    CASES / "42-wait-nested-in-submit-zero-gap" / "trace.json",
    CASES / "72-percentile-of-nothing" / "requests.jsonl",
    CASES / "15-empty-inputs" / "zero_bytes.json",
]


def test_the_published_schema_is_that_of_the_code() -> None:
    assert SCHEMA_FILE.read_text() == render_schema(), "run `python -m analyzers.report.schema`"


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(report_schema())


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_reports_follow_the_schema(path: Path) -> None:
    document = json.loads(render_json(analyze([path])))
    jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text())).validate(document)


def test_a_document_of_another_shape_does_not() -> None:
    document = json.loads(render_json(analyze([INPUTS[0]])))
    document["findings"][0]["severity"] = "fatal"
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))
    assert [list(error.absolute_path) for error in validator.iter_errors(document)] == [
        ["findings", 0, "severity"]
    ]
