"""The arguments of each program, defined once for the engine (host arrays) and the ranks (tensors).

Every field is stacked over ranks: row r of the leading dimension belongs to rank r. B is the decode batch of a rank
(requests), K the number of speculative tokens, S = K + 1. A dispatch passes the fields in the order given here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, Generic, TypeVar

T = TypeVar("T")

PREFILL_TILE = 128
"""Rows of one prefill tile of a rank; also how many hidden rows before the end of a prompt MTP prefill reads."""

NO_OVERRIDE = -1
"""Entry of `DeviceState.draft_override` that leaves the drafter's own token."""
SPOILT = -2
"""Entry of `DeviceState.draft_override` that makes it another token than the drafter's own."""

TAIL_PLACEHOLDER = -1
"""Entry of `MtpPrefillArgs.next_token_ids` that stands for the request's tail token, known on the device alone."""


class StateField(IntEnum):
    """Columns of `DeviceState.integers`."""

    GENERATION = 0
    TAIL_TOKEN = 1
    TAIL_POSITION = 2
    COMMITTED = 3
    DRAFTS = 4
    """The first of K columns: the drafts for the K positions behind the tail's. None at K = 0."""


class SamplingField(IntEnum):
    """Columns of sampling parameters, float64: see `sampling.choose`."""

    TEMPERATURE = 0
    TOP_K = 1
    TOP_P = 2
    SEED = 3


MAX_SEED = 2**53 - 1
"""The largest seed: whole numbers up to here are exact in float64 (and in JSON)."""


def state_width(speculative_tokens: int) -> int:
    """Columns of `DeviceState.integers` for K speculative tokens."""
    return StateField.DRAFTS + speculative_tokens


@dataclass(frozen=True)
class Tables(Generic[T]):
    """Block tables of the seven cache groups: int32 [ranks, B, width of the group], and how many entries count."""

    ori: T
    cmp_c128: T
    cmp_c4: T
    idx: T
    hca_state: T
    csa_state: T
    csa_inner_state: T
    block_counts: T
    """int32 [ranks, B, 7]"""


@dataclass(frozen=True)
class DecodeArgs(Generic[T]):
    """One slot of the decode programs. The first `row_counts[r]` rows of rank r are active."""

    step_id: T
    """int64 [1]: the step that the slot was packed for"""
    row_counts: T
    """int32 [ranks]"""
    state_slots: T
    """int32 [ranks, B]: the device-state slot of each row"""
    generations: T
    """int64 [ranks, B]: a row whose slot holds another generation is left alone"""
    sampled_ids: T
    """int32 [ranks, B, S], output: the tokens committed, then undefined"""
    accepted_counts: T
    """int32 [ranks, B], output: how many tokens were committed (1..S), 0 for a row that was left alone"""
    tail_positions: T
    """int64 [ranks, B], output: T after the step (docs/model.md, MTP decode)"""
    echoed_step_ids: T
    """int64 [ranks], output: `step_id` as each rank saw it, written last"""


@dataclass(frozen=True)
class PrefillArgs(Generic[T]):
    """The prefill program. P rows at most a rank; the first `row_counts[r]` are active, in position order a request."""

    row_counts: T
    """int32 [ranks]"""
    token_ids: T
    """int32 [ranks, P]"""
    positions: T
    """int64 [ranks, P]"""
    sequences: T
    """int32 [ranks, P]: the request of the row, 0..B-1"""
    request_counts: T
    """int32 [ranks]"""
    state_slots: T
    """int32 [ranks, B]"""
    generations: T
    """int64 [ranks, B]"""
    lengths: T
    """int64 [ranks, B]: the prompt's length for a terminal chunk, 0 for one that is followed by another"""
    sampling: T
    """float64 [ranks, B, 4], see SamplingField; kept in the device state for the request's decode steps"""
    sampled_ids: T
    """int32 [ranks, B], output: the first token of each terminal request"""


@dataclass(frozen=True)
class MtpPrefillArgs(Generic[T]):
    """The MTP prefill program: up to 128 rows (X_p, t_{p+1}) a terminal request, the last one with its tail token."""

    row_counts: T
    """int32 [ranks]"""
    next_token_ids: T
    """int32 [ranks, B * 128]: t_{p+1}, or TAIL_PLACEHOLDER"""
    positions: T
    """int64 [ranks, B * 128]: p"""
    sequences: T
    """int32 [ranks, B * 128]"""
    last_rows: T
    """int32 [ranks, B]: the row of each request that yields its first draft, -1 for none"""
    state_slots: T
    """int32 [ranks, B]"""


