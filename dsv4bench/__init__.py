"""dsv4bench: run an asynchronous DeepSeek-V4 decode engine under tracing and analyze what it did."""

__version__ = "0.1.0"
