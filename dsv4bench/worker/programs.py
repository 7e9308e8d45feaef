"""The DeepSeek-V4 programs that the torch ranks run, under their upstream names (engine.md, section 5).

Formulas of the MTP step: deepseek-v4.md, section 5. A program gets the arguments of `task_args` in the order
its call in `engine.runner` passes them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from dsv4bench.model.batch import BlockTables, CachePools, Rows
from dsv4bench.model.config import ModelConfig
from dsv4bench.model.model import DeepSeekV4, load_weights
from dsv4bench.worker.program_specs import ProgramsSetup
from dsv4bench.worker.rank import RankContext, Validation
from dsv4bench.worker.task_args import (
    NO_OVERRIDE,
    PREFILL_TILE,
    TAIL_PLACEHOLDER,
    ArgumentReader,
    DecodeArgs,
    DeviceState,
    MtpPrefillArgs,
    Pools,
    PrefillArgs,
    StateField,
    Tables,
    values,
)


def setup(argument: bytes) -> Callable[[RankContext], DeepSeekPrograms]:
    """Map the checkpoint once for all ranks; returns what makes one rank's programs."""
    settings = msgspec.msgpack.decode(argument, type=ProgramsSetup)
    weights = load_weights(Path(settings.checkpoint))

    def make(context: RankContext) -> DeepSeekPrograms:
        return DeepSeekPrograms(context, settings.config, weights)

    return make


