"""The database as a store: what it keeps, how durable that is, and what happens when it cannot."""

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from disqued.core.model.fate import Fate
from disqued.core.model.job import ACKED, ACTIVE, KIND_LOG, KIND_WORK, QUEUED, STAMP_MAX
from disqued.core.model.outbox import (
    FLUSHED,
    GONE_DELETED,
    GONE_REFUSED,
    GROUP,
    JOB_ADDED,
    JOB_GONE,
    QUEUE_PAUSED,
    UNIT_DONE,
    UNIT_LEASED,
    Record,
    is_over,
)
from disqued.core.model.queues import PAUSE_IN, PAUSE_OUT
from disqued.core.model.terms import Terms
from disqued.persistence.disk import Disk
from disqued.persistence.interface import StoreError, StoreFailed
from disqued.persistence.sqlite import log as sqlite_log
from disqued.persistence.sqlite import writer as sqlite_writer
from disqued.persistence.sqlite.factory import SqliteFactory
from disqued.persistence.sqlite.reading import DatabaseReader, peek_database
from disqued.persistence.sqlite.schema import CACHE_KIB, KEPT_LOG_BYTES, connect_writer, wal_path
from disqued.persistence.sqlite.synced import index_path, read_index, read_synced
from disqued.persistence.sqlite.transaction import _DELETE_GROUP, _GROUP_KNOWN
from tests.databases import (
    NAME,
    POLICIES,
    Gate,
    Store,
    WatchedDisk,
    added,
    bodies,
    change,
    job_id,
    loaded,
    make_job,
    opened,
    replayed,
    rows,
    units,
)
from tests.fates import fates, terms
from tests.programs import Program
from tests.small_disk import small_disk


def hex_bytes(raw: bytes) -> bytes:
    return raw.hex().encode()


# What is kept.


@given(
    queue=st.binary(max_size=30),
    body=st.binary(max_size=200),
    middle=st.binary(min_size=44, max_size=44),
    holders=st.none() | st.frozensets(st.binary(min_size=20, max_size=20).map(hex_bytes), min_size=1),
    numbers=st.tuples(*[st.integers(0, 2**32 - 1)] * 2, st.integers(0, STAMP_MAX), st.integers(-STAMP_MAX, STAMP_MAX)),
    name=st.just((KIND_LOG, b"")) | st.tuples(st.just(KIND_WORK), st.binary(max_size=30)),
    terms=terms, fate=fates,
)  # fmt: skip
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_job_comes_back_as_it_was_whatever_it_is_made_of(
    tmp_path: Path, queue: bytes, body: bytes, middle: bytes, holders: frozenset[bytes] | None,
    numbers: tuple[int, ...], name: tuple[int, bytes], terms: Terms, fate: Fate,
) -> None:  # fmt: skip
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    kind, alias = name
    nacks, additional_deliveries, ctime, order_key = numbers
    job = make_job(
        1, body, queue=queue, id=b"DI" + middle + b"SQ", holders=holders, nacks=nacks, ctime=ctime, order_key=order_key,
        additional_deliveries=additional_deliveries, flags=3, requeue_at=70_000, kind=kind, alias=alias,
        terms=terms, fate=fate,
    )  # fmt: skip
    store, _ = opened(tmp_path)
    now, wall = store.clock.now(), store.clock.wall()
    store.put((JOB_ADDED, job), (QUEUE_PAUSED, queue, PAUSE_IN))
    store.put((UNIT_DONE, job.id, b"of " + queue), (JOB_GONE, job_id(9), body[:9]))
    store.put((UNIT_LEASED, job.id, b"by " + queue, nacks, alias))
    store.end()
    pause, (_, stored), done, leased = loaded(tmp_path)
    assert pause == (QUEUE_PAUSED, queue, PAUSE_IN, wall)
    assert stored == (
        job.id, queue, body, ACTIVE, 3, 1, holders, ctime, job.expires_at + wall - now, 70_000 + wall - now,
        600_000, 60_000, 0, nacks, additional_deliveries, order_key, kind, alias, terms, fate,
    )  # fmt: skip
    assert leased == (UNIT_LEASED, job.id, b"by " + queue, nacks, alias, wall)
    assert done == (UNIT_DONE, job.id, b"of " + queue, wall)
    assert list(peek_database(tmp_path / NAME)) == [
        (JOB_ADDED, stored), pause, done, (JOB_GONE, job_id(9), body[:9], wall), leased,
    ]  # fmt: skip


def test_jobs_come_back_in_the_order_in_which_they_were_added_the_last_time(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.put(added(1), added(2), added(3))
    store.put(added(2, b"again"), added(4), added(1, b"once"), added(1, b"twice"))
    store.end()
    names = [record[1].id for record in loaded(tmp_path)]
    assert names == [job_id(number) for number in (3, 2, 4, 1)]
    assert bodies(tmp_path) == [b"body", b"again", b"body", b"twice"]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 9), st.binary(max_size=20)),
        st.tuples(st.sampled_from(["done", "gone", "done in a group"]), st.integers(0, 9)),
        st.tuples(st.just("lease"), st.integers(0, 9), st.sampled_from([b"", b"group"]), st.binary(max_size=3)),
        st.tuples(st.just("pause"), st.integers(0, 2), st.integers(0, 3)),
        st.tuples(
            st.just("begin"),
            st.integers(0, 1),
            st.sampled_from([b"", b"0:g", b"1:g", b"12:g", b"3:\xff"]),
            st.dictionaries(st.sampled_from([b"0123abcd", b"89abcdef"]), st.integers(0, 9)),
        ),
        st.tuples(st.sampled_from(["flush", "commit", "restart", "crash", "last word", "compact", "renew"])),
    ),
    max_size=40,
)


