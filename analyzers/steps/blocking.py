"""Blocking runs: which spans of the serving trace are the duration of a callable that was run to its end."""

from __future__ import annotations

import numpy as np

from analyzers.table.callables import RUN, SUBMIT
from analyzers.table.spans import Int64s, Kind, Source, SpanTable


def blocking_runs(spans: SpanTable) -> dict[str, str]:
    """Callable -> name of its span, by that name: the bare `<callable>` kernel span, or its `.worker_run` where the bare
    one is missing. What was also submitted is no blocking run.
    """
    rows = np.flatnonzero((spans.source == Source.SERVING) & (spans.kind == Kind.SPAN))
    in_kernel = np.array([*(label == "kernel" for label in spans.categories), False])[spans.category[rows]]
    counts = np.bincount(spans.name[rows], minlength=len(spans.names))
    kernels = np.bincount(spans.name[rows], weights=in_kernel, minlength=len(spans.names))
    all_kernel = {spans.names[code]: bool(kernels[code] == counts[code]) for code in np.flatnonzero(counts)}
    ran = {label.removesuffix(RUN) for label in all_kernel if label.endswith(RUN)}
    submitted = {label.removesuffix(SUBMIT) for label in all_kernel if label.endswith(SUBMIT)}
    found = {}
    for label in sorted(all_kernel):
        bare = label in ran or (all_kernel[label] and "." not in label)
        if bare and label not in submitted:
            found[label] = label
        elif label.endswith(RUN) and label.removesuffix(RUN) not in all_kernel:
            found[label.removesuffix(RUN)] = label
    return found


def durations_of(spans: SpanTable, label: str) -> Int64s:
    """Durations of the serving spans of one name, in ns, in order of recording."""
    rows = spans.named(label) & (spans.source == Source.SERVING) & (spans.kind == Kind.SPAN)
    durations: Int64s = spans.duration_ns[rows]
    return durations
