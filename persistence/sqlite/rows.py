"""Records as rows of the database, and back.

    append --> `noted`: a tuple of what is true now, with its number      on the reactor's thread
    commit --> `job_row`, `fact_row`: what SQL is given                    on the writer's thread
    load   <-- `job_records` and others: checked and put together again

Names, bodies and the like are kept as TEXT where they are UTF-8, so that people can read them, and as BLOB where they
are not: read as bytes, both are what was given.

Each row carries a CRC-32 of all that it says, its number included: SQLite's own checks see a page that makes no sense,
but not a letter that has become another one.  What is over is written down without being read: SQL adds what it
copies from the row of the job (`fact_crc`) to what is new about it (`news_crc`), modulo 2**32.  An alias, a kind,
terms and a fate add to the checksum of a job only where there are any, so that a row from before there were any is
right as it is.

Times are integer milliseconds of the wall clock, except `ctime`.
"""

import json
from base64 import b64decode, b64encode
from struct import Struct, error
from typing import Any, Final
from zlib import crc32

from disqued.core.model.calendar import LastFiring, Refusal, ScheduleSetting, words_of
from disqued.core.model.fate import NO_FATE
from disqued.core.model.groups import read_scope
from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    KEPT_FLAGS,
    RETRY_NEVER_MS,
    STAMP_MAX,
    NamedJob,
    StoredJob,
    flags_to_keep,
    misfit,
)
from disqued.core.model.outbox import (
    FLUSHED,
    GROUP,
    JOB_ADDED,
    POLICY,
    QUEUE_PAUSED,
    UNIT_LEASED,
    WITH_WHEN,
    Record,
)
from disqued.core.model.policies import FIELD_NAMES, PauseSetting, Register, Value
from disqued.core.model.queues import PAUSE_NAMES
from disqued.core.model.terms import NO_TERMS
from disqued.wire.fates import decode_fate, decode_terms, encode_fate, encode_terms
from disqued.wire.fields import BadRecord, Fields
from disqued.wire.schedulevalues import decode_schedule, encode_schedule

VERSION_WITH_FATES: Final = 5  #: of the schema
#: Columns of the table `jobs`, in their order.
JOB_COLUMNS: Final = (
    "seq", "id", "queue", "body", "state", "ctime", "expires_at", "requeue_at", "ttl_ms", "retry_ms", "delay_ms",
    "replicate", "flags", "nacks", "additional_deliveries", "order_key", "holders", "fact_crc", "crc", "kind", "alias",
    "terms", "fate",
)  # fmt: skip


def job_columns(version: int) -> str:
    """Return the columns of the table `jobs` as SQL; what an older version of the schema lacks is empty."""
    columns = ", ".join(JOB_COLUMNS)
    if version < VERSION_WITH_FATES:
        columns = columns.replace("terms, fate", "NULL AS terms, NULL AS fate")
    return columns if version > 1 else columns.replace("kind, alias", "0 AS kind, NULL AS alias")


Row = tuple[Any, ...]
#: A record with its number and its time; what `noted` makes.
Note = tuple[Any, ...]

_pack_job = Struct("<qBBHBIIqqqQQQIIq").pack
_new_job = tuple.__new__
_pack_name = Struct("<BH").pack
_pack_fate = Struct("<HI").pack
_pack_lease = Struct("<qIqBHH").pack
_pack_ctime = Struct("<q").pack
_pack_news = Struct("<qq").pack
_pack_group = Struct("<qqHHI").pack
_pack_pause = Struct("<qBq").pack
_pack_policy = Struct("<qQqIHHI").pack
_pack_flush = Struct("<qqQ").pack
#: Number of a field, and PAUSE_... bits, by their names.
_FIELDS: Final = {name: field for field, name in FIELD_NAMES.items()}
_BITS: Final = {name.decode(): bits for bits, name in PAUSE_NAMES.items()}
_COUNTER_MASK = 0xFFFF_FFFF
_CRC_MASK: Final = 0xFFFF_FFFF
#: What damaged values make of a calculation.
_NONSENSE: Final = (TypeError, ValueError, AttributeError, OverflowError, BadRecord, error)