@given(steps, st.sampled_from([0, 60]))
@example([("add", 0, b""), ("done in a group", 0), ("flush",), ("add", 0, b"")], 60)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_loaded_is_what_a_dictionary_would_hold(tmp_path: Path, steps: list[Any], history_s: int) -> None:
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    store, _ = opened(tmp_path, sqlite_history=history_s)
    told: list[Record] = []

    def tell(record: Record) -> None:
        store.append([record])
        told.append(record)

    for word, *rest in steps:
        store.clock.advance(10_000)
        jobs, pauses = replayed(told)
        if word == "add":
            tell(added(*rest))
        elif word == "done":
            tell((UNIT_DONE, job_id(rest[0]), b""))
        elif word in ("done in a group", "lease"):
            # Nothing is said of the units of a job that is not there.
            if job_id(rest[0]) in jobs and word == "lease":
                tell((UNIT_LEASED, job_id(rest[0]), rest[1], store.clock.now(), rest[2]))
            elif job_id(rest[0]) in jobs:
                tell((UNIT_DONE, job_id(rest[0]), b"group"))
        elif word == "gone":
            tell((JOB_GONE, job_id(rest[0]), GONE_DELETED))
        elif word == "pause":
            tell((QUEUE_PAUSED, b"queue %d" % rest[0], rest[1]))
        elif word == "begin":
            tell((GROUP, b"queue %d" % rest[0], rest[1], tuple(sorted(rest[2].items()))))
        elif word == "flush":
            tell((FLUSHED,))
        elif word == "commit":
            store.put()
        elif word in ("restart", "crash"):
            if word == "crash":
                store.put()
                left = {path: path.read_bytes() for path in tmp_path.iterdir()}
            store.end()
            if word == "crash":
                for path, data in left.items():
                    path.write_bytes(data)
            store, records = opened(tmp_path, sqlite_history=history_s, clock=store.clock)
            assert replayed(records) == (jobs, pauses)
            assert said(records) == said(told)
            assert beginnings(records) == beginnings(told)
            assert [record[1].id for record in records if record[0] == JOB_ADDED] == list(jobs)
        elif word == "compact":
            store.put()
            store.compact_now()
        elif word == "last word":
            told = [
                *(added(int(name[2:46]), body) for name, body in jobs.items()),
                *units(told).values(),
                *((GROUP, *name, floor) for name, floor in beginnings(told).items()),
            ]
            told = [*((QUEUE_PAUSED, queue, pause) for queue, pause in pauses.items()), *told]
            store.put_all(told)
        else:
            store.end()
            store = Store(tmp_path, sqlite_history=history_s, clock=store.clock)
            store.open()
            store.loop.wait(store.renew())
            told = []
    store.end()
    records = loaded(tmp_path)
    wanted = (replayed(told), said(told), beginnings(told))
    assert (replayed(records), said(records), beginnings(records)) == wanted
    if history_s:
        records = list(peek_database(tmp_path / NAME))
        assert (replayed(records), said(records), beginnings(records)) == wanted


def said(records: list[Record]) -> dict[tuple[bytes, bytes], tuple[Any, ...]]:
    """What is known of units, without the time."""
    return {name: word[:5] if word[0] == UNIT_LEASED else word[:3] for name, word in units(records).items()}


def beginnings(records: list[Record]) -> dict[tuple[bytes, bytes], tuple[Any, ...]]:
    """Where groups begin after these records, by queue and scope."""
    floors: dict[tuple[bytes, bytes], tuple[int, dict[bytes, int]]] = {}
    for record in records:
        if record[0] == FLUSHED:
            floors.clear()
        elif record[0] == GROUP:
            epoch, _, name = record[2].rpartition(b":")
            key, stamps = (record[1], name), dict(record[3])
            before, known = floors.get(key, (-1, {}))
            number = int(epoch or b"0")
            if is_over(record[2], record[3]):
                floors.pop(key, None)
            elif number > before:
                floors[key] = number, stamps
            elif number == before:
                floors[key] = number, {node: max(stamps.get(node, 0), known.get(node, 0)) for node in stamps | known}
    return {
        (queue, b"%d:%b" % (epoch, name) if name else b""): tuple(sorted(stamps.items()))
        for (queue, name), (epoch, stamps) in floors.items()
    }


def test_where_groups_begin_can_be_read_and_only_the_last_word_counts(tmp_path: Path) -> None:
    store, _ = opened(tmp_path, sqlite_history=60)
    stamp = 1_700_000_000_123_456_789
    floor = ((b"0123abcd", stamp), (b"89abcdef", 0))
    store.put((GROUP, b"mail", b"1:senders", floor[:1]), (GROUP, b"mail", b"", floor), (GROUP, b"\xfe", b"3:\xff", ()))
    store.clock.advance(1_500)
    store.put((GROUP, b"mail", b"1:senders", floor[1:]))
    assert rows(tmp_path, "SELECT queue, scope, floor, began_at FROM groups ORDER BY seq") == [
        ("mail", "", f'{{"0123abcd": {stamp}, "89abcdef": 0}}', store.clock.wall() - 1_500),
        (b"\xfe", b"3:\xff", "{}", store.clock.wall() - 1_500),
        ("mail", "1:senders", f'{{"0123abcd": {stamp}, "89abcdef": 0}}', store.clock.wall()),
    ]
    shown = '{"0123abcd":"2023-11-14T22:13:20.123Z","89abcdef":"1970-01-01T00:00:00.000Z"}'
    assert rows(tmp_path, "SELECT queue, scope, event, floor, began FROM groups_readable ORDER BY seq") == [
        ("mail", "", "flushed", shown, "2023-11-14T22:13:20.000Z"),
        ("x'FE'", "x'333AFF'", "begun", "{}", "2023-11-14T22:13:20.000Z"),
        ("mail", "1:senders", "begun", shown, "2023-11-14T22:13:21.500Z"),
    ]
    # It is no history: age alone removes nothing of it, and what the node has forgotten goes at once.
    store.clock.advance(400 * 86_400_000)
    assert not store.wants_compaction
    store.compact_now()
    assert len(rows(tmp_path, "SELECT * FROM groups")) == 3
    store.put((GROUP, b"mail", b"", ()), (GROUP, b"\xfe", b"0:\xff", ()))
    assert rows(tmp_path, "SELECT scope FROM groups") == [("1:senders",)]
    store.end()


def test_a_group_is_found_by_its_name_without_a_look_at_the_others(tmp_path: Path) -> None:
    loaded(tmp_path)
    for statement in (_GROUP_KNOWN, _DELETE_GROUP):
        plan = rows(tmp_path, f"EXPLAIN QUERY PLAN {statement.replace('?', 'NULL')}")
        assert ["USING INDEX groups_by_name (queue=? AND <expr>=?)" in step for *_, step in plan] == [True]


