"""What every store promises, whichever it is: each is made by its plugin, as the daemon makes it."""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import attrs
import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from zope.interface.verify import verifyObject

from disqued.core.model.gates import throttle_name
from disqued.core.model.groups import new_job, read_scope
from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    FLAG_QUEUED_BEFORE,
    KIND_LOG,
    KIND_WORK,
    QUEUED,
    RETRY_NEVER_MS,
    STAMP_MAX,
    Job,
    JobOptions,
)
from disqued.core.model.outbox import (
    FLUSHED,
    GONE_DELETED,
    GROUP,
    JOB_ADDED,
    JOB_GONE,
    POLICY,
    QUEUE_PAUSED,
    UNIT_DONE,
    UNIT_LEASED,
    WATERMARK,
    Record,
    is_over,
)
from disqued.core.model.policies import (
    BACKOFF_FIELD,
    FAIR_FIELD,
    GROUP_THROTTLE_FIELD,
    MAXLEN_FIELD,
    PAUSE_FIELD,
    SCHEDULE_FIELD,
    SCHEDULE_FIRED_FIELD,
    SCHEDULE_PAUSE_FIELD,
    SCHEDULE_REFUSED_FIELD,
    THROTTLE_FIELD,
    TTL_FIELD,
    PauseSetting,
    Register,
)
from disqued.core.model.queues import PAUSE_IN
from disqued.persistence.interface import IStore, IStoreFactory, StoreError
from disqued.persistence.plugins import find_store
from disqued.testing.clock import Clock
from tests.databases import units
from tests.schedule_values import LAST, NIGHTLY, REFUSED

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


def job_id(number: int) -> bytes:
    return b"DI%044dSQ" % number


def make_job(
    number: int, *, state: int = QUEUED, retry_ms: int = 60_000, alias: bytes = b"", kind: int = KIND_WORK
) -> Job:
    options = JobOptions(ttl_ms=600_000, retry_ms=retry_ms, delay_ms=0, replicate=1, kind=kind)
    options.stamp(1_000)
    ctime = 1_700_000_000_000_000_000 + number
    job = new_job(job_id(number), b"queue", b"body %d" % number, ctime, options, alias=alias)
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
        await self.rewrite_all((JOB_ADDED, job) for job in jobs)

    async def rewrite_all(self, records: Iterable[Record]) -> None:
        """Leave these records as the last word."""
        await done(self.running.rewrite(records))

    async def compact(self, records: Iterable[Record]) -> None:
        """Make what is stored smaller, while the node knows these records."""
        self.running.compact(iter(records))
        while self.running.status()["aof_rewrite_in_progress"]:
            await deferLater(reactor, 0.01)
        assert self.running.status()["aof_last_bgrewrite_status"] == "ok"

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


def watermarks(records: list[Record]) -> list[int]:
    """The last watermark of these records; none where there is none."""
    return [record[1] for record in records if record[0] == WATERMARK][-1:]


@async_test
async def test_the_last_watermark_is_kept(bench: Bench) -> None:
    assert watermarks(await bench.start()) == []
    if not bench.running.records:
        return
    await bench.put((WATERMARK, 1), (JOB_ADDED, make_job(1)))
    assert watermarks(await bench.start()) == [1]
    await bench.put((WATERMARK, 1_700_000_000_500), (WATERMARK, 1_700_000_000_600))
    # It may go back: the last word counts.
    await bench.put((WATERMARK, 1_700_000_000_400))
    await bench.put((FLUSHED,))
    assert watermarks(await bench.start()) == [1_700_000_000_400]
    await bench.rewrite_all([(WATERMARK, 1_700_000_000_700), (JOB_ADDED, make_job(2))])
    assert watermarks(await bench.start()) == [1_700_000_000_700]
    await bench.stop()
    bench.store = bench.make()
    bench.running.open()
    await done(bench.running.renew())
    await bench.put((JOB_ADDED, make_job(3)))
    assert watermarks(await bench.start()) == []


@async_test
async def test_what_is_made_smaller_keeps_its_watermark(bench: Bench) -> None:
    await bench.start()
    if not bench.running.records:
        return
    await bench.put((WATERMARK, 1_700_000_000_500), (JOB_ADDED, make_job(1)))
    with contextlib.suppress(StoreError):  # a Redis server compacts its files itself
        await bench.compact([(WATERMARK, 1_700_000_000_500), (JOB_ADDED, make_job(1))])
    assert watermarks(await bench.start()) == [1_700_000_000_500]


