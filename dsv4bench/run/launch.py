"""`run`: start the engine under both traces, put the load on it, watch it, and leave a run directory."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from analyzers.rundir import RankProcess, RequestRecord, RunDirectory, RunStatus, write_json_atomically
from dsv4bench.engine.engine import Engine, EngineOptions, EngineProgress, check_options
from dsv4bench.errors import EngineError, UsageError
from dsv4bench.faults import Fault
from dsv4bench.load.driver import drive_until
from dsv4bench.load.engine_target import EngineTarget, SentRequest
from dsv4bench.load.plan import Plan, plan_batches
from dsv4bench.load.requests import LoadProgress, LoadRequest, LoadResult, Phase
from dsv4bench.model.checkpoint import ensure_checkpoint
from dsv4bench.model.config import ModelConfig, preset
from dsv4bench.profile import Profile
from dsv4bench.run.accuracy import compare_tokens
from dsv4bench.run.load import engine_request
from dsv4bench.run.manifest import RunManifest
from dsv4bench.run.outputs import append_request_lines, link_serving_trace, record_of, write_client_files
from dsv4bench.run.resources import ResourceWatch
from dsv4bench.run.tracing import RunTracing
from dsv4bench.tracing.delivery import deliver
from dsv4bench.tracing.merge import merge_fragments
from dsv4bench.tracing.recorder import NullRecorder, Recorder, SpanRecorder
from dsv4bench.worker.fault_injection import FaultPlan

_POLL_S = 0.1


class Observer(Protocol):
    """Is told how a run goes; the command line draws it."""

    def stage(self, text: str) -> None:
        """The run entered a stage: a short text for people."""
        ...

    def progress(self, done: EngineProgress, expected_tokens: int) -> None:
        """The measured batch went on: counts since the batch began."""
        ...


@dataclass(frozen=True)
class RunResult:
    """What a run left: where, how it ended, and the error that ended it early, if one did."""

    directory: RunDirectory
    status: RunStatus
    error: BaseException | None


def cache_directory() -> Path:
    """Where checkpoints are kept: DSV4BENCH_CACHE, else `dsv4bench` in the user's cache directory."""
    if given := os.environ.get("DSV4BENCH_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dsv4bench"


def create_run_directory(output: Path | None, profile: Profile) -> RunDirectory:
    """Make the directory of a run: `output`, or `runs/<profile>-<time>`.

    Raises:
        UsageError: it exists and is not empty, or cannot be written.
    """
    root = output or Path("runs") / f"{profile.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            raise UsageError(f"the output directory {root} is not empty; name a new one with --out")
        directory = RunDirectory(root)
        directory.strace.mkdir()
    except OSError as error:
        raise UsageError(
            f"cannot write to the output directory {root}: {error.strerror}; name another one with --out"
        ) from error
    return directory


class Launcher:
    """One run of one profile."""

    def __init__(
        self,
        profile: Profile,
        directory: RunDirectory,
        argv: Sequence[str],
        observer: Observer,
        faults: Sequence[Fault] = (),
        tracing: RunTracing | None = None,
    ) -> None:
        """`faults` are injected into the measured batch."""
        self._profile = profile
        self._tracing = tracing or RunTracing()
        self._faults = FaultPlan(faults)
        self._directory = directory
        self._observer = observer
        self._manifest = RunManifest(profile, directory, argv, self._tracing)
        self._sent: list[SentRequest] = []

    def run(self) -> RunResult:
        """Run to the end, whatever it is. What was measured by then is in the run directory.

        An error of the engine and Ctrl-C end the run early and are returned, not raised; bad usage is raised.
        """
        profile = self._profile
        config = preset(profile.model.preset)
        plan = plan_batches(profile, config.vocab_size)
        self._observer.stage("preparing the checkpoint")
        checkpoint = ensure_checkpoint(
            config, profile.model.seed, cache_directory() / "checkpoints", profile.model.weights
        )
        options = engine_options(profile, config, checkpoint, self._directory)
        check_options(options)
        self._manifest.set(planned_output_tokens=plan.output_tokens, faults=self._faults.describe())
        self._manifest.write()
        recorder = self._make_recorder()
        error: BaseException | None = None
        try:
            self._drive(options, recorder, plan)
            if profile.check.mtp_off:
                self._check_mtp_off(options, plan)
        except (EngineError, KeyboardInterrupt) as stopped:
            error = stopped
        finally:
            recorder.close()
        self._write_outputs()
        self._manifest.set(faults=self._faults.describe())
        status = self._manifest.finish(error)
        return RunResult(self._directory, status, error or self._deliver_trace())

    def _make_recorder(self) -> Recorder:
        levels = self._profile.trace.levels
        if levels is None:
            return NullRecorder()
        return SpanRecorder(self._directory.sa_profile, levels, "dsv4bench engine", recording=False)

    def _drive(self, options: EngineOptions, recorder: Recorder, plan: Plan) -> None:
        load = self._profile.load
        self._observer.stage(f"starting {options.ranks} ranks")
        engine = Engine(options, recorder)
        clean = False
        # One loop for every batch: what it holds is there from the first sample of the resources to the last.
        runner = asyncio.Runner()
        try:
            self._manifest.stamp("engine_ready_ns")
            pids = engine.worker.rank_pids
            cache = engine.program_cache
            self._manifest.set(
                device_map=[RankProcess(rank, pid, f"cpu:{rank}") for rank, pid in sorted(pids.items())],
                program_cache={"hits": cache.hits, "misses": cache.misses},
            )
            self._manifest.write()
            engine.worker.tracing = False
            for number, batch in enumerate(plan.warmup, 1):
                self._observer.stage(f"warming up, batch {number} of {load.warmup_batches}")
                self._run_batch(engine, runner, batch, "warmup")
            self._observer.stage("measuring")
            watch = ResourceWatch(self._directory.resources, pids)
            engine.worker.tracing = self._profile.trace.strace
            engine.worker.device_phases = self._profile.trace.device_phases
            engine.worker.faults = self._faults
            recorder.start()
            self._manifest.stamp("window_start_ns")
            try:
                self._run_batch(engine, runner, plan.measured, "measured", watch)
            finally:
                self._manifest.stamp("window_end_ns")
                recorder.stop()
            clean = True
        finally:
            self._observer.stage("stopping the ranks")
            engine.close(abort=not clean)
            # Behind the engine, whose thread tells the loop what became of each request.
            runner.close()
            self._manifest.set(restarts=engine.progress().restarts)

    def _run_batch(
        self,
        engine: Engine,
        runner: asyncio.Runner,
        requests: Sequence[LoadRequest],
        phase: Phase,
        watch: ResourceWatch | None = None,
    ) -> None:
        before = engine.progress()
        expected = sum(request.output_tokens for request in requests)
        spoilt = self._faults.spoilt_share if phase == "measured" else 0.0

        def progress(_: LoadProgress) -> None:
            done = _since(before, engine.progress())
            self._observer.progress(done, expected)
            if watch is not None:
                watch.observe(done.decode_steps)

        def keep(result: LoadResult) -> None:
            if phase == "measured":
                self._manifest.set(client=result.client)

        target = EngineTarget(
            engine,
            lambda request: engine_request(self._profile, request, spoilt_share=spoilt),
            self._record,
            self._sent,
            self._profile.load.timeout_s,
        )
        runner.run(
            drive_until(
                requests,
                target,
                phase=phase,
                concurrency=self._profile.load.concurrency,
                progress=progress,
                keep=keep,
                ended=_failed(engine),
            )
        )
        if engine.failure is not None:
            raise engine.failure
        # The output of the last step is still being taken in, and a step behind it may be in flight.
        engine.settle()
        if engine.failure is not None:
            raise engine.failure
        if watch is not None:
            watch.sample(_since(before, engine.progress()).decode_steps)

    def _record(self, sent: SentRequest) -> RequestRecord:
        return record_of(sent, self._profile.engine.prefix_reuse)

    def _check_mtp_off(self, options: EngineOptions, plan: Plan) -> None:
        """Run the measured requests on an engine without MTP, and write how their tokens compare."""
        self._observer.stage("running the same requests without MTP")
        off = msgspec.structs.replace(options, mtp=0, rank_logs=(), server_log=self._directory.mtp_off_log)
        clean = False
        engine = Engine(off)
        try:
            engine.worker.tracing = False
            handles = [engine.submit(engine_request(self._profile, request)) for request in plan.measured]
            for handle in handles:
                while not handle.wait(_POLL_S):
                    self._observer.progress(engine.progress(), plan.output_tokens)
            if engine.failure is not None:
                raise engine.failure
            clean = True
        finally:
            engine.close(abort=not clean)
        measured = [sent.handle for sent in self._sent if sent.phase == "measured"]
        accuracy = compare_tokens(
            options.mtp,
            {handle.request.request_id: handle.token_ids for handle in measured},
            {handle.request.request_id: handle.token_ids for handle in handles},
        )
        write_json_atomically(self._directory.mtp_accuracy, accuracy)

    def _write_outputs(self) -> None:
        records = [self._record(sent) for sent in self._sent]
        traced = self._profile.trace.levels is not None
        write_client_files(
            self._directory,
            records,
            self._profile.engine.mtp,
            self._profile.trace.sa_profile if traced else None,
        )
        measured = [record for record in records if record.phase == "measured"]
        append_request_lines(self._directory.server_log, measured)
        if self._directory.fragments.is_dir():
            merge_fragments(self._directory.sa_profile)
            link_serving_trace(self._directory)

    def _deliver_trace(self) -> UsageError | None:
        """Write the serving trace to its second place; returns why that could not be."""
        output = self._tracing.output
        if output is None or not self._directory.fragments.is_dir():
            return None
        try:
            deliver(self._directory.sa_profile, output)
        except UsageError as error:
            return error
        return None


def engine_options(
    profile: Profile, config: ModelConfig, checkpoint: Path, directory: RunDirectory
) -> EngineOptions:
    """The engine of a profile, with its logs in the run directory."""
    return EngineOptions(
        config=config,
        checkpoint=checkpoint,
        program_cache=cache_directory() / "programs",
        rank_logs=tuple(directory.rank_log(rank) for rank in range(profile.engine.ranks)),
        server_log=directory.server_log,
        **msgspec.structs.asdict(profile.engine),
    )


async def _failed(engine: Engine) -> None:
    """Return when the engine has failed."""
    while engine.failure is None:
        await asyncio.sleep(_POLL_S)


def _since(before: EngineProgress, now: EngineProgress) -> EngineProgress:
    return EngineProgress(
        now.tokens - before.tokens,
        now.decode_steps - before.decode_steps,
        now.accepted - before.accepted,
        now.proposed - before.proposed,
        now.restarts - before.restarts,
        now.prefix_hits - before.prefix_hits,
        now.cached_tokens - before.cached_tokens,
    )
