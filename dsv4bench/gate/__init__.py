"""Runs for a gate: what the two sides are, in which order they run, and how noisy this machine is."""
