"""Whether requests are taken: the server listens while its engine starts, and while it ends."""

from __future__ import annotations

from typing import Literal

from dsv4bench.serving.errors import ApiError

Phase = Literal["starting", "ready", "draining", "failed"]


class Lifecycle:
    """The phase of a server, and why it is in it where something went wrong."""

    def __init__(self) -> None:
        self.phase: Phase = "starting"
        self.reason: str | None = None

    def enter(self, phase: Phase, reason: str | None = None) -> None:
        """Go on to a phase; a failure stays one."""
        if self.phase != "failed":
            self.phase, self.reason = phase, reason

    def check_ready(self) -> None:
        """Raises ApiError (503) unless requests are taken."""
        if self.phase != "ready":
            raise ApiError(503, self.describe())

    def describe(self) -> str:
        """The phase in words."""
        if self.phase == "starting":
            return "the engine is starting"
        if self.phase == "draining":
            return "the server is shutting down"
        if self.phase == "failed":
            return f"the engine has failed: {self.reason}"
        return "the server is ready"
