"""What all layers of one call share: slots, masks and rotations, worked out once from positions and tables."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from dsv4bench.cache.layout import CacheGroup, CacheLayout
from dsv4bench.cache.slots import slots
from dsv4bench.model.batch import BlockTables, Rows
from dsv4bench.model.config import ModelConfig
from dsv4bench.model.rope import Rope

MIN_ENTRIES = 16


@dataclass(frozen=True)
class QueryPlan:
    """Rotations at the query positions, complex64: for one vector per row [T, r] and for heads [T, 1, r]."""

    rotations: Tensor
    head_rotations: Tensor
    inverse: Tensor

    @classmethod
    def build(cls, rope: Rope, positions: Tensor) -> "QueryPlan":
        """Work out the rotations of T positions."""
        rotations = rope.rotations(positions)
        heads = rotations.unsqueeze(1)
        return cls(rotations, heads, heads.conj().resolve_conj())


@dataclass(frozen=True)
class WindowPlan:
    """The sliding window: slots to write [T] and to read [T * window], and the score bias [T, 1, window].

    A place before the sequence's start has bias -inf and reads position 0, which is written and so is finite.
    """

    write: Tensor
    read: Tensor
    bias: Tensor


@dataclass(frozen=True)
class StatePlan:
    """One compressor's state: slots to write [T], segments to gather [R * 2 * slots], entry slots to write [R]."""

    write: Tensor
    gather: Tensor
    entries: Tensor


@dataclass(frozen=True)
class CompressionPlan:
    """Rows of one layer type's compressor and the entries that queries may see.

    `phase` [T] is the place in the window; `closing` counts the R rows that end one, with `first_rotations`
    [R, r] at their windows' first positions and `missing` bool [R, slots, 1], None if nothing is missing,
    where the window before the first would be. `entries` (slots in the pool) and `hidden` are [T, E]: the
    entries 0..E-1 of each row's sequence and whether the row must not see them. E = 0 if no row sees any.
    `bias` [T, 1, window + K] is the score bias of the window and of the K entries that a query attends to:
    all E, or the index_topk that are selected.
    """

    phase: Tensor
    closing: int
    first_rotations: Tensor
    missing: Tensor | None
    states: tuple[StatePlan, ...]
    entries: tuple[Tensor, ...]
    hidden: Tensor
    bias: Tensor


@dataclass(frozen=True)
class CallPlan:
    """All that the layers of a main-model call share; the MTP layer needs only `plain` and `window`."""

    plain: QueryPlan
    compressed: QueryPlan
    window: WindowPlan
    csa: CompressionPlan | None
    hca: CompressionPlan | None


