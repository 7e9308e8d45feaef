"""The SA_PROFILE span recorder: Chrome trace events of one process, appended to its own fragment.

A span costs its thread two clock reads and one append to that thread's own buffer. Encoding and writing
happen once every `FLUSH_EVENTS` events or `FLUSH_INTERVAL_NS`, and at `flush`, `stop` and `close`.
Times are taken in ns of CLOCK_MONOTONIC and written in whole microseconds.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType
from typing import Any, Final, Protocol, Self

import msgspec

from dsv4bench.errors import UsageError
from dsv4bench.tracing.append import open_append, write_all
from dsv4bench.tracing.settings import LEVELS, Level, fragments_directory

FLUSH_EVENTS: Final = 256
FLUSH_INTERVAL_NS: Final = 1_000_000_000

# No span starts this late, so a recorder outside its profile window keeps nothing.
_NEVER: Final = 2**63 - 1


class SpanContext(Protocol):
    """A span that is open between `__enter__` and `__exit__`; `args` may grow until it ends."""

    args: dict[str, Any]

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Recorder(Protocol):
    """What every module of the engine traces through."""

    def span(self, name: str, category: str, *, level: Level = "e2e", **args: Any) -> SpanContext:
        """Return a context manager that records one span from its entry to its exit."""
        ...

    def complete(
        self,
        name: str,
        category: str,
        start_ns: int,
        end_ns: int,
        *,
        level: Level = "e2e",
        lane: int | None = None,
        **args: Any,
    ) -> None:
        """Record a span measured by the caller, in ns of CLOCK_MONOTONIC (`time.perf_counter_ns`).

        `lane` is where it is drawn instead of the calling thread, as `tid`: spans of tasks that share a thread overlap.
        """
        ...

    def instant(self, name: str, category: str, *, level: Level = "e2e", **args: Any) -> None:
        """Record a point in time on the calling thread."""
        ...

    def name_thread(self, label: str, lane: int | None = None) -> None:
        """Name the calling thread in the trace, or a lane of `complete`."""
        ...

    def start(self) -> None:
        """Open the profile window: spans that begin from now on are kept."""
        ...

    def stop(self) -> None:
        """Close the profile window and write what it holds; spans still open are missing."""
        ...

    def close(self) -> None:
        """Stop for good and release the file. Idempotent."""
        ...


class _Metadata(msgspec.Struct, gc=False):
    name: str
    ph: str
    pid: int
    tid: int
    args: dict[str, str]


class _Complete(msgspec.Struct, gc=False):
    name: str
    cat: str
    ph: str
    ts: int
    dur: int
    pid: int
    tid: int
    args: dict[str, Any]


class _Instant(msgspec.Struct, gc=False):
    name: str
    cat: str
    ph: str
    s: str
    ts: int
    pid: int
    tid: int
    args: dict[str, Any]


_Event = _Metadata | _Complete | _Instant


def _encode_unknown(value: Any) -> Any:
    """Encode an argument msgspec has no rule for: numpy and torch scalars as numbers, the rest as text."""
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)


class _ThreadBuffer:
    """The unwritten events of one thread. The ends of a deque are atomic, so any thread may drain it."""

    __slots__ = ("events", "flushed_ns", "ident")

    def __init__(self, ident: int) -> None:
        self.ident = ident
        self.events: deque[_Event] = deque()
        self.flushed_ns = perf_counter_ns()


class _Span:
    """A span of a `SpanRecorder`."""

    __slots__ = ("_category", "_name", "_recorder", "_start_ns", "args")

    def __init__(self, recorder: SpanRecorder, name: str, category: str, args: dict[str, Any]) -> None:
        self._recorder = recorder
        self._name = name
        self._category = category
        self.args = args
        self._start_ns = _NEVER

    def __enter__(self) -> Self:
        self._start_ns = perf_counter_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder._keep(self._name, self._category, self._start_ns, perf_counter_ns(), self.args)


class SpanRecorder:
    """Records spans of this process to `<output>/fragments/trace.<pid>.jsonl`. Safe to use from any thread.

    `output` is a directory or a `*.json` file; `levels` says which spans are kept. With `recording=False` the
    profile window stays closed until `start()`. A forked child goes on with a fragment of its own.
    Raises UsageError when the fragment cannot be created.
    """

    def __init__(
        self, output: Path, levels: Iterable[Level], process_name: str, *, recording: bool = True
    ) -> None:
        kept = frozenset(levels)
        self._levels = frozenset(LEVELS) if "verbose" in kept else kept
        self._directory = fragments_directory(output)
        self._process_name = process_name
        self._encoder = msgspec.json.Encoder(enc_hook=_encode_unknown)
        self._window_start_ns = perf_counter_ns() if recording else _NEVER
        self._closed = False
        self._descriptor: int | None = None
        self._begin_process()
        _recorders.add(self)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with self._lock:
                self._open_fragment()
        except OSError as error:
            raise UsageError(
                f"cannot write trace fragments to {self._directory}: {error.strerror}; choose another output"
            ) from error

    def span(self, name: str, category: str, *, level: Level = "e2e", **args: Any) -> SpanContext:
        """Return a context manager that records one span; its `args` may be added to before it ends."""
        if level not in self._levels:
            return _NULL_SPAN
        return _Span(self, name, category, args)

    def complete(
        self,
        name: str,
        category: str,
        start_ns: int,
        end_ns: int,
        *,
        level: Level = "e2e",
        lane: int | None = None,
        **args: Any,
    ) -> None:
        """Record a span measured by the caller, in ns of CLOCK_MONOTONIC (`time.perf_counter_ns`)."""
        if level in self._levels:
            self._keep(name, category, start_ns, end_ns, args, lane)

    def instant(self, name: str, category: str, *, level: Level = "e2e", **args: Any) -> None:
        """Record a point in time on the calling thread."""
        now_ns = perf_counter_ns()
        if level not in self._levels or now_ns < self._window_start_ns:
            return
        buffer = self._thread_buffer()
        buffer.events.append(
            _Instant(name, category, "i", "t", now_ns // 1000, self._pid, buffer.ident, args)
        )
        self._flush_when_due(buffer, now_ns)

    def name_thread(self, label: str, lane: int | None = None) -> None:
        """Name the calling thread or a lane in the trace; kept outside the profile window as well."""
        buffer = self._thread_buffer()
        tid = buffer.ident if lane is None else lane
        buffer.events.append(_Metadata("thread_name", "M", self._pid, tid, {"name": label}))

    def start(self) -> None:
        """Open the profile window: spans that begin from now on are kept."""
        if not self._closed:
            self._window_start_ns = perf_counter_ns()

    def stop(self) -> None:
        """Close the profile window and write what it holds; spans still open are missing."""
        self._window_start_ns = _NEVER
        self.flush()

    def flush(self) -> None:
        """Write what every thread has recorded so far."""
        with self._lock:
            buffers = list(self._buffers)
        for buffer in buffers:
            self._drain(buffer)

    def close(self) -> None:
        """Stop for good and release the file. Idempotent."""
        self.stop()
        with self._lock:
            self._closed = True
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _keep(
        self,
        name: str,
        category: str,
        start_ns: int,
        end_ns: int,
        args: dict[str, Any],
        lane: int | None = None,
    ) -> None:
        if start_ns < self._window_start_ns:
            return
        buffer = self._thread_buffer()
        tid = buffer.ident if lane is None else lane
        # Both ends are rounded down alike, so that a span inside another stays inside it.
        start_us = start_ns // 1000
        buffer.events.append(
            _Complete(name, category, "X", start_us, end_ns // 1000 - start_us, self._pid, tid, args)
        )
        self._flush_when_due(buffer, end_ns)

    def _thread_buffer(self) -> _ThreadBuffer:
        try:
            buffer: _ThreadBuffer = self._local.buffer
        except AttributeError:
            thread = threading.current_thread()
            buffer = self._local.buffer = _ThreadBuffer(threading.get_ident())
            buffer.events.append(
                _Metadata("thread_name", "M", self._pid, buffer.ident, {"name": thread.name})
            )
            with self._lock:
                self._buffers.append(buffer)
        return buffer

    def _flush_when_due(self, buffer: _ThreadBuffer, now_ns: int) -> None:
        if len(buffer.events) >= FLUSH_EVENTS or now_ns - buffer.flushed_ns >= FLUSH_INTERVAL_NS:
            self._drain(buffer)

    def _drain(self, buffer: _ThreadBuffer) -> None:
        events: list[_Event] = []
        try:
            while True:
                events.append(buffer.events.popleft())
        except IndexError:
            buffer.flushed_ns = perf_counter_ns()
        if not events:
            return
        lines = self._encoder.encode_lines(events)
        with self._lock:
            if not self._closed:
                write_all(self._open_fragment(), lines)

    def _open_fragment(self) -> int:
        if self._descriptor is None:
            self._descriptor = open_append(self._directory / f"trace.{self._pid}.jsonl")
            name = _Metadata("process_name", "M", self._pid, 0, {"name": self._process_name})
            write_all(self._descriptor, self._encoder.encode_lines([name]))
        return self._descriptor

    def _begin_process(self) -> None:
        """Start with empty buffers and no file: at first, and in every forked child."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._local = threading.local()
        self._buffers: list[_ThreadBuffer] = []
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_recorders: weakref.WeakSet[SpanRecorder] = weakref.WeakSet()


