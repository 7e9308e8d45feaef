"""The span table: one row a span, in numpy columns, whatever file it was read from.

Times are int64 ns of the row's own clock (`Clock`). Strings are interned: a column of codes and a tuple of
labels. An id that a span does not carry is `ABSENT`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from analyzers.frames import data_frame
from analyzers.table.arguments import ArgumentList, ArgumentSource
from analyzers.table.columns import GrowingColumn, constant, join, merge_labels
from analyzers.table.identity import FIRST_NAMED, IdCodes
from analyzers.table.identity import DeviceIds as DeviceIds
from analyzers.table.identity import Lane as Lane
from analyzers.table.identity import Process as Process
from analyzers.table.identity import process_label as process_label

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

ABSENT = -1

Int64s = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]


class Clock(IntEnum):
    """What a row's `start_ns` counts from; times of different clocks are never compared."""

    HOST = 0
    """CLOCK_MONOTONIC: comparable across the processes of one host."""
    DEVICE = 1
    """An origin of its own per invocation: comparable only inside one invocation."""
    FILE = 2
    """An origin nobody named: comparable only inside one file."""


class Source(IntEnum):
    """Which kind of recording a row comes from."""

    SERVING = 0
    STRACE = 1


class Kind(IntEnum):
    """How a row occupies time: nested on its lane, free of its lane (async), or a point."""

    SPAN = 0
    ASYNC = 1
    INSTANT = 2


ID_COLUMNS = (
    "step_id",
    "slot",
    "dispatch_id",
    "invocation",
    "generation",
    "run_id",
    "run_epoch",
    "worker_id",
    "depth",
)


class Ids(TypedDict, total=False):
    """The id columns by name; `ID_COLUMNS` lists them in table order."""

    step_id: int
    slot: int
    dispatch_id: int
    invocation: int
    generation: int
    run_id: int
    run_epoch: int
    worker_id: int
    depth: int


_ROW_COLUMNS = (
    "name",
    "category",
    "hid",
    "lane",
    "start_ns",
    "duration_ns",
    "rank",
    "clock",
    "source",
    "kind",
    "failed",
    "unusable_id",
    *ID_COLUMNS,
    "arguments",
    "argument_source",
)
_LABELS = {
    "name": "names",
    "category": "categories",
    "hid": "hids",
    "lane": "lanes",
    "argument_source": "argument_sources",
}
"""The columns of codes, and the labels that they count."""


