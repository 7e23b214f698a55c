"""Commands that walk over the queues and jobs of a node: QSCAN and JSCAN, with their filters and cursors.

Source: Disque 1.0-rc1.  SCAN JOB and SCAN QUEUE, which its README announced, are the same commands by other names.
"""

from collections.abc import Callable, Iterable
from functools import reduce
from operator import or_
from typing import Any
from zlib import crc32

import attrs

from disqued.commands.jobs import (
    DESCRIPTION,
    describe,
    touches,
)
from disqued.commands.permission import Sees, seen_by
from disqued.commands.queues import FIGURES, FULL_STATISTICS, absent, figures, statistics
from disqued.commands.shapes import array, bulk, either, status
from disqued.commands.table import Flag, command, container, flag, option, optional, repeated
from disqued.commands.values import INT64_MAX, INT64_MIN, QUEUE, SECOND, Kind, one_of, read_integer, span, whole
from disqued.core.model.job import FLAG_QUEUED_BEFORE, Job
from disqued.core.model.outbox import Client
from disqued.core.model.phases import PHASES_OF_WORD, STATE_WORDS, phase_of
from disqued.core.model.queues import Queue
from disqued.core.model.registry import TABLES
from disqued.core.node import Node
from disqued.core.work.delivery import FETCHED_BYTES
from disqued.wire.replies import Status


def _read_cursor(text: bytes) -> int:
    """Read an unsigned 64-bit number; a negative one wraps round, as in Disque.  Raises NotAnInteger."""
    return read_integer(text) % 2**64


CURSOR = Kind("integer", _read_cursor, "what the call before returned; 0 to begin", {"type": "integer", "minimum": 0})
MAXIDLE = span(
    SECOND, INT64_MIN, INT64_MAX, "MAXIDLE must be a number of seconds, whose milliseconds have 64 bits at most",
    "seconds, with fractions",
)  # fmt: skip
_STATE = one_of(
    {word.upper(): PHASES_OF_WORD[word] for word in STATE_WORDS},
    f"Invalid job state name - allowed are {', '.join(word.decode() for word in STATE_WORDS)}",
)
_NAME, _KNOWN, _FIGURES, _ALL = range(4)
_QUEUE_REPLY = one_of(
    {b"NAME": _NAME, b"KNOWN": _KNOWN, b"FIGURES": _FIGURES, b"ALL": _ALL},
    "Invalid REPLY type, try NAME, KNOWN, FIGURES or ALL",
)
_REPLY = one_of({b"ID": False, b"ALL": True}, "Invalid REPLY type, try ID or ALL")

DEFAULT_COUNT = 100
LOOKED_AT_PER_COUNT = 10  #: entries looked at, for each one that is wanted, before a call returns
# What one call does at most, whatever it is asked for: some milliseconds' work.
ELEMENTS_MAX = 2_000  #: names, or ids
DESCRIBED_MAX = 250  #: descriptions of jobs
STATISTICS_MAX = 500  #: of queues
ROW_COST = 256  #: bytes as which what a group made of an event counts
LOOKED_AT_MAX = 10_000

#: A cursor from here on goes on within a table of jobs: WITHIN + lowest key to come * TABLES + number of the table.
WITHIN = 1 << 48
KEYS = 1 << 32


@attrs.frozen
class Limits:
    """When a call of a walk returns."""

    wanted: int  #: elements, as a hint
    look_at: int
    most: int  #: elements, in any case

    @classmethod
    def of(cls, count: int, *, busyloop: bool, most: int) -> "Limits":
        """The limits for a COUNT; a negative one is as much as a call may do, and so is BUSYLOOP."""
        if busyloop or count < 0:
            return cls(most, LOOKED_AT_MAX, most)
        return cls(min(max(1, count), most), min(max(1, count * LOOKED_AT_PER_COUNT), LOOKED_AT_MAX), most)


