"""Slot arithmetic against values worked out by hand (docs/model.md, Cache groups)."""

import pytest
import torch

from dsv4bench.cache.layout import CacheGroup, CacheLayout
from dsv4bench.cache.slots import slots
from dsv4bench.model.config import preset

LAYOUT = CacheLayout.derive(preset("test-a"), 4096)
TABLE = torch.tensor([[7, 3, 9, 5, 999], [2, 8, 999, 999, 999]], dtype=torch.int32)
COUNTS = torch.tensor([4, 2])


def at(group: CacheGroup, sequences: list[int], positions: list[int]) -> list[int]:
    where = torch.tensor(sequences)
    found = slots(LAYOUT[group], TABLE, COUNTS[where], where, torch.tensor(positions))
    return found.tolist()


def test_window_pages_of_128_rows() -> None:
    """Position 130 of sequence 0: page 3, row 2; 512 wraps to its first page; 300 of sequence 1 to page 2."""
    found = at(CacheGroup.ORI, [0, 0, 0, 1], [0, 130, 512 + 5, 300])
    assert found == [7 * 128, 3 * 128 + 2, 7 * 128 + 5, 2 * 128 + 44]


def test_compressed_entries() -> None:
    """Ratio 4: 32 entries a page, position 131 closes entry 32. Ratio 128: one entry a page."""
    assert at(CacheGroup.CMP_C4, [0, 0, 1], [3, 131, 255]) == [7 * 32, 3 * 32, 8 * 32 + 31]
    assert at(CacheGroup.CMP_C128, [0, 0, 1], [127, 383, 255]) == [7, 9, 8]


def test_compressor_state_rings() -> None:
    """8 rows a page, 4 pages: position 34 is back in the first page. 4 rows a page, 2 pages: 14 is in the second."""
    assert at(CacheGroup.HCA_STATE, [0, 0], [15, 34]) == [3 * 8 + 7, 7 * 8 + 2]
    assert at(CacheGroup.CSA_STATE, [1, 1], [14, 9]) == [8 * 4 + 2, 2 * 4 + 1]


@pytest.mark.parametrize("group", CacheGroup)
def test_positions_of_any_shape(group: CacheGroup) -> None:
    flat = slots(LAYOUT[group], TABLE, torch.tensor(4), torch.tensor(0), torch.arange(24))
    square = slots(
        LAYOUT[group], TABLE, torch.tensor([[4]]), torch.tensor([[0]]), torch.arange(24).view(4, 6)
    )
    assert torch.equal(flat.view(4, 6), square)
