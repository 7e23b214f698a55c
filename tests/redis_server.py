"""A real Redis server for a test: started, stopped, paused, killed and started again on the same port.

It listens on 127.0.0.1 and keeps its data in a folder of its own, and only when a test wants it to.  Times are seconds.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import redis

from tests.integration.daemon import HOST, free_port
from tests.limits import seconds

LIMIT = seconds(30)
ATTEMPTS = 5  #: at finding a port that nobody else takes in the meantime


@attrs.define
class RedisServer:
    """One server; every process of it has the same port and folder."""

    directory: Path
    port: int = attrs.field(factory=free_port)
    options: tuple[str, ...] = ()
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is, as the setting redis-url says it."""
        return f"redis://{HOST}:{self.port}/0"

    @property
    def name(self) -> str:
        """How the store calls it."""
        return f"{HOST}:{self.port}"

    def start(self, *options: str) -> None:
        """Start it, and wait until it takes commands: it has loaded what the process before it has saved."""
        self.options = options
        for _ in range(ATTEMPTS):
            argv = [
                "redis-server",
                "--port",
                str(self.port),
                "--bind",
                HOST,
                "--dir",
                str(self.directory),
                "--save",
                "",
            ]
            self._process = subprocess.Popen([*argv, *options], stdout=subprocess.DEVNULL)
            if self._is_answering():
                return
            self.port = free_port()
        raise AssertionError("no redis-server could be started")

    def _is_answering(self) -> bool:
        assert self._process is not None
        end = time.monotonic() + LIMIT
        while self._process.poll() is None:
            assert time.monotonic() < end, "the redis-server does not answer"
            with contextlib.suppress(redis.exceptions.ConnectionError, redis.exceptions.ResponseError):
                information = self.call("INFO")
                if information["process_id"] == self._process.pid and not information["loading"]:
                    return True
            time.sleep(0.01)
        return False

    def call(self, *command: object) -> Any:
        """Send one command on a connection of its own."""
        password = dict(zip(self.options[::2], self.options[1::2], strict=False)).get("--requirepass")
        with redis.Redis(HOST, self.port, password=password, retry=None, protocol=2, driver_info=None) as client:
            return client.execute_command(*command)

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(LIMIT)
            self._process = None

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start(*self.options)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let it hang."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)
