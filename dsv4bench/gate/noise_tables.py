"""A calibration as tables for people."""

from __future__ import annotations

from functools import partial

from analyzers.gate.wording import amount, p_text, percent
from analyzers.text.tables import CellKind, Column, Table
from dsv4bench.gate.noise import GateCalibration


def calibration_tables(found: GateCalibration) -> list[Table]:
    """The noise of each metric, and what gates of so many runs see; what these runs cannot tell stands below."""
    noise = Table(
        f"Noise of {found.runs} alike runs",
        [
            Column("metric"),
            Column("median", CellKind.FIGURES),
            Column("spread", CellKind.SHARE, percent),
            Column("range", CellKind.SHARE, percent),
            Column("drift", CellKind.SHARE, partial(percent, signed=True)),
            Column("p", CellKind.NUMBER, lambda value: p_text(value).removeprefix("p = ")),
        ],
        [
            [
                item.name,
                amount(item.median, item.unit),
                item.spread,
                item.range,
                item.drift,
                item.drift_p,
            ]
            for item in found.noise
        ],
        [
            "spread: 1.4826 x median absolute deviation / median; drift: second half of the runs against the first"
        ],
    )
    names = [item.name for item in found.noise]
    plans = Table(
        "Gates on this machine",
        [
            Column("runs a side and stage", CellKind.COUNT),
            Column("allowed", CellKind.SHARE, percent),
            Column("false alarms", CellKind.FIGURES),
            Column("undecided", CellKind.SHARE, percent),
            *(
                Column(f"{name}, caught", CellKind.SHARE, percent, absent=f"more than {percent(1.0)}")
                for name in names
            ),
        ],
        [
            [
                plan.runs,
                plan.max_regression,
                f"{percent(plan.false_alarms)} (at most {percent(plan.false_alarms_at_most)})",
                plan.undecided,
                *(plan.detectable.get(name) for name in names),
            ]
            for plan in found.plans
        ],
        [
            "false alarms, undecided: shares of gates of alike sides, with all the stages that a gate may make",
            f"caught: the smallest regression that fails with 90 % probability; each figure from gates that were drawn "
            f"from these runs (seed {found.seed})",
            *found.caveats,
        ],
    )
    return [noise, plans]


def advice(found: GateCalibration) -> str:
    """One sentence: which gate this machine allows."""
    if found.recommended_runs is None or found.recommended_max_regression is None:
        return "no advice: these runs are too few, or too noisy for any gate"
    metrics = " ".join(
        f"--metric {item.name}={100 * found.recommended_max_regression:g}%" for item in found.noise
    )
    return f"advice: --runs {found.recommended_runs} {metrics}"
