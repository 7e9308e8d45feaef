"""Traces of torch.profiler in a run directory, one a rank, are read as the same traces given alone."""

import shutil
from pathlib import Path

from analyzers.analysis import analyze
from analyzers.rundir import RunDirectory
from tests.builders.manifests import write_manifest

RANKS = Path(__file__).parents[3] / "cases" / "data" / "48-base-time-nanoseconds"


def test_they_are_aligned_by_their_base_times_and_no_file_is_left_out(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.torch_profiles.mkdir()
    write_manifest(directory)
    for rank in range(2):
        shutil.copy(RANKS / f"rank{rank}.json", directory.torch_profiles / f"host_{rank}.pt.trace.json")
    inside, alone = analyze([tmp_path]), analyze(sorted(RANKS.glob("rank*.json")))
    assert inside.rank_starts == alone.rank_starts
    assert [start.skew.p50 for start in inside.rank_starts] == [250_000]
    assert [entry.rank for entry in inside.ranks.devices] == [0, 1]
    assert not any(finding.code == "files_not_read" for finding in inside.findings)
