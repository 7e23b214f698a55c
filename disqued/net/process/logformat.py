"""Logs: lines for people on a terminal and in the journal of systemd, one JSON object a line everywhere else.

    {"time": "2026-01-02T03:04:05.678Z", "level": "info", "logger": "disqued.net.process.daemon", "message": "Ready"}

An event with a failure has its traceback in "traceback".  In the journal each line, of either form, has its priority
(`journald`), and those for people have no time: the journal has one.  What the libraries tell of themselves (which
reactor, which port) is below notice: the daemon says the same in the operator's words.

SIGHUP opens the log file anew, among others, so that logrotate may move it away:

    mv log log.1; kill -HUP pid      later lines go to a new file `log`

Source of the levels: Disque's `loglevel`.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from types import FrameType
from typing import IO, Any

from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    Logger,
    LogLevel,
    LogLevelFilterPredicate,
    formatEvent,
    textFileLogObserver,
)
from zope.interface import implementer

from disqued.config import Config
from disqued.net.process.journald import JournalLines, as_people_read

LEVELS = {"debug": LogLevel.debug, "verbose": LogLevel.info, "notice": LogLevel.info, "warning": LogLevel.warn}
#: Where Twisted, and what was written for its older log, log to; heard from notice on only when something is wrong.
LIBRARIES = ("twisted", "log_legacy")

log = Logger()


@implementer(ILogObserver)
class JsonLines:
    """Writes each event as one JSON object on one line."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def __call__(self, event: LogEvent) -> None:
        """Write an event."""
        self._out.write(as_json(event) + "\n")
        self._out.flush()


def as_json(event: LogEvent) -> str:
    """An event as a JSON object."""
    stamp = datetime.fromtimestamp(event["log_time"], UTC).isoformat(timespec="milliseconds")
    line: dict[str, Any] = {
        "time": stamp.replace("+00:00", "Z"),
        "level": event["log_level"].name,
        "logger": event.get("log_namespace", ""),
        "message": formatEvent(event),
    }
    if "log_failure" in event:
        line["traceback"] = event["log_failure"].getTraceback()
    return json.dumps(line)


def open_log(config: Config) -> IO[str]:
    """Open what `logfile` names; standard output without one.  Raises OSError."""
    if config.logfile is None:
        return sys.stdout
    return open(config.logfile, "a", encoding="utf-8", errors="backslashreplace")


def observer(config: Config, out: IO[str], *, to_journal: bool = False) -> ILogObserver:
    """Make the log that the settings ask for; `loglevel` is followed while the daemon runs.

    With `to_journal` it is journald that reads what is written to `out`.
    """
    human = config.log_format == "human" or (config.log_format == "auto" and (to_journal or out.isatty()))
    write: ILogObserver
    if to_journal:
        write = JournalLines(out, as_people_read if human else as_json)
    else:
        write = textFileLogObserver(out) if human else JsonLines(out)
    levels = LogLevelFilterPredicate()

    def follow(name: str) -> None:
        levels.setLogLevelForNamespace("", LEVELS[name])
        for library in LIBRARIES:
            levels.setLogLevelForNamespace(library, LogLevel.warn if name == "notice" else LEVELS[name])

    follow(config.loglevel)
    config.subscribe("loglevel", follow)
    return FilteringLogObserver(write, [levels])


def follow_hangups(reactor: Any, *acts: Callable[[], None]) -> None:
    """Do these, one after the other, at each SIGHUP, which would end the process otherwise.

    They happen in the loop, not in the handler of the signal, and one that fails keeps none from its turn.
    """

    def hang_up(number: int, frame: FrameType | None) -> None:
        for act in acts:
            reactor.callFromThread(act)

    signal.signal(signal.SIGHUP, hang_up)


def reopen(config: Config, out: IO[str]) -> None:
    """Go on in a new file where the old one was moved away; `out` stays the object that it is."""
    path = config.logfile
    if path is None:
        log.info("SIGHUP: the log goes to standard output, there is no file to open anew")
        return
    out.flush()
    try:
        new = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        reason = error.strerror
        log.error(
            "SIGHUP: {path} cannot be opened, the log goes on in the old file: {reason}", path=path, reason=reason
        )
        return
    os.dup2(new, out.fileno(), inheritable=False)
    os.close(new)
    log.info("SIGHUP: the log file {path} was opened anew", path=path)
