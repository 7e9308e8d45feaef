"""What of a run's scatter is its host's: ranks on processors that have to share cores with others."""

from __future__ import annotations

from analyzers.rundir import Manifest
from analyzers.text.words import counted


def shared_cores(manifest: Manifest | None) -> str:
    """Why ranks of this run are late now and then whatever they do, in words; "" where nothing says so.

    Ranks on devices of their own share nothing, and ranks on the cores of one host only where the engine and what else
    ran on it when the run began leave fewer cores than ranks.
    """
    if manifest is None or not any(process.device.startswith("cpu") for process in manifest.device_map):
        return ""
    cores, load = manifest.host.cores, manifest.host_before.load_average_1min
    ranks = len(manifest.device_map)
    if cores is None:
        return ""
    busy = ranks + 1
    shared = f"{counted(ranks, 'rank')} and the engine share {counted(cores, 'core')}"
    if busy > cores:
        return shared
    if load is not None and busy + load > cores:
        return f"{shared} with a load of {load:.2f}"
    return ""
