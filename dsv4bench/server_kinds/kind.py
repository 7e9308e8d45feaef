"""The record of a server kind: the keys of `profiles/servers/*.toml`, and of any such file of a user's.

Placeholders in braces stand in `command`, `environment`, `endpoint.model` and `profiling.output`; docs/server-kinds.md lists
them, and `resolve.py` gives them their values.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

Text = Annotated[str, msgspec.Meta(min_length=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Path = Annotated[str, msgspec.Meta(pattern="^/")]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One table of a server kind."""


class Health(_Table, frozen=True, kw_only=True):
    """`[health]`: when the server is ready."""

    path: Path = "/health"
    status: int = 200
    timeout_s: Seconds = 600.0
    """From its start; a first start may compile."""
    log_line: str = ""
    """Text that its log must hold as well; "" for none."""


class EndpointTable(_Table, frozen=True, kw_only=True):
    """`[endpoint]`: how requests are put; see `dsv4bench.load.endpoint.Endpoint`."""

    api: Literal["completions", "chat"] = "completions"
    path: Path | None = None
    """That of the `api` in OpenAI's interface where it is not set."""
    model: str = "{served_model_name}"
    prompt: Literal["token_ids", "text"] = "text"
    length_fields: tuple[Text, ...] = ("max_tokens",)
    fields: dict[str, Any] = {}
    sampling_fields: tuple[Text, ...] = ("temperature", "top_p", "top_k", "seed")
    stream_usage: bool = True
    return_token_ids: bool = False


class ProfilingTable(_Table, frozen=True, kw_only=True):
    """`[profiling]`: how its profiler is switched on for the measured batch, and what that leaves."""

    start: Path
    stop: Path
    timeout_s: Seconds = 120.0
    """Of each of the two; stopping merges and writes."""
    output: Text
    """The directory in which its files appear."""
    format: Literal["sa_profile", "kineto"]
    arguments: list[str] = []
    """Added to the command where the profile asks for a serving trace."""
    appears_s: Seconds = 30.0
    """How long after the stop its files may still appear."""


class MetricsTable(_Table, frozen=True, kw_only=True):
    """`[metrics]`: counters of the server; names as its metrics have them, without labels."""

    path: Path = "/metrics"
    accepted: str = ""
    """Drafts accepted; "" where it does not count them."""
    proposed: str = ""
    cache_hits: str = ""
    """Programs that came from the compile cache."""
    cache_misses: str = ""


class StopTable(_Table, frozen=True, kw_only=True):
    """`[stop]`: how it is ended; what is left after the grace is killed."""

    signal: Literal["SIGTERM", "SIGINT"] = "SIGTERM"
    grace_s: Seconds = 60.0


class ServerKind(_Table, frozen=True, kw_only=True):
    """One kind of server."""

    name: Text
    description: str = ""
    command: Annotated[list[Text], msgspec.Meta(min_length=1)]
    speculative_arguments: list[str] = []
    """Added to the command where `engine.mtp` is above 0."""
    environment: dict[Text, str] = {}
    secret_variables: list[Text] = []
    """Variables of `environment` whose values are written nowhere."""
    strace: bool = False
    """Whether its processes print STRACE records."""
    strace_environment: dict[Text, str] = {}
    """Set where the profile asks for them."""
    model: str = ""
    """The model's directory or name; many kinds cannot start without."""
    served_model_name: str = ""
    """Its name in requests; that of `model` where it is empty."""
    devices: list[Annotated[int, msgspec.Meta(ge=0)]] = []
    """Physical devices in the order of ranks; 0 to ranks - 1 where it is empty."""
    exact_devices: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How many devices it needs exactly; 0 for any number."""
    max_num_seqs_by_drafts: dict[str, Annotated[int, msgspec.Meta(ge=1)]] = {}
    """The most requests at once that it takes, by the least number of speculative tokens from which that holds."""
    host: Text = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    """0 is a free one."""
    api_key: str = ""
    """Where it is empty, DSV4BENCH_API_KEY."""
    version: list[Text] = []
    """A command that prints its version."""
    health: Health = Health()
    endpoint: EndpointTable = EndpointTable()
    profiling: ProfilingTable | None = None
    metrics: MetricsTable | None = None
    stop: StopTable = StopTable()


SECRET_KEYS = ("api_key",)
