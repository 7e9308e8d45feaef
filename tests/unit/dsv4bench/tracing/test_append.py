"""Lines that several processes write to one pipe stay whole."""

import os
import select
import threading

from hypothesis import given
from hypothesis import strategies as st

from dsv4bench.tracing.append import write_lines

LINES = st.lists(st.integers(0, 3 * select.PIPE_BUF), max_size=12)


@given(LINES)
def test_everything_is_written_in_order(lengths: list[int]) -> None:
    lines = b"".join(bytes([97 + index % 26]) * length + b"\n" for index, length in enumerate(lengths))
    reader, writer = os.pipe()
    received: list[bytes] = []

    def read() -> None:
        while data := os.read(reader, 1 << 16):
            received.append(data)

    thread = threading.Thread(target=read)
    thread.start()
    write_lines(writer, lines)
    os.close(writer)
    thread.join()
    os.close(reader)
    assert b"".join(received) == lines


def test_writers_of_one_pipe_do_not_tear_each_others_lines() -> None:
    reader, writer = os.pipe()
    line = {name: name.encode() * 199 + b"\n" for name in "abcd"}

    def write(name: str) -> None:
        for _ in range(20):
            write_lines(writer, line[name] * 40)

    threads = [threading.Thread(target=write, args=(name,)) for name in line]
    for thread in threads:
        thread.start()
    received = b""
    while len(received) < len(line) * 20 * 40 * 200:
        received += os.read(reader, 1 << 16)
    for thread in threads:
        thread.join()
    os.close(reader)
    os.close(writer)
    assert set(received.splitlines(keepends=True)) == set(line.values())
