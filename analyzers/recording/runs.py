"""Which inputs are of one run (docs/formats.md, Several runs): ids, ranks and clocks hold within a run alone.

Inputs are of one run unless two of them claim the same thing with different records: a manifest each, the log of a
rank, the submission of a step. Then every directory is a run of its own, and so are files that nothing ties to one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from analyzers.readers.strace import ROOT, StraceLog
from analyzers.rundir import RunDirectory
from analyzers.table.callables import RUN, SUBMIT
from analyzers.table.spans import ABSENT, Clock, Kind, SpanTable

Claims = Mapping[tuple[Hashable, ...], Set[Hashable]]
"""What a run has once, as (what its inputs do, in words, the id of it, ...), and the records of it in one input."""

_DISPATCH = ".dispatch_decode"
_PARTS = ("sa_profile", "serving-trace", "strace", "fragments")


class Split(NamedTuple):
    """The inputs of each run by index, and what sets the runs apart; "" for one run."""

    runs: list[list[int]]
    evidence: str


def home_of(path: Path) -> Path:
    """The run directory that a file lies in, or would, by the names of the folders around it."""
    home = path if path.is_dir() else path.parent
    while home.name in _PARTS:
        home = home.parent
    return home


def in_one_run_directory(paths: Sequence[Path]) -> list[Path]:
    """Those of `paths` that lie in a run directory, where the folders and the manifest show that it is one for all."""
    inside = [
        path for path in paths if path.parent.name in _PARTS or RunDirectory(home_of(path)).manifest.is_file()
    ]
    return inside if len({home_of(path).resolve() for path in inside}) == 1 else []


def split_into_runs(homes: Sequence[Path], claims: Sequence[Claims]) -> Split:
    """Tell the runs of inputs that lie at `homes` and claim `claims`."""
    conflicts = [
        (first, second, what)
        for first, second in combinations(range(len(claims)), 2)
        if (what := _conflict(claims[first], claims[second])) is not None
    ]
    if not conflicts:
        return Split([list(range(len(claims)))], "")
    crowded = {homes[first] for first, second, _ in conflicts if homes[first] == homes[second]}
    groups: dict[Hashable, list[int]] = {}
    for index, home in enumerate(homes):
        groups.setdefault(index if home in crowded else home, []).append(index)
    return Split(list(groups.values()), f"{'both' if len(groups) == 2 else 'two of them'} {conflicts[0][2]}")


def run_claim(home: Path) -> Claims:
    """That the files at `home` are of the run whose manifest lies there, if one does."""
    manifest = RunDirectory(home).manifest
    return {("have a", manifest.name): {manifest.resolve()}} if manifest.is_file() else {}


def log_claims(log: StraceLog, rank: int | None) -> Claims:
    """The rank whose log it is, by the runs in it."""
    if rank is None:
        return {}
    spans = log.spans
    rows = np.flatnonzero(spans.named(ROOT))
    runs = {
        (pid, start)
        for pid, start in zip(spans.pid[rows].tolist(), spans.start_ns[rows].tolist(), strict=True)
    }
    return {("have a log of rank", rank): runs} if runs else {}


def trace_claims(spans: SpanTable, rank: int | None) -> Claims:
    """The steps and dispatches that a serving trace, or that of one rank, shows being submitted."""
    claims: dict[tuple[Hashable, ...], set[Hashable]] = {}
    submits = spans.where_name(lambda name: name.endswith((SUBMIT, RUN, _DISPATCH)))
    # Foreign traces, on clocks of their own, name their ranks themselves: which are of one run is checked by those.
    submits = submits & (spans.kind != Kind.INSTANT) & (spans.clock == Clock.HOST)
    for what, ids in (("dispatch", spans.dispatch_id), ("step", spans.step_id)):
        for row in np.flatnonzero(submits & (ids != ABSENT)).tolist():
            key = (f"submit {what}", spans.id_of(int(ids[row])), spans.name_of(row), rank)
            lane = spans.lane_of(row)
            claims.setdefault(key, set()).add((lane.pid, lane.tid, int(spans.start_ns[row])))
    return claims


def _conflict(first: Claims, second: Claims) -> str | None:
    """What both claim with records that have nothing in common, in words."""
    for key in first:
        if key in second and first[key].isdisjoint(second[key]):
            return " ".join(map(str, key[:2]))
    return None
