"""Extents cover exactly the dirty pages of every layer, ascending, never touching one another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4bench.cache.dirty_pages import DirtyPages


@given(
    st.integers(1, 4),
    st.integers(1, 12).flatmap(lambda pages: st.tuples(st.just(pages), st.lists(st.integers(0, pages - 1)))),
    st.integers(1, 8),
)
def test_extents_are_the_dirty_pages(
    layers: int, pages_and_ids: tuple[int, list[int]], page_bytes: int
) -> None:
    pages, ids = pages_and_ids
    dirty = DirtyPages(layers, pages, page_bytes)
    for page in ids:
        dirty.mark([page])
    extents = dirty.take()
    covered = [byte for offset, nbytes in extents for byte in range(offset, offset + nbytes)]
    expected = sorted(
        (layer * pages + page) * page_bytes + byte
        for layer in range(layers)
        for page in set(ids)
        for byte in range(page_bytes)
    )
    assert covered == expected
    assert all(sum(before) < after[0] for before, after in zip(extents, extents[1:], strict=False))  # noqa: RUF007
    assert dirty.take() == []


def test_a_whole_pool_is_one_extent_and_strangers_are_refused() -> None:
    dirty = DirtyPages(3, 4, 100)
    dirty.mark(range(4))
    assert dirty.take() == [(0, 1200)]
    dirty.mark([1, 2])
    assert dirty.take() == [(100, 200), (500, 200), (900, 200)]
    with pytest.raises(ValueError, match=r"pages \[4\] are not in 0\.\.3"):
        dirty.mark([0, 4])
    assert dirty.take() == []
