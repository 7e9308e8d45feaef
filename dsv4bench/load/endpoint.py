"""How requests are put to a server: where, under which names, and what governs each field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

API_KEY_VARIABLE = "DSV4BENCH_API_KEY"


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible endpoint. `fields` go into the body of every request; a server that refuses one of them
    refuses the request, and the error names `governed_by[name]`, the key of the server kind that put it there.
    """

    url: str
    """Scheme, host and port, without a path."""
    model: str
    api: Literal["completions", "chat"] = "completions"
    path: str = "/v1/completions"
    prompt_as: Literal["token_ids", "text"] = "text"
    length_fields: tuple[str, ...] = ("max_tokens",)
    """Fields that get the number of output tokens, e.g. `max_tokens` and `min_tokens`. A dotted name
    (`generation_config.max_new_tokens`) is a key of a JSON string in the field before the dot."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of every request, e.g. `ignore_eos`; a table is sent as an object, dotted names as in `length_fields`."""
    sampling_fields: frozenset[str] = frozenset({"temperature", "top_p", "top_k", "seed"})
    """The fields of sampling that the server knows; the others are not sent."""
    stream_usage: bool = True
    """Whether `stream_options.include_usage` is asked for."""
    return_token_ids: bool = False
    """Whether token ids are asked for beside the text (`return_token_ids`, as vLLM has it)."""
    api_key: str | None = None
    governed_by: Mapping[str, str] = field(default_factory=dict)
