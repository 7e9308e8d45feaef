import os
import re
import threading
import time
from pathlib import Path

import pytest

from dsv4bench.tracing import DEVICE_CLOCK, StraceEmitter
from dsv4bench.tracing.append import open_append
from dsv4bench.tracing.strace import encode_attributes, encode_field

PIPE_BUF = 4096


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "rank-0.log"


@pytest.fixture
def emitter(log: Path) -> StraceEmitter:
    return StraceEmitter(open_append(log))


def test_a_record_has_the_grammar_of_the_runtime(emitter: StraceEmitter, log: Path) -> None:
    before_ns = time.monotonic_ns()
    emitter.record(
        "chip.run",
        1_000,
        250,
        invocation=3,
        hid="95c9a089a142b608",
        depth=0,
        attributes={"run_id": 1, "dispatch_id": 4, "role": "a b=c"},
    )
    match = re.fullmatch(
        r"\[mono_ns=(\d+)\]\[T0x([0-9a-f]+)\]\[TIMING\] emit_host_span: \[STRACE\] v=1 "
        r"pid=(\d+) tid=(\d+) inv=3 hid=95c9a089a142b608 depth=0 name=chip\.run ts=1000 dur=250 "
        r"run_id=1 dispatch_id=4 role=a%20b%3Dc\n",
        log.read_text(),
    )
    assert match is not None
    assert before_ns <= int(match[1]) <= time.monotonic_ns()
    assert int(match[2], 16) == threading.get_ident()
    assert (int(match[3]), int(match[4])) == (os.getpid(), threading.get_native_id())


def test_a_record_without_attributes_ends_in_a_blank(emitter: StraceEmitter, log: Path) -> None:
    emitter.record("chip.run.bind", 5, 6, invocation=1, hid="0", depth=1)
    assert log.read_text().endswith(" depth=1 name=chip.run.bind ts=5 dur=6 \n")


def test_a_device_span_says_so(emitter: StraceEmitter, log: Path) -> None:
    emitter.record(
        "chip.run.runner_run.device_wall", 0, 9, invocation=1, hid="0", depth=2, attributes=DEVICE_CLOCK
    )
    assert log.read_text().endswith(" ts=0 dur=9 clk=dev\n")


def test_the_anchor_maps_the_monotonic_clock_to_wall_time(emitter: StraceEmitter, log: Path) -> None:
    before = time.monotonic_ns(), time.time_ns()
    emitter.clock_anchor()
    after = time.monotonic_ns(), time.time_ns()
    match = re.fullmatch(
        r"\[mono_ns=\d+\]\[T0x[0-9a-f]+\]\[TIMING\] clock_anchor: "
        r"\[CLOCK_ANCHOR\] v=1 pid=(\d+) mono_ns=(\d+) wall_ns=(\d+)\n",
        log.read_text(),
    )
    assert match is not None
    assert int(match[1]) == os.getpid()
    assert before[0] <= int(match[2]) <= after[0]
    assert before[1] <= int(match[3]) <= after[1]


def test_the_ready_line_names_process_and_device(emitter: StraceEmitter, log: Path) -> None:
    emitter.ready(7)
    assert log.read_text() == f"[chip_process pid={os.getpid()} dev=7] ready\n"


def test_switched_off_it_writes_the_ready_line_only(log: Path) -> None:
    emitter = StraceEmitter(open_append(log), enabled=False)
    emitter.clock_anchor()
    emitter.record("chip.run", 0, 1, invocation=1, hid="0", depth=0)
    emitter.ready(0)
    assert log.read_text() == f"[chip_process pid={os.getpid()} dev=0] ready\n"


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("plain.name-0_9~", "plain.name-0_9~"),
        ("a b", "a%20b"),
        ("k=v", "k%3Dv"),
        ("[STRACE]", "%5BSTRACE%5D"),
        ("100%", "100%25"),
        ("line\nbreak\ttab\x00\x7f", "line%0Abreak%09tab%00%7F"),
        ("é", "%C3%A9"),
    ],
)
def test_grammar_and_control_bytes_are_escaped(text: str, encoded: str) -> None:
    assert encode_field(text, 256) == encoded


def test_a_cut_field_ends_in_a_tilde_and_never_inside_an_escape() -> None:
    assert encode_field("abcdef", 6) == "abcdef"
    assert encode_field("abcdefg", 6) == "abcde~"
    # "abc%0A" has six bytes and "abc%0Ad" seven: the escape goes as a whole to make room for the tilde.
    assert encode_field("abc\nd", 6) == "abc~"
    assert encode_field("\n\n", 3) == "~"


def test_attributes_beyond_the_capacity_are_left_out_behind_a_tilde() -> None:
    text = encode_attributes({f"key{index}": "v" * 300 for index in range(100)})
    assert len(text) <= 2048
    assert text.endswith("v~~")
    # A value takes 256 bytes: 255 and the tilde. Seven of them fit with their keys; the eighth does not.
    assert text.split()[0] == "key0=" + "v" * 255 + "~"
    assert len(text.split()) == 7


def test_the_longest_record_is_one_atomic_write_even_on_a_pipe() -> None:
    read_end, write_end = os.pipe()
    StraceEmitter(write_end).record(
        "n" * 5_000,
        2**63 - 1,
        2**63 - 1,
        invocation=2**64 - 1,
        hid="f" * 16,
        depth=99,
        attributes={f"k{index}": "\n" * 900 for index in range(50)},
    )
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        assert len(pipe.read()) < PIPE_BUF


def test_forked_processes_on_one_pipe_never_tear_a_record() -> None:
    writers, records = 4, 400
    read_end, write_end = os.pipe()
    children = []
    for writer in range(writers):
        child = os.fork()
        if child == 0:
            os.close(read_end)
            emitter = StraceEmitter(write_end)
            for invocation in range(records):
                emitter.record(
                    "chip.run",
                    invocation,
                    writer,
                    invocation=invocation,
                    hid="0",
                    depth=0,
                    attributes={"padding": "x" * (invocation % 250)},
                )
            os._exit(0)
        children.append(child)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        lines = pipe.read().decode("ascii").splitlines()
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * writers
    record = re.compile(r"\[mono_ns=\d+\].* pid=(\d+) .* inv=(\d+) .* ts=\d+ dur=\d+ padding=x*")
    matches = [record.fullmatch(line) for line in lines]
    seen = sorted((int(match[1]), int(match[2])) for match in matches if match is not None)
    assert seen == sorted((child, invocation) for child in children for invocation in range(records))
