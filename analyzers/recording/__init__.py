"""A recording: what was read from all inputs, whose rank, clock and device each span is of, and parts of it."""
