"""pydisque, the Python client of Disque, on top of today's redis-py and its defaults."""

import threading
from collections.abc import Iterator

import pytest
from pydisque.client import Client

from tests.integration.daemon import HOST, LIMIT, Daemon


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    connected = Client([f"{HOST}:{daemon.port}"])
    connected.connect()
    yield connected
    connected.get_connection().close()


def test_a_job_is_added_taken_and_acknowledged(client: Client, queue: str) -> None:
    job = client.add_job(queue, "to: ann")
    assert client.qlen(queue) == 1
    assert client.get_job([queue]) == [(queue.encode(), job, b"to: ann")]
    client.ack_job(job)
    assert client.show(job) is None


def test_every_option_of_a_job_is_understood(client: Client, queue: str) -> None:
    job = client.add_job(
        queue, "body", timeout=500, replicate=1, delay=30, retry=20, ttl=3600, maxlen=10, asynchronous=True
    )
    shown = client.show(job, return_dict=True)
    assert (shown[b"state"], shown[b"delay"], shown[b"retry"], shown[b"repl"]) == (b"active", 30, 20, 1)


def test_a_blocked_consumer_gets_the_job_when_it_comes(client: Client, daemon: Daemon, queue: str) -> None:
    taken: list = []
    consumer = threading.Thread(target=lambda: taken.extend(client.get_job([f"{queue}-b", queue])))
    consumer.start()
    daemon.wait_blocked()
    job = daemon.call("ADDJOB", queue, "at last", 0)
    consumer.join(LIMIT)
    assert taken == [(queue.encode(), str(job).encode(), b"at last")]


def test_an_empty_queue_answers_nothing_at_once_or_after_the_timeout(client: Client, queue: str) -> None:
    assert client.get_job([queue], nohang=True) == []
    assert client.get_job([queue], timeout=20) == []


def test_a_job_given_back_is_counted_as_such(client: Client, queue: str) -> None:
    job = client.add_job(queue, "body")
    client.get_job([queue])
    client.nack_job(job)
    assert client.get_job([queue], withcounters=True) == [(queue.encode(), job, b"body", 1, 0)]


def test_a_job_is_postponed_moved_and_deleted(client: Client, queue: str) -> None:
    job = client.add_job(queue, "body", retry=20)
    assert client.dequeue(job) == 1
    assert client.qlen(queue) == 0
    assert client.enqueue(job) == 1
    client.get_job([queue])
    assert client.working(job) == 20
    assert client.del_job(job) == 1
    again = client.add_job(queue, "body")
    client.fast_ack(again)
    assert client.qlen(queue) == 0


def test_queues_and_jobs_are_found_and_looked_at(client: Client, queue: str) -> None:
    job = client.add_job(queue, "body")
    assert client.qpeek(queue, 1) == [[queue.encode(), job, b"body"]]
    assert client.qstat(queue, return_dict=True)[b"len"] == 1
    assert queue.encode() in client.qscan(busyloop=True)[1]
    assert client.jscan(queue=queue, state=["queued"], busyloop=True)[1] == [job]
    [shown] = client.jscan(queue=queue, reply="all", busyloop=True)[1]
    assert shown[:2] == [b"id", job]


def test_a_paused_queue_refuses_jobs(client: Client, queue: str) -> None:
    assert client.pause(queue, kw_in=True) == b"in"
    with pytest.raises(Exception, match="PAUSED"):
        client.get_connection().execute_command("ADDJOB", queue, "body", 0)
    assert client.pause(queue, kw_none=True) == b"none"
    assert client.add_job(queue, "body")


def test_the_node_introduces_itself(client: Client, daemon: Daemon) -> None:
    version, node, us = client.hello()
    assert (version, node) == (1, client.connected_node.node_id)
    assert us[2] == str(daemon.port).encode()
    assert client.info()["process_id"] == daemon.process.pid
