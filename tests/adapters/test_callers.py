"""Callers: commands without a connection hear what is durable, and give back what they do not hear of."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import CancelledError, Deferred

from disqued.core.model.outbox import GONE_REFUSED, JOB_ADDED, JOB_GONE
from disqued.errors import CommandError, JournalFailed, Loading, NotAuthenticated, NotNow, OutOfMemory, UnknownCommand
from disqued.persistence.interface import StoreFailed
from tests.adapters.inprocess import RecordingStore, Running, wait_until

Launch = Callable[..., Running]
async_test = pytest_twisted.ensureDeferred
WHO = "192.0.2.1:50000/ann"


def call(running: Running, *words: bytes | str | int) -> "Deferred[Any]":
    """Run a command as the admin side does."""
    return running.daemon.clients.call(
        [word if isinstance(word, bytes) else str(word).encode() for word in words], address=WHO
    )


async def error_of(call: "Deferred[Any]") -> CommandError:
    """The error that a command answers."""
    with pytest.raises(CommandError) as error:
        await call
    return error.value


async def ready(launch: Launch, *arguments: Any, **options: Any) -> Running:
    running = launch(*arguments, **options)
    await wait_until(lambda: not running.daemon.loading)
    return running


@async_test
async def test_a_caller_hears_the_value_of_its_command(launch: Launch) -> None:
    running = await ready(launch)
    job_id = await call(running, "ADDJOB", "q", b"\xff", 0)
    assert await call(running, "QLEN", "q") == 1
    assert (await call(running, "GETJOB", "FROM", "q"))[0][:3] == (b"q", job_id, b"\xff")
    assert await call(running, "ACKJOB", job_id) == 1
    assert running.daemon.dispatch.commands_run == 4


@async_test
async def test_an_id_is_told_after_the_commit(launch: Launch) -> None:
    store = RecordingStore()
    running = await ready(launch, store=store)
    heard: list[Any] = []
    before: list[bool] = []
    store.before_commit = lambda: before.append(bool(heard))
    job_id = await call(running, "ADDJOB", "q", "body", 0).addCallback(lambda value: heard.append(value) or value)
    assert before == [False]
    assert [record[1].id for record in store.committed if record[0] == JOB_ADDED] == [job_id]


@async_test
async def test_an_id_is_told_after_a_commit_that_takes_its_time(launch: Launch) -> None:
    store = RecordingStore(later=True)
    running = await ready(launch, store=store)
    outcome = call(running, "ADDJOB", "q", "body", 0)
    await wait_until(lambda: store.under_way is not None)
    assert not outcome.called
    store.answer()
    assert outcome.called
    assert (await outcome).startswith(b"DI")


@pytest.mark.parametrize("later", [False, True])
@async_test
async def test_a_commit_that_fails_gives_an_error_and_the_job_is_forgotten(launch: Launch, later: bool) -> None:
    store = RecordingStore(later=later, fails=not later)
    running = await ready(launch, store=store)
    outcome = call(running, "ADDJOB", "q", "body", 0)
    if later:
        await wait_until(lambda: store.under_way is not None)
        store.answer(StoreFailed("No space left on device", final=False))
    error = await error_of(outcome)
    assert isinstance(error, JournalFailed)
    assert "No space left on device" in error.text
    assert not running.daemon.node.state.jobs
    gone = [record for record in store.appended if record[0] == JOB_GONE]
    assert [record[2] for record in gone] == [GONE_REFUSED]
    assert isinstance(await error_of(call(running, "ADDJOB", "q", "body", 0)), JournalFailed)


@async_test
async def test_an_event_that_is_done_by_its_delivery_is_not_told_when_that_cannot_be_kept(launch: Launch) -> None:
    store = RecordingStore()
    running = await ready(launch, store=store)
    for body in ("first", "second"):
        await call(running, "QADD", "log", 60, body)
    store.fails = True
    assert isinstance(await error_of(call(running, "QGET", "log", "g", "EX", 0)), JournalFailed)
    assert (await call(running, "QGET", "log", "g", "EX", 30))[1] == b"second"


@async_test
async def test_a_blocked_caller_hears_of_the_job_that_comes(launch: Launch) -> None:
    running = await ready(launch)
    waiting = call(running, "GETJOB", "FROM", "q")
    assert not waiting.called
    assert len(running.daemon.node.state.waiting.blocked) == 1
    job_id = await call(running, "ADDJOB", "q", "body", 0)
    assert [row[1] for row in await waiting] == [job_id]
    assert not running.daemon.node.state.waiting.blocked


@async_test
async def test_a_blocked_caller_that_goes_waits_no_more(launch: Launch) -> None:
    running = await ready(launch)
    waiting = call(running, "GETJOB", "FROM", "q")
    waiting.cancel()
    with pytest.raises(CancelledError):
        await waiting
    assert not running.daemon.node.state.waiting.blocked
    await call(running, "ADDJOB", "q", "body", 0)
    assert await call(running, "QLEN", "q") == 1


@async_test
async def test_a_time_out_answers_null(launch: Launch) -> None:
    running = await ready(launch)
    assert await call(running, "GETJOB", "TIMEOUT", 1, "FROM", "q") is None


@async_test
async def test_jobs_that_a_caller_did_not_hear_of_go_back(launch: Launch) -> None:
    store = RecordingStore()
    running = await ready(launch, store=store)
    job_id = await call(running, "ADDJOB", "q", "body", 0)
    store.later = True
    taking = call(running, "GETJOB", "FROM", "q")
    assert not taking.called
    assert running.daemon.node.state.queues.by_name[b"q"].jobs_out == 1
    taking.cancel()
    with pytest.raises(CancelledError):
        await taking
    store.answer_at_once()
    assert [row[1] for row in await call(running, "GETJOB", "FROM", "q")] == [job_id]


@async_test
async def test_nothing_goes_back_while_the_node_stops(launch: Launch) -> None:
    running = await ready(launch, store=RecordingStore())
    await call(running, "ADDJOB", "q", "body", 0)
    taking = call(running, "GETJOB", "FROM", "q")
    running.daemon.traffic.ending = True
    taking.cancel()
    with pytest.raises(CancelledError):
        await taking
    assert await call(running, "QLEN", "q") == 0


@async_test
async def test_what_may_not_run_now_says_so(launch: Launch) -> None:
    running = await ready(launch)
    running.daemon.dispatch.set_loading(loading=True)
    assert isinstance(await error_of(call(running, "QLEN", "q")), Loading)
    running.daemon.dispatch.set_loading(loading=False)
    running.daemon.clients.pause(60_000)
    assert isinstance(await error_of(call(running, "QLEN", "q")), NotNow)
    running.daemon.clients.end_pause()
    assert isinstance(await error_of(call(running, "NOPE")), UnknownCommand)
    assert "MONITOR needs a connection of its own" in (await error_of(call(running, "MONITOR"))).text
    assert not running.daemon.dispatch.monitors


@async_test
async def test_a_caller_needs_no_password(launch: Launch) -> None:
    running = await ready(launch, "requirepass secret")
    assert await call(running, "QLEN", "q") == 0
    client = await running.connect()
    assert str(await client.call("QLEN", "q")).startswith(NotAuthenticated.code)


@async_test
async def test_full_memory_is_told(launch: Launch) -> None:
    running = await ready(launch)
    await call(running, "ADDJOB", "q", "body", 0)
    running.daemon.node.state.memory.set_limit(1)
    assert isinstance(await error_of(call(running, "ADDJOB", "q", "body", 0)), OutOfMemory)


@async_test
async def test_a_bug_is_an_internal_error_with_a_report(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await ready(launch)
    monkeypatch.setattr("disqued.commands.queues.QLen.run", lambda *_: 1 / 0)
    assert (await error_of(call(running, "QLEN", "q"))).text == "internal error"
    assert running.daemon.crashes.count == 1
    assert len(list(tmp_path.glob("crash-*.txt"))) == 1


@async_test
async def test_a_caller_is_no_client_and_monitors_and_the_slow_log_name_it(launch: Launch) -> None:
    running = await ready(launch, "slowlog-log-slower-than 0")
    client = await running.connect()
    client.send("MONITOR")
    await client.replies(1)
    assert (await call(running, "CLIENT", "LIST")).count(b" addr=") == 1
    await client.until(lambda: WHO.encode() in client.received)
    assert WHO.encode() in [entry.address for entry in running.daemon.slowlog]


@async_test
async def test_a_command_on_very_many_jobs_is_done_in_parts(launch: Launch) -> None:
    running = await ready(launch)
    ids = [await call(running, "ADDJOB", "q", "body", 0) for _ in range(3)]
    words = ids + [ids[0][:10] + b"%032x" % number + ids[0][42:] for number in range(100_000)]
    outcome = call(running, "ACKJOB", *words)
    assert not outcome.called
    assert await call(running, "QLEN", "nobody") == 0
    assert not outcome.called
    assert await outcome == 3
    assert await call(running, "QLEN", "q") == 0


@async_test
async def test_shutdown_ends_the_node(launch: Launch) -> None:
    running = await ready(launch)
    outcome = call(running, "SHUTDOWN")
    await wait_until(lambda: running.stopped)
    assert outcome.called
    assert await outcome is None
    assert isinstance(await error_of(call(running, "QLEN", "q")), NotNow)


@async_test
async def test_a_caller_hears_that_a_shutdown_has_failed(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    running = await ready(launch, store=RecordingStore())

    async def fail() -> None:
        raise StoreFailed("No space left on device", final=False)

    monkeypatch.setattr(running.daemon.stores, "write_snapshot", fail)
    error = await error_of(call(running, "SHUTDOWN", "REWRITE-AOF"))
    assert error.text == "Errors trying to SHUTDOWN. Check logs."
    assert await call(running, "QLEN", "q") == 0
