"""What every store promises, whichever it is: each is made by its plugin, as the daemon makes it."""

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from disqued.core.job import ACKED, ACTIVE, FLAG_QUEUED_BEFORE, QUEUED, Job, JobOptions
from disqued.core.outbox import FLUSHED, GONE_DELETED, JOB_ADDED, JOB_GONE, QUEUE_PAUSED, UNIT_DONE, Record
from disqued.core.queues import PAUSE_IN
from disqued.persistence.interface import IStore, IStoreFactory, StoreError
from disqued.persistence.plugins import find_store
from disqued.testing.clock import Clock

async_test = pytest_twisted.ensureDeferred

FIELDS = {
    "aof_enabled", "aof_state", "aof_rewrite_in_progress", "aof_rewrite_scheduled", "aof_last_rewrite_time_sec",
    "aof_current_rewrite_time_sec", "aof_last_bgrewrite_status", "aof_last_write_status",
}  # fmt: skip


@attrs.define
class Settings:
    appendfilename: Path
    appendfsync: str = "everysec"
    aof_load_truncated: bool = True
    aof_enqueue_jobs_once: bool = False
    auto_aof_rewrite_percentage: int = 100
    auto_aof_rewrite_min_size: int = 64 << 20
    aof_rewrite_incremental_fsync: bool = True
    no_appendfsync_on_rewrite: bool = False
    redis_url: str = ""
    redis_prefix: str = "disqued"
    redis_backlog: int = 64 << 20
    sqlite_file: Path = attrs.Factory(lambda self: self.appendfilename.with_suffix(".sqlite"), takes_self=True)
    sqlite_history: int = 7 * 86_400


def make_job(number: int, *, state: int = QUEUED, retry_ms: int = 60_000) -> Job:
    options = JobOptions(ttl_ms=600_000, retry_ms=retry_ms, delay_ms=0, replicate=1)
    options.stamp(1_000)
    job = Job(b"DI%044dSQ" % number, b"queue", b"body %d" % number, 1_700_000_000_000_000_000 + number, options)
    job.state = state
    job.flags = FLAG_QUEUED_BEFORE
    return job


async def done(result: "Deferred[None] | None") -> None:
    """Wait for what a store answers."""
    if result is not None:
        await result


