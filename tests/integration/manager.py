"""A service manager for tests, where systemd is not process 1: the notify socket, and sockets that outlive a node.

    Manager.start --> a daemon with NOTIFY_SOCKET, and with LISTEN_FDS for the sockets that it is to be passed
    Manager.hear  <-- its messages, one by one, each with the time at which the kernel took it

Times are seconds.
"""

import contextlib
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from tests.integration.daemon import DAEMON, HOST, LIMIT, Daemon, environment, free_port, wait_until

#: Becomes the program that follows, with the descriptors that its first word names as 3, 4 ...
PASS = """
import fcntl, os, sys
kept = [fcntl.fcntl(int(word), fcntl.F_DUPFD, 100) for word in sys.argv[1].split(",")]
for place, descriptor in enumerate(kept, 3):
    os.dup2(descriptor, place)
os.environ["LISTEN_PID"] = os.environ.get("LISTEN_PID") or str(os.getpid())
os.execv(sys.argv[2], sys.argv[2:])
"""
SO_TIMESTAMPNS = 35


@attrs.frozen
class Heard:
    """One message."""

    fields: Mapping[str, str]
    at: float  #: unix time at which it was sent

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    def __getitem__(self, name: str) -> str:
        return self.fields[name]


class Manager:
    """What systemd is for the daemons of one test."""

    def __init__(self, folder: Path, address: str = "") -> None:
        """Bind the notify socket: in a folder, or at an abstract address after an @."""
        self._folder = folder
        self.address = address or str(folder / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.bind(f"\0{address[1:]}" if address else self.address)
        self.started: list[Daemon] = []

    def start(
        self,
        *options: str,
        program: Sequence[str] = DAEMON,
        passed: Mapping[str, socket.socket] | None = None,
        names: str | None = None,
        port: int = 0,
        data: str = "data",
        journal: socket.socket | None = None,
        **variables: str,
    ) -> Daemon:
        """Start a daemon without waiting for it, and pass it sockets by their names.

        `names` is told in place of these; "" = none are told.
        What it writes goes to a log file, or to `journal`, which it is told to be the stream to journald.
        """
        directory = self._folder / data
        directory.mkdir(exist_ok=True)
        sockets = passed or {}
        environ = {**environment(), "NOTIFY_SOCKET": self.address, **variables}
        words = [*program, "--port", str(port), "--http-port", "0", "--dir", str(directory), *options]
        if sockets:
            numbers = [found.fileno() for found in sockets.values()]
            environ |= {"LISTEN_FDS": str(len(numbers))}
            if names := ":".join(sockets) if names is None else names:
                environ["LISTEN_FDNAMES"] = names
            words = [sys.executable, "-c", PASS, ",".join(map(str, numbers)), *words]
        if journal is not None:
            stream = os.fstat(journal.fileno())
            environ["JOURNAL_STREAM"] = f"{stream.st_dev}:{stream.st_ino}"
        log_file = self._folder / f"{data}.log"
        with log_file.open("ab") as log:
            out = journal or log
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ, cwd="/",
                pass_fds=[found.fileno() for found in sockets.values()],
            )  # fmt: skip
        self.started.append(Daemon(process, port, directory, log_file))
        return self.started[-1]

    def hear(self) -> Heard:
        """Wait for the next message."""
        wait_until(self._has_news, "a message of a daemon")
        data, more, _, _ = self._socket.recvmsg(65_536, socket.CMSG_SPACE(16))
        seconds, nanoseconds = struct.unpack("qq", more[0][2])
        return Heard(dict(line.split("=", 1) for line in data.decode().splitlines()), seconds + nanoseconds / 1e9)

    def _has_news(self) -> bool:
        is_over = all(daemon.process.poll() is not None for daemon in self.started)
        has_news = bool(select.select([self._socket], [], [], 0)[0])
        assert has_news or not is_over, f"all daemons have ended, the last one saying:\n{self.started[-1].log()}"
        return has_news

    def hear_until(self, name: str) -> list[Heard]:
        """Collect messages up to the one that has this field."""
        heard = [self.hear()]
        while name not in heard[-1]:
            heard.append(self.hear())
        return heard

    def vanish(self) -> None:
        """Close the notify socket, and remove it."""
        self._socket.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.address)

    def close(self) -> None:
        """End what is left, and see to it that all ended well."""
        for daemon in self.started:
            daemon.stop()
        self.vanish()


def listening(port: int = 0) -> socket.socket:
    """Open a port as a socket unit does."""
    opened = socket.create_server((HOST, port or free_port()))
    opened.settimeout(LIMIT)
    return opened


@contextlib.contextmanager
def managing(folder: Path, address: str = "") -> Iterator[Manager]:
    """Make a manager for one test."""
    manager = Manager(folder, address)
    try:
        yield manager
    except BaseException:
        for daemon in manager.started:
            daemon.process.kill()
            daemon.process.wait(LIMIT)
            daemon.ended = True
        raise
    finally:
        manager.close()
