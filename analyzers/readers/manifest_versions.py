"""`run.json` of every schema version, as the `Manifest` of this one.

Version 1 kept the machine as texts by key in `host`: facts and, with `_end` behind the name where the run had ended,
how it was; what was not known was left out. It is made into the records of version 2 here and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from analyzers.machine import MachineFacts, MachineState, NoLimit
from analyzers.rundir import Manifest
from analyzers.text.documents import RepeatedKeyError, read_unambiguous_json

_HOST_IN_TEXTS = 1
_NO_LIMIT: NoLimit = "none"


def decode_manifest(content: bytes) -> Manifest:
    """Decode `run.json`.

    Raises:
        msgspec.DecodeError: it is no manifest.
    """
    try:
        document = read_unambiguous_json(content.decode())
    except RepeatedKeyError as error:
        raise msgspec.ValidationError(str(error)) from error
    except (ValueError, RecursionError):
        document = msgspec.json.decode(content)
    if isinstance(document, dict) and document.get("schema_version") == _HOST_IN_TEXTS:
        document |= _host_of_texts(msgspec.convert(document, _HostInTexts).host)
    return msgspec.convert(document, Manifest)


class _HostInTexts(msgspec.Struct):
    host: dict[str, str]


def _host_of_texts(texts: Mapping[str, str]) -> dict[str, Any]:
    facts = MachineFacts(
        hostname=texts.get("hostname"),
        processor=texts.get("processor"),
        architecture=texts.get("machine"),
        cores=_integer(texts.get("cores")),
        memory_bytes=_integer(texts.get("memory_bytes")),
        governor=texts.get("governor"),
        kernel=texts.get("kernel"),
        cpu_limit_cores=_NO_LIMIT if texts.get("cpu_limit") == _NO_LIMIT else _number(texts.get("cpu_limit")),
        memory_limit_bytes=(
            _NO_LIMIT if texts.get("memory_limit") == _NO_LIMIT else _integer(texts.get("memory_limit"))
        ),
        device=texts.get("device"),
        driver=texts.get("driver"),
    )
    states = {"host_before": _state_of_texts(texts, ""), "host_after": _state_of_texts(texts, "_end")}
    return {key: msgspec.structs.asdict(record) for key, record in ({"host": facts} | states).items()}


def _state_of_texts(texts: Mapping[str, str], suffix: str) -> MachineState:
    def number(key: str) -> float | None:
        return _number(texts.get(key + suffix))

    loads = [_number(text) for text in texts.get("load_average" + suffix, "").split()]
    one, five, fifteen = [*loads[:3], None, None, None][:3]
    megahertz, throttled = number("cpu_mhz"), number("throttle_count")
    return MachineState(
        sampled_s=number("sampled_s"),
        load_average_1min=one,
        load_average_5min=five,
        load_average_15min=fifteen,
        busy_s=number("busy_s"),
        own_cpu_s=number("own_cpu_s"),
        steal_s=number("steal_s"),
        frequency_hz=megahertz * 1e6 if megahertz is not None else None,
        temperature_celsius=number("temperature_c"),
        throttle_count=int(throttled) if throttled is not None else None,
        quota_throttled_s=number("quota_throttled_s"),
        cpu_pressure_s=number("cpu_pressure_s"),
    )


def _number(text: str | None) -> float | None:
    """The number in a text; None where there is none: the machine did not say."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
