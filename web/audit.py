"""The log of actions: who changed what through the admin side, as JSON lines.

{"at": "2026-11-21T20:00:00.123Z", "who": "ann", "role": "operator", "from": "127.0.0.1:50000", "method": "POST",
 "path": "/api/pause", "asked": {...}, "status": 200}
"""

import json
import time
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

RECENT: Final = 1_000  #: entries kept in memory, for the page


class AuditLog:
    """The file, and the last entries."""

    def __init__(self, path: Path | None) -> None:
        """`path` None: only in memory."""
        self._path = path
        self._file: IO[str] | None = None
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT)

    def note(self, entry: dict[str, Any]) -> None:
        """Write down an action."""
        at = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        entry = {"at": at, **entry}
        self.recent.append(entry)
        if self._path is not None:
            if self._file is None:
                self._file = self._path.open("a", encoding="utf-8")
            self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
