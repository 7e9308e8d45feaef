"""Records of requests (requests.jsonl). Times are in ns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from analyzers.rundir import RequestRecord


def request(request_id: str, times: Sequence[int], **fields: Any) -> RequestRecord:
    """A request that rank 0 was sent at 0 and whose tokens arrived at `times`, with `fields` in place of its own."""
    plain = RequestRecord(request_id, 0, [1, 2], list(range(len(times))), 0, list(times), "length")
    return msgspec.structs.replace(plain, **fields)


def write_requests(path: Path, *records: RequestRecord) -> Path:
    """Write a record a line to `path`."""
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    return path
