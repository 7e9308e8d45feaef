"""Which direction of a metric is better, as far as its name says so: the words and units of the field, and no guess.

A name that says nothing, or both, has no direction here: whoever judges the metric must say it (docs/gating.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

Better = Literal["higher", "lower"]


def _each(words: str) -> frozenset[str]:
    return frozenset(words.split())


_TIME_UNITS = _each(
    "ns us µs μs ms s sec secs second seconds millisecond milliseconds msec msecs microsecond microseconds usec usecs "
    "nanosecond nanoseconds nsec nsecs minutes hours"
)
_EVERY_TIME = _TIME_UNITS | {"min", "minute", "h", "hour", "day"}
"""What a rate may be per."""
_SIZES = _each("byte bytes kb mb gb tb kib mib gib tib kilobytes megabytes gigabytes kbytes mbytes gbytes")
_COUNTED = _each(
    "tok toks tokens req reqs requests queries samples steps iterations iters ops operations images sequences seqs "
    "items frames batches prompts transactions dispatches bits gbit gbits mbit mbits kbit kbits flop flops tflop "
    "gflop"
)
"""Work done: so many of them in a time are a rate, with or without `per`."""
_COUNTED_ONE = _each(
    "token request query sample step iteration it iter op operation image sequence seq item frame batch prompt "
    "transaction dispatch bit b inferences inference"
)
"""Rates with `per` alone: `step_s` may be the seconds of a step."""
_HIGHER = _each(
    "throughput goodput bandwidth qps rps tps tgs iops tflops gflops pflops mfu hfu speedup speed acceptance accepted "
    "accuracy gbps mbps kbps bps attainment"
)
_HIGHER_PAIRS = frozenset(
    (what, share)
    for what in ("hit", "hits", "success", "pass", "acceptance")
    for share in ("rate", "ratio", "share", "percent", "fraction")
)
_LOWER = _each(
    "latency latencies time duration elapsed runtime walltime makespan ttft tpot itl tbt e2el delay wait waiting stall "
    "stalls stalled skew jitter lag overhead error errors failure failures failed miss misses missed preemption "
    "preemptions eviction evictions retry retries timeout timeouts perplexity bubble bubbles slowdown cost energy"
)
_COSTS = _TIME_UNITS | _SIZES | _LOWER | {"joule", "joules", "j"}
"""What less is spent of, per whatever it may be."""
_YIELDS = frozenset(
    {("tokens", "step"), ("tokens", "j"), ("tokens", "joule"), ("tokens", "w"), ("tokens", "watt")}
)
_TURNED = _each(
    "saved saving savings reduction gain improvement improved headroom slack margin uptime mtbf lifetime budget drop "
    "loss lost degradation regression delta change diff difference factor faster slower std stdev stddev variance cv "
    "spread range free available remaining left capacity cached reused inverse limit target threshold until"
)
"""Words that turn the meaning of the others round, or hide it."""
_TURNED_PAIRS = frozenset({("between", "failures"), ("to", "failure"), ("hit", "bytes")})
_STATISTICS = re.compile(r"mean|avg|average|median|p\d+|max|min|maximum|minimum|total|sum|overall|\d+")
_WORD = re.compile(r"[kmgt]i?b(?![a-z])|[a-zµμ]+\d*[a-z]*|\d+")
_INSIDE_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")


def better_by_name(name: str) -> Better | None:
    """Whether more or less of a metric of this name is better; None where the name does not say it."""
    words = _words(name)
    pairs = set(pairwise(words))
    if _TURNED.intersection(words) or _TURNED_PAIRS & pairs:
        return None
    found = {_BY_WORD[word] for word in words if word in _BY_WORD}
    if _HIGHER_PAIRS & pairs:
        found.add("higher")
    while words and _STATISTICS.fullmatch(words[-1]) and words[-2:-1] != ["per"]:
        words.pop()
    if words:
        found.update(_by_per(words) if "per" in words else _by_unit(words))
    return found.pop() if len(found) == 1 else None


_BY_WORD: dict[str, Better] = {
    **dict.fromkeys(_HIGHER, "higher"),
    **dict.fromkeys(_LOWER, "lower"),
}


def _words(name: str) -> list[str]:
    """The words of `tokens/s`, `tokens_per_s` and `tokensPerS`: tokens, per, s."""
    return _WORD.findall(_INSIDE_CAMEL.sub(" ", name).replace("/", " per ").lower())


def _by_per(words: Sequence[str]) -> set[Better]:
    """What `... per ...` says: a rate of work, what is spent per piece of it, or what a step yields."""
    place = words.index("per")
    if place in (0, len(words) - 1):
        return set()
    what, each = words[place - 1], words[place + 1]
    last: set[Better] = {"lower"} if words[-1] in _TIME_UNITS and len(words) > place + 2 else set()
    if each in _EVERY_TIME:
        is_rate = what in _COUNTED | _COUNTED_ONE | _SIZES
        return last | ({"higher"} if is_rate else set())
    if (what, each) in _YIELDS:
        return last | {"higher"}
    return last | ({"lower"} if what in _COSTS else set())


def _by_unit(words: Sequence[str]) -> set[Better]:
    """What the unit at the end says: a time or a size, unless what stands before it makes it a rate."""
    unit, before = words[-1], words[-2] if len(words) > 1 else ""
    if unit in ("s", "sec"):
        if before in _COUNTED | _SIZES:
            return {"higher"}
        if before in _COUNTED_ONE:
            return set()
    return {"lower"} if unit in _TIME_UNITS | _SIZES else set()
