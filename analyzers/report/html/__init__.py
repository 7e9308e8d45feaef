"""The report as one self-contained HTML file."""

from analyzers.report.html.page import render_html

__all__ = ["render_html"]
