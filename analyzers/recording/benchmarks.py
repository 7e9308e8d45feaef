"""One of the benchmarks of a report that holds several, by name: `report.json#2` is the second of `report.json`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_NAME = re.compile(r"(.+)#([1-9]\d{0,5})", re.DOTALL)


class ChosenBenchmark(NamedTuple):
    """The file of a report, and which of its benchmarks is meant, from 1."""

    file: Path
    number: int


def benchmark_name(path: str, number: int) -> str:
    """What names benchmark `number` of the report at `path`, here and on the command line."""
    return f"{path}#{number}"


def chosen_benchmark(path: Path) -> ChosenBenchmark | None:
    """The benchmark that `path` names; None for the path of a file or directory."""
    match = _NAME.fullmatch(str(path))
    if match is None or path.exists() or not Path(match[1]).is_file():
        return None
    return ChosenBenchmark(Path(match[1]), int(match[2]))


def is_there(path: Path) -> bool:
    """Whether `path` is a file or directory, or names a benchmark of one."""
    return path.exists() or chosen_benchmark(path) is not None
