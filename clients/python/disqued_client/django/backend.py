"""The backend: a task is a job, its id is that of the job, and its result the result of the job.

    enqueue      ADDJOB <prefix><queue>[:<priority>] ... RESULT RESULT_TTL MAXTRIES MAX_TRIES [DELAY until run_after]
    get_result   WAITJOB: acked -> the result of the job; dead -> FAILED; not over -> READY or RUNNING

A priority has a queue of its own: the next lower one of PRIORITIES.  Workers empty the queues from the highest one on.
"""

import contextlib
from collections.abc import Iterable
from functools import partial
from os import getpid
from socket import gethostname
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from ..addresses import read_nodes
from ..blocking import Client, Worker
from ..commands import add
from ..errors import AccessDenied, BadJobId, JobFailed
from ..outcomes import Outcome
from ..replies import read_facts, read_list
from ..values import to_seconds
from . import records
from .runs import UNKNOWN_WORKER, run
from .task_interface import BaseTaskBackend, Task, TaskResult, TaskResultDoesNotExist, TaskResultStatus, task_enqueued

#: OPTIONS of TASKS, with their defaults: spans are seconds.
DEFAULTS: Final[dict[str, Any]] = {
    "NODES": ["127.0.0.1:7711"],  #: as the clients take them
    "PREFIX": "django:",  #: of the names of queues
    "RETRY": 300,  #: until another worker has a task whose node is lost with its worker
    "TTL": 7 * 86_400,  #: until a task that nobody ran is dropped, from its run_after on
    "RESULT_TTL": 86_400,  #: how long a result is kept
    "MAX_TRIES": 3,  #: how often a task is tried whose worker died
    "PRIORITIES": [100, 50, 10, 0, -10, -50, -100],
}
PRIORITY_MAX: Final = 100  #: of Django, above and below 0
_LOOK_S: Final = 0.001  #: how long `get_result` waits for the end of a task


def _read_priorities(alias: str, steps: object) -> list[int]:
    """Read the priorities that have a queue of their own; returns the highest first.  Raises ImproperlyConfigured."""
    found: list[Any] = list(steps) if isinstance(steps, Iterable) else [steps]
    if not found:
        raise ImproperlyConfigured(f"TASKS[{alias!r}] has no PRIORITIES; at least one is needed")
    if not all(isinstance(each, int) and -PRIORITY_MAX <= each <= PRIORITY_MAX for each in found):
        raise ImproperlyConfigured(
            f"TASKS[{alias!r}] has the PRIORITIES {found!r};"
            f" PRIORITIES are whole numbers from {-PRIORITY_MAX} to {PRIORITY_MAX}"
        )
    return sorted(found, reverse=True)


