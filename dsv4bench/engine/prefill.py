"""The host buffers of a prefill step, packed on the device lane: prefill blocks, so one set serves all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine.metadata import Allocate, TableBuffers
from dsv4bench.engine.steps import PrefillOutput, PrefillStep
from dsv4bench.worker.task_args import (
    PREFILL_TILE,
    TAIL_PLACEHOLDER,
    MtpPrefillArgs,
    PrefillArgs,
    SamplingField,
)


class PrefillBuffers:
    """Arguments of `deepseek_v4_prefill` and `deepseek_v4_mtp_prefill` for up to `prefill_tokens` rows a rank."""

    def __init__(
        self, allocate: Allocate, layout: CacheLayout, ranks: int, rows: int, prefill_tokens: int
    ) -> None:
        self.buffers = TableBuffers(allocate, layout, ranks, rows)
        self.args: PrefillArgs[NDArray[Any]] = PrefillArgs(
            row_counts=allocate((ranks,), np.int32),
            token_ids=allocate((ranks, prefill_tokens), np.int32),
            positions=allocate((ranks, prefill_tokens), np.int64),
            sequences=allocate((ranks, prefill_tokens), np.int32),
            request_counts=allocate((ranks,), np.int32),
            state_slots=allocate((ranks, rows), np.int32),
            generations=allocate((ranks, rows), np.int64),
            lengths=allocate((ranks, rows), np.int64),
            sampling=allocate((ranks, rows, len(SamplingField)), np.float64),
            sampled_ids=allocate((ranks, rows), np.int32),
        )
        mtp_rows = rows * PREFILL_TILE
        self.mtp_args: MtpPrefillArgs[NDArray[Any]] = MtpPrefillArgs(
            row_counts=allocate((ranks,), np.int32),
            next_token_ids=allocate((ranks, mtp_rows), np.int32),
            positions=allocate((ranks, mtp_rows), np.int64),
            sequences=allocate((ranks, mtp_rows), np.int32),
            last_rows=allocate((ranks, rows), np.int32),
            state_slots=self.args.state_slots,
        )

    @property
    def tiles(self) -> int:
        """Tiles of the largest rank's main rows: what every rank runs."""
        return _tiles(self.args.row_counts)

    @property
    def mtp_tiles(self) -> int:
        """Tiles of the largest rank's MTP rows."""
        return _tiles(self.mtp_args.row_counts)

    def pack(self, step: PrefillStep) -> None:
        """Fill the active prefix of every input of both programs."""
        args = self.args
        for rank, chunks in enumerate(step.chunks):
            self.buffers.update(rank, [chunk.request for chunk in chunks])
            row = 0
            for index, chunk in enumerate(chunks):
                prompt = chunk.request.prompt_token_ids
                rows = slice(row, row + chunk.count)
                args.token_ids[rank, rows] = prompt[chunk.start : chunk.start + chunk.count]
                args.positions[rank, rows] = np.arange(chunk.start, chunk.start + chunk.count)
                args.sequences[rank, rows] = index
                args.state_slots[rank, index] = chunk.request.state_slot
                args.generations[rank, index] = chunk.request.generation
                sampling = chunk.request.request.sampling
                args.sampling[rank, index] = (
                    sampling.temperature,
                    sampling.top_k,
                    sampling.top_p,
                    sampling.seed,
                )
                args.lengths[rank, index] = len(prompt) if chunk.terminal else 0
                row += chunk.count
            args.row_counts[rank] = row
            args.request_counts[rank] = len(chunks)
            self._pack_mtp(rank, step)

    def read(self) -> PrefillOutput:
        """Copy the outputs."""
        return PrefillOutput(self.args.sampled_ids.copy())

    def _pack_mtp(self, rank: int, step: PrefillStep) -> None:
        args = self.mtp_args
        args.last_rows[rank] = -1
        row = 0
        for index, chunk in enumerate(step.chunks[rank]):
            if not chunk.terminal:
                continue
            prompt = chunk.request.prompt_token_ids
            first = max(0, len(prompt) - PREFILL_TILE)
            rows = slice(row, row + len(prompt) - first)
            args.next_token_ids[rank, rows] = [*prompt[first + 1 :], TAIL_PLACEHOLDER]
            args.positions[rank, rows] = np.arange(first, len(prompt))
            args.sequences[rank, rows] = index
            row = rows.stop
            args.last_rows[rank, index] = row - 1
        args.row_counts[rank] = row


def _tiles(row_counts: NDArray[np.int32]) -> int:
    return -(-int(row_counts.max()) // PREFILL_TILE)
