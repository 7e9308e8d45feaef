"""Packing steps into host arrays: everything is checked before anything is written (docs/engine.md, Preparing a step)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine.metadata import Allocate, Blocks
from dsv4bench.engine.requests import ActiveRequest
from dsv4bench.engine.steps import DecodeStep
from dsv4bench.worker.row_checks import GROUPS, check_count, check_owners, check_pages
from dsv4bench.worker.task_args import ArraySpec, DecodeArgs, values


class RequestChecks:
    """Range checks of the requests that become local rows.

    The pages of a row are checked once: `ActiveRequest.blocks`, and in it the array of each group whose pages changed,
    is replaced and never written to.
    """

    def __init__(
        self, layout: CacheLayout, ranks: int, rows: int, pages: Sequence[int] | None = None
    ) -> None:
        """`rows` requests a rank at most, and as many state slots; `pages` of each group a rank has (default: as many
        as that many requests of the layout's length need).
        """
        self._rows = rows
        self._widths = [group.table_width for group in layout.groups]
        self._pages = (
            [blocks * rows for blocks in layout.blocks_for(layout.max_model_len)] if pages is None else pages
        )
        self._checked: list[list[Blocks | None]] = [[None] * rows for _ in range(ranks)]

    def check(self, requests: Sequence[Sequence[ActiveRequest]]) -> None:
        """Check the requests of each rank, row by row.

        Raises:
            ValueError: names rank, row, field, value and the allowed range.
        """
        if len(requests) != len(self._checked):
            raise ValueError(f"a step has rows for {len(requests)} ranks, must be {len(self._checked)}")
        for rank, of_rank in enumerate(requests):
            check_count(rank, "the number of rows", len(of_rank), self._rows)
            if not of_rank:
                continue
            state_slots = np.array([request.state_slot for request in of_rank])
            generations = np.array([request.generation for request in of_rank])
            check_owners(rank, state_slots, generations, self._rows)
            checked = self._checked[rank]
            for row, request in enumerate(of_rank):
                if checked[row] is not request.blocks:
                    self._check_blocks(rank, row, request.blocks, checked[row])
                    checked[row] = request.blocks

    def forget(self) -> None:
        """Check every row's blocks again."""
        self._checked = [[None] * self._rows for _ in self._checked]

    def _check_blocks(self, rank: int, row: int, blocks: Blocks, known: Blocks | None) -> None:
        for group, (field, ids) in enumerate(zip(GROUPS, blocks, strict=True)):
            if known is None or known[group] is not ids:
                count, width, pages = np.array([len(ids)]), self._widths[group], self._pages[group]
                check_pages(rank, field, ids[None], count, width, pages, [row])


def allocate_arrays(specs: Any, allocate: Allocate) -> Any:
    """A record of arrays as a record of ArraySpec describes them."""
    return type(specs)(*(allocate(spec.shape, spec.dtype) for spec in values(specs)))


def check_arrays(out: Any, specs: Any) -> None:
    """Refuse a record of host arrays that a program could not read.

    Raises:
        ValueError: names the field, what it must be and what it is.
    """
    for name, array, spec in zip(out.__dataclass_fields__, values(out), values(specs), strict=True):
        if array.shape != spec.shape or array.dtype != spec.dtype or not array.flags.c_contiguous:
            layout = "contiguous" if array.flags.c_contiguous else f"with strides {array.strides}"
            raise ValueError(
                f"{name} must be {spec.dtype} {list(spec.shape)}, contiguous, "
                f"got {array.dtype} {list(array.shape)}, {layout}"
            )


def pack_decode(
    step: DecodeStep,
    out: DecodeArgs[NDArray[Any]],
    specs: DecodeArgs[ArraySpec],
    checks: RequestChecks,
    *,
    ranks: Sequence[int] | None = None,
    fill_all: bool = False,
) -> None:
    """Write a step's inputs to the caller's arrays: the active rows, and zeros behind them if `fill_all`.

    `ranks` names those whose rows are to be written, by default all.

    Raises:
        ValueError: an array has another shape, dtype or layout than `specs`, or a row is out of range; nothing was
            written.
    """
    check_arrays(out, specs)
    checks.check(step.requests)
    out.step_id[0] = step.step_id
    for rank in range(len(step.requests)) if ranks is None else ranks:
        requests = step.requests[rank]
        count = len(requests)
        out.row_counts[rank] = count
        out.state_slots[rank, :count] = [request.state_slot for request in requests]
        out.generations[rank, :count] = [request.generation for request in requests]
        if fill_all:
            out.state_slots[rank, count:] = 0
            out.generations[rank, count:] = 0
