"""Whatever the order of malloc and free: live allocations never overlap, stale pointers never resolve."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4bench.worker.arena import align
from dsv4bench.worker.memory import DeviceMemory

SIZE = 4096


@given(st.lists(st.one_of(st.integers(1, 700), st.integers(-20, -1)), max_size=80))
def test_allocations_stay_apart_and_stale_pointers_stay_dead(operations: list[int]) -> None:
    """A positive entry allocates that many bytes; a negative one frees the allocation with that index."""
    memory = DeviceMemory(rank=3, size=SIZE)
    live: dict[int, int] = {}
    stale: list[int] = []
    for operation in operations:
        if operation > 0:
            try:
                pointer = memory.malloc(operation)
            except MemoryError:
                assert sum(align(nbytes) for nbytes in live.values()) + align(operation) > SIZE // 8
                continue
            assert pointer not in live
            assert pointer not in stale
            live[pointer] = operation
        elif len(live) >= -operation:
            pointer = list(live)[operation]
            memory.free(pointer)
            del live[pointer]
            stale.append(pointer)
        extents = sorted((memory.resolve("test", base, nbytes), nbytes) for base, nbytes in live.items())
        for (start, nbytes), (following, _) in itertools.pairwise(extents):
            assert start + nbytes <= following
        assert all(start + nbytes <= SIZE for start, nbytes in extents)
        assert memory.allocated_bytes == sum(live.values())
        for pointer in stale:
            with pytest.raises(ValueError, match="not the base of a live allocation"):
                memory.resolve("test", pointer, 1)
    for pointer in live:
        memory.free(pointer)
    assert memory.resolve("test", memory.malloc(SIZE), SIZE) == 0
