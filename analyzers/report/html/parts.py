"""What every page is made of: the head with its content security policy, sections, tables, figures."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from analyzers.report.html.markup import Markup, element, trusted
from analyzers.text.tables import Table

_ASSETS = "analyzers.report.html.assets"


def policy(style: str, *, script: str | None = None) -> str:
    """A content security policy under which a page may use `style`, and `script` if there is one, and nothing else."""
    allowed = [f"style-src '{_digest(style)}'"]
    if script is not None:
        allowed += [f"script-src '{_digest(script)}'", "connect-src 'self'"]
    return "; ".join(["default-src 'none'", *allowed, "base-uri 'none'", "form-action 'none'"])


def stylesheet() -> str:
    """The style of every page."""
    return resources.files(_ASSETS).joinpath("report.css").read_text(encoding="utf-8")


def head(title: str) -> Markup:
    """The head of a page that has a style sheet and no script."""
    style = stylesheet()
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(style)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", trusted(style)),
    )


def section(name: str, heading: str, content: Sequence[Markup]) -> Markup:
    """A part of a page under its heading; `name` is what links point at."""
    return element("section", element("h2", heading), *content, id=name)


def table_markup(table: Table) -> Markup:
    """A table with its notes; numbers stand on the right."""
    words = [_is_text(table, index) for index in range(len(table.columns))]
    heads = [
        element("th", column, class_=_cell_class(words[index]), scope="col")
        for index, column in enumerate(table.columns)
    ]
    rows = [
        element(
            "tr", *(element("td", cell, class_=_cell_class(words[index])) for index, cell in enumerate(row))
        )
        for row in table.rows
    ]
    drawn = element(
        "table",
        element("caption", table.title),
        element("thead", element("tr", *heads)),
        element("tbody", *rows),
    )
    notes = [element("p", note, class_="note") for note in table.notes]
    return element("div", drawn, *notes, class_="table")


def figure(caption: str, chart: Markup) -> Markup:
    """A chart under its caption."""
    return element("figure", element("figcaption", caption), chart)


def _digest(asset: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(asset.encode()).digest()).decode()


def _is_text(table: Table, index: int) -> bool:
    """Whether a column holds words rather than numbers: the first one does."""
    return index == 0 or any(
        row[index] and not _is_number(row[index]) for row in table.rows if index < len(row)
    )


def _is_number(cell: str) -> bool:
    bare = cell.removesuffix(" %").lstrip("+-").replace(".", "", 1)
    return bare.isdecimal() or cell in ("-", "unavailable")


def _cell_class(words: bool) -> str | None:
    return None if words else "number"
