"""The device boundary: the worker protocol, provenance-checked memory, rank processes and their programs."""
