"""Programs that compute nothing and report plausible outputs: what is left of a step is the host's time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsv4bench.worker.rank import RankContext
from dsv4bench.worker.task_args import ArgumentReader, DecodeArgs, PrefillArgs


class HostTimePrograms:
    def __init__(self, context: RankContext) -> None:
        self.rank = context.rank

    def prefill(self, *arguments: Any) -> None:
        args = ArgumentReader(arguments).take(PrefillArgs)
        args.sampled_ids[self.rank] = 7

    def mtp_prefill(self, *arguments: Any) -> None: ...

    def decode(self, *arguments: Any) -> None:
        args = ArgumentReader(arguments).take(DecodeArgs)
        args.sampled_ids[self.rank] = 7
        args.accepted_counts[self.rank] = 1
        args.echoed_step_ids[self.rank] = args.step_id[0]


def setup(argument: bytes) -> Callable[[RankContext], HostTimePrograms]:
    del argument
    return HostTimePrograms
