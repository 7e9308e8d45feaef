"""Statistics of samples: summaries, robust tests, tests of ranks and counts. Pure functions of numbers."""
