"""A worker thread: runs calls in order and answers on the reactor's thread.

    reactor   call(f) --> Deferred            idle(step): what can wait
    thread    f, g, h ... in their order;     step, step ... whenever nothing else waits

Twisted's own pool promises neither one thread nor an order, and a connection to SQLite belongs to its thread.
"""

from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred

T = TypeVar("T")


class FromThreads(Protocol):
    """The part of a reactor that other threads may use."""

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None:  # noqa: A002
        """Call something on the reactor's thread, soon."""


class WorkerThread:
    """One thread and what it has to do."""

    def __init__(self, reactor: FromThreads, name: str) -> None:
        """Start the thread; it lives until `end`."""
        self._reactor = reactor
        self._lock = Condition()
        self._calls: deque[Callable[[], None]] = deque()
        self._step: Callable[[], bool] | None = None
        self._ending = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Calls that have not begun."""
        return len(self._calls)

    def call(self, function: Callable[[], T]) -> "Deferred[T]":
        """Call a function on the thread; its result, or its exception, comes back on the reactor's."""
        answer: Deferred[T] = Deferred()

        def run() -> None:
            try:
                result = function()
            except BaseException as error:
                self._reactor.callFromThread(answer.errback, error)
            else:
                self._reactor.callFromThread(answer.callback, result)

        with self._lock:
            self._calls.append(run)
            self._lock.notify()
        return answer

    def idle(self, step: Callable[[], bool] | None) -> None:
        """Call a short function on the thread whenever nothing else waits, until it says False; None: no more."""
        with self._lock:
            self._step = step
            self._lock.notify()

    def end(self) -> None:
        """Do what has been asked for, and stop; returns when the thread has ended."""
        with self._lock:
            self._ending = True
            self._step = None
            self._lock.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._calls or self._step or self._ending)
                run = self._calls.popleft() if self._calls else None
                step = self._step
                if run is None and step is None:
                    return
            if run is not None:
                run()
            elif step is not None and not step():
                with self._lock:
                    if self._step is step:
                        self._step = None
