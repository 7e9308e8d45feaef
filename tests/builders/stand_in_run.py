"""Stands in for the dsv4bench command in tests of the pytest plugin: its runs take the time per token that is asked.

    python stand_in_run.py run PROFILE --out DIR [--set KEY=VALUE ...]

STAND_IN_TPOT_MS is a comma list of times: the n-th run takes the n-th, counted in the file STAND_IN_COUNTER; `fail` is a
run that fails. STAND_IN_SLEEP_S prolongs a run; STAND_IN_LOG is a file that gets a line when a run begins and when it
ends. It imports little, since tests make many runs.
"""

import json
import os
import sys
import time
from pathlib import Path


def main() -> int:
    words = sys.argv[1:]
    directory = Path(words[words.index("--out") + 1])
    directory.mkdir(parents=True)
    counter = Path(os.environ["STAND_IN_COUNTER"])
    made = len(counter.read_text()) if counter.exists() else 0
    with counter.open("a") as file:
        file.write(".")
    log("begin")
    time.sleep(float(os.environ.get("STAND_IN_SLEEP_S", "0")))
    log("end")
    times = os.environ["STAND_IN_TPOT_MS"].split(",")
    asked = times[made % len(times)]
    if asked == "fail":
        print("dsv4bench: rank 3 was killed by SIGKILL", file=sys.stderr)
        return 1
    overrides = " ".join(words[i + 1] for i, word in enumerate(words) if word == "--set")
    manifest = {
        "schema_version": 2,
        "tool_version": "0",
        "status": "complete",
        "profile": {"name": words[1], "engine": {"ranks": 1, "depth": 2, "other": overrides}},
        "argv": sys.argv,
        "versions": {"python": "3"},
        "host": {"hostname": "h", "processor": "p", "cores": 2},
        "git": {},
        "device_map": [],
        "clocks": {},
        "timing": {"started_ns": 0},
    }
    request = {
        "request_id": "r",
        "rank": 0,
        "prompt_token_ids": [1],
        "output_token_ids": [5, 6, 7],
        "send_ns": 0,
        "token_times_ns": [1_000_000 + i * round(float(asked) * 1e6) for i in range(3)],
        "finish_reason": "length",
    }
    (directory / "run.json").write_text(json.dumps(manifest))
    (directory / "requests.jsonl").write_text(json.dumps(request) + "\n")
    return 0


def log(event: str) -> None:
    if path := os.environ.get("STAND_IN_LOG"):
        with Path(path).open("a") as file:
            file.write(f"{event} {os.getpid()}\n")


if __name__ == "__main__":
    sys.exit(main())
