"""Traces of one rank each: which rank a file is of, and where on a common clock its times lie.

Nothing is guessed: a file says its rank itself (`distributedInfo`), or the user does. Times of several files are
compared only when each names its base (`baseTimeNanoseconds`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from analyzers.errors import UnusableInputError
from analyzers.readers.chrome_trace import ChromeTrace
from analyzers.recording.clocks import ONE_HOST_CLOCK, ClockAlignment
from analyzers.table.spans import Clock


@dataclass(frozen=True)
class RankFiles:
    """Traces with ranks and, where their bases allow it, with times from a common origin."""

    traces: list[ChromeTrace]
    missing: list[int]
    """Ranks of the world that no file is of; only when the user allows it."""
    clocks: ClockAlignment


def parse_file_ranks(texts: Sequence[str]) -> dict[str, int]:
    """`FILE=N` as path -> rank.

    Raises:
        UnusableInputError: one is something else, or names a file twice.
    """
    ranks: dict[str, int] = {}
    for text in texts:
        path, _, digits = text.rpartition("=")
        if not path or not digits.isascii() or not digits.isdecimal() or len(digits) > 6:
            raise UnusableInputError(f"--rank {text}: expected FILE=N, such as trace-3.json=3")
        if str(Path(path)) in ranks:
            raise UnusableInputError(f"--rank {text}: {path} has a rank already")
        ranks[str(Path(path))] = int(digits)
    return ranks


def join_rank_files(
    traces: Sequence[ChromeTrace], given: Mapping[str, int], *, allow_missing: bool = False
) -> RankFiles:
    """Name the rank of every trace and move their times to a common origin.

    `given` maps paths to ranks and overrules what a file says. Files on the host clock (the serving profiler's own)
    need no rank.

    Raises:
        UnusableInputError: a rank is unknown, claimed twice or missing, or only some files name a time base.
    """
    named = [_with_rank(trace, given) for trace in traces]
    foreign = [trace for trace in named if not _is_on_host_clock(trace)]
    if len(foreign) > 1:
        for trace in foreign:
            if trace.rank is None:
                path = trace.report.path
                raise UnusableInputError(f"{path}: rank unknown; pass --rank {path}=N")
    missing = _check_world([trace for trace in foreign if trace.rank is not None], allow_missing)
    clocks = _clocks(foreign)
    if clocks.base_ns is not None:
        base_ns = clocks.base_ns
        named = [trace if _is_on_host_clock(trace) else _moved(trace, base_ns) for trace in named]
    return RankFiles(named, missing, clocks)


def _with_rank(trace: ChromeTrace, given: Mapping[str, int]) -> ChromeTrace:
    rank = given.get(trace.report.path)
    if rank is None:
        return trace
    envelope = msgspec.structs.replace(trace.envelope, rank=rank)
    spans = trace.spans.with_ranks(np.broadcast_to(np.int64(rank), len(trace.spans)))
    return dataclasses.replace(trace, envelope=envelope, spans=spans)


def _is_on_host_clock(trace: ChromeTrace) -> bool:
    return len(trace.spans) > 0 and bool((trace.spans.clock == Clock.HOST).all())


def _check_world(traces: Sequence[ChromeTrace], allow_missing: bool) -> list[int]:
    """The ranks that are missing from the world the files speak of."""
    claims: dict[int, list[str]] = {}
    for trace in traces:
        if trace.rank is not None:
            claims.setdefault(trace.rank, []).append(trace.report.path)
    sizes = {trace.envelope.world_size for trace in traces} - {None}
    world = max((size for size in sizes if size is not None), default=0)
    problems = [
        f"rank {rank} claimed by {' and '.join(paths)}" for rank, paths in claims.items() if len(paths) > 1
    ]
    missing = [rank for rank in range(world) if rank not in claims] if len(traces) > 1 else []
    if missing and not allow_missing:
        names = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        problems.append(f"rank {names} of world_size {world} missing (--allow-missing goes on without)")
    outside = [rank for rank in claims if world and rank >= world]
    problems += [f"rank {rank} is beyond world_size {world}" for rank in outside]
    if len(sizes) > 1:
        problems.append(
            f"the files name different world sizes: {', '.join(map(str, sorted(filter(None, sizes))))}"
        )
    if problems and not (allow_missing and all("claimed by" in problem for problem in problems)):
        raise UnusableInputError("; ".join(problems))
    return missing


def _clocks(traces: Sequence[ChromeTrace]) -> ClockAlignment:
    """How the times of the rank files relate.

    Raises:
        UnusableInputError: some name a base and others do not.
    """
    if not traces:
        return ONE_HOST_CLOCK
    bases = [trace.envelope.base_ns for trace in traces if trace.envelope.base_ns is not None]
    if bases and len(bases) < len(traces):
        without = next(trace.report.path for trace in traces if trace.envelope.base_ns is None)
        raise UnusableInputError(
            f"mixed time bases: {without} has no baseTimeNanoseconds, the others do: their times cannot be compared"
        )
    if not bases and len(traces) == 1:
        return ClockAlignment("one file", uncertainty_ns=0, evidence="its times count from one origin")
    if not bases:
        return ClockAlignment("not aligned", evidence="the files name no time base")
    return ClockAlignment("base times", base_ns=min(bases), evidence=f"{len(bases)} files")


def _moved(trace: ChromeTrace, base_ns: int) -> ChromeTrace:
    shift = (trace.envelope.base_ns or 0) - base_ns
    if not shift:
        return trace
    moved = [
        dataclasses.replace(table, start_ns=table.start_ns + shift) for table in (trace.spans, trace.invalid)
    ]
    return dataclasses.replace(trace, spans=moved[0], invalid=moved[1])
