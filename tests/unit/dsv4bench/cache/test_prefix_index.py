"""Which prefix pages are found, shared, kept and given back."""

from typing import Any

import numpy as np

from dsv4bench.cache.allocator import BlockAllocator
from dsv4bench.cache.layout import CacheGroup, CacheLayout
from dsv4bench.cache.prefix_index import PrefixIndex, Snapshot, prefix_keys
from dsv4bench.model.config import preset

LAYOUT = CacheLayout.derive(preset("test-a"), 1024)
KEPT = (CacheGroup.CMP_C128, CacheGroup.CMP_C4, CacheGroup.IDX)
TOKENS = list(range(2, 402))


def make(kept: int = 10, snapshots: int = 8) -> tuple[PrefixIndex, BlockAllocator]:
    allocator = BlockAllocator(LAYOUT, [kept if group in KEPT else 200 for group in CacheGroup])
    return PrefixIndex(LAYOUT, allocator, snapshots), allocator


def prefill(index: PrefixIndex, allocator: BlockAllocator, tokens: list[int]) -> tuple[Any, Any]:
    """A request with all pages of its prompt, prefilled up to each of its boundaries in turn."""
    prefix, shared = index.begin(prefix_keys(LAYOUT, tokens))
    blocks = allocator.extend(shared, len(tokens))
    start = prefix.reused
    for end in prefix.boundaries:
        index.add(prefix, blocks, start, end, Snapshot(np.zeros(1, np.uint8)))
        start = end
    index.add(prefix, blocks, start, len(tokens), None)
    return prefix, blocks


def finish(index: PrefixIndex, allocator: BlockAllocator, request: Any) -> None:
    prefix, blocks = request
    allocator.release(index.private(prefix, blocks))
    index.end(prefix)


def test_a_key_stands_for_all_tokens_up_to_the_end_of_its_page() -> None:
    keys = prefix_keys(LAYOUT, TOKENS)
    assert len(keys) == len(set(keys)) == 3
    assert prefix_keys(LAYOUT, TOKENS[:385]) == keys
    # The last token belongs to no page.
    assert prefix_keys(LAYOUT, TOKENS[:384]) == keys[:2]
    assert prefix_keys(LAYOUT, TOKENS[:128]) == ()
    changed = prefix_keys(LAYOUT, [*TOKENS[:200], 7, *TOKENS[201:]])
    assert changed[0] == keys[0]
    assert not set(changed[1:]) & set(keys)


def test_pages_are_shared_only_in_the_groups_that_are_kept() -> None:
    index, allocator = make()
    first = prefill(index, allocator, TOKENS)
    assert first[0].boundaries == [384]
    second, shared = index.begin(prefix_keys(LAYOUT, [*TOKENS[:390], 5]))
    assert (second.reused, second.boundaries) == (384, [])
    assert second.snapshot is first[0].pages[2].snapshot
    for group, ids in zip(CacheGroup, shared, strict=True):
        assert ids.tolist() == (first[1][group][:3].tolist() if group in KEPT else [])
    assert [page.users for page in index.pages] == [2, 2, 2]


def test_a_prompt_that_leaves_the_known_ones_leaves_a_snapshot_there() -> None:
    index, allocator = make()
    prefill(index, allocator, TOKENS)
    turning = [*TOKENS[:300], *[9] * 100]
    assert index.reusable(prefix_keys(LAYOUT, turning)) == 0
    assert prefill(index, allocator, turning)[0].boundaries == [256, 384]
    assert index.reusable(prefix_keys(LAYOUT, [*TOKENS[:300], *[8] * 100])) == 256


def test_what_is_released_stays_until_the_room_is_needed() -> None:
    index, allocator = make(kept=6)
    request = prefill(index, allocator, TOKENS)
    finish(index, allocator, request)
    assert [allocator.free[group] for group in CacheGroup] == [
        3 if group in KEPT else 200 for group in CacheGroup
    ]
    nothing = (np.empty(0, np.int32),) * 7
    # Five pages are wanted and three are free: the ends of the prefix go first.
    assert index.reclaim(allocator.shortage(nothing, 640))
    assert [page.number for page in index.pages] == [0]
    assert allocator.extend(nothing, 640) is not None


def test_nothing_is_given_back_in_vain() -> None:
    index, allocator = make(kept=6)
    held = prefill(index, allocator, TOKENS)
    before = index.pages
    # Held pages stay, and no page of the index helps a ring.
    assert not index.reclaim((0, 1, 1, 1, 0, 0, 0))
    finish(index, allocator, held)
    assert not index.reclaim((0, 4, 4, 4, 0, 0, 0))
    assert not index.reclaim((1, 1, 1, 1, 0, 0, 0))
    assert index.pages == before


def test_the_snapshots_used_last_are_kept() -> None:
    index, allocator = make(kept=20, snapshots=2)
    texts = [[text] * 200 for text in (3, 4, 5)]
    keys = [prefix_keys(LAYOUT, text) for text in texts]
    for text in texts[:2]:
        prefill(index, allocator, text)
    index.end(index.begin(keys[0])[0])
    prefill(index, allocator, texts[2])
    assert [index.reusable(of_text) for of_text in keys] == [128, 0, 128]
