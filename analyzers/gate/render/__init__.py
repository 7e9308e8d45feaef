"""The verdict of the gate as terminal text, Markdown, JSON, JUnit and GitHub annotations: they only draw."""

from __future__ import annotations

from analyzers.gate.render.github import github_annotations
from analyzers.gate.render.json import render_json
from analyzers.gate.render.junit import render_junit
from analyzers.gate.render.markdown import render_markdown
from analyzers.gate.render.terminal import render_terminal

__all__ = ["github_annotations", "render_json", "render_junit", "render_markdown", "render_terminal"]
