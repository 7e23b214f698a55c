"""Who has what: the units that consumers of this node have, jobs with aliases, and places at the front."""

from collections.abc import Iterator

import pytest

from disqued.core.model.job import NamedJob, Unit
from disqued.core.model.outbox import UNIT_DONE
from disqued.core.model.queues import Queue
from disqued.core.model.waiters import Form
from disqued.core.recovery import Recovery
from disqued.core.work.delivery import PLAIN
from disqued.wire.jobdump import decode_record, encode_job
from tests.core_fixtures import Server, check


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    check(made)


def leased(server: Server, name: bytes = b"q") -> dict[bytes, int]:
    """Bodies of the jobs that consumers have, and when they got them."""
    return {unit.body: since for unit, (since, _) in server.state.queues.by_name[name].leased.items()}


def queue(server: Server, name: bytes = b"q") -> Queue:
    return server.state.queues.by_name[name]


# Leases.


def test_what_a_consumer_has_is_known_with_the_moment_in_which_it_got_it(server: Server) -> None:
    for body in ("a", "b", "c"):
        server.add("q", body, "RETRY", 10)
    server.get()
    server.advance(250)
    server.get()
    first, second = leased(server).values()
    assert list(leased(server)) == [b"a", b"b"]
    assert second - first == 250


@pytest.mark.parametrize("how", ["ACKJOB", "FASTACK", "DELJOB", "NACK", "ENQUEUE"])
def test_a_lease_ends_with_its_job_and_when_it_is_given_back(server: Server, how: str) -> None:
    job_id = server.add("q", "x", "RETRY", 10)
    server.get()
    assert list(leased(server)) == [b"x"]
    server(how, job_id)
    assert leased(server) == {}


def test_a_lease_ends_when_the_retry_period_does(server: Server) -> None:
    server.add("q", "x", "RETRY", 10)
    server.get()
    server.advance(10_001)
    assert leased(server) == {}


def test_a_lease_ends_when_the_time_of_its_job_is_over(server: Server) -> None:
    server.add("q", "x", "RETRY", 100, "TTL", 5)
    server.get()
    server.advance(5_001)
    assert leased(server) == {}


def test_working_keeps_the_moment_of_the_delivery(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 10)
    server.get()
    [since] = leased(server).values()
    server.advance(3_000)
    server("WORKING", job_id)
    assert leased(server) == {b"x": since}


def test_a_job_delivered_at_most_once_is_nobodys(server: Server) -> None:
    server.add("q", "x", "RETRY", 0)
    server.get()
    assert leased(server) == {}


def test_a_queue_is_not_idle_while_consumers_have_jobs_of_it(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 3_000)
    server.get()
    server.advance(900_000)
    assert b"q" in server.state.queues.by_name
    server("ACKJOB", job_id)
    server.advance(900_000)
    assert b"q" not in server.state.queues.by_name


# Aliases.


def add_named(server: Server, alias: bytes, body: bytes = b"x") -> NamedJob:
    state = server.state
    options = state.shared.options(60_000, 10_000, 0, 1)
    options.stamp(state.now)
    job = NamedJob(
        state.numbers.ids.next(options.ttl_suffix),
        b"q",
        body,
        state.numbers.next_ctime(state.wall),
        options,
        alias=alias,
    )
    state.register(job)
    state.schedule.add(job, options.first_at)
    server.node.queueing.enqueue_new(job, state.queue(b"q"))
    server.settle()
    return job


def test_a_job_is_found_by_its_alias_until_it_is_done(server: Server) -> None:
    job = add_named(server, b"one")
    assert server.state.aliases.by_name(b"q", b"one") == (job,)
    assert server.state.aliases.by_name(b"other", b"one") == ()
    server("ACKJOB", job.id)
    assert server.state.aliases.by_name(b"q", b"one") == ()
    assert server.state.aliases.named == {}


def test_of_two_jobs_with_one_alias_the_older_comes_first(server: Server) -> None:
    younger = add_named(server, b"one")
    older = add_named(server, b"one")
    older.ctime = younger.ctime - 1
    assert server.state.aliases.by_name(b"q", b"one") == (older, younger)
    server("DELJOB", older.id)
    assert server.state.aliases.by_name(b"q", b"one") == (younger,)


def test_an_alias_comes_back_from_the_journal(server: Server) -> None:
    job = add_named(server, b"one")
    again = Server(clock=server.clock)
    recovery = Recovery(again.state, restores_queues=False)
    again.node.begin()
    recovery.apply(decode_record(encode_job(job, server.clock.wall() - server.clock.now())))
    [found] = again.state.aliases.by_name(b"q", b"one")
    assert (found.id, found.alias) == (job.id, b"one")
    recovery.apply((UNIT_DONE, job.id, b"", 1))
    assert again.state.aliases.named == {}


def test_a_flush_takes_the_aliases_along(server: Server) -> None:
    add_named(server, b"one")
    server.node.flush()
    server.settle()
    assert server.state.aliases.named == {}


# Places.


def test_the_front_is_before_all_that_wait_and_the_last_one_there_is_the_first(server: Server) -> None:
    ids = [server.add("q", body, "RETRY", 10) for body in ("a", "b", "c", "d")]
    jobs = [server.state.jobs.get(job_id) for job_id in ids]
    server.get(count=3)
    for job in jobs[:2]:
        assert job is not None
        server.node.requeueing.enqueue(job, front=True)
    server.settle()
    assert [unit.body for unit in queue(server).units] == [b"b", b"a", b"d"]


# Forms.


class Bodies(Form):
    """Bodies alone."""

    __slots__ = ()

    def row(self, unit: Unit) -> bytes:
        return unit.body


def test_one_who_waits_gets_as_many_as_its_form_says_and_in_its_form(server: Server) -> None:
    for client in ("anna", "bob"):
        server.node.delivery.wait(client, [server.state.queue(b"q")], 0, Bodies(2))
    for body in (b"a", b"b", b"c"):
        add_named(server, body, body)
    server.node.serve()
    server.settle()
    assert server.answers == {"anna": [[b"a", b"b"]], "bob": [[b"c"]]}


def test_draining_empties_each_queue_before_the_next(server: Server) -> None:
    for name in ("high", "low"):
        for number in range(3):
            server.add(name, f"{name}{number}")
    queues = [queue(server, name) for name in (b"high", b"low")]
    drain = server.node.delivery.drain
    assert [unit.body for unit in drain(queues, 4)] == [b"high0", b"high1", b"high2", b"low0"]
    assert [unit.body for unit in drain(queues, 9)] == [b"low1", b"low2"]
    assert drain(queues, 1) == []


def test_the_plain_form_is_that_of_getjob(server: Server) -> None:
    job_id = server.add("q", "x")
    [unit] = server.node.delivery.fetch([queue(server)], 1)
    assert PLAIN.row(unit) == (b"q", job_id, b"x")
