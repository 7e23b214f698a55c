"""Results and cancelled jobs over a crash and a controlled restart, in every store."""

from random import Random

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.outbox import Record
from disqued.core.node import Node
from disqued.core.recovery import Recovery, snapshot
from tests.cluster_fixtures import Cluster, Member
from tests.contract.test_stores import Bench, async_test
from tests.contract.test_stores import bench as bench  # noqa: PLC0414 - a fixture
from tests.core_fixtures import Server, check

RETRY_MS = 10_000
KEPT_MS = 1_000_000


def restarted(member: Member, records: list[Record], *, controlled: bool) -> Server:
    """The node of a member, which starts from what a store has loaded, and has no other node to ask."""
    server = Server(clock=member.clock)
    server.node = node = Node(member.id, member.clock, Random(7), maxmemory=1 << 40)
    server.state = node.state
    server.state.journaling = True
    server.journal += records
    recovery = Recovery(node.state, restores_queues=controlled)
    node.begin()
    for record in records:
        recovery.apply(record)
    recovery.finish()
    server.settle()
    return server


def add(member: Member, *options: str | int) -> bytes:
    """Add a job that a consumer has from now on."""
    added = member("ADDJOB", "q", "body", 0, "RETRY", RETRY_MS // 1_000, *options, client="adder")
    job_id = bytes(member.answers["adder"].pop() if added is BLOCKED else added)
    assert [taken for _, taken, _ in member.get("q")] == [job_id]
    return job_id


def result_of(server: Server, job_id: bytes) -> tuple[object, ...]:
    """What SHOW tells of a result: the state, the value, the body, and whether there was another value."""
    shown = server.show(job_id)
    assert shown is not None
    return (shown["state"], shown["result"], shown["body"], shown.get("rival-results"))


def row(server: Server, job_id: bytes) -> list[object]:
    """What WAITJOB answers at once, without the id."""
    ((answered, *values),) = server("WAITJOB", 1, job_id, client="late")
    assert answered == job_id
    return list(values)


@async_test
@pytest.mark.parametrize("controlled", [False, True])
async def test_results_and_cancelled_jobs_come_back_as_they_were(bench: Bench, controlled: bool) -> None:
    a, b = cluster = Cluster(2)
    bench.clock = a.clock
    await bench.start()
    options = ("RESULT", KEPT_MS // 1_000, "REPLICATE")
    done, rivaled = add(a, *options, 1), add(a, *options, 2)
    assert a("ACKJOB", done, "RESULT", b"42 \xff") == 1
    cluster.cut(a, b)
    # By the wall clock b is behind, so that a gets another result after it has written down its own.
    assert a("ACKJOB", rivaled, "RESULT", "of a") == b("ACKJOB", rivaled, "RESULT", "of b") == 1
    cluster.heal(a, b)
    cluster.advance(10_000)
    given_up, cancelled = add(a, "REPLICATE", 1), add(a, *options, 1)
    assert a("CANCEL", given_up, cancelled) == [b"cancelling"] * 2
    await bench.put(*a.journal)
    if controlled:
        await bench.rewrite_all(snapshot(a.state))
    told = {job_id: (result_of(a, job_id), row(a, job_id)) for job_id in (done, rivaled)}
    records = await bench.start()
    if bench.factory.name == "none":
        assert not records
        return

    server = restarted(a, records, controlled=controlled)
    assert result_of(server, done) == (b"acked", b"42 \xff", None, None)
    assert result_of(server, rivaled) == (b"acked", b"of b", None, 1)
    assert row(server, done) == [b"acked", b"42 \xff", 1, b"acknowledged"]
    assert row(server, rivaled)[:3] == [b"acked", b"of b", 1]
    assert {job_id: (result_of(server, job_id), row(server, job_id)) for job_id in (done, rivaled)} == told

    assert [server.show(job_id)["cancelled"] for job_id in (given_up, cancelled)] == [1, 1]  # type: ignore[index]
    assert server("WAITJOB", 0, given_up, client="anna") is BLOCKED
    assert server.refusal("WORKING", cancelled).startswith("CANCELLED")
    for _ in range(40):
        server.advance(RETRY_MS // 20)
        assert server.get("q", count=10) == []
    check(server)
    ((answer,),) = server.answers["anna"]
    assert answer[:3] == [given_up, b"cancelled", None]
    assert server.show(given_up) is None
    assert row(server, cancelled)[:2] == [b"cancelled", None]
    server.advance(KEPT_MS)
    assert [server.show(job_id) for job_id in (done, rivaled, cancelled)] == [None] * 3
