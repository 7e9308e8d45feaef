"""What the server and its files state of the requests, where no client measured them (docs/metrics.md, Stated figures).

Sources that say the same count once; of sources that contradict each other neither is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import PurePath
from typing import Literal

import msgspec

from analyzers.readers.statements import StatedBatch, StatedField, Statements

_ROUNDING = 0.02
"""How far a stated figure may lie from what other stated figures come to, as a share: they were rounded."""


class StatedValue(msgspec.Struct, frozen=True):
    """One of several values that cannot all be true."""

    value: float
    sources: list[str]
    request_id: str | None = None
    """The request that it is said of; None where it is of all of them."""


class StatedFigure(msgspec.Struct, frozen=True):
    """One figure, and who states it; its value is None where nobody does, and where sources contradict each other."""

    value: float | None = None
    sources: list[str] = []
    """Names of the files that state exactly this."""
    requests: int | None = None
    """How many requests it is of, where that is known."""
    contradictions: list[StatedValue] = []


class StatedFigures(msgspec.Struct, frozen=True):
    """Everything that is stated; times in ns, rates in tokens a second. Nothing here was measured by a client."""

    requests: StatedFigure
    prompt_tokens: StatedFigure
    """Of all requests together."""
    output_tokens: StatedFigure
    ttft: StatedFigure
    """Mean over requests, as the server counts it."""
    e2e: StatedFigure
    mtp_accepted: StatedFigure
    mtp_proposed: StatedFigure
    elapsed: StatedFigure
    """Of the batch."""
    throughput: StatedFigure
    effective_tpot: StatedFigure
    """elapsed / output tokens of a request: prefill is in it."""
    impossible: list[str]
    """Requests that are said to have had more drafts accepted than proposed."""

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / proposed."""
        accepted, proposed = self.mtp_accepted.value, self.mtp_proposed.value
        return accepted / proposed if accepted is not None and proposed else None

    @property
    def sources(self) -> list[str]:
        """Names of all files that state something that is used."""
        figures = [getattr(self, name) for name in self.__struct_fields__ if name != "impossible"]
        return _distinct(source for figure in figures for source in figure.sources)

    @property
    def contradicted(self) -> dict[str, list[StatedValue]]:
        """Figure -> the values that sources give it, where they contradict each other."""
        figures = {name: getattr(self, name) for name in self.__struct_fields__ if name != "impossible"}
        return {name: figure.contradictions for name, figure in figures.items() if figure.contradictions}


@dataclass(frozen=True)
class _Claim:
    """What some sources say of a count over requests."""

    sources: list[str]
    requests: int | None
    values: tuple[int, ...] | None
    """Of each request; None where only their sum is stated."""
    total: int


@dataclass(frozen=True)
class _Named:
    """What is stated of requests by their ids."""

    said: Mapping[tuple[str, StatedField], Mapping[int, list[str]]]
    """(Id, field) -> value -> the sources of it."""
    logs: list[str]
    """Those of the sources that are logs of the server."""

    @property
    def requests(self) -> list[str]:
        """Every id."""
        return _distinct(identity for identity, _ in self.said)

    def values(self, field: StatedField) -> dict[str, int]:
        """Id -> the one value that is stated."""
        return {
            identity: next(iter(values))
            for (identity, known), values in self.said.items()
            if known == field and len(values) == 1
        }

    def sources(self, field: StatedField) -> list[str]:
        """Who says something of a field."""
        return _distinct(
            source
            for (_, known), values in self.said.items()
            if known == field
            for sources in values.values()
            for source in sources
        )

    def contradictions(self, field: StatedField) -> list[StatedValue]:
        """The values of requests that have several."""
        return [
            StatedValue(value, sources, identity)
            for (identity, known), values in self.said.items()
            if known == field and len(values) > 1
            for value, sources in values.items()
        ]


