"""Faults that a run can be told to inject: their record, their notation, and what makes one impossible."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Literal, cast, get_args

import msgspec

from dsv4bench.errors import UsageError

FaultKind = Literal[
    "kill", "hang", "raise", "slow", "drop-strace", "torn-strace", "serialise", "spoil-drafts"
]
Rotating = Literal["rotate"]

KINDS: tuple[FaultKind, ...] = get_args(FaultKind)
ROTATE: Rotating = "rotate"
_KEYS = ("rank", "step", "kind")
_EXAMPLE = "write for example rank=3,step=40,kind=kill"
_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)%", re.ASCII)
_SHARE = re.compile(r"0?\.\d+|1(?:\.0*)?", re.ASCII)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|us|s)", re.ASCII)
_NS = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_STRACE_KINDS = ("drop-strace", "torn-strace")
_OF_ALL_STEPS = ("slow",)
_OF_THE_ENGINE = ("serialise", "spoil-drafts")


class Fault(msgspec.Struct, frozen=True):
    """One fault of a rank, of the ranks in turn, or of the engine.

    `rank` is `rotate` for a slow rank that is another one at every step, and None for a fault of the engine. `step`
    counts the decode steps of the measured batch from 0; None, which `slow` may be and those of the engine must be, is
    every one of them. A slow runner sleeps `delay_ns`, or computes longer by `share` of its own processor time. `share`
    of the drafts are spoilt.
    """

    rank: int | Rotating | None
    kind: FaultKind
    step: int | None = None
    delay_ns: int = 0
    share: float = 0.0

    def __str__(self) -> str:
        """The fault in the notation that `parse_fault` reads."""
        rank = "" if self.rank is None else f"rank={self.rank},"
        step = "" if self.step is None else f"step={self.step},"
        amount = ""
        if self.kind == "slow":
            amount = f":{100 * self.share:g}%" if self.share else f":{self.delay_ns / _NS['ms']:g}ms"
        elif self.kind == "spoil-drafts":
            amount = f":{self.share:g}"
        return f"{rank}{step}kind={self.kind}{amount}"

    def rank_at(self, step: int, ranks: int) -> int | None:
        """The rank that suffers it at a decode step of a run with `ranks` ranks; None for a fault of the engine."""
        return step % ranks if self.rank == ROTATE else self.rank


def parse_fault(text: str) -> Fault:
    """Read `rank=R,step=N,kind=KIND`, the parts in any order; which of them a kind takes: docs/faults.md.

    Raises:
        UsageError: quotes the text, and says what is wrong with it and what is possible.
    """
    source = f"--fault {text!r}"
    parts = _parts(source, text)
    if "kind" not in parts:
        raise UsageError(f"{source}: kind is missing; {_EXAMPLE}")
    kind, delay_ns, share = _kind(source, parts["kind"])
    if kind in _OF_THE_ENGINE:
        for key in ("rank", "step"):
            if key in parts:
                raise UsageError(
                    f"{source}: {kind} takes no {key}: it is a fault of the engine and holds for all steps; write "
                    f"kind={parts['kind']}"
                )
        return Fault(None, kind, share=share)
    if "rank" not in parts:
        raise UsageError(f"{source}: rank is missing; {_EXAMPLE}")
    if parts["rank"] == ROTATE:
        if kind != "slow" or "step" in parts:
            what = "step" if kind == "slow" else kind
            raise UsageError(
                f"{source}: rank=rotate moves on at every step and goes with slow alone, without a step; got {what}; "
                "write for example rank=rotate,kind=slow:20ms"
            )
        return Fault(ROTATE, kind, None, delay_ns, share)
    if kind not in _OF_ALL_STEPS and "step" not in parts:
        raise UsageError(f"{source}: {kind} needs a step; only slow can hold for all steps; {_EXAMPLE}")
    step = _whole_number(source, "step", parts["step"]) if "step" in parts else None
    rank = _whole_number(source, "rank", parts["rank"], also=f", or {ROTATE}" if kind == "slow" else "")
    return Fault(rank, kind, step, delay_ns, share)


def check_faults(faults: Sequence[Fault], *, ranks: int, depth: int, mtp: int, strace: bool) -> None:
    """Refuse faults that cannot happen in a run.

    Raises:
        UsageError: a rank that the run does not have; a pipeline of depth one to serialise; drafts to spoil in a run
            without any; a fault in STRACE records that are not written.
    """
    for fault in faults:
        if isinstance(fault.rank, int) and fault.rank >= ranks:
            raise UsageError(
                f"--fault {str(fault)!r}: this run has ranks 0..{ranks - 1}, no rank {fault.rank}"
            )
        if fault.rank == ROTATE and ranks < 2:
            raise UsageError(f"--fault {str(fault)!r}: this run has one rank, so that none can take turns")
        if fault.kind == "serialise" and depth < 2:
            raise UsageError(
                f"--fault {str(fault)!r}: this run has one step in flight at a time; use engine.depth=2"
            )
        if fault.kind == "spoil-drafts" and mtp == 0:
            raise UsageError(f"--fault {str(fault)!r}: this run drafts nothing; use engine.mtp=1 or more")
        if fault.kind in _STRACE_KINDS and not strace:
            raise UsageError(
                f"--fault {str(fault)!r}: no STRACE records are written in this run; leave out --no-trace and "
                "trace.strace=false"
            )


def _parts(source: str, text: str) -> dict[str, str]:
    """The values of `text` by key, each key known and given once."""
    parts: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (equals and value):
            raise UsageError(f"{source}: {part.strip()!r} is no key=value; {_EXAMPLE}")
        if key not in _KEYS:
            raise UsageError(
                f"{source}: unknown key {key!r}{_nearest(key, _KEYS)}; known: {', '.join(_KEYS)}"
            )
        if key in parts:
            raise UsageError(f"{source}: {key} is given twice")
        parts[key] = value
    return parts


def _kind(source: str, text: str) -> tuple[FaultKind, int, float]:
    """The kind, the delay in ns of a slow one, and the share: of a slow runner's own time, or of drafts to spoil."""
    name, colon, amount = text.partition(":")
    if name not in KINDS:
        raise UsageError(
            f"{source}: unknown kind {name!r}{_nearest(name, KINDS)}; known: kill, hang, raise, slow:<duration>, "
            "drop-strace, torn-strace, serialise, spoil-drafts:<share>"
        )
    if name == "slow":
        return name, *_delay(source, amount)
    if name == "spoil-drafts":
        share = float(amount) if _SHARE.fullmatch(amount) else 0.0
        if share == 0:
            raise UsageError(
                f"{source}: spoil-drafts needs a share of the drafts, above 0 and at most 1, as in "
                f"kind=spoil-drafts:0.5; got {amount!r}"
            )
        return name, 0, share
    if colon:
        raise UsageError(f"{source}: {name} takes no duration; only slow does, as in kind=slow:20ms")
    return cast(FaultKind, name), 0, 0.0


def _delay(source: str, amount: str) -> tuple[int, float]:
    """How much longer a slow runner takes: in ns, or as a share of its own time."""
    if match := _DURATION.fullmatch(amount):
        delay_ns, share = round(float(match[1]) * _NS[match[2]]), 0.0
    else:
        percentage = _PERCENTAGE.fullmatch(amount)
        delay_ns, share = 0, float(percentage[1]) / 100 if percentage else 0.0
    if not (delay_ns or share):
        raise UsageError(
            f"{source}: slow needs a duration above 0 in us, ms or s, as in kind=slow:20ms, or a share of the runner's "
            f"own time, as in kind=slow:10%; got {amount!r}"
        )
    return delay_ns, share


def _whole_number(source: str, key: str, text: str, also: str = "") -> int:
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"{source}: {key} = {text!r}: expected a whole number of at least 0{also}")
    return int(text)


def _nearest(name: str, known: Sequence[str]) -> str:
    matches = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""
