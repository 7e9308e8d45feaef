"""Whatever the order of requests: no page has two owners, none is lost, and failures change nothing."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4bench.cache.allocator import BlockAllocator, BlockOwnershipError
from dsv4bench.cache.layout import CacheGroup, CacheLayout
from dsv4bench.model.config import preset

LAYOUT = CacheLayout.derive(preset("test-a"), 1024)

pages = st.lists(st.integers(0, 150), min_size=7, max_size=7)
operations = st.sampled_from(("allocate", "extend", "release"))
steps = st.lists(st.tuples(operations, st.integers(1, 1024), st.integers(0, 20)), max_size=40)


@settings(max_examples=60, deadline=None)
@given(pages=pages, steps=steps)
def test_pages_are_conserved_and_owned_once(pages: Any, steps: Any) -> None:
    allocator = BlockAllocator(LAYOUT, pages)
    live: list[Any] = []
    for operation, length, which in steps:
        if operation == "release" and live:
            allocator.release(live.pop(which % len(live)))
        elif operation != "release":
            old = live.pop(which % len(live)) if operation == "extend" and live else None
            held = (0,) * 7 if old is None else tuple(map(len, old))
            before = allocator.free
            blocks = allocator.allocate(length) if old is None else allocator.extend(old, length)
            needed = tuple(map(max, LAYOUT.blocks_for(length), held))
            missing = [count - has for count, has in zip(needed, held, strict=True)]
            if blocks is None:
                assert allocator.free == before
                assert any(free < count for free, count in zip(before, missing, strict=True))
                blocks = old
            else:
                assert tuple(map(len, blocks)) == needed
                assert allocator.capacity(blocks) >= length
            if blocks is not None:
                live.append(blocks)
                if old is not None:
                    assert all(
                        new[: len(ids)].tolist() == ids.tolist() for new, ids in zip(blocks, old, strict=True)
                    )
        for group in CacheGroup:
            owned = [int(page) for blocks in live for page in blocks[group]]
            assert len(set(owned)) == len(owned)
            assert all(0 <= page < pages[group] for page in owned)
            assert len(owned) + allocator.free[group] == pages[group]


@given(length=st.integers(1, 1024), again=st.integers(1, 1024))
@settings(max_examples=30, deadline=None)
def test_a_double_release_is_refused_and_releases_nothing(length: int, again: int) -> None:
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
