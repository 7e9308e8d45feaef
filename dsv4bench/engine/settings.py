"""The settings of an engine: the keys of a profile's `[engine]` table, defined here for the file and the engine alike.

A new key is a new field. Imports nothing but the records' library: `dsv4bench profiles` reads them without torch.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec


class EngineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[engine]`: ranks, pipeline depth, batch and lengths. Lengths in tokens, times in seconds."""

    backend: Literal["torch"] = "torch"
    ranks: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    depth: Annotated[int, msgspec.Meta(ge=1, le=2)] = 2
    """Dispatches in flight."""
    mtp: Annotated[int, msgspec.Meta(ge=0, le=7)] = 1
    """Speculative tokens a step."""
    requests_per_rank: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    """Rows of a rank's decode batch."""
    max_model_len: Annotated[int, msgspec.Meta(ge=2, le=1_048_576)] = 512
    """Most tokens of one request, prompt and output together."""
    prefill_tokens: Annotated[int, msgspec.Meta(ge=1, le=8192)] = 1024
    """Most prompt tokens of a rank in one prefill step."""
    exchange: Literal["shared-memory", "torch-distributed"] = "shared-memory"
    dispatch_timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    max_restarts: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How often the engine may go on with new ranks after a failure. The requests that were running start again behind
    what they had published; 0 stops at the first failure."""
    prefix_reuse: bool = False
    """Whether requests share the cache pages of prompts that begin with the same tokens."""
    prefix_snapshots: Annotated[int, msgspec.Meta(ge=1)] = 16
    """Places a rank keeps where a request can begin behind a shared prefix."""
