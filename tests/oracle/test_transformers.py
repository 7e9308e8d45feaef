"""The paged model gives the logits of transformers' DeepseekV4ForCausalLM with the same weights."""

import copy
from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config
from transformers.models.deepseek_v4.modeling_deepseek_v4 import (
    DeepseekV4DecoderLayer,
    DeepseekV4ForCausalLM,
    DeepseekV4HyperHead,
    DeepseekV4RMSNorm,
    DeepseekV4RotaryEmbedding,
)

from dsv4bench.model.config import ModelConfig, preset

Weights = Callable[[str], dict[str, Tensor]]
Tokens = Callable[..., list[int]]

TOLERANCE = 1e-4
PROMPT = {"test-a": 300, "test-b": 60}

_LAYER_NAMES = {
    "hc_attn_": "attn_hc.",
    "hc_ffn_": "ffn_hc.",
    "attn_norm.": "input_layernorm.",
    "ffn_norm.": "post_attention_layernorm.",
    "attn.attn_sink": "self_attn.sinks",
    "attn.compressor.": "self_attn.compressor.",
    "attn.indexer.compressor.": "self_attn.compressor.indexer.",
    "attn.indexer.wq_b.": "self_attn.compressor.indexer.q_b_proj.",
    "attn.indexer.weights_proj.": "self_attn.compressor.indexer.scorer.weights_proj.",
    "attn.wq_a.": "self_attn.q_a_proj.",
    "attn.wq_b.": "self_attn.q_b_proj.",
    "attn.q_norm.": "self_attn.q_a_norm.",
    "attn.wkv.": "self_attn.kv_proj.",
    "attn.kv_norm.": "self_attn.kv_norm.",
    "attn.wo_a.": "self_attn.o_a_proj.",
    "attn.wo_b.": "self_attn.o_b_proj.",
    "ffn.gate.weight": "mlp.gate.weight",
    "ffn.gate.bias": "mlp.gate.e_score_correction_bias",
    "ffn.gate.tid2eid": "mlp.gate.tid2eid",
    "ffn.shared_experts.w1.": "mlp.shared_experts.gate_proj.",
    "ffn.shared_experts.w2.": "mlp.shared_experts.down_proj.",
    "ffn.shared_experts.w3.": "mlp.shared_experts.up_proj.",
}
_COMPRESSOR_NAMES = {"wkv.": "kv_proj.", "wgate.": "gate_proj.", "ape": "position_bias", "norm.": "kv_norm."}


def oracle_layer(weights: Mapping[str, Tensor], prefix: str, config: ModelConfig) -> dict[str, Tensor]:
    """State dict of one DeepseekV4DecoderLayer from the released names under `prefix`."""
    state = {}
    for name, tensor in weights.items():
        if not name.startswith(prefix):
            continue
        own = name.removeprefix(prefix)
        for ours, theirs in _LAYER_NAMES.items():
            if own.startswith(ours):
                rest = own.removeprefix(ours)
                if ours.endswith("compressor."):
                    key = next(key for key in _COMPRESSOR_NAMES if rest.startswith(key))
                    rest = _COMPRESSOR_NAMES[key] + rest.removeprefix(key)
                state[theirs + rest] = tensor
                break
    experts = [f"{prefix}ffn.experts.{index}." for index in range(config.n_routed_experts)]
    state["mlp.experts.gate_up_proj"] = torch.stack(
        [torch.cat((weights[f"{e}w1.weight"], weights[f"{e}w3.weight"])) for e in experts]
    )
    state["mlp.experts.down_proj"] = torch.stack([weights[f"{e}w2.weight"] for e in experts])
    return state


def oracle_config(config: ModelConfig) -> DeepseekV4Config:
    yarn = config.rope_scaling
    return DeepseekV4Config(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        moe_intermediate_size=config.moe_intermediate_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        head_dim=config.head_dim,
        qk_rope_head_dim=config.qk_rope_head_dim,
        q_lora_rank=config.q_lora_rank,
        num_experts_per_tok=config.num_experts_per_tok,
        n_routed_experts=config.n_routed_experts,
        routed_scaling_factor=config.routed_scaling_factor,
        max_position_embeddings=config.max_position_embeddings,
        rope_theta=config.rope_theta,
        compress_rope_theta=config.compress_rope_theta,
        layer_types=[str(layer_type) for layer_type in config.layer_types],
        compress_rates={
            "compressed_sparse_attention": config.compress_rate_csa,
            "heavily_compressed_attention": config.compress_rate_hca,
        },
        num_hash_layers=config.num_hash_layers,
        swiglu_limit=config.swiglu_limit,
        sliding_window=config.sliding_window,
        o_groups=config.o_groups,
        o_lora_rank=config.o_lora_rank,
        index_n_heads=config.index_n_heads,
        index_head_dim=config.index_head_dim,
        index_topk=config.index_topk,
        hc_mult=config.hc_mult,
        hc_sinkhorn_iters=config.hc_sinkhorn_iters,
        hc_eps=config.hc_eps,
        rms_norm_eps=config.rms_norm_eps,
        rope_parameters={
            "rope_type": "yarn",
            "factor": yarn.factor,
            "original_max_position_embeddings": yarn.original_max_position_embeddings,
            "beta_fast": yarn.beta_fast,
            "beta_slow": yarn.beta_slow,
        },
        attn_implementation="eager",
    )


class Oracle:
    """DeepseekV4ForCausalLM with our weights, one sequence."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Tensor]) -> None:
        self.config = oracle_config(config)
        self.model = DeepseekV4ForCausalLM(self.config).eval()
        state = {
            "model.embed_tokens.weight": weights["embed.weight"],
            "lm_head.weight": weights["head.weight"],
            "model.norm.weight": weights["norm.weight"],
            **{f"model.hc_head.hc_{part}": weights[f"hc_head_{part}"] for part in ("fn", "base", "scale")},
        }
        for index in range(config.num_hidden_layers):
            layer = oracle_layer(weights, f"layers.{index}.", config)
            state |= {f"model.layers.{index}.{name}": tensor for name, tensor in layer.items()}
        self.model.load_state_dict(state, strict=True)

    @torch.no_grad()
    def logits(self, tokens: Sequence[int]) -> Tensor:
        """Full prefill, no cache: [len(tokens), vocab]."""
        return self.model(torch.tensor([tokens]), use_cache=False).logits[0]


@pytest.fixture(scope="module", params=["test-b", "test-a"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def expected(name: str, weights_of: Weights, tokens_of: Tokens) -> tuple[list[int], Tensor]:
    """A sequence of prompt + 24 tokens and the oracle's logits at all of its positions."""
    tokens = tokens_of(name, PROMPT[name] + 24)
    return tokens, Oracle(preset(name), weights_of(name)).logits(tokens)


def assert_same(got: Tensor, want: Tensor) -> None:
    assert got.shape == want.shape
    assert (got - want).abs().max() < TOLERANCE
    assert torch.equal(got.argmax(-1), want.argmax(-1))


@pytest.mark.parametrize("chunk", [128, 37])
def test_chunked_prefill(name, chunk, expected, weights_of, paged):
    tokens, want = expected
    assert_same(paged(preset(name), weights_of(name)).run(tokens, chunk), want)
