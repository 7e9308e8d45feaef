"""The metrics of the gate by name: one value a run, in the unit that people read (docs/gating.md, What is judged).

A name is one of the registry below, the path of any figure in the report's JSON (`step_time[0].wall.mean`), or whatever
a plain samples file calls it: there the unit follows from the suffix.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from analyzers.clients.requests import RequestFigures
from analyzers.clients.stated import StatedFigures
from analyzers.errors import UnusableInputError
from analyzers.gate.directions import better_by_name
from analyzers.ranks.skew import RankSkew
from analyzers.report.model import Report
from analyzers.report.paths import UNITS, begins_in, figure_at, path_unit
from analyzers.steps.bubbles import StepPhase
from analyzers.table.callables import is_prefill

MILLISECOND_NS = 1e6

Better = Literal["more", "less"]


@dataclass(frozen=True)
class Metric:
    """What a name means: its unit, which direction is better, and a title for people."""

    name: str
    unit: str
    higher_is_better: bool
    title: str = ""

    @property
    def label(self) -> str:
        """What a table calls it."""
        return f"{self.title} ({self.name})" if self.title else self.name


Measure = Callable[[Report], float | None]


def _measured(report: Report) -> RequestFigures | None:
    return next((figures for figures in report.requests if figures.phase == "measured"), None)


def _steady_skew(report: Report) -> RankSkew | None:
    return next(
        (item for item in report.skew if item.scope == "steady" and not is_prefill(item.callable)), None
    )


def _of_requests(take: Callable[[RequestFigures], float | None], scale: float = 1.0) -> Measure:
    def measure(report: Report) -> float | None:
        figures = _measured(report)
        return None if figures is None else _scaled(take(figures), scale)

    return measure


def _of_skew(take: Callable[[RankSkew], float | None]) -> Measure:
    def measure(report: Report) -> float | None:
        skew = _steady_skew(report)
        return None if skew is None else _scaled(take(skew), MILLISECOND_NS)

    return measure


def _submit_to_completion(report: Report) -> float | None:
    steps = (
        item
        for item in report.steps
        if item.scope == "steady" and item.source == "submit_to_completion" and not is_prefill(item.callable)
    )
    first = next(steps, None)
    return None if first is None else _scaled(first.latency.p50, MILLISECOND_NS)


HOST_PHASES: tuple[StepPhase, ...] = ("schedule", "prepare", "submit", "reclaim")
"""What of a step's time the host spends working for it, not waiting."""


def _host_time(report: Report) -> float | None:
    if not report.step_time:
        return None
    charged = {entry.phase: entry.charged.mean for entry in report.step_time[0].phases}
    means = [mean for phase in HOST_PHASES if (mean := charged.get(phase)) is not None]
    return sum(means) / MILLISECOND_NS if means else None


def _step_wall(report: Report) -> float | None:
    return _scaled(report.step_time[0].wall.mean, MILLISECOND_NS) if report.step_time else None


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value / scale