def scan_queues(node: Node, cursor: int, limits: Limits, wanted: Callable[[Queue], bool]) -> tuple[int, list[Queue]]:
    """Walk over queues in the order of their creation; returns the next cursor (0 = done) and queues."""
    found: list[Queue] = []
    size = 0
    for queue in node.state.queues.from_serial(cursor, limits.look_at):
        if len(found) >= limits.wanted or size >= FETCHED_BYTES:
            return queue.serial, found
        if wanted(queue):
            found.append(queue)
            size += len(queue.name)
        cursor = queue.serial + 1
    return (cursor if node.state.queues.from_serial(cursor, 1) else 0), found


def scan_names(node: Node, cursor: int, limits: Limits, wanted: Callable[[Queue], bool]) -> tuple[int, list[Queue]]:
    """Walk over all names that have a queue or jobs here, in the order in which they came.

    Before them come those with nothing here whose steward this node is, and slots are lost.  Returns the next cursor
    (0 = done) and queues; of a name without one a queue that stands in for it.
    """
    queues = node.state.queues
    unknown = [] if cursor else [name for name in node.stewards.lost if name not in queues.counts]
    found = list(filter(wanted, [absent(node, name) for name in unknown[: limits.wanted]]))
    size = 0
    for name, serial in queues.names_from(cursor, limits.look_at):
        if len(found) >= limits.wanted or size >= FETCHED_BYTES:
            return serial, found
        queue = queues.by_name.get(name)
        if queue is None and queues.has_jobs(name):
            queue = absent(node, name)
        if queue is not None and wanted(queue):
            found.append(queue)
            size += len(name)
        cursor = serial + 1
    return (cursor if queues.names_from(cursor, 1) else 0), found


def scan_jobs(
    node: Node, cursor: int, limits: Limits, wanted: Callable[[Job], bool], size_of: Callable[[Job], int]
) -> tuple[int, list[Job]]:
    """Walk over jobs, table by table; returns the next cursor (0 = done) and jobs.

    A call ends between two tables, as a rule.  One that would answer too much ends within a table: the jobs of that
    are walked over by their key, and the cursor says which key comes next.
    """
    found: list[Job] = []
    seen = size = first_key = 0
    if cursor >= WITHIN:
        first_key, cursor = divmod(cursor - WITHIN, TABLES)
        if first_key >= KEYS:
            return 0, found
    for number, table in node.state.jobs.from_table(cursor):
        jobs = list(filter(wanted, table))
        if first_key and number == cursor:
            jobs = [job for job in jobs if _key(job) >= first_key]
        sizes = sum(map(size_of, jobs))
        if len(found) + len(jobs) > limits.most or size + sizes > FETCHED_BYTES:
            return _end_within(number, jobs, found, (limits.most - len(found), FETCHED_BYTES - size), size_of)
        found += jobs
        size += sizes
        seen += len(table)
        if len(found) >= limits.wanted or seen >= limits.look_at:
            return (number + 1) % TABLES, found
    return 0, found


def _key(job: Job) -> int:
    """A number below KEYS that is made of the id; as good as never the same for two jobs."""
    return crc32(job.id)


def _end_within(
    number: int, jobs: list[Job], found: list[Job], room: tuple[int, int], size_of: Callable[[Job], int]
) -> tuple[int, list[Job]]:
    """Answer what of the jobs of a table there is room for, elements and bytes, but one job at least."""
    elements, size = room
    last_key = -1
    for job in sorted(jobs, key=_key):
        key = _key(job)
        elements -= 1
        size -= size_of(job)
        # Jobs of one key, should there be any, are not told apart by the cursor.
        if (elements < 0 or size < 0) and found and key != last_key:
            return WITHIN + key * TABLES + number, found
        found.append(job)
        last_key = key
    return (number + 1) % TABLES, found


_SCAN_REPLY = "[cursor, elements]; the walk is over when the cursor is 0"
_SCANNED_QUEUES = array(
    either(
        bulk("cursor"),
        array(bulk("name"), "queue names"),
        array(FULL_STATISTICS, "statistics"),
        array(FIGURES, "figures"),
    ),
    _SCAN_REPLY,
)
_SCANNED_JOBS = array(
    either(bulk("cursor"), array(either(status("job id"), DESCRIPTION), "job ids, or descriptions")), _SCAN_REPLY
)
_SCAN_FAULT = "invalid cursor or option name"
_SCAN_COST = "O(1) per element; a whole walk is O(N)"


