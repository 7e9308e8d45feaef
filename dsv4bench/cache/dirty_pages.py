"""Which pages of a pool must be uploaded, as few byte extents as possible (docs/engine.md, Caches)."""

from __future__ import annotations

from collections.abc import Iterable

Extent = tuple[int, int]
"""(byte offset from the base of the pool's allocation, bytes)."""


class DirtyPages:
    """Dirty pages of one layer-major pool [layers, pages, page_bytes]: page p is a page in every layer."""

    def __init__(self, layers: int, pages: int, page_bytes: int) -> None:
        self._layers = layers
        self._pages = pages
        self._page_bytes = page_bytes
        self._dirty: set[int] = set()

    def mark(self, page_ids: Iterable[int]) -> None:
        """Mark pages as dirty.

        Raises:
            ValueError: a page that the pool does not have; nothing is marked.
        """
        ids = set(page_ids)
        strangers = sorted(page for page in ids if not 0 <= page < self._pages)
        if strangers:
            raise ValueError(f"pages {strangers} are not in 0..{self._pages - 1}")
        self._dirty |= ids

    def take(self) -> list[Extent]:
        """The extents of all dirty pages, ascending, neighbours joined; the pool is clean afterwards."""
        runs: list[list[int]] = []
        for page in sorted(self._dirty):
            if runs and runs[-1][1] == page:
                runs[-1][1] = page + 1
            else:
                runs.append([page, page + 1])
        self._dirty.clear()
        extents: list[Extent] = []
        for layer in range(self._layers):
            for first, end in runs:
                offset = (layer * self._pages + first) * self._page_bytes
                nbytes = (end - first) * self._page_bytes
                if extents and sum(extents[-1]) == offset:
                    extents[-1] = (extents[-1][0], extents[-1][1] + nbytes)
                else:
                    extents.append((offset, nbytes))
        return extents
