"""The Redis store while its server is away, hangs, refuses or has just come back."""

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.protocol import Factory, Protocol
from twisted.protocols.portforward import ProxyClient, ProxyClientFactory, ProxyFactory

from disqued.core.model.outbox import GONE_EXPIRED, JOB_GONE, QUEUE_PAUSED, UNIT_DONE
from disqued.core.model.queues import PAUSE_IN
from disqued.persistence.interface import StoreError, StoreFailed
from disqued.persistence.redis import link as redis_link
from disqued.persistence.redis import sending
from tests.contract.redis_runs import Run, added, make_job, read, until
from tests.redis_server import RedisServer

async_test = pytest_twisted.ensureDeferred
Runs = Callable[..., Run]

#: A server that keeps what it has acknowledged, whatever happens to it.
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


def ids(*numbers: int) -> set[bytes]:
    return {make_job(number).id for number in numbers}


@async_test
async def test_a_commit_says_who_is_away_and_how_much_waits_and_nothing_is_forgotten(
    own_server: RedisServer, run: Runs
) -> None:
    own_server.start(*DURABLE)
    node = run(own_server)
    await node.start()
    await node.put(*added(1))
    own_server.kill()
    with pytest.raises(StoreFailed) as caught:
        await node.put(*added(2, 3))
    assert str(caught.value) == f"redis {own_server.name}: connection refused; 2 records wait"
    assert not caught.value.final
    status = node.store.status()
    assert (status["redis_connected"], status["redis_backlog_records"]) == (0, 2)
    assert (status["aof_last_write_status"], status["redis_last_error"]) == ("err", "connection refused")
    own_server.start(*DURABLE)
    await node.commit_until_good()
    assert node.stored() == ids(1, 2, 3)
    assert node.store.status()["aof_last_write_status"] == "ok"
    assert node.store.status()["redis_backlog_bytes"] == 0


@async_test
@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
async def test_a_server_that_is_killed_again_and_again_costs_nothing_and_nothing_is_there_twice(
    own_server: RedisServer, run: Runs, policy: str
) -> None:
    own_server.start(*DURABLE)
    node = run(own_server, appendfsync=policy)
    await node.start()
    chance = random.Random(7)
    acknowledged: set[bytes] = set()
    over: list[bytes] = []
    for turn in range(60):
        jobs = [make_job(10 * turn + each) for each in range(chance.randrange(1, 8))]
        node.store.append([(0, job) for job in jobs])
        node.store.append([(UNIT_DONE, jobs[0].id, b"")])
        over.append(jobs[0].id)
        if turn % 12 == 5:
            own_server.kill()
        if turn % 12 == 9:
            own_server.start(*DURABLE)
        with contextlib.suppress(StoreFailed):
            await node.commit()
            acknowledged |= {job.id for job in jobs[1:]}
            if policy == "always":
                assert acknowledged <= node.stored()
    own_server.restart()
    await node.commit_until_good()
    await node.drained()
    assert acknowledged <= node.stored()
    assert [entry[b"id"] for entry in node.noted("done")] == over
    assert int(own_server.call("HGET", node.key("meta"), "sequence")) > 0


@async_test
async def test_a_commit_that_the_server_does_not_answer_fails_after_a_limit(
    server: RedisServer, run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_link, "PATIENCE_S", 0.3)
    node = run(server)
    await node.start()
    with server.paused():
        with pytest.raises(StoreFailed, match=r"no answer within 0\.3 s; 1 records wait"):
            await node.put(*added(1))
        with pytest.raises(StoreFailed, match="1 records wait"):
            await node.commit()
    await node.commit_until_good()
    assert node.stored() == ids(1)


@async_test
@pytest.mark.parametrize("policy", ["everysec", "no"])
async def test_records_wait_for_a_server_that_is_away_as_far_as_the_backlog_has_room(
    own_server: RedisServer, run: Runs, policy: str
) -> None:
    own_server.start(*DURABLE)
    node = run(own_server, appendfsync=policy, redis_backlog=100_000)
    await node.start()
    own_server.kill()
    count = 0
    while node.store.status()["redis_backlog_bytes"] <= 100_000:
        await node.commit()
        count += 1
        node.store.append(added(count))
    with pytest.raises(StoreFailed) as caught:
        await node.commit()
    status = node.store.status()
    assert 100_000 < status["redis_backlog_bytes"] < 101_000
    assert "redis-backlog is 100000" in str(caught.value)
    assert not caught.value.final
    own_server.start(*DURABLE)
    await node.commit_until_good()
    assert node.store.status()["redis_backlog_bytes"] <= 50_000
    await node.drained()
    assert node.stored() == ids(*range(1, count + 1))


