"""Whether speculation changes what is generated: the same requests with MTP on and off, token for token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from analyzers.rundir import MtpAccuracy, TokenDifference


def compare_tokens(
    speculative_tokens: int, with_mtp: Mapping[str, Sequence[int]], without_mtp: Mapping[str, Sequence[int]]
) -> MtpAccuracy:
    """Compare the output tokens of the same requests, by request id.

    Where one output is the beginning of the other, they differ at its end: a token is None there. The first
    difference is that of the first request in the order of `with_mtp`.
    """
    differences = [
        difference
        for request_id, tokens in with_mtp.items()
        if (difference := _first_difference(request_id, tokens, without_mtp[request_id])) is not None
    ]
    return MtpAccuracy(
        mtp=speculative_tokens,
        requests=len(with_mtp),
        tokens=sum(map(len, with_mtp.values())),
        different_requests=len(differences),
        first_difference=differences[0] if differences else None,
    )


def _first_difference(
    request_id: str, with_mtp: Sequence[int], without_mtp: Sequence[int]
) -> TokenDifference | None:
    for position, (first, second) in enumerate(zip_longest(with_mtp, without_mtp)):
        if first != second:
            return TokenDifference(request_id, position, first, second)
    return None
