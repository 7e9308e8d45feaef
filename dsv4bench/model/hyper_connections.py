"""Manifold-constrained hyper-connections: a layer reads and writes a mix of streams (docs/model.md, Residual streams)."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from dsv4bench.model.config import ModelConfig

Floats = npt.NDArray[np.float32]


class HyperConnection:
    """One site (attention or ffn) of one layer: `collapse` before the sublayer, `expand` after it."""

    def __init__(self, weights: Mapping[str, Tensor], prefix: str, config: ModelConfig) -> None:
        """`prefix` ends before fn, base and scale, for example "layers.0.hc_attn_"."""
        streams = self.streams = config.hc_mult
        self.width = (streams * config.hidden_size,)
        self.iterations, self.eps, self.norm_eps = (
            config.hc_sinkhorn_iters,
            config.hc_eps,
            config.rms_norm_eps,
        )
        # The three scales multiply whole groups of rows, so they go into the matrix: pre | post | mix.
        rows = torch.tensor((streams, streams, streams * streams))
        scale = weights[f"{prefix}scale"].repeat_interleave(rows)
        self.fn = (weights[f"{prefix}fn"] * scale.unsqueeze(1)).t().contiguous()
        self.base = weights[f"{prefix}base"]

    def collapse(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """hc_pre: streams float32 [T, n, D] -> sublayer input [T, D], post [T, n, 1], mix [T, n, n]."""
        n = self.streams
        flat = F.rms_norm(streams.flatten(1), self.width, eps=self.norm_eps)
        mixes = torch.addmm(self.base, flat, self.fn)
        gates = mixes[:, : 2 * n].sigmoid()
        pre, post = gates[:, :n] + self.eps, gates[:, n:] * 2
        mix = sinkhorn(mixes[:, 2 * n :].view(-1, n, n), self.iterations, self.eps)
        return torch.bmm(pre.unsqueeze(1), streams).squeeze(1), post.unsqueeze(2), mix

    @staticmethod
    def expand(output: Tensor, streams: Tensor, post: Tensor, mix: Tensor) -> Tensor:
        """hc_post: X'_k = post_k * output + sum_j mix[j, k] X_j, float32 [T, n, D]; `mix` is used transposed."""
        return torch.baddbmm(post * output.unsqueeze(1), mix.transpose(1, 2), streams)


class HyperHead:
    """hc_head: the streams collapse for good, before the final norm."""

    def __init__(self, weights: Mapping[str, Tensor], prefix: str, config: ModelConfig) -> None:
        """`prefix` ends before hc_head_fn, hc_head_base and hc_head_scale: "" or "mtp.0."."""
        self.width = (config.hc_mult * config.hidden_size,)
        self.eps, self.norm_eps = config.hc_eps, config.rms_norm_eps
        self.fn = (weights[f"{prefix}hc_head_fn"] * weights[f"{prefix}hc_head_scale"]).t().contiguous()
        self.base = weights[f"{prefix}hc_head_base"]

    def __call__(self, streams: Tensor) -> Tensor:
        """Streams float32 [T, n, D] -> [T, D]."""
        flat = F.rms_norm(streams.flatten(1), self.width, eps=self.norm_eps)
        pre = torch.addmm(self.base, flat, self.fn).sigmoid() + self.eps
        return torch.bmm(pre.unsqueeze(1), streams).squeeze(1)


def sinkhorn(logits: Tensor, iterations: int, eps: float) -> Tensor:
    """Nearly doubly stochastic matrices from logits, float32 [T, n, n] -> [T, n, n] (docs/model.md, Residual streams).

    Row softmax + eps, division by the column sums (+ eps), then `iterations` - 1 times by row and column
    sums. Runs in numpy: on matrices of 16 elements the cost is the calls, and numpy's are the cheaper ones.
    """
    # Rows innermost: sums over the matrix axes then add whole vectors, in an order that does not depend on T.
    matrix = np.ascontiguousarray(logits.softmax(-1).permute(1, 2, 0).numpy())
    matrix += eps
    columns = np.empty((1, *matrix.shape[1:]), dtype=np.float32)
    rows = np.empty((matrix.shape[0], 1, matrix.shape[2]), dtype=np.float32)
    _divide_by_sums(matrix, 0, columns, eps)
    for _ in range(iterations - 1):
        _divide_by_sums(matrix, 1, rows, eps)
        _divide_by_sums(matrix, 0, columns, eps)
    return torch.from_numpy(matrix).permute(2, 0, 1)


def _divide_by_sums(matrix: Floats, axis: int, sums: Floats, eps: float) -> None:
    np.add.reduce(matrix, axis=axis, keepdims=True, out=sums)
    sums += eps
    matrix /= sums
