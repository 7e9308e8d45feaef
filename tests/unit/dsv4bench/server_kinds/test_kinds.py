"""Server kinds: what ships, how placeholders are filled, and what is wrong with a file before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsv4bench.cli import app
from dsv4bench.errors import UsageError
from dsv4bench.profile import load_profile
from dsv4bench.server_kinds.load import load_kind, shipped_kinds, split_server_overrides
from dsv4bench.server_kinds.resolve import ResolvedServer, resolve, running_server, startable_server

PYPTO_FLAGS = {
    *(
        "--model",
        "--served-model-name",
        "--backend",
        "--platform",
        "--devices",
        "--dp",
        "--ep",
        "--tp",
        "--block-size",
    ),
    *("--max-model-len", "--max-num-seqs", "--max-num-batched-tokens", "--long-prefill-token-threshold"),
    *("--speculative-config", "--no-enable-prefix-caching", "--enable-prefix-caching", "--ring-dep-pool"),
    *(
        "--ring-task-window",
        "--ring-heap",
        "--host",
        "--port",
        "--npu-memory-utilization",
        "--use-compile-cache",
    ),
    *("--show-startup-logs", "--profile", "--profile-output", "--profile-level", "--prompt"),
}
"""The documented flags of the production engine's program."""


def resolved(kind: str, *sets: str, profile: str = "gbs32-mtp1") -> ResolvedServer:
    of_profile, of_server = split_server_overrides(sets)
    return resolve(load_kind(kind, of_server), load_profile(profile, of_profile), Path("/out"), port=8123)


@pytest.mark.parametrize("kind", shipped_kinds())
def test_every_shipped_kind_resolves(kind: str) -> None:
    server = resolved(kind, "server.model=/models/m")
    assert server.url == "http://127.0.0.1:8123"
    assert server.command
    assert not any("{" in word and "method" not in word for word in server.command)


def test_pypto_serving_gets_its_documented_flags_and_no_others() -> None:
    server = resolved("pypto-serving", "server.model=/models/DeepSeek-V4")
    flags = {word for word in server.command if word.startswith("--")}
    assert flags <= PYPTO_FLAGS
    assert server.command[:3] == ["pypto-serving", "--model", "/models/DeepSeek-V4"]
    given = dict(zip(server.command, server.command[1:], strict=False))
    assert given["--devices"] == "0,1,2,3,4,5,6,7"
    assert (given["--dp"], given["--ep"], given["--tp"]) == ("8", "8", "1")
    assert (given["--max-num-seqs"], given["--max-model-len"]) == ("32", "512")
    assert given["--speculative-config"] == '{"method":"mtp","num_speculative_tokens":1}'
    assert (given["--profile-output"], given["--profile-level"]) == ("/out/profile", "verbose")
    assert server.environment == {"PYPTO_RUNTIME_LOG": "v9", "SIMPLER_DEVICE_STRACE_ENABLE": "0"}
    assert server.endpoint.model == "DeepSeek-V4"


