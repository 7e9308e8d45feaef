"""From a profile to the batches of its load: which requests, with which prompts, and when."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from dsv4bench.errors import UsageError
from dsv4bench.load.arrivals import arrival_times
from dsv4bench.load.prompts import PromptMaker
from dsv4bench.load.requests import LoadRequest, Prompt
from dsv4bench.load.timetable import BLOCK_TOKENS, Row, read_timetable
from dsv4bench.profile import Profile


@dataclass(frozen=True)
class Plan:
    """The batches of a load: those that warm up, in order, and the measured one."""

    warmup: list[list[LoadRequest]]
    measured: list[LoadRequest]

    @property
    def output_tokens(self) -> int:
        """What the measured batch asks for in all."""
        return sum(request.output_tokens for request in self.measured)


def plan_batches(profile: Profile, vocab_size: int, *, texts: bool = False) -> Plan:
    """The load of `profile` on a model with `vocab_size` tokens; `texts`: every prompt has its text.

    Warm-up batches have the prompts of the measured one, all sent at once.

    Raises:
        UsageError: a file of the load cannot be used, or a request does not fit the model.
    """
    load = profile.load
    maker = PromptMaker(vocab_size, profile.model.preset, texts=texts)
    measured = _timetable(profile, maker) if load.timetable is not None else _requests(profile, maker)
    for request in measured:
        _check_length(profile, request)
    warmup = [
        [
            LoadRequest(f"warmup{number}-{index}", request.prompt, load.warmup_output_tokens)
            for index, request in enumerate(measured)
        ]
        for number in range(load.warmup_batches)
    ]
    return Plan(warmup, measured)


def _requests(profile: Profile, maker: PromptMaker) -> list[LoadRequest]:
    load = profile.load
    prompts = _prompts(profile, maker)
    times: list[int] | list[None] = arrival_times(load, load.requests) or [None] * load.requests
    return [
        LoadRequest(f"request-{index}", prompt, load.output_tokens, time)
        for index, (prompt, time) in enumerate(zip(prompts, times, strict=True))
    ]


def _prompts(profile: Profile, maker: PromptMaker) -> list[Prompt]:
    load = profile.load
    texts = _texts(Path(load.prompts_file)) if load.prompts_file is not None else load.prompts
    if texts is not None:
        return [maker.of_text(texts[index % len(texts)]) for index in range(load.requests)]
    assert load.prompt_tokens is not None
    # The model's seed: the same prompts whenever requests are sent.
    source = random.Random(profile.model.seed)
    prefixes = [maker.draw(load.prefix_tokens, source) for _ in range(load.prefix_groups)]
    own = load.prompt_tokens - (load.prefix_tokens if prefixes else 0)
    return [
        maker.of_ids([*(prefixes[index % len(prefixes)] if prefixes else []), *maker.draw(own, source)])
        for index in range(load.requests)
    ]


def _timetable(profile: Profile, maker: PromptMaker) -> list[LoadRequest]:
    load = profile.load
    assert load.timetable is not None
    rows = read_timetable(Path(load.timetable), load.timetable_speed, load.requests)
    source = random.Random(profile.model.seed)
    return [
        LoadRequest(
            f"request-{index}", _prompt_of(row, maker, source, profile), row.output_tokens, row.arrival_ns
        )
        for index, row in enumerate(rows)
    ]


def _prompt_of(row: Row, maker: PromptMaker, source: random.Random, profile: Profile) -> Prompt:
    if row.prompt is not None:
        return maker.of_text(row.prompt)
    ids: list[int] = []
    for block in row.blocks:
        ids += maker.draw(BLOCK_TOKENS, random.Random(f"{profile.model.seed} {block}"))
    ids += maker.draw(max(0, row.prompt_tokens - len(ids)), source)
    return maker.of_ids(ids[: row.prompt_tokens])


def _texts(path: Path) -> list[str]:
    """A prompt a line, of plain text."""
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"load.prompts_file {path}: cannot be read: {error}") from error
    if not lines:
        raise UsageError(f"load.prompts_file {path}: no prompt in it")
    return lines


def _check_length(profile: Profile, request: LoadRequest) -> None:
    needed = len(request.prompt.token_ids) + request.output_tokens + profile.engine.mtp
    if needed > profile.engine.max_model_len:
        raise UsageError(
            f"{request.request_id}: {len(request.prompt.token_ids)} prompt tokens, {request.output_tokens} output tokens "
            f"and engine.mtp = {profile.engine.mtp} need {needed} positions, but engine.max_model_len = "
            f"{profile.engine.max_model_len}; raise it or shorten the request"
        )