_MS = "ms"
_RATE = "tokens/s"
_REGISTRY: dict[str, tuple[Metric, Measure]] = {
    name: (Metric(name, unit, higher, title), measure)
    for name, unit, higher, title, measure in (
        ("tpot", _MS, False, "time per output token", _of_requests(lambda it: it.tpot.mean, MILLISECOND_NS)),
        (
            "step_time",
            _MS,
            False,
            "time per step",
            _of_requests(lambda it: it.step_time.mean, MILLISECOND_NS),
        ),
        ("tokens_per_step", "tokens", True, "tokens per step", _of_requests(lambda it: it.tokens_per_step)),
        (
            "acceptance_length",
            "tokens",
            True,
            "acceptance length",
            _of_requests(lambda it: it.mtp.acceptance_length if it.mtp is not None else None),
        ),
        (
            "acceptance_rate",
            "",
            True,
            "acceptance rate",
            _of_requests(lambda it: it.mtp.acceptance_rate if it.mtp is not None else None),
        ),
        (
            "ttft",
            _MS,
            False,
            "time to first token, mean",
            _of_requests(lambda it: it.ttft.mean, MILLISECOND_NS),
        ),
        ("e2e", _MS, False, "request latency, mean", _of_requests(lambda it: it.e2e.mean, MILLISECOND_NS)),
        (
            "tpot_token_weighted",
            _MS,
            False,
            "time per output token, token-weighted",
            _of_requests(lambda it: it.tpot_token_weighted_ns, MILLISECOND_NS),
        ),
        (
            "effective_tpot",
            _MS,
            False,
            "effective TPOT",
            _of_requests(lambda it: it.effective_tpot_ns, MILLISECOND_NS),
        ),
        ("throughput", _RATE, True, "throughput", _of_requests(lambda it: it.throughput_per_s)),
        (
            "throughput_full_batch",
            _RATE,
            True,
            "full-batch throughput",
            _of_requests(lambda it: it.full_batch_throughput_per_s),
        ),
        ("submit_to_completion", _MS, False, "submit to completion, steady median", _submit_to_completion),
        ("step_wall", _MS, False, "engine time per step, steady mean", _step_wall),
        ("host_time", _MS, False, "host time per step, steady mean", _host_time),
        (
            "critical_rank",
            _MS,
            False,
            "critical rank, steady mean",
            _of_skew(lambda it: it.critical_rank.root.mean),
        ),
        (
            "runner_start_skew_p95",
            _MS,
            False,
            "runner-start skew, steady p95",
            _of_skew(lambda it: it.runner_start_skew.p95),
        ),
        (
            "runner_end_skew_p95",
            _MS,
            False,
            "runner-end skew, steady p95",
            _of_skew(lambda it: it.runner_end_skew.p95),
        ),
    )
}

REGISTRY: tuple[str, ...] = tuple(_REGISTRY)
"""Every name that has a definition of its own; a run's samples hold all of them."""

_STATED: dict[str, tuple[Callable[[StatedFigures], float | None], float]] = {
    "tpot": (lambda it: it.effective_tpot.value, MILLISECOND_NS),
    "ttft": (lambda it: it.ttft.value, MILLISECOND_NS),
    "e2e": (lambda it: it.e2e.value, MILLISECOND_NS),
    "effective_tpot": (lambda it: it.effective_tpot.value, MILLISECOND_NS),
    "throughput": (lambda it: it.throughput.value, 1.0),
    "acceptance_rate": (lambda it: it.acceptance_rate, 1.0),
}
"""What stands for a metric where no client measured the requests: what the server and its files state."""

_TAG = re.compile(r"\[[^\]]*\]$")


def metric(name: str, better: Better | None = None) -> Metric:
    """What `name` means; of a name that the registry does not know, `better` is what the user says of its direction.

    Its unit is that of its suffix (`_ms`, `_us`, `_ns`, `_s`, `_per_s`; none otherwise). A tag in brackets at its end
    (`tpot_ms[bs=32]`) is part of the name alone.

    Raises:
        UnusableInputError: nothing says whether more or less of it is better, or `better` contradicts the registry.
    """
    base, _ = split_tag(name)
    if (stem := base_in_registry(base)) is not None:
        meaning = _REGISTRY[stem][0]
        if better is not None and (better == "more") != meaning.higher_is_better:
            known = "more" if meaning.higher_is_better else "less"
            raise UnusableInputError(f"metric {name}: {known} of it is better, not {better}")
        return Metric(name, meaning.unit, meaning.higher_is_better, meaning.title)
    more = better == "more" if better is not None else more_is_better(name)
    if more is None:
        raise UnusableInputError(
            f"metric {name}: nothing says whether more or less of it is better: declare it, as --metric "
            f'{name}:more or {name}:less, or better = "more" in [gate.metrics."{name}"]'
        )
    return Metric(name, unit_of(name), more)


def more_is_better(name: str) -> bool | None:
    """The direction that the words and the unit of a name say; None where they say none, or both."""
    if (stem := base_in_registry(split_tag(name)[0])) is not None:
        return _REGISTRY[stem][0].higher_is_better
    if is_path(name) and unit_of(name) == "ns":
        return False
    told = better_by_name(split_tag(name)[0])
    return None if told is None else told == "higher"


