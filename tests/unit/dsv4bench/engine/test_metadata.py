"""Block tables are built where block ids changed, and nowhere else."""

import numpy as np
import pytest

from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine.metadata import TableBuffers
from dsv4bench.engine.requests import ActiveRequest, Request, RequestHandle
from dsv4bench.model.config import preset

LAYOUT = CacheLayout.derive(preset("test-b"), 300)


def blocks(first: int, count: int = 2) -> tuple[np.ndarray, ...]:
    return tuple(
        np.arange(first, first + min(count, group.table_width), dtype=np.int32) for group in LAYOUT.groups
    )


def active(first: int, count: int = 2) -> ActiveRequest:
    handle = RequestHandle(Request("r", [1], 1), 0)
    return ActiveRequest(handle, 0, 0, 1, blocks(first, count), [1])


@pytest.fixture
def buffers() -> TableBuffers:
    return TableBuffers(np.zeros, LAYOUT, ranks=2, rows=3)


def test_a_steady_batch_builds_no_table(buffers: TableBuffers) -> None:
    first, second, third = active(10), active(20), active(30)
    for _ in range(50):
        buffers.update(0, (first, second))
        buffers.update(1, [third])
    assert buffers.builds == 2
    assert buffers.tables.ori[0, :2, :2].tolist() == [[10, 11], [20, 21]]
    assert buffers.tables.csa_inner_state[1, 0, :2].tolist() == [30, 31]
    assert buffers.tables.block_counts[0, 1].tolist() == [2] * 7


def test_equal_ids_of_another_request_build_nothing_either(buffers: TableBuffers) -> None:
    buffers.update(0, [active(10)])
    buffers.update(0, [active(10)])
    assert buffers.builds == 1


def test_a_changed_block_rebuilds_its_rank_alone(buffers: TableBuffers) -> None:
    first, second = active(10), active(20)
    buffers.update(0, [first])
    buffers.update(1, [second])
    first.blocks = (*first.blocks[:6], np.array([10, 11, 12], np.int32))
    buffers.update(0, [first])
    buffers.update(1, [second])
    assert buffers.builds == 3
    assert buffers.tables.csa_inner_state[0, 0, :3].tolist() == [10, 11, 12]
    assert buffers.tables.block_counts[0, 0].tolist() == [2, 2, 2, 2, 2, 2, 3]


def test_other_ids_of_the_same_number_build_anew(buffers: TableBuffers) -> None:
    buffers.update(0, [active(10)])
    buffers.update(0, [active(20)])
    assert buffers.builds == 2
    assert buffers.tables.ori[0, 0, :2].tolist() == [20, 21]


def test_a_shorter_batch_builds_and_rows_behind_it_are_left(buffers: TableBuffers) -> None:
    first, second = active(10), active(20)
    buffers.update(0, [first, second])
    buffers.update(0, [second])
    assert buffers.builds == 2
    assert buffers.tables.ori[0, 0, :2].tolist() == [20, 21]
    # Padding is part of the key: fewer blocks of the same ids are another table.
    buffers.update(0, [active(20, count=1)])
    assert buffers.builds == 3
    assert buffers.tables.block_counts[0, 0].tolist() == [1] * 7


def test_forgotten_keys_build_anew(buffers: TableBuffers) -> None:
    request = active(10)
    buffers.update(0, [request])
    buffers.forget()
    buffers.update(0, [request])
    assert buffers.builds == 2
