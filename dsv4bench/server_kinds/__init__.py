"""Servers that are measured: each kind is data (profiles/servers/*.toml) that says how it is started, asked and stopped."""
