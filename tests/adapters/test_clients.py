"""Client connections over real sockets: order, blocking, limits, and clients that misbehave."""

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.logger import capturedLogs

from disqued.commands import table
from disqued.commands.shapes import integer
from disqued.commands.table import LONG, Flag, command
from disqued.net.clients import connection
from disqued.net.clients.input_queue import CHUNKS_MAX
from disqued.net.clients.pending_replies import NO_REPLIES
from disqued.net.loop import buffers, rounds, turns
from tests.adapters.inprocess import RawClient, RecordingStore, Running, pack, wait_until

Launch = Callable[..., Running]
async_test = pytest_twisted.ensureDeferred
#: Bytes of memory of what is read ahead of a client at most: the backlog of one chunk, and the chunks behind it.
MOST_READ = CHUNKS_MAX + 6 * 65_536


@async_test
async def test_pipelined_commands_are_answered_in_order(launch: Launch) -> None:
    client = await launch().connect()
    client.transport.write(b"".join(pack("ADDJOB", "q", n, 0) for n in range(100)) + pack("QLEN", "q"))
    replies = await client.replies(101)
    assert replies[-1] == 100
    taken = await client.call("GETJOB", "COUNT", 100, "FROM", "q")
    assert [job[1] for job in taken] == replies[:100]
    assert [job[2] for job in taken] == [b"%d" % n for n in range(100)]


@async_test
async def test_a_command_may_come_one_byte_at_a_time(launch: Launch) -> None:
    running = launch()
    client = await running.connect()
    client.transport.setTcpNoDelay(True)
    for byte in pack("ADDJOB", "q", b"\r\n*1\r\n$4", 0):
        received = running.daemon.traffic.bytes_in
        client.transport.write(bytes([byte]))
        await wait_until(lambda received=received: running.daemon.traffic.bytes_in > received)
    assert (await client.replies(1))[0].startswith(b"DI")
    assert (await client.call("GETJOB", "FROM", "q"))[0][2] == b"\r\n*1\r\n$4"


@async_test
async def test_commands_after_a_blocking_one_wait_for_it(launch: Launch) -> None:
    running = launch()
    consumer, producer = await running.connect(), await running.connect()
    consumer.transport.write(pack("GETJOB", "FROM", "q") + pack("QLEN", "q") + pack("QLEN", "other"))
    await wait_until(lambda: bool(running.daemon.node.state.waiting.blocked))
    consumer.send("QLEN", "third")
    assert await producer.call("QLEN", "q") == 0
    assert consumer.unread_replies == 0
    job_id = await producer.call("ADDJOB", "q", "body", 0)
    assert await consumer.replies(4) == [[[b"q", job_id, b"body"]], 0, 0, 0]


@async_test
async def test_waiting_consumers_are_served_in_the_order_in_which_they_came(launch: Launch) -> None:
    running = launch()
    blocked = running.daemon.node.state.waiting.blocked
    consumers: list[RawClient] = []
    for count in range(1, 6):
        consumers.append(await running.connect())
        consumers[-1].send("GETJOB", "FROM", "q")
        await wait_until(lambda count=count: len(blocked) == count)
    producer = await running.connect()
    for number in range(5):
        await producer.call("ADDJOB", "q", number, 0)
    got = [(await consumer.replies(1))[0][0][2] for consumer in consumers]
    assert got == [b"0", b"1", b"2", b"3", b"4"]


@async_test
async def test_a_consumer_that_closed_takes_no_job(launch: Launch) -> None:
    running = launch()
    gone, stays, producer = await running.connect(), await running.connect(), await running.connect()
    for count, client in enumerate((gone, stays), 1):
        client.send("GETJOB", "FROM", "q")
        await wait_until(lambda count=count: len(running.daemon.node.state.waiting.blocked) == count)
    gone.transport.abortConnection()
    await producer.call("ADDJOB", "q", "body", 0, "RETRY", 0)
    assert (await stays.replies(1))[0][0][2] == b"body"


@async_test
async def test_a_close_that_the_loop_has_not_seen_yet_takes_no_job(launch: Launch) -> None:
    running = launch()
    client = await running.connect()
    with socket.create_connection(("127.0.0.1", running.port.getHost().port)) as other:
        other.sendall(pack("GETJOB", "FROM", "q"))
        await wait_until(lambda: bool(running.daemon.node.state.waiting.blocked))
    # No turn of the loop lies between the close above and this command, which the daemon may well read first.
    assert (await client.call("ADDJOB", "q", "body", 0, "RETRY", 0)).startswith(b"DI")
    assert (await client.call("GETJOB", "NOHANG", "FROM", "q"))[0][2] == b"body"


