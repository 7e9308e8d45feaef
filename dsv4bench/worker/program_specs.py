"""Names and entry points of the DeepSeek-V4 programs. Imports no torch: the engine reads it."""

from __future__ import annotations

import msgspec

from dsv4bench.model.config import ModelConfig

PREFILL = "deepseek_v4_prefill"
MTP_PREFILL = "deepseek_v4_mtp_prefill"
DECODE = "deepseek_v4_decode"
DECODE_MTP_FUSED = "deepseek_v4_decode_mtp_fused"
MTP_DECODE = "deepseek_v4_mtp_decode"

# One implementation behind the three decode programs: K is the width of the drafts in the device state.
FUNCTIONS = {
    PREFILL: "prefill",
    MTP_PREFILL: "mtp_prefill",
    DECODE: "decode",
    DECODE_MTP_FUSED: "decode",
    MTP_DECODE: "decode",
}

SETUP = "dsv4bench.worker.programs:setup"


class ProgramsSetup(msgspec.Struct, frozen=True):
    """What `programs.setup` needs: the model and where its checkpoint lies."""

    config: ModelConfig
    checkpoint: str


def decode_program(speculative_tokens: int) -> str:
    """The decode program for K = 0..7 speculative tokens."""
    return (DECODE, DECODE_MTP_FUSED)[speculative_tokens] if speculative_tokens < 2 else MTP_DECODE
