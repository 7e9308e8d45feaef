"""Small files of other tools that invite wrong figures; each test is named after its case."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.readers.load import IssueCounter, LoadReport
from analyzers.readers.small_files import Observation, between, kind_of, read_small_file

DATA = Path(__file__).parent / "data"


def read(data: bytes) -> tuple[Observation, LoadReport]:
    kind = kind_of(data)
    assert kind is not None
    return read_small_file(data, "file", kind, IssueCounter())


def test_26_the_wall_clock_is_in_no_duration() -> None:
    observation, _ = read((DATA / "26-wall-clock-steps-back" / "events.jsonl").read_bytes())
    assert observation.figures == {"latency (ms)": 30.0, "pairs": 1}
    [note] = observation.notes
    assert note.startswith("wall_step=-2.03 s")


def test_53_a_straggler_that_rotates_is_none() -> None:
    observation, _ = read((DATA / "53-straggler-rotates" / "steps.jsonl").read_bytes())
    assert observation.figures == {"median step skew (ms)": 5.0, "culprit stability": 0.25}
    assert observation.notes[0].startswith("no persistent straggler")


def test_53_one_that_stays_is_named() -> None:
    observation, _ = read(b'{"step":1,"ms":{"0":10,"1":10,"2":15,"3":10}}\n' * 8)
    assert observation.figures["culprit stability"] == 1.0
    # All 8 on one rank of 4: 4 outcomes of 4**8.
    assert observation.notes == ["persistent straggler: rank 2, slowest in 8 of 8 steps, p = 6.1e-05"]


def test_57_glued_records_count_and_half_a_record_is_lost() -> None:
    observation, report = read((DATA / "57-jsonl-two-objects-one-line" / "events.jsonl").read_bytes())
    assert observation.n == 3
    assert (report.count("glued_lines"), report.count("bad_line"), report.lost) == (1, 1, 1)


def test_67_creation_times_are_no_counts() -> None:
    case = DATA / "67-spec-counters-created-gauge"
    before, after = ((name, (case / name).read_bytes()) for name in ("before.prom", "after.prom"))
    figures = between(before, after).figures
    assert (figures["steps"], figures["drafted"], figures["accepted"]) == (100, 300, 180)
    assert figures["acceptance rate"] == pytest.approx(0.6)
    assert figures["acceptance length"] == pytest.approx(2.8)


def test_67_a_counter_that_was_reset_has_no_rate() -> None:
    case = DATA / "67-spec-counters-created-gauge"
    observation = between(*((name, (case / name).read_bytes()) for name in ("after.prom", "before.prom")))
    assert set(observation.figures.values()) == {None}
    assert "reset" in observation.notes[0]


def test_69_the_bonus_token_is_in_the_length_and_no_draft() -> None:
    observation, _ = read((DATA / "69-acceptance-bounds" / "steps.jsonl").read_bytes())
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
    observation, _ = read((DATA / "73-percentile-small-n" / "samples.json").read_bytes())
    assert observation.figures["p50"] == 12
    # Rank 0.99 * 4 = 3.96: 13 + 0.96 * 7.
    assert observation.figures["p99"] == pytest.approx(19.72)
    assert "p99: n=5 < 100: not resolvable" in observation.notes
    assert observation.notes[0] == "percentiles interpolate linearly between order statistics"
