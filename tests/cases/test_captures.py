"""Real captures of the runtime give the counts and skews worked out for them by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analyzers.analysis import analyze, judge
from analyzers.report.model import Report
from tests.builders.places import TRACES

L2 = "simpler-l2_pipe_depth2.log"
MULTI_CHIP = "simpler-l3_multi_chip_dispatch.log"
TWO_CHIPS = "simpler-l3_pipe_n2_depth2.log"
SLOW_RANK = "simpler-l3_n4_slow_rank2.log"
DEPTH_ONE = "pypto-pp_win2_depth2.log"
DEPTH_TWO = "pypto-pp_win2_persist_noreset.log"
WARN_LEVEL = "simpler-l3_warn_level.log"


def without_ready_lines(name: str, directory: Path) -> Path:
    text = (TRACES / name).read_text()
    path = directory / name
    path.write_text(re.sub(r"\[chip_process pid=\d+ dev=\d+\] ready\n", "", text))
    return path


def codes(report: Report) -> list[str]:
    return [finding.code for finding in report.findings]


@pytest.mark.parametrize(
    ("name", "records", "ranks", "rounds", "roots"),
    [
        (L2, 78, [0], 6, 6),
        (MULTI_CHIP, 39, [0, 1], 1, 2),
        (TWO_CHIPS, 216, [0, 1], 6, 12),
        (SLOW_RANK, 1680, [0, 1, 2, 3], 24, 96),
        (DEPTH_ONE, 218, [0, 1], 6, 12),
        (DEPTH_TWO, 218, [0, 1], 6, 12),
    ],
)
def test_every_record_is_read_and_every_root_finds_its_round(
    name: str, records: int, ranks: list[int], rounds: int, roots: int
) -> None:
    report = analyze([TRACES / name])
    assert (report.records, report.parsed, report.lost) == (records, records, 0)
    assert report.ranks.ranks == ranks
    [skew] = report.skew
    assert (skew.rounds, skew.roots, skew.incomplete) == (rounds, roots, [])
    # The simulator writes no ids on the roots: rounds are matched by the invocation number.
    assert skew.matched_by == "inv"
    assert judge(report).exit_code == 0


def test_skews_of_one_round_on_two_chips() -> None:
    [skew] = analyze([TRACES / MULTI_CHIP]).skew
    assert skew.runner_start_skew.max == 966065036921 - 966045867443 == 19_169_478
    assert skew.runner_end_skew.max == (966065036921 + 319812627) - (966045867443 + 286787920) == 52_194_185


@pytest.mark.parametrize("ready_lines", [True, False])
def test_skews_of_six_rounds_on_two_chips(ready_lines: bool, tmp_path: Path) -> None:
    path = TRACES / TWO_CHIPS if ready_lines else without_ready_lines(TWO_CHIPS, tmp_path)
    report = analyze([path])
    [skew] = report.skew
    # 39.242 16.173 12.004 24.539 7.680 1.248 and 15.985 15.900 51.904 23.892 79.899 7.901 ms, sorted.
    assert skew.runner_start_skew.max == 39_242_377
    assert skew.runner_start_skew.min == 1_248_065
    assert skew.runner_start_skew.p50 == (12_004_280 + 16_172_744) / 2
    assert skew.runner_end_skew.max == 79_898_686
    assert skew.runner_end_skew.min == 7_900_751
    assert skew.runner_end_skew.p50 == (15_984_694 + 23_891_725) / 2
    # Of six values there is no p95.
    assert skew.runner_start_skew.p95 is None
    assert report.ranks.bases == (["ready lines"] if ready_lines else ["scheduler records"])
    # Rank 0 ends last in rounds 4, rank 1 in 2, whatever the ranks were named by.
    assert skew.last_to_end.counts == {0: 4, 1: 2}


@pytest.mark.parametrize("ready_lines", [True, False])
def test_the_slow_device_is_named_with_evidence(ready_lines: bool, tmp_path: Path) -> None:
    path = TRACES / SLOW_RANK if ready_lines else without_ready_lines(SLOW_RANK, tmp_path)
    report = analyze([path])
    [skew] = report.skew
    assert skew.runner_start_skew.max == 393_854_254
    assert skew.runner_end_skew.max == 415_834_393
    assert skew.last_to_end.counts == {0: 0, 1: 4, 2: 19, 3: 1}
    assert skew.last_to_end.test is not None
    assert skew.last_to_end.test.p_value < 1e-6
    stragglers = [finding for finding in report.findings if finding.code == "straggler"]
    assert stragglers
    assert all("rank 2" in finding.title and finding.severity == "warning" for finding in stragglers)


def test_six_rounds_of_two_ranks_tell_nothing_about_stragglers() -> None:
    report = analyze([TRACES / TWO_CHIPS])
    # Were one rank last in all six, that would still happen by chance in 2 of 64 cases.
    assert "too_few_rounds" in codes(report)
    assert "no_persistent_straggler" not in codes(report)
    assert "straggler" not in codes(report)


@pytest.mark.parametrize(
    ("name", "overlapping", "state", "most"),
    [
        # The windows are not persistent: each submit waits for the run before, whatever the caller asked for.
        (DEPTH_ONE, 0, "depth one", 1),
        # From the third run on, two are in flight.
        (DEPTH_TWO, 4, "partly overlapped", 2),
        (TWO_CHIPS, 5, "in flight", 2),
    ],
)
def test_depth_by_the_scheduler_s_records(name: str, overlapping: int, state: str, most: int) -> None:
    [pipeline] = analyze([TRACES / name]).pipelines
    assert (pipeline.scheduled.overlapping, pipeline.scheduled.pairs) == (overlapping, 5)
    assert (pipeline.state, pipeline.most_in_flight) == (state, most)
    assert "by the scheduler's records" in pipeline.statement


def test_one_chip_has_no_skew_rather_than_a_skew_of_zero() -> None:
    report = analyze([TRACES / L2])
    [skew] = report.skew
    assert skew.runner_start_skew.n == skew.runner_end_skew.n == skew.step_end_skew.n == 0
    assert skew.runner_start_skew.max is None
    assert skew.runner_run.n == 6
    # No ready line, no scheduler: the rank's name is said to be a guess.
    assert report.ranks.bases == ["pid order"]
    assert "rank_names" in codes(report)


def test_the_later_of_two_ranks_outlasts_the_dispatch_of_the_other(tmp_path: Path) -> None:
    report = analyze([without_ready_lines(MULTI_CHIP, tmp_path)])
    # pid 18727 ends after worker 0 had completed: it is worker 1. Device 0 is pid 18726 by the ready lines, too.
    assert report.ranks.bases == ["scheduler records"]
    assert [(entry.rank, entry.pids) for entry in report.ranks.devices] == [(0, ["18726"]), (1, ["18727"])]
    assert report.skew[0].runner_start_skew.max == 19_169_478


def test_a_log_without_timing_records_says_that_the_log_level_is_the_reason() -> None:
    report = analyze([TRACES / WARN_LEVEL])
    assert (report.records, report.spans, report.skew) == (0, 0, [])
    [finding] = [finding for finding in report.findings if finding.code == "no_data"]
    assert "log level" in finding.title
    assert "2 ranks report ready" in finding.evidence
    assert "PYPTO_RUNTIME_LOG=v9" in finding.advice
    assert judge(report).exit_code == 3


def test_device_clocks_are_kept_off_the_host_window() -> None:
    report = analyze([TRACES / L2])
    # The first and last times in the log among records without clk=dev; device spans count from 0.
    assert report.host_window_ns == (1_008_307_400_353, 1_009_104_661_598)
    wall = next(entry for entry in report.span_names if entry.name == "chip.run.runner_run.device_wall")
    assert (wall.clock, wall.duration.n) == ("device", 6)
    [skew] = report.skew
    assert skew.host_excess.n == 6


def test_bubbles_of_the_one_chip_pipeline_lie_between_its_runs() -> None:
    [skew] = analyze([TRACES / L2]).skew
    assert skew.device_bubble.n == 5
