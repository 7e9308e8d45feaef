"""What a client may ask of sampling."""

from __future__ import annotations

import math

from dsv4bench.engine.requests import Sampling
from dsv4bench.errors import UsageError
from dsv4bench.worker.task_args import MAX_SEED


def check_sampling(request_id: str, sampling: Sampling) -> None:
    """Refuse parameters that no token can be drawn with (their meaning: `worker.sampling.choose`).

    Raises:
        UsageError: names the request, the parameter, its value and what is possible.
    """
    checks = (
        (
            "temperature",
            sampling.temperature,
            math.isfinite(sampling.temperature) and sampling.temperature >= 0,
            "a number of at least 0 (0: greedy)",
        ),
        (
            "top_k",
            sampling.top_k,
            isinstance(sampling.top_k, int) and sampling.top_k >= 0,
            "a whole number of at least 0 (0: all tokens)",
        ),
        ("top_p", sampling.top_p, 0 < sampling.top_p <= 1, "more than 0 and at most 1 (1: all tokens)"),
        (
            "seed",
            sampling.seed,
            isinstance(sampling.seed, int) and 0 <= sampling.seed <= MAX_SEED,
            f"a whole number within 0..{MAX_SEED}",
        ),
    )
    for name, value, possible, wanted in checks:
        if not possible:
            raise UsageError(f"request {request_id}: {name} must be {wanted}, got {value}")
