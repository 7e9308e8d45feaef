"""Watching processes, and what a report says of their growth."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from analyzers.analysis import analyze
from analyzers.clients.resources import measure_resources
from analyzers.report.tables import report_tables
from analyzers.rundir import ResourceSample, RunDirectory
from dsv4bench.run.resources import ResourceWatch, sample_process
from tests.builders.requests import request, write_requests

MIB = 1 << 20


def sample(steps: int, rss: int, fds: int = 10, process: str = "rank 0", shared: int = 3) -> ResourceSample:
    return ResourceSample(steps, steps, process, 7, rss, rss // 2, fds, shared)


def test_a_process_is_sampled_from_proc() -> None:
    before = sample_process("engine", os.getpid(), 5)
    assert before is not None
    ballast = bytearray(os.urandom(1) * (64 * MIB))
    with Path("/dev/null").open():
        after = sample_process("engine", os.getpid(), 6)
    assert after is not None
    assert len(ballast) == 64 * MIB
    assert after.anonymous_bytes - before.anonymous_bytes == pytest.approx(64 * MIB, rel=0.1)
    assert after.rss_bytes - before.rss_bytes == pytest.approx(64 * MIB, rel=0.1)
    assert after.fds == before.fds + 1
    assert (after.process, after.decode_steps, after.pid) == ("engine", 6, os.getpid())
    assert after.time_ns > before.time_ns


def test_shared_memory_counts_once_however_often_it_is_mapped() -> None:
    code = (
        "import mmap, os, sys; fd = os.memfd_create('x'); os.ftruncate(fd, 8192)\n"
        "maps = [mmap.mmap(fd, 4096), mmap.mmap(fd, 8192)]; print('up', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        taken = sample_process("rank 0", child.pid, 0)
        assert taken is not None
        assert taken.shared_regions == 1
        child.communicate()
    assert sample_process("rank 0", child.pid, 0) is None


def test_the_watch_samples_at_the_start_and_every_hundred_steps(tmp_path: Path) -> None:
    path = tmp_path / "resources.jsonl"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        watch = ResourceWatch(path, {0: child.pid})
        for steps in (0, 7, 99, 103, 150, 199, 321, 322):
            watch.observe(steps)
        child.communicate(b"\n")
    watch.sample(400)
    taken = [msgspec.json.decode(line, type=ResourceSample) for line in path.read_bytes().splitlines()]
    # This process is the engine, and as parent of the rank the server as well; at 400 the rank has ended.
    of_each = [("engine", os.getpid()), ("server", os.getpid()), ("rank 0", child.pid)]
    assert [(s.decode_steps, s.process, s.pid) for s in taken] == [
        *((steps, *process) for steps in (0, 103, 321) for process in of_each),
        *((400, *process) for process in of_each[:2]),
    ]


def test_growth_is_counted_from_the_first_sample_behind_a_hundred_steps() -> None:
    samples = [
        sample(0, 10),
        sample(101, 100),
        sample(400, 300),
        sample(1000, 103),
        sample(99, 5, process="engine"),
    ]
    (growth,) = measure_resources([*samples, sample(1000, 6, process="engine")])
    assert (growth.process, growth.samples, growth.first_steps, growth.last_steps) == ("rank 0", 3, 101, 1000)
    assert growth.rss_growth == pytest.approx(0.03)


def test_a_report_warns_of_growth_beyond_two_percent(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    write_requests(run.requests, request("r", [10, 20]))
    samples = [
        sample(100, 100 * MIB), sample(1000, 103 * MIB, fds=11),
        sample(100, 100 * MIB, process="engine"), sample(1000, 102 * MIB, process="engine", shared=4),
    ]  # fmt: skip
    run.resources.write_bytes(b"".join(msgspec.json.encode(taken) + b"\n" for taken in samples))
    report = analyze([tmp_path])
    found = [(f.severity, f.title, f.evidence) for f in report.findings if f.code == "resource_growth"]
    assert found == [
        (
            "warning",
            "rank 0: resident memory grew by 3.0 % from round 100 to round 1000",
            "100.0 to 103.0 MiB",
        ),
        ("warning", "rank 0: 1 more open file descriptor from round 100 to round 1000", "10 to 11"),
        ("warning", "engine: 1 more shared-memory region from round 100 to round 1000", "3 to 4"),
    ]
    tables = {table.title: table for table in report_tables(report)}
    assert tables["Resources (MiB)"].written() == [
        ["rank 0", "100.0", "103.0", "+3.00 %", "10 to 11", "3 to 3"],
        ["engine", "100.0", "102.0", "+2.00 %", "10 to 10", "3 to 4"],
    ]
    row = next(row for row in tables["Overview"].written() if row[0] == "memory growth, max")
    assert row[1:] == ["+3.00 % (rank 0) from round 100 to 1000; file descriptors +1", "resources.jsonl"]


def test_a_torn_sample_is_lost_and_the_others_are_read(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    write_requests(run.requests, request("r", [10]))
    run.resources.write_bytes(msgspec.json.encode(sample(100, MIB)) + b'\n{"time_ns":1')
    report = analyze([tmp_path])
    assert report.lost == 1
    assert any("bad_line=1, first at line 2" in finding.evidence for finding in report.findings)
