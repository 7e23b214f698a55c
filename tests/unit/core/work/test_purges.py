"""QPURGE: the jobs of a queue end on every node, each counted once."""

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.fate import MARK
from disqued.core.model.messages import PURGE, PURGED, SETACK, WILLQUEUE, YOURJOBS
from disqued.core.model.outbox import Client
from disqued.core.work.purges import SILENCE_MS
from tests.cluster_fixtures import Cluster, Flight, Member
from tests.core_fixtures import Server, check

WRONGTYPE = "WRONGTYPE"


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3)


def purge(member: Member, *words: str, client: Client = "paul") -> int:
    """Purge the queue q, and return the reply."""
    assert member("QPURGE", "q", *words, client=client) is BLOCKED
    member.cluster.advance(1)
    return int(member.answers[client].pop())


def add(member: Member, count: int, *options: str | int) -> list[bytes]:
    ids: list[bytes] = []
    for number in range(count):
        job_id = member("ADDJOB", "q", number, 0, *options, client="adder")
        ids.append(member.answers["adder"].pop() if job_id is BLOCKED else job_id)
    return ids


def check_gone(cluster: Cluster, ids: list[bytes]) -> None:
    """No node holds one of these, nobody waits for an answer, and no copy comes back."""
    cluster.advance(700_000)
    for member in cluster:
        assert not [job_id for job_id in ids if member.holds(job_id)]
        assert member.get("q") == []
        assert not member.node.purges._open
        assert not member.node.purges.shares
        check(member)


def bury(server: Server, count: int, *options: str | int) -> list[bytes]:
    """Add jobs to the queue q that are dead."""
    ids = [server.add("q", "buried", *options) for _ in range(count)]
    assert len(server.get("q", count=count)) == count
    assert server("NACK", *ids, "DEAD") == count
    return ids


# One node.


def test_a_lone_node_ends_everything_and_counts_it() -> None:
    server = Server()
    server.node.purges.ended_per_part = 2
    for number in range(5):
        server.add("q", number)
    server.add("q", "once", "RETRY", 0)
    server.add("q", "later", "DELAY", 60)
    server.add("other", "body")
    server.get("q")
    assert server("QPURGE", "q", client="paul") is BLOCKED
    late = server.add("q", "added meanwhile")
    server.advance(10)
    assert server.answers["paul"] == [7]
    assert [job_id for _, job_id, _ in server.get("q")] == [late]
    assert len(server.get("other")) == 1
    check(server)


def test_a_queue_that_is_not_there_has_nothing_to_end() -> None:
    server = Server()
    assert server("QPURGE", "q") == 0
    assert not server.state.queues.by_name


@pytest.mark.parametrize(
    ("states", "ended"),
    [(("queued",), 2), (("active",), 2), (("wait-repl",), 0), (("queued", "active"), 4), (("dead",), 1), ((), 5)],
)
def test_states_limit_what_ends(states: tuple[str, ...], ended: int) -> None:
    server = Server()
    bury(server, 1)
    for number in range(3):
        server.add("q", number)
    server.add("q", "later", "DELAY", 60)
    server.get("q")
    assert server("QPURGE", "q", *[word for state in states for word in ("STATE", state)]) == ended
    assert len(server.state.jobs) == 5 - ended


def test_dead_jobs_end_and_nothing_is_left_to_redrive() -> None:
    server = Server()
    ids = bury(server, 3) + bury(server, 1, "RESULT", 60)
    assert server("QPURGE", "q", "DRYRUN") == 4
    assert server("QPURGE", "q", "STATE", "queued") == 0
    assert server("QPURGE", "q") == 4
    assert [job_id for job_id in ids[:3] if server.state.jobs.get(job_id)] == []
    assert server("REDRIVE", "q", client="rosa") is BLOCKED
    server.advance(10)
    assert server.answers["rosa"] == [0]
    assert server.get("q") == []
    check(server)


def test_a_queue_that_is_flushed_has_no_dead_jobs_left() -> None:
    server = Server()
    bury(server, 2)
    server("QFLUSH", "q")
    server.advance(10)
    assert len(server.state.jobs) == 0


def test_a_dry_run_counts_and_ends_nothing() -> None:
    server = Server()
    for number in range(3):
        server.add("q", number)
    server.get("q")
    assert server("QPURGE", "q", "DRYRUN") == 3
    assert server("QPURGE", "q", "STATE", "queued", "DRYRUN") == 2
    assert len(server.state.jobs) == 3


