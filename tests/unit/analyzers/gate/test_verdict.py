"""The decision: what fails, what passes, and what nobody may say."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.gate.model import GatePolicy, GateResult, MetricPolicy, Samples
from analyzers.gate.verdict import judge, wants_second_stage

DEFAULT = GatePolicy({"tpot": MetricPolicy()}, judge_others=True)
BASE = [10.0, 10.1, 9.9, 10.05, 9.95, 10.02, 9.98, 10.07, 9.93, 10.01]


def scaled(factor: float) -> list[float | None]:
    return [value * factor for value in BASE]


def side(**metrics: list[float | None]) -> Samples:
    return Samples(dict(metrics))


def decide(
    base: Samples | None, head: Samples, policy: GatePolicy = DEFAULT, *, stored: bool = True
) -> GateResult:
    return judge(base, head, policy, method="", stored=stored)


def of(result: GateResult, name: str) -> str:
    return next(metric.verdict for metric in result.metrics if metric.name == name)


def test_a_regression_beyond_the_threshold_fails_and_one_below_it_passes() -> None:
    assert decide(side(tpot=scaled(1)), side(tpot=scaled(1.05))).verdict == "FAIL"
    assert decide(side(tpot=scaled(1)), side(tpot=scaled(1.015))).verdict == "PASS"


def test_a_ratio_that_is_the_threshold_but_for_rounding_passes() -> None:
    # 10.2 / 10 is 1.02 exactly to people, and a little more or less to a computer.
    for value in (10.0, 30.0, 70.0, 1.1):
        head: list[float | None] = [value * 1.02] * 10
        assert decide(side(tpot=[value] * 10), side(tpot=head)).verdict == "PASS", value


def test_an_improvement_passes_and_says_so() -> None:
    result = decide(side(tpot=scaled(1)), side(tpot=scaled(0.9)))
    assert result.verdict == "PASS"
    assert result.metrics[0].improved
    assert "10 % better" in result.headline


def test_higher_is_better_is_tested_the_other_way_round() -> None:
    policy = GatePolicy({"throughput": MetricPolicy(0.02)})
    assert decide(side(throughput=scaled(1)), side(throughput=scaled(1.1)), policy).verdict == "PASS"
    result = decide(side(throughput=scaled(1)), side(throughput=scaled(0.9)), policy)
    assert result.verdict == "FAIL"
    assert result.metrics[0].ratio == pytest.approx(0.9)
    assert result.metrics[0].effect == 1.0
    # The base as a multiple of the head: 1 / 0.985 is 1.0152, 1 / 0.979 is 1.0215.
    assert decide(side(throughput=scaled(1)), side(throughput=scaled(0.985)), policy).verdict == "PASS"
    assert decide(side(throughput=scaled(1)), side(throughput=scaled(0.979)), policy).verdict == "FAIL"


def test_too_few_runs_are_undecided_and_say_how_many_are_needed() -> None:
    result = decide(side(tpot=[10.0] * 4), side(tpot=[20.0] * 4))
    # 1 / C(8, 4) is 0.014, 1 / C(10, 5) is 0.004.
    assert (result.verdict, result.exit_code) == ("UNDECIDED", 5)
    assert "5 runs a side are needed" in result.headline
    result = decide(side(tpot=scaled(1)), side(tpot=[20.0, 21.0]))
    # 1 / C(12, 2) is 0.015, 1 / C(13, 3) is 0.0035.
    assert result.verdict == "UNDECIDED"
    assert "or 3 of the candidate beside these 10 of the baseline" in result.headline
    assert decide(side(tpot=scaled(1)), side(tpot=[20.0, 21.0, 22.0])).verdict == "FAIL"


def test_equal_values_of_too_few_runs_are_undecided_too() -> None:
    assert decide(side(tpot=[10.0]), side(tpot=[10.0])).verdict == "UNDECIDED"


def test_more_metrics_need_more_runs() -> None:
    policy = GatePolicy({name: MetricPolicy() for name in ("tpot", "ttft", "e2e")})
    five = {name: [10.0, 10.1, 10.2, 10.3, 10.4] for name in policy.metrics}
    slow = {name: [20.0, 20.1, 20.2, 20.3, 20.4] for name in policy.metrics}
    # 3 / C(10, 5) is 0.0119, 3 / C(12, 6) is 0.0032.
    result = decide(Samples(dict(five)), Samples(dict(slow)), policy)
    assert result.verdict == "UNDECIDED"
    assert "6 runs a side are needed for 3 metrics" in result.headline


def test_a_suspicious_stored_change_is_undecided_and_an_interleaved_one_passes() -> None:
    base = [10.0, 10.1, 10.2, 10.3, 10.4, 10.5]
    head = [10.35, 10.6, 10.7, 10.45, 10.25, 10.8]
    # Of 36 pairs the head wins 30: as few losses, 6, leave 1+1+2+3+5+7+11 = 30 of C(12, 6) = 924 arrangements.
    stored = decide(Samples({"tpot": [*base]}), Samples({"tpot": [*head]}))
    assert stored.metrics[0].p_value == pytest.approx(30 / 924)
    assert stored.verdict == "UNDECIDED"
    assert "suspicious" in stored.headline
    assert "more run" in stored.headline
    live = decide(Samples({"tpot": [*base]}), Samples({"tpot": [*head]}), stored=False)
    assert live.verdict == "PASS"
    assert wants_second_stage(live, DEFAULT)


def test_stage_two_is_wanted_on_either_sign_of_a_regression() -> None:
    def wanted(base: list[float], head: list[float]) -> bool:
        return wants_second_stage(
            decide(Samples({"tpot": [*base]}), Samples({"tpot": [*head]}), stored=False), DEFAULT
        )

    still = scaled(1)
    assert wanted(still, scaled(1.2))
    assert wanted(still, scaled(1.018))  # a low p-value alone
    assert not wanted(still, scaled(0.9))
    assert not wanted(still, still)
    # Three slow base runs hide a head that is 10 % slower from the test (U = 70 of 100, p = 0.07), not from the ratio.
    base = [10.0 + 0.01 * i for i in range(7)] + [13.0, 13.1, 13.2]
    head = [11.0 + 0.01 * i for i in range(10)]
    assert wanted(base, head)


def test_holm_decides_with_several_metrics() -> None:
    drifted = [10.35, 10.6, 10.7, 10.45, 10.25, 10.8]
    still = [10.0, 10.1, 10.2, 10.3, 10.4, 10.5]
    policy = GatePolicy({"tpot": MetricPolicy(), "ttft": MetricPolicy()})
    result = decide(
        Samples({"tpot": [*still], "ttft": [*still]}), Samples({"tpot": [*drifted], "ttft": [*still]}), policy
    )
    assert result.metrics[0].adjusted_p == pytest.approx(2 * 30 / 924)


BAD = [0.0, -1.0, math.nan, math.inf, -math.inf, None]


@pytest.mark.parametrize("bad", BAD)
def test_one_value_that_is_no_positive_number_makes_a_side_not_comparable(bad: float | None) -> None:
    broken = [*scaled(1)[:-1], bad]
    result = decide(side(tpot=broken), side(tpot=scaled(1)))
    assert (result.verdict, result.exit_code) == ("NOT-COMPARABLE", 5)
    assert "baseline tpot is not a positive number (run 10" in result.headline
    result = decide(side(tpot=scaled(1)), side(tpot=broken))
    assert result.verdict == "NOT-COMPARABLE"
    assert "candidate tpot is not a positive number (run 10" in result.headline


@pytest.mark.parametrize("empty", [[], [None], [None] * 10])
def test_a_side_without_any_value(empty: list[float | None]) -> None:
    result = decide(side(tpot=scaled(1)), side(tpot=empty))
    assert (result.verdict, result.exit_code) == ("NO-DATA", 3)
    result = decide(side(tpot=empty), side(tpot=scaled(1)))
    assert (result.verdict, result.exit_code) == ("NOT-COMPARABLE", 5)


def test_a_metric_that_the_candidate_lost_is_no_data() -> None:
    result = decide(side(tpot_ms=scaled(1), ttft_ms=scaled(2)), side(tpot_ms=scaled(1)))
    assert result.verdict == "NO-DATA"
    assert "the candidate has no ttft_ms" in result.headline


def test_a_new_metric_is_not_comparable_unless_allowed() -> None:
    base, head = side(tpot_ms=scaled(1)), side(tpot_ms=scaled(1), ttft_ms=scaled(2))
    assert decide(base, head).verdict == "NOT-COMPARABLE"
    allowed = decide(base, head, msgspec.structs.replace(DEFAULT, allow_new=True))
    assert (allowed.verdict, allowed.new_metrics) == ("PASS", ["ttft_ms"])


def test_a_renamed_unit_is_still_the_same_metric() -> None:
    result = decide(side(tpot_ms=scaled(1)), side(tpot=scaled(1.05)))
    assert result.verdict == "FAIL"


def test_two_names_of_one_metric_on_one_side_are_both_judged() -> None:
    base = side(tpot=scaled(1), tpot_ms=scaled(1))
    for slow in ("tpot", "tpot_ms"):
        head = Samples({**base.metrics, slow: scaled(1.5)})
        result = decide(base, head, GatePolicy({"tpot": MetricPolicy()}))
        assert of(result, slow) == "FAIL"
        assert len([metric for metric in result.metrics if metric.judged]) == 2


def test_every_metric_of_a_plain_file_is_judged_where_nobody_chose() -> None:
    result = decide(
        side(tpot_ms=scaled(1), latency_ms=scaled(1)), side(tpot_ms=scaled(1), latency_ms=scaled(1.5))
    )
    assert of(result, "latency_ms") == "FAIL"
    chosen = GatePolicy({"tpot": MetricPolicy()})
    result = decide(
        side(tpot_ms=scaled(1), latency_ms=scaled(1)), side(tpot_ms=scaled(1), latency_ms=scaled(1.5)), chosen
    )
    assert [metric.name for metric in result.metrics] == ["tpot_ms"]


def test_one_metric_covers_its_tagged_kin() -> None:
    base = Samples({"tpot_ms[bs=16]": scaled(1), "tpot_ms[bs=32]": scaled(2)})
    head = Samples({"tpot_ms[bs=16]": scaled(1), "tpot_ms[bs=32]": scaled(2.2)})
    result = decide(base, head, GatePolicy({"tpot": MetricPolicy()}))
    assert of(result, "tpot_ms[bs=16]") == "PASS"
    assert of(result, "tpot_ms[bs=32]") == "FAIL"


def test_configuration_and_machine() -> None:
    base = Samples({"tpot": scaled(1)}, {"batch": 16, "depth": 2}, "a")
    for config, machine, text in (
        ({"batch": 32, "depth": 2}, "a", "batch 16 vs 32"),
        ({"batch": 16}, "a", "depth 2 vs unknown"),
        ({"batch": 16, "depth": 2}, "b", "machine a vs b"),
        ({"batch": 16, "depth": 2}, None, "machine a vs unknown"),
        ({"batch": "16", "depth": 2, "trace": False}, "a", "trace unknown vs false"),
    ):
        head = Samples({"tpot": scaled(2)}, config, machine)
        result = decide(base, head)
        assert result.verdict == "NOT-COMPARABLE"
        assert text in result.headline
        assert result.metrics[0].ratio is None, "a ratio would be taken for a measurement"
        tolerant = decide(base, head, msgspec.structs.replace(DEFAULT, allow_different=True))
        assert tolerant.verdict == "FAIL"
        assert any(text in warning for warning in tolerant.warnings)


def test_interleaved_revisions_may_know_different_keys() -> None:
    base = Samples({"tpot": scaled(1)}, {"batch": 16}, "a")
    head = Samples({"tpot": scaled(1)}, {"batch": 16, "new_key": 1}, "a")
    assert decide(base, head, stored=False).verdict == "PASS"
    assert decide(base, head).verdict == "NOT-COMPARABLE"


def test_a_failed_run_is_never_dropped_silently() -> None:
    good = Samples({"tpot": scaled(1)})
    values: list[float | None] = [*scaled(1), None]
    broken = Samples({"tpot": values}, failed=["runs/7: status incomplete: rank 3 died"])
    assert decide(good, broken).verdict == "NO-DATA"
    assert "rank 3 died" in decide(good, broken).headline
    assert decide(broken, good).verdict == "NOT-COMPARABLE"
    limited = GatePolicy({"tpot": MetricPolicy(limit=100.0)})
    assert decide(good, broken, limited).verdict == "NO-DATA"
    assert decide(None, broken, limited).verdict == "NO-DATA"
    dropped = decide(good, broken, msgspec.structs.replace(DEFAULT, drop_failed=True))
    assert dropped.verdict == "PASS"
    assert any("rank 3 died" in warning for warning in dropped.warnings)


def test_a_run_on_both_sides_speaks_for_itself() -> None:
    samples = Samples({"tpot": scaled(1)}, runs=[f"runs/{index}" for index in range(10)])
    assert decide(samples, samples).verdict == "NOT-COMPARABLE"
    more = Samples({"tpot": [*scaled(1), 10.3]}, runs=[*samples.runs, "runs/10"])
    assert "runs/0 is a run of both sides" in decide(samples, more).headline
    # Made anew in the same places, they are other runs.
    again = Samples({"tpot": scaled(1.001)}, runs=samples.runs)
    assert decide(samples, again).verdict == "PASS"


def test_an_absolute_limit() -> None:
    policy = GatePolicy({"tpot": MetricPolicy(limit=10.5)}, judge_others=True)
    assert decide(side(tpot=scaled(1)), side(tpot=scaled(1)), policy).verdict == "PASS"
    result = decide(None, side(tpot=scaled(1.1)), policy)
    assert result.verdict == "FAIL"
    assert "above the limit of 10.5 ms" in result.headline
    # Of ten values the 2nd and the 9th bound the median: 1 - 2 * 11 / 1024.
    interval = result.metrics[0].head_interval
    assert interval is not None
    ordered = sorted(BASE)
    assert (interval.low, interval.high) == (pytest.approx(ordered[1] * 1.1), pytest.approx(ordered[8] * 1.1))
    assert interval.confidence == pytest.approx(1 - 22 / 1024)
    assert decide(None, side(tpot=[10.0]), policy).verdict == "PASS"
    assert decide(None, side(tpot=[]), policy).verdict == "NO-DATA"
    assert decide(None, side(other=[1.0]), policy).verdict == "NO-DATA"
    least = GatePolicy({"throughput": MetricPolicy(None, limit=100.0)})
    assert decide(None, side(throughput=[99.0] * 5), least).verdict == "FAIL"
    assert decide(None, side(throughput=[101.0] * 5), least).verdict == "PASS"


def test_a_broken_limit_is_the_verdict_though_the_sides_cannot_be_compared() -> None:
    policy = GatePolicy({"tpot": MetricPolicy(limit=10.5)})
    base = Samples({"tpot": scaled(1)}, {"batch": 16})
    head = Samples({"tpot": scaled(1.1)}, {"batch": 32})
    assert decide(base, head, policy).verdict == "FAIL"
    good = Samples({"tpot": scaled(1)}, {"batch": 32})
    assert decide(base, good, policy).verdict == "NOT-COMPARABLE"


def test_nothing_asked_is_nothing_passed() -> None:
    policy = GatePolicy({"tpot": MetricPolicy(max_regression=None)})
    assert decide(side(tpot=scaled(1)), side(tpot=scaled(1)), policy).verdict == "NOT-COMPARABLE"
    assert decide(side(tpot=scaled(1)), side(tpot=scaled(1)), GatePolicy({})).verdict == "NOT-COMPARABLE"
    assert decide(None, side(tpot=scaled(1))).verdict == "NOT-COMPARABLE"


def test_the_worst_verdict_is_that_of_the_whole() -> None:
    policy = GatePolicy({"tpot": MetricPolicy(), "ttft": MetricPolicy()})
    base = side(tpot=scaled(1), ttft=[0.0] * 10)
    result = decide(base, side(tpot=scaled(1.2), ttft=scaled(1)), policy)
    assert (of(result, "tpot"), of(result, "ttft"), result.verdict) == ("FAIL", "NOT-COMPARABLE", "FAIL")


@pytest.mark.parametrize(
    ("step", "length", "expected"),
    [
        (1.10, 1.0, ["step time"]),
        (1.0, 1 / 1.10, ["acceptance length"]),
        (1.05, 1 / 1.05, ["step time", "acceptance length"]),
        (1.10, 1.001, ["step time"]),
        (1.30, 1.20, ["step time"]),
    ],
)
def test_the_factor_that_moved_is_named(step: float, length: float, expected: list[str]) -> None:
    base = side(tpot=scaled(1), step_time=scaled(2), acceptance_length=scaled(0.17))
    head = side(
        tpot=scaled(step / length), step_time=scaled(2 * step), acceptance_length=scaled(0.17 * length)
    )
    result = decide(base, head)
    assert result.causes == expected
    assert [metric.name for metric in result.metrics] == ["tpot", "step_time", "acceptance_length"]
    assert [metric.judged for metric in result.metrics] == [True, False, False]


def test_without_mtp_the_tokens_of_a_step_speak() -> None:
    base = side(tpot=scaled(1), step_time=scaled(2), tokens_per_step=scaled(0.2))
    head = side(tpot=scaled(1.1), step_time=scaled(2), tokens_per_step=scaled(0.2 / 1.1))
    assert decide(base, head).causes == ["tokens per step"]
    assert decide(base, base).causes == []


values = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.floats(0.5, 2))
samples = st.builds(
    Samples,
    metrics=st.dictionaries(
        st.sampled_from(["tpot", "tpot_ms", "x", "throughput"]), st.lists(values, max_size=12)
    ),
)


@given(st.one_of(st.none(), samples), samples, st.booleans())
@settings(max_examples=150, deadline=None)
def test_whatever_the_samples_there_is_a_verdict_and_pass_needs_numbers(
    base: Samples | None, head: Samples, stored: bool
) -> None:
    result = decide(base, head, stored=stored)
    if result.verdict == "PASS":
        judged = [metric for metric in result.metrics if metric.judged]
        assert judged
        for metric in judged:
            assert metric.adjusted_p is not None
            assert min(metric.base_runs, metric.head_runs) >= 1
