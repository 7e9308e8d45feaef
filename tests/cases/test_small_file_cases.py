"""Small files of other tools that invite wrong figures; each test is named after its case."""

from __future__ import annotations

import pytest

from analyzers.readers.files import OpenedFile
from analyzers.readers.formats import format_of
from analyzers.readers.load_report import IssueCounter, LoadReport
from analyzers.readers.observations import counters as counter_files
from analyzers.readers.observations.counters import CounterReading
from analyzers.readers.observations.observation import Observation, ObservedFile
from tests.builders.places import CASES


def opened(data: bytes, name: str = "file") -> OpenedFile:
    return OpenedFile(name, iter([data]), IssueCounter())


def read(data: bytes) -> tuple[Observation, LoadReport]:
    file = opened(data)
    known = format_of(file)
    assert known is not None
    observed = known.read(file)
    assert isinstance(observed, ObservedFile)
    return observed.observation, observed.report


def between(before: bytes, after: bytes) -> Observation:
    readings = []
    for name, data in (("before", before), ("after", after)):
        reading = counter_files.read(opened(data, name))
        assert isinstance(reading, CounterReading)
        readings.append(reading)
    return counter_files.between(*readings)


def test_26_the_wall_clock_is_in_no_duration() -> None:
    observation, _ = read((CASES / "26-wall-clock-steps-back" / "events.jsonl").read_bytes())
    assert observation.figures == {"latency (ms)": 30.0, "pairs": 1}
    [note] = observation.notes
    assert note.startswith("wall_step=-2.03 s")


def test_53_a_straggler_that_rotates_is_none() -> None:
    observation, _ = read((CASES / "53-straggler-rotates" / "steps.jsonl").read_bytes())
    assert observation.figures == {"median step skew (ms)": 5.0, "culprit stability": 0.25}
    assert observation.notes == [
        "no persistent straggler: no rank is slowest in more than 25% of the steps (p = 1, exact multinomial)",
        "slowest by step: 0, 1, 2, 3",
    ]


def test_53_one_that_stays_is_named() -> None:
    observation, _ = read(b'{"step":1,"ms":{"0":10,"1":10,"2":15,"3":10}}\n' * 8)
    assert observation.figures["culprit stability"] == 1.0
    # All 8 on one rank of 4: 4 outcomes of 4**8.
    assert observation.notes[0] == "persistent straggler: rank 2, slowest in 8 of 8 steps, p = 6.1e-05"


def test_57_glued_records_count_and_half_a_record_is_lost() -> None:
    observation, report = read((CASES / "57-jsonl-two-objects-one-line" / "events.jsonl").read_bytes())
    assert observation.n == 3
    assert (report.count("glued_lines"), report.count("bad_line"), report.lost) == (1, 1, 1)


def test_67_creation_times_are_no_counts() -> None:
    case = CASES / "67-spec-counters-created-gauge"
    before, after = ((case / name).read_bytes() for name in ("before.prom", "after.prom"))
    figures = between(before, after).figures
    assert (figures["steps"], figures["drafted"], figures["accepted"]) == (100, 300, 180)
    assert figures["acceptance rate"] == pytest.approx(0.6)
    assert figures["acceptance length"] == pytest.approx(2.8)


def test_67_a_counter_that_was_reset_has_no_rate() -> None:
    case = CASES / "67-spec-counters-created-gauge"
    observation = between(*((case / name).read_bytes() for name in ("after.prom", "before.prom")))
    assert set(observation.figures.values()) == {None}
    assert "reset" in observation.notes[0]


def test_69_the_bonus_token_is_in_the_length_and_no_draft() -> None:
    observation, _ = read((CASES / "69-acceptance-bounds" / "steps.jsonl").read_bytes())
    assert observation.figures == {
        "steps": 10,
        "drafted": 30,
        "accepted": 18,
        "acceptance rate": pytest.approx(0.6),
        "acceptance length": pytest.approx(2.8),
        "accepted drafts per step": pytest.approx(1.8),
    }


def test_69_more_accepted_than_drafted_is_no_step() -> None:
    observation, report = read(b'{"step":0,"drafted":3,"accepted":4}\n{"step":1,"drafted":3,"accepted":3}\n')
    assert (observation.n, report.lost) == (1, 1)


