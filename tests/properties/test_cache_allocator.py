"""Whatever the order of requests: no page has two owners, none is lost, and failures change nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4bench.cache.allocator import BlockAllocator, BlockOwnershipError
from dsv4bench.cache.layout import CacheGroup, CacheLayout
from dsv4bench.model.config import preset

LAYOUT = CacheLayout.derive(preset("test-a"), 1024)

pages = st.lists(st.integers(0, 150), min_size=7, max_size=7)
steps = st.lists(st.tuples(st.booleans(), st.integers(1, 1024), st.integers(0, 20)), max_size=30)


@settings(max_examples=60, deadline=None)
@given(pages=pages, steps=steps)
def test_pages_are_conserved_and_owned_once(pages, steps):
    allocator = BlockAllocator(LAYOUT, pages)
    live = []
    for allocate, length, victim in steps:
        if allocate:
            before = allocator.free
            blocks = allocator.allocate(length)
            needed = LAYOUT.blocks_for(length)
            if blocks is None:
                assert allocator.free == before
                assert any(free < count for free, count in zip(before, needed, strict=True))
            else:
                assert tuple(len(ids) for ids in blocks) == needed
                live.append(blocks)
        elif live:
            allocator.release(live.pop(victim % len(live)))
        for group in CacheGroup:
            owned = [int(page) for blocks in live for page in blocks[group]]
            assert len(set(owned)) == len(owned)
            assert all(0 <= page < pages[group] for page in owned)
            assert len(owned) + allocator.free[group] == pages[group]


@given(length=st.integers(1, 1024), again=st.integers(1, 1024))
@settings(max_examples=30, deadline=None)
def test_a_double_release_is_refused_and_releases_nothing(length, again):
    allocator = BlockAllocator(LAYOUT, [150] * 7)
    first, second = allocator.allocate(length), allocator.allocate(again)
    allocator.release(first)
    before = allocator.free
    mixed = tuple(np.concatenate((b, a)) for a, b in zip(first, second, strict=True))
    for blocks in (first, mixed):
        with pytest.raises(BlockOwnershipError, match="group ORI"):
            allocator.release(blocks)
        assert allocator.free == before
    allocator.release(second)
    assert allocator.free == (150,) * 7
