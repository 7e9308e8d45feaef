"""The message encoding, against prompts that the encoder published with the model made of the same conversations."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dsv4bench.serving.chat import Message, encode_messages

CASES = msgspec.json.decode((Path(__file__).parent / "data" / "chat_prompts.json").read_bytes())


@pytest.mark.parametrize("case", CASES)
def test_a_conversation_is_encoded_as_the_models_own_encoder_does(case: Any) -> None:
    messages = msgspec.convert(case["messages"], list[Message])
    prompt = encode_messages(messages, thinking=case["thinking"], drop_thinking=case["drop_thinking"])
    assert prompt == case["prompt"]


def test_parts_of_text_are_one_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = msgspec.convert([{"role": "user", "content": parts}], list[Message])
    assert "a\nb" in encode_messages(messages)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([{"role": "assistant", "content": "x"}], "last message"),
        ([{"role": "system", "content": "x"}], "last message"),
        ([{"role": "robot", "content": "x"}], "robot"),
        ([{"role": "user"}], r"messages\[0\].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "image_url"),
        (
            [
                {
                    "role": "user",
                    "content": "x",
                    "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}],
                }
            ],
            "assistant",
        ),
        (
            [
                {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]},
                {"role": "user", "content": "x"},
            ],
            "arguments of 'f'",
        ),
    ],
)
def test_what_the_encoding_has_no_place_for_is_named(messages: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        encode_messages(msgspec.convert(messages, list[Message]))