class Bench:
    """A place for files, and stores of one kind opened there one after the other."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.factory = find_store(kind)
        self.settings = Settings(directory / "disque.aof")
        self.clock = Clock()
        self.store: IStore | None = None

    def make(self) -> IStore:
        return self.factory.create(self.settings, reactor, self.clock)

    async def start(self, *, enqueue_once: bool = False) -> list[Record]:
        """Start with what the last store left; returns what is loaded."""
        self.settings.aof_enqueue_jobs_once = enqueue_once
        await self.stop()
        self.store = self.make()
        self.store.open()
        records = []
        for record in self.store.load():
            if isinstance(record, Deferred):
                await record
            else:
                records.append(record)
        return records

    async def stop(self) -> None:
        """Close the store that runs, if one does."""
        if self.store is not None:
            await done(self.store.close())

    async def put(self, *records: Record) -> None:
        """Append and commit."""
        self.running.append(list(records))
        await done(self.running.commit())

    async def rewrite(self, *jobs: Job) -> None:
        """Leave these jobs as the last word."""
        await done(self.running.rewrite((JOB_ADDED, job) for job in jobs))

    @property
    def running(self) -> IStore:
        assert self.store is not None
        return self.store


@pytest.fixture(params=["none", "aof", "redis", "sqlite"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(request.param, tmp_path)
    if request.param == "redis":
        server = request.getfixturevalue("shared_redis")
        server.call("FLUSHALL")
        bench.settings.redis_url = server.url
    yield bench
    pytest_twisted.blockon(Deferred.fromCoroutine(bench.stop()))


def test_plugin_and_store_provide_their_interfaces(bench: Bench) -> None:
    verifyObject(IStoreFactory, bench.factory)
    verifyObject(IStore, bench.make())


def test_an_unknown_store_is_refused_with_the_known_ones() -> None:
    with pytest.raises(StoreError, match="no store is called 'tape'; installed are aof, none, redis, sqlite"):
        find_store("tape")


@async_test
async def test_a_new_store_holds_nothing(bench: Bench) -> None:
    assert await bench.start() == []
    assert bench.running.bytes_loaded == bench.running.bytes_total
    assert not bench.running.restores_queues


def still_there(records: list[Record]) -> set[bytes]:
    """The bodies of the jobs that are there after these records; a store may leave out what is over."""
    bodies: dict[bytes, bytes] = {}
    for kind, *facts in records:
        if kind == JOB_ADDED:
            bodies[facts[0].id] = facts[0].body
        elif kind == FLUSHED:
            bodies.clear()
        elif kind in (UNIT_DONE, JOB_GONE):
            bodies.pop(facts[0], None)
    return set(bodies.values())


@async_test
async def test_what_was_committed_is_loaded_by_a_store_that_wants_it(bench: Bench) -> None:
    await bench.start()
    first, second, third = make_job(1), make_job(2), make_job(3)
    bench.running.append([(JOB_ADDED, first), (JOB_ADDED, second), (JOB_ADDED, third)])
    await bench.put((UNIT_DONE, first.id, b""))
    await bench.put((JOB_GONE, second.id, GONE_DELETED))
    assert still_there(await bench.start()) == ({b"body 3"} if bench.running.records else set())
    assert bench.running.bytes_loaded == bench.running.bytes_total
    await bench.put((FLUSHED,), (JOB_ADDED, make_job(4)))
    assert still_there(await bench.start()) == ({b"body 4"} if bench.running.records else set())


@async_test
@pytest.mark.parametrize("bench", ["aof"], indirect=True)
async def test_a_journal_tells_what_happened_in_its_order(bench: Bench) -> None:
    await bench.start()
    first, second = make_job(1), make_job(2)
    bench.running.append([(JOB_ADDED, first), (JOB_ADDED, second)])
    await bench.put((UNIT_DONE, first.id, b""))
    bench.clock.advance(5)
    await bench.put((JOB_GONE, second.id, GONE_DELETED), (FLUSHED,))
    loaded = await bench.start()
    now = bench.clock.wall()
    assert [record[1].body for record in loaded[:2]] == [b"body 1", b"body 2"]
    assert [record[0] for record in loaded[:2]] == [JOB_ADDED, JOB_ADDED]
    assert loaded[2:] == [(UNIT_DONE, first.id, b"", now - 5), (JOB_GONE, second.id, GONE_DELETED, now), (FLUSHED, now)]


@async_test
async def test_a_record_says_what_was_true_when_it_was_appended(bench: Bench) -> None:
    await bench.start()
    job = make_job(1)
    bench.running.append([(JOB_ADDED, job)])
    job.nacks = 9
    await bench.put()
    assert [record[1].nacks for record in await bench.start()] == ([0] if bench.running.records else [])


@async_test
@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
async def test_a_policy_can_be_changed_while_the_store_runs(bench: Bench, policy: str) -> None:
    await bench.start()
    await bench.put((JOB_ADDED, make_job(1)))
    bench.settings.appendfsync = policy
    bench.running.configure(bench.settings)
    await bench.put((JOB_ADDED, make_job(2)))
    assert len(await bench.start()) == (2 if bench.running.records else 0)


@async_test
async def test_nothing_to_commit_is_no_error(bench: Bench) -> None:
    await bench.start()
    await bench.put()
    await bench.put()
    assert await bench.start() == []


@async_test
async def test_a_controlled_restart_tells_where_each_job_was(bench: Bench) -> None:
    await bench.start()
    jobs = [make_job(2), make_job(1), make_job(3, state=ACTIVE, retry_ms=0)]
    await bench.rewrite(*jobs)
    loaded = await bench.start(enqueue_once=True)
    assert bench.running.restores_queues
    assert [(record[0], record[1].id, record[1].state) for record in loaded] == [
        (JOB_ADDED, job.id, job.state) for job in jobs
    ]
    assert bench.running.bytes_loaded == bench.running.bytes_total > 0


@async_test
@pytest.mark.parametrize("times", [1, 2])
async def test_queues_are_restored_once_though_the_option_stays_on(bench: Bench, times: int) -> None:
    await bench.start()
    await bench.rewrite(make_job(1))
    for _ in range(times):
        await bench.start(enqueue_once=True)
    loaded = await bench.start(enqueue_once=True)
    assert not bench.running.restores_queues
    assert len(loaded) == (1 if bench.running.records else 0)


@async_test
async def test_queues_are_not_restored_without_the_option_nor_later(bench: Bench) -> None:
    await bench.start()
    await bench.rewrite(make_job(1))
    await bench.start()
    assert not bench.running.restores_queues
    await bench.start()
    await bench.start(enqueue_once=True)
    # A store without a journal has not looked at the files yet, and nothing has changed them.
    assert bench.running.restores_queues is not bench.running.records


@async_test
async def test_a_store_goes_on_after_a_rewrite_and_queues_are_history_then(bench: Bench) -> None:
    await bench.start()
    bench.running.append([(JOB_ADDED, make_job(1))])
    await bench.rewrite(make_job(2))
    await bench.put((JOB_ADDED, make_job(3)))
    wanted = bench.running.records
    loaded = await bench.start(enqueue_once=True)
    assert bench.running.restores_queues is not wanted
    assert still_there(loaded) == ({b"body 2", b"body 3"} if wanted else {b"body 2"})


@async_test
async def test_a_rewrite_of_no_jobs_leaves_none(bench: Bench) -> None:
    await bench.start()
    await bench.put((JOB_ADDED, make_job(1)))
    await bench.rewrite()
    assert await bench.start(enqueue_once=True) == []


@async_test
async def test_the_option_without_a_snapshot_starts_with_nothing(bench: Bench) -> None:
    assert await bench.start(enqueue_once=True) == []
    assert not bench.running.restores_queues


@async_test
async def test_the_status_has_the_fields_of_info(bench: Bench) -> None:
    await bench.start()
    status = bench.running.status()
    assert set(status) >= FIELDS
    assert status["aof_enabled"] == int(bench.running.records)
    assert status["aof_last_write_status"] == "ok"


@async_test
async def test_closing_twice_is_harmless(bench: Bench) -> None:
    await bench.start()
    bench.running.append([(JOB_ADDED, make_job(1))])
    await done(bench.running.close())
    await done(bench.running.close())
    assert len(await bench.start()) == (1 if bench.running.records else 0)


@async_test
async def test_a_pause_is_kept_like_a_job(bench: Bench) -> None:
    await bench.start()
    await bench.put((QUEUE_PAUSED, b"queue \xff", PAUSE_IN))
    when = bench.clock.wall()
    wanted = bench.running.records
    assert await bench.start() == ([(QUEUE_PAUSED, b"queue \xff", PAUSE_IN, when)] if wanted else [])


@async_test
async def test_a_store_begins_anew_without_what_it_held(bench: Bench) -> None:
    await bench.start()
    await bench.put((JOB_ADDED, make_job(1)), (QUEUE_PAUSED, b"queue", PAUSE_IN))
    await bench.stop()
    bench.store = bench.make()
    bench.store.open()
    await done(bench.store.renew())
    await bench.put((JOB_ADDED, make_job(2)))
    wanted = bench.running.records
    assert [record[1].body for record in await bench.start()] == ([b"body 2"] if wanted else [])


@async_test
async def test_a_job_that_is_done_but_kept_for_other_nodes_comes_back_as_one_that_is_done(bench: Bench) -> None:
    if not bench.make().records:
        return
    holders = frozenset((b"a" * 40, b"b" * 40))
    job, done_job, collected = make_job(1), make_job(1), make_job(2)
    for each in (job, done_job, collected):
        each.holders = holders
    done_job.state, done_job.body, done_job.requeue_at = ACKED, b"", 0
    await bench.start()
    await bench.put((JOB_ADDED, job), (JOB_ADDED, collected))
    await bench.put((JOB_ADDED, done_job))
    await bench.put((UNIT_DONE, collected.id, b""))
    for _ in range(2):
        records = await bench.start()
        assert still_there(records) == {b""}
        stored = [facts[0] for kind, *facts in records if kind == JOB_ADDED and facts[0].id == job.id][-1]
        assert (stored.state, stored.body, stored.holders) == (ACKED, b"", holders)
        await bench.rewrite(done_job)