@async_test
async def test_what_was_committed_can_be_made_safe_whatever_the_policy(bench: Bench) -> None:
    for policy in ("always", "everysec", "no"):
        bench.settings.appendfsync = policy
        await bench.start()
        for number in range(3):
            await bench.put((JOB_ADDED, make_job(number)))
            await done(bench.running.secure())
        await done(bench.running.secure())


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
    assert status["aof_state"] == ("on" if bench.running.records else "off")
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


def policy(counter: int, bits: int, queue: bytes = b"queue \xff") -> Record:
    """What the cluster says of a queue."""
    value = PauseSetting(bits, "Störung".encode() if bits else b"", b"ops")
    return (POLICY, queue, PAUSE_FIELD, Register(counter, b"a" * 40, 1_700_000_000_007, value))


@async_test
async def test_the_last_word_of_each_policy_is_kept_also_over_a_flush(bench: Bench) -> None:
    await bench.start()
    await bench.put(policy(1, 3), policy(1, 2, b"other"), (QUEUE_PAUSED, b"other", PAUSE_IN))
    await bench.put(policy(2, 1), (FLUSHED,))
    wanted = bench.running.records
    for _ in range(2):
        records = {record[1]: record for record in await bench.start() if record[0] == POLICY}
        assert records == ({b"queue \xff": policy(2, 1), b"other": policy(1, 2, b"other")} if wanted else {})


@async_test
async def test_the_fields_of_a_policy_are_kept_each_for_itself(bench: Bench) -> None:
    ttl: Record = (POLICY, b"queue \xff", TTL_FIELD, Register(1, b"b" * 40, 1_700_000_000_007, (60_500,)))
    maxlen: Record = (POLICY, b"queue \xff", MAXLEN_FIELD, Register(2, b"b" * 40, 1_700_000_000_007, (2**63 - 1,)))
    unset: Record = (POLICY, b"queue \xff", TTL_FIELD, Register(2, b"a" * 40, 1_700_000_000_008, ()))
    backoff: Record = (POLICY, b"queue \xff", BACKOFF_FIELD, Register(1, b"b" * 40, 1_700_000_000_007, (250, 60_000)))
    await bench.start()
    await bench.put(policy(1, 3), ttl, maxlen, backoff)
    await bench.put(unset)
    wanted = bench.running.records
    for _ in range(2):
        records = {record[2]: record for record in await bench.start() if record[0] == POLICY}
        assert records == (
            {0: policy(1, 3), TTL_FIELD: unset, MAXLEN_FIELD: maxlen, BACKOFF_FIELD: backoff} if wanted else {}
        )


@async_test
async def test_a_schedule_comes_back_as_it_was_with_its_last_instant_also_over_a_flush(bench: Bench) -> None:
    at = 1_700_000_000_007
    nightly: Record = (POLICY, b"nightly \xff", SCHEDULE_FIELD, Register(3, b"b" * 40, at, NIGHTLY))
    paused: Record = (POLICY, b"nightly \xff", SCHEDULE_PAUSE_FIELD, Register(1, b"b" * 40, at, (1,)))
    fired: Record = (POLICY, b"nightly \xff", SCHEDULE_FIRED_FIELD, Register(at, b"a" * 40, at, LAST))
    refused: Record = (POLICY, b"nightly \xff", SCHEDULE_REFUSED_FIELD, Register(at, b"a" * 40, at, REFUSED))
    gone: Record = (POLICY, b"gone", SCHEDULE_FIELD, Register(2, b"a" * 40, at, ()))
    await bench.start()
    wanted = bench.running.records
    await bench.put(nightly, (POLICY, b"gone", SCHEDULE_FIELD, Register(1, b"a" * 40, at, NIGHTLY)))
    await bench.put(paused, fired, refused, gone, (FLUSHED,))
    for _ in range(2):
        found = {record[1:3]: record for record in await bench.start() if record[0] == POLICY}
        assert found == ({record[1:3]: record for record in (nightly, paused, fired, refused, gone)} if wanted else {})


