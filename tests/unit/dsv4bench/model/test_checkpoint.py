import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from dsv4bench.errors import UsageError
from dsv4bench.model.checkpoint import ensure_checkpoint, generate, next_tokens, read_config, tensor_shapes
from dsv4bench.model.config import preset
from dsv4bench.model.exchange import LocalExchange
from dsv4bench.model.model import DeepSeekV4, load_weights

CONFIG = preset("test-b")


def test_released_names_and_shapes_of_flash() -> None:
    """docs/model.md, Checkpoint: the tensors of every dtype, as many as there are; the scales have no fp32 form."""
    shapes = dict(tensor_shapes(preset("flash")))
    want = {
        "embed.weight": (129280, 4096),
        "hc_head_fn": (4, 16384),
        "layers.0.hc_attn_fn": (24, 16384),
        "layers.0.attn.wq_b.weight": (32768, 1024),
        "layers.0.attn.wo_a.weight": (8192, 4096),
        "layers.2.attn.compressor.wkv.weight": (1024, 4096),
        "layers.2.attn.compressor.ape": (4, 1024),
        "layers.3.attn.compressor.ape": (128, 512),
        "layers.2.attn.indexer.wq_b.weight": (8192, 1024),
        "layers.2.attn.indexer.compressor.norm.weight": (128,),
        "layers.2.ffn.gate.tid2eid": (129280, 6),
        "layers.3.ffn.gate.bias": (256,),
        "layers.42.ffn.experts.255.w2.weight": (4096, 2048),
        "mtp.0.ffn.gate.bias": (256,),
        "mtp.0.e_proj.weight": (4096, 4096),
        "mtp.0.hc_head_base": (4,),
    }
    assert {name: shapes[name] for name in want} == want
    assert sum(".ffn.experts." in name for name in shapes) == 33792
    assert sum("tid2eid" in name for name in shapes) == 3
    assert len(shapes) == 433 + 417 + 375 + 33792 + 3


def test_the_file_is_made_once_and_read_back(tmp_path: Path) -> None:
    path = ensure_checkpoint(CONFIG, 1, tmp_path / "deep" / "er")
    written = path.stat().st_mtime_ns
    assert ensure_checkpoint(CONFIG, 1, tmp_path / "deep" / "er") == path
    assert path.stat().st_mtime_ns == written
    assert read_config(path) == CONFIG
    weights = load_weights(path)
    for name, array in generate(CONFIG, 1, "random").items():
        assert np.array_equal(weights[name].numpy(), array)
        assert weights[name].dtype == (torch.int64 if name.endswith("tid2eid") else torch.float32)


def test_nothing_is_left_at_a_neutral_value() -> None:
    for name, array in generate(CONFIG, 0, "random").items():
        assert array.std() > 0 or array.size == 1, name
        assert not np.isin(array, (0, 1)).all(), name


def test_each_token_has_distinct_experts() -> None:
    table = generate(CONFIG, 0, "random")["layers.0.ffn.gate.tid2eid"]
    assert all(len(set(row)) == CONFIG.num_experts_per_tok for row in table.tolist())
    assert set(table.flatten().tolist()) == set(range(16))


def test_arguments_name_different_files(tmp_path: Path) -> None:
    paths = {
        ensure_checkpoint(CONFIG, 1, tmp_path),
        ensure_checkpoint(CONFIG, 2, tmp_path),
        ensure_checkpoint(CONFIG, 1, tmp_path, "bigram"),
        ensure_checkpoint(preset("test-a"), 1, tmp_path),
    }
    assert len(paths) == 4


def test_tensors_do_not_depend_on_each_other() -> None:
    """A seed gives the same expert whatever the attention layout is."""
    name = "layers.4.ffn.experts.3.w1.weight"
    assert np.array_equal(generate(CONFIG, 5, "random")[name], generate(preset("test-a"), 5, "random")[name])


@pytest.mark.parametrize("damage", ["truncated", "empty", "bit", "header"])
def test_a_damaged_file_is_made_anew(tmp_path: Path, damage: str) -> None:
    path = ensure_checkpoint(CONFIG, 1, tmp_path)
    good = path.read_bytes()
    (header,) = struct.unpack("<Q", good[:8])
    middle = header + 8 + 1000
    path.write_bytes(
        {
            "truncated": good[:-100],
            "empty": b"",
            "bit": good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :],
            "header": good[:20] + b"\0" + good[21:],
        }[damage]
    )
    assert ensure_checkpoint(CONFIG, 1, tmp_path) == path
    assert load_weights(path).keys() == dict(tensor_shapes(CONFIG)).keys()
    assert path.stat().st_size == len(good)


def test_makers_at_the_same_time_agree_and_leave_nothing_behind(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(lambda _: ensure_checkpoint(CONFIG, 9, tmp_path), range(4)))
    assert list(tmp_path.iterdir()) == list(paths)
    with safe_open(paths.pop(), framework="np") as file:
        assert file.metadata()["seed"] == "9"


def test_bigram_head_rows_are_the_embeddings_of_the_tokens_before() -> None:
    tensors, following = generate(CONFIG, 4, "bigram"), next_tokens(CONFIG, 4)
    assert sorted(following.tolist()) == list(range(512))
    assert following[:2].tolist() == [0, 1]
    head, embed = tensors["head.weight"], tensors["embed.weight"]
    assert np.allclose(head[following[77]], embed[77] / 8)
    assert not head[:2].any()
    assert np.array_equal(tensors["mtp.0.e_proj.weight"], np.eye(64))


def test_user_errors_are_explained(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("x")
    with pytest.raises(UsageError, match="Unknown kind of weights 'zeros'; known kinds: random, bigram"):
        ensure_checkpoint(CONFIG, 1, tmp_path, "zeros")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="must not be negative, got -1"):
        ensure_checkpoint(CONFIG, -1, tmp_path)
    with pytest.raises(UsageError, match="Cannot write a checkpoint into"):
        ensure_checkpoint(CONFIG, 1, blocked)
    with pytest.raises(UsageError, match="is not a checkpoint of this project"):
        read_config(blocked)
    with pytest.raises(UsageError, match="Cannot read the checkpoint"):
        load_weights(tmp_path / "nowhere.safetensors")


def test_weights_that_do_not_fit_the_model_are_refused(tmp_path: Path) -> None:
    weights = load_weights(ensure_checkpoint(CONFIG, 1, tmp_path))
    with pytest.raises(
        UsageError, match=r"embed.weight is \[512, 64\], the configuration needs \[129280, 64\]"
    ):
        DeepSeekV4(preset("tiny"), weights, LocalExchange())
    del weights["mtp.0.enorm.weight"]
    with pytest.raises(UsageError, match=r"tensor mtp\.0\.enorm\.weight is missing"):
        DeepSeekV4(CONFIG, weights, LocalExchange())
