"""HTML as a tree of elements. Text is escaped because it is text: only `element` makes markup.

Names, paths and messages in a report come from files of strangers. They are given as `str` and appear as the
characters they are; names of elements, attributes and classes are written in this package.
"""

from __future__ import annotations

import html
from dataclasses import dataclass

from analyzers.text.escapes import printable

_VOID = frozenset({"br", "input", "meta"})


@dataclass(frozen=True)
class Markup:
    """Finished HTML. Made by `element` and `join`, and by `trusted` from texts of this package alone."""

    html: str


Child = Markup | str


def element(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """`<name attribute="value">children</name>`; `_` ends and stands in for what Python reserves: `class_`, `data_x`.

    An attribute whose value is None is left out.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(_value(value)).html}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join(*children).html}</{name}>")


def join(*children: Child) -> Markup:
    """Children one after another."""
    return Markup(
        "".join(child.html if isinstance(child, Markup) else text(child).html for child in children)
    )


def text(characters: str) -> Markup:
    """Characters as themselves; what cannot be seen, control and direction characters among it, is U+FFFD."""
    return Markup(html.escape(printable(characters)))


def trusted(own: str) -> Markup:
    """A text of this package that is markup already."""
    return Markup(own)


def _value(value: str | float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
