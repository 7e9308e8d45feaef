"""The paged model gives the logits of transformers' DeepseekV4ForCausalLM with the same weights."""

import copy
from collections.abc import Callable, Mapping, Sequence

import msgspec
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
from tests.oracle.conftest import Paged

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
def test_chunked_prefill(
    name: str, chunk: int, expected: tuple[list[int], Tensor], weights_of: Weights, paged: type[Paged]
) -> None:
    tokens, want = expected
    assert_same(paged(preset(name), weights_of(name)).run(tokens, chunk), want)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_cached_decode(
    name: str, rows: int, expected: tuple[list[int], Tensor], weights_of: Weights, paged: type[Paged]
) -> None:
    tokens, want = expected
    prompt = PROMPT[name]
    model = paged(preset(name), weights_of(name))
    assert_same(model.run(tokens[:prompt], 128), want[:prompt])
    assert_same(model.run(tokens[prompt:], rows, first=prompt), want[prompt:])


def test_the_oracle_s_own_cache_agrees(
    name: str, expected: tuple[list[int], Tensor], weights_of: Weights, paged: type[Paged]
) -> None:
    """Continue from the oracle's cache rather than from its full prefill."""
    tokens, _ = expected
    prompt = PROMPT[name]
    oracle = Oracle(preset(name), weights_of(name))
    cache = DynamicCache(config=oracle.config)
    with torch.no_grad():
        oracle.model(torch.tensor([tokens[:prompt]]), cache=cache)
        kept = copy.deepcopy(cache)
        want = oracle.model(torch.tensor([tokens[prompt : prompt + 2]]), cache=kept).logits[0]
    model = paged(preset(name), weights_of(name))
    model.run(tokens[:prompt], 100)
    assert_same(model.run(tokens[prompt : prompt + 2], 2, first=prompt), want)


def test_swiglu_limit(weights_of: Weights, tokens_of: Tokens, paged: type[Paged]) -> None:
    """A limit that most activations reach: 10 is out of reach of synthetic weights."""
    config, tokens = msgspec.structs.replace(preset("test-b"), swiglu_limit=0.2), tokens_of("test-b", 40)
    want = Oracle(config, weights_of("test-b")).logits(tokens)
    assert not torch.allclose(want, Oracle(preset("test-b"), weights_of("test-b")).logits(tokens), atol=0.01)
    assert_same(paged(config, weights_of("test-b")).run(tokens, 128), want)


def test_longer_than_every_ring(weights_of: Weights, tokens_of: Tokens, paged: type[Paged]) -> None:
    """700 positions wrap all of test-b's rings: 512 rows of window, 272 and 260 of compressor state."""
    tokens = tokens_of("test-b", 700)
    want = Oracle(preset("test-b"), weights_of("test-b")).logits(tokens)
    assert_same(paged(preset("test-b"), weights_of("test-b"), length=700).run(tokens, 128), want)


def test_two_thousand_tokens(weights_of: Weights, tokens_of: Tokens, paged: type[Paged]) -> None:
    """Hundreds of compressed entries, and rings that turn several times, over chunks of any size."""
    tokens = tokens_of("test-b", 2100)
    want = Oracle(preset("test-b"), weights_of("test-b")).logits(tokens)
    for chunk in (128, 50):
        assert_same(paged(preset("test-b"), weights_of("test-b"), length=2100).run(tokens, chunk), want)


