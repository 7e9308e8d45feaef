"""Names of strangers are shown, and do nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from analyzers.text.escapes import markdown_escaped, printable


def test_what_cannot_be_seen_is_replaced_and_the_rest_stays() -> None:
    assert printable("run ü→ 1\x1b[31m\u202e\n") == "run ü→ 1\ufffd[31m\ufffd\ufffd"
    assert printable("a\nb\x00", keep="\r\n") == "a\nb\ufffd"


def test_markdown_has_no_markup_of_a_name() -> None:
    assert (
        markdown_escaped("a|b\\<i>*x*_y_`z`[l](u)\n") == "a\\|b\\\\\\<i>\\*x\\*\\_y\\_\\`z\\`\\[l](u)\ufffd"
    )


@given(st.text())
def test_a_text_keeps_its_length_and_escaping_only_adds_backslashes(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert shown.isprintable()
    escaped = markdown_escaped(text)
    assert "".join(b if a == "\\" else a for a, b in _unescaped(escaped)) == shown


def _unescaped(text: str) -> list[tuple[str, str]]:
    """Each character with the one that a backslash before it escapes."""
    pairs, index = [], 0
    while index < len(text):
        step = 2 if text[index] == "\\" else 1
        pairs.append((text[index], text[index + step - 1]))
        index += step
    return pairs
