"""Programs come from the cache exactly as long as nothing they depend on has changed."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dsv4bench.errors import UsageError
from dsv4bench.model.config import ModelConfig, preset
from dsv4bench.worker import messages, program_cache
from dsv4bench.worker.arguments import check_signature
from dsv4bench.worker.program_cache import ProgramCache
from dsv4bench.worker.signatures import ProgramSizes

CONFIG = preset("test-b")
SIZES = ProgramSizes(
    ranks=2,
    rows=3,
    speculative_tokens=1,
    max_positions=100,
    prefill_tokens=64,
    pages=(3, 3, 3, 3, 39, 75, 75),
)
NAMES = ["deepseek_v4_prefill", "deepseek_v4_decode_mtp_fused", "deepseek_v4_mtp_prefill"]


def start(directory: Path, config: ModelConfig = CONFIG, sizes: Any = SIZES) -> tuple[ProgramCache, Any]:
    cache = ProgramCache(directory)
    return cache, cache.programs(config, sizes)


def test_a_warm_start_hits_for_all_three_programs(tmp_path: Path) -> None:
    cold, compiled = start(tmp_path)
    warm, loaded = start(tmp_path)
    assert (cold.hits, cold.misses) == (0, 3)
    assert (warm.hits, warm.misses) == (3, 0)
    assert loaded == compiled
    assert [spec.name for spec in loaded] == NAMES
    assert len({spec.hid for spec in loaded}) == 3
    assert warm.log == [f"program {spec.name} {spec.hid}: cache hit" for spec in loaded]


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        (msgspec.structs.replace(CONFIG, routed_scaling_factor=2.0), SIZES),
        (CONFIG, msgspec.structs.replace(SIZES, ranks=4)),
        (CONFIG, msgspec.structs.replace(SIZES, rows=4)),
        (CONFIG, msgspec.structs.replace(SIZES, prefill_tokens=65)),
        (CONFIG, msgspec.structs.replace(SIZES, pages=(4, *SIZES.pages[1:]))),
    ],
)
def test_another_config_or_size_is_a_miss_with_another_hash(
    tmp_path: Path, config: ModelConfig, sizes: Any
) -> None:
    _, compiled = start(tmp_path)
    cache, others = start(tmp_path, config, sizes)
    assert (cache.hits, cache.misses) == (0, 3)
    assert not {spec.hid for spec in compiled} & {spec.hid for spec in others}


@pytest.mark.parametrize("what", ["source_hash", "library_versions"])
def test_changed_source_or_libraries_are_a_miss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    start(tmp_path)
    changed = {"source_hash": lambda: "other", "library_versions": lambda: {"torch": "0"}}[what]
    monkeypatch.setattr(program_cache, what, changed)
    cache, _ = start(tmp_path)
    assert (cache.hits, cache.misses) == (0, 3)


def test_the_source_hash_covers_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    before = program_cache.source_hash()
    monkeypatch.setattr(program_cache, "_SOURCES", (*program_cache._SOURCES, "errors.py"))
    assert program_cache.source_hash() != before


@pytest.mark.parametrize("damage", [b"", b"\x80", b"not an image"])
def test_a_damaged_image_is_compiled_again(tmp_path: Path, damage: bytes) -> None:
    _, compiled = start(tmp_path)
    victim = next(path for path in tmp_path.iterdir() if path.name.startswith("deepseek_v4_prefill"))
    victim.write_bytes(damage)
    cache, loaded = start(tmp_path)
    assert (cache.hits, cache.misses) == (2, 1)
    assert loaded == compiled
    again, _ = start(tmp_path)
    assert again.hits == 3


def test_an_image_under_a_foreign_name_is_not_used(tmp_path: Path) -> None:
    start(tmp_path)
    paths = sorted(tmp_path.iterdir())
    content = [path.read_bytes() for path in paths]
    for path, other in zip(paths, content[1:] + content[:1], strict=True):
        path.write_bytes(other)
    cache, loaded = start(tmp_path)
    assert (cache.hits, cache.misses) == (0, 3)
    assert [spec.name for spec in loaded] == NAMES


def test_without_speculation_there_are_two_programs(tmp_path: Path) -> None:
    cache, programs = start(tmp_path, sizes=msgspec.structs.replace(SIZES, speculative_tokens=0))
    assert [spec.name for spec in programs] == ["deepseek_v4_prefill", "deepseek_v4_decode"]
    assert cache.misses == 2


def test_a_directory_that_cannot_be_written_is_a_usage_error() -> None:
    from pathlib import Path

    with pytest.raises(UsageError, match="cannot write the program cache /proc/nowhere"):
        start(Path("/proc/nowhere"))


def test_arguments_that_a_program_was_not_compiled_for_are_refused() -> None:
    program = messages.ProgramSpec(
        "p",
        "p",
        "0",
        [messages.ArgumentSignature("rows", "int32", (2,)), messages.ArgumentSignature("n", "scalar", ())],
    )
    right: list[messages.HostArgument | messages.DeviceArgument | messages.ScalarArgument]
    right = [messages.HostArgument(0, "int32", (2,)), messages.ScalarArgument(3)]
    check_signature(program, right)
    with pytest.raises(TypeError, match="p takes 2 arguments, got 1"):
        check_signature(program, right[:1])
    with pytest.raises(TypeError, match=r"p: rows must be int32 \[2\], got int64 \[2\]"):
        check_signature(program, [messages.DeviceArgument(0, "int64", (2,)), right[1]])
    with pytest.raises(TypeError, match=r"p: n must be scalar \[\], got int32 \[2\]"):
        check_signature(program, [right[0], right[0]])