@async_test
async def test_throttles_come_back_as_they_were_and_not_when_they_are_over(bench: Bench) -> None:
    at = 1_700_000_000_007
    name = throttle_name(b"queue \xff", b"acme \xff")
    fair: Record = (POLICY, b"queue \xff", FAIR_FIELD, Register(1, b"b" * 40, at, (1,)))
    whole: Record = (POLICY, b"queue \xff", THROTTLE_FIELD, Register(at + 30_000, b"b" * 40, at, (30_000,)))
    group: Record = (POLICY, name, GROUP_THROTTLE_FIELD, Register(at + 60_000, b"a" * 40, at, (60_250,)))
    over: Record = (POLICY, b"queue \xff", THROTTLE_FIELD, Register(0, b"b" * 40, at, ()))
    await bench.start()
    wanted = bench.running.records
    await bench.put(fair, whole, group, (FLUSHED,))
    found = {record[1:3]: record for record in await bench.start() if record[0] == POLICY}
    assert found == ({record[1:3]: record for record in (fair, whole, group)} if wanted else {})
    await bench.put(over)
    last = {record[1:3]: record for record in await bench.start() if record[0] == POLICY}
    kept = {place for place, record in last.items() if record[3].counter}
    assert kept == ({fair[1:3], group[1:3]} if wanted else set())


@async_test
async def test_a_policy_that_is_forgotten_does_not_come_back(bench: Bench) -> None:
    await bench.start()
    await bench.put(policy(7, 0), policy(1, 2, b"other"))
    await bench.put(policy(0, 0))
    wanted = bench.running.records
    last = {record[1]: record[3].counter for record in await bench.start() if record[0] == POLICY}
    assert {queue for queue, counter in last.items() if counter} == ({b"other"} if wanted else set())
    if bench.factory.name == "aof":
        await bench.compact([policy(1, 2, b"other")])
    assert [record for record in await bench.start() if record[0] == POLICY] == (
        [policy(1, 2, b"other")] if wanted else []
    )


@async_test
async def test_policies_are_what_the_node_knows_when_everything_is_written_anew(bench: Bench) -> None:
    await bench.start()
    await bench.put(policy(1, 3), policy(1, 2, b"gone"))
    await bench.rewrite_all([policy(4, 1), (JOB_ADDED, make_job(1))])
    wanted = bench.running.records
    assert [record for record in await bench.start() if record[0] == POLICY] == ([policy(4, 1)] if wanted else [])
    await bench.put(policy(5, 2))
    assert [record for record in await bench.start() if record[0] == POLICY][-1:] == ([policy(5, 2)] if wanted else [])


@async_test
async def test_a_store_begins_anew_without_what_it_held(bench: Bench) -> None:
    await bench.start()
    await bench.put((JOB_ADDED, make_job(1)), (QUEUE_PAUSED, b"queue", PAUSE_IN), policy(1, 3))
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


# Aliases and kinds.

#: All that an alias may be made of: nothing in it may end it, or be taken for something else.
ALIASES = [b"eone", b"e\0", b"\xff\xfe", b"\0" * 5, "tôt".encode(), b"x'00'", b"e" + bytes(range(256)) * 255]


def named_jobs() -> list[Job]:
    """A job with each alias and two without, one of them of a log."""
    jobs = [make_job(number, alias=alias) for number, alias in enumerate(ALIASES)]
    return [*jobs, make_job(len(jobs), kind=KIND_LOG), make_job(len(jobs) + 1)]


def names(records: Iterable[Record]) -> dict[bytes, tuple[bytes, int]]:
    """Alias and kind of the jobs, by id."""
    return {record[1].id: (record[1].alias, record[1].kind) for record in records if record[0] == JOB_ADDED}


def names_of(jobs: list[Job]) -> dict[bytes, tuple[bytes, int]]:
    return {job.id: (getattr(job, "alias", b""), job.options.kind) for job in jobs}


@async_test
async def test_an_alias_of_any_bytes_and_a_kind_come_back(bench: Bench) -> None:
    jobs = named_jobs()
    await bench.start()
    await bench.put(*((JOB_ADDED, job) for job in jobs))
    for _ in range(2):
        assert names(await bench.start()) == (names_of(jobs) if bench.running.records else {})


@async_test
async def test_a_controlled_restart_keeps_aliases_and_kinds_in_their_order(bench: Bench) -> None:
    jobs = named_jobs()
    jobs.reverse()
    await bench.start()
    await bench.rewrite(*jobs)
    assert list(names(await bench.start(enqueue_once=True)).items()) == list(names_of(jobs).items())


@async_test
@pytest.mark.parametrize("bench", ["aof", "sqlite"], indirect=True)
async def test_a_compaction_keeps_aliases_and_kinds(bench: Bench) -> None:
    jobs = named_jobs()
    await bench.start()
    await bench.put(*((JOB_ADDED, job) for job in jobs))
    await bench.compact((JOB_ADDED, job) for job in jobs)
    assert names(await bench.start()) == names_of(jobs)


