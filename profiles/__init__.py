"""Benchmark profiles, shipped as TOML package data and read by `dsv4bench.profile`."""