def measure_stated(statements: Sequence[Statements]) -> StatedFigures | None:
    """The figures of everything stated; None where nothing is."""
    if not statements:
        return None
    named = _named(statements)
    batches = [(_name(stated), batch) for stated in statements for batch in stated.batches]
    # Of the whole batch before its answers, and those before one answer.
    batches.sort(key=lambda entry: (entry[1].elapsed_ns is None, entry[1].requests is None))
    impossible = _impossible(named)
    return StatedFigures(
        requests=_requests(batches, named),
        prompt_tokens=_total(batches, named, "prompt_tokens"),
        output_tokens=_total(batches, named, "output_tokens"),
        ttft=_of_requests(named, "ttft_ns", mean=True),
        e2e=_of_requests(named, "e2e_ns", mean=True),
        mtp_accepted=StatedFigure() if impossible else _of_requests(named, "accepted"),
        mtp_proposed=StatedFigure() if impossible else _of_requests(named, "proposed"),
        elapsed=_of_batch([(source, batch.elapsed_ns) for source, batch in batches]),
        throughput=_of_batch(
            [(source, batch.throughput_per_s) for source, batch in batches],
            [again for source, batch in batches for again in _throughput_again(source, batch)],
        ),
        effective_tpot=_of_batch(
            [(source, batch.effective_tpot_ns) for source, batch in batches],
            [again for source, batch in batches for again in _effective_tpot_again(source, batch)],
        ),
        impossible=impossible,
    )


def _named(statements: Sequence[Statements]) -> _Named:
    """By id: what logs say, and what files say of requests that a log names. A client may know others by another id."""
    logged = {fact.request_id for stated in statements if stated.is_log for fact in stated.facts}
    said: dict[tuple[str, StatedField], dict[int, list[str]]] = {}
    for stated in sorted(statements, key=lambda entry: not entry.is_log):
        for fact in stated.facts:
            if fact.request_id in logged:
                sources = said.setdefault((fact.request_id, fact.field), {}).setdefault(fact.value, [])
                if _name(stated) not in sources:
                    sources.append(_name(stated))
    return _Named(said, _distinct(_name(stated) for stated in statements if stated.is_log and stated.facts))


def _name(stated: Statements) -> str:
    return PurePath(stated.path).name


def _requests(batches: Sequence[tuple[str, StatedBatch]], named: _Named) -> StatedFigure:
    """How many there were: the files' word, else as many as the log names; it may also name those of a warm-up."""
    counts = [(source, batch.requests) for source, batch in batches if batch.requests is not None]
    counts += [
        (source, len(batch.output_tokens))
        for source, batch in batches
        if batch.requests is not None and batch.output_tokens is not None
    ]
    if not counts and named.requests:
        return StatedFigure(len(named.requests), named.logs)
    if not counts:
        counts = [
            (source, len(batch.output_tokens)) for source, batch in batches if batch.output_tokens is not None
        ]
    figure = _of_batch(counts, rounding=0.0)
    if figure.value == len(named.requests):
        figure = msgspec.structs.replace(figure, sources=_distinct([*figure.sources, *named.logs]))
    return figure


def _total(
    batches: Sequence[tuple[str, StatedBatch]],
    named: _Named,
    field: Literal["prompt_tokens", "output_tokens"],
) -> StatedFigure:
    """A count over all requests, of the most trusted source, where no other contradicts it."""
    contradictions = named.contradictions(field)
    if contradictions:
        return StatedFigure(contradictions=contradictions)
    claims = [claim for source, batch in batches for claim in _claims(source, batch, field)]
    of_log = named.values(field)
    if of_log and len(of_log) == len(named.requests):
        values = tuple(of_log.values())
        claims.append(_Claim(named.sources(field), len(values), values, sum(values)))
    if not claims:
        return StatedFigure()
    if not all(_agree(*pair) for pair in combinations(claims, 2)):
        by_total: dict[int, list[str]] = {}
        for claim in claims:
            by_total.setdefault(claim.total, []).extend(claim.sources)
        values_of = [StatedValue(total, _distinct(sources)) for total, sources in by_total.items()]
        return StatedFigure(contradictions=values_of)
    trusted = claims[0]
    same = [claim for claim in claims if (claim.total, claim.requests) == (trusted.total, trusted.requests)]
    sources = _distinct(source for claim in same for source in claim.sources)
    return StatedFigure(trusted.total, sources, trusted.requests)