@dataclass(frozen=True)
class SpanTable:
    """Spans in columns of equal length. Build one with `SpanTableBuilder`, `select` or `concatenate`.

    A column that holds one value throughout takes no memory: it is a read-only view of that value.
    """

    names: tuple[str, ...]
    categories: tuple[str, ...]
    hids: tuple[str, ...]
    lanes: tuple[Lane, ...]
    argument_sources: tuple[ArgumentSource, ...]

    name: Codes
    category: Codes
    hid: Codes
    lane: Codes
    start_ns: Int64s
    duration_ns: Int64s
    rank: Int64s
    clock: npt.NDArray[np.int8]
    source: npt.NDArray[np.int8]
    kind: npt.NDArray[np.int8]
    failed: npt.NDArray[np.int8]
    """Not 0 where the span's arguments say that its dispatch failed: the outcome of a node.complete, else 1."""
    unusable_id: npt.NDArray[np.int8]
    """1 where the span names a dispatch_id or step_id that cannot be one, such as null: that column is ABSENT."""
    step_id: Int64s
    slot: Int64s
    dispatch_id: Int64s
    invocation: Int64s
    generation: Int64s
    run_id: Int64s
    run_epoch: Int64s
    worker_id: Int64s
    depth: Int64s
    arguments: Int64s
    """Position of the row's arguments in its source, ABSENT when it has none; read them through `args`."""
    argument_source: Codes

    process_names: Mapping[Process, str] = field(default_factory=dict)
    thread_names: Mapping[Lane, str] = field(default_factory=dict)
    devices: Mapping[Process, DeviceIds] = field(default_factory=dict)
    """What is known of the devices: a few processes, so that rows need no column of their own."""
    id_texts: Mapping[int, str] = field(default_factory=dict)
    """What the codes of ids stand for that are no integers (`IdCodes`)."""
    lives: Mapping[Process, int] = field(default_factory=dict)
    """Which life of the recording a rank's process is of; one that is not named is of life 0."""

    def __len__(self) -> int:
        return len(self.start_ns)

    def to_arrow(self) -> pa.Table:
        """The spans as an Arrow table, one row each (docs/python.md, Columns of the span table).

        Raises:
            MissingExtraError: pyarrow is not installed.
        """
        from analyzers.table.arrow import span_arrow

        return span_arrow(self)

    def to_pandas(self) -> pd.DataFrame:
        """The spans as a data frame: the columns of `to_arrow`; ids stay integers, `<NA>` where a span has none.

        Raises:
            MissingExtraError: pandas or pyarrow is not installed.
        """
        return data_frame(self.to_arrow)

    @functools.cached_property
    def end_ns(self) -> Int64s:
        """Ends of the rows, in ns of each row's clock."""
        return self.start_ns + self.duration_ns

    @functools.cached_property
    def pid(self) -> Int64s:
        """The OS pid of every row; ABSENT when the file has none or a string (see `lanes`)."""
        return self._of_lane([_integer_or_absent(lane.pid) for lane in self.lanes])

    @functools.cached_property
    def tid(self) -> Int64s:
        """The thread id of every row; ABSENT as for `pid`."""
        return self._of_lane([_integer_or_absent(lane.tid) for lane in self.lanes])

    @property
    def logical_device(self) -> Codes:
        """The logical device of every row's process; ABSENT where nothing names it."""
        return self._device_column([device.logical for device in self._lane_devices()])

    @property
    def physical_device(self) -> Codes:
        """The physical device of every row's process; ABSENT where nothing names it."""
        return self._device_column([device.physical for device in self._lane_devices()])

    def _lane_devices(self) -> list[DeviceIds]:
        return [self.devices.get(lane.process, DeviceIds()) for lane in self.lanes]

    def _device_column(self, of_lane: Sequence[int | None]) -> Codes:
        if all(device is None for device in of_lane):
            return np.broadcast_to(np.int32(ABSENT), len(self))
        known = [ABSENT if device is None else device for device in of_lane]
        return np.array([*known, ABSENT], dtype=np.int32)[self.lane]

    def _of_lane(self, values: Sequence[int]) -> Int64s:
        return np.array([*values, ABSENT], dtype=np.int64)[self.lane]

    def name_of(self, row: int) -> str:
        """The name of one row."""
        return self.names[int(self.name[row])]

    def lane_of(self, row: int) -> Lane:
        """The lane of one row."""
        return self.lanes[int(self.lane[row])]

    def hid_of(self, row: int) -> str:
        """The callable's content hash of one row, "" when it has none."""
        return self.hids[int(self.hid[row])]

    def args(self, row: int) -> dict[str, Any]:
        """Every argument the file gave for one row, ids included."""
        position = int(self.arguments[row])
        if position == ABSENT:
            return {}
        return self.argument_sources[int(self.argument_source[row])].read(position)

    def id_of(self, code: int) -> int | str | None:
        """An id as its file has it; None where there is none."""
        return None if code == ABSENT else self.id_texts.get(code, code)

    def iter_names(self) -> Iterator[str]:
        """The name of every row, in row order."""
        labels = self.names
        return (labels[code] for code in self.name.tolist())

    def where_name(self, accepts: Callable[[str], bool]) -> Mask:
        """Rows whose name `accepts`; the predicate runs once per distinct name."""
        accepted = [accepts(label) for label in self.names]
        if not any(accepted):
            return np.broadcast_to(np.False_, len(self))
        return np.array(accepted, dtype=np.bool_)[self.name]

    def named(self, *names: str) -> Mask:
        """Rows that have one of `names`."""
        wanted = frozenset(names)
        return self.where_name(wanted.__contains__)

    def select(self, rows: Mask | npt.NDArray[np.intp] | Sequence[int]) -> SpanTable:
        """The rows of a boolean mask or of an index list, in that order."""
        chosen = np.asarray(rows)
        if chosen.size == 0 and chosen.dtype != np.bool_:
            chosen = chosen.astype(np.intp)
        count = int(np.count_nonzero(chosen)) if chosen.dtype == np.bool_ else len(chosen)
        columns: dict[str, Any] = {}
        for column in _ROW_COLUMNS:
            values: npt.NDArray[Any] = getattr(self, column)
            value = constant(values)
            columns[column] = values[chosen] if value is None else np.broadcast_to(value, count)
        return dataclasses.replace(self, **columns)

    def sorted(self) -> SpanTable:
        """Rows by (start, longest first), so that a parent precedes its children on every lane."""
        return self.select(np.lexsort((-self.duration_ns, self.start_ns)))

    def with_ranks(self, rank: Int64s) -> SpanTable:
        """The same rows with another rank column."""
        return dataclasses.replace(self, rank=rank)

    def with_devices(self, devices: Mapping[Process, DeviceIds]) -> SpanTable:
        """The same rows with other devices."""
        return dataclasses.replace(self, devices=devices)

    def with_lives(self, lives: Mapping[Process, int]) -> SpanTable:
        """The same rows with other lives."""
        return dataclasses.replace(self, lives=lives)

    def with_clock(self, clock: npt.NDArray[np.int8]) -> SpanTable:
        """The same rows with another clock column."""
        return dataclasses.replace(self, clock=clock)

    def window(self, clock: Clock = Clock.HOST, rows: Mask | None = None) -> tuple[int, int] | None:
        """[first start, last end) in ns over the rows (those of a mask) of one clock; None when it has none."""
        chosen = self.clock == clock if rows is None else rows & (self.clock == clock)
        if not chosen.any():
            return None
        starts = self.start_ns[chosen]
        return int(starts.min()), int((starts + self.duration_ns[chosen]).max())


