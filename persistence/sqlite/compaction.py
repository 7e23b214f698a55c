"""Making the database smaller, a little at a time, whenever the writer has nothing else to do.

    done, evictions, pauses, flushes    what is older than `sqlite-history` is deleted, some rows per transaction
    pages that are free                 are given back, some per transaction; the file becomes shorter
    the log                             is moved into the database and cut off

What a group has done stays while its job lives, the last word on a queue while it is the last, and the last flush
while there is a pause: they say what comes back.  Where groups begin is no history at all, however old it is:
`transaction` says when it goes.
"""

from collections.abc import Callable, Iterator
from typing import Final

from disqued.core.model.clock import Clock
from disqued.persistence.interface import StoreFailed
from disqued.persistence.sqlite.writer import Writer

PAUSE_MS: Final = 60_000  #: between two compactions that begin by themselves
MUCH_FREE_BYTES: Final = 64 << 20  #: less is kept for what comes
ROWS_PER_SLICE = 200  #: about 5 ms
PAGES_PER_SLICE = 64
PATIENCE_S = 0.005  #: commits wait no longer because of us

#: Which rows of each table nobody needs.
_CONDITIONS: Final = {
    "done": "done_at < :before AND (scope = '' OR NOT EXISTS (SELECT 1 FROM jobs WHERE id = done.id))",
    "evictions": "gone_at < :before",
    "pauses": """paused_at < :before AND (
        seq < (SELECT max(seq) FROM flushes)
        OR EXISTS (SELECT 1 FROM pauses AS later WHERE later.queue = pauses.queue AND later.seq > pauses.seq)
        OR pause = 0
        AND NOT EXISTS (SELECT 1 FROM pauses AS older WHERE older.queue = pauses.queue AND older.seq < pauses.seq))""",
    "flushes": """flushed_at < :before AND (
        seq < (SELECT max(seq) FROM flushes) OR NOT EXISTS (SELECT 1 FROM pauses))""",
}
_TRIMS: Final = tuple(
    f"DELETE FROM {table} WHERE seq IN (SELECT seq FROM {table} WHERE {condition} LIMIT {ROWS_PER_SLICE})"  # noqa: S608 - names of ours
    for table, condition in _CONDITIONS.items()
)


class Compaction:
    """One run of it; for the writer's thread."""

    def __init__(self, writer: Writer, before: int, done: Callable[[StoreFailed | None], None]) -> None:
        """Take the time before which all that is over goes; `done` is told on the writer's thread how it went."""
        self._writer = writer
        self._before = before
        self._done = done
        self._slices = self._run()

    def step(self) -> bool:
        """Do a slice; False when that was the last."""
        try:
            goes_on = next(self._slices, False)
        except StoreFailed as error:
            self._done(error)
            return False
        if not goes_on:
            self._done(None)
        return goes_on

    def _run(self) -> Iterator[bool]:
        for statement in _TRIMS:
            while self._writer.trim(statement, self._before) == ROWS_PER_SLICE:
                yield True
        while self._writer.give_back(PAGES_PER_SLICE):
            yield True
        while not self._writer.log.wait_for_checkpoint(PATIENCE_S):
            yield True
        self._writer.shorten_log()


class Upkeep:
    """When a compaction is due.  Times are milliseconds of the wall clock."""

    def __init__(self, writer: Writer, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self._not_before = 0
        self._trim_not_before = 0  #: what a group has done may be old, and stay with its job

    def begin(self, history_ms: int) -> None:
        """A compaction begins."""
        wall = self._clock.wall()
        self._not_before = wall + PAUSE_MS
        self._trim_not_before = wall + history_ms // 10

    def is_due(self, history_ms: int, size: int) -> bool:
        """Return whether much can be deleted, or given back of a file of so many bytes."""
        wall = self._clock.wall()
        return wall >= self._not_before and (self._has_old_facts(wall, history_ms) or self._has_much_free(size))

    def _has_old_facts(self, wall: int, history_ms: int) -> bool:
        oldest = self._writer.oldest_fact
        # Late by a tenth, so that there is something to do.
        late_ms = history_ms // 10
        return oldest is not None and wall - oldest > history_ms + late_ms and wall >= self._trim_not_before

    def _has_much_free(self, size: int) -> bool:
        free = self._writer.free_bytes
        return free > MUCH_FREE_BYTES and free > size // 2