class BadRow(Exception):
    """A row does not say what was written into it."""

    def __init__(self, what: str, row: Row) -> None:
        super().__init__(what)
        #: Number of the record; 0 when even that is lost.
        self.number: int = row[0] if row and isinstance(row[0], int) else 0


def noted(records: list[Fields], first: int, wall: int, offset: int, *, with_state: bool = False) -> list[Note]:
    """Write records down as they are now; `first` is the number of the first one.

    `offset` turns monotonic deadlines into those of the wall clock.  Without `with_state` a job is said to be ACTIVE:
    nobody will know where it is when that is read.  A job becomes (JOB_ADDED, number, then the fields of a StoredJob),
    anything else (kind, number, its own fields, when).
    """
    notes: list[Note] = []
    sequence = first
    for record in records:
        if record[0] == JOB_ADDED:
            job = record[1]
            options = job.options
            requeue_at = job.requeue_at
            # One that is done stays so, whatever else is known of places.
            state = job.state if with_state or job.state == ACKED else ACTIVE
            flags = flags_to_keep(job) if options.is_rare else job.flags & KEPT_FLAGS
            notes.append((JOB_ADDED, sequence, job.id, job.queue, job.body, state, flags,
                          options.replicate, job.holders, job.ctime, job.expires_at + offset,
                          requeue_at + offset if requeue_at else 0, options.ttl_ms, options.retry_ms, options.delay_ms,
                          job.nacks & _COUNTER_MASK, job.additional_deliveries & _COUNTER_MASK, job.order_key,
                          options.kind, job.alias if isinstance(job, NamedJob) else b"",
                          options.terms, options.fate))  # fmt: skip
        else:
            # A lease, a group or a policy may say itself since when.
            when = () if len(record) == WITH_WHEN.get(record[0]) else (wall,)
            notes.append((record[0], sequence, *record[1:], *when))
        sequence += 1
    return notes


def readable(value: bytes) -> str | bytes:
    """Text, where it is: valid UTF-8 without the NUL that ends a text for many a tool."""
    if b"\0" in value:
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def id_text(job_id: bytes) -> str:
    """An id as TEXT; only the marks in an id are certain to be ASCII."""
    return job_id.decode("latin-1")


def id_bytes(text: bytes) -> bytes:
    """The id, from the bytes of its TEXT."""
    return text if text.isascii() else text.decode().encode("latin-1")


def fact_crc(job_id: bytes, queue: bytes | None, ctime: int | None) -> int:
    """Checksum of what outlives a job; of its id alone where nothing else is known."""
    if queue is None:
        return crc32(job_id)
    return crc32(queue, crc32(job_id, crc32(_pack_ctime(ctime))))


def news_crc(sequence: int, when: int, tail: bytes) -> int:
    """Checksum of what is new about a job that is over: `tail` is the scope that is done, or the reason."""
    return crc32(tail, crc32(_pack_news(sequence, when)))


def name_crc(kind: int, alias: bytes, check: int) -> int:
    """Checksum of a job that has an alias, or is of another kind than work; `check` is that of the rest of it."""
    return crc32(alias, crc32(_pack_name(kind, len(alias)), check))


def fate_crc(terms: bytes, fate: bytes, check: int) -> int:
    """Checksum of a job that has terms or a fate, as bytes; `check` is that of the rest of it."""
    return crc32(terms + fate, crc32(_pack_fate(len(terms), len(fate)), check))


def job_row(note: Note) -> Row:
    """The row of a job."""
    (_, sequence, job_id, queue, body, state, flags, replicate, holders, ctime, expires, requeue, ttl_ms, retry_ms,
     delay_ms, nacks, additional_deliveries, order_key, kind, alias, terms, fate) = note  # fmt: skip
    fact = fact_crc(job_id, queue, ctime)
    check = crc32(
        _pack_job(
            sequence, state, flags, replicate, len(job_id), len(queue), len(body), ctime, expires, requeue,
            ttl_ms, retry_ms, delay_ms, nacks, additional_deliveries, order_key,
        ) + job_id + queue + body,
        fact,
    )  # fmt: skip
    if kind or alias:
        check = name_crc(kind, alias, check)
    promised = None if terms is NO_TERMS else encode_terms(terms)
    became = None if fate is NO_FATE else encode_fate(fate)
    if promised or became:
        check = fate_crc(promised or b"", became or b"", check)
    text = None
    if holders:
        named = b" ".join(sorted(holders))
        check = crc32(named, check)
        text = named.decode("ascii")
    return (sequence, id_text(job_id), readable(queue), readable(body), state, ctime, expires, requeue, ttl_ms,
            retry_ms, delay_ms, replicate, flags, nacks, additional_deliveries, order_key, text, fact, check, kind,
            readable(alias) if alias else None, promised, became)  # fmt: skip


