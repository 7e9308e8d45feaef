"""What the two sides of a gate are: a checkout or virtual environment, a git revision, or a command line.

A side makes the command line of a run; nothing here runs one.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from dsv4bench.errors import UsageError
from dsv4bench.run.environment import package_versions

Name = Literal["base", "head"]
NAMES: tuple[Name, ...] = get_args(Name)
Kind = Literal["dir", "ref", "cmd"]
OUT = "{out}"
_SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""The working directory, which may be another checkout, comes before no other place that modules are loaded from.
Inherited by the rank server, which is started as a module."""
_WORDS: dict[Kind, str] = {"dir": "a directory", "ref": "a git revision", "cmd": "a command"}


@dataclass(frozen=True)
class Side:
    """One side: how it is called, and how a run of it is started."""

    name: Name
    description: str
    """For people: what runs, and with which versions."""
    words: tuple[str, ...]
    """The command line without its output directory."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables set for its runs."""

    def command(self, directory: Path) -> list[str]:
        """The command line of the run that leaves `directory`."""
        if any(OUT in word for word in self.words):
            return [word.replace(OUT, str(directory)) for word in self.words]
        return [*self.words, "--out", str(directory)]


@contextmanager
def open_side(
    name: Name, text: str, profile: str, overrides: Sequence[str], server: str | None = None
) -> Iterator[Side]:
    """The side that `text` names; a git revision is checked out for as long as the context lasts.

    `profile`, `overrides` (KEY=VALUE) and the kind of `server` are what a directory or a revision runs; a command line
    names its own profile, and gets the others if it is one of `dsv4bench run`.

    Raises:
        UsageError: `text` names nothing, or more than one thing; there is nothing to run in it.
    """
    option = f"--{name} {text!r}"
    kind, text = _kind(option, text)
    options = _options(overrides, server)
    if kind == "ref":
        with _worktree(option, text) as (tree, revision):
            description = f"revision {text} ({revision[:12]})"
            yield _of_tree(name, option, tree, description, profile, options)
    elif kind == "dir":
        yield _of_directory(name, option, Path(text), profile, options)
    else:
        yield _of_command(name, option, text, options)


def this_side(name: Name, profile: str, overrides: Sequence[str], server: str | None = None) -> Side:
    """The dsv4bench that runs this."""
    words = (sys.executable, "-m", "dsv4bench", "run", profile, *_options(overrides, server))
    return Side(name, f"dsv4bench run {profile}", words, _code_in(Path(__file__).parents[2]))


def _kind(option: str, text: str) -> tuple[Kind, str]:
    prefix, colon, rest = text.partition(":")
    for kind in get_args(Kind):
        if colon and prefix == kind:
            if not rest.strip():
                raise UsageError(f"{option}: nothing follows {kind}:")
            return kind, rest
    found: list[Kind] = []
    if text and Path(text).is_dir():
        found.append("dir")
    if _revision(text):
        found.append("ref")
    if _executable(text):
        found.append("cmd")
    if len(found) == 1:
        return found[0], text
    if found:
        raise UsageError(
            f"{option} is ambiguous: {' and '.join(_WORDS[kind] for kind in found)}; write "
            + " or ".join(f"{kind}:{text}" for kind in found)
        )
    raise UsageError(
        f"{option} is no directory, no git revision of the repository in {Path.cwd()}, and no command that is found; "
        "give a checkout or virtual environment, a revision, or a command line such as 'dsv4bench run smoke'"
    )


def _of_command(name: Name, option: str, text: str, options: Sequence[str]) -> Side:
    executable = _executable(text)
    if not executable:
        raise UsageError(f"{option}: no command {text.split()[0]!r} is found in PATH; give its full path")
    words = [executable, *shlex.split(text)[1:]]
    if options:
        if not _is_run(words):
            raise UsageError(
                f"{option}: only `dsv4bench run` takes --set and --server; write what {shlex.join(options)} stands for "
                "into the command line"
            )
        words += options
    return Side(name, text, tuple(words), _SAFE_PATH if Path(executable).name == "dsv4bench" else {})


