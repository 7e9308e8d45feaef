"""Outputs are read only if every rank ran the step that the slot was packed for."""

import numpy as np
import pytest

from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine.slots import DecodeSlot
from dsv4bench.engine.steps import DecodeStep
from dsv4bench.errors import EngineError
from dsv4bench.model.config import preset
from dsv4bench.worker.program_specs import decode_program

LAYOUT = CacheLayout.derive(preset("test-b"), 128)


def packed(step_id: int) -> DecodeSlot:
    slot = DecodeSlot(step_id % 2, np.zeros, LAYOUT, ranks=3, rows=2, step_tokens=2)
    slot.pack(DecodeStep(step_id, ((), (), ())))
    return slot


def test_the_echo_of_every_rank_is_compared_with_the_step() -> None:
    slot = packed(7)
    assert slot.args.step_id.tolist() == [7]
    slot.args.echoed_step_ids[:] = 7
    slot.read()
    slot.args.echoed_step_ids[:] = (7, 5, 6)
    with pytest.raises(
        EngineError,
        match=r"^slot 1: step 7 was expected, but rank 1 echoed step 5, rank 2 echoed step 6$",
    ):
        slot.read()


def test_a_rank_that_never_wrote_does_not_pass_for_one_that_ran_step_0() -> None:
    slot = packed(0)
    slot.args.echoed_step_ids[:2] = 0
    with pytest.raises(EngineError, match=r"^slot 0: step 0 was expected, but rank 2 echoed step -1$"):
        slot.read()


def test_decode_programs_keep_their_upstream_names() -> None:
    assert [decode_program(k) for k in (0, 1, 2, 7)] == [
        "deepseek_v4_decode",
        "deepseek_v4_decode_mtp_fused",
        "deepseek_v4_mtp_decode",
        "deepseek_v4_mtp_decode",
    ]
