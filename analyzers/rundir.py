"""The run directory: every file name and the manifest record, defined once for writer and reader.

Layout: docs/formats.md, Run directory. `dsv4bench run` writes it; `dsv4bench analyze` reads it, whole or any one file alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from analyzers.json_text import json_document
from analyzers.machine import MachineFacts, MachineState

SCHEMA_VERSION = 2

VISIBLE_DEVICES = "ASCEND_RT_VISIBLE_DEVICES"
CONTAINER_DEVICES = "ASCEND_VISIBLE_DEVICES"
DEVICE_VARIABLES = (VISIBLE_DEVICES, CONTAINER_DEVICES)
"""What tells a process which devices it sees: the variables that manifests and traces keep."""

RunStatus = Literal["running", "complete", "incomplete", "failed", "interrupted"]
TracingSource = Literal["flag", "--set", "environment", "profile"]


@dataclass(frozen=True)
class RunDirectory:
    """Names the files of one run directory. Creating an instance touches nothing on disk."""

    root: Path

    @property
    def manifest(self) -> Path:
        """`run.json`: the manifest."""
        return self.root / "run.json"

    @property
    def sa_profile(self) -> Path:
        """`sa_profile/`: the serving trace; the profiler writes `fragments/` and `trace.json` in it."""
        return self.root / "sa_profile"

    @property
    def serving_trace(self) -> Path:
        """`sa_profile/trace.json`: the merged serving trace."""
        return self.sa_profile / "trace.json"

    @property
    def upstream_trace(self) -> Path:
        """`serving-trace`: a link to `sa_profile/`, under the name that upstream's analyzers look for."""
        return self.root / "serving-trace"

    @property
    def fragments(self) -> Path:
        """`sa_profile/fragments/`: one JSONL fragment a process."""
        return self.sa_profile / "fragments"

    @property
    def strace(self) -> Path:
        """`strace/`: one log a rank."""
        return self.root / "strace"

    def rank_log(self, rank: int) -> Path:
        """`strace/rank-<rank>.log`: that rank process's stderr."""
        return self.strace / f"rank-{rank}.log"

    @property
    def server_log(self) -> Path:
        """`server.log`: everything the engine printed, ranks included."""
        return self.root / "server.log"

    @property
    def requests(self) -> Path:
        """`requests.jsonl`: one `RequestRecord` a line."""
        return self.root / "requests.jsonl"

    @property
    def responses(self) -> Path:
        """`responses.json`: upstream-shaped responses."""
        return self.root / "responses.json"

    @property
    def completion_response(self) -> Path:
        """`completion-response.json`: the answer to the only request, which upstream's profiling of one leaves."""
        return self.root / "completion-response.json"

    @property
    def run_log(self) -> Path:
        """`run.log`: what upstream's profiling printed; often the same as `server.log`."""
        return self.root / "run.log"

    @property
    def prompt_manifest(self) -> Path:
        """`prompt_manifest.json`: the prompts of the measured requests, in upstream's shape."""
        return self.root / "prompt_manifest.json"

    @property
    def performance_summary(self) -> Path:
        """`performance_summary.json`: upstream-shaped summary."""
        return self.root / "performance_summary.json"

    def report(self, suffix: str) -> Path:
        """`report.<suffix>`: the rendered report (`json`, `md`)."""
        return self.root / f"report.{suffix}"

    @property
    def resources(self) -> Path:
        """`resources.jsonl`: one `ResourceSample` a line."""
        return self.root / "resources.jsonl"

    @property
    def mtp_accuracy(self) -> Path:
        """`mtp_accuracy.json`: an `MtpAccuracy`, where the profile asks for it."""
        return self.root / "mtp_accuracy.json"

    @property
    def mtp_off_log(self) -> Path:
        """`mtp_off.log`: what the engine without MTP printed."""
        return self.root / "mtp_off.log"

    def server_metrics(self, when: Literal["before", "after"]) -> Path:
        """`server-metrics-<when>.txt`: what the server's metrics said around the measured batch, as it said it."""
        return self.root / f"server-metrics-{when}.txt"

    @property
    def server_output(self) -> Path:
        """`server-output/`: what a server that the run started writes beside its log, before it is collected."""
        return self.root / "server-output"

    @property
    def torch_profiles(self) -> Path:
        """`torch_profile/`: traces of torch.profiler, one a rank, of a server that writes those."""
        return self.root / "torch_profile"

    @property
    def swimlane_perfetto(self) -> Path:
        """`swimlane.pftrace`: the combined timeline as a Perfetto protobuf."""
        return self.root / "swimlane.pftrace"

    @property
    def swimlane_chrome(self) -> Path:
        """`swimlane.json`: the combined timeline as a Chrome trace."""
        return self.root / "swimlane.json"


