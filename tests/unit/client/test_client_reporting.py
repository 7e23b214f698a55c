"""What a worker tells the nodes about its jobs, and what it does when none of them hears it."""

from random import Random
from typing import Any

import attrs
import pytest

from disqued.client.blocking.stepping import finish
from disqued.client.commands import Command
from disqued.client.errors import JobCancelled, ServerError, TooLate, Unreachable
from disqued.client.job import Job
from disqued.client.outcomes import Outcome
from disqued.client.reporting import JobReporter
from disqued.client.tasks import Backoff, GiveBack, MoveTo, NextStep, Task, Tasks


class Bench:
    """A reporter with one job, on nodes that answer as they are told, to some commands in a way of their own."""

    def __init__(self, answer: Any = 20, **others: Any) -> None:
        self.answer = answer
        self.others = {word.upper().encode(): other for word, other in others.items()}
        self.said: list[tuple[bytes, float | None]] = []
        self.words: list[tuple[bytes, ...]] = []
        self.cancelled: list[Task] = []
        self.warnings: list[str] = []
        self.changes = 0
        self.tasks = Tasks(1, Backoff(), Random(1))
        task = self.tasks.begin(Job(b"q", b"DI%046d" % 1, b"body"), 0.0)
        assert task is not None
        self.task: Task = task
        self.reporter = JobReporter(
            self.tasks, self.send, now=lambda: 100.0, on_change=self.changed, on_cancel=self.cancelled.append,
            warn=self.warnings.append,
        )  # fmt: skip

    async def send(self, command: Command[Any], patience: float | None = None) -> Any:
        self.said.append((command.words[0], patience))
        self.words.append(tuple(word for word in command.words if word != self.task.job.id))
        answer = self.others.get(command.words[0], self.answer)
        if command.words[0] == b"ACKJOB" and b"RESULT" in command.words:
            answer = self.others.get(b"RESULT", answer)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def changed(self) -> None:
        self.changes += 1


def test_an_acknowledged_job_is_forgotten() -> None:
    bench = Bench()
    finish(bench.reporter.acknowledge(bench.task))
    assert (bench.said, bench.tasks.figures.done, len(bench.tasks), bench.changes) == ([(b"ACKJOB", None)], 1, 0, 1)


@pytest.mark.parametrize(("call", "word"), [("acknowledge", "acknowledged"), ("give_back", "given back")])
def test_a_job_of_which_no_node_hears_is_forgotten_and_counted(call: str, word: str) -> None:
    bench = Bench(Unreachable("no node"))
    bench.task.retry = 20.0
    finish(getattr(bench.reporter, call)(bench.task))
    assert (bench.tasks.figures.untold, bench.tasks.figures.done, len(bench.tasks)) == (1, 0, 0)
    assert f"could not be {word}, and comes back: no node" in bench.warnings[0]


def test_a_job_goes_back_only_when_somebody_would_get_it_again() -> None:
    again, once = Bench(20), Bench(0)
    for bench in (again, once):
        finish(bench.reporter.give_back(bench.task))
        assert not len(bench.tasks)
    assert [word for word, _ in again.said] == [b"WORKING", b"NACK"]
    assert [word for word, _ in once.said] == [b"WORKING"]
    assert (again.tasks.figures.returned, once.tasks.figures.left) == (1, 1)


@pytest.mark.parametrize(
    ("state", "reason", "stops"),
    [("pending", "cancelling", True), ("cancelled", "", True), ("pending", "", False), ("unknown", "", False)],
)
def test_a_live_worker_asks_which_of_its_jobs_were_cancelled(state: str, reason: str, *, stops: bool) -> None:
    bench = Bench()
    bench.answer = [Outcome(bench.task.job.id, state, reason=reason)]
    finish(bench.reporter.look([bench.task]))
    assert bench.words == [(b"WAITJOB", b"1")]
    assert (bench.task.cancelled.is_set, bench.cancelled) == (stops, [bench.task] if stops else [])
    assert bench.task.working_at == (None if stops else 101.0)


def test_a_live_worker_asks_again_when_no_node_answers() -> None:
    bench = Bench(Unreachable("no node"))
    finish(bench.reporter.look([bench.task]))
    assert (bench.task.working_at, bench.cancelled, bench.warnings) == (101.0, [], [])


def test_a_failed_job_is_given_back_as_its_failure_says() -> None:
    bench = Bench()
    bench.task.retry, bench.task.give_back = 20.0, GiveBack(7, "no address")
    finish(bench.reporter.give_back(bench.task))
    assert bench.words == [(b"NACK", b"DELAY", b"7", b"REASON", b"no address")]


def test_a_job_that_nobody_began_is_given_back_untried() -> None:
    bench = Bench()
    bench.task.retry, bench.task.give_back = 20.0, GiveBack(is_untried=True)
    finish(bench.reporter.give_back(bench.task))
    assert bench.words == [(b"NACK", b"UNTRIED")]


