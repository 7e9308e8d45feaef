from typing import Any

import msgspec
import pytest

from dsv4bench.errors import UsageError
from dsv4bench.model.config import PRESETS, LayerType, preset

SLIDING, CSA, HCA = LayerType.SLIDING, LayerType.CSA, LayerType.HCA


def test_layer_types_follow_the_ratios() -> None:
    assert preset("test-a").layer_types == (SLIDING, SLIDING, CSA, HCA, CSA, HCA)
    assert preset("test-b").layer_types == preset("test-a").layer_types
    assert preset("pro").layer_types[:4] == (HCA, HCA, CSA, HCA)
    assert preset("flash").layers_of(CSA)[:3] == (2, 4, 6)


@pytest.mark.parametrize(("name", "layers", "csa", "hca"), [("flash", 43, 21, 20), ("pro", 61, 30, 31)])
def test_released_models_have_their_layers(name: str, layers: int, csa: int, hca: int) -> None:
    config = preset(name)
    assert len(config.layer_types) == layers == config.num_hidden_layers
    assert (len(config.layers_of(CSA)), len(config.layers_of(HCA))) == (csa, hca)


def test_tiny_is_test_a_with_the_real_vocabulary_and_room_for_long_prompts() -> None:
    tiny = preset("tiny")
    assert (tiny.vocab_size, tiny.max_position_embeddings) == (129280, 16384)
    small = msgspec.structs.replace(tiny, vocab_size=512, max_position_embeddings=4096)
    assert small == preset("test-a")


@pytest.mark.parametrize("name", PRESETS)
def test_configs_survive_json(name: str) -> None:
    config = preset(name)
    assert msgspec.json.decode(msgspec.json.encode(config), type=type(config)) == config


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="'huge'; known presets: test-a, test-b, tiny, flash, pro"):
        preset("huge")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 7}, "7 entries for 8 layers"),
        ({"compress_ratios": (0, 0, 4, 64, 4, 128, 0)}, r"may only hold \[0, 4, 128\], got \[0, 4, 64, 128\]"),
        ({"compress_ratios": (0, 0, 4, 128, 4, 128, 4)}, "MTP layer must have compress ratio 0"),
        ({"compress_ratios": (0,) * 7, "compress_rate_csa": 12}, r"divide the page of 128 tokens, got \[12, 128\]"),
        ({"o_groups": 3}, "4 heads do not split into 3 output groups"),
        ({"qk_rope_head_dim": 7}, "qk_rope_head_dim 7 must be even"),
        ({"num_experts_per_tok": 17}, "cannot route to 17 of 16 experts"),
    ],
)  # fmt: skip
def test_impossible_models_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        msgspec.structs.replace(preset("test-a"), **change)