def _claims(
    source: str, batch: StatedBatch, field: Literal["prompt_tokens", "output_tokens"]
) -> Iterable[_Claim]:
    values = batch.output_tokens if field == "output_tokens" else batch.prompt_tokens
    if values is not None:
        yield _Claim([source], len(values), values, sum(values))
    if field == "output_tokens" and batch.total_output_tokens is not None:
        yield _Claim([source], batch.requests, None, batch.total_output_tokens)


def _agree(first: _Claim, second: _Claim) -> bool:
    """Whether both can be true: one source may know more of the requests than another."""
    if first.total == second.total or None in (first.requests, second.requests):
        return first.total == second.total
    few, many = sorted((first, second), key=lambda claim: claim.requests or 0)
    if few.requests == many.requests:
        return False
    if few.values is not None and many.values is not None:
        return Counter(few.values) <= Counter(many.values)
    return few.total <= many.total


def _of_requests(named: _Named, field: StatedField, *, mean: bool = False) -> StatedFigure:
    """A sum, or a mean, over the requests of which it is stated."""
    contradictions = named.contradictions(field)
    if contradictions:
        return StatedFigure(contradictions=contradictions)
    values = named.values(field)
    if not values:
        return StatedFigure()
    total = sum(values.values())
    return StatedFigure(total / len(values) if mean else total, named.sources(field), len(values))


def _of_batch(
    stated: Sequence[tuple[str, float | None]],
    again: Sequence[tuple[str, float]] = (),
    rounding: float = _ROUNDING,
) -> StatedFigure:
    """One figure of a batch, by the first who states it, where nobody says another, nor what it follows `again` from."""
    known = [(source, value) for source, value in stated if value is not None]
    if not known:
        return StatedFigure()
    first = known[0][1]
    said = [*known, *again]
    if any(abs(value - first) > rounding * max(abs(value), abs(first)) for _, value in said):
        by_value: dict[float, list[str]] = {}
        for source, value in said:
            by_value.setdefault(value, []).append(source)
        values = [StatedValue(value, _distinct(sources)) for value, sources in by_value.items()]
        return StatedFigure(contradictions=values)
    return StatedFigure(first, _distinct(source for source, value in known if value == first))


def _throughput_again(source: str, batch: StatedBatch) -> Iterable[tuple[str, float]]:
    """What the tokens and the time of a batch come to, to check the throughput that stands beside them."""
    total = _tokens_of(batch)
    if batch.throughput_per_s is not None and total is not None and batch.elapsed_ns:
        yield f"tokens and elapsed time of {source}", total * 1e9 / batch.elapsed_ns


def _effective_tpot_again(source: str, batch: StatedBatch) -> Iterable[tuple[str, float]]:
    """The same for the effective TPOT; it is of requests of one length."""
    total = _tokens_of(batch)
    is_even = batch.output_tokens is None or len(set(batch.output_tokens)) == 1
    if batch.effective_tpot_ns is None or batch.elapsed_ns is None or not total or not batch.requests:
        return
    if is_even:
        yield f"tokens and elapsed time of {source}", batch.elapsed_ns * batch.requests / total


def _tokens_of(batch: StatedBatch) -> int | None:
    if batch.total_output_tokens is not None:
        return batch.total_output_tokens
    return sum(batch.output_tokens) if batch.output_tokens is not None else None


def _impossible(named: _Named) -> list[str]:
    proposed = named.values("proposed")
    return [
        identity
        for identity, accepted in named.values("accepted").items()
        if identity in proposed and accepted > proposed[identity]
    ]


def _distinct(sources: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(sources))
