"""Errors that an input can cause: what was wrong, where, and what to do. Each carries its exit code."""


class AnalyzerError(Exception):
    """Base of every error that a user's input can cause in the analyzers."""

    exit_code = 2


class UnusableInputError(AnalyzerError):
    """A path that cannot be read, or whose content is no trace at all."""

    exit_code = 2


class NoDataError(AnalyzerError):
    """The input was read but holds nothing to measure."""

    exit_code = 3


class InvalidDataError(AnalyzerError):
    """The input holds records that contradict themselves, so that no figure can be made of them."""

    exit_code = 4


class NotComparableError(AnalyzerError):
    """Two measurements cannot be compared, or too few of them decide: the gate fails closed."""

    exit_code = 5
