"""A worker's decisions: when WORKING is due, how a failed job is given back, and what is left when it stops."""

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

import pytest

from disqued.client import aio, blocking, commands, deferred
from disqued.client.job import Job
from disqued.client.tasks import (
    REASON_MAX,
    Backoff,
    Bury,
    Drop,
    GiveBack,
    GoOn,
    MoveTo,
    NextStep,
    Phase,
    RetryLater,
    Task,
    Tasks,
    check_calls,
    check_grace,
    check_ran,
    check_verdict,
    move_to,
    reason_of,
)

ERROR = ValueError("no address")


def job(n: int = 0, **more: int) -> Job:
    return Job(b"q", b"DI%046d" % n, b"body", **more)


def tasks_of(concurrency: int = 4, **more: int) -> Tasks:
    return Tasks(concurrency, Backoff(1.0, 60.0), Random(1), **more)


def begun(tasks: Tasks, n: int = 0, now: float = 0.0, **more: int) -> Task:
    task = tasks.begin(job(n, **more), now)
    assert task is not None
    return task


def whats(tasks: Tasks, now: float) -> list[NextStep]:
    return [what for what, _ in tasks.due(now)]


def test_a_worker_fetches_no_more_than_it_can_work_on() -> None:
    tasks = tasks_of(3)
    assert tasks.room() == 3
    first, second = begun(tasks, 1), begun(tasks, 2)
    assert tasks.room() == 1
    tasks.settle(first)
    assert tasks.room() == 1, "it is not told yet"
    tasks.forget(first)
    assert tasks.room() == 2
    tasks.failed(second, ERROR)
    assert tasks.room() == 2, "no node has it back yet"
    tasks.due(0)
    assert (second.phase, tasks.room()) == (Phase.RETURNING, 2)
    tasks.forget(second)
    assert (tasks.room(), len(tasks)) == (3, 0), "nothing of it stays in the worker"


@pytest.mark.parametrize("more", [{"concurrency": 0}, {"concurrency": 1.5}, {"concurrency": 1, "max_tries": 0}])
def test_figures_of_a_worker_that_make_no_sense_are_refused(more: dict) -> None:
    with pytest.raises(ValueError, match="a whole number from 1"):
        tasks_of(**more)


def test_working_is_said_before_the_shortest_retry_time_is_over_and_then_well_within_the_real_one() -> None:
    tasks = tasks_of()
    task = begun(tasks, now=10.0)
    assert tasks.next_at() is not None
    assert 10.0 < tasks.next_at() < 11.0
    assert whats(tasks, 10.2) == []
    assert whats(tasks, 10.5) == [NextStep.WORKING]
    assert whats(tasks, 10.5) == [], "it is under way"
    assert tasks.next_at() is None
    tasks.kept(task, 30, 11.0)
    assert tasks.next_at() == 21.0
    assert whats(tasks, 21.0) == [NextStep.WORKING]


def test_a_job_of_one_second_is_kept_alive() -> None:
    tasks = tasks_of()
    task = begun(tasks)
    now, last = 0.0, 0.0
    while now < 20:
        now = tasks.next_at() or now
        assert now - last < 0.75, "a quarter of the retry time is left for the way"
        assert whats(tasks, now) == [NextStep.WORKING]
        tasks.kept(task, 1, now)
        last = now


def test_at_most_once_jobs_are_asked_for_once() -> None:
    tasks = tasks_of()
    task = begun(tasks)
    tasks.due(0.5)
    tasks.kept(task, 0, 0.5)
    assert task.is_once
    assert tasks.next_at() is None
    tasks.not_kept(task, 1.0)
    assert tasks.next_at() is None


def test_working_that_could_not_be_said_is_said_again_soon() -> None:
    tasks = tasks_of()
    task = begun(tasks)
    tasks.due(0.5)
    tasks.not_kept(task, 0.6)
    assert 0.6 < (tasks.next_at() or 0) < 1.0
    tasks.kept(task, 30, 1.0)
    tasks.due(11.0)
    tasks.not_kept(task, 11.0)
    assert tasks.next_at() == 16.0


def test_after_half_of_its_life_a_job_is_worked_on_and_not_kept() -> None:
    tasks = tasks_of()
    task = begun(tasks)
    tasks.too_late(task)
    tasks.too_late(task)
    assert tasks.next_at() is None
    assert tasks.figures.too_late == 1
    assert tasks.is_running(task)


def test_a_job_that_comes_twice_is_worked_on_once() -> None:
    tasks = tasks_of()
    begun(tasks)
    assert tasks.begin(job(), 1.0) is None
    assert tasks.figures.taken == 1


