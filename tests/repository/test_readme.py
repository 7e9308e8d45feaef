"""What README.md and docs/ say is true of the code: commands, options, files, keys, exit codes, links."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from typer.core import TyperGroup

from analyzers import errors as analyzer_errors
from analyzers.gate.model import GatePolicy
from analyzers.rundir import RunDirectory
from dsv4bench import errors
from dsv4bench.cli import app
from dsv4bench.engine.settings import EngineSettings
from dsv4bench.load.settings import LoadSection
from dsv4bench.profile import (
    CheckSection,
    ModelSection,
    TraceSection,
    load_profile,
)
from dsv4bench.server_kinds.load import load_kind, shipped_kinds, split_server_overrides
from tests.builders.places import REPOSITORY

README = REPOSITORY / "README.md"
DOCUMENTS = [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").glob("*.md"))]


def commands(document: Path) -> Iterator[str]:
    """Every command line in a code block, fenced or indented, that calls dsv4bench."""
    fenced = False
    for line in document.read_text().splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif (fenced or line.startswith("    ")) and line.strip().startswith("dsv4bench "):
            yield line.strip().partition("  #")[0].strip()


ALL_COMMANDS = sorted({command for document in DOCUMENTS for command in commands(document)})


def command_of(words: list[str]) -> tuple[list[str], Any, list[str]]:
    """The names of the (sub)command that `words` call, the command, and its arguments."""
    command = typer.main.get_command(app)
    names: list[str] = []
    while (
        isinstance(command, TyperGroup) and len(names) < len(words) and words[len(names)] in command.commands
    ):
        command = command.commands[words[len(names)]]
        names.append(words[len(names)])
    return names, command, words[len(names) :]


def leaf_commands(group: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that is no group of others, by its names."""
    if not isinstance(group, TyperGroup):
        yield names
        return
    for name, command in group.commands.items():
        yield from leaf_commands(command, (*names, name))


@pytest.mark.parametrize("command", ALL_COMMANDS)
def test_every_command_parses(command: str) -> None:
    names, subcommand, arguments = command_of(shlex.split(command)[1:])
    assert names
    assert not isinstance(subcommand, TyperGroup), f"no such subcommand: {command}"
    context = subcommand.make_context(names[-1], arguments)
    overrides = context.params.get("overrides") or context.params.get("set_") or []
    is_name = names == ["profiles"]
    profile = context.params.get("name") if is_name else context.params.get("profile")
    if profile is not None and names[0] != "history":
        of_profile, of_server = split_server_overrides(overrides)
        load_profile(profile, of_profile)
        kind = context.params.get("name" if names == ["servers"] else "server")
        if kind in shipped_kinds():
            load_kind(kind, of_server)


def test_the_readme_shows_every_command() -> None:
    shown = {tuple(command_of(shlex.split(command)[1:])[0]) for command in commands(README)}
    assert shown == set(leaf_commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", ".pre-commit-config.yaml"])
def test_the_make_targets_exist(name: str) -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = re.findall(r"^(?: +entry: )?make (\w+)", (REPOSITORY / name).read_text(), re.MULTILINE)
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_files_of_a_run_directory_are_named_as_the_code_names_them() -> None:
    run = RunDirectory(Path())
    section = README.read_text().partition("## The run directory")[2].partition("\n## ")[0]
    named = {
        name
        for line in section.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+)`", line)
    }
    paths = {
        run.manifest, run.serving_trace, run.server_log, run.requests, run.responses, run.performance_summary,
        run.prompt_manifest, run.upstream_trace,
        run.resources, run.mtp_accuracy, run.mtp_off_log, run.report("json"), run.report("md"),
        run.report("html"), run.swimlane_perfetto, run.swimlane_chrome,
    }  # fmt: skip
    assert {str(path) for path in paths} | {"strace/rank-<r>.log", "sa_profile/fragments/"} == named
    assert str(run.rank_log(3)) == "strace/rank-3.log"
    assert str(run.fragments) == "sa_profile/fragments"


def test_the_exit_codes_are_those_of_the_errors() -> None:
    section = README.read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}
    raised = {
        error.exit_code
        for module, base in (
            (errors, errors.Dsv4benchError),
            (analyzer_errors, analyzer_errors.AnalyzerError),
        )
        for error in vars(module).values()
        if isinstance(error, type) and issubclass(error, base)
    }
    # 0 and 4 are verdicts on what was read (`analysis.judge`), and raised by nothing.
    assert documented == raised | {0, 4}


def test_every_environment_variable_is_one_that_the_code_or_rich_reads() -> None:
    section = README.read_text().partition("## Environment")[2].partition("\n## ")[0]
    variables = set(re.findall(r"`([A-Z][A-Z0-9_]+)`", section)) - {"NO_COLOR"}
    sources = [path for half in ("dsv4bench", "analyzers") for path in (REPOSITORY / half).rglob("*.py")]
    source = "".join(path.read_text() for path in sources)
    assert variables
    assert {variable for variable in variables if f'"{variable}"' not in source} == set()


def test_the_table_of_profile_keys_has_every_key_with_its_default() -> None:
    rows = re.findall(
        r"^\| `(\w+\.\w+)` \| .* \| (.+) \|$", (REPOSITORY / "docs" / "formats.md").read_text(), re.MULTILINE
    )
    expected = {}
    sections: dict[str, type[msgspec.Struct]] = {
        "model": ModelSection,
        "engine": EngineSettings,
        "load": LoadSection,
        "trace": TraceSection,
        "check": CheckSection,
        "gate": GatePolicy,
    }
    for section, record in sections.items():
        for field in msgspec.structs.fields(record):
            if field.required:
                text = "required"
            elif field.default is None:
                text = "none"
            else:
                text = field.default if isinstance(field.default, str) else json.dumps(field.default)
            expected[f"{section}.{field.name}"] = text
    assert {key: default.strip("`") for key, default in rows} == expected


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_to_a_file_resolves(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), target
