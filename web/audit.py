"""The log of actions: who changed what through the admin side, or tried to, as JSON lines.

    {"at": "2026-11-21T20:00:00.123Z", "who": "ann", "role": "operator", "from": "127.0.0.1:50000",
     "method": "POST", "path": "/api/pause", "asked": {"queue": "mail"}, "status": 200}

An entry is one write to a file in append mode, some microseconds of the loop's time, and no sync.  Whoever rotates the
file renames it: the next entry opens a new one.  When it cannot be written the request goes on, the log says so once,
and the entries that are missing are counted.  What is refused to strangers is noted, too, sixty times a minute at
most, so that none of them can fill the disk.
"""

import json
import os
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from twisted.logger import Logger

from disqued.web.http.exchange import Schema
from disqued.web.masking import is_understood, masked

log = Logger()

RECENT: Final = 1_000  #: entries kept in memory, for the page
TAIL_BYTES: Final = 512 << 10  #: of the file that are read at the start
REFUSED_A_MINUTE: Final = 60  #: of requests that nobody in particular made
MINUTE_S: Final = 60.0


class AuditLog:
    """The file, and the last entries."""

    def __init__(self, path: Path | None) -> None:
        """`path` None: only in memory."""
        self._path = path
        self._file = -1
        self._torn = False  #: the last line has no end
        self._is_failing = False
        self._minute_began = 0.0
        self._refused = 0
        self.failures = 0  #: entries that are missing in the file
        self.left_out = 0  #: entries that were too many of strangers
        self.recent: deque[dict[str, Any]] = deque(self._tail(), maxlen=RECENT)  #: oldest first

    def note(self, entry: Mapping[str, Any], schema: Schema | None = None) -> None:
        """Write down an action: who, role, from, method, path, asked, status.

        Of what was asked are seen the fields that the schema has, without secrets and bodies; of all else, or without a
        schema, type and length.
        """
        if entry["role"] == "nobody" and self._is_flood():
            self.left_out += 1
            return
        at = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        asked = masked(entry.get("asked"), schema, understood=is_understood(entry["status"]))
        shown = {"at": at, **entry, "asked": asked}
        self.recent.append(shown)
        if self._path is not None:
            self._write(self._path, json.dumps(shown, ensure_ascii=False).encode("utf-8", "replace") + b"\n")

    def _is_flood(self) -> bool:
        now = time.monotonic()
        if now - self._minute_began >= MINUTE_S:
            self._minute_began, self._refused = now, 0
        self._refused += 1
        return self._refused > REFUSED_A_MINUTE

    def _write(self, path: Path, line: bytes) -> None:
        data = b"\n" + line if self._torn else line
        try:
            self._reopen(path)
            written = os.write(self._file, data)
        except OSError as error:
            self._failed(path, error.strerror or str(error))
            return
        self._torn = written < len(data)
        if self._torn:
            self._failed(path, "only a part of an entry was taken")
        elif self._is_failing:
            self._is_failing = False
            log.info("{path} is written again; {count} entries are missing", path=str(path), count=self.failures)

    def _failed(self, path: Path, reason: str) -> None:
        self.failures += 1
        if not self._is_failing:
            self._is_failing = True
            log.error("http-audit-file {path} cannot be written: {reason}", path=str(path), reason=reason)

    def _reopen(self, path: Path) -> None:
        """Open the file, if it is not open or another one has its name by now.  Raises OSError."""
        if self._file >= 0:
            ours = os.fstat(self._file)
            try:
                named = os.stat(path)
            except FileNotFoundError:
                named = None
            if named is not None and (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino):
                return
            self.close()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _tail(self) -> list[dict[str, Any]]:
        """The last entries that an earlier process has written."""
        if self._path is None:
            return []
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - TAIL_BYTES))
                data = file.read(TAIL_BYTES)
        except OSError:
            return []
        self._torn = not data.endswith(b"\n") and bool(data)
        return [entry for line in data.split(b"\n") if (entry := _entry(line)) is not None]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            self._torn = False


def _entry(line: bytes) -> dict[str, Any] | None:
    """An entry of the file; None for a line that is none: the end of one, or what another program wrote."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    texts = ("at", "who", "role", "from", "method", "path")
    is_one = (
        isinstance(entry, dict)
        and all(isinstance(entry.get(name), str) for name in texts)
        and type(entry.get("status")) is int
        and "asked" in entry
    )
    return entry if is_one else None
