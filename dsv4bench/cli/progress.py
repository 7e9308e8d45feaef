"""What `run` shows on stderr while it works: a live line on a terminal, one line a stage elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from dsv4bench.engine.engine import EngineProgress
from dsv4bench.load.requests import LoadProgress
from dsv4bench.profile import Profile

_RATE_S = 1.0
"""Over how long a rate is taken."""


class RunDisplay:
    """A `launch.Observer` for people."""

    def __init__(self, profile: Profile) -> None:
        self._console = Console(stderr=True)
        self._profile = profile
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[counts]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._before, self._rate = (time.monotonic(), 0), 0.0
        self._task: TaskID = self._progress.add_task(profile.name, total=None, counts="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def stage(self, text: str) -> None:
        """See `launch.Observer.stage`."""
        if self._console.is_terminal:
            self._progress.update(
                self._task, description=f"{self._profile.name}: {text}", total=None, counts=""
            )
        else:
            self._console.print(f"{self._profile.name}: {text}", highlight=False)

    def waiting(self, text: str) -> None:
        """See `served.ServedObserver.waiting`."""
        self._progress.update(self._task, counts=text)

    def load(self, done: LoadProgress, expected_tokens: int) -> None:
        """See `served.ServedObserver.load`."""
        now = time.monotonic()
        if done.tokens < self._before[1]:
            self._before = (now, 0)
        elapsed, tokens = now - self._before[0], done.tokens - self._before[1]
        if elapsed >= _RATE_S:
            self._rate, self._before = tokens / elapsed, (now, done.tokens)
        counts = (
            f"{done.in_flight} in flight, {done.tokens}/{expected_tokens} tokens, {self._rate:.0f} tokens/s"
        )
        if done.failed:
            counts += f", {done.failed} failed"
        self._progress.update(
            self._task, total=expected_tokens, completed=min(done.tokens, expected_tokens), counts=counts
        )

    def progress(self, done: EngineProgress, expected_tokens: int) -> None:
        """See `launch.Observer.progress`."""
        counts = f"{min(done.tokens, expected_tokens)}/{expected_tokens} tokens, {done.decode_steps} steps"
        if done.proposed:
            counts += f", {done.accepted}/{done.proposed} drafts accepted"
        self._progress.update(
            self._task, total=expected_tokens, completed=min(done.tokens, expected_tokens), counts=counts
        )