class DeepSeekPrograms:
    """One rank's programs."""

    def __init__(self, context: RankContext, config: ModelConfig, weights: dict[str, Tensor]) -> None:
        self._rank = context.rank
        self._vocab = config.vocab_size
        self._model = DeepSeekV4(config, weights, context.exchange)
        self._pools: dict[int, CachePools] = {}

    def prefill(self, *arguments: Any) -> Validation:
        """`deepseek_v4_prefill`: (PrefillArgs, Tables, DeviceState, Pools, tiles).

        Runs `tiles` tiles of 128 rows, as many as the largest rank needs: every rank joins every expert exchange.
        """
        reader = ArgumentReader(arguments)
        args: PrefillArgs[Tensor] = reader.take(PrefillArgs)
        tables, state, pools = self._common(reader)
        (tiles,) = reader.rest()
        rank = self._rank
        slots = args.state_slots[rank].long()
        token_ids, positions, sequences = self._rows(args, args.token_ids)
        for tile in _tiles(tiles):
            rows = Rows(token_ids[tile], positions[tile], sequences[tile])
            streams = self._model.forward(rows, tables, pools)
            state.prefill_hidden[slots[rows.sequences], rows.positions % PREFILL_TILE] = streams

        lengths = args.lengths[rank, : int(args.request_counts[rank])]
        terminal = lengths.nonzero().flatten()
        slots = slots[terminal]
        tail_positions = lengths[terminal] - 1
        hidden = state.prefill_hidden[slots, tail_positions % PREFILL_TILE]
        first = self._model.logits(hidden).argmax(-1)
        state.hidden[slots] = hidden
        integers = torch.empty(len(terminal), len(StateField), dtype=torch.int64)
        integers[:, StateField.GENERATION] = args.generations[rank, terminal]
        integers[:, StateField.TAIL_TOKEN] = first
        integers[:, StateField.TAIL_POSITION] = tail_positions
        integers[:, StateField.DRAFT] = 0
        integers[:, StateField.COMMITTED] = 1
        state.integers[slots] = integers
        args.sampled_ids[rank, terminal] = first.int()
        return lambda: self._check_tokens(first)

    def mtp_prefill(self, *arguments: Any) -> Validation:
        """`deepseek_v4_mtp_prefill`: (MtpPrefillArgs, Tables, DeviceState, Pools, tiles)."""
        reader = ArgumentReader(arguments)
        args: MtpPrefillArgs[Tensor] = reader.take(MtpPrefillArgs)
        tables, state, pools = self._common(reader)
        (tiles,) = reader.rest()
        rank = self._rank
        next_ids, positions, sequences = self._rows(args, args.next_token_ids)
        slots = args.state_slots[rank].long()
        row_slots = slots[sequences]
        tails = state.integers[row_slots, StateField.TAIL_TOKEN]
        next_ids = torch.where(next_ids == TAIL_PLACEHOLDER, tails, next_ids)
        hidden = state.prefill_hidden[row_slots, positions % PREFILL_TILE]
        streams = torch.cat(
            [
                self._model.mtp(
                    next_ids[tile],
                    Rows(next_ids[tile], positions[tile], sequences[tile]),
                    hidden[tile],
                    tables,
                    pools,
                )
                for tile in _tiles(tiles)
            ]
        )
        last_rows = args.last_rows[rank].long()
        requests = (last_rows >= 0).nonzero().flatten()
        last_rows = last_rows[requests]
        drafts = self._model.mtp_logits(streams[last_rows]).argmax(-1)
        drafts = _override(state, slots[requests], positions[last_rows] + 2, drafts)
        state.integers[slots[requests], StateField.DRAFT] = drafts
        args.draft_ids[rank, requests] = drafts.int()
        return lambda: self._check_tokens(drafts)

    def decode(self, *arguments: Any) -> Validation:
        """`deepseek_v4_decode` (K = 0): (DecodeArgs, Tables, DeviceState, Pools)."""
        reader = ArgumentReader(arguments)
        args: DecodeArgs[Tensor] = reader.take(DecodeArgs)
        tables, state, pools = self._common(reader)
        active, slots, integers = self._active_rows(args, state)
        position = integers[:, StateField.TAIL_POSITION] + 1
        rows = Rows(integers[:, StateField.TAIL_TOKEN], position, active)
        streams = self._model.forward(rows, tables, pools)
        token = self._model.logits(streams).argmax(-1)

        integers[:, StateField.TAIL_TOKEN] = token
        integers[:, StateField.TAIL_POSITION] = position
        integers[:, StateField.COMMITTED] += 1
        state.integers[slots] = integers
        state.hidden[slots] = streams
        self._publish(args, active, token[:, None], torch.ones_like(token), position)
        return lambda: self._check_tokens(token)

    def decode_mtp_fused(self, *arguments: Any) -> Validation:
        """`deepseek_v4_decode_mtp_fused` (K = 1): (DecodeArgs, Tables, DeviceState, Pools)."""
        reader = ArgumentReader(arguments)
        args: DecodeArgs[Tensor] = reader.take(DecodeArgs)
        tables, state, pools = self._common(reader)
        active, slots, integers = self._active_rows(args, state)
        tail = integers[:, StateField.TAIL_TOKEN]
        position = integers[:, StateField.TAIL_POSITION]
        draft = integers[:, StateField.DRAFT]
        sequences = active.repeat_interleave(2)

        rows = Rows(_pairs(tail, draft), _pairs(position + 1, position + 2), sequences)
        streams = self._model.forward(rows, tables, pools)
        main = self._model.logits(streams).argmax(-1).view(-1, 2)
        streams = streams.view(-1, 2, *streams.shape[1:])
        accepted = draft == main[:, 0]

        # Accepted: rows T+1, T+2 under the two main tokens. Rejected: rows T, T+1 under the old tail and the main
        # token; row T repeats what an earlier step wrote at T.
        shift = accepted.long()
        wide = accepted[:, None, None]
        mtp_ids = _pairs(
            torch.where(accepted, main[:, 0], tail), torch.where(accepted, main[:, 1], main[:, 0])
        )
        mtp_positions = _pairs(position + shift, position + shift + 1)
        mtp_hidden = torch.stack(
            [
                torch.where(wide, streams[:, 0], state.hidden[slots]),
                torch.where(wide, streams[:, 1], streams[:, 0]),
            ],
            dim=1,
        )
        mtp_streams = self._model.mtp(
            mtp_ids, Rows(mtp_ids, mtp_positions, sequences), mtp_hidden.flatten(0, 1), tables, pools
        )
        position = position + 1 + shift
        draft = self._model.mtp_logits(mtp_streams[1::2]).argmax(-1)
        draft = _override(state, slots, position + 2, draft)

        integers[:, StateField.TAIL_TOKEN] = mtp_ids[1::2]
        integers[:, StateField.TAIL_POSITION] = position
        integers[:, StateField.DRAFT] = draft
        integers[:, StateField.COMMITTED] += 1 + shift
        state.integers[slots] = integers
        state.hidden[slots] = mtp_hidden[:, 1]
        self._publish(args, active, main, 1 + shift, position)
        return lambda: self._check_tokens(main, draft)

    def _common(self, reader: ArgumentReader) -> tuple[BlockTables, DeviceState[Tensor], CachePools]:
        tables: Tables[Tensor] = reader.take(Tables)
        state: DeviceState[Tensor] = reader.take(DeviceState)
        pools: Pools[Tensor] = reader.take(Pools)
        # CachePools keeps flat views of its pools: made once, not once a dispatch.
        key = pools.ori.data_ptr()
        if key not in self._pools:
            *groups, mtp_kv = values(pools)
            self._pools[key] = CachePools(tuple(groups), mtp_kv)
        *tables_of_groups, counts = (field[self._rank] for field in values(tables))
        return BlockTables(tuple(tables_of_groups), counts), state, self._pools[key]

    def _rows(
        self, args: PrefillArgs[Tensor] | MtpPrefillArgs[Tensor], token_ids: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        count = int(args.row_counts[self._rank])
        return (
            token_ids[self._rank, :count].long(),
            args.positions[self._rank, :count],
            args.sequences[self._rank, :count].long(),
        )

    def _active_rows(
        self, args: DecodeArgs[Tensor], state: DeviceState[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rows whose slot still holds their generation: table rows, state slots, state integers (a copy)."""
        count = int(args.row_counts[self._rank])
        args.accepted_counts[self._rank, :count] = 0
        slots = args.state_slots[self._rank, :count].long()
        integers = state.integers[slots]
        current = integers[:, StateField.GENERATION] == args.generations[self._rank, :count]
        active = current.nonzero().flatten()
        return active, slots[active], integers[active]

    def _publish(
        self, args: DecodeArgs[Tensor], active: Tensor, tokens: Tensor, committed: Tensor, position: Tensor
    ) -> None:
        rank = self._rank
        args.sampled_ids[rank, active] = tokens.int()
        args.tail_positions[rank, active] = position
        args.accepted_counts[rank, active] = committed.int()

    def _check_tokens(self, *tokens: Tensor) -> None:
        for ids in tokens:
            if ids.numel() and not (int(ids.min()) >= 0 and int(ids.max()) < self._vocab):
                raise ValueError(f"rank {self._rank}: a sampled token id lies outside 0..{self._vocab - 1}")


def _tiles(count: int) -> list[slice]:
    return [slice(tile * PREFILL_TILE, (tile + 1) * PREFILL_TILE) for tile in range(count)]


def _pairs(first: Tensor, second: Tensor) -> Tensor:
    """Interleave two [N] tensors: [2N]."""
    return torch.stack([first, second], dim=1).flatten()


def _override(state: DeviceState[Tensor], slots: Tensor, positions: Tensor, drafts: Tensor) -> Tensor:
    """Replace drafts by the tokens injected for their positions, where there are any."""
    injected = state.draft_override[slots, positions].long()
    return torch.where(injected == NO_OVERRIDE, drafts, injected)
