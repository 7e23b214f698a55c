"""Coroutines of the client core, run in threads: each step runs alone, and waiting lets other threads run.

    thread A   step ==== released: socket ----------- step ====
    thread B             step ==== released: handler --------- step ====

A side that waits for everything needs no event loop: its primitives block, and so `finish` runs a coroutine from its
beginning to its end.  One lock is held while the core runs and released while a primitive blocks, which gives the core
the same promise as on an event loop: between two primitives nothing else runs.
"""

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Lock(Protocol):
    """A lock, or a condition with one."""

    def acquire(self) -> Any:
        """Take it."""

    def release(self) -> None:
        """Give it up."""


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
    """Let other threads run the core in the meantime."""
    lock.release()
    try:
        yield
    finally:
        lock.acquire()
