"""The report: one typed model of everything that was measured, and renderings that only draw it."""

from analyzers.report.model import SCHEMA_VERSION, Finding, Report

__all__ = ["SCHEMA_VERSION", "Finding", "Report"]