def test_an_unknown_state_is_refused_with_those_that_are_allowed() -> None:
    refusal = Server().refusal("QPURGE", "q", "STATE", "acked")
    assert refusal == "ERR unknown STATE 'acked'; expected one of wait-repl, active, queued, dead"


def test_a_log_is_refused() -> None:
    server = Server()
    server("QADD", "q", 60, "body")
    assert server.refusal("QPURGE", "q").startswith(WRONGTYPE)
    assert server.node.state.queues.by_name[b"q"].length == 1


# Several nodes.


def test_jobs_with_copies_are_counted_once_and_end_everywhere(cluster: Cluster) -> None:
    a, b, c = cluster
    ids = add(a, 20, "REPLICATE", 3) + add(b, 20, "REPLICATE", 2) + add(c, 20, "REPLICATE", 1)
    ids += add(c, 5, "RETRY", 0, "REPLICATE", 1) + add(b, 5, "DELAY", 60, "REPLICATE", 3)
    a.get("q")
    assert purge(b) == 70
    assert all(member.get("q") == [] for member in cluster)
    check_gone(cluster, ids)


def test_a_dry_run_counts_each_job_of_the_cluster_once(cluster: Cluster) -> None:
    a, b, c = cluster
    add(a, 20, "REPLICATE", 3)
    add(b, 5, "REPLICATE", 1)
    add(c, 5, "DELAY", 60, "REPLICATE", 2)
    a.get("q")
    assert purge(c, "DRYRUN") == 30
    assert purge(c, "STATE", "queued", "DRYRUN") == 24
    assert purge(c, "STATE", "active", "DRYRUN") == 6
    assert not cluster.sent(SETACK)
    assert not any(member.node.purges.shares for member in cluster)
    assert purge(c) == 30


@pytest.mark.parametrize("states", [(), ("dead",), ("dead", "active"), ("queued", "dead", "active", "wait-repl")])
def test_dead_jobs_of_all_holders_end_and_are_counted_once(cluster: Cluster, states: tuple[str, ...]) -> None:
    a, b, c = cluster
    ids = add(a, 10, "REPLICATE", 3) + add(b, 10, "REPLICATE", 2) + add(c, 10, "REPLICATE", 1)
    for member in (a, b, c):
        rows = member.get("q", count=30)
        assert member("NACK", *[job_id for _, job_id, _ in rows], "DEAD") == len(rows)
    cluster.advance(1)
    words = [word for state in states for word in ("STATE", state)]
    assert purge(b, "DRYRUN", *words) == 30
    assert purge(b, *words) == 30
    assert not any(member.state.queues.dead for member in cluster)
    check_gone(cluster, ids)
    assert all(redrive(member) == 0 for member in cluster)


def redrive(member: Member) -> int:
    assert member("REDRIVE", "q", client="rosa") is BLOCKED
    member.cluster.advance(1)
    return int(member.answers["rosa"].pop())


def test_each_job_is_acknowledged_by_one_of_its_holders(cluster: Cluster) -> None:
    a, _, _ = cluster
    ids = add(a, 30, "REPLICATE", 3)
    cluster.flights.clear()
    assert purge(a) == 30
    askers: dict[bytes, set[str]] = {}
    for flight in cluster.sent(SETACK):
        askers.setdefault(flight.data[1], set()).add(repr(flight.sender))
    assert sorted(askers) == sorted(ids)
    assert all(len(names) == 1 for names in askers.values())
    assert len({name for names in askers.values() for name in names}) == 3
    check_gone(cluster, ids)


def test_whatever_the_order_of_messages_each_job_is_counted_once(cluster: Cluster) -> None:
    a, b, c = cluster
    ids = add(a, 20, "REPLICATE", 3)
    cluster.hold(a, b)
    assert a("QPURGE", "q", client="paul") is BLOCKED
    assert cluster.sent(SETACK, c, b)
    cluster.release(a, b, order=reversed)
    cluster.advance(1)
    assert a.answers["paul"] == [20]
    check_gone(cluster, ids)


