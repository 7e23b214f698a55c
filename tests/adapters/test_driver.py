"""The driver: nothing is said before it is durable, one commit per turn, one timer."""

import socket
import struct
from collections.abc import Callable

import pytest_twisted
from twisted.internet import reactor

from disqued.core.job import Job, JobOptions
from disqued.core.outbox import JOB_ADDED, JOB_GONE, UNIT_DONE
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
    await wait_until(lambda: bool(running.daemon.node.state.blocked))
    heard: list[bytes] = []
    store.before_commit = lambda: heard.append(bytes(consumer.received))
    job_id = await producer.call("ADDJOB", "q", "body", 0, "RETRY", 0)
    assert (await consumer.replies(1))[0][0][1] == job_id
    assert heard[0] == b""
    assert (UNIT_DONE, job_id, b"") in store.committed


@async_test
async def test_a_pipeline_costs_one_commit(launch: Launch) -> None:
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
    consumer = await running.connect()
    kept = await consumer.call("ADDJOB", "q", "kept", 0)
    store.fails = True
    producer = await running.connect()
    producer.send("ADDJOB", "q", "lost", 0)
    await producer.closed()
    assert producer.received == b""
    assert str(await consumer.call("ADDJOB", "q", "refused", 0)).startswith(
        "MISCONF Errors writing to the AOF file: No sp"
    )
    assert (await consumer.call("GETJOB", "FROM", "q"))[0][1] == kept
    assert await consumer.call("ACKJOB", kept) == 1


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
    assert [record[1].id for record in store.committed] == [job_id]
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
    await wait_until(lambda: victim.fileno() < 0 and len(running.daemon.clients) == 1)
    taken = await producer.call("GETJOB", "WITHCOUNTERS", "COUNT", 2, "FROM", "q")
    assert [job[1] for job in taken] == [once, again]
    assert [job[4::2] for job in taken] == [[0, 0], [0, 0]]
