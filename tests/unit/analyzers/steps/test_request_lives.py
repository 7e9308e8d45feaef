"""Requests joined to what the engine recorded of them; every time is worked out by hand, in us."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from analyzers.analysis import analyze, judge
from analyzers.measurement import measure
from analyzers.recording.recording import load_recording
from analyzers.report.html import render_html
from analyzers.report.model import Report
from analyzers.report.tables import report_tables
from analyzers.rundir import ClientFacts, RequestRecord, RunDirectory, ServerFacts
from analyzers.steps.request_lives import RequestLives
from analyzers.swimlane import timeline_of
from tests.builders.chrome import dispatch
from tests.builders.manifests import write_manifest

US = 1000
SERVER = ServerFacts("dsv4bench", "http://127.0.0.1:1", started=True)


def finished(request_id: str, **times: Any) -> dict[str, Any]:
    """The engine's record of a request: added at 110 us, placed at 150, tokens from 250 to 850."""
    arguments = {
        "request_id": request_id,
        "rank": 1,
        "output_tokens": 5,
        "added_ns": 110 * US,
        "admitted_ns": 150 * US,
        "first_token_ns": 250 * US,
        "last_token_ns": 850 * US,
        "first_step": 7,
        "last_step": 9,
        "steps": 3,
        "prefills": 1,
    } | times
    return {
        "name": "request.finished",
        "cat": "serving",
        "ph": "i",
        "s": "t",
        "ts": 851,
        "pid": 1,
        "tid": 1,
        "args": arguments,
    }


def request(request_id: str = "request-0", **changes: Any) -> RequestRecord:
    """Sent at 100 us; tokens at 300, 500, 500, 700 and 900 us."""
    record = RequestRecord(
        request_id=request_id,
        rank=None,
        prompt_token_ids=[1, 2, 3],
        output_token_ids=[5, 6, 7, 8, 9],
        send_ns=100 * US,
        token_times_ns=[300 * US, 500 * US, 500 * US, 700 * US, 900 * US],
        finish_reason="length",
        server_request_id=f"cmpl-{request_id}",
        planned_ns=90 * US,
        prompt_tokens=3,
    )
    return msgspec.structs.replace(record, **changes)


def run_of(
    root: Path, events: list[dict[str, Any]], requests: list[RequestRecord], **manifest: Any
) -> RunDirectory:
    run = RunDirectory(root)
    write_manifest(run, **{"server": SERVER, **manifest})
    run.sa_profile.mkdir()
    steps = [
        event
        for step in (7, 8, 9)
        for event in dispatch(
            (200 + 100 * (step - 7), 210 + 100 * (step - 7)),
            (220 + 100 * (step - 7), 290 + 100 * (step - 7)),
            step_id=step,
        )
    ]
    run.serving_trace.write_text(json.dumps({"traceEvents": [*steps, *events]}))
    run.requests.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in requests))
    return run


def lives_of(report: Report) -> RequestLives:
    assert report.request_lives is not None
    return report.request_lives


def test_a_request_is_followed_by_the_id_in_the_servers_answer(tmp_path: Path) -> None:
    run = run_of(tmp_path, [finished("cmpl-request-0")], [request()])
    report = analyze([run.root])
    lives = lives_of(report)
    assert (lives.requests, lives.joined, lives.reason) == (1, 1, None)
    means = {
        name: getattr(lives, name).mean
        for name in (
            "send_lag",
            "before",
            "queueing",
            "prefill",
            "decode",
            "delivery_first",
            "delivery_last",
            "steps",
        )
    }
    assert means == {
        "send_lag": 10 * US,
        "before": 10 * US,
        "queueing": 40 * US,
        "prefill": 100 * US,
        "decode": 600 * US,
        "delivery_first": 50 * US,
        "delivery_last": 50 * US,
        "steps": 3,
    }
    # 800 us from sending to the last token, 740 of them in the engine.
    assert lives.outside_share == pytest.approx(60 / 800)
    # (900 - 300) / 4 at the client, (850 - 250) / 4 as published.
    assert (lives.client_tpot_ns, lives.engine_tpot_ns, lives.delivery_share_of_tpot) == (
        150 * US,
        150 * US,
        0,
    )
    assert judge(report).exit_code == 0
    (life,) = report.series.request_lives
    assert sum(part for part in life.parts.values() if part is not None) == 800 * US


def test_what_the_report_shows_of_it(tmp_path: Path) -> None:
    run = run_of(tmp_path, [finished("cmpl-request-0", last_token_ns=650 * US)], [request()])
    report = analyze([run.root])
    (table,) = [table for table in report_tables(report) if table.title == "Requests through the engine (ms)"]
    assert "1 of 1 request joined to what the engine recorded" in table.notes
    # 100 us a token as published, 150 at the client.
    assert any(note.endswith("33.33 % of it is delivery") for note in table.notes)
    assert [row[0] for row in table.rows][-3:] == ["decode", "delivery of the last", "delivery of the first"]
    assert "request-0, decode: 0.400 ms" in render_html(report, "Run")


