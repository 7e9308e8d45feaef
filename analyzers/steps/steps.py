"""Steps: dispatches with both ends, in columns (docs/metrics.md, Steps and lifecycles)."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from analyzers.steps.endpoints import Endpoint, Endpoints
from analyzers.table.grouping import Rows, split_groups
from analyzers.table.intervals import Interval
from analyzers.table.spans import ABSENT, Codes, Int64s, Mask

PairedBy = Literal["dispatch_id", "step_id", "enclosing step_id", "order"]
PAIRED_BY: tuple[PairedBy, ...] = get_args(PairedBy)


@dataclass(frozen=True, slots=True)
class Step:
    """One dispatch with both ends: a valid pair."""

    callable: str
    submit: Endpoint
    wait: Endpoint
    paired_by: PairedBy

    @property
    def dispatch_id(self) -> int:
        """The dispatch_id of either end; ABSENT when neither has one."""
        own = self.submit.dispatch_id
        return own if own != ABSENT else self.wait.dispatch_id

    @property
    def step_id(self) -> int:
        """The step_id of either end or of the spans around them; ABSENT when there is none."""
        own = self.submit.any_step_id
        return own if own != ABSENT else self.wait.any_step_id

    @property
    def named_dispatch_id(self) -> int | str | None:
        """`dispatch_id` as the file has it."""
        return self._named(self.dispatch_id)

    @property
    def named_step_id(self) -> int | str | None:
        """`step_id` as the file has it."""
        return self._named(self.step_id)

    def _named(self, code: int) -> int | str | None:
        return None if code == ABSENT else self.submit.id_texts.get(code, code)

    @property
    def interval(self) -> Interval:
        """From submission to completion."""
        return Interval(self.submit.interval.start_ns, self.wait.interval.end_ns)

    @property
    def submit_to_completion_ns(self) -> int:
        """wait.end - submit.start."""
        return self.interval.duration_ns


@dataclass(frozen=True)
class Steps:
    """Steps in columns of equal length, in order of submission; one is made a `Step` where it is named.

    `submit` and `wait` are rows of `endpoints`; `paired_by` is a position in `PAIRED_BY`.
    """

    endpoints: Endpoints
    submit: Rows
    wait: Rows
    paired_by: npt.NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.submit)

    def __getitem__(self, index: int) -> Step:
        submit, wait = self.endpoints[self.submit[index]], self.endpoints[self.wait[index]]
        return Step(submit.callable, submit, wait, PAIRED_BY[int(self.paired_by[index])])

    def __iter__(self) -> Iterator[Step]:
        return (self[index] for index in range(len(self)))

    def select(self, chosen: Mask | Rows) -> Steps:
        """The steps of a mask or of an index list, in that order."""
        return Steps(self.endpoints, self.submit[chosen], self.wait[chosen], self.paired_by[chosen])

    def of(self, callable_name: str) -> Steps:
        """The steps of one callable."""
        return self.select(self._by_callable.get(callable_name, np.empty(0, dtype=np.intp)))

    @property
    def callables(self) -> list[str]:
        """The callables that have steps, in order of their first one."""
        return list(self._by_callable)

    @functools.cached_property
    def _by_callable(self) -> dict[str, Rows]:
        names, codes = self.endpoints.callables, self.callable
        return {names[codes[rows[0]]]: rows for rows in split_groups(codes)}

    @property
    def callable(self) -> Codes:
        """Position in `endpoints.callables`."""
        return self.endpoints.callable[self.submit]

    @property
    def process(self) -> Codes:
        """Position in `endpoints.processes` of the process that submitted."""
        return self.endpoints.process[self.submit]

    @property
    def start_ns(self) -> Int64s:
        """When the submits began."""
        return self.endpoints.start_ns[self.submit]

    @property
    def submit_end_ns(self) -> Int64s:
        """When the submits returned."""
        return self.endpoints.end_ns[self.submit]

    @property
    def wait_start_ns(self) -> Int64s:
        """When the waits began."""
        return self.endpoints.start_ns[self.wait]

    @property
    def end_ns(self) -> Int64s:
        """When the waits ended."""
        return self.endpoints.end_ns[self.wait]

    @property
    def submit_to_completion_ns(self) -> Int64s:
        """wait.end - submit.start."""
        return self.end_ns - self.start_ns

    @property
    def dispatch_id(self) -> Int64s:
        """`Step.dispatch_id` of every step."""
        return self._of_either_end(self.endpoints.dispatch_id)

    @property
    def step_id(self) -> Int64s:
        """`Step.step_id` of every step."""
        return self._of_either_end(self.endpoints.any_step_id)

    @property
    def slot(self) -> Int64s:
        """The slot that either end names; ABSENT when neither does."""
        return self._of_either_end(self.endpoints.slot)

    @property
    def joining_dispatch_id(self) -> Int64s:
        """`dispatch_id` where it names one step alone, so that runs can be joined by it; else ABSENT."""
        return np.where(self.endpoints.dispatched_once[self.submit], self.dispatch_id, ABSENT)

    @property
    def joining_step_id(self) -> Int64s:
        """`step_id` where it names one step alone, so that other spans can be joined by it; else ABSENT."""
        return np.where(self.endpoints.stepped_once[self.submit], self.step_id, ABSENT)

    def _of_either_end(self, ids: Int64s) -> Int64s:
        return np.where(ids[self.submit] != ABSENT, ids[self.submit], ids[self.wait])

    @property
    def paired_by_counts(self) -> dict[str, int]:
        """How many steps were paired by what, by the first step of each kind."""
        kinds = split_groups(self.paired_by)
        return {PAIRED_BY[self.paired_by[rows[0]]]: len(rows) for rows in kinds}


def join_steps(endpoints: Endpoints, parts: Sequence[Steps]) -> Steps:
    """All steps of `parts`, which are of the same endpoints, in order of submission."""
    none = np.empty(0, dtype=np.intp)
    steps = Steps(
        endpoints,
        np.concatenate([none, *(part.submit for part in parts)]),
        np.concatenate([none, *(part.wait for part in parts)]),
        np.concatenate([none.astype(np.int8), *(part.paired_by for part in parts)]),
    )
    keys = (steps.dispatch_id, steps.end_ns, steps.wait_start_ns, steps.submit_end_ns, steps.start_ns)
    return steps.select(np.lexsort(keys))
