"""History: the runs of a benchmark over time in one SQLite file, their trends and where they step (docs/history.md)."""