def test_ragged_batch(weights_of: Weights, tokens_of: Tokens, paged: type[Paged]) -> None:
    """Sequences of different lengths share calls: a prefill tile of three, then decode rows S = 1, 2 and 4."""
    name, lengths, steps = "test-b", (5, 33, 61), (1, 2, 4)
    oracle = Oracle(preset(name), weights_of(name))
    texts = [tokens_of(name, length + 8, seed=length) for length in lengths]
    model = paged(preset(name), weights_of(name), sequences=3, length=80)
    calls = [[(s, 0, text[:length]) for s, (text, length) in enumerate(zip(texts, lengths, strict=True))]]
    for turn in range(2):
        starts = [length + turn * step for length, step in zip(lengths, steps, strict=True)]
        calls.append([(s, p, texts[s][p : p + steps[s]]) for s, p in enumerate(starts)])
    got: list[list[Tensor]] = [[] for _ in texts]
    for call in calls:
        logits = model.model.logits(model.feed(*call))
        for (sequence, _, part), rows in zip(call, logits.split([len(c[2]) for c in call]), strict=True):
            assert len(part) == len(rows)
            got[sequence].append(rows)
    for text, rows in zip(texts, got, strict=True):
        logits = torch.cat(rows)
        assert_same(logits, oracle.logits(text)[: len(logits)])


@torch.no_grad()
def oracle_mtp(
    config: ModelConfig, weights: Mapping[str, Tensor], tokens: Sequence[int], hidden: Tensor
) -> tuple[Tensor, Tensor]:
    """Y and draft logits for all positions at once: `tokens` are t_{p+1}, `hidden` the streams X_p [T, n, D]."""
    settings = oracle_config(config).to_dict()
    settings |= {"num_hidden_layers": 1, "layer_types": ["sliding_attention"], "mlp_layer_types": ["moe"]}
    mtp_config = DeepseekV4Config(**settings, attn_implementation="eager")
    layer = DeepseekV4DecoderLayer(mtp_config, 0).eval()
    layer.load_state_dict(oracle_layer(weights, "mtp.0.", config), strict=True)

    def norm(name: str) -> DeepseekV4RMSNorm:
        module = DeepseekV4RMSNorm(config.hidden_size, config.rms_norm_eps)
        module.load_state_dict({"weight": weights[f"mtp.0.{name}.weight"]})
        return module

    ids, positions = torch.tensor([tokens]), torch.arange(len(tokens))
    embedded = norm("enorm")(weights["embed.weight"][ids]) @ weights["mtp.0.e_proj.weight"].T
    streams = embedded.unsqueeze(2) + norm("hnorm")(hidden[None]) @ weights["mtp.0.h_proj.weight"].T
    distance = positions[:, None] - positions
    allowed = (distance >= 0) & (distance < config.sliding_window)
    output = layer(
        streams,
        input_ids=ids,
        position_embeddings={"main": DeepseekV4RotaryEmbedding(mtp_config)(streams, positions[None], "main")},
        position_ids=positions[None],
        attention_mask=torch.where(allowed, 0.0, -torch.inf)[None, None],
    )
    head = DeepseekV4HyperHead(mtp_config)
    head.load_state_dict({f"hc_{part}": weights[f"mtp.0.hc_head_{part}"] for part in ("fn", "base", "scale")})
    return output[0], norm("norm")(head(output))[0] @ weights["head.weight"].T


@pytest.mark.parametrize("chunk", [128, 2, 1])
def test_mtp_layer(name: str, chunk: int, weights_of: Weights, tokens_of: Tokens, paged: type[Paged]) -> None:
    config, weights = preset(name), weights_of(name)
    tokens = tokens_of(name, 161)
    model = paged(config, weights)
    hidden = torch.cat([model.feed((0, p, tokens[p : min(p + 128, 160)])) for p in (0, 128)])
    want, want_logits = oracle_mtp(config, weights, tokens[1:], hidden)
    parts = []
    for start in range(0, 160, chunk):
        part = slice(start, min(start + chunk, 160))
        rows = model.rows([(0, start, tokens[part])])
        following = torch.tensor(tokens[1:][part])
        parts.append(model.model.mtp(following, rows, hidden[part], model.tables, model.pools))
    got = torch.cat(parts)
    assert (got - want).abs().max() < TOLERANCE
    assert_same(model.model.mtp_logits(got), want_logits)
