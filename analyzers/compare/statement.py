"""What a token and a step cost now, in one sentence: TPOT never stands without step time and tokens a step."""

from __future__ import annotations

from collections.abc import Mapping

from analyzers.compare.changes import ALIKE, SIGNIFICANT, in_percent
from analyzers.compare.model import MetricChange

TPOT, STEP_TIME, TOKENS_PER_STEP, ACCEPTANCE = "tpot", "step_time", "tokens_per_step", "acceptance_length"
TOKEN_COST = (TPOT, STEP_TIME, TOKENS_PER_STEP, ACCEPTANCE)
"""What belongs together: tpot = step time / tokens a step; the acceptance length is what speculation adds to the last."""


def token_cost_statement(metrics: Mapping[str, MetricChange]) -> str:
    """Per token, per step and tokens a step side by side, and which of them moved."""
    ratios = {name: metrics[name].ratio for name in TOKEN_COST if name in metrics}
    token, step, tokens = ratios.get(TPOT), ratios.get(STEP_TIME), ratios.get(TOKENS_PER_STEP)
    if token is None and step is None:
        return "What a token or a step costs is unavailable: no request times on both sides."
    if token is None or step is None or tokens is None:
        known = [
            f"{label} {in_percent(ratio)}"
            for label, ratio in (("per token", token), ("per step", step), ("tokens a step", tokens))
            if ratio is not None
        ]
        return f"{', '.join(known).capitalize()}; without the others nobody can tell which part moved."
    sentence = (
        f"{_word(token, 'Slower', 'Faster', 'The same')} per token ({in_percent(token)}), "
        f"{_word(step, 'slower', 'faster', 'the same')} per step ({in_percent(step)}), "
        f"{_word(tokens, 'more', 'fewer', 'as many')} tokens a step ({in_percent(tokens)}"
        f"{_acceptance(metrics)}): {_cause(token, step, tokens)}"
    )
    return f"{sentence}{_certainty(metrics[TPOT])}."


def _word(ratio: float, above: str, below: str, alike: str) -> str:
    return alike if abs(ratio - 1) < ALIKE else above if ratio > 1 else below


def _acceptance(metrics: Mapping[str, MetricChange]) -> str:
    if ACCEPTANCE not in metrics:
        return ""
    change = metrics[ACCEPTANCE]
    return f"; acceptance length {change.a_median:.3f} to {change.b_median:.3f}"


def _cause(token: float, step: float, tokens: float) -> str:
    step_moved, tokens_moved = abs(step - 1) >= ALIKE, abs(tokens - 1) >= ALIKE
    if step_moved and tokens_moved:
        cancel = " and cancel out" if abs(token - 1) < ALIKE else ""
        return f"step time and tokens a step both moved{cancel}"
    if step_moved:
        return "the step time moved, not what a step yields"
    if tokens_moved:
        return "what a step yields moved, not the step time"
    return f"no part moved by {100 * ALIKE:.0f} %"


def _certainty(tpot: MetricChange) -> str:
    if tpot.p_value is None or tpot.p_value < SIGNIFICANT:
        return ""
    return f"; the change per token is not told from noise (p = {tpot.p_value:.3f})"
