"""Workers of real daemons, through redis-py: connections that break, a restart, a home that is killed, and events."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.integration.cluster import Cluster, ends_well
from tests.integration.daemon import HOST, LIMIT, Daemon, wait_until

Start = Callable[..., Daemon]
LIMIT_MS = int(LIMIT * 1_000)


@contextlib.contextmanager
def worker(daemon: Daemon, name: str, *more: Any, queue: str = "q") -> Iterator[redis.Redis]:
    """A connection that works on a queue."""
    with redis.Redis(HOST, daemon.port, single_connection_client=True) as connection:
        connection.execute_command("WORKER", "START", "ID", name, *more)
        connection.execute_command("WQ.WORK", queue)
        yield connection


def take(connection: redis.Redis, *more: Any, queue: str = "q") -> list[tuple[bytes, bytes]]:
    """Processes and their tasks."""
    rows = connection.execute_command("WQ.DEQUEUE", queue, *more) or []
    return [(process, task) for _, process, task in rows]


@pytest.mark.parametrize("protocol", [2, 3])
def test_events_come_through_the_pubsub_of_redis_py(daemon: Daemon, queue: str, protocol: int) -> None:
    with redis.Redis(HOST, daemon.port, protocol=protocol) as client, client.pubsub() as events:
        events.subscribe(f"wq:{queue}:work")
        events.psubscribe(f"wq:{queue}:d*")
        kinds = [events.get_message(timeout=LIMIT)["type"] for _ in range(2)]
        assert kinds == ["subscribe", "psubscribe"]
        [process] = client.execute_command("WQ.ENQUEUE", queue, "TASKS", "a")
        assert client.execute_command("WQ.FINISH", process, "RESULT", "fine") == 2
        work, done = (events.get_message(timeout=LIMIT) for _ in range(2))
        assert (work["type"], work["data"]) == ("message", b"1")
        assert (done["type"], done["channel"]) == ("pmessage", f"wq:{queue}:done".encode())
        assert json.loads(done["data"])["result"] == "fine"
        events.unsubscribe()
        assert events.get_message(timeout=LIMIT)["type"] == "unsubscribe"


def test_a_waiting_worker_has_the_task_of_one_whose_connection_breaks(daemon: Daemon, queue: str) -> None:
    bound = ("BIND", "TTL", 0)
    with worker(daemon, "w1", *bound, queue=queue) as first, worker(daemon, "w2", *bound, queue=queue) as second:
        first.execute_command("WQ.ENQUEUE", queue, "TASKS", "a", "b")
        assert [task for _, task in take(first, "COUNT", 2, queue=queue)] == [b"a", b"b"]
        assert first.connection is not None
        first.connection.disconnect()
        got = [take(second, "BLOCK", LIMIT_MS, queue=queue)[0][1] for _ in range(2)]
        assert got == [b"a", b"b"]


def test_a_worker_keeps_its_task_over_a_kill_of_its_node(start: Start) -> None:
    daemon = start("--persistence", "aof", "--appendfsync", "always")
    with worker(daemon, "w", "TTL", 60_000) as connection:
        connection.execute_command("WQ.ENQUEUE", "q", "TASKS", "a", "b")
        [(process, _)] = take(connection)
    daemon.kill()
    again = start("--persistence", "aof", "--appendfsync", "always", directory=daemon.directory)
    with redis.Redis(HOST, again.port, single_connection_client=True) as connection:
        assert connection.execute_command("WORKER", "KEEPALIVE", "w") > 0
        assert connection.execute_command("WQ.FINISH", process) == 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ends_well(Cluster(tmp_path)) as nodes:
        nodes.start(3)
        yield nodes


def test_tasks_of_a_home_that_is_killed_come_back_to_the_front_and_a_worker_that_moves_keeps_its_own(
    cluster: Cluster,
) -> None:
    home, other, third = cluster.nodes
    with worker(home, "stays") as stays, worker(home, "moves") as moves:
        stays.execute_command("WQ.ENQUEUE", "q", "REPLICATE", 3, "TASKS", *"abcd")
        assert [task for _, task in take(stays, "COUNT", 2)] == [b"a", b"b"]
        kept = take(moves, "COUNT", 2)
        assert [task for _, task in kept] == [b"c", b"d"]
        cluster.kill(0)
    with redis.Redis(HOST, other.port, single_connection_client=True) as moved:

        def both_are_back() -> bool:
            moved.execute_command("WORKER", "KEEPALIVE", "moves")
            return sum(int(node.call("WQ.LEN", "q")) for node in (other, third)) == 2

        wait_until(both_are_back, "the tasks of the worker that did not move")
        moved.execute_command("WQ.WORK", "q")
        got: list[bytes] = []
        while len(got) < 2:
            got += [task for _, task in take(moved, "COUNT", 2, "BLOCK", 500)]
        assert sorted(got) == [b"a", b"b"]
        assert [moved.execute_command("WQ.FINISH", process) for process, _ in kept] == [1, 1]


def test_events_reach_listeners_on_other_nodes(cluster: Cluster) -> None:
    one, two, _ = cluster.nodes
    with two.redis() as client, client.pubsub(ignore_subscribe_messages=True) as events:
        events.subscribe("wq:q:cancel")
        events.get_message(timeout=LIMIT)

        def heard() -> bool:
            one.call("WQ.CANCEL", "q", "the task")
            message = events.get_message(timeout=0.1)
            return message is not None and message["data"] in (b"the task", "the task")

        wait_until(heard, "an event of another node")
