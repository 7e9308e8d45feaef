"""The `dsv4bench` command: one module a command; each parses, calls and prints, and holds no logic.

Modules are imported when their command runs, so that `--help` stays quick and `analyze` never loads torch.
"""

from __future__ import annotations

import sys

import typer

from analyzers.errors import AnalyzerError
from dsv4bench.cli.analyze import analyze
from dsv4bench.cli.compare import CompareCommand, compare
from dsv4bench.cli.gate import gate
from dsv4bench.cli.history import history
from dsv4bench.cli.profiles import profiles
from dsv4bench.cli.run import run
from dsv4bench.cli.serve import serve
from dsv4bench.cli.servers import servers
from dsv4bench.cli.standard_output import StandardOutput, forget_unusable_width
from dsv4bench.cli.swimlane import swimlane
from dsv4bench.cli.validate import validate
from dsv4bench.cli.view import view
from dsv4bench.errors import Dsv4benchError

app = typer.Typer(
    name="dsv4bench",
    help="Run an asynchronous DeepSeek-V4 decode engine under tracing, and see where every millisecond went.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (run, serve, analyze, view, validate, swimlane, profiles, servers):
    app.command()(command)
app.command(cls=CompareCommand)(compare)
app.add_typer(history)
app.add_typer(gate)


@app.callback()
def prepare() -> None:
    """Run an asynchronous DeepSeek-V4 decode engine under tracing, and see where every millisecond went."""
    forget_unusable_width()


def main() -> None:
    """Run the command line; turn the errors a user can cause into one clear line and their exit code."""
    forget_unusable_width()
    output = StandardOutput(sys.stdout)
    sys.stdout = output
    try:
        try:
            app()
        finally:
            output.finish()
    except (Dsv4benchError, AnalyzerError) as error:
        print(f"dsv4bench: {error}".encode(errors="replace").decode(), file=sys.stderr)
        sys.exit(error.exit_code)