@async_test
async def test_a_job_that_nobody_could_read_goes_back(launch: Launch) -> None:
    running = launch()
    client = await running.connect()
    await client.call("ADDJOB", "q", "body", 0, "RETRY", 0)
    with socket.create_connection(("127.0.0.1", running.port.getHost().port)) as other:
        await wait_until(lambda: len(running.daemon.clients.by_id) == 2)
        session = list(running.daemon.clients.by_id.values())[-1]
    # It closed after the poller was asked, and before the reply is sent; the loop does not turn here.
    session.dataReceived(pack("GETJOB", "FROM", "q"))
    assert len(running.daemon.node.state.queues.by_name[b"q"].units) == 0
    await wait_until(lambda: len(running.daemon.clients.by_id) == 1)
    assert other.fileno() == -1
    assert (await client.call("GETJOB", "NOHANG", "FROM", "q"))[0][2] == b"body"


@async_test
async def test_a_job_that_may_have_been_read_does_not_go_back_at_once(launch: Launch) -> None:
    running = launch()
    client = await running.connect()
    await client.call("ADDJOB", "q", "body", 0, "RETRY", 0)
    with socket.create_connection(("127.0.0.1", running.port.getHost().port)) as other:
        other.sendall(pack("GETJOB", "FROM", "q"))
        await wait_until(lambda: len(running.daemon.node.state.queues.by_name[b"q"].units) == 0)
        await client.call("PING")
        # A reset: it has the reply, and closes without reading it whole.
    await wait_until(lambda: len(running.daemon.clients.by_id) == 1)
    assert await client.call("GETJOB", "NOHANG", "FROM", "q") is None


@pytest.mark.parametrize("retry", [0, 3600])
@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        ((), (), 0),
        ((("CLIENT", "RECEIPTS", "ON"),), (), 1),
        ((("CLIENT", "RECEIPTS", "ON"),), (("PING",),), 0),
        ((("CLIENT", "RECEIPTS", "ON"),), (("NOPE",),), 0),
        ((("CLIENT", "RECEIPTS", "ON"), ("CLIENT", "RECEIPTS", "OFF")), (), 0),
        ((("CLIENT", "RECEIPTS", "ON"), ("RESET",)), (), 0),
    ],
    ids=["never asked for", "not answered", "answered", "answered by an error", "off", "reset"],
)
@async_test
async def test_with_receipts_a_job_goes_back_until_a_later_command_is_answered(
    launch: Launch, retry: int, before: tuple[tuple[str, ...], ...], after: tuple[tuple[str, ...], ...], left: int
) -> None:
    running = launch()
    client, other = await running.connect(), await running.connect()
    job_id = await client.call("ADDJOB", "q", "body", 0, "RETRY", retry)
    for words in before:
        await other.call(*words)
    assert await other.call("GETJOB", "FROM", "q") == [[b"q", job_id, b"body"]]
    for words in after:
        await other.call(*words)
    assert other.transport is not None
    other.transport.loseConnection()
    await wait_until(lambda: len(running.daemon.clients.by_id) == 1)
    assert await client.call("QLEN", "q") == left
    if left:
        counted = [b"q", job_id, b"body", b"nacks", 0, b"additional-deliveries", 0]
        assert await client.call("GETJOB", "WITHCOUNTERS", "FROM", "q") == [counted]


@async_test
async def test_with_receipts_a_job_that_somebody_else_has_by_now_stays_there(launch: Launch) -> None:
    running = launch()
    client, other = await running.connect(), await running.connect()
    await client.call("CLIENT", "RECEIPTS", "ON")
    job_id = await other.call("ADDJOB", "q", "body", 0, "RETRY", 3600)
    assert await client.call("GETJOB", "FROM", "q") == [[b"q", job_id, b"body"]]
    await other.call("ENQUEUE", job_id)
    assert await other.call("GETJOB", "FROM", "q") == [[b"q", job_id, b"body"]]
    assert client.transport is not None
    client.transport.loseConnection()
    await wait_until(lambda: len(running.daemon.clients.by_id) == 1)
    assert await other.call("QLEN", "q") == 0
    assert await other.call("ACKJOB", job_id) == 1


@async_test
async def test_with_receipts_a_job_that_was_put_off_keeps_its_delay(launch: Launch) -> None:
    running = launch()
    client, other = await running.connect(), await running.connect()
    await client.call("CLIENT", "RECEIPTS", "ON")
    job_id = await other.call("ADDJOB", "q", "body", 0, "RETRY", 3600)
    await client.call("GETJOB", "FROM", "q")
    await other.call("NACK", job_id, "DELAY", 1800)
    assert client.transport is not None
    client.transport.loseConnection()
    await wait_until(lambda: len(running.daemon.clients.by_id) == 1)
    assert await other.call("QLEN", "q") == 0


