"""What files of settings and their overrides (`--set section.key=value`) have in common."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from typing import Any


def nearest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for a name that is nearly a known one, else ""."""
    matches = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


def override_value(text: str) -> Any:
    """The value of an override: as TOML, else the text itself."""
    try:
        document = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return document["value"] if len(document) == 1 else text
