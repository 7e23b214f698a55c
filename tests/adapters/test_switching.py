"""Another store while the node runs: at every moment one of the two holds all that was acknowledged."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from disqued.core.model.outbox import JOB_ADDED, JOB_GONE, POLICY, QUEUE_PAUSED, UNIT_DONE, Record
from disqued.net.process import storekeeper, switching
from disqued.net.process.switching import StoreMarker
from disqued.persistence.interface import StoreError, StoreFailed
from disqued.wire.jobdump import decode_record, encode_job
from tests.adapters.inprocess import RecordingStore, Running, wait_until

Launch = Callable[..., Running]
async_test = pytest_twisted.ensureDeferred


def held(records: list[Record]) -> set[bytes]:
    """The ids that a store holds after these records."""
    ids: set[bytes] = set()
    for record in records:
        if record[0] == JOB_ADDED:
            ids.add(record[1].id)
        elif record[0] in (UNIT_DONE, JOB_GONE):
            ids.discard(record[1])
    return ids


def word(running: Running) -> str | None:
    return StoreMarker(running.daemon.config.dir).read()


@async_test
async def test_the_new_store_is_complete_before_the_old_one_is_left(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switching, "RECORDS_PER_SLICE", 1)
    old, new = RecordingStore(), RecordingStore()
    running = launch("persistence aof", old, {"sqlite": new})
    client = await running.connect()
    jobs = [await client.call("ADDJOB", "q", str(number), 0) for number in range(60)]
    await client.call("PAUSE", "mine", "out")
    await client.call("PAUSE", "other", "in", "node")
    assert word(running) == "aof"
    assert await client.call("CONFIG", "SET", "persistence", "sqlite") == b"OK"
    assert running.daemon.stores.switch.target == "sqlite"
    info = await client.call("INFO", "persistence")
    assert b"persistence:aof\r\n" in info
    assert b"persistence_changing_to:sqlite" in info
    turns = 0
    while running.daemon.stores.switch.target is not None:
        await client.call("ACKJOB", jobs.pop())
        jobs.insert(0, await client.call("ADDJOB", "q", "more", 0))
        turns += 1
        assert held(old.committed) == set(jobs) or running.daemon.stores.switch.target is None
    assert turns > 3
    assert held(new.committed) == set(jobs)
    assert (QUEUE_PAUSED, b"other", 1) in new.committed
    assert [record[1] for record in new.committed if record[0] == POLICY] == [b"mine"]
    assert word(running) == "sqlite"
    assert old.closed
    assert not new.closed
    counted = len(old.committed)
    await client.call("ADDJOB", "q", "last", 0)
    assert len(old.committed) == counted
    assert await client.call("CONFIG", "GET", "persistence") == [b"persistence", b"sqlite"]
    assert await client.call("CONFIG", "GET", "appendonly") == [b"appendonly", b"no"]


@async_test
async def test_nothing_is_acknowledged_while_the_new_store_takes_over(launch: Launch) -> None:
    old, new = RecordingStore(), RecordingStore()
    running = launch("persistence aof", old, {"sqlite": new})
    client = await running.connect()
    await client.call("ADDJOB", "q", "body", 0)
    assert await client.call("CONFIG", "SET", "persistence", "sqlite") == b"OK"
    new.later = True
    await wait_until(lambda: new.under_way is not None)
    while not running.daemon.driver.handover.is_due and not running.daemon.turn.under_way:
        new.answer()
        await wait_until(lambda: new.under_way is not None)
    client.send("ADDJOB", "q", "late", 0)
    await wait_until(lambda: len(running.daemon.node.state.jobs) == 2)
    assert not client.unread_replies
    assert word(running) == "aof"
    new.later = False
    new.answer()
    job_id = (await client.replies(1))[0]
    assert word(running) == "sqlite"
    assert job_id in held(new.committed)


@async_test
@pytest.mark.parametrize("moment", ["open", "renew", "copy", "hand over"])
async def test_a_new_store_that_fails_changes_nothing(
    launch: Launch, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switching, "RETRY_S", 0.001)
    old, new = RecordingStore(), RecordingStore()
    stores: dict[str, Any] = {"sqlite": new}
    running = launch("persistence aof", old, stores)
    client = await running.connect()
    job_id = await client.call("ADDJOB", "q", "body", 0)

    def fail(*_: Any) -> Any:
        raise StoreFailed("disk I/O error")

    if moment in ("open", "renew"):
        if moment == "open":
            running.daemon.stores.switch._open = fail
        else:
            new.renew = fail  # type: ignore[method-assign]
        answer = str(await client.call("CONFIG", "SET", "persistence", "sqlite"))
        assert answer == "ERR The store stays as it is: disk I/O error"
        assert new.discarded is (moment == "renew")
    else:
        if moment == "copy":
            new.fails = True
        else:
            new.before_commit = lambda: setattr(new, "fails", not running.daemon.turn.under_way and bool(new.commits))
        assert await client.call("CONFIG", "SET", "persistence", "sqlite") == b"OK"
        await wait_until(lambda: running.daemon.stores.switch.target is None)
        assert new.discarded
        assert b"persistence_change_failed:sqlite: " in await client.call("INFO", "persistence")
    assert running.daemon.driver.store is old
    assert not old.closed
    assert word(running) == "aof"
    assert await client.call("CONFIG", "GET", "persistence") == [b"persistence", b"aof"]
    assert await client.call("CONFIG", "GET", "appendonly") == [b"appendonly", b"yes"]
    more = await client.call("ADDJOB", "q", "body", 0)
    assert held(old.committed) == {job_id, more}


@async_test
async def test_a_node_whose_store_has_failed_can_be_moved_to_a_good_one(launch: Launch) -> None:
    old, new = RecordingStore(), RecordingStore()
    running = launch("persistence aof", old, {"sqlite": new})
    client = await running.connect()
    job_id = await client.call("ADDJOB", "q", "body", 0)
    old.fails = True
    assert str(await client.call("ADDJOB", "q", "body", 0)).startswith("MISCONF")
    assert await client.call("CONFIG", "SET", "persistence", "sqlite") == b"OK"
    await wait_until(lambda: running.daemon.turn.failure is None)
    more = await client.call("ADDJOB", "q", "body", 0)
    assert held(new.committed) == {job_id, more}


@async_test
async def test_a_new_store_is_told_nothing_before_it_is_empty(launch: Launch) -> None:
    old, new = RecordingStore(), RecordingStore()
    renewing: Deferred[None] = Deferred()
    new.renew = lambda: renewing  # type: ignore[assignment,method-assign,return-value]
    running = launch("persistence aof", old, {"sqlite": new})
    client = await running.connect()
    first = await client.call("ADDJOB", "q", "body", 0)
    assert await client.call("CONFIG", "SET", "persistence", "sqlite") == b"OK"
    second = await client.call("ADDJOB", "q", "body", 0)
    assert new.appended == new.committed == []
    renewing.callback(None)
    await wait_until(lambda: running.daemon.stores.switch.name == "sqlite")
    assert held(new.committed) == {first, second}


@async_test
async def test_a_second_change_waits_until_the_first_is_over(launch: Launch) -> None:
    new = RecordingStore(later=True)
    running = launch("persistence aof", RecordingStore(), {"sqlite": new, "redis": RecordingStore()})
    client = await running.connect()
    await client.call("ADDJOB", "q", "body", 0)
    assert await client.call("CONFIG", "SET", "persistence", "sqlite") == b"OK"
    answer = str(await client.call("CONFIG", "SET", "persistence", "redis"))
    assert answer.startswith("ERR The store stays as it is: the jobs are being copied to `sqlite`")
    assert await client.call("CONFIG", "GET", "persistence") == [b"persistence", b"sqlite"]


@async_test
async def test_a_store_that_keeps_nothing_needs_no_copy(launch: Launch) -> None:
    old, none = RecordingStore(), RecordingStore(records=False)
    running = launch("persistence aof", old, {"none": none})
    client = await running.connect()
    await client.call("ADDJOB", "q", "body", 0)
    assert await client.call("CONFIG", "SET", "appendonly", "no") == b"OK"
    await wait_until(lambda: running.daemon.stores.switch.target is None)
    assert not running.daemon.node.state.journaling
    assert none.committed == []
    assert await client.call("QLEN", "q") == 1
    # The word says which journal was the last, should the node be asked for it again.
    assert word(running) == "aof"


@async_test
async def test_a_node_moves_to_the_store_that_the_configuration_names_by_now(launch: Launch, tmp_path: Path) -> None:
    StoreMarker(tmp_path).write("aof")
    first = launch("persistence aof", RecordingStore())
    client = await first.connect()
    await client.call("ADDJOB", "q", "body", 0)
    job = next(iter(first.daemon.node.state.jobs))
    offset = first.daemon.node.clock.wall() - first.daemon.node.clock.now()
    stored = [decode_record(encode_job(job, offset))]
    await first.stop()
    old, new = RecordingStore(stored=stored), RecordingStore()
    second = launch("persistence sqlite", old, {"sqlite": new}, store_name="aof")
    await wait_until(lambda: second.daemon.stores.switch.name == "sqlite")
    assert held(new.committed) == {job.id}
    assert word(second) == "sqlite"


@async_test
async def test_a_new_store_that_cannot_for_a_while_is_asked_again(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switching, "RETRY_S", 0.001)
    old, new = RecordingStore(), RecordingStore(fails=True)
    running = launch("persistence aof", old, {"sqlite": new})
    client = await running.connect()
    job_id = await client.call("ADDJOB", "q", "body", 0)
    asked = 0

    def ask() -> None:
        nonlocal asked
        asked += 1
        new.fails = asked < 5

    new.before_commit = ask
    assert await client.call("CONFIG", "SET", "persistence", "sqlite") == b"OK"
    await wait_until(lambda: running.daemon.stores.switch.name == "sqlite")
    assert held(new.committed) == {job_id}


@async_test
async def test_the_loop_goes_on_while_the_new_store_is_named_and_a_stop_does_not_undo_that(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    naming, may_end = threading.Event(), threading.Event()
    write = StoreMarker.write

    def write_slowly(marker: StoreMarker, name: str) -> None:
        if name == "sqlite":
            naming.set()
            assert may_end.wait(60)
        write(marker, name)

    monkeypatch.setattr(StoreMarker, "write", write_slowly)
    old, new = RecordingStore(), RecordingStore()
    running = launch("persistence aof", old, {"sqlite": new})
    client = await running.connect()
    job_id = await client.call("ADDJOB", "q", "body", 0)
    assert await client.call("CONFIG", "SET", "persistence", "sqlite") == b"OK"
    await wait_until(naming.is_set)
    assert await client.call("PING") == b"PONG"
    client.send("ADDJOB", "q", "late", 0)
    await wait_until(lambda: len(running.daemon.node.state.jobs) == 2)
    assert not client.unread_replies
    running.daemon.stores.switch.abandon()
    assert not new.discarded
    may_end.set()
    late = (await client.replies(1))[0]
    assert (word(running), running.daemon.stores.switch.name) == ("sqlite", "sqlite")
    assert held(new.committed) == {job_id, late}
    assert old.closed


@async_test
async def test_a_new_store_that_cannot_be_named_is_left(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    write = StoreMarker.write

    def fail(marker: StoreMarker, name: str) -> None:
        if name == "sqlite":
            raise StoreError("store.conf cannot be written: No space left on device")
        write(marker, name)

    monkeypatch.setattr(StoreMarker, "write", fail)
    old, new = RecordingStore(), RecordingStore()
    running = launch("persistence aof", old, {"sqlite": new})
    client = await running.connect()
    job_id = await client.call("ADDJOB", "q", "body", 0)
    assert await client.call("CONFIG", "SET", "persistence", "sqlite") == b"OK"
    await wait_until(lambda: new.discarded)
    assert (word(running), running.daemon.stores.switch.name) == ("aof", "aof")
    assert b"No space left on device" in await client.call("INFO", "persistence")
    more = await client.call("ADDJOB", "q", "more", 0)
    assert held(old.committed) == {job_id, more}
    assert not old.closed


def test_a_word_that_could_not_be_written_to_its_end_is_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path) -> None:
        raise OSError(5, "Input/output error")

    first = StoreMarker(tmp_path)
    monkeypatch.setattr(switching, "sync_folder", fail)
    with pytest.raises(StoreError, match="Input/output error"):
        first.write("aof")
    assert first.read() is None
    monkeypatch.undo()
    first.write("aof")
    monkeypatch.setattr(switching, "sync_folder", fail)
    with pytest.raises(StoreError, match="Input/output error"):
        first.write("sqlite")
    assert first.read() == "aof"


@pytest.mark.parametrize("text", ["", "persistence", "store aof", "persistence aof sqlite", "persistence \xff"])
def test_a_word_that_is_none_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "store.conf").write_text(text, "latin-1")
    with pytest.raises(StoreError, match=r"store\.conf"):
        StoreMarker(tmp_path).read()


@async_test
async def test_a_store_is_looked_for_while_there_is_one(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that keeps nothing on disk does not wake up to look for it."""
    monkeypatch.setattr(storekeeper, "LOOK_S", 0.01)
    store = RecordingStore()
    running = launch("persistence none", None, {"aof": store, "none": RecordingStore(records=False)})
    client = await running.connect()

    def planned() -> bool:
        return any("StoreKeeper._look" in str(call) for call in running.daemon.driver.reactor.getDelayedCalls())

    await wait_until(lambda: not planned())
    assert await client.call("CONFIG", "SET", "persistence", "aof") == b"OK"
    await wait_until(lambda: running.daemon.stores.switch.target is None)
    seen = store.looks
    await wait_until(lambda: store.looks > seen)
    assert await client.call("CONFIG", "SET", "persistence", "none") == b"OK"
    await wait_until(lambda: running.daemon.stores.switch.target is None and not planned())