def job_records(rows: list[Row]) -> list[tuple[int, StoredJob]]:
    """(JOB_ADDED, StoredJob) for each row, read with TEXT as bytes.  Raises BadRow."""
    records: list[tuple[int, StoredJob]] = []
    row: Row = ()
    try:
        # A database has millions of these: all is in this one loop, and local.
        for row in rows:
            (sequence, job_id, queue, body, state, ctime, expires, requeue, ttl_ms, retry_ms, delay_ms, replicate,
             flags, nacks, additional_deliveries, order_key, named, fact, wanted, kind, alias, promised,
             became) = row  # fmt: skip
            if not job_id.isascii():
                job_id = id_bytes(job_id)
            check = crc32(
                _pack_job(
                    sequence, state, flags, replicate, len(job_id), len(queue), len(body), ctime, expires, requeue,
                    ttl_ms, retry_ms, delay_ms, nacks, additional_deliveries, order_key,
                ) + job_id + queue + body,
                fact,
            )  # fmt: skip
            if alias is None:
                alias = b""
            # Not `if kind or alias`: one flipped bit makes a NULL of 0, and 0 of a NULL.
            if kind != 0 or alias != b"":
                check = name_crc(kind, alias, check)
            terms, fate = NO_TERMS, NO_FATE
            if promised is not None or became is not None:
                promised = b"" if promised is None else promised
                became = b"" if became is None else became
                check = fate_crc(promised, became, check)
                terms, fate = decode_terms(promised), decode_fate(became)
            holders = None
            if named is not None:
                check = crc32(named, check)
                holders = frozenset(named.split())
            if check != wanted:
                raise BadRow("the checksum is wrong", row)
            if (
                not 0 <= ctime <= STAMP_MAX >= order_key >= -STAMP_MAX
                or ttl_ms > RETRY_NEVER_MS or retry_ms > RETRY_NEVER_MS or delay_ms > RETRY_NEVER_MS
            ):  # fmt: skip
                raise BadRow(misfit(ctime, order_key, ttl_ms, retry_ms, delay_ms), row)
            # The class's own constructor takes twice as long.
            records.append((JOB_ADDED, _new_job(StoredJob, (
                job_id, queue, body, state, flags, replicate, holders, ctime, expires, requeue, ttl_ms, retry_ms,
                delay_ms, nacks, additional_deliveries, order_key, kind, alias, terms, fate))))  # fmt: skip
    except _NONSENSE as problem:
        raise BadRow(f"the row makes no sense: {problem}", row) from None
    return records


def fact_row(note: Note, job: Note | None) -> Row:
    """The row of what is over, complete: for a job that is not in the database."""
    _, sequence, job_id, tail, when = note
    queue, ctime = (job[3], job[9]) if job else (None, None)
    check = (fact_crc(job_id, queue, ctime) + news_crc(sequence, when, tail)) & _CRC_MASK
    return (sequence, id_text(job_id), readable(tail), None if queue is None else readable(queue), ctime, when,
            check)  # fmt: skip


def news_row(note: Note) -> Row:
    """What SQL makes the row of: number, id, tail, when, and the checksums of an unknown job and of the news."""
    _, sequence, job_id, tail, when = note
    return (sequence, id_text(job_id), readable(tail), when, fact_crc(job_id, None, None),
            news_crc(sequence, when, tail))  # fmt: skip


def fact_record(kind: int, row: Row) -> Record:
    """What is over, from its row, read with TEXT as bytes: (kind, id, tail, when).  Raises BadRow."""
    sequence, text, tail, queue, ctime, when, wanted = row
    try:
        job_id = id_bytes(text)
        check = (fact_crc(job_id, queue, ctime) + news_crc(sequence, when, tail)) & _CRC_MASK
    except _NONSENSE as problem:
        raise BadRow(f"the row makes no sense: {problem}", row) from None
    if check != wanted:
        raise BadRow("the checksum is wrong", row)
    return (kind, job_id, tail, when)