def test_a_job_is_buried_though_it_is_delivered_once() -> None:
    bench = Bench(0)
    bench.task.give_back = GiveBack(None, "no such user", is_dead=True)
    finish(bench.reporter.give_back(bench.task))
    assert bench.words == [(b"NACK", b"REASON", b"no such user", b"DEAD")]


@pytest.mark.parametrize(
    ("shown", "has_backoff", "said"),
    [
        ({"queue": b"q", "retry": 7, "backoff": [2, 60]}, True, [b"SHOW"]),
        ({"queue": b"q", "retry": 7, "backoff": [0, 0]}, False, [b"SHOW"]),
        ({"queue": b"q", "retry": 7}, False, [b"SHOW"]),
        ({"queue": None, "retry": 0}, False, [b"SHOW", b"WORKING"]),
        (None, False, [b"SHOW", b"WORKING"]),
        (ServerError("NOPERM no right to SHOW"), False, [b"SHOW", b"WORKING"]),
    ],
)
def test_the_terms_of_a_failed_job_are_asked_for(shown: Any, said: list[bytes], *, has_backoff: bool) -> None:
    bench = Bench(7, show=shown)
    finish(bench.reporter.learn_terms(bench.task))
    assert (bench.task.has_backoff, bench.task.retry) == (has_backoff, 7.0)
    assert [word for word, _ in bench.said] == said


# Results.

TOO_LONG = ServerError("ERR the result is too long; allowed are 65536 bytes (result-max)")
KEEPS = {"queue": b"q", "retry": 7, "backoff": [1, 60], "keep-result": 60}
KEEPS_NOT = {"queue": b"q", "retry": 7, "keep-result": 0}


@pytest.mark.parametrize(("value", "sent"), [(b"x", b"x"), ("grüße", "grüße".encode()), ("", b"")])
def test_what_a_handler_returns_is_the_result(value: object, sent: bytes) -> None:
    bench = Bench()
    assert finish(bench.reporter.acknowledge(bench.task, value)) is None
    assert bench.words == [(b"ACKJOB", b"RESULT", sent)]
    assert bench.tasks.figures.done == 1


@pytest.mark.parametrize("value", [7, True, ["x"], {"a": 1}, "\udcff", b"x" * 70_000])
def test_what_cannot_be_a_result_fails_only_a_job_that_keeps_one(value: object) -> None:
    bench = Bench(show=KEEPS, result=TOO_LONG)
    error = finish(bench.reporter.acknowledge(bench.task, value))
    assert isinstance(error, TypeError | ValueError | ServerError)
    assert (bench.task.retry, bench.task.has_backoff) == (7.0, True), "it fails as its terms say"
    assert (bench.tasks.figures.done, len(bench.tasks)) == (0, 1)
    for shown in (KEEPS_NOT, {"queue": b"q", "retry": 7}, None):
        bench = Bench(show=shown, result=TOO_LONG)
        assert finish(bench.reporter.acknowledge(bench.task, value)) is None
        assert bench.words[-1] == (b"ACKJOB",)
        assert (bench.tasks.figures.done, len(bench.tasks)) == (1, 0)


def test_a_result_of_a_wrong_type_is_told_with_what_is_allowed() -> None:
    error = finish(Bench(show=KEEPS).reporter.acknowledge(Bench().task, 7))
    assert str(error) == "the handler returned 7; bytes, text and None are results"


# Progress and cancellation.


def test_progress_postpones_the_next_delivery_as_well() -> None:
    bench = Bench(30)
    finish(bench.reporter.progress(bench.task, "half"))
    assert bench.words == [(b"WORKING", b"PROGRESS", b"half")]
    assert bench.tasks.next_at() == 110.0


def test_progress_that_reaches_no_node_does_not_fail_its_job() -> None:
    bench = Bench(Unreachable("no node"))
    finish(bench.reporter.progress(bench.task, "half"))
    assert "reached no node: no node" in bench.warnings[0]
    late = Bench(TooLate("TOOLATE half of its life is over"))
    finish(late.reporter.progress(late.task, "half"))
    assert (late.task.is_too_late, late.warnings) == (True, [])


def test_a_handler_that_learns_of_its_cancellation_from_progress_is_not_cancelled_as_well() -> None:
    bench = Bench(JobCancelled("CANCELLED the job was cancelled"))
    with pytest.raises(JobCancelled):
        finish(bench.reporter.progress(bench.task, "half"))
    assert (bench.task.cancelled.is_set, bench.cancelled, bench.tasks.next_at()) == (True, [], None)