class Planner:
    """Builds plans for one model: its cache layout, ropes and constant index patterns."""

    def __init__(self, config: ModelConfig) -> None:
        self.layout = CacheLayout.derive(config, config.max_position_embeddings)
        self.plain, self.yarn = Rope.plain(config), Rope.compressed(config)
        self.topk, csa, hca = config.index_topk, config.compress_rate_csa, config.compress_rate_hca
        self.csa, self.hca = csa, hca
        self.window_offsets = torch.arange(1 - config.sliding_window, 1)
        # A CSA state row is kv_a | kv_b | score_a | score_b: the window before gives the a half, the own
        # one b.
        halves = torch.tensor((0, 1)).repeat_interleave(csa)
        self.csa_segments = torch.stack((halves, halves + 2))
        self.hca_segments = torch.tensor(((0,), (1,))).expand(2, hca)

    def window(self, rows: Rows, tables: BlockTables) -> WindowPlan:
        """Plan the sliding-window cache of a call (group ORI's page ids)."""
        locate = _Locator(rows, tables, self.layout)
        positions = rows.positions.unsqueeze(1) + self.window_offsets
        bias = torch.zeros(positions.shape).masked_fill_(positions < 0, -torch.inf)
        read = locate(CacheGroup.ORI, positions.clamp_(min=0))
        # The window ends with the row itself.
        return WindowPlan(read[:, -1], read.flatten(), bias.unsqueeze(1))

    def queries(self, rows: Rows) -> QueryPlan:
        """Rotations of sliding-window layers."""
        return QueryPlan.build(self.plain, rows.positions)

    def build(self, rows: Rows, tables: BlockTables) -> CallPlan:
        """Plan a main-model call."""
        window = self.window(rows, tables)
        csa = hca = None
        if self.layout[CacheGroup.CMP_C4].layers:
            groups = ((CacheGroup.CSA_STATE, CacheGroup.CMP_C4), (CacheGroup.CSA_INNER_STATE, CacheGroup.IDX))
            csa = self._compression(rows, tables, window, self.csa, self.csa_segments, groups)
        if self.layout[CacheGroup.CMP_C128].layers:
            hca_groups = ((CacheGroup.HCA_STATE, CacheGroup.CMP_C128),)
            hca = self._compression(rows, tables, window, self.hca, self.hca_segments, hca_groups)
        compressed = QueryPlan.build(self.yarn, rows.positions)
        return CallPlan(self.queries(rows), compressed, window, csa, hca)

    def _compression(
        self,
        rows: Rows,
        tables: BlockTables,
        sliding: WindowPlan,
        ratio: int,
        segments: Tensor,
        groups: tuple[tuple[CacheGroup, CacheGroup], ...],
    ) -> CompressionPlan:
        """Plan compressors of one ratio: `groups` pairs each state group with its entry group."""
        locate = _Locator(rows, tables, self.layout)
        positions = rows.positions
        visible = (positions + 1) // ratio
        phase = positions % ratio
        closing = (phase == ratio - 1).nonzero().squeeze(1)
        ends = positions.index_select(0, closing)
        locate_closing = _Locator(rows, tables, self.layout, closing)
        window = ends.unsqueeze(1) + torch.arange(1 - segments.shape[1], 1)
        before_start = window < 0
        window.clamp_(min=0)
        states = []
        for state_group, entry_group in groups:
            per_row = 2 * segments.shape[1] // ratio
            gather = locate_closing(state_group, window).unsqueeze(1) * per_row + segments
            write = locate(state_group, positions)
            states.append(StatePlan(write, gather.flatten(), locate_closing(entry_group, ends)))
        entries = torch.arange(_bucket(int(visible.max())))
        hidden = entries >= visible.unsqueeze(1)
        attended = hidden[:, : self.topk] if ratio == self.csa else hidden
        bias = F.pad(sliding.bias, (0, attended.shape[1]))
        bias[:, 0, sliding.bias.shape[2] :].masked_fill_(attended, -torch.inf)
        return CompressionPlan(
            phase=phase,
            closing=len(ends),
            first_rotations=self.yarn.rotations(ends - (ratio - 1)),
            missing=before_start.unsqueeze(2) if bool(before_start.any()) else None,
            states=tuple(states),
            entries=tuple(locate(group, (entries * ratio).unsqueeze(0)) for _, group in groups),
            hidden=hidden,
            bias=bias,
        )


class _Locator:
    """Slots of positions [T] or [T, N] (or [1, N]) of given rows of a call."""

    def __init__(
        self, rows: Rows, tables: BlockTables, layout: CacheLayout, only: Tensor | None = None
    ) -> None:
        self.tables, self.layout = tables.tables, layout
        self.sequences = rows.sequences if only is None else rows.sequences.index_select(0, only)
        self.counts = tables.counts.index_select(0, self.sequences).long()

    def __call__(self, group: CacheGroup, positions: Tensor) -> Tensor:
        counts, sequences = self.counts[:, group], self.sequences
        if positions.ndim == 2:
            counts, sequences = counts.unsqueeze(1), sequences.unsqueeze(1)
        return slots(self.layout[group], self.tables[group], counts, sequences, positions)


def _bucket(entries: int) -> int:
    """Round up to a power of two, at least MIN_ENTRIES; 0 stays 0.

    Matrix products over as many entries then take few shapes, so that the rounding of a row's result does
    not depend on how far the other rows of the call are.
    """
    return max(MIN_ENTRIES, 1 << (entries - 1).bit_length()) if entries else 0
