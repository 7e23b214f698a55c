"""The event log of a node: from the event trace of the core to files.

    steps --> state.trace.full: lines -----------------------------------------------------------> a thread --> files
                                     when there are HANDED_OVER bytes of them, or FLUSH_S after the first
              notes, while the folder is not ready --> lines

Nobody waits for it, and it makes nobody wait: what happens becomes lines on the loop, there and then, and the files
are the thread's.  While more than BACKLOG_MAX bytes wait for the disk, lines are lost, and counted.  What happens is
written when it happens, so that an addition that the journal refuses a moment later has a line, and another one that
takes it back.  While nothing happens there is no timer but the one that publishes the file that is open when its time
is over, and that removes old ones, also while nobody wants events.

`events` says what is wanted: all, terminal, off.  Times are seconds.
"""

from collections.abc import Callable
from functools import partial
from threading import Event
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from disqued.config.settings import Settings
from disqued.core.model.trace import STOP, EventTrace, Notes
from disqued.core.node import Node
from disqued.persistence.disk import Disk, reason
from disqued.persistence.eventlog.files import PRUNE_S, EventFiles, EventLogScan, Facts, Limits
from disqued.persistence.interface import IEventLog
from disqued.persistence.worker import WorkerThread
from disqued.wire.eventlines import EventLines, address

FLUSH_S = 0.2  #: longest time before a line is handed to the writer
HANDED_OVER = 1 << 20  #: bytes of lines that are handed over at once: each time costs two changes of threads
BACKLOG_MAX = 64 << 20  #: bytes of lines that wait for the disk; more are lost
UNREADY_MAX = 100_000  #: notes that wait for the folder; more are lost
RETRY_S = 5.0  #: pause before the folder is tried again, when that cannot be used

T = TypeVar("T")

ALL, TERMINAL, OFF = "all", "terminal", "off"


