"""JSON that can be written as UTF-8 whatever is in it: the names of files are bytes, and strangers' texts anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


def valid_text(value: Any) -> Any:
    """A JSON value whose strings can be written as UTF-8: lone surrogates become `?`."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, list):
        return [valid_text(item) for item in value]
    if isinstance(value, dict):
        return {valid_text(key): valid_text(item) for key, item in value.items()}
    return value


def json_document(value: object, other: Callable[[Any], Any] | None = None) -> str:
    """`value` as one indented JSON document that ends in a newline; `other` makes JSON of types that are none."""
    try:
        document = msgspec.json.encode(value, enc_hook=other)
    except UnicodeEncodeError:
        document = msgspec.json.encode(valid_text(msgspec.to_builtins(value, str_keys=True, enc_hook=other)))
    return msgspec.json.format(document, indent=2).decode() + "\n"