def test_a_job_that_is_given_back_may_be_here_again_before_the_node_has_said_so() -> None:
    tasks = tasks_of()
    old = begun(tasks)
    tasks.failed(old, ERROR)
    assert tasks.begin(job(), 0.1) is None, "the worker has not sent its NACK yet"
    tasks.due(0.2)
    new = tasks.begin(job(nacks=1), 100)
    assert new is not None
    tasks.forget(old)
    assert len(tasks) == 1
    assert tasks.is_running(new)


def test_the_delay_of_a_job_without_terms_doubles_up_to_its_limit() -> None:
    backoff, rng = Backoff(1.0, 60.0), Random(2)
    for tries, least, most in ((1, 0.75, 1.25), (2, 1.5, 2.5), (4, 6, 10), (20, 45, 75), (10_000, 45, 75)):
        pauses = [backoff.pause(tries, rng) for _ in range(50)]
        assert least <= min(pauses) < max(pauses) <= most


def failed(error: BaseException, *, has_backoff: bool = False, nacks: int = 0, cancelled: bool = False) -> GiveBack:
    """How a job is given back whose handler has raised an error."""
    tasks = tasks_of()
    task = begun(tasks, nacks=nacks)
    task.has_backoff, task.cancelled.is_set = has_backoff, cancelled
    tasks.failed(task, error)
    assert tasks.due(0.0) == [(NextStep.NACK, task)], "at once, and without WORKING"
    assert (tasks.due(100.0), tasks.next_at()) == ([], None)
    assert tasks.figures.buried == task.give_back.is_dead
    return task.give_back


def test_the_terms_of_a_job_say_when_it_is_tried_again_and_else_the_worker_does() -> None:
    assert failed(ERROR, has_backoff=True) == GiveBack(None, "ValueError: no address")
    given = failed(ERROR, nacks=3)
    assert given.reason == "ValueError: no address"
    assert given.delay is not None
    assert 6 <= given.delay <= 10
    assert given.delay % 1, "a pause with jitter goes to the millisecond"


@pytest.mark.parametrize("has_backoff", [True, False])
def test_a_handler_may_say_when_its_job_is_tried_again_or_that_it_never_is(*, has_backoff: bool) -> None:
    assert failed(RetryLater(90, "the shop is closed"), has_backoff=has_backoff) == GiveBack(90, "the shop is closed")
    assert failed(RetryLater(timedelta(seconds=0.2)), has_backoff=has_backoff) == GiveBack(0.2, "RetryLater")
    assert failed(Bury("no such user"), has_backoff=has_backoff) == GiveBack(None, "no such user", is_dead=True)


@pytest.mark.parametrize("seconds", [-1, -0.5, 2**31, 1e12, timedelta(days=36_500)])
def test_a_retry_is_after_what_a_node_takes(seconds: Any) -> None:
    with pytest.raises(ValueError, match=r"a retry after .* seconds; 0 to 2147483647 are allowed"):
        RetryLater(seconds)
    assert RetryLater(2**31 - 1).delay == 2**31 - 1
    assert commands.nack(job(), delay=RetryLater(2**31 - 1.5).delay).words[-2:] == (b"DELAY", b"2147483646.5")


def test_no_pause_is_longer_than_a_node_takes() -> None:
    longest = Backoff(2**31 - 1, 2**31 - 1)
    assert max(longest.pause(1, Random(seed)) for seed in range(20)) == 2**31 - 1


@pytest.mark.parametrize("ttl", [0, -0.5, -1, 2**31])
def test_a_job_is_moved_with_a_time_to_live_that_a_node_takes(ttl: Any) -> None:
    with pytest.raises(ValueError, match=r"seconds; 0\.001 to 2147483647 are allowed"):
        MoveTo("dead", ttl)


def test_a_job_that_was_cancelled_is_given_back_for_its_node_to_end_it() -> None:
    assert failed(ERROR, cancelled=True) == GiveBack()


class Unspeakable(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "reason"),
    [(KeyError(), "KeyError"), (Unspeakable(), "Unspeakable"), (OSError("\udcff"), "OSError: ?"), (Bury(), "Bury")],
)
def test_an_error_is_told_by_its_class_and_its_text(error: BaseException, reason: str) -> None:
    assert reason_of(error) == reason


@pytest.mark.parametrize("letter", ["x", "ü", "€", "🦆"])
def test_a_long_reason_is_cut_between_two_letters(letter: str) -> None:
    reason = reason_of(ValueError(letter * 2_000))
    assert REASON_MAX - 4 < len(reason.encode()) <= REASON_MAX
    assert reason == f"ValueError: {letter * (len(reason) - 12)}"


def test_a_job_is_exhausted_when_it_was_tried_as_often_as_allowed() -> None:
    tasks = tasks_of(max_tries=3)
    exhausted = [tasks.is_exhausted(begun(tasks, n, nacks=n, additional_deliveries=1)) for n in range(3)]
    assert exhausted == [False, True, True]
    assert not tasks_of().is_exhausted(Task(job(nacks=1_000), Phase.RUNNING, None))


