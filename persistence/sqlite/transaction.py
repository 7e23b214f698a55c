"""A commit as one transaction: what the records come to, in few statements.

    ADDED a, ADDED b, DONE a, DONE c    -->    c: into `done`, out of `jobs`     a: into `done`     b: into `jobs`

A job that comes and goes between two commits never gets into the table of jobs.  Whatever the database has to do
it is told for up to 64 rows at once: each statement lets go of the interpreter and asks for it back, and a
busy reactor is slow to hand it over.

A flush divides a transaction: what was before it is written first.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

from disqued.core.job import WORK_SCOPE
from disqued.core.outbox import FLUSHED, JOB_ADDED, QUEUE_PAUSED, UNIT_DONE
from disqued.persistence.sqlite.rows import (
    JOB_COLUMNS,
    Note,
    Row,
    fact_row,
    flush_row,
    id_text,
    job_row,
    news_row,
    pause_row,
    readable,
)
from disqued.persistence.sqlite.schema import drop_indexes, make_indexes

_SIZES: Final = (64, 32, 16, 8, 4, 2, 1)  #: rows of a statement; few sizes, so that each is prepared once

_JOB = f"({', '.join('?' * len(JOB_COLUMNS))})"
_INSERT_JOBS = f"INSERT OR REPLACE INTO jobs ({', '.join(JOB_COLUMNS)}) VALUES "  # noqa: S608 - names of ours
_DELETE_JOBS = "DELETE FROM jobs WHERE id IN ("
#: The row of what is over, with what the row of the job knows; the sum is modulo 2**32.
_FROM_JOB = (
    "SELECT column1, column2, column3, queue, ctime, column4, coalesce(fact_crc, column5) + column6 & 4294967295"
    " FROM (VALUES "
)
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
        """Take the connection; without history only the jobs that are left are written."""
        self.oldest_fact: int | None = None  #: time of the first job that is over
        self._connection = connection
        self._execute = connection.execute
        self._keeps_history = keeps_history
        # What is known of the jobs since the last flush.
        self._added: dict[bytes, Note] = {}
        self._over: dict[bytes, Note] = {}  #: the last word on jobs that the database may hold
        self._done_in_groups: list[Note] = []
        self._brief: list[tuple[Note, Note]] = []  #: (end, beginning) of jobs that came and went
        self._stale: set[bytes] = set()  #: their ids, which older rows may have

    def write(self, notes: Iterable[Note]) -> None:
        """Write notes, in their order.  Raises sqlite3.Error."""
        added = self._added
        for note in notes:
            kind = note[0]
            if kind == JOB_ADDED:
                # The later one stands at the end.
                added.pop(note[2], None)
                added[note[2]] = note
            elif kind == FLUSHED:
                self._settle()
                self._flush(note)
            elif kind == QUEUE_PAUSED:
                _, sequence, queue, pause, when = note
                self._pause(sequence, queue, pause, when)
            elif kind == UNIT_DONE and note[3] != WORK_SCOPE:
                self._done_in_groups.append(note)
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

    def _settle(self) -> None:
        """Write what is known of jobs so far."""
        if self._keeps_history:
            self._write_facts()
        gone = [id_text(job_id) for job_id in chain(self._over, self._stale)]
        self._in_pieces(_DELETE_JOBS, "?", ")", gone)
        rows = [job_row(note) for note in self._added.values()]
        self._in_pieces(_INSERT_JOBS, _JOB, "", rows)
        for known in (self._added, self._over, self._done_in_groups, self._brief, self._stale):
            known.clear()

    def _write_facts(self) -> None:
        for done in (True, False):
            brief = [pair for pair in self._brief if (pair[0][0] == UNIT_DONE) is done]
            over = [note for note in self._over.values() if (note[0] == UNIT_DONE) is done]
            if done:
                over += self._done_in_groups
            table, tail, at = _FACTS[done]
            head = f"INSERT INTO {table} (seq, id, {tail}, queue, ctime, {at}, crc) "
            self._in_pieces(head + "VALUES ", "(?, ?, ?, ?, ?, ?, ?)", "", [fact_row(*pair) for pair in brief])
            self._in_pieces(
                head + _FROM_JOB,
                "(?, ?, ?, ?, ?, ?)",
                ") LEFT JOIN jobs ON jobs.id = column2",
                [news_row(note) for note in over],
            )
            for note in chain((pair[0] for pair in brief), over):
                self._note_fact(note[4])

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

    # Queues.

    def _pause(self, sequence: int, queue: bytes, pause: int, when: int) -> None:
        self._execute(
            "INSERT INTO pauses (seq, queue, pause, paused_at, crc) VALUES (?, ?, ?, ?, ?)",
            pause_row(sequence, queue, pause, when),
        )

    def _flush(self, note: Note) -> None:
        """Drop all jobs, and note that; a pause from before counts no more."""
        _, sequence, when = note
        (jobs,) = self._execute("SELECT count(*) FROM jobs").fetchone()
        self._execute("DELETE FROM jobs")
        self._execute(
            "INSERT INTO flushes (seq, flushed_at, jobs, crc) VALUES (?, ?, ?, ?)", flush_row(sequence, when, jobs)
        )

    # Everything anew.

    def replace(self, slices: Iterable[list[Note]]) -> None:
        """Let these jobs and pauses be all that there is; what is over stays."""
        drop_indexes(self._connection, "jobs")
        self._execute("DELETE FROM jobs")
        paused = {queue: pause for _, queue, pause, _, _ in self._execute(PAUSED_NOW).fetchall()}
        for notes in slices:
            self._in_pieces(_INSERT_JOBS, _JOB, "", [job_row(note) for note in notes if note[0] == JOB_ADDED])
            for _, sequence, queue, pause, when in (note for note in notes if note[0] == QUEUE_PAUSED):
                if paused.pop(readable(queue), 0) != pause:
                    self._pause(sequence, queue, pause, when)
        for queue in paused:
            self._execute("DELETE FROM pauses WHERE queue = ?", (queue,))
        self._make_indexes()

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