def test_what_is_not_asked_for_is_not_switched_on() -> None:
    server = resolved(
        "pypto-serving", "server.model=/m", "engine.mtp=0", "trace.sa_profile=off", "trace.strace=false"
    )
    assert "--speculative-config" not in server.command
    assert "--profile" not in server.command
    assert server.profiling is None
    assert server.environment == {}


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ((), "needs the model: --set server.model"),
        (("server.model=/m", "engine.ranks=4"), "needs exactly 8 devices"),
        (("server.model=/m", "server.devices=[0,2,4]"), "needs exactly 8 devices"),
        (("server.model=/m", "server.devices=[0,0,1,2,3,4,5,6]"), "names a device twice"),
        (("server.model=/m", "engine.mtp=4"), "at most 16 requests at once"),
        (("server.model=/m", "engine.mtp=2", "engine.requests_per_rank=5"), "at most 32 requests at once"),
        (("server.model=/m", "engine.requests_per_rank=9"), "at most 64 requests at once"),
    ],
)
def test_what_the_production_engine_does_not_take_is_said_before_it_starts(
    sets: tuple[str, ...], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        resolved("pypto-serving", *sets)


def test_physical_devices_need_not_begin_at_zero() -> None:
    server = resolved("pypto-serving", "server.model=/m", "server.devices=[0,2,4,6,8,10,12,14]")
    assert "0,2,4,6,8,10,12,14" in server.command
    assert server.devices == [0, 2, 4, 6, 8, 10, 12, 14]


KIND = 'name = "mine"\ncommand = ["sh", "-c", "true {port}"]\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (KIND + "[helth]\n", "unknown key 'helth' .did you mean 'health'"),
        (KIND + "[health]\npth = 1\n", r"unknown key 'health.pth' in \[health\] .did you mean 'path'"),
        ('name = "mine"\n', "command"),
        (KIND + "[health]\ntimeout_s = -1\n", "health.timeout_s"),
        (KIND + '[stop]\nsignal = "SIGWINCH"\n', "stop.signal"),
        ("name = [", "is not valid TOML"),
        (KIND.replace("{port}", "{prot}"), "unknown placeholder {prot} .did you mean 'port'"),
    ],
)
def test_a_file_that_is_wrong_is_a_usage_error_that_names_the_key(
    text: str, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        resolved(str(path))


def test_a_users_file_with_overrides_and_braces(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\ncommand = ["sh", "{{x}} {port} {mtp}"]\n[endpoint]\nfields = { a = 1 }\n')
    server = resolved(
        str(path), "server.endpoint.fields.b.c=2", "server.environment.X=1", "server.stop.grace_s=3"
    )
    assert server.command == ["sh", "{x} 8123 1"]
    assert server.environment == {"X": "1"}
    assert server.endpoint.fields == {"a": 1, "b.c": 2}
    assert server.endpoint.governed_by["b"] == "server.endpoint.fields"
    assert server.kind.stop.grace_s == 3


def test_secrets_are_written_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        KIND + 'environment = { KEY = "s3cret" }\nsecret_variables = ["KEY"]\napi_key = "s3cret"\n'
    )
    server = resolved(str(path))
    assert server.environment["KEY"] == server.endpoint.api_key == "s3cret"
    assert "s3cret" not in f"{server.settings}{server.shown_environment}"


def test_a_program_that_is_not_there_is_said_before_anything_starts() -> None:
    kind = load_kind("pypto-serving", ["server.model=/m", 'server.command=["no-such-program-x"]'])
    with pytest.raises(UsageError, match="'no-such-program-x' is not found"):
        startable_server(kind, load_profile("gbs32-mtp1"), Path("/out"))


def test_a_server_that_runs_is_not_configured_and_its_profiler_needs_a_readable_place(tmp_path: Path) -> None:
    kind, profile = load_kind("pypto-serving"), load_profile("gbs32-mtp1")
    server = running_server(kind, profile, "http://h:1/", None)
    assert (server.url, server.command, server.environment, server.profiling) == ("http://h:1", [], {}, None)
    assert server.endpoint.model == ""
    with_output = running_server(kind, profile, "http://h:1", tmp_path)
    assert with_output.profiling is not None
    assert with_output.profiling.output == str(tmp_path)
    with pytest.raises(UsageError, match="no such directory"):
        running_server(kind, profile, "http://h:1", tmp_path / "none")
    for url in ("h:1", "ftp://h", "http://h/v1", "http://"):
        with pytest.raises(UsageError, match="write scheme, host and port"):
            running_server(kind, profile, url, None)


def test_the_command_shows_what_would_run() -> None:
    shown = CliRunner().invoke(
        app, ["servers", "pypto-serving", "--set", "server.model=/m"], env={"COLUMNS": "200"}
    )
    assert shown.exit_code == 0
    assert "pypto-serving --model /m --served-model-name m --backend npu" in shown.output
    assert "PYPTO_RUNTIME_LOG=v9" in shown.output
    listed = CliRunner().invoke(app, ["servers"])
    assert all(kind in listed.output for kind in shipped_kinds())
