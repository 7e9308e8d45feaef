"""What long tails consist of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from analyzers.ranks.rounds import RankRun, Round
from analyzers.ranks.skew import RankSkew
from analyzers.report.model import Finding
from analyzers.text.words import counted, milliseconds


def long_tails(skew: RankSkew, rounds: Sequence[Round]) -> Iterable[Finding]:
    """What long tails consist of: the late rank beside the rank in the middle of its round, phase by phase."""
    parts: Counter[str] = Counter()
    largest_in: Counter[str] = Counter()
    total = count = 0
    for event in skew.long_tails:
        runs = rounds[event.round].runs
        late = runs[event.rank]
        split = _tail_parts(late, _middle(list(runs.values())))
        parts.update(split)
        largest_in[max(split, key=lambda part: split[part])] += 1
        total += sum(split.values())
        count += 1
    if not count or total <= 0:
        return
    largest = max(parts, key=lambda part: parts[part])
    share = parts[largest] / sum(value for value in parts.values() if value > 0)
    split_text = ", ".join(
        f"{part} {milliseconds(value / count)}" for part, value in parts.items() if abs(value) >= 500 * count
    )
    yield Finding(
        "long_tail_split",
        "info",
        f"{skew.callable}: {largest} is the largest part of {largest_in[largest]} of {counted(count, 'long tail')}, "
        f"{100 * share:.0f} % of what adds to them all",
        f"mean excess of {count} over the middle rank of their round: {milliseconds(total / count)} = {split_text}",
        figures={f"{part}_ns": value / count for part, value in parts.items()},
    )


def _middle(runs: list[RankRun]) -> RankRun:
    """The run whose runner ends in the middle; the earlier of two."""
    ordered = sorted(runs, key=lambda run: (run.phases["runner_run"].end_ns, run.rank))
    return ordered[(len(ordered) - 1) // 2]


def _tail_parts(late: RankRun, middle: RankRun) -> dict[str, int]:
    """End of the late root - end of the middle one, in ns, exactly: how much each part contributes."""
    parts = {"a late start": late.phases["runner_run"].start_ns - middle.phases["runner_run"].start_ns}
    runner = late.phases["runner_run"].duration_ns - middle.phases["runner_run"].duration_ns
    if late.device_wall_ns is not None and middle.device_wall_ns is not None:
        wall = late.device_wall_ns - middle.device_wall_ns
        if late.behind_exchange_ns is not None and middle.behind_exchange_ns is not None:
            behind = late.behind_exchange_ns - middle.behind_exchange_ns
            parts["the program up to its last exchange"] = wall - behind
            parts["the program behind its last exchange"] = behind
        else:
            parts["the device wall"] = wall
        parts["the host side of the runner"] = runner - wall
    else:
        parts["the runner"] = runner
    if "validate" in late.phases and "validate" in middle.phases:
        parts["the gap before validate"] = _gap(late) - _gap(middle)
        parts["validate"] = late.phases["validate"].duration_ns - middle.phases["validate"].duration_ns
    parts["the rest of the run"] = late.root.end_ns - middle.root.end_ns - sum(parts.values())
    return parts


def _gap(run: RankRun) -> int:
    return run.phases["validate"].start_ns - run.phases["runner_run"].end_ns