def _of_directory(name: Name, option: str, directory: Path, profile: str, options: Sequence[str]) -> Side:
    if not directory.is_dir():
        raise UsageError(f"{option}: {directory} is no directory")
    directory = directory.resolve()
    is_checkout = _is_checkout(directory)
    for binaries in (directory / "bin", directory / ".venv" / "bin"):
        script = binaries / "dsv4bench"
        if script.is_file():
            if is_checkout:
                _check_code(option, str(binaries / "python"), directory, _SAFE_PATH)
            words = (str(script), "run", profile, *options)
            return Side(
                name, f"{directory}{_dirty(directory)} ({script.relative_to(directory)})", words, _SAFE_PATH
            )
    if not is_checkout:
        raise UsageError(
            f"{option}: nothing to run in {directory}: no bin/dsv4bench or .venv/bin/dsv4bench, and no checkout of "
            "dsv4bench"
        )
    return _of_tree(name, option, directory, f"{directory}{_dirty(directory)}", profile, options)


def _of_tree(
    name: Name,
    option: str,
    tree: Path,
    description: str,
    profile: str,
    options: Sequence[str],
) -> Side:
    """A checkout without an environment of its own, run with this interpreter and its packages."""
    if not _is_checkout(tree):
        raise UsageError(f"{option}: {description} holds no dsv4bench/__main__.py: no checkout of dsv4bench")
    environment = _code_in(tree)
    _check_code(option, sys.executable, tree, environment)
    versions = package_versions()
    description += (
        f", with the packages of this environment: Python {versions['python']}, torch {versions['torch']}"
    )
    words = (sys.executable, "-m", "dsv4bench", "run", profile, *options)
    return Side(name, description, words, environment)


def _code_in(tree: Path) -> dict[str, str]:
    """The variables with which an interpreter runs the code in the tree."""
    return _SAFE_PATH | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH")]))
    }


def _check_code(option: str, python: str, tree: Path, environment: dict[str, str]) -> None:
    """Make sure that the interpreter runs the code of the tree: else the gate would compare something else."""
    command = [python, "-c", "import dsv4bench; print(dsv4bench.__file__)"]
    try:
        done = subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        stderr = getattr(error, "stderr", None) or str(error)
        raise UsageError(
            f"{option}: {python} cannot load dsv4bench: {stderr.strip().splitlines()[-1]}"
        ) from error
    found = Path(done.stdout.strip()).resolve()
    if tree.resolve() not in found.parents:
        raise UsageError(
            f"{option}: {python} runs {found.parent}, not the code in {tree}; install that checkout into its "
            "own environment, or give a command with cmd:"
        )


@contextmanager
def _worktree(option: str, revision: str) -> Iterator[tuple[Path, str]]:
    """A checkout of the revision in a temporary directory, and its full hash; both are gone afterwards."""
    commit = _revision(revision)
    if not commit:
        raise UsageError(f"{option}: the repository in {Path.cwd()} has no revision {revision!r}")
    with tempfile.TemporaryDirectory(prefix="dsv4bench-gate-") as directory:
        tree = Path(directory) / "checkout"
        added = _git("worktree", "add", "--detach", str(tree), commit)
        if added.returncode:
            raise UsageError(f"{option}: git cannot check out {revision}: {added.stderr.strip()}")
        try:
            yield tree, commit
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _revision(text: str) -> str:
    """The commit that `text` names in the repository of the working directory; empty for none."""
    if text.startswith("-"):
        return ""
    done = _git("rev-parse", "--verify", "--quiet", f"{text}^{{commit}}")
    return done.stdout.strip() if done.returncode == 0 else ""


def _dirty(directory: Path) -> str:
    """What to say of a working tree that is not what its revision is."""
    done = _git("-C", str(directory), "status", "--porcelain", "--untracked-files=no")
    return " with uncommitted changes" if done.returncode == 0 and done.stdout.strip() else ""


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except OSError as error:  # no git on this machine: nothing is a revision
        return subprocess.CompletedProcess(arguments, 127, "", str(error))


def _executable(text: str) -> str | None:
    """The program that a command line starts with: found in PATH, else beside this interpreter."""
    try:
        words = shlex.split(text)
    except ValueError:  # an unclosed quotation
        return None
    if not words:
        return None
    return shutil.which(words[0]) or shutil.which(words[0], path=str(Path(sys.executable).parent))


def _is_run(words: Sequence[str]) -> bool:
    if Path(words[0]).name == "dsv4bench":
        return words[1:2] == ["run"]
    return any(list(words[at : at + 3]) == ["-m", "dsv4bench", "run"] for at in range(len(words)))


def _is_checkout(directory: Path) -> bool:
    return (directory / "dsv4bench" / "__main__.py").is_file()


def _options(overrides: Sequence[str], server: str | None) -> list[str]:
    """The words with which `dsv4bench run` gets them."""
    kind = ["--server", server] if server is not None else []
    return kind + [word for override in overrides for word in ("--set", override)]
