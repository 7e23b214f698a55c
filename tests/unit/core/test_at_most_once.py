"""A job with RETRY 0 that was delivered is delivered by nothing again: no command, no message, no timer, no start."""

from itertools import product

import pytest

from disqued.core.model import messages as m
from disqued.core.model.job import WORK_SCOPE
from disqued.core.model.messages import Message
from disqued.errors import CommandError
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import Server
from tests.lists_fixtures import Lasting

STEPS = {
    "nack": lambda server, job_id: server("NACK", job_id),
    "enqueue": lambda server, job_id: server("ENQUEUE", job_id),
    "dequeue": lambda server, job_id: server("DEQUEUE", job_id),
    "working": lambda server, job_id: server("WORKING", job_id),
    "pause": lambda server, job_id: server("PAUSE", "q", "in"),
    "go on": lambda server, job_id: server("PAUSE", "q", "none"),
    "a second": lambda server, job_id: server.advance(1_000),
    "an hour": lambda server, job_id: server.advance(3_600_000),
    "recover": lambda server, job_id: server("RQ.RECOVER", "q", 9, 0),
}


def step(server: Server, name: str, job_id: bytes) -> None:
    """Do something to a job, whether it is allowed or not."""
    try:
        STEPS[name](server, job_id)
    except CommandError:
        server.settle()


@pytest.mark.parametrize("options", [(), ("DELAY", 2)])
@pytest.mark.parametrize(("first", "second"), list(product(STEPS, repeat=2)))
def test_no_command_delivers_it_again(options: tuple[str | int, ...], first: str, second: str) -> None:
    server = Server()
    job_id = server.add("q", "once", "RETRY", 0, "TTL", 86_400, *options)
    if options:
        assert server.bodies() == []
        server.advance(2_000)
    assert server.bodies() == [b"once"]
    for name in (first, second, "go on"):
        step(server, name, job_id)
        assert server.bodies() == []
    server.advance(3_600_000)
    assert server.bodies() == []


@pytest.mark.parametrize("how", ["after_crash", "after_restart", "after_compaction"])
@pytest.mark.parametrize("options", [(), ("DELAY", 2)])
@pytest.mark.parametrize("name", STEPS)
def test_no_start_delivers_it_again(how: str, options: tuple[str | int, ...], name: str) -> None:
    server = Lasting()
    job_id = server.add("q", "once", "RETRY", 0, "TTL", 86_400, *options)
    server.advance(2_000)
    assert server.bodies() == [b"once"]
    step(server, name, job_id)
    again = getattr(server, how)()
    for _ in range(3):
        step(again, "go on", job_id)
        assert again.bodies() == []
        step(again, "enqueue", job_id)
        step(again, "nack", job_id)
        assert again.bodies() == []
        again.advance(60_000)


def messages_about(job_id: bytes, receiver: Member, sender: Member) -> list[Message]:
    """All that a node can say of a job without having it."""
    pair = frozenset((receiver.id, sender.id))
    return [
        *((m.ENQUEUE, job_id, WORK_SCOPE, delay_ms) for delay_ms in (0, 1_000)),
        *((m.QUEUED, job_id, WORK_SCOPE, how) for how in (m.AS_BEFORE, m.AGAIN, m.AFTER_NACK, m.ASKED)),
        (m.WORKING, job_id, WORK_SCOPE, 1_000),
        (m.DELIVERED, job_id, WORK_SCOPE, 1_000, 0, 1),
        (m.WILLQUEUE, job_id, WORK_SCOPE),
        (m.HOLDERS, job_id, frozenset()),
        (m.HOLDERS, job_id, pair),
        (m.NEEDJOBS, b"q", 10),
        (m.POLLJOBS, b"q", 10),
        (m.GOTJOB, job_id),
        (m.LEASED, b"w", 1, 1_000, (m.Held(job_id, WORK_SCOPE, 1, 0),)),
        (m.PAUSE, b"q", 0),
    ]


MESSAGES = len(messages_about(b"", *Cluster(2)))


@pytest.mark.parametrize("number", range(MESSAGES))
def test_no_message_about_it_delivers_it_again(number: int) -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = a.add("q", "once", "RETRY", 0, "REPLICATE", 1, "TTL", 86_400)
    assert a.bodies() == [b"once"]
    message = messages_about(job_id, a, b)[number]
    for _ in range(2):
        b.say(a, message)
        assert a.bodies() == b.bodies() == []
        cluster.advance(5_000)
        assert a.bodies() == b.bodies() == []


@pytest.mark.parametrize("kind", [m.REPLJOB, m.YOURJOBS])
@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("end", ["PING", "ACKJOB", "FASTACK", "DELJOB"])
def test_the_message_that_moved_it_delivers_it_once_however_often_it_comes(kind: int, flag: bool, end: str) -> None:
    cluster = Cluster(2)
    a, b = cluster
    job = a.job(a.add("q", "once", "RETRY", 0, "REPLICATE", 1, "TTL", 86_400))
    a("DEQUEUE", job.id)
    job.flags = 0
    message = (kind, job, flag) if kind == m.REPLJOB else (kind, (job,), flag)
    got: list[bytes] = []
    for _ in range(3):
        a.say(b, message)
        a.say(b, (m.ENQUEUE, job.id, WORK_SCOPE, 0))
        got += b.bodies()
        b(end, job.id)
        cluster.advance(5_000)
        got += b.bodies()
    assert got == [b"once"]
