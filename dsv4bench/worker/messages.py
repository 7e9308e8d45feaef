"""What crosses the sockets between the engine, the rank server and the ranks: typed records, one a datagram."""

from __future__ import annotations

import socket

import msgspec

from dsv4bench.faults import Fault


class HostArgument(msgspec.Struct, frozen=True, tag="host"):
    """A host tensor in the shared host region."""

    offset: int
    dtype: str
    shape: tuple[int, ...]


class DeviceArgument(msgspec.Struct, frozen=True, tag="device"):
    """This rank's shard of a device tensor, in the rank's own region."""

    offset: int
    dtype: str
    shape: tuple[int, ...]


class ScalarArgument(msgspec.Struct, frozen=True, tag="scalar"):
    """A scalar, passed by value."""

    value: int | float


Argument = HostArgument | DeviceArgument | ScalarArgument


class Dispatch(msgspec.Struct, frozen=True, tag="dispatch"):
    """Engine to rank: bind these arguments to a program, and run it once every rank has bound."""

    dispatch_id: int
    program: int
    slot_id: int
    generation: int
    trace: bool
    arguments: bytes
    """An encoded list of `Argument` (see `worker.arguments`)."""
    faults: tuple[Fault, ...] = ()
    """What is to go wrong on this rank."""
    device_phases: bool = False
    """Whether the records, if `trace` asks for any, hold what the program's time consists of."""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Engine to rank or server: no more work will come; leave."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Rank to engine: started, with this process id."""

    pid: int


class Complete(msgspec.Struct, frozen=True, tag="complete"):
    """Rank to engine: this dispatch ended; `error` holds the traceback if the rank raised."""

    dispatch_id: int
    error: str | None = None


class RankExited(msgspec.Struct, frozen=True, tag="rank_exited"):
    """Server to engine: a rank process ended. `status` is its exit code, or minus the signal that killed it."""

    rank: int
    pid: int
    status: int


class StartFailed(msgspec.Struct, frozen=True, tag="start_failed"):
    """Server to engine: the ranks could not be started."""

    error: str


class ArgumentSignature(msgspec.Struct, frozen=True):
    """What one argument of a program must be: `dtype` is a numpy name, or `scalar`."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class ProgramSpec(msgspec.Struct, frozen=True):
    """A program that ranks can run: the method `function` of what the setup made.

    `hid` is the content hash that STRACE records carry (16 hex digits). Ranks refuse a dispatch whose arguments are
    not those of `signature`; an empty one is not checked.
    """

    name: str
    function: str
    hid: str
    signature: list[ArgumentSignature] = []


class ServerSpec(msgspec.Struct, frozen=True):
    """Engine to server, once: all it needs to start the ranks.

    `setup` is `module:name`, called once before the fork as `setup(setup_argument)`; what it returns is shared by all
    ranks copy-on-write. Descriptors are those of the server process.
    """

    ranks: int
    setup: str
    setup_argument: bytes
    programs: list[ProgramSpec]
    exchange: str
    host_fd: int
    host_bytes: int
    device_fds: list[int]
    device_bytes: int
    board_fd: int
    exchange_fd: int
    exchange_bytes: int
    rank_sockets: list[int]
    rank_logs: list[str]
    server_log: str | None


ToRank = Dispatch | Stop
FromRank = Ready | Complete
FromServer = RankExited | StartFailed

# One datagram holds one record; the kernel's default socket buffer (208 KiB) bounds it.
MAX_MESSAGE_BYTES = 1 << 18

encode = msgspec.msgpack.Encoder().encode
decode_to_rank = msgspec.msgpack.Decoder(ToRank).decode
decode_from_rank = msgspec.msgpack.Decoder(FromRank).decode
decode_from_server = msgspec.msgpack.Decoder(FromServer).decode
decode_server_spec = msgspec.msgpack.Decoder(ServerSpec).decode


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """A pair of connected sockets that keep record boundaries and report the other side's end."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
