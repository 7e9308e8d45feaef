"""Comparing tokens with MTP on and off, and what a report says of it."""

from pathlib import Path

import msgspec
import pytest

from analyzers.analysis import analyze, judge
from analyzers.rundir import MtpAccuracy, RunDirectory, TokenDifference
from dsv4bench.run.accuracy import compare_tokens
from tests.builders.requests import request, write_requests


def test_identical_tokens_have_no_difference() -> None:
    tokens = {"a": [1, 2, 3], "b": [4]}
    assert compare_tokens(1, tokens, dict(tokens)) == MtpAccuracy(1, 2, 4, 0, None)


@pytest.mark.parametrize(
    ("without", "difference"),
    [
        ([1, 9, 3], TokenDifference("b", 1, 2, 9)),
        ([1, 2], TokenDifference("b", 2, 3, None)),
        ([1, 2, 3, 4], TokenDifference("b", 3, None, 4)),
    ],
)
def test_the_first_difference_names_request_position_and_both_tokens(
    without: list[int], difference: TokenDifference
) -> None:
    with_mtp = {"a": [7], "b": [1, 2, 3], "c": [5]}
    assert compare_tokens(2, with_mtp, {"a": [7], "b": without, "c": [6]}) == MtpAccuracy(
        2, 3, 5, 2, difference
    )


def test_a_report_says_that_mtp_changes_tokens_and_fails(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    write_requests(run.requests, request("request-0", [10, 20]))
    run.mtp_accuracy.write_bytes(
        msgspec.json.encode(MtpAccuracy(1, 1, 2, 1, TokenDifference("request-0", 1, 2, None)))
    )
    report = analyze([tmp_path])
    verdict = judge(report)
    assert (verdict.exit_code, verdict.reason) == (
        1,
        "MTP changes the tokens of 1 of 1 request: first: request-0, output position 1: token 2 with MTP, the end "
        "without",
    )
    run.mtp_accuracy.write_bytes(msgspec.json.encode(MtpAccuracy(1, 1, 2, 0, None)))
    report = analyze([tmp_path])
    assert judge(report).exit_code == 0
    assert [f.title for f in report.findings if f.code == "mtp_accuracy"] == [
        "MTP on and off generate the same tokens"
    ]
    run.mtp_accuracy.write_text("{}")
    assert judge(analyze([tmp_path])).exit_code == 4
