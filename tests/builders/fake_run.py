"""A command that leaves a small run directory at once: `fake_run.py --tpot 10 --out DIR`. Standard library only.

Its runs are named by the directory: `.../run-03` is the third one, and a little noise follows from the number. With
`--counter FILE`, which counts the runs, the n-th run takes exactly the n-th of `--tpot 10,10.1,fail`; `fail` fails.
It stands in for dsv4bench itself too: the words of `run PROFILE` in front are taken and ignored.
"""

import argparse
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("words", nargs="*")
parser.add_argument("--tpot", default="10", help="ms; with --counter one for each run in turn")
parser.add_argument("--counter", type=Path)
parser.add_argument("--events", type=Path, help="append a line when a run begins and when it ends")
parser.add_argument("--noise", type=float, default=1.0, help="what the noise is multiplied by")
parser.add_argument("--per-step", type=int, default=1, help="tokens of a step")
parser.add_argument("--set", action="append", default=[])
parser.add_argument("--server", help="kept in the run directory, with the overrides of it")
parser.add_argument("--fail-in", default="", help="names of the runs that exit with code 1")
parser.add_argument("--hang-in", default="")
parser.add_argument("--log", type=Path, help="append the name of the run here")
parser.add_argument("--empty", action="store_true")
arguments = parser.parse_args()

place = arguments.out.name
side = arguments.out.parent.name
if arguments.log:
    with arguments.log.open("a") as log:
        log.write(f"{side}/{place}\n")
print(f"fake run of {side}/{place}, PYTHONPATH={os.environ.get('PYTHONPATH', '')}", flush=True)
if place in arguments.fail_in.split(","):
    sys.exit("the fake device is on fire")
if place in arguments.hang_in.split(","):
    child = os.fork()
    if child:
        (arguments.out.parent / "hanging").write_text(f"{os.getpid()} {child}")
    else:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    time.sleep(60)
if arguments.empty:
    sys.exit(0)

times_of_runs, turn = arguments.tpot.split(","), 0
if arguments.counter:
    turn = arguments.counter.stat().st_size if arguments.counter.exists() else 0
    with arguments.counter.open("a") as counter:
        counter.write(".")
if arguments.events:
    for event in ("begin", "end"):
        with arguments.events.open("a") as events:
            events.write(f"{event} {os.getpid()}\n")
        time.sleep(0.05)
tpot = times_of_runs[turn % len(times_of_runs)]
if tpot == "fail":
    sys.exit("the fake device is on fire")

number = int(re.sub(r"\D", "", place) or 0)
# Five values in turn, one per mille apart: noise without chance.
noise = 0 if arguments.counter else arguments.noise * (number * 3 % 5 - 2) / 1000
step_ns = round(float(tpot) * arguments.per_step * (1 + noise) * 1e6)
arguments.out.mkdir(parents=True)
if arguments.server:
    (arguments.out / "server.json").write_text(json.dumps([arguments.server, *arguments.set]))
profile: dict[str, Any] = {
    "name": "fake",
    "engine": {"depth": 2},
    "load": {"requests": 1, "output_tokens": 20},
}
for setting in (text for text in arguments.set if not text.startswith("server.")):
    key, _, value = setting.partition("=")
    section, _, name = key.partition(".")
    profile[section][name] = json.loads(value)
manifest = {
    "schema_version": 2,
    "tool_version": "0",
    "status": "complete",
    "profile": profile,
    "argv": sys.argv,
    "versions": {},
    "host": {"processor": "fake", "cores": 2, "memory_bytes": 1073741824},
    "git": {},
    "device_map": [],
    "clocks": {},
    "timing": {"started_ns": 0},
}
(arguments.out / "run.json").write_text(json.dumps(manifest))
# No two runs happen at one time.
send_ns = time.monotonic_ns()
times = [send_ns + 5_000_000 + (token // arguments.per_step) * step_ns for token in range(20)]
request = {
    "request_id": "request-0",
    "rank": 0,
    "prompt_token_ids": [1, 2],
    "output_token_ids": list(range(20)),
    "send_ns": send_ns,
    "token_times_ns": times,
    "finish_reason": "length",
}
(arguments.out / "requests.jsonl").write_text(json.dumps(request) + "\n")