class SpanTableBuilder:
    """Collects rows, one by one or as columns; `build` makes the table."""

    def __init__(self, source: Source, ids: IdCodes | None = None) -> None:
        self._source = source
        self._codes: dict[str, dict[Any, int]] = {column: {} for column in _LABELS}
        self._rows: list[tuple[Any, ...]] = []
        self._columns = {column: GrowingColumn(_dtype(column)) for column in _ROW_COLUMNS}
        self._length = 0
        self._arguments = ArgumentList()
        self.process_names: dict[Process, str] = {}
        self.thread_names: dict[Lane, str] = {}
        self.ids = ids or IdCodes()
        """Gives ids their codes."""

    def __len__(self) -> int:
        return self._length + len(self._rows)

    def append(
        self,
        name: str,
        start_ns: int,
        duration_ns: int,
        lane: Lane,
        *,
        clock: Clock,
        category: str = "",
        hid: str = "",
        rank: int = ABSENT,
        kind: Kind = Kind.SPAN,
        failed: bool = False,
        unusable_id: bool = False,
        arguments: dict[str, Any] | None = None,
        **ids: Unpack[Ids],
    ) -> None:
        """Add one row. Every integer must fit int64 (see `as_id`); an id not given is ABSENT."""
        codes = self._codes
        self._rows.append(
            (
                _code(codes["name"], name),
                _code(codes["category"], category),
                _code(codes["hid"], hid),
                _code(codes["lane"], lane),
                start_ns,
                duration_ns,
                rank,
                int(clock),
                int(self._source),
                int(kind),
                int(failed),
                int(unusable_id),
                *[ids.get(column, ABSENT) for column in ID_COLUMNS],
                self._arguments.add(arguments) if arguments else ABSENT,
                _code(codes["argument_source"], self._arguments) if arguments else ABSENT,
            )
        )

    def codes(self, column: str, labels: Sequence[Any]) -> Codes:
        """The codes of `labels` in one of the columns of codes, for `extend`."""
        known = self._codes[column]
        return np.array([known.setdefault(label, len(known)) for label in labels], dtype=np.int32)

    def extend(self, count: int, **columns: npt.NDArray[Any] | int) -> None:
        """Add `count` rows by columns: an array, or one value for all; an id not given is ABSENT.

        `name`, `category`, `lane`, `hid` and `argument_source` are codes from `codes`.
        """
        self._flush()
        columns = {"source": int(self._source), "failed": 0, "unusable_id": 0, **columns}
        for column in _ROW_COLUMNS:
            values = np.asarray(columns.get(column, ABSENT), dtype=_dtype(column))
            self._columns[column].extend(values, count)
        self._length += count

    def build(self) -> SpanTable:
        """The table of everything added, in that order; the builder is spent."""
        self._flush()
        labels: dict[str, Any] = {
            attribute: tuple(self._codes[column]) for column, attribute in _LABELS.items()
        }
        columns: dict[str, Any] = {column: values.take() for column, values in self._columns.items()}
        return SpanTable(
            process_names=dict(self.process_names),
            thread_names=dict(self.thread_names),
            id_texts=dict(self.ids.texts),
            **labels,
            **columns,
        )

    def _flush(self) -> None:
        if not self._rows:
            return
        for column, values in zip(_ROW_COLUMNS, zip(*self._rows, strict=True), strict=True):
            self._columns[column].extend(np.array(values, dtype=_dtype(column)), len(values))
        self._length += len(self._rows)
        self._rows = []


