"""Figures that somebody published of a workload, beside those that were measured of it (docs/published.md).

A profile names them in its table `[published]`, so that they lie in run.json and every report of the run has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from analyzers.errors import UnusableInputError
from analyzers.report.paths import figure_at, path_unit

if TYPE_CHECKING:
    from analyzers.report.model import Report

_NS_PER = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}

_NOT_SET = "none"

_SOURCES = {"requests": "requests", "steps": "serving trace", "skew": "STRACE", "run": "run.json"}
"""What the figures below a field of the report are taken from; others are named by their field."""

_Text = Annotated[str, msgspec.Meta(min_length=1)]


class PublishedFigure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One published figure, and where a report has its own of the same definition."""

    title: _Text
    value: float
    unit: str = ""
    """`ms` and other times: the report's figure, in ns, is converted to it."""
    paths: Annotated[list[_Text], msgspec.Meta(min_length=1)]
    """Paths in the report; the first that has a value is the measured figure."""


class PublishedRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[published]` of a profile: what was published of its workload, and by whom."""

    system: _Text
    """What it was measured on, as a heading."""
    source: _Text
    workload: dict[str, Any] = {}
    """Keys of the profile (`load.requests`) and what they were in the published run; `none` where they were not set."""
    figures: Annotated[list[PublishedFigure], msgspec.Meta(min_length=1)]


class BesideFigure(msgspec.Struct, frozen=True):
    """A published figure and the measured one, both in `unit`."""

    title: str
    unit: str
    published: float
    measured: float | None
    """None where this run does not have it."""
    source: str
    """What it is measured in."""
    path: str
    """Its place in the report."""
    problem: str | None = None
    """Why it can never be measured so; None where its path is sound."""


class PublishedComparison(msgspec.Struct, frozen=True):
    """What was published of a workload, beside what this run measured."""

    system: str
    source: str
    differences: list[str]
    """How this run's workload is another one, one key each; [] where it is the published one."""
    figures: list[BesideFigure]
    problem: str | None = None
    """Why the table of the profile cannot be read, with no figures then; None where it can."""


def published_of_table(table: Any, source: str) -> PublishedRun:
    """A `[published]` table as a record; `source` names it for people.

    Raises:
        UnusableInputError: a key or value is not allowed, or a workload's key names no table; says where.
    """
    try:
        run = msgspec.convert(table, PublishedRun)
    except msgspec.ValidationError as error:
        raise UnusableInputError(f"{source}: [published]: {error}") from error
    for key in run.workload:
        if key.count(".") != 1:
            raise UnusableInputError(
                f"{source}: [published]: workload key {key!r}: write table.key, for example load.requests"
            )
    return run


def beside_published(report: Report, profile: Mapping[str, Any]) -> PublishedComparison | None:
    """What the profile of a run names as published, beside the figures of its report; None where it names nothing."""
    table = profile.get("published")
    if table is None:
        return None
    try:
        run = published_of_table(table, "run.json")
    except UnusableInputError as error:  # of another version; it takes no other figure with it
        return PublishedComparison("", "", differences=[], figures=[], problem=str(error))
    return PublishedComparison(
        system=run.system,
        source=run.source,
        differences=[
            difference
            for key, value in run.workload.items()
            if (difference := _difference(key, _setting(profile, key), value)) is not None
        ],
        figures=[_beside(report, figure) for figure in run.figures],
    )


def _beside(report: Report, figure: PublishedFigure) -> BesideFigure:
    measured: float | None = None
    problem: str | None = None
    path = figure.paths[0]
    for place in figure.paths:
        try:
            value = _in_unit(figure_at(report, place), place, figure.unit)
        except UnusableInputError as error:
            problem = problem or str(error)
            continue
        if value is not None:
            measured, path = value, place
            break
    field = path.partition("[")[0].partition(".")[0]
    return BesideFigure(
        title=figure.title,
        unit=figure.unit,
        published=figure.value,
        measured=measured,
        source=_SOURCES.get(field, field),
        path=path,
        problem=problem,
    )


def _in_unit(value: float | None, path: str, unit: str) -> float | None:
    """A figure in the unit that it was published in; times are ns in the report."""
    if path_unit(path) == "ns":
        if unit not in _NS_PER:
            raise UnusableInputError(f"{path} is a time, and {unit or 'no unit'!r} is not one of time")
        return None if value is None else value / _NS_PER[unit]
    if unit in _NS_PER:
        raise UnusableInputError(f"{path} is no time, but was published in {unit}")
    return value


def _setting(profile: Mapping[str, Any], key: str) -> Any:
    table, _, name = key.partition(".")
    section = profile.get(table)
    return section.get(name) if isinstance(section, Mapping) else None


def _difference(key: str, own: Any, published: Any) -> str | None:
    if own == published or (own is None and published == _NOT_SET):
        return None
    ours = f"{key} is {'not set' if own is None else own}"
    return f"{ours}, published without it" if published == _NOT_SET else f"{ours}, published with {published}"
