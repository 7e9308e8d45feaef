"""Synthetic checkpoints: seeded float32 weights under the released checkpoint's tensor names (docs/model.md, Checkpoint)."""

import hashlib
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from dsv4bench.errors import UsageError
from dsv4bench.model.config import LayerType, ModelConfig

GENERATOR_VERSION = 2
"""Part of the cache fingerprint: raise it whenever the same arguments give other weights."""

Weights = Literal["random", "bigram"]
Array = npt.NDArray[np.float32] | npt.NDArray[np.int64]

MAIN_BRANCH_SCALE = 0.45
MTP_BRANCH_SCALE = 0.7
"""Bigram checkpoints: size of the layers' contributions to the residual streams, main model and MTP layer.

Measured on `tiny`, greedy, 16 requests of 64 + 60 tokens, two seeds: 15 % of the main model's tokens are
not the planted ones, 4 to 7 % of the drafts are not, and 80 to 83 % of the drafts are accepted. At 0.35 the
main model strays from the permutation in 3 % of the tokens, at 0.5 in 22 %.
"""


def ensure_checkpoint(config: ModelConfig, seed: int, directory: Path, weights: Weights = "random") -> Path:
    """Return the safetensors file with the weights of (`config`, `seed`, `weights`), making it if need be.

    The file is named by a fingerprint of the arguments and of the generator's version, holds float32 tensors
    (`tid2eid` int64) and records the config in its header. A file that is damaged is made anew; makers
    running at the same time each write a private file and rename it into place. Raises UsageError for an
    unknown kind of weights, a negative seed, or a directory that cannot be written.
    """
    if weights not in ("random", "bigram"):
        raise UsageError(f"Unknown kind of weights {weights!r}; known kinds: random, bigram.")
    if seed < 0:
        raise UsageError(f"The checkpoint seed must not be negative, got {seed}.")
    encoded = msgspec.json.encode(config)
    identity = b"|".join((encoded, str(seed).encode(), weights.encode(), str(GENERATOR_VERSION).encode()))
    path = directory / f"{weights}-{hashlib.sha256(identity).hexdigest()[:16]}.safetensors"
    if _is_intact(path):
        return path
    tensors = generate(config, seed, weights)
    checksums = {name: zlib.crc32(np.ascontiguousarray(array).data) for name, array in tensors.items()}
    metadata = {
        "config": encoded.decode(),
        "seed": str(seed),
        "weights": weights,
        "generator_version": str(GENERATOR_VERSION),
        "crc32": msgspec.json.encode(checksums).decode(),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        private = directory / f"{path.stem}.{uuid.uuid4().hex}.partial"
        try:
            save_file(tensors, private, metadata)
            private.replace(path)
        finally:
            private.unlink(missing_ok=True)
    except (OSError, SafetensorError) as error:
        raise UsageError(f"Cannot write a checkpoint into {directory}: {error}.") from error
    return path


def read_config(path: Path) -> ModelConfig:
    """The configuration recorded in a checkpoint made by `ensure_checkpoint`; UsageError if there is none."""
    try:
        with safe_open(path, framework="np") as file:
            return msgspec.json.decode(file.metadata()["config"], type=ModelConfig)
    except (OSError, SafetensorError, KeyError, TypeError, msgspec.DecodeError) as error:
        raise UsageError(f"{path} is not a checkpoint of this project: {error}.") from error


def _is_intact(path: Path) -> bool:
    """Whether the file exists, parses, and every tensor has the checksum recorded in the header."""
    if not path.exists():
        return False
    try:
        with safe_open(path, framework="np") as file:
            checksums = msgspec.json.decode(file.metadata()["crc32"], type=dict[str, int])
            if set(checksums) != set(file.keys()):
                return False
            return all(zlib.crc32(file.get_tensor(name)) == crc for name, crc in checksums.items())
    except (OSError, SafetensorError, KeyError, TypeError, msgspec.DecodeError):
        return False


def generate(config: ModelConfig, seed: int, weights: Weights) -> dict[str, Array]:
    """All tensors of a synthetic checkpoint, by released name; see `tensor_shapes`.

    Kind "random": every tensor is drawn from its own generator, seeded by (seed, name), so that neither
    order nor the presence of other tensors matters. Nothing is left at a neutral value (zero biases hide
    bugs). Matrices have standard deviation in_features^-0.5, so that activations stay of order one.

    Kind "bigram": the same, with a next-token permutation planted so that greedy decoding has structure and
    the MTP drafter is right at a realistic rate. Ordinary token ids form a random permutation `perm`; the
    head's row of perm(t) is the embedding e(t), so that a residual stream dominated by e(t) predicts
    perm(t). The layers add to that stream through `attn.wo_b`, `ffn.shared_experts.w2` and
    `ffn.experts.*.w2`, scaled by MAIN_BRANCH_SCALE: enough to overturn a fair share of the predictions,
    which then depend on attention and routing. In the MTP layer `e_proj` is the identity and `h_proj`
    small, so that its stream is dominated by e(t_{p+1}) and its draft is mostly perm(t_{p+1}). The head's
    rows of the bos and eos ids are zero: a run never ends early.
    """
    tensors = {name: _draw(name, shape, config, seed) for name, shape in tensor_shapes(config)}
    if weights == "bigram":
        _plant_bigram(tensors, config, seed)
    return tensors


def tensor_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every tensor of a checkpoint, in the released naming (docs/model.md, Checkpoint), without scales."""
    hidden = config.hidden_size
    yield "embed.weight", (config.vocab_size, hidden)
    yield "head.weight", (config.vocab_size, hidden)
    yield from _head_shapes("", config)
    for index, layer_type in enumerate(config.layer_types):
        yield from _block_shapes(
            f"layers.{index}.", config, layer_type, hash_routed=index < config.num_hash_layers
        )
    for index in range(config.num_nextn_predict_layers):
        prefix = f"mtp.{index}."
        yield from _block_shapes(prefix, config, LayerType.SLIDING, hash_routed=False)
        yield from _head_shapes(prefix, config)
        yield f"{prefix}e_proj.weight", (hidden, hidden)
        yield f"{prefix}h_proj.weight", (hidden, hidden)
        yield f"{prefix}enorm.weight", (hidden,)
        yield f"{prefix}hnorm.weight", (hidden,)


def _head_shapes(prefix: str, config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    streams, hidden = config.hc_mult, config.hidden_size
    yield f"{prefix}norm.weight", (hidden,)
    yield f"{prefix}hc_head_fn", (streams, streams * hidden)
    yield f"{prefix}hc_head_base", (streams,)
    yield f"{prefix}hc_head_scale", (1,)


def _block_shapes(
    prefix: str, config: ModelConfig, layer_type: LayerType, *, hash_routed: bool
) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, streams, head, heads = (
        config.hidden_size,
        config.hc_mult,
        config.head_dim,
        config.num_attention_heads,
    )
    for site in ("attn", "ffn"):
        yield f"{prefix}hc_{site}_fn", ((2 + streams) * streams, streams * hidden)
        yield f"{prefix}hc_{site}_base", ((2 + streams) * streams,)
        yield f"{prefix}hc_{site}_scale", (3,)
        yield f"{prefix}{site}_norm.weight", (hidden,)
    attn = f"{prefix}attn."
    yield f"{attn}attn_sink", (heads,)
    yield f"{attn}wq_a.weight", (config.q_lora_rank, hidden)
    yield f"{attn}wq_b.weight", (heads * head, config.q_lora_rank)
    yield f"{attn}wkv.weight", (head, hidden)
    yield f"{attn}wo_a.weight", (config.o_groups * config.o_lora_rank, heads * head // config.o_groups)
    yield f"{attn}wo_b.weight", (hidden, config.o_groups * config.o_lora_rank)
    yield f"{attn}q_norm.weight", (config.q_lora_rank,)
    yield f"{attn}kv_norm.weight", (head,)
    if layer_type is LayerType.HCA:
        yield from _compressor_shapes(f"{attn}compressor.", config.compress_rate_hca, head, head, hidden)
    if layer_type is LayerType.CSA:
        inner = config.index_head_dim
        yield from _compressor_shapes(f"{attn}compressor.", config.compress_rate_csa, 2 * head, head, hidden)
        yield f"{attn}indexer.wq_b.weight", (config.index_n_heads * inner, config.q_lora_rank)
        yield f"{attn}indexer.weights_proj.weight", (config.index_n_heads, hidden)
        yield from _compressor_shapes(
            f"{attn}indexer.compressor.", config.compress_rate_csa, 2 * inner, inner, hidden
        )
    ffn, inter = f"{prefix}ffn.", config.moe_intermediate_size
    yield f"{ffn}gate.weight", (config.n_routed_experts, hidden)
    if hash_routed:
        yield f"{ffn}gate.tid2eid", (config.vocab_size, config.num_experts_per_tok)
    else:
        yield f"{ffn}gate.bias", (config.n_routed_experts,)
    for expert in (*(f"experts.{index}" for index in range(config.n_routed_experts)), "shared_experts"):
        yield f"{ffn}{expert}.w1.weight", (inter, hidden)
        yield f"{ffn}{expert}.w2.weight", (hidden, inter)
        yield f"{ffn}{expert}.w3.weight", (inter, hidden)


def _compressor_shapes(
    prefix: str, ratio: int, width: int, norm_width: int, hidden: int
) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{prefix}wkv.weight", (width, hidden)
    yield f"{prefix}wgate.weight", (width, hidden)
    yield f"{prefix}ape", (ratio, width)
    yield f"{prefix}norm.weight", (norm_width,)


def _generator(name: str, seed: int) -> np.random.Generator:
    """A generator of the tensor's own: seeded by the run's seed and a digest of the name."""
    digest = np.frombuffer(hashlib.sha256(name.encode()).digest()[:16], dtype=np.uint32)
    return np.random.default_rng([seed, *digest.tolist()])


def _draw(name: str, shape: tuple[int, ...], config: ModelConfig, seed: int) -> Array:
    """One random tensor; its distribution follows from its name."""
    rng = _generator(name, seed)
    if name.endswith("tid2eid"):
        # The first k places of a random order: k distinct experts per token.
        keys = rng.random((shape[0], config.n_routed_experts), dtype=np.float32)
        return np.argsort(keys, axis=1)[:, : shape[1]].astype(np.int64)
    values = rng.standard_normal(shape, dtype=np.float32)
    if name.endswith("norm.weight") or name.endswith("_scale"):
        return 1 + 0.1 * values
    if name == "embed.weight":
        return values
    if name.endswith(".weight") or name.endswith("_fn"):
        return values * np.float32(shape[-1] ** -0.5)
    # Sinks, absolute position encodings, routing biases and hyper-connection bases.
    return 0.5 * values


def _plant_bigram(tensors: dict[str, Array], config: ModelConfig, seed: int) -> None:
    """Turn random tensors into a bigram checkpoint, in place, as documented at `generate`."""
    special = sorted({config.bos_token_id, config.eos_token_id})
    ordinary = np.setdiff1d(np.arange(config.vocab_size), special)
    head = np.zeros_like(tensors["head.weight"])
    head[next_tokens(config, seed)[ordinary]] = tensors["embed.weight"][ordinary]
    tensors["head.weight"] = head * np.float32(config.hidden_size**-0.5)
    for name, tensor in tensors.items():
        if name.endswith(("wo_b.weight", "w2.weight")):
            scale = MTP_BRANCH_SCALE if name.startswith("mtp.") else MAIN_BRANCH_SCALE
            tensors[name] = tensor * np.float32(scale)
        elif name.endswith("e_proj.weight"):
            tensors[name] = np.eye(config.hidden_size, dtype=np.float32)
        elif name.endswith("h_proj.weight"):
            tensors[name] = tensor * np.float32(MTP_BRANCH_SCALE)


def next_tokens(config: ModelConfig, seed: int) -> npt.NDArray[np.int64]:
    """The permutation that a bigram checkpoint plants: int64 [vocab], bos and eos stay where they are."""
    special = sorted({config.bos_token_id, config.eos_token_id})
    ordinary = np.setdiff1d(np.arange(config.vocab_size), special)
    permutation = np.arange(config.vocab_size)
    permutation[ordinary] = _generator("bigram permutation", seed).permutation(ordinary)
    return permutation
