"""The load of a profile on the embedded engine: its requests as the engine takes them."""

from __future__ import annotations

import math

from dsv4bench.engine.requests import Request, Sampling
from dsv4bench.load.requests import LoadRequest
from dsv4bench.profile import Profile
from dsv4bench.worker.task_args import NO_OVERRIDE, SPOILT

_GOLDEN = (math.sqrt(5) - 1) / 2


def engine_request(profile: Profile, request: LoadRequest, *, spoilt_share: float = 0.0) -> Request:
    """A request of the load as the engine takes it; `spoilt_share` of its drafts are made wrong."""
    load = profile.load
    return Request(
        request.request_id,
        request.prompt.token_ids,
        request.output_tokens,
        load.ignore_eos,
        Sampling(load.temperature, load.top_k, load.top_p, load.seed),
        spoilt_drafts(spoilt_share, profile.engine.max_model_len) if spoilt_share else None,
    )


def spoilt_drafts(share: float, positions: int) -> list[int]:
    """Which positions of a request get a wrong draft, as its `injected_drafts`: always the same ones.

    They follow the golden ratio, so that of every second, third, ... position as large a share is spoilt: an accepted
    draft leaves a position out.
    """
    return [SPOILT if position * _GOLDEN % 1 < share else NO_OVERRIDE for position in range(positions)]
