"""The model's configuration under the released config's field names, and the presets."""

from enum import StrEnum

import msgspec

from dsv4bench.errors import UsageError

PAGE_TOKENS = 128


class LayerType(StrEnum):
    """How a layer attends beyond its sliding window."""

    SLIDING = "sliding_attention"
    CSA = "compressed_sparse_attention"
    HCA = "heavily_compressed_attention"


class RopeScaling(msgspec.Struct, frozen=True):
    """YaRN parameters of the compressed layers' rotary embedding (lengths in tokens)."""

    factor: float = 16.0
    original_max_position_embeddings: int = 65536
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    type: str = "yarn"


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A DeepSeek-V4 model, named as in the released `config.json`; dimensions count elements, lengths tokens.

    `compress_ratios` has one entry per main layer and then one per MTP layer (always 0, plain sliding
    window). A layer's type follows from its ratio: 0 sliding, `compress_rate_csa` CSA, `compress_rate_hca`
    HCA. Raises UsageError for a combination that no DeepSeek-V4 model can have.
    """

    compress_ratios: tuple[int, ...]
    hidden_size: int
    moe_intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    q_lora_rank: int
    o_lora_rank: int
    o_groups: int
    n_routed_experts: int
    num_experts_per_tok: int
    routed_scaling_factor: float
    index_topk: int
    vocab_size: int = 129280
    num_key_value_heads: int = 1
    head_dim: int = 512
    qk_rope_head_dim: int = 64
    sliding_window: int = 128
    index_n_heads: int = 64
    index_head_dim: int = 128
    n_shared_experts: int = 1
    num_hash_layers: int = 3
    num_nextn_predict_layers: int = 1
    swiglu_limit: float = 10.0
    hc_mult: int = 4
    hc_sinkhorn_iters: int = 20
    hc_eps: float = 1e-6
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    compress_rope_theta: float = 160000.0
    rope_scaling: RopeScaling = RopeScaling()
    max_position_embeddings: int = 1048576
    compress_rate_csa: int = 4
    compress_rate_hca: int = 128
    bos_token_id: int = 0
    eos_token_id: int = 1

    def __post_init__(self) -> None:
        layers = self.num_hidden_layers + self.num_nextn_predict_layers
        known = {0, self.compress_rate_csa, self.compress_rate_hca}
        faults = [
            (
                len(self.compress_ratios) == layers,
                f"compress_ratios has {len(self.compress_ratios)} entries for {layers} layers (MTP included)",
            ),
            (
                set(self.compress_ratios) <= known,
                f"compress_ratios may only hold {sorted(known)}, got {sorted(set(self.compress_ratios))}",
            ),
            (
                not any(self.compress_ratios[self.num_hidden_layers :]),
                "an MTP layer must have compress ratio 0",
            ),
            (
                all(rate > 0 and PAGE_TOKENS % rate == 0 for rate in known - {0}),
                f"compress rates must divide the page of {PAGE_TOKENS} tokens, got {sorted(known - {0})}",
            ),
            (self.compress_rate_csa != self.compress_rate_hca, "CSA and HCA need different compress rates"),
            (
                self.num_attention_heads % self.o_groups == 0,
                f"{self.num_attention_heads} heads do not split into {self.o_groups} output groups",
            ),
            (
                self.qk_rope_head_dim % 2 == 0
                and self.qk_rope_head_dim <= min(self.head_dim, self.index_head_dim),
                f"qk_rope_head_dim {self.qk_rope_head_dim} must be even and fit into both head dims",
            ),
            (self.num_key_value_heads == 1, "DeepSeek-V4 has exactly one key/value head"),
            (self.n_shared_experts == 1, "DeepSeek-V4 has exactly one shared expert"),
            (
                0 < self.num_experts_per_tok <= self.n_routed_experts,
                f"cannot route to {self.num_experts_per_tok} of {self.n_routed_experts} experts",
            ),
        ]
        broken = [message for holds, message in faults if not holds]
        if broken:
            raise UsageError("Impossible model configuration: " + "; ".join(broken) + ".")

    @property
    def layer_types(self) -> tuple[LayerType, ...]:
        """Type of every main layer, in order (docs/model.md, Sizes)."""
        by_ratio = {
            0: LayerType.SLIDING,
            self.compress_rate_csa: LayerType.CSA,
            self.compress_rate_hca: LayerType.HCA,
        }
        return tuple(by_ratio[ratio] for ratio in self.compress_ratios[: self.num_hidden_layers])

    def layers_of(self, layer_type: LayerType) -> tuple[int, ...]:
        """Main layers of one type, ascending: a layer's place here is its index in the type's pools."""
        return tuple(index for index, kind in enumerate(self.layer_types) if kind is layer_type)


_TEST_A = ModelConfig(
    vocab_size=512,
    hidden_size=64,
    moe_intermediate_size=32,
    num_hidden_layers=6,
    num_attention_heads=4,
    head_dim=32,
    qk_rope_head_dim=8,
    q_lora_rank=32,
    o_lora_rank=16,
    o_groups=2,
    n_routed_experts=16,
    num_experts_per_tok=2,
    routed_scaling_factor=1.5,
    compress_ratios=(0, 0, 4, 128, 4, 128, 0),
    sliding_window=128,
    index_n_heads=32,
    index_head_dim=16,
    index_topk=16,
    rope_scaling=RopeScaling(original_max_position_embeddings=256),
    max_position_embeddings=4096,
)

PRESETS: dict[str, ModelConfig] = {
    "test-a": _TEST_A,
    "test-b": msgspec.structs.replace(
        _TEST_A,
        compress_ratios=(0, 0, 4, 16, 4, 16, 0),
        compress_rate_hca=16,
        sliding_window=8,
        index_n_heads=16,
        index_topk=4,
        rope_scaling=RopeScaling(original_max_position_embeddings=64),
    ),
    "tiny": msgspec.structs.replace(_TEST_A, vocab_size=129280, max_position_embeddings=16384),
    "flash": ModelConfig(
        hidden_size=4096,
        moe_intermediate_size=2048,
        num_hidden_layers=43,
        num_attention_heads=64,
        q_lora_rank=1024,
        o_lora_rank=1024,
        o_groups=8,
        n_routed_experts=256,
        num_experts_per_tok=6,
        routed_scaling_factor=1.5,
        index_topk=512,
        compress_ratios=(0, 0, *(4, 128) * 20, 4, 0),
    ),
    "pro": ModelConfig(
        hidden_size=7168,
        moe_intermediate_size=3072,
        num_hidden_layers=61,
        num_attention_heads=128,
        q_lora_rank=1536,
        o_lora_rank=1024,
        o_groups=16,
        n_routed_experts=384,
        num_experts_per_tok=6,
        routed_scaling_factor=2.5,
        index_topk=1024,
        compress_ratios=(128, 128, *(4, 128) * 29, 4, 0),
    ),
}
"""`test-a`, `test-b`: docs/model.md, Oracles; `tiny`: `test-a` with the real vocabulary and room for the longest
prompts (8192 tokens); `flash`, `pro`: as released."""


def preset(name: str) -> ModelConfig:
    """The preset called `name`; UsageError that lists the known ones if there is none."""
    if name not in PRESETS:
        raise UsageError(f"Unknown model preset {name!r}; known presets: {', '.join(PRESETS)}.")
    return PRESETS[name]
