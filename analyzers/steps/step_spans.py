"""The spans that a step has once, such as its prepare or its reclaim, by process and step id."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analyzers.steps.steps import Steps
from analyzers.table.grouping import Rows
from analyzers.table.identity import Process
from analyzers.table.spans import ABSENT, Codes, Int64s, Mask, SpanTable

PREPARE_SPAN = ".prepare_decode"
RECLAIM_SPAN = "WorkerProcess.reclaim_decode"
SCHEDULE_SPAN = "scheduler.schedule"
PROCESS_SPAN = "scheduler.process_step_output"


class StepSpans:
    """The outermost span of each (process, step id) whose name ends in `suffix`: columns in the order of both."""

    def __init__(self, spans: SpanTable, suffix: str) -> None:
        rows = np.flatnonzero(
            spans.where_name(lambda name: name.endswith(suffix)) & (spans.step_id != ABSENT)
        )
        codes: dict[Process, int] = {}
        of_lane = [codes.setdefault(lane.process, len(codes)) for lane in spans.lanes]
        process = np.array([*of_lane, ABSENT], dtype=np.int32)[spans.lane[rows]]
        order = np.lexsort((-spans.duration_ns[rows], spans.step_id[rows], process))
        rows, process = rows[order], process[order]
        outermost = np.ones(len(rows), dtype=np.bool_)
        outermost[1:] = (np.diff(process) != 0) | (np.diff(spans.step_id[rows]) != 0)
        self.row: Rows = rows[outermost]
        self.processes = tuple(codes)
        self.process: Codes = process[outermost]
        """Position in `processes`."""
        self.step_id: Int64s = spans.step_id[self.row]
        self.start_ns: Int64s = spans.start_ns[self.row]
        # Not `spans.end_ns`, which would be computed for every row and kept.
        self.end_ns: Int64s = self.start_ns + spans.duration_ns[self.row]
        # Another span of the same step lies inside of the outermost, unless the id was used again.
        self.names_one_step: Mask = np.ones(len(self.row), dtype=np.bool_)
        of_span = np.cumsum(outermost) - 1
        outside = (spans.start_ns[rows] < self.start_ns[of_span]) | (
            spans.start_ns[rows] >= np.maximum(self.end_ns, self.start_ns + 1)[of_span]
        )
        self.names_one_step[of_span[outside]] = False
        self._codes = codes
        self._steps = np.unique(self.step_id)
        self._keys = self._key(self.process, np.searchsorted(self._steps, self.step_id))

    def __len__(self) -> int:
        return len(self.row)

    def find(self, processes: Sequence[Process], process: Codes, step_id: Int64s) -> Rows:
        """The position of the span of each step, ABSENT where there is none; `process` are positions in `processes`."""
        if not len(self):
            return np.full(len(step_id), ABSENT, dtype=np.intp)
        own = np.array([*(self._codes.get(item, ABSENT) for item in processes), ABSENT], dtype=np.int32)[
            process
        ]
        step = np.searchsorted(self._steps, step_id)
        position = np.minimum(np.searchsorted(self._keys, self._key(own, step)), len(self) - 1)
        is_found = (self.process[position] == own) & (self.step_id[position] == step_id)
        return np.where(is_found, position, ABSENT)

    def of(self, steps: Steps) -> Rows:
        """The position of the span of each of `steps`, in the process that submitted it; ABSENT where there is none."""
        return self.find(steps.endpoints.processes, steps.process, steps.joining_step_id)

    def _key(self, process: Codes, step: Rows) -> Int64s:
        return process.astype(np.int64) * (len(self._steps) + 1) + step
