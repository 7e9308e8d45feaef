"""Rotary position embeddings: interleaved pairs in the trailing channels (docs/model.md, Rotary embeddings)."""

import math

import torch
from torch import Tensor

from dsv4bench.model.config import ModelConfig


class Rope:
    """Rotations by position for one set of inverse frequencies, float32 [qk_rope_head_dim / 2]."""

    def __init__(self, inverse_frequencies: Tensor) -> None:
        self.inverse_frequencies = inverse_frequencies
        self._unit = torch.ones((), dtype=torch.float32)

    @classmethod
    def plain(cls, config: ModelConfig) -> "Rope":
        """Sliding-window and MTP layers: theta `rope_theta`, no scaling."""
        return cls(_inverse_frequencies(config.rope_theta, config.qk_rope_head_dim))

    @classmethod
    def compressed(cls, config: ModelConfig) -> "Rope":
        """Compressed layers: theta `compress_rope_theta` with YaRN and no magnitude factor."""
        dim, theta, yarn = config.qk_rope_head_dim, config.compress_rope_theta, config.rope_scaling
        frequencies = _inverse_frequencies(theta, dim)

        def pair_turning(rotations: float) -> float:
            """The (fractional) pair that makes this many rotations over the original context length."""
            length = yarn.original_max_position_embeddings
            return dim * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(theta))

        low = max(math.floor(pair_turning(yarn.beta_fast)), 0)
        high = min(math.ceil(pair_turning(yarn.beta_slow)), dim - 1)
        # Fast pairs keep their frequency, slow ones are divided by the factor, with a linear ramp in between.
        pairs = torch.arange(dim // 2, dtype=torch.float32)
        slow = ((pairs - low) / max(high - low, 0.001)).clamp(0, 1)
        return cls(frequencies * (1 - slow) + frequencies / yarn.factor * slow)

    def rotations(self, positions: Tensor) -> Tensor:
        """Unit complex numbers exp(i * position * frequency): positions int [T] -> complex64 [T, dim / 2]."""
        angles = positions.unsqueeze(-1) * self.inverse_frequencies
        return torch.polar(self._unit.expand_as(angles), angles)


def rotate_(vectors: Tensor, rotations: Tensor) -> Tensor:
    """Rotate the trailing channels of `vectors` in place and return it.

    `vectors` is float32 [..., d] with an even stride in every dimension but the last; `rotations` complex64
    [..., dim / 2], broadcast against it. Channels 2i and 2i+1 of the last `dim` are the real and imaginary
    part of pair i. The inverse rotation is the one by `rotations.conj()`.
    """
    trailing = vectors[..., -2 * rotations.shape[-1] :]
    torch.view_as_complex(trailing.view(*trailing.shape[:-1], -1, 2)).mul_(rotations)
    return vectors


def _inverse_frequencies(theta: float, dim: int) -> Tensor:
    return theta ** -(torch.arange(0, dim, 2, dtype=torch.float32) / dim)
