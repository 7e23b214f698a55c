"""A program at a terminal, for tests: what it prints is read as it comes, and what is typed is written to it.

    test <--everything that is printed-- pty <-- program
         ---------keys-----------------> pty --> program

Control sequences are taken out of what is looked for; `raw` has them.
"""

import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from fcntl import ioctl
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.integration.daemon import LIMIT, environment

ROWS, COLUMNS = 40, 200
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|\x1b[=>()][A-Z0-9]?|\x0f|\x07")


class Terminal:
    """One program, from its start to its end."""

    def __init__(
        self, argv: Sequence[object], variables: Mapping[str, str] | None = None, output: Path | None = None,
        size: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """Start it; with `output` its standard output goes to that file, and the rest to the terminal.

        With `size`, rows and columns, the program is to ask the terminal for them, and may be told of others later.
        """
        self.raw = ""
        self._seen = 0  #: how much of the text `expect` has passed
        self._master, slave = pty.openpty()
        self.resize(*(size or (ROWS, COLUMNS)))
        # readline, which pytest imports, puts the size of a terminal into the environment of the processes that follow.
        inherited = {name: value for name, value in environment().items() if name not in {"COLUMNS", "LINES"}}
        columns = {} if size else {"COLUMNS": str(COLUMNS)}
        file = None if output is None else output.open("wb")
        self.process = subprocess.Popen(
            list(map(str, argv)), stdin=slave, stdout=file or slave, stderr=slave, cwd="/", start_new_session=True,
            env={**inherited, "TERM": "xterm", **columns, **(variables or {})},
            preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0) and None,  # noqa: PLW1509 - no thread of ours is there
        )  # fmt: skip
        os.close(slave)
        if file is not None:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(LIMIT)
        os.close(self._master)

    @property
    def text(self) -> str:
        """Everything that was printed, without control sequences."""
        return _CONTROL.sub("", self.raw)

    def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size, of which the program is told."""
        ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def echoes(self) -> bool:
        """Tell whether the terminal echoes what is typed, and hands it on line by line, as before the program."""
        modes = termios.tcgetattr(self._master)[3]
        return bool(modes & termios.ECHO and modes & termios.ICANON)

    def type(self, keys: str) -> None:
        """Press keys; enter is `\\r`."""
        os.write(self._master, keys.encode())

    def expect(self, pattern: str) -> str:
        """Wait until something is printed behind what was expected before, and return what comes up to its end."""
        end = time.monotonic() + LIMIT
        while not (found := re.search(pattern, self.text[self._seen :])):
            assert time.monotonic() < end, f"{pattern!r} did not come; {self.text[self._seen :]!r} did"
            assert self._read(end - time.monotonic()), f"it ended without {pattern!r}: {self.text[self._seen :]!r}"
        passed = self.text[self._seen :][: found.end()]
        self._seen += found.end()
        return passed

    def catch_up(self) -> None:
        """Read all that has come by now, which may be many screens."""
        while select.select([self._master], [], [], 0)[0]:
            assert self._read(0), f"it ended: {self.text[self._seen :]!r}"

    def wait_end(self) -> int:
        """Read until the program has ended, and return its exit status."""
        end = time.monotonic() + LIMIT
        while self._read(end - time.monotonic()):
            assert time.monotonic() < end, f"it did not end; it printed {self.text[self._seen :]!r}"
        return self.process.wait(LIMIT)

    def _read(self, limit: float) -> bool:
        """Read what there is, or wait for it; False at the end."""
        readable, _, _ = select.select([self._master], [], [], max(0.0, limit))
        if not readable:
            return True
        try:
            chunk = os.read(self._master, 1 << 16)
        except OSError:  # the other side is closed
            return False
        self.raw += chunk.decode(errors="replace")
        return bool(chunk)
