"""Lines of the event log: what `core.trail` tells of, as JSON objects.

    Lines(boot).of(entries, offset) --> b'{"v":1,"boot":7,"seq":52114,"ts_us":...,"event":"deliver",...}\\n' ...

docs/reference/event-log.md says what each member means; `COLUMNS` are their names and types.  Every event of a busy
node passes here, so that a line is made by one template for each kind, and what many lines share (names of queues,
addresses of clients, wishes of producers) is made into text once.

Times of entries are integer milliseconds, those of lines microseconds.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from disqued.core.job import RETRY_NEVER_MS, Job, JobOptions
from disqued.core.trail import ADD, CLOCK, DELIVER, NAMES, REPLICATE, SET_MS, Entry
from disqued.wire.texts import text

VERSION: Final = 1
NODE_LENGTH: Final = 8  #: hex digits of a node's id that name it
TEXTS_KEPT: Final = 4_096  #: names, addresses and wishes whose text is remembered, of each sort

# Numbers as text: an integer is made into one in five times the time that it takes to look it up.
_NUMBERS: Final[tuple[bytes, ...]] = tuple(b"%d" % number for number in range(1_000))
_NUMBERS_OF_THREE: Final[tuple[bytes, ...]] = tuple(b"%03d" % number for number in range(1_000))
_SPANS: Final[tuple[bytes, ...]] = tuple(b"%d" % (ms * 1_000) for ms in range(1_000))

#: Every member that a line may have, and its type as Spark and DuckDB write it.
COLUMNS: Final[tuple[tuple[str, str], ...]] = (
    ("v", "INT"), ("boot", "BIGINT"), ("seq", "BIGINT"), ("ts_us", "BIGINT"), ("event", "STRING"),
    ("job_id", "STRING"), ("scope", "STRING"), ("queue", "STRING"), ("attempt", "INT"), ("nacks", "INT"),
    ("age_us", "BIGINT"), ("wait_us", "BIGINT"), ("run_us", "BIGINT"), ("ttl_s", "DOUBLE"), ("retry_s", "DOUBLE"),
    ("delay_s", "DOUBLE"), ("repl", "INT"), ("size", "BIGINT"), ("client", "STRING"), ("peer", "STRING"),
    ("reason", "STRING"),
)  # fmt: skip


def _quoted(text: str) -> bytes:
    return json.dumps(text).encode("ascii")


class _Texts(dict[Any, bytes]):
    """Texts by what they were made of, made when they are first asked for; a bounded number of them."""

    def __init__(self, make: Callable[[Any], bytes]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Any) -> bytes:
        if len(self) >= TEXTS_KEPT:
            self.clear()
        text = self[key] = self._make(key)
        return text


def _wishes(options: JobOptions) -> bytes:
    """How a producer wishes its job to be treated, as members."""
    text = b',"ttl_s":' + _seconds(options.ttl_ms)
    if options.retry_ms != RETRY_NEVER_MS:
        text += b',"retry_s":' + _seconds(options.retry_ms)
    if options.delay_ms:
        text += b',"delay_s":' + _seconds(options.delay_ms)
    return text + b',"repl":%d' % options.replicate


def _seconds(ms: int) -> bytes:
    return b"%d" % (ms // 1_000) if ms % 1_000 == 0 else b"%d.%03d" % divmod(ms, 1_000)


class _Behind:
    """What a line says behind the id of its job, for jobs of which the queue and the spans are the same."""

    __slots__ = ("_age_ms", "_is_known", "_name", "_queue", "_queues", "_span_ms", "_text")

    def __init__(self, name: bytes, queues: _Texts, *, is_known: bool) -> None:
        """`name` is what the span is called; one that is not known, -1, is left out where not each of them is."""
        self._is_known = is_known
        self._name: bytes = b',"%b":' % name
        self._queues: _Texts = queues
        self._queue: bytes = b""
        self._age_ms: int = -1
        self._span_ms: int = -1
        self._text: bytes = b""  #: of these three

    def text(self, queue: bytes, age_ms: int, span_ms: int) -> bytes:
        """The same text as the last time, if nothing else is to be said."""
        # The jobs of a queue have one object for its name: of another object it need not be known that it is equal.
        if age_ms != self._age_ms or span_ms != self._span_ms or queue is not self._queue:
            self._queue, self._age_ms, self._span_ms = queue, age_ms, span_ms
            text = b'%b,"attempt":1,"age_us":%b' % (self._queues[queue], _microseconds(age_ms))
            if span_ms >= 0 or self._is_known:
                text = b"%b%b%b" % (text, self._name, _microseconds(span_ms))
            self._text = text
        return self._text


def _microseconds(ms: int) -> bytes:
    return _SPANS[ms] if 0 <= ms < 1_000 else b"%d" % (ms * 1_000)


class Lines:
    """Makes the lines of one boot, and numbers them."""

    __slots__ = (
        "_acked", "_added", "_address_of", "_addresses", "_at", "_client", "_delivered", "_now", "_offset", "_options",
        "_queue", "_queues", "_size", "_start", "_wall", "_wall_text", "_wishes", "boot", "seq",
    )  # fmt: skip

    def __init__(self, boot: int, address_of: Callable[[Any], str]) -> None:
        """`address_of` names a client of an entry; empty = it has no address."""
        self.boot: int = boot
        self.seq: int = 1  #: number of the next line
        # Of the next short entry: monotonic milliseconds, unix microseconds as text, the client as a member.
        self._now: int = 0
        self._at: bytes = b"0"
        self._client: bytes = b""
        # Unix milliseconds of the last line whose time was made into a text, and that text.
        self._wall: int = 0
        self._wall_text: bytes = b"0"
        self._offset: int | None = None  #: of the last entries
        self._address_of = address_of
        self._queues: _Texts = _Texts(lambda name: b',"queue":' + _quoted(text(name)))
        self._addresses: _Texts = _Texts(lambda name: b',"client":' + _quoted(name) if name else b"")
        self._wishes: _Texts = _Texts(_wishes)
        self._start: bytes = b'{"v":%d,"boot":%d,"seq":' % (VERSION, boot)
        # Of the job that was added last, and what its line says behind its id.
        self._queue: bytes = b""
        self._options: JobOptions | None = None
        self._size: int = -1
        self._added: bytes = b""
        self._delivered: _Behind = _Behind(b"wait_us", self._queues, is_known=True)
        self._acked: _Behind = _Behind(b"run_us", self._queues, is_known=False)

    def renewed(self) -> "Lines":
        """The same for the next boot, which begins in the middle of a step."""
        lines = Lines(self.boot + 1, self._address_of)
        lines._now, lines._at, lines._client = self._now, self._at, self._client
        lines._offset = self._offset
        return lines

    def of(self, entries: list[Entry], offset: int) -> bytes:
        """The lines of these entries, each with its number; `offset` is the wall clock minus the monotonic one."""
        before, self._offset = self._offset, offset
        if before is not None and not -SET_MS < offset - before < SET_MS:
            # The clock was set in the midst of these entries: what is before that goes by what it was.
            for at, entry in enumerate(entries):
                if entry.__class__ is tuple and entry[0] == CLOCK and len(entry) > 3:
                    return self._of(entries[:at], before) + self._of(entries[at:], offset)
        return self._of(entries, offset)

    def _of(self, entries: list[Entry], offset: int) -> bytes:
        lines: list[bytes] = []
        seq = self.seq
        # The number of a line in two parts: thousands, which many lines share, and what is left.
        head, left, lefts = self._numbered(seq)
        at, client = self._at, self._client
        for entry in entries:
            if isinstance(entry, Job):
                what = self._of_added(entry)
                line = b'%b%b,"ts_us":%b,"event":"add","job_id":"%b"%b%b}\n' % (
                    head, lefts[left], at, entry.id, what, client,
                )  # fmt: skip
            elif len(entry) == 3:
                kind: int = entry[0]
                job: Job = entry[1]
                age_ms = max(0, job.options.ttl_ms + self._now - job.expires_at)
                if kind == DELIVER:
                    what = self._delivered.text(job.queue, age_ms, entry[2])
                    line = b'%b%b,"ts_us":%b,"event":"deliver","job_id":"%b"%b%b}\n' % (
                        head, lefts[left], at, job.id, what, client,
                    )  # fmt: skip
                else:
                    what = self._acked.text(job.queue, age_ms, entry[2])
                    line = b'%b%b,"ts_us":%b,"event":"ack","job_id":"%b"%b%b}\n' % (
                        head, lefts[left], at, job.id, what, client,
                    )  # fmt: skip
            elif len(entry) == 2:
                wall = entry[0]
                self._now = wall - offset
                self._at = at = self._text_of(wall)
                self._client = client = self._who(entry[1])
                continue
            elif len(entry) == 5:
                job, wall = entry[1], entry[3]
                age_ms = max(0, job.options.ttl_ms + wall - offset - job.expires_at)
                what = self._acked.text(job.queue, age_ms, entry[2])
                line = b'%b%b,"ts_us":%b,"event":"ack","job_id":"%b"%b%b}\n' % (
                    head, lefts[left], self._text_of(wall), job.id, what, self._who(entry[4]),
                )  # fmt: skip
            else:
                line = b'%b%b,"ts_us":%b,"event":"%b"%b}\n' % (
                    head, lefts[left], self._text_of(entry[1]), NAMES[entry[0]], self._rare(entry, offset),
                )  # fmt: skip
            lines.append(line)
            seq += 1
            left += 1
            if left == 1_000:
                head, left, lefts = self._numbered(seq)
        self.seq = seq
        return b"".join(lines)

    def _numbered(self, seq: int) -> tuple[bytes, int, tuple[bytes, ...]]:
        """How a line with this number begins, its number within a thousand, and the texts of such numbers."""
        if seq < 1_000:
            return self._start, seq, _NUMBERS
        return b"%b%d" % (self._start, seq // 1_000), seq % 1_000, _NUMBERS_OF_THREE

    def _text_of(self, wall: int) -> bytes:
        """A time as text; most lines are of the same millisecond as the one before."""
        if wall != self._wall:
            self._wall, self._wall_text = wall, b"%d" % (wall * 1_000)
        return self._wall_text

    def _of_added(self, job: Job) -> bytes:
        """What the line of a job that is added says behind its id: the same text as the last time, if it is that."""
        size = len(job.body)
        if size != self._size or job.options is not self._options or job.queue is not self._queue:
            self._size, self._options, self._queue = size, job.options, job.queue
            self._added = b'%b%b,"size":%d' % (self._queues[job.queue], self._wishes[job.options], size)
        return self._added

    def _rare(self, entry: Entry, offset: int) -> bytes:
        """What the line of an entry of the long form says behind its kind."""
        kind, wall, unit, attempt, nacks, span_ms, who, word = entry
        line = b""
        if isinstance(unit, bytes):
            line += b',"job_id":"%b"' % unit
        elif unit is not None:
            job: Job = unit.job
            scope = b',"scope":' + _quoted(text(unit.scope)) if unit.scope else b""
            line += b',"job_id":"%b"%b%b' % (job.id, scope, self._queues[job.queue])
            if kind == ADD:
                line += self._wishes[job.options]
            else:
                age_us = max(0, job.options.ttl_ms + wall - offset - job.expires_at) * 1_000
                line += b'%b%b,"age_us":%d' % (_count(b"attempt", attempt), _count(b"nacks", nacks), age_us)
            if kind in (ADD, REPLICATE):
                line += b',"size":%d' % len(job.body)
            if span_ms >= 0:
                line += b',"%b":%d' % (b"wait_us" if kind == DELIVER else b"run_us", span_ms * 1_000)
        return b"%b%b%b" % (line, self._who(who), b',"reason":"%b"' % word if word else b"")

    def _who(self, who: Any) -> bytes:
        """Who made it happen, as a member: a client, or another node."""
        if who is None:
            return b""
        if isinstance(who, bytes):
            return b',"peer":"%b"' % who[:NODE_LENGTH]
        return self._addresses[self._address_of(who)]


def address(who: Any) -> str:
    """Where a client is, as the log names it; empty for what is no client of a connection."""
    found: str = getattr(who, "address", "")
    return found


def _count(name: bytes, number: int) -> bytes:
    return b',"%b":%d' % (name, number) if number else b""