def test_the_state_that_one_node_has_a_job_in_counts(cluster: Cluster) -> None:
    a, b, _ = cluster
    waiting = add(a, 10, "REPLICATE", 3)
    later = add(b, 10, "REPLICATE", 3, "DELAY", 60)
    assert purge(b, "STATE", "active") == 10
    assert all(a.holds(job_id) for job_id in waiting)
    held = [job_id for _, job_id, _ in a("GETJOB", "COUNT", 3, "FROM", "q")]
    assert purge(b, "STATE", "active") == 3
    assert [job_id for job_id in waiting if not a.holds(job_id)] == held
    assert purge(b, "STATE", "queued") == 7
    check_gone(cluster, waiting + later)


def test_a_holder_of_which_another_one_does_not_know_keeps_no_job(cluster: Cluster) -> None:
    a, b, c = cluster
    ids = add(a, 20, "REPLICATE", 2)
    for member, other in ((a, b), (b, c), (c, a)):
        for job in list(member.state.jobs):
            member.state.add_holders(job, frozenset((other.id,)))
    assert purge(a) <= 20
    check_gone(cluster, ids)


def test_a_silent_node_is_not_waited_for_and_its_jobs_end_all_the_same(cluster: Cluster) -> None:
    a, _, c = cluster
    ids = add(a, 20, "REPLICATE", 3)
    cluster.lose = lambda flight: flight.kind == PURGE and flight.receiver is c
    assert a("QPURGE", "q", client="paul") is BLOCKED
    cluster.advance(SILENCE_MS - 1)
    assert a.answers["paul"] == []
    cluster.advance(1)
    assert len(a.answers["paul"]) == 1
    assert 0 < a.answers["paul"][0] < 20
    cluster.lose = lambda flight: False
    cluster.advance(100)
    c.node.purges.shares.clear()
    check_gone(cluster, ids)


def test_a_node_that_is_long_at_work_says_so_and_is_waited_for(cluster: Cluster) -> None:
    a, b, _ = cluster
    b.node.purges.ended_per_part = 1
    ids = add(b, 8, "REPLICATE", 1)
    assert a("QPURGE", "q", client="paul") is BLOCKED
    for _ in range(12):
        b.clock.advance(SILENCE_MS - 500)
        cluster.advance(SILENCE_MS - 500) if not a.answers["paul"] else None
    assert a.answers["paul"] == [8]
    check_gone(cluster, ids)


def test_a_node_that_goes_away_is_not_waited_for(cluster: Cluster) -> None:
    a, b, c = cluster
    ids = add(a, 5, "REPLICATE", 1)
    cluster.lose = lambda flight: flight.kind == PURGED and flight.sender is c
    assert a("QPURGE", "q", client="paul") is BLOCKED
    cluster.cut(a, c)
    cluster.advance(1)
    assert a.answers["paul"] == [5]
    cluster.lose = lambda flight: False
    cluster.heal(a, c)
    del b
    check_gone(cluster, ids)


def test_a_node_that_was_away_learns_what_ended_and_keeps_what_it_alone_holds(cluster: Cluster) -> None:
    a, b, c = cluster
    ids = add(a, 10, "REPLICATE", 3)
    own = add(c, 2, "REPLICATE", 1)
    cluster.isolate(c)
    assert purge(a) == 10
    cluster.heal(a, c)
    cluster.heal(b, c)
    cluster.advance(30_000)
    assert [member.holds(job_id) for member in cluster for job_id in ids] == [False] * 30
    assert [c.holds(job_id) for job_id in own] == [True] * 2


def test_a_job_that_is_given_to_a_node_that_is_done_ends_there_and_is_counted(cluster: Cluster) -> None:
    a, b, c = cluster
    ids = add(c, 6, "REPLICATE", 1, "RETRY", 0) + add(c, 4, "REPLICATE", 1)
    cluster.hold(a, c)
    assert a("QPURGE", "q", client="paul") is BLOCKED
    assert b.get("q") == []
    assert cluster.sent(YOURJOBS, c, b)
    cluster.release(a, c)
    cluster.advance(1)
    assert a.answers["paul"] == [10]
    check_gone(cluster, ids)


