"""Rounds: the runs of one dispatch on every rank, matched by identity (docs/metrics.md, Ranks)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from analyzers.readers.strace import ROOT
from analyzers.table.callables import DispatchNames, name_runs
from analyzers.table.intervals import Interval
from analyzers.table.spans import ABSENT, Clock, SpanTable

MatchedBy = Literal[
    "dispatch_id", "run_id and dispatch_id", "run_epoch", "slot and generation", "inv", "order"
]

_FEW = 0.25
"""The share of runs that may contradict each other: ids that are shared more often identify nothing."""

BIND_AHEAD = "ext.dsv4bench.bind_ahead"
PHASES = ("pre_bind", "bind", "post_bind", "runner_run", "validate", "claim_release")
_PHASE_OF_NAME = {f"{ROOT}.{phase}": phase for phase in PHASES}
_DEVICE_WALL = f"{ROOT}.runner_run.device_wall"
_SCHED = f"{_DEVICE_WALL}.sched"
_DEVICE_PHASES = frozenset({_DEVICE_WALL, _SCHED})

RunKey = tuple[tuple[str, int | str | None], int]
Keyed = dict[tuple[int, tuple[int | str, ...]], dict[int, "RankRun"]]
"""(life, identity) -> rank -> its run."""


@dataclass(frozen=True)
class RankRun:
    """One rank's run: the `chip.run` root and its own phases."""

    rank: int
    callable: str
    root: Interval
    phases: Mapping[str, Interval]
    bound_ahead: Interval | None
    """Work of binding that was done before the root began, where the runtime says so."""
    device_wall_ns: int | None
    run_id: int
    dispatch_id: int
    run_epoch: int
    slot: int
    generation: int
    invocation: int
    incarnation: int = 0
    """Which of the processes that had the rank's pid did it: their ids begin again."""
    behind_exchange_ns: int | None = None
    """The device wall's part behind the last exchange with other ranks, where a rank of dsv4bench tells it."""
    life: int = 0
    """Which life of the recording it is of: ids, rounds and neighbours are those of one life."""


@dataclass(frozen=True)
class Round:
    """One dispatch across ranks. Figures over all ranks leave it out while a rank is `missing` from it."""

    key: tuple[int, ...]
    callable: str
    runs: Mapping[int, RankRun]
    missing: tuple[int, ...]
    life: int = 0
    """Which life of the recording it is of."""

    @property
    def complete(self) -> bool:
        """Whether every rank has its root."""
        return not self.missing

    @property
    def dispatch_id(self) -> int:
        """The dispatch that it is; ABSENT where its runs do not say."""
        return next(iter(self.runs.values())).dispatch_id


@dataclass(frozen=True)
class RoundMatching:
    """All rounds in time order, and what they were matched by."""

    rounds: list[Round]
    matched_by: MatchedBy
    ranks: tuple[int, ...]
    not_overlapping: int
    """Rounds whose roots share no time with each other; only a doubt when matched by order."""
    without_root: int
    """Runs of which phases were found but not the root."""
    contradicting: Sequence[RankRun] = ()
    """Runs of one rank that claim to be one and the same: which of them is right is not known, so that none counts."""

    def of(self, callable_name: str) -> list[Round]:
        """The rounds of one callable, in time order."""
        return [item for item in self.rounds if item.callable == callable_name]


def rank_runs(spans: SpanTable, names: DispatchNames) -> tuple[list[RankRun], int]:
    """Every run with a root and a rank, and how many runs lost theirs.

    Phases belong to the root of the same (process, invocation); where several roots share it, to the one
    whose interval holds them.
    """
    in_chip = spans.where_name(lambda name: name == ROOT or name in _DEVICE_PHASES or name in _PHASE_OF_NAME)
    rows = np.flatnonzero(in_chip & (spans.rank != ABSENT))
    roots: dict[RunKey, list[int]] = {}
    children: dict[RunKey, list[int]] = {}
    processes = [lane.process for lane in spans.lanes]
    is_root = spans.named(ROOT)[rows].tolist()
    columns = (rows.tolist(), spans.lane[rows].tolist(), spans.invocation[rows].tolist(), is_root)
    for row, lane, invocation, root in zip(*columns, strict=True):
        (roots if root else children).setdefault((processes[lane], invocation), []).append(row)
    callables = name_runs(spans, [row for group in roots.values() for row in group], names)
    lives = max(spans.lives.values(), default=0) + 1
    ahead = _bound_ahead(spans)
    runs = [
        _run(
            spans,
            row,
            _label(callables[row], spans.lives.get(key[0], 0), lives, names),
            children.get(key, []),
            ahead,
            alone=len(group) == 1,
        )
        for key, group in roots.items()
        for row in group
    ]
    return runs, sum(key not in roots for key in children)


def _label(callable_name: str, life: int, lives: int, names: DispatchNames) -> str:
    """The callable of a run; where only its hash names it, together with its life: lives may run different programs."""
    if lives == 1 or callable_name in names.callables:
        return callable_name
    return f"{callable_name}, life {life + 1} of {lives}"