@implementer(IEventLog)
class EventLog:
    """What is told of a node, and where it goes."""

    log = Logger()

    def __init__(self, node: Node, reactor: Any, config: Settings, disk: Disk | None = None) -> None:
        """Nothing happens before `follow`."""
        self._state = node.state
        self._reactor = reactor
        assert config.events_dir is not None
        self._folder = config.events_dir
        self._limits = _limits(config)
        self._disk = disk
        self._wanted = OFF
        self._files: EventFiles | None = None
        self._thread: WorkerThread | None = None
        self._lines: EventLines | None = None  #: None while the folder is not ready
        self._facts = Facts()
        self._beginning: Deferred[Any] | None = None  #: fires when the folder is ready, or turned out not to be
        self._noted: list[Notes] = []  #: boots before the folder is ready, of which the last one may go on
        self._unnumbered = 0  #: lost lines that the next boot has to report as missing
        self._waiting = 0  #: bytes on their way to the disk
        self._lost = 0  #: lines that were lost on the way there
        self._told = ""  #: the last error logged
        self._call: IDelayedCall | None = None
        self._publish_call: IDelayedCall | None = None
        self._is_on = False  #: the node has begun, and has not stopped
        self._put_away: Event | None = None  #: set when the last thread has done what it had to
        self._ended: Deferred[Any] | None = None  #: fires after that

    # What is wanted.

    def follow(self, wanted: str, word: str = "on") -> None:
        before, self._wanted = self._wanted, wanted
        self._is_on = True
        if before not in (OFF, wanted):
            self._state.note_node(STOP, b"off")
        if wanted == OFF:
            if before == OFF:
                self._rest()
            elif self._beginning is None:
                self._end_for_now()
            else:
                self._tell(None)
        elif before == OFF:
            self._note()
            if self._files is None:
                self._begin(word)
        elif before != wanted:
            self._switch()

    def _tell(self, trail: EventTrace | None) -> None:
        """Let the core tell a trail of what is wanted from now on; None: nobody."""
        state = self._state
        state.trace.endings = trail
        state.trace.full = trail if self._wanted == ALL else None
        if trail is not None:
            trail.act(state.wall, state.now, state.trace.actor)

    def _note(self) -> None:
        """Keep what happens from now on until the folder is ready."""
        state = self._state
        # All boots that wait share the bound.
        notes = Notes(state.node_id, state.wall, UNREADY_MAX - sum(notes.count for notes in self._noted))
        notes.lost, self._unnumbered = self._unnumbered, 0
        self._noted.append(notes)
        self._tell(notes)

    def _switch(self) -> None:
        """Go on with what is wanted now, in another boot: the one before ends, and proves nothing from here on."""
        lines, state = self._lines, self._state
        if lines is None:
            self._note()
        else:
            lines.begin_another(state.node_id, state.wall)
            self._tell(lines)

    def configure(self, config: Settings) -> None:
        self._limits = _limits(config)
        if self._files is not None:
            self._files.limits = self._limits
        if self._is_on:
            if self._publish_call is not None:
                self._publish_call.cancel()
            self._look()

    # Begin and end.

    def _begin(self, word: str) -> None:
        """Let a thread see to the folder; what happens is noted meanwhile."""
        self._files = EventFiles(self._folder, self._state.node_id, self._limits, self._facts, self._disk)
        self._thread = self._new_thread()
        self._try(self._files, self._thread, word)

    def _new_thread(self) -> WorkerThread:
        """Start a thread, which waits until the one before has put everything away."""
        thread = WorkerThread(self._reactor, "event log")
        before = self._put_away
        if before is not None and not before.is_set():
            thread.call(before.wait).addErrback(self._report)
        return thread

    def _try(self, files: EventFiles, thread: WorkerThread, word: str) -> None:
        if files is self._files:
            self._beginning = thread.call(files.begin)
            self._beginning.addCallbacks(
                self._begun, self._not_begun, callbackArgs=(files, word), errbackArgs=(files, thread, word)
            ).addErrback(self._report)

    def _begun(self, found: EventLogScan, files: EventFiles, word: str) -> None:
        self._beginning = None
        if files is not self._files:
            return
        if word == "start":
            word = "clean" if found.ended_well else "crash"
        self.log.info("Events go to {folder}, boot {boot}", folder=str(self._folder), boot=found.boot)
        noted, self._noted = self._noted, []
        first = noted[0]
        self._lines = lines = EventLines(first.node_id, found.boot, address, HANDED_OVER)
        lines.skip(first.lost)
        lines.start(first.wall, word.encode("ascii"), found.last)
        first.retell(lines)
        for notes in noted[1:]:
            lines.begin_another(notes.node_id, notes.wall, notes.lost)
            notes.retell(lines)
        self._lost += sum(notes.lost for notes in noted)
        if self._wanted == OFF and self._is_on:
            self._end_for_now()
        else:
            self._tell(lines)
            self.take()

    def _not_begun(self, failure: Failure, files: EventFiles, thread: WorkerThread, word: str) -> None:
        self._beginning = None
        error = failure.value
        if isinstance(error, OSError):
            self._facts.error = f"{self._folder}: {reason(error)}"
            self._tell_error()
        else:
            self._report(failure)
        if self._wanted == OFF and self._is_on:
            self._end_for_now()
        elif isinstance(error, OSError):
            self._reactor.callLater(RETRY_S, self._try, files, thread, word)

    def _report(self, failure: Failure) -> None:
        self.log.failure("Internal error in the event log", failure=failure)

    def _end_for_now(self) -> None:
        """Write what there is, as nobody wants more of it."""
        self._end()
        self._rest()

    def _rest(self) -> None:
        """Remove what is kept no longer, though nobody wants events."""
        if self._limits.keep_days and self._folder.is_dir():
            self._look_again(PRUNE_S)

    def _end(self) -> "Deferred[None] | None":
        """Write and publish what there is, and let the thread end; fires when that is so."""
        self.take()
        self._lose_notes()
        for call in (self._call, self._publish_call):
            if call is not None and call.active():
                call.cancel()
        self._call = self._publish_call = None
        self._tell(None)
        thread, files = self._thread, self._files
        self._thread = self._files = self._lines = None
        if thread is None or files is None:
            return None
        done = self._last(thread, files.publish)
        done.addErrback(self._not_published)
        done.addBoth(lambda _: thread.end())
        return done

    def _last(self, thread: WorkerThread, work: Callable[[], T]) -> "Deferred[T]":
        """Let a thread do something, and the next one nothing before that is done."""
        put_away = self._put_away = Event()

        def do() -> T:
            try:
                return work()
            finally:
                put_away.set()

        ended = self._ended = thread.call(do)
        return ended

    def _not_published(self, failure: Failure) -> None:
        error = failure.value
        if isinstance(error, OSError):
            self.log.error("The last events are not published: {reason}", reason=reason(error))
        else:
            self._report(failure)

    def stop(self) -> "Deferred[None] | None":
        self._is_on = False
        if self._publish_call is not None:
            self._publish_call.cancel()
            self._publish_call = None
        self._wanted = OFF
        self._state.note_node(STOP, b"")
        if self._beginning is None:
            return self._end() or self._rest_of_the_last()
        # What there is waits for the folder, which is about to be ready.
        ended: Deferred[None] = Deferred()
        self._beginning.addBoth(lambda _: self._end()).chainDeferred(ended)
        return ended

    def _rest_of_the_last(self) -> "Deferred[None] | None":
        """Wait for the thread of a log that nobody wants any more, and that has not written everything yet."""
        if self._ended is None or self._put_away is None or self._put_away.is_set():
            return None
        rest: Deferred[None] = Deferred()

        def is_over(result: Any) -> Any:
            rest.callback(None)
            return result

        self._ended.addBoth(is_over)
        return rest

    # From the trail to the thread.

    def wake(self) -> None:
        lines = self._lines
        if lines is None:
            return
        if self._call is None:
            self._call = self._reactor.callLater(FLUSH_S, self._take_later)
            lines.awaited = True
        if lines.is_news():
            self._hand_over(lines)

    def _take_later(self) -> None:
        self._call = None
        if self._lines is not None:
            self._lines.awaited = False
        self.take()

    def take(self) -> None:
        """Let the thread write what lines there are."""
        if self._lines is not None:
            self._hand_over(self._lines)

    def _hand_over(self, lines: EventLines) -> None:
        files, thread = self._files, self._thread
        assert files is not None
        assert thread is not None
        for part in lines.take():
            if self._waiting + part.size > BACKLOG_MAX:
                self._lost += part.count
                continue
            self._waiting += part.size
            written = thread.call(partial(files.write, part))
            written.addCallback(self._written, part.size).addErrback(self._report)

    def _lose_notes(self) -> None:
        """Let go of what waits for a folder that nobody waits for any more."""
        noted, self._noted = self._noted, []
        for notes in noted:
            notes.lose()
            self._unnumbered += notes.lost

    def _written(self, _: None, size: int) -> None:
        self._waiting -= size
        self._look_again(self._limits.file_s)

    def _look_again(self, left_s: float) -> None:
        """Let readers see the file that is open when its time is over, though nothing happens any more."""
        self._tell_error()
        call = self._publish_call
        if not left_s or not self._is_on:
            return
        if call is None:
            self._publish_call = self._reactor.callLater(left_s, self._look)
        elif call.getTime() - self._reactor.seconds() > left_s:
            call.reset(left_s)

    def _look(self) -> None:
        self._publish_call = None
        files, thread = self._files, self._thread
        if files is not None and thread is not None:
            thread.call(files.look).addCallback(self._look_again).addErrback(self._report)
        elif self._folder.is_dir():
            self._look_while_off()

    def _look_while_off(self) -> None:
        """Remove what is kept no longer, though nobody wants events."""
        files = EventFiles(self._folder, self._state.node_id, self._limits, self._facts, self._disk)
        thread = self._new_thread()
        looked = self._last(thread, files.look)
        looked.addCallback(self._look_again).addErrback(self._report).addBoth(lambda _: thread.end())

    def _tell_error(self) -> None:
        error = self._error()
        if error and error != self._told:
            self.log.error("Events are not written: {reason}", reason=error)
        elif self._told and not error:
            self.log.info("Events are written again")
        self._told = error

    def _error(self) -> str:
        return self._facts.error or self._facts.unpublished or self._facts.unremoved

    def facts(self) -> dict[str, int | str]:
        known = self._facts
        return {
            "events": self._wanted,
            "events_written": known.lines,
            "events_lost": self._lost + known.lost + self._unnumbered + sum(notes.lost for notes in self._noted),
            "events_files_published": known.files,
            "events_waiting_bytes": self._waiting,
            "events_last_error": self._error(),
        }


def _limits(config: Settings) -> Limits:
    return Limits(config.events_file_size, config.events_file_seconds, config.events_keep_days, config.events_keep_size)
