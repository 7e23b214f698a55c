"""Crash reports: what a client sent before a command met a bug of ours.

A report is a file of its own in the data folder, readable by its owner alone, for it may hold bodies.  What held
passwords is not kept: `hide`.
At most `MAX_REPORTS` are written in the life of a process, so that a bug cannot fill the disk.
"""

import os
import traceback
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

from disqued.commands.slowlog import redacted

RECENT_INPUTS = 64  #: chunks of input kept, each as large as one read at most
MAX_REPORTS = 20


class CrashReports:
    """The last inputs, and the files that they are written to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        #: (client, bytes), oldest first; whoever reads from a client adds to it.
        self.recent: deque[tuple[int, bytes]] = deque(maxlen=RECENT_INPUTS)
        self._written = 0

    def hide(self, client_id: int) -> None:
        """Forget what a client sent lately, but for how much it was: there is a password in it."""
        for at, (sender, data) in enumerate(self.recent):
            if sender == client_id:
                self.recent[at] = (sender, b"(%d bytes, with a password among them)" % len(data))

    def write(self, client_id: int, args: list[bytes]) -> str:
        """Write a report about the exception that is being handled; returns its path, or why there is none."""
        if self._written >= MAX_REPORTS:
            return f"no file: {MAX_REPORTS} were written already"
        self._written += 1
        path = self._folder / f"crash-{os.getpid()}-{self._written}.txt"
        lines = [
            f"{datetime.now(UTC).isoformat()} client {client_id}",
            f"command {redacted(args)!r:.65536}",
            traceback.format_exc(),
            "last inputs, oldest first (client: bytes):",
            *(f"{sender}: {data!r}" for sender, data in self.recent),
        ]
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
        except OSError as error:
            return f"no file: {error.strerror}"
        return str(path)