def lease_row(note: Note) -> Row:
    """The row of a unit that a consumer has."""
    _, sequence, job_id, scope, deliveries, worker, when = note
    count = deliveries & _COUNTER_MASK
    check = _lease_crc((sequence, job_id, scope, count, worker, when))
    return (sequence, id_text(job_id), readable(scope), count, readable(worker), when, check)


def lease_record(row: Row) -> Record:
    """(UNIT_LEASED, id, scope, deliveries, worker, when) from its row, read with TEXT as bytes.  Raises BadRow."""
    sequence, text, scope, deliveries, worker, when, wanted = row
    try:
        job_id = id_bytes(text)
        check = _lease_crc((sequence, job_id, scope, deliveries, worker, when))
    except _NONSENSE as problem:
        raise BadRow(f"the row makes no sense: {problem}", row) from None
    if check != wanted:
        raise BadRow("the checksum is wrong", row)
    return (UNIT_LEASED, job_id, scope, deliveries, worker, when)


def _lease_crc(values: Row) -> int:
    sequence, job_id, scope, deliveries, worker, when = values
    head = _pack_lease(sequence, deliveries, when, len(job_id), len(scope), len(worker))
    return crc32(head + job_id + scope + worker)


def group_row(note: Note) -> Row:
    """The row of where a group begins, or of up to where a queue was flushed."""
    _, sequence, queue, scope, floor, when = note
    text = json.dumps({origin.decode("ascii"): ctime for origin, ctime in floor})
    check = _group_crc(sequence, queue, scope, text.encode("ascii"), when)
    return (sequence, readable(queue), readable(scope), text, when, check)


def group_record(row: Row) -> Record:
    """(GROUP, queue, scope, floor, when) from its row, read with TEXT as bytes.  Raises BadRow."""
    sequence, queue, scope, text, when, wanted = row
    try:
        check = _group_crc(sequence, queue, scope, text, when)
        if check != wanted:
            raise BadRow("the checksum is wrong", row)
        floor = tuple(sorted((origin.encode("ascii"), ctime) for origin, ctime in json.loads(text).items()))
        for origin, ctime in floor:
            if not 0 <= ctime <= STAMP_MAX:
                raise BadRow(f"stamp {ctime} of {origin!r}; allowed are stamps up to {STAMP_MAX}", row)
    except _NONSENSE as problem:
        raise BadRow(f"the row makes no sense: {problem}", row) from None
    return (GROUP, queue, scope, floor, when)


def _group_crc(sequence: int, queue: bytes, scope: bytes, text: bytes, when: int) -> int:
    return crc32(_pack_group(sequence, when, len(queue), len(scope), len(text)) + queue + scope + text)


def name_in(scope: bytes) -> bytes:
    """What a row of a group is found by, beside its queue: a colon and the name of the group; empty = all groups."""
    return scope[scope.index(b":") :] if scope else b""


def joined(note: Note, known: Fields) -> Note | None:
    """What holds of a new word on where a group begins and the known one; None when the new one says nothing new.

    The later epoch counts, and within one the higher stamp of each node.
    """
    _, sequence, queue, scope, floor, when = note
    epoch, before = ((read_scope(each) or (b"", 0))[1] for each in (scope, known[2]))
    if epoch != before:
        return note if epoch > before else None
    union = dict(known[3])
    for origin, ctime in floor:
        union[origin] = max(ctime, union.get(origin, ctime))
    merged = tuple(sorted(union.items()))
    return None if merged == known[3] else (GROUP, sequence, queue, scope, merged, when)


def pause_row(sequence: int, queue: bytes, pause: int, when: int) -> Row:
    """The row of a queue that was paused, or is not any more."""
    return (sequence, readable(queue), pause, when, crc32(queue, crc32(_pack_pause(sequence, pause, when))))


