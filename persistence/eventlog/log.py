"""The event log of a node: from the trail of the core to files, beside everything else that it does.

    steps --> state.trail --> lines -----------> a thread --> files
                          |          |
                          |          when there are HANDED_OVER bytes of them, or FLUSH_S after the first
                          at the end of a turn with MADE_AT_ONCE entries, or later with them

Nobody waits for it, and it makes nobody wait: lines are made on the loop, soon after what they tell of, while that is
in the processor's caches, and the files are the thread's.  While more than BACKLOG_MAX bytes wait for the disk, lines
are lost, and counted.  What happens is written when it happens, so that an addition that the journal refuses a moment
later has a line, and another one that takes it back.  While nothing happens there is no timer but the one that
publishes the file that is open when its time is over, and that removes old ones, also while nobody wants events.

`events` says what is wanted: all, terminal, off.  Times are seconds.
"""

from collections.abc import Callable
from threading import Event
from typing import Any, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from disqued.core.node import Node
from disqued.core.trail import START, STOP, Entry, is_moment, is_reset
from disqued.persistence.disk import Disk, reason
from disqued.persistence.eventlog.files import PRUNE_S, EventFiles, Facts, Limits
from disqued.persistence.interface import EventSettings, IEventLog
from disqued.persistence.worker import Worker
from disqued.wire.eventlines import NODE_LENGTH, Lines, address

FLUSH_S = 0.2  #: how long a line waits at most before it is on its way to the file
MADE_AT_ONCE = 32  #: entries of which lines are made at the end of the turn: fewer wait for others
HANDED_OVER = 256 << 10  #: bytes of lines that are handed over at once: each time costs a change of threads
BACKLOG_MAX = 64 << 20  #: bytes of lines that wait for the disk; more are lost
UNREADY_MAX = 100_000  #: entries that wait for the folder; more are lost
RETRY_S = 5.0  #: pause before the folder is tried again, when that cannot be used

T = TypeVar("T")

ALL, TERMINAL, OFF = "all", "terminal", "off"


@attrs.frozen
class _Boot:
    """What was noted of a boot before the folder was ready."""

    node_id: bytes  #: of the node when it began
    wall: int  #: when that was, unix milliseconds
    lost: int  #: lines that are not in it any more
    entries: list[Entry]