def test_a_word_on_a_group_that_was_damaged_meanwhile_is_told_by_the_next(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    word = (GROUP, b"mail", b"1:senders", ((b"0123abcd", 5),))
    store.put(word)
    change(tmp_path, "UPDATE groups SET floor = '{}'")
    with pytest.raises(StoreFailed, match="record 1: the checksum is wrong") as caught:
        store.put((GROUP, b"mail", b"1:senders", ((b"0123abcd", 6),)))
    assert caught.value.final
    # All is written anew, and that word with it.
    store.compact_now([(*word[:3], ((b"0123abcd", 6),), 7)])
    store.end()
    assert loaded(tmp_path) == [(*word[:3], ((b"0123abcd", 6),), 7)]


def test_who_has_a_unit_can_be_read_and_only_the_last_one_counts(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.put(added(1, alias=b"eone"), added(2, alias=b"\xff"), added(3, kind=KIND_LOG))
    store.put((UNIT_LEASED, job_id(1), b"", 1, b"anna"), (UNIT_LEASED, job_id(2), b"group", 1, b"\xfe"))
    store.clock.advance(1_500)
    store.put((UNIT_LEASED, job_id(1), b"", 2, b"bob"), (UNIT_LEASED, job_id(9), b"", 1, b"nobody knows the job"))
    columns = "id, scope, deliveries, worker, leased"
    assert rows(tmp_path, f"SELECT {columns} FROM leases_readable ORDER BY seq") == [
        (job_id(2).decode(), "group", 1, "x'FE'", "2023-11-14T22:13:20.000Z"),
        (job_id(1).decode(), "", 2, "bob", "2023-11-14T22:13:21.500Z"),
    ]
    assert rows(tmp_path, "SELECT kind, alias FROM jobs_readable ORDER BY seq") == [
        ("work", "eone"), ("work", "x'FF'"), ("log", None),
    ]  # fmt: skip
    assert rows(tmp_path, "SELECT id FROM jobs WHERE queue = 'queue' AND alias = 'eone'") == [(job_id(1).decode(),)]
    store.end()


@pytest.mark.parametrize("at_once", [True, False])
def test_a_lease_goes_with_its_job_and_when_its_unit_is_done(tmp_path: Path, at_once: bool) -> None:
    store, _ = opened(tmp_path)
    leases = [
        (UNIT_LEASED, job_id(number), scope, 1, b"w") for number in range(7) for scope in (b"", b"group", b"\xff")
    ]
    ends = [
        (UNIT_DONE, job_id(1), b""),
        (UNIT_DONE, job_id(2), b"group"),
        (UNIT_DONE, job_id(3), b"\xff"),
        (JOB_GONE, job_id(4), GONE_DELETED),
        added(5, state=ACKED),
        (UNIT_DONE, job_id(6), b"group"),
        (UNIT_LEASED, job_id(6), b"group", 2, b"v"),
    ]
    records = [*map(added, range(7)), *leases, *ends]
    for some in [records] if at_once else [[record] for record in records]:
        store.put(*some)
    store.end()
    left = {
        (int(record[1][2:46]), record[2], record[4]) for record in loaded(tmp_path) if record[0] == UNIT_LEASED
    }  # fmt: skip
    assert left == {
        (0, b"", b"w"), (0, b"group", b"w"), (0, b"\xff", b"w"), (2, b"", b"w"), (2, b"\xff", b"w"), (3, b"", b"w"),
        (3, b"group", b"w"), (6, b"", b"w"), (6, b"group", b"v"), (6, b"\xff", b"w"),
    }  # fmt: skip
    store, _ = opened(tmp_path)
    store.put((FLUSHED,))
    store.end()
    assert rows(tmp_path, "SELECT count(*) FROM leases") == [(0,)]


def test_all_written_anew_knows_units_as_they_are_told_and_what_groups_have_done_once(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    done = (UNIT_DONE, job_id(1), b"group")
    store.put(added(1), added(2), (UNIT_LEASED, job_id(2), b"", 1, b"old"), done)
    other = (UNIT_DONE, job_id(2), b"other")
    leased = (UNIT_LEASED, job_id(1), b"", 7, b"new")
    store.put_all([added(1), leased, done, added(2), other, (UNIT_LEASED, job_id(3), b"", 1, b"no such job")])
    store.end()
    assert [record[:-1] for record in loaded(tmp_path) if record[0] != JOB_ADDED] == [done, other, leased]


# What is over.


def test_what_is_over_is_kept_with_its_queue_its_time_and_its_reason(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.put(added(1, queue=b"mail"), added(2), added(3))
    store.clock.advance(5)
    store.put((UNIT_DONE, job_id(1), b""), (UNIT_DONE, job_id(2), b"group"), added(4, queue=b"brief"))
    store.put(added(5, queue=b"briefer"), (UNIT_DONE, job_id(5), b""), (JOB_GONE, job_id(3), GONE_REFUSED))
    store.put((JOB_GONE, job_id(4), GONE_DELETED), (UNIT_DONE, job_id(7), b""), (FLUSHED,))
    when, ctime = store.clock.wall(), make_job(0).ctime
    store.end()
    assert rows(tmp_path, "SELECT id, scope, queue, ctime, done_at FROM done ORDER BY seq") == [
        (job_id(1).decode(), "", "mail", ctime + 1, when),
        (job_id(2).decode(), "group", "queue", ctime + 2, when),
        (job_id(5).decode(), "", "briefer", ctime + 5, when),
        (job_id(7).decode(), "", None, None, when),
    ]
    assert rows(tmp_path, "SELECT id, reason, queue, ctime, gone_at FROM evictions ORDER BY seq") == [
        (job_id(3).decode(), "refused", "queue", ctime + 3, when),
        (job_id(4).decode(), "deleted", "brief", ctime + 4, when),
    ]
    assert rows(tmp_path, "SELECT jobs, flushed_at FROM flushes") == [(1, when)]
    assert [record[0] for record in peek_database(tmp_path / NAME)] == [
        UNIT_DONE, UNIT_DONE, UNIT_DONE, JOB_GONE, JOB_GONE, UNIT_DONE, FLUSHED,
    ]  # fmt: skip


def test_a_job_that_ends_twice_is_over_once(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    end = (UNIT_DONE, job_id(1), b"")
    store.put(added(1))
    store.put(end, end, (JOB_GONE, job_id(1), GONE_DELETED))
    store.put(added(2), (UNIT_DONE, job_id(2), b""), (UNIT_DONE, job_id(2), b""), added(2))
    store.end()
    assert rows(tmp_path, "SELECT count(*) FROM done") == [(2,)]
    assert rows(tmp_path, "SELECT count(*) FROM evictions") == [(0,)]
    assert [record[1].id for record in loaded(tmp_path)] == [job_id(2)]


def test_many_records_in_one_transaction_are_all_written(tmp_path: Path) -> None:
    for count in (1, 63, 64, 65, 127, 200):
        store, _ = opened(tmp_path)
        store.put(*(added(number, b"%d" % number) for number in range(count)))
        store.put(*((UNIT_DONE, job_id(number), b"") for number in range(0, count, 2)))
        store.end()
        assert bodies(tmp_path) == [b"%d" % number for number in range(1, count, 2)]
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()


@pytest.mark.parametrize("at_once", [True, False])
def test_without_history_only_what_is_left_is_written(tmp_path: Path, at_once: bool) -> None:
    store, _ = opened(tmp_path, sqlite_history=0)
    records = [
        *map(added, range(1, 6)),
        (UNIT_DONE, job_id(1), b""),
        (JOB_GONE, job_id(2), GONE_DELETED),
        *((UNIT_DONE, job_id(number), b"group") for number in (3, 4, 9)),
        (UNIT_DONE, job_id(4), b""),
    ]
    for some in [records] if at_once else [[record] for record in records]:
        store.put(*some)
    # What a group has done of a job that is there comes back with it.
    assert rows(tmp_path, "SELECT id, scope FROM done") == [(job_id(3).decode(), "group")]
    assert rows(tmp_path, "SELECT count(*) FROM evictions") == [(0,)]
    store.end()
    kinds = [record[0] for record in loaded(tmp_path, sqlite_history=0)]
    assert kinds == [JOB_ADDED, JOB_ADDED, UNIT_DONE]
    store, _ = opened(tmp_path, sqlite_history=0)
    store.put((FLUSHED,))
    assert rows(tmp_path, "SELECT count(*) FROM done") == [(0,)]
    store.end()


def test_compaction_removes_what_is_over_for_longer_than_is_wanted(tmp_path: Path) -> None:
    store, _ = opened(tmp_path, sqlite_history=60)
    store.put(*(added(number, b"x" * 500) for number in range(1_000)))
    store.put(*((UNIT_DONE, job_id(number), b"") for number in range(700)), (QUEUE_PAUSED, b"queue", PAUSE_IN))
    store.put(*((JOB_GONE, job_id(number), GONE_DELETED) for number in range(700, 900)), (FLUSHED,), added(7))
    store.put((UNIT_DONE, job_id(7), b"group"), (QUEUE_PAUSED, b"mail", PAUSE_IN), (QUEUE_PAUSED, b"mail", PAUSE_OUT))
    assert not store.wants_compaction
    store.clock.advance(65_000)
    assert not store.wants_compaction
    store.put(added(8), (UNIT_DONE, job_id(8), b""))
    store.clock.advance(2_000)
    assert store.wants_compaction
    store.compact_now()
    assert not store.wants_compaction
    assert store.status()["aof_last_bgrewrite_status"] == "ok"
    assert (store.status()["sqlite_free_bytes"], store.status()["sqlite_wal_size"]) == (0, 0)
    assert int(store.status()["sqlite_size"]) < 1 << 17
    store.end()
    assert rows(tmp_path, "SELECT id, scope FROM done ORDER BY seq") == [
        (job_id(7).decode(), "group"),
        (job_id(8).decode(), ""),
    ]
    assert rows(tmp_path, "SELECT queue, pause FROM pauses") == [("mail", PAUSE_OUT)]
    left = [rows(tmp_path, f"SELECT count(*) FROM {table}")[0][0] for table in ("evictions", "flushes", "jobs")]
    assert left == [0, 1, 1]


def test_a_big_queue_that_has_become_empty_is_worth_a_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disqued.persistence.sqlite.compaction.MUCH_FREE_BYTES", 1 << 20)
    monkeypatch.setattr(sqlite_writer, "ROWS_PER_LOOK", 1)
    store, _ = opened(tmp_path, sqlite_history=0)
    store.put(*(added(number, b"x" * 3_000) for number in range(1_000)))
    assert not store.wants_compaction
    store.put((FLUSHED,))
    store.put(added(1))
    store.loop.wait(store._ask(lambda: store._writer.log.checkpoint(store._writer._connection)))
    assert store.wants_compaction
    store.compact_now()
    assert not store.wants_compaction
    assert int(store.status()["sqlite_size"]) < 1 << 18
    store.end()


def test_no_compaction_is_wanted_while_one_runs(tmp_path: Path) -> None:
    store, _ = opened(tmp_path, sqlite_history=3_600)
    store.put(added(1), (UNIT_DONE, job_id(1), b""))
    store.clock.advance(3_970_000)
    assert store.wants_compaction
    store.compact(iter(()))
    store.clock.advance(3_970_000)
    assert store.status()["aof_rewrite_in_progress"]
    assert not store.wants_compaction
    store.loop.run_until(lambda: not store.status()["aof_rewrite_in_progress"])
    store.end()


def test_what_groups_have_done_for_long_is_no_reason_to_compact_all_the_time(tmp_path: Path) -> None:
    store, _ = opened(tmp_path, sqlite_history=3_600)
    store.put(added(1), (UNIT_DONE, job_id(1), b"group"))
    store.clock.advance(3_970_000)
    assert store.wants_compaction
    store.compact_now()
    assert rows(tmp_path, "SELECT count(*) FROM done") == [(1,)]
    store.clock.advance(350_000)
    assert not store.wants_compaction
    store.clock.advance(20_000)
    assert store.wants_compaction
    store.end()


def test_a_compaction_waits_for_its_turn(tmp_path: Path) -> None:
    store, _ = opened(tmp_path, sqlite_history=60)
    store.put(*(added(number) for number in range(2_000)))
    store.put(*((UNIT_DONE, job_id(number), b"") for number in range(2_000)))
    store.clock.advance(120_000)
    store.compact(iter(()))
    with pytest.raises(StoreError, match="is being compacted already"):
        store.compact(iter(()))
    for number in range(20):
        store.put(added(number))
    store.loop.run_until(lambda: not store.status()["aof_rewrite_in_progress"])
    store.end()
    assert len(loaded(tmp_path)) == 20
    assert rows(tmp_path, "SELECT count(*) FROM done") == [(0,)]


def test_a_compaction_may_be_cut_short_by_the_end(tmp_path: Path) -> None:
    store, _ = opened(tmp_path, sqlite_history=60)
    store.put(*(added(number) for number in range(3_000)))
    store.put(*((UNIT_DONE, job_id(number), b"") for number in range(2_990)))
    store.clock.advance(120_000)
    store.compact(iter(()))
    store.end()
    assert len(loaded(tmp_path)) == 10


# How durable it is.


def test_always_answers_after_the_sync(tmp_path: Path) -> None:
    disk = WatchedDisk()
    store, _ = opened(tmp_path, fsync="always", disk=disk)
    gate = disk.gate = Gate()
    store.append([added(1)])
    answer = store.commit()
    assert answer is not None
    assert gate.came.wait(60)
    store.loop.settle()
    assert not answer.called
    gate.open.set()
    store.loop.wait(answer)
    store.end()


def test_everysec_answers_at_once_and_syncs_without_another_commit(tmp_path: Path) -> None:
    disk = WatchedDisk()
    store, _ = opened(tmp_path, fsync="everysec", disk=disk)
    first = disk.gate = Gate()
    store.put(added(1))
    assert first.came.wait(60)
    assert store.status()["aof_pending_bio_fsync"] == 1
    store.put(added(2))
    assert len(rows(tmp_path, "SELECT id FROM jobs")) == 2
    second = disk.gate = Gate()
    first.open.set()
    assert second.came.wait(60)
    second.open.set()
    store.end()


def test_everysec_syncs_again_only_when_there_is_more(tmp_path: Path) -> None:
    disk = WatchedDisk()
    store, _ = opened(tmp_path, fsync="everysec", disk=disk)
    log = store._writer.log
    gate = disk.gate = Gate()
    store.put(added(1))
    assert gate.came.wait(60)
    assert not log._must_sync()
    store.put(added(2))
    assert log._must_sync()
    disk.gate = None
    gate.open.set()
    store.end()


def test_no_leaves_it_to_the_system_until_the_end(tmp_path: Path) -> None:
    disk = WatchedDisk()
    store, _ = opened(tmp_path, fsync="no", disk=disk)
    before = disk.syncs
    for number in range(5):
        store.put(added(number))
    assert disk.syncs == before
    store.end()
    assert disk.syncs > before


def test_a_policy_is_followed_from_the_next_commit_on(tmp_path: Path) -> None:
    disk = WatchedDisk()
    store, _ = opened(tmp_path, fsync="no", disk=disk)

    class Changed:
        appendfsync = "always"
        sqlite_history = 0

    store.configure(Changed())  # type: ignore[arg-type]
    before = disk.syncs
    store.put(added(1), added(2), (UNIT_DONE, job_id(2), b""))
    assert disk.syncs == before + 1
    assert rows(tmp_path, "SELECT count(*) FROM done") == [(0,)]
    store.end()


def test_what_is_appended_during_a_commit_waits_for_the_next(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.append([added(1)])
    answer = store.commit()
    store.append([added(2)])
    assert store.status()["sqlite_records_waiting"] == 1
    store.loop.wait(answer)
    assert len(rows(tmp_path, "SELECT id FROM jobs")) == 1
    store.put()
    assert len(rows(tmp_path, "SELECT id FROM jobs")) == 2
    store.end()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path, policy: str) -> None:
    before = 0
    for _ in range(3):
        command = [sys.executable, "-m", "tests.databases", str(tmp_path), policy]
        with Program(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
            assert process.stdout is not None
            told = b"".join(process.stdout.readline() for _ in range(200))
            process.kill()
            told += process.stdout.read()
        number = int(told[: told.rindex(b"\n")].splitlines()[-1])
        survived = bodies(tmp_path)
        assert survived == [b"%d" % count for count in range(1, len(survived) + 1)]
        assert len(survived) >= number >= 200
        assert len(survived) >= before
        before = len(survived)


# When the disk fails.


class OwnThread(Disk):
    """A disk that may not be waited for on the thread that it was made on, the loop's."""

    def __init__(self) -> None:
        self._loop = threading.get_ident()
        self.syncs = 0

    def _note(self) -> None:
        assert threading.get_ident() != self._loop
        self.syncs += 1

    def fdatasync(self, fd: int) -> None:
        self._note()
        super().fdatasync(fd)

    def sync_directory(self, path: Path) -> None:
        self._note()
        super().sync_directory(path)


def test_a_new_database_is_made_on_the_thread_of_the_writer(tmp_path: Path) -> None:
    for begin in ("load", "renew"):
        folder = tmp_path / begin
        folder.mkdir()
        disk = OwnThread()
        store = Store(folder, disk=disk)
        store.open()
        assert not (folder / NAME).exists()
        if begin == "load":
            assert store.loaded() == []
        else:
            store.loop.wait(store.renew())
        assert disk.syncs
        store.put(added(1))
        store.end()
        assert bodies(folder) == [b"body"]


def broken() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_sync_that_fails_is_final_and_nothing_after_it_is_taken(tmp_path: Path) -> None:
    disk = WatchedDisk()
    store, _ = opened(tmp_path, fsync="always", disk=disk)
    store.put_bodies(b"good")
    disk.error = broken()
    with pytest.raises(StoreFailed, match="Input/output error") as caught:
        store.put(added(1))
    assert caught.value.final
    disk.error = None
    for _ in range(3):
        with pytest.raises(StoreFailed, match="Input/output error"):
            store.put(added(2))
    assert store.status()["aof_last_write_status"] == "err"
    assert store.status()["sqlite_records_waiting"] == 0
    assert not store.wants_compaction
    store.end()
    assert bodies(tmp_path)[:1] == [b"good"]


def test_a_sync_that_fails_in_its_thread_fails_the_commits_that_follow(tmp_path: Path) -> None:
    disk = WatchedDisk()
    store, _ = opened(tmp_path, fsync="everysec", disk=disk)
    gate = disk.gate = Gate()
    store.put(added(1))
    assert gate.came.wait(60)
    disk.error = broken()
    gate.open.set()

    def commit_for_ever() -> None:
        while True:
            store.put(added(2))

    with pytest.raises(StoreFailed, match="Input/output error") as caught:
        commit_for_ever()
    assert caught.value.final
    store.end()


@pytest.fixture
def failed(tmp_path: Path) -> Iterator[Store]:
    """A store whose sync has failed, on a disk that is good again."""
    disk = WatchedDisk()
    store, _ = opened(tmp_path, fsync="always", disk=disk)
    store.put(added(1, b"old"), (QUEUE_PAUSED, b"queue", PAUSE_IN))
    disk.error = broken()
    with pytest.raises(StoreFailed):
        store.put(added(2, b"lost"))
    disk.error = None
    yield store
    store.end()


def test_a_database_that_failed_is_good_again_when_it_is_rewritten(failed: Store, tmp_path: Path) -> None:
    failed.put_all([added(1, b"all", state=QUEUED)])
    assert failed.status()["aof_last_write_status"] == "ok"
    failed.put(added(2, b"new"))
    failed.end()
    assert bodies(tmp_path) == [b"all", b"new"]


def test_a_database_that_failed_is_good_again_when_it_is_compacted(failed: Store, tmp_path: Path) -> None:
    failed.compact(added(number, b"%d" % number) for number in range(1_500))
    failed.append([(UNIT_DONE, job_id(3), b""), added(2_000, b"meanwhile")])
    with pytest.raises(StoreFailed):
        failed.commit()
    failed.loop.run_until(lambda: not failed.status()["aof_rewrite_in_progress"])
    assert failed.status()["aof_last_bgrewrite_status"] == "ok"
    failed.put()
    failed.end()
    expected = [b"%d" % number for number in range(1_500) if number != 3]
    assert sorted(bodies(tmp_path)) == sorted([*expected, b"meanwhile"])


def test_a_database_in_place_of_its_own_is_not_overwritten_and_the_answer_says_so(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.put(added(1, b"old"))
    path = tmp_path / NAME
    shutil.copyfile(path, tmp_path / "copy")
    (tmp_path / "copy").replace(path)
    with pytest.raises(StoreFailed, match="was replaced while it was in use"):
        store.look()
    foreign = path.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreError, match="is not the file that was in use, or was cut off: move it away first"):
            store.compact(iter([added(1, b"old")]))
        assert not store.status()["aof_rewrite_in_progress"]
    assert path.read_bytes() == foreign
    path.rename(tmp_path / "moved")
    store.compact_now([added(1, b"old")])
    store.put(added(2, b"new"))
    store.end()
    assert bodies(tmp_path) == [b"old", b"new"]


def test_a_compaction_that_fails_leaves_the_failure(
    failed: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed._files.disk.error = broken()  # type: ignore[attr-defined]
    failed.compact_now([added(1, b"new")])
    assert failed.status()["aof_last_bgrewrite_status"] == "err"
    with pytest.raises(StoreFailed):
        failed.put(added(2))
    failed._files.disk.error = None  # type: ignore[attr-defined]
    failed.compact_now([added(1, b"new")])
    failed.put(added(3, b"three"))
    failed.end()
    assert bodies(tmp_path) == [b"new", b"three"]


def test_the_end_of_the_node_ends_a_compaction_that_writes_everything_anew(failed: Store, tmp_path: Path) -> None:
    failed.compact(added(number) for number in range(100_000))
    failed.end()
    assert bodies(tmp_path)[:1] == [b"old"]


def test_a_rewrite_whose_sync_fails_does_not_promise_that_queues_are_known(tmp_path: Path) -> None:
    disk = WatchedDisk()
    store, _ = opened(tmp_path, disk=disk)
    disk.error = broken()
    with pytest.raises(StoreFailed):
        store.put_all([added(1, state=QUEUED)])
    assert store.status()["aof_last_bgrewrite_status"] == "err"
    store.end()
    assert rows(tmp_path, "SELECT value FROM meta WHERE name = 'queues'") == [("no",)]


class Room:
    """Limits how much a database may hold, as a full disk does."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def end(self) -> None:
        self._limit(self._get("page_count"))

    def return_(self) -> None:
        self._limit(1 << 30)

    def _limit(self, pages: int) -> None:
        self._get(f"max_page_count = {pages}")

    def _get(self, pragma: str) -> int:
        outcome: list[int] = []
        self._store.loop.wait(
            self._store._ask(
                lambda: outcome.append(self._store._writer._connection.execute(f"PRAGMA {pragma}").fetchone()[0])
            )
        )
        return outcome[0]


def fill(store: Store) -> list[bytes]:
    """Add jobs until there is no room; returns those that were taken."""
    taken: list[bytes] = []

    def add_for_ever() -> None:
        while True:
            body = b"%d " % len(taken) + b"x" * 2_000
            store.put(added(len(taken), body))
            taken.append(body)

    with pytest.raises(StoreFailed) as caught:
        add_for_ever()
    assert "full" in str(caught.value)
    assert not caught.value.final
    return taken


def check_full_disk(store: Store, directory: Path, make_room: Callable[[], None]) -> None:
    taken = fill(store)
    waiting = b"%d " % len(taken) + b"x" * 2_000
    for number in range(3):
        store.append([(QUEUE_PAUSED, b"%d" % number, PAUSE_IN)])
        assert store.status()["sqlite_records_waiting"] == 2 + number
        with pytest.raises(StoreFailed, match="full") as caught:
            store.put()
        assert not caught.value.final
    assert store.status()["aof_last_write_status"] == "err"
    make_room()
    store.put(added(10_000, b"after"))
    assert store.status()["aof_last_write_status"] == "ok"
    assert store.status()["sqlite_records_waiting"] == 0
    store.end()
    records = loaded(directory)
    assert replayed(records)[1] == {b"0": PAUSE_IN, b"1": PAUSE_IN, b"2": PAUSE_IN}
    assert [record[1].body for record in records if record[0] == JOB_ADDED] == [*taken, waiting, b"after"]


def test_a_database_without_room_keeps_what_waits_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.put(added(20_000), (UNIT_DONE, job_id(20_000), b""))
    room = Room(store)
    room.end()
    check_full_disk(store, tmp_path, room.return_)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    with small_disk(tmp_path / "disk", 2 << 20) as mounted:
        yield mounted.path


@pytest.mark.parametrize("policy", POLICIES)
def test_a_full_disk_loses_nothing_that_was_taken(disk: Path, policy: str) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    store, _ = opened(disk, fsync=policy)
    check_full_disk(store, disk, ballast.unlink)


def test_a_disk_that_is_full_at_the_start_is_told(disk: Path) -> None:
    (disk / "ballast").write_bytes(bytes(2 << 20)[: 2_040 << 10])
    with pytest.raises(StoreFailed, match=r"full|No space left"):
        loaded(disk)


def test_a_rewrite_without_room_changes_nothing(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.put(added(1, b"old"))
    store.append([added(2, b"waits")])
    room = Room(store)
    room.end()
    with pytest.raises(StoreFailed, match="full"):
        store.put_all(added(number, b"x" * 3_000, state=QUEUED) for number in range(1_000))
    assert rows(tmp_path, "SELECT body FROM jobs") == [("old",)]
    room.return_()
    store.put(added(3, b"new"))
    store.end()
    assert bodies(tmp_path) == [b"old", b"waits", b"new"]


def test_a_rewrite_that_is_given_no_end_changes_nothing(tmp_path: Path) -> None:
    def half() -> Iterator[Record]:
        yield added(1, b"half")
        raise ZeroDivisionError

    store, _ = opened(tmp_path)
    store.put(added(1, b"old"))
    store.append([added(2, b"waits")])
    with pytest.raises(ZeroDivisionError):
        store.put_all(half())
    store.loop.run_until(lambda: store.status()["sqlite_records_waiting"] == 1)
    store.put()
    store.end()
    assert bodies(tmp_path) == [b"old", b"waits"]


def test_a_rewrite_that_names_a_job_twice_keeps_the_later(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.put_all([added(1, b"first"), added(2), added(1, b"second")])
    store.end()
    assert bodies(tmp_path) == [b"body", b"second"]


def test_another_program_that_writes_delays_and_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(path: Path) -> sqlite3.Connection:
        connection = connect_writer(path)
        connection.execute("PRAGMA busy_timeout = 1").fetchall()
        return connection

    monkeypatch.setattr(sqlite_writer, "connect_writer", impatient)
    store, _ = opened(tmp_path)
    other = sqlite3.connect(tmp_path / NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreFailed, match="database is locked") as caught:
        store.put(added(1, b"one"))
    assert not caught.value.final
    other.execute("ROLLBACK")
    other.close()
    store.put(added(2, b"two"))
    store.end()
    assert bodies(tmp_path) == [b"one", b"two"]


# The log.


def test_the_log_is_moved_into_the_database_while_commits_never_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "CHECKPOINT_BYTES", 1 << 18)
    monkeypatch.setattr(sqlite_log, "LONG_LOG_BYTES", 1 << 19)
    monkeypatch.setattr(sqlite_log, "PERIOD_S", 0.0)
    store, _ = opened(tmp_path)
    written = 0
    while int(store.status()["sqlite_size"]) < 4 << 20:
        store.put(*(added(written + number, b"x" * 1_000) for number in range(50)))
        written += 50
    assert int(store.status()["sqlite_wal_size"]) < 64 << 20
    store.end()
    assert len(loaded(tmp_path)) == written


def test_somebody_who_reads_for_long_delays_no_commit_and_sees_one_moment(tmp_path: Path) -> None:
    store, _ = opened(tmp_path, fsync="always")
    store.put(added(1))
    reader = sqlite3.connect(f"file:{tmp_path / NAME}?mode=ro", uri=True, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
    for number in range(2, 200):
        store.put(added(number), (UNIT_DONE, job_id(number - 1), b""))
    store.compact_now()
    assert reader.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
    reader.execute("COMMIT")
    assert reader.execute("SELECT id FROM jobs").fetchall() == [(job_id(199).decode(),)]
    store.end()
    reader.close()
    assert len(loaded(tmp_path)) == 1


# People.


def sqlite_utils(*arguments: str) -> str:
    command = [sys.executable, "-m", "sqlite_utils", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_command_of_sqlite_utils_reads_the_database_of_a_store_that_runs(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.put(
        added(1, b"Gr\xc3\xbc\xc3\x9fe", queue=b"mail"), added(2, b"\xff\x00", queue=b"\xfe"), added(3),
        (UNIT_DONE, job_id(3), b""),
    )  # fmt: skip
    path = str(tmp_path / NAME)
    shown = sqlite_utils("rows", path, "jobs_readable", "-c", "queue", "-c", "body", "-c", "expires", "-c", "ttl_s")
    assert '"queue": "mail", "body": "Gr\\u00fc\\u00dfe"' in shown or '"queue": "mail", "body": "Grüße"' in shown
    assert '"queue": "x\'FE\'", "body": "x\'FF00\'", "expires": "2023-11-14T22:23:21.000Z", "ttl_s": 600.0' in shown
    assert "2023-11-14T22:13:20.000Z" in sqlite_utils("rows", path, "done_readable")
    assert "jobs" in sqlite_utils("tables", path, "--counts")
    store.put(added(4))
    store.end()
    assert len(loaded(tmp_path)) == 3


def test_people_see_where_a_job_is_only_while_that_is_known(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.put_all([added(1, state=QUEUED), added(2, state=ACTIVE)])
    assert rows(tmp_path, "SELECT state FROM jobs_readable ORDER BY seq") == [("queued",), ("active",)]
    store.put(added(3))
    assert rows(tmp_path, "SELECT state FROM jobs_readable") == [(None,)] * 3
    store.end()


def test_a_query_for_what_an_administrator_asks_uses_an_index(tmp_path: Path) -> None:
    loaded(tmp_path)
    for query in (
        "SELECT * FROM jobs WHERE queue = 'mail' ORDER BY ctime",
        "SELECT * FROM jobs WHERE id = 'DI'",
        "SELECT * FROM jobs WHERE queue = 'mail' AND alias = 'one'",
        "SELECT * FROM leases WHERE id = 'DI'",
        "SELECT * FROM jobs ORDER BY ctime DESC LIMIT 10",
        "SELECT * FROM jobs WHERE state = 2 ORDER BY expires_at",
        "SELECT * FROM done WHERE done_at > 5 ORDER BY done_at",
        "SELECT * FROM done WHERE queue = 'mail' AND done_at > 5 ORDER BY done_at",
        "SELECT * FROM evictions WHERE gone_at > 5 ORDER BY gone_at",
        "SELECT * FROM evictions WHERE queue = 'mail' AND gone_at > 5 ORDER BY gone_at",
    ):
        ((*_, plan),) = rows(tmp_path, f"EXPLAIN QUERY PLAN {query}")
        assert "USING INDEX" in plan


def test_peeking_changes_nothing_whether_a_store_runs_or_not(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.put(added(1), added(2), (QUEUE_PAUSED, b"queue", PAUSE_IN))
    store.put((UNIT_DONE, job_id(1), b""))
    beside = list(peek_database(tmp_path / NAME))
    assert [record[0] for record in beside] == [JOB_ADDED, QUEUE_PAUSED, UNIT_DONE]
    store.end()
    data = (tmp_path / NAME).read_bytes()
    assert list(peek_database(tmp_path / NAME)) == beside
    assert (tmp_path / NAME).read_bytes() == data
    assert loaded(tmp_path)[1] == beside[0]


def test_peeking_at_nothing_finds_nothing(tmp_path: Path) -> None:
    assert list(peek_database(tmp_path / NAME)) == []
    assert list(tmp_path.iterdir()) == []


# The rest.


def test_what_is_missing_is_named_with_the_way_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disqued.persistence.sqlite.factory.find_spec", lambda name: None)
    with pytest.raises(StoreError, match=r'needs the package sqlite-utils.*: pip install "disqued\[sqlite\]"'):
        SqliteFactory().create(None, None, None)  # type: ignore[arg-type]


def test_a_setting_without_a_file_is_told() -> None:
    class Settings:
        sqlite_file = None

    with pytest.raises(StoreError, match="sqlite-file is empty; a database needs a name"):
        SqliteFactory().peek(Settings())  # type: ignore[arg-type]


def test_a_store_is_used_in_its_order(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(StoreError, match="after it is opened"):
        store.loaded()
    store.open()
    for use in (lambda: store.rewrite([]), store.commit):
        with pytest.raises(StoreError, match="after it is loaded"):
            use()
    with pytest.raises(StoreError, match="while it is in use"):
        store.compact(iter(()))
    assert store.loaded() == []
    with pytest.raises(StoreError, match="loaded once"):
        store.loaded()
    with pytest.raises(StoreError, match="loaded or emptied once"):
        store.renew()
    store.end()
    assert store.close() is None


def test_a_store_that_was_opened_and_never_loaded_can_be_closed(tmp_path: Path) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    store = Store(tmp_path)
    store.open()
    store.end()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert loaded(tmp_path) == []


def test_a_writer_that_cannot_begin_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> sqlite3.Connection:
        raise sqlite3.DatabaseError("file is not a database")

    store = Store(tmp_path)
    store.open()
    monkeypatch.setattr(sqlite_writer, "connect_writer", refuse)
    with pytest.raises(StoreFailed, match="file is not a database") as caught:
        store.loaded()
    assert str(caught.value).startswith(f"{tmp_path / NAME}: ")
    store.end()


class GatedDisk(Disk):
    """A disk whose syncs of the log take as long as the test wants, and are counted."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.may_end.set()
        self.syncs = 0

    def fdatasync(self, fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").endswith("-wal"):
            self.syncs += 1
            assert self.may_end.wait(60)
        super().fdatasync(fd)


def test_what_is_committed_during_a_sync_is_not_said_to_be_on_the_disk(tmp_path: Path) -> None:
    disk = GatedDisk()
    store, _ = opened(tmp_path, fsync="everysec", disk=disk)
    disk.may_end.clear()
    begun = disk.syncs
    store.put(added(1))
    while disk.syncs == begun:
        pass
    index = os.open(index_path(tmp_path / NAME), os.O_RDONLY)
    before = read_index(index)
    store.put(added(2))
    after = read_index(index)
    os.close(index)
    assert before is not None
    assert after is not None
    assert before.count < after.count
    disk.may_end.set()
    while store.status()["aof_pending_bio_fsync"]:
        pass
    synced = read_synced(tmp_path / NAME)
    assert synced is not None
    assert synced.count <= before.count
    store.end()


@pytest.mark.parametrize("policy", ["everysec", "no"])
def test_what_is_secured_is_synced_whatever_the_policy(tmp_path: Path, policy: str) -> None:
    disk = GatedDisk()
    store, _ = opened(tmp_path, fsync=policy, disk=disk)
    store.put(added(1))
    while store.status()["aof_pending_bio_fsync"]:
        pass
    before = disk.syncs
    store.loop.wait(store.secure())
    assert disk.syncs > before
    store.end()


def test_what_could_not_be_committed_comes_before_what_was_appended_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = opened(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(store._writer, "commit", refuse)
        store.append([added(1)])
        under_way = store.commit()
        # It comes while that commit is under way.
        store.append([(UNIT_DONE, job_id(1), b"")])
        with pytest.raises(StoreFailed, match="no room"):
            store.loop.wait(under_way)
    store.put()
    store.end()
    assert bodies(tmp_path) == []


def refuse(*_: object, **__: object) -> None:
    raise StoreFailed("no room", final=False)


def test_the_connection_that_writes_leaves_syncs_and_the_log_to_the_store(tmp_path: Path) -> None:
    """Within a COMMIT, SQLite would sync whatever the policy says, and keep an error of it to itself."""
    store, _ = opened(tmp_path)
    store.end()
    connection = connect_writer(tmp_path / NAME)
    settings_now = {
        name: connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("synchronous", "wal_autocheckpoint", "journal_size_limit", "secure_delete", "cache_size")
    }
    connection.close()
    assert settings_now == {
        "synchronous": 1, "wal_autocheckpoint": 0, "journal_size_limit": KEPT_LOG_BYTES, "secure_delete": 0,
        "cache_size": -CACHE_KIB,
    }  # fmt: skip


def test_what_is_to_be_loaded_is_the_database_and_its_log(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.put(added(1, b"x" * 10_000))
    path = tmp_path / NAME
    assert wal_path(path).stat().st_size > 10_000
    reader = DatabaseReader(path)
    assert reader.bytes_total == path.stat().st_size + wal_path(path).stat().st_size
    reader.close()
    store.end()
    assert not wal_path(path).exists()
    reader = DatabaseReader(path)
    assert reader.bytes_total == path.stat().st_size
    reader.close()


def test_what_was_written_anew_is_in_the_database_itself(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.put_all([added(1, b"one"), added(2, b"two")])
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(tmp_path / NAME, copy / NAME)
    assert bodies(copy) == [b"one", b"two"]
    store.end()


def test_a_start_that_fails_keeps_no_other_one_out(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"not a database" * 1_000)
    failed = Store(tmp_path)
    with pytest.raises(StoreError):
        failed.open()
    (tmp_path / NAME).unlink()
    again = Store(tmp_path)
    again.open()
    assert again.loaded() == []
    again.end()
