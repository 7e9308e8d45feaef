"""Comparing two runs or two sets of runs: what changed, and where it lies (docs/compare.md)."""
