"""The gate: samples of runs in; ratios, p-values and verdicts out (docs/gating.md)."""