@async_test
async def test_what_is_over_is_told_of_a_job_with_an_alias_as_of_any_other(bench: Bench) -> None:
    jobs = named_jobs()
    await bench.start()
    await bench.put(*((JOB_ADDED, job) for job in jobs))
    await bench.put(*((UNIT_DONE, job.id, b"") for job in jobs[:-1]))
    assert still_there(await bench.start()) == ({jobs[-1].body} if bench.running.records else set())


# Who has what.


def lease(number: int, scope: bytes = b"", deliveries: int = 1, worker: bytes = b"") -> Record:
    return (UNIT_LEASED, job_id(number), scope, deliveries, worker)


def check_order(records: list[Record]) -> None:
    """Each word on a unit stands behind its job."""
    jobs = set()
    for record in records:
        if record[0] == JOB_ADDED:
            jobs.add(record[1].id)
        elif record[0] in (UNIT_LEASED, UNIT_DONE):
            assert record[1] in jobs


async def known(bench: Bench, **options: bool) -> dict[tuple[bytes, bytes], Record]:
    """The last word on each unit of the jobs that are there, after a start."""
    records = await bench.start(**options)
    check_order(records)
    there = still_there([record for record in records if record[0] != UNIT_DONE or not record[2]])
    assert {b"body %d" % int(name[2:46]) for name, _ in units(records)} <= there
    if bench.settings.appendfilename.with_name("disque.aof.manifest").exists():
        return units(records)
    words = [record for record in records if record[0] in (UNIT_LEASED, UNIT_DONE)]
    assert len(words) == len(units(records)), "a store that is no journal keeps the last word alone"
    return units(records)


WORKERS = [b"", b"anna", b"\xff\0'", b"w" * 300]
SCOPES = [b"", b"group", b"\0", b"group\xff"]


@async_test
async def test_who_has_a_unit_comes_back_as_it_was(bench: Bench) -> None:
    await bench.start()
    leases = [
        lease(number, scope, 2**32 - 1 - number, worker) for number, worker in enumerate(WORKERS) for scope in SCOPES
    ]
    await bench.put(*((JOB_ADDED, make_job(number)) for number in range(5)), *leases)
    when = bench.clock.wall()
    bench.clock.advance(7_000)
    wanted = {record[1:3]: (*record, when) for record in leases} if bench.running.records else {}
    for _ in range(2):
        assert await known(bench) == wanted


@async_test
async def test_of_two_leases_of_a_unit_the_later_counts(bench: Bench) -> None:
    await bench.start()
    await bench.put((JOB_ADDED, make_job(1)), lease(1, b"a", 1, b"anna"), lease(1, b"b", 1, b"bob"))
    await bench.put(lease(1, b"a", 2, b"cleo"), lease(1, b"a", 3, b"dora"))
    bench.clock.advance(50)
    await bench.put(lease(1, b"a", 4, b"eve"))
    now = bench.clock.wall()
    wanted = {
        (job_id(1), b"a"): (*lease(1, b"a", 4, b"eve"), now),
        (job_id(1), b"b"): (*lease(1, b"b", 1, b"bob"), now - 50),
    }
    assert await known(bench) == (wanted if bench.running.records else {})


@async_test
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_lease_ends_with_its_job_with_its_unit_and_with_all(bench: Bench, at_once: bool) -> None:
    await bench.start()
    records: list[Record] = [(JOB_ADDED, make_job(number)) for number in range(1, 6)]
    records += [lease(number, scope) for number in range(1, 6) for scope in (b"a", b"b")]
    records += [(UNIT_DONE, job_id(1), b""), (JOB_GONE, job_id(2), GONE_DELETED), (UNIT_DONE, job_id(3), b"a")]
    records += [(JOB_ADDED, make_job(4, state=ACKED))]
    for some in [records] if at_once else [[record] for record in records]:
        await bench.put(*some)
    loaded = await known(bench)
    # The end of a job that is kept for other nodes is told by the job itself.
    left = {unit: word[0] for unit, word in loaded.items() if unit[0] != job_id(4)}
    wanted = {(3, b"a"): UNIT_DONE, (3, b"b"): UNIT_LEASED, (5, b"a"): UNIT_LEASED, (5, b"b"): UNIT_LEASED}
    if not bench.running.records:
        wanted = {}
    assert left == {(job_id(number), scope): kind for (number, scope), kind in wanted.items()}
    await bench.put((FLUSHED,))
    assert await known(bench) == {}


