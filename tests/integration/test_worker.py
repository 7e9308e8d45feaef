"""The torch worker alone, on programs whose answers are known by hand."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsv4bench.errors import RankError
from dsv4bench.worker.torch_worker import TorchWorker
from tests.integration.conftest import is_alive


def test_arguments_reach_every_rank_and_outputs_come_back(toy_worker: Callable[..., TorchWorker]) -> None:
    worker = toy_worker(4)
    host_in = worker.alloc_host((4, 3), "float32")
    host_out = worker.alloc_host((4, 3), "float32")
    host_in[:] = [[0], [10], [20], [30]]
    device = worker.alloc_stacked_tensor((np.array([[1, 2, 3]] * 4) * [[1], [2], [3], [4]]).astype("float32"))
    worker.run("add", [host_in, host_out, device, 5])
    assert host_out.tolist() == [[6, 7, 8], [17, 19, 21], [28, 31, 34], [39, 43, 47]]
    # The program added 5 to the device tensor, in place, on each rank.
    back = np.empty(3, "float32")
    worker.copy_from(back, device.shards[2].pointer, 12, worker_id=2)
    assert back.tolist() == [8, 11, 14]


@pytest.mark.parametrize("exchange", ["shared-memory", "torch-distributed"])
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_both_exchanges_deliver_every_row_to_its_rank_in_order(
    toy_worker: Callable[..., TorchWorker], exchange: str, ranks: int
) -> None:
    worker = toy_worker(ranks, exchange=exchange)
    correct = worker.alloc_host((ranks,), "int64")
    for seed in range(12):
        worker.run("exchange", [correct, seed])
    assert correct.tolist() == [12] * ranks


def test_windows_are_reset_when_asked_and_not_before_the_worker_is_idle(
    toy_worker: Callable[..., TorchWorker],
) -> None:
    worker = toy_worker(3)
    correct = worker.alloc_host((3,), "int64")
    for seed in range(4):
        worker.run("exchange", [correct, seed])
    assert worker.window_resets == 0
    pending = worker.submit("sleep", [100])
    worker.reset_windows()
    assert pending.done()
    assert worker.window_resets == 1
    for seed in range(5):
        worker.run("exchange", [correct, seed])
    assert correct.tolist() == [9] * 3
    worker.close()
    with pytest.raises(RuntimeError, match="reset_windows: the worker is closed"):
        worker.reset_windows()


def test_two_dispatches_are_in_flight_and_a_third_waits_for_the_oldest(
    toy_worker: Callable[..., TorchWorker],
) -> None:
    worker = toy_worker(2)
    released = [worker.alloc_host((2,), "int32") for _ in range(2)]
    first, second = (worker.submit("hold", [flags]) for flags in released)
    assert not first.done()
    assert not second.done()
    third = []
    submitting = threading.Thread(target=lambda: third.append(worker.submit("sleep", [1])))
    submitting.start()
    submitting.join(0.05)
    assert third == []
    released[0][:] = 1
    submitting.join(30)
    assert first.done()
    assert not second.done()
    released[1][:] = 1
    third[0].result(30)
    assert second.done()
    assert [handle.dispatch_id for handle in (first, second, *third)] == [1, 2, 3]


def stop(pid: int) -> None:
    """Stop a process, and return when every thread of it stands still."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    while any((task / "stat").read_text().rpartition(")")[2].split()[0] != "T" for task in tasks.iterdir()):
        time.sleep(0.001)


def test_no_rank_starts_its_runner_before_the_last_one_has_bound(
    toy_worker: Callable[..., TorchWorker],
) -> None:
    worker = toy_worker(3)
    began = worker.alloc_host((3,), "int64")
    worker.run("stamp", [began])
    for slow in range(3):
        stop(worker.rank_pids[slow])
        handle = worker.submit("stamp", [began])
        # Time for the others to begin, which they may not however long it is.
        time.sleep(0.1)
        bound_at = time.perf_counter_ns()
        os.kill(worker.rank_pids[slow], signal.SIGCONT)
        handle.result(30)
        assert (began > bound_at).all()


