"""The verdict as workflow commands of GitHub Actions, which show up as annotations of the run."""

from __future__ import annotations

from analyzers.gate.model import GateResult, Verdict
from analyzers.gate.wording import label
from analyzers.text.escapes import printable

_SUITE = "dsv4bench gate"


def github_annotations(result: GateResult) -> str:
    """One line for the verdict, and one for every judged metric that it does not speak of.

    What is not PASS is an error; a PASS is a notice, and says what it excludes. Warnings are warnings. Each line ends in
    a newline.
    """
    lines = [_command(_kind(result.verdict), f"{_SUITE}: {result.verdict}", result.headline)]
    lines += [
        _command(_kind(metric.verdict), f"{_SUITE}: {metric.verdict}: {label(metric)}", metric.reason)
        for metric in result.metrics
        if metric.judged and metric.reason not in result.headline
    ]
    lines += [_command("warning", _SUITE, warning) for warning in result.warnings]
    return "".join(f"{line}\n" for line in lines)


def _kind(verdict: Verdict) -> str:
    return "notice" if verdict == "PASS" else "error"


def _command(kind: str, title: str, message: str) -> str:
    return f"::{kind} title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    """Names come from foreign files: none ends the line, and so none begins a command of its own."""
    return printable(text, keep="\r\n").replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
