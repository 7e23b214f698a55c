"""Tasks of Django that the tests run; what they did is in `seen`."""

import os
import threading
import time
from pathlib import Path
from typing import Any

from disqued.client import Bury, RetryLater
from disqued.client.django.task_interface import TaskContext

try:
    from django.tasks import task
except ModuleNotFoundError:
    from django_tasks import task

seen: list[Any] = []
hold = threading.Event()


@task
def double(number: int) -> int:
    """Return twice a number."""
    seen.append(number)
    return 2 * number


@task
async def double_soon(number: int) -> int:
    """Return twice a number, as a coroutine."""
    return 2 * number


@task
def fail(text: str) -> None:
    """Fail."""
    raise ValueError(text)


@task
def leave() -> None:
    """Ask the interpreter to exit."""
    raise SystemExit(3)


@task(takes_context=True)
def attempts(context: TaskContext, fails: int) -> list[Any]:
    """Fail some times, then return the number of the attempt, the id of the task and its workers."""
    if context.attempt <= fails:
        raise RetryLater(0, "not yet")
    return [context.attempt, context.task_result.id, context.task_result.worker_ids]


@task
def bury() -> None:
    """Be dead at once."""
    raise Bury("no use")


@task
def wait() -> str:
    """Wait until the test says so."""
    assert hold.wait(600)
    return "waited"


@task
def text_of(size: int) -> str:
    """Return a text."""
    return "x" * size


@task
def not_json() -> object:
    """Return what JSON has no word for."""
    return object()


@task
def kill(folder: str) -> None:
    """End the process, and leave a mark for each time."""
    marks = Path(folder)
    (marks / f"{os.getpid()}-{time.monotonic_ns()}").touch()
    os._exit(9)


@task
def mark(folder: str, name: str) -> str:
    """Leave a mark."""
    (Path(folder) / name).touch()
    return name
