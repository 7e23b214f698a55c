"""Compaction: a new base, written between the turns of the loop while the node goes on.

              old base + increments up to N      | N+1 |
    begun     the manifest lists N+1 behind them; once N is synced, what happens goes to N+1
    drawn     the node is walked over bit by bit --> a thread --> new base, beside
    ended     the base is synced, the manifest says: new base + N+1; then the older segments are removed

The base is fuzzy: it shows no moment, but each record of it was true when it was drawn, and that was after N+1 began.
Whatever happened to a job later than that stands in N+1 and is read after the base, and what is met twice changes
nothing, so that both together say what is true (`recovery.walk`).  At each step the files that the manifest lists
are a whole journal, and those that it does not list are leftovers: a crash at any moment costs the work alone.

The reactor's thread draws, encodes and frames: a slice of `SLICE_S` with pauses in between, so that a client waits
hardly longer than for another client's command, and a quarter of the loop's time is spent here at most.  Every write
and every sync is the thread's, which runs next to no Python of its own: it would keep the interpreter from the reactor.

After a failure that is final, the old segments cannot be trusted.  Then N+1 stays off the manifest until the base is
complete: from that moment on the journal is sound again.

Times are seconds.  Source: Redis and Disque, src/aof.c (rewriteAppendOnlyFileBackground), which fork.
"""

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Final

import attrs
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from disqued.core.model.clock import Clock
from disqued.core.model.outbox import JOB_ADDED
from disqued.persistence.aof.journal_segments import JournalSegments
from disqued.persistence.aof.manifest import Base, Increment, Manifest
from disqued.persistence.aof.segments import Chunk, chunks_of, written
from disqued.persistence.disk import reason, write_all
from disqued.persistence.interface import StoreFailed
from disqued.wire.fields import Fields
from disqued.wire.jobdump import encode_event, job_text
from disqued.wire.pieces import Text

#: How long a slice may take: a command for a hundred jobs takes as long.
SLICE_S: Final = 0.002
#: Pause after a slice, in parts of what it took: a quarter of the loop's time goes into the compaction.
REST: Final = 3
#: Records between two looks at the clock, which costs as much as a third of a record.
RECORDS_PER_LOOK: Final = 16
#: Bytes between two looks at the clock.
BYTES_PER_LOOK: Final = 128 << 10
#: Records in a slice, whatever the clock says: about what fits into `SLICE_S` on a fast machine.
SLICE_RECORDS: Final = 1_024
#: Bytes that may wait for the thread; more are drawn when the disk has caught up.
BACKLOG_BYTES: Final = 8 << 20
#: How often the thread is checked.
POLL_S: Final = 0.01
#: Bytes between two syncs: what the disk writes in a moment, and not so few that it does nothing else.
SYNC_BYTES: Final = 32 << 20


class _CompactionThread:
    """A thread that does one thing after the other, and no more after one that fails."""

    def __init__(self) -> None:
        self.error: str | None = None  #: why it has stopped
        self._tasks: SimpleQueue[tuple[Callable[[], None], int] | None] = SimpleQueue()
        self._lock = Lock()
        self._pending = 0
        self.pending_bytes = 0  #: size of what it was given and has not done yet
        self._ending = False
        self._thread = Thread(target=self._run, name="journal-compact", daemon=True)
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        return self._pending == 0

    def do(self, task: Callable[[], None], size: int = 0) -> None:
        """Have something done after all that was given before."""
        with self._lock:
            self._pending += 1
            self.pending_bytes += size
        self._tasks.put((task, size))

    def end(self) -> None:
        """Wait until it has finished what it is at, and forget the rest."""
        self._ending = True
        self._tasks.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (entry := self._tasks.get()) is not None:
            task, size = entry
            if not self._ending and self.error is None:
                self._attempt(task)
            with self._lock:
                self._pending -= 1
                self.pending_bytes -= size

    def _attempt(self, task: Callable[[], None]) -> None:
        try:
            task()
        except OSError as error:
            self.error = reason(error)
        except StoreFailed as error:
            self.error = str(error)
        except Exception as error:
            # Whoever waits for it would wait for ever.
            self.error = f"internal error: {error!r}"
            raise