class DisquedBackend(BaseTaskBackend):
    """Runs tasks in workers on other machines."""

    supports_defer = supports_async_task = supports_get_result = supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        """Read OPTIONS; no node is asked yet.  Raises ImproperlyConfigured."""
        super().__init__(alias, params)
        if unknown := set(self.options) - set(DEFAULTS):
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}] has the OPTIONS {', '.join(sorted(unknown))}; allowed are {', '.join(DEFAULTS)}"
            )
        options = DEFAULTS | self.options
        if none := [name for name, value in options.items() if value is None]:
            raise ImproperlyConfigured(f"TASKS[{alias!r}] has None as {none[0]}; leave it out for its default")
        if not isinstance(options["PREFIX"], str):
            raise ImproperlyConfigured(f"TASKS[{alias!r}] has the PREFIX {options['PREFIX']!r}; text is allowed")
        self._options = options
        self._priorities = _read_priorities(alias, options["PRIORITIES"])
        self._terms = {
            "retry": options["RETRY"], "result_ttl": options["RESULT_TTL"], "max_tries": options["MAX_TRIES"],
        }  # fmt: skip
        try:
            read_nodes(options["NODES"])
            self._ttl = to_seconds(options["TTL"], "ttl")
            add(f"{options['PREFIX']}queue", "body", ttl=self._ttl, **self._terms)  # a command that nobody sends
        except ValueError as error:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: {error}") from None
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The client, which connects with its first command, and again in a forked process."""
        if self._client is None:
            self._client = Client(self._options["NODES"])
        return self._client

    # Tasks.

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Add a task as a job.  Raises InvalidTask, and the errors of the client."""
        self.validate_task(task)
        now = timezone.now()
        result = TaskResult(
            task=task, id="", status=TaskResultStatus.READY, backend=self.alias, args=args, kwargs=kwargs,
            enqueued_at=now, started_at=None, last_attempted_at=None, finished_at=None, errors=[], worker_ids=[],
        )  # fmt: skip
        delay = 0.0 if task.run_after is None else max(0.0, (task.run_after - now).total_seconds())
        job_id = self.client.add(
            self.queue_of(task.queue_name, task.priority), records.encode(records.body_of(result)),
            delay=delay, ttl=self._ttl + delay, **self._terms,
        )  # fmt: skip
        object.__setattr__(result, "id", job_id.decode())
        task_enqueued.send_robust(type(self), task_result=result)  # whatever a receiver does: it is added
        return result

    def queue_of(self, name: str, priority: int) -> str:
        """Return the queue of disqued that has the tasks of a queue of Django with a priority."""
        step = next((each for each in self._priorities if each <= priority), self._priorities[-1])
        return f"{self._options['PREFIX']}{name}" + (f":{step}" if step else "")

    # Results.

    def get_result(self, result_id: str) -> TaskResult:
        """Return how a task stands now.  Raises TaskResultDoesNotExist, and the errors of the client."""
        try:
            outcome = self.client.outcome(result_id, timeout=_LOOK_S)
        except (BadJobId, ValueError):
            raise TaskResultDoesNotExist(result_id) from None
        try:
            return self._result_of(result_id, outcome)
        except (AttributeError, ImportError, KeyError, TypeError, ValueError) as error:
            text = f"{result_id} is no task of this project: {type(error).__name__}: {error}"
            raise TaskResultDoesNotExist(text) from error

    def _result_of(self, result_id: str, outcome: Outcome) -> TaskResult:
        """Raises TaskResultDoesNotExist, and for a job of another kind ImportError, KeyError, TypeError, ValueError."""
        if outcome.value is not None:
            record = records.decode(outcome.value)
            return self._result(record, result_id, TaskResultStatus(record["status"]))
        facts = self._facts(result_id)
        if facts.get("body") is None:  # it has ended since, or was never there
            again = self.client.outcome(result_id, timeout=_LOOK_S)
            if again.value is None:
                raise TaskResultDoesNotExist(result_id)
            return self._result_of(result_id, again)
        record = records.decode(facts["body"])
        if facts.get("progress"):
            record |= records.decode(facts["progress"])
        if outcome.is_over:
            return self._ended(record, result_id, outcome)
        is_running = facts["phase"] == b"in-flight"
        return self._result(record, result_id, TaskResultStatus.RUNNING if is_running else TaskResultStatus.READY)

    def _result(self, record: dict[str, Any], result_id: str, status: TaskResultStatus) -> TaskResult:
        return records.result_of(record, id=result_id, backend=self.alias, status=status)

    def _ended(self, record: dict[str, Any], result_id: str, outcome: Outcome) -> TaskResult:
        """Return the result of a task that no worker brought to its end: it is dead, cancelled or expired."""
        try:
            outcome.result()
        except JobFailed as error:
            path, text = f"{type(error).__module__}.{type(error).__qualname__}", str(error)
            record |= {"errors": [[path, text]]}
        record["worker_ids"] = [*record.get("worker_ids", ()), *[UNKNOWN_WORKER] * outcome.tries][: outcome.tries]
        return self._result(record, result_id, TaskResultStatus.FAILED)

    def _facts(self, job_id: str) -> dict[str, Any]:
        """Return what the node says of a job that has it in its queue or with a consumer; empty = no node has it."""
        found = self.client.show(job_id)
        if found is not None and found["phase"] != b"elsewhere":
            return dict(found)
        best = dict(found or {})
        with contextlib.suppress(AccessDenied):
            for row in read_list(self.client.call("CLUSTER", "ASK", "*", "SHOW", job_id)):
                _, status, value = read_list(row)
                if status == b"ok" and value is not None:
                    told = dict(read_facts(value, b"") or {})
                    if not best or told["phase"] != b"elsewhere":
                        best = told
        return best

    # The worker.

    def worker(self, queues: Iterable[str], *, threads: int = 1, name: str = "") -> Worker:
        """Make a worker for tasks of these queues of Django, not started yet.  Raises ValueError."""
        names = [self.queue_of(queue, step) for step in self._priorities for queue in queues]
        own = name or f"{gethostname()}:{getpid()}"
        return Worker(
            self.client,
            names,
            partial(run, type(self), self.alias, own),
            concurrency=threads,
            live=True,
            name=own,
            ordered=True,
        )
