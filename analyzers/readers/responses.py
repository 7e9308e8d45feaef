"""The files of answers that upstream's profiling leaves: responses.json, a completion response, performance_summary.json."""

from __future__ import annotations

from typing import Any, Literal

from analyzers.readers.files import OpenedFile
from analyzers.readers.json_objects import decode_text, skip_space, value_at
from analyzers.readers.load_report import IssueCounter, LoadReport
from analyzers.readers.statements import (
    BATCH_KEYS,
    Fact,
    StatedBatch,
    StatementFile,
    Statements,
    batch_of_summary,
    is_count,
)

_RESPONSE_KEYS = frozenset({"token_ids", "completion_tokens"})


def looks_like(opened: OpenedFile) -> bool:
    """Whether a file begins with answers: an array of them, the answer to one request, or the summary of a batch."""
    text = opened.first_megabyte().decode("utf-8-sig", errors="replace").lstrip()
    if text.startswith("["):
        first = value_at(text, skip_space(text, 1))
        return first is not None and _is_response(first[0])
    found = value_at(text, 0) if text.startswith("{") else None
    return found is not None and isinstance(found[0], dict) and _shape(found[0]) is not None


def read(opened: OpenedFile) -> StatementFile:
    """Read one of these files; anything else that stands in it is counted as lost."""
    document = _document(opened)
    if isinstance(document, list):
        return _file(opened, len(document), _of_responses(document, opened))
    if isinstance(document, dict):
        match _shape(document):
            case "completion":
                return _file(opened, 1, _of_completion(document, opened))
            case "summary":
                batch = batch_of_summary(document, opened.issues)
                return _file(opened, 1, Statements(opened.name, batches=(batch,)))
    if not opened.issues.lost("malformed"):
        opened.issues.add("malformed", "neither answers nor the summary of a batch", lost=1)
    return _file(opened, 1, Statements(opened.name))


def _shape(record: dict[str, Any]) -> Literal["completion", "summary"] | None:
    if "choices" in record and "usage" in record:
        return "completion"
    return None if BATCH_KEYS.isdisjoint(record) else "summary"


def _of_responses(items: list[Any], opened: OpenedFile) -> Statements:
    """How many requests there were, and their tokens."""
    outputs = [_output_tokens(item, opened.issues) for item in items]
    prompts = [item.get("prompt_tokens") if isinstance(item, dict) else None for item in items]
    batch = StatedBatch(len(items), _all_known(prompts), _all_known(outputs))
    return Statements(opened.name, batches=(batch,) if items else ())


def _of_completion(record: dict[str, Any], opened: OpenedFile) -> Statements:
    """What the `usage` of one answer says."""
    usage = record.get("usage")
    known = usage if isinstance(usage, dict) else {}
    prompt = _count(known, "prompt_tokens", opened.issues)
    output = _count(known, "completion_tokens", opened.issues)
    facts: list[Fact] = []
    if isinstance(identity := record.get("id"), str):
        facts += [Fact(identity, "prompt_tokens", prompt)] if prompt is not None else []
        facts += [Fact(identity, "output_tokens", output)] if output is not None else []
    # One answer does not say how many requests there were.
    batch = StatedBatch(None, _all_known([prompt]), _all_known([output]))
    return Statements(opened.name, tuple(facts), (batch,))


def _document(opened: OpenedFile) -> Any:
    """The JSON value that the file is; None, counted as lost, where it is none."""
    text = decode_text(opened.whole(), opened.issues)
    start = skip_space(text, 0)
    found = value_at(text, start)
    if found is None:
        opened.issues.add("malformed", "no whole JSON document", lost=1)
        return None
    if text[found[1] :].strip():
        opened.issues.add("trailing_data", f"byte {len(text[: found[1]].encode())}", lost=1)
    return found[0]


def _is_response(value: object) -> bool:
    return isinstance(value, dict) and "ph" not in value and not _RESPONSE_KEYS.isdisjoint(value)


def _output_tokens(item: object, issues: IssueCounter) -> int | None:
    """The tokens of one answer: its ids are counted, and a number beside them must be the same."""
    if not isinstance(item, dict):
        issues.add("bad_statement", "an answer that is no object", lost=1)
        return None
    ids, stated = item.get("token_ids"), _count(item, "completion_tokens", issues)
    if not isinstance(ids, list):
        return stated
    if stated is not None and stated != len(ids):
        where = f"answer {item.get('index')}: {len(ids)} token_ids, completion_tokens {stated}"
        issues.add("bad_statement", where, lost=1)
        return None
    return len(ids)


def _count(record: dict[str, Any], key: str, issues: IssueCounter) -> int | None:
    value = record.get(key)
    if value is None:
        return None
    if not is_count(value):
        issues.add("bad_statement", key, lost=1)
        return None
    return int(value)


def _all_known(values: list[Any]) -> tuple[int, ...] | None:
    """The values, where every request has one: a sum over some of them would be no total."""
    return tuple(values) if values and all(map(is_count, values)) else None


def _file(opened: OpenedFile, records: int, statements: Statements) -> StatementFile:
    issues = opened.issues.issues()
    lost = sum(issue.lost for issue in issues)
    report = LoadReport(
        path=opened.name,
        format="statements",
        records=max(records, lost),
        parsed=max(0, records - lost),
        issues=issues,
    )
    return StatementFile(statements, report)
