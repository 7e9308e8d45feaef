"""How the engine is run, and what cannot be run."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dsv4bench.engine.reach import reachable_headroom, rows_per_rank
from dsv4bench.engine.settings import EngineSettings
from dsv4bench.errors import UsageError
from dsv4bench.model.config import ModelConfig


class EngineOptions(EngineSettings, frozen=True):
    """How to run the engine: its settings, the model, and where things lie.

    `pages` bounds the cache pages of a rank, per cache group; by default nobody runs out. `log_to_stderr` writes to the
    process's stderr, whole lines, what `server_log` would get.
    """

    config: ModelConfig
    checkpoint: Path
    pages: tuple[int, ...] | None = None
    program_cache: Path | None = None
    rank_logs: tuple[Path, ...] = ()
    server_log: Path | None = None
    log_to_stderr: bool = False


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
    longest = options.config.max_position_embeddings - reachable_headroom(options.mtp)
    if not 2 <= options.max_model_len <= longest:
        raise UsageError(
            f"max_model_len must be 2..{longest} for this model (its {options.config.max_position_embeddings} positions "
            f"less what speculation may reach beyond a request), got {options.max_model_len}"
        )
    most = rows_per_rank(options.mtp)
    if not 1 <= options.requests_per_rank <= most:
        raise UsageError(
            f"requests_per_rank must be 1..{most} with {options.mtp} speculative tokens (a tile has 16 "
            f"rows), got {options.requests_per_rank}"
        )
    for field in msgspec.structs.fields(EngineSettings):
        value = getattr(options, field.name)
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            raise UsageError(f"{field.name} = {value!r}: {error}") from error
