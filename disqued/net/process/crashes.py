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

from twisted.logger import Logger

from disqued.commands.host import Session
from disqued.commands.slowlog import redacted

RECENT_INPUTS = 64  #: chunks of input kept, each as large as one read at most
MAX_REPORTS = 20


class CrashReports:
    """The last inputs, and the files that they are written to."""

    log = Logger()

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        #: (client, bytes), oldest first; connections append what they read.
        self.recent: deque[tuple[int, bytes]] = deque(maxlen=RECENT_INPUTS)
        self.count = 0  #: reported bugs
        self._written = 0

    def reset(self) -> None:
        """Zero the counter."""
        self.count = 0

    def command(self, session: Session, args: list[bytes]) -> None:
        """Report a bug in a command; the node goes on."""
        path = self._write(session.id, args)
        self.log.failure(
            "Internal error in a command of client {client}; its inputs are in {path}",
            client=session.address, path=path,
        )  # fmt: skip

    def tick(self) -> None:
        """Report a bug in what only time did; the node goes on with what is due next."""
        path = self._write(0, [])
        self.log.failure("Internal error in what was due; the last inputs are in {path}", path=path)

    def message(self, sender: bytes, message: tuple[object, ...]) -> None:
        """Report a bug in the effect of another node's message, or, if it is empty, of its link; the node goes on."""
        path = self._write(0, [b"from", sender, repr(message)[:4096].encode()])
        self.log.failure("Internal error in what another node said; it is in {path}", path=path)

    def hide(self, client_id: int) -> None:
        """Forget what a client sent lately, but for how much it was: there is a password in it."""
        for at, (sender, data) in enumerate(self.recent):
            if sender == client_id:
                self.recent[at] = (sender, b"(%d bytes, with a password among them)" % len(data))

    def _write(self, client_id: int, args: list[bytes]) -> str:
        """Write a report about the exception that is being handled; returns its path, or why there is none."""
        self.count += 1
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
