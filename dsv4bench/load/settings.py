"""The settings of a load: the keys of a profile's `[load]` table. Imports nothing heavy."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]
CountOrZero = Annotated[int, msgspec.Meta(ge=0)]
Text = Annotated[str, msgspec.Meta(min_length=1)]

PROMPT_KINDS = ("prompts", "prompt_tokens", "prompts_file", "timetable")
"""The keys that say what prompts are; setting one unsets the others."""


class LoadSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[load]`: what is asked of the engine, and when. Exactly one of `PROMPT_KINDS` is set."""

    requests: Count
    output_tokens: Count
    prompts: Annotated[list[Text], msgspec.Meta(min_length=1)] | None = None
    """Used round robin."""
    prompt_tokens: Count | None = None
    """Length of synthetic prompts, drawn from the model's seed."""
    ignore_eos: bool = True
    temperature: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """0 is greedy."""
    top_k: CountOrZero = 0
    """Only this many of the likeliest tokens; 0 is all."""
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    """Only the likeliest tokens that make up this probability."""
    seed: CountOrZero = 0
    """Of the draws, where temperature is above 0."""
    prompts_file: Text | None = None
    """A file with a prompt a line, used round robin."""
    prefix_groups: CountOrZero = 0
    """Synthetic prompts come in so many groups, each with a prefix of its own; 0 shares none."""
    prefix_tokens: CountOrZero = 0
    """Length of those prefixes, a part of `prompt_tokens`."""
    request_rate: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Requests a second, whether earlier ones are answered or not; all at once where it is unset."""
    arrivals: Literal["poisson", "constant", "gamma"] = "poisson"
    """How the times between requests are drawn, by `seed`."""
    burstiness: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """Shape of the gamma distribution: below 1 requests come in bursts, 1 is Poisson, above 1 more evenly."""
    ramp: Literal["linear", "exponential"] | None = None
    """The rate goes from `ramp_start_rate` to `ramp_end_rate` over the requests."""
    ramp_start_rate: Annotated[float, msgspec.Meta(gt=0)] | None = None
    ramp_end_rate: Annotated[float, msgspec.Meta(gt=0)] | None = None
    timetable: Text | None = None
    """A recorded timetable: when requests come and how long they are (docs/load.md)."""
    timetable_speed: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """How many times as fast as recorded."""
    concurrency: Count | None = None
    """Most requests in flight at once; all of them where it is unset."""
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 600.0
    """Of one request, from its sending to its end; one that takes longer has failed."""
    warmup_batches: CountOrZero = 1
    warmup_output_tokens: Count = 4


def contradiction(load: LoadSection) -> str | None:
    """What two keys of a load contradict each other in, and what to set instead; None where they go together."""
    kinds = [key for key in PROMPT_KINDS if getattr(load, key) is not None]
    if len(kinds) != 1:
        names = [f"load.{key}" for key in PROMPT_KINDS]
        given = " and ".join(f"load.{key}" for key in kinds) + " are" if kinds else "none is"
        return f"set one of {', '.join(names[:-1])} and {names[-1]}; {given} set"
    return _prefix_contradiction(load) or _arrival_contradiction(load)


def _prefix_contradiction(load: LoadSection) -> str | None:
    if bool(load.prefix_groups) != bool(load.prefix_tokens):
        return "load.prefix_groups and load.prefix_tokens go together: set both, or neither"
    if load.prefix_groups and load.prompt_tokens is None:
        return "load.prefix_groups is for synthetic prompts: set load.prompt_tokens"
    if load.prompt_tokens is not None and load.prefix_tokens >= load.prompt_tokens:
        return (
            f"load.prefix_tokens = {load.prefix_tokens} leaves nothing of load.prompt_tokens = {load.prompt_tokens} to "
            "tell requests apart"
        )
    return None


def _arrival_contradiction(load: LoadSection) -> str | None:
    rates = (load.ramp_start_rate, load.ramp_end_rate)
    open_loops = [
        f"load.{key}" for key in ("request_rate", "ramp", "timetable") if getattr(load, key) is not None
    ]
    if len(open_loops) > 1:
        return f"{' and '.join(open_loops)} both say when requests are sent: set one of them"
    if load.ramp is not None and None in rates:
        return "load.ramp needs load.ramp_start_rate and load.ramp_end_rate"
    if load.ramp is None and rates != (None, None):
        return "load.ramp_start_rate and load.ramp_end_rate are of a ramp: set load.ramp to linear or exponential"
    if load.arrivals != "poisson" and load.request_rate is None:
        return f"load.arrivals = {load.arrivals} is of an open loop: set load.request_rate"
    if load.burstiness != 1.0 and load.arrivals != "gamma":
        return "load.burstiness is the shape of load.arrivals = gamma: set that"
    if load.timetable_speed != 1.0 and load.timetable is None:
        return "load.timetable_speed is of a timetable: set load.timetable"
    return None
