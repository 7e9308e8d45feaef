"""The server's log: on stderr, in the words and the form of upstream's server."""

from __future__ import annotations

import copy
import logging
import logging.config
import sys
from typing import Any

from uvicorn.config import LOGGING_CONFIG

_QUIET_PATHS = frozenset({"/health", "/metrics", "/metrics/json"})
"""What monitors ask all the time: logged only where it fails."""


class QuietPaths(logging.Filter):
    """Keeps successful requests for `_QUIET_PATHS` out of the access log."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record of an answer is logged."""
        arguments = record.args
        if not isinstance(arguments, tuple) or len(arguments) < 5:
            return True
        path, status = str(arguments[2]).partition("?")[0], arguments[4]
        return not (path in _QUIET_PATHS and isinstance(status, int) and status < 300)


def log_to_stderr() -> dict[str, Any]:
    """Configure the log of this process; returns uvicorn's part of it for its own settings."""
    config: dict[str, Any] = copy.deepcopy(LOGGING_CONFIG)
    config["filters"] = {"quiet": {"()": QuietPaths}}
    config["handlers"]["access"]["filters"] = ["quiet"]
    for handler in config["handlers"].values():
        handler["stream"] = sys.stderr
    config["loggers"]["dsv4bench"] = {"handlers": ["default"], "level": "INFO", "propagate": False}
    for formatter in config["formatters"].values():
        formatter["use_colors"] = False
    logging.config.dictConfig(config)
    return config
