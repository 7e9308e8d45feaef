"""A finding is declared once: code, order, emitters and docs/findings.md know the same set."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from analyzers import findings
from analyzers.report.finding import CODES, UNSOUND, Finding, in_order

ROOT = Path(__file__).parents[4]


def documented() -> list[str]:
    """The codes in the first column of the table in docs/findings.md."""
    text = (ROOT / "docs" / "findings.md").read_text()
    section = text.partition("## What is looked for")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \|", section, re.MULTILINE)
    return [code for row in rows for code in re.findall(r"`([a-z_]+)`", row)]


def emitted() -> set[str]:
    """Every code that stands as a text of its own in a module of findings."""
    modules = Path(findings.__file__).parent.glob("*.py")
    nodes = (node for module in modules for node in ast.walk(ast.parse(module.read_text())))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return texts & set(CODES)


def test_no_code_is_declared_twice() -> None:
    assert len(CODES) == len(set(CODES))


def test_docs_list_every_code_once() -> None:
    assert sorted(documented()) == sorted(CODES)


def test_every_code_has_an_emitter() -> None:
    assert emitted() == set(CODES)


def test_what_strict_refuses_is_declared() -> None:
    assert set(CODES) >= UNSOUND


def test_findings_come_by_severity_and_then_by_how_telling_they_are() -> None:
    given = [
        Finding("mtp_identity", "warning", "", ""),
        Finding("healthy", "info", "", ""),
        Finding("straggler", "warning", "", ""),
        Finding("pipeline_collapsed", "warning", "", ""),
        Finding("lost_records", "error", "", ""),
        Finding("rank_names", "warning", "", ""),
    ]
    assert [finding.code for finding in in_order(given)] == [
        "lost_records",
        "pipeline_collapsed",
        "straggler",
        "rank_names",
        "mtp_identity",
        "healthy",
    ]
