"""Lines of the event log: what `core.model.trace` is told of, as JSON objects.

    lines.deliver(job, waited) --> '{"v":1,"boot":7,"seq":52' '114' ',"ts_us":...,"job_id":"' 'DI...' '",...' '}\\n'
    lines.take()               --> parts: bytes of many lines each

docs/reference/event-log.md says what each member means; `COLUMNS` are their names and types.  Every event of a busy
node passes here, so that a line is six pieces, of which all but the id are at hand: what many lines share (the time,
the names of queues, the addresses of clients, the wishes of producers) is made into text when it changes.  The pieces
of many lines are put together at once.

Times of what happens are integer milliseconds, those of lines microseconds.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from disqued.core.model.fate import accepted, has_died
from disqued.core.model.job import RETRY_NEVER_MS, Job, JobOptions
from disqued.core.model.spans import seconds_text
from disqued.core.model.terms import schedule_of, trace_id_of
from disqued.core.model.trace import ACK, ADD, DELIVER, NAMES, REPLICATE, RESET, STOP, EventTrace
from disqued.wire.texts import text

VERSION: Final = 1
NODE_LENGTH: Final = 8  #: hex digits of a node's id that name it
JOINED: Final = 1_536  #: pieces that are put together at the end of a step: 64 KB, while they are in the caches
TEXTS_KEPT: Final = 4_096  #: names, addresses and wishes whose text is remembered, of each sort
TEXT_BYTES_KEPT: Final = 1_024  #: a longer one is not

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
    ("reason", "STRING"), ("after_boot", "BIGINT"), ("after_seq", "BIGINT"), ("max_tries", "INT"),
    ("keep_dead_s", "DOUBLE"), ("result_size", "BIGINT"), ("failure", "STRING"), ("trace_id", "STRING"),
    ("group", "STRING"), ("schedule", "STRING"),
)  # fmt: skip


def _quoted(text: str) -> bytes:
    return json.dumps(text).encode("ascii")


class _Texts(dict[Any, bytes]):
    """Texts by what they were made of, made when they are first asked for; a bounded number of short ones."""

    def __init__(self, make: Callable[[Any], bytes]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Any) -> bytes:
        text = self._make(key)
        if len(text) <= TEXT_BYTES_KEPT:
            if len(self) >= TEXTS_KEPT:
                self.clear()
            self[key] = text
        return text


def _marks(options: JobOptions) -> bytes:
    """The group, the schedule and the trace of a job, as members; missing ones are left out."""
    terms = options.terms
    schedule, trace_id = schedule_of(terms.headers), trace_id_of(terms.headers)
    marks = b',"group":' + _quoted(text(terms.group)) if terms.group else b""
    if schedule:
        marks += b',"schedule":' + _quoted(text(schedule))
    return marks + b',"trace_id":"%b"' % trace_id if trace_id else marks


def _wishes(options: JobOptions) -> bytes:
    """What a producer says of its job, as members: its group, schedule and trace, and how it is to be treated."""
    wishes = _marks(options) + b',"ttl_s":' + seconds_text(options.ttl_ms)
    if options.retry_ms != RETRY_NEVER_MS:
        wishes += b',"retry_s":' + seconds_text(options.retry_ms)
    if options.delay_ms:
        wishes += b',"delay_s":' + seconds_text(options.delay_ms)
    wishes += b',"repl":%d' % options.replicate
    if options.terms.keep_dead_ms:
        wishes += b',"keep_dead_s":' + seconds_text(options.terms.keep_dead_ms)
    return wishes + _count(b"max_tries", options.terms.max_tries)


class LinesPart:
    """Lines of a boot that follow each other: bytes in pieces, to be written one behind the other."""

    __slots__ = ("boot", "count", "first", "node_id", "pieces", "size")

    def __init__(self, node_id: bytes, boot: int, first: int) -> None:
        self.node_id: bytes = node_id
        self.boot: int = boot
        self.first: int = first  #: number of the first line
        self.count: int = 0  #: lines
        self.pieces: list[bytes] = []
        self.size: int = 0  #: bytes


class _LineEnd:
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
            text = b'"%b,"attempt":1,"age_us":%b' % (self._queues[queue], _microseconds(age_ms))
            if span_ms >= 0 or self._is_known:
                text = b"%b%b%b" % (text, self._name, _microseconds(span_ms))
            self._text = text
        return self._text


def _microseconds(ms: int) -> bytes:
    return _SPANS[ms] if 0 <= ms < 1_000 else b"%d" % (ms * 1_000)


class EventLines(EventTrace):
    """A trail that makes lines of what it is told, and numbers them within each boot."""

    __slots__ = (
        "_ack_at", "_acked", "_actor", "_add_at", "_added", "_address_of", "_client", "_clients", "_deliver_at",
        "_delivered", "_enough", "_head", "_left", "_lefts", "_now", "_options", "_part", "_parts", "_pieces",
        "_queue", "_queues", "_size", "_thousands", "_wall", "_wishes", "awaited", "boot",
    )  # fmt: skip

    def __init__(self, node_id: bytes, boot: int, address_of: Callable[[Any], str], enough: int = 0) -> None:
        """Begin a boot of a node.

        `address_of` names a client; empty = it has no address.  `enough`: bytes that are news though somebody comes.
        """
        self.boot: int = boot
        self.awaited: bool = False  #: somebody comes for what is there, so that a few lines are no news
        self._enough: int = enough
        self._parts: list[LinesPart] = []  #: that have ended
        self._part: LinesPart = LinesPart(node_id, boot, 1)
        self._pieces: list[bytes] = []  #: of lines, six each; they are put together many at a time
        # The number of the next line in two parts: thousands, which many lines share, and what is left.
        self._thousands: int = 0
        self._left: int = 1
        self._lefts: tuple[bytes, ...] = _NUMBERS
        self._head: bytes = b""  #: how a line begins, with the thousands of its number
        # Of what happens now: monotonic and unix milliseconds, and who makes it happen.
        self._now: int = 0
        self._wall: int = 0
        self._add_at: bytes = b""  #: what a line of that kind says between its number and the id of its job
        self._deliver_at: bytes = b""
        self._ack_at: bytes = b""
        self._actor: Any = None
        self._client: bytes = b"}\n"  #: how a line ends: who made it happen
        self._address_of = address_of
        self._queues: _Texts = _Texts(lambda name: b',"queue":' + _quoted(text(name)))
        self._clients: _Texts = _Texts(lambda name: b',"client":%b}\n' % _quoted(name) if name else b"}\n")
        self._wishes: _Texts = _Texts(_wishes)
        # Of the job that was added last, and what its line says behind its id.
        self._queue: bytes = b""
        self._options: JobOptions | None = None
        self._size: int = -1
        self._added: bytes = b""
        self._delivered: _LineEnd = _LineEnd(b"wait_us", self._queues, is_known=True)
        self._acked: _LineEnd = _LineEnd(b"run_us", self._queues, is_known=False)
        self._number(1)
        self._set_wall(0)

    # What happens.

    def act(self, wall: int, now: int, who: Any) -> None:
        self._now = now
        if wall != self._wall:
            self._set_wall(wall)
        if who is not self._actor:
            self._actor = who
            self._client = self._end_of(who)

    def add(self, job: Job) -> None:
        size = len(job.body)
        if size != self._size or job.options is not self._options or job.queue is not self._queue:
            self._size, self._options, self._queue = size, job.options, job.queue
            self._added = b'"%b%b,"size":%d' % (self._queues[job.queue], self._wishes[job.options], size)
        self._line(self._add_at, job.id, self._added, self._client)

    def deliver(self, job: Job, waited_ms: int) -> None:
        age_ms = max(0, job.options.ttl_ms + self._now - job.expires_at)
        self._line(self._deliver_at, job.id, self._delivered.text(job.queue, age_ms, waited_ms), self._client)

    def ack(self, job: Job, held_ms: int) -> None:
        age_ms = max(0, job.options.ttl_ms + self._now - job.expires_at)
        self._line(self._ack_at, job.id, self._acked.text(job.queue, age_ms, held_ms), self._client)

    def tell(
        self, kind: int, wall: int, now: int, unit: Any = None, *,
        attempt: int = 0, nacks: int = 0, span_ms: int = -1, who: Any = None, word: bytes = b"",
        failure: bytes = b"",
    ) -> None:  # fmt: skip
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
                stay_ms = job.options.terms.keep_dead_ms if has_died(job.options.fate) else 0
                age_us = max(0, job.options.ttl_ms + stay_ms + now - job.expires_at) * 1_000
                counts = _count(b"attempt", attempt) + _count(b"nacks", nacks)
                line += b'%b%b,"age_us":%d' % (_marks(job.options), counts, age_us)
            if kind in (ADD, REPLICATE):
                line += b',"size":%d' % len(job.body)
            if span_ms >= 0:
                line += b',"%b":%d' % (b"wait_us" if kind == DELIVER else b"run_us", span_ms * 1_000)
            if kind == ACK and (result := accepted(job.options.fate)) is not None:
                line += _count(b"result_size", len(result.value))
        if failure:
            line += b',"failure":' + _quoted(text(failure))
        end = self._end_of(who)
        if word:
            end = b'%b,"reason":"%b"}\n' % (end[:-2], word)
        self._line(b',"ts_us":%d,"event":"%b"' % (wall * 1_000, NAMES[kind]), line, b"", end)

    def become(self, wall: int, now: int, node_id: bytes) -> None:
        self.tell(STOP, wall, now, word=RESET)
        self.begin_another(node_id, wall)

    def start(self, wall: int, word: bytes, after: tuple[int, int] | None = None) -> None:
        """The first line of a boot: why it begins, and when.

        `after`: boot and number of the line of this node that is the last one before; None = none is known.
        """
        before = b"" if after is None else b',"after_boot":%d,"after_seq":%d' % after
        self._line(b',"ts_us":%d,"event":"start"' % (wall * 1_000), before, b"", b',"reason":"%b"}\n' % word)

    def begin_another(self, node_id: bytes, wall: int, lost: int = 0) -> None:
        """Let the next boot begin, perhaps another node's, at this time; `lost`: lines of it that there are not."""
        self._end_part()
        if self._part.count:
            self._parts.append(self._part)
        after = (self.boot, self.seq - 1) if node_id == self._part.node_id else None
        self.boot += 1
        self._part = LinesPart(node_id, self.boot, 1)
        self._number(1)
        self.skip(lost)
        self.start(wall, b"on", after)

    # Lines.

    def _line(self, at: bytes, what: bytes, behind: bytes, end: bytes) -> None:
        pieces = self._pieces
        pieces.append(self._head)
        pieces.append(self._lefts[self._left])
        pieces.append(at)
        pieces.append(what)
        pieces.append(behind)
        pieces.append(end)
        self._left += 1
        if self._left == 1_000:
            self._number(self.seq)

    @property
    def seq(self) -> int:
        """The number of the next line."""
        return self._thousands * 1_000 + self._left

    def _number(self, seq: int) -> None:
        """Go on with this number."""
        self._thousands, self._left = divmod(seq, 1_000)
        self._lefts = _NUMBERS_OF_THREE if self._thousands else _NUMBERS
        thousands = b"%d" % self._thousands if self._thousands else b""
        self._head = b'{"v":%d,"boot":%d,"seq":%b' % (VERSION, self.boot, thousands)

    def skip(self, count: int) -> None:
        """Leave out some numbers, for lines that are lost; only where none is under way."""
        self._number(self.seq + count)
        self._part.first = self.seq

    def _set_wall(self, wall: int) -> None:
        self._wall = wall
        self._add_at = b',"ts_us":%d,"event":"add","job_id":"' % (wall * 1_000)
        self._deliver_at = b',"ts_us":%d,"event":"deliver","job_id":"' % (wall * 1_000)
        self._ack_at = b',"ts_us":%d,"event":"ack","job_id":"' % (wall * 1_000)

    def _end_of(self, who: Any) -> bytes:
        """How a line ends that somebody made happen: a client, or another node."""
        if who is None:
            return b"}\n"
        if isinstance(who, bytes):
            return b',"peer":"%b"}\n' % who[:NODE_LENGTH]
        return self._clients[self._address_of(who)]

    # What there is.

    def is_news(self) -> bool:
        """Tell whether somebody should come: something is there for which nobody comes yet, or enough is."""
        if len(self._pieces) >= JOINED:
            self._join()
        return (
            self._part.size >= self._enough > 0
            or bool(self._parts)
            or (not self.awaited and (bool(self._pieces) or self._part.size > 0))
        )

    def _join(self) -> None:
        text = b"".join(self._pieces)
        self._pieces.clear()
        part = self._part
        part.pieces.append(text)
        part.size += len(text)

    def _end_part(self) -> None:
        if self._pieces:
            self._join()
        self._part.count = self.seq - self._part.first

    def take(self) -> list[LinesPart]:
        """Give away the lines that there are, in their order."""
        self._end_part()
        parts, part = self._parts, self._part
        if part.count:
            parts.append(part)
            self._part = LinesPart(part.node_id, self.boot, self.seq)
        self._parts = []
        return parts


def address(who: Any) -> str:
    """Where a client is, as the log names it; empty for what is no client of a connection."""
    found: str = getattr(who, "address", "")
    return found


def _count(name: bytes, number: int) -> bytes:
    return b',"%b":%d' % (name, number) if number else b""
