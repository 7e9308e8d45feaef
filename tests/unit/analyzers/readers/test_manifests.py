"""`run.json` of every schema version: the machine as numbers, whatever form it was written in."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from analyzers.gate.comparability import machine_name
from analyzers.gate.machine import Conditions, conditions_of
from analyzers.machine import MachineFacts, MachineState
from analyzers.readers.manifest import DamagedManifestError, read_manifest
from analyzers.readers.manifest_versions import decode_manifest
from analyzers.rundir import SCHEMA_VERSION, Manifest, RankProcess, RunTiming

TEXTS = {
    "hostname": "host", "kernel": "6.1", "machine": "x86_64", "processor": "cpu", "cores": "2",
    "memory_bytes": "25276510208", "governor": "none", "cpu_limit": "1.5", "memory_limit": "none",
    "device": "none", "driver": "none", "load_average": "4.89 6.09 6.34", "sampled_s": "6535.500",
    "own_cpu_s": "1.250", "busy_s": "4030.000", "steal_s": "26.500", "cpu_mhz": "2445.422",
    "cpu_pressure_s": "1569.405", "throttle_count": "3.000", "temperature_c": "45.000",
    "load_average_end": "4.90 6.05 6.33", "sampled_s_end": "6543.500", "own_cpu_s_end": "5.750",
    "busy_s_end": "4045.500", "steal_s_end": "27.000", "cpu_mhz_end": "2445.422", "throttle_count_end": "4.000",
    "cpu_pressure_s_end": "1576.009",
}  # fmt: skip
FACTS = MachineFacts(
    hostname="host", processor="cpu", architecture="x86_64", cores=2, memory_bytes=25276510208, governor="none",
    kernel="6.1", cpu_limit_cores=1.5, memory_limit_bytes="none", device="none", driver="none",
)  # fmt: skip


def version_1(host: object) -> bytes:
    document: dict[str, Any] = {
        "schema_version": 1, "tool_version": "0", "status": "complete", "profile": {}, "argv": [],
        "versions": {"python": "3.11"}, "host": host, "git": {}, "device_map": [], "clocks": {},
        "timing": {"started_ns": 0},
    }  # fmt: skip
    return json.dumps(document).encode()


def manifest(**fields: Any) -> Manifest:
    return Manifest(
        schema_version=SCHEMA_VERSION,
        tool_version="0",
        status="complete",
        profile={"name": "toy"},
        argv=["run"],
        versions={},
        git={},
        device_map=[RankProcess(0, 11, "cpu:0")],
        clocks={},
        timing=RunTiming(5),
        **fields,
    )


def test_a_manifest_round_trips() -> None:
    state = MachineState(sampled_s=1.25, load_average_1min=0.5, frequency_hz=2.4e9, throttle_count=0)
    written = manifest(host=FACTS, host_before=state)
    assert decode_manifest(msgspec.json.encode(written)) == written


def test_what_is_not_known_is_null() -> None:
    document = json.loads(msgspec.json.encode(manifest(host=MachineFacts())))
    assert set(document["host"].values()) == {None}
    assert set(document["host_before"].values()) == set(document["host_after"].values()) == {None}


def test_texts_of_version_1_become_numbers() -> None:
    found = decode_manifest(version_1(TEXTS))
    assert found.host == FACTS
    assert found.host_before == MachineState(
        sampled_s=6535.5, load_average_1min=4.89, load_average_5min=6.09, load_average_15min=6.34, busy_s=4030.0,
        own_cpu_s=1.25, steal_s=26.5, frequency_hz=2445.422e6, temperature_celsius=45.0, throttle_count=3,
        cpu_pressure_s=1569.405,
    )  # fmt: skip
    assert found.host_after.temperature_celsius is None, "the machine did not say at the end"
    # 8 s on 2 cores are 16 s; others: 15.5 - 4.5 = 11 of them, the hypervisor half of one.
    assert conditions_of(found, "run") == Conditions(
        "run", 2, 4.89, others=11 / 16, steal=0.5 / 16, frequency_hz=2445.422e6, temperature_celsius=45.0,
        throttled=1,
    )  # fmt: skip


def test_both_forms_name_one_machine_as_before() -> None:
    name = (
        "processor=cpu; machine=x86_64; cores=2; memory=24 GiB; governor=none; kernel=6.1; cpu_limit=1.5; "
        "memory_limit=none; device=none; driver=none; python=3.11"
    )
    assert machine_name(decode_manifest(version_1(TEXTS))) == name
    assert machine_name(msgspec.structs.replace(manifest(host=FACTS), versions={"python": "3.11"})) == name


@pytest.mark.parametrize(
    "host",
    [{}, {"cores": "", "load_average": "", "cpu_limit": "", "memory_bytes": "many", "sampled_s": "nan"}],
)
def test_texts_without_a_number_say_nothing(host: dict[str, str]) -> None:
    found = decode_manifest(version_1(host))
    assert (found.host, found.host_before, found.host_after) == (
        MachineFacts(),
        MachineState(),
        MachineState(),
    )


@pytest.mark.parametrize("host", [{"cores": 2}, [], "here", None])
def test_a_host_of_something_else_is_no_manifest(host: object, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(version_1(host))
    with pytest.raises(DamagedManifestError, match=r"run\.json: not a manifest: .*host"):
        read_manifest(path)
