"""What is said of a server that was measured: which one, its drafts, and the traces that it did not give."""

import json
from pathlib import Path

from analyzers.analysis import analyze, judge
from analyzers.gate.comparability import run_config
from analyzers.report.overview import overview
from analyzers.rundir import RunDirectory, ServerDrafts, ServerFacts
from analyzers.text.tables import Row
from tests.builders.manifests import device_map, manifest, write_manifest

REQUEST = (
    b'{"request_id":"r0","rank":null,"prompt_token_ids":[],"output_token_ids":[],"send_ns":1000,"token_times_ns":[],'
    b'"finish_reason":"length","completion_tokens":3,"events":[[2000,1],[5000,2]]}\n'
)


def run_of(server: ServerFacts, root: Path) -> RunDirectory:
    directory = RunDirectory(root)
    write_manifest(directory, server=server)
    directory.requests.write_bytes(REQUEST)
    return directory


def test_a_missing_trace_is_an_error_and_the_clients_figures_stay(tmp_path: Path) -> None:
    server = ServerFacts("vllm", "http://127.0.0.1:1", started=True, missing_traces=["stop_profile hung"])
    directory = run_of(server, tmp_path)
    report = analyze([directory.root])
    assert [finding.title for finding in report.findings if finding.code == "trace_missing"] == [
        "a trace of the server is missing: stop_profile hung"
    ]
    assert judge(report).exit_code == 4
    (figures,) = report.requests
    assert (figures.output_tokens, figures.ttft.mean, figures.tpot.mean) == (3, 1000, 1500)


def test_the_overview_names_the_server_and_its_drafts(tmp_path: Path) -> None:
    server = ServerFacts(
        "pypto-serving",
        "http://127.0.0.1:8000",
        started=True,
        version="1.2",
        ready_s=12.34,
        drafts=ServerDrafts(10, 11, "server.log"),
    )
    directory = run_of(server, tmp_path)
    table = overview(analyze([directory.root]))
    assert table is not None
    rows: dict[object, Row] = {row[0]: row for row in table.rows}
    assert rows["server"][1] == "pypto-serving 1.2 at http://127.0.0.1:8000, ready after 12.3 s"
    assert rows["MTP drafts accepted"][1:] == ["10 of 11 (90.9 %)", "server.log"]


def test_a_server_kind_is_part_of_what_must_be_equal(tmp_path: Path) -> None:
    settings = {"command": ["vllm"], "health": {"path": "/health", "line": None}}
    server = ServerFacts("vllm", "http://127.0.0.1:1", started=True, settings=settings)
    config = run_config(manifest(server=server))
    assert {key: value for key, value in config.items() if key.startswith("server")} == {
        "server": "vllm",
        "server.command": ["vllm"],
        "server.health.path": "/health",
    }
    assert not any(key.startswith("server") for key in run_config(manifest()))


def test_nothing_is_said_of_ranks_that_a_foreign_server_does_not_tell_of(tmp_path: Path) -> None:
    server = ServerFacts("vllm", "http://127.0.0.1:1", started=False)
    (tmp_path / "own").mkdir()
    table = overview(analyze([run_of(server, tmp_path).root]))
    assert table is not None
    assert table.rows[0][1] == "test: complete"
    directory = RunDirectory(tmp_path / "own")
    write_manifest(directory, server=server, device_map=device_map(range(2)))
    directory.requests.write_bytes(REQUEST)
    table = overview(analyze([directory.root]))
    assert table is not None
    assert table.rows[0][1] == "test: complete, 2 ranks, depth 2"


def test_failed_requests_say_why_the_most_frequent_reason_first(tmp_path: Path) -> None:
    refused = "HTTP 422: unexpected field; ignore_eos is governed by server.endpoint.fields"
    errors = ["timed out", refused, refused, "a", "b", None]
    lines = [
        REQUEST.replace(b'"r0"', b'"r%d"' % number).replace(
            b'"finish_reason":"length"', f'"error":{json.dumps(error)},"finish_reason":null'.encode()
        )
        if error
        else REQUEST
        for number, error in enumerate(errors, 1)
    ]
    run_of(ServerFacts("vllm", "http://127.0.0.1:1", started=False), tmp_path).requests.write_bytes(
        b"".join(lines)
    )
    (finding,) = (entry for entry in analyze([tmp_path]).findings if entry.code == "requests_failed")
    assert finding.title == "failed=5 of 6 measured requests"
    assert finding.evidence == (
        f"a request that failed is in no latency; 2 with {refused}; 1 with timed out; 1 with a; 1 with 1 other error"
    )


def test_tokens_of_a_request_that_failed_without_a_count_are_unknown_not_none(tmp_path: Path) -> None:
    timed_out = REQUEST.replace(
        b'"completion_tokens":3,"events":[[2000,1],[5000,2]]', b'"error":"timed out","events":%s'
    )
    server = ServerFacts("transformers", "http://127.0.0.1:1", started=False)
    for events, told in (
        (b"[[2000,null]]", "an unknown number"),
        (b"[[2000,1],[3000,2]]", "3"),
        (b"[]", "0"),
    ):
        run_of(server, tmp_path).requests.write_bytes(timed_out % events)
        table = overview(analyze([tmp_path]))
        assert table is not None
        rows: dict[object, Row] = {row[0]: row for row in table.rows}
        assert str(rows["output tokens"][1]).endswith(f", {told} more of 1 failed requests"), told
