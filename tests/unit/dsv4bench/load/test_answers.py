"""What the events of an answer come to."""

import json
from typing import Any

import pytest

from dsv4bench.load.answers import Answer, AnswerError


def answer_of(*events: dict[str, Any] | str) -> Answer:
    """Events at 10, 20, 30 ... ns."""
    answer = Answer()
    for number, event in enumerate(events, 1):
        answer.take(event.encode() if isinstance(event, str) else json.dumps(event).encode(), 10 * number)
    return answer


def text(*ids: int, usage: int | None = None, finish: str | None = None, words: str = "x") -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "text": words, "finish_reason": finish}
    if ids:
        choice["token_ids"] = list(ids)
    event: dict[str, Any] = {"id": "cmpl-1", "choices": [choice]}
    return event if usage is None else event | {"usage": {"prompt_tokens": 3, "completion_tokens": usage}}


def usage(tokens: int) -> dict[str, Any]:
    return {"id": "cmpl-1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": tokens}}


def test_token_ids_count_whatever_the_text_is() -> None:
    answer = answer_of(text(5), text(6, 7, words=""), text(8, finish="length"), usage(4), "[DONE]")
    assert answer.token_ids == [5, 6, 7, 8]
    assert answer.token_times_ns == [10, 20, 20, 30]
    assert (answer.tells_ids, answer.is_whole, answer.completion_tokens, answer.prompt_tokens) == (
        True,
        True,
        4,
        3,
    )


def test_a_usage_that_every_event_goes_on_with_counts_their_tokens() -> None:
    answer = answer_of(text(usage=1), text(usage=3), text(usage=4, finish="stop"))
    assert answer.events == [(10, 1), (20, 2), (30, 1)]
    assert not answer.tells_ids


def test_a_usage_at_the_end_alone_is_of_all_events() -> None:
    answer = answer_of(text(), text(), text(usage=5, finish="length", words="y"))
    assert answer.events == [(10, None), (20, None), (30, None)]
    assert answer.completion_tokens == 5


def test_an_event_with_a_role_or_without_text_is_no_output() -> None:
    role = {"id": "c", "choices": [{"delta": {"role": "assistant"}, "finish_reason": None}]}
    words = {"id": "c", "choices": [{"delta": {"content": "a"}, "finish_reason": None}]}
    thought = {"id": "c", "choices": [{"delta": {"reasoning_content": "t"}, "finish_reason": None}]}
    end = {"id": "c", "choices": [{"delta": {}, "finish_reason": "stop"}]}
    answer = answer_of(role, thought, words, end)
    assert answer.events == [(20, None), (30, None)]
    assert "".join(answer.text) == "ta"
    assert answer.finish_reason == "stop"


def test_an_answer_without_an_end_is_not_whole() -> None:
    assert not answer_of(text(), usage(1)).is_whole


def test_the_counts_of_our_own_server_are_kept() -> None:
    own = {"steps": 11, "accepted": 8, "proposed": 11, "discarded": 0, "prefills": 1, "rank": 2, "x": 1}
    assert answer_of({"id": "c", "choices": [], "dsv4bench": own}).counts == {
        key: value for key, value in own.items() if key != "x"
    }


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ('{"error": {"message": "no memory"}}', "no memory"),
        ('{"error": "broken"}', "broken"),
        ('{"object": "error", "message": "bad"}', "bad"),
        ('{"choices": [3]}', "no object"),
        ("[1]", "no object"),
        ('{"choices": [', "no JSON"),
    ],
)
def test_an_event_that_is_an_error_or_nothing_known_ends_the_answer(event: str, says: str) -> None:
    with pytest.raises(AnswerError, match=says):
        answer_of(event)
