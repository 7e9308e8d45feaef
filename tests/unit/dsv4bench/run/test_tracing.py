"""Who says how a run is traced: flags, then --set, then the environment, then the profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsv4bench.errors import UsageError
from dsv4bench.run.tracing import load_traced_profile

NO_TRACE = ['trace.sa_profile="off"', "trace.strace=false", "trace.device_phases=false"]

# Of each setting: its variable, its key, and a value from each of the sources that differ from each other.
LEVELS = ("SA_PROFILE_LEVEL", "sa_profile")
RECORDS = ("PYPTO_RUNTIME_LOG", "strace")
PHASES = ("SIMPLER_DEVICE_STRACE_ENABLE", "device_phases")


def profile(directory: Path, trace: str = "") -> str:
    path = directory / "mine.toml"
    path.write_text(
        f'name = "mine"\n[load]\nrequests = 2\noutput_tokens = 8\nprompt_tokens = 4\n[trace]\n{trace}\n'
    )
    return str(path)


@pytest.mark.parametrize(
    ("setting", "in_profile", "in_environment", "in_set", "flag", "expected"),
    [
        # (value, source) that wins; None: the source says nothing.
        (LEVELS, '"e2e"', None, None, False, ("e2e", "profile")),
        (LEVELS, None, None, None, False, ("verbose", "profile")),
        (LEVELS, '"e2e"', "Kernel", None, False, ("kernel", "environment")),
        (LEVELS, '"e2e"', None, "kernel", False, ("kernel", "--set")),
        (LEVELS, '"e2e"', None, None, True, ("off", "flag")),
        (LEVELS, None, "kernel", "e2e", False, ("e2e", "--set")),
        (LEVELS, None, "kernel", "off", False, ("off", "--set")),
        (LEVELS, None, "kernel", None, True, ("off", "flag")),
        (LEVELS, None, None, "kernel", True, ("off", "flag")),
        (LEVELS, '"off"', "e2e,,VERBOSE", None, False, ("verbose", "environment")),
        (LEVELS, '"e2e"', "kernel", "verbose", True, ("off", "flag")),
        (RECORDS, "false", None, None, False, (False, "profile")),
        (RECORDS, "false", "v9", None, False, (True, "environment")),
        (RECORDS, "true", "WARN", None, False, (False, "environment")),
        (RECORDS, "false", None, "true", False, (True, "--set")),
        (RECORDS, "true", None, None, True, (False, "flag")),
        (RECORDS, None, "warn", "true", False, (True, "--set")),
        (RECORDS, None, "v9", "false", False, (False, "--set")),
        (RECORDS, None, "v9", None, True, (False, "flag")),
        (RECORDS, None, None, "true", True, (False, "flag")),
        (PHASES, None, None, None, False, (False, "profile")),
        (PHASES, "true", None, None, False, (True, "profile")),
        (PHASES, "true", "0", None, False, (False, "environment")),
        (PHASES, "false", "1", None, False, (True, "environment")),
        (PHASES, "false", None, "true", False, (True, "--set")),
        (PHASES, "true", None, None, True, (False, "flag")),
        (PHASES, None, "0", "true", False, (True, "--set")),
        (PHASES, None, "1", "false", False, (False, "--set")),
        (PHASES, None, "1", None, True, (False, "flag")),
        (PHASES, None, None, "true", True, (False, "flag")),
    ],
)
def test_of_two_sources_the_nearer_one_wins(
    tmp_path: Path,
    setting: tuple[str, str],
    in_profile: str | None,
    in_environment: str | None,
    in_set: str | None,
    flag: bool,
    expected: tuple[Any, str],
) -> None:
    variable, key = setting
    resolved, tracing = load_traced_profile(
        profile(tmp_path, f"{key} = {in_profile}" if in_profile else ""),
        [f"trace.{key}={in_set}"] if in_set else [],
        NO_TRACE if flag else [],
        {variable: in_environment} if in_environment is not None else {},
    )
    assert getattr(resolved.trace, key) == expected[0]
    recorded = tracing.settings[variable]
    assert (recorded.value, recorded.source) == expected


def test_the_last_of_two_overrides_counts_and_other_sections_are_no_source(tmp_path: Path) -> None:
    sets = ["trace.sa_profile=e2e", "engine.depth=1", "trace.sa_profile=kernel"]
    resolved, tracing = load_traced_profile(
        profile(tmp_path), sets, ["engine.ranks=2"], {"PYPTO_RUNTIME_LOG": "warn"}
    )
    assert (resolved.trace.sa_profile, resolved.engine.depth, resolved.engine.ranks) == ("kernel", 1, 2)
    assert {name: entry.source for name, entry in tracing.settings.items()} == {
        "SA_PROFILE_LEVEL": "--set",
        "PYPTO_RUNTIME_LOG": "environment",
        "SIMPLER_DEVICE_STRACE_ENABLE": "profile",
        "SA_PROFILE_OUTPUT": "--set",
    }


@pytest.mark.parametrize(
    ("variables", "output"),
    [
        ({"SA_PROFILE_OUTPUT": "/tmp/traces"}, "/tmp/traces"),
        ({"SA_PROFILE_OUTPUT": "/tmp/x.json", "SA_PROFILE_LEVEL": "e2e"}, "/tmp/x.json"),
        ({"SA_PROFILE_LEVEL": "e2e"}, str(Path("profile_out").absolute())),
    ],
)
def test_the_output_is_that_of_the_environment(
    tmp_path: Path, variables: dict[str, str], output: str
) -> None:
    _, tracing = load_traced_profile(profile(tmp_path), [], [], variables)
    assert tracing.output is not None
    assert str(tracing.output.absolute()) == output
    recorded = tracing.settings["SA_PROFILE_OUTPUT"]
    assert (recorded.value, recorded.source) == (output, "environment")


def test_without_the_variables_there_is_no_second_place(tmp_path: Path) -> None:
    _, tracing = load_traced_profile(profile(tmp_path), [], [], {})
    assert tracing.output is None
    recorded = tracing.settings["SA_PROFILE_OUTPUT"]
    assert (recorded.value, recorded.source) == (None, "profile")


def test_an_output_alone_switches_serving_spans_on_and_leaves_the_levels_to_the_profile(
    tmp_path: Path,
) -> None:
    variables = {"SA_PROFILE_OUTPUT": "out"}
    resolved, tracing = load_traced_profile(profile(tmp_path, 'sa_profile = "off"'), [], [], variables)
    assert resolved.trace.sa_profile == "e2e,kernel"
    assert tracing.settings["SA_PROFILE_LEVEL"].source == "environment"
    resolved, tracing = load_traced_profile(profile(tmp_path, 'sa_profile = "e2e"'), [], [], variables)
    assert resolved.trace.sa_profile == "e2e"
    assert tracing.settings["SA_PROFILE_LEVEL"].source == "profile"


@pytest.mark.parametrize(
    ("sets", "flags", "source"), [(["trace.sa_profile=off"], [], "--set"), ([], NO_TRACE, "flag")]
)
def test_who_switches_serving_spans_off_gets_no_output_whatever_the_environment_says(
    tmp_path: Path, sets: list[str], flags: list[str], source: str
) -> None:
    variables = {"SA_PROFILE_OUTPUT": "out", "SA_PROFILE_LEVEL": "verbose"}
    resolved, tracing = load_traced_profile(profile(tmp_path), sets, flags, variables)
    assert resolved.trace.levels is None
    assert tracing.output is None
    recorded = tracing.settings["SA_PROFILE_OUTPUT"]
    assert (recorded.value, recorded.source) == (None, source)


@pytest.mark.parametrize(
    "variables", [{"SA_PROFILE_LEVEL": "debug"}, {"SA_PROFILE_LEVEL": "e2e,off", "SA_PROFILE_OUTPUT": "x"}]
)
def test_an_unknown_level_is_refused_also_where_something_outweighs_it(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    for flags in ([], NO_TRACE):
        with pytest.raises(UsageError, match="SA_PROFILE_LEVEL: unknown trace level"):
            load_traced_profile(profile(tmp_path), [], flags, variables)


def test_a_trace_that_is_no_table_is_named_as_without_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "m"\ntrace = 3\n[load]\nrequests = 1\noutput_tokens = 1\nprompt_tokens = 1\n', "utf-8"
    )
    with pytest.raises(UsageError, match="trace = 3: expected a table"):
        load_traced_profile(str(path), [], [], {"PYPTO_RUNTIME_LOG": "v9"})
