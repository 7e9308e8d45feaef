"""The manifest of a run directory (`run.json`)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from analyzers.errors import UnusableInputError
from analyzers.readers.files import OpenedFile
from analyzers.readers.json_objects import first_objects
from analyzers.readers.manifest_versions import decode_manifest
from analyzers.rundir import SCHEMA_VERSION, Manifest

_KEYS = frozenset({"schema_version", "device_map", "timing"})


class DamagedManifestError(UnusableInputError):
    """A `run.json` that is no manifest; the files beside it may still be readable."""


def looks_like(opened: OpenedFile) -> bool:
    """Whether a file begins with the object that a manifest is."""
    text = opened.first_megabyte().decode("utf-8-sig", errors="replace").lstrip()
    return any(record.keys() >= _KEYS for record in first_objects([text]))


def read(opened: OpenedFile) -> Manifest:
    """Read a file that looks like a manifest; see `read_manifest`."""
    return read_manifest(Path(opened.name))


def read_manifest(path: Path) -> Manifest:
    """Read `run.json`.

    Raises:
        DamagedManifestError: it is no manifest.
        UnusableInputError: it cannot be read, or was written by a newer version.
    """
    try:
        manifest = decode_manifest(path.read_bytes())
    except OSError as error:
        raise UnusableInputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise DamagedManifestError(f"{path}: not a manifest: {error}") from error
    if manifest.schema_version > SCHEMA_VERSION:
        raise UnusableInputError(
            f"{path}: schema version {manifest.schema_version} is newer than this version reads "
            f"({SCHEMA_VERSION}): analyze it with the dsv4bench that wrote it"
        )
    return manifest