def test_73_a_percentile_says_what_it_rests_on() -> None:
    observation, _ = read((CASES / "73-percentile-small-n" / "samples.json").read_bytes())
    assert observation.figures["p50"] == 12
    # Rank 0.99 * 4 = 3.96: 13 + 0.96 * 7.
    assert observation.figures["p99"] == pytest.approx(19.72)
    assert "p99: n=5 < 100: not resolvable" in observation.notes
    assert observation.notes[0] == "percentiles interpolate linearly between order statistics"
    # No confidence interval either: these are all the figures.
    assert set(observation.figures) == {"p50", "p95", "p99"}


def found(report: LoadReport) -> dict[str, tuple[int, int]]:
    return {issue.kind: (issue.count, issue.lost) for issue in report.issues}


@pytest.mark.parametrize(
    ("text", "n", "issues"),
    [
        ("[10, 11, 12, 13, 20", 4, {"torn_tail": (1, 1), "unterminated": (1, 0)}),
        ("[10, 11,", 2, {"unterminated": (1, 0)}),
        ('[10, "x", null, true, 1e400, NaN, 20]', 2, {"malformed": (5, 5)}),
        ("[10, 11 12]", 2, {"malformed": (1, 1)}),
        ("[10, 11]]", 2, {"trailing_data": (1, 1)}),
        ("\ufeff [ 10 ,\n-11.5 ]\n", 2, {}),
        ("[7]", 1, {}),
    ],
)
def test_73_samples_that_are_damaged(text: str, n: int, issues: dict[str, tuple[int, int]]) -> None:
    observation, report = read(text.encode())
    assert (observation.n, found(report)) == (n, issues)


def test_73_a_hundred_samples_support_every_percentile() -> None:
    observation, _ = read(str(list(range(100))).encode())
    assert observation.figures == {"p50": 49.5, "p95": pytest.approx(94.05), "p99": pytest.approx(98.01)}
    assert observation.notes == ["percentiles interpolate linearly between order statistics"]


A, B, C = '{"ev":"a","t":1}', '{"ev":"b","t":2}', '{"ev":"c","t":3}'


@pytest.mark.parametrize(
    ("text", "n", "issues"),
    [
        (A + B + C + "\n", 3, {"glued_lines": (1, 0)}),
        (A + "xx" + B + "\n" + C, 3, {"bad_line": (1, 1), "glued_lines": (1, 0)}),
        (A[:9] + B + "\n" + C, 2, {"bad_line": (1, 1)}),
        ('{"ev":"}{","t":1}' + A, 2, {"glued_lines": (1, 0)}),
        (A + "\n" + '{"ev":"b","x":{"t":1},' + "\n" + C, 2, {"bad_line": (1, 1)}),
        (B[5:] + "\n" + A, None, {}),
        (A + "\n" + B[5:] + "\n\n\n" + C, 2, {"bad_line": (1, 1)}),
        (A[:-3] + "\n" + B, 1, {"bad_line": (1, 1)}),
    ],
)
def test_57_lines_that_writers_shared(text: str, n: int | None, issues: dict[str, tuple[int, int]]) -> None:
    if n is None:
        known = format_of(opened(text.encode()))
        assert known is not None
        assert known.name == "STRACE log"  # any text, until it was read
        return
    observation, report = read(text.encode())
    assert (observation.n, found(report)) == (n, issues)
    assert report.records == n + report.lost


def events(*walls: str) -> list[str]:
    lines = [
        f'{{"ev":"{("submit", "complete")[index % 2]}","id":1,"mono_ns":{index * 30_000_000},"wall":{wall}}}'
        for index, wall in enumerate(walls)
    ]
    observation, report = read("\n".join(lines).encode())
    assert report.lost == 0
    assert observation.figures == {"latency (ms)": 30.0, "pairs": 1}
    return observation.notes


@pytest.mark.parametrize(
    ("first", "second", "note"),
    [
        ('"2026-05-01T10:00:00.000Z"', '"2026-05-01T10:00:00.030Z"', ""),
        ('"2026-05-01T12:00:00+02:00"', '"2026-05-01T10:00:00.030Z"', ""),
        ('"2026-05-01T10:00:00"', '"2026-05-01T10:00:02.030"', "wall_step=2 s"),
        ('"2026-03-29T01:59:59.990"', '"2026-03-29T02:00:00.020"', ""),
        ("1777629600.0", "1777629598.03", "wall_step=-2 s"),
        ('"yesterday"', '"2026-05-01T10:00:00Z"', ""),
        ("null", "{}", ""),
    ],
)
def test_26_the_wall_clock_in_other_forms(first: str, second: str, note: str) -> None:
    notes = events(first, second)
    assert [text.split(":")[0] for text in notes] == ([note] if note else [])