def empty_table() -> SpanTable:
    """A table without rows."""
    return SpanTableBuilder(Source.SERVING).build()


def concatenate(tables: Iterable[SpanTable]) -> SpanTable:
    """All rows of `tables`, in order; equal labels share one code."""
    parts = list(tables)
    if not parts:
        return empty_table()
    labels: dict[str, Any] = {}
    columns: dict[str, Any] = {}
    for column, attribute in _LABELS.items():
        merged, recoded = merge_labels(
            [getattr(part, attribute) for part in parts], [getattr(part, column) for part in parts]
        )
        labels[attribute], columns[column] = merged, join(recoded, _dtype(column))
    for column in _ROW_COLUMNS:
        if column not in _LABELS:
            columns[column] = join([getattr(part, column) for part in parts], _dtype(column))
    process_names: dict[Process, str] = {}
    thread_names: dict[Lane, str] = {}
    devices: dict[Process, DeviceIds] = {}
    id_texts: dict[int, str] = {}
    lives: dict[Process, int] = {}
    for part in parts:
        id_texts.update(part.id_texts)
        process_names.update(part.process_names)
        thread_names.update(part.thread_names)
        devices.update(part.devices)
        lives.update(part.lives)
    return SpanTable(
        process_names=process_names,
        thread_names=thread_names,
        devices=devices,
        id_texts=id_texts,
        lives=lives,
        **labels,
        **columns,
    )


INT64_MAX = 2**63 - 1


def is_number(ids: Int64s) -> Mask:
    """Where a column holds ids that are integers, rather than none or the code of another value."""
    numbers: Mask = (ids != ABSENT) & (ids > FIRST_NAMED)
    return numbers


def as_id(value: object) -> int:
    """A number that counts ranks, workers or invocations: an int64, or ABSENT for anything that is no integer.

    Unsigned 64-bit ids keep their bits (the upper half becomes negative), so that distinct ids stay distinct.
    """
    if isinstance(value, bool):
        return ABSENT
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) <= 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or not -(2**63) <= value < 2**64:
        return ABSENT
    return value if value <= INT64_MAX else value - 2**64


def _code(codes: dict[Any, int], label: object) -> int:
    return codes.setdefault(label, len(codes))


def _integer_or_absent(value: int | str | None) -> int:
    return value if isinstance(value, int) and abs(value) <= INT64_MAX else ABSENT


def _dtype(column: str) -> type[np.generic]:
    if column in _LABELS:
        return np.int32
    if column in ("clock", "source", "kind", "failed", "unusable_id"):
        return np.int8
    return np.int64
