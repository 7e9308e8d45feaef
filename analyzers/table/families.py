"""Families of spans: which producer a span comes from, by its name."""

from __future__ import annotations


def family(name: str) -> str:
    """The producer of a span by the first word of its name: chip, node, core, ext or unknown."""
    word = name.split(".", 1)[0]
    if word in ("chip", "core", "ext", "node"):
        return word
    return "node" if word in ("network1", "network2", "network3") else "unknown"
