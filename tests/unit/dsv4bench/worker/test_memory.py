"""Device memory: checked pointers over a first-fit allocator."""

import pytest

from dsv4bench.worker.arena import HostArena, SharedRegion
from dsv4bench.worker.memory import DeviceMemory


def test_extents_are_reused_but_addresses_are_not() -> None:
    memory = DeviceMemory(rank=0, size=256)
    first = memory.malloc(100)  # 128 bytes with alignment
    second = memory.malloc(64)
    assert memory.resolve("copy_to", first, 100) == 0
    assert memory.resolve("copy_to", second, 64) == 128
    memory.free(first)
    third = memory.malloc(128)
    assert memory.resolve("copy_to", third, 128) == 0
    assert third not in (first, second)


def test_neighbouring_free_extents_grow_together() -> None:
    memory = DeviceMemory(rank=0, size=192)
    pointers = [memory.malloc(64) for _ in range(3)]
    with pytest.raises(MemoryError, match=r"no free extent of 64 bytes \(largest 0 of 192\)"):
        memory.malloc(64)
    for pointer in (pointers[0], pointers[2], pointers[1]):
        memory.free(pointer)
    assert memory.resolve("copy_to", memory.malloc(192), 192) == 0


def test_the_message_tells_a_stale_from_an_interior_from_a_foreign_pointer() -> None:
    memory, other = DeviceMemory(0, 1024), DeviceMemory(1, 1024)
    live, freed, foreign = memory.malloc(64), memory.malloc(64), other.malloc(64)
    memory.free(freed)
    cases = {live + 8: "lies 8 bytes inside", freed: "it was freed", foreign: "belongs to rank 1", 7: "never"}
    for pointer, reason in cases.items():
        with pytest.raises(
            ValueError, match=f"free: pointer {pointer:#x} is not the base .* rank 0: .*{reason}"
        ):
            memory.free(pointer)


def test_the_host_arena_refuses_what_does_not_fit_and_what_is_not_its_own() -> None:
    arena = HostArena(SharedRegion.create("test", 4096))
    array = arena.allocate((8, 4), "int32")
    assert array.shape == (8, 4)
    assert not array.any()
    assert arena.offset_of(arena.allocate((1,), "int8")) == 128
    with pytest.raises(MemoryError, match="5000 bytes wanted"):
        arena.allocate((5000,), "uint8")
    foreign = HostArena(SharedRegion.create("other", 4096)).allocate((4,), "int32")
    with pytest.raises(TypeError, match="shared memory that exists before the ranks start"):
        arena.offset_of(foreign)
