"""Who has a slot of a limited queue, as each node shows it."""

from typing import NamedTuple

import pytest

from disqued.core.cluster.followers import Followers
from disqued.core.model.messages import SLOTS_KEEP
from disqued.core.model.outbox import CLIENT_NAME_MAX
from disqued.core.model.policies import INFLIGHT_FIELD
from disqued.core.model.slots import SlotTable
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import UNKNOWN_ID, Server, check
from tests.unit.core.cluster.test_limits_of_lists import push, recover
from tests.unit.core.cluster.test_slots_after_crashes import HOWS, Disk, started
from tests.unit.core.cluster.test_stewards import cluster_with, limit, steward


class Consumer(NamedTuple):
    """A client with a name and an address."""

    address: str
    name: bytes = b""


def clients(server: Server) -> list[bytes | None]:
    """Return who has the slots of a queue, as a node shows it."""
    return [row[-1] for row in server("SLOTS", "q")]


def take(cluster: Cluster, member: Member, *words: str, client: Consumer) -> None:
    """Let a client take a job that it has to wait for."""
    member("ADDJOB", "q", "body", 0, "REPLICATE", 1, "RETRY", 600, "ASYNC")
    member("GETJOB", *words, "FROM", "q", client=client)
    cluster.advance(100)
    assert member.answers.pop(client)


@pytest.mark.parametrize("by_steward", [False, True])
def test_each_node_learns_who_has_a_job(by_steward: bool) -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (5,)})
    first = steward(cluster)
    home = first if by_steward else next(member for member in cluster if member is not first)
    take(cluster, home, client=Consumer("10.0.0.1:4711"))
    take(cluster, home, client=Consumer("10.0.0.2:4711", b"mailer-7"))
    shown = [b"10.0.0.1:4711", b"mailer-7"]
    assert clients(home) == shown, "its own node knows at once"
    assert [clients(member) for member in cluster if member is not home] == [[None, None]] * 2
    cluster.advance(2_500)
    assert [clients(member) for member in cluster] == [shown] * 3
    for member in cluster:
        check(member)


def test_a_name_that_is_known_travels_once() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (5,)})
    take(cluster, cluster.members[0], client=Consumer("10.0.0.1:4711"))
    cluster.advance(2_500)
    told = len(cluster.sent(SLOTS_KEEP))
    cluster.advance(60_000)
    assert len(cluster.sent(SLOTS_KEEP)) == told


def test_a_job_that_is_done_soon_costs_no_word_more() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (5,)})
    home = cluster.members[0]
    take(cluster, home, client=Consumer("10.0.0.1:4711"))
    home("ACKJOB", *(job.id for job in home.state.jobs))
    cluster.advance(10_000)
    taken = [span for flight in cluster.sent(SLOTS_KEEP) for span in flight.message[5]]
    assert [span.client for span in taken] == [b""] * len(cluster.members[1:])


def test_what_all_followers_are_told_is_one_object_which_is_encoded_once() -> None:
    state, followers = Cluster(3).members[0].state, Followers()
    table = SlotTable(state.memory)
    followers.tell(state, b"q", 1, table)  # all slots, to each
    followers.changed[UNKNOWN_ID] = None
    followers.note()
    state.outbox.messages.clear()
    followers.tell(state, b"q", 1, table)
    (_, one), (_, other) = state.outbox.messages
    assert one is other
    assert one == (SLOTS_KEEP, b"q", 1, 1, 2, (), (UNKNOWN_ID,))


def test_a_later_steward_knows_it_from_the_others() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (5,)})
    first = steward(cluster)
    home, other = (member for member in cluster if member is not first)
    take(cluster, home, client=Consumer("10.0.0.1:4711"))
    cluster.advance(2_500)
    cluster.isolate(first)
    cluster.advance(60_000)
    assert home.node.witnesses.steward_of(b"q") != first.id
    assert clients(home) == clients(other) == [b"10.0.0.1:4711"]


def test_a_worker_is_shown_by_its_id_and_so_it_is_where_it_moves() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (5,)})
    old, new, _ = cluster
    old("WORKER", "START", "ID", "press-1", "TTL", 600_000, client=Consumer("10.0.0.1:4711"))
    take(cluster, old, "WORKER", "press-1", client=Consumer("10.0.0.1:4712"))
    assert clients(old) == [b"press-1"]
    new("WORKER", "START", "ID", "press-1", client=Consumer("10.0.0.2:4711"))
    cluster.advance(2_500)
    assert [clients(member) for member in cluster] == [[b"press-1"]] * 3
    assert {row[2] for row in old("SLOTS", "q")} == {new.id}


def test_who_recovers_an_element_is_shown_and_a_client_of_another_node_is_not() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (1,)})
    home, other, _ = cluster
    push(cluster, home, "one")
    home("RQ.POP", "q", client=Consumer("10.0.0.1:4711", b"pops"))
    cluster.advance(2_500)
    assert [clients(member) for member in cluster] == [[b"pops"]] * 3
    assert recover(cluster, home) == [b"one"]
    cluster.advance(100)
    assert [clients(member) for member in cluster] == [[b"recovers"]] * 3
    assert recover(cluster, other) == [b"one"]
    cluster.advance(100)
    assert [clients(member) for member in cluster] == [[None]] * 3


@pytest.mark.parametrize("how", HOWS)
def test_a_restart_knows_workers_alone(how: str) -> None:
    server = Disk()
    limit(server, INFLIGHT_FIELD, 2)
    server("WORKER", "START", "ID", "press-1", "TTL", 600_000, client="works")
    for words in (("WORKER", "press-1"), ()):
        server("ADDJOB", "q", "body", 0, "RETRY", 600)
        server("GETJOB", *words, "FROM", "q", client=Consumer("10.0.0.1:4711"))
        server.advance(100)
    assert clients(server) == [b"press-1", b"10.0.0.1:4711"]
    again = started(server, how)
    again.advance(2_500)
    assert sorted(clients(again), key=str) == [None, b"press-1"]


def test_a_name_is_cut() -> None:
    server = Server()
    limit(server, INFLIGHT_FIELD, 2)
    server("ADDJOB", "q", "body", 0)
    server("GETJOB", "FROM", "q", client=Consumer("", b"x" * 300))
    server.advance(100)
    assert clients(server) == [b"x" * CLIENT_NAME_MAX]
    server.advance(2_500)
    check(server)
