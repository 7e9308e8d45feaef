"""How the requests of a run are spread over its ranks: a rank that has more to do ends later, and is not slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from analyzers.readers.request_timing import RequestTiming
from analyzers.text.words import counted


@dataclass(frozen=True)
class Work:
    """Requests of the measured batch by rank; empty where the records name no rank."""

    requests: dict[int, int]

    @classmethod
    def of(cls, timings: Sequence[RequestTiming], ranks: Sequence[int]) -> Work:
        """The work of `ranks`, whether or not any request was theirs."""
        measured = [timing for timing in timings if timing.phase == "measured"]
        if not measured or any(timing.rank is None for timing in measured):
            return cls({})
        found = Counter(timing.rank for timing in measured)
        return cls({rank: found[rank] for rank in ranks})

    def has_more(self, rank: int) -> bool:
        """Whether `rank` carries more requests than the ranks do in the middle."""
        others = [count for other, count in self.requests.items() if other != rank]
        return bool(others) and self.requests.get(rank, 0) > median(others)

    def of_rank(self, rank: int) -> str:
        """What `rank` carries, in words."""
        own, all_requests = self.requests[rank], sum(self.requests.values())
        if own == all_requests:
            return "the only request" if own == 1 else f"all {own} requests"
        return f"{own} of {counted(all_requests, 'request')}"
