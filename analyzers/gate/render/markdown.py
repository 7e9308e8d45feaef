"""The verdict as Markdown, for a pull request or a step summary."""

from __future__ import annotations

from analyzers.gate.model import GateResult
from analyzers.gate.render.tables import facts, metrics_table
from analyzers.text.escapes import markdown_escaped
from analyzers.text.markdown import render_table

_SIGNS = {"PASS": "\u2705", "FAIL": "\u274c"}
_OTHER_SIGN = "\u26a0\ufe0f"


def render_markdown(result: GateResult) -> str:
    """The verdict as a heading, its cause in a sentence, the table of metrics, facts, and warnings."""
    sign = _SIGNS.get(result.verdict, _OTHER_SIGN)
    lines = [
        f"# {sign} {result.verdict}: performance gate",
        "",
        f"**{markdown_escaped(result.headline)}**",
        "",
    ]
    if result.metrics:
        lines += [render_table(metrics_table(result))]
    lines += [f"- {markdown_escaped(fact)}" for fact in facts(result)]
    if result.warnings:
        lines += ["", "Warnings:", ""]
        lines += [f"- {markdown_escaped(warning)}" for warning in result.warnings]
    return "\n".join(lines).rstrip() + "\n"