@pytest.mark.parametrize("states", [(), ("STATE", "queued"), ("STATE", "active")])
def test_a_delayed_job_that_a_node_takes_over_from_one_that_leaves_ends(
    cluster: Cluster, states: tuple[str, ...]
) -> None:
    a, b, c = cluster
    ids = add(c, 5, "REPLICATE", 1, "RETRY", 0, "DELAY", 60)
    cluster.hold(a, c)
    assert a("QPURGE", "q", *states, client="paul") is BLOCKED
    cluster.cut_one_way(c, a)
    c("CLUSTER", "LEAVING", "yes")
    cluster.advance(100)
    assert cluster.sent(YOURJOBS, c, b)
    cluster.release(a, c)
    cluster.heal_one_way(c, a)
    cluster.advance(SILENCE_MS + 100)
    is_meant = states != ("STATE", "queued")
    assert a.answers["paul"] == [5 * is_meant]
    assert sum(member.holds(job_id) for member in cluster for job_id in ids) == 5 * (not is_meant)


def test_what_is_added_meanwhile_and_moves_stays(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.hold(c, a)
    assert c("QPURGE", "q", client="paul") is BLOCKED
    ids = add(a, 3, "REPLICATE", 1, "RETRY", 0)
    assert b.get("q") == []
    moved = [job_id for job_id in ids if b.holds(job_id)]
    assert 0 < len(moved) < 3
    cluster.release(c, a)
    cluster.advance(1)
    assert c.answers["paul"] == [3 - len(moved)]
    assert [job_id for job_id in ids if b.holds(job_id)] == moved
    assert not any(member.node.purges.shares for member in cluster)


def test_a_job_that_moves_when_the_purge_is_over_stays(cluster: Cluster) -> None:
    a, b, c = cluster
    assert purge(a) == 0
    ids = add(c, 3, "REPLICATE", 1, "RETRY", 0)
    assert b.get("q") == []
    cluster.advance(100)
    assert cluster.sent(YOURJOBS, c, b)
    assert all(any(member.holds(job_id) for member in cluster) for job_id in ids)


def test_a_client_that_leaves_is_not_answered_and_all_ends_all_the_same(cluster: Cluster) -> None:
    a, b, _ = cluster
    ids = add(a, 10, "REPLICATE", 3)
    cluster.hold(a, b)
    assert a("QPURGE", "q", client="paul") is BLOCKED
    a.node.begin()
    a.node.gone("paul")
    a.settle()
    cluster.release(a, b)
    assert a.answers["paul"] == []
    check_gone(cluster, ids)


def test_a_flush_ends_the_wait(cluster: Cluster) -> None:
    a, b, _ = cluster
    add(a, 10, "REPLICATE", 1)
    cluster.hold(a, b)
    assert a("QPURGE", "q", client="paul") is BLOCKED
    a.node.begin()
    a.node.flush()
    a.settle()
    assert a.answers["paul"] == [10]


def test_two_purges_at_once_count_each_job_once_together(cluster: Cluster) -> None:
    a, b, c = cluster
    ids = add(a, 20, "REPLICATE", 3)
    held: list[Flight] = []
    for one, other in ((a, b), (b, a), (a, c), (c, a), (b, c), (c, b)):
        cluster.hold(one, other)
    assert a("QPURGE", "q", client="paul") is BLOCKED
    assert b("QPURGE", "q", client="rosa") is BLOCKED
    for one, other in ((a, b), (b, a), (a, c), (c, a), (b, c), (c, b)):
        cluster.release(one, other)
    cluster.advance(1)
    assert not held
    assert a.answers["paul"][0] + b.answers["rosa"][0] == 20
    check_gone(cluster, ids)


# What ended jobs count as.


def outcome(member: Member, job_id: bytes) -> list[object]:
    """What WAITJOB says of a job, without its id."""
    assert member("WAITJOB", 200, job_id, client="anna") is BLOCKED
    member.cluster.advance(200)
    ((answered, *words),) = member.answers["anna"].pop()
    assert answered == job_id
    return list(words)


def cancelled_once(cluster: Cluster) -> int:
    """Jobs that the nodes together count as cancelled, each once; none counts as acknowledged."""
    for member in cluster:
        assert member.state.counters.acked == 0
        assert not any(queue.acked for queue in member.state.queues.by_name.values())
    counters = [member.state.counters for member in cluster]
    return sum(each.cancelled - each.cancels_heard for each in counters)


@pytest.mark.parametrize("options", [(), ("RESULT", 60), ("MAXTRIES", 9), ("DELAY", 60), ("RETRY", 0)])
@pytest.mark.parametrize("asked", [0, 1, 2])
@pytest.mark.parametrize("steps", [(), ("get",), ("get", "NACK"), ("get", "NACK DELAY 30"), ("get", "NACK DEAD")])
def test_what_ends_is_cancelled_and_counted_on_one_node(
    cluster: Cluster, options: tuple[str | int, ...], asked: int, steps: tuple[str, ...]
) -> None:
    add(cluster.members[0], 9, "REPLICATE", 1 if "RETRY" in options else 3, *options)
    for word, *words in map(str.split, steps):
        if word == "get":
            had = [job_id for _, job_id, _ in cluster.members[0].get("q", count=4)]
        else:
            cluster.members[0](word, *had, *words)
    cluster.advance(1)
    left = len({job.id for member in cluster for job in member.state.jobs})
    assert purge(cluster.members[asked]) == left
    cluster.advance(5_000)
    assert cancelled_once(cluster) == left


@pytest.mark.parametrize("options", [(), ("DELAY", 60)])
def test_who_asks_for_a_purged_job_while_a_holder_is_away_hears_that_it_was_cancelled(
    cluster: Cluster, options: tuple[str | int, ...]
) -> None:
    a, b, c = cluster
    (job_id,) = add(a, 1, "REPLICATE", 3, *options)
    cluster.isolate(c)
    assert purge(b) == 1
    for after_ms in (1, 3_000):
        cluster.advance(after_ms)
        for member in (a, b):
            assert member("WAITJOB", 200, job_id) == [[job_id, b"cancelled", None, 0, b"cancelled"]]
            assert member("CANCEL", job_id) == [b"cancelled"]
    cluster.heal(a, c)
    cluster.heal(b, c)
    cluster.advance(30_000)
    assert outcome(c, job_id) == [b"cancelled", None, 0, b"cancelled"]
    assert cancelled_once(cluster) == 1


def test_a_holder_that_nobody_knew_of_learns_that_the_job_was_cancelled(cluster: Cluster) -> None:
    a, b, c = cluster
    (job_id,) = add(a, 1, "REPLICATE", 3, "RETRY", 60)
    for member in (a, b):
        member.job(job_id).holders = frozenset((a.id, b.id))
    cluster.isolate(c)
    assert purge(a) == 1
    cluster.advance(1)
    assert not a.holds(job_id)
    assert not b.holds(job_id)
    cluster.heal(a, c)
    cluster.heal(b, c)
    cluster.advance(70_000)
    assert outcome(c, job_id) == [b"cancelled", None, 0, b"cancelled"]
    assert cancelled_once(cluster) == 1


def test_a_node_without_a_copy_says_that_a_job_was_cancelled_as_it_heard(cluster: Cluster) -> None:
    a, b, c = cluster
    (job_id,) = add(a, 1, "REPLICATE", 2, "RETRY", 60)
    holder, stranger = (b, c) if b.holds(job_id) else (c, b)
    a.say(stranger, (SETACK, job_id, MARK, False, frozenset(member.id for member in cluster)))
    holder.say(stranger, (WILLQUEUE, job_id, b""))
    assert outcome(holder, job_id) == [b"cancelled", None, 0, b"cancelled"]


def test_what_is_kept_of_purged_jobs_takes_no_more_than_of_acknowledged_ones(cluster: Cluster) -> None:
    a, _, c = cluster
    ids = add(a, 20, "REPLICATE", 3)
    cluster.isolate(c)
    acked, purged = ids[:10], ids[10:]
    assert a("ACKJOB", *acked) == 10
    used = a.state.memory.used
    assert purge(a) == 10
    assert used - a.state.memory.used == sum(len(str(number)) for number in range(10, 20))
    kept = {member.job(job_id).options for member in (a,) for job_id in purged}
    assert len(kept) == 1


def test_a_purge_of_jobs_that_nobody_had_takes_no_message_more_than_acknowledging_them() -> None:
    counts = []
    for word in ("ACKJOB", "QPURGE"):
        cluster = Cluster(3)
        a = cluster.members[0]
        ids = add(a, 20, "REPLICATE", 3)
        cluster.flights.clear()
        if word == "ACKJOB":
            a("ACKJOB", *ids)
        else:
            purge(a)
        cluster.advance(1_000)
        counts.append(sorted(flight.kind for flight in cluster.flights if flight.kind not in (PURGE, PURGED)))
    assert counts[0] == counts[1]
