"""Pages are cleared when they change hands: not before, not twice, nothing else."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dsv4bench.cache.layout import CacheGroup, CacheLayout
from dsv4bench.engine.page_clearing import PageClearing
from dsv4bench.engine.requests import ActiveRequest, Request, RequestHandle
from dsv4bench.model.config import preset
from dsv4bench.worker.device import Device
from dsv4bench.worker.protocol import DeviceTensor, StackedDeviceTensor
from dsv4bench.worker.task_args import Pools

LAYOUT = CacheLayout.derive(preset("test-b"), 64)
PAGES = 6


class MemoryWorker:
    """A worker that is nothing but device memory."""

    ranks = 2

    def __init__(self) -> None:
        self.devices = [Device(rank, 16 << 20) for rank in range(2)]

    def copy_to_offset(
        self, base: Any, byte_offset: int, source: Any, nbytes: int, *, worker_id: int
    ) -> None:
        self.devices[worker_id].write("copy_to_offset", base, byte_offset, source, nbytes)


@pytest.fixture
def worker() -> MemoryWorker:
    return MemoryWorker()


@pytest.fixture
def pools(worker: Any) -> Pools[StackedDeviceTensor]:
    """Pools filled with ones, so that what was cleared shows."""
    shapes = [group.pool_shape(PAGES) for group in LAYOUT.groups] + [LAYOUT.mtp_pool_shape(PAGES)]

    def stacked(shape: Any) -> StackedDeviceTensor:
        shards = []
        for rank, device in enumerate(worker.devices):
            ones = np.ones(shape, np.float32)
            pointer = device.memory.malloc(ones.nbytes)
            device.write("copy_to", pointer, 0, ones, ones.nbytes)
            shards.append(DeviceTensor(pointer, shape, ones.dtype, rank))
        return StackedDeviceTensor(tuple(shards))

    return Pools(*(stacked(shape) for shape in shapes))


def cleared(worker: Any, tensor: Any, rank: int) -> list[int]:
    """Pages that hold zeros in every layer; a page that is cleared in part is an error."""
    shard = tensor.shards[rank]
    content = np.empty(shard.shape, np.float32)
    worker.devices[rank].read("copy_from", shard.pointer, content, content.nbytes)
    zero = content == 0
    whole = zero.all(axis=(0, 2, 3))
    assert (zero.any(axis=(0, 2, 3)) == whole).all()
    return np.flatnonzero(whole).tolist()


def active(page_ids: Sequence[int], generation: int = 1) -> ActiveRequest:
    blocks = tuple(np.array(page_ids, np.int32) for _ in CacheGroup)
    return ActiveRequest(RequestHandle(Request("r", [1], 1), 0), 0, 0, generation, blocks, [1])


def test_only_pages_with_a_former_owner_are_cleared_in_every_pool(
    worker: Any, pools: Pools[StackedDeviceTensor]
) -> None:
    clearing = PageClearing(worker, pools, LAYOUT)
    first = active([0, 1, 2])
    clearing.before_dispatch([[first], []])
    assert clearing.cleared_bytes == 0
    # Page 2 passes to a second request, page 3 is new.
    second = active([2, 3])
    clearing.before_dispatch([[second], []])
    for tensor in (pools.ori, pools.cmp_c4, pools.csa_state, pools.mtp_kv):
        assert cleared(worker, tensor, 0) == [2]
        assert cleared(worker, tensor, 1) == []
    before = clearing.cleared_bytes
    for _ in range(3):
        clearing.before_dispatch([[second], []])
    assert clearing.cleared_bytes == before


def test_a_request_that_grows_keeps_what_it_has(worker: Any, pools: Pools[StackedDeviceTensor]) -> None:
    clearing = PageClearing(worker, pools, LAYOUT)
    clearing.before_dispatch([[], [active([4, 5])]])
    request = active([0, 1])
    clearing.before_dispatch([[], [request]])
    request.blocks = tuple(np.array([0, 1, 5], np.int32) for _ in CacheGroup)
    clearing.before_dispatch([[], [request]])
    assert cleared(worker, pools.ori, 1) == [5]


def test_another_life_of_a_request_gets_its_old_pages_cleared(
    worker: Any, pools: Pools[StackedDeviceTensor]
) -> None:
    clearing = PageClearing(worker, pools, LAYOUT)
    clearing.before_dispatch([[active([1])], []])
    clearing.before_dispatch([[active([1], generation=2)], []])
    assert cleared(worker, pools.hca_state, 0) == [1]


def test_a_reused_prefix_is_not_cleared_until_it_gets_another_owner(
    worker: Any, pools: Pools[StackedDeviceTensor]
) -> None:
    clearing = PageClearing(worker, pools, LAYOUT)
    clearing.before_dispatch([[active([0, 1])], []])
    # The first 128 positions, a page of the groups that are kept, were filled by the request before.
    sharer = active([0, 2])
    sharer.prefix.reused = 128
    clearing.before_dispatch([[sharer], []])
    for tensor in (pools.cmp_c128, pools.cmp_c4, pools.idx):
        assert cleared(worker, tensor, 0) == []
    for tensor in (pools.ori, pools.mtp_kv, pools.hca_state, pools.csa_state, pools.csa_inner_state):
        assert cleared(worker, tensor, 0) == [0]
    clearing.before_dispatch([[active([0])], []])
    assert cleared(worker, pools.cmp_c4, 0) == [0]
