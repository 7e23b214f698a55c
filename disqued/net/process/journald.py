"""Lines for the journal of systemd: each with its priority, so that `journalctl -p warning` finds what it is to find.

    event --text--> line 1 \\n line 2  --write-->  <4>line 1 \\n <4>line 2  --journald-->  two entries of priority 4

journald takes one stream of bytes from a service, a line for each entry, and knows of a line no more than what it says
itself.  So every line says it, those of a traceback, too.  A stream is journald's where JOURNAL_STREAM names its device
and its inode: the variable alone says nothing, as what logs elsewhere, and what a service starts, have it too.

Source: sd-daemon(3), systemd.exec(5).
"""

import os
from collections.abc import Callable, Mapping
from io import TextIOBase
from typing import IO, Any, Final

from twisted.logger import ILogObserver, LogEvent, LogLevel, eventAsText
from zope.interface import implementer

#: Of syslog(3), by the levels of Twisted; that of a daemon that cannot go on is not 0, which goes to every terminal.
PRIORITIES: Final = {
    LogLevel.debug: 7,
    LogLevel.info: 6,
    LogLevel.warn: 4,
    LogLevel.error: 3,
    LogLevel.critical: 2,
}


def is_journal(out: IO[str] | None, environment: Mapping[str, str]) -> bool:
    """Tell whether what is written to `out` goes to journald."""
    named = environment.get("JOURNAL_STREAM")
    if not named or out is None:
        return False
    try:
        found = os.fstat(out.fileno())
    except (OSError, ValueError):  # it is no file, or closed
        return False
    return named == f"{found.st_dev}:{found.st_ino}"


def as_people_read(event: LogEvent) -> str:
    """An event without its time, which the journal has; what belongs to its first line is indented."""
    return eventAsText(event, includeTimestamp=False).rstrip("\n").replace("\n", "\n\t")


@implementer(ILogObserver)
class JournalLines:
    """Writes events, each line with the priority of its event."""

    def __init__(self, out: IO[str], text: Callable[[LogEvent], str]) -> None:
        """`text` makes one line or several of an event, without the last line feed."""
        self._out = out
        self._text = text

    def __call__(self, event: LogEvent) -> None:
        """Write an event."""
        self._out.write(marked(self._text(event), PRIORITIES[event["log_level"]]))
        self._out.flush()


def marked(text: str, priority: int) -> str:
    """Lines of text, each with its priority; a zero byte, which would end a line as well, is shown."""
    if not text:
        return ""
    mark = f"<{priority}>"
    return mark + text.replace("\0", "\\x00").replace("\n", f"\n{mark}") + "\n"


class ErrorLines(TextIOBase):
    """Standard error for what is written there before the log begins: each line of it is an error."""

    def __init__(self, out: IO[str]) -> None:
        super().__init__()
        self._out = out
        self._is_within = False  #: the line at hand has its priority already

    def write(self, text: str) -> int:
        """Write text, which need not end with its line."""
        mark = f"<{PRIORITIES[LogLevel.error]}>"
        for line in text.splitlines(keepends=True):
            self._out.write(line if self._is_within else mark + line)
            self._is_within = not line.endswith("\n")
        return len(text)

    def flush(self) -> None:
        """Hand on what was written."""
        self._out.flush()

    def fileno(self) -> int:
        """The descriptor beneath."""
        return self._out.fileno()


def standard_error(out: Any, environment: Mapping[str, str]) -> Any:
    """What is to be written to in the place of standard error: itself, or its lines with their priority."""
    return ErrorLines(out) if is_journal(out, environment) else out
