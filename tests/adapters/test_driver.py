"""The driver: nothing is said before it is durable, one commit per turn, one timer."""

import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from disqued.core.model.clock import Clock
from disqued.core.model.job import Job, JobOptions
from disqued.core.model.messages import DELJOB, FOUND, GIVE, GOTACK, GOTJOB, PING, REPLJOB, SETTLED, Message
from disqued.core.model.outbox import GONE_REFUSED, JOB_ADDED, JOB_GONE, QUEUE_PAUSED, UNIT_DONE, Record
from disqued.core.model.trace import FLUSH
from disqued.net.clients import connection
from disqued.persistence.interface import StoreFailed
from disqued.wire.eventlines import EventLines
from disqued.wire.jobdump import decode_record, encode_job
from tests.adapters.inprocess import RecordingStore, Running, pack, wait_until

Launch = Callable[..., Running]
async_test = pytest_twisted.ensureDeferred


@async_test
async def test_an_added_job_is_committed_before_its_id_is_told(launch: Launch) -> None:
    store = RecordingStore()
    client = await launch(store=store).connect()
    heard: list[bytes] = []
    store.before_commit = lambda: heard.append(bytes(client.received))
    job_id = await client.call("ADDJOB", "q", "body", 0)
    assert heard == [b""]
    assert [record[1].id for record in store.committed if record[0] == JOB_ADDED] == [job_id]


@async_test
async def test_an_at_most_once_job_is_done_in_the_journal_before_it_is_handed_out(launch: Launch) -> None:
    store = RecordingStore()
    running = launch(store=store)
    producer, consumer = await running.connect(), await running.connect()
    consumer.send("GETJOB", "FROM", "q")
    await wait_until(lambda: bool(running.daemon.node.state.waiting.blocked))
    heard: list[bytes] = []
    store.before_commit = lambda: heard.append(bytes(consumer.received))
    job_id = await producer.call("ADDJOB", "q", "body", 0, "RETRY", 0)
    assert (await consumer.replies(1))[0][0][1] == job_id
    assert heard[0] == b""
    assert (UNIT_DONE, job_id, b"") in store.committed