class RankProcess(msgspec.Struct, frozen=True):
    """One rank of the device map."""

    rank: int
    pid: int
    device: str
    """The device as the backend names it: `cpu:3`, `npu:0`."""
    logical_device: int | None = None
    """Its number among the devices that the process sees; null where it has none."""
    physical_device: int | None = None
    """Its number on the host."""


class RunTiming(msgspec.Struct, frozen=True):
    """When the phases of a run lay, in int64 ns of CLOCK_MONOTONIC; None where a phase was not reached."""

    started_ns: int
    engine_ready_ns: int | None = None
    window_start_ns: int | None = None
    window_end_ns: int | None = None
    finished_ns: int | None = None


class TracingSetting(msgspec.Struct, frozen=True):
    """What one setting of the tracing was in the end, and what said so."""

    value: str | bool | None
    source: TracingSource


class ServerDrafts(msgspec.Struct, frozen=True):
    """Drafts that the server counted over the measured batch, and where it said so."""

    accepted: int
    proposed: int
    source: str
    """`metrics`, `server.log`."""


class ServerFacts(msgspec.Struct, frozen=True):
    """A server that requests were put to: one that the run started, or one that ran already."""

    kind: str
    """The name of its server kind."""
    url: str
    started: bool
    """Whether the run started it; one that ran already is never stopped."""
    command: list[str] = []
    environment: dict[str, str] = {}
    """What its kind sets beside the environment of the run; secrets are left out."""
    settings: dict[str, Any] = {}
    """The kind, resolved."""
    version: str | None = None
    pid: int | None = None
    ready_s: float | None = None
    """From its start until it said that it is ready."""
    exit_status: int | None = None
    """Negative: the signal that ended it."""
    profile_window_ns: tuple[int, int] | None = None
    """Between the answers to start_profile and stop_profile, on CLOCK_MONOTONIC; None where neither was asked."""
    missing_traces: list[str] = []
    """Why a trace that the kind promises is not there, or is not of the whole window, one sentence each."""
    drafts: ServerDrafts | None = None
    """None where it does not count them."""


class ClientFacts(msgspec.Struct, frozen=True):
    """How well the client that sent the measured requests kept up with its plan; times in int64 ns."""

    cpu_share: float | None
    """Processor time of its thread over the time of the batch."""
    most_in_flight: int
    send_lag_p99_ns: int | None
    """How long after its planned time a request was sent; None where nothing was planned (closed loop)."""
    send_lag_max_ns: int | None
    loop_lag_max_ns: int | None
    """The longest that its event loop was busy with something else when it should have woken up."""
    kept_up: bool
    reason: str | None = None
    """Why its figures are in doubt, where it did not keep up."""


