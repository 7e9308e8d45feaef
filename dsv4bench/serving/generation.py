"""A valid request as the engine gets it, and how its answer is to look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dsv4bench.engine.requests import Sampling
from dsv4bench.model.tokenizer import Tokenizer
from dsv4bench.serving.chat import encode_messages
from dsv4bench.serving.errors import ApiError
from dsv4bench.serving.fields import (
    ChatFields,
    CompletionFields,
    GenerationFields,
    prompt_tokens_or_text,
)

DEFAULT_MAX_TOKENS = 256
"""Output tokens where a request does not say, as far as the model's length allows; as upstream."""

Api = Literal["completions", "chat"]


@dataclass(frozen=True)
class Generation:
    """One request. `prompt` is token ids, or text that is still to be tokenised."""

    api: Api
    prompt: str | list[int]
    max_tokens: int | None
    min_tokens: int
    sampling: Sampling
    ignore_eos: bool
    stop: tuple[str, ...]
    stream: bool
    continuous_usage: bool
    return_token_ids: bool
    skip_special_tokens: bool
    thinking: bool = False
    include_reasoning: bool = True
    unknown_fields: tuple[str, ...] = ()


def completion_of(fields: CompletionFields, unknown: Sequence[str]) -> Generation:
    """Raises ApiError (400) for what no completion can be."""
    if fields.ignore_eos is False:
        raise ApiError(400, "ignore_eos: completions always ignore EOS; allowed: true", "ignore_eos")
    return _generation(
        "completions", fields, prompt_tokens_or_text(fields.prompt), fields.max_tokens, True, unknown
    )


def chat_of(fields: ChatFields, unknown: Sequence[str]) -> Generation:
    """Raises ApiError (400) for a conversation that the model's encoding has no place for."""
    options = fields.chat_template_kwargs
    thinking = bool(options and (options.thinking or options.enable_thinking))
    if fields.reasoning_effort is not None:
        thinking = fields.reasoning_effort != "none"
    drop = True if options is None or options.drop_thinking is None else options.drop_thinking
    if None not in (fields.max_tokens, fields.max_completion_tokens) and (
        fields.max_tokens != fields.max_completion_tokens
    ):
        raise ApiError(
            400,
            "max_completion_tokens: it differs from max_tokens; give one of them",
            "max_completion_tokens",
        )
    try:
        prompt = encode_messages(fields.messages, thinking=thinking, drop_thinking=drop)
    except ValueError as error:
        raise ApiError(400, str(error), "messages") from error
    ignore_eos = bool(fields.ignore_eos)
    if fields.min_tokens and not ignore_eos:
        raise ApiError(
            400, "min_tokens: the model may end its answer at any token; set ignore_eos to true", "min_tokens"
        )
    max_tokens = fields.max_completion_tokens or fields.max_tokens
    return _generation(
        "chat",
        fields,
        prompt,
        max_tokens,
        ignore_eos,
        unknown,
        thinking=thinking,
        include_reasoning=fields.include_reasoning is not False,
    )


def _generation(
    api: Api,
    fields: GenerationFields,
    prompt: str | list[int],
    max_tokens: int | None,
    ignore_eos: bool,
    unknown: Sequence[str],
    *,
    thinking: bool = False,
    include_reasoning: bool = True,
) -> Generation:
    temperature = 0.0 if fields.temperature is None else fields.temperature
    if not 0 <= temperature <= 100:
        raise ApiError(
            400, f"temperature: expected a number from 0 (greedy) to 100, got {temperature:g}", "temperature"
        )
    top_p = 1.0 if fields.top_p is None else fields.top_p
    if not 0 < top_p <= 1:
        raise ApiError(400, f"top_p: expected a number above 0 and at most 1, got {top_p:g}", "top_p")
    if fields.stream_options is not None and not fields.stream:
        raise ApiError(400, "stream_options: only with stream: true", "stream_options")
    min_tokens = fields.min_tokens or 0
    if max_tokens is not None and min_tokens > max_tokens:
        raise ApiError(400, f"min_tokens: {min_tokens} is more than max_tokens, {max_tokens}", "min_tokens")
    stop = (fields.stop,) if isinstance(fields.stop, str) else tuple(fields.stop or ())
    return Generation(
        api=api,
        prompt=prompt,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        sampling=Sampling(temperature, max(0, fields.top_k or 0), top_p, fields.seed or 0),
        ignore_eos=ignore_eos,
        stop=stop,
        stream=bool(fields.stream),
        continuous_usage=bool(fields.stream_options and fields.stream_options.continuous_usage_stats),
        return_token_ids=bool(fields.return_token_ids),
        skip_special_tokens=fields.skip_special_tokens is not False,
        thinking=thinking,
        include_reasoning=include_reasoning,
        unknown_fields=tuple(unknown),
    )


class PromptReader:
    """Turns prompts into token ids that the engine can take."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, max_model_len: int) -> None:
        """`vocabulary` is how many tokens the model knows, `max_model_len` how many a request may have."""
        self.tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._max_model_len = max_model_len

    def is_long(self, prompt: str | list[int]) -> bool:
        """Whether tokenising it would hold up everybody else."""
        return len(prompt) > _LONG_PROMPT

    def read(self, prompt: str | list[int]) -> list[int]:
        """The token ids of a prompt.

        Raises:
            ApiError: 400 for a prompt that is empty, too long, or not of the model's vocabulary.
        """
        if isinstance(prompt, str):
            if len(prompt) > self._max_model_len * _LONGEST_TOKEN:
                raise self._too_long(f"{len(prompt)} characters")
            token_ids = self.tokenizer.encode(prompt)
        else:
            token_ids = prompt
        if not token_ids:
            raise ApiError(400, "prompt: it is empty", "prompt")
        if len(token_ids) >= self._max_model_len:
            raise self._too_long(f"{len(token_ids)} tokens")
        if not 0 <= min(token_ids) <= max(token_ids) < self._vocabulary:
            wrong = next(token for token in token_ids if not 0 <= token < self._vocabulary)
            raise ApiError(
                400, f"prompt: token {wrong} is not one of the model's, 0..{self._vocabulary - 1}", "prompt"
            )
        return token_ids

    def max_tokens(self, generation: Generation, prompt_tokens: int) -> int:
        """How many tokens the answer may have.

        Raises:
            ApiError: 400 where the request has more than the model's length.
        """
        room = self._max_model_len - prompt_tokens
        wanted = generation.max_tokens
        if wanted is None:
            wanted = max(min(room, DEFAULT_MAX_TOKENS), generation.min_tokens)
        if wanted > room:
            raise ApiError(
                400,
                f"max_tokens: {prompt_tokens} prompt tokens and {wanted} output tokens are more than the model's length "
                f"of {self._max_model_len}; at most {room} are left",
                "max_tokens",
            )
        return wanted

    def _too_long(self, length: str) -> ApiError:
        return ApiError(
            400, f"prompt: {length} do not fit the model's length of {self._max_model_len} tokens", "prompt"
        )


_LONG_PROMPT = 4096
_LONGEST_TOKEN = 128
"""Characters of the longest token of the vocabulary: a prompt with more of them a token has too many tokens for sure."""