def test_a_job_that_was_cancelled_is_noticed_and_kept_no_longer() -> None:
    bench = Bench(JobCancelled("CANCELLED the job was cancelled"))
    finish(bench.reporter.keep(bench.task))
    assert (bench.task.cancelled.is_set, bench.cancelled, bench.tasks.next_at()) == (True, [bench.task], None)
    with pytest.raises(JobCancelled):
        finish(bench.reporter.progress(bench.task, "half"))
    assert bench.cancelled == [bench.task]
    bench.said.clear()
    finish(bench.reporter.learn_terms(bench.task))
    assert bench.said == [], "its node ends it, whatever its terms are"


def test_the_retry_time_is_asked_for_once_and_not_after_it_is_too_late() -> None:
    known, late = Bench(), Bench(TooLate("half of its life is over"))
    for bench in (known, late):
        for _ in range(2):
            finish(bench.reporter.learn_retry(bench.task))
        assert len(bench.said) == 1
    assert (known.task.retry, late.task.is_too_late) == (20.0, True)


def test_a_job_that_could_not_be_kept_is_kept_again() -> None:
    bench = Bench(Unreachable("no node"))
    finish(bench.reporter.keep(bench.task))
    assert [what for what, _ in bench.tasks.due(101.0)] == [NextStep.WORKING]


def test_a_worker_that_stops_tries_for_the_time_that_is_left() -> None:
    for at, left in ((103.0, 3.0), (99.0, 0.0)):
        bench = Bench()
        bench.reporter.give_up_at(at)
        finish(bench.reporter.copy(bench.task, MoveTo("dead")))
        assert bench.said == [(b"ADDJOB", left)]


# Jobs that failed too often.

SHOWN = {
    "queue": b"q", "retry": 7, "max-tries": 9, "backoff": [2, 60], "keep-dead": 77, "keep-result": 30, "group": b"g",
}  # fmt: skip


@pytest.mark.parametrize(
    ("shown", "terms"),
    [
        (
            SHOWN,
            (b"MAXTRIES", b"9", b"BACKOFF", b"2", b"60", b"KEEPDEAD", b"77", b"RESULT", b"30",
             b"HEADER", b"traceparent", b"00-1", b"GROUP", b"g"),
        ),
        (SHOWN | {"keep-dead": 0, "backoff": [0, 0], "keep-result": 0, "group": b""},
         (b"MAXTRIES", b"9", b"KEEPDEAD", b"0", b"HEADER", b"traceparent", b"00-1")),
        ({"queue": b"q", "retry": 7, "max-tries": 0, "backoff": [0, 0], "keep-dead": 0, "keep-result": 0},
         (b"HEADER", b"traceparent", b"00-1")),
        ({"queue": b"q", "retry": 7}, (b"HEADER", b"traceparent", b"00-1")),
        (ServerError("NOPERM no right to SHOW"), (b"HEADER", b"traceparent", b"00-1")),
    ],
)  # fmt: skip
def test_a_moved_job_takes_its_terms_along(shown: Any, terms: tuple[bytes, ...]) -> None:
    bench = Bench(7, show=shown)
    bench.task.job = attrs.evolve(bench.task.job, headers={"traceparent": b"00-1"})
    finish(bench.reporter.learn_terms(bench.task))
    finish(bench.reporter.copy(bench.task, MoveTo("dead", 60)))
    assert bench.words[-1] == (b"ADDJOB", b"dead", b"body", b"5000", b"TTL", b"60", *terms)


@pytest.mark.parametrize(
    ("word", "then"),
    [
        (["cancelling"], [(b"NACK", b"UNTRIED")]),
        (["cancelled"], []),
        (["done"], []),
        (["unknown"], [(b"ACKJOB",)]),
        (ServerError("NOPERM no right to CANCEL"), [(b"ACKJOB",)]),
        (ServerError("ERR unknown command"), [(b"ACKJOB",)]),
    ],
)
def test_a_job_that_is_dropped_is_cancelled_and_ends_at_once(word: Any, then: list[tuple[bytes, ...]]) -> None:
    bench = Bench(cancel=word)
    finish(bench.reporter.drop(bench.task))
    assert bench.words == [(b"CANCEL",), *then]
    assert (bench.tasks.figures.done, bench.tasks.figures.untold, len(bench.tasks)) == (1, 0, 0)


def test_a_dropped_job_of_which_no_node_hears_is_counted_and_one_that_is_cancelled_ends_later() -> None:
    bench = Bench(Unreachable("no node"))
    finish(bench.reporter.drop(bench.task))
    assert (bench.tasks.figures.untold, bench.tasks.figures.done, len(bench.tasks)) == (1, 0, 0)
    bench = Bench(cancel=["cancelling"], nack=ServerError("OOM no room"))
    finish(bench.reporter.drop(bench.task))
    assert (bench.tasks.figures.untold, bench.tasks.figures.done, len(bench.tasks)) == (0, 1, 0)
