"""What each program is called with: shapes and dtypes of its arguments, from the model and the engine's sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import msgspec

from dsv4bench.cache.layout import CacheGroup, CacheLayout
from dsv4bench.model.config import ModelConfig
from dsv4bench.worker.messages import ArgumentSignature
from dsv4bench.worker.program_specs import MTP_PREFILL, PREFILL, decode_program
from dsv4bench.worker.task_args import (
    PREFILL_TILE,
    ArraySpec,
    DeviceState,
    Pools,
    SamplingField,
    Tables,
    decode_specs,
    mtp_prefill_specs,
    prefill_specs,
    state_width,
)


class ProgramSizes(msgspec.Struct, frozen=True):
    """The sizes that programs are compiled for.

    `rows` is B, the decode batch of a rank; `pages` are those of a rank per cache group.
    """

    ranks: int
    rows: int
    speculative_tokens: int
    max_positions: int
    prefill_tokens: int
    pages: tuple[int, ...]


def tables_specs(layout: CacheLayout, ranks: int, rows: int) -> Tables[ArraySpec]:
    """Block tables of one slot."""
    groups = [ArraySpec((ranks, rows, group.table_width), "int32") for group in layout.groups]
    return Tables(*[*groups, ArraySpec((ranks, rows, len(groups)), "int32")])


def state_specs(
    config: ModelConfig, layout: CacheLayout, slots: int, speculative_tokens: int
) -> DeviceState[ArraySpec]:
    """One rank's device state."""
    streams = (config.hc_mult, config.hidden_size)
    return DeviceState(
        integers=ArraySpec((slots, state_width(speculative_tokens)), "int64"),
        sampling=ArraySpec((slots, len(SamplingField)), "float64"),
        hidden=ArraySpec((slots, *streams), "float32"),
        prefill_hidden=ArraySpec((slots, PREFILL_TILE, *streams), "float32"),
        draft_override=ArraySpec((slots, layout.max_model_len), "int32"),
    )


def pool_specs(layout: CacheLayout, pages: Sequence[int]) -> Pools[ArraySpec]:
    """One rank's cache pools."""
    shapes = [group.pool_shape(count) for group, count in zip(layout.groups, pages, strict=True)]
    shapes.append(layout.mtp_pool_shape(pages[CacheGroup.ORI]))
    return Pools(*(ArraySpec(shape, "float32") for shape in shapes))


def program_signatures(config: ModelConfig, sizes: ProgramSizes) -> dict[str, list[ArgumentSignature]]:
    """The argument list of every program that an engine of these sizes runs, by program name."""
    layout = CacheLayout.derive(config, sizes.max_positions)
    ranks, rows, speculative = sizes.ranks, sizes.rows, sizes.speculative_tokens
    common = [
        *_signature(tables_specs(layout, ranks, rows)),
        *_signature(state_specs(config, layout, rows, speculative)),
        *_signature(pool_specs(layout, sizes.pages)),
    ]
    tiles = [ArgumentSignature("tiles", "scalar", ())]
    decode = decode_specs(ranks, rows, speculative + 1)
    signatures = {
        PREFILL: [*_signature(prefill_specs(ranks, rows, sizes.prefill_tokens)), *common, *tiles],
        decode_program(speculative): [*_signature(decode), *common],
    }
    if speculative:
        signatures[MTP_PREFILL] = [*_signature(mtp_prefill_specs(ranks, rows)), *common, *tiles]
    return signatures


def _signature(record: Any) -> list[ArgumentSignature]:
    specs = [(field.name, getattr(record, field.name)) for field in fields(record)]
    return [ArgumentSignature(name, spec.dtype, spec.shape) for name, spec in specs]
