"""The examples of the RedisRQ README, run as they are written there, give the replies that it documents."""

import re
from collections.abc import Iterator

import pytest
import redis

from tests.integration.daemon import Daemon, launch

ID = re.compile(r"\d{13}-\d+")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Start a node of its own: the recorded one counts its clients."""
    made = launch(tmp_path_factory.mktemp("redisrq") / "data", [])
    yield made
    made.stop()


@pytest.fixture
def client(daemon: Daemon) -> Iterator[redis.Redis]:
    with daemon.redis() as made:
        made.execute_command("DEBUG FLUSHALL")
        yield made


def test_pop_answers_key_id_and_body_of_each_element(client: redis.Redis) -> None:
    client.execute_command(
        "RQ.PUSH", "myHighPriorityQueue", "This is the content of the job/message", "This is another job/message"
    )
    client.execute_command("RQ.PUSH", "myLowPriorityQueue", "This is a low priority job/message")
    # The bare 10 of the README is a list of that name today, which is empty; a count has its word.
    assert len(client.execute_command("rq.pop", "10", "myHighPriorityQueue", "myLowPriorityQueue")) == 1
    rows = client.execute_command("rq.pop", "count", "10", "myHighPriorityQueue", "myLowPriorityQueue")
    assert [(key, body) for key, _, body in rows] == [
        ("myHighPriorityQueue", "This is another job/message"),
        ("myLowPriorityQueue", "This is a low priority job/message"),
    ]
    assert all(ID.fullmatch(name) for _, name, _ in rows)


def test_inspect_answers_id_and_body_from_the_end_on(client: redis.Redis) -> None:
    ids = client.execute_command("RQ.PUSH", "myreliable1", *(f"message {number}" for number in range(5)))
    assert client.execute_command("rq.inspect", "myreliable1", "-2", "2") == [
        [ids[3], "message 3"],
        [ids[4], "message 4"],
    ]


def test_inspect_pending_answers_times_and_deliveries(client: redis.Redis) -> None:
    ids = client.execute_command("RQ.PUSH", "micola", "msg1", "msg1", "msg2")
    client.execute_command("RQ.POP", "COUNT", "3", "micola")
    rows = client.execute_command("rq.inspect", "micola", "PENDING", "0", "10")
    assert [(row[0], row[1], row[4]) for row in rows] == [(ids[0], "msg1", 1), (ids[1], "msg1", 1), (ids[2], "msg2", 1)]
    assert all(isinstance(part, int) for row in rows for part in row[2:])


def test_recover_counts_and_moves_to_the_end_and_ack_answers_what_counted(client: redis.Redis) -> None:
    ids = client.execute_command("RQ.PUSH", "key", "a", "b")
    client.execute_command("RQ.POP", "COUNT", "2", "key")
    assert client.execute_command("RQ.RECOVER", "key", "1", "0") == [[ids[0], "a"]]
    rows = client.execute_command("RQ.INSPECT", "key", "PENDING", "0", "10")
    assert [(row[0], row[4]) for row in rows] == [(ids[1], 1), (ids[0], 2)]
    assert client.execute_command("RQ.ACK", "key", ids[0], ids[1], ids[0]) == ids
