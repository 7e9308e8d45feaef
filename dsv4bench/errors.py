"""Errors a user can meet, each with its exit code. A traceback reaches a user only for our bugs."""


class Dsv4benchError(Exception):
    """Base of every error that a user can cause: says what was wrong, where, and what to do next."""

    exit_code = 2


class UsageError(Dsv4benchError):
    """Bad usage: an unknown profile or key, an impossible value, an unwritable place."""

    exit_code = 2


class EngineError(Dsv4benchError):
    """The engine failed while it ran."""

    exit_code = 1


class RunInterruptedError(Dsv4benchError):
    """The user ended a run early; what was measured so far is kept."""

    exit_code = 130


class RankError(EngineError):
    """A rank process died, hung or raised; the message names the rank and the cause."""
