"""What the pages show of jobs on this node: who has one, what it is called, and which there are in a queue."""

from itertools import chain, islice
from typing import Final

import attrs

from disqued.core.model.job import (
    ACKED,
    KEYED,
    UNIQUE,
    Job,
    NamedJob,
)
from disqued.core.model.phases import PHASES_OF_WORD, READY
from disqued.core.model.registry import TABLES
from disqued.core.model.waiters import Consumer
from disqued.core.view import NodeView
from disqued.web.gateway import BODY_SEARCHED, SLICE_BYTES, SLICE_ROWS, Gateway
from disqued.web.turns import next_turn
from disqued.web.views import rendering

ROWS_MAX: Final = 100  #: jobs on a page
LOOKED_AT_MAX: Final = 20_000  #: jobs that one request looks at


def consumer_of(node: NodeView, job: Job) -> Consumer | None:
    """The client that has a job from this node; None where none has it, or it is not known, as after a restart."""
    lease = node.phases.lease_of(job)
    return None if lease is None else lease[1]


def name_of_consumer(consumer: Consumer) -> str:
    """The name of a client and its address, as far as it has them."""
    address = rendering.name(consumer.address, 80) if consumer.address else "no address"
    return f"{rendering.name(consumer.name, 60)} ({address})" if consumer.name else address


KEY_IN_WORDS: Final = "key that its producer gave it"
#: First byte of an alias: whose name it is, for people.
_FAMILIES: Final = {
    b"u": "unique task", b"r": "element of a list", b"e": "event of a producer", KEYED: KEY_IN_WORDS,
}  # fmt: skip


def name_of(job: Job) -> tuple[str, bytes] | None:
    """The name that a job has in its queue, and whose it is; empty where its body is the name.  None = it has none."""
    if not isinstance(job, NamedJob):
        return None
    family = job.alias[:1]
    return _FAMILIES.get(family, "name"), b"" if family == UNIQUE else job.alias[1:]


# Jobs of a queue.


@attrs.frozen
class JobSearch:
    """Which jobs of a queue somebody looks for."""

    queue: bytes
    state: str = "ready"  #: a word that STATE of JSCAN takes, or any
    text: bytes = b""  #: part of the body
    older_ms: int = 0  #: added at least so long ago
    #: Where to go on: a place in the queue, or a table of jobs and, times TABLES, a place in it.
    cursor: int = 0

    @property
    def is_in_queue(self) -> bool:
        """True when jobs are meant that wait in the queue alone."""
        return self.state != "any" and PHASES_OF_WORD[self.state.encode()] == 1 << READY

    def lets_through(self, job: Job, node: NodeView) -> bool:
        """Tell whether a job is one of those, its body aside."""
        return (
            job.queue == self.queue
            and not job.is_dummy
            and (self.state == "any" or PHASES_OF_WORD[self.state.encode()] >> node.phases.of(job) & 1 != 0)
            and node.wall() - job.ctime // 1_000_000 >= self.older_ms
            and not (self.text and job.state == ACKED)
        )

    def is_in(self, body: bytes) -> bool:
        return not self.text or body.find(self.text, 0, BODY_SEARCHED) >= 0


@attrs.frozen
class SearchResult:
    """What a search has found so far."""

    jobs: list[Job]
    looked_at: int
    cursor: int  #: where to go on; 0 = there is no more


async def search(gateway: Gateway, wanted: JobSearch) -> SearchResult:
    """Look for jobs, SLICE_ROWS in a turn of the loop, and at LOOKED_AT_MAX altogether."""
    return await (_in_queue if wanted.is_in_queue else _in_registry)(gateway, wanted)


async def _in_queue(gateway: Gateway, wanted: JobSearch) -> SearchResult:
    """Look through a queue from its front; what moves meanwhile may be met twice or not at all."""
    found: dict[bytes, Job] = {}
    at = wanted.cursor
    while at - wanted.cursor < LOOKED_AT_MAX and len(found) < ROWS_MAX:
        queue = gateway.view.queue(wanted.queue)
        units = [] if queue is None else list(islice(chain(queue.units, queue.stream or ()), at, at + SLICE_ROWS))
        passed = _pick([unit.job for unit in units], wanted, gateway.view, found)
        at += passed
        if passed == len(units) < SLICE_ROWS:
            return SearchResult(list(found.values()), at - wanted.cursor, 0)
        await next_turn(gateway.turns)
    return SearchResult(list(found.values()), at - wanted.cursor, at)


async def _in_registry(gateway: Gateway, wanted: JobSearch) -> SearchResult:
    """Look through all jobs, table by table; what comes or goes meanwhile may be met twice or not at all."""
    found: dict[bytes, Job] = {}
    looked_at = since = 0
    place, number = divmod(wanted.cursor, TABLES)
    while number < TABLES and looked_at < LOOKED_AT_MAX and len(found) < ROWS_MAX:
        jobs = gateway.view.jobs_of_table(number, place, SLICE_ROWS)
        passed = _pick(jobs, wanted, gateway.view, found)
        looked_at += passed
        since += passed + 1
        place += passed
        is_through = passed == len(jobs) < SLICE_ROWS
        if is_through:
            place, number = 0, number + 1
        if wanted.text or since >= SLICE_ROWS or not is_through:
            since = 0
            await next_turn(gateway.turns)
    return SearchResult(list(found.values()), looked_at, place * TABLES + number if number < TABLES else 0)


def _pick(jobs: list[Job], wanted: JobSearch, node: NodeView, found: dict[bytes, Job]) -> int:
    """Add the jobs that are looked for to those found, as far as one turn may look; returns how many were looked at."""
    searched = 0
    for passed, job in enumerate(jobs, 1):
        if wanted.lets_through(job, node):
            searched += min(len(job.body), BODY_SEARCHED) if wanted.text else 0
            if wanted.is_in(job.body):
                found[job.id] = job
        if len(found) == ROWS_MAX or searched >= SLICE_BYTES:
            return passed
    return len(jobs)
