"""What the scheduler decides and the lanes carry: steps, and what came of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dsv4bench.cache.prefix_index import Snapshot
from dsv4bench.engine.requests import ActiveRequest


@dataclass(frozen=True)
class DecodeStep:
    """One fused decode dispatch: the requests of each rank, in row order. `slot` = step_id % 2."""

    step_id: int
    requests: tuple[tuple[ActiveRequest, ...], ...]

    @property
    def slot(self) -> int:
        """The slot that owns all host buffers of the step."""
        return self.step_id % 2


@dataclass(frozen=True)
class PrefillChunk:
    """Prompt positions `start` .. `start + count - 1` of one request; `terminal` when they are the last.

    `snapshot` is to be taken behind them.
    """

    request: ActiveRequest
    start: int
    count: int
    snapshot: Snapshot | None = None

    @property
    def end(self) -> int:
        """The position behind the chunk."""
        return self.start + self.count

    @property
    def terminal(self) -> bool:
        """Whether the chunk ends the prompt."""
        return self.end == len(self.request.prompt_token_ids)


@dataclass(frozen=True)
class PrefillStep:
    """One blocking prefill dispatch: the chunks of each rank."""

    prefill_id: int
    chunks: tuple[tuple[PrefillChunk, ...], ...]


Step = DecodeStep | PrefillStep


@dataclass(frozen=True)
class DecodeOutput:
    """Copies of a decode step's outputs: tokens int32 [ranks, B, S], committed counts int32 [ranks, B]."""

    sampled_ids: NDArray[np.int32]
    accepted_counts: NDArray[np.int32]


@dataclass(frozen=True)
class PrefillOutput:
    """Copy of a prefill step's output: the first token of each terminal request, int32 [ranks, B]."""

    sampled_ids: NDArray[np.int32]


@dataclass(frozen=True)
class Outcome:
    """A step with what came of it, in submission order: its output, or the error that ended it."""

    step: Step
    output: DecodeOutput | PrefillOutput | None
    error: BaseException | None = None
