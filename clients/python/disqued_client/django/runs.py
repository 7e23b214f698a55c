"""Runs tasks that have arrived as jobs.

    the function returns               SUCCESSFUL, its value in the result of the job
    it raises                          FAILED, the error in the result of the job
    it raises RetryLater or Bury       the job is tried again, or is dead, as with any worker of disqued
    its process ends meanwhile         the job is tried again, up to MAX_TRIES

An error of a receiver of a signal is logged, and changes nothing.  Connections to databases that are too old are closed
before and after each task, as around requests.
"""

from traceback import format_exception
from typing import Any, Final

from django.db import close_old_connections
from django.utils import timezone

from ..job import RunningJob
from ..tasks import Bury, RetryLater
from . import records
from .task_interface import (
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)

RESULT_MAX: Final = 64 << 10  #: bytes that a node keeps of a result, unless it is set otherwise
TRACEBACK_MAX: Final = 8 << 10  #: characters, the last ones, of an error that has no room whole
UNKNOWN_WORKER: Final = "unknown"  #: of an earlier try


class TooLarge(Exception):
    """What a task returned has no room in the result of a job."""


def run(sender: type, alias: str, worker_id: str, job: RunningJob) -> bytes:
    """Run a task; returns what is kept of it.  Raises RetryLater, Bury, JobCancelled, and ImportError.

    `sender` is that of the signals, `alias` the name of the backend.
    """
    record = records.decode(job.body)
    result = records.result_of(record, id=job.id.decode(), backend=alias, status=TaskResultStatus.RUNNING)
    now = timezone.now()
    _set(result, started_at=now, last_attempted_at=now)
    result.worker_ids.extend([*[UNKNOWN_WORKER] * (job.tries - 1), worker_id])
    job.progress(records.encode(records.progress_of(result)))
    task_started.send_robust(sender, task_result=result)
    close_old_connections()
    try:
        _set(result, _return_value=normalize_json(_call(result)), status=TaskResultStatus.SUCCESSFUL)
    except (RetryLater, Bury, KeyboardInterrupt):
        raise
    except BaseException as error:
        _fail(result, error)
    finally:
        close_old_connections()
    _set(result, finished_at=timezone.now())
    ending = records.encode(records.ending_of(result))
    if len(ending) > RESULT_MAX:
        ending = _shortened(result, len(ending))
    task_finished.send_robust(sender, task_result=result)
    return ending


def _call(result: TaskResult) -> Any:
    context = [TaskContext(task_result=result)] if result.task.takes_context else []
    return result.task.call(*context, *result.args, **result.kwargs)


def _fail(result: TaskResult, error: BaseException) -> None:
    kind = type(error)
    path = f"{kind.__module__}.{kind.__qualname__}"
    text = "".join(format_exception(error))
    result.errors.append(TaskError(exception_class_path=path, traceback=text))
    _set(result, status=TaskResultStatus.FAILED, _return_value=None)


def _shortened(result: TaskResult, size: int) -> bytes:
    """Return what is kept of a task whose ending is too large: that it failed, and why."""
    if result.errors:
        path, text = result.errors[-1].exception_class_path, result.errors[-1].traceback
        result.errors[:] = [TaskError(exception_class_path=path, traceback=text[-TRACEBACK_MAX:])]
    else:
        _fail(result, TooLarge(f"arguments and return value have {size} bytes as JSON; {RESULT_MAX} are allowed"))
    record = records.ending_of(result)
    if len(records.encode(record)) > RESULT_MAX:
        record |= {"args": [], "kwargs": {}}
    return records.encode(record)


def _set(result: TaskResult, **values: Any) -> None:
    """Set attributes of a result, which is frozen for those who read it."""
    for name, value in values.items():
        object.__setattr__(result, name, value)