class Compaction:
    """One compaction, from its beginning to its end."""

    log = Logger()

    def __init__(
        self, journal: JournalSegments, records: Iterator[Fields | None], done: Callable[["Compaction"], None], *,
        clock: Clock, reactor: IReactorTime, repairs: bool,
    ) -> None:  # fmt: skip
        """Begin it; `done` is called at its end.  Raises OSError, StoreFailed.

        `repairs`: the segments that there are cannot be trusted.
        """
        self.manifest: Manifest = journal.manifest  #: what the journal is made of now
        self.error: str | None = None  #: why it failed
        self.is_given_up = False  #: it was abandoned, without an error
        self.succeeded: bool = False
        self.repairs = repairs
        self.incremental_fsync: bool = True
        self.count: int = 0  #: records drawn
        self._files = journal.files
        self._disk = journal.files.disk
        self._records = records
        self._journal = journal
        self._done = done
        self._clock = clock
        self._reactor = reactor
        number = self._files.free_number()
        self._increment = Increment(number, 0)
        self._base = Base(number + 1, 1, 0)
        self._increment_fd: int | None = self._files.begin(self._increment)
        self._base_fd: int | None = None
        self._unsynced = 0
        self._moved_at = 0
        self._worker = _CompactionThread()
        self._worker.do(self._prepare)
        self._turn: Callable[[], float | None] = self._take_over  #: what is next; returns the pause after it
        self._call: IDelayedCall | None = reactor.callLater(0, self._run)

    @property
    def waiting_bytes(self) -> int:
        """Bytes drawn and not written yet."""
        return self._worker.pending_bytes

    def abandon(self) -> None:
        """Have it over now, whatever is missing."""
        if self._call is not None:
            self._call.cancel()
            self._call = None
        self._end("given up", is_wish=True)

    # On the reactor's thread.

    def _run(self) -> None:
        self._call = None
        if self._worker.error is not None:
            self._end(self._worker.error)
            return
        try:
            pause = self._turn()
        except StoreFailed as error:
            self._end(str(error))
        except Exception:
            self.log.failure("Internal error while the node was walked over; the journal stays as it is")
            self._end("internal error")
        else:
            if pause is not None:
                self._call = self._reactor.callLater(pause, self._run)

    def _take_over(self) -> float:
        """Once the new increment is listed, have the journal go on there."""
        if not self._worker.is_idle:
            return POLL_S
        if self._worker.error is not None:
            raise StoreFailed(self._worker.error)
        fd, self._increment_fd = self._increment_fd, None
        assert fd is not None
        self._turn = self._draw
        self._journal.move(self.manifest, self._increment, fd)
        return 0

    def _draw(self) -> float:
        """Draw a slice of records and hand it to the thread."""
        if self._worker.pending_bytes > BACKLOG_BYTES:
            return POLL_S
        began = self._reactor.seconds()
        wall = self._clock.wall()
        offset = wall - self._clock.now()
        payloads: list[Text] = []
        size = look_at = 0
        for record in self._records:
            if record is None:
                break
            payload = job_text(record[1], offset) if record[0] == JOB_ADDED else encode_event(record, wall)
            payloads.append(payload)
            size += len(payload)
            if len(payloads) % RECORDS_PER_LOOK == 0 or size > look_at:
                look_at = size + BYTES_PER_LOOK
                if len(payloads) >= SLICE_RECORDS or self._reactor.seconds() - began >= SLICE_S:
                    break
        else:
            self._turn = self._complete
        if payloads:
            chunks: list[Chunk]
            chunks, is_large = chunks_of(payloads, self.count + 1)
            if not is_large:
                chunks = [b"".join(chunks)]  # type: ignore[arg-type]
            self.count += len(payloads)
            self._worker.do(lambda: self._write(chunks), sum(map(len, chunks)))
        return max(REST * (self._reactor.seconds() - began), REST * SLICE_S)

    def _complete(self) -> float:
        """Have the new base take the place of the old segments."""
        number = self._journal.moved_at()
        if number is None:
            return POLL_S
        self._moved_at = number
        self._worker.do(self._finish)
        self._turn = self._await
        return POLL_S

    def _await(self) -> float | None:
        if not self._worker.is_idle:
            return POLL_S
        self._end("the thread ended early")
        return None

    def _end(self, why: str, *, is_wish: bool = False) -> None:
        """End here, as somebody wishes or because of a failure, unless the thread has come to its end."""
        self._worker.end()
        if not self.succeeded:
            self.error = self._worker.error or why
            self.is_given_up = is_wish and self._worker.error is None
            self._remove_traces()
        self._done(self)

    def _remove_traces(self) -> None:
        """Leave the journal as the manifest has it."""
        for fd in (self._increment_fd, self._base_fd):
            if fd is not None:
                self._disk.close(fd)
        for segment in (self._base, self._increment):
            if segment.number not in {listed.number for listed in self.manifest.segments}:
                path = self._files.segment(segment)
                if path.exists():
                    self._files.remove(path)

    # On the thread.

    def _prepare(self) -> None:
        """List the new increment, once it is durable."""
        assert self._increment_fd is not None
        self._disk.fdatasync(self._increment_fd)
        if not self.repairs:
            # The rest of it is synced when the increment is taken into use, and commits may have to wait for that.
            assert self._journal.appender is not None
            self._journal.appender.sync_ahead()
            increments = (*self.manifest.increments, self._increment)
            self._list(attrs.evolve(self.manifest, increments=increments, has_queues=False))
        self._base_fd = self._files.begin(self._base)

    def _write(self, chunks: list[Chunk]) -> None:
        assert self._base_fd is not None
        for data in written(chunks):
            write_all(self._disk, self._base_fd, data)
            self._unsynced += len(data)
        if self.incremental_fsync and self._unsynced >= SYNC_BYTES:
            self._disk.fdatasync(self._base_fd)
            self._unsynced = 0

    def _finish(self) -> None:
        assert self._base_fd is not None
        fd, self._base_fd = self._base_fd, None
        try:
            self._disk.fdatasync(fd)
        finally:
            self._disk.close(fd)
        base = attrs.evolve(self._base, count=self.count)
        self._list(Manifest(base, (attrs.evolve(self._increment, first=self._moved_at),)))
        self.succeeded = True
        self._files.remove_leftovers(self.manifest)

    def _list(self, manifest: Manifest) -> None:
        """Replace the manifest; know what it says whatever comes of it.  Raises OSError."""
        try:
            self._files.write_manifest(manifest)
        except OSError:
            if self._files.lists(manifest):
                self.manifest = manifest
            raise
        self.manifest = manifest
