"""Small questions to a server beside the load: its profiler, its metrics, its models."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from analyzers.rundir import ServerDrafts
from dsv4bench.load.answers import error_of
from dsv4bench.server_kinds.kind import MetricsTable
from dsv4bench.server_kinds.resolve import ResolvedServer

_QUESTION_S = 30.0
_WORDS = 300
_MODELS = "/v1/models"


@dataclass(frozen=True)
class Asked:
    """What became of a question: when the answer came (ns of CLOCK_MONOTONIC), and why it failed if it did."""

    time_ns: int
    failure: str | None
    text: str = ""


class ServerQuestions:
    """Questions to one server. None of them raises: what cannot be asked is a sentence in the report."""

    def __init__(self, server: ResolvedServer) -> None:
        self._server = server

    async def start_profile(self) -> Asked:
        """Switch the profiler on."""
        return await self._profile("start")

    async def stop_profile(self) -> Asked:
        """Switch the profiler off; it may take long to write."""
        return await self._profile("stop")

    async def metrics(self) -> Asked:
        """What its metrics say now, as it says it; a failure where it has none."""
        table = self._server.kind.metrics
        if table is None:
            return Asked(time.perf_counter_ns(), "this kind of server has no metrics")
        return await self._ask("GET", table.path, _QUESTION_S)

    async def models(self) -> tuple[list[str], str | None]:
        """The names of its models, and why it tells none: [] and a sentence where it does not."""
        asked = await self._ask("GET", _MODELS, _QUESTION_S)
        if asked.failure is not None:
            return [], f"{_MODELS} failed: {asked.failure}"
        try:
            names = [str(model["id"]) for model in msgspec.json.decode(asked.text)["data"]]
        except (msgspec.DecodeError, KeyError, TypeError):
            return [], f"{_MODELS} answers with no list of models: {asked.text[:_WORDS].strip()}"
        return names, None

    async def _profile(self, which: str) -> Asked:
        table = self._server.profiling
        assert table is not None
        path = table.start if which == "start" else table.stop
        asked = await self._ask("POST", path, table.timeout_s)
        failure = f"{path} failed: {asked.failure}" if asked.failure is not None else None
        return Asked(asked.time_ns, failure, asked.text)

    async def _ask(self, method: str, path: str, timeout_s: float) -> Asked:
        headers = {}
        if self._server.endpoint.api_key:
            headers["Authorization"] = f"Bearer {self._server.endpoint.api_key}"
        failure: str | None
        text = ""
        try:
            timeout = aiohttp.ClientTimeout(total=timeout_s)
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.request(method, self._server.url + path) as response,
            ):
                text = await response.text(errors="replace")
                failure = None if response.status == 200 else _refusal(response.status, text)
        except TimeoutError:
            failure = f"no answer within {timeout_s:g} s"
        except (aiohttp.ClientError, OSError) as error:
            failure = str(error) or type(error).__name__
        return Asked(time.perf_counter_ns(), failure, text)


def _refusal(status: int, text: str) -> str:
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError:
        document = None
    words = error_of(document) if isinstance(document, dict) else None
    return f"HTTP {status}: {words or text[:_WORDS].strip()}"


class CounterError(Exception):
    """Counters of a server that cannot be: they went backwards."""


def counters(text: str) -> dict[str, float]:
    """Every counter and gauge of a Prometheus text, summed over its labels; {} for what is no such text.

    A name is kept with and without the prefix before its colon (`vllm:x_total` is `x_total` too) where that is one thing.
    """
    found: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if not sample.name.endswith("_created"):
                    found[sample.name] = found.get(sample.name, 0.0) + sample.value
    except ValueError:
        return {}
    short: dict[str, list[str]] = {}
    for name in found:
        short.setdefault(name.rpartition(":")[2], []).append(name)
    return found | {name: found[names[0]] for name, names in short.items() if len(names) == 1}


def drafts_between(table: MetricsTable, before: str, after: str) -> ServerDrafts | None:
    """The drafts that were counted between two readings of the metrics; None where none were, or nobody counts them.

    Raises:
        CounterError: a counter went backwards: the server was started again in between.
    """
    if not table.accepted or not table.proposed:
        return None
    accepted = _increase(table.accepted, counters(before), counters(after))
    proposed = _increase(table.proposed, counters(before), counters(after))
    if accepted is None or not proposed:
        return None
    if accepted > proposed:
        raise CounterError(f"{table.accepted} rose by {accepted}, {table.proposed} by {proposed} only")
    return ServerDrafts(accepted, proposed, "metrics")


def _increase(name: str, before: Mapping[str, float], after: Mapping[str, float]) -> int | None:
    if name not in after:
        return None
    increase = after[name] - before.get(name, 0.0)
    if increase < 0:
        raise CounterError(f"{name} fell from {before[name]:g} to {after[name]:g}")
    return int(increase)