@async_test
async def test_a_lease_stays_when_its_job_is_told_again(bench: Bench) -> None:
    await bench.start()
    job = make_job(1)
    await bench.put((JOB_ADDED, job), lease(1, b"", 3, b"anna"))
    job.nacks = 5
    await bench.put((JOB_ADDED, job))
    wanted = {(job_id(1), b"")} if bench.running.records else set()
    assert set(await known(bench)) == wanted


@async_test
async def test_a_rewrite_keeps_the_leases_that_it_is_given_and_no_others(bench: Bench) -> None:
    await bench.start()
    await bench.put((JOB_ADDED, make_job(1)), (JOB_ADDED, make_job(2)), lease(1, b"old"), lease(2, b"old"))
    done_in_group = (UNIT_DONE, job_id(2), b"done")
    await bench.rewrite_all(
        [(JOB_ADDED, make_job(1)), lease(1, b"new", 9, b"anna"), (JOB_ADDED, make_job(2)), done_in_group, lease(2)]
    )
    when = bench.clock.wall()
    wanted = {
        (job_id(1), b"new"): (*lease(1, b"new", 9, b"anna"), when),
        (job_id(2), b"done"): (*done_in_group, when),
        (job_id(2), b""): (*lease(2), when),
    }
    assert await known(bench, enqueue_once=True) == wanted


@async_test
@pytest.mark.parametrize("bench", ["aof", "sqlite"], indirect=True)
async def test_a_compaction_keeps_what_a_walk_yields(bench: Bench) -> None:
    await bench.start()
    records = [
        (JOB_ADDED, make_job(1)), lease(1, b"a", 2, b"anna"), (UNIT_DONE, job_id(1), b"b"), (JOB_ADDED, make_job(2)),
        lease(2),
    ]  # fmt: skip
    await bench.put(*records, (JOB_ADDED, make_job(3)), lease(3), (JOB_GONE, job_id(3), GONE_DELETED))
    await bench.compact(records)
    wanted = {(job_id(1), b"a"): UNIT_LEASED, (job_id(1), b"b"): UNIT_DONE, (job_id(2), b""): UNIT_LEASED}
    for _ in range(2):
        assert {unit: word[0] for unit, word in (await known(bench)).items()} == wanted


@async_test
async def test_what_a_group_has_done_of_a_job_comes_back_with_it(bench: Bench) -> None:
    await bench.start()
    await bench.put((JOB_ADDED, make_job(1, kind=KIND_LOG)), (UNIT_DONE, job_id(1), b"before"))
    await bench.put(lease(1, b"after"), (UNIT_DONE, job_id(1), b"after"), (UNIT_DONE, job_id(1), b"\xff\0"))
    when = bench.clock.wall()
    bench.clock.advance(1_000)
    wanted = {(job_id(1), scope): (UNIT_DONE, job_id(1), scope, when) for scope in (b"before", b"after", b"\xff\0")}
    for _ in range(2):
        assert await known(bench) == (wanted if bench.running.records else {})
    await bench.put((UNIT_DONE, job_id(1), b""))
    assert await known(bench) == {}


# Where groups begin.

NODE_A, NODE_B, NODE_C = b"00000000", b"89abcdef", b"ffffffff"
#: A stamp that no double holds, and one right behind it.
STAMP = 1_700_000_000_123_456_789


def group(queue: bytes, scope: bytes, **stamps: int) -> Record:
    """Where a group begins: a, b and c are nodes."""
    names = {"a": NODE_A, "b": NODE_B, "c": NODE_C}
    return (GROUP, queue, scope, tuple(sorted((names[node], stamp) for node, stamp in stamps.items())))


def beginnings(records: Iterable[Record]) -> dict[tuple[bytes, bytes | None], Record]:
    """Where the groups begin after these records, by queue and name; of no name, up to where a queue was flushed."""
    found: dict[tuple[bytes, bytes | None], Record] = {}
    for record in records:
        if record[0] == FLUSHED:
            found.clear()
        if record[0] != GROUP:
            continue
        name, epoch = read_scope(record[2]) or (None, 0)
        before = found.get((record[1], name))
        if is_over(record[2], record[3]):
            found.pop((record[1], name), None)
            continue
        known = -1 if before is None else (read_scope(before[2]) or (None, 0))[1]
        if epoch > known:
            found[record[1], name] = record
        elif before is not None and epoch == known:
            stamps = dict(before[3])
            stamps.update({node: stamp for node, stamp in record[3] if stamp > stamps.get(node, -1)})
            if stamps != dict(before[3]):
                found[record[1], name] = (*record[:3], tuple(sorted(stamps.items())), *record[4:])
    return found