def _bound_ahead(spans: SpanTable) -> dict[tuple[int, int], Interval]:
    """Spans of binding ahead by (rank, dispatch id): `ext.*` records belong to no run (docs/formats.md, Runtime records)."""
    rows = np.flatnonzero(spans.named(BIND_AHEAD) & (spans.rank != ABSENT) & (spans.dispatch_id != ABSENT))
    return {
        (int(spans.rank[row]), int(spans.dispatch_id[row])): _interval(spans, row) for row in rows.tolist()
    }


def _run(
    spans: SpanTable,
    root: int,
    callable_name: str,
    children: Iterable[int],
    ahead: Mapping[tuple[int, int], Interval],
    *,
    alone: bool,
) -> RankRun:
    interval = _interval(spans, root)
    phases: dict[str, Interval] = {}
    device: dict[str, Interval] = {}
    for row in children:
        name = spans.name_of(row)
        if name in _DEVICE_PHASES:
            # Its clock is the device's own: which of several roots it belongs to cannot be told.
            if alone and spans.clock[row] == Clock.DEVICE:
                device[name] = _interval(spans, row)
            continue
        child = _interval(spans, row)
        inside = interval.start_ns <= child.start_ns and child.start_ns <= interval.end_ns
        if spans.clock[row] == Clock.HOST and (alone or inside):
            phases.setdefault(_PHASE_OF_NAME[name], child)
    bound_ahead = ahead.get((int(spans.rank[root]), int(spans.dispatch_id[root])))
    wall, sched = device.get(_DEVICE_WALL), device.get(_SCHED)
    # Only dsv4bench binds ahead, and only its sched ends with the last exchange (docs/engine.md, Device phases).
    own_sched = sched if bound_ahead is not None else None
    return RankRun(
        rank=int(spans.rank[root]),
        callable=callable_name,
        root=interval,
        phases=phases,
        bound_ahead=bound_ahead,
        device_wall_ns=wall.duration_ns if wall is not None else None,
        run_id=int(spans.run_id[root]),
        dispatch_id=int(spans.dispatch_id[root]),
        run_epoch=int(spans.run_epoch[root]),
        slot=int(spans.slot[root]),
        generation=int(spans.generation[root]),
        invocation=int(spans.invocation[root]),
        incarnation=spans.lane_of(root).incarnation,
        behind_exchange_ns=wall.end_ns - own_sched.end_ns if wall and own_sched else None,
        life=spans.lives.get(spans.lane_of(root).process, 0),
    )


def _interval(spans: SpanTable, row: int) -> Interval:
    start = int(spans.start_ns[row])
    return Interval(start, start + int(spans.duration_ns[row]))


def _unless_absent(*ids: int) -> tuple[int, ...] | None:
    return ids if all(value != ABSENT for value in ids) else None


# The runtime writes dispatch_id 0 on lanes that allocate none; epochs and invocations count from 1.
_KEYS: list[tuple[MatchedBy, Callable[[RankRun], tuple[int, ...] | None]]] = [
    ("dispatch_id", lambda run: _unless_absent(run.dispatch_id) if run.dispatch_id != 0 else None),
    (
        "run_id and dispatch_id",
        lambda run: _unless_absent(run.run_id, run.dispatch_id) if run.dispatch_id != 0 else None,
    ),
    ("run_epoch", lambda run: _unless_absent(run.run_epoch) if run.run_epoch != 0 else None),
    ("slot and generation", lambda run: _unless_absent(run.slot, run.generation)),
    ("inv", lambda run: _unless_absent(run.invocation) if run.invocation != 0 else None),
]


def match_rounds(
    runs: list[RankRun], without_root: int = 0, *, silent: Collection[tuple[int, int]] = ()
) -> RoundMatching:
    """Match `runs` across ranks, life by life, by the first identity that every run has, once a rank, shared by ranks.

    Else by order within each callable. A lost run leaves its round incomplete and shifts no other. `silent` are the
    (life, rank) of processes that took part and of which no run was read.
    """
    ranks: dict[int, set[int]] = {}
    for run in runs:
        ranks.setdefault(run.life, set()).add(run.rank)
    started_again = any(run.incarnation for run in runs)
    shared: tuple[Keyed, MatchedBy] | None = None
    for matched_by, key_of in _KEYS:
        keyed = _by_key(runs, key_of, ranks)
        if keyed is None and started_again:
            keyed = _by_key(runs, _within_incarnation(key_of), ranks)
        if keyed is not None:
            shared = keyed, matched_by
            break
    contradicting: list[RankRun] = []
    for matched_by, key_of in _KEYS if shared is None else ():
        contradicting, sound = _contradicting(runs, key_of)
        keyed = _by_key(sound, key_of, ranks) if 0 < len(contradicting) <= _FEW * len(runs) else None
        if keyed is not None:
            shared = keyed, matched_by
            break
    for life, rank in silent:
        ranks.setdefault(life, set()).add(rank)
    if shared is None:
        return _matching(_by_order(runs), "order", ranks, without_root)
    return dataclasses.replace(_matching(*shared, ranks, without_root), contradicting=contradicting)


