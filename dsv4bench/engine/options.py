"""How the engine is run, and what cannot be run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dsv4bench.engine.reach import reachable_headroom, rows_per_rank
from dsv4bench.errors import UsageError
from dsv4bench.model.config import ModelConfig
from dsv4bench.worker.program_specs import MAX_SPECULATIVE_TOKENS


@dataclass(frozen=True)
class EngineOptions:
    """How to run the engine. Lengths in tokens, times in seconds; `depth` is how many steps may be in flight.

    `pages` bounds the cache pages of a rank, per cache group; by default nobody runs out. `max_restarts` is how often
    the engine may go on with new ranks after a failure; the requests that were running start again behind what they
    had published. 0 stops at the first failure. `prefix_reuse` keeps the cache pages of prompts for requests that begin
    with the same tokens; `prefix_snapshots` is how many places a rank keeps where such a request can begin.
    """

    config: ModelConfig
    checkpoint: Path
    ranks: int = 8
    requests_per_rank: int = 4
    depth: int = 2
    speculative_tokens: int = 1
    max_model_len: int = 512
    prefill_tokens: int = 1024
    exchange: Literal["shared-memory", "torch-distributed"] = "shared-memory"
    dispatch_timeout_s: float = 60.0
    pages: tuple[int, ...] | None = None
    program_cache: Path | None = None
    max_restarts: int = 0
    prefix_reuse: bool = False
    prefix_snapshots: int = 16
    rank_logs: tuple[Path, ...] = ()
    server_log: Path | None = None


def check_options(options: EngineOptions) -> None:
    """Refuse what cannot run, before anything is started.

    Raises:
        UsageError: names the option, its value and what is possible.
    """
    experts = options.config.n_routed_experts
    if options.ranks < 1 or experts % options.ranks:
        possible = [ranks for ranks in range(1, experts + 1) if experts % ranks == 0]
        raise UsageError(
            f"{options.ranks} ranks cannot share {experts} experts evenly; possible numbers of ranks: "
            f"{', '.join(map(str, possible))}"
        )
    if options.depth not in (1, 2):
        raise UsageError(f"depth must be 1 or 2, got {options.depth}")
    if not 0 <= options.speculative_tokens <= MAX_SPECULATIVE_TOKENS:
        raise UsageError(
            f"the number of speculative tokens must be 0..{MAX_SPECULATIVE_TOKENS}, got {options.speculative_tokens}"
        )
    longest = options.config.max_position_embeddings - reachable_headroom(options.speculative_tokens)
    if not 2 <= options.max_model_len <= longest:
        raise UsageError(
            f"max_model_len must be 2..{longest} for this model (its {options.config.max_position_embeddings} positions "
            f"less what speculation may reach beyond a request), got {options.max_model_len}"
        )
    most = rows_per_rank(options.speculative_tokens)
    if not 1 <= options.requests_per_rank <= most:
        raise UsageError(
            f"requests_per_rank must be 1..{most} with {options.speculative_tokens} speculative tokens (a tile has 16 "
            f"rows), got {options.requests_per_rank}"
        )
    if options.prefix_snapshots < 1:
        raise UsageError(f"prefix_snapshots must be at least 1, got {options.prefix_snapshots}")
    if options.max_restarts < 0:
        raise UsageError(f"max_restarts must not be negative, got {options.max_restarts}")
