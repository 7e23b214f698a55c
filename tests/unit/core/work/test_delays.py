"""How many jobs of a queue wait for the end of a delay."""

from collections.abc import Callable

import pytest

from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import Server, check
from tests.unit.core.work.test_deadletters import Disk


def delayed(server: Server, queue: bytes = b"q") -> int:
    return server.state.queues.delayed_in(queue)


def test_a_job_counts_as_delayed_until_its_delay_is_over() -> None:
    server = Server()
    server.add("q", "now")
    server.add("q", "soon", "DELAY", 5)
    server.add("q", "later", "DELAY", 60, "RETRY", 0)
    server.add("other", "x", "DELAY", 60)
    assert (delayed(server), delayed(server, b"other")) == (2, 1)
    assert server.stat()["delayed"] == 2
    server.advance(5_000)
    assert (delayed(server), server.stat()["len"]) == (1, 2)
    check(server)
    server.advance(60_000)
    assert (delayed(server), delayed(server, b"other"), len(server.state.queues.delayed)) == (0, 0, 0)
    check(server)


@pytest.mark.parametrize(
    "end",
    [
        lambda server, job_id: server("ENQUEUE", job_id),
        lambda server, job_id: server("NACK", job_id, "DEAD"),
        lambda server, job_id: server("ACKJOB", job_id),
        lambda server, job_id: server("FASTACK", job_id),
        lambda server, job_id: server("DELJOB", job_id),
        lambda server, job_id: server("CANCEL", job_id),
        lambda server, job_id: server("QPURGE", "q"),
        lambda server, job_id: server("DEBUG", "FLUSHALL"),
        lambda server, job_id: server.advance(90_000_000),
    ],
)
@pytest.mark.parametrize("put_off", [False, True])
def test_whatever_ends_a_delay_is_noticed(end: Callable[[Server, bytes], object], put_off: bool) -> None:
    server = Server()
    if put_off:
        job_id = server.add("q", "x", "RETRY", 100)
        server.get()
        server("NACK", job_id, "DELAY", 1_000)
    else:
        job_id = server.add("q", "x", "RETRY", 100, "DELAY", 1_000)
    assert delayed(server) == 1
    end(server, job_id)
    assert delayed(server) == 0
    check(server)


def test_a_job_that_its_back_off_puts_off_counts_as_delayed() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", 100, "BACKOFF", 10)
    server.get()
    assert delayed(server) == 0
    server("NACK", job_id)
    assert (delayed(server), server.stat()["failing"]) == (1, 1)
    server("NACK", job_id, "DEAD")
    assert (delayed(server), server.stat()["dead"]) == (0, 1)
    server("REDRIVE", "q", client="ops")
    assert delayed(server) == 0
    check(server)


def test_delayed_events_of_a_log_count_as_well() -> None:
    server = Server()
    server("QADD", "log", 600, "x", "DELAY", 60)
    assert (delayed(server, b"log"), server.stat("log")["delayed"]) == (1, 1)
    server.advance(60_000)
    assert delayed(server, b"log") == 0


@pytest.mark.parametrize("controlled", [False, True])
@pytest.mark.parametrize("down_ms", [0, 200_000])
def test_delays_are_known_after_a_restart(controlled: bool, down_ms: int) -> None:
    server = Server()
    server.add("q", "x", "DELAY", 100, "RETRY", 300)
    server.add("q", "x", "RETRY", 300)
    job_id = server.get()[0][1]
    server("NACK", job_id, "DELAY", 100)
    assert delayed(server) == 2
    server = Disk(server).restart(controlled=controlled, down_ms=down_ms)
    if not down_ms:
        assert delayed(server) == 2
    check(server)
    server.advance(100_000)
    assert delayed(server) == 0
    check(server)


def counts(cluster: Cluster) -> list[int]:
    return [delayed(member) for member in cluster]


def test_a_delay_of_addjob_counts_where_the_job_was_added_and_one_of_nack_on_all_holders() -> None:
    cluster = Cluster(3)
    a: Member = cluster.members[0]
    a("ADDJOB", "q", "x", 0, "REPLICATE", 3, "DELAY", 60, "RETRY", 30)
    (job_id,) = a.answers.pop("client")
    assert counts(cluster) == [1, 0, 0]
    cluster.advance(60_000)
    assert counts(cluster) == [0, 0, 0]
    assert a.get()
    a("NACK", job_id, "DELAY", 60)
    assert counts(cluster) == [1, 1, 1]
    cluster.advance(61_000)
    assert counts(cluster) == [0, 0, 0]
    assert a.get()
    a("NACK", job_id, "DELAY", 60)
    a("ACKJOB", job_id)
    assert counts(cluster) == [0, 0, 0]
