"""What the openai client gets from a server, as JSON: `python openai_tour.py URL MODEL KEY`.

Run by the Python of an environment that has openai (CONTRIBUTING.md); this project's has not.
"""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

PROMPT = "Huawei is"
TOKENS = 8

openai: Any = import_module("openai")


def refusal(ask: Callable[[], Any]) -> dict[str, Any]:
    """How a request is refused: the exception that a user of the client catches, and what it says."""
    try:
        answer = ask()
    except openai.APIStatusError as error:
        return {"error": type(error).__name__, "status": error.status_code, "message": error.message}
    return {"answer": str(answer)}


def tour(url: str, model: str, key: str) -> dict[str, Any]:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=120)
    stranger = openai.OpenAI(base_url=f"{url}/v1", api_key="not the key", max_retries=0, timeout=120)
    asked: dict[str, Any] = {"model": model, "temperature": 0, "max_tokens": TOKENS}
    exact: dict[str, Any] = {"extra_body": {"ignore_eos": True}}
    streamed: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    messages = [{"role": "user", "content": "Who are you?"}]

    completion = client.completions.create(prompt=PROMPT, **asked, **exact)
    text, finish, usage = "", None, None
    for event in client.completions.create(prompt=PROMPT, **asked, **exact, **streamed):
        usage = event.usage or usage
        for choice in event.choices:
            text, finish = text + choice.text, choice.finish_reason or finish
    chat = client.chat.completions.create(messages=messages, **asked, **exact)
    said, roles = "", set()
    for event in client.chat.completions.create(messages=messages, **asked, **exact, **streamed):
        for choice in event.choices:
            said += choice.delta.content or ""
            roles.add(choice.delta.role)
    given_up = client.completions.create(prompt=PROMPT, **{**asked, "max_tokens": 400}, **exact, stream=True)
    for _ in zip(range(3), given_up, strict=False):
        pass
    given_up.close()

    def complete(**other: Any) -> Callable[[], Any]:
        return lambda: client.completions.create(**{**asked, "prompt": PROMPT, **other})

    return {
        "models": [entry.id for entry in client.models.list()],
        "completion": completion.choices[0].text,
        "tokens": completion.usage.completion_tokens,
        "finish": completion.choices[0].finish_reason,
        "streamed": text,
        "streamed_tokens": usage.completion_tokens if usage else None,
        "streamed_finish": finish,
        "chat": chat.choices[0].message.content,
        "chat_streamed": said,
        "chat_roles": sorted(role for role in roles if role),
        "refused": {
            "a wrong key": refusal(lambda: stranger.completions.create(prompt=PROMPT, **asked)),
            "an unknown model": refusal(complete(model="no-such-model")),
            "a negative length": refusal(complete(max_tokens=-1)),
            "a length that is no number": refusal(complete(max_tokens="many")),
            "a prompt that is too long": refusal(complete(prompt=[5] * 5000)),
            "two answers": refusal(complete(n=2)),
        },
    }


if __name__ == "__main__":
    print(json.dumps(tour(*sys.argv[1:4])))