def _contradicting(
    runs: Sequence[RankRun], key_of: Callable[[RankRun], tuple[int, ...] | None]
) -> tuple[list[RankRun], list[RankRun]]:
    """Runs of one rank with one identity, and the others."""
    claims = Counter((run.life, run.rank, run.incarnation, key_of(run)) for run in runs)
    repeated = [claims[run.life, run.rank, run.incarnation, key_of(run)] > 1 for run in runs]
    return (
        [run for run, again in zip(runs, repeated, strict=True) if again],
        [run for run, again in zip(runs, repeated, strict=True) if not again],
    )


def _within_incarnation(
    key_of: Callable[[RankRun], tuple[int, ...] | None],
) -> Callable[[RankRun], tuple[int, ...] | None]:
    def key(run: RankRun) -> tuple[int, ...] | None:
        own = key_of(run)
        return None if own is None else (*own, run.incarnation)

    return key


def _by_key(
    runs: list[RankRun],
    key_of: Callable[[RankRun], tuple[int, ...] | None],
    ranks: Mapping[int, Collection[int]],
) -> Keyed | None:
    rounds: Keyed = {}
    for run in runs:
        key = key_of(run)
        if key is None or run.rank in (members := rounds.setdefault((run.life, key), {})):
            return None
        members[run.rank] = run
    for life, of_life in ranks.items():
        sizes = [len(members) for (number, _), members in rounds.items() if number == life]
        # Ids that ranks count each for themselves would hardly coincide: that is no identity.
        if len(of_life) > 1 and 2 * sum(size > 1 for size in sizes) < len(sizes):
            return None
    return rounds


def _by_order(runs: list[RankRun]) -> Keyed:
    position: Counter[tuple[int, int, str]] = Counter()
    rounds: Keyed = {}
    for run in sorted(runs, key=lambda run: run.root.start_ns):
        index = position[run.life, run.rank, run.callable]
        position[run.life, run.rank, run.callable] += 1
        rounds.setdefault((run.life, (run.callable, index)), {})[run.rank] = run
    return rounds


def _matching(
    keyed: Keyed, matched_by: MatchedBy, ranks: Mapping[int, Collection[int]], without_root: int
) -> RoundMatching:
    rounds = []
    for (life, key), members in keyed.items():
        names = Counter(run.callable for run in members.values())
        rounds.append(
            Round(
                key=tuple(part for part in key if isinstance(part, int)),
                callable=names.most_common(1)[0][0],
                runs=dict(sorted(members.items())),
                missing=tuple(rank for rank in sorted(ranks[life]) if rank not in members),
                life=life,
            )
        )
    rounds.sort(key=lambda item: (min(run.root.start_ns for run in item.runs.values()), item.key))
    return RoundMatching(
        rounds=rounds,
        matched_by=matched_by,
        ranks=tuple(sorted(set().union(*ranks.values()))),
        not_overlapping=sum(not _roots_overlap(item) for item in rounds),
        without_root=without_root,
    )


def renamed(matching: RoundMatching, callables: Mapping[str, str]) -> RoundMatching:
    """The rounds, and the runs in them, under other labels."""
    rounds = []
    for item in matching.rounds:
        name = callables.get(item.callable)
        if name is not None:
            runs = {rank: dataclasses.replace(run, callable=name) for rank, run in item.runs.items()}
            item = dataclasses.replace(item, callable=name, runs=runs)
        rounds.append(item)
    return dataclasses.replace(matching, rounds=rounds)


class LostRun(msgspec.Struct, frozen=True):
    """A run of which no root was recorded although the rank did it. `dispatch_id` is null without ids."""

    rank: int
    callable: str
    dispatch_id: int | None


def lost_runs(matching: RoundMatching, completed: Collection[int]) -> list[LostRun]:
    """The runs missing from incomplete rounds that the edges of the recording do not explain.

    A rank did the dispatch when it has a run before and one after it, or when the dispatch is one of `completed`,
    which no dispatch is before every rank did its part. Matched by order, nothing tells which run is missing.
    """
    if matching.matched_by == "order":
        return []
    first: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], int] = {}
    for index, item in enumerate(matching.rounds):
        for rank in item.runs:
            first.setdefault((item.life, rank), index)
            last[item.life, rank] = index
    lost = []
    for index, item in enumerate(matching.rounds):
        dispatch = None if item.dispatch_id == ABSENT else item.dispatch_id
        for rank in item.missing:
            edges = first.get((item.life, rank), index), last.get((item.life, rank), index)
            if edges[0] < index < edges[1] or item.dispatch_id in completed:
                lost.append(LostRun(rank, item.callable, dispatch))
    return lost


def _roots_overlap(item: Round) -> bool:
    intervals = [run.root for run in item.runs.values()]
    return max(interval.start_ns for interval in intervals) < min(interval.end_ns for interval in intervals)
