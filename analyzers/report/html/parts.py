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
    classes = [None if column.is_text else "number" for column in table.columns]
    heads = [
        element("th", column.heading, class_=kind, scope="col")
        for column, kind in zip(table.columns, classes, strict=True)
    ]
    rows = [
        element("tr", *(element("td", cell, class_=kind) for cell, kind in zip(row, classes, strict=True)))
        for row in table.written()
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