def test_a_worker_that_stops_takes_nothing_and_leaves_delays_to_the_server() -> None:
    tasks = tasks_of()
    running = begun(tasks)
    tasks.stop()
    assert tasks.room() == 0
    tasks.failed(running, ERROR)
    assert tasks.due(0.2) == [(NextStep.NACK, running)]
    assert 0.75 <= (running.give_back.delay or 0) <= 1.25


def test_what_still_runs_at_the_end_is_given_back_and_its_result_does_not_count() -> None:
    tasks = tasks_of()
    done, running, told = (begun(tasks, n) for n in range(3))
    assert tasks.settle(done)
    tasks.forget(done)
    tasks.settle(told)
    running.has_begun = True
    tasks.stop()
    assert tasks.any_running()
    assert tasks.give_up() == [running]
    assert not tasks.any_running()
    assert tasks.due(0.1) == [(NextStep.NACK, running)]
    assert running.give_back == GiveBack(0, "the worker stopped"), "somebody else may begin at once"
    assert not tasks.settle(running)
    assert not tasks.is_running(running)


def test_what_no_handler_began_is_given_back_untried() -> None:
    tasks = tasks_of()
    waiting = begun(tasks)
    tasks.stop()
    assert tasks.give_up() == [waiting]
    assert waiting.give_back == GiveBack(is_untried=True)


def test_a_job_that_is_told_of_is_not_given_back_as_well() -> None:
    tasks = tasks_of()
    task = begun(tasks)
    tasks.settle(task)
    tasks.give_back(task)
    assert whats(tasks, 0.1) == []


def test_grace_and_pauses_are_checked() -> None:
    assert check_grace(0) == 0.0
    for make in (lambda: check_grace(-1), lambda: Backoff(0), lambda: Backoff(1, "x"), lambda: move_to(3)):
        with pytest.raises(ValueError, match=r"-1|0 seconds|'x'|3"):
            make()


def test_dead_letters_go_to_the_queue_that_is_named() -> None:
    assert move_to("dead", 60)(job(), ValueError()) == MoveTo("dead", 60)


@pytest.mark.parametrize("verdict", [None, "dead", Drop, object()])
def test_a_verdict_that_is_none_is_refused(verdict: object) -> None:
    with pytest.raises(TypeError, match=r"on_exhausted returned .*; Drop\(\), MoveTo\(queue\), Bury\(\) and"):
        check_verdict(verdict)
    for fine in (Drop(), GoOn(), MoveTo("dead"), Bury()):
        assert check_verdict(fine) is fine


async def send(job: Job) -> None:
    """Be a handler for asyncio."""


class Sender:
    """One that is no function."""

    async def send(self, job: Job) -> None:
        """Be a handler, too."""


async def letters(job: Job) -> AsyncIterator[Job]:
    yield job


@pytest.mark.parametrize("call", [send, Sender().send, partial(send)])
def test_threads_take_no_coroutine_functions(call: Callable[[Job], object]) -> None:
    check_calls(awaits=True, handler=call)
    with pytest.raises(TypeError, match=r"handler is a coroutine function, .* worker of disqued.client.aio can"):
        check_calls(awaits=False, handler=call)


def test_what_is_called_can_be_called() -> None:
    check_calls(awaits=False, handler=print, on_exhausted=move_to("dead"))
    with pytest.raises(TypeError, match="on_exhausted is None; a function of a job is allowed"):
        check_calls(awaits=True, on_exhausted=None)


@pytest.mark.parametrize("awaits", [True, False])
def test_a_handler_that_is_a_generator_has_not_run(*, awaits: bool) -> None:
    for ending in ((each for each in "ab"), letters(job())):
        with pytest.raises(TypeError, match="the handler is a generator, and none of it has run"):
            check_ran(ending, awaits=awaits)


def test_an_awaitable_that_nobody_awaits_has_not_run() -> None:
    check_ran(None, awaits=False)
    check_ran([1], awaits=False)
    coroutine = send(job())
    check_ran(coroutine, awaits=True)
    with pytest.raises(TypeError, match="the handler returned a coroutine, which nobody awaits here"):
        check_ran(coroutine, awaits=False)
    assert coroutine.cr_frame is None  # closed, so that Python has nothing to warn of


def test_the_first_pause_is_not_longer_than_the_longest() -> None:
    assert Backoff(60, 60).first == Backoff(60, 60).most
    with pytest.raises(ValueError, match="the first pause is 10 seconds; at most `most` is allowed: 1"):
        Backoff(10, 1)


@pytest.mark.parametrize("side", [aio, blocking, deferred])
def test_a_worker_takes_the_client_of_its_side(side: Any) -> None:
    with pytest.raises(TypeError, match=f"the client is 'host'; a {side.__name__}.Client is allowed"):
        side.Worker("host", ["q"], print)
