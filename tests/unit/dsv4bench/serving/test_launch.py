"""What is traced of a served engine, and where; what a server says before it starts."""

import logging
import socket
from pathlib import Path

import pytest

from dsv4bench.errors import UsageError
from dsv4bench.run.tracing import load_traced_profile
from dsv4bench.serving.launch import ServeOptions, tracing_plan
from dsv4bench.serving.logs import QuietPaths
from dsv4bench.serving.profiling import TracingPlan
from dsv4bench.serving.server import listen, url_of


def plan(
    options: ServeOptions | None = None, variables: dict[str, str] | None = None, sets: tuple[str, ...] = ()
) -> TracingPlan:
    profile, tracing = load_traced_profile("smoke", sets, [], variables or {})
    return tracing_plan(profile, tracing, options or ServeOptions())


def test_without_a_word_nothing_is_traced_but_in_windows() -> None:
    assert plan() == TracingPlan(None, strace=True, strace_always=False, device_phases=False)


def test_the_runtimes_variable_switches_its_records_for_good() -> None:
    on = plan(variables={"PYPTO_RUNTIME_LOG": "v9", "SIMPLER_DEVICE_STRACE_ENABLE": "1"})
    assert (on.strace, on.strace_always, on.device_phases) == (True, True, True)
    off = plan(variables={"PYPTO_RUNTIME_LOG": "error"})
    assert (off.strace, off.strace_always) == (False, False)
    assert plan(sets=("trace.strace=true",)).strace_always


def test_a_flag_outweighs_the_environment_and_that_the_default() -> None:
    variables = {"SA_PROFILE_OUTPUT": "from-environment"}
    assert plan(variables=variables).output == Path("from-environment")
    assert plan(ServeOptions(profile=True)).output == Path("profile_out")
    flag = ServeOptions(profile=True, profile_output=Path("from-flag"))
    assert plan(flag, variables).output == Path("from-flag")


def test_an_output_without_a_profile_is_refused() -> None:
    with pytest.raises(UsageError, match="--profile"):
        plan(ServeOptions(profile_output=Path("x")))


def test_a_port_that_is_taken_is_named() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert url_of(first, "127.0.0.1") == f"http://127.0.0.1:{port}"
        with pytest.raises(UsageError, match=f"127.0.0.1 port {port}"):
            listen("127.0.0.1", port)
        # It is open before anything is started behind it.
        socket.create_connection(("127.0.0.1", port)).close()


@pytest.mark.parametrize(
    ("path", "status", "logged"),
    [
        ("/health", 200, False),
        ("/health", 503, True),
        ("/metrics?x=1", 200, False),
        ("/v1/models", 200, True),
    ],
)
def test_what_monitors_ask_is_logged_where_it_fails(path: str, status: int, logged: bool) -> None:
    record = logging.LogRecord(
        "uvicorn.access", 20, "", 1, "%s", ("127.0.0.1", "GET", path, "1.1", status), None
    )
    assert QuietPaths().filter(record) is logged
    assert QuietPaths().filter(logging.LogRecord("uvicorn.error", 20, "", 1, "plain", None, None))
