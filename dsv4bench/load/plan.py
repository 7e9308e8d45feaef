"""From a profile to the batches of its load: which requests, with which prompts, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsv4bench.load.prompts import prompts_of
from dsv4bench.load.requests import LoadRequest, Prompt
from dsv4bench.profile import Profile


@dataclass(frozen=True)
class Plan:
    """The batches of a load: those that warm up, in order, and the measured one."""

    warmup: list[list[LoadRequest]]
    measured: list[LoadRequest]


def plan_batches(profile: Profile, vocab_size: int, *, texts: bool = False) -> Plan:
    """The load of `profile` on a model with `vocab_size` tokens; `texts`: prompts have their text.

    Raises:
        UsageError: a prompt does not fit the model.
    """
    load = profile.load
    prompts = prompts_of(profile, vocab_size, texts=texts)
    return Plan(
        warmup=[
            _batch(prompts, f"warmup{number}", load.warmup_output_tokens)
            for number in range(load.warmup_batches)
        ],
        measured=_batch(prompts, "request", load.output_tokens),
    )


def _batch(prompts: Sequence[Prompt], name: str, output_tokens: int) -> list[LoadRequest]:
    return [LoadRequest(f"{name}-{index}", prompt, output_tokens) for index, prompt in enumerate(prompts)]
