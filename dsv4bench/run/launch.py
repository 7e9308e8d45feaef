"""`run`: start the engine under both traces, put the load on it, watch it, and leave a run directory."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from analyzers.machine import MachineState
from analyzers.rundir import (
    DEVICE_VARIABLES,
    SCHEMA_VERSION,
    Manifest,
    RankProcess,
    RunDirectory,
    RunStatus,
    RunTiming,
    write_json_atomically,
)
from dsv4bench import __version__
from dsv4bench.engine.engine import Engine, EngineOptions, EngineProgress, check_options
from dsv4bench.engine.requests import RequestHandle
from dsv4bench.errors import EngineError, UsageError
from dsv4bench.faults import Fault
from dsv4bench.model.checkpoint import ensure_checkpoint
from dsv4bench.model.config import ModelConfig, preset
from dsv4bench.profile import Profile, profile_as_dict
from dsv4bench.run.accuracy import compare_tokens
from dsv4bench.run.environment import git_facts, machine_facts, package_versions
from dsv4bench.run.load import Prompt, prompts_of, requests_of
from dsv4bench.run.machine import machine_state
from dsv4bench.run.outputs import (
    Phase,
    append_request_lines,
    describe,
    link_serving_trace,
    record_of,
    write_performance_summary,
    write_prompt_manifest,
    write_requests,
    write_responses,
)
from dsv4bench.run.resources import ResourceWatch
from dsv4bench.run.tracing import RunTracing
from dsv4bench.tracing.delivery import deliver
from dsv4bench.tracing.merge import merge_fragments
from dsv4bench.tracing.recorder import NullRecorder, Recorder, SpanRecorder
from dsv4bench.tracing.settings import TRACING_VARIABLES
from dsv4bench.worker.fault_injection import FaultPlan

_POLL_S = 0.1
_KEPT_VARIABLES = (*DEVICE_VARIABLES, *TRACING_VARIABLES)


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
        self._argv = list(argv)
        self._observer = observer
        self._timing = RunTiming(started_ns=time.perf_counter_ns())
        self._clocks = {"monotonic_ns": time.perf_counter_ns(), "wall_ns": time.time_ns()}
        self._host = machine_facts()
        self._host_before = machine_state()
        self._host_after = MachineState()
        self._device_map: list[RankProcess] = []
        self._program_cache: dict[str, int] = {}
        self._restarts = 0
        self._sent: list[tuple[RequestHandle, Prompt, Phase]] = []

    def run(self) -> RunResult:
        """Run to the end, whatever it is. What was measured by then is in the run directory.

        An error of the engine and Ctrl-C end the run early and are returned, not raised; bad usage is raised.
        """
        profile = self._profile
        config = preset(profile.model.preset)
        prompts = prompts_of(profile, config)
        self._observer.stage("preparing the checkpoint")
        checkpoint = ensure_checkpoint(
            config, profile.model.seed, cache_directory() / "checkpoints", profile.model.weights
        )
        options = engine_options(profile, config, checkpoint, self._directory)
        check_options(options)
        self._write_manifest("running")
        recorder = self._make_recorder()
        error: BaseException | None = None
        try:
            self._drive(options, recorder, prompts)
            if profile.check.mtp_off:
                self._check_mtp_off(options, prompts)
        except (EngineError, KeyboardInterrupt) as stopped:
            error = stopped
        finally:
            recorder.close()
        status: RunStatus = "complete"
        if error is not None:
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "incomplete"
        self._stamp("finished_ns")
        self._host_after = machine_state()
        self._write_outputs()
        self._write_manifest(status, error)
        return RunResult(self._directory, status, error or self._deliver_trace())

    def _make_recorder(self) -> Recorder:
        levels = self._profile.trace.levels
        if levels is None:
            return NullRecorder()
        return SpanRecorder(self._directory.sa_profile, levels, "dsv4bench engine", recording=False)

    def _drive(self, options: EngineOptions, recorder: Recorder, prompts: list[Prompt]) -> None:
        load = self._profile.load
        self._observer.stage(f"starting {options.ranks} ranks")
        engine = Engine(options, recorder)
        clean = False
        try:
            self._stamp("engine_ready_ns")
            self._device_map = [
                RankProcess(rank, pid, f"cpu:{rank}") for rank, pid in sorted(engine.worker.rank_pids.items())
            ]
            self._program_cache = {"hits": engine.program_cache.hits, "misses": engine.program_cache.misses}
            self._write_manifest("running")
            engine.worker.tracing = False
            for batch in range(load.warmup_batches):
                self._observer.stage(f"warming up, batch {batch + 1} of {load.warmup_batches}")
                self._run_batch(engine, prompts, f"warmup{batch}", load.warmup_output_tokens, "warmup")
            self._observer.stage("measuring")
            watch = ResourceWatch(self._directory.resources, engine.worker.rank_pids)
            engine.worker.tracing = self._profile.trace.strace
            engine.worker.device_phases = self._profile.trace.device_phases
            engine.worker.faults = self._faults
            recorder.start()
            self._stamp("window_start_ns")
            try:
                self._run_batch(engine, prompts, "request", load.output_tokens, "measured", watch)
            finally:
                self._stamp("window_end_ns")
                recorder.stop()
            clean = True
        finally:
            self._observer.stage("stopping the ranks")
            engine.close(abort=not clean)
            self._restarts = engine.progress().restarts

    def _run_batch(
        self,
        engine: Engine,
        prompts: list[Prompt],
        batch: str,
        output_tokens: int,
        phase: Phase,
        watch: ResourceWatch | None = None,
    ) -> None:
        before = engine.progress()
        spoilt = self._faults.spoilt_share if phase == "measured" else 0.0
        requests = requests_of(
            self._profile, prompts, batch=batch, output_tokens=output_tokens, spoilt_share=spoilt
        )
        expected = output_tokens * len(requests)
        handles: list[RequestHandle] = []
        for request, prompt in zip(requests, prompts, strict=True):
            handles.append(engine.submit(request))
            self._sent.append((handles[-1], prompt, phase))
        for handle in handles:
            while not handle.wait(_POLL_S):
                done = _since(before, engine.progress())
                self._observer.progress(done, expected)
                if watch is not None:
                    watch.observe(done.decode_steps)
        done = _since(before, engine.progress())
        self._observer.progress(done, expected)
        if engine.failure is not None:
            raise engine.failure
        # The output of the last step is still being taken in, and a step behind it may be in flight.
        engine.settle()
        if engine.failure is not None:
            raise engine.failure
        if watch is not None:
            watch.sample(done.decode_steps)

    def _check_mtp_off(self, options: EngineOptions, prompts: list[Prompt]) -> None:
        """Run the measured requests on an engine without MTP, and write how their tokens compare."""
        self._observer.stage("running the same requests without MTP")
        load = self._profile.load
        off = msgspec.structs.replace(options, mtp=0, rank_logs=(), server_log=self._directory.mtp_off_log)
        requests = requests_of(self._profile, prompts, batch="request", output_tokens=load.output_tokens)
        clean = False
        engine = Engine(off)
        try:
            engine.worker.tracing = False
            handles = [engine.submit(request) for request in requests]
            expected = load.output_tokens * len(requests)
            for handle in handles:
                while not handle.wait(_POLL_S):
                    self._observer.progress(engine.progress(), expected)
            if engine.failure is not None:
                raise engine.failure
            clean = True
        finally:
            engine.close(abort=not clean)
        measured = [handle for handle, _, phase in self._sent if phase == "measured"]
        accuracy = compare_tokens(
            options.mtp,
            {handle.request.request_id: handle.token_ids for handle in measured},
            {handle.request.request_id: handle.token_ids for handle in handles},
        )
        write_json_atomically(self._directory.mtp_accuracy, accuracy)

    def _write_outputs(self) -> None:
        records = [
            record_of(handle, prompt, phase, self._profile.engine.prefix_reuse)
            for handle, prompt, phase in self._sent
        ]
        write_requests(self._directory.requests, records)
        measured = [record for record in records if record.phase == "measured"]
        write_responses(self._directory.responses, measured)
        write_prompt_manifest(self._directory.prompt_manifest, measured)
        append_request_lines(self._directory.server_log, measured)
        traced = self._profile.trace.levels is not None
        write_performance_summary(
            self._directory.performance_summary,
            measured,
            self._profile.engine.mtp,
            self._profile.trace.sa_profile if traced else None,
        )
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

    def _stamp(self, field: str) -> None:
        self._timing = msgspec.structs.replace(self._timing, **{field: time.perf_counter_ns()})

    def _write_manifest(self, status: RunStatus, error: BaseException | None = None) -> None:
        manifest = Manifest(
            schema_version=SCHEMA_VERSION,
            tool_version=__version__,
            status=status,
            profile=profile_as_dict(self._profile),
            argv=self._argv,
            versions=package_versions(),
            host=self._host,
            host_before=self._host_before,
            host_after=self._host_after,
            git=git_facts(),
            device_map=self._device_map,
            clocks=self._clocks,
            timing=self._timing,
            environment={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            error=describe(error) if error is not None else None,
            faults=self._faults.describe(),
            program_cache=self._program_cache,
            restarts=self._restarts,
            tracing=dict(self._tracing.settings),
        )
        write_json_atomically(self._directory.manifest, manifest)


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
