"""Documents that people write or keep: TOML with a byte order mark, JSON in which no key may be there twice."""

from __future__ import annotations

import codecs
import json
import tomllib
from typing import Any

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class RepeatedKeyError(ValueError):
    """A JSON object has one key twice: which of its values is meant is not known."""


def read_toml(content: bytes) -> dict[str, Any]:
    """A TOML document, with or without the byte order mark that editors on Windows put before UTF-8.

    Raises:
        ValueError: it is not valid TOML, or its mark says that it is in another encoding.
    """
    if content.startswith(_UTF_16):
        raise ValueError("its byte order mark says UTF-16, and TOML is UTF-8: save it as UTF-8")
    return tomllib.loads(content.decode("utf-8-sig"))


def read_unambiguous_json(text: str) -> Any:
    """A JSON document in which every object has each of its keys once.

    Raises:
        RepeatedKeyError: one has a key twice; names it.
        ValueError: it is not valid JSON.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise RepeatedKeyError(f"the key {repeated!r} is there twice: which value is meant is not known")
    return found