def _page(cursor: int, elements: Iterable[Any]) -> list[Any]:
    return [b"%d" % cursor, list(elements)]


@attrs.define
class _QueueScan:
    """What the two commands that walk over queues share."""

    cursor: int = optional("Where to go on.", CURSOR, 0)
    count: int = option("COUNT", "Elements wanted, as a hint.", whole("COUNT"), DEFAULT_COUNT)
    busyloop: bool = flag("BUSYLOOP", "As much as one call may do.")
    minlen: int | None = option("MINLEN", "Only queues with at least this many jobs.", whole("MINLEN"))
    maxlen: int | None = option("MAXLEN", "Only queues with at most this many jobs.", whole("MAXLEN"))
    import_rate: int | None = option(
        "IMPORTRATE", "Only queues that import this many jobs a second.", whole("IMPORTRATE")
    )
    maxidle: int | None = option("MAXIDLE", "Only queues used within this many seconds.", MAXIDLE)
    reply: int = option(
        "REPLY",
        "NAME: names of queues; KNOWN: also names with jobs alone; ALL: statistics of these as of QSTAT FULL; FIGURES: "
        "the most important ones.",
        _QUEUE_REPLY, default=_NAME,
    )  # fmt: skip

    def run(self, node: Node, client: Client) -> list[Any]:
        is_described = self.reply in {_FIGURES, _ALL}
        limits = Limits.of(self.count, busyloop=self.busyloop, most=STATISTICS_MAX if is_described else ELEMENTS_MAX)
        scan = scan_queues if self.reply == _NAME else scan_names
        cursor, queues = scan(node, self.cursor, limits, self._filter(node.state.now, seen_by(client)))
        if self.reply == _ALL:
            return _page(cursor, (statistics(node, queue, full=True) for queue in queues))
        if self.reply == _FIGURES:
            return _page(cursor, (figures(node, queue) for queue in queues))
        return _page(cursor, (queue.name for queue in queues))

    def _filter(self, now: int, sees: Sees | None) -> Callable[[Queue], bool]:
        def wanted(queue: Queue) -> bool:
            length = queue.length
            return (
                (sees is None or sees(queue.name))
                and (self.minlen is None or length >= self.minlen)
                and (self.maxlen is None or length <= self.maxlen)
                and (self.import_rate is None or queue.import_rate.per_second(now) >= self.import_rate)
                and (self.maxidle is None or (queue.serial > 0 and now - queue.accessed_at <= self.maxidle))
            )

        return wanted


@attrs.define
class _JobScan:
    """What the two commands that walk over jobs share."""

    cursor: int = optional("Where to go on.", CURSOR, 0)
    count: int = option("COUNT", "Elements wanted, as a hint.", whole("COUNT"), DEFAULT_COUNT)
    busyloop: bool = flag("BUSYLOOP", "As much as one call may do.")
    queue: bytes | None = option("QUEUE", "Only jobs of this queue.", QUEUE)
    states: tuple[int, ...] = repeated("STATE", "Only jobs in this state; may be given several times.", _STATE)
    full: bool = option("REPLY", "ID: ids; ALL: descriptions as of SHOW.", _REPLY, default=False)
    maxidle: int | None = option(
        "MAXIDLE", "Only jobs that were added, queued or handed out within this many seconds.", MAXIDLE
    )

    def run(self, node: Node, client: Client) -> list[Any]:
        limits = Limits.of(self.count, busyloop=self.busyloop, most=DESCRIBED_MAX if self.full else ELEMENTS_MAX)
        size_of = _described_size if self.full else _id_size
        wanted = self._filter(node, seen_by(client))
        cursor, jobs = scan_jobs(node, self.cursor, limits, wanted, size_of)
        if self.full:
            return _page(cursor, (describe(node, job) for job in jobs))
        return _page(cursor, (Status(job.id) for job in jobs))

    def _filter(self, node: Node, sees: Sees | None) -> Callable[[Job], bool]:
        queues, now, phases = node.state.queues, node.state.now, reduce(or_, self.states, 0)

        def wanted(job: Job) -> bool:
            return (
                # Of a dummy ack there is nothing to show.
                not job.is_dummy
                and (sees is None or sees(job.queue))
                and (self.queue is None or job.queue == self.queue)
                and (not phases or phases >> phase_of(queues, job) & 1 != 0)
                and (self.maxidle is None or now - _touched_at(job) <= self.maxidle)
            )

        return wanted


