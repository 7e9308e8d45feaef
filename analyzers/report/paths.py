"""Figures of a report by their path, as the report's JSON has them (docs/gating.md, What is judged).

`step_time[0].wall.mean` takes the first of a list; `skew[steady].runner_start_skew.p95` the first that has `steady` among
its own fields, and `steps[steady,submit_to_completion]` the first that has both words.
"""

from __future__ import annotations

import difflib
import re
from typing import Any

import msgspec

from analyzers.errors import UnusableInputError
from analyzers.statistics.summary import Summary

UNITS = (("_per_s", "/s"), ("_tok_s", "tokens/s"), ("_ms", "ms"), ("_us", "us"), ("_ns", "ns"), ("_s", "s"))
"""Suffixes of names, and the unit that each tells."""

_PART = re.compile(r"([^.\[\]]+)|\[([^\[\]]+)\]")


def begins_in(name: str, report: type[msgspec.Struct]) -> bool:
    """Whether `name` reads as the path of a figure in a `report`: fields with dots, items in brackets."""
    parts = _PART.findall(name)
    return "." in name and bool(parts) and parts[0][0] in report.__struct_fields__


def figure_at(report: msgspec.Struct, path: str) -> float | None:
    """The figure of `report` at `path`; None where the report has no such item, or no value.

    Raises:
        UnusableInputError: no report has such a figure, or what is there is no number; it suggests the nearest ones.
    """
    place: Any = report
    walked = ""
    for field, chosen in _PART.findall(path):
        if place is None or place == {}:
            return None
        if chosen:
            if not isinstance(place, list | tuple):
                raise UnusableInputError(f"{path}: {walked} is no list in the report")
            place, walked = _item(place, chosen), f"{walked}[{chosen}]"
            continue
        known = _fields(place)
        if field not in known:
            near = difflib.get_close_matches(field, known, n=3, cutoff=0.4) or known
            raise UnusableInputError(
                f"{path}: {walked or 'the report'} has no {field!r}; it has {', '.join(near)}"
            )
        place = place[field] if isinstance(place, dict) else getattr(place, field)
        walked = f"{walked}.{field}".lstrip(".")
    if place is None:
        return None
    if isinstance(place, bool) or not isinstance(place, int | float):
        inside = ", ".join(_fields(place))
        raise UnusableInputError(f"{path} is no number" + (f"; it holds {inside}" if inside else ""))
    return float(place)


def path_unit(path: str) -> str:
    """ns, for times that are not named otherwise; nothing for counts and shares."""
    leaf = path.rpartition(".")[2]
    summary = leaf in Summary.__struct_fields__ and leaf != "n" and not path.startswith("observations")
    unit = next((unit for suffix, unit in UNITS if leaf.endswith(suffix)), "")
    return "ns" if summary else unit


def _item(items: list[Any] | tuple[Any, ...], chosen: str) -> Any:
    """The item at an index, or the first of whose texts and whole numbers are all the words of `chosen`."""
    if chosen.isdigit():
        return items[int(chosen)] if int(chosen) < len(items) else None
    words = {word.strip() for word in chosen.split(",")}
    return next((item for item in items if words <= _words(item)), None)


def _words(item: Any) -> set[str]:
    values = (getattr(item, field) for field in _fields(item)) if isinstance(item, msgspec.Struct) else ()
    return {str(value) for value in values if isinstance(value, str | int) and not isinstance(value, bool)}


def _fields(place: Any) -> list[str]:
    if isinstance(place, dict):
        return [str(key) for key in place]
    return list(place.__struct_fields__) if isinstance(place, msgspec.Struct) else []
