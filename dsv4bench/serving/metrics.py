"""What the server counts: /metrics in the Prometheus text format, and /metrics/json (docs/serving.md, Metrics).

Each family is there as `pypto:*` and as `vllm:*`; where upstream means different things by them, so do these.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dsv4bench.engine.engine import EngineProgress

SCHEMA_VERSION = 1
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NAMESPACES = ("pypto", "vllm")
_LABELS = ("model_name", "engine")
_NS_PER_S = 1e9
_LATENCY_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0),
    *(10.0, 20.0, 40.0, 80.0),
)


@dataclass(frozen=True)
class EngineState:
    """What the engine says at the moment of a scrape."""

    progress: EngineProgress
    running: int
    waiting: int
    speculative_tokens: int
    prefix_reuse: bool


class ServerMetrics:
    """Counts of one server. `observe_*` are called in the loop's thread; times are ns of CLOCK_MONOTONIC."""

    def __init__(self, model: str, engine_state: Callable[[], EngineState | None]) -> None:
        """`engine_state` is asked at every scrape; None while there is no engine."""
        self._model = model
        self._engine_state = engine_state
        self._server_id = uuid.uuid4().hex
        self._started_at = time.time()
        self._prompt_tokens = 0
        self._finished: Counter[str] = Counter()
        self._refused: Counter[int] = Counter()
        self._registry = CollectorRegistry()
        self._registry.register(_Snapshot(self._families))
        self._ttft = self._histograms("time_to_first_token_seconds", "Time to first token", _LATENCY_BUCKETS)
        self._itl = self._histograms("inter_token_latency_seconds", "Time between tokens", _TOKEN_BUCKETS)
        self._tpot = self._histograms(
            "request_time_per_output_token_seconds", "Mean time per output token of a request", _TOKEN_BUCKETS
        )
        self._e2e = self._histograms(
            "e2e_request_latency_seconds", "Whole time of a request", _LATENCY_BUCKETS
        )

    def observe_prompt(self, tokens: int) -> None:
        """A request with so many prompt tokens was put to the engine."""
        self._prompt_tokens += tokens

    def observe_refusal(self, status: int) -> None:
        """A request was refused."""
        self._refused[status] += 1

    def observe_step(self, tokens: int, arrival_ns: int, before_ns: int | None, now_ns: int) -> None:
        """A step published tokens of a request that arrived at `arrival_ns`; `before_ns` is when the step before did."""
        others = tokens
        if before_ns is None:
            _observe(self._ttft, now_ns - arrival_ns)
            others -= 1
        else:
            _observe(self._itl, now_ns - before_ns)
            others -= 1
        # Tokens that come together: upstream counts each as an interval of its own, vLLM the event.
        for _ in range(others):
            self._itl[0].observe(0)

    def observe_end(
        self,
        reason: str,
        tokens: int,
        arrival_ns: int,
        first_ns: int | None,
        last_ns: int | None,
        now_ns: int,
    ) -> None:
        """An answer has ended; `first_ns` and `last_ns` are when its first and last tokens were published."""
        self._finished[reason] += 1
        _observe(self._e2e, now_ns - arrival_ns)
        if first_ns is None or last_ns is None:
            return
        if tokens > 1:
            _observe(self._tpot, (last_ns - first_ns) / (tokens - 1))
        else:
            # Upstream leaves requests of one token out, vLLM counts them with 0.
            self._tpot[1].observe(0)

    def prometheus(self) -> bytes:
        """All of it in the Prometheus text format."""
        return generate_latest(self._registry)

    def document(self) -> dict[str, Any]:
        """All of it as upstream's JSON document, schema version 1."""
        state = self._engine_state()
        gauges: dict[str, Any] = {}
        counters: dict[str, Any] = {
            "prompt_tokens": self._prompt_tokens,
            "requests_finished": sum(self._finished.values()),
            "requests_error": self._finished["error"],
            "requests_aborted": self._finished["aborted"],
            "requests_refused": sum(self._refused.values()),
        }
        if state is not None:
            gauges = {"running": state.running, "waiting": state.waiting}
            counters["generation_tokens"] = state.progress.tokens
            counters["draft_tokens"] = state.progress.proposed
            counters["accepted_tokens"] = state.progress.accepted
            if state.prefix_reuse:
                counters["prefix_cache_hits"] = state.progress.cached_tokens
        histograms = {
            name: _histogram_document(pair[0])
            for name, pair in (
                ("ttft", self._ttft),
                ("itl", self._itl),
                ("tpot", self._tpot),
                ("e2e", self._e2e),
            )
        }
        return {
            "schema_version": SCHEMA_VERSION,
            "server_id": self._server_id,
            "started_at": self._started_at,
            "timestamp": time.time(),
            "model_name": self._model,
            "replicas": [
                {
                    "engine": 0,
                    "gauges": gauges,
                    "counters": counters,
                    "finish_reasons": dict(sorted(self._finished.items())),
                    "histograms": histograms,
                }
            ],
        }

    def _histograms(self, name: str, text: str, buckets: Sequence[float]) -> tuple[Histogram, Histogram]:
        """The histogram of both namespaces, upstream's first."""

        def of(namespace: str) -> Histogram:
            family = Histogram(
                f"{namespace}:{name}", f"{text} in seconds", _LABELS, registry=self._registry, buckets=buckets
            )
            return family.labels(self._model, "0")

        return of(_NAMESPACES[0]), of(_NAMESPACES[1])

    def _families(self) -> Iterable[Metric]:
        for namespace in _NAMESPACES:
            counter = _Counters(namespace, (self._model, "0"))
            yield counter.of("prompt_tokens", "Prompt tokens received", self._prompt_tokens)
            finished = CounterMetricFamily(
                f"{namespace}:request_success",
                "Requests that ended, by reason",
                labels=[*_LABELS, "finished_reason"],
            )
            for reason, count in sorted(self._finished.items()):
                finished.add_metric([self._model, "0", reason], count)
            yield finished
            state = self._engine_state()
            if state is not None:
                yield from _engine_families(namespace, counter, state)
        refused = CounterMetricFamily(
            "pypto:requests_refused", "Requests that were not answered", labels=[*_LABELS, "status"]
        )
        for status, count in sorted(self._refused.items()):
            refused.add_metric([self._model, "0", str(status)], count)
        yield refused


