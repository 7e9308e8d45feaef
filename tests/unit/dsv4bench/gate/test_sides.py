"""What --base and --head name: directories, revisions, commands; and that a side runs its own code."""

import subprocess
import sys
from pathlib import Path

import pytest

import dsv4bench
from dsv4bench.errors import UsageError
from dsv4bench.gate.sides import Side, open_side, this_side

MAIN = "import json, os, sys\nprint(json.dumps([VERSION, sys.argv[1:], os.environ.get('PYTHONSAFEPATH')]))\n"


def checkout(directory: Path, version: int) -> Path:
    """A tree that looks like one of dsv4bench, and says of which version it is."""
    package = directory / "dsv4bench"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(f"VERSION = {version}\n{MAIN}")
    return directory


def git(directory: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=trunk"]
    done = subprocess.run(
        ["git", "-C", str(directory), *identity, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two revisions, versions 1 (tag `old`) and 2, and uncommitted changes; it is the working directory."""
    root = tmp_path / "repository"
    for version in (1, 2):
        checkout(root, version)
        if version == 1:
            git(root, "init", "-q")
        git(root, "add", "dsv4bench")
        git(root, "commit", "-qm", f"version {version}")
        if version == 1:
            git(root, "tag", "old")
    checkout(root, 3)
    monkeypatch.chdir(root)
    return root


def output_of(side: Side, directory: Path) -> str:
    done = subprocess.run(
        side.command(directory), env=side.environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_revision_runs_its_own_code_from_a_checkout_that_is_gone_afterwards(repository: Path) -> None:
    with open_side("base", "old", "smoke", ["engine.depth=1"]) as side:
        expected = '[1, ["run", "smoke", "--set", "engine.depth=1", "--out", "/runs/x"], "1"]'
        assert output_of(side, Path("/runs/x")) == expected
        tree = Path(side.environment["PYTHONPATH"].partition(":")[0])
        assert tree.is_dir()
        revision = git(repository, "rev-parse", "old")
        assert side.description.startswith(
            f"revision old ({revision[:12]}), with the packages of this environment"
        )
    assert not tree.exists()
    assert git(repository, "worktree", "list").count("\n") == 0
    assert "VERSION = 3" in (repository / "dsv4bench" / "__main__.py").read_text()


def test_a_checkout_without_an_environment_runs_its_files_as_they_are(repository: Path) -> None:
    with open_side("head", ".", "smoke", []) as side:
        assert output_of(side, Path("/x")) == '[3, ["run", "smoke", "--out", "/x"], "1"]'
        assert side.description.startswith(f"{repository} with uncommitted changes, with the packages of")


def test_an_environment_runs_its_own_command(tmp_path: Path) -> None:
    for place in ("bin", ".venv/bin"):
        script = tmp_path / place / "dsv4bench"
        script.parent.mkdir(parents=True)
        script.touch()
        with open_side("head", f"dir:{tmp_path}", "smoke", ["a.b=1"]) as side:
            assert side.command(Path("/x")) == [
                *(str(script), "run", "smoke"),
                *("--set", "a.b=1", "--out", "/x"),
            ]
        script.unlink()


def test_a_checkout_whose_environment_holds_other_code_is_refused(tmp_path: Path) -> None:
    root, other = checkout(tmp_path / "root", 1), checkout(tmp_path / "other", 2)
    binaries = root / ".venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "dsv4bench").touch()
    (binaries / "python").write_text(f'#!/bin/sh\nPYTHONPATH={other} exec {sys.executable} "$@"\n')
    (binaries / "python").chmod(0o755)
    with (
        pytest.raises(UsageError, match=f"python runs {other}/dsv4bench, not the code in {root}"),
        open_side("head", str(root), "smoke", []),
    ):
        pass


def test_calibration_runs_the_code_that_runs_it_wherever_it_is_called(repository: Path) -> None:
    side = this_side("base", "smoke", ["engine.depth=1"])
    code = "import dsv4bench; print(dsv4bench.__file__)"
    done = subprocess.run([side.words[0], "-c", code], env=side.environment, capture_output=True, text=True)
    assert done.stdout.strip() == dsv4bench.__file__
    assert side.command(Path("/x"))[1:] == [
        *("-m", "dsv4bench", "run", "smoke"),
        *("--set", "engine.depth=1", "--out", "/x"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cmd:sh -c 'cp -r \"a b\" {out}'", ["-c", "cp -r \"a b\" /runs/1"]),
        ("sh script.sh --fast", ["script.sh", "--fast", "--out", "/runs/1"]),
    ],
)  # fmt: skip
def test_a_command_gets_the_directory_where_it_asks_for_it_else_behind(text: str, words: list[str]) -> None:
    with open_side("head", text, "smoke", []) as side:
        executable, *rest = side.command(Path("/runs/1"))
    assert Path(executable).name == "sh"
    assert rest == words


def test_every_run_starts_a_server_of_the_kind_asked_for() -> None:
    with open_side("head", "dsv4bench run smoke", "other", ["server.port=1"], "vllm") as side:
        assert side.command(Path("/x"))[1:] == (
            ["run", "smoke", "--server", "vllm", "--set", "server.port=1", "--out", "/x"]
        )
    assert this_side("base", "smoke", [], "mine.toml").words[-3:] == ("smoke", "--server", "mine.toml")


def test_settings_go_to_commands_of_dsv4bench_run_alone() -> None:
    settings = ["--set", "engine.depth=1", "--out", "/x"]
    with open_side("head", "dsv4bench run smoke", "other", ["engine.depth=1"]) as side:
        assert side.command(Path("/x"))[1:] == ["run", "smoke", *settings]
    with open_side("head", f"{sys.executable} -m dsv4bench run smoke", "other", ["engine.depth=1"]) as side:
        assert side.command(Path("/x"))[-4:] == settings
    with (
        pytest.raises(
            UsageError,
            match=r"--head 'sh run': only `dsv4bench run` takes --set and --server; write what --set a\.b=1",
        ),
        open_side("head", "sh run", "smoke", ["a.b=1"]),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("both", r"--base 'both' is ambiguous: a directory and a git revision; write dir:both or ref:both"),
        ("sh", r"--base 'sh' is ambiguous: a git revision and a command; write ref:sh or cmd:sh"),
        ("nothing-of-the-kind", r"is no directory, no git revision of the repository in .*, and no command"),
        ("'unclosed", r"is no directory, no git revision"),
        ("-x", r"is no directory, no git revision"),
        ("", r"is no directory, no git revision"),
        ("ref:", r"nothing follows ref:"),
        ("ref:gone", r"the repository in .* has no revision 'gone'"),
        ("dir:gone", r"gone is no directory"),
        ("dir:both", r"nothing to run in .*both: no bin/dsv4bench or .venv/bin/dsv4bench, and no checkout"),
        ("cmd:no-such-command x", r"no command 'no-such-command' is found in PATH"),
        ("ref:empty", r"revision empty \(.*\) holds no dsv4bench/__main__.py: no checkout of dsv4bench"),
    ],
)
def test_what_names_nothing_or_two_things_is_refused(repository: Path, text: str, message: str) -> None:
    (repository / "both").mkdir()
    git(repository, "branch", "both")
    git(repository, "tag", "sh")
    tree = git(repository, "hash-object", "-t", "tree", "-w", "/dev/null")
    git(repository, "tag", "empty", git(repository, "commit-tree", tree, "-m", "empty"))
    with pytest.raises(UsageError, match=message), open_side("base", text, "smoke", []):
        pass
    assert git(repository, "worktree", "list").count("\n") == 0


def test_outside_a_repository_nothing_is_a_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no git revision"), open_side("base", "HEAD~1", "smoke", []):
        pass
