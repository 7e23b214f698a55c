"""Coroutines of the client core, run in threads: each step runs alone, and waiting lets other threads run.

    thread A   step ==== released: socket ----------- step ====
    thread B             step ==== released: handler --------- step ====

The blocking side needs no event loop: its primitives block, so `finish` runs a coroutine from beginning to end.  One
lock is held while the core runs and released while a primitive blocks, which gives the core the same guarantee as an
event loop: nothing else runs between two primitives.
"""

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Lock(Protocol):
    """A lock, or a condition variable."""

    def acquire(self) -> Any:
        """Take it."""

    def release(self) -> None:
        """Release it."""


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine whose primitives block; the caller holds the lock of its core."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError(f"{work!r} waits for an event loop, and there is none")


@contextmanager
def released(lock: Lock) -> Iterator[None]:
    """Release the lock meanwhile, so that other threads can run the core."""
    lock.release()
    try:
        yield
    finally:
        lock.acquire()
