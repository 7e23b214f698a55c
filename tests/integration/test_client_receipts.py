"""Connections that break while jobs are on their way: each job is with the next fetch at once, and with nobody else."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import pytest_twisted

from tests.integration.client_sides import address, said, until
from tests.integration.daemon import HOST, LIMIT, Daemon

Start = Callable[..., Daemon]


class Cutter:
    """A port that leads to a daemon, and breaks a connection in place of passing on some bytes, once."""

    def __init__(self) -> None:
        self.cuts = 0
        self.rule: Callable[[bytes, bool], bool] = lambda data, from_node: False
        self._to = 0
        self._listening = socket.create_server((HOST, 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: list[socket.socket] = [self._listening]

    def lead_to(self, daemon: Daemon) -> None:
        self._to = daemon.port
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                node = socket.create_connection((HOST, self._to))
                self._open += client, node
                for source, target, from_node in ((client, node, False), (node, client, True)):
                    threading.Thread(target=self._carry, args=(source, target, from_node), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, from_node: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if self.rule(data, from_node):
                    self.rule = lambda data, from_node: False
                    self.cuts += 1
                    break
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for each in self._open:
            each.close()


@pytest.fixture
def cutter() -> Iterator[Cutter]:
    made = Cutter()
    yield made
    made.close()


def the_reply(data: bytes, from_node: bool) -> bool:
    return from_node and b"\r\nthe body\r\n" in data


def the_receipt(data: bytes, from_node: bool) -> bool:
    return not from_node and b"PING" in data


@pytest.mark.parametrize("nohang", [False, True], ids=["waiting", "nohang"])
@pytest.mark.parametrize("retry", [3600, 0], ids=["at least once", "at most once"])
@pytest.mark.parametrize("lost", [the_reply, the_receipt])
@pytest_twisted.ensureDeferred
async def test_a_job_that_was_sent_into_a_connection_that_broke_is_with_the_next_fetch_untried(
    side: Any, start: Start, cutter: Cutter, lost: Callable[[bytes, bool], bool], retry: int, nohang: bool
) -> None:
    daemon = start("--cluster-announce-port", str(cutter.port))
    cutter.lead_to(daemon)
    client = side.client(f"{HOST}:{cutter.port}")
    job_id = await client.add("q", "the body", retry=retry)
    cutter.rule = lost
    if nohang:
        jobs = await client.get("q", nohang=True, counters=True)
        assert cutter.cuts == 1
        if not jobs:  # asked again before the node noticed
            await until(lambda: daemon.call("QLEN", "q"), "the job is back")
            jobs = await client.get("q", nohang=True, counters=True)
    else:
        jobs = await client.get("q", timeout=LIMIT, counters=True)
    assert cutter.cuts == 1
    assert [(job.id, job.body, job.nacks, job.additional_deliveries) for job in jobs] == [(job_id, b"the body", 0, 0)]
    assert daemon.call("QLEN", "q") == 0
    assert await client.ack(jobs[0]) == 1


@pytest_twisted.ensureDeferred
async def test_a_user_who_may_not_ask_for_receipts_fetches_without(side: Any, start: Start) -> None:
    daemon = start()
    daemon.call("ACL", "SETUSER", "worker", "on", ">secret", "+@all", "-client|receipts", "~*")
    client = side.client(f"disqued://worker:secret@{address(daemon)}")
    before = said(daemon, "ping")
    for number in range(3):
        await client.add("q", str(number))
        [job] = await client.get("q", timeout=LIMIT)
        assert await client.ack(job) == 1
    assert said(daemon, "ping") == before
