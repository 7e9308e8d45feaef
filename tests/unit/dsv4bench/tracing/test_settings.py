from pathlib import Path

import pytest

from dsv4bench.errors import UsageError
from dsv4bench.tracing import (
    fragments_directory,
    merged_trace,
    parse_levels,
    settings_from_environment,
)


def test_tracing_is_off_when_neither_variable_is_set() -> None:
    assert settings_from_environment({}) is None
    assert settings_from_environment({"SA_PROFILE_OUTPUT": "", "SA_PROFILE_LEVEL": ""}) is None


def test_an_output_alone_switches_the_default_levels_on() -> None:
    settings = settings_from_environment({"SA_PROFILE_OUTPUT": "/tmp/t.json"})
    assert settings is not None
    assert settings.output == Path("/tmp/t.json")
    assert settings.levels == {"e2e", "kernel"}


def test_a_level_alone_writes_to_the_default_directory() -> None:
    settings = settings_from_environment({"SA_PROFILE_LEVEL": "kernel"})
    assert settings is not None
    assert settings.output == Path("profile_out")
    assert settings.levels == {"kernel"}


def test_verbose_includes_all_levels() -> None:
    assert parse_levels("verbose", source="x") == {"e2e", "kernel", "verbose"}
    assert parse_levels(" e2e , kernel ", source="x") == {"e2e", "kernel"}


@pytest.mark.parametrize("text", ["debug", "e2e,,kernel", "E2E"])
def test_an_unknown_level_is_an_error_that_names_it_and_its_source(text: str) -> None:
    with pytest.raises(UsageError, match=r"SA_PROFILE_LEVEL: unknown trace level .* e2e, kernel, verbose"):
        settings_from_environment({"SA_PROFILE_LEVEL": text})


def test_a_directory_and_a_json_file_each_have_their_layout() -> None:
    assert fragments_directory(Path("d")) == Path("d/fragments")
    assert merged_trace(Path("d")) == Path("d/trace.json")
    assert fragments_directory(Path("d/x.json")) == Path("d/x.json.fragments")
    assert merged_trace(Path("d/x.json")) == Path("d/x.json")
