"""Where the tests find what is stored beside them."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
BUILDERS = REPOSITORY / "tests" / "builders"
CASES = REPOSITORY / "tests" / "cases" / "data"
"""Small damaged or tricky inputs, a folder each, named by number and topic."""
TRACES = CASES / "traces"
"""Real captures of the runtime; tests/cases/test_captures.py says what is true of each."""
SMOKE_RUN = REPOSITORY / "tests" / "properties" / "data" / "smoke-run"
"""The directory of a healthy run of the smoke profile: two ranks, two in flight, with requests and both traces."""
GOLDEN = REPOSITORY / "tests" / "golden"