def _id_size(job: Job) -> int:
    return len(job.id)


def _described_size(job: Job) -> int:
    return len(job.queue) + len(job.body) + ROW_COST * touches(job)


def _touched_at(job: Job) -> int:
    """When a job was last queued or handed out, as far as its timer tells; else when it was added."""
    options = job.options
    if options.retry_ms and job.requeue_at and (not options.delay_ms or job.flags & FLAG_QUEUED_BEFORE):
        return job.requeue_at - options.retry_ms
    return job.expires_at - options.ttl_ms


@command(
    "QSCAN", group="queues", flags=Flag.READ, reply=_SCANNED_QUEUES, cost=_SCAN_COST, fault=_SCAN_FAULT,
)  # fmt: skip
@attrs.define
class QScan(_QueueScan):
    """Walk over the queues of this node.

    A node has a queue once a job was queued in it there, or a consumer has waited for one.  REPLY KNOWN, FIGURES and
    ALL also tell of queues that the node does not have while it knows jobs of them: delayed ones, copies of jobs of
    other nodes, jobs with RETRY 0 that a consumer has, and done ones.  No job waits in such a queue, so that MINLEN 1
    leaves it out, as MAXIDLE does; its ctime is 0.  A cursor of REPLY NAME is for REPLY NAME alone; one of the other
    three is for any of these.

    What is there throughout the walk is met at least once.  Whatever COUNT says, and with BUSYLOOP, too, a call looks
    at 10000 names at most, and answers at most 2000 names, a mebibyte of them, or the statistics or figures of 500
    queues: the walk goes on until the cursor is 0.
    """


@command(
    "JSCAN", group="jobs", flags=Flag.READ, reply=_SCANNED_JOBS, cost=_SCAN_COST, fault=_SCAN_FAULT,
    bodies_field="full",
)  # fmt: skip
@attrs.define
class JScan(_JobScan):
    """Walk over the jobs of this node.

    STATE takes the states of jobs, and the words of SHOW for where a job is (`phase`).  active is each of in-flight,
    delayed and elsewhere, queued is the same as ready, and acked the same as done.

    A job that is there throughout the walk is met at least once.  A call looks at 10000 jobs, or few more, and answers
    2000 ids, or 250 descriptions and a mebibyte of bodies, at most, whatever COUNT says and with BUSYLOOP, too: the
    walk goes on until the cursor is 0.
    """


container(
    "SCAN", group="queues", flags=Flag.READ, summary="Walk over the jobs or queues of this node.",
    misuse="SCAN takes JOB or QUEUE, then a cursor and options",
)  # fmt: skip


@command(
    "SCAN JOB", group="jobs", flags=Flag.READ, reply=_SCANNED_JOBS, cost=_SCAN_COST, fault=_SCAN_FAULT,
    bodies_field="full",
)  # fmt: skip
@attrs.define
class ScanJob(_JobScan):
    """Walk over the jobs of this node; JSCAN by the name that the README announced."""


@command(
    "SCAN QUEUE", group="queues", flags=Flag.READ, reply=_SCANNED_QUEUES, cost=_SCAN_COST, fault=_SCAN_FAULT,
)  # fmt: skip
@attrs.define
class ScanQueue(_QueueScan):
    """Walk over the queues of this node; QSCAN by the name that the README announced."""