def test_a_handle_keeps_its_outcome_for_every_waiter(toy_worker: Callable[..., TorchWorker]) -> None:
    worker = toy_worker(2)
    handle = worker.submit("fail", [1])
    errors = []

    def wait() -> None:
        try:
            handle.result()
        except RankError as error:
            errors.append(error)

    threads = [threading.Thread(target=wait) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 10
    assert len({id(error) for error in errors}) == 1
    assert "rank 1 raised in dispatch 1 (fail)" in str(errors[0])
    assert "ValueError: deliberate failure" in str(errors[0])
    with pytest.raises(RankError, match="rank 1 raised"):
        worker.submit("sleep", [1])


def test_a_timeout_leaves_the_dispatch_alive(toy_worker: Callable[..., TorchWorker]) -> None:
    worker = toy_worker(1)
    released = worker.alloc_host((1,), "int32")
    handle = worker.submit("hold", [released])
    with pytest.raises(TimeoutError, match=r"dispatch 1 \(hold\) is still running"):
        handle.result(0.01)
    released[:] = 1
    handle.result()
    for timeout in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="finite number of seconds"):
            handle.result(timeout)


def test_a_program_whose_output_is_wrong_fails_its_dispatch(toy_worker: Callable[..., TorchWorker]) -> None:
    worker = toy_worker(2)
    with pytest.raises(RankError, match="output out of range"):
        worker.run("invalid", [])


def test_ordinary_memory_is_refused_as_an_argument(toy_worker: Callable[..., TorchWorker]) -> None:
    worker = toy_worker(1)
    shared = worker.alloc_host((4, 4), "float32")
    with pytest.raises(TypeError, match="must be allocated by the worker's alloc_host"):
        worker.submit("sleep", [np.zeros(4, "float32")])
    with pytest.raises(TypeError, match="must be contiguous"):
        worker.submit("sleep", [shared[:, ::2]])


def test_pointers_are_checked_and_nothing_is_written(toy_worker: Callable[..., TorchWorker]) -> None:
    worker = toy_worker(2)
    tensor = worker.alloc_tensor((4,), "float32", init=np.arange(4, dtype="float32"), worker_id=0)
    source = np.full(8, 9, "float32")
    base = tensor.pointer
    refused = [
        (lambda: worker.copy_to(base + 4, source, 4, worker_id=0), "lies 4 bytes inside"),
        (lambda: worker.copy_to(base, source, 4, worker_id=1), "belongs to rank 0"),
        (lambda: worker.copy_to(base, source, 20, worker_id=0), "exceed the 16-byte allocation"),
        (lambda: worker.copy_to_offset(base, 12, source, 8, worker_id=0), "exceed the 16-byte allocation"),
        (lambda: worker.copy_to_offset(base, -4, source, 4, worker_id=0), "exceed the 16-byte allocation"),
        (lambda: worker.copy_to_offset(base + 4, 0, source, 4, worker_id=0), "lies 4 bytes inside"),
        (lambda: worker.copy_from_offset(source, base, 12, 8, worker_id=0), "exceed the 16-byte allocation"),
        (lambda: worker.copy_from_offset(source, base + 4, 0, 4, worker_id=0), "lies 4 bytes inside"),
        (lambda: worker.copy_to(base, source, 0, worker_id=0), "must be positive"),
        (lambda: worker.copy_to(base, source[:2], 16, worker_id=0), "exceed the host tensor's 8"),
        (lambda: worker.copy_to(12345, source, 4, worker_id=0), "malloc never returned it"),
        (lambda: worker.free(base + 16, worker_id=0), "not the base of a live allocation"),
    ]
    for operation, message in refused:
        with pytest.raises(ValueError, match=message):
            operation()
    with pytest.raises(IndexError, match=r"worker_id 2 is not in 0\.\.1"):
        worker.malloc(4, worker_id=2)
    content = np.empty(4, "float32")
    worker.copy_from(content, base, 16, worker_id=0)
    assert content.tolist() == [0, 1, 2, 3]
    worker.copy_to_offset(base, 8, source, 4, worker_id=0)
    worker.copy_from(content, base, 16, worker_id=0)
    assert content.tolist() == [0, 1, 9, 3]
    worker.copy_from_offset(content, base, 8, 8, worker_id=0)
    assert content.tolist() == [9, 3, 9, 3]


def test_a_stale_pointer_stays_invalid_when_its_memory_is_used_again(
    toy_worker: Callable[..., TorchWorker],
) -> None:
    worker = toy_worker(1)
    first = worker.malloc(64, worker_id=0)
    worker.free(first, worker_id=0)
    second = worker.malloc(64, worker_id=0)
    assert second != first
    with pytest.raises(ValueError, match="it was freed"):
        worker.copy_to(first, np.zeros(64, "uint8"), 64, worker_id=0)
    with pytest.raises(ValueError, match="it was freed"):
        worker.free(first, worker_id=0)


