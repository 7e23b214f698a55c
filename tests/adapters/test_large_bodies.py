"""Large bodies through a daemon: what is written to a client is the body itself, whatever the command."""

from collections.abc import Callable
from typing import Any

import pytest
import pytest_twisted

from disqued.net.loop.transport import EagerServer
from tests.adapters.inprocess import RawClient, RecordingStore, Running, pack, wait_until

Launch = Callable[..., Running]
async_test = pytest_twisted.ensureDeferred
BODY = bytes(range(256)) * 4_000
FETCH = ["GETJOB", "FROM", "q"]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The pieces that daemons write."""
    pieces: list[bytes] = []
    plain = EagerServer.writeSequence

    def noting(self: EagerServer, iovec: Any) -> None:
        pieces.extend(iovec)
        plain(self, iovec)

    monkeypatch.setattr(EagerServer, "writeSequence", noting)
    return pieces


def body_of(running: Running) -> bytes:
    """The body of the one job, as the daemon has it."""
    [job] = running.daemon.node.state.jobs
    return job.body


async def added(running: Running, protocol: int) -> tuple[RawClient, bytes]:
    client = await running.connect()
    if protocol == 3:
        await client.call("HELLO", 3)
    return client, await client.call("ADDJOB", "q", BODY, 0, "RETRY", 3600)


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize(
    "command",
    [FETCH, ["GETJOB", "WITHCOUNTERS", "FROM", "q"], ["QPEEK", "q", 1], ["SHOW", "id"],
     ["JSCAN", 0, "BUSYLOOP", "REPLY", "all"]],
    ids=lambda command: command[0],
)  # fmt: skip
@async_test
async def test_a_command_that_answers_a_job_writes_its_body_and_no_copy(
    launch: Launch, written: list[bytes], command: list[Any], protocol: int
) -> None:
    running = launch()
    client, job_id = await added(running, protocol)
    body = body_of(running)
    await client.call(*(job_id if word == "id" else word for word in command))
    assert BODY in bytes(client.received)
    assert sum(piece is body for piece in written) == 1
    assert sum(map(len, written)) < len(BODY) + 2_000


@pytest.mark.parametrize(
    ("commands", "count"),
    [
        ([["RQ.PUSH", "l", BODY], ["RQ.INSPECT", "l", 0, 10], ["RQ.POP", "l"]], 2),
        ([["QADD", "log", 3600, BODY], ["QGET", "log", "group"]], 1),
        ([["QLPUSH", "okq", "event", BODY], ["QLPEEK", "okq"], ["QRPOP", "okq"]], 2),
        ([["WORKER", "START", "ID", "w", "TTL", 0], ["WQ.WORK", "t"], ["WQ.ENQUEUE", "t", "TASKS", BODY],
          ["WQ.PEEK", "t"], ["WQ.TASKS", "t"], ["WQ.DEQUEUE", "t"]], 3),
    ],
    ids=["lists", "logs", "okq", "tasks"],
)  # fmt: skip
@async_test
async def test_so_does_every_family_of_queues(
    launch: Launch, written: list[bytes], commands: list[list[Any]], count: int
) -> None:
    client = await launch().connect()
    for command in commands:
        await client.call(*command)
    assert sum(piece == BODY for piece in written) == count
    assert len({id(piece) for piece in written if piece == BODY}) == 1
    assert bytes(client.received).count(BODY) == count


@async_test
async def test_a_consumer_that_waited_is_written_the_body_itself(launch: Launch, written: list[bytes]) -> None:
    running = launch()
    consumer = await running.connect()
    consumer.send(*FETCH)
    await wait_until(lambda: bool(running.daemon.node.state.waiting.blocked))
    _, job_id = await added(running, 2)
    assert await consumer.replies(1) == [[[b"q", job_id, BODY]]]
    assert sum(piece is body_of(running) for piece in written) == 1


@async_test
async def test_replies_around_a_large_one_keep_their_order_though_all_wait_for_a_commit(
    launch: Launch, written: list[bytes]
) -> None:
    store = RecordingStore(later=True)
    running = launch(store=store)
    watcher, client = await running.connect(), await running.connect()
    await watcher.call("PSUBSCRIBE", "*")
    client.transport.write(
        pack("PING") + pack("ADDJOB", "q", BODY, 0, "RETRY", 3600) + pack("QPEEK", "q", 1) + pack("ECHO", "x")
        + pack(*FETCH) + pack("PING")
    )  # fmt: skip
    await wait_until(lambda: bool(running.daemon.node.state.jobs))
    while len(client.received) < 2 * len(BODY) + 100:
        await wait_until(lambda: store.under_way is not None or len(client.received) >= 2 * len(BODY) + 100)
        if store.under_way is not None:
            store.answer()
    first, job_id, peeked, echoed, fetched, last = await client.replies(6)
    assert (first, echoed, last) == (b"PONG", b"x", b"PONG")
    assert peeked == fetched == [[b"q", job_id, BODY]]
    assert sum(piece is body_of(running) for piece in written) == 2
    store.later = False


@async_test
async def test_a_line_for_a_client_whose_large_reply_is_under_way_comes_behind_it(launch: Launch) -> None:
    running = launch()
    client, job_id = await added(running, 2)
    [session] = running.daemon.clients.sessions()
    client.transport.pauseProducing()
    for _ in range(20):  # more than the system takes for a client that does not read
        client.send("QPEEK", "q", 1)
    await wait_until(lambda: session.output_buffered > 0)
    session.push(b"+behind\r\n")
    client.transport.resumeProducing()
    replies = await client.replies(21)
    assert replies.count([[b"q", job_id, BODY]]) == 20
    assert b"behind" in replies
