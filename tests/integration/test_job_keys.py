"""Keys of jobs in three real daemons: producers that lose their connection or their node, and say it again."""

import threading
from collections.abc import Iterator

import pytest
import redis

from disqued.client.blocking import Client
from tests.integration.cluster import Cluster, ends_well
from tests.integration.daemon import HOST, LIMIT, Daemon, wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that know each other, for tests that use queues of their own and leave all nodes well."""
    with ends_well(Cluster(tmp_path_factory.mktemp("nodes"))) as nodes:
        nodes.start(3)
        yield nodes


def add(queue: str, *options: object) -> tuple[object, ...]:
    """The words that add a job once."""
    return ("ADDJOB", queue, "body", 30_000, "RETRY", 600, "KEY", "k", *options)


def known(cluster: Cluster, queue: str) -> set[str]:
    """Ids of the jobs of a queue that any node knows."""
    pages = [daemon.call("JSCAN", "BUSYLOOP", "QUEUE", queue) for daemon in cluster.nodes]
    return {job_id for _, ids in pages for job_id in ids}  # type: ignore[misc]


def members(daemon: Daemon) -> str:
    """What a node has written down of the nodes that it knows."""
    return (daemon.directory / "nodes.conf").read_text()


def adding_clients(daemon: Daemon) -> int:
    """Count the clients whose last command was ADDJOB."""
    return str(daemon.call("CLIENT", "LIST")).count("cmd=addjob")


class Waiting:
    """A producer that waits for its answer on a connection of its own."""

    def __init__(self, daemon: Daemon, words: tuple[object, ...]) -> None:
        self.client = daemon.redis(retry=None)
        self.answer: object = None
        self._thread = threading.Thread(target=self._ask, args=(words,), daemon=True)
        self._thread.start()

    def _ask(self, words: tuple[object, ...]) -> None:
        try:
            self.answer = self.client.execute_command(*words)
        except redis.exceptions.ConnectionError as error:
            self.answer = error

    def wait(self) -> object:
        """Wait for the answer."""
        self._thread.join(LIMIT)
        self.client.close()
        return self.answer


def test_a_producer_whose_connection_breaks_while_copies_are_made_says_it_elsewhere_and_adds_one(
    cluster: Cluster, queue: str
) -> None:
    first, second, _ = cluster.nodes
    cluster.freeze(2)
    words = add(queue, "REPLICATE", 3)
    broken, also, again = Waiting(first, words), Waiting(first, words), Waiting(second, words)
    wait_until(lambda: (adding_clients(first), adding_clients(second)) == (2, 1), "all producers")
    broken.client.connection_pool.disconnect()
    assert isinstance(broken.wait(), redis.exceptions.ConnectionError)
    wait_until(lambda: adding_clients(first) == 1, "the end of the connection")
    assert (also.answer, again.answer) == (None, None)
    cluster.thaw(2)
    assert also.wait() == again.wait()
    assert known(cluster, queue) == {again.answer}
    assert sum(daemon.call("QLEN", queue) for daemon in cluster.nodes) == 1  # type: ignore[misc]


def test_the_client_says_it_again_by_itself_and_the_node_that_stood_still_adds_nothing(
    cluster: Cluster, queue: str
) -> None:
    addresses = [f"{HOST}:{daemon.port}" for daemon in cluster.nodes]
    with Client(addresses, reply_timeout=0.5, connect_timeout=0.5) as client:
        client.qlen(queue)
        number = addresses.index(client.node)
        cluster.freeze(number)
        job_id = client.add(queue, "body", timeout=0.5, replicate=1, retry=600, key="k").decode()
        assert client.node != addresses[number]
    cluster.thaw(number)
    cluster.wait_joined()
    # What the client had sent to it is answered by now, or was not read at all.
    assert cluster.nodes[number].call(*add(queue)) == job_id
    assert known(cluster, queue) == {job_id}


def test_the_same_job_is_named_by_all_nodes_also_when_the_one_that_made_it_is_gone_and_when_it_is_back(
    cluster: Cluster, queue: str
) -> None:
    first = cluster.nodes[0].call(*add(queue, "REPLICATE", 3))
    # Whom it knows is written down a little later.
    wait_until(lambda: all(name in members(cluster.nodes[0]) for name in cluster.ids), "a file of all members")
    cluster.kill(0)
    assert [daemon.call(*add(queue)) for daemon in cluster.others(0)] == [first, first]
    cluster.restart(0)
    cluster.wait_joined()
    assert [daemon.call(*add(queue)) for daemon in cluster.nodes] == [first] * 3
    assert known(cluster, queue) == {first}
    assert cluster.nodes[2].call("ACKJOB", first) == 1
    wait_until(lambda: not known(cluster, queue), "nothing left of it")
    assert cluster.nodes[1].call(*add(queue)) != first
