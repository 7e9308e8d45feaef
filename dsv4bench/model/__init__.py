"""DeepSeek-V4 in PyTorch: configuration, synthetic checkpoints, tokenizer and the paged forward pass."""