def test_tracks_of_requests_have_their_parts_and_flows_to_their_steps(tmp_path: Path) -> None:
    run = run_of(
        tmp_path, [finished("cmpl-request-0"), finished("cmpl-request-1")], [request(), request("request-1")]
    )
    timeline = timeline_of(measure(load_recording([run.root])))
    group = timeline.groups[0]
    assert group.name == "requests"
    assert len(group.tracks) == 2, "requests of one time lie on tracks of their own"
    names = [item.name for item in group.tracks[0].slices]
    assert names == ["request-0", "to the engine", "queueing", "prefill", "decode", "delivery"]
    outer, *inner = group.tracks[0].slices
    assert (outer.start_ns, outer.end_ns) == (100 * US, 900 * US)
    assert [(item.start_ns, item.end_ns) for item in inner] == [
        (100 * US, 110 * US),
        (110 * US, 150 * US),
        (150 * US, 250 * US),
        (250 * US, 850 * US),
        (850 * US, 900 * US),
    ]
    flows = {point.flow for point in inner[3].flows}
    ends = [
        (item.name, item.args.get("step_id"))
        for track in timeline.tracks()
        for item in track.slices
        for point in item.flows
        if point.flow in flows and item is not inner[3]
    ]
    assert sorted(ends) == [("decode.worker_wait", 7), ("decode.worker_wait", 9)]


def test_other_tokens_at_the_engine_make_the_report_invalid(tmp_path: Path) -> None:
    run = run_of(tmp_path, [finished("cmpl-request-0", output_tokens=6)], [request()])
    report = analyze([run.root])
    assert lives_of(report).token_mismatches == ["request-0"]
    assert judge(report).exit_code == 4
    assert any(finding.code == "tokens_contradict" for finding in report.findings)


def test_an_id_that_was_used_twice_is_told_by_the_time(tmp_path: Path) -> None:
    earlier = finished("cmpl-request-0", added_ns=5 * US, admitted_ns=6 * US, output_tokens=1)
    run = run_of(tmp_path, [earlier, finished("cmpl-request-0")], [request()])
    lives = lives_of(analyze([run.root]))
    assert (lives.joined, lives.before.mean, lives.token_mismatches) == (1, 10 * US, [])


def test_requests_that_the_trace_does_not_name_are_counted(tmp_path: Path) -> None:
    run = run_of(tmp_path, [finished("cmpl-request-0")], [request(), request("request-1")])
    lives = lives_of(analyze([run.root]))
    assert (lives.requests, lives.joined, lives.reason) == (
        2,
        1,
        "the serving trace says nothing of 1 of them",
    )


def test_the_arrival_alone_gives_the_time_before_the_engine(tmp_path: Path) -> None:
    """What upstream's server records of a request."""
    queued = {
        **{"name": "request.queued", "cat": "serving", "ph": "i", "s": "t", "ts": 130, "pid": 1, "tid": 1},
        "args": {"request_id": "cmpl-request-0", "prompt_tokens": 3},
    }
    run = run_of(tmp_path, [queued], [request()])
    lives = lives_of(analyze([run.root]))
    assert (lives.joined, lives.before.mean) == (1, 30 * US)
    assert (lives.queueing.n, lives.decode.n, lives.outside_share, lives.engine_tpot_ns) == (0, 0, None, None)


@pytest.mark.parametrize(
    ("manifest", "events", "why"),
    [
        (
            {"server": ServerFacts("vllm", "http://10.0.0.7:1", started=False)},
            [finished("cmpl-request-0")],
            "http://10.0.0.7:1 is another host, with a clock of its own",
        ),
        (
            {},
            [finished("cmpl-request-0", added_ns=50 * US)],
            "the clocks differ: the engine had request request-0 before it was sent",
        ),
        (
            {},
            [finished("cmpl-request-0", first_token_ns=400 * US)],
            "the clocks differ: the engine had request request-0 before it was sent",
        ),
    ],
)
def test_nothing_is_joined_across_clocks(
    manifest: dict[str, Any], events: list[dict[str, Any]], why: str, tmp_path: Path
) -> None:
    run = run_of(tmp_path, events, [request()], **manifest)
    lives = lives_of(analyze([run.root]))
    assert (lives.joined, lives.reason) == (0, why)
    assert (lives.before.n, lives.outside_share) == (0, None)


def test_a_server_of_this_host_that_ran_already_shares_its_clock(tmp_path: Path) -> None:
    server = ServerFacts("dsv4bench", "http://localhost:1", started=False)
    run = run_of(tmp_path, [finished("cmpl-request-0")], [request()], server=server)
    assert lives_of(analyze([run.root])).joined == 1


def test_without_a_record_of_requests_nothing_is_said(tmp_path: Path) -> None:
    assert analyze([run_of(tmp_path, [], [request()]).root]).request_lives is None


def test_a_client_that_fell_behind_and_prompts_counted_otherwise_are_found(tmp_path: Path) -> None:
    behind = ClientFacts(0.99, 7, 5, 6, 7, kept_up=False, reason="9 of 10 requests were sent late")
    run = run_of(
        tmp_path,
        [finished("cmpl-request-0")],
        [request(prompt_tokens=4), request("request-1")],
        client=behind,
    )
    found = {finding.code: finding for finding in analyze([run.root]).findings}
    assert "9 of 10 requests were sent late; most in flight 7, its thread took 99% of a processor" in (
        found["client_fell_behind"].evidence
    )
    assert (
        found["prompt_tokens"].title
        == "the server counts other prompt tokens than the load has in 1 of 2 requests"
    )
    assert "3 by the model's tokenizer, 4 by the server" in found["prompt_tokens"].evidence


def test_a_client_that_kept_up_and_prompts_that_agree_are_no_finding(tmp_path: Path) -> None:
    kept_up = ClientFacts(0.1, 1, 5, 6, 7, kept_up=True)
    run = run_of(tmp_path, [finished("cmpl-request-0")], [request()], client=kept_up)
    assert {finding.code for finding in analyze([run.root]).findings}.isdisjoint(
        {"client_fell_behind", "prompt_tokens"}
    )
