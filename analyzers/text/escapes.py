"""Names come from files of strangers: what is done to a text before it reaches a terminal or a document."""

from __future__ import annotations

_MARKDOWN = str.maketrans({character: "\\" + character for character in "\\|<*_`["})


def printable(text: str, keep: str = "") -> str:
    """The text with U+FFFD for what cannot be seen, control and direction characters among it, but for those in `keep`."""
    return "".join(
        character if character.isprintable() or character in keep else "\ufffd" for character in text
    )


def markdown_escaped(text: str) -> str:
    """The text as Markdown shows it: nothing in it is markup or leaves its line."""
    return printable(text).translate(_MARKDOWN)
