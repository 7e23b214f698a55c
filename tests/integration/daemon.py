"""A real daemon for a test: started as a user starts it, watched while it runs, ended by its process id.

    start --> PING answered by that very process --> the test --> SIGTERM --> exit status and log are looked at

Waiting is for conditions, with limits that only a broken daemon reaches.  Times are seconds.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import SystemRandom
from typing import TypeVar

import attrs
import redis

from disqued.config import BUS_PORT_OFFSET
from tests import builds
from tests.integration.forkserver import Forked, fork
from tests.limits import LIMIT

HOST = "127.0.0.1"
ROOT = builds.ROOT
TWISTD = Path(sys.executable).with_name("twistd")
#: How a daemon is started with the Twisted of this interpreter, from any folder.
DAEMON = (str(TWISTD), "--nodaemon", "--pidfile=", "disqued")
#: Between two questions: this part of what has been waited, from the least to the most.
STEP_PART, STEP_MIN, STEP_MAX = 0.05, 0.005, 0.05
ATTEMPTS = 5  #: at finding a port that nobody else takes in the meantime
#: A client that sends nothing but what it is asked for: its own name is half the work of a short connection.
PLAIN = {"protocol": 2, "decode_responses": True, "driver_info": None}

T = TypeVar("T")


@attrs.frozen
class Hasty:
    """The program of a daemon in which something takes less time: constants of a module are others there."""

    module: str
    spans: dict[str, float]


def hasty(module: str, **spans: float) -> Hasty:
    """Name it by the module and its constants."""
    return Hasty(module, spans)


def wait_until(condition: Callable[[], T], what: str, limit: float = LIMIT) -> T:
    """Ask again and again until the answer is true, and return it.

    What takes long is asked for more rarely, as asking takes the processor from what is waited for.
    """
    begin = time.monotonic()
    while not (answer := condition()):
        waited = time.monotonic() - begin
        assert waited < limit, f"after {limit:.0f} s still not so: {what}"
        time.sleep(min(max(STEP_MIN, waited * STEP_PART), STEP_MAX))
    return answer


def free_port() -> int:
    """Name a port that nobody listens on just now, and for whose cluster bus there is one, too.

    Both are below those that the kernel gives to outgoing connections, and no port is in question as the bus of one
    node and the client port of another.
    """
    while True:
        port = SystemRandom().randrange(12_000, 22_000)
        if _is_free(port) and _is_free(port + BUS_PORT_OFFSET):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def environment() -> dict[str, str]:
    """Make the variables of a program that shall find disqued in this checkout, wherever it is started."""
    return {**os.environ, "PYTHONPATH": builds.IMPORT_PATH}


class PortTaken(Exception):
    """Somebody else began to listen on the port first."""


@attrs.define
class Daemon:
    """One process, with the client port, the folder of its data and the file that it logs to."""

    process: subprocess.Popen[bytes] | Forked
    port: int
    directory: Path
    log_file: Path
    #: The daemon is expected to end without our doing: killed, or shut down by a command.
    ended: bool = False

    def redis(self, **options: object) -> redis.Redis:
        """Connect the plainest client there is; it closes at the end of a `with`."""
        return redis.Redis(HOST, self.port, **{**PLAIN, **options})

    def call(self, *args: object) -> object:
        """Send one command on a connection of its own."""
        with self.redis() as client:
            return client.execute_command(*args)

    def log(self) -> str:
        """Read what the daemon has said so far."""
        return self.log_file.read_text(errors="replace")

    def blocked(self) -> int:
        """Count the clients that wait for a job."""
        with self.redis() as client:
            return int(client.info("clients")["blocked_clients"])

    def wait_blocked(self, count: int = 1) -> None:
        """Wait until so many clients wait for a job."""
        wait_until(lambda: self.blocked() == count, f"{count} blocked clients")

    def wait_ready(self) -> None:
        """Wait until this process, and no other, answers on the port."""
        wait_until(self._answers, f"a daemon that answers on port {self.port}; its log:\n{self.log()}")

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            if "in use" in self.log():
                raise PortTaken
            raise AssertionError(f"the daemon ended with {self.process.returncode}:\n{self.log()}")
        try:
            with self.redis(retry=None) as client:
                return client.ping() and client.info("server")["process_id"] == self.process.pid
        except redis.exceptions.ConnectionError:  # not listening yet, or still loading
            return False

    def wait_end(self) -> int:
        """Wait until the process is gone, and return its exit status."""
        self.ended = True
        return self.process.wait(LIMIT)

    def kill(self) -> None:
        """End the process as a power cut would."""
        self.process.kill()
        assert self.wait_end() == -signal.SIGKILL

    def stop(self) -> None:
        """End the process as systemd would, and hold it to what a sound daemon leaves behind."""
        if not self.ended:
            self.process.send_signal(signal.SIGTERM)
            try:
                status = self.wait_end()
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(LIMIT)
                raise AssertionError(f"SIGTERM did not end the daemon within {LIMIT:.0f} s:\n{self.log()}") from None
            # twistd ends by the signal that it was sent, once everything has been put away.
            assert status in (0, -signal.SIGTERM), f"the daemon ended with {status}:\n{self.log()}"
        for word in ("Traceback", "Unhandled", '"level": "critical"'):
            assert word not in self.log(), f"the daemon has logged an error:\n{self.log()}"


def _begin(
    program: Sequence[str] | Hasty | None, words: Sequence[str], log_file: Path, cwd: Path, inside: bool
) -> subprocess.Popen[bytes] | Forked:
    if program is None or isinstance(program, Hasty):
        assert inside
        changes = {} if program is None else {program.module: program.spans}
        return fork([*DAEMON, *words], environment(), cwd, log_file, changes)
    with log_file.open("ab") as log:
        return subprocess.Popen(
            [*program, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=cwd,
            env=environment() if inside else None,
        )  # fmt: skip


def launch(
    directory: Path,
    options: Sequence[str] = (),
    program: Sequence[str] | Hasty | None = None,
    port: int = 0,
    cwd: Path | None = None,
    inside: bool = True,
) -> Daemon:
    """Start one daemon, its data in a folder, and wait until it answers; port 0 = any.

    It works in `/`, so that nothing depends on where it was started; in another folder it is given the path to its
    data from there.  With `inside` it runs the sources of this checkout, else what is installed beside the program.
    Without a program, and with a hasty one, it is `twistd disqued`, forked from a process that has imported it already
    (`forkserver`).
    """
    directory.mkdir(parents=True, exist_ok=True)
    for attempt in range(ATTEMPTS):
        chosen = port or free_port()
        log_file = directory.with_name(f"{directory.name}.{chosen}.log")
        data = str(directory) if cwd is None else os.path.relpath(directory, cwd)
        words = ["--port", str(chosen), "--bind", HOST, "--http-port", "0", "--dir", data, *options]
        process = _begin(program, words, log_file, cwd or Path("/"), inside)
        daemon = Daemon(process, chosen, directory, log_file)
        try:
            daemon.wait_ready()
        except PortTaken:
            if attempt == ATTEMPTS - 1:
                raise
        except BaseException:
            process.kill()
            process.wait(LIMIT)
            raise
        else:
            return daemon
    raise AssertionError("unreachable: the last attempt returns or raises")
