"""What the ranks did: rounds, how far apart the ranks are in each, and what was in flight."""
