"""Whatever the order of requests: every page is free, one request's own, or the index's, and none is freed twice."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4bench.cache.allocator import BlockAllocator
from dsv4bench.cache.layout import CacheGroup, CacheLayout
from dsv4bench.cache.prefix_index import PrefixIndex, Snapshot, prefix_keys
from dsv4bench.model.config import preset

LAYOUT = CacheLayout.derive(preset("test-a"), 640)
KEPT = (CacheGroup.CMP_C128, CacheGroup.CMP_C4, CacheGroup.IDX)

# A prompt is a few runs of equal tokens, so that prompts begin alike up to the ends of pages and around them.
prompts = st.lists(st.tuples(st.integers(2, 3), st.sampled_from((1, 127, 128, 129))), min_size=1, max_size=4)
steps = st.lists(st.tuples(st.booleans(), prompts, st.integers(0, 20)), max_size=30)


@settings(max_examples=80, deadline=None)
@given(kept=st.integers(5, 14), snapshots=st.integers(1, 3), steps=steps)
def test_pages_have_one_owner_and_readers_are_counted(kept: int, snapshots: int, steps: Any) -> None:
    allocator = BlockAllocator(LAYOUT, [kept if group in KEPT else 500 for group in CacheGroup])
    index = PrefixIndex(LAYOUT, allocator, snapshots)
    live = []
    for begin, runs, which in steps:
        if begin:
            tokens = [token for token, count in runs for _ in range(count)]
            prefix, shared = index.begin(prefix_keys(LAYOUT, tokens))
            assert prefix.reused < len(tokens)
            short = allocator.shortage(shared, len(tokens))
            if any(short) and not index.reclaim(short):
                index.end(prefix)
            else:
                blocks = allocator.extend(shared, len(tokens))
                start = prefix.reused
                for end in (*prefix.boundaries, len(tokens)):
                    index.add(prefix, blocks, start, end, Snapshot() if end in prefix.boundaries else None)
                    start = end
                live.append((prefix, blocks))
        elif live:
            prefix, blocks = live.pop(which % len(live))
            allocator.release(index.private(prefix, blocks))
            index.end(prefix)
        assert sum(page.snapshot is not None for page in index.pages) <= snapshots
        for page in index.pages:
            assert page.users == sum(page in prefix.pages for prefix, _ in live)
        for group in CacheGroup:
            cached = [int(number) for page in index.pages for number in page.ids[group]]
            own = []
            for prefix, blocks in live:
                held = {int(number) for page in prefix.pages for number in page.ids[group]}
                ids = blocks[group].tolist()
                assert held == set(ids) & set(cached)
                own += [number for number in ids if number not in held]
            assert len(set(own + cached)) == len(own) + len(cached)
            assert len(own) + len(cached) + allocator.free[group] == (kept if group in KEPT else 500)
