"""`dsv4bench view` as a user runs it: what it serves, to whom, and how it ends."""

import os
import signal
import socket
import stat
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from tests.builders.places import TRACES
from tests.integration.command import command

CAPTURE = TRACES / "simpler-l3_pipe_n2_depth2.log"


@contextmanager
def viewing(
    *options: str, environment: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """The process, and the addresses that it printed."""
    process = subprocess.Popen(
        command("view", CAPTURE, *options),
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        addresses = {}
        for _ in range(2 if "--perfetto" in options else 1):
            name, _, address = process.stdout.readline().partition(":")
            addresses[name] = address.strip()
        assert process.stderr.readline() == "Ctrl-C ends it.\n"
        yield process, addresses
    finally:
        process.kill()
        process.communicate()


def get(address: str, **headers: Any) -> Any:
    return urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=10)


def status(address: str, **headers: Any) -> int:
    try:
        with get(address, **headers) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_it_serves_the_report_on_loopback_under_a_random_path_until_interrupted() -> None:
    with viewing("--no-browser") as (process, addresses):
        address = addresses["Report"]
        parts = urlsplit(address)
        assert (parts.scheme, parts.hostname) == ("http", "127.0.0.1")
        assert len(parts.path.strip("/")) >= 20
        with get(address) as answer:
            page = answer.read().decode()
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert page.startswith("<!doctype html>")
        assert "simpler-l3_pipe_n2_depth2.log" in page
        root = f"http://127.0.0.1:{parts.port}"
        assert status(f"{root}/") == 404
        assert status(f"{root}/report.html") == 404
        assert status(f"{address}timeline.pftrace") == 404
        # A page elsewhere whose name resolves to this machine.
        assert status(address, Host=f"rebound.example:{parts.port}") == 404
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", parts.port), timeout=5)
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=10)
        assert (process.returncode, output, error.strip()) == (0, "", "")


def test_two_views_have_different_addresses() -> None:
    with viewing("--no-browser") as (_, first), viewing("--no-browser") as (_, second):
        one, other = urlsplit(first["Report"]), urlsplit(second["Report"])
        assert one.port != other.port
        assert one.path != other.path


def test_perfetto_gets_the_timeline_and_the_page_that_hands_it_over() -> None:
    options = ["--no-browser", "--perfetto", "--perfetto-ui", "http://127.0.0.1:10000/ui/"]
    with viewing(*options) as (_, addresses):
        with get(addresses["Timeline"]) as answer:
            page = answer.read().decode()
        assert 'data-ui="http://127.0.0.1:10000/ui"' in page
        assert "default-src &#x27;none&#x27;" in page
        with get(f"{addresses['Report']}timeline.pftrace") as answer:
            trace = Trace.FromString(answer.read())
        assert any(packet.HasField("track_event") for packet in trace.packet)


@pytest.mark.parametrize("perfetto", [False, True])
def test_it_opens_the_browser(tmp_path: Path, perfetto: bool) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > "{opened}.partial" && mv "{opened}.partial" "{opened}"\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    options = ["--perfetto"] if perfetto else []
    with viewing(*options, environment={"BROWSER": f"{browser} %s"}) as (_, addresses):
        deadline = time.monotonic() + 10
        while not opened.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert opened.read_text().strip() == addresses["Timeline" if perfetto else "Report"]


def test_a_port_that_is_taken_is_an_error_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = subprocess.run(
            command("view", CAPTURE, "--no-browser", "--port", port),
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert result.returncode == 2
    assert result.stderr.startswith(f"dsv4bench: --port {port}: cannot be bound on 127.0.0.1: ")
    assert len(result.stderr.splitlines()) == 1


def test_an_address_that_is_none_is_refused() -> None:
    result = subprocess.run(
        command("view", CAPTURE, "--no-browser", "--perfetto", "--perfetto-ui", "javascript:alert(1)"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 2
    assert "javascript:alert(1): no http or https address" in result.stderr
