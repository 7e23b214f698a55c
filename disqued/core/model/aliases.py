"""Aliases: jobs by the names that producers chose, such as idempotency keys and unique tasks."""

from disqued.core.model.job import UNIQUE, Job, NamedJob
from disqued.core.model.memory import NAME_COST, Memory


class Aliases:
    """The named jobs of one node, from one flush to the next."""

    __slots__ = ("_memory", "named", "unique")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.named: dict[tuple[bytes, bytes], tuple[NamedJob, ...]] = {}  #: {(queue, alias): jobs}
        #: Of these: the unique tasks of all queues, {alias: jobs}.
        self.unique: dict[bytes, tuple[NamedJob, ...]] = {}

    def add(self, job: NamedJob) -> None:
        """Enter a job under its alias."""
        self._memory.used += NAME_COST + len(job.alias)
        key = (job.queue, job.alias)
        self.named[key] = (*self.named.get(key, ()), job)
        if job.alias[:1] == UNIQUE:
            self.unique[job.alias] = (*self.unique.get(job.alias, ()), job)

    def remove(self, job: NamedJob) -> None:
        """Forget the alias of a job."""
        self._memory.used -= NAME_COST + len(job.alias)
        key = (job.queue, job.alias)
        others = tuple(other for other in self.named[key] if other is not job)
        if others:
            self.named[key] = others
        else:
            del self.named[key]
        if job.alias[:1] == UNIQUE:
            others = tuple(other for other in self.unique[job.alias] if other is not job)
            if others:
                self.unique[job.alias] = others
            else:
                del self.unique[job.alias]

    def by_name(self, queue_name: bytes, alias: bytes) -> tuple[NamedJob, ...]:
        """Jobs of a queue with this alias, oldest first; more than one only after nodes could not hear each other."""
        return tuple(sorted(self.named.get((queue_name, alias), ()), key=_age))


def _age(job: Job) -> tuple[int, bytes]:
    return (job.ctime, job.id)
