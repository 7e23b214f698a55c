"""redis-py as it comes: RESP3 with its handshake, RESP2, with asyncio, behind a password."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from tests.integration.daemon import HOST, LIMIT, Daemon

SHOWN = (
    "id queue state repl ttl ctime delay retry nacks additional-deliveries nodes-delivered nodes-confirmed "
    "next-requeue-within next-awake-within body phase"
).split()


def pairs(flat: list) -> dict:
    """Put names and values in turn into a dict."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


#: With nothing said, redis-py speaks RESP3 and introduces itself: HELLO 3, CLIENT MAINT_NOTIFICATIONS, CLIENT SETINFO.
@pytest.fixture(params=[{}, {"protocol": 2}, {"protocol": 3}], ids=["defaults", "RESP2", "RESP3"])
def client(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    with redis.Redis(HOST, daemon.port, **request.param) as connected:
        yield connected


def test_a_job_is_added_taken_and_acknowledged(client: redis.Redis, queue: str) -> None:
    job = client.execute_command("ADDJOB", queue, "to: ann", 0)
    assert client.execute_command("QLEN", queue) == 1
    assert client.execute_command("GETJOB", "FROM", queue) == [[queue.encode(), job, b"to: ann"]]
    assert client.execute_command("QLEN", queue) == 0
    assert client.execute_command("ACKJOB", job) == 1
    assert client.execute_command("SHOW", job) is None


def test_a_body_of_any_bytes_comes_back_as_it_was(client: redis.Redis, queue: str) -> None:
    body = bytes(range(256)) * 300 + b"\r\n$-1\r\n"
    client.execute_command("ADDJOB", queue, body, 0)
    [[_, _, taken]] = client.execute_command("GETJOB", "NOHANG", "FROM", queue)
    assert taken == body


def test_an_empty_queue_answers_nothing_at_once_or_after_the_timeout(client: redis.Redis, queue: str) -> None:
    assert client.execute_command("GETJOB", "NOHANG", "FROM", queue) is None
    assert client.execute_command("GETJOB", "TIMEOUT", 20, "FROM", queue) is None


def test_a_blocked_consumer_gets_the_job_when_it_comes(client: redis.Redis, daemon: Daemon, queue: str) -> None:
    taken: list = []
    consumer = threading.Thread(target=lambda: taken.extend(client.execute_command("GETJOB", "FROM", queue)))
    consumer.start()
    daemon.wait_blocked()
    job = daemon.call("ADDJOB", queue, "at last", 0)
    consumer.join(LIMIT)
    assert taken == [[queue.encode(), str(job).encode(), b"at last"]]


def test_a_job_given_back_is_counted_as_such(client: redis.Redis, queue: str) -> None:
    job = client.execute_command("ADDJOB", queue, "body", 0)
    client.execute_command("GETJOB", "FROM", queue)
    assert client.execute_command("NACK", job) == 1
    assert client.execute_command("GETJOB", "WITHCOUNTERS", "FROM", queue) == [
        [queue.encode(), job, b"body", b"nacks", 1, b"additional-deliveries", 0]
    ]


def test_show_tells_all_that_is_known_of_a_job(client: redis.Redis, queue: str) -> None:
    job = client.execute_command("ADDJOB", queue, "body", 0, "RETRY", 30, "TTL", 600, "DELAY", 60)
    shown = client.execute_command("SHOW", job)
    assert [name.decode() for name in shown[::2]] == SHOWN
    facts = pairs(shown)
    assert facts[b"id"] == job
    assert facts[b"state"] == b"active"
    assert (facts[b"delay"], facts[b"retry"], facts[b"repl"]) == (60, 30, 1)
    assert facts[b"ttl"] in range(540, 601)
    assert len(facts[b"nodes-delivered"]) == 1


def test_queues_and_jobs_are_found_by_scanning(client: redis.Redis, queue: str) -> None:
    jobs = {client.execute_command("ADDJOB", queue, f"body {n}", 0) for n in range(25)}
    found: set[bytes] = set()
    cursor = b"0"
    while True:
        cursor, some = client.execute_command("JSCAN", cursor, "COUNT", 10, "QUEUE", queue, "STATE", "queued")
        found |= set(some)
        if cursor == b"0":
            break
    assert found == jobs
    cursor, names = client.execute_command("QSCAN", "BUSYLOOP", "MINLEN", 25)
    assert cursor == b"0"
    assert queue.encode() in names


def test_a_queue_is_looked_into_without_taking(client: redis.Redis, queue: str) -> None:
    first, second = (client.execute_command("ADDJOB", queue, body, 0) for body in ("first", "second"))
    name = queue.encode()
    assert client.execute_command("QPEEK", queue, 2) == [[name, first, b"first"], [name, second, b"second"]]
    assert client.execute_command("QPEEK", queue, -1) == [[name, second, b"second"]]
    assert pairs(client.execute_command("QSTAT", queue))[b"len"] == 2


def test_hello_without_a_version_is_the_topology(client: redis.Redis, daemon: Daemon) -> None:
    version, node, us = client.execute_command("HELLO")
    assert version == 1
    assert len(node) == 40
    assert us[0] == node
    assert us[2:] == [str(daemon.port).encode(), b"1"]


def test_redis_methods_that_mean_something_here_work(client: redis.Redis, daemon: Daemon) -> None:
    assert client.ping()
    assert client.info()["process_id"] == daemon.process.pid
    assert client.info("jobs")["registered_jobs"] >= 0
    seconds, _ = client.time()
    assert seconds > 1_600_000_000
    assert client.client_setname("tester")
    assert client.client_getname() in ("tester", b"tester")
    assert "tester" in [row["name"] for row in client.client_list()]
    assert client.config_get("port") == {"port": str(daemon.port)}
    assert client.config_set("slowlog-max-len", 64)
    assert client.command_count() > 30
    assert client.slowlog_get() is not None


def test_commands_of_one_pipeline_are_answered_in_order(client: redis.Redis, queue: str) -> None:
    with client.pipeline(transaction=False) as pipeline:
        for n in range(500):
            pipeline.execute_command("ADDJOB", queue, n, 0)
        jobs = pipeline.execute()
    taken = client.execute_command("GETJOB", "COUNT", 500, "FROM", queue)
    assert [(job, body) for _, job, body in taken] == [(job, b"%d" % n) for n, job in enumerate(jobs)]


def test_an_error_is_raised_with_its_word_and_the_connection_lives_on(client: redis.Redis, queue: str) -> None:
    with pytest.raises(redis.ResponseError, match="BADID"):
        client.execute_command("ACKJOB", "nonsense")
    with pytest.raises(redis.ResponseError, match="unknown command"):
        client.execute_command("LPUSH", queue, "x")
    with pytest.raises(redis.ResponseError, match="TTL must be a number > 0"):
        client.execute_command("ADDJOB", queue, "body", 0, "TTL", 0)
    assert client.ping()


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_password_is_asked_for(start: Callable[..., Daemon], protocol: int) -> None:
    port = start_with_password(start).port
    once: dict[str, Any] = {"protocol": protocol, "retry": None}  # a refusal is not asked for again
    with redis.Redis(HOST, port, password="sesame", **once) as friend:
        assert friend.ping()
    with redis.Redis(HOST, port, **once) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.execute_command("QLEN", "q")
    with redis.Redis(HOST, port, password="wrong", **once) as burglar, pytest.raises(redis.RedisError):
        burglar.execute_command("QLEN", "q")


def start_with_password(start: Callable[..., Daemon]) -> Daemon:
    """Start a daemon, then give it a password: until then the fixture's own PING needs none."""
    daemon = start()
    daemon.call("CONFIG", "SET", "requirepass", "sesame")
    return daemon


@pytest.mark.parametrize("options", [{}, {"protocol": 2}], ids=["defaults", "RESP2"])
def test_asyncio_clients_add_block_and_acknowledge(daemon: Daemon, queue: str, options: dict) -> None:
    async def session() -> None:
        async with (
            redis.asyncio.Redis(host=HOST, port=daemon.port, **options) as producer,
            redis.asyncio.Redis(host=HOST, port=daemon.port, **options) as consumer,
        ):
            waiting = asyncio.create_task(consumer.execute_command("GETJOB", "FROM", queue))
            await asyncio.to_thread(daemon.wait_blocked)
            job = await producer.execute_command("ADDJOB", queue, "body", 0)
            assert await waiting == [[queue.encode(), job, b"body"]]
            assert await consumer.execute_command("ACKJOB", job) == 1
            assert await producer.execute_command("QLEN", queue) == 0

    asyncio.run(asyncio.wait_for(session(), LIMIT))
