"""Which callable a serving span or a rank's run belongs to, and whether it is a decode step."""

from __future__ import annotations

import numpy as np

from analyzers.table.spans import ABSENT, Source, SpanTable

SUBMIT = ".worker_submit"
WAIT = ".worker_wait"
RUN = ".worker_run"

UNKNOWN_CALLABLE = "all runs"
"""The label of runs whose callable hash is 0 and that no serving span names."""


def callable_of(span_name: str) -> str | None:
    """`decode` of `decode.worker_submit`, `.worker_wait` and `.worker_run`; None for any other name."""
    for suffix in (SUBMIT, WAIT, RUN):
        if span_name.endswith(suffix) and len(span_name) > len(suffix):
            return span_name.removesuffix(suffix)
    return None


def is_prefill(callable_name: str) -> bool:
    """Whether a callable prefills prompts rather than decodes."""
    return "prefill" in callable_name


class DispatchNames:
    """dispatch_id -> callable, from the serving trace's submit and run spans."""

    def __init__(self, spans: SpanTable) -> None:
        names: dict[int, str] = {}
        ambiguous: set[int] = set()
        rows = np.flatnonzero(
            (spans.source == Source.SERVING)
            & (spans.dispatch_id != ABSENT)
            & spans.where_name(lambda name: name.endswith((SUBMIT, RUN)))
        )
        for row in rows.tolist():
            dispatch, name = int(spans.dispatch_id[row]), callable_of(spans.name_of(row))
            if name is not None and names.setdefault(dispatch, name) != name:
                ambiguous.add(dispatch)
        self._names = {dispatch: name for dispatch, name in names.items() if dispatch not in ambiguous}

    def __len__(self) -> int:
        return len(self._names)

    @property
    def callables(self) -> set[str]:
        """The callables of which dispatches are known by id."""
        return set(self._names.values())

    def get(self, dispatch_id: int) -> str | None:
        """The callable of one dispatch; None when the trace does not say, or says two things."""
        return self._names.get(dispatch_id)


def name_runs(spans: SpanTable, rows: list[int], names: DispatchNames) -> dict[int, str]:
    """The callable of each run root in `rows`: by its dispatch, else by a hash that a named dispatch shares.

    A hash nobody names is its own label, `hid <hash>`.
    """
    found: dict[int, str] = {}
    by_hash: dict[str, set[str]] = {}
    for row in rows:
        name = names.get(int(spans.dispatch_id[row])) if spans.dispatch_id[row] != ABSENT else None
        if name is not None:
            found[row] = name
            by_hash.setdefault(spans.hid_of(row), set()).add(name)
    for row in rows:
        if row in found:
            continue
        hid = spans.hid_of(row)
        shared = by_hash.get(hid, set()) if hid else set()
        if len(shared) == 1:
            found[row] = next(iter(shared))
        else:
            found[row] = f"hid {hid}" if hid else UNKNOWN_CALLABLE
    return found
