"""The fields of a request: what each may hold, and which are known but not supported. Nothing is ignored in silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from dsv4bench.serving.chat import Message
from dsv4bench.serving.errors import ApiError
from dsv4bench.worker.task_args import MAX_SEED

_Positive = Annotated[int, msgspec.Meta(ge=1)]
_Natural = Annotated[int, msgspec.Meta(ge=0)]
_StopText = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
_Stops = Annotated[list[_StopText], msgspec.Meta(max_length=16)]
_TokenIds = Annotated[list[int], msgspec.Meta(min_length=1)]
Effort = Literal["none", "minimal", "low", "medium", "high"]


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`stream_options`; the last event has the usage whether or not it is asked for."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationFields(msgspec.Struct, frozen=True, kw_only=True):
    """What completions and chat have in common."""

    model: str | None = None
    max_tokens: _Positive | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=0, le=MAX_SEED)] | None = None
    stop: _StopText | _Stops | None = None
    min_tokens: _Natural | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    skip_special_tokens: bool | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None


class CompletionFields(GenerationFields, frozen=True, kw_only=True):
    """The body of POST /v1/completions. A list as `prompt` is token ids, or holds one prompt."""

    prompt: str | list[Any]


class ChatTemplateOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`chat_template_kwargs`: whether the model reasons first, and whether earlier reasoning is left out."""

    thinking: bool | None = None
    enable_thinking: bool | None = None
    drop_thinking: bool | None = None


class ChatFields(GenerationFields, frozen=True, kw_only=True):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[Message], msgspec.Meta(min_length=1)]
    max_completion_tokens: _Positive | None = None
    reasoning_effort: Effort | None = None
    include_reasoning: bool | None = None
    chat_template_kwargs: ChatTemplateOptions | None = None


_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "min_p": (0,),
    "logit_bias": ({},),
    "stop_token_ids": ([],),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "include_stop_str_in_output": (False,),
    "spaces_between_special_tokens": (True,),
    "add_special_tokens": (False, True),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "chat_template": (),
    "documents": ([],),
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
    "web_search_options": (),
    "lora_request": (),
    "kv_transfer_params": (),
    "priority": (0,),
    "return_tokens_as_token_ids": (False,),
}
"""Fields of OpenAI's and vLLM's requests that are not supported, with the values that change nothing."""

_Fields = TypeVar("_Fields", bound=GenerationFields)


def parse_body(body: bytes, record: type[_Fields]) -> tuple[_Fields, list[str]]:
    """Read a request; returns it with the names of fields that nobody knows, which change nothing.

    Raises:
        ApiError: 400 that names the field, its value and what is allowed.
    """
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise ApiError(400, f"the body is not valid JSON: {error}") from error
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is not valid JSON: it is no UTF-8 ({error.reason})") from error
    if not isinstance(document, dict):
        raise ApiError(400, "the body must be a JSON object")
    known = set(record.__struct_fields__)
    unknown = []
    for name, value in document.items():
        if name in known:
            continue
        if name in _NEUTRAL:
            _check_neutral(name, value)
        else:
            unknown.append(name)
    try:
        return msgspec.convert(document, record), unknown
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        field = path.strip("`.")
        where = f"{field}: " if field else ""
        raise ApiError(400, f"{where}{text}", field.partition(".")[0].partition("[")[0] or None) from error


def check_model(fields: GenerationFields, served: str) -> None:
    """Raises ApiError (404) for another model than the one that is served; a request need not name it."""
    if fields.model not in (None, "", served):
        raise ApiError(404, f"model: there is no {fields.model!r} here; this server has {served!r}", "model")


def _check_neutral(name: str, value: Any) -> None:
    allowed = _NEUTRAL[name]
    # True equals 1 in Python, and is something else in JSON.
    if value is None or any(
        value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed
    ):
        return
    values = ", ".join(msgspec.json.encode(one).decode() for one in (None, *allowed))
    given = msgspec.json.encode(value).decode()
    shown = given if len(given) <= 80 else given[:77] + "..."
    raise ApiError(400, f"{name}: {shown} is not supported; allowed: {values}", name)


def prompt_tokens_or_text(prompt: str | list[Any]) -> str | list[int]:
    """The one prompt of a completion request.

    Raises:
        ApiError: 400 where there are several, or none.
    """
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        return prompt_tokens_or_text(prompt[0]) if isinstance(prompt[0], str) else _ids(prompt[0])
    if any(isinstance(item, (str, list)) for item in prompt):
        raise ApiError(
            400,
            f"prompt: one prompt a request, got {len(prompt)}; send each in a request of its own",
            "prompt",
        )
    return _ids(prompt)


def _ids(prompt: list[Any]) -> list[int]:
    try:
        return msgspec.convert(prompt, _TokenIds)
    except msgspec.ValidationError as error:
        raise ApiError(
            400, f"prompt: expected a text or a list of token ids that is not empty: {error}", "prompt"
        ) from error
