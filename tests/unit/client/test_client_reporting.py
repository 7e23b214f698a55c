"""What a worker tells the nodes about its jobs, and what it does when none of them hears it."""

from random import Random
from typing import Any

import pytest

from disqued.client.blocking.stepping import finish
from disqued.client.commands import Command
from disqued.client.errors import TooLate, Unreachable
from disqued.client.job import Job
from disqued.client.reporting import JobReporter
from disqued.client.tasks import Backoff, MoveTo, NextStep, Task, Tasks


class Bench:
    """A reporter with one job, on nodes that answer as they are told."""

    def __init__(self, answer: Any = 20) -> None:
        self.answer = answer
        self.said: list[tuple[bytes, float | None]] = []
        self.warnings: list[str] = []
        self.changes = 0
        self.tasks = Tasks(1, Backoff(), Random(1))
        task = self.tasks.begin(Job(b"q", b"DI%046d" % 1, b"body"), 0.0)
        assert task is not None
        self.task: Task = task
        self.reporter = JobReporter(
            self.tasks, self.send, now=lambda: 100.0, on_change=self.changed, warn=self.warnings.append
        )

    async def send(self, command: Command[Any], patience: float | None = None) -> Any:
        self.said.append((command.words[0], patience))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

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
