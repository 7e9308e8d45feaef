import pytest

from dsv4bench.cache.layout import CacheGroup, CacheLayout
from dsv4bench.errors import UsageError
from dsv4bench.model.config import preset


def columns(layout: CacheLayout) -> list[tuple[int, ...]]:
    return [(g.layers, g.tokens_per_page, g.rows_per_page, g.width, g.table_width) for g in layout.groups]


def test_flash_has_the_published_pages() -> None:
    """docs/model.md, Cache groups: 20 HCA and 21 CSA layers; at 16384 positions the tables are as wide as published."""
    layout = CacheLayout.derive(preset("flash"), 16384)
    assert columns(layout) == [
        (43, 128, 128, 512, 4),
        (20, 128, 1, 512, 128),
        (21, 128, 32, 512, 128),
        (21, 128, 32, 128, 128),
        (20, 8, 8, 1024, 48),
        (21, 4, 4, 2048, 65),
        (21, 4, 4, 512, 65),
    ]
    assert [group.ring_blocks for group in layout.groups] == [4, None, None, None, 48, 65, 65]
    assert layout[CacheGroup.IDX].pool_shape(10) == (21, 10, 32, 128)
    assert layout.mtp_pool_shape(10) == (1, 10, 128, 512)


def test_rings_follow_window_and_rates() -> None:
    """test-b: window 8 -> ceil(263/128)+1 = 4; HCA 16 -> ceil(272/8) = 34, 8 entries a page; CSA 4 -> 65."""
    layout = CacheLayout.derive(preset("test-b"), 700)
    assert [group.ring_blocks for group in layout.groups] == [4, None, None, None, 34, 65, 65]
    assert layout[CacheGroup.CMP_C128].rows_per_page == 8
    assert [group.table_width for group in layout.groups] == [4, 6, 6, 6, 34, 65, 65]


def test_short_requests_take_fewer_pages_than_a_ring() -> None:
    layout = CacheLayout.derive(preset("test-a"), 1024)
    assert layout.blocks_for(1) == (1, 1, 1, 1, 1, 1, 1)
    assert layout.blocks_for(129) == (2, 2, 2, 2, 17, 33, 33)
    assert layout.blocks_for(1024) == (4, 8, 8, 8, 48, 65, 65)


@pytest.mark.parametrize("length", [0, 4097])
def test_a_context_beyond_the_model_is_refused(length: int) -> None:
    with pytest.raises(UsageError, match=rf"1\.\.4096 .* got {length}"):
        CacheLayout.derive(preset("test-a"), length)
