"""Libraries that only an optional extra brings. They are imported where they are needed and nowhere else."""

from __future__ import annotations

import importlib
from typing import Any

from analyzers.errors import UnusableInputError


class MissingExtraError(UnusableInputError):
    """A library that an optional extra brings is not installed."""


def library(name: str, extra: str, wanted_by: str) -> Any:
    """Import `name`, which the extra brings; `wanted_by` is the option or function that needs it, as people call it.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtraError(
            f"{wanted_by} needs {name}: install the extra, `pip install 'dsv4bench[{extra}]'`"
        ) from None