async def begun(bench: Bench, **options: bool) -> dict[tuple[bytes, bytes | None], Record]:
    """Where the groups begin, after a start."""
    records = await bench.start(**options)
    if not bench.settings.appendfilename.with_name("disque.aof.manifest").exists():
        words = [record for record in records if record[0] == GROUP]
        assert len(words) == len(beginnings(records)), "a store that is no journal keeps the last word alone"
        # A node need not put an event into a log that was flushed.
        kinds = [record[0] for record in records if record[0] in (GROUP, JOB_ADDED)]
        assert kinds == sorted(kinds, reverse=True)
    return beginnings(records)


QUEUES = [b"mail", b"4:mail", b"", b"\xff\0'", b"mail:senders", b"q" * 300]
GROUP_NAMES = [b"", b"senders", b":", b"1:senders", b"\xff\xfe", b"\0", "größer".encode(), b"g" * 300]


@async_test
async def test_where_a_group_begins_comes_back_as_it_was_whatever_its_name_is_made_of(bench: Bench) -> None:
    await bench.start()
    told = [group(queue, b"7:" + name, a=STAMP, b=0, c=2**62) for queue in QUEUES for name in GROUP_NAMES]
    told += [group(queue, b"1:forgotten") for queue in QUEUES]
    told += [group(queue, b"", b=STAMP + 1) for queue in QUEUES]
    await bench.put(*told)
    when = bench.clock.wall()
    bench.clock.advance(7_000)
    wanted = {name: (*record, when) for name, record in beginnings(told).items()} if bench.running.records else {}
    assert len(wanted) in (0, len(told))
    for _ in range(2):
        assert await begun(bench) == wanted


@async_test
@pytest.mark.parametrize("at_once", [True, False])
async def test_the_later_epoch_counts_and_of_one_epoch_the_higher_stamps(bench: Bench, at_once: bool) -> None:
    await bench.start()
    told = [
        group(b"q", b"9:g", a=STAMP, b=STAMP), group(b"q", b"10:g", b=1), group(b"q", b"9:g", a=STAMP + 5),
        group(b"q", b"10:g", a=STAMP, b=2), group(b"q", b"10:g", a=STAMP + 1, c=255), group(b"q", b"10:g", c=256),
        group(b"q", b"10:g", a=STAMP, b=1, c=3), group(b"q", b"3:h", c=9), group(b"q", b"4:h"), group(b"q", b"3:h"),
        group(b"q", b"", a=5), group(b"q", b"", b=7), group(b"q", b"", a=6, b=6), group(b"other", b"10:g", a=1),
    ]  # fmt: skip
    for some in [told] if at_once else [[record] for record in told]:
        await bench.put(*some)
    when = bench.clock.wall()
    wanted = {
        (b"q", b"g"): group(b"q", b"10:g", a=STAMP + 1, b=2, c=256),
        (b"q", b"h"): group(b"q", b"4:h"),
        (b"q", None): group(b"q", b"", a=6, b=7),
        (b"other", b"g"): group(b"other", b"10:g", a=1),
    }
    if not bench.running.records:
        wanted = {}
    for _ in range(2):
        assert await begun(bench) == {name: (*record, when) for name, record in wanted.items()}


@async_test
async def test_a_beginning_is_of_the_time_at_which_it_was_news(bench: Bench) -> None:
    await bench.start()
    await bench.put(group(b"q", b"1:g", a=5), group(b"q", b"1:h", a=5))
    first = bench.clock.wall()
    bench.clock.advance(1_000)
    await bench.put(group(b"q", b"1:g", a=5), group(b"q", b"1:h", a=6))
    wanted = {(b"q", b"g"): first, (b"q", b"h"): first + 1_000} if bench.running.records else {}
    assert {name: record[4] for name, record in (await begun(bench)).items()} == wanted


