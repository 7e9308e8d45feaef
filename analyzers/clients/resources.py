"""What the processes of a run held over time, and how much it grew (docs/metrics.md, Resources)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from analyzers.rundir import ResourceSample

SETTLED_AFTER = 100
"""Decode steps after which memory and descriptors should no longer grow: every buffer was touched once."""

GROWTH_LIMIT = 0.02
"""Share by which resident memory may grow after that before it is a warning."""


class ResourceGrowth(msgspec.Struct, frozen=True):
    """One process between its first sample after `SETTLED_AFTER` decode steps and its last one."""

    process: str
    pid: int
    samples: int
    first_steps: int
    last_steps: int
    first_rss_bytes: int
    last_rss_bytes: int
    first_fds: int
    last_fds: int
    first_shared_regions: int
    last_shared_regions: int

    @property
    def rss_growth(self) -> float:
        """Share by which resident memory grew; negative when it shrank."""
        return (self.last_rss_bytes - self.first_rss_bytes) / self.first_rss_bytes


def measure_resources(samples: Sequence[ResourceSample]) -> list[ResourceGrowth]:
    """Growth of every process; one without two samples after `SETTLED_AFTER` steps has none."""
    by_process: dict[tuple[str, int], list[ResourceSample]] = {}
    for sample in samples:
        if sample.decode_steps >= SETTLED_AFTER and sample.rss_bytes > 0:
            by_process.setdefault((sample.process, sample.pid), []).append(sample)
    return [
        ResourceGrowth(
            process=process,
            pid=pid,
            samples=len(taken),
            first_steps=taken[0].decode_steps,
            last_steps=taken[-1].decode_steps,
            first_rss_bytes=taken[0].rss_bytes,
            last_rss_bytes=taken[-1].rss_bytes,
            first_fds=taken[0].fds,
            last_fds=taken[-1].fds,
            first_shared_regions=taken[0].shared_regions,
            last_shared_regions=taken[-1].shared_regions,
        )
        for (process, pid), taken in by_process.items()
        if len(taken) > 1
    ]
