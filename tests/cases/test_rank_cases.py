"""Traces of one rank each: which rank, on which clock, and who keeps the others waiting. Named after their cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.analysis import analyze, analyze_recording
from analyzers.errors import UnusableInputError
from analyzers.recording.recording import LoadOptions, Recording, load_recording
from tests.builders.places import CASES


def load(case: str, *names: str, **options: object) -> Recording:
    ranks = {str(CASES / case / name): rank for name, rank in options.pop("ranks", {}).items()}  # type: ignore[attr-defined]
    return load_recording([CASES / case / name for name in names], LoadOptions(ranks=ranks, **options))  # type: ignore[arg-type]


def test_43_equal_pids_are_told_apart_by_rank() -> None:
    spans = load("43-same-pid-in-every-rank", "rank0.json", "rank1.json").spans
    assert spans.rank.tolist() == [0, 1]
    assert len(spans.lanes) == 2
    assert spans.duration_ns.tolist() == [10_000, 14_000]


def test_45_an_unknown_rank_is_an_error_and_never_rank_0() -> None:
    case = "45-rank-discovery"
    with pytest.raises(UnusableInputError, match=r"norank\.json: rank unknown; pass --rank .*=N"):
        load(case, "compact.json", "nested.json", "norank.json")


def test_45_the_user_may_name_it() -> None:
    recording = load(
        "45-rank-discovery",
        "compact.json",
        "nested.json",
        "norank.json",
        ranks={"norank.json": 0},
        allow_missing=True,
    )
    assert recording.spans.rank.tolist() == [3, 2, 0]
    assert recording.missing_ranks == [1, 4, 5, 6, 7]


def test_46_a_rank_claimed_twice_and_one_missing() -> None:
    case = "46-duplicate-rank"
    with pytest.raises(UnusableInputError) as raised:
        load(case, "a.json", "b.json")
    text = str(raised.value).replace(f"{CASES / case}/", "")
    assert text.startswith("rank 0 claimed by a.json and b.json; rank 1 of world_size 2 missing")
    assert raised.value.exit_code == 2
    recording = load(case, "a.json", "b.json", allow_missing=True)
    assert recording.missing_ranks == [1]
    # One rank has no skew: there is no figure at all.
    assert analyze_recording(recording).rank_starts == []


def test_48_times_count_from_the_common_base() -> None:
    recording = load("48-base-time-nanoseconds", "rank0.json", "rank1.json")
    assert recording.spans.start_ns.tolist() == [1_000_000, 1_250_000]
    assert (recording.clocks.method, recording.clocks.base_ns) == ("base times", 1_780_000_000_000_000_000)
    [figures] = analyze_recording(recording).rank_starts
    assert (figures.name, figures.skew.n, figures.skew.max) == ("step", 1, 250_000)
    # Nothing tells how well the wall clocks of the hosts agree.
    assert recording.clocks.uncertainty_ns is None


def test_48_a_file_without_a_base_among_others_is_an_error(tmp_path: Path) -> None:
    plain = tmp_path / "rank1.json"
    plain.write_text(
        '{"distributedInfo":{"rank":1},"traceEvents":[{"ph":"X","name":"s","pid":1,"tid":1,"ts":1,"dur":1}]}'
    )
    with pytest.raises(UnusableInputError, match="mixed time bases"):
        load_recording([CASES / "48-base-time-nanoseconds" / "rank0.json", plain])


def test_without_bases_times_of_two_files_are_not_aligned() -> None:
    recording = load("43-same-pid-in-every-rank", "rank0.json", "rank1.json")
    assert recording.clocks.method == "not aligned"
    # Without a common clock there is no figure across ranks.
    assert analyze_recording(recording).rank_starts == []


def test_51_the_slow_rank_has_the_shortest_exchange() -> None:
    report = analyze([CASES / "51-slow-rank-shortest-collective" / "trace.json"])
    [finding] = [finding for finding in report.findings if finding.code == "slow_rank_in_exchange"]
    assert finding.figures["rank"] == 5
    assert finding.figures["imposed_wait_ns"] == 400_000
    assert "ranks 0, 1, 2, 3, 4, 6, 7" in finding.evidence