def test_26_a_completion_before_its_submission_has_no_latency() -> None:
    observation, _ = read(b'{"ev":"submit","id":1,"mono_ns":9}\n{"ev":"complete","id":1,"mono_ns":5}\n')
    assert observation.figures == {"latency (ms)": None, "pairs": 0}
    assert "completes before it is submitted" in observation.notes[0]


PREFIX = "vllm:spec_decode_num_"


def counters(drafts: str, tokens: str, accepted: str, *more: str) -> bytes:
    lines = [f"{PREFIX}drafts_total {drafts}", f"{PREFIX}draft_tokens_total {tokens}"]
    return "\n".join(["# HELP x", *lines, f"{PREFIX}accepted_tokens_total {accepted}", *more]).encode()


def figures_of(after: bytes, before: bytes = counters("0", "0", "0")) -> dict[str, float | None]:
    return between(before, after).figures


def test_67_counters_of_several_engines_add_up() -> None:
    lines = [
        f'{PREFIX}{name}_total{{engine="{engine}",path="a}}b\\"c"}} {value} 1750000000000 # {{id="x"}} 1'
        for engine in (0, 1)
        for name, value in (("drafts", 10), ("draft_tokens", 30), ("accepted_tokens", 18))
    ]
    figures = figures_of("\n".join(lines).encode())
    assert (figures["steps"], figures["drafted"], figures["accepted"]) == (20, 60, 36)


def test_67_what_only_resembles_a_counter_is_left_out() -> None:
    more = [f'{PREFIX}accepted_tokens_per_pos_total{{position="0"}} 7', f"{PREFIX}drafts_created 1.75e+09"]
    more += [f"{PREFIX}drafts 1.75e9", f"{PREFIX}draft_tokens 9"]
    figures = figures_of(counters("100", "3.0e2", "180", *more))
    assert (figures["steps"], figures["drafted"], figures["accepted"]) == (100, 300, 180)
    assert figures["acceptance length"] == pytest.approx(2.8)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1"])
def test_67_a_value_that_is_no_count_gives_no_rate(value: str) -> None:
    assert set(figures_of(counters(value, "300", "180")).values()) == {None}


def test_67_more_accepted_than_drafted_has_no_rate() -> None:
    figures = figures_of(counters("100", "300", "301"))
    assert (figures["acceptance rate"], figures["acceptance length"]) == (None, None)


def test_69_bounds_hold_at_both_ends() -> None:
    for accepted, rate, length in ((0, 0.0, 1.0), (3, 1.0, 4.0)):
        line = f'{{"step":0,"drafted":3,"accepted":{accepted}}}\n'
        observation, _ = read(line.encode() * 5)
        assert observation.figures["acceptance rate"] == rate
        assert observation.figures["acceptance length"] == length


@pytest.mark.parametrize("accepted", ["-1", "4", "1.5", "null", '"2"', "true", "1e400"])
def test_69_a_step_that_cannot_be_is_none(accepted: str) -> None:
    good = '{"step":0,"drafted":3,"accepted":2}\n'
    observation, report = read((good + f'{{"step":1,"drafted":3,"accepted":{accepted}}}\n').encode())
    assert (observation.n, report.lost, observation.figures["accepted"]) == (1, 1, 2)


def test_69_steps_without_drafts_count_as_steps() -> None:
    observation, _ = read(b'{"step":0,"drafted":3,"accepted":3}\n{"step":1,"drafted":0,"accepted":0}\n')
    assert observation.figures["acceptance rate"] == 1.0
    assert observation.figures["acceptance length"] == 2.5


def test_53_ties_and_missing_ranks_name_nobody() -> None:
    lines = ['{"step":0,"ms":{"0":9,"1":9}}', '{"step":1,"ms":{"0":9}}', '{"step":2,"ms":{"0":7,"1":9}}']
    observation, _ = read("\n".join(lines).encode())
    assert observation.figures == {"median step skew (ms)": 1.0, "culprit stability": 1.0}
    assert observation.notes[0] == "1 step without every rank left out"
    assert observation.notes[-1] == "slowest by step: several, 1"
