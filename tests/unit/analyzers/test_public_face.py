"""`import analyzers`: what it offers, that it loads nothing until asked, and what its functions give."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import analyzers
from tests.builders.places import CASES, REPOSITORY, SMOKE_RUN, TRACES

STRAGGLER = TRACES / "simpler-l3_n4_slow_rank2.log"


def test_every_name_is_there_documented_and_in_the_guide() -> None:
    guide = (REPOSITORY / "docs" / "python.md").read_text()
    assert sorted(analyzers.__all__) == analyzers.__all__
    assert {name for names in analyzers._HOMES.values() for name in names} == set(analyzers.__all__)
    for name in analyzers.__all__:
        assert inspect.getdoc(getattr(analyzers, name)), name
        assert f"`{name}" in guide, name
    assert set(analyzers.__all__) <= set(dir(analyzers))
    with pytest.raises(AttributeError, match="'analyzers' has no attribute 'nothing'"):
        _ = analyzers.nothing


def test_importing_it_loads_nothing() -> None:
    code = "import sys, analyzers; print([name for name in sys.modules if name.startswith(('analyzers.', 'numpy'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_report_is_tables_for_arrow_and_pandas() -> None:
    report = analyzers.analyze(STRAGGLER)
    [ranks] = [table for table in report.tables() if table.title.startswith("Ranks")]
    arrow = ranks.to_arrow()
    row = arrow.to_pylist()[0]
    # The figures of traces/README.md: 24 rounds, the largest start skew 393.854 ms; 24 are too few for a p99.
    assert (row["figure"], row["n"], row["max (ns)"]) == ("runner-start skew", 24, 393_854_254.0)
    assert row["p99 (ns)"] is None
    assert arrow.schema.field("max (ns)").type == pa.float64()
    frame = ranks.to_pandas()
    assert frame.loc[0, "max (ns)"] == 393_854_254.0
    assert str(frame["n"].dtype) == "Int64"


def test_a_recording_is_read_once_and_measured_as_often_as_asked() -> None:
    recording = analyzers.load([SMOKE_RUN])
    report = analyzers.analyze(recording)
    assert report == analyzers.analyze(recording)
    assert recording.spans.to_arrow().num_rows == len(recording.spans.to_pandas()) == len(recording.spans)
    options = analyzers.AnalysisOptions(filters=analyzers.Filters(ranks=frozenset({0})))
    assert analyzers.analyze(recording, options).ranks.ranks == [0]
    assert analyzers.judge(report) == analyzers.Verdict(0, "ok")


def test_a_timeline_goes_to_a_file(tmp_path: Path) -> None:
    summary = analyzers.write_timeline(SMOKE_RUN, tmp_path / "run.json")
    assert Path(summary.path).stat().st_size > 0
    assert summary.format == "chrome"
    with pytest.raises(analyzers.UnusableInputError, match="pftrace"):
        analyzers.write_timeline(SMOKE_RUN, tmp_path / "run.txt")


def test_the_gate_gives_a_verdict() -> None:
    case = CASES / "80-gate-real-regression"
    slower = analyzers.check_gate(case / "candidate.json", case / "baseline.json")
    assert (slower.verdict, slower.metrics[0].verdict) == ("FAIL", "FAIL")
    allowed = analyzers.GatePolicy({"tpot": analyzers.MetricPolicy(max_regression=0.1)})
    assert analyzers.check_gate(case / "candidate.json", case / "baseline.json", allowed).verdict == "PASS"
    with pytest.raises(analyzers.UnusableInputError, match="nothing to compare with"):
        analyzers.check_gate(case / "candidate.json", None)


def test_one_class_catches_every_error_of_an_input(tmp_path: Path) -> None:
    with pytest.raises(analyzers.AnalyzerError, match="cannot be read: No such file"):
        analyzers.load(tmp_path / "missing.json")
