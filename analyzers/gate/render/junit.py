"""The verdict as JUnit XML: one test case a judged metric; only a PASS passes, and its output says what it excludes."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from analyzers.gate.model import GateResult, Verdict
from analyzers.gate.wording import label

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SUITE = "dsv4bench gate"


def render_junit(result: GateResult) -> str:
    """A suite with a case for the whole comparison and one for each judged metric.

    FAIL is a failure; what cannot be judged is an error, so that it is red everywhere too.
    """
    cases = [_case("verdict", result.verdict, result.headline)]
    cases += [
        _case(label(metric), metric.verdict, metric.reason) for metric in result.metrics if metric.judged
    ]
    verdicts = [result.verdict, *(metric.verdict for metric in result.metrics if metric.judged)]
    failures = verdicts.count("FAIL")
    errors = len(verdicts) - failures - verdicts.count("PASS")
    counts = f'tests="{len(cases)}" failures="{failures}" errors="{errors}"'
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites {counts}>\n'
    return f'{head}<testsuite name="{_SUITE}" {counts}>\n' + "".join(cases) + "</testsuite>\n</testsuites>\n"


def _case(name: str, verdict: Verdict, reason: str) -> str:
    opening = f'<testcase classname="{_SUITE}" name={_attribute(name)}'
    if verdict == "PASS":
        return f"{opening}><system-out>{_text(f'PASS: {reason}')}</system-out></testcase>\n"
    element = "failure" if verdict == "FAIL" else "error"
    return f"{opening}><{element} type={_attribute(verdict)} message={_attribute(f'{verdict}: {reason}')}/></testcase>\n"


def _attribute(text: str) -> str:
    """Names come from foreign files: what XML 1.0 cannot hold is replaced, the rest quoted."""
    return quoteattr(_NO_XML.sub("\ufffd", text))


def _text(text: str) -> str:
    """The same between two tags."""
    return escape(_NO_XML.sub("\ufffd", text))
