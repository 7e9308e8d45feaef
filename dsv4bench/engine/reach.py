"""How far a request reaches: positions that pages, tables and decode tiles must have room for.

K is the number of speculative tokens, T the last position fed to the main model; a request that has published a token
has published the one at T + 1 (docs/model.md, MTP decode). At most two steps are in flight.
"""

from __future__ import annotations

from dsv4bench.engine.requests import ActiveRequest, Request, RequestHandle
from dsv4bench.errors import UsageError

DECODE_TILE = 16
"""Rows of a rank's decode tile: one a token that is verified, so K + 1 a request (docs/engine.md, Scheduling)."""


def step_positions(speculative_tokens: int) -> int:
    """Positions behind T that a decode step can write.

    The main rows are T + 1 .. T + 1 + K. If all drafts are right, recurrent drafting feeds the MTP layer K - 1
    positions more.
    """
    return max(speculative_tokens + 1, 2 * speculative_tokens)


def first_length(handle: RequestHandle, speculative_tokens: int) -> int:
    """Positions that a request needs to be prefilled and enter its first decode step."""
    return len(handle.request.prompt_token_ids) + len(handle.token_ids) + step_positions(speculative_tokens)


def next_length(request: ActiveRequest, speculative_tokens: int) -> int:
    """Positions that a decoding request needs to enter one more step.

    How far its pending steps got is not known yet: each may have moved on by K + 1.
    """
    published = len(request.request.prompt_token_ids) + len(request.handle.token_ids)
    last_fed = published - 2 + request.pending_steps * (speculative_tokens + 1)
    return last_fed + step_positions(speculative_tokens) + 1


def full_length(request: Request, speculative_tokens: int) -> int:
    """Positions that a request can need at most."""
    return len(request.prompt_token_ids) + request.max_tokens + reachable_headroom(speculative_tokens)


def reachable_headroom(speculative_tokens: int) -> int:
    """Positions that a request can reach beyond prompt + max_tokens.

    The step that ends a request may commit K tokens too many, and the step behind it, already in flight, goes K + 1
    positions further and looks up K drafts beyond its own.
    """
    return 3 * speculative_tokens + 3


def rows_per_rank(speculative_tokens: int) -> int:
    """How many requests a rank can decode at once: 8 up to K = 1, 4 up to K = 3, 2 up to K = 7.

    Each takes K + 1 rows of the 16-row decode tile, and batches are powers of two: 64, 32 and 16 requests on 8 ranks.
    K = 0 has the batch of K = 1, so that runs with and without speculation compare.

    Raises:
        UsageError: not even two requests fit.
    """
    most = DECODE_TILE // 2 - 1
    if not 0 <= speculative_tokens <= most:
        raise UsageError(
            f"the number of speculative tokens must be 0..{most}, got {speculative_tokens}: "
            f"two requests must fit a tile of {DECODE_TILE} rows"
        )
    return 8 if speculative_tokens <= 1 else 4 if speculative_tokens <= 3 else 2