@async_test
async def test_a_beginning_that_means_nothing_any_more_is_forgotten_and_it_alone(bench: Bench) -> None:
    await bench.start()
    told = [group(queue, scope, a=5) for queue in (b"q", b"other") for scope in (b"", b"3:", b"3:g")]
    await bench.put(*told)
    await bench.put(group(b"q", b"0:g"), group(b"other", b""), group(b"other", b"0:nobody"), group(b"third", b""))
    wanted = {(b"q", None), (b"q", b""), (b"other", b""), (b"other", b"g")} if bench.running.records else set()
    assert set(await begun(bench)) == wanted
    # What comes again begins in an epoch that was there before.
    await bench.put(group(b"q", b"1:g", b=8))
    when = bench.clock.wall()
    again = (*group(b"q", b"1:g", b=8), when) if bench.running.records else None
    for _ in range(2):
        assert (await begun(bench)).get((b"q", b"g")) == again


@async_test
async def test_a_flush_of_everything_ends_what_was_said_of_groups(bench: Bench) -> None:
    await bench.start()
    await bench.put(group(b"q", b"2:g", a=5), group(b"q", b"", a=4))
    await bench.put(group(b"q", b"3:h", a=5), (FLUSHED,), group(b"q", b"1:g", a=1))
    wanted = {(b"q", b"g"): b"1:g"} if bench.running.records else {}
    assert {name: record[2] for name, record in (await begun(bench)).items()} == wanted


@async_test
async def test_a_controlled_restart_keeps_where_groups_begin_and_since_when(bench: Bench) -> None:
    await bench.start()
    await bench.put(group(b"q", b"9:over", a=5), group(b"q", b"5:again", a=5), group(b"q", b"2:g", a=STAMP, b=3))
    since = bench.clock.wall() - 5_000
    told = [
        (*group(b"q", b"", b=STAMP), since),
        (*group(b"q", b"2:g", a=STAMP, b=3), since),
        (*group(b"q", b"1:again", c=1), since),
        (*group(b"\xff", b"1:\xfe"), since),
    ]
    await bench.rewrite_all([*told, (JOB_ADDED, make_job(1, kind=KIND_LOG))])
    assert await begun(bench, enqueue_once=True) == beginnings(told)


@async_test
@pytest.mark.parametrize("bench", ["aof", "sqlite"], indirect=True)
async def test_a_compaction_keeps_where_groups_begin(bench: Bench) -> None:
    await bench.start()
    records = [group(b"q", b"", a=STAMP), group(b"q", b"2:g", b=STAMP), (JOB_ADDED, make_job(1, kind=KIND_LOG))]
    await bench.put(*records)
    bench.clock.advance(400 * 86_400_000)
    await bench.compact([(*record, bench.clock.wall()) if record[0] == GROUP else record for record in records])
    for _ in range(2):
        assert {name: record[3] for name, record in (await begun(bench)).items()} == {
            (b"q", None): ((NODE_A, STAMP),), (b"q", b"g"): ((NODE_B, STAMP),),
        }  # fmt: skip


@async_test
async def test_a_store_that_begins_anew_knows_nothing_of_groups(bench: Bench) -> None:
    await bench.start()
    await bench.put(group(b"q", b"2:g", a=5), group(b"q", b"", a=4))
    await bench.stop()
    bench.store = bench.make()
    bench.store.open()
    await done(bench.store.renew())
    assert await begun(bench) == {}


# Numbers that no node writes: a file with checksums that are right may have come from anybody.


@async_test
@pytest.mark.parametrize("field", ["ctime", "order_key"])
async def test_a_job_of_a_time_that_no_clock_shows_stops_the_start(bench: Bench, field: str) -> None:
    await bench.start()
    allowed, wrong = make_job(1), make_job(2)
    for job, stamp in ((allowed, STAMP_MAX), (wrong, STAMP_MAX + 1)):
        setattr(job, field, stamp)
    await bench.put((JOB_ADDED, allowed))
    assert [getattr(record[1], field) for record in await bench.start()] == [STAMP_MAX] * bench.running.records
    await bench.put((JOB_ADDED, wrong))
    if bench.running.records:
        with pytest.raises(StoreError, match=f"a job of time .*{STAMP_MAX + 1}.*; allowed is up to {STAMP_MAX}"):
            await bench.start()


@async_test
@pytest.mark.parametrize("span", ["ttl_ms", "retry_ms", "delay_ms"])
async def test_a_job_that_wants_more_time_than_any_client_can_ask_for_stops_the_start(bench: Bench, span: str) -> None:
    await bench.start()
    job = make_job(1)
    setattr(job.options, span, RETRY_NEVER_MS + 1)
    await bench.put((JOB_ADDED, job))
    if bench.running.records:
        with pytest.raises(StoreError, match=f"a span of {RETRY_NEVER_MS + 1} ms; allowed is up to {RETRY_NEVER_MS}"):
            await bench.start()


