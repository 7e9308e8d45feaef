"""Encoded arguments are kept exactly as long as they stay valid."""

from typing import Any

import numpy as np
import pytest

from dsv4bench.worker import messages
from dsv4bench.worker.arena import HostArena, SharedRegion
from dsv4bench.worker.arguments import ArgumentEncoder, decode
from dsv4bench.worker.device import Device
from dsv4bench.worker.protocol import DeviceTensor, StackedDeviceTensor


@pytest.fixture
def parts() -> tuple[Any, list[Any], ArgumentEncoder]:
    host = HostArena(SharedRegion.create("host", 4096))
    devices = [Device(rank, 4096) for rank in range(2)]
    return host, devices, ArgumentEncoder(host, devices)


def stacked(devices: Any, nbytes: int = 64) -> StackedDeviceTensor:
    return StackedDeviceTensor(
        tuple(
            DeviceTensor(device.memory.malloc(nbytes), (nbytes // 4,), np.dtype("float32"), rank)
            for rank, device in enumerate(devices)
        )
    )


def test_each_rank_gets_its_own_shard_and_the_same_host_tensor(
    parts: tuple[Any, list[Any], ArgumentEncoder],
) -> None:
    host, devices, encoder = parts
    devices[1].memory.malloc(128)
    tensor, array = stacked(devices), host.allocate((2, 3), "int32")
    lists = [decode(encoded) for encoded in encoder.encode([array, tensor, 7, 0.5])]
    expected = [
        messages.HostArgument(0, "int32", (2, 3)),
        None,
        messages.ScalarArgument(7),
        messages.ScalarArgument(0.5),
    ]
    for rank, (decoded, offset) in enumerate(zip(lists, (0, 128), strict=True)):
        expected[1] = messages.DeviceArgument(offset, "float32", (16,))
        assert decoded == expected, rank


def test_the_same_objects_are_encoded_once(parts: tuple[Any, list[Any], ArgumentEncoder]) -> None:
    host, devices, encoder = parts
    arguments = [host.allocate((4,), "int32"), stacked(devices), 3]
    first = encoder.encode(arguments)
    assert encoder.encode(list(arguments)) is first
    assert encoder.encode([*arguments[:2], 4]) is not first
    assert encoder.encode([*arguments[:2], 3.0]) is not first
    assert decode(encoder.encode([*arguments[:2], 3.0])[0])[2] == messages.ScalarArgument(3.0)


def test_a_freed_tensor_is_refused_though_its_encoding_was_kept(
    parts: tuple[Any, list[Any], ArgumentEncoder],
) -> None:
    host, devices, encoder = parts
    tensor = stacked(devices)
    other = devices[0].memory.malloc(64)
    arguments = [host.allocate((4,), "int32"), tensor]
    kept = encoder.encode(arguments)
    devices[0].memory.free(other)
    again = encoder.encode(arguments)
    assert again == kept
    devices[1].memory.free(tensor.shards[1].pointer)
    with pytest.raises(ValueError, match=r"submit: pointer .* rank 1: it was freed"):
        encoder.encode(arguments)
