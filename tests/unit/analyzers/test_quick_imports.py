"""The analyzers stand alone: no engine, no torch, no pandas behind them."""

from __future__ import annotations

import subprocess
import sys


def test_analyzing_loads_neither_engine_nor_torch_nor_pandas() -> None:
    code = (
        "import sys, analyzers.analysis, analyzers.report.write\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'dsv4bench', 'torch', 'pandas', 'scipy'}))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