@async_test
async def test_a_group_that_begins_behind_a_time_that_no_clock_shows_stops_the_start(bench: Bench) -> None:
    await bench.start()
    await bench.put(group(b"q", b"1:g", a=STAMP_MAX))
    await bench.start()
    await bench.put(group(b"q", b"1:g", a=STAMP_MAX + 1))
    if bench.running.records:
        with pytest.raises(StoreError, match=f"stamp {STAMP_MAX + 1} of b'00000000'"):
            await bench.start()


# Files that are not there any more.


def files_of(bench: Bench) -> list[Path]:
    """The files that a store writes to, or that keep others away."""
    return sorted(path for path in bench.settings.appendfilename.parent.iterdir() if not path.name.endswith("-synced"))


async def with_files(bench: Bench) -> list[Path]:
    """Start, write and make sure of it; the files that there are then, none of a store that has no files."""
    await bench.start()
    if bench.factory.name not in ("aof", "sqlite"):
        return []
    await bench.put(*((JOB_ADDED, make_job(number)) for number in range(20)))
    if bench.factory.name == "aof":
        # A base, and an increment behind it.
        await bench.compact((JOB_ADDED, make_job(number)) for number in range(20))
    bench.running.look()
    return files_of(bench)


def unlink(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def is_harmed(path: Path, harm: Callable[[Path], None]) -> bool:
    """What is not read again is not missed: a lock has no content, an index of a log is made anew."""
    return harm is not cut_off or not (path.name.endswith((".lock", "-shm", ".manifest")) or not path.stat().st_size)


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
@pytest.mark.parametrize("harm", [unlink, replace, cut_off])
@async_test
async def test_a_file_that_is_harmed_while_it_is_in_use_is_noticed_and_all_is_written_anew(
    bench: Bench, harm: Callable[[Path], None], policy: str
) -> None:
    bench.settings.appendfsync = policy
    for number in range(len(await with_files(bench))):
        await bench.stop()
        for each in files_of(bench):
            each.unlink()
        path = (await with_files(bench))[number]
        if not is_harmed(path, harm):
            continue
        harm(path)
        if policy == "always" and path.suffix in (".incr", ".sqlite", ".sqlite-wal"):
            # Not a single commit is acknowledged after it.
            with pytest.raises(StoreError, match="while it was in use"):
                await bench.put((JOB_ADDED, make_job(30)))
        with pytest.raises(StoreError, match=re.escape(str(path)) + ".* while it was in use"):
            bench.running.look()
        with pytest.raises(StoreError, match="while it was in use"):
            await bench.put((JOB_ADDED, make_job(31)))
        assert bench.running.status()["aof_last_write_status"] == "err"
        if bench.factory.name == "sqlite" and path.suffix == ".sqlite" and path.exists():
            # It may be somebody else's.
            path.rename(path.with_name("moved away"))
        await bench.compact((JOB_ADDED, make_job(each)) for each in range(25))
        bench.running.look()
        await bench.put((JOB_ADDED, make_job(40)))
        expected = {b"body %d" % each for each in (*range(25), 40)}
        assert still_there(await bench.start()) == expected, path


@async_test
async def test_a_folder_that_is_removed_is_noticed(bench: Bench) -> None:
    bench.settings.appendfsync = "always"
    if not await with_files(bench):
        return
    folder = bench.settings.appendfilename.parent
    moved = folder.with_name(f"{folder.name} moved")
    folder.rename(moved)
    with pytest.raises(StoreError, match="taken away while it was in use"):
        await bench.put((JOB_ADDED, make_job(30)))
    with pytest.raises(StoreError, match="taken away while it was in use"):
        bench.running.look()
    # With a folder it is good again.
    folder.mkdir()
    await bench.compact((JOB_ADDED, make_job(each)) for each in range(25))
    await bench.put((JOB_ADDED, make_job(40)))
    assert len(still_there(await bench.start())) == 26


@async_test
async def test_files_that_may_not_be_written_any_more_lose_nothing(bench: Bench) -> None:
    bench.settings.appendfsync = "always"
    files = await with_files(bench)
    for path in files:
        path.chmod(0o400)
    await bench.put((JOB_ADDED, make_job(30)))
    if files:
        bench.running.look()
    for path in files:
        path.chmod(0o600)
    assert (b"body 30" in still_there(await bench.start())) is bool(bench.running.records)
