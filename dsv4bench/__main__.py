"""`python -m dsv4bench`."""

from dsv4bench.cli import main

main()
