"""txredisapi, the Redis client of Twisted programs."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_twisted
import txredisapi
from twisted.internet.threads import deferToThread

from tests.integration.daemon import HOST, Daemon


@pytest_twisted.async_yield_fixture
async def connection(daemon: Daemon) -> AsyncIterator[Any]:
    connected = await txredisapi.Connection(HOST, daemon.port, reconnect=False)
    yield connected
    await connected.disconnect()


@pytest_twisted.ensureDeferred
async def test_a_job_is_added_taken_and_acknowledged(connection: Any, queue: str) -> None:
    job = await connection.execute_command("ADDJOB", queue, "to: ann", 0)
    assert await connection.execute_command("GETJOB", "FROM", queue) == [[queue, job, "to: ann"]]
    assert await connection.execute_command("ACKJOB", job) == 1
    assert await connection.execute_command("SHOW", job) is None


@pytest_twisted.ensureDeferred
async def test_a_blocked_consumer_gets_the_job_when_it_comes(connection: Any, daemon: Daemon, queue: str) -> None:
    waiting = connection.execute_command("GETJOB", "FROM", queue)
    await deferToThread(daemon.wait_blocked)
    job = await deferToThread(daemon.call, "ADDJOB", queue, "at last", 0)
    assert await waiting == [[queue, job, "at last"]]


@pytest_twisted.ensureDeferred
async def test_a_timeout_answers_nothing(connection: Any, queue: str) -> None:
    assert await connection.execute_command("GETJOB", "TIMEOUT", 20, "FROM", queue) is None


@pytest_twisted.ensureDeferred
async def test_a_job_is_given_back_and_looked_at(connection: Any, queue: str) -> None:
    job = await connection.execute_command("ADDJOB", queue, "body", 0)
    await connection.execute_command("GETJOB", "FROM", queue)
    assert await connection.execute_command("NACK", job) == 1
    shown = await connection.execute_command("SHOW", job)
    facts = dict(zip(shown[::2], shown[1::2], strict=True))
    assert (facts["state"], facts["nacks"], facts["body"]) == ("queued", 1, "body")
    assert await connection.execute_command("QPEEK", queue, 5) == [[queue, job, "body"]]
    assert await connection.execute_command("QLEN", queue) == 1
    assert queue in (await connection.execute_command("QSCAN", "BUSYLOOP"))[1]
    assert (await connection.execute_command("JSCAN", "QUEUE", queue, "BUSYLOOP"))[1] == [job]


@pytest_twisted.ensureDeferred
async def test_methods_of_the_client_that_mean_something_here_work(connection: Any, daemon: Daemon) -> None:
    assert await connection.ping() == "PONG"
    assert await connection.select(0) == "OK"
    assert int((await connection.info("server"))["process_id"]) == daemon.process.pid
    version, node, us = await connection.execute_command("HELLO")
    assert (version, us[0], us[2]) == (1, node, daemon.port), "txredisapi makes numbers of what looks like one"


@pytest_twisted.ensureDeferred
async def test_commands_of_one_pipeline_are_answered_in_order(connection: Any, queue: str) -> None:
    pipeline = await connection.pipeline()
    for n in range(100):
        pipeline.execute_command("ADDJOB", queue, n, 0)
    jobs = await pipeline.execute_pipeline()
    taken = await connection.execute_command("GETJOB", "COUNT", 100, "FROM", queue)
    assert [row[1] for row in taken] == jobs


@pytest_twisted.ensureDeferred
async def test_an_error_is_raised_with_its_word(connection: Any) -> None:
    with pytest.raises(txredisapi.ResponseError, match="BADID"):
        await connection.execute_command("ACKJOB", "nonsense")
    assert await connection.ping() == "PONG"


@pytest_twisted.ensureDeferred
async def test_a_password_and_a_database_are_given_on_connecting(start: Callable[..., Daemon]) -> None:
    daemon = start()
    daemon.call("CONFIG", "SET", "requirepass", "sesame")
    connected = await txredisapi.Connection(HOST, daemon.port, dbid=0, password="sesame", reconnect=False)
    assert await connected.ping() == "PONG"
    await connected.disconnect()
