"""The thread of a store: one thing after the other, in the order in which it was asked for."""

import threading
from collections.abc import Callable, Iterator

import pytest
from twisted.python.failure import Failure

from disqued.persistence.worker import WorkerThread

LIMIT_S = 60.0


class Loop:
    """Stands for the reactor: what threads ask for is done when the test says so."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._asked: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def callFromThread(self, function: Callable[..., object], *args: object, **named: object) -> None:
        """Note it."""
        assert not named
        with self._lock:
            self._asked.append((function, args))
            self._lock.notify()

    def run(self, count: int) -> None:
        """Do the next things that threads ask for."""
        for _ in range(count):
            with self._lock:
                assert self._lock.wait_for(lambda: self._asked, LIMIT_S)
                function, args = self._asked.pop(0)
            function(*args)

    @property
    def asked(self) -> int:
        """Things that threads have asked for."""
        return len(self._asked)


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def worker(loop: Loop) -> Iterator[WorkerThread]:
    worker = WorkerThread(loop, "a store's")
    yield worker
    worker.end()


def test_calls_run_in_their_order_on_one_thread_and_answer_on_the_loop(loop: Loop, worker: WorkerThread) -> None:
    threads: list[str] = []
    answers: list[int] = []
    errors: list[Failure] = []

    def work(number: int) -> int:
        threads.append(threading.current_thread().name)
        if number == 2:
            raise ZeroDivisionError
        return number

    for number in range(4):
        worker.call(lambda number=number: work(number)).addCallbacks(answers.append, errors.append)
    assert answers == []
    loop.run(4)
    assert answers == [0, 1, 3]
    assert [error.type for error in errors] == [ZeroDivisionError]
    assert threads == ["a store's"] * 4


def test_what_has_not_begun_is_counted(loop: Loop, worker: WorkerThread) -> None:
    begun, gate = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        assert gate.wait(LIMIT_S)

    worker.call(block)
    assert begun.wait(LIMIT_S)
    assert worker.waiting == 0
    for _ in range(3):
        worker.call(lambda: None)
    assert worker.waiting == 3
    gate.set()
    loop.run(4)
    assert worker.waiting == 0


def test_what_can_wait_is_done_step_by_step_while_nothing_else_is_asked_for(loop: Loop, worker: WorkerThread) -> None:
    done: list[str] = []
    first, gate = threading.Event(), threading.Event()

    def step() -> bool:
        done.append("step")
        first.set()
        assert gate.wait(LIMIT_S)
        if len(done) == 5:
            loop.callFromThread(lambda: None)
            return False
        return True

    worker.idle(step)
    assert first.wait(LIMIT_S)
    for name in ("one", "two"):
        worker.call(lambda name=name: done.append(name))
    gate.set()
    loop.run(3)
    assert done == ["step", "one", "two", "step", "step"]
    worker.call(lambda: None)
    loop.run(1)
    assert done == ["step", "one", "two", "step", "step"], "it has said that there is no more to do"


def test_steps_that_are_asked_for_within_a_last_step_are_done(loop: Loop, worker: WorkerThread) -> None:
    def another() -> bool:
        loop.callFromThread(lambda: None)
        return False

    def step() -> bool:
        worker.idle(another)
        return False

    worker.idle(step)
    loop.run(1)


def test_steps_can_be_called_off(loop: Loop, worker: WorkerThread) -> None:
    steps = 0
    begun = threading.Event()

    def step() -> bool:
        nonlocal steps
        steps += 1
        begun.set()
        return True

    worker.idle(step)
    assert begun.wait(LIMIT_S)
    worker.idle(None)
    worker.call(lambda: None)
    loop.run(1)
    before = steps
    worker.call(lambda: None)
    loop.run(1)
    assert steps == before


def test_the_end_comes_after_what_was_asked_for_and_steps_do_not_delay_it(loop: Loop) -> None:
    worker = WorkerThread(loop, "ending")
    done: list[int] = []
    worker.idle(lambda: True)
    for number in range(50):
        worker.call(lambda number=number: done.append(number))
    worker.end()
    assert done == list(range(50))
    assert loop.asked == 50
    assert "ending" not in {thread.name for thread in threading.enumerate()}
