"""Every document and section that a docstring, a comment or a link names is there."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
FOLDERS = ("dsv4bench", "analyzers", "profiles", "tests", "benchmarks")
SOURCES = sorted(path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py"))
PROFILES = sorted((REPOSITORY / "profiles").glob("*.toml"))
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md")])

CITATION = re.compile(r"(?<![\w/.-])((?:docs/)?[\w-]+\.md)(?:, (?=[A-Z])([^\n]*))?")
"""A document of the repository, and the rest of the line where what follows may be a section."""

OUTSIDE = re.compile(r"\bspec(?:ification)? \d|\.md, (?:section )?\d|\bshared/", re.IGNORECASE)
"""References that nobody can follow who has the repository alone."""

RUN_FILES = {"report.md"}
"""Files of a run directory, which no citation means."""


def prose(source: str) -> Iterator[str]:
    """The docstrings of a module, those of attributes included, and its blocks of comments; each on one line."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield " ".join(node.value.value.split())
    block: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                yield " ".join(block)
                block = []
            block += token.string.lstrip("#").split()
            last = token.start[0]
    yield " ".join(block)


@cache
def sections(document: Path) -> frozenset[str]:
    """The headings below the title, as they are and without what stands in parentheses behind them."""
    headings = re.findall(r"^##+ (.+)$", document.read_text(), re.MULTILINE)
    return frozenset({*headings, *(heading.partition(" (")[0] for heading in headings)})


def unresolved(text: str) -> Iterator[str]:
    """What `text`, one line, cites and the repository does not have."""
    for match in OUTSIDE.finditer(text):
        yield f"{match[0]!r} cites what lies outside of the repository"
    for name, behind in CITATION.findall(text):
        document = REPOSITORY / name
        if not document.exists():
            if name not in RUN_FILES:
                yield f"{name} does not exist; documents are cited by their path from the root"
        elif behind and not any(
            re.match(re.escape(section) + r"(?![\w\s-])", behind) for section in sections(document)
        ):
            yield f"{name} has no section that {behind[:50]!r} begins with"


def test_every_reference_resolves() -> None:
    texts = {path: list(prose(path.read_text())) for path in SOURCES}
    texts |= {path: [" ".join(path.read_text().split())] for path in PROFILES}
    found = [
        f"{path.relative_to(REPOSITORY)}: {problem}"
        for path, of_file in texts.items()
        for text in of_file
        for problem in unresolved(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Slots (docs/engine.md, Slots).", None),
        ("Records: docs/formats.md, Runtime records.", None),
        ("See README.md, Exit codes; docs/model.md, MTP decode", None),
        ("It is written to report.md, Markdown that people read", None),
        ("Slots (docs/engine.md, Drawers).", "no section"),
        ("Slots (docs/engine.md, Slots of a step).", "no section"),
        ("Slots (docs/motor.md).", "does not exist"),
        ("Slots (engine.md, Slots).", "does not exist"),
        ("Slots (spec 2.4).", "outside"),
        ("Slots (docs/engine.md, 3).", "outside"),
        ("Slots (shared/notes).", "outside"),
    ],
)
def test_a_reference_that_leads_nowhere_is_found(text: str, problem: str | None) -> None:
    found = list(unresolved(text))
    if problem is None:
        assert found == []
    else:
        assert any(problem in one for one in found)


def test_a_reference_may_be_broken_over_two_lines() -> None:
    source = '"""Buffers (docs/engine.md,\nDrawers)."""\n# Also docs/engine.md,\n# Shelves.\n'
    assert [problem for text in prose(source) for problem in unresolved(text)] == [
        "docs/engine.md has no section that 'Drawers).' begins with",
        "docs/engine.md has no section that 'Shelves.' begins with",
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_to_a_section_resolves(document: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", document.read_text()):
        linked = document.parent / target if target else document
        assert anchor in {_anchor(heading) for heading in sections(linked)}, f"{target}#{anchor}"


@pytest.mark.parametrize("name", ["architecture.md", "engine.md", "model.md"])
def test_the_files_that_a_guide_to_the_code_names_exist(name: str) -> None:
    """`engine/slots.py` is under dsv4bench or analyzers, or a path from the root."""
    roots = [REPOSITORY, REPOSITORY / "dsv4bench", REPOSITORY / "analyzers"]
    text = (REPOSITORY / "docs" / name).read_text()
    named = set(re.findall(r"`([\w/-]+/[\w/.-]*?(?:\.py|\.toml|\.md|/))`", text))
    assert named
    assert {path for path in named if not any((root / path).exists() for root in roots)} == set()


def _anchor(heading: str) -> str:
    """The anchor that a heading gets on the usual hosts."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