class _Counters:
    """Makes families of one series each."""

    def __init__(self, namespace: str, labels: Sequence[str]) -> None:
        self._namespace = namespace
        self._labels = labels

    def of(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(f"{self._namespace}:{name}", text, labels=_LABELS)
        family.add_metric(self._labels, value)
        return family

    def gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"{self._namespace}:{name}", text, labels=_LABELS)
        family.add_metric(self._labels, value)
        return family


def _engine_families(namespace: str, counter: _Counters, state: EngineState) -> Iterable[Metric]:
    progress = state.progress
    yield counter.gauge("num_requests_running", "Requests that hold a place of a rank", state.running)
    yield counter.gauge("num_requests_waiting", "Requests that wait for one", state.waiting)
    yield counter.of("generation_tokens", "Output tokens published", progress.tokens)
    if state.speculative_tokens:
        drafts = progress.proposed // state.speculative_tokens
        yield counter.of("spec_decode_num_drafts", "Steps that verified drafts", drafts)
        yield counter.of("spec_decode_num_draft_tokens", "Draft tokens offered", progress.proposed)
        yield counter.of("spec_decode_num_accepted_tokens", "Draft tokens accepted", progress.accepted)
    if state.prefix_reuse:
        yield counter.of("prefix_cache_hits", "Prompt tokens found in the cache", progress.cached_tokens)
    if namespace == "pypto":
        yield counter.of("accepted_tokens", "Draft tokens accepted", progress.accepted)
        yield counter.of("decode_steps", "Decode steps of the engine", progress.decode_steps)
        yield counter.of("engine_restarts", "Times that the engine went on with new ranks", progress.restarts)


class _Snapshot(Collector):
    """Families that are made when they are asked for."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families()

    def describe(self) -> Iterable[Metric]:
        return []


def _observe(pair: tuple[Histogram, Histogram], duration_ns: float) -> None:
    for histogram in pair:
        histogram.observe(max(0.0, duration_ns) / _NS_PER_S)


def _histogram_document(histogram: Histogram) -> dict[str, Any]:
    samples = [sample for family in histogram.collect() for sample in family.samples]
    values = {sample.name.rpartition("_")[2]: sample.value for sample in samples if "le" not in sample.labels}
    return {
        "buckets": [
            {"le": float(sample.labels["le"]), "count": int(sample.value)}
            for sample in samples
            if sample.labels.get("le", "+Inf") != "+Inf"
        ],
        "count": int(values["count"]),
        "sum": values["sum"],
    }
