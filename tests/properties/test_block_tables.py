"""A slot after any history of steps: it holds what its last step is made of, and nothing stale of those before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine.requests import ActiveRequest, Request, RequestHandle
from dsv4bench.engine.slots import DecodeSlot
from dsv4bench.engine.steps import DecodeStep
from dsv4bench.model.config import preset
from dsv4bench.worker.task_args import values

LAYOUT = CacheLayout.derive(preset("test-b"), 300)
RANKS, ROWS, PAGES = 2, 2, 5

# Few ids and few counts, so that histories meet the same ones again, in another group, row or number.
IDS = st.lists(st.integers(0, PAGES - 1), min_size=1, max_size=3, unique=True)
BLOCKS = st.tuples(*[IDS for _ in LAYOUT.groups])


class Requests:
    """Two requests a row and rank: what steps are made of. Their blocks are replaced, never written to."""

    def __init__(self) -> None:
        first = [np.arange(1, dtype=np.int32) for _ in LAYOUT.groups]
        self.all = [
            [
                ActiveRequest(
                    RequestHandle(Request("r", [1], 1), 0), rank, slot % ROWS, slot + 1, tuple(first), [1]
                )
                for slot in range(2 * ROWS)
            ]
            for rank in range(RANKS)
        ]


def give_pages(request: ActiveRequest, blocks: Sequence[Sequence[int]]) -> None:
    request.blocks = tuple(
        np.array(ids[: layout.table_width], np.int32)
        for ids, layout in zip(blocks, LAYOUT.groups, strict=True)
    )


CHANGES = st.tuples(st.integers(0, RANKS - 1), st.integers(0, 2 * ROWS - 1), BLOCKS)
# The requests of a rank: at most one of each state slot.
CHOSEN = st.lists(st.integers(0, 2 * ROWS - 1), max_size=ROWS, unique_by=lambda index: index % ROWS)
STEPS = st.lists(
    st.tuples(st.lists(CHANGES, max_size=2), st.tuples(CHOSEN, CHOSEN), st.integers(0, 9)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_slot_holds_its_last_step_whatever_came_before(
    steps: list[tuple[list[tuple[int, int, list[list[int]]]], tuple[list[int], list[int]], int]],
) -> None:
    requests = Requests()
    slot = DecodeSlot(0, np.zeros, LAYOUT, RANKS, ROWS, 2, [PAGES] * len(LAYOUT.groups))
    for number, (changes, chosen, chance) in enumerate(steps):
        for rank, index, blocks in changes:
            give_pages(requests.all[rank][index], blocks)
        if chance == 0:
            slot.forget()
        rows = tuple(
            tuple(requests.all[rank][index] for index in indices) for rank, indices in enumerate(chosen)
        )
        slot.pack(DecodeStep(2 * number, rows))
        *tables, counts = values(slot.buffers.tables)
        assert slot.args.step_id[0] == 2 * number
        for rank, of_rank in enumerate(rows):
            assert slot.args.row_counts[rank] == len(of_rank)
            for row, request in enumerate(of_rank):
                assert slot.args.state_slots[rank, row] == request.state_slot
                assert slot.args.generations[rank, row] == request.generation
                for group, ids in enumerate(request.blocks):
                    assert counts[rank, row, group] == len(ids)
                    assert tables[group][rank, row, : len(ids)].tolist() == ids.tolist()


@settings(max_examples=30, deadline=None)
@given(BLOCKS, BLOCKS)
def test_tables_are_built_again_if_and_only_if_a_block_id_differs(
    before: list[list[int]], after: list[list[int]]
) -> None:
    """The same ids, divided among the groups in another way, are another table."""
    request = Requests().all[1][0]
    slot = DecodeSlot(0, np.zeros, LAYOUT, RANKS, ROWS, 2, [PAGES] * len(LAYOUT.groups))
    give_pages(request, before)
    known = [ids.tolist() for ids in request.blocks]
    slot.pack(DecodeStep(0, ((), (request,))))
    built = slot.buffers.builds
    give_pages(request, after)
    slot.pack(DecodeStep(2, ((), (request,))))
    assert slot.buffers.builds - built == int([ids.tolist() for ids in request.blocks] != known)
