"""The process of a server: ready, failed, stopped; and nothing of it left, whatever it started."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from dsv4bench.errors import EngineError
from dsv4bench.profile import load_profile
from dsv4bench.server_kinds.load import load_kind
from dsv4bench.server_kinds.process import ServerProcess
from dsv4bench.server_kinds.resolve import ResolvedServer, free_port, resolve

pytestmark = pytest.mark.medium

SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(STATUS); self.end_headers()
    def log_message(self, *_):
        pass
print("up", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def server_of(script: str, tmp_path: Path, *settings: str, token: str = "none") -> ResolvedServer:
    program = tmp_path / "server.py"
    program.write_text(script)
    kind = tmp_path / "kind.toml"
    kind.write_text(
        f'name = "x"\ncommand = ["{{python}}", "{program}", "{{port}}", "{token}"]\n'
        "health = { timeout_s = 30.0 }\nstop = { grace_s = 5.0 }\n"
    )
    port = free_port("127.0.0.1")
    return resolve(load_kind(str(kind), settings), load_profile("smoke"), tmp_path / "out", port=port)


async def start_and_stop(server: ResolvedServer, log: Path) -> ServerProcess:
    process = ServerProcess(server, log)
    async with process:
        await process.wait_ready(lambda _: None)
    return process


def bearing(token: str) -> list[str]:
    """Processes whose command line has the token."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if token.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue  # it has ended
    return found


def gone(token: str) -> bool:
    deadline = time.monotonic() + 10
    while bearing(token):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_server_is_ready_when_its_health_and_its_log_say_so(tmp_path: Path) -> None:
    server = server_of(SERVER.replace("STATUS", "200"), tmp_path, "server.health.log_line=up")
    process = asyncio.run(start_and_stop(server, tmp_path / "log"))
    assert process.exit_status == -signal.SIGTERM
    assert (tmp_path / "log").read_text() == "up\n"


@pytest.mark.parametrize(
    ("script", "settings", "says"),
    [
        (
            "import sys; print('no device'); sys.exit(3)",
            (),
            r"exited with status 3 before it was ready(.|\n)*no device",
        ),
        (
            "import os; os.kill(os.getpid(), 9)",
            (),
            "was killed by SIGKILL before it was ready; it printed nothing",
        ),
        (
            SERVER.replace("STATUS", "503"),
            ("server.health.timeout_s=1",),
            r"not ready after 1 s(.|\n)*HTTP 503",
        ),
        (
            SERVER.replace("STATUS", "200"),
            ("server.health.timeout_s=1", "server.health.log_line=never"),
            "its log lacks 'never'",
        ),
    ],
)
def test_a_server_that_does_not_come_up_says_why(
    script: str, settings: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    with pytest.raises(EngineError, match=says):
        asyncio.run(start_and_stop(server_of(script, tmp_path, *settings), tmp_path / "log"))


def test_a_port_that_is_taken_is_named_with_who_has_it(tmp_path: Path) -> None:
    server = server_of("", tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(server.url.rpartition(":")[2])))
        taken.listen()
        with pytest.raises(EngineError, match=rf"is taken by pid {os.getpid()}"):
            asyncio.run(start_and_stop(server, tmp_path / "log"))


GRANDCHILDREN = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for own_session in (False, True):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", sys.argv[2]], start_new_session=own_session)
"""


def test_what_ignores_its_signal_and_what_it_left_behind_is_killed(tmp_path: Path) -> None:
    token = f"token-{uuid.uuid4().hex}"
    script = GRANDCHILDREN + SERVER.replace("STATUS", "200")
    process = asyncio.run(
        start_and_stop(server_of(script, tmp_path, "server.stop.grace_s=0.3", token=token), tmp_path / "log")
    )
    assert process.exit_status == -signal.SIGKILL
    assert gone(token)


def test_nothing_is_left_when_the_run_itself_is_killed(tmp_path: Path) -> None:
    token = f"token-{uuid.uuid4().hex}"
    server_of(GRANDCHILDREN + SERVER.replace("STATUS", "200"), tmp_path, token=token)
    run = tmp_path / "run.py"
    run.write_text(f"""
import asyncio, pathlib
from tests.unit.dsv4bench.server_kinds.test_process import resolved_again
from dsv4bench.server_kinds.process import ServerProcess

async def main():
    process = ServerProcess(resolved_again(pathlib.Path({str(tmp_path)!r})), pathlib.Path({str(tmp_path / "log")!r}))
    async with process:
        await process.wait_ready(lambda _: None)
        print("ready", flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
""")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])}
    killed = subprocess.Popen([sys.executable, str(run)], stdout=subprocess.PIPE, env=environment)
    with killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"ready\n"
        assert len(bearing(token)) >= 3
        killed.kill()
    assert gone(token)


def resolved_again(tmp_path: Path) -> ResolvedServer:
    """The server of `server_of`, in another process."""
    kind = load_kind(str(tmp_path / "kind.toml"))
    return resolve(kind, load_profile("smoke"), tmp_path / "out", port=free_port("127.0.0.1"))