class Manifest(msgspec.Struct, frozen=True):
    """`run.json`. `profile` is the resolved profile as plain data, so that this module knows no engine."""

    schema_version: int
    tool_version: str
    status: RunStatus
    profile: dict[str, Any]
    argv: list[str]
    versions: dict[str, str]
    host: MachineFacts
    """The machine that it ran on."""
    git: dict[str, str]
    device_map: list[RankProcess]
    clocks: dict[str, int]
    """One reading of both clocks: `monotonic_ns` and `wall_ns`."""
    timing: RunTiming
    host_before: MachineState = MachineState()
    """How the machine was when the run began."""
    host_after: MachineState = MachineState()
    """How it was when the run ended; nothing is known while it runs."""
    environment: dict[str, str] = {}
    """The variables that say which devices a process sees and what is traced, where they were set."""
    error: str | None = None
    faults: list[str] = []
    """Faults that were injected on request, each with the dispatch that it hit."""
    program_cache: dict[str, int] = {}
    """Programs of the first start that came from the cache (`hits`) or were compiled (`misses`)."""
    restarts: int = 0
    """How often the engine went on with new ranks after a failure."""
    tracing: dict[str, TracingSetting] = {}
    """How the run was traced, by the variables that upstream has for it; empty in runs before they were read.

    `SA_PROFILE_LEVEL` (levels, or `off`), `SA_PROFILE_OUTPUT` (where the serving trace was written beside the run
    directory, null for nowhere), `PYPTO_RUNTIME_LOG` (true: runtime records) and `SIMPLER_DEVICE_STRACE_ENABLE` (true:
    device phases among them).
    """

    server: ServerFacts | None = None
    """The server that was measured; None for the embedded engine."""
    planned_output_tokens: int | None = None
    """What the measured batch asks for in all; None in runs from before it was written down."""
    client: ClientFacts | None = None
    """How the load was put on; None where nobody watched the client."""

    @property
    def depth(self) -> int | None:
        """Declared dispatches in flight, from the resolved profile."""
        value = self.profile.get("engine", {}).get("depth")
        return value if isinstance(value, int) else None

    @property
    def expected_output_tokens(self) -> int | None:
        """Output tokens that the profile asks of the measured batch; None where a request may end on its own."""
        load = self.profile.get("load", {})
        if not load.get("ignore_eos", True):
            return None
        if self.planned_output_tokens is not None:
            return self.planned_output_tokens
        requests, output_tokens = load.get("requests"), load.get("output_tokens")
        if isinstance(requests, int) and isinstance(output_tokens, int):
            return requests * output_tokens
        return None


class RequestRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of `requests.jsonl`. Times are int64 ns of CLOCK_MONOTONIC at the client.

    `token_times_ns[i]` is the arrival of `output_token_ids[i]`; tokens of one step share one arrival.
    `accepted` / `proposed` / `steps` are the MTP counts of this request: drafts accepted, drafts offered to
    verification, decode steps that carried the request and whose tokens were kept. `discarded` tokens were committed
    by the last of those steps beyond the request's end. Each of `prefills` (one, and one more after every preemption)
    publishes a token, so that prefills + steps + accepted = output tokens + discarded. `cached_tokens` is how many
    positions they did not have to prefill, where the engine reuses prefixes.

    A server that gives no token ids leaves `output_token_ids` and `token_times_ns` empty: `events` holds the arrivals of
    its output events with the tokens of each, null where nobody can tell. `prompt_tokens` and `completion_tokens` are the
    server's own counts. `planned_ns` is when the load wanted the request sent; `send_ns` is when it was.
    `server_request_id` is the id in the server's answer.
    """

    request_id: str
    rank: int | None
    prompt_token_ids: list[int]
    output_token_ids: list[int]
    send_ns: int
    token_times_ns: list[int]
    finish_reason: str | None
    accepted: int | None = None
    proposed: int | None = None
    steps: int | None = None
    discarded: int | None = None
    prefills: int | None = None
    preemptions: int = 0
    cached_tokens: int | None = None
    prompt: str | None = None
    text: str | None = None
    error: str | None = None
    phase: Literal["warmup", "measured"] = "measured"
    planned_ns: int | None = None
    server_request_id: str | None = None
    http_status: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    events: list[tuple[int, int | None]] | None = None


class ResourceSample(msgspec.Struct, frozen=True):
    """One line of `resources.jsonl`: what one process held at one time, from /proc.

    `process` is `engine`, `server` (of the ranks) or `rank <r>`. `decode_steps` counts those of the measured batch
    until then. `rss_bytes` is resident memory, shared pages included; `anonymous_bytes` is its private part.
    `shared_regions` counts distinct shared-memory objects that are mapped.
    """

    time_ns: int
    decode_steps: int
    process: str
    pid: int
    rss_bytes: int
    anonymous_bytes: int
    fds: int
    shared_regions: int


class TokenDifference(msgspec.Struct, frozen=True):
    """Where two outputs of a request part: `position` counts output tokens from 0; None is past the end of one."""

    request_id: str
    position: int
    with_mtp: int | None
    without_mtp: int | None


class MtpAccuracy(msgspec.Struct, frozen=True):
    """`mtp_accuracy.json`: the measured requests compared with the same requests run without MTP."""

    mtp: int
    requests: int
    tokens: int
    different_requests: int
    first_difference: TokenDifference | None


def write_json_atomically(path: Path, value: object) -> None:
    """Write `value` as indented JSON to `path` through a rename, so that a reader never sees half a file."""
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(json_document(value), encoding="utf-8")
    temporary.replace(path)
