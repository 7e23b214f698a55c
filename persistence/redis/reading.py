"""Reading what the server holds, page by page.

    after a crash         policies, pauses, groups, jobs as HSCAN finds them, units    any order of the jobs will do
    a controlled restart  policies, pauses, groups, jobs in the order of a list, units queues are restored
    beside a node         history, all of that, and history since            nothing is missed between two of them

The next page is asked for before the records of this one are given out, so that the server works while we do.

Where groups begin comes before the events that this is about, so that an event that was flushed is never put into a
log.  Units are those that somebody has, and those that a group is done with: the last word on each.

A cursor of HSCAN means nothing to a server that was started again.  So when the connection was lost the scan begins
anew; a job that is met twice is the same job, and so is a unit.
"""

from collections.abc import Callable, Generator, Iterator
from struct import Struct
from typing import Any, Final

from twisted.internet.defer import Deferred

from disqued.core.model.outbox import FLUSHED, JOB_GONE, UNIT_DONE, WATERMARK, Record
from disqued.persistence.interface import StoreError
from disqued.persistence.redis.layout import Keys
from disqued.wire.fields import BadRecord, Fields
from disqued.wire.jobdump import decode_record

PAGE: Final = 1_000  #: jobs, or entries of a stream, that are asked for at a time

#: Sends a command.  Answers None when the connection was lost meanwhile, and is there again.
Ask = Callable[..., "Deferred[Any]"]
#: What is read, and the Deferreds that have to be waited for.
Records = Iterator["Fields | Deferred[None]"]
Reply = Generator["Deferred[None]", None, Any]


_UNIT: Final = Struct("<HI")  #: before each word on a unit: length of its scope, and of the record behind that


class JobReader:
    """Reads the jobs, what is known of their units, where groups begin, pauses and policies, once."""

    def __init__(self, keys: Keys, ask: Ask) -> None:
        self.bytes_loaded: int = 0
        self.expected: int = 0  #: jobs that there are
        self._keys = keys
        self._ask = ask
        self._read = 0

    @property
    def bytes_total(self) -> int:
        """What there is to read: reckoned from what was read, until all is."""
        if not self._read:
            return self.bytes_loaded + self.expected
        return self.bytes_loaded + self.bytes_loaded * max(0, self.expected - self._read) // self._read

    def records(self, expected: int, *, in_order: bool) -> Records:
        """Yield everything; `expected` is how many jobs there are.  Raises StoreError."""
        self.expected = expected
        yield from self._watermark()
        yield from self._scan("policies", self._policies)
        yield from self._pauses()
        yield from self._scan("groups", self._beginnings)
        yield from self._snapshot() if in_order else self._scan("jobs", self._jobs)
        if self._read < expected:
            raise StoreError(
                f"{self._keys.name('jobs').decode()} gave {self._read} jobs where {expected} were written; something"
                " else has removed the others"
            )
        self.expected = self._read
        yield from self._scan("units", self._words)

    def _watermark(self) -> Records:
        """Up to when delayed jobs were queued; another run of the server may have lost what came after it."""
        until, run = yield from self._again("HMGET", self._keys.name("meta"), "until", "server")
        if until is None:
            return
        facts = yield from self._again("INFO", "server")
        is_same = bool(run) and b"run_id:%b\r\n" % run in facts
        yield (WATERMARK, int(until)) if is_same else (WATERMARK, int(until), False)

    def _pauses(self) -> Records:
        pauses = yield from self._again("HGETALL", self._keys.name("pauses"))
        for data in pauses[1::2]:
            yield self._decode("pauses", data)

    def _scan(self, part: str, records_of: Callable[[list[bytes]], Iterator[Record]]) -> Records:
        """The values of a hash, in any order; `records_of` makes records of a page of them."""
        key = self._keys.name(part)
        begun = self._read, self.bytes_loaded
        cursor = b"0"
        asked = self._ask("HSCAN", key, cursor, "COUNT", PAGE)
        while True:
            page = yield from reply(asked)
            if page is None:
                self._read, self.bytes_loaded = begun
                cursor = b"0"
            else:
                cursor = page[0]
            if page is None or cursor != b"0":
                asked = self._ask("HSCAN", key, cursor, "COUNT", PAGE)
            if page is not None:
                yield from records_of(page[1][1::2])
                if cursor == b"0":
                    return

    def _snapshot(self) -> Records:
        """The jobs in the order in which they were written."""
        order, jobs = self._keys.name("order"), self._keys.name("jobs")
        at = 0
        while ids := (yield from self._again("LRANGE", order, at, at + PAGE - 1)):
            found = yield from self._again("HMGET", jobs, *ids)
            yield from self._jobs([data for data in found if data is not None])
            at += len(ids)

    def _jobs(self, page: list[bytes]) -> Iterator[Record]:
        for data in page:
            self._read += 1
            self.bytes_loaded += len(data)
            yield self._decode("jobs", data)

    def _beginnings(self, page: list[bytes]) -> Iterator[Record]:
        for data in page:
            self.bytes_loaded += len(data)
            yield self._decode("groups", data)

    def _policies(self, page: list[bytes]) -> Iterator[Record]:
        for data in page:
            self.bytes_loaded += len(data)
            yield self._decode("policies", data)

    def _words(self, page: list[bytes]) -> Iterator[Record]:
        """The last word on each unit of some jobs."""
        for data in page:
            self.bytes_loaded += len(data)
            at = 0
            while at < len(data):
                place = _record_at(data, at)
                yield self._decode("units", data[place])
                at = place.stop

    def _decode(self, part: str, data: bytes) -> Record:
        try:
            return decode_record(data)
        except BadRecord as error:
            raise StoreError(f"{self._keys.name(part).decode()} holds what is no record: {error}") from None

    def _again(self, *command: Any) -> Reply:
        """Send a command until it is answered."""
        while True:
            answer = yield from reply(self._ask(*command))
            if answer is not None:
                return answer


