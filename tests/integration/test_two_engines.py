"""Two engines at the same time: in one process, and in two. Nothing is shared; request ids may be the same."""

import random
import subprocess
import threading
from pathlib import Path

from analyzers.analysis import analyze
from dsv4bench.engine.engine import Engine, EngineOptions
from dsv4bench.engine.requests import Request
from dsv4bench.model.config import preset
from tests.integration.command import SMALL, command, manifest_of, measured_of, run, shared_memory
from tests.integration.conftest import is_alive

CONFIG = preset("test-b")
OUTPUT = 20
IDS = ("a", "b", "c")


def start(checkpoint: Path, directory: Path, ranks: int) -> Engine:
    return Engine(
        EngineOptions(
            CONFIG,
            checkpoint,
            ranks=ranks,
            requests_per_rank=4,
            max_model_len=128,
            rank_logs=tuple(directory / f"rank-{rank}.log" for rank in range(ranks)),
            server_log=directory / "server.log",
        )
    )


def prompts_of(seed: int) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(2, CONFIG.vocab_size) for _ in range(11)] for _ in IDS]


def answer(engine: Engine, prompts: list[list[int]]) -> list[list[int]]:
    handles = [
        engine.submit(Request(name, prompt, OUTPUT)) for name, prompt in zip(IDS, prompts, strict=True)
    ]
    assert all(handle.wait(30) for handle in handles)
    return [handle.token_ids for handle in handles]


def test_two_engines_of_one_process_share_nothing(checkpoint: Path, tmp_path: Path) -> None:
    before = shared_memory()
    load = {"first": prompts_of(1), "second": prompts_of(2)}
    alone, together = {}, {}
    for name, prompts in load.items():
        (tmp_path / name).mkdir()
        engine = start(checkpoint, tmp_path / name, 2)
        alone[name] = answer(engine, prompts)
        # The same request ids once more, on the same engine.
        assert answer(engine, prompts) == alone[name]
        engine.close()
    assert alone["first"] != alone["second"]

    engines = {}
    for name in load:
        directory = tmp_path / f"{name}-together"
        directory.mkdir()
        engines[name] = start(checkpoint, directory, 2)
    pids = {name: set(engine.worker.rank_pids.values()) for name, engine in engines.items()}
    assert not pids["first"] & pids["second"]

    def work(name: str) -> None:
        together[name] = [answer(engines[name], load[name]) for _ in range(3)]

    threads = [threading.Thread(target=work, args=(name,)) for name in load]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == {name: [alone[name]] * 3 for name in load}

    # The end of one is not the end of the other.
    engines["first"].close()
    assert answer(engines["second"], load["second"]) == alone["second"]
    engines["second"].close()
    assert not any(is_alive(pid) for pid in pids["first"] | pids["second"])
    assert shared_memory() <= before
    for name in load:
        for rank in range(2):
            text = (tmp_path / f"{name}-together" / f"rank-{rank}.log").read_text()
            of = {int(line.split(" pid=")[1].split()[0]) for line in text.splitlines() if " pid=" in line}
            assert len(of) == 1
            assert of < pids[name]


def test_two_runs_of_one_host_share_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    before = shared_memory()
    arguments = ["run", "gbs32-mtp1", *SMALL, "--set", "load.requests=6", "--set", "load.output_tokens=30"]
    alone = run(environment, *arguments, "--out", tmp_path / "alone")
    assert alone.returncode == 0, alone.stderr
    expected = {record.request_id: record.output_token_ids for record in measured_of(tmp_path / "alone")}
    processes = [
        subprocess.Popen(
            command(*arguments, "--out", tmp_path / name),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    for process in processes:
        _, errors = process.communicate(timeout=100)
        assert process.returncode == 0, errors
    timings = [manifest_of(tmp_path / name).timing for name in ("one", "two")]
    assert max(timing.started_ns for timing in timings) < min(timing.finished_ns for timing in timings)
    pids = []
    for name in ("one", "two"):
        out = tmp_path / name
        assert {record.request_id: record.output_token_ids for record in measured_of(out)} == expected
        report = analyze([out])
        assert (report.lost, report.lost_runs, report.lifecycle.faults) == (0, [], [])
        assert report.ranks.ranks == [0, 1, 2, 3]
        pids.append({process.pid for process in manifest_of(out).device_map})
    assert not pids[0] & pids[1]
    assert shared_memory() <= before
