"""Device-state slots of one rank, each with a generation that tells its owners apart."""

from __future__ import annotations


class StateSlots:
    """Hands out slot numbers 0..count-1. The generation of a slot grows by one with every allocation (from 1)."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count - 1, -1, -1))
        self._generations = [0] * count
        self._taken: set[int] = set()

    @property
    def available(self) -> int:
        """How many slots are free."""
        return len(self._free)

    def allocate(self) -> tuple[int, int]:
        """Take a slot: (slot, generation).

        Raises:
            IndexError: none is free.
        """
        slot = self._free.pop()
        self._taken.add(slot)
        self._generations[slot] += 1
        return slot, self._generations[slot]

    def release(self, slot: int) -> None:
        """Give a slot back.

        Raises:
            ValueError: the slot is not taken.
        """
        if slot not in self._taken:
            raise ValueError(f"state slot {slot} is not taken")
        self._taken.remove(slot)
        self._free.append(slot)
