"""The page that hands the timeline to a Perfetto UI.

The UI runs in a window of its own; once it answers PING with PONG it takes the bytes of a trace as a message, so that
they never leave this machine (perfetto.dev, "Deep linking to the Perfetto UI").
"""

from __future__ import annotations

from importlib import resources

from analyzers.report.html.markup import element, trusted
from analyzers.report.html.parts import policy, stylesheet


def render_launcher(perfetto_ui: str) -> str:
    """A page with one button; browsers open a window only when somebody asks for it."""
    style = stylesheet()
    script = (
        resources.files("analyzers.report.html.assets").joinpath("launcher.js").read_text(encoding="utf-8")
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(style, script=script)),
        element("meta", name="referrer", content="no-referrer"),
        element("title", "Timeline"),
        element("style", trusted(style)),
    )
    body = element(
        "body",
        element("h1", "Timeline"),
        element("p", element("button", "Open in Perfetto", id="open", data_ui=perfetto_ui)),
        element(
            "p",
            f"The user interface comes from {perfetto_ui}; the timeline stays in this browser.",
            class_="note",
        ),
        element("p", "", id="state", class_="note"),
        element("p", element("a", "The report", href="./")),
        element("script", trusted(script)),
    )
    return "<!doctype html>\n" + element("html", head, body, lang="en").html + "\n"
