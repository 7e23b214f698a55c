"""Logs: lines for people on a terminal, one JSON object a line everywhere else.

    {"time": "2026-01-02T03:04:05.678Z", "level": "info", "logger": "disqued.net.daemon", "message": "Ready: 0 jobs"}

An event with a failure has its traceback in "traceback".  Source of the levels: Disque's `loglevel`.
"""

import json
import sys
from datetime import UTC, datetime
from typing import IO, Any

from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    formatEvent,
    textFileLogObserver,
)
from zope.interface import implementer

from disqued.config import Config

LEVELS = {
    "debug": LogLevel.debug,
    "verbose": LogLevel.info,
    "notice": LogLevel.info,
    "warning": LogLevel.warn,
}


@implementer(ILogObserver)
class JsonLines:
    """Writes each event as one JSON object on one line."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def __call__(self, event: LogEvent) -> None:
        """Write an event."""
        stamp = datetime.fromtimestamp(event["log_time"], UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": stamp.replace("+00:00", "Z"),
            "level": event["log_level"].name,
            "logger": event.get("log_namespace", ""),
            "message": formatEvent(event),
        }
        if "log_failure" in event:
            line["traceback"] = event["log_failure"].getTraceback()
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()


def open_log(config: Config) -> IO[str]:
    """Open what `logfile` names; standard output without one.  Raises OSError."""
    if config.logfile is None:
        return sys.stdout
    return open(config.logfile, "a", encoding="utf-8", errors="backslashreplace")


def observer(config: Config, out: IO[str]) -> ILogObserver:
    """Make the log that the settings ask for; `loglevel` is followed while the daemon runs."""
    human = config.log_format == "human" or (config.log_format == "auto" and out.isatty())
    levels = LogLevelFilterPredicate(defaultLogLevel=LEVELS[config.loglevel])
    config.subscribe("loglevel", lambda name: levels.setLogLevelForNamespace("", LEVELS[name]))
    return FilteringLogObserver(textFileLogObserver(out) if human else JsonLines(out), [levels])