def unit_of(name: str) -> str:
    """The unit of a metric, "" where its name does not tell."""
    base, _ = split_tag(name)
    if (stem := base_in_registry(base)) is not None:
        return _REGISTRY[stem][0].unit
    if is_path(name):
        return path_unit(name)
    if "/" in base:
        return base.rpartition(" ")[2] if base.rpartition(" ")[2].count("/") == 1 else ""
    return next((unit for suffix, unit in UNITS if base.endswith(suffix)), "")


def canonical(name: str) -> str:
    """The registry's name where `name` is that name with its own unit behind it (`tpot_ms` is `tpot`), else `name`.

    A tag stays: `tpot_ms[bs=32]` becomes `tpot[bs=32]`.
    """
    base, tag = split_tag(name)
    stem = base_in_registry(base)
    return name if stem is None else stem + tag


def split_tag(name: str) -> tuple[str, str]:
    """`tpot_ms[bs=32]` as (`tpot_ms`, `[bs=32]`); the tag is empty where there is none, or where it is an index."""
    found = _TAG.search(name)
    if found is None or found[0][1:-1].isdigit():
        return name, ""
    return name[: found.start()], found[0]


def base_in_registry(base: str) -> str | None:
    """The registry's name of a name without its tag, with or without the unit behind it; None where it has none."""
    if base in _REGISTRY:
        return base
    for suffix, unit in UNITS:
        stem = base.removesuffix(suffix)
        if stem != base and stem in _REGISTRY and _REGISTRY[stem][0].unit in (unit, f"tokens{unit}"):
            return stem
    return None


def is_path(name: str) -> bool:
    """Whether `name` reads as the path of a figure in a report."""
    return begins_in(name, Report)


def suggestion(name: str, also: Iterable[str] = ()) -> str:
    """`; did you mean ...?` with the nearest known names, or where to find them."""
    known = [*REGISTRY, *also]
    field = re.split(r"[.\[]", name, maxsplit=1)[0]
    if field != name and (fields := difflib.get_close_matches(field, Report.__struct_fields__, n=1)):
        return f"; did you mean {fields[0]}{name.removeprefix(field)}?"
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return f"; did you mean {' or '.join(dict.fromkeys(near))}?"
    return (
        f"; known: {', '.join(dict.fromkeys(known))}, or a path of the report such as step_time[0].wall.mean"
    )


def run_values(report: Report, names: Iterable[str] | None = None) -> dict[str, float | None]:
    """The value of every metric in `names` (all of the registry if None) of one run; None where the run has none.

    Times are in ms, rates in tokens a second: `metric(name).unit`. A path's value stands as the report has it.

    Raises:
        UnusableInputError: a name is neither in the registry nor a path in the report; it suggests the nearest ones.
    """
    values: dict[str, float | None] = {}
    for name in REGISTRY if names is None else names:
        known = canonical(name)
        if known in _REGISTRY:
            values[name] = _REGISTRY[known][1](report)
            if report.stated is not None and known in _STATED:
                take, scale = _STATED[known]
                values[name] = _scaled(take(report.stated), scale)
        elif is_path(name):
            values[name] = _at_path(report, name)
        else:
            raise UnusableInputError(f"unknown metric {name!r}{suggestion(name)}")
    return values


def stated_basis(report: Report) -> str | None:
    """What the metrics of requests are taken from where no client measured them; None where one did, or nobody says."""
    stated = report.stated
    if stated is None or not stated.sources:
        return None
    basis = f"requests as stated by {', '.join(stated.sources)}: no client measured them"
    if stated.effective_tpot.value is not None:
        whose = ", ".join(stated.effective_tpot.sources)
        basis += f"; tpot is the effective TPOT of {whose}, which includes prefill"
    return basis


def _at_path(report: Report, path: str) -> float | None:
    try:
        return figure_at(report, path)
    except UnusableInputError as error:
        raise UnusableInputError(f"metric {error}") from error
