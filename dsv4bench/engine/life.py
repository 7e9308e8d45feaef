"""One life of the ranks: the worker, what it holds on the devices, and the lanes that use it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dsv4bench.cache.allocator import pages_for
from dsv4bench.cache.layout import CacheGroup, CacheLayout
from dsv4bench.engine.lanes import Lanes
from dsv4bench.engine.options import EngineOptions
from dsv4bench.engine.runner import ModelRunner
from dsv4bench.engine.steps import Outcome
from dsv4bench.tracing.append import write_lines
from dsv4bench.tracing.recorder import Recorder
from dsv4bench.worker.messages import ProgramSpec
from dsv4bench.worker.program_cache import ProgramCache
from dsv4bench.worker.program_specs import SETUP, ProgramsSetup
from dsv4bench.worker.signatures import ProgramSizes
from dsv4bench.worker.task_args import PREFILL_TILE
from dsv4bench.worker.torch_worker import TorchWorker, WorkerOptions

_FLOAT_BYTES = 4


class EngineLife:
    """Ranks, device memory, slots and lanes. Nothing of it outlives the ranks: a restart makes all of it anew."""

    def __init__(
        self,
        options: EngineOptions,
        layout: CacheLayout,
        recorder: Recorder,
        deliver: Callable[[Outcome], None],
    ) -> None:
        """Start the ranks; returns when every one is ready.

        Raises:
            RankError: a rank did not start; nothing is left behind.
        """
        self.program_cache = ProgramCache(options.program_cache)
        programs = self.program_cache.programs(options.config, _program_sizes(options, layout))
        lines = "".join(f"{line}\n" for line in self.program_cache.log)
        if options.server_log is not None:
            with options.server_log.open("a", encoding="utf-8") as log:
                log.write(lines)
        if options.log_to_stderr:
            write_lines(2, lines.encode())
        self.worker = TorchWorker(_worker_options(options, layout, programs))
        try:
            runner = ModelRunner(
                self.worker,
                options.config,
                layout,
                recorder,
                requests_per_rank=options.requests_per_rank,
                pages=pages_of(options, layout),
                prefill_tokens=options.prefill_tokens,
                speculative_tokens=options.mtp,
            )
        except BaseException:
            self.worker.close()
            raise
        self.lanes = Lanes(runner, recorder, deliver, serialised=lambda: self.worker.faults.serialises)

    def close(self) -> None:
        """Let the steps on the way come out and end everything."""
        self.lanes.close()
        self.worker.close()


def pages_of(options: EngineOptions, layout: CacheLayout) -> tuple[int, ...]:
    """Cache pages of a rank, per group."""
    return options.pages or pages_for(layout, options.requests_per_rank)


def _program_sizes(options: EngineOptions, layout: CacheLayout) -> ProgramSizes:
    return ProgramSizes(
        ranks=options.ranks,
        rows=options.requests_per_rank,
        speculative_tokens=options.mtp,
        max_positions=layout.max_model_len,
        prefill_tokens=options.prefill_tokens,
        pages=pages_of(options, layout),
    )


def _worker_options(
    options: EngineOptions, layout: CacheLayout, programs: tuple[ProgramSpec, ...]
) -> WorkerOptions:
    setup = ProgramsSetup(options.config, str(options.checkpoint))
    return WorkerOptions(
        ranks=options.ranks,
        setup=SETUP,
        setup_argument=msgspec.msgpack.encode(setup),
        programs=programs,
        exchange=options.exchange,
        host_bytes=_host_bytes(options, layout),
        device_bytes=_device_bytes(options, layout),
        exchange_bytes=_exchange_bytes(options),
        dispatch_timeout_s=options.dispatch_timeout_s,
        rank_logs=options.rank_logs,
        server_log=options.server_log,
        log_to_stderr=options.log_to_stderr,
    )


# The regions are sparse: a generous size costs nothing until it is used.


def _host_bytes(options: EngineOptions, layout: CacheLayout) -> int:
    tables = sum(group.table_width for group in layout.groups)
    row = 8 * (tables + 64) * options.requests_per_rank + 24 * options.prefill_tokens
    mtp_rows = 24 * options.requests_per_rank * PREFILL_TILE
    return 4 * options.ranks * (row + mtp_rows) + (16 << 20)


def _device_bytes(options: EngineOptions, layout: CacheLayout) -> int:
    pools = 0
    for group, pages in zip(layout.groups, pages_of(options, layout), strict=True):
        layers, _, rows, width = group.pool_shape(pages)
        if group.group is CacheGroup.ORI:
            layers += layout.mtp_layers
        pools += layers * pages * rows * width * _FLOAT_BYTES
    streams = options.config.hc_mult * options.config.hidden_size * _FLOAT_BYTES
    state = options.requests_per_rank * ((PREFILL_TILE + 1) * streams + 8 * layout.max_model_len)
    return _round_to_page(2 * (pools + state) + (16 << 20))


def _exchange_bytes(options: EngineOptions) -> int:
    """Two areas a rank, each large enough for the rows that all ranks' tiles can send to one rank."""
    config = options.config
    rows = options.ranks * PREFILL_TILE * config.num_experts_per_tok
    area = rows * (config.hidden_size + 8) * _FLOAT_BYTES + 4096
    return _round_to_page(2 * options.ranks * area + 4096)


def _round_to_page(nbytes: int) -> int:
    return -(-nbytes // 4096) * 4096