def pause_record(row: Row) -> Record:
    """(QUEUE_PAUSED, queue, bits, when) from its row, read with TEXT as bytes.  Raises BadRow."""
    sequence, queue, pause, when, wanted = row
    try:
        check = crc32(queue, crc32(_pack_pause(sequence, pause, when)))
    except _NONSENSE as problem:
        raise BadRow(f"the row makes no sense: {problem}", row) from None
    if check != wanted:
        raise BadRow("the checksum is wrong", row)
    return (QUEUE_PAUSED, queue, pause, when)


def policy_row(note: Note) -> Row:
    """The row of what the cluster says of a queue."""
    _, sequence, queue, field, (counter, node_id, set_at, value) = note
    name = FIELD_NAMES[field].decode()
    text = json.dumps(_spelled(value), ensure_ascii=False)
    check = _policy_crc(sequence, counter, set_at, (queue, FIELD_NAMES[field], node_id, text.encode()))
    return (sequence, readable(queue), name, counter, node_id.decode(), set_at, text, check)


def policy_record(row: Row) -> Record:
    """(POLICY, queue, field, register) from its row, read with TEXT as bytes.  Raises BadRow."""
    sequence, queue, name, counter, node_id, set_at, text, wanted = row
    try:
        check = _policy_crc(sequence, counter, set_at, (queue, name, node_id, text))
        if check != wanted:
            raise BadRow("the checksum is wrong", row)
        value = _read_value(json.loads(text), counter)
        return (POLICY, queue, _FIELDS[name], Register(counter, node_id, set_at, value))
    except (*_NONSENSE, LookupError) as problem:
        raise BadRow(f"the row makes no sense: {problem}", row) from None


def _spelled(value: Value) -> Any:
    """Return the value of a policy as JSON: an object of a pause or of a schedule, else numbers."""
    if isinstance(value, ScheduleSetting):
        # For people, and then for disqued.
        return {
            "schedule": words_of(value).decode("utf-8", "backslashreplace"),
            "queue": value.job.queue.decode("utf-8", "backslashreplace"),
            "bytes": b64encode(encode_schedule(value)).decode(),
        }
    if isinstance(value, LastFiring):
        return {"job": value.job_id.decode(), "at": value.fired_at, "outcomes": value.outcomes}
    if isinstance(value, Refusal):
        return {"instant": value.instant, "error": value.error.decode()}
    if isinstance(value, PauseSetting):
        pause = PAUSE_NAMES[value.bits].decode()
        return {"pause": pause, "reason": value.reason.decode(), "owner": value.owner.decode()}
    return list(value)


def _read_value(value: Any, counter: int) -> Value:
    if isinstance(value, list):
        return tuple(map(int, value))
    if "bytes" in value:
        return decode_schedule(b64decode(value["bytes"]))
    if "job" in value:
        job_id = value["job"].encode()
        # A row that was written before there were outcomes has the id alone.
        outcomes = tuple((int(instant), int(outcome)) for instant, outcome in value.get("outcomes", ()))
        return LastFiring(job_id, int(value.get("at", counter if job_id else 0)), outcomes)
    if "error" in value:
        return Refusal(int(value["instant"]), value["error"].encode())
    return PauseSetting(_BITS[value["pause"]], value["reason"].encode(), value["owner"].encode())


def _policy_crc(sequence: int, counter: int, set_at: int, strings: tuple[bytes, ...]) -> int:
    check = crc32(_pack_policy(sequence, counter, set_at, *map(len, strings)))
    for string in strings:
        check = crc32(string, check)
    return check


def flush_row(sequence: int, when: int, jobs: int) -> Row:
    """The row of a flush that took so many jobs."""
    return (sequence, when, jobs, crc32(_pack_flush(sequence, when, jobs)))


def flush_record(row: Row) -> Record:
    """(FLUSHED, when) from its row.  Raises BadRow."""
    sequence, when, jobs, wanted = row
    try:
        check = crc32(_pack_flush(sequence, when, jobs))
    except _NONSENSE as problem:
        raise BadRow(f"the row makes no sense: {problem}", row) from None
    if check != wanted:
        raise BadRow("the checksum is wrong", row)
    return (FLUSHED, when)


def word_row(name: str, value: str) -> Row:
    """A row of the table `meta`."""
    return (name, value, crc32(f"{name}={value}".encode()))