@dataclass(frozen=True)
class DeviceState(Generic[T]):
    """Per-request state that stays on the device between steps; one row a state slot."""

    integers: T
    """int64 [slots, state_width(K)], see StateField"""
    sampling: T
    """float64 [slots, 4], see SamplingField"""
    hidden: T
    """float32 [slots, hc_mult, hidden]: X_T"""
    prefill_hidden: T
    """float32 [slots, 128, hc_mult, hidden]: X_p of the last 128 prompt positions at row p % 128"""
    draft_override: T
    """int32 [slots, positions]: a token to use as the draft for a position, NO_OVERRIDE or SPOILT"""


@dataclass(frozen=True)
class Pools(Generic[T]):
    """The cache pools of the seven groups and of the MTP layer: float32 [layers, pages, rows, width]."""

    ori: T
    cmp_c128: T
    cmp_c4: T
    idx: T
    hca_state: T
    csa_state: T
    csa_inner_state: T
    mtp_kv: T


@dataclass(frozen=True)
class ArraySpec:
    """Shape and dtype of one host array."""

    shape: tuple[int, ...]
    dtype: str


def decode_specs(ranks: int, rows: int, step_tokens: int) -> DecodeArgs[ArraySpec]:
    """The arrays of a decode slot with B = `rows` and S = `step_tokens`."""
    return DecodeArgs(
        step_id=ArraySpec((1,), "int64"),
        row_counts=ArraySpec((ranks,), "int32"),
        state_slots=ArraySpec((ranks, rows), "int32"),
        generations=ArraySpec((ranks, rows), "int64"),
        sampled_ids=ArraySpec((ranks, rows, step_tokens), "int32"),
        accepted_counts=ArraySpec((ranks, rows), "int32"),
        tail_positions=ArraySpec((ranks, rows), "int64"),
        echoed_step_ids=ArraySpec((ranks,), "int64"),
    )


def prefill_specs(ranks: int, rows: int, prefill_tokens: int) -> PrefillArgs[ArraySpec]:
    """The arrays of a prefill dispatch with B = `rows` and P = `prefill_tokens`."""
    return PrefillArgs(
        row_counts=ArraySpec((ranks,), "int32"),
        token_ids=ArraySpec((ranks, prefill_tokens), "int32"),
        positions=ArraySpec((ranks, prefill_tokens), "int64"),
        sequences=ArraySpec((ranks, prefill_tokens), "int32"),
        request_counts=ArraySpec((ranks,), "int32"),
        state_slots=ArraySpec((ranks, rows), "int32"),
        generations=ArraySpec((ranks, rows), "int64"),
        lengths=ArraySpec((ranks, rows), "int64"),
        sampling=ArraySpec((ranks, rows, len(SamplingField)), "float64"),
        sampled_ids=ArraySpec((ranks, rows), "int32"),
    )


def mtp_prefill_specs(ranks: int, rows: int) -> MtpPrefillArgs[ArraySpec]:
    """The arrays of an MTP prefill dispatch with B = `rows`."""
    mtp_rows = rows * PREFILL_TILE
    return MtpPrefillArgs(
        row_counts=ArraySpec((ranks,), "int32"),
        next_token_ids=ArraySpec((ranks, mtp_rows), "int32"),
        positions=ArraySpec((ranks, mtp_rows), "int64"),
        sequences=ArraySpec((ranks, mtp_rows), "int32"),
        last_rows=ArraySpec((ranks, rows), "int32"),
        state_slots=ArraySpec((ranks, rows), "int32"),
    )


def values(record: Any) -> list[Any]:
    """The fields of one of the records above, in order."""
    return [getattr(record, field.name) for field in fields(record)]


class ArgumentReader:
    """Takes records back out of a flat argument list, in the order in which they were passed."""

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self._arguments = arguments
        self._next = 0

    def take(self, record: type[Any]) -> Any:
        """The next arguments as `record`."""
        first = self._next
        self._next += len(fields(record))
        return record(*self._arguments[first : self._next])

    def rest(self) -> tuple[Any, ...]:
        """What was not taken: the scalars at the end."""
        return self._arguments[self._next :]