@pytest.mark.parametrize(
    ("how", "expected"), [(int(signal.SIGKILL), "was killed by SIGKILL"), (0, "exited with code 7")]
)
def test_a_dying_rank_is_named_and_takes_every_process_with_it(
    toy_worker: Callable[..., TorchWorker], how: int, expected: str
) -> None:
    worker = toy_worker(4)
    pids = dict(worker.rank_pids)
    first = worker.submit("die", [2, how])
    second = worker.submit("sleep", [1])
    for handle in (first, second):
        with pytest.raises(RankError, match=rf"rank 2 \(pid {pids[2]}\) {expected}"):
            handle.result(30)
    worker.close()
    assert not any(is_alive(pid) for pid in pids.values())


@pytest.mark.parametrize(
    ("program", "arguments", "expected"),
    [
        ("fail", [0], "rank 0 raised in dispatch 2"),
        ("die", [0, int(signal.SIGKILL)], "was killed by SIGKILL"),
    ],
)
def test_a_failure_leaves_the_dispatch_before_it_to_complete(
    toy_worker: Callable[..., TorchWorker], program: str, arguments: list[Any], expected: str
) -> None:
    worker = toy_worker(3)
    # Rank 0 is through with the first dispatch at once and fails in the second, while rank 1 is still in the first.
    released = worker.alloc_host((3,), "int32")
    released[:] = (1, 0, 1)
    first = worker.submit("hold", [released])
    second = worker.submit(program, arguments)
    with pytest.raises(RankError, match=expected):
        second.result(30)
    assert not first.done()
    released[1] = 1
    first.result(30)
    pids = list(worker.rank_pids.values())
    worker.close()
    assert not any(is_alive(pid) for pid in pids)


def test_a_hanging_rank_is_named_after_the_timeout(toy_worker: Callable[..., TorchWorker]) -> None:
    worker = toy_worker(3, dispatch_timeout_s=2)
    os.kill(worker.rank_pids[1], signal.SIGSTOP)
    with pytest.raises(RankError, match=r"did not complete within 2 s; still waiting for rank 1 \(pid"):
        worker.run("sleep", [1])
    pids = list(worker.rank_pids.values())
    worker.close()
    assert not any(is_alive(pid) for pid in pids)


def test_close_drains_what_is_in_flight_and_refuses_later_calls(
    toy_worker: Callable[..., TorchWorker],
) -> None:
    worker = toy_worker(2)
    handles = [worker.submit("sleep", [100]), worker.submit("sleep", [100])]
    pids = list(worker.rank_pids.values())
    worker.close()
    worker.close()
    for handle in handles:
        handle.result(0)
    with pytest.raises(RuntimeError, match="submit: the worker is closed"):
        worker.submit("sleep", [1])
    assert not any(is_alive(pid) for pid in pids)


def test_a_rank_that_cannot_start_is_an_error_with_its_cause(
    toy_worker: Callable[..., TorchWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    with pytest.raises(RankError, match="No module named 'toy_programs'"):
        toy_worker(2)


def test_the_ranks_die_with_the_server(toy_worker: Callable[..., TorchWorker]) -> None:
    worker = toy_worker(2)
    pids = list(worker.rank_pids.values())
    server = int(Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(server, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(is_alive(pid) for pid in pids)
    with pytest.raises(Exception, match=r"rank server ended unexpectedly|was killed by"):
        worker.run("sleep", [1])


def test_logs_hold_whole_records_of_every_rank(
    toy_worker: Callable[..., TorchWorker], tmp_path: Path
) -> None:
    logs = tuple(tmp_path / f"rank-{rank}.log" for rank in range(3))
    server_log = tmp_path / "server.log"
    worker = toy_worker(3, rank_logs=logs, server_log=server_log)
    worker.tracing = True
    for _ in range(20):
        worker.run("exchange", [worker.alloc_host((3,), "int64"), 1])
    worker.close()
    for rank, log in enumerate(logs):
        lines = log.read_text().splitlines()
        roots = [line for line in lines if " name=chip.run " in line]
        assert len(roots) == 20
        assert [line for line in lines if "ready" in line] == [
            f"[chip_process pid={worker.rank_pids[rank]} dev={rank}] ready"
        ]
        assert all(line.count("[STRACE]") <= 1 for line in lines)
        assert f"hid={2:016x}" in roots[0]
        assert "dispatch_id=1" in roots[0]
    together = server_log.read_text().splitlines()
    for log in logs:
        assert set(log.read_text().splitlines()) <= set(together)
    assert sum(" name=node.post_fence_retirement " in line for line in together) == 20
    assert sum(" name=node.complete " in line for line in together) == 60
