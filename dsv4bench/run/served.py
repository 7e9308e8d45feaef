"""`run --server KIND` and `run --url URL`: the load of a profile on a server, and what it leaves in a run directory.

The directory is that of an embedded run: the client's view always, and of the server's what its kind can give.
"""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec

from analyzers.rundir import ClientFacts, RequestRecord, RunDirectory, ServerDrafts, ServerFacts
from dsv4bench.errors import EngineError
from dsv4bench.load.driver import drive_until
from dsv4bench.load.http_target import CONNECTION_FAILED, HttpTarget
from dsv4bench.load.plan import Plan, plan_batches
from dsv4bench.load.requests import LoadProgress, LoadRequest, LoadResult, Phase
from dsv4bench.model.config import preset
from dsv4bench.profile import Profile
from dsv4bench.run.launch import RunResult
from dsv4bench.run.manifest import RunManifest
from dsv4bench.run.outputs import link_serving_trace, write_client_files
from dsv4bench.run.tracing import RunTracing
from dsv4bench.server_kinds.asking import CounterError, ServerQuestions, drafts_between
from dsv4bench.server_kinds.collect import collect_traces, device_map, drafts_of_log, programs_of_log
from dsv4bench.server_kinds.process import ServerProcess
from dsv4bench.server_kinds.resolve import ResolvedServer

_VERSION_S = 60.0
_END_S = 2.0
"""How long after the first broken connection the end of a server may be noticed."""


class ServedObserver(Protocol):
    """Is told how a run goes; the command line draws it."""

    def stage(self, text: str) -> None:
        """The run entered a stage: a short text for people."""
        ...

    def waiting(self, text: str) -> None:
        """What the stage waits for just now."""
        ...

    def load(self, done: LoadProgress, expected_tokens: int) -> None:
        """A batch went on: counts since it began."""
        ...