@async_test
async def test_the_room_of_the_backlog_can_be_changed_while_the_store_runs(own_server: RedisServer, run: Runs) -> None:
    own_server.start(*DURABLE)
    node = run(own_server, appendfsync="everysec", redis_backlog=1)
    await node.start()
    own_server.kill()
    with pytest.raises(StoreFailed, match="redis-backlog is 1"):
        await node.put(*added(1))
    node.settings.redis_backlog = 100_000
    node.store.configure(node.settings)
    await node.commit()
    own_server.start(*DURABLE)
    await node.drained()
    assert node.stored() == ids(1)


class Mute(ProxyClient):
    """The side of a proxy that talks to the server: it can keep the answers to itself."""

    def dataReceived(self, data: bytes) -> None:
        if not self.factory.is_mute():
            super().dataReceived(data)


class MuteClientFactory(ProxyClientFactory):
    protocol = Mute
    noisy = False


class Wire(ProxyFactory):
    """Carries bytes between a store and its server, and can be cut."""

    noisy = False

    def __init__(self, server: RedisServer) -> None:
        super().__init__("127.0.0.1", server.port)
        self.ends: list[Any] = []
        self.mute = False

    def buildProtocol(self, addr: Any) -> Any:
        end = super().buildProtocol(addr)
        end.clientProtocolFactory = self._client_factory
        self.ends.append(end)
        return end

    def _client_factory(self) -> ProxyClientFactory:
        factory = MuteClientFactory()
        factory.is_mute = lambda: self.mute
        return factory

    def cut(self) -> None:
        """End every connection."""
        ends, self.ends = self.ends, []
        for end in ends:
            if end.transport is not None:
                end.transport.abortConnection()


@pytest.fixture
def wire(server: RedisServer) -> Iterator[Wire]:
    wire = Wire(server)
    port = pytest_twisted.blockon(serverFromString(reactor, "tcp:0:interface=127.0.0.1").listen(wire))
    wire.url = f"redis://127.0.0.1:{port.getHost().port}/0"
    yield wire
    wire.cut()
    pytest_twisted.blockon(port.stopListening())


@async_test
async def test_a_batch_whose_answer_was_lost_is_not_applied_again(server: RedisServer, run: Runs, wire: Wire) -> None:
    node = run(server, redis_url=wire.url)
    await node.start()
    await node.put(*added(1, 2))
    wire.mute = True
    node.store.append([(UNIT_DONE, make_job(1).id, b""), *added(3)])
    commit = node.store.commit()
    await until(lambda: node.stored() == ids(2, 3), "the batch is applied")
    wire.mute = False
    wire.cut()
    await commit
    await node.put((JOB_GONE, make_job(2).id, GONE_EXPIRED))
    assert node.stored() == ids(3)
    assert len(node.noted("done")) == len(node.noted("evictions")) == 1
    assert server.call("HGET", node.key("meta"), "sequence") == b"3"


@async_test
async def test_a_connection_that_is_cut_delays_a_commit_and_no_more(server: RedisServer, run: Runs, wire: Wire) -> None:
    node = run(server, redis_url=wire.url)
    await node.start()
    for number in range(20):
        node.store.append(added(number))
        commit = node.store.commit()
        wire.cut()
        await commit
        await node.commit()
    assert node.stored() == ids(*range(20))


