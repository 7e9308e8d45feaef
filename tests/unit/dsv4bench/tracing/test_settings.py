from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4bench.errors import UsageError
from dsv4bench.tracing import (
    TracingEnvironment,
    fragments_directory,
    merged_trace,
    parse_levels,
    tracing_environment,
)
from dsv4bench.tracing.settings import DEFAULT_LEVELS, LEVELS, Level, levels_text

EVERY = {"e2e", "kernel", "verbose"}


def test_the_environment_says_nothing_where_no_variable_is_set() -> None:
    assert tracing_environment({"HOME": "/root"}) == TracingEnvironment(None, None, None, None)


def test_either_variable_asks_for_serving_spans() -> None:
    by_output = tracing_environment({"SA_PROFILE_OUTPUT": "/tmp/t.json"})
    assert (by_output.output, by_output.levels) == (Path("/tmp/t.json"), None)
    by_level = tracing_environment({"SA_PROFILE_LEVEL": "kernel"})
    assert (by_level.output, by_level.levels) == (Path("profile_out"), {"kernel"})


def test_an_empty_variable_is_set_as_it_is_upstream() -> None:
    assert tracing_environment({"SA_PROFILE_LEVEL": ""}) == TracingEnvironment(
        levels=frozenset({"e2e", "kernel"}), output=Path("profile_out")
    )
    assert tracing_environment({"SA_PROFILE_OUTPUT": ""}).output == Path()
    assert tracing_environment({"PYPTO_RUNTIME_LOG": ""}).strace is True
    assert tracing_environment({"SIMPLER_DEVICE_STRACE_ENABLE": ""}).device_phases is True


def test_a_home_directory_may_be_written_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert tracing_environment({"SA_PROFILE_OUTPUT": "~/p"}).output == Path("/home/me/p")


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("verbose", EVERY),
        (" e2e , kernel ", {"e2e", "kernel"}),
        ("E2E,,Kernel", {"e2e", "kernel"}),
        (",VERBOSE,", EVERY),
        ("Kernel,kernel,KERNEL", {"kernel"}),
        ("e2e,verbose", EVERY),
        (" , ", {"e2e", "kernel"}),
    ],
)
def test_levels_are_read_in_any_letter_case_and_empty_entries_are_skipped(
    text: str, levels: set[Level]
) -> None:
    assert parse_levels(text, source="x") == levels


@pytest.mark.parametrize("text", ["debug", "e2e kernel", "e2e;kernel", "all", "off", "kernel,2"])
def test_an_unknown_level_is_an_error_that_names_it_and_its_source(text: str) -> None:
    with pytest.raises(UsageError, match=r"SA_PROFILE_LEVEL: unknown trace level .* e2e, kernel, verbose"):
        tracing_environment({"SA_PROFILE_LEVEL": text})


@given(st.frozensets(st.sampled_from(LEVELS), min_size=1))
def test_levels_as_text_are_read_as_the_same_levels(levels: frozenset[Level]) -> None:
    every = frozenset(LEVELS) if "verbose" in levels else levels
    assert parse_levels(levels_text(levels), source="x") == every
    assert levels_text(DEFAULT_LEVELS) == "e2e,kernel"


@pytest.mark.parametrize(
    ("level", "strace"),
    [
        *((name, True) for name in ("v9", "V9", "v0", "timing", "TIMING", "debug", "info", "Info")),
        *((name, False) for name in ("warn", "WARN", "warning", "error", "ERROR", "null", "Null")),
        # Upstream takes what it does not know for its default, TIMING; a number is a name that it does not know.
        ("loud", True),
        ("30", True),
    ],
)
def test_the_level_of_the_runtime_log_shows_or_hides_runtime_records(level: str, strace: bool) -> None:
    assert tracing_environment({"PYPTO_RUNTIME_LOG": level}).strace is strace


@pytest.mark.parametrize(
    ("value", "on"), [("0", False), ("1", True), ("true", True), ("no", True), ("00", True)]
)
def test_device_phases_are_off_at_zero_alone(value: str, on: bool) -> None:
    assert tracing_environment({"SIMPLER_DEVICE_STRACE_ENABLE": value}).device_phases is on


def test_a_directory_and_a_json_file_each_have_their_layout() -> None:
    assert fragments_directory(Path("d")) == Path("d/fragments")
    assert merged_trace(Path("d")) == Path("d/trace.json")
    assert fragments_directory(Path("d/x.json")) == Path("d/x.json.fragments")
    assert merged_trace(Path("d/x.json")) == Path("d/x.json")
