r"""Does the gate keep its word? Gates of a profile against itself, against slower ranks, and against worse drafts.

    python benchmarks/gate_trials.py [--trials 20] [--runs 10] [--max-runs 40] [--profile smoke] [--keep DIR]

A group of twenty gates of alike sides, small enough for an hour or two on two quiet cores:

    python benchmarks/gate_trials.py --only alike --runs 5 --max-runs 20 \
        --set engine.ranks=2 --set load.requests=2 --set load.output_tokens=24

Expected: sides that are alike never FAIL; slow ranks always do, with the cause `step time` alone; worse drafts
always do, with the cause `acceptance length` alone. UNDECIDED is no mistake of alike sides: the table counts it. A gate
makes 2 + 2 x runs runs, and 2 x runs more for every further stage. The machine should do nothing else meanwhile. Exit
code 1 where anything was not as expected.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec

from analyzers.gate.model import GateResult
from dsv4bench.profile import load_profile


@dataclass(frozen=True)
class Kind:
    """What the head suffers, and what the gate is to say of it."""

    name: str
    faults: tuple[str, ...]
    verdict: str
    causes: list[str]

    def is_as_expected(self, result: GateResult | None) -> bool:
        if result is None:
            return False
        if self.verdict == "not FAIL":
            return result.verdict != "FAIL"
        return result.verdict == self.verdict and result.causes == self.causes


def gate(kind: Kind, directory: Path, arguments: argparse.Namespace) -> GateResult | None:
    """One gate; None where it came to no verdict."""
    run = f"cmd:{sys.executable} -m dsv4bench run {arguments.profile}"
    head = run + "".join(f" --fault {fault}" for fault in kind.faults)
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "dsv4bench",
                "gate",
                "run",
                arguments.profile,
                "--base",
                run,
                "--head",
                head,
            ),
            *("--runs", str(arguments.runs), "--json", "--out", str(directory)),
            *(("--max-runs", str(arguments.max_runs)) if arguments.max_runs else ()),
            *(word for setting in arguments.set for word in ("--set", setting)),
        ],
        stdout=subprocess.PIPE,
        stderr=None if arguments.verbose else subprocess.DEVNULL,
        check=False,
    )
    try:
        return msgspec.json.decode(done.stdout, type=GateResult)
    except msgspec.DecodeError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--runs", type=int, default=10, help="runs a side and stage")
    parser.add_argument("--max-runs", type=int, help="runs a side at most; four stages if not given")
    parser.add_argument("--profile", default="smoke")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--slow",
        default="10%",
        help="how much longer every rank's runner of the slower head computes",
    )
    parser.add_argument(
        "--spoil", default="0.5", help="share of the drafts that the worse drafter gets wrong"
    )
    parser.add_argument("--only", choices=["alike", "slow", "drafts"], help="trials of this kind alone")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the runs there")
    parser.add_argument("--verbose", action="store_true", help="show every run")
    arguments = parser.parse_args()
    ranks = load_profile(arguments.profile, arguments.set).engine.ranks
    # One slow rank of many alone hardly prolongs a step: cores are shared.
    slow = tuple(f"rank={rank},kind=slow:{arguments.slow}" for rank in range(ranks))
    kinds = [
        Kind("alike", (), "not FAIL", []),
        Kind("slow", slow, "FAIL", ["step time"]),
        Kind("drafts", (f"kind=spoil-drafts:{arguments.spoil}",), "FAIL", ["acceptance length"]),
    ]
    kinds = [kind for kind in kinds if arguments.only in (None, kind.name)]
    results: dict[str, list[GateResult | None]] = {kind.name: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as temporary:
        root = arguments.keep or Path(temporary)
        # Kinds in turn, so that a change of the machine hits all alike.
        for trial in range(arguments.trials):
            for kind in kinds:
                result = gate(kind, root / f"{kind.name}-{trial + 1:02}", arguments)
                results[kind.name].append(result)
                said = "no verdict" if result is None else f"{result.verdict}: {result.headline}"
                mark = "" if kind.is_as_expected(result) else "  <- not as expected"
                print(f"{kind.name} {trial + 1}/{arguments.trials}: {said}{mark}", flush=True)
    wrong = 0
    verdicts = ("PASS", "FAIL", "UNDECIDED")
    print(f"\n{'head':<8} {'gates':>5} {'as expected':>11} {' '.join(verdicts)}  verdicts and causes")
    for kind in kinds:
        found = results[kind.name]
        expected = sum(map(kind.is_as_expected, found))
        wrong += len(found) - expected
        counts = Counter(
            "no verdict" if it is None else " ".join(filter(None, [it.verdict, " + ".join(it.causes)]))
            for it in found
        )
        text = ", ".join(f"{count} x {what}" for what, count in counts.most_common())
        numbers = " ".join(
            f"{sum(it is not None and it.verdict == verdict for it in found):>{len(verdict)}}"
            for verdict in verdicts
        )
        print(f"{kind.name:<8} {len(found):>5} {expected:>11} {numbers}  {text}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
