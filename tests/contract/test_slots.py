"""What consumers have of limited queues over a crash and a controlled restart, in every store."""

import pytest

from disqued.core.model.policies import INFLIGHT_FIELD
from disqued.core.recovery import snapshot, walk
from tests.contract.test_retries import restarted
from tests.contract.test_stores import Bench, async_test
from tests.contract.test_stores import bench as bench  # noqa: PLC0414 - a fixture
from tests.core_fixtures import Server


@async_test
@pytest.mark.parametrize("how", ["crash", "walk", "restart"])
async def test_what_consumers_have_counts_until_it_ends(bench: Bench, how: str) -> None:
    await bench.start()
    server = Server(clock=bench.clock)
    server.node.policies.set(b"q", {INFLIGHT_FIELD: (4,)})
    jobs = [server.add("q", "body", "RETRY", retry) for retry in (10, 10, 0, 10, 10)]
    server.settle()
    for name in "abcd":
        server("GETJOB", "FROM", "q", client=name)
        server.advance(1)
    server("NACK", jobs[0])
    server.advance(3_000)
    server("WORKING", jobs[1])
    since = server.state.custody.limited[server.job(jobs[2])].since
    until = {job_id: server.job(job_id).requeue_at for job_id in (jobs[1], jobs[3])}
    if how == "restart":
        await bench.rewrite_all(snapshot(server.state))
    else:
        await bench.put(*server.journal)
        if how == "walk" and bench.factory.name in ("aof", "sqlite"):
            await bench.compact([record for record in walk(server.state) if record is not None])
    wanted = bench.running.records or how == "restart"
    bench.clock.advance(2_000)
    records = await bench.start()
    if not wanted or not records:
        assert bench.factory.name == "none"
        return
    state = restarted(bench, records, controlled=how == "restart").state
    assert {unit.id: unit.requeue_at for unit in state.queues.by_name[b"q"].leased} == until
    assert {unit.id: holder.since for unit, holder in state.custody.limited.items()} == {jobs[2]: since}