@async_test
async def test_a_pipeline_costs_one_commit(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    # However slow this machine is: a client that has run commands for longer gives way to others in between.
    monkeypatch.setattr(connection, "SLICE_S", 60.0)
    store = RecordingStore()
    client = await launch(store=store).connect()
    client.transport.write(pack("ADDJOB", "q", "body", 0) * 200)
    await client.replies(200)
    assert store.commits <= 2
    assert len(store.committed) == 200


@async_test
async def test_a_failed_commit_acknowledges_nothing_and_only_additions_stop(launch: Launch) -> None:
    store = RecordingStore()
    running = launch(store=store)
    consumer, producer = await running.connect(), await running.connect()
    kept = await consumer.call("ADDJOB", "q", "kept", 0)
    store.fails = True
    producer.transport.write(pack("ADDJOB", "q", "lost", 0) + pack("QLEN", "q") + pack("ADDJOB", "q", "lost", 0))
    refused, length, again = await producer.replies(3)
    assert str(refused) == str(again) == "MISCONF Errors writing to the AOF file: No space left on device"
    assert length == 2
    assert str(await consumer.call("ADDJOB", "q", "refused", 0)) == str(refused)
    assert str(await consumer.call("PING")) == str(refused)
    assert [job[1] for job in await consumer.call("GETJOB", "COUNT", 9, "FROM", "q")] == [kept]
    assert await consumer.call("ACKJOB", kept) == 1
    assert b"aof_last_write_status:err" in await consumer.call("INFO", "persistence")


@pytest.mark.parametrize("later", [False, True])
@async_test
async def test_an_event_that_is_done_by_its_delivery_is_not_sent_when_that_cannot_be_kept(
    launch: Launch, later: bool
) -> None:
    store = RecordingStore()
    running = launch(store=store)
    producer, consumer, other = await running.connect(), await running.connect(), await running.connect()
    for number in range(4):
        await producer.call("QADD", "log", 60, str(number))
    assert await consumer.call("PING") == b"PONG"  # several commands of a new client would wait for a turn
    store.fails, store.later = not later, later
    for words in (("EX", 0), ("EX", 0, "COUNT", 2), ("EX", 30)):
        consumer.send("QGET", "log", "g", *words)
    other.send("QGET", "log", "other")
    if later:
        await wait_until(lambda: store.under_way is not None)
        store.answer(StoreFailed("No space left on device", final=False))
    one, two, leased = await consumer.replies(3)
    assert str(one) == str(two) == "MISCONF Errors writing to the AOF file: No space left on device"
    # What comes back after its time may be sent.
    assert leased[1] == b"3"
    assert (await other.replies(1))[0][1] == b"0"


@async_test
async def test_additions_resume_by_themselves_and_nothing_that_happened_meanwhile_is_missing(launch: Launch) -> None:
    store = RecordingStore()
    running = launch(store=store)
    client = await running.connect()
    kept = await client.call("ADDJOB", "q", "kept", 0)
    store.fails = True
    assert str(await client.call("ADDJOB", "q", "refused", 0)).startswith("MISCONF")
    assert await client.call("ACKJOB", kept) == 1
    store.fails = False
    await wait_until(lambda: running.daemon.turn.failure is None)
    new = await client.call("ADDJOB", "q", "new", 0)
    kinds = [(record[0], getattr(record[1], "id", record[1])) for record in store.committed]
    refused = kinds[1][1]
    assert kinds == [
        (JOB_ADDED, kept), (JOB_ADDED, refused), (JOB_GONE, refused), (UNIT_DONE, kept), (JOB_ADDED, new),
    ]  # fmt: skip
    assert store.committed[2][2] == GONE_REFUSED


@async_test
async def test_a_store_that_commits_elsewhere_is_waited_for_and_later_turns_share_the_next_commit(
    launch: Launch,
) -> None:
    store = RecordingStore(later=True)
    running = launch(store=store)
    first, second = await running.connect(), await running.connect()
    first.send("ADDJOB", "q", "one", 0)
    await wait_until(lambda: store.under_way is not None)
    for number in range(5):
        second.send("ADDJOB", "q", str(number), 0)
        first.send("QLEN", "q")
        await wait_until(lambda number=number: len(running.daemon.node.state.jobs) == number + 2)
    assert first.unread_replies == second.unread_replies == 0
    store.answer()
    one = (await first.replies(1))[0]
    assert [record[1].id for record in store.committed] == [one]
    assert not second.unread_replies
    await wait_until(lambda: store.under_way is not None)
    store.answer()
    assert len(await second.replies(5)) == 5
    assert await first.replies(5) == [2, 3, 4, 5, 6]
    assert store.commits == 2


@async_test
async def test_a_commit_that_fails_later_takes_back_what_nobody_was_told(launch: Launch) -> None:
    store = RecordingStore(later=True)
    running = launch(store=store)
    first, second = await running.connect(), await running.connect()
    first.send("ADDJOB", "q", "one", 0)
    await wait_until(lambda: store.under_way is not None)
    second.send("ADDJOB", "q", "two", 0)
    await wait_until(lambda: len(running.daemon.node.state.jobs) == 2)
    store.answer(StoreFailed("the server is away", final=False))
    for client in (first, second):
        assert str((await client.replies(1))[0]) == "MISCONF Errors writing to the AOF file: the server is away"
    assert not len(running.daemon.node.state.jobs)
    # Whoever adds nothing is served, although the next attempt to commit takes its time.
    await wait_until(lambda: store.under_way is not None)
    assert await first.call("QLEN", "q") == 0
    store.answer()
    await wait_until(lambda: running.daemon.turn.failure is None)
    second.send("ADDJOB", "q", "three", 0)
    await wait_until(lambda: store.under_way is not None)
    store.answer()
    assert (await second.replies(1))[0].startswith(b"DI")


@async_test
async def test_jobs_in_a_reply_that_waits_for_a_commit_go_back_when_the_client_leaves(launch: Launch) -> None:
    store = RecordingStore()
    running = launch(store=store)
    producer, consumer = await running.connect(), await running.connect()
    once = await producer.call("ADDJOB", "q", "once", 0, "RETRY", 0)
    store.later = True
    consumer.send("GETJOB", "FROM", "q")
    await wait_until(lambda: store.under_way is not None)
    consumer.transport.abortConnection()
    await wait_until(lambda: len(running.daemon.clients.by_id) == 1)
    store.answer()
    await wait_until(lambda: store.under_way is not None)
    store.answer()
    store.later = False
    assert (await producer.call("GETJOB", "NOHANG", "FROM", "q"))[0][1] == once


@async_test
async def test_a_store_that_has_grown_is_compacted_after_a_commit(launch: Launch) -> None:
    store = RecordingStore()
    running = launch(store=store)
    client = await running.connect()
    kept = await client.call("ADDJOB", "q", "kept", 0)
    store.wants_compaction = True
    await client.call("ADDJOB", "q", "more", 0)
    await wait_until(lambda: len(store.compacted) == 2)
    assert kept in {record[1].id for record in store.compacted}


@async_test
async def test_a_daemon_that_ends_answers_what_it_commits(launch: Launch) -> None:
    store = RecordingStore(later=True)
    running = launch(store=store)
    client = await running.connect()
    client.send("ADDJOB", "q", "one", 0)
    await wait_until(lambda: store.under_way is not None)
    ending = Deferred.fromCoroutine(running.daemon.stop())
    store.answer()
    await ending
    assert (await client.replies(1))[0].startswith(b"DI")
    assert store.closed


@async_test
async def test_a_daemon_that_ends_runs_nobodys_commands(launch: Launch) -> None:
    store = RecordingStore(later=True)
    running = launch(store=store)
    client, other = await running.connect(), await running.connect()
    client.send("ADDJOB", "q", "one", 0)
    await wait_until(lambda: store.under_way is not None)
    ending = Deferred.fromCoroutine(running.daemon.stop())
    received = running.daemon.traffic.bytes_in
    other.send("ADDJOB", "q", "late", 0)
    await wait_until(lambda: running.daemon.traffic.bytes_in > received)
    store.answer_at_once()
    await ending
    assert len(running.daemon.node.state.jobs) == len(store.committed) == 1


@async_test
async def test_a_step_while_the_store_is_being_closed_is_not_committed_and_nobody_hears_of_it(launch: Launch) -> None:
    store = RecordingStore()
    running = launch(store=store)
    closed: Deferred[None] = Deferred()
    store.close = lambda: closed  # type: ignore[method-assign,assignment,return-value]
    batches = listen(running)
    ending = Deferred.fromCoroutine(running.daemon.stop())
    add(running, CONFIRMED, record=PAUSED)
    store.wants_compaction = True
    driver = running.daemon.driver
    driver.look_soon()
    due = [call for call in reactor.getDelayedCalls() if getattr(call.func, "__self__", None) is driver]
    closed.callback(None)
    await ending
    assert due == []
    assert (store.commits, store.appended, batches) == (0, [], [])


@async_test
async def test_a_shutdown_whose_journal_cannot_be_written_is_refused_and_the_node_goes_on(launch: Launch) -> None:
    store = RecordingStore()
    running = launch(store=store)
    client, other = await running.connect(), await running.connect()
    await client.call("ADDJOB", "q", "body", 0)

    writing: Deferred[None] = Deferred()
    store.rewrite = lambda records: writing  # type: ignore[method-assign]
    client.send("SHUTDOWN", "REWRITE-AOF")
    await wait_until(lambda: running.daemon.ending)
    received = running.daemon.traffic.bytes_in
    other.send("QLEN", "q")
    await wait_until(lambda: running.daemon.traffic.bytes_in > received)
    assert not other.unread_replies
    writing.errback(StoreFailed("No space left on device"))
    assert str((await client.replies(1))[0]) == "ERR Errors trying to SHUTDOWN. Check logs."
    assert await other.replies(1) == [1]
    assert not running.stopped
    await client.call("ADDJOB", "q", "body", 0)


@async_test
async def test_an_idle_node_sets_no_timer_for_its_jobs_before_they_are_due(launch: Launch) -> None:
    running = launch()
    client = await running.connect()
    await client.call("ADDJOB", "q", "body", 0, "RETRY", 600, "TTL", 86_400)
    node = running.daemon.node
    times = [
        call.getTime() - reactor.seconds()
        for call in reactor.getDelayedCalls()
        if getattr(call.func, "__self__", None) is running.daemon.driver
    ]
    assert len(times) == 1
    # A new queue is looked at after five minutes, the job after ten.
    assert times[0] > 200
    assert node.deadline() is not None


@async_test
async def test_a_retry_comes_without_any_client(launch: Launch) -> None:
    running = launch()
    producer, consumer = await running.connect(), await running.connect()
    job_id = await producer.call("ADDJOB", "q", "body", 0, "RETRY", 1)
    assert (await consumer.call("GETJOB", "FROM", "q"))[0][1] == job_id
    again = await consumer.call("GETJOB", "WITHCOUNTERS", "FROM", "q")
    assert again == [[b"q", job_id, b"body", b"nacks", 0, b"additional-deliveries", 1]]


@async_test
async def test_nothing_runs_after_a_shutdown_was_accepted(launch: Launch) -> None:
    store = RecordingStore()
    running = launch(store=store)
    client = await running.connect()
    job_id = await client.call("ADDJOB", "q", "kept", 0, "RETRY", 0)
    client.transport.write(
        pack("SHUTDOWN", "REWRITE-AOF") + pack("GETJOB", "FROM", "q") + pack("ADDJOB", "q", "late", 0)
    )
    await wait_until(lambda: running.stopped)
    assert [record[1].id for record in store.committed if record[0] == JOB_ADDED] == [job_id]
    assert client.unread_replies == 0
    assert len(running.daemon.node.state.jobs) == 1


@async_test
async def test_what_only_time_did_is_committed_too(launch: Launch) -> None:
    store = RecordingStore()
    client = await launch(store=store).connect()
    job_id = await client.call("ADDJOB", "q", "body", 0, "TTL", 1)
    await wait_until(lambda: (JOB_GONE, job_id, b"expired") in store.committed)


@async_test
async def test_a_job_that_expired_while_the_node_was_down_stays_gone_whatever_the_clock_says_later(
    launch: Launch,
) -> None:
    options = JobOptions(ttl_ms=1, retry_ms=0, delay_ms=0, replicate=1)
    job_id = b"DI" + b"0" * 44 + b"SQ"
    store = RecordingStore(stored=[decode_record(encode_job(Job(job_id, b"q", b"body", 1, options), 0))])
    launch(store=store)
    await wait_until(lambda: (JOB_GONE, job_id, b"expired") in store.committed)


@async_test
async def test_jobs_in_a_reply_that_the_socket_refused_go_back_as_defect_24_of_the_c_version_lost_them(
    launch: Launch,
) -> None:
    store = RecordingStore()
    running = launch(store=store)
    producer = await running.connect()
    once = await producer.call("ADDJOB", "q", "once", 0, "RETRY", 0)
    again = await producer.call("ADDJOB", "q", "again", 0)
    victim = socket.create_connection(("127.0.0.1", running.port.getHost().port))

    def vanish() -> None:
        if victim.fileno() >= 0:
            victim.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            victim.close()

    store.before_commit = vanish
    victim.sendall(pack("GETJOB", "COUNT", 2, "FROM", "q"))
    await wait_until(lambda: victim.fileno() < 0 and len(running.daemon.clients.by_id) == 1)
    taken = await producer.call("GETJOB", "WITHCOUNTERS", "COUNT", 2, "FROM", "q")
    assert [job[1] for job in taken] == [once, again]
    assert [job[4::2] for job in taken] == [[0, 0], [0, 0]]


@async_test
async def test_a_second_rewrite_waits_until_the_first_is_over(launch: Launch) -> None:
    store = RecordingStore()
    client = await launch(store=store).connect()
    assert await client.call("BGREWRITEAOF") == b"Background append only file rewriting started"
    store.status = lambda: {"aof_rewrite_in_progress": 1}  # type: ignore[method-assign]
    answer = str(await client.call("BGREWRITEAOF"))
    assert answer == "ERR Background append only file rewriting already in progress"


@async_test
async def test_who_has_nothing_to_commit_does_not_wait_for_the_commits_of_others(launch: Launch) -> None:
    store = RecordingStore()
    running = launch(store=store)
    producer, consumer = await running.connect(), await running.connect()
    kept = await producer.call("ADDJOB", "q", "kept", 0)
    once = await producer.call("ADDJOB", "other", "once", 0, "RETRY", 0)
    store.later = True
    producer.send("ADDJOB", "third", "new", 0)
    await wait_until(lambda: store.under_way is not None)
    assert await consumer.call("PING") == b"PONG"
    assert (await consumer.call("GETJOB", "FROM", "q"))[0][1] == kept
    # A job that is delivered at most once is marked as done before that is said; what comes after it waits, too.
    consumer.transport.write(pack("GETJOB", "FROM", "other") + pack("PING"))
    producer.send("PING")
    await wait_until(lambda: len(running.daemon.turn._batch) == 1)
    assert consumer.unread_replies == producer.unread_replies == 0
    store.answer()
    assert len(await producer.replies(1)) == 1
    await wait_until(lambda: store.under_way is not None)
    store.answer()
    assert (await consumer.replies(2))[0][0][1] == once


@async_test
async def test_a_store_that_wants_compaction_is_compacted_although_nobody_says_anything(launch: Launch) -> None:
    store = RecordingStore()
    running = launch(store=store)
    client = await running.connect()
    kept = await client.call("ADDJOB", "q", "kept", 0)
    store.wants_compaction = True
    running.daemon.driver.look_soon()
    await wait_until(lambda: bool(store.compacted))
    assert [record[1].id for record in store.compacted] == [kept]


# Messages to other nodes.

ELSEWHERE = b"e5" * 20


def listen(running: Running) -> list[list[Message]]:
    """Have the messages that leave noted, in the batches in which they do."""
    batches: list[list[Message]] = []
    running.daemon.driver.send = lambda messages: batches.append([message for _, message in messages])
    return batches


def add(running: Running, *messages: Message, record: Record | None = None) -> None:
    """Do a step that says something, and that may have something journaled."""
    node = running.daemon.node
    node.begin()
    if record is not None:
        node.outbox.journal.append(record)
    node.outbox.messages += [(ELSEWHERE, message) for message in messages]
    running.daemon.turn.finish_step(None)


async def turn() -> None:
    """Let the loop turn until everything that was put off to its end is done."""
    for _ in range(3):
        await deferLater(reactor, 0)


PINGED: Message = (PING, 0, ())
CONFIRMED: Message = (GOTJOB, b"id")
DELETED: Message = (DELJOB, b"id")
COPIED: Message = (REPLJOB, None, False)
PAUSED: Record = (QUEUE_PAUSED, b"q", 0)


@async_test
async def test_messages_of_one_turn_leave_together_when_nothing_is_journaled(launch: Launch) -> None:
    running = launch()
    batches = listen(running)
    add(running, CONFIRMED)
    add(running, DELETED, PINGED)
    assert batches == []
    await turn()
    assert batches == [[CONFIRMED, DELETED, PINGED]]


@pytest.mark.reference
@async_test
async def test_messages_leave_after_the_commit_of_their_turn_and_before_its_replies(launch: Launch) -> None:
    store = RecordingStore()
    running = launch(store=store)
    client = await running.connect()
    order: list[str] = []
    store.before_commit = lambda: order.append("commit")
    running.daemon.driver.send = lambda messages: order.append(f"messages, {len(client.received)} bytes of replies")
    node = running.daemon.node
    carry_out = node.command

    def command(client: Any, call: Any) -> Any:
        node.outbox.messages.append((ELSEWHERE, CONFIRMED))
        return carry_out(client, call)

    node.command = command  # type: ignore[method-assign]
    await client.call("ADDJOB", "q", "body", 0)
    assert order == ["commit", "messages, 0 bytes of replies"]


@async_test
async def test_messages_wait_for_a_commit_elsewhere_but_for_those_that_tell_who_is_there(launch: Launch) -> None:
    store = RecordingStore(later=True)
    running = launch(store=store)
    batches = listen(running)
    add(running, PINGED, CONFIRMED, record=PAUSED)
    await wait_until(lambda: store.under_way is not None)
    add(running, DELETED, PINGED)
    await turn()
    assert batches == [[PINGED], [PINGED]]
    store.answer()
    await turn()
    assert batches[2:] == [[CONFIRMED], [DELETED]]


@async_test
async def test_what_later_steps_say_waits_for_their_own_commit(launch: Launch) -> None:
    store = RecordingStore(later=True)
    running = launch(store=store)
    batches = listen(running)
    add(running, CONFIRMED, record=PAUSED)
    await wait_until(lambda: store.under_way is not None)
    add(running, DELETED, record=PAUSED)
    await turn()
    store.answer()
    await wait_until(lambda: store.under_way is not None)
    assert batches == [[CONFIRMED]]
    store.answer()
    assert batches == [[CONFIRMED], [DELETED]]


@async_test
@pytest.mark.parametrize("later", [False, True])
async def test_nobody_hears_of_what_could_not_be_made_durable(launch: Launch, later: bool) -> None:
    store = RecordingStore(later=later)
    running = launch(store=store)
    batches = listen(running)
    store.fails = True
    add(running, CONFIRMED, COPIED, DELETED, record=PAUSED)
    if later:
        await wait_until(lambda: store.under_way is not None)
        add(running, CONFIRMED, record=PAUSED)
        store.answer(StoreFailed("No space left on device", final=False))
        store.later = False
    await wait_until(lambda: running.daemon.turn.failure is not None)
    await turn()
    assert running.daemon.node.state.durability.read_only
    assert batches == [[DELETED]]
    # Nor what another node takes for done, or does in the belief that it is safe here.
    promises = [(kind, b"id") for kind in (GOTACK, GIVE, SETTLED, FOUND)]
    add(running, CONFIRMED, COPIED, DELETED, PINGED, *promises, record=PAUSED)
    await turn()
    assert batches == [[DELETED], [DELETED, PINGED]]
    store.fails = False
    await wait_until(lambda: running.daemon.turn.failure is None)
    assert not running.daemon.node.state.durability.read_only
    add(running, CONFIRMED, record=PAUSED)
    await turn()
    assert batches[2:] == [[CONFIRMED]]


@async_test
async def test_what_is_known_of_other_nodes_is_followed_once_per_change(launch: Launch) -> None:
    running = launch()
    followed: list[int] = []
    running.daemon.driver.on_members = lambda: followed.append(1)
    running.daemon.node.outbox.members_changed = True
    add(running)
    add(running)
    assert followed == [1]
    assert not running.daemon.node.outbox.members_changed


@async_test
async def test_a_daemon_that_ends_says_what_it_has_to_say(launch: Launch) -> None:
    store = RecordingStore()
    running = launch(store=store)
    batches = listen(running)
    add(running, CONFIRMED, record=PAUSED)
    await running.daemon.stop()
    assert batches == [[CONFIRMED]]


# Rounds of connection, while no store wants the journal.


class Ticking:
    """Clocks that go on by a second each time that one of them is read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read = 0

    def now(self) -> int:
        self._read += 1
        return self._clock.now() + 1_000 * self._read

    def wall(self) -> int:
        self._read += 1
        return self._clock.wall() + 1_000 * self._read


@async_test
async def test_replies_of_a_round_leave_when_it_is_over(launch: Launch) -> None:
    running = launch()
    running.take_no_time()
    driver = running.daemon.driver
    consumer, producer = await running.connect(), await running.connect()
    waiting, adding = running.daemon.clients.sessions()
    consumer.send("GETJOB", "FROM", "q")
    await wait_until(lambda: waiting.is_blocked)
    driver.turn.begin_round()
    connection = running.daemon.clients.by_id[adding.id]
    connection.dataReceived(pack("ADDJOB", "q", "body", 0))
    await deferLater(reactor, 0, int)
    assert not waiting.is_blocked
    assert min(waiting.output_buffered, adding.output_buffered) > 0
    assert not producer.received
    assert not consumer.received
    driver.turn.end_round()
    assert (await consumer.replies(1))[0][0][1:] == [*await producer.replies(1), b"body"]
    connection.dataReceived(pack("PING"))
    assert adding.output_buffered == 0


@async_test
async def test_a_round_is_one_moment(launch: Launch) -> None:
    running = launch()
    running.take_no_time()
    driver, node = running.daemon.driver, running.daemon.node
    client = await running.connect()
    [session] = running.daemon.clients.by_id.values()
    node.clock = Ticking(node.clock)
    for _ in range(2):
        before = (node.state.now, node.state.wall)
        driver.turn.begin_round()
        moment = (node.state.now, node.state.wall)
        assert moment[0] > before[0]
        assert moment[1] > before[1]
        for _ in range(3):
            session.dataReceived(pack("PING"))
            assert (node.state.now, node.state.wall) == moment
        # A client that comes within it, as one with TLS does, is no younger.
        assert running.daemon.clients.buildProtocol(None).session.connected_at == moment[0]
        driver.turn.end_round()
        assert running.daemon.clients.buildProtocol(None).session.connected_at > moment[0]
        session.dataReceived(pack("PING"))
        assert node.state.now > moment[0]
        assert node.state.wall > moment[1]
    await client.replies(8)


@async_test
async def test_a_round_in_which_a_store_comes_to_want_the_journal_tells_nothing_before_the_commit(
    launch: Launch,
) -> None:
    store = RecordingStore()
    store.records = False
    running = launch(store=store)
    running.take_no_time()
    driver = running.daemon.driver
    client = await running.connect()
    [connection] = running.daemon.clients.by_id.values()
    heard: list[bytes] = []
    driver.turn.begin_round()
    connection.dataReceived(pack("PING"))
    store.records = True
    driver.start()
    store.before_commit = lambda: heard.append(bytes(client.received))
    connection.dataReceived(pack("ADDJOB", "q", "body", 0))
    driver.turn.end_round()
    assert connection.session.output_buffered > 0
    pong, job_id = await client.replies(2)
    assert pong == b"PONG"
    assert heard == [b""]
    assert [record[1].id for record in store.committed] == [job_id]


@pytest.mark.reference  # a method of a compiled class cannot be replaced
@async_test
async def test_a_reply_that_cannot_be_sent_keeps_nobody_else_from_theirs(launch: Launch) -> None:
    store = RecordingStore(later=True)
    running = launch(store=store)
    first, second = await running.connect(), await running.connect()
    for client in (first, second):
        client.send("PING")
    await wait_until(lambda: running.daemon.traffic.bytes_in >= 2 * len(pack("PING")))
    await first.replies(1)
    await second.replies(1)
    broken, _ = running.daemon.clients.sessions()

    def fail() -> None:
        raise ZeroDivisionError("planted")

    broken.flush = fail  # type: ignore[method-assign]
    crashes = running.daemon.crashes.count
    running.daemon.turn._flush(running.daemon.clients.sessions())
    assert running.daemon.crashes.count == crashes + 1
    second.send("ECHO", "still here")
    assert await second.replies(1) == [b"still here"]
    del broken.flush


@pytest.mark.reference  # a method of a compiled class cannot be replaced
@async_test
async def test_a_bug_in_what_is_due_is_reported_and_the_next_deadline_is_met(launch: Launch) -> None:
    running = launch()
    client = await running.connect()
    node, tick = running.daemon.node, running.daemon.node.tick

    def fail() -> None:
        node.tick = tick  # type: ignore[method-assign]
        raise ZeroDivisionError("planted")

    node.tick = fail  # type: ignore[method-assign]
    assert await client.call("GETJOB", "TIMEOUT", 20, "FROM", "q") is None
    assert running.daemon.crashes.count == 1
    [report] = Path(running.daemon.config.dir).glob("crash-*.txt")
    assert "planted" in report.read_text()


@async_test
async def test_the_trail_is_told_of_at_the_end_of_a_step_that_has_news_of_it(launch: Launch) -> None:
    running = launch()
    driver, state = running.daemon.driver, running.daemon.node.state
    told: list[int] = []
    state.trace.endings = lines = EventLines(state.node_id, 7, str)
    driver.on_trail = lambda: told.append(lines.seq)
    driver.turn.finish_step(None)
    assert told == []
    for awaited in (False, True):
        lines.awaited = awaited
        state.note_node(FLUSH, b"")
        driver.turn.finish_step(None)
        assert told == [2]
