"""Put-off and dead jobs over a crash and a controlled restart, in every store."""

from random import Random

import pytest

from disqued.core.model.job import DEAD, FLAG_PUT_OFF, Job
from disqued.core.node import Node
from disqued.core.recovery import Recovery, snapshot
from tests.contract.test_stores import Bench, async_test
from tests.contract.test_stores import bench as bench  # noqa: PLC0414 - a fixture
from tests.core_fixtures import NODE_ID, Server


def restarted(bench: Bench, records: list, *, controlled: bool) -> Node:  # type: ignore[type-arg]
    """A node that starts from what a store has loaded."""
    node = Node(NODE_ID, bench.clock, Random(7), maxmemory=1 << 40)
    recovery = Recovery(node.state, restores_queues=controlled)
    node.begin()
    for record in records:
        recovery.apply(record)
    recovery.finish()
    return node


@async_test
@pytest.mark.parametrize("controlled", [False, True])
async def test_put_off_and_dead_jobs_come_back_as_they_were(bench: Bench, controlled: bool) -> None:
    await bench.start()
    server = Server(clock=bench.clock)
    put_off = server.add("q", "put off", "RETRY", "10.25", "MAXTRIES", 3, "BACKOFF", "0.5", "RESULT", "1.125")
    dead = server.add("q", "dead", "RETRY", "0.25", "MAXTRIES", 1, "TTL", "100.5", "KEEPDEAD", "1000.75")
    bench.running.append(server.journal)
    server.journal = []
    server.get(count=2)
    server("NACK", put_off, "DELAY", "100.125", "REASON", b"later \xff")
    server("NACK", dead, "REASON", "why")
    await bench.put(*server.journal)
    if controlled:
        await bench.rewrite_all(snapshot(server.state))
    wanted = bench.running.records or controlled
    records = await bench.start()
    if not wanted or not records:
        assert bench.factory.name == "none"
        return
    state = restarted(bench, records, controlled=controlled).state
    for job_id in (put_off, dead):
        job, before = state.jobs.get(job_id), server.job(job_id)
        assert isinstance(job, Job)
        assert (job.state, job.nacks, job.options.terms, job.options.fate) == (
            before.state, before.nacks, before.options.terms, before.options.fate,
        )  # fmt: skip
        assert (job.expires_at, job.requeue_at) == (before.expires_at, before.requeue_at)
        assert (job.options.ttl_ms, job.options.retry_ms) == (before.options.ttl_ms, before.options.retry_ms)
        assert job.flags & FLAG_PUT_OFF == before.flags & FLAG_PUT_OFF
    assert [server.job(job_id).options.retry_ms for job_id in (put_off, dead)] == [10_250, 250]
    assert server.job(dead).state == DEAD
    assert server.job(put_off).flags & FLAG_PUT_OFF
