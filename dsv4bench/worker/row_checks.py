"""Range checks of local rows, made before a length is derived from a row or anything is written.

See docs/engine.md, Preparing a step. The engine's packers and the ranks' programs share them; both see numpy arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsv4bench.worker.task_args import (
    TAIL_PLACEHOLDER,
    DecodeArgs,
    MtpPrefillArgs,
    PrefillArgs,
    Tables,
    values,
)

Integers = NDArray[Any]

GROUPS = tuple(field.name for field in fields(Tables))[:-1]
"""The cache groups' names, in the order of the columns of `Tables.block_counts`."""

_ANY = np.iinfo(np.int64).max


@dataclass(frozen=True)
class RowLimits:
    """What the rows of a rank may name: one less than each of these, `pages` per cache group."""

    state_slots: int
    positions: int
    vocab: int
    pages: tuple[int, ...]


def check_range(
    rank: int, field: str, found: Integers, low: int, high: int, rows: Sequence[int] | Integers | None = None
) -> None:
    """Refuse values outside low..high; `found` is [rows, ...], and `rows` are the rows' numbers if not 0, 1, 2, ...

    Raises:
        ValueError: names rank, row, field, value and the allowed range, for the first one outside.
    """
    outside = (found < low) | (found > high)
    if outside.any():
        place = tuple(np.argwhere(outside)[0])
        row = place[0] if rows is None else rows[place[0]]
        allowed = f"at least {low}" if high == _ANY else f"in {low}..{high}"
        raise ValueError(f"rank {rank}, row {row}: {field} is {found[place]}, must be {allowed}")


def check_count(rank: int, field: str, count: int, high: int) -> None:
    """Refuse a number of rows outside 0..high.

    Raises:
        ValueError: names rank, field, value and the allowed range.
    """
    if not 0 <= count <= high:
        raise ValueError(f"rank {rank}: {field} is {count}, must be in 0..{high}")


def check_owners(
    rank: int,
    state_slots: Integers,
    generations: Integers | None,
    count: int,
    rows: Sequence[int] | Integers | None = None,
) -> None:
    """Refuse state slots outside 0..count - 1, and generations that no allocation has.

    Raises:
        ValueError: see `check_range`.
    """
    check_range(rank, "state_slots", state_slots, 0, count - 1, rows)
    if generations is not None:
        check_range(rank, "generations", generations, 1, _ANY, rows)


def check_pages(
    rank: int,
    field: str,
    ids: Integers,
    counts: Integers,
    width: int,
    pages: int,
    rows: Sequence[int] | Integers,
) -> None:
    """Refuse block tables with a count outside 1..width, a page that the pool does not have, or one page twice.

    `ids` is [N, W], of which row i's first `counts[i]` count; `rows` are the N rows' numbers.

    Raises:
        ValueError: names rank, row, field, value and what is allowed.
    """
    check_range(rank, f"block_counts of {field}", counts, 1, width, rows)
    places = np.arange(ids.shape[1])
    used = places < counts[:, None]
    check_range(rank, field, np.where(used, ids, 0), 0, pages - 1, rows)
    # Places that do not count get values of their own, which no page has.
    ordered = np.sort(np.where(used, ids, -1 - places), axis=1)
    repeated = np.argwhere(ordered[:, 1:] == ordered[:, :-1])
    if len(repeated):
        row, place = repeated[0]
        raise ValueError(
            f"rank {rank}, row {rows[row]}: {field} names page {ordered[row, place]} twice, "
            f"must be {counts[row]} different pages in 0..{pages - 1}"
        )


class ProgramChecks:
    """The checks of one rank's programs: each looks at that rank's rows of host arrays, and changes nothing."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._known: dict[int, bytes] = {}

    def decode(self, args: DecodeArgs[Integers], tables: Tables[Integers], limits: RowLimits) -> None:
        """Check a decode dispatch.

        Raises:
            ValueError: names what is out of range.
        """
        rank = self._rank
        count = int(args.row_counts[rank])
        check_count(rank, "row_counts", count, args.state_slots.shape[1])
        check_owners(rank, args.state_slots[rank, :count], args.generations[rank, :count], limits.state_slots)
        self._check_tables(np.arange(count), tables, limits)

    def prefill(self, args: PrefillArgs[Integers], tables: Tables[Integers], limits: RowLimits) -> None:
        """Check a prefill dispatch; raises like `decode`."""
        rank = self._rank
        count, requests = int(args.row_counts[rank]), int(args.request_counts[rank])
        check_count(rank, "row_counts", count, args.token_ids.shape[1])
        check_count(rank, "request_counts", requests, args.state_slots.shape[1])
        check_range(rank, "sequences", args.sequences[rank, :count], 0, requests - 1)
        check_range(rank, "positions", args.positions[rank, :count], 0, limits.positions - 1)
        check_range(rank, "token_ids", args.token_ids[rank, :count], 0, limits.vocab - 1)
        check_range(rank, "lengths", args.lengths[rank, :requests], 0, limits.positions - 1)
        owners = args.state_slots[rank, :requests], args.generations[rank, :requests]
        check_owners(rank, *owners, limits.state_slots)
        self._check_tables(np.arange(requests), tables, limits)

    def mtp_prefill(
        self, args: MtpPrefillArgs[Integers], tables: Tables[Integers], limits: RowLimits
    ) -> None:
        """Check an MTP prefill dispatch; raises like `decode`."""
        rank = self._rank
        count = int(args.row_counts[rank])
        check_count(rank, "row_counts", count, args.next_token_ids.shape[1])
        sequences = args.sequences[rank, :count]
        check_range(rank, "sequences", sequences, 0, args.state_slots.shape[1] - 1)
        check_range(rank, "positions", args.positions[rank, :count], 0, limits.positions - 1)
        next_ids = args.next_token_ids[rank, :count]
        check_range(rank, "next_token_ids", next_ids, TAIL_PLACEHOLDER, limits.vocab - 1)
        check_range(rank, "last_rows", args.last_rows[rank], -1, count - 1)
        requests = np.unique(np.concatenate((sequences, np.flatnonzero(args.last_rows[rank] >= 0))))
        check_owners(rank, args.state_slots[rank, requests], None, limits.state_slots, requests)
        self._check_tables(requests, tables, limits)

    def _check_tables(self, rows: Integers, tables: Tables[Integers], limits: RowLimits) -> None:
        """Check the tables of `rows`, unless the same rows of these arrays had the same content before."""
        *groups, counts = (array[self._rank, rows] for array in values(tables))
        arrays = tables.block_counts.ctypes.data
        content = b"".join(array.tobytes() for array in (rows, counts, *groups))
        if self._known.get(arrays) == content:
            return
        for column, (field, ids) in enumerate(zip(GROUPS, groups, strict=True)):
            check_pages(self._rank, field, ids, counts[:, column], ids.shape[1], limits.pages[column], rows)
        self._known[arrays] = content
