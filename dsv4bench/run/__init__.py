"""`run`: start the engine under both traces, put the load on it, watch it, and leave a run directory."""
