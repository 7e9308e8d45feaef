"""The example of docs/python.md runs as it stands, and prints and draws what it says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
RUN = REPOSITORY / "tests" / "properties" / "data" / "smoke-run"


def test_the_example_runs_from_top_to_bottom(tmp_path: Path) -> None:
    blocks = re.findall(
        r"^```python\n(.*?)^```", (REPOSITORY / "docs" / "python.md").read_text(), re.M | re.S
    )
    assert len(blocks) == 5
    shutil.copytree(RUN, tmp_path / "runs" / "smoke")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "agg", "MPLCONFIGDIR": str(tmp_path / "matplotlib")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    head, _, *lines = done.stdout.splitlines()
    ranks, rest = lines[:2], lines[2:]
    assert head.split() == ["count", "50%", "99%", "max"]
    # The engine of that run had two ranks, and its logs hold 14 runs of each, all of the measured window.
    assert [line.split()[:2] for line in ranks] == [["0", "14.0"], ["1", "14.0"]]
    assert any(line.startswith("runner-start skew") for line in rest)
    assert (tmp_path / "runner-by-rank.png").read_bytes().startswith(b"\x89PNG")
