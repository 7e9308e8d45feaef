import numpy as np
import pytest

from dsv4bench.cache.allocator import BlockAllocator, BlockOwnershipError, pages_for
from dsv4bench.cache.layout import CacheLayout
from dsv4bench.errors import UsageError
from dsv4bench.model.config import preset

LAYOUT = CacheLayout.derive(preset("test-a"), 256)


def test_pages_in_order_of_positions() -> None:
    """130 positions: 2 pages of 128, 17 of 8, 33 of 4."""
    allocator = BlockAllocator(LAYOUT, (4, 4, 4, 4, 40, 70, 70))
    blocks = allocator.allocate(130)
    assert [ids.tolist() for ids in blocks] == [
        *([[0, 1]] * 4),
        list(range(17)),
        list(range(33)),
        list(range(33)),
    ]
    assert all(ids.dtype == np.int32 for ids in blocks)
    assert allocator.free == (2, 2, 2, 2, 23, 37, 37)


def test_one_short_group_means_no_allocation() -> None:
    allocator = BlockAllocator(LAYOUT, (4, 4, 4, 4, 40, 70, 32))
    assert allocator.allocate(130) is None
    assert allocator.free == (4, 4, 4, 4, 40, 70, 32)
    assert allocator.allocate(128) is not None


def test_pages_are_added_behind_those_held_and_the_old_tuple_stays() -> None:
    """8 positions: 1 page of 128, 1 of 8, 2 of 4; 130 positions: 2, 17 and 33."""
    allocator = BlockAllocator(LAYOUT, (4, 4, 4, 4, 40, 70, 70))
    first = allocator.allocate(8)
    other = allocator.allocate(8)
    extended = allocator.extend(first, 130)
    assert [ids.tolist() for ids in extended] == [
        *([[0, 2]] * 4),
        [0, *range(2, 18)],
        [0, 1, *range(4, 35)],
        [0, 1, *range(4, 35)],
    ]
    assert [ids.tolist() for ids in first] == [*([[0]] * 4), [0], [0, 1], [0, 1]]
    assert all(ids.dtype == np.int32 for ids in extended)
    allocator.release(extended)
    allocator.release(other)
    assert allocator.free == (4, 4, 4, 4, 40, 70, 70)


def test_what_suffices_is_not_extended() -> None:
    allocator = BlockAllocator(LAYOUT, (4,) * 4 + (70,) * 3)
    blocks = allocator.allocate(8)
    assert allocator.extend(blocks, 8) is blocks
    assert allocator.extend(blocks, 1) is blocks


def test_one_short_group_means_no_extension() -> None:
    allocator = BlockAllocator(LAYOUT, (4, 4, 4, 4, 40, 70, 32))
    blocks = allocator.allocate(8)
    before = allocator.free
    assert allocator.extend(blocks, 130) is None
    assert allocator.free == before
    assert allocator.extend(blocks, 128) is not None


def test_a_ring_stops_growing_at_its_size() -> None:
    """Rings: ORI ceil(383 / 128) + 1 = 4 pages, HCA state (128 + 256) / 8 = 48, CSA states (4 + 256) / 4 = 65."""
    layout = CacheLayout.derive(preset("test-a"), 1024)
    allocator = BlockAllocator(layout, pages_for(layout, 1))
    blocks = allocator.extend(allocator.allocate(300), 1024)
    assert [len(ids) for ids in blocks] == [4, 8, 8, 8, 48, 65, 65]
    assert allocator.free == (0,) * 7


def test_positions_that_blocks_hold() -> None:
    """9 positions: 1 page of 128, 2 of 8 (16 positions), 3 of 4 (12). A full ring holds any number of positions."""
    layout = CacheLayout.derive(preset("test-a"), 1024)
    allocator = BlockAllocator(layout, pages_for(layout, 2))
    assert allocator.capacity(allocator.allocate(9)) == 12
    assert allocator.capacity(allocator.allocate(520)) == 640


def test_pages_released_last_are_reused_first() -> None:
    allocator = BlockAllocator(LAYOUT, (8,) * 4 + (200,) * 3)
    first = allocator.allocate(100)
    allocator.allocate(100)
    allocator.release(first)
    assert [ids.tolist() for ids in allocator.allocate(100)] == [ids.tolist() for ids in first]


def test_a_page_named_twice_is_refused() -> None:
    allocator = BlockAllocator(LAYOUT, (8,) * 4 + (200,) * 3)
    blocks = allocator.allocate(3)
    doubled = (np.concatenate((blocks[0], blocks[0])), *blocks[1:])
    with pytest.raises(BlockOwnershipError, match=r"pages \[0, 0\] of group ORI: a page is named twice"):
        allocator.release(doubled)


@pytest.mark.parametrize("length", [0, 257])
def test_lengths_out_of_range_are_refused(length: int) -> None:
    with pytest.raises(UsageError, match=rf"1\.\.256 positions, got {length}"):
        BlockAllocator(LAYOUT, (8,) * 7).allocate(length)


@pytest.mark.parametrize("pages", [(1,) * 6, (1, 1, 1, -1, 1, 1, 1)])
def test_page_counts_must_fit_the_groups(pages: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="7 page counts"):
        BlockAllocator(LAYOUT, pages)
