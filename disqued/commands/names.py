"""Names of jobs within their queue: those that a reliable list gives, and those that producers of okq choose.

    first byte of the alias   whose names they are             example
    r                         RQ.PUSH: milliseconds-sequence   r1601155608777-1
    e                         QLPUSH: the producer's event id  eorder-17

Each family shows its own names, and the job id of whatever else is in the queue; it takes both.

A name of RQ.PUSH is made of the stamp of its job: the millisecond, and 1, 2, 3 ... within it.  In a cluster the
sequence is that number times 65536 plus 16 bits of the node's id, so that no two nodes give one name, but for nodes
whose 16 bits are the same.
"""

from collections.abc import Callable

from disqued.core.model.ids import is_job_id
from disqued.core.model.job import Job, NamedJob
from disqued.core.model.state import State
from disqued.core.node import Node

ELEMENT = b"r"
EVENT = b"e"

_PER_MS = 1_000_000  #: stamps in a millisecond
_TAGS = 1 << 16


def element_names(node: Node) -> Callable[[int], bytes]:
    """What makes the alias of an element from the stamp of its job."""
    if not node.state.peers.by_id:
        return _alone
    tag = int(node.id[:4], 16)

    def in_cluster(ctime: int) -> bytes:
        ms, count = divmod(ctime, _PER_MS)
        return b"%b%d-%d" % (ELEMENT, ms, (count + 1) * _TAGS + tag)

    return in_cluster


def _alone(ctime: int) -> bytes:
    ms, count = divmod(ctime, _PER_MS)
    return b"%b%d-%d" % (ELEMENT, ms, count + 1)


def name_of(job: Job, family: bytes) -> bytes:
    """What a family calls a job."""
    return shown(job.id, job.alias, family) if isinstance(job, NamedJob) else job.id


def shown(job_id: bytes, alias: bytes, family: bytes) -> bytes:
    """What a family calls the job of this id and alias."""
    return alias[1:] if alias[:1] == family else job_id


def jobs_called(state: State, queue_name: bytes, family: bytes, name: bytes) -> tuple[Job, ...]:
    """The jobs of a queue that a family calls so, or whose id this is; oldest first, done ones not among them."""
    found: tuple[Job, ...] = state.aliases.by_name(queue_name, family + name)
    if not found and is_job_id(name):
        job = state.jobs.get(name)
        if job is not None and job.queue == queue_name:
            return (job,)
    return found
