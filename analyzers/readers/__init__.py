"""Readers: bytes of a file in; a span table (or request records) and a `LoadReport` of what was lost out."""
