"""Tasks and their results as JSON: the body of a job, its progress, and its result.

    body       {task, queue, priority, run_after, args, kwargs, enqueued_at}
    progress   {started_at, last_attempted_at, worker_ids}
    result     body and progress in one, and {status, finished_at, return_value, errors: [[class, traceback], ...]}

Instants are ISO 8601.  What is not JSON in arguments and return values is an error of Django's.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.utils.module_loading import import_string

from .task_interface import TaskError, TaskResult, TaskResultStatus

_INSTANTS: Final = ("enqueued_at", "started_at", "last_attempted_at", "finished_at")


def body_of(result: TaskResult) -> dict[str, Any]:
    """Return what a worker needs to know of a task."""
    task = result.task
    return {
        "task": task.module_path, "queue": task.queue_name, "priority": task.priority,
        "run_after": _written(task.run_after), "args": result.args, "kwargs": result.kwargs,
        "enqueued_at": _written(result.enqueued_at),
    }  # fmt: skip


def progress_of(result: TaskResult) -> dict[str, Any]:
    """Return what is known of a task that runs."""
    return {
        "started_at": _written(result.started_at), "last_attempted_at": _written(result.last_attempted_at),
        "worker_ids": result.worker_ids,
    }  # fmt: skip


def ending_of(result: TaskResult) -> dict[str, Any]:
    """Return all that is kept of a task that has ended."""
    return body_of(result) | progress_of(result) | {
        "status": result.status.value, "finished_at": _written(result.finished_at),
        "return_value": result._return_value,
        "errors": [[error.exception_class_path, error.traceback] for error in result.errors],
    }  # fmt: skip


def encode(record: Mapping[str, Any]) -> bytes:
    """Write a record.  Raises TypeError for what JSON has no word for."""
    return json.dumps(record, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[str, Any]:
    """Read a record.  Raises ValueError, and TypeError for no bytes."""
    record: dict[str, Any] = json.loads(data)
    return record


def result_of(record: Mapping[str, Any], *, id: str, backend: str, status: TaskResultStatus) -> TaskResult:  # noqa: A002
    """Make the result of a task from what is known of it.  Raises ImportError when its function is not there."""
    task = import_string(record["task"]).using(
        queue_name=record["queue"], priority=record["priority"], run_after=_read(record["run_after"]), backend=backend
    )
    result = TaskResult(
        task=task, id=id, status=status, backend=backend, args=record["args"], kwargs=record["kwargs"],
        errors=[TaskError(exception_class_path=path, traceback=text) for path, text in record.get("errors", ())],
        worker_ids=[*record.get("worker_ids", ())],
        **{name: _read(record.get(name)) for name in _INSTANTS},
    )  # fmt: skip
    object.__setattr__(result, "_return_value", record.get("return_value"))
    return result


def _written(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()


def _read(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
