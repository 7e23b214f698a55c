"""Lines of the event log: what `core.trail` tells of, as JSON objects.

    Lines(boot).of(entries, offset) --> b'{"v":1,"boot":7,"seq":52114,"ts_us":...,"event":"deliver",...}\\n' ...

docs/reference/event-log.md says what each member means; `COLUMNS` are their names and types.  Every event of a busy
node passes here, so that a line is made by one template for each kind, and what many lines share (names of queues,
addresses of clients, wishes of producers) is made into text once.

Times of entries are integer milliseconds, those of lines microseconds.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from disqued.core.job import RETRY_NEVER_MS, Job, JobOptions
from disqued.core.trail import ADD, CLOCK, DELIVER, NAMES, REPLICATE, SET_MS, Entry
from disqued.wire.texts import text

VERSION: Final = 1
NODE_LENGTH: Final = 8  #: hex digits of a node's id that name it
NO_CLIENT: Final = (type(None), bytes)  #: nobody, or another node
TEXTS_KEPT: Final = 4_096  #: names, addresses and wishes whose text is remembered, of each sort

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


class Lines:
    """Makes the lines of one boot, and numbers them."""

    __slots__ = (
        "_ack", "_add", "_address_of", "_addresses", "_deliver", "_moment", "_offset", "_queues", "_start", "_wishes",
        "boot", "seq",
    )  # fmt: skip

    def __init__(self, boot: int, address_of: Callable[[Any], str]) -> None:
        """`address_of` names a client of an entry; empty = it has no address."""
        self.boot: int = boot
        self.seq: int = 1  #: number of the next line
        #: Of the next short entry: unix and monotonic milliseconds, the first as text (us), the client as a member.
        self._moment: tuple[int, int, bytes, bytes] = (0, 0, b"0", b"")
        self._offset: int | None = None  #: of the last entries
        self._address_of = address_of
        self._queues = _Texts(lambda name: b',"queue":' + _quoted(text(name)))
        self._addresses = _Texts(lambda address: b',"client":' + _quoted(address) if address else b"")
        self._wishes = _Texts(_wishes)
        self._start = b'{"v":%d,"boot":%d,"seq":%%d,"ts_us":%%b,"event":"' % (VERSION, boot)
        # Those of which there are most: number, time, id, queue, and what is theirs, then the client.
        self._add = self._start + b'add","job_id":"%b"%b%b,"size":%d%b}\n'
        self._deliver = self._start + b'deliver","job_id":"%b"%b,"attempt":1,"age_us":%d,"wait_us":%d%b}\n'
        self._ack = self._start + b'ack","job_id":"%b"%b,"attempt":1,"age_us":%d%b%b}\n'

    def renewed(self) -> "Lines":
        """The same for the next boot, which begins in the middle of a step."""
        lines = Lines(self.boot + 1, self._address_of)
        lines._moment, lines._offset = self._moment, self._offset
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

    def _of(self, entries: Iterable[Entry], offset: int) -> bytes:
        lines: list[bytes] = []
        append = lines.append
        queues, wishes, addresses, address_of = self._queues, self._wishes, self._addresses, self._address_of
        seq = self.seq
        when, now, at, client = self._moment
        for entry in entries:
            if entry.__class__ is not tuple:
                append(self._add % (
                    seq, at, entry.id, queues[entry.queue], wishes[entry.options], len(entry.body), client,
                ))  # fmt: skip
            elif len(entry) == 3:
                kind, job, span_ms = entry
                age_us = (job.options.ttl_ms + now - job.expires_at) * 1_000
                if age_us < 0:
                    age_us = 0
                if kind == DELIVER:
                    append(self._deliver % (seq, at, job.id, queues[job.queue], age_us, span_ms * 1_000, client))
                else:
                    run = b',"run_us":%d' % (span_ms * 1_000) if span_ms >= 0 else b""
                    append(self._ack % (seq, at, job.id, queues[job.queue], age_us, run, client))
            elif len(entry) == 2:
                wall, who = entry
                now = wall - offset
                if wall != when:
                    when, at = wall, b"%d" % (wall * 1_000)
                client = addresses[address_of(who)] if who.__class__ not in NO_CLIENT else self._who(who)
                continue
            elif len(entry) == 5:
                _, job, span_ms, wall, who = entry
                age_us = max(0, job.options.ttl_ms + wall - offset - job.expires_at) * 1_000
                run = b',"run_us":%d' % (span_ms * 1_000) if span_ms >= 0 else b""
                append(
                    self._ack % (seq, b"%d" % (wall * 1_000), job.id, queues[job.queue], age_us, run, self._who(who))
                )
            else:
                append(self._rare(seq, entry, offset))
            seq += 1
        self.seq = seq
        self._moment = (when, now, at, client)
        return b"".join(lines)

    def _rare(self, seq: int, entry: Entry, offset: int) -> bytes:
        """The line of an entry of the long form."""
        kind, wall, unit, attempt, nacks, span_ms, who, word = entry
        line = self._start % (seq, b"%d" % (wall * 1_000)) + NAMES[kind] + b'"'
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
        return b"%b%b%b}\n" % (line, self._who(who), b',"reason":"%b"' % word if word else b"")

    def _who(self, who: Any) -> bytes:
        """Who made it happen, as a member: a client, or another node."""
        if who is None:
            return b""
        if isinstance(who, bytes):
            return b',"peer":"%b"' % who[:NODE_LENGTH]
        return self._addresses[self._address_of(who)]


def _count(name: bytes, number: int) -> bytes:
    return b',"%b":%d' % (name, number) if number else b""
