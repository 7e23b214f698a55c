"""Whose the data in the Redis server are, what they look like, and what happens when they are gone."""

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred
from twisted.logger import globalLogPublisher

from disqued.core.model.job import ACKED
from disqued.core.model.outbox import (
    FLUSHED,
    GONE_EVICTED,
    GONE_EXPIRED,
    GROUP,
    JOB_ADDED,
    JOB_GONE,
    QUEUE_PAUSED,
    UNIT_DONE,
    UNIT_LEASED,
    WATERMARK,
    Record,
)
from disqued.core.model.queues import PAUSE_IN
from disqued.persistence.interface import StoreError, StoreFailed, StoreLocked
from disqued.persistence.redis import sending
from disqued.persistence.redis import server as redis_server
from disqued.persistence.redis import store as redis_store
from disqued.persistence.redis.factory import RedisStoreFactory
from disqued.wire.jobdump import decode_record
from tests.contract.redis_runs import Run, added, make_job, read, until
from tests.redis_server import RedisServer

async_test = pytest_twisted.ensureDeferred
Runs = Callable[..., Run]


def ids(*numbers: int) -> set[bytes]:
    return {make_job(number).id for number in numbers}


def bodies(records: list[Record]) -> set[bytes]:
    return {record[1].body for record in records if record[0] == JOB_ADDED}


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What is logged meanwhile."""
    lines: list[str] = []

    def note(event: dict[str, Any]) -> None:
        if event.get("log_namespace", "").startswith("disqued"):
            lines.append(event["log_format"].format(**{key: event[key] for key in event if key != "log_format"}))

    globalLogPublisher.addObserver(note)
    yield lines
    globalLogPublisher.removeObserver(note)


# What an operator sees.


@async_test
async def test_the_streams_tell_what_is_over_with_its_queue_and_both_times(server: RedisServer, run: Runs) -> None:
    node = run(server)
    await node.start()
    await node.put(*((JOB_ADDED, make_job(number, queue=b"mail \xff")) for number in range(5)))
    node.clock.advance(250)
    await node.put((UNIT_DONE, make_job(1).id, b""), (JOB_GONE, make_job(2).id, GONE_EXPIRED))
    node.clock.advance(250)
    await node.put((UNIT_DONE, make_job(3).id, b"group"), (JOB_GONE, make_job(4).id, GONE_EVICTED), (FLUSHED,))
    first, second = b"%d" % (node.clock.wall() - 250), b"%d" % node.clock.wall()
    told = {b"queue": b"mail \xff"}
    stamps = {number: b"%d" % (1_700_000_000_000 + number) for number in range(5)}
    assert node.noted("done") == [
        {b"id": make_job(1).id, **told, b"added": stamps[1], b"time": first},
        {b"id": make_job(3).id, **told, b"added": stamps[3], b"time": second, b"scope": b"group"},
    ]
    assert node.noted("evictions") == [
        {b"id": make_job(2).id, **told, b"added": stamps[2], b"time": first, b"reason": b"expired"},
        {b"id": make_job(4).id, **told, b"added": stamps[4], b"time": second, b"reason": b"evicted"},
        {b"id": b"", b"queue": b"", b"added": b"", b"time": second, b"reason": b"flushed"},
    ]
    assert node.stored() == set()


@async_test
async def test_what_is_over_is_told_once(server: RedisServer, run: Runs) -> None:
    node = run(server)
    await node.start()
    # A job that is delivered at most once is done with its delivery, and again with its acknowledgement.
    await node.put(*added(1), (UNIT_DONE, make_job(1).id, b""))
    await node.put((UNIT_DONE, make_job(1).id, b""), (JOB_GONE, make_job(1).id, GONE_EVICTED))
    assert len(node.noted("done")) == 1
    assert node.noted("evictions") == []


@async_test
async def test_the_streams_keep_the_newest_entries(
    server: RedisServer, run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "HISTORY", 100)
    node = run(server)
    await node.start()
    await node.put(*added(*range(1_000)))
    await node.put(*((UNIT_DONE, make_job(number).id, b"") for number in range(1_000)))
    kept = node.noted("done")
    # A stream is cut where one of its blocks of 100 entries ends.
    assert 100 <= len(kept) <= 200
    assert kept[-1][b"id"] == make_job(999).id


@async_test
async def test_all_keys_lie_in_one_slot_of_a_cluster(server: RedisServer, run: Runs) -> None:
    node = run(server, redis_prefix="staging")
    await node.start()
    await node.put(*added(1, 2), (QUEUE_PAUSED, b"q", PAUSE_IN), (UNIT_DONE, make_job(1).id, b""), lease(2), begun())
    await node.store.rewrite(iter([*added(3), lease(3)]))
    names = server.call("KEYS", "*")
    assert {name.partition(b":")[0] for name in names} == {b"{staging}"}


@async_test
async def test_a_pause_that_ends_is_forgotten_and_a_flush_ends_all(server: RedisServer, run: Runs) -> None:
    node = run(server)
    await node.start()
    await node.put((QUEUE_PAUSED, b"a", PAUSE_IN), (QUEUE_PAUSED, b"b", PAUSE_IN), (QUEUE_PAUSED, b"a", 0))
    assert server.call("HKEYS", node.key("pauses")) == [b"b"]
    await node.put((FLUSHED,))
    assert server.call("EXISTS", node.key("pauses")) == 0


def lease(number: int, scope: bytes = b"", worker: bytes = b"worker") -> Record:
    return (UNIT_LEASED, make_job(number).id, scope, 1, worker)


def begun(scope: bytes = b"1:group", stamp: int = 5, queue: bytes = b"mail") -> Record:
    return (GROUP, queue, scope, ((b"0123abcd", stamp),))


@async_test
async def test_where_groups_begin_stands_under_queue_and_name_until_it_means_nothing(
    server: RedisServer, run: Runs
) -> None:
    node = run(server)
    await node.start()
    await node.put(begun(), begun(b"2:group", 7), begun(b"", 9), begun(b"1:\xff"))
    stood = server.call("HGETALL", node.key("groups"))
    assert set(stood) == {b"4:mail:group", b"4:mail", b"4:mail:\xff"}
    assert decode_record(stood[b"4:mail:group"]) == (*begun(b"2:group", 7), node.clock.wall())
    assert server.call("HGET", node.key("meta"), "groups") == b"3"
    await node.put((GROUP, b"mail", b"0:group", ()), (GROUP, b"mail", b"", ()))
    assert server.call("HKEYS", node.key("groups")) == [b"4:mail:\xff"]
    await node.put((FLUSHED,))
    assert server.call("EXISTS", node.key("groups")) == 0
    assert server.call("HGET", node.key("meta"), "groups") == b"0"


@async_test
async def test_many_groups_are_read_page_by_page(
    server: RedisServer, run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disqued.persistence.redis.reading.PAGE", 7)
    before = run(server)
    await before.start()
    told = [begun(b"1:%d" % number, 2**62 + number) for number in range(700)]
    await before.put(*told)
    await before.close()
    records = await run(server).start()
    assert len(records) == len(told)
    assert {record[:4] for record in records} == set(told)


@async_test
async def test_a_job_with_an_alias_is_stored_as_it_travels_and_its_end_is_told(server: RedisServer, run: Runs) -> None:
    node = run(server)
    await node.start()
    job = make_job(7, queue=b"mail \xff", alias=b"e\0\xff")
    await node.put((JOB_ADDED, job))
    _, stored = decode_record(server.call("HGET", node.key("jobs"), job.id))
    assert (stored.alias, stored.queue, stored.body) == (b"e\0\xff", b"mail \xff", b"body 7")
    await node.put((UNIT_DONE, job.id, b""))
    [entry] = node.noted("done")
    assert (entry[b"queue"], entry[b"added"]) == (b"mail \xff", b"1700000000007")


@async_test
async def test_what_is_known_of_units_goes_with_their_job(server: RedisServer, run: Runs) -> None:
    node = run(server)
    await node.start()
    await node.put(*added(1, 2, 3), *(lease(number, scope) for number in range(1, 5) for scope in (b"", b"group")))
    # Of a job that is not there nothing is known.
    assert set(server.call("HKEYS", node.key("units"))) == ids(1, 2, 3)
    await node.put((UNIT_DONE, make_job(1).id, b""), (JOB_GONE, make_job(2).id, GONE_EXPIRED))
    assert set(server.call("HKEYS", node.key("units"))) == ids(3)
    # A job that is done and kept for other nodes, one after the other and in a snapshot.
    done = make_job(3)
    done.state = ACKED
    await node.put((JOB_ADDED, done))
    assert server.call("EXISTS", node.key("units")) == 0
    await node.put(*added(3), lease(3))
    await node.store.rewrite(iter([(JOB_ADDED, done)]))
    assert server.call("EXISTS", node.key("units")) == 0
    await node.put(*added(3), lease(3))
    await node.put((FLUSHED,), *added(3))
    assert server.call("EXISTS", node.key("units")) == 0
    assert server.call("HGET", node.key("meta"), "units") == b"0"


@async_test
async def test_many_units_of_many_jobs_are_read_page_by_page(
    server: RedisServer, run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disqued.persistence.redis.reading.PAGE", 7)
    before = run(server)
    await before.start()
    leases = [lease(number, b"group %d" % group) for number in range(700) for group in range(3)]
    await before.put(*added(*range(700)), *leases)
    await before.close()
    records = await run(server).start()
    assert {record[1:5] for record in records if record[0] == UNIT_LEASED} == {record[1:] for record in leases}


@async_test
async def test_an_operator_is_told_of_a_server_that_evicts(server: RedisServer, run: Runs, said: list[str]) -> None:
    server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        await run(server).start()
    finally:
        server.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert any("maxmemory-policy is allkeys-lru" in line for line in said)


# What is in the way.


@async_test
@pytest.mark.parametrize(
    ("part", "command"),
    [("jobs", ("SET", "x")), ("done", ("SET", "x")), ("meta", ("LPUSH", "x")), ("owner", ("HSET", "x", "y"))],
)
async def test_a_key_of_something_else_stops_the_start(
    server: RedisServer, run: Runs, part: str, command: tuple[str, ...]
) -> None:
    node = run(server)
    server.call(command[0], node.key(part), *command[1:])
    before = server.call("DUMP", node.key(part))
    with pytest.raises(StoreError, match=rf"the key \{{disqued\}}:{part} is a \w+ and has to be a \w+"):
        await node.start()
    assert server.call("KEYS", "*") == [node.key(part).encode()]
    assert server.call("DUMP", node.key(part)) == before


@async_test
async def test_a_key_that_something_else_puts_in_the_place_of_ours_is_named(server: RedisServer, run: Runs) -> None:
    node = run(server)
    await node.start()
    await node.put(*added(1))
    server.call("SET", node.key("jobs"), "mine")
    with pytest.raises(StoreFailed, match=r"the key \{disqued\}:jobs is a string and has to be a hash"):
        await node.put(*added(2))
    assert server.call("GET", node.key("jobs")) == b"mine"
    server.call("DEL", node.key("jobs"))
    await node.commit_until_good(lambda: iter(added(1)))
    assert node.stored() == ids(1, 2)


@async_test
async def test_jobs_without_the_key_that_describes_them_stop_the_start(server: RedisServer, run: Runs) -> None:
    node = run(server)
    server.call("HSET", node.key("jobs"), "x", "y")
    with pytest.raises(StoreError, match=r"the key \{disqued\}:jobs is there and \{disqued\}:meta is not"):
        await node.start()
    assert server.call("HGETALL", node.key("jobs")) == {b"x": b"y"}


@async_test
async def test_a_newer_format_is_refused(server: RedisServer, run: Runs) -> None:
    node = run(server)
    server.call("HSET", node.key("meta"), "format", 6)
    with pytest.raises(StoreError, match="the keys have format 6, this version knows those up to 5"):
        await node.start()
    with pytest.raises(StoreError, match="the keys have format 6, this version knows those up to 5"):
        await read(RedisStoreFactory().peek(node.settings))


@async_test
async def test_jobs_that_somebody_removed_stop_the_start_until_that_is_accepted(server: RedisServer, run: Runs) -> None:
    before = run(server)
    await before.start()
    await before.put(*added(1, 2, 3))
    await before.close()
    server.call("HDEL", before.key("jobs"), make_job(1).id)
    with pytest.raises(StoreError, match=r"there are 2 jobs where 3 were written.* HSET \{disqued\}:meta jobs 2"):
        await run(server).start()
    server.call("HSET", before.key("meta"), "jobs", 2)
    assert bodies(await run(server).start()) == {b"body 2", b"body 3"}


@async_test
async def test_units_that_somebody_removed_stop_the_start_until_that_is_accepted(
    server: RedisServer, run: Runs
) -> None:
    before = run(server)
    await before.start()
    await before.put(*added(1, 2), lease(1), lease(2))
    await before.close()
    server.call("HDEL", before.key("units"), make_job(1).id)
    with pytest.raises(StoreError, match=r"there are 1 units where 2 were written.* HSET \{disqued\}:meta units 1"):
        await run(server).start()
    server.call("HSET", before.key("meta"), "units", 1)
    assert [record[1] for record in await run(server).start() if record[0] == UNIT_LEASED] == [make_job(2).id]


@async_test
async def test_groups_that_somebody_removed_stop_the_start_until_that_is_accepted(
    server: RedisServer, run: Runs
) -> None:
    before = run(server)
    await before.start()
    await before.put(begun(), begun(b""))
    await before.close()
    server.call("HDEL", before.key("groups"), "4:mail")
    with pytest.raises(StoreError, match=r"there are 1 groups where 2 were written.* HSET \{disqued\}:meta groups 1"):
        await run(server).start()
    server.call("HSET", before.key("meta"), "groups", 1)
    assert [record[:4] for record in await run(server).start()] == [begun()]


@async_test
@pytest.mark.parametrize("version", [1, 2, 3, 4])
async def test_data_of_an_older_format_are_taken_over(server: RedisServer, run: Runs, version: int) -> None:
    before = run(server)
    await before.start()
    await before.put(*added(1, 2))
    await before.close()
    server.call("HSET", before.key("meta"), "format", version)
    server.call("HDEL", before.key("meta"), "groups", *(["units"] if version == 1 else []))
    assert bodies(await read(before.factory.peek(before.settings))) == {b"body 1", b"body 2"}
    after = run(server)
    assert bodies(await after.start()) == {b"body 1", b"body 2"}
    assert server.call("HMGET", before.key("meta"), "format", "units", "groups") == [b"5", b"0", b"0"]
    await after.put(lease(1), begun())
    await after.close()
    records = await run(server).start()
    assert [record[1] for record in records if record[0] == UNIT_LEASED] == [make_job(1).id]
    assert [record[:4] for record in records if record[0] == GROUP] == [begun()]


@async_test
async def test_a_beginning_that_is_no_record_stops_the_start(server: RedisServer, run: Runs) -> None:
    before = run(server)
    await before.start()
    await before.put(begun())
    await before.close()
    server.call("HSET", before.key("groups"), "4:mail:group", "nonsense")
    with pytest.raises(StoreError, match=r"\{disqued\}:groups holds what is no record"):
        await run(server).start()


@async_test
@pytest.mark.parametrize("nonsense", [b"n", b"nonsense", b"\0" * 6, b"\xff" * 6 + b"x"])
async def test_a_word_on_a_unit_that_is_none_stops_the_start(server: RedisServer, run: Runs, nonsense: bytes) -> None:
    before = run(server)
    await before.start()
    await before.put(*added(1), lease(1))
    await before.close()
    server.call("HSET", before.key("units"), make_job(1).id, nonsense)
    with pytest.raises(StoreError, match=r"\{disqued\}:units holds what is no record"):
        await run(server).start()


@async_test
async def test_a_record_that_is_none_stops_the_start(server: RedisServer, run: Runs) -> None:
    before = run(server)
    await before.start()
    await before.put(*added(1))
    await before.close()
    server.call("HSET", before.key("jobs"), make_job(1).id, "nonsense")
    with pytest.raises(StoreError, match=r"\{disqued\}:jobs holds what is no record: format 110"):
        await run(server).start()


def test_a_url_that_is_none_is_refused(server: RedisServer, run: Runs) -> None:
    with pytest.raises(StoreError, match="redis-url: the URL has to begin with redis://"):
        run(server, redis_url="http://127.0.0.1")


def test_without_txredisapi_the_way_to_get_it_is_told(
    server: RedisServer, run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = run(server)
    for module in [name for name in sys.modules if name.startswith("disqued.persistence.redis.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "txredisapi", None)
    said = r'`persistence redis` needs txredisapi: pip install "disqued\[redis\]"'
    with pytest.raises(StoreError, match=said):
        run(server)
    with pytest.raises(StoreError, match=said):
        RedisStoreFactory().peek(node.settings)


# Two nodes.


@async_test
async def test_a_second_node_is_refused_and_told_who_is_there(
    server: RedisServer, run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_server, "BEAT_S", 0.1)
    first = run(server)
    await first.start()
    with pytest.raises(
        StoreLocked,
        match=r"belong to .* pid \d+ run [0-9a-f]{16}, which has just renewed its lease for [56]\.\d s; give each node",
    ):
        await run(server).start()
    await first.put(*added(1))
    other = run(server, redis_prefix="another")
    assert await other.start() == []


@async_test
async def test_a_node_that_writes_all_the_time_is_seen_to_live(server: RedisServer, run: Runs) -> None:
    first = run(server)
    await first.start()
    second = Deferred.fromCoroutine(run(server).start())
    number = 0
    while not second.called:
        number += 1
        await first.put(*added(number))
    with pytest.raises(StoreLocked, match="which has just renewed its lease"):
        await second


@async_test
async def test_a_lease_without_an_end_is_told(server: RedisServer, run: Runs) -> None:
    node = run(server)
    server.call("SET", node.key("owner"), "somebody")
    with pytest.raises(
        StoreLocked, match=r"belong to somebody, for ever; remove the key \{disqued\}:owner to end that"
    ):
        await node.start()


@async_test
async def test_who_comes_after_a_run_that_was_killed_waits_for_its_lease(
    server: RedisServer, run: Runs, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_server, "LEASE_MS", 700)
    killed = run(server)
    await killed.start()
    await killed.put(*added(1))
    await killed.crash()
    assert server.call("EXISTS", killed.key("owner")) == 1
    assert bodies(await run(server).start()) == {b"body 1"}
    assert any(re.search(r"holds the lease, for another 0\.\d s unless it renews it", line) for line in said)


@async_test
async def test_a_run_that_lost_its_lease_to_another_writes_no_more(
    server: RedisServer, run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A run that hung: it does not renew its lease, and does not know that it has lost it.
    monkeypatch.setattr(redis_server, "BEAT_S", 3_600)
    hung = run(server)
    await hung.start()
    await hung.put(*added(1))
    server.call("DEL", hung.key("owner"))
    second = run(server)
    assert bodies(await second.start()) == {b"body 1"}
    await second.put(*added(2))
    with pytest.raises(StoreFailed, match=r"its keys were taken by .* this node writes there no more") as caught:
        await hung.put(*added(3))
    assert caught.value.final
    with pytest.raises(StoreFailed, match="its keys were taken by"):
        await hung.commit()
    assert not hung.store.wants_compaction
    with pytest.raises(StoreError):
        hung.store.compact(iter(()))
    with pytest.raises(StoreFailed, match="its keys were taken by"):
        await hung.store.rewrite(iter(added(4)))
    await second.put(*added(5))
    assert second.stored() == ids(1, 2, 5)


@async_test
async def test_a_run_finds_out_while_it_is_idle_that_another_took_its_place(
    server: RedisServer, run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_server, "BEAT_S", 0.05)
    first = run(server)
    await first.start()
    server.call("DEL", first.key("owner"))
    server.call("HSET", first.key("meta"), "writer", "somebody else", "epoch", 99)
    await until(lambda: not is_good(first), "the loss is noticed")
    with pytest.raises(StoreFailed, match="its keys were taken by somebody else"):
        await first.commit()


def is_good(node: Run) -> bool:
    """True while a commit of nothing succeeds."""
    try:
        node.store.commit()
    except StoreFailed:
        return False
    return True


@async_test
async def test_a_lease_that_ended_while_nobody_else_came_is_taken_again(server: RedisServer, run: Runs) -> None:
    node = run(server)
    await node.start()
    server.call("DEL", node.key("owner"))
    await node.put(*added(1))
    assert server.call("EXISTS", node.key("owner")) == 1


# Data that are lost.


def lose_everything(server: RedisServer, node: Run) -> None:
    server.call("FLUSHALL")


def lose_by_restart(server: RedisServer, node: Run) -> None:
    server.restart()


def lose_the_jobs(server: RedisServer, node: Run) -> None:
    server.call("DEL", node.key("jobs"))


def lose_the_description(server: RedisServer, node: Run) -> None:
    server.call("DEL", node.key("meta"))


@async_test
@pytest.mark.parametrize("policy", ["always", "everysec"])
@pytest.mark.parametrize("lose", [lose_everything, lose_by_restart, lose_the_jobs, lose_the_description])
async def test_lost_data_are_never_passed_over_and_are_written_anew(
    own_server: RedisServer, run: Runs, policy: str, lose: Callable[[RedisServer, Run], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(redis_server, "BEAT_S", 0.1)
    monkeypatch.setattr(redis_store, "RECORDS_PER_SLICE", 3)
    own_server.start()
    node = run(own_server, appendfsync=policy)
    await node.start()
    await node.put(*added(*range(10)))
    await node.drained()
    lose(own_server, node)
    node.store.append([*added(20), (UNIT_DONE, make_job(0).id, b""), begun(b"1:group", 6), begun(b"1:early", 6)])
    await until(lambda: node.store.wants_compaction, "the loss is noticed")
    with pytest.raises(StoreFailed, match="it has lost its data") as caught:
        await node.commit()
    assert caught.value.final
    # What the node knows is newer than some of what waits, and is not lowered by that.
    walk = iter([begun(b"", 8), begun(b"1:group", 7), *added(*range(1, 10)), lease(8), lease(9), *added(20)])
    node.store.compact(walk)
    node.clock.advance(2_999)
    status = node.store.status()
    assert (status["aof_rewrite_in_progress"], status["aof_current_rewrite_time_sec"]) == (1, 2)
    assert status["aof_last_rewrite_time_sec"] == -1
    assert not node.store.wants_compaction
    with pytest.raises(StoreError, match="being written anew already"):
        node.store.compact(iter(()))
    node.store.append([*added(21), (JOB_GONE, make_job(9).id, GONE_EXPIRED)])
    with pytest.raises(StoreFailed):
        await node.commit()
    await node.commit_until_good()
    await node.drained()
    assert node.stored() == ids(*range(1, 9), 20, 21)
    status = node.store.status()
    assert status["aof_last_bgrewrite_status"] == "ok"
    assert (status["aof_last_rewrite_time_sec"], status["aof_current_rewrite_time_sec"]) == (2, -1)
    assert not own_server.call("KEYS", node.key("new:*"))
    await node.close()
    records = await run(own_server).start()
    assert bodies(records) == {b"body %d" % number for number in (*range(1, 9), 20, 21)}
    assert [record[1] for record in records if record[0] == UNIT_LEASED] == [make_job(8).id]
    groups = {record[:4] for record in records if record[0] == GROUP}
    assert groups == {begun(b"", 8), begun(b"1:group", 7), begun(b"1:early", 6)}


@async_test
async def test_a_server_that_comes_back_older_is_given_everything_again(
    own_server: RedisServer, run: Runs, said: list[str]
) -> None:
    own_server.start()
    node = run(own_server)
    await node.start()
    await node.put(*added(1))
    own_server.call("SAVE")
    await node.put(*added(2), (UNIT_DONE, make_job(1).id, b""))
    own_server.restart()
    await until(lambda: node.store.wants_compaction, "the loss is noticed")
    with pytest.raises(
        StoreFailed, match=r"it is at batch 1, and had acknowledged 2\); all jobs are to be written anew"
    ):
        await node.commit()
    await node.commit_until_good(lambda: iter(added(2)))
    assert node.stored() == ids(2)
    assert sum("it has lost its data" in line for line in said) == 1


@async_test
async def test_an_end_before_all_is_written_anew_is_told(own_server: RedisServer, run: Runs) -> None:
    own_server.start()
    node = run(own_server)
    await node.start()
    await node.put(*added(1))
    own_server.call("FLUSHALL")
    with pytest.raises(StoreFailed):
        await node.put(*added(2))
    with pytest.raises(StoreFailed, match="it has lost its data"):
        await node.close()


@async_test
async def test_a_server_that_comes_back_with_what_another_run_wrote_before_is_given_everything_again(
    own_server: RedisServer, run: Runs
) -> None:
    own_server.start()
    before = run(own_server)
    await before.start()
    await before.put(*added(1))
    await before.close()
    own_server.call("SAVE")
    node = run(own_server)
    await node.start()
    own_server.restart()
    with pytest.raises(StoreFailed, match="lost its data"):
        await node.put(*added(2))
    await node.commit_until_good(lambda: iter(added(1, 2)))
    assert node.stored() == ids(1, 2)


@async_test
async def test_writing_anew_that_is_interrupted_begins_again(
    own_server: RedisServer, run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_store, "RECORDS_PER_SLICE", 2)
    own_server.start()
    node = run(own_server)
    await node.start()
    await node.put(*added(*range(10)))
    own_server.restart()
    await until(lambda: node.store.wants_compaction, "the loss is noticed")

    def walk() -> Iterator[Record]:
        for record in added(*range(10)):
            if record[1].id == make_job(5).id:
                own_server.restart()
            yield record

    node.store.compact(walk())
    await until(lambda: node.store.status()["aof_last_bgrewrite_status"] == "err", "the interruption is noticed")
    assert node.stored() == set()
    await node.commit_until_good(lambda: iter(added(*range(10))))
    assert node.stored() == ids(*range(10))


@async_test
async def test_parts_that_vanish_while_all_is_written_anew_are_missed(
    server: RedisServer, run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_store, "RECORDS_PER_SLICE", 2)
    node = run(server)
    await node.start()
    await node.put(*added(100))

    def walk() -> Iterator[Record]:
        for record in added(*range(10)):
            if record[1].id == make_job(5).id:
                server.call("DEL", node.key("new:jobs"), node.key("new:meta"))
            yield record

    with pytest.raises(StoreFailed, match="something that was written aside is gone"):
        await node.store.rewrite(walk())
    assert node.stored() == ids(100)


@async_test
async def test_a_healthy_store_has_nothing_to_make_smaller(server: RedisServer, run: Runs) -> None:
    node = run(server)
    await node.start()
    assert not node.store.wants_compaction
    with pytest.raises(StoreError, match="there is no journal to rewrite: the Redis server keeps the jobs as they are"):
        node.store.compact(iter(()))


# The controlled restart.


@async_test
async def test_a_snapshot_that_fails_leaves_everything_as_it_was(own_server: RedisServer, run: Runs) -> None:
    own_server.start("--appendonly", "yes", "--appendfsync", "always")
    node = run(own_server)
    await node.start()
    await node.put(*added(1))
    own_server.kill()
    with pytest.raises(StoreFailed):
        await node.store.rewrite(iter(added(2)))
    own_server.start(*own_server.options)
    await node.put(*added(3))
    assert node.stored() == ids(1, 3)
    await node.close()
    after = run(own_server, aof_enqueue_jobs_once=True)
    await after.start()
    assert not after.store.restores_queues


@async_test
async def test_a_snapshot_heals_a_server_that_has_lost_its_data(own_server: RedisServer, run: Runs) -> None:
    own_server.start()
    node = run(own_server)
    await node.start()
    await node.put(*added(1))
    own_server.restart()
    await until(lambda: node.store.wants_compaction, "the loss is noticed")
    await node.store.rewrite(iter(added(3, 1, 2)))
    await node.close()
    after = run(own_server, aof_enqueue_jobs_once=True)
    assert [record[1].body for record in await after.start()] == [b"body 3", b"body 1", b"body 2"]
    assert after.store.restores_queues


@async_test
async def test_the_order_of_a_large_snapshot_is_kept(
    server: RedisServer, run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disqued.persistence.redis.reading.PAGE", 77)
    node = run(server)
    await node.start()
    numbers = [number * 7_919 % 2_003 for number in range(2_003)]
    await node.store.rewrite(iter([(QUEUE_PAUSED, b"q", PAUSE_IN), *added(*numbers)]))
    await node.close()
    after = run(server, aof_enqueue_jobs_once=True)
    pause, *jobs = await after.start()
    assert pause[:3] == (QUEUE_PAUSED, b"q", PAUSE_IN)
    assert [record[1].id for record in jobs] == [make_job(number).id for number in numbers]
    assert server.call("EXISTS", node.key("order")) == 0


@async_test
async def test_a_run_that_ends_while_it_loads_leaves_the_word_about_queues(server: RedisServer, run: Runs) -> None:
    node = run(server)
    await node.start()
    await node.store.rewrite(iter(added(1, 2)))
    await node.close()
    killed = run(server, aof_enqueue_jobs_once=True)
    killed.store.open()
    records = killed.store.load()
    await next(records)
    await killed.close()
    after = run(server, aof_enqueue_jobs_once=True)
    assert bodies(await after.start()) == {b"body 1", b"body 2"}
    assert after.store.restores_queues


# Beside a running node.


@async_test
async def test_everything_can_be_read_beside_a_running_node_which_does_not_notice(
    server: RedisServer, run: Runs
) -> None:
    node = run(server)
    await node.start()
    await node.put(*added(1, 2, 3, 4), (QUEUE_PAUSED, b"q", PAUSE_IN), begun(b"\x31:\xff"))
    wall = node.clock.wall()
    await node.put((UNIT_DONE, make_job(1).id, b""), (JOB_GONE, make_job(2).id, GONE_EXPIRED))
    # Of what ends in one millisecond, done or otherwise, nobody can say what came first.
    node.clock.advance(1)
    await node.put((UNIT_DONE, make_job(3).id, b""))
    before = {name: server.call("DUMP", name) for name in server.call("KEYS", "*") if b"owner" not in name}
    records = await read(node.factory.peek(node.settings))
    assert records[:5] == [
        (UNIT_DONE, make_job(1).id, b"", wall),
        (JOB_GONE, make_job(2).id, GONE_EXPIRED, wall),
        (UNIT_DONE, make_job(3).id, b"", wall + 1),
        (QUEUE_PAUSED, b"q", PAUSE_IN, wall),
        (*begun(b"1:\xff"), wall),
    ]
    assert bodies(records[5:]) == {b"body 4"}
    assert before == {name: server.call("DUMP", name) for name in server.call("KEYS", "*") if b"owner" not in name}
    await node.put(*added(5))


@async_test
async def test_what_a_group_has_done_is_told_once_to_who_reads_beside(server: RedisServer, run: Runs) -> None:
    node = run(server)
    await node.start()
    await node.put(*added(1), (UNIT_DONE, make_job(1).id, b"first"), lease(1, b"other"))
    records = []
    for record in node.factory.peek(node.settings):
        if not isinstance(record, tuple):
            await record
            continue
        records.append(record)
        if record[0] == JOB_ADDED:
            await node.put((UNIT_DONE, make_job(1).id, b"second"))
    done = [record[2] for record in records if record[0] == UNIT_DONE]
    assert sorted(done) == [b"first", b"second"]
    assert [record[2] for record in records if record[0] == UNIT_LEASED] == [b"other"]


@async_test
async def test_what_ends_while_it_is_read_is_told_in_the_end(server: RedisServer, run: Runs) -> None:
    node = run(server)
    await node.start()
    await node.put(*added(1))
    records = []
    for record in node.factory.peek(node.settings):
        if not isinstance(record, tuple):
            await record
            continue
        records.append(record)
        if record[0] == JOB_ADDED:
            await node.put((UNIT_DONE, make_job(1).id, b""))
    assert [record[0] for record in records] == [JOB_ADDED, UNIT_DONE]


@async_test
async def test_a_long_history_is_read_in_its_order(
    server: RedisServer, run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disqued.persistence.redis.reading.PAGE", 7)
    node = run(server)
    await node.start()
    for number in range(40):
        await node.put(*added(number))
        node.clock.advance(1)
        over = (UNIT_DONE, make_job(number).id, b"") if number % 3 else (JOB_GONE, make_job(number).id, GONE_EXPIRED)
        await node.put(over)
    records = await read(node.factory.peek(node.settings))
    assert [record[1] for record in records] == [make_job(number).id for number in range(40)]


@async_test
async def test_nothing_can_be_read_where_no_server_is(own_server: RedisServer, run: Runs) -> None:
    node = run(own_server)
    with pytest.raises(StoreError, match=f"redis {own_server.name}: connection refused"):
        await read(node.factory.peek(node.settings))


@async_test
async def test_a_watermark_of_another_run_of_the_server_is_not_relied_on_for_what_comes_once(
    own_server: RedisServer, run: Runs
) -> None:
    own_server.start("--appendonly", "yes", "--appendfsync", "always")
    first = run(own_server)
    await first.start()
    await first.put((WATERMARK, 1_700_000_000_500))
    await first.close()
    second = run(own_server)
    assert (WATERMARK, 1_700_000_000_500) in await second.start()
    await second.close()
    # The new process may have lost what the old one had answered for.
    own_server.restart()
    third = run(own_server)
    assert (WATERMARK, 1_700_000_000_500, False) in await third.start()
    await third.close()
