"""Compiled programs on disk, found by a fingerprint of everything they depend on (docs/engine.md, Programs).

For the embedded backend a compiled program is an image: the entry point, the content hash that STRACE records carry,
and the argument list it was compiled for, which ranks check dispatches against.
"""

from __future__ import annotations

import hashlib
import os
import platform
from importlib import metadata
from pathlib import Path

import msgspec

import dsv4bench
from dsv4bench.errors import UsageError
from dsv4bench.model.config import ModelConfig
from dsv4bench.worker.messages import ProgramSpec
from dsv4bench.worker.program_specs import FUNCTIONS
from dsv4bench.worker.signatures import ProgramSizes, program_signatures

_SOURCES = (
    "model/*.py",
    "cache/*.py",
    "worker/programs*.py",
    "worker/sampling.py",
    "worker/task_args.py",
    "worker/row_checks.py",
)
_LIBRARIES = ("torch", "numpy", "msgspec")


class ProgramKey(msgspec.Struct, frozen=True):
    """Everything that a compiled program depends on."""

    program: str
    function: str
    source: str
    config: ModelConfig
    sizes: ProgramSizes
    dtype: str
    versions: dict[str, str]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the key, in hex."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


class _Image(msgspec.Struct, frozen=True):
    key: ProgramKey
    spec: ProgramSpec


class ProgramCache:
    """Images under `directory`, one file each; None keeps nothing.

    `hits` and `misses` count the programs asked for, `log` has a line for each.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self.hits = 0
        self.misses = 0
        self.log: list[str] = []

    def programs(self, config: ModelConfig, sizes: ProgramSizes) -> tuple[ProgramSpec, ...]:
        """The programs of an engine, from the cache where an image has exactly this key, else compiled and kept.

        Raises:
            UsageError: the directory cannot be written.
        """
        source, versions = source_hash(), library_versions()
        signatures = program_signatures(config, sizes)
        specs = []
        for name, signature in signatures.items():
            key = ProgramKey(name, FUNCTIONS[name], source, config, sizes, "float32", versions)
            image = self._load(key)
            self.log.append(
                f"program {name} {key.fingerprint[:16]}: cache {'miss' if image is None else 'hit'}"
            )
            if image is None:
                self.misses += 1
                image = _Image(key, ProgramSpec(name, key.function, key.fingerprint[:16], signature))
                self._store(image)
            else:
                self.hits += 1
            specs.append(image.spec)
        return tuple(specs)

    def _path(self, key: ProgramKey) -> Path | None:
        return self._directory / f"{key.program}-{key.fingerprint[:32]}.msgpack" if self._directory else None

    def _load(self, key: ProgramKey) -> _Image | None:
        path = self._path(key)
        if path is None or not path.exists():
            return None
        try:
            image = msgspec.msgpack.decode(path.read_bytes(), type=_Image)
        except (OSError, msgspec.DecodeError):
            # Damaged or of another version of this module: compiled again and replaced.
            return None
        return image if image.key == key else None

    def _store(self, image: _Image) -> None:
        path = self._path(image.key)
        if path is None:
            return
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(msgspec.msgpack.encode(image))
            partial.replace(path)
        except OSError as error:
            raise UsageError(
                f"cannot write the program cache {path.parent}: {error.strerror}; set DSV4BENCH_CACHE to another place"
            ) from error


def source_hash() -> str:
    """SHA-256 over the source that programs are made of, in hex."""
    digest = hashlib.sha256()
    package = Path(dsv4bench.__file__).parent
    for pattern in _SOURCES:
        for file in sorted(package.glob(pattern)):
            digest.update(f"{file.relative_to(package)} {file.stat().st_size}\n".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def library_versions() -> dict[str, str]:
    """Versions of what runs the programs."""
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in _LIBRARIES}}
