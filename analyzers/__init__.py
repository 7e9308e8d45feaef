"""Analyzers: run directories and foreign traces in; tables, findings, reports and timelines out."""