@async_test
async def test_a_blocked_consumer_hears_of_its_time_out(launch: Launch) -> None:
    client = await launch().connect()
    assert await client.call("GETJOB", "TIMEOUT", 20, "FROM", "q") is None
    assert client.received == b"*-1\r\n"


@async_test
async def test_null_is_written_as_the_protocol_of_the_client_wants_it(launch: Launch) -> None:
    client = await launch().connect()
    await client.call("HELLO", 3)
    client.received.clear()
    await client.call("GETJOB", "NOHANG", "FROM", "q")
    await client.call("SHOW", "DI" + "0" * 44 + "SQ")
    assert client.received == b"_\r\n_\r\n"


@async_test
async def test_replies_before_a_protocol_error_are_sent_and_then_the_connection_ends(launch: Launch) -> None:
    client = await launch().connect()
    client.transport.write(pack("QLEN", "q") + b"*1\r\n:1\r\n" + pack("QLEN", "q"))
    await client.closed()
    assert client.received == b":0\r\n-ERR Protocol error: expected '$', got ':'\r\n"


@async_test
async def test_http_is_not_answered(launch: Launch) -> None:
    client = await launch().connect()
    client.transport.write(b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nADDJOB q evil 0\r\n")
    await client.closed()
    assert client.received == b""


@async_test
async def test_one_client_too_many_is_turned_away(launch: Launch) -> None:
    running = launch("maxclients 2")
    first, second = await running.connect(), await running.connect()
    assert await first.call("QLEN", "q") == 0
    assert await second.call("QLEN", "q") == 0
    third = await running.connect()
    await third.closed()
    assert third.received == b"-ERR max number of clients reached\r\n"
    assert await first.call("QLEN", "q") == 0


@async_test
async def test_a_stranger_may_only_authenticate(launch: Launch) -> None:
    client = await launch("requirepass secret").connect()
    error = await client.call("ADDJOB", "q", "body", 0)
    assert str(error) == "NOAUTH Authentication required."
    assert str(await client.call("AUTH", "wrong")).startswith(("ERR", "WRONGPASS"))
    assert await client.call("AUTH", "secret") == b"OK"
    assert (await client.call("ADDJOB", "q", "body", 0)).startswith(b"DI")


@async_test
async def test_a_stranger_may_send_little_and_after_the_password_everything(launch: Launch) -> None:
    running = launch("requirepass secret")
    hostile = await running.connect()
    hostile.transport.write(b"*2\r\n$4\r\nAUTH\r\n$20000\r\n")
    await hostile.closed()
    assert hostile.received == b"-ERR Protocol error: unauthenticated bulk length\r\n"
    client = await running.connect()
    client.transport.write(pack("AUTH", "secret") + pack("ADDJOB", "q", b"x" * 50_000, 0) + pack("QLEN", "q"))
    ok, job_id, length = await client.replies(3)
    assert (ok, job_id[:2], length) == (b"OK", b"DI", 1)


@async_test
async def test_a_client_that_does_not_read_is_not_run_and_keeps_nobody_waiting(launch: Launch) -> None:
    running = launch()
    slow, quick = await running.connect(), await running.connect()
    await quick.call("ADDJOB", "q", b"x" * 100_000, 0)
    slow.transport.pauseProducing()
    slow.transport.write(pack("QPEEK", "q", 1) * 500)
    connection = running.daemon.clients.sessions()[0]
    await wait_until(lambda: connection.output_buffered > 0)
    for _ in range(50):
        assert await quick.call("QLEN", "q") == 1
    assert connection.output_buffered < 1_000_000
    slow.transport.resumeProducing()
    assert len(await slow.replies(500)) == 500


@async_test
async def test_a_client_that_leaves_too_much_unread_is_closed(launch: Launch) -> None:
    running = launch("client-output-buffer-limit normal 1mb 0 0")
    slow, quick = await running.connect(), await running.connect()
    await quick.call("ADDJOB", "q", b"x" * 8_000_000, 0)
    slow.transport.pauseProducing()
    slow.transport.write(pack("QPEEK", "q", 1))
    await wait_until(lambda: len(running.daemon.clients.by_id) == 1)
    assert await quick.call("QLEN", "q") == 1


@async_test
async def test_a_blocked_client_is_read_no_further_than_a_backlog(launch: Launch) -> None:
    running = launch()
    client, other = await running.connect(), await running.connect()
    client.send("GETJOB", "FROM", "q")
    await wait_until(lambda: bool(running.daemon.node.state.waiting.blocked))
    [session] = [session for session in running.daemon.clients.sessions() if session.is_blocked]
    client.transport.write(pack("QLEN", "x" * 1_000) * 20_000)
    await wait_until(lambda: not running.daemon.clients.by_id[session.id]._read_on)
    assert session.input_buffered <= MOST_READ
    assert running.daemon.buffers.used <= MOST_READ
    await other.call("ADDJOB", "q", "body", 0)
    assert session.input_buffered <= MOST_READ
    assert (await client.replies(20_001))[-1] == 0
    assert session.input_buffered == running.daemon.buffers.used == 0


@pytest.mark.parametrize("how", ["close", "half-close", "reset"])
@async_test
async def test_a_blocked_client_that_is_not_read_from_is_noticed_when_it_closes(launch: Launch, how: str) -> None:
    running = launch()
    other = await running.connect()
    client = await running.connect()
    client.send("GETJOB", "FROM", "q")
    await wait_until(lambda: bool(running.daemon.node.state.waiting.blocked))
    [session] = [session for session in running.daemon.clients.sessions() if session.is_blocked]
    # Little enough to have arrived when the client closes.
    client.transport.write(pack("QLEN", "x" * 1_000) * 100)
    await wait_until(lambda: not running.daemon.clients.by_id[session.id]._read_on)
    if how == "close":
        client.transport.loseConnection()
    elif how == "half-close":
        client.transport.loseWriteConnection()
    else:
        client.transport.abortConnection()
    await wait_until(lambda: len(running.daemon.clients.by_id) == 1)
    assert not running.daemon.node.state.waiting.blocked
    assert (await other.call("ADDJOB", "q", "body", 0, "RETRY", 0)).startswith(b"DI")
    assert await other.call("QLEN", "q") == 1
    assert running.daemon.buffers.used == 0


@async_test
async def test_large_bodies_come_back_whole(launch: Launch) -> None:
    client = await launch().connect()
    body = bytes(range(256)) * 65_536
    await client.call("ADDJOB", "q", body, 0)
    assert (await client.call("GETJOB", "FROM", "q"))[0][2] == body


@async_test
async def test_a_bug_in_a_command_is_answered_reported_and_survived(launch: Launch, tmp_path: Path) -> None:
    import attrs

    @command("BUGGY", group="tests", flags=Flag.READ, reply=integer("never"), cost="O(1)")
    @attrs.define
    class Buggy:
        """Fail."""

        def run(self, node: object, client: object) -> int:
            raise ZeroDivisionError("planted")

    try:
        running = launch()
        client = await running.connect()
        client.transport.write(pack("QLEN", "q") + pack("BUGGY") + pack("ADDJOB", "q", "body", 0))
        before, error, after = await client.replies(3)
    finally:
        del table.MANUAL["BUGGY"], table.TABLE[b"BUGGY"], table.PLAIN[b"BUGGY"], table.PLAIN[b"buggy"]
    assert (before, str(error), after[:2]) == (0, "ERR internal error", b"DI")
    assert running.daemon.crashes.count == 1
    (report,) = tmp_path.glob("crash-*.txt")
    text = report.read_text()
    assert "ZeroDivisionError: planted" in text
    assert "BUGGY" in text
    assert report.stat().st_mode & 0o077 == 0


@async_test
async def test_monitor_shows_what_everybody_runs(launch: Launch) -> None:
    running = launch()
    watcher, client = await running.connect(), await running.connect()
    assert await watcher.call("MONITOR") == b"OK"
    await client.call("QLEN", b'q"\n\xff')
    line = (await watcher.replies(1))[0]
    assert line.endswith(b'] "QLEN" "q\\"\\n\\xff"')


@async_test
async def test_client_pause_holds_everybody_back_for_its_time(launch: Launch) -> None:
    running = launch()
    client = await running.connect()
    assert await client.call("CLIENT", "PAUSE", 30) == b"OK"
    assert running.daemon.traffic.paused
    assert await client.call("QLEN", "q") == 0
    assert not running.daemon.traffic.paused


@async_test
async def test_client_reply_off_and_skip(launch: Launch) -> None:
    client = await launch().connect()
    client.transport.write(
        pack("CLIENT", "REPLY", "OFF")
        + pack("QLEN", "unheard")
        + pack("CLIENT", "REPLY", "ON")
        + pack("CLIENT", "REPLY", "SKIP")
        + pack("QLEN", "unheard")
        + pack("ADDJOB", "q", "body", 0)
    )
    ok, job_id = await client.replies(2)
    assert (ok, job_id[:2]) == (b"OK", b"DI")


@async_test
async def test_idle_clients_are_closed_and_blocked_ones_are_not(launch: Launch) -> None:
    running = launch("timeout 1")
    idle, blocked = await running.connect(), await running.connect()
    blocked.send("GETJOB", "FROM", "q")
    await wait_until(lambda: bool(running.daemon.node.state.waiting.blocked))
    await idle.closed()
    assert not blocked.lost


@async_test
async def test_a_password_that_is_set_locks_everybody_out_who_never_gave_it(launch: Launch) -> None:
    running = launch()
    first, second = await running.connect(), await running.connect()
    assert await first.call("CONFIG", "SET", "requirepass", "secret") == b"OK"
    for client in (first, second):
        assert str(await client.call("PING")) == "NOAUTH Authentication required."
    assert await second.call("AUTH", "secret") == b"OK"
    assert await second.call("CONFIG", "SET", "requirepass", "other") == b"OK"
    assert await second.call("PING") == b"PONG"
    assert await second.call("CONFIG", "SET", "requirepass", "") == b"OK"
    assert (await first.call("ADDJOB", "q", b"x" * 50_000, 0)).startswith(b"DI")


@async_test
async def test_what_a_client_had_put_off_is_run_in_turns_with_the_others(launch: Launch) -> None:
    running = launch()
    greedy, other = await running.connect(), await running.connect()
    greedy.transport.write(pack("GETJOB", "FROM", "never") + pack("QLEN", "q") * 200_000)
    connection = next(iter(running.daemon.clients.by_id.values()))
    await wait_until(lambda: not connection._read_on)
    await other.call("ADDJOB", "never", "body", 0)
    assert await other.call("PING") == b"PONG"
    assert greedy.unread_replies < 200_000
    assert (await greedy.replies(200_001))[-1] == 0
    assert connection.session.input_buffered == 0


@pytest.mark.reference
@async_test
async def test_clients_with_much_to_do_share_one_slice_of_each_turn(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    monkeypatch.setattr(turns, "LONG_S", 0.0)
    running = launch()
    busy = running.daemon.traffic.busy
    greedy = [await running.connect() for _ in range(5)]
    for client in greedy:
        client.transport.write(pack("QLEN", "q") * 2_000)
    most, went_on = 0, 0
    take_turn = connection.ClientConnection.turn

    def counted(client: connection.ClientConnection) -> None:
        nonlocal went_on
        went_on += 1
        take_turn(client)

    monkeypatch.setattr(connection.ClientConnection, "turn", counted)
    share = busy._share

    def watched() -> None:
        nonlocal most
        before = went_on
        share()
        most = max(most, went_on - before)

    monkeypatch.setattr(busy, "_share", watched)
    for client in greedy:
        assert len(await client.replies(2_000)) == 2_000
    assert 1 <= most <= 2, "one of the short ones, and one that a busy machine made a long one"
    assert went_on >= 5


@pytest.mark.reference
@async_test
async def test_a_quick_first_command_does_not_wait_for_the_turns_of_others(launch: Launch) -> None:
    running = launch()
    quick, inline, slow = await running.connect(), await running.connect(), await running.connect()
    waited: list[str] = []
    add = running.daemon.traffic.busy.add

    def noted(client: Any, *, is_short: bool) -> None:
        waited.append(client.session.last_command)
        add(client, is_short=is_short)

    running.daemon.traffic.busy.add = noted  # type: ignore[method-assign]
    assert await quick.call("PING") == b"PONG"
    inline.transport.write(b"ping\r\n")
    assert await inline.replies(1) == [b"PONG"]
    assert waited == []
    await slow.call("QPEEK", "q", 100)
    assert waited == ["NULL"]


@pytest.mark.parametrize("small", [b"*1\r\n$0\r\n\r\n", b"*1\r\n$4\r\nPING\r\n", b"a\r\n", b"a\n"])
@async_test
async def test_small_commands_behind_a_blocking_one_count_with_what_they_take(launch: Launch, small: bytes) -> None:
    running = launch()
    client = await running.connect()
    client.transport.write(pack("GETJOB", "FROM", "q") + small * 200_000)
    await wait_until(lambda: bool(running.daemon.node.state.waiting.blocked))
    [session] = running.daemon.clients.sessions()
    await wait_until(lambda: not running.daemon.clients.by_id[session.id]._read_on)
    waiting = running.daemon.clients.by_id[session.id]._input
    words = [word for command in waiting.commands for word in command]
    real = sum(map(sys.getsizeof, waiting.commands)) + sum(map(sys.getsizeof, words))
    real += sum(map(sys.getsizeof, waiting.chunks))
    assert real <= session.input_buffered <= 2 * real + 2 * 65_536
    assert running.daemon.buffers.used == pytest.approx(session.input_buffered, rel=0.1)


@async_test
async def test_a_shorter_pause_does_not_end_a_longer_one(launch: Launch) -> None:
    running = launch()
    first, second = await running.connect(), await running.connect()
    first.transport.write(pack("CLIENT", "PAUSE", 60_000))
    assert await first.replies(1) == [b"OK"]
    running.daemon.clients.pause(1)
    second.send("QLEN", "q")
    await wait_until(lambda: any(client.input_buffered for client in running.daemon.clients.sessions()))
    assert running.daemon.traffic.paused
    assert running.daemon.clients._pause_end is not None
    running.daemon.clients._pause_end.reset(0)
    assert await second.replies(1) == [0]


# Commands that are too long for one step.


async def filled(client: RawClient, count: int) -> list[bytes]:
    """Add jobs; returns their ids."""
    client.transport.write(pack("ADDJOB", "q", "body", 0) * count)
    return await client.replies(count)


@async_test
async def test_commands_after_a_very_long_one_wait_for_it_and_other_clients_do_not(launch: Launch) -> None:
    running = launch()
    client, other = await running.connect(), await running.connect()
    ids = await filled(client, 20 * LONG)
    client.transport.write(pack("ACKJOB", *ids) + pack("QLEN", "q") + pack("ACKJOB", *ids))
    await wait_until(lambda: len(running.daemon.node.state.unfinished) > 0)
    client.send("PING")
    lengths = []
    while client.unread_replies == 0:
        lengths.append(await other.call("QLEN", "q"))
    assert any(0 < length < len(ids) for length in lengths)
    assert await client.replies(4) == [len(ids), 0, 0, b"PONG"]
    assert not running.daemon.crashes.count


@async_test
async def test_a_bad_id_in_a_very_long_command_is_an_error_like_any_other(launch: Launch) -> None:
    client = await launch().connect()
    ids = await filled(client, 2 * LONG)
    client.transport.write(pack("ACKJOB", *ids, "bad") + pack("QLEN", "q"))
    error, length = await client.replies(2)
    assert str(error) == "BADID Invalid Job ID format. - allowed are job ids, and the option RESULT"
    assert length == len(ids)


@async_test
async def test_a_very_long_command_of_a_client_that_closes_is_done_to_its_end(launch: Launch) -> None:
    running = launch()
    client, other = await running.connect(), await running.connect()
    ids = await filled(client, 10 * LONG)
    client.send("ACKJOB", *ids)
    await wait_until(lambda: len(running.daemon.node.state.unfinished) > 0)
    client.transport.abortConnection()
    await wait_until(lambda: not len(running.daemon.node.state.jobs))
    assert await other.call("QLEN", "q") == 0


# What many clients leave unread.


@async_test
async def test_what_all_clients_leave_unread_is_bounded_and_the_one_with_most_goes_first(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffers, "MINIMUM", 1)
    running = launch("maxmemory 80mb")
    quick, slow = await running.connect(), [await running.connect() for _ in range(8)]
    daemon, connections = running.daemon, running.daemon.clients.sessions()
    await quick.call("ADDJOB", "small", b"x" * 10_000_000, 0)
    await quick.call("ADDJOB", "large", b"x" * 30_000_000, 0)
    asked: list[RawClient] = []
    for number, client in enumerate(slow):
        before = daemon.buffers.used
        client.transport.pauseProducing()
        client.send("QPEEK", "large" if number == 1 else "small", 1)
        asked.append(client)
        await wait_until(
            lambda before=before: (
                len(daemon.clients.by_id) < len(connections) or daemon.buffers.used > before + 1_000_000
            )
        )
        largest = max(map(daemon.buffers.size_of, daemon.clients.sessions()))
        assert daemon.buffers.used - largest <= daemon.buffers.limit == daemon.node.state.memory.limit // 4
        if len(daemon.clients.by_id) < len(connections):
            break
    assert [number for number, connection in enumerate(connections) if connection.id not in daemon.clients.by_id] == [2]
    assert len(asked) > 2
    for client in asked[:1] + asked[2:]:
        client.transport.resumeProducing()
        assert len((await client.replies(1))[0][0][2]) == 10_000_000
    await wait_until(lambda: daemon.buffers.used == 0)
    assert daemon.buffers.ended == 1


@async_test
async def test_unfinished_requests_share_the_bound(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "MINIMUM", 1)
    running = launch("maxmemory 40mb")
    daemon = running.daemon
    body = pack("ADDJOB", "q", b"x" * 6_000_000, 0)
    words = b"*100001\r\n$6\r\nACKJOB\r\n" + b"$3\r\nabc\r\n" * 99_000
    whole = [await running.connect() for _ in range(6)]
    for number, client in enumerate(whole):
        client.transport.write((body, words)[number % 2][:-1_000])
    await wait_until(lambda: daemon.buffers.ended > 0)
    await wait_until(lambda: any(client.lost for client in whole))
    left = [client for client in whole if not client.lost]
    assert daemon.buffers.used <= daemon.buffers.limit + 7_000_000
    assert await (await running.connect()).call("PING") == b"PONG"
    assert 1 <= len(left) < 6


@async_test
async def test_one_body_may_be_larger_than_the_bound_of_all(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "MINIMUM", 1)
    running = launch("maxmemory 40mb")
    client = await running.connect()
    body = b"x" * 30_000_000
    assert (await client.call("ADDJOB", "q", body, 0)).startswith(b"DI")
    assert (await client.call("GETJOB", "FROM", "q"))[0][2] == body
    await wait_until(lambda: running.daemon.buffers.used == 0)
    assert running.daemon.buffers.peak > running.daemon.buffers.limit


@async_test
async def test_subscriptions_count(launch: Launch) -> None:
    running = launch()
    client, other = await running.connect(), await running.connect()
    for client_of_both in (client, other):
        client_of_both.send("SUBSCRIBE", *range(1_000))
        client_of_both.send("PSUBSCRIBE", *(f"{n}*" for n in range(1_000)))
        await client_of_both.replies(2_000)
    await wait_until(lambda: running.daemon.buffers.used > 2 * 2_000 * 600)
    client.send("UNSUBSCRIBE")
    client.send("PUNSUBSCRIBE")
    await client.replies(2_000)
    assert [session.subscriptions.size > 0 for session in running.daemon.clients.sessions()] == [False, True]
    other.transport.loseConnection()
    await wait_until(lambda: len(running.daemon.clients.by_id) == 1)
    assert running.daemon.buffers.used == 0


@async_test
async def test_replies_that_wait_for_a_commit_hold_their_client_back(launch: Launch) -> None:
    store = RecordingStore(later=True)
    running = launch(store=store)
    client = await running.connect()
    assert await client.call("PING") == b"PONG"
    [connected] = running.daemon.clients.by_id.values()
    session = connected.session
    client.transport.write(pack("ADDJOB", "q", "body", 0) + pack("ECHO", "x" * 10_000) * 2_000)
    await wait_until(lambda: connected._owes)
    assert session.output_buffered <= 2 * connection.REPLIES_MAX
    assert running.daemon.buffers.used >= session.output_buffered
    store.later = False
    store.answer()
    replies = await client.replies(2_001)
    assert replies[0].startswith(b"DI")
    assert set(replies[1:]) == {b"x" * 10_000}


@async_test
async def test_that_a_client_does_not_read_is_logged_once(launch: Launch) -> None:
    running = launch("client-output-buffer-limit normal 1mb 0 0")
    watcher, client = await running.connect(), await running.connect()
    assert await watcher.call("MONITOR") == b"OK"
    watcher.transport.pauseProducing()
    with capturedLogs() as events:
        while len(running.daemon.clients.by_id) == 2:
            client.transport.write(pack("QLEN", "x" * 100_000) * 20)
            await client.replies(20)
    lines = [event for event in events if "does not read" in (event["log_format"] or "")]
    assert len(lines) == 1


@async_test
async def test_a_consumer_that_was_just_killed_is_given_no_job(launch: Launch) -> None:
    running = launch()
    consumer, other = await running.connect(), await running.connect()
    consumer.send("GETJOB", "FROM", "q")
    await wait_until(lambda: any(session.is_blocked for session in running.daemon.clients.sessions()))
    [blocked] = [session for session in running.daemon.clients.sessions() if session.is_blocked]
    other.transport.write(pack("CLIENT", "KILL", "ID", blocked.id) + pack("ADDJOB", "q", "once", 0, "RETRY", 0))
    killed, job_id = await other.replies(2)
    assert killed == 1
    await consumer.closed()
    assert consumer.received == b""
    assert await other.call("GETJOB", "NOHANG", "FROM", "q") == [[b"q", job_id, b"once"]]


@async_test
async def test_a_client_that_is_unblocked_goes_on_with_what_it_has_sent(launch: Launch) -> None:
    running = launch()
    consumer, other = await running.connect(), await running.connect()
    number = await consumer.call("CLIENT", "ID")
    consumer.send("GETJOB", "FROM", "q")
    consumer.send("PING")
    await wait_until(lambda: any(session.is_blocked for session in running.daemon.clients.sessions()))
    assert await other.call("CLIENT", "UNBLOCK", number, "ERROR") == 1
    refused, pong = await consumer.replies(2)
    assert (str(refused), pong) == ("UNBLOCKED client unblocked via CLIENT UNBLOCK", b"PONG")
    assert await other.call("CLIENT", "UNBLOCK", number, "ERROR") == 0


@async_test
async def test_jobs_whose_delivery_waits_for_a_commit_go_back_when_their_client_is_ended_meanwhile(
    launch: Launch,
) -> None:
    store = RecordingStore(later=True)
    running = launch(store=store)
    client, other = await running.connect(), await running.connect()

    async def held() -> Any:
        """Wait until a reply waits for a commit; returns whose."""
        await wait_until(lambda: any(session.is_held for session in running.daemon.clients.sessions()))
        [session] = [session for session in running.daemon.clients.sessions() if session.is_held]
        return session

    other.send("ADDJOB", "q", "once", 0, "RETRY", 0)
    await held()
    store.answer()
    [job_id] = await other.replies(1)
    client.send("GETJOB", "FROM", "q")
    (await held()).end_unread(1 << 30)
    store.answer()
    await client.closed()
    store.answer_at_once()
    assert await other.call("GETJOB", "FROM", "q") == [[b"q", job_id, b"once"]]


@async_test
async def test_what_all_idle_clients_share_is_never_added_to(launch: Launch) -> None:
    store = RecordingStore(later=True)
    running = launch(store=store)
    clients = [await running.connect() for _ in range(3)]
    await wait_until(lambda: len(list(running.daemon.clients.sessions())) == len(clients))
    assert all(session.held is NO_REPLIES for session in running.daemon.clients.sessions())
    for client in clients:
        client.send("ADDJOB", "q", "body", 0)
        await wait_until(lambda: any(session.is_held for session in running.daemon.clients.sessions()))
        store.answer()
        assert len(await client.replies(1)) == 1
    assert (NO_REPLIES.texts, NO_REPLIES.deliveries, NO_REPLIES.promises) == ([], [], [])
    assert len({id(session.due) for session in running.daemon.clients.sessions()}) == len(clients)


@async_test
async def test_whoever_speaks_http_is_told_of_once(launch: Launch) -> None:
    running = launch()
    with capturedLogs() as events:
        for _ in range(3):
            client = await running.connect()
            client.transport.write(b"GET / HTTP/1.1\r\n\r\n")
            await client.closed()
    told = [event for event in events if "HTTP on the RESP port" in (event["log_format"] or "")]
    assert len(told) == 1


@async_test
async def test_what_fails_beside_a_command_leaves_no_client_running(launch: Launch) -> None:
    running = launch()
    client, other = await running.connect(), await running.connect()

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("planted")

    running.daemon.latency.note = fail  # type: ignore[method-assign]
    running.daemon.slowlog.threshold_us = 0
    running.daemon.dispatch.find_slow()
    client.send("QLEN", "q")
    await client.closed()
    assert running.daemon.traffic.running == 0
    running.daemon.slowlog.threshold_us = -1
    running.daemon.dispatch.find_slow()
    assert await other.call("QLEN", "q") == 0


@pytest.mark.reference
@async_test
async def test_of_many_connections_that_end_at_once_some_end_in_each_turn(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "ENDS_AT_ONCE", 10)
    running = launch()
    stays = await running.connect()
    here = [await running.connect() for _ in range(60)]
    await wait_until(lambda: len(running.daemon.clients.by_id) == 61)
    ended: list[int] = []
    end = rounds.Rounds._end

    def noted(self: rounds.Rounds, transport: Any, why: Any) -> None:
        ended.append(len(self._ending))
        end(self, transport, why)

    monkeypatch.setattr(rounds.Rounds, "_end", noted)
    for each in here:
        each.transport.socket.shutdown(socket.SHUT_WR)
    assert await stays.call("PING") == b"PONG"
    await wait_until(lambda: len(running.daemon.clients.by_id) == 1)
    assert max(ended) >= 40, "those that were put off waited"
