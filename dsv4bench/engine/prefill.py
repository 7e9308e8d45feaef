"""The host buffers of a prefill step, packed on the device lane: prefill blocks, so one set serves all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine.metadata import Allocate, TableBuffers
from dsv4bench.engine.packing import RequestChecks, allocate_arrays, check_arrays
from dsv4bench.engine.steps import PrefillChunk, PrefillOutput, PrefillStep
from dsv4bench.worker.row_checks import check_count
from dsv4bench.worker.task_args import (
    PREFILL_TILE,
    TAIL_PLACEHOLDER,
    ArraySpec,
    MtpPrefillArgs,
    PrefillArgs,
    mtp_prefill_specs,
    prefill_specs,
)


class PrefillBuffers:
    """Arguments of `deepseek_v4_prefill` and `deepseek_v4_mtp_prefill` for up to `prefill_tokens` rows a rank."""

    def __init__(
        self,
        allocate: Allocate,
        layout: CacheLayout,
        ranks: int,
        rows: int,
        prefill_tokens: int,
        pages: Sequence[int] | None = None,
    ) -> None:
        """Make the buffers; `pages` is how many a rank has per group, see `packing.RequestChecks`."""
        self.buffers = TableBuffers(allocate, layout, ranks, rows)
        self._specs = prefill_specs(ranks, rows, prefill_tokens)
        self._mtp_specs = mtp_prefill_specs(ranks, rows)
        self._checks = RequestChecks(layout, ranks, rows, pages)
        self.args: PrefillArgs[NDArray[Any]] = allocate_arrays(self._specs, allocate)
        mtp_args: MtpPrefillArgs[NDArray[Any]] = allocate_arrays(self._mtp_specs, allocate)
        self.mtp_args = replace(mtp_args, state_slots=self.args.state_slots)

    @property
    def tiles(self) -> int:
        """Tiles of the largest rank's main rows: what every rank runs."""
        return _tiles(self.args.row_counts)

    @property
    def mtp_tiles(self) -> int:
        """Tiles of the largest rank's MTP rows."""
        return _tiles(self.mtp_args.row_counts)

    def pack(self, step: PrefillStep) -> None:
        """Fill the active prefix of every input of both programs.

        Raises:
            ValueError: a row of the step is out of range; nothing was written.
        """
        pack_prefill(step, self.args, self._specs, self._checks)
        pack_mtp_prefill(step, self.mtp_args, self._mtp_specs)
        for rank, chunks in enumerate(step.chunks):
            self.buffers.update(rank, [chunk.request for chunk in chunks])

    def read(self) -> PrefillOutput:
        """Copy the outputs."""
        return PrefillOutput(self.args.sampled_ids.copy())


def pack_prefill(
    step: PrefillStep,
    out: PrefillArgs[NDArray[Any]],
    specs: PrefillArgs[ArraySpec],
    checks: RequestChecks,
    *,
    fill_all: bool = False,
) -> None:
    """Write a step's inputs to the caller's arrays: the active rows, and zeros behind them if `fill_all`.

    Raises:
        ValueError: an array has another shape, dtype or layout than `specs`, or a row is out of range; nothing was
            written.
    """
    check_arrays(out, specs)
    checks.check([[chunk.request for chunk in chunks] for chunks in step.chunks])
    for rank, chunks in enumerate(step.chunks):
        _check_chunks(rank, chunks, out.token_ids.shape[1])
    for rank, chunks in enumerate(step.chunks):
        row = 0
        for index, chunk in enumerate(chunks):
            request, end = chunk.request, chunk.end
            rows = slice(row, row + chunk.count)
            out.token_ids[rank, rows] = request.prompt_token_ids[chunk.start : end]
            out.positions[rank, rows] = np.arange(chunk.start, end)
            out.sequences[rank, rows] = index
            out.state_slots[rank, index] = request.state_slot
            out.generations[rank, index] = request.generation
            out.lengths[rank, index] = end if chunk.terminal else 0
            # The fields of Sampling are in the order of SamplingField.
            out.sampling[rank, index] = astuple(request.request.sampling)
            row = rows.stop
        out.row_counts[rank] = row
        out.request_counts[rank] = len(chunks)
        if fill_all:
            for array in (out.token_ids, out.positions, out.sequences):
                array[rank, row:] = 0
            for array in (out.state_slots, out.generations, out.lengths, out.sampling):
                array[rank, len(chunks) :] = 0


def pack_mtp_prefill(
    step: PrefillStep,
    out: MtpPrefillArgs[NDArray[Any]],
    specs: MtpPrefillArgs[ArraySpec],
    *,
    fill_all: bool = False,
) -> None:
    """Write the MTP rows of a step that `pack_prefill` has accepted; `state_slots` is the array that it has filled.

    Raises:
        ValueError: an array has another shape, dtype or layout than `specs`; nothing was written.
    """
    check_arrays(out, specs)
    for rank, chunks in enumerate(step.chunks):
        out.last_rows[rank] = -1
        row = 0
        for index, chunk in enumerate(chunks):
            if not chunk.terminal:
                continue
            prompt = chunk.request.prompt_token_ids
            first = max(0, len(prompt) - PREFILL_TILE)
            rows = slice(row, row + len(prompt) - first)
            out.next_token_ids[rank, rows] = [*prompt[first + 1 :], TAIL_PLACEHOLDER]
            out.positions[rank, rows] = np.arange(first, len(prompt))
            out.sequences[rank, rows] = index
            row = rows.stop
            out.last_rows[rank, index] = row - 1
        out.row_counts[rank] = row
        if fill_all:
            for array in (out.next_token_ids, out.positions, out.sequences):
                array[rank, row:] = 0


def _check_chunks(rank: int, chunks: Sequence[PrefillChunk], rows: int) -> None:
    for row, chunk in enumerate(chunks):
        length, first = len(chunk.request.prompt_token_ids), chunk.request.prefix.reused
        if not first <= chunk.start < chunk.end <= length:
            raise ValueError(
                f"rank {rank}, row {row}: the chunk is {chunk.start}..{chunk.end - 1}, must be in {first}..{length - 1}"
            )
    check_count(rank, "the number of prompt tokens", sum(chunk.count for chunk in chunks), rows)


def _tiles(row_counts: NDArray[np.int32]) -> int:
    return -(-int(row_counts.max()) // PREFILL_TILE)
