"""Serves a report, and the timeline for a Perfetto UI, to browsers of this machine alone.

Only the loopback address is bound, the path holds a random token, and the host that a browser asks for must be this
one: another page can neither guess the address nor reach it under a name of its own.
"""

from __future__ import annotations

import secrets
import tempfile
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from analyzers.errors import UnusableInputError
from analyzers.measurement import Measured
from analyzers.serve.launcher import render_launcher
from analyzers.swimlane import timeline_of, write_timeline

HOST = "127.0.0.1"
PERFETTO_UI = "https://ui.perfetto.dev"


@dataclass(frozen=True)
class Resource:
    """What one address answers with."""

    content_type: str
    body: bytes


def draw_timeline(measured: Measured) -> bytes:
    """The timeline of a measured recording as a Perfetto protobuf.

    Raises:
        NoDataError: there is nothing to draw.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "timeline.pftrace"
        write_timeline(timeline_of(measured), path)
        return path.read_bytes()


class ReportServer:
    """Answers with a report, and with a timeline where one is given; `serve` until interrupted."""

    def __init__(
        self,
        report: str,
        *,
        port: int = 0,
        timeline: bytes | None = None,
        perfetto_ui: str = PERFETTO_UI,
    ) -> None:
        """Bind the port; 0 takes any free one.

        Raises:
            UnusableInputError: the port is taken, or `perfetto_ui` is no http(s) address.
        """
        self._token = secrets.token_urlsafe(18)
        resources = {"": Resource("text/html; charset=utf-8", report.encode())}
        self._has_timeline = timeline is not None
        if timeline is not None:
            launcher = render_launcher(_checked(perfetto_ui))
            resources["perfetto"] = Resource("text/html; charset=utf-8", launcher.encode())
            resources["timeline.pftrace"] = Resource("application/octet-stream", timeline)
        try:
            self._server = _Server(
                (HOST, port), {f"/{self._token}/{name}": r for name, r in resources.items()}
            )
        except (OSError, OverflowError) as error:
            raise UnusableInputError(
                f"--port {port}: cannot be bound on {HOST}: {error}; try another"
            ) from error

    @property
    def url(self) -> str:
        """Where the report is."""
        return f"http://{HOST}:{self._server.server_port}/{self._token}/"

    @property
    def perfetto_url(self) -> str | None:
        """The page that opens the timeline in a Perfetto UI; None without a timeline."""
        return f"{self.url}perfetto" if self._has_timeline else None

    def serve(self) -> None:
        """Answer until `stop` or an interrupt; the port is free afterwards."""
        try:
            self._server.serve_forever(poll_interval=0.1)
        finally:
            self._server.server_close()

    def stop(self) -> None:
        """End `serve` from another thread."""
        self._server.shutdown()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], resources: dict[str, Resource]) -> None:
        super().__init__(address, _Handler)
        self.resources = resources


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "dsv4bench"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with what the path names."""
        resource = self.server.resources.get(self.path) if self._is_asked_for_here() else None
        if resource is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", resource.content_type)
        self.send_header("Content-Length", str(len(resource.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(resource.body)

    def _is_asked_for_here(self) -> bool:
        port = self.server.server_port
        return self.headers.get("Host") in (f"{HOST}:{port}", f"localhost:{port}")

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged: the token would be in every line."""


def _checked(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise UnusableInputError(f"--perfetto-ui {address}: no http or https address of a Perfetto UI")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
