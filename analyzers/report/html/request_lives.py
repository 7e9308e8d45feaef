"""A bar a request: before the engine, queueing, prefill, decode, delivery."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.report.html.axes import LEFT, RIGHT, WIDTH, Scale, picture, x_axis
from analyzers.report.html.markup import Markup, element, join
from analyzers.steps.request_lives import RequestLife
from analyzers.text.figures import number

MOST_BARS = 48
"""More would not be told apart; those with the longest E2E are drawn."""
_ROW = 16
_LABEL = 15
"""Letters of an id that fit beside its bar."""
_COLOURS = {"before": "other", "queueing": "s3", "prefill": "s1", "decode": "s0", "delivery": "s2"}


def request_lives_chart(lives: Sequence[RequestLife]) -> Markup:
    """The requests with the longest E2E, at most `MOST_BARS`, in order of sending."""
    longest = sorted(lives, key=lambda life: life.send_ns - life.last_arrival_ns)[:MOST_BARS]
    shown = sorted(longest, key=lambda life: life.send_ns)
    origin = min(life.send_ns for life in shown)
    scale = Scale(0, max(1, max(life.last_arrival_ns for life in shown) - origin), LEFT, WIDTH - RIGHT)
    rows = [_bar(life, origin, 4.0 + index * _ROW, scale) for index, life in enumerate(shown)]
    height = 4.0 + len(shown) * _ROW
    axis = x_axis(scale, 2, height, f"ms from {origin} ns of the recording's clock")
    return picture(height + 38, f"{len(shown)} requests from sending to their last token", axis, *rows)


def legend() -> Markup:
    """What the colours are."""
    names = {
        "before": "before the engine",
        "queueing": "queueing",
        "prefill": "prefill",
        "decode": "decode",
        "delivery": "delivery",
    }
    entries = [
        element(
            "span",
            element("svg", element("rect", width=10, height=10, class_=colour), width=10, height=10),
            f" {names[part]}  ",
        )
        for part, colour in _COLOURS.items()
    ]
    return element("p", *entries, class_="note")


def _bar(life: RequestLife, origin: int, top: float, scale: Scale) -> Markup:
    name = life.request_id if len(life.request_id) <= _LABEL else f"…{life.request_id[1 - _LABEL :]}"
    label = element(
        "text", element("title", life.request_id), name, x=LEFT - 8, y=top + 11, class_="lane end"
    )
    drawn = []
    at = life.send_ns
    for part, duration in life.parts.items():
        if duration is None:
            break
        left, right = scale(at - origin), scale(at + duration - origin)
        tip = f"{life.request_id}, {part}: {number(duration)} ms, from {number(at - origin)} ms"
        drawn.append(
            element(
                "rect",
                element("title", tip),
                x=left,
                y=top,
                width=max(0.5, right - left),
                height=_ROW - 3,
                class_=f"bar {_COLOURS[part]}",
            )
        )
        at += duration
    return join(label, *drawn)