class ServedRun:
    """One run of one profile on one server; like `Launcher`, but the engine is somebody's program."""

    def __init__(
        self,
        profile: Profile,
        directory: RunDirectory,
        argv: Sequence[str],
        observer: ServedObserver,
        server: ResolvedServer,
        tracing: RunTracing,
    ) -> None:
        """`server` is started if it has a command; else it runs already, and is asked alone."""
        self._profile = profile
        self._directory = directory
        self._observer = observer
        self._server = server
        self._endpoint = server.endpoint
        self._questions = ServerQuestions(server)
        self._manifest = RunManifest(profile, directory, argv, tracing)
        self._records: list[RequestRecord] = []
        self._client: ClientFacts | None = None
        self._metrics: tuple[str, str] | None = None
        self._facts = ServerFacts(
            kind=server.kind.name,
            url=server.url,
            started=bool(server.command),
            command=server.command,
            environment=server.shown_environment,
            settings=server.settings,
        )

    def run(self) -> RunResult:
        """Run to the end, whatever it is. What was measured by then is in the run directory.

        A server that fails and Ctrl-C end the run early and are returned, not raised; bad usage is raised.
        """
        plan = plan_batches(
            self._profile,
            preset(self._profile.model.preset).vocab_size,
            texts=self._server.endpoint.prompt_as == "text",
        )
        self._manifest.set(server=self._facts, planned_output_tokens=plan.output_tokens)
        self._manifest.write()
        error: BaseException | None = None
        try:
            asyncio.run(self._drive(plan))
        except (EngineError, KeyboardInterrupt) as stopped:
            error = stopped
        # First what was measured here: nothing that a server left can be in its way.
        write_client_files(
            self._directory,
            self._records,
            self._profile.engine.mtp,
            self._profile.trace.sa_profile if self._server.profiling is not None else None,
        )
        self._observer.stage("collecting")
        self._collect(complete=error is None)
        if self._directory.serving_trace.is_file():
            link_serving_trace(self._directory)
        self._manifest.set(server=self._facts, client=self._client)
        return RunResult(self._directory, self._manifest.finish(error), error)

    async def _drive(self, plan: Plan) -> None:
        async with self._running() as process:
            self._manifest.stamp("engine_ready_ns")
            await self._find_model()
            self._set(version=await asyncio.to_thread(_version, self._server))
            self._manifest.set(server=self._facts)
            self._manifest.write()
            async with self._target() as target:
                for number, batch in enumerate(plan.warmup, 1):
                    self._observer.stage(f"warming up, batch {number} of {len(plan.warmup)}")
                    await self._batch(batch, target, "warmup", process)
                await self._measure(plan.measured, target, process)

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[ServerProcess | None]:
        """The server, ready; at the end nothing of one that the run started is left."""
        if not self._server.command:
            yield None
            return
        self._observer.stage(f"starting {self._server.kind.name}")
        process = ServerProcess(self._server, self._directory.server_log)
        try:
            async with process:
                self._set(pid=process.pid, ready_s=await process.wait_ready(self._observer.waiting))
                yield process
                self._observer.stage("stopping the server")
        finally:
            self._set(exit_status=process.exit_status)

    async def _measure(
        self, requests: Sequence[LoadRequest], target: HttpTarget, process: ServerProcess | None
    ) -> None:
        """The measured batch, with metrics around it, and the profiler on during it."""
        before = await self._scrape("before")
        profiled = self._server.profiling is not None
        started = await self._questions.start_profile() if profiled else None
        if started is not None and started.failure is not None:
            self._miss(started.failure)
        self._observer.stage("measuring")
        self._manifest.stamp("window_start_ns")
        try:
            await self._batch(requests, target, "measured", process)
        finally:
            self._manifest.stamp("window_end_ns")
        if started is not None and started.failure is None:
            self._observer.stage("waiting for the server's trace")
            stopped = await self._questions.stop_profile()
            if stopped.failure is not None:
                self._miss(stopped.failure)
            else:
                self._set(profile_window_ns=(started.time_ns, stopped.time_ns))
        after = await self._scrape("after")
        self._metrics = (before, after) if before and after else None

    async def _batch(
        self,
        requests: Sequence[LoadRequest],
        target: HttpTarget,
        phase: Phase,
        process: ServerProcess | None,
    ) -> None:
        """Send one batch; the end of the server is its end, too."""
        expected = sum(request.output_tokens for request in requests)

        def progress(done: LoadProgress) -> None:
            self._observer.load(dataclasses.replace(done, tokens=target.tokens - begun), expected)

        begun = target.tokens
        results: list[LoadResult] = []
        try:
            await drive_until(
                requests,
                target,
                phase=phase,
                concurrency=self._profile.load.concurrency,
                progress=progress,
                keep=results.append,
                ended=process.until_end() if process is not None else None,
            )
        finally:
            records = [record for result in results for record in result.records]
            self._records += [*records, *_never_sent(requests, records, phase)]
            if phase == "measured" and results:
                self._client = results[0].client
        if process is not None and any(_was_cut_off(record) for record in records):
            # The end of its connections is seen before the end of the server.
            await process.wait_end(_END_S)
        if process is not None and process.has_ended:
            what = "the measured batch" if phase == "measured" else "the warm-up"
            raise EngineError(process.describe_end(f"during {what}"))

    def _target(self) -> HttpTarget:
        load = self._profile.load
        sampling: dict[str, float | int] = {"temperature": load.temperature}
        if load.temperature > 0:
            sampling |= {"top_p": load.top_p, "seed": load.seed} | (
                {"top_k": load.top_k} if load.top_k else {}
            )
        return HttpTarget(self._endpoint, sampling=sampling, timeout_s=load.timeout_s)

    async def _find_model(self) -> None:
        """Ask a server whose model nobody named."""
        if self._endpoint.model:
            return
        models, failure = await self._questions.models()
        if len(models) != 1:
            why = failure or f"/v1/models names {', '.join(models) or 'no model'}"
            raise EngineError(
                f"{self._server.url}: {why}; where it is up, say which model is meant with --set "
                "server.served_model_name=NAME"
            )
        self._endpoint = dataclasses.replace(self._endpoint, model=models[0])

    async def _scrape(self, when: str) -> str:
        if self._server.kind.metrics is None:
            return ""
        asked = await self._questions.metrics()
        if asked.failure is not None:
            return ""
        self._directory.server_metrics("before" if when == "before" else "after").write_text(asked.text)
        return asked.text

    def _collect(self, *, complete: bool) -> None:
        """What the server left: its traces, its device map, its own counts."""
        if self._facts.profile_window_ns is not None:
            for reason in collect_traces(self._server, self._directory):
                self._miss(reason)
        self._set(drafts=self._drafts())
        if not self._directory.server_log.is_file():
            return
        ranks = device_map(self._directory.server_log, self._server.devices)
        self._manifest.set(device_map=ranks)
        if complete and self._server.strace and not ranks:
            self._miss("its log has no ready line of a rank")
        self._manifest.set(program_cache=programs_of_log(self._directory.server_log))

    def _drafts(self) -> ServerDrafts | None:
        """The drafts of the measured batch: by the server's counters, or by its log where these stay 0."""
        table = self._server.kind.metrics
        if table is not None and self._metrics is not None:
            try:
                counted = drafts_between(table, *self._metrics)
            except CounterError as error:
                self._miss(f"its counters of drafts are no counters: {error}")
                return None
            if counted is not None:
                return counted
        if not self._directory.server_log.is_file():
            return None
        measured = [record.server_request_id for record in self._records if record.phase == "measured"]
        names = [name for name in measured if name is not None]
        return drafts_of_log(self._directory.server_log, names)

    def _set(self, **fields: Any) -> None:
        self._facts = msgspec.structs.replace(self._facts, **fields)

    def _miss(self, reason: str) -> None:
        self._set(missing_traces=[*self._facts.missing_traces, reason])


def _never_sent(
    requests: Sequence[LoadRequest], records: Sequence[RequestRecord], phase: Phase
) -> list[RequestRecord]:
    """Records of the requests that were not sent any more: they failed, as those that were given up."""
    sent = {record.request_id for record in records}
    now = time.perf_counter_ns()
    return [
        RequestRecord(
            request_id=request.request_id,
            rank=None,
            prompt_token_ids=list(request.prompt.token_ids),
            output_token_ids=[],
            send_ns=now,
            token_times_ns=[],
            finish_reason=None,
            prompt=request.prompt.text,
            error="never sent: the batch was given up before",
            phase=phase,
        )
        for request in requests
        if request.request_id not in sent
    ]


def _was_cut_off(record: RequestRecord) -> bool:
    """Whether the connection of a request failed, at its beginning or on the way."""
    return record.error is not None and record.error.startswith(CONNECTION_FAILED)


def _version(server: ResolvedServer) -> str | None:
    """What the server's version command prints; None where it has none, or says nothing."""
    if not server.version:
        return None
    try:
        done = subprocess.run(
            server.version,
            capture_output=True,
            text=True,
            timeout=_VERSION_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.strip().splitlines()
    return lines[-1] if lines else None
