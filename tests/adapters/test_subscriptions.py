"""Subscriptions over real sockets: RESP2 arrays, RESP3 pushes, and who may say what meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest_twisted

from disqued.net.clients import connection, pubsub
from tests.adapters.inprocess import RawClient, RecordingStore, Running, pack, wait_until

Launch = Callable[..., Running]
async_test = pytest_twisted.ensureDeferred


async def listener(running: Running, *channels: str, resp3: bool = False) -> RawClient:
    """A client that listens."""
    client = await running.connect()
    if resp3:
        await client.call("HELLO", 3)
    client.send("SUBSCRIBE", *channels)
    await client.replies(len(channels))
    return client


@async_test
async def test_a_subscription_is_confirmed_channel_by_channel(launch: Launch) -> None:
    client = await launch().connect()
    client.send("SUBSCRIBE", "wq:q:work", "wq:q:done")
    assert await client.replies(2) == [[b"subscribe", b"wq:q:work", 1], [b"subscribe", b"wq:q:done", 2]]
    client.send("PSUBSCRIBE", "wq:p:*")
    assert await client.replies(1) == [[b"psubscribe", b"wq:p:*", 3]]
    client.send("UNSUBSCRIBE")
    assert await client.replies(2) == [[b"unsubscribe", b"wq:q:work", 2], [b"unsubscribe", b"wq:q:done", 1]]
    client.send("PUNSUBSCRIBE", "wq:p:*", "nothing")
    assert await client.replies(2) == [[b"punsubscribe", b"wq:p:*", 0], [b"punsubscribe", b"nothing", 0]]
    client.send("UNSUBSCRIBE")
    assert await client.replies(1) == [[b"unsubscribe", None, 0]]


@async_test
async def test_events_come_to_who_listens_to_the_channel_or_to_a_pattern(launch: Launch) -> None:
    running = launch()
    plain = await listener(running, "wq:q:work")
    other = await listener(running, "wq:other:work")
    pattern = await running.connect()
    pattern.send("PSUBSCRIBE", "wq:q:*")
    await pattern.replies(1)
    producer = await running.connect()
    await producer.call("WQ.ENQUEUE", "q", "TASKS", "a", "b")
    assert await plain.replies(1) == [[b"message", b"wq:q:work", b"2"]]
    assert await pattern.replies(1) == [[b"pmessage", b"wq:q:*", b"wq:q:work", b"2"]]
    await producer.call("WQ.CANCEL", "q", "a")
    assert await pattern.replies(1) == [[b"pmessage", b"wq:q:*", b"wq:q:cancel", b"a"]]
    assert plain.unread_replies == other.unread_replies == 0


@async_test
async def test_under_resp3_events_are_pushes_and_every_command_may_be_said(launch: Launch) -> None:
    running = launch()
    client = await listener(running, "wq:q:work", resp3=True)
    client.received.clear()
    client.send("ADDJOB", "q", "a", 0)
    await client.replies(2)
    assert b">3\r\n$7\r\nmessage\r\n$9\r\nwq:q:work\r\n$1\r\n1\r\n" in client.received
    assert await client.call("PING") == b"PONG"


@async_test
async def test_under_resp2_who_listens_says_little_else(launch: Launch) -> None:
    client = await listener(launch(), "wq:q:work")
    assert str(await client.call("QLEN", "q")).startswith("ERR Can't execute 'qlen'")
    assert await client.call("PING") == [b"pong", b""]
    assert await client.call("PING", "x") == [b"pong", b"x"]
    assert await client.call("RESET") == b"RESET"
    assert await client.call("QLEN", "q") == 0


@async_test
async def test_reset_ends_what_the_connection_listens_to(launch: Launch) -> None:
    running = launch()
    client = await listener(running, "wq:q:work", resp3=True)
    client.send("RESET")
    await client.replies(1)
    assert not running.daemon.pubsub.channels
    assert not running.daemon.node.notifications.listens
    assert await client.call("ADDJOB", "q", "a", 0)
    assert client.unread_replies == 0


@async_test
async def test_a_connection_that_ends_listens_no_more(launch: Launch) -> None:
    running = launch()
    client = await listener(running, "wq:q:work", "wq:q:done")
    assert running.daemon.node.notifications.listens
    client.transport.abortConnection()
    await wait_until(lambda: not running.daemon.pubsub.channels)
    assert not running.daemon.node.notifications.listens


@async_test
async def test_what_comes_in_one_turn_is_told_once(launch: Launch) -> None:
    running = launch()
    client = await listener(running, "wq:q:work")
    producer = await running.connect()
    producer.transport.write(b"".join(pack("ADDJOB", "q", n, 0) for n in range(50)))
    await producer.replies(50)
    told: list[Any] = []
    while sum(int(count) for _, _, count in told) < 50:
        told += await client.replies(1)
    assert sum(int(count) for _, _, count in told) == 50
    assert len(told) < 10


@async_test
async def test_an_event_waits_for_the_commit_of_what_it_tells(launch: Launch) -> None:
    store = RecordingStore(later=True)
    running = launch(store=store)
    client = await listener(running, "wq:q:work")
    producer = await running.connect()
    producer.send("WQ.ENQUEUE", "q", "TASKS", "a")
    await wait_until(lambda: store.under_way is not None)
    assert client.unread_replies == producer.unread_replies == 0
    store.answer()
    assert await client.replies(1) == [[b"message", b"wq:q:work", b"1"]]
    assert len(await producer.replies(1)) == 1


@async_test
async def test_ids_of_tasks_that_could_not_be_made_durable_are_not_told(launch: Launch) -> None:
    store = RecordingStore(fails=True)
    running = launch(store=store)
    client = await running.connect()
    assert str(await client.call("WQ.ENQUEUE", "q", "TASKS", "a", "b")).startswith("MISCONF")
    assert len(running.daemon.node.state.jobs) == 0


@async_test
async def test_a_listener_that_does_not_read_is_dropped(launch: Launch, monkeypatch: Any) -> None:
    monkeypatch.setattr(connection, "UNREAD_MAX", 200_000)
    running = launch()
    slow = await listener(running, "wq:q:cancel")
    slow.transport.pauseProducing()
    quick = await running.connect()
    for _ in range(200):
        if len(running.daemon.clients.by_id) == 1:
            break
        await quick.call("WQ.CANCEL", "q", "x" * 100_000)
    await wait_until(lambda: len(running.daemon.clients.by_id) == 1)
    assert not running.daemon.pubsub.channels


@async_test
async def test_there_is_a_limit_to_what_one_connection_listens_to(launch: Launch, monkeypatch: Any) -> None:
    monkeypatch.setattr(pubsub, "SUBSCRIPTIONS_MAX", 3)
    client = await listener(launch(), "a", "b")
    assert str(await client.call("SUBSCRIBE", "c", "d")).startswith("ERR a connection listens to")
    client.send("SUBSCRIBE", "a", "c")
    assert await client.replies(2) == [[b"subscribe", b"a", 2], [b"subscribe", b"c", 3]]
    assert str(await client.call("PSUBSCRIBE", "x" * 2_000)).startswith("ERR a connection listens to")


@async_test
async def test_the_one_who_asks_for_work_is_told(launch: Launch) -> None:
    running = launch()
    asker = await listener(running, "wq:q:work", resp3=True)
    other = await listener(running, "wq:q:work")
    await other.call("PING")
    asker.send("ADDJOB", "q", "a", 0)
    await asker.replies(2)
    await other.replies(1)
    asker.send("WQ.REQUEST", "q")
    replies = await asker.replies(2)
    assert 1 in replies
    assert await other.call("PING") == [b"pong", b""]


@async_test
async def test_the_end_of_a_bound_workers_connection_is_its_death_at_once(launch: Launch) -> None:
    running = launch()
    worker, waiting, producer = [await running.connect() for _ in range(3)]
    await producer.call("WQ.ENQUEUE", "q", "TASKS", "a")
    for client in (worker, waiting):
        await client.call("WORKER", "START", "BIND", "TTL", 0)
        await client.call("WQ.WORK", "q")
    assert len(await worker.call("WQ.DEQUEUE", "q")) == 1
    waiting.send("WQ.DEQUEUE", "q", "BLOCK", 0)
    await wait_until(lambda: bool(running.daemon.node.state.waiting.blocked))
    worker.transport.abortConnection()
    [[[queue, process, task]]] = await waiting.replies(1)
    assert (queue, task) == (b"q", b"a")
    assert process.endswith(b":2")


@async_test
async def test_one_hundred_clients_add_a_unique_task_once(launch: Launch) -> None:
    running = launch()
    clients_ = [await running.connect() for _ in range(100)]
    for client in clients_:
        client.send("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", "the task")
    replies = [(await client.replies(1))[0] for client in clients_]
    added = [reply for reply in replies if isinstance(reply, list)]
    assert len(added) == 1
    refused = [reply for reply in replies if not isinstance(reply, list)]
    assert {str(error) for error in refused} == {f"DUPLICATE {added[0][0].decode()}"}


@async_test
async def test_a_worker_of_the_admin_side_lives_its_time_and_leaves_nothing_behind(launch: Launch) -> None:
    running = launch()
    daemon = running.daemon
    await daemon.clients.call([b"WORKER", b"START", b"ID", b"w"], address="page")
    assert list(daemon.node.workers.by_id) == [b"w"]
    assert daemon.node.sessions.by_client == {}
    await daemon.clients.call([b"WORKER", b"START", b"ID", b"v", b"BIND"], address="page")
    assert list(daemon.node.workers.by_id) == [b"w"]


@async_test
async def test_names_and_patterns_of_a_connection_are_bounded_together(launch: Launch, monkeypatch: Any) -> None:
    monkeypatch.setattr(pubsub, "SUBSCRIPTION_BYTES_MAX", 10)
    client = await listener(launch(), "a" * 6)
    assert "of 10 bytes together" in str(await client.call("PSUBSCRIBE", "b" * 5))
    client.send("SUBSCRIBE", "a" * 6, "c" * 4)
    assert len(await client.replies(2)) == 2


@async_test
async def test_events_are_tried_with_so_many_patterns_in_a_turn_and_come_in_order(
    launch: Launch, monkeypatch: Any
) -> None:
    running = launch()
    listens, producer = await running.connect(), await running.connect()
    listens.send("PSUBSCRIBE", *[f"*none{n}" for n in range(300)], "wq:q:*")
    await listens.replies(301)
    spent: list[int] = []
    turn = running.daemon.pubsub._next_turn

    def note() -> None:
        turn()
        spent.append(running.daemon.pubsub._spent)

    monkeypatch.setattr(pubsub, "TURN_UNITS", 500)
    monkeypatch.setattr(running.daemon.pubsub, "_next_turn", note)
    for task in ("a", "b", "c"):
        await producer.call("WQ.CANCEL", "q", task)
    told = await listens.replies(3)
    assert [content for _, _, _, content in told] == [b"a", b"b", b"c"]
    # 300 patterns of 6 to 8 bytes, three times: 500 and at most one match more in each turn.
    assert 9 <= len(spent) <= 30
    assert max(spent) < 500 + 20


@async_test
async def test_who_listens_to_most_is_ended_when_events_pile_up(launch: Launch, monkeypatch: Any) -> None:
    running = launch()
    heavy, light, producer = [await running.connect() for _ in range(3)]
    heavy.send("PSUBSCRIBE", *[f"*none{n}" for n in range(300)])
    await heavy.replies(300)
    light.send("PSUBSCRIBE", "wq:q:*")
    await light.replies(1)
    monkeypatch.setattr(pubsub, "TURN_UNITS", 10)
    monkeypatch.setattr(pubsub, "WAITING_MAX", 10_000)
    monkeypatch.setattr(running.daemon.pubsub, "_next_turn", lambda: None)  # nothing else has its turn
    for n in range(40):
        await producer.call("WQ.CANCEL", "q", n)
    await wait_until(lambda: len(running.daemon.clients.by_id) == 2)
    assert list(running.daemon.pubsub.patterns) == [b"wq:q:*"]
    monkeypatch.undo()
    running.daemon.pubsub._next_turn()
    assert [content for _, _, _, content in await light.replies(40)] == [b"%d" % n for n in range(40)]
