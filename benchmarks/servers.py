"""The processes that are measured: each on 127.0.0.1, on a free port, with a data folder of its own.

They end with the `with` block that started them, by their process id, and their folders with them.
"""

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

from benchmarks.machine import BUILD, IMPORT_PATH, Processors
from benchmarks.raw import HOST, Connection, ServerError, words

START_S = 30.0  #: how long a server may take until it serves
STOP_S = 10.0  #: how long it may take to end
HIGHEST_PORT = 55_535  #: a node's cluster bus is 10 000 above
_PAGE = resource.getpagesize()
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class ServerMissing(Exception):
    """A program is not installed, or does not start; the text says which."""


def free_port() -> int:
    """A port that nobody listens on, and that leaves room for the ports that are counted on from it."""
    while True:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port: int = probe.getsockname()[1]
        if port <= HIGHEST_PORT:
            return port


class Server(ABC):
    """A process that is measured."""

    name: ClassVar[str]
    package: ClassVar[str] = ""  #: where Debian has the program
    empty: ClassVar[tuple[bytes, ...]]  #: command that forgets everything
    probe: ClassVar[bytes]  #: bytes that any server that serves answers

    def __init__(self, processors: Processors, options: Sequence[str] = ()) -> None:
        """Name the processors to run on, and what to add to the command line."""
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="disqued-bench-"))
        self._processors = processors
        self._options = list(options)
        self._log = self.folder / "output"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def arguments(self) -> list[str]:
        """The command line, without the additional options."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._end(signal.SIGTERM)
        shutil.rmtree(self.folder, ignore_errors=True)

    # The process.

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def start(self, limit_s: float = START_S) -> None:
        """Start it and wait until it serves.  Raises ServerMissing."""
        environment = {**os.environ, "PYTHONPATH": IMPORT_PATH}
        with self._processors.serving(), self._log.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    [*self.arguments(), *self._options], cwd=self.folder, env=environment,
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                )  # fmt: skip
            except FileNotFoundError:
                where = f" (Debian package {self.package})" if self.package else ""
                raise ServerMissing(f"{self.arguments()[0]} is not installed{where}") from None
        self._wait_until_it_serves(time.monotonic() + limit_s)

    def _wait_until_it_serves(self, until: float) -> None:
        process = self._process
        assert process is not None
        while time.monotonic() < until:
            if process.poll() is not None:
                raise ServerMissing(f"{self.name} ended with status {process.returncode}: {self._last_words()}")
            if self._serves():
                return
            time.sleep(0.005)
        raise ServerMissing(f"{self.name} does not serve in time: {self._last_words()}")

    def _serves(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), 5.0) as connection:
                connection.sendall(self.probe)
                answer = connection.recv(256)
        except OSError:
            return False
        return bool(answer) and not answer.startswith(b"-LOADING")

    def _last_words(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace").strip()[-400:]

    def kill(self) -> None:
        """End it at once, as a crash would; its folder stays."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._process = None

    # What is asked of it.

    def connect(self) -> Connection:
        """A connection to it."""
        return Connection(self.port)

    def call(self, *args: bytes) -> object:
        """Run one command."""
        with self.connect() as connection:
            return connection.call(*args)

    def clear(self) -> None:
        """Let it forget everything."""
        self.call(*self.empty)

    def resident_bytes(self) -> int:
        """Memory that it has in RAM."""
        return int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE

    def cpu_seconds(self) -> tuple[float, float]:
        """Processor time so far: its own, and the kernel's on its behalf."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return int(fields[11]) * _TICK_S, int(fields[12]) * _TICK_S

    def wakeups(self) -> int:
        """How often its threads went to sleep so far, which is how often they were woken."""
        total = 0
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            for line in (thread / "status").read_text(encoding="ascii", errors="replace").splitlines():
                if line.startswith("voluntary_ctxt_switches:"):
                    total += int(line.split()[1])
        return total


class Disqued(Server):
    """The daemon of this checkout, in the build that is measured, with the interpreter that runs the benchmarks."""

    name = "disqued"
    empty = (b"DEBUG", b"FLUSHALL")
    probe = words(b"QLEN", b"bench")

    def arguments(self) -> list[str]:
        program = "from disqued.tap import main; main()"
        return [sys.executable, "-c", program, "--port", str(self.port), "--dir", str(self.folder), "--http-port", "0"]

    def start(self, limit_s: float = START_S) -> None:
        """Start it and wait until it serves.  Raises ServerMissing."""
        super().start(limit_s)
        if self._fact(b"server", b"core_build") != BUILD.encode():
            raise ServerMissing(f"DISQUED_BUILD is {BUILD}, and this daemon has another core: `make compiled` makes it")

    def jobs(self) -> int:
        """How many jobs it holds."""
        return int(self._fact(b"jobs", b"registered_jobs"))

    def _fact(self, section: bytes, name: bytes) -> bytes:
        """What INFO tells."""
        facts = self.call(b"INFO", section)
        assert isinstance(facts, bytes)
        for line in facts.split(b"\r\n"):
            if line.startswith(name + b":"):
                return line.partition(b":")[2]
        raise ServerError(f"INFO says nothing of {name.decode()}: {facts[:200]!r}")


class Redis(Server):
    """redis-server, which keeps nothing on disk unless it is told to."""

    name = "redis"
    package = "redis-server"
    empty = (b"FLUSHALL",)
    probe = words(b"DBSIZE")

    def arguments(self) -> list[str]:
        return [
            "redis-server", "--bind", HOST, "--port", str(self.port), "--dir", str(self.folder), "--save", "",
            "--daemonize", "no",
        ]  # fmt: skip


class Beanstalkd(Server):
    """beanstalkd, another queue of the distribution; it cannot forget, so it lives for one round."""

    name = "beanstalkd"
    package = "beanstalkd"
    empty = ()
    probe = b"stats\r\n"

    def arguments(self) -> list[str]:
        return ["beanstalkd", "-l", HOST, "-p", str(self.port)]


def redis_version() -> str:
    """The version of redis-server.  Raises ServerMissing."""
    try:
        done = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, timeout=10, check=True)
    except FileNotFoundError:
        raise ServerMissing("redis-server is not installed (Debian package redis-server)") from None
    for word in done.stdout.split():
        if word.startswith("v="):
            return word[2:]
    raise ServerMissing(f"redis-server says no version: {done.stdout.strip()!r}")
