"""What the runtime's scheduler had in flight, by its own records."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from analyzers.table.families import family
from analyzers.table.intervals import Interval
from analyzers.table.spans import ABSENT, Source, SpanTable

_SUBMIT = ".submit"
_COMPLETE = ".complete"


def scheduler_flights(spans: SpanTable, run_ids: Collection[int] | None = None) -> list[Interval]:
    """From the first node.submit to the last node.complete of each run that has both, by start.

    Only the runs of `run_ids`, where they are given.
    """
    of_runs = (spans.source == Source.STRACE) & (spans.run_id != ABSENT)
    if not of_runs.any():
        return []
    rows = np.flatnonzero(of_runs & spans.where_name(_is_edge))
    if run_ids is not None:
        rows = rows[np.isin(spans.run_id[rows], list(run_ids))]
    runs, codes = np.unique(spans.run_id[rows], return_inverse=True)
    is_submit = spans.where_name(lambda name: name.endswith(_SUBMIT))[rows]
    limits = np.iinfo(np.int64)
    starts, ends = np.full(len(runs), limits.max), np.full(len(runs), limits.min)
    np.minimum.at(starts, codes[is_submit], spans.start_ns[rows[is_submit]])
    np.maximum.at(ends, codes[~is_submit], spans.end_ns[rows[~is_submit]])
    whole = (starts != limits.max) & (ends != limits.min)
    return sorted(map(Interval, starts[whole].tolist(), ends[whole].tolist()))


def _is_edge(name: str) -> bool:
    return family(name) == "node" and name.endswith((_SUBMIT, _COMPLETE))