def _record_at(data: bytes, at: int) -> slice:
    """Where the record stands whose lengths begin at a byte; of nonsense, something that is no record."""
    if at + _UNIT.size > len(data):
        return slice(at, len(data))
    length, size = _UNIT.unpack_from(data, at)
    start = at + _UNIT.size + length
    return slice(start, start + size)


class HistoryReader:
    """Reads the streams of what is over, merged by time; a later call goes on where the last one ended.

    Of two entries of one millisecond that stand in different streams nothing says which came first: the ids that the
    server gives count in each stream on its own, and its clock goes on while a script runs.
    """

    def __init__(self, keys: Keys, ask: Ask) -> None:
        self._ask = ask
        self._streams = {keys.name("done"): UNIT_DONE, keys.name("evictions"): JOB_GONE}
        self._next = dict.fromkeys(self._streams, (0, 0))  #: the first id that was not read

    def records(self) -> Records:
        """Yield what there is now."""
        pages: dict[bytes, list[Any]] = {stream: [] for stream in self._streams}
        unread = set(self._streams)
        while True:
            for stream in self._streams:
                if not pages[stream] and stream in unread:
                    pages[stream] = yield from self._page(stream)
                    if not pages[stream]:
                        unread.remove(stream)
            heads = [(_time_of(page[0]), stream) for stream, page in pages.items() if page]
            if not heads:
                return
            _, stream = min(heads)
            entry = pages[stream].pop(0)
            stamp, serial = _id_of(entry)
            self._next[stream] = (stamp, serial + 1)
            yield _past(self._streams[stream], entry)

    def _page(self, stream: bytes) -> Reply:
        stamp, serial = self._next[stream]
        page = yield from reply(self._ask("XRANGE", stream, f"{stamp}-{serial}", "+", "COUNT", PAGE))
        return page or []


def reply(asked: "Deferred[Any]") -> Reply:
    """Wait for an answer the way `IStore.load` does, by yielding a Deferred."""
    answers: list[Any] = []
    done: Deferred[None] = asked.addCallback(answers.append)
    if not answers:
        yield done
    return answers[0]


def _id_of(entry: Any) -> tuple[int, int]:
    stamp, _, serial = entry[0].partition(b"-")
    return int(stamp), int(serial)


def _time_of(entry: Any) -> tuple[int, tuple[int, int]]:
    """When it happened, by the clock of the node and then by that of the server."""
    return int(_facts(entry)[b"time"]), _id_of(entry)


def _facts(entry: Any) -> dict[bytes, bytes]:
    return dict(zip(entry[1][::2], entry[1][1::2], strict=True))


def _past(kind: int, entry: Any) -> Record:
    """An entry of a stream as a record."""
    facts = _facts(entry)
    when = int(facts[b"time"])
    if kind == UNIT_DONE:
        return (UNIT_DONE, facts[b"id"], facts.get(b"scope", b""), when)
    if not facts[b"id"]:
        return (FLUSHED, when)
    return (JOB_GONE, facts[b"id"], facts[b"reason"], when)