def _begin_forked_process() -> None:
    for recorder in list(_recorders):
        recorder._begin_process()


# A child inherits its parent's unwritten events and open fragment, neither of which is the child's to write.
os.register_at_fork(after_in_child=_begin_forked_process)


class _DiscardedArgs(dict[str, Any]):
    """Arguments of a span that nobody keeps."""

    def __setitem__(self, key: str, value: Any) -> None:
        pass

    def update(self, *args: Any, **kwargs: Any) -> None:
        pass


class _NullSpan:
    """A span that records nothing; one instance serves every thread."""

    __slots__ = ("args",)

    def __init__(self) -> None:
        self.args: dict[str, Any] = _DiscardedArgs()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


_NULL_SPAN = _NullSpan()


class NullRecorder:
    """A recorder that keeps nothing and costs next to nothing: tracing switched off."""

    def span(self, name: str, category: str, *, level: Level = "e2e", **args: Any) -> SpanContext:  # noqa: ARG002
        """Return a span that records nothing."""
        return _NULL_SPAN

    def complete(
        self,
        name: str,
        category: str,
        start_ns: int,
        end_ns: int,
        *,
        level: Level = "e2e",
        lane: int | None = None,
        **args: Any,
    ) -> None:
        """Record nothing."""

    def instant(self, name: str, category: str, *, level: Level = "e2e", **args: Any) -> None:
        """Record nothing."""

    def name_thread(self, label: str, lane: int | None = None) -> None:
        """Record nothing."""

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
