"""What a manifest says of its machine, and what is warned of when the machine moved between runs."""

import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from analyzers.gate.machine import Conditions, busy_before, conditions_between, fingerprint, what_moved
from analyzers.machine import MachineFacts, MachineState
from dsv4bench.run import environment
from dsv4bench.run.environment import machine_facts
from dsv4bench.run.machine import machine_state

HOST = MachineFacts(
    hostname="one", processor="EPYC", cores=4, memory_bytes=16 * 2**30 - 5_000_000, device="none"
)
VERSIONS = {"python": "3.11.7", "torch": "2.13.0", "dsv4bench": "0.1.0"}


def test_the_fingerprint_names_the_machine_and_not_the_host_or_the_candidate() -> None:
    text = fingerprint(HOST, VERSIONS)
    assert text == "processor=EPYC; cores=4; memory=16 GiB; device=none; python=3.11.7; torch=2.13.0"
    other = msgspec.structs.replace(HOST, hostname="two")
    assert fingerprint(other, {**VERSIONS, "dsv4bench": "0.2.0"}) == text


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ((None, None), ""),
        (("none", "none"), "cpu_limit=none; memory_limit=none"),
        ((2.0, 2**30), "cpu_limit=2; memory_limit=1073741824"),
        ((1.5, None), "cpu_limit=1.5"),
    ],
)
def test_a_limit_that_nobody_knows_is_told_from_none(limits: tuple[Any, Any], text: str) -> None:
    assert fingerprint(MachineFacts(cpu_limit_cores=limits[0], memory_limit_bytes=limits[1]), {}) == text


def test_every_fact_but_the_host_name_names_the_machine() -> None:
    here = machine_facts()
    name = fingerprint(here, {})
    assert None not in msgspec.structs.asdict(here).values()
    for fact in msgspec.structs.asdict(here):
        unknown = msgspec.structs.replace(here, **{fact: None})
        assert (fingerprint(unknown, {}) == name) == (fact == "hostname"), fact


def test_facts_and_state_of_this_machine_round_trip() -> None:
    for record in (machine_facts(), machine_state()):
        assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record


def test_conditions_are_shares_of_the_cores_between_begin_and_end() -> None:
    begin = MachineState(
        sampled_s=100, load_average_1min=0.5, busy_s=10, own_cpu_s=1, steal_s=0, frequency_hz=2e9,
        temperature_celsius=50, throttle_count=2,
    )  # fmt: skip
    end = MachineState(
        sampled_s=110, load_average_1min=3.5, busy_s=36, own_cpu_s=17, steal_s=2, frequency_hz=3e9,
        temperature_celsius=45, throttle_count=5,
    )  # fmt: skip
    # 10 s on 4 cores are 40 s; others: 26 - 16 = 10 of them, the hypervisor 2.
    assert conditions_between(HOST, begin, end, "base run 1") == Conditions(
        "base run 1", 4, 0.5, others=0.25, steal=0.05, frequency_hz=2.5e9, temperature_celsius=50, throttled=3
    )


def test_a_machine_that_says_nothing_gives_no_conditions() -> None:
    assert conditions_between(MachineFacts(), MachineState(), MachineState(), "run") == Conditions("run")


def test_processes_that_the_run_did_not_count_are_never_a_negative_share() -> None:
    begin = MachineState(sampled_s=0, busy_s=0, own_cpu_s=0)
    end = MachineState(sampled_s=1, busy_s=1, own_cpu_s=1.5)
    assert conditions_between(HOST, begin, end, "run").others == 0


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (
            [Conditions("a", 2, load=0.9), Conditions("b", 2, load=5.0)],
            [],
        ),  # later on it is the runs' own load
        (
            [Conditions("a", others=0.09), Conditions("b", others=0.3), Conditions("c", others=0.2)],
            ["other processes used up to 30% of the cores (b; more than 10% in 2 of 3 runs)"],
        ),
        (
            [Conditions("a", steal=0.03)],
            ["the hypervisor gave up to 3% of the cores to others (a; more than 2% in 1 of 1 runs)"],
        ),
        (
            [Conditions("a", quota=0.5)],
            [
                "the container's processor limit held a run back for up to 50% of it (a; more than 2% in 1 of 1 runs)"
            ],
        ),
        (
            [Conditions("a", frequency_hz=2.0e9), Conditions("b", frequency_hz=2.15e9)],
            ["the processor's frequency moved from 2000 to 2150 MHz between runs"],
        ),
        ([Conditions("a", frequency_hz=2.0e9), Conditions("b", frequency_hz=2.05e9)], []),
        (
            [Conditions("a", temperature_celsius=50), Conditions("b", temperature_celsius=70)],
            ["the temperature moved from 50 to 70 °C between runs"],
        ),
        (
            [Conditions("a", throttled=0), Conditions("b", throttled=3)],
            ["the processor was throttled for its temperature in b"],
        ),
        ([], []),
    ],
)
def test_what_moved(runs: list[Conditions], expected: list[str]) -> None:
    assert what_moved(runs) == expected


def test_a_machine_is_busy_above_half_a_task_a_core() -> None:
    assert busy_before(Conditions("a", 2, load=1.0)) is None
    assert busy_before(Conditions("a")) is None
    assert (
        busy_before(Conditions("a", 2, load=1.1))
        == "the machine was busy before a: load average 1.10 on 2 cores"
    )


def test_time_passes_between_two_states() -> None:
    first, second = machine_state(), machine_state()
    for time in ("sampled_s", "own_cpu_s"):
        assert getattr(second, time) >= getattr(first, time)


@pytest.mark.parametrize(
    ("tool", "output", "expected"),
    [
        ("nvidia-smi", "A card, 550.1\nA card, 550.1\n", ("2 x A card", "550.1")),
        (
            "npu-smi",
            "| npu-smi 24.1.rc2   Version: 24.1.rc2 |\n"
            "| NPU   Name  | Health | Power(W) |\n"
            "| 0     910B3 | OK     | 92.5     |\n"
            "| 0           | 0000:C1:00.0 | 0  |\n"
            "| 1     910B3 | OK     | 92.5     |\n",
            ("2 x 910B3", "24.1.rc2"),
        ),
    ],
)
def test_devices_are_named_by_their_own_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, output: str, expected: Any
) -> None:
    script = tmp_path / tool
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{output}END\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert environment._device() == expected


def test_without_a_tool_there_is_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment._device() == ("none", "none")
