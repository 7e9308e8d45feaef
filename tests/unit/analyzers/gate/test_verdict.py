"""The decision: what fails, what passes, and what nobody may say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.gate.model import GatePolicy, GateResult, Leniency, MetricPolicy, Samples
from analyzers.gate.stages import Stage
from analyzers.gate.verdict import ONLY_STAGE, STRICT, decide

DEFAULT = GatePolicy({"tpot": MetricPolicy()}, judge_others=True)
BASE = [10.0, 10.1, 9.9, 10.05, 9.95, 10.02, 9.98, 10.07, 9.93, 10.01]


def scaled(factor: float) -> list[float | None]:
    return [value * factor for value in BASE]


def side(**metrics: list[float | None]) -> Samples:
    return Samples(dict(metrics))


def gate(
    base: Samples | None,
    head: Samples,
    policy: GatePolicy = DEFAULT,
    leniency: Leniency = STRICT,
    *,
    stored: bool = True,
    stage: Stage = ONLY_STAGE,
) -> GateResult:
    return decide(base, head, policy, leniency, method="", stored=stored, stage=stage)


def of(result: GateResult, name: str) -> str:
    return next(metric.verdict for metric in result.metrics if metric.name == name)


def test_a_regression_beyond_the_threshold_fails_and_one_below_it_passes() -> None:
    assert gate(side(tpot=scaled(1)), side(tpot=scaled(1.05))).verdict == "FAIL"
    assert gate(side(tpot=scaled(1)), side(tpot=scaled(1.015))).verdict == "PASS"


def test_a_ratio_that_is_the_threshold_but_for_rounding_passes() -> None:
    # 10.2 / 10 is 1.02 exactly to people, and a little more or less to a computer.
    for value in (10.0, 30.0, 70.0, 1.1):
        head: list[float | None] = [value * 1.02] * 10
        assert gate(side(tpot=[value] * 10), side(tpot=head)).verdict == "PASS", value


def test_an_improvement_passes_and_says_so() -> None:
    result = gate(side(tpot=scaled(1)), side(tpot=scaled(0.9)))
    assert result.verdict == "PASS"
    assert result.metrics[0].improved
    assert "10 % better" in result.headline


def test_higher_is_better_is_tested_the_other_way_round() -> None:
    policy = GatePolicy({"throughput": MetricPolicy(0.02)})
    assert gate(side(throughput=scaled(1)), side(throughput=scaled(1.1)), policy).verdict == "PASS"
    result = gate(side(throughput=scaled(1)), side(throughput=scaled(0.9)), policy)
    assert result.verdict == "FAIL"
    assert result.metrics[0].ratio == pytest.approx(0.9)
    assert result.metrics[0].effect == 1.0
    # The base as a multiple of the head: 1 / 0.985 is 1.0152, 1 / 0.979 is 1.0215.
    assert gate(side(throughput=scaled(1)), side(throughput=scaled(0.985)), policy).verdict == "PASS"
    assert gate(side(throughput=scaled(1)), side(throughput=scaled(0.979)), policy).verdict == "FAIL"


def test_too_few_runs_are_undecided_and_say_how_many_are_needed() -> None:
    result = gate(side(tpot=[10.0] * 4), side(tpot=[20.0] * 4))
    # 1 / C(8, 4) is 0.014, 1 / C(10, 5) is 0.004.
    assert (result.verdict, result.exit_code) == ("UNDECIDED", 5)
    assert "5 runs a side are needed" in result.headline
    result = gate(side(tpot=scaled(1)), side(tpot=[20.0, 21.0]))
    # 1 / C(12, 2) is 0.015, 1 / C(13, 3) is 0.0035.
    assert result.verdict == "UNDECIDED"
    assert "or 3 of the candidate beside these 10 of the baseline" in result.headline
    assert gate(side(tpot=scaled(1)), side(tpot=[20.0, 21.0, 22.0])).verdict == "FAIL"


def test_equal_values_of_too_few_runs_are_undecided_too() -> None:
    assert gate(side(tpot=[10.0]), side(tpot=[10.0])).verdict == "UNDECIDED"


def test_runs_that_bound_nothing_are_undecided_however_lenient_the_policy() -> None:
    lenient = GatePolicy({"tpot": MetricPolicy()}, stage_one_p=0.3, fail_p=0.2)
    # 1 / C(4, 2) is 0.17: enough for this policy to fail, too much for a bound at 95 %.
    result = gate(side(tpot=[10.0, 10.1]), side(tpot=[9.0, 9.1]), lenient)
    assert result.verdict == "UNDECIDED"
    assert "so few runs exclude no regression" in result.headline


def test_more_metrics_need_more_runs() -> None:
    policy = GatePolicy({name: MetricPolicy() for name in ("tpot", "ttft", "e2e")})
    five = {name: [10.0, 10.1, 10.2, 10.3, 10.4] for name in policy.metrics}
    slow = {name: [20.0, 20.1, 20.2, 20.3, 20.4] for name in policy.metrics}
    # 3 / C(10, 5) is 0.0119, 3 / C(12, 6) is 0.0032.
    result = gate(Samples(dict(five)), Samples(dict(slow)), policy)
    assert result.verdict == "UNDECIDED"
    assert "6 runs a side are needed for 3 metrics" in result.headline


def test_a_suspicious_change_is_undecided_unless_it_is_the_last_of_interleaved_runs() -> None:
    base = [10.0, 10.1, 10.2, 10.3, 10.4, 10.5]
    head = [10.35, 10.6, 10.7, 10.45, 10.25, 10.8]
    # Of 36 pairs the head wins 30: as few losses, 6, leave 1+1+2+3+5+7+11 = 30 of C(12, 6) = 924 arrangements.
    stored = gate(Samples({"tpot": [*base]}), Samples({"tpot": [*head]}))
    assert stored.metrics[0].p_value == pytest.approx(30 / 924)
    assert stored.verdict == "UNDECIDED"
    assert "suspicious" in stored.headline
    assert "more run" in stored.headline

    def live(stage: Stage) -> GateResult:
        return gate(Samples({"tpot": [*base]}), Samples({"tpot": [*head]}), stored=False, stage=stage)

    assert live(ONLY_STAGE).verdict == "PASS"
    assert "beyond the 2 % allowed, but that is not proven" in live(ONLY_STAGE).headline
    assert live(Stage(1, 2)).verdict == "UNDECIDED"
    assert "suspicious" in live(Stage(1, 2)).headline


def test_stage_two_is_wanted_on_either_sign_of_a_regression() -> None:
    def wanted(base: list[float], head: list[float]) -> bool:
        sides = Samples({"tpot": [*base]}), Samples({"tpot": [*head]})
        result = gate(*sides, stored=False, stage=Stage(1, 4))
        assert result.verdict in ("PASS", "UNDECIDED"), (
            "no regression is said after the first of several stages"
        )
        return result.verdict == "UNDECIDED"

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
    result = gate(
        Samples({"tpot": [*still], "ttft": [*still]}), Samples({"tpot": [*drifted], "ttft": [*still]}), policy
    )
    assert result.metrics[0].adjusted_p == pytest.approx(2 * 30 / 924)


BAD = [0.0, -1.0, math.nan, math.inf, -math.inf, None]


@pytest.mark.parametrize("bad", BAD)
def test_one_value_that_is_no_positive_number_makes_a_side_not_comparable(bad: float | None) -> None:
    broken = [*scaled(1)[:-1], bad]
    result = gate(side(tpot=broken), side(tpot=scaled(1)))
    assert (result.verdict, result.exit_code) == ("NOT-COMPARABLE", 5)
    assert "baseline tpot is not a positive number (run 10" in result.headline
    result = gate(side(tpot=scaled(1)), side(tpot=broken))
    assert result.verdict == "NOT-COMPARABLE"
    assert "candidate tpot is not a positive number (run 10" in result.headline


@pytest.mark.parametrize("empty", [[], [None], [None] * 10])
def test_a_side_without_any_value(empty: list[float | None]) -> None:
    result = gate(side(tpot=scaled(1)), side(tpot=empty))
    assert (result.verdict, result.exit_code) == ("NO-DATA", 3)
    result = gate(side(tpot=empty), side(tpot=scaled(1)))
    assert (result.verdict, result.exit_code) == ("NOT-COMPARABLE", 5)


def test_a_metric_that_the_candidate_lost_is_no_data() -> None:
    result = gate(side(tpot_ms=scaled(1), ttft_ms=scaled(2)), side(tpot_ms=scaled(1)))
    assert result.verdict == "NO-DATA"
    assert "the candidate has no ttft_ms" in result.headline


def test_a_new_metric_is_not_comparable_unless_allowed() -> None:
    base, head = side(tpot_ms=scaled(1)), side(tpot_ms=scaled(1), ttft_ms=scaled(2))
    assert gate(base, head).verdict == "NOT-COMPARABLE"
    allowed = gate(base, head, leniency=Leniency(allow_new=True))
    assert (allowed.verdict, allowed.new_metrics) == ("PASS", ["ttft_ms"])


def test_a_renamed_unit_is_still_the_same_metric() -> None:
    result = gate(side(tpot_ms=scaled(1)), side(tpot=scaled(1.05)))
    assert result.verdict == "FAIL"


def test_two_names_of_one_metric_on_one_side_are_both_judged() -> None:
    base = side(tpot=scaled(1), tpot_ms=scaled(1))
    for slow in ("tpot", "tpot_ms"):
        head = Samples({**base.metrics, slow: scaled(1.5)})
        result = gate(base, head, GatePolicy({"tpot": MetricPolicy()}))
        assert of(result, slow) == "FAIL"
        assert len([metric for metric in result.metrics if metric.judged]) == 2


def test_every_metric_of_a_plain_file_is_judged_where_nobody_chose() -> None:
    result = gate(
        side(tpot_ms=scaled(1), latency_ms=scaled(1)), side(tpot_ms=scaled(1), latency_ms=scaled(1.5))
    )
    assert of(result, "latency_ms") == "FAIL"
    chosen = GatePolicy({"tpot": MetricPolicy()})
    result = gate(
        side(tpot_ms=scaled(1), latency_ms=scaled(1)), side(tpot_ms=scaled(1), latency_ms=scaled(1.5)), chosen
    )
    assert [metric.name for metric in result.metrics] == ["tpot_ms"]


def test_one_metric_covers_its_tagged_kin() -> None:
    base = Samples({"tpot_ms[bs=16]": scaled(1), "tpot_ms[bs=32]": scaled(2)})
    head = Samples({"tpot_ms[bs=16]": scaled(1), "tpot_ms[bs=32]": scaled(2.2)})
    result = gate(base, head, GatePolicy({"tpot": MetricPolicy()}))
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
        result = gate(base, head)
        assert result.verdict == "NOT-COMPARABLE"
        assert text in result.headline
        assert result.metrics[0].ratio is None, "a ratio would be taken for a measurement"
        tolerant = gate(base, head, leniency=Leniency(allow_different=True))
        assert tolerant.verdict == "FAIL"
        assert any(text in warning for warning in tolerant.warnings)


def test_interleaved_revisions_may_know_different_keys() -> None:
    base = Samples({"tpot": scaled(1)}, {"batch": 16}, "a")
    head = Samples({"tpot": scaled(1)}, {"batch": 16, "new_key": 1}, "a")
    assert gate(base, head, stored=False).verdict == "PASS"
    assert gate(base, head).verdict == "NOT-COMPARABLE"


def test_a_failed_run_is_never_dropped_silently() -> None:
    good = Samples({"tpot": scaled(1)})
    values: list[float | None] = [*scaled(1), None]
    broken = Samples({"tpot": values}, failed=["runs/7: status incomplete: rank 3 died"])
    assert gate(good, broken).verdict == "NO-DATA"
    assert "rank 3 died" in gate(good, broken).headline
    assert gate(broken, good).verdict == "NOT-COMPARABLE"
    limited = GatePolicy({"tpot": MetricPolicy(limit=100.0)})
    assert gate(good, broken, limited).verdict == "NO-DATA"
    assert gate(None, broken, limited).verdict == "NO-DATA"
    dropped = gate(good, broken, leniency=Leniency(drop_failed=True))
    assert dropped.verdict == "PASS"
    assert any("rank 3 died" in warning for warning in dropped.warnings)


def test_a_run_on_both_sides_speaks_for_itself() -> None:
    samples = Samples({"tpot": scaled(1)}, runs=[f"runs/{index}" for index in range(10)])
    assert gate(samples, samples).verdict == "NOT-COMPARABLE"
    more = Samples({"tpot": [*scaled(1), 10.3]}, runs=[*samples.runs, "runs/10"])
    assert "runs/0 is a run of both sides" in gate(samples, more).headline
    # Made anew in the same places, they are other runs.
    again = Samples({"tpot": scaled(1.001)}, runs=samples.runs)
    assert gate(samples, again).verdict == "PASS"


def test_an_absolute_limit() -> None:
    policy = GatePolicy({"tpot": MetricPolicy(limit=10.5)}, judge_others=True)
    assert gate(side(tpot=scaled(1)), side(tpot=scaled(1)), policy).verdict == "PASS"
    result = gate(None, side(tpot=scaled(1.1)), policy)
    assert result.verdict == "FAIL"
    assert "above the limit of 10.5 ms" in result.headline
    # Of ten values the 2nd and the 9th bound the median: 1 - 2 * 11 / 1024.
    interval = result.metrics[0].head_interval
    assert interval is not None
    ordered = sorted(BASE)
    assert (interval.low, interval.high) == (pytest.approx(ordered[1] * 1.1), pytest.approx(ordered[8] * 1.1))
    assert interval.confidence == pytest.approx(1 - 22 / 1024)
    # One run in two is above its median, five in a row are by chance in 1 of 32, four in 1 of 16.
    assert gate(None, side(tpot=[10.0] * 5), policy).verdict == "PASS"
    assert gate(None, side(tpot=[10.0] * 4), policy).verdict == "UNDECIDED"
    assert gate(None, side(tpot=[]), policy).verdict == "NO-DATA"
    assert gate(None, side(other=[1.0]), policy).verdict == "NO-DATA"
    least = GatePolicy({"throughput": MetricPolicy(None, limit=100.0)})
    assert gate(None, side(throughput=[99.0] * 5), least).verdict == "FAIL"
    assert gate(None, side(throughput=[101.0] * 5), least).verdict == "PASS"


def test_a_broken_limit_is_the_verdict_though_the_sides_cannot_be_compared() -> None:
    policy = GatePolicy({"tpot": MetricPolicy(limit=10.5)})
    base = Samples({"tpot": scaled(1)}, {"batch": 16})
    head = Samples({"tpot": scaled(1.1)}, {"batch": 32})
    assert gate(base, head, policy).verdict == "FAIL"
    good = Samples({"tpot": scaled(1)}, {"batch": 32})
    assert gate(base, good, policy).verdict == "NOT-COMPARABLE"


def test_nothing_asked_is_nothing_passed() -> None:
    policy = GatePolicy({"tpot": MetricPolicy(max_regression=None)})
    assert gate(side(tpot=scaled(1)), side(tpot=scaled(1)), policy).verdict == "NOT-COMPARABLE"
    assert gate(side(tpot=scaled(1)), side(tpot=scaled(1)), GatePolicy({})).verdict == "NOT-COMPARABLE"
    assert gate(None, side(tpot=scaled(1))).verdict == "NOT-COMPARABLE"


def test_the_worst_verdict_is_that_of_the_whole() -> None:
    policy = GatePolicy({"tpot": MetricPolicy(), "ttft": MetricPolicy()})
    base = side(tpot=scaled(1), ttft=[0.0] * 10)
    result = gate(base, side(tpot=scaled(1.2), ttft=scaled(1)), policy)
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
    result = gate(base, head)
    assert result.causes == expected
    assert [metric.name for metric in result.metrics] == ["tpot", "step_time", "acceptance_length"]
    assert [metric.judged for metric in result.metrics] == [True, False, False]


def test_without_mtp_the_tokens_of_a_step_speak() -> None:
    base = side(tpot=scaled(1), step_time=scaled(2), tokens_per_step=scaled(0.2))
    head = side(tpot=scaled(1.1), step_time=scaled(2), tokens_per_step=scaled(0.2 / 1.1))
    assert gate(base, head).causes == ["tokens per step"]
    assert gate(base, base).causes == []


def test_a_pass_excludes_a_regression_and_says_which() -> None:
    # Of 100 pairs, P(U <= 27) is 0.0446 and P(U <= 28) 0.0526, so that the 28th largest ratio is the bound.
    head = scaled(1.003)
    result = gate(side(tpot=scaled(1)), side(tpot=[*head]))
    ratios = sorted(mine / other for mine in head for other in BASE if mine is not None)
    assert result.metrics[0].excludes == pytest.approx(ratios[-28] - 1)
    assert result.metrics[0].excluded == 0.1
    assert "at most +0.81 % slower (95 %)" in result.headline
    assert result.verdict == "PASS"
    # The same of a metric where more is better: the base as a multiple of the head.
    policy = GatePolicy({"throughput": MetricPolicy(0.02)})
    result = gate(side(throughput=[*head]), side(throughput=scaled(1)), policy)
    assert result.metrics[0].excludes == pytest.approx(ratios[-28] - 1)
    assert "at most +0.81 % worse (95 %)" in result.headline


def test_a_head_that_is_surely_faster_says_by_how_much() -> None:
    result = gate(side(tpot=[10.0] * 5), side(tpot=[9.0] * 5))
    assert result.verdict == "PASS"
    assert result.metrics[0].excludes == pytest.approx(-0.1)
    assert "at least 10 % faster (95 %)" in result.headline


NOISY = [9.0, 11.0, 8.5, 11.5, 9.5, 10.5, 8.0, 12.0]


def test_runs_that_exclude_too_little_are_undecided_and_say_how_many_would_do() -> None:
    result = gate(side(tpot=[*NOISY]), side(tpot=[*NOISY]), stored=False)
    (found,) = result.metrics
    assert (result.verdict, result.exit_code) == ("UNDECIDED", 5)
    assert found.p_value is not None
    assert found.p_value > 0.5
    assert found.excludes is not None
    assert found.excludes > 0.1
    assert found.runs_needed is not None
    assert found.runs_needed > 8
    assert f"about {found.runs_needed} runs a side would do (noise between runs: 14.8 %)" in result.headline
    assert "a PASS must exclude 10 %" in result.headline
    assert "busy" not in result.headline
    # Asked for less, the same runs pass; asked for what is allowed, quiet ones do not.
    lax = GatePolicy({"tpot": MetricPolicy(excluded=0.3)})
    assert gate(side(tpot=[*NOISY]), side(tpot=[*NOISY]), lax).verdict == "PASS"
    quiet = side(tpot=scaled(1.012))
    assert gate(side(tpot=scaled(1)), quiet).verdict == "PASS"
    proof = GatePolicy({"tpot": MetricPolicy()}, excluded=0.0)
    assert gate(side(tpot=scaled(1)), quiet, proof, stored=False).verdict == "PASS"
    assert gate(side(tpot=scaled(1)), side(tpot=scaled(1.019)), proof, stored=False).verdict == "UNDECIDED"


def test_where_the_machine_is_known_to_have_been_busy_it_says_so() -> None:
    busy = Samples({"tpot": [*NOISY]}, busy=True)
    for base, head in ((busy, side(tpot=[*NOISY])), (side(tpot=[*NOISY]), busy)):
        assert "the machine was busy with other work meanwhile" in gate(base, head).headline
    quiet = Samples({"tpot": scaled(1)}, busy=True)
    assert "busy" not in gate(quiet, side(tpot=scaled(1))).headline, "a PASS needs no excuse"


def test_a_limit_passes_only_where_the_runs_keep_it() -> None:
    policy = GatePolicy({"tpot": MetricPolicy(None, limit=10.8)})
    result = gate(None, side(tpot=[*NOISY]), policy)
    # The median is 10; of eight values the 7th bounds it: P(Binomial(8, 1/2) >= 7) is 9 / 256.
    (found,) = result.metrics
    assert (result.verdict, found.head_bound) == ("UNDECIDED", 11.5)
    assert "within the limit of 10.8 ms, but it is at most 11.5 ms (95 %)" in result.headline
    assert found.runs_needed is not None
    assert found.runs_needed > 8
    kept = gate(None, side(tpot=[*NOISY]), GatePolicy({"tpot": MetricPolicy(None, limit=11.5)}))
    assert kept.verdict == "PASS"
    assert "at most 11.5 ms (95 %), within the limit of 11.5 ms" in kept.headline
    few = gate(None, side(tpot=[10.0]), policy)
    assert "1 run bound no median; about 5 runs would do" in few.headline
    least = GatePolicy({"throughput": MetricPolicy(None, limit=8.5)})
    assert gate(None, side(throughput=[*NOISY]), least).metrics[0].head_bound == 8.5
    assert gate(None, side(throughput=[*NOISY]), least).verdict == "PASS"


def test_every_look_has_its_part_of_the_error() -> None:
    sides = side(tpot=scaled(1)), side(tpot=scaled(1.003))
    bounds = [
        gate(*sides, stored=False, stage=Stage(1, stages)).metrics[0].excludes or 0 for stages in (1, 2, 4)
    ]
    assert bounds == sorted(set(bounds)), "the more looks, the less each of them excludes"
    drifted = side(tpot=[value * 1.1 for value in NOISY]), side(tpot=[*NOISY])
    once = gate(drifted[1], drifted[0], stored=False)
    later = gate(drifted[1], drifted[0], stored=False, stage=Stage(3, 4))
    assert once.metrics[0].adjusted_p == once.metrics[0].p_value
    # A regression can be said after the second, third and fourth stage.
    assert later.metrics[0].adjusted_p == pytest.approx(3 * (later.metrics[0].p_value or 0))


values = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.floats(0.5, 2))
samples = st.builds(
    Samples,
    metrics=st.dictionaries(
        st.sampled_from(["tpot", "tpot_ms", "x_us", "throughput"]), st.lists(values, max_size=12)
    ),
)


@given(st.one_of(st.none(), samples), samples, st.booleans())
@settings(max_examples=150, deadline=None)
def test_whatever_the_samples_there_is_a_verdict_and_pass_needs_numbers(
    base: Samples | None, head: Samples, stored: bool
) -> None:
    result = gate(base, head, stored=stored)
    if result.verdict == "PASS":
        judged = [metric for metric in result.metrics if metric.judged]
        assert judged
        for metric in judged:
            assert metric.adjusted_p is not None
            assert min(metric.base_runs, metric.head_runs) >= 3
            assert metric.excludes is not None
            assert metric.excludes <= 0.1 + 1e-9
            assert "(95 %)" in metric.reason
