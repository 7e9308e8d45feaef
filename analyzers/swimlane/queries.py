"""Questions for Perfetto's trace_processor about a swimlane (docs/swimlane.md), and how they are put to it.

They read the standard tables: slice, track, args, counter, counter_track, flow.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from analyzers.errors import UnusableInputError

BINARY_VARIABLE = "TRACE_PROCESSOR"
_TIMEOUT_S = 120

STEP_LATENCY = """
SELECT EXTRACT_ARG(submit.arg_set_id, 'debug.step_id') AS step_id,
       wait.ts + wait.dur - submit.ts AS submit_to_completion_ns
FROM slice AS submit JOIN slice AS wait
  ON EXTRACT_ARG(submit.arg_set_id, 'debug.dispatch_id') = EXTRACT_ARG(wait.arg_set_id, 'debug.dispatch_id')
WHERE submit.name LIKE '%.worker_submit' AND wait.name LIKE '%.worker_wait'
ORDER BY submit.ts
"""

RANKS_OF_A_STEP = """
SELECT EXTRACT_ARG(slice.arg_set_id, 'debug.step_id') AS step_id, parent.name AS rank,
       slice.ts, slice.dur
FROM slice JOIN track ON slice.track_id = track.id JOIN track AS parent ON track.parent_id = parent.id
WHERE slice.name = 'chip.run.runner_run' AND step_id IS NOT NULL
ORDER BY step_id, slice.ts
"""

SKEW = """
SELECT counter.ts, counter.value AS runner_end_skew_ns
FROM counter JOIN counter_track ON counter.track_id = counter_track.id
WHERE counter_track.name = 'runner-end skew (ns)'
ORDER BY counter.value DESC LIMIT 10
"""

FLOWS = """
SELECT source.name AS leaves, target.name AS arrives, COUNT(*) AS n
FROM flow JOIN slice AS source ON flow.slice_out = source.id JOIN slice AS target ON flow.slice_in = target.id
GROUP BY leaves, arrives ORDER BY leaves, arrives
"""

OVERLAPS = """
SELECT a.name AS first, b.name AS second, track.name AS track
FROM slice AS a JOIN slice AS b ON a.track_id = b.track_id JOIN track ON track.id = a.track_id
WHERE a.ts < b.ts AND b.ts < a.ts + a.dur AND a.ts + a.dur < b.ts + b.dur
"""

QUERIES: Mapping[str, str] = {
    "submit-to-completion of every step": STEP_LATENCY,
    "runners of every step, rank by rank": RANKS_OF_A_STEP,
    "the ten largest runner-end skews": SKEW,
    "flows between submit, runners and wait": FLOWS,
    "slices that overlap without nesting (none)": OVERLAPS,
}


def ask(binary: Path, trace: Path, query: str) -> str:
    """The answer of the trace_processor `binary` to one query about `trace`, as it prints it.

    Raises:
        UnusableInputError: the binary cannot be run, fails, or does not answer in two minutes.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(query)
        file.flush()
        try:
            answer = subprocess.run(
                [binary, "-q", file.name, trace],
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnusableInputError(f"{binary}: cannot be asked: {error}") from error
    if answer.returncode:
        reason = answer.stderr.strip().splitlines()
        raise UnusableInputError(
            f"{binary}: exit code {answer.returncode}: {reason[-1] if reason else 'no reason'}"
        )
    return answer.stdout
