"""The arguments of a dispatch on their way to the ranks: checked, encoded, and kept while they stay valid."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

import msgspec
import numpy as np

from dsv4bench.worker import messages
from dsv4bench.worker.arena import HostArena
from dsv4bench.worker.device import Device
from dsv4bench.worker.protocol import Argument, StackedDeviceTensor

_KEPT = 64

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(list[messages.Argument]).decode


class ArgumentEncoder:
    """Encodes argument lists, one message a rank.

    A slot's arguments are the same objects step after step. Their encoding is kept, and used again as long as no
    device memory was freed since it was checked: a dispatch never gets a pointer that is no longer live.
    """

    def __init__(self, host: HostArena, devices: Sequence[Device], *, keep: bool = True) -> None:
        """`keep=False` encodes every time: what the cache saves is then what it costs."""
        self._host = host
        self._devices = devices
        self._keep = keep
        # The arguments are kept too: an id is only an identity while its object lives.
        self._kept: OrderedDict[tuple[object, ...], tuple[list[Argument], list[bytes], int]] = OrderedDict()

    def encode(self, arguments: Sequence[Argument]) -> list[bytes]:
        """One encoded list a rank.

        Raises:
            TypeError: a host tensor that is not in shared memory, or not contiguous.
            ValueError: a device tensor whose allocation is not live.
        """
        if not self._keep:
            return self._encode(arguments)
        key = tuple([value if isinstance(value, int | float) else id(value) for value in arguments])
        frees = sum([device.memory.frees for device in self._devices])
        kept = self._kept.get(key)
        if kept is not None and kept[2] == frees and _same(kept[0], arguments):
            self._kept.move_to_end(key)
            return kept[1]
        encoded = self._encode(arguments)
        self._kept[key] = (list(arguments), encoded, frees)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return encoded

    def _encode(self, arguments: Sequence[Argument]) -> list[bytes]:
        return [
            encode([self._argument(argument, rank) for argument in arguments])
            for rank in range(len(self._devices))
        ]

    def _argument(self, argument: Argument, rank: int) -> messages.Argument:
        if isinstance(argument, np.ndarray):
            offset = self._host.offset_of(argument)
            return messages.HostArgument(offset, argument.dtype.name, argument.shape)
        if isinstance(argument, StackedDeviceTensor):
            shard = argument.shards[rank]
            nbytes = math.prod(shard.shape) * shard.dtype.itemsize
            offset = self._devices[rank].memory.resolve("submit", shard.pointer, nbytes)
            return messages.DeviceArgument(offset, shard.dtype.name, shard.shape)
        return messages.ScalarArgument(argument)


def check_signature(program: messages.ProgramSpec, arguments: Sequence[messages.Argument]) -> None:
    """Refuse arguments that a program was not compiled for.

    Raises:
        TypeError: names program and argument, what it must be and what it is.
    """
    if not program.signature:
        return
    if len(arguments) != len(program.signature):
        raise TypeError(f"{program.name} takes {len(program.signature)} arguments, got {len(arguments)}")
    for expected, argument in zip(program.signature, arguments, strict=True):
        if isinstance(argument, messages.ScalarArgument):
            found = messages.ArgumentSignature(expected.name, "scalar", ())
        else:
            found = messages.ArgumentSignature(expected.name, argument.dtype, argument.shape)
        if found != expected:
            raise TypeError(
                f"{program.name}: {expected.name} must be {expected.dtype} {list(expected.shape)}, "
                f"got {found.dtype} {list(found.shape)}"
            )


def _same(kept: Sequence[Argument], arguments: Sequence[Argument]) -> bool:
    """Whether a list holds the same objects; a scalar and an id may be equal numbers, so equal keys are not enough."""
    return all(
        before is now or (isinstance(before, int | float) and type(before) is type(now) and before == now)
        for before, now in zip(kept, arguments, strict=True)
    )
