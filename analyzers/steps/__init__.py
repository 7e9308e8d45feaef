"""Steps: dispatches with both ends, their lifecycles, how they overlap, and where their time went."""