@async_test
async def test_a_server_out_of_memory_is_quoted_and_waited_for(own_server: RedisServer, run: Runs) -> None:
    own_server.start("--maxmemory-policy", "noeviction")
    node = run(own_server)
    await node.start()
    await node.put(*added(1))
    own_server.call("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreFailed, match="OOM command not allowed") as caught:
        await node.put((UNIT_DONE, make_job(1).id, b""), *added(2))
    assert not caught.value.final
    with pytest.raises(StoreFailed, match="OOM command not allowed"):
        await node.commit()
    assert node.stored() == ids(1)
    own_server.call("CONFIG", "SET", "maxmemory", "0")
    await node.commit_until_good()
    assert node.stored() == ids(2)
    assert len(node.noted("done")) == 1


@async_test
async def test_a_full_server_is_relieved_of_the_jobs_that_are_over_and_takes_jobs_again(
    own_server: RedisServer, run: Runs
) -> None:
    own_server.start("--maxmemory-policy", "noeviction")
    node = run(own_server)
    await node.start()
    await node.put(*((0, make_job(number, body=b"x" * 20_000)) for number in range(500)))
    used = own_server.call("INFO", "memory")["used_memory"]
    own_server.call("CONFIG", "SET", "maxmemory", used - 1_000_000)
    with pytest.raises(StoreFailed, match="OOM command not allowed"):
        await node.put(*added(1_000))
    node.store.append([(JOB_GONE, make_job(1_000).id, GONE_EXPIRED), (QUEUE_PAUSED, b"q", PAUSE_IN)])
    node.store.append([(UNIT_DONE, make_job(number).id, b"") for number in range(400)])
    node.store.append([(JOB_GONE, make_job(number).id, GONE_EXPIRED) for number in range(400, 450)])
    await node.commit_until_good()
    assert node.stored() == ids(*range(450, 500))
    assert [entry[b"id"] for entry in node.noted("done")] == [make_job(number).id for number in range(400)]
    assert len(node.noted("evictions")) == 51
    await node.put(*added(2_000))
    await node.close()
    assert len(await run(own_server).start()) == 52


@async_test
async def test_a_server_that_has_become_a_replica_is_quoted_and_waited_for(own_server: RedisServer, run: Runs) -> None:
    own_server.start("--replica-serve-stale-data", "yes")
    node = run(own_server)
    await node.start()
    own_server.call("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(StoreFailed, match="READONLY") as caught:
        await node.put(*added(1))
    assert not caught.value.final
    own_server.call("REPLICAOF", "NO", "ONE")
    await node.commit_until_good()
    assert node.stored() == ids(1)


@async_test
async def test_a_password_that_changes_meanwhile_is_waited_for(own_server: RedisServer, run: Runs) -> None:
    own_server.start("--requirepass", "secret")
    node = run(own_server, redis_url=own_server.url.replace("//", "//:secret@"))
    await node.start()
    own_server.call("CONFIG", "SET", "requirepass", "other")
    own_server.options = ("--requirepass", "other")
    own_server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    with pytest.raises(StoreFailed, match="WRONGPASS") as caught:
        await node.put(*added(1))
    assert not caught.value.final
    own_server.call("CONFIG", "SET", "requirepass", "secret")
    own_server.options = ("--requirepass", "secret")
    await node.commit_until_good()
    assert node.stored() == ids(1)


@async_test
@pytest.mark.parametrize(("account", "said"), [(":wrong@", "WRONGPASS"), ("", "NOAUTH"), ("ann:secret@", "WRONGPASS")])
async def test_a_start_with_a_wrong_password_is_refused(
    own_server: RedisServer, run: Runs, account: str, said: str
) -> None:
    own_server.start("--requirepass", "secret")
    node = run(own_server, redis_url=own_server.url.replace("//", f"//{account}"))
    with pytest.raises(StoreError, match=f"redis {own_server.name}: {said}"):
        await node.start()


@async_test
async def test_a_database_that_does_not_exist_is_refused(server: RedisServer, run: Runs) -> None:
    with pytest.raises(StoreError, match="DB index is out of range"):
        await run(server, redis_url=server.url.replace("/0", "/9999")).start()


class Web(Protocol):
    def dataReceived(self, data: bytes) -> None:
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


class Parrot(Protocol):
    def dataReceived(self, data: bytes) -> None:
        self.transport.write(b"+HELLO\r\n")


@async_test
@pytest.mark.parametrize("kind", [Web, Parrot])
async def test_what_is_no_redis_server_is_refused(server: RedisServer, run: Runs, kind: type[Protocol]) -> None:
    port = await serverFromString(reactor, "tcp:0:interface=127.0.0.1").listen(Factory.forProtocol(kind))
    try:
        with pytest.raises(StoreError, match="what answers there is no Redis server"):
            await run(server, redis_url=f"redis://127.0.0.1:{port.getHost().port}").start()
    finally:
        await port.stopListening()


@async_test
async def test_a_start_waits_for_its_server(own_server: RedisServer, run: Runs) -> None:
    node = run(own_server)
    loaded = Deferred.fromCoroutine(node.start())
    await until(lambda: node.store.status()["redis_last_error"] == "connection refused", "an attempt in vain")
    assert not loaded.called
    own_server.start()
    assert await loaded == []
    await node.put(*added(1))


@async_test
async def test_to_begin_anew_without_a_server_fails_at_once(own_server: RedisServer, run: Runs) -> None:
    node = run(own_server)
    node.store.open()
    with pytest.raises(StoreFailed, match=f"redis {own_server.name}: connection refused"):
        await node.store.renew()


@async_test
async def test_a_host_without_an_address_is_told_by_its_name(server: RedisServer, run: Runs) -> None:
    node = run(server, redis_url="redis://no-such-host.invalid:6379/0")
    node.store.open()
    with pytest.raises(StoreFailed, match=r"redis no-such-host\.invalid:6379: the name of the host is not known"):
        await node.store.renew()


@async_test
@pytest.mark.parametrize("enqueue_once", [False, True])
async def test_a_server_that_is_started_again_while_jobs_are_loaded_loses_none(
    own_server: RedisServer, run: Runs, monkeypatch: pytest.MonkeyPatch, enqueue_once: bool
) -> None:
    monkeypatch.setattr("disqued.persistence.redis.reading.PAGE", 50)
    own_server.start(*DURABLE)
    before = run(own_server)
    await before.start()
    jobs = [make_job(number) for number in range(1_000)]
    await before.store.rewrite((0, job) for job in jobs)
    await before.close()
    node = run(own_server, aof_enqueue_jobs_once=enqueue_once)
    node.store.open()
    found: list[bytes] = []
    for record in node.store.load():
        if isinstance(record, Deferred):
            await record
            continue
        found.append(record[1].id)
        if len(found) in (120, 350):
            own_server.restart()
    if enqueue_once:
        assert found == [job.id for job in jobs]
    else:
        assert set(found) == {job.id for job in jobs}
    assert node.store.bytes_loaded == node.store.bytes_total > 0


async def until_first(records: Iterator[Any]) -> None:
    """Draw what is to be waited for, and one record."""
    while isinstance(record := next(records), Deferred):
        await record


@async_test
async def test_a_server_that_is_emptied_while_jobs_are_loaded_ends_the_start(
    own_server: RedisServer, run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disqued.persistence.redis.reading.PAGE", 50)
    own_server.start()
    before = run(own_server)
    await before.start()
    await before.put(*added(*range(1_000)))
    await before.close()
    node = run(own_server)
    node.store.open()
    records = node.store.load()
    await until_first(records)
    own_server.restart()
    with pytest.raises(StoreError, match="its data have changed while they were being loaded"):
        await read(records)


@async_test
async def test_the_end_waits_for_the_server_but_not_for_ever(
    own_server: RedisServer, run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "LAST_WAIT_S", 0.2)
    own_server.start(*DURABLE)
    node = run(own_server, appendfsync="everysec")
    await node.start()
    own_server.kill()
    await node.put(*added(1, 2))
    with pytest.raises(StoreFailed, match="connection refused; 2 records wait"):
        await node.close()


@async_test
async def test_the_end_writes_what_still_waits(own_server: RedisServer, run: Runs) -> None:
    own_server.start(*DURABLE)
    node = run(own_server, appendfsync="everysec")
    await node.start()
    own_server.kill()
    await node.put(*added(1, 2))
    closing = Deferred.fromCoroutine(node.close())
    await until(lambda: node.store.status()["redis_last_error"] == "connection refused", "an attempt in vain")
    own_server.start(*DURABLE)
    await closing
    assert node.stored() == ids(1, 2)
    assert own_server.call("EXISTS", node.key("owner")) == 0


@async_test
async def test_a_server_that_forgot_the_scripts_is_given_them_again(server: RedisServer, run: Runs) -> None:
    node = run(server)
    await node.start()
    server.call("SCRIPT", "FLUSH")
    await node.put(*added(1))
    assert node.stored() == ids(1)


@async_test
async def test_a_large_commit_goes_in_several_batches(server: RedisServer, run: Runs) -> None:
    node = run(server)
    await node.start()
    await node.put(*added(*range(1_234)))
    await node.put((0, make_job(5_000, body=b"x" * 3_000_000)), *added(5_001))
    assert node.stored() == ids(*range(1_234), 5_000, 5_001)
    assert int(server.call("HGET", node.key("meta"), "sequence")) == 3 + 2
