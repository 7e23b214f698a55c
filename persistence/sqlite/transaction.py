"""A commit as one transaction: what the records come to, in few statements.

    ADDED a, ADDED b, DONE a, DONE c    -->    c: into `done`, out of `jobs`     a: into `done`     b: into `jobs`
    LEASED b, LEASED b, LEASED a        -->    b: into `leases`, once
    GROUP g, GROUP g                    -->    g: into `groups`, once, or out of it when it means nothing any more
    POLICY q, POLICY q                  -->    q: into `policies`, the last one, or out of it when it is forgotten

A job that comes and goes between two commits never gets into the table of jobs.  Who has a unit is known as long as
its job is there and the unit is not done.  Whatever the database has to do
it is told for up to 64 rows at once: each statement lets go of the interpreter and asks for it back, and a
busy reactor is slow to hand it over.

A flush divides a transaction: what was before it is written first.

Where a group began, and up to where a queue was flushed, is kept until the node says that it means nothing any more.
The node alone can know: it has seen how long events live, and which of other nodes may come late.  Without that row
events that were flushed could come back, and a group could get those again that it began behind; so no row goes because
of its age, nor because its queue looks empty here.  The node says so once, some minutes after the longest life of an
event of the queue has passed, also when it was down meanwhile: so no row stays for ever.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

from disqued.core.model.job import ACKED, WORK_SCOPE
from disqued.core.model.outbox import (
    FLUSHED,
    GROUP,
    JOB_ADDED,
    POLICY,
    QUEUE_PAUSED,
    UNIT_DONE,
    UNIT_LEASED,
    WATERMARK,
    Record,
    is_over,
)
from disqued.core.model.policies import FIELD_NAMES
from disqued.persistence.sqlite.rows import (
    JOB_COLUMNS,
    BadRow,
    Note,
    Row,
    fact_row,
    flush_row,
    group_record,
    group_row,
    id_text,
    job_row,
    joined,
    lease_row,
    name_in,
    news_row,
    pause_row,
    policy_row,
    readable,
)
from disqued.persistence.sqlite.schema import GROUP_NAME, drop_indexes, make_indexes, set_watermark

_SIZES: Final = (64, 32, 16, 8, 4, 2, 1)  #: rows of a statement; few sizes, so that each is prepared once

_JOB = f"({', '.join('?' * len(JOB_COLUMNS))})"
_INSERT_JOBS = f"INSERT OR REPLACE INTO jobs ({', '.join(JOB_COLUMNS)}) VALUES "  # noqa: S608 - names of ours
_DELETE_JOBS = "DELETE FROM jobs WHERE id IN ("
_DELETE_DONE_IN_GROUPS = "DELETE FROM done WHERE scope <> '' AND id IN ("
_LEASE = "(?, ?, ?, ?, ?, ?, ?)"
_INSERT_LEASES = "INSERT OR REPLACE INTO leases (seq, id, scope, deliveries, worker, leased_at, crc) "
_DELETE_LEASES = "DELETE FROM leases WHERE id IN ("
_DELETE_LEASES_OF_UNITS = "DELETE FROM leases WHERE (id, scope) IN (VALUES "
_INSERT_DONE_ANEW = (
    "INSERT INTO done (seq, id, scope, queue, ctime, done_at, crc) SELECT ?, ?, ?, ?, ?, ?, ?"
    " WHERE NOT EXISTS (SELECT 1 FROM done WHERE scope <> '' AND id = ? AND scope = ?)"
)
_LEASES_OF_JOBS = _INSERT_LEASES + "SELECT * FROM (VALUES "  # noqa: S608 - names of ours
_OF_A_JOB = ") WHERE EXISTS (SELECT 1 FROM jobs WHERE jobs.id = column2)"
#: The row of what is over, with what the row of the job knows; the sum is modulo 2**32.
_FROM_JOB = (
    "SELECT column1, column2, column3, queue, ctime, column4, coalesce(fact_crc, column5) + column6 & 4294967295"
    " FROM (VALUES "
)
_GROUP_KNOWN = f"SELECT seq, queue, scope, floor, began_at, crc FROM groups WHERE queue = ? AND {GROUP_NAME} = ?"  # noqa: S608 - a query of ours
_DELETE_GROUP = f"DELETE FROM groups WHERE queue = ? AND {GROUP_NAME} = ?"  # noqa: S608 - a query of ours
_INSERT_GROUP = "INSERT OR REPLACE INTO groups (seq, queue, scope, floor, began_at, crc) VALUES (?, ?, ?, ?, ?, ?)"
_INSERT_POLICY = (
    "INSERT OR REPLACE INTO policies (seq, queue, field, counter, node, set_at, value, crc)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_DELETE_POLICY = "DELETE FROM policies WHERE queue = ? AND field = ?"
#: Table, and its columns for the tail and the time, of what is over.
_FACTS = {True: ("done", "scope", "done_at"), False: ("evictions", "reason", "gone_at")}

#: The queues that are paused now: the last word on each of them.
PAUSED_NOW: Final = (
    "SELECT seq, queue, pause, paused_at, crc FROM pauses"
    " WHERE seq IN (SELECT max(seq) FROM pauses WHERE seq > (SELECT coalesce(max(seq), 0) FROM flushes) GROUP BY queue)"
    " AND pause <> 0 ORDER BY seq"
)


class Transaction:
    """Writes notes within a transaction that is open."""

    def __init__(self, connection: sqlite3.Connection, *, keeps_history: bool) -> None:
        """Take the connection; without history only what comes back is written."""
        self.oldest_fact: int | None = None  #: time of the first job that is over
        self._connection = connection
        self._execute = connection.execute
        self._keeps_history = keeps_history
        # What is known of the jobs since the last flush.
        self._added: dict[bytes, Note] = {}
        self._over: dict[bytes, Note] = {}  #: the last word on jobs that the database may hold
        self._done_in_groups: list[Note] = []  #: of jobs that the database may hold
        self._brief: list[tuple[Note, Note]] = []  #: (end, beginning) of jobs that came and went
        self._brief_in_groups: list[tuple[Note, Note]] = []  #: (done, beginning) of units that came and went
        self._stale: set[bytes] = set()  #: ids of jobs that came and went, which older rows may have
        # What is known of those who have units since then.
        self._leased: dict[bytes, dict[bytes, Note]] = {}  #: the last word, by id of the job and scope
        self._free_jobs: dict[bytes, None] = {}  #: ids of jobs that nobody has, whatever the database says
        self._free_units: dict[tuple[bytes, bytes], None] = {}  #: (id, scope) of units, likewise

    def write(self, notes: Iterable[Note]) -> None:
        """Write notes, in their order.  Raises sqlite3.Error."""
        added = self._added
        for note in notes:
            kind = note[0]
            if kind == JOB_ADDED:
                # The later one stands at the end.
                added.pop(note[2], None)
                added[note[2]] = note
                if note[5] == ACKED:
                    self._free(note[2])
            elif kind == FLUSHED:
                self._settle()
                self._flush(note)
            elif kind == QUEUE_PAUSED:
                _, sequence, queue, pause, when = note
                self._pause(sequence, queue, pause, when)
            elif kind == UNIT_LEASED:
                self._lease(note)
            elif kind == POLICY:
                self._set_policy(note)
            elif kind == GROUP:
                self._begin_group(note)
            elif kind == UNIT_DONE and note[3] != WORK_SCOPE:
                self._end_in_group(note)
            elif kind == WATERMARK:
                set_watermark(self._connection, note[2])
            else:
                self._end(note)
        self._settle()

    def _end(self, note: Note) -> None:
        job_id = note[2]
        job = self._added.pop(job_id, None)
        if job is not None:
            self._stale.add(job_id)
            self._brief.append((note, job))
        elif job_id not in self._stale:
            self._over.setdefault(job_id, note)
        self._free(job_id)

    def _end_in_group(self, note: Note) -> None:
        _, _, job_id, scope, _ = note
        job = self._added.get(job_id)
        if job is not None:
            self._brief_in_groups.append((note, job))
        else:
            self._done_in_groups.append(note)
        self._leased.get(job_id, {}).pop(scope, None)
        self._free_units[job_id, scope] = None

    def _lease(self, note: Note) -> None:
        units = self._leased.setdefault(note[2], {})
        # The later one stands at the end.
        units.pop(note[3], None)
        units[note[3]] = note

    def _free(self, job_id: bytes) -> None:
        """Nobody has any unit of a job."""
        self._leased.pop(job_id, None)
        self._free_jobs[job_id] = None

    def _settle(self) -> None:
        """Write what is known of jobs so far."""
        gone = [id_text(job_id) for job_id in chain(self._over, self._stale)]
        if self._keeps_history:
            self._write_facts()
        else:
            self._write_done_in_groups()
            self._in_pieces(_DELETE_DONE_IN_GROUPS, "?", ")", gone)
        self._in_pieces(_DELETE_JOBS, "?", ")", gone)
        rows = [job_row(note) for note in self._added.values()]
        self._in_pieces(_INSERT_JOBS, _JOB, "", rows)
        self._write_leases()
        for known in (self._added, self._over, self._done_in_groups, self._brief, self._brief_in_groups, self._stale,
                      self._leased, self._free_jobs, self._free_units):  # fmt: skip
            known.clear()

    def _write_facts(self) -> None:
        for done in (True, False):
            brief = [pair for pair in self._brief if (pair[0][0] == UNIT_DONE) is done]
            over = [note for note in self._over.values() if (note[0] == UNIT_DONE) is done]
            if done:
                brief += self._brief_in_groups
                over += self._done_in_groups
            self._insert_facts(brief, over, "LEFT JOIN", done=done)
            for note in chain((pair[0] for pair in brief), over):
                self._note_fact(note[4])

    def _write_done_in_groups(self) -> None:
        """Write what groups have done of jobs that are there: it comes back with them."""
        self._insert_facts(self._brief_in_groups, self._done_in_groups, "JOIN", done=True)

    def _insert_facts(self, brief: list[tuple[Note, Note]], over: list[Note], join: str, *, done: bool) -> None:
        table, tail, at = _FACTS[done]
        head = f"INSERT INTO {table} (seq, id, {tail}, queue, ctime, {at}, crc) "
        self._in_pieces(head + "VALUES ", "(?, ?, ?, ?, ?, ?, ?)", "", [fact_row(*pair) for pair in brief])
        self._in_pieces(head + _FROM_JOB, "(?, ?, ?, ?, ?, ?)", f") {join} jobs ON jobs.id = column2",
                        [news_row(note) for note in over])  # fmt: skip

    def _write_leases(self) -> None:
        if self._free_jobs or self._free_units:
            (found,) = self._execute("SELECT EXISTS (SELECT 1 FROM leases)").fetchone()
            if found:
                self._in_pieces(_DELETE_LEASES, "?", ")", [id_text(job_id) for job_id in self._free_jobs])
                units = [(id_text(job_id), readable(scope)) for job_id, scope in self._free_units]
                self._in_pieces(_DELETE_LEASES_OF_UNITS, "(?, ?)", ")", units)
        leased = [lease_row(note) for units in self._leased.values() for note in units.values()]
        self._in_pieces(_LEASES_OF_JOBS, _LEASE, _OF_A_JOB, leased)

    def _note_fact(self, when: int) -> None:
        if self.oldest_fact is None or when < self.oldest_fact:
            self.oldest_fact = when

    def _in_pieces(self, head: str, item: str, tail: str, rows: Sequence[Row | str]) -> None:
        """Execute a statement for all the rows, for many at a time."""
        start = 0
        for size in _SIZES:
            while len(rows) - start >= size:
                piece = rows[start : start + size]
                values: Sequence[Any] = piece if item == "?" else list(chain.from_iterable(piece))
                self._execute(_statement(head, item, tail, size), values)
                start += size

    def _pause(self, sequence: int, queue: bytes, pause: int, when: int) -> None:
        self._execute(
            "INSERT INTO pauses (seq, queue, pause, paused_at, crc) VALUES (?, ?, ?, ?, ?)",
            pause_row(sequence, queue, pause, when),
        )

    def _set_policy(self, note: Note) -> None:
        """Note what the cluster says of a queue, or forget it."""
        queue, field, register = note[2:]
        if register.counter:
            self._execute(_INSERT_POLICY, policy_row(note))
        else:
            self._execute(_DELETE_POLICY, (readable(queue), FIELD_NAMES[field].decode()))

    def _begin_group(self, note: Note) -> None:
        """Note where a group begins, or up to where a queue was flushed; or forget it."""
        queue, name = note[2], name_in(note[3])
        if is_over(note[3], note[4]):
            self._execute(_DELETE_GROUP, (readable(queue), name))
            return
        known = self._known_group(queue, name)
        new = note if known is None else joined(note, known)
        if new is not None:
            self._execute(_INSERT_GROUP, group_row(new))

    def _known_group(self, queue: bytes, name: bytes) -> Record | None:
        row = self._execute(_GROUP_KNOWN, (readable(queue), name)).fetchone()
        if row is None:
            return None
        try:
            return group_record(tuple(value.encode() if isinstance(value, str) else value for value in row))
        except BadRow as error:
            raise sqlite3.DatabaseError(f"record {error.number}: {error}") from None

    def _flush(self, note: Note) -> None:
        """Drop all jobs, and note that; a pause of this node from before counts no more, and policies stay."""
        _, sequence, when = note
        (jobs,) = self._execute("SELECT count(*) FROM jobs").fetchone()
        self._execute("DELETE FROM jobs")
        self._execute("DELETE FROM leases")
        self._execute("DELETE FROM groups")
        if not self._keeps_history:
            self._execute("DELETE FROM done WHERE scope <> ''")
        self._execute(
            "INSERT INTO flushes (seq, flushed_at, jobs, crc) VALUES (?, ?, ?, ?)", flush_row(sequence, when, jobs)
        )

    def replace(self, slices: Iterable[list[Note]]) -> None:
        """Let these jobs, leases, groups, pauses and policies be all that there is; what is over stays."""
        drop_indexes(self._connection, "jobs")
        for table in ("jobs", "leases", "groups", "policies"):
            self._execute(f"DELETE FROM {table}")  # noqa: S608 - a name of ours
        paused = {queue: pause for _, queue, pause, _, _ in self._execute(PAUSED_NOW).fetchall()}
        for notes in slices:
            self._in_pieces(_INSERT_JOBS, _JOB, "", [job_row(note) for note in notes if note[0] == JOB_ADDED])
            for _, sequence, queue, pause, when in (note for note in notes if note[0] == QUEUE_PAUSED):
                if paused.pop(readable(queue), 0) != pause:
                    self._pause(sequence, queue, pause, when)
            for note in notes:
                if note[0] == GROUP:
                    self._begin_group(note)
                elif note[0] == POLICY:
                    self._set_policy(note)
                elif note[0] == WATERMARK:
                    set_watermark(self._connection, note[2])
            self._put_units(notes)
        for queue in paused:
            self._execute("DELETE FROM pauses WHERE queue = ?", (queue,))
        self._make_indexes()
        self._execute("DELETE FROM leases WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = leases.id)")

    def _put_units(self, notes: list[Note]) -> None:
        """Write what is known of units: who has them, and what groups have done and the database does not know."""
        leased = [lease_row(note) for note in notes if note[0] == UNIT_LEASED]
        self._in_pieces(_INSERT_LEASES + "VALUES ", _LEASE, "", leased)
        for note in notes:
            if note[0] == UNIT_DONE and note[3] != WORK_SCOPE:
                row = fact_row(note, None)
                self._execute(_INSERT_DONE_ANEW, (*row, *row[1:3]))

    def _make_indexes(self) -> None:
        try:
            make_indexes(self._connection, "jobs")
        except sqlite3.IntegrityError:
            # A job was given twice: the later one counts.
            self._execute("DELETE FROM jobs WHERE seq NOT IN (SELECT max(seq) FROM jobs GROUP BY id)")
            make_indexes(self._connection, "jobs")


@cache
def _statement(head: str, item: str, tail: str, size: int) -> str:
    return head + ", ".join([item] * size) + tail
