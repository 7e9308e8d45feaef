"""The DeepSeek-V4 programs that the torch ranks run, under their upstream names (docs/engine.md, Programs).

Formulas of the MTP step: docs/model.md, MTP decode. A program gets the arguments of `task_args` in the order
its call in `engine.runner` passes them.
"""

from __future__ import annotations

import ctypes
import mmap
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
from dsv4bench.worker.row_checks import ProgramChecks, RowLimits
from dsv4bench.worker.sampling import choose
from dsv4bench.worker.task_args import (
    PREFILL_TILE,
    SPOILT,
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
    _keep_freed_memory()
    settings = msgspec.msgpack.decode(argument, type=ProgramsSetup)
    weights = load_weights(Path(settings.checkpoint))

    def make(context: RankContext) -> DeepSeekPrograms:
        return DeepSeekPrograms(context, settings.config, weights)

    return make


def _keep_freed_memory() -> None:
    """Let this process and its forks keep memory that tensors give back, as a device's caching allocator does.

    By default glibc returns large blocks to the kernel at once, and every step pays for thousands of page faults.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
        libc.mallopt(trim_threshold, 1 << 30)
        libc.mallopt(mmap_threshold, 32 << 20)  # the most that glibc takes


def _touch(weights: dict[str, Tensor]) -> None:
    """Read a byte of every page of the mapped checkpoint, in the process that will use it.

    Otherwise a rank faults pages of the embedding in, and grows, for as long as it meets new tokens.
    """
    for weight in weights.values():
        weight.view(-1).view(torch.uint8)[:: mmap.PAGESIZE].sum()


class DeepSeekPrograms:
    """One rank's programs."""

    def __init__(self, context: RankContext, config: ModelConfig, weights: dict[str, Tensor]) -> None:
        _touch(weights)
        self._rank = context.rank
        self._vocab = config.vocab_size
        self._model = DeepSeekV4(config, weights, context.exchange)
        self._checks = ProgramChecks(context.rank)
        self._phases = context.phases
        self._pools: dict[int, CachePools] = {}

    def prefill(self, *arguments: Any) -> Validation:
        """`deepseek_v4_prefill`: (PrefillArgs, Tables, DeviceState, Pools, tiles).

        Runs `tiles` tiles of 128 rows, as many as the largest rank needs: every rank joins every expert exchange.
        """
        reader = ArgumentReader(arguments)
        args: PrefillArgs[Tensor] = reader.take(PrefillArgs)
        tables, state, pools = self._common(reader, self._checks.prefill, args)
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
        sampling = args.sampling[rank, terminal]
        logits = self._model.logits(hidden).unsqueeze(1)
        first = choose(logits, lengths[terminal].unsqueeze(1), sampling).squeeze(1)
        state.sampling[slots] = sampling
        state.hidden[slots] = hidden
        integers = torch.zeros(len(terminal), state.integers.shape[1], dtype=torch.int64)
        integers[:, StateField.GENERATION] = args.generations[rank, terminal]
        integers[:, StateField.TAIL_TOKEN] = first
        integers[:, StateField.TAIL_POSITION] = tail_positions
        integers[:, StateField.COMMITTED] = 1
        state.integers[slots] = integers
        args.sampled_ids[rank, terminal] = first.int()
        return lambda: self._check_tokens(first)

    def mtp_prefill(self, *arguments: Any) -> Validation:
        """`deepseek_v4_mtp_prefill`: (MtpPrefillArgs, Tables, DeviceState, Pools, tiles)."""
        reader = ArgumentReader(arguments)
        args: MtpPrefillArgs[Tensor] = reader.take(MtpPrefillArgs)
        tables, state, pools = self._common(reader, self._checks.mtp_prefill, args)
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
        slots = slots[requests]
        drafts = self._draft(streams[last_rows], positions[last_rows], requests, slots, tables, state, pools)
        state.integers[slots, StateField.DRAFTS :] = drafts
        return lambda: self._check_tokens(drafts)

    def decode(self, *arguments: Any) -> Validation:
        """All decode programs, K = 0..7: (DecodeArgs, Tables, DeviceState, Pools).

        Verifies the K drafts behind the tail, commits the longest matching prefix and the main model's token after
        it, and drafts anew (docs/model.md, MTP decode). Rows that were rejected leave entries beyond the new tail,
        which the next step's rows overwrite before anything reads them.
        """
        reader = ArgumentReader(arguments)
        args: DecodeArgs[Tensor] = reader.take(DecodeArgs)
        tables, state, pools = self._common(reader, self._checks.decode, args)
        active, slots, integers = self._active_rows(args, state)
        drafts = integers[:, StateField.DRAFTS :]
        offsets = torch.arange(1, drafts.shape[1] + 2)
        fed = torch.cat((integers[:, StateField.TAIL_TOKEN, None], drafts), dim=1)
        positions = integers[:, StateField.TAIL_POSITION, None] + offsets
        sequences = active.unsqueeze(1).expand_as(positions)

        streams = self._model.forward(
            Rows(fed.flatten(), positions.flatten(), sequences.flatten()), tables, pools
        )
        logits = self._model.logits(streams).view(*positions.shape, self._vocab)
        tokens = choose(logits, positions + 1, state.sampling[slots])
        accepted = (drafts == tokens[:, :-1]).cumprod(1).sum(1)
        committed = accepted + 1

        # Of every request the rows that turned out true, in order of position; `last` is each one's last.
        kept = (offsets <= committed.unsqueeze(1)).flatten()
        last = committed.cumsum(0) - 1
        true = Rows(tokens.flatten()[kept], positions.flatten()[kept], sequences.flatten()[kept])
        hidden = streams[kept]
        if drafts.shape[1]:
            streams = self._model.mtp(true.token_ids, true, hidden, tables, pools)
            drafts = self._draft(streams[last], true.positions[last], active, slots, tables, state, pools)

        integers[:, StateField.TAIL_TOKEN] = true.token_ids[last]
        integers[:, StateField.TAIL_POSITION] = true.positions[last]
        integers[:, StateField.COMMITTED] += committed
        integers[:, StateField.DRAFTS :] = drafts
        state.integers[slots] = integers
        state.hidden[slots] = hidden[last]
        rank = self._rank
        args.sampled_ids[rank, active] = tokens.int()
        args.tail_positions[rank, active] = true.positions[last]
        args.accepted_counts[rank, active] = committed.int()
        args.echoed_step_ids[rank] = args.step_id[0]
        return lambda: self._check_tokens(tokens, drafts)

    def _draft(
        self,
        streams: Tensor,
        positions: Tensor,
        sequences: Tensor,
        slots: Tensor,
        tables: BlockTables,
        state: DeviceState[Tensor],
        pools: CachePools,
    ) -> Tensor:
        """K drafts a request from its last true MTP row: streams Y_T [N, hc_mult, hidden] and T [N] -> int64 [N, K].

        Draft i is for T + 1 + i. Each but the first takes one more MTP row, made of the draft before it and Y: on
        every rank, without requests too, because the expert exchanges count on it. The rows at T + 1 and beyond are
        overwritten by the true rows of the next step.
        """
        drafts: list[Tensor] = []
        sampling = state.sampling[slots]
        for step in range(state.integers.shape[1] - StateField.DRAFTS):
            if step:
                rows = Rows(drafts[-1], positions + step, sequences)
                streams = self._model.mtp(rows.token_ids, rows, streams, tables, pools)
            drafted = positions + 2 + step
            logits = self._model.mtp_logits(streams).unsqueeze(1)
            own = choose(logits, drafted.unsqueeze(1), sampling).squeeze(1)
            drafts.append(_override(state, slots, drafted, own, self._vocab))
        return torch.stack(drafts, dim=1)

    def _common(
        self, reader: ArgumentReader, check: Callable[[Any, Tables[Any], RowLimits], None], args: Any
    ) -> tuple[BlockTables, DeviceState[Tensor], CachePools]:
        """The arguments that all programs have, once `check` has found all rows of `args` and the tables in range.

        The rank's host side of a program ends here.
        """
        tables: Tables[Tensor] = reader.take(Tables)
        state: DeviceState[Tensor] = reader.take(DeviceState)
        pools: Pools[Tensor] = reader.take(Pools)
        *groups, mtp_kv = values(pools)
        limits = RowLimits(
            state_slots=state.integers.shape[0],
            positions=state.draft_override.shape[1],
            vocab=self._vocab,
            pages=tuple(pool.shape[1] for pool in groups),
        )
        check(_as_numpy(args), _as_numpy(tables), limits)
        # CachePools keeps flat views of its pools: made once, not once a dispatch.
        key = pools.ori.data_ptr()
        if key not in self._pools:
            self._pools[key] = CachePools(tuple(groups), mtp_kv)
        *tables_of_groups, counts = (field[self._rank] for field in values(tables))
        self._phases.fed()
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

    def _check_tokens(self, *tokens: Tensor) -> None:
        for ids in tokens:
            if ids.numel() and not (int(ids.min()) >= 0 and int(ids.max()) < self._vocab):
                raise ValueError(f"rank {self._rank}: a sampled token id lies outside 0..{self._vocab - 1}")


def _as_numpy(record: Any) -> Any:
    """A record of tensors as one of numpy arrays in the same memory."""
    return type(record)(*(tensor.numpy() for tensor in values(record)))


def _tiles(count: int) -> list[slice]:
    return [slice(tile * PREFILL_TILE, (tile + 1) * PREFILL_TILE) for tile in range(count)]


def _override(
    state: DeviceState[Tensor], slots: Tensor, positions: Tensor, drafts: Tensor, vocab: int
) -> Tensor:
    """Replace drafts by the tokens injected for their positions, where there are any, and spoil those marked so."""
    injected = state.draft_override[slots, positions].long()
    return torch.where(injected >= 0, injected, (drafts + (injected == SPOILT)) % vocab)
