"""A second place for a serving trace: upstream's SA_PROFILE_OUTPUT, beside the run directory that it was recorded in."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from dsv4bench.errors import UsageError
from dsv4bench.tracing.settings import OUTPUT_VARIABLE, fragments_directory, merged_trace

_FRAGMENTS = "trace.*.jsonl"


def prepare_output(output: Path, run_directory: Path | None) -> None:
    """Make the directories of `output`. What an earlier run left there stays until `deliver` replaces it.

    Raises:
        UsageError: nothing can be written there; or it lies in the run directory, whose readers would find all twice.
    """
    if run_directory is not None and output.resolve().is_relative_to(run_directory.resolve()):
        raise UsageError(
            f"{OUTPUT_VARIABLE}={output} lies in the run directory {run_directory}, which keeps the serving trace in "
            f"sa_profile/ anyway; set it to a place outside, or unset it"
        )
    directory, trace = fragments_directory(output), merged_trace(output)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if trace.is_dir():
            raise _error(errno.EISDIR, trace)
        for place in (directory, trace.parent):
            if not os.access(place, os.W_OK | os.X_OK):
                raise _error(errno.EACCES, place)
    except OSError as error:
        raise _cannot_write(output, error) from error


def deliver(recorded: Path, output: Path) -> None:
    """Copy fragments and merged trace of the output `recorded` to `output`; fragments of other runs go, as upstream does it.

    The merged trace appears at once, at the end.

    Raises:
        UsageError: it cannot be written; what `recorded` holds is untouched.
    """
    directory, trace = fragments_directory(output), merged_trace(output)
    partial = trace.with_name(trace.name + ".partial")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for stale in directory.glob(_FRAGMENTS):
            stale.unlink()
        for fragment in sorted(fragments_directory(recorded).glob(_FRAGMENTS)):
            shutil.copyfile(fragment, directory / fragment.name)
        shutil.copyfile(merged_trace(recorded), partial)
        partial.replace(trace)
    except OSError as error:
        raise _cannot_write(output, error) from error


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))


def _cannot_write(output: Path, error: OSError) -> UsageError:
    return UsageError(
        f"cannot write the serving trace to {output}: {error.strerror}: {error.filename}; set {OUTPUT_VARIABLE} to another "
        f"place, or unset it: the run directory keeps the trace anyway"
    )
