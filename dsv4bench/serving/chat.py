"""DeepSeek-V4's message encoding: a conversation becomes the prompt that the model was trained to continue.

    <BOS>system text<User>question<Assistant></think>answer<EOS><User>question<Assistant><think>

A turn of the assistant opens with `<think>` where it is to reason first, else with `</think>`. Results of tools are part of
the user's turn. Reasoning of earlier turns is left out unless `drop_thinking` is False. (docs/serving.md, Chat)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

BOS = "<｜begin▁of▁sentence｜>"  # noqa: RUF001
EOS = "<｜end▁of▁sentence｜>"  # noqa: RUF001
USER = "<｜User｜>"  # noqa: RUF001
ASSISTANT = "<｜Assistant｜>"  # noqa: RUF001
THINK, THINK_END = "<think>", "</think>"
_DSML = "｜DSML｜"  # noqa: RUF001

ROLES = ("system", "developer", "user", "assistant", "tool")
_ASKING = ("user", "developer")


class FunctionCall(msgspec.Struct, frozen=True):
    """A call of a tool: `arguments` is an object as JSON text."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """A call that an assistant's turn made."""

    function: FunctionCall
    id: str | None = None


class TextPart(msgspec.Struct, frozen=True):
    """A part of a message's content; text is the only kind."""

    type: str
    text: str = ""


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation, as OpenAI has it."""

    role: str
    content: str | list[TextPart] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


@dataclass(frozen=True)
class _Turn:
    """What is rendered together: a message, or what a user and the tools say between two answers."""

    role: str
    text: str
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()


def encode_messages(
    messages: Sequence[Message], *, thinking: bool = False, drop_thinking: bool = True
) -> str:
    """The prompt of a conversation that ends with a user's turn.

    Raises:
        ValueError: a message that the encoding has no place for; the text names it.
    """
    turns = _turns(messages)
    if not turns or turns[-1].role not in _ASKING:
        raise ValueError(
            "messages: the last message must be of the role user, developer or tool: the model answers it"
        )
    last = len(turns) - 1
    if thinking and drop_thinking:
        # Instructions of a developer hold for the answer to them alone.
        turns = [turn for index, turn in enumerate(turns) if turn.role != "developer" or index == last]
        last = len(turns) - 1
    prompt = [BOS]
    for index, turn in enumerate(turns):
        kept = thinking and not drop_thinking
        prompt.append(_render(turn, kept))
        follows = turns[index + 1].role if index < last else "assistant"
        if turn.role in _ASKING and follows == "assistant":
            prompt += (ASSISTANT, THINK if kept or (thinking and index == last) else THINK_END)
    return "".join(prompt)


def _render(turn: _Turn, with_reasoning: bool) -> str:
    if turn.role == "system":
        return turn.text
    if turn.role in _ASKING:
        return USER + turn.text
    reasoning = turn.reasoning + THINK_END if with_reasoning else ""
    return reasoning + turn.text + _render_calls(turn.calls) + EOS


def _render_calls(calls: Sequence[ToolCall]) -> str:
    if not calls:
        return ""
    invocations = "\n".join(
        f'<{_DSML}invoke name="{call.function.name}">\n{_render_arguments(call.function)}\n</{_DSML}invoke>'
        for call in calls
    )
    return f"\n\n<{_DSML}tool_calls>\n{invocations}\n</{_DSML}tool_calls>"


def _render_arguments(function: FunctionCall) -> str:
    try:
        arguments: dict[str, Any] = msgspec.json.decode(function.arguments, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ValueError(
            f"messages: the arguments of {function.name!r} must be an object as JSON text"
        ) from error
    return "\n".join(
        f'<{_DSML}parameter name="{name}" string="{"true" if isinstance(value, str) else "false"}">'
        f"{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}</{_DSML}parameter>"
        for name, value in arguments.items()
    )


def _turns(messages: Sequence[Message]) -> list[_Turn]:
    """The messages as turns; results of tools come in the order of their calls."""
    turns: list[_Turn] = []
    places: dict[str, int] = {}
    blocks: list[tuple[int | None, str]] = []
    for index, message in enumerate(messages):
        text = _text(message, index)
        if message.role == "user":
            blocks.append((None, text))
            continue
        if message.role == "tool":
            place = places.get(message.tool_call_id or "", 0)
            blocks.append((place, f"<tool_result>{text}</tool_result>"))
            continue
        turns += _user_turn(blocks)
        blocks = []
        calls = tuple(message.tool_calls or ())
        if calls:
            places = {call.id: place for place, call in enumerate(calls) if call.id}
        turns.append(_Turn(message.role, text, message.reasoning or message.reasoning_content or "", calls))
    return turns + _user_turn(blocks)


def _user_turn(blocks: Sequence[tuple[int | None, str]]) -> list[_Turn]:
    """One turn of a user's texts (without a place) and results of tools, those sorted among their own places."""
    if not blocks:
        return []
    results = iter(
        sorted((block for block in blocks if block[0] is not None), key=lambda block: block[0] or 0)
    )
    texts = [text if place is None else next(results)[1] for place, text in blocks]
    return [_Turn("user", "\n\n".join(texts))]


def _text(message: Message, index: int) -> str:
    if message.role not in ROLES:
        raise ValueError(f"messages[{index}].role: unknown role {message.role!r}; known: {', '.join(ROLES)}")
    if message.tool_calls and message.role != "assistant":
        raise ValueError(f"messages[{index}].tool_calls: only the assistant calls tools")
    if isinstance(message.content, list):
        for part in message.content:
            if part.type != "text":
                raise ValueError(
                    f"messages[{index}].content: a part of type {part.type!r}; the model reads text alone"
                )
        return "\n".join(part.text for part in message.content)
    if message.content is None and not (message.role == "assistant" and message.tool_calls):
        raise ValueError(f"messages[{index}].content: it is missing, and the message calls no tools")
    return message.content or ""