@implementer(IEventLog)
class EventLog:
    """What is told of a node, and where it goes."""

    log = Logger()

    def __init__(self, node: Node, reactor: Any, config: EventSettings, disk: Disk | None = None) -> None:
        """Nothing happens before `follow`."""
        self._state = node.state
        self._reactor = reactor
        assert config.events_dir is not None
        self._folder = config.events_dir
        self._limits = _limits(config)
        self._disk = disk
        self._wanted = OFF
        self._files: EventFiles | None = None
        self._node_id = b""  #: of the node whose events are written
        self._thread: Worker | None = None
        self._lines: Lines | None = None  #: None while the folder is not ready
        self._facts = Facts()
        self._beginning: Deferred[Any] | None = None  #: fires when the folder is ready, or turned out not to be
        self._earlier: list[_Boot] = []  #: those that have ended before the folder was ready
        self._noted_as = b""  #: id of the node when the boot began that goes on
        self._noted_at = 0  #: when that was, unix milliseconds
        self._made: list[bytes] = []  #: lines that are not on their way yet
        self._made_bytes = 0
        self._first = 1  #: number of the first of these
        self._waiting = 0  #: bytes on their way to the disk
        self._lost = 0  #: lines that were lost on the way there
        self._unnumbered = 0  #: of these: of the boot that goes on, while the folder is not ready
        self._told = ""  #: the last error that the log was told of
        self._call: IDelayedCall | None = None
        self._publish_call: IDelayedCall | None = None
        self._is_on = False  #: the node has begun, and has not stopped
        self._put_away: Event | None = None  #: set when the last thread has done what it had to

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
                self._put_aside()
        elif before == OFF:
            self._note(wanted)
            if self._files is None:
                self._begin(word)
        elif before != wanted:
            self._switch()

    def _note(self, wanted: str) -> None:
        """Let the core note what is wanted from now on."""
        state = self._state
        if state.endings is None:
            state.endings = []
        self._noted_as, self._noted_at = state.node_id, state.wall
        state.trail = state.endings if wanted == ALL else None
        state.endings.append((state.wall, state.actor))

    def _switch(self) -> None:
        """Go on with what is wanted now, in another boot: the one before ends, and proves nothing from here on."""
        if self._lines is None:
            self._put_aside()
        else:
            self.take()
        self._note(self._wanted)
        if self._lines is not None:
            assert self._state.endings is not None
            self._begin_another(self._state.endings, self._noted_at)

    def _put_aside(self) -> None:
        """Keep what was noted until the folder is ready: a boot that has ended."""
        state = self._state
        entries = state.endings
        state.trail = state.endings = None
        assert entries is not None
        if self._is_too_much(entries):
            self._lose(entries)
        self._earlier.append(_Boot(self._noted_as, self._noted_at, self._unnumbered, entries))
        self._unnumbered = 0

    def _is_too_much(self, entries: list[Entry]) -> bool:
        """Tell whether more waits for the folder than may, these included."""
        return len(entries) + sum(len(boot.entries) for boot in self._earlier) > UNREADY_MAX

    def configure(self, config: EventSettings) -> None:
        self._limits = _limits(config)
        if self._files is not None:
            self._files.limits = self._limits
        if self._is_on:
            if self._publish_call is not None:
                self._publish_call.cancel()
            self._look()

    # Begin and end.

    def _begin(self, word: str) -> None:
        """Let a thread see to the folder; entries wait meanwhile."""
        self._node_id = self._state.node_id
        self._files = EventFiles(self._folder, _name(self._node_id), self._limits, self._facts, self._disk)
        self._thread = self._new_thread()
        self._try(self._files, self._thread, word)

    def _new_thread(self) -> Worker:
        """Start a thread, which waits until the one before has put everything away."""
        thread = Worker(self._reactor, "event log")
        before = self._put_away
        if before is not None and not before.is_set():
            thread.call(before.wait).addErrback(self._report)
        return thread

    def _try(self, files: EventFiles, thread: Worker, word: str) -> None:
        if files is self._files:
            self._beginning = thread.call(files.begin)
            self._beginning.addCallbacks(
                self._begun, self._not_begun, callbackArgs=(files, word), errbackArgs=(files, thread, word)
            ).addErrback(self._report)

    def _begun(self, found: tuple[int, bool], files: EventFiles, word: str) -> None:
        self._beginning = None
        if files is not self._files:
            return
        boot, ended_well = found
        boots = self._noted()
        self._lines = lines = Lines(boot, address)
        lines.seq += boots[0].lost
        self._first = lines.seq
        if word == "start":
            word = "clean" if ended_well else "crash"
        self.log.info("Events go to {folder}, boot {boot}", folder=str(self._folder), boot=boot)
        self._tell([_start(boots[0].wall, word.encode("ascii"))], lines)
        self._tell_noted(boots)
        if self._wanted == OFF and self._is_on:
            self._end_for_now()
        else:
            self.take()

    def _noted(self) -> "list[_Boot]":
        """Take what was noted before the folder was ready, the boot that goes on last."""
        boots, self._earlier = self._earlier, []
        entries = self._state.endings
        if entries is not None or not boots:
            noted = [] if entries is None else entries
            boots.append(_Boot(self._noted_as, self._noted_at, self._unnumbered, noted))
            self._unnumbered = 0
        return boots

    def _tell_noted(self, boots: "list[_Boot]") -> None:
        """Make lines of that, each boot in a file of its own."""
        for at, boot in enumerate(boots):
            if at:
                self._node_id = boot.node_id
                self._begin_another([], boot.wall, boot.lost)
            assert self._lines is not None
            if any(map(is_reset, boot.entries)):
                self._rename(boot.entries, self._lines)
            else:
                self._tell(boot.entries, self._lines)
            self._hand_over()

    def _not_begun(self, failure: Failure, files: EventFiles, thread: Worker, word: str) -> None:
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
        if self._lines is None:
            self._lose_all()
        for call in (self._call, self._publish_call):
            if call is not None and call.active():
                call.cancel()
        self._call = self._publish_call = None
        self._state.trail_rests = 0
        state, thread, files = self._state, self._thread, self._files
        state.trail = state.endings = None
        self._thread = self._files = self._lines = None
        if thread is None or files is None:
            return None
        done = self._last(thread, files.end)
        done.addErrback(self._not_published)
        done.addBoth(lambda _: thread.end())
        return done

    def _last(self, thread: Worker, work: Callable[[], T]) -> "Deferred[T]":
        """Let a thread do something, and the next one nothing before that is done."""
        put_away = self._put_away = Event()

        def do() -> T:
            try:
                return work()
            finally:
                put_away.set()

        return thread.call(do)

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
            return self._end()
        # What there is waits for the folder, which is about to be ready.
        ended: Deferred[None] = Deferred()
        self._beginning.addBoth(lambda _: self._end()).chainDeferred(ended)
        return ended

    # From the trail to the thread.

    def wake(self) -> None:
        entries = self._state.endings
        if entries is None:
            return
        if len(entries) >= MADE_AT_ONCE:
            self._make(entries)
            if self._made_bytes >= HANDED_OVER:
                self._hand_over()
        if self._call is None:
            self._call = self._reactor.callLater(FLUSH_S, self._take_later)
            self._state.trail_rests = MADE_AT_ONCE - 1

    def _take_later(self) -> None:
        self._call = None
        self._state.trail_rests = 0
        self.take()

    def take(self) -> None:
        """Make lines of what the trail has, and let the thread write them."""
        if self._state.endings:
            self._make(self._state.endings)
        self._hand_over()

    def _make(self, entries: list[Entry]) -> None:
        lines = self._lines
        if lines is None:
            if self._is_too_much(entries):
                self._lose(entries)
        elif self._node_id != self._state.node_id:
            self._rename(entries, lines)
        else:
            self._tell(entries, lines)

    def _tell(self, entries: list[Entry], lines: Lines) -> None:
        """Make lines of these entries, which are no more afterwards."""
        text = lines.of(entries, self._state.wall - self._state.now)
        entries.clear()
        self._made.append(text)
        self._made_bytes += len(text)

    def _lose(self, entries: list[Entry]) -> None:
        """Let go of entries that became no lines."""
        count = sum(not is_moment(entry) for entry in entries)
        self._lost += count
        self._unnumbered += count
        entries.clear()

    def _lose_all(self) -> None:
        """Let go of what waits for a folder that nobody waits for any more."""
        boots, self._earlier = self._earlier, []
        self._unnumbered += sum(boot.lost for boot in boots)
        for entries in (*(boot.entries for boot in boots), self._state.endings or []):
            self._lose(entries)

    def _rename(self, entries: list[Entry], lines: Lines) -> None:
        """The node has another id: what came behind its last word under the old one is another node's."""
        at = next((at for at, entry in enumerate(entries) if is_reset(entry)), -1)
        kept = entries[at + 1 :]
        self._tell(entries[: at + 1], lines)
        self._hand_over()
        entries.clear()
        self._node_id = self._state.node_id
        self._begin_another(kept, self._state.wall)

    def _begin_another(self, entries: list[Entry], wall: int, lost: int = 0) -> None:
        """Begin the next boot with these entries, which are no more afterwards, in a file of its own.

        `wall`: when it began.  `lost`: lines of it that there are not, so that its first one has a later number.
        """
        files, thread, lines, name = self._files, self._thread, self._lines, _name(self._node_id)
        assert files is not None
        assert thread is not None
        assert lines is not None
        thread.call(lambda: files.rename(name)).addErrback(self._report)
        self._lines = lines.renewed()
        self._lines.seq += lost
        self._first = self._lines.seq
        self._tell([_start(wall, b"on"), *entries], self._lines)
        entries.clear()

    def _hand_over(self) -> None:
        """Let the thread write the lines that were made."""
        files, thread, lines = self._files, self._thread, self._lines
        if not self._made_bytes or lines is None:
            return
        assert files is not None
        assert thread is not None
        text, size = b"".join(self._made), self._made_bytes
        self._made.clear()
        self._made_bytes = 0
        first, self._first = self._first, lines.seq
        count = lines.seq - first
        if self._waiting + size > BACKLOG_MAX:
            self._lost += count
            return
        self._waiting += size
        written = thread.call(lambda: files.write(text, lines.boot, first, count))
        written.addCallback(self._written, size).addErrback(self._report)

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
        files = EventFiles(self._folder, _name(self._state.node_id), self._limits, self._facts, self._disk)
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

    # What INFO says.

    def facts(self) -> dict[str, int | str]:
        known = self._facts
        return {
            "events": self._wanted,
            "events_written": known.lines,
            "events_lost": self._lost + known.lost,
            "events_files_published": known.files,
            "events_waiting_bytes": self._waiting,
            "events_last_error": self._error(),
        }


def _start(wall: int, word: bytes) -> Entry:
    return (START, wall, None, 0, 0, -1, None, word)


def _limits(config: EventSettings) -> Limits:
    return Limits(config.events_file_size, config.events_file_seconds, config.events_keep_days, config.events_keep_size)


def _name(node_id: bytes) -> str:
    """What files call a node."""
    return node_id[:NODE_LENGTH].decode("ascii")
