"""Traces written as text, and what of them was read."""

from __future__ import annotations

import json

from analyzers.readers.chrome_trace import ChromeTrace, read_chrome_trace

Issues = dict[str, tuple[int, int]]
"""kind -> (count, lost)"""


def event(name: str, at: float | str = 1, **fields: object) -> str:
    return json.dumps({"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": 1, **fields})


A, B, C = event("a", 1), event("b", 2), event("c", 3)


def names(trace: ChromeTrace) -> list[str]:
    return list(trace.spans.iter_names())


def issues(trace: ChromeTrace) -> Issues:
    return {issue.kind: (issue.count, issue.lost) for issue in trace.report.issues}


def where(trace: ChromeTrace, kind: str) -> str:
    return next(issue.where for issue in trace.report.issues if issue.kind == kind)


def read(text: str | bytes) -> ChromeTrace:
    return read_chrome_trace(text.encode() if isinstance(text, str) else text, "trace.json")
