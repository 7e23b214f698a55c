"""A job, and what happens to it, as bytes: what the journal is made of.

A record begins with the same two bytes, so that a reader knows what it has before it looks further:

    format  1 byte   `FORMAT`; another number is another layout
    kind    1 byte   as in `core.model.outbox`

    JOB_ADDED, little-endian, 81 bytes and then the strings in this order:
        state 1, flags 1, length of id 1, replicate 2, number of holders 2, length of queue 4, length of body 4,
        ctime 8, expires 8, requeue 8, ttl 8, retry 8, delay 8, nacks 4, additional deliveries 4, order key 8
        id, queue, body, 40 bytes for each holder
    A job with an alias, or of another kind than work, has these in front of all that, the format being `NAMED_FORMAT`:
        format 1, kind of record 1, kind of job 1, length of alias 2
        alias
    A job with terms or a fate has these in front of all that, the format being `FATED_FORMAT`; `fates` says how they
    are written:
        format 1, kind of record 1, length of terms 2, length of fate 4
        terms, fate
    UNIT_DONE, JOB_GONE, FLUSHED, WATERMARK, 13 bytes and then the strings:
        when 8 (of a WATERMARK: what it says), length of id 1, length of tail 2
        id, tail (the scope of a unit that is done, the reason why a job is gone)
    UNIT_LEASED, 19 bytes and then the strings in this order:
        when 8, length of id 1, deliveries 4, lengths of scope 2 and worker 2
        id, scope, worker
    QUEUE_PAUSED, 15 bytes and then the name of the queue:
        when 8, PAUSE_... bits 1, length of name 4
    GROUP, 18 bytes and then:
        when 8, lengths of queue 4 and scope 2, number of nodes 2
        queue, scope; for each node, in order, the 8 first hex digits of its id, stamp 8
    POLICY, 45 bytes and then the strings:
        field 1, counter 8, node id 20, when it was set 8, length of queue 4, of value 2
        queue, value; that of a pause: PAUSE_... bits 1, length of reason 2, reason, owner; of most other fields: how
        many numbers 1, and each of them 8; a span is seconds, or below 0 milliseconds where it is not whole seconds

Deadlines are those of the job plus an offset that the writer chooses: wall clock minus monotonic clock for what is
stored, so that they are wall-clock times.

A *copy* is a job on its way to another node, in the same layout.  Its deadlines are what is left of them, since no
two clocks are compared: 0 and more for the end of its life, 1 and more for the next queueing, 0 where there is none.
It says nothing of what its sender alone knows: its state is ACTIVE, and it was not delivered.  A node believes no
number of another one that it could not work with, so all of them have bounds.  The stamps and spans of a job have the
same bounds where it is stored: a checksum that is right says nothing of who wrote it.

Every length is checked before it is used, and the lengths must account for each byte: what decodes at all decodes
to what was written.  Times are integer milliseconds, except `ctime`.
"""

from binascii import hexlify, unhexlify
from functools import lru_cache
from itertools import pairwise
from struct import Struct
from typing import Final

from disqued.core.model.calendar import LastFiring, Refusal, ScheduleSetting
from disqued.core.model.fate import NO_FATE
from disqued.core.model.gates import split_throttle_name
from disqued.core.model.groups import read_scope
from disqued.core.model.ids import JOB_ID_LENGTH, NODE_ID_LENGTH, OLD_JOB_ID_LENGTH, is_job_id, is_node_id
from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    COPIED_FLAGS,
    KEPT_FLAGS,
    KIND_NAMES,
    KIND_WORK,
    KNOWN_FLAGS,
    RETRY_NEVER_MS,
    STAMP_MAX,
    STATE_NAMES,
    Job,
    JobOptions,
    NamedJob,
    StoredJob,
    flags_to_keep,
    misfit,
)
from disqued.core.model.outbox import (
    FLUSHED,
    GROUP,
    JOB_ADDED,
    JOB_GONE,
    POLICY,
    QUEUE_PAUSED,
    UNIT_DONE,
    UNIT_LEASED,
    WATERMARK,
    Record,
)
from disqued.core.model.policies import (
    COUNTER_MAX,
    FIELD_NAMES,
    GROUP_THROTTLE_FIELD,
    NUMBER_FIELDS,
    OWNER_MAX,
    PAUSE_FIELD,
    REASON_MAX,
    SCHEDULE_FIELD,
    SCHEDULE_FIRED_FIELD,
    SCHEDULE_REFUSED_FIELD,
    Numbers,
    PauseSetting,
    Policy,
    Register,
    Value,
    is_printable,
)
from disqued.core.model.queues import PAUSE_NAMES
from disqued.core.model.terms import NO_TERMS, Terms
from disqued.wire.fates import decode_fate, decode_terms, encode_fate, encode_terms
from disqued.wire.fields import BadRecord, Fields
from disqued.wire.pieces import LARGE, Pieces, Text, grouped, whole
from disqued.wire.schedulevalues import (
    decode_last,
    decode_refusal,
    decode_schedule,
    encode_last,
    encode_refusal,
    encode_schedule,
)

FORMAT: Final = 1
NAMED_FORMAT: Final = 2
FATED_FORMAT: Final = 3

_JOB = Struct("<BBBBBHHIIqqqQQQIIq")
_EVENT = Struct("<BBqBH")
_PAUSE = Struct("<BBqBI")
_LEASE = Struct("<BBqBIHH")
_NAMED = Struct("<BBBH")
_FATED = Struct("<BBHI")
_GROUP = Struct("<BBqIHH")
_STAMP = Struct("<8sQ")
_POLICY = Struct("<BQ20sQIH")
_PAUSE_VALUE = Struct("<BH")
_NUMBER = Struct("<q")  #: of a policy
_NO_NUMBERS: Final = b"\0"
_HEAD_OF_RECORD: Final = 2  #: format and kind
_HEAD = Struct("<BBBBBHHII")  # of a job: what is before its times, and then what is between them and the order key
_WISHES = Struct("<QQQII")
_COPY = Struct("<17sqqq32sq")  # a job of which those two are written already
_TIMES = Struct("<17xqqq32xq")  # and one of which they were read already
_pack_copy: Final = _COPY.pack
_unpack_times: Final = _TIMES.unpack_from
# Where the two stand in a job: numbers that are written out are part of the machine code, and cut every copy.
_HEAD_SIZE: Final = 17
_WISHES_START: Final = 41
_WISHES_END: Final = 73
_pack_job: Final = _JOB.pack
_unpack_job: Final = _JOB.unpack_from
_JOB_SIZE: Final[int] = _JOB.size
_JOB_START: Final = bytes((FORMAT, JOB_ADDED))
_NAMED_START: Final = bytes((NAMED_FORMAT, JOB_ADDED))
_FATED_START: Final = bytes((FATED_FORMAT, JOB_ADDED))
_COUNTER_MASK: Final = 0xFFFF_FFFF
_KNOWN_FLAGS: Final = KNOWN_FLAGS  # every bit up to the highest
_LAST_STATE: Final[int] = max(STATE_NAMES)
_new_tuple: Final = tuple.__new__

SPAN_MAX_MS: Final = RETRY_NEVER_MS  #: of what a copy is told to wait for: more than a client can ask for
_STAMP_SHORT: Final = 1 << 61  # up to here a comparison is one of the machine
HOLDERS_MAX: Final = 1_000  #: of a copy; more are not sent
HOLDER_SETS_KEPT = 256  #: sets of holders whose bytes are remembered


def encode_job(job: Job, offset: int, state: int = ACTIVE) -> bytes:
    """Write a job down as one object, whatever its size."""
    return whole(job_text(job, offset, state))


def job_text(job: Job, offset: int, state: int = ACTIVE) -> Text:
    """Write a job down; `offset` is added to its deadlines, `state` is what the reader is to know of its place."""
    job_id = job.id
    queue = job.queue
    body = job.body
    options = job.options
    holders = job.holders
    requeue_at = job.requeue_at
    size = len(body)
    flags = flags_to_keep(job) if options.is_rare else job.flags & KEPT_FLAGS
    head = _pack_job(
        # One that is done stays so, whatever else is known of places.
        FORMAT, JOB_ADDED, ACKED if job.state == ACKED else state, flags, len(job_id),
        options.replicate, len(holders) if holders else 0,
        len(queue), size, job.ctime, job.expires_at + offset, requeue_at + offset if requeue_at else 0,
        options.ttl_ms, options.retry_ms, options.delay_ms,
        job.nacks & _COUNTER_MASK, job.additional_deliveries & _COUNTER_MASK, job.order_key,
    )  # fmt: skip
    if isinstance(job, NamedJob):
        head = _encode_rare(options, job.alias) + head
    elif options.is_rare:
        head = _encode_rare(options) + head
    if size > LARGE:
        return Pieces(grouped([head, job_id, queue, body, *sorted(holders or ())]))
    if holders:
        return b"".join((head, job_id, queue, body, *sorted(holders)))
    return head + job_id + queue + body


def _encode_rare(options: JobOptions, alias: bytes = b"") -> bytes:
    """What stands in front of a job that has terms, a fate or an alias, or is of another kind than work."""
    prefix = b""
    if options.kind or alias:
        prefix = _NAMED.pack(NAMED_FORMAT, JOB_ADDED, options.kind, len(alias)) + alias
    terms, fate = encode_terms(options.terms), encode_fate(options.fate)
    if terms or fate:
        prefix = b"".join((_FATED.pack(FATED_FORMAT, JOB_ADDED, len(terms), len(fate)), terms, fate, prefix))
    return prefix


class _Written:
    """What of a copy was written last that is the same for the next one, nearly always."""

    __slots__ = (
        "additional_deliveries", "body_length", "flags", "head", "holders", "id_length", "nacks", "node_ids", "options",
        "prefix", "queue_length", "wishes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.options: JobOptions | None = None
        self.node_ids: frozenset[bytes] | None = None
        self.flags: int = 0
        self.id_length: int = 0
        self.queue_length: int = 0
        self.body_length: int = 0
        self.nacks: int = 0
        self.additional_deliveries: int = 0
        self.prefix: bytes = b""  #: the terms and the fate, of a job without an alias
        self.head: bytes = b""
        self.wishes: bytes = b""
        self.holders: bytes = b""

    def is_of(self, job: Job) -> bool:
        """Tell whether it is the same for a job."""
        return (
            self.options is job.options and self.node_ids is job.holders
            and self.body_length == len(job.body) and self.queue_length == len(job.queue)
            and self.id_length == len(job.id) and self.flags == job.flags & COPIED_FLAGS
            and self.nacks == job.nacks and self.additional_deliveries == job.additional_deliveries
        )  # fmt: skip

    def write(self, job: Job) -> None:
        """Write it for a job.  What cannot be written leaves all as it was."""
        options, node_ids, flags = job.options, job.holders, job.flags & COPIED_FLAGS
        holders = _encode_holders(node_ids) if node_ids else b""
        prefix = _encode_rare(options) if options.is_rare else b""
        head = _HEAD.pack(
            FORMAT, JOB_ADDED, ACTIVE, flags, len(job.id), options.replicate,
            len(holders) // NODE_ID_LENGTH, len(job.queue), len(job.body),
        )  # fmt: skip
        wishes = _WISHES.pack(
            options.ttl_ms, options.retry_ms, options.delay_ms,
            job.nacks & _COUNTER_MASK, job.additional_deliveries & _COUNTER_MASK,
        )  # fmt: skip
        self.options, self.node_ids, self.flags = options, node_ids, flags
        self.id_length, self.queue_length, self.body_length = len(job.id), len(job.queue), len(job.body)
        self.nacks, self.additional_deliveries = job.nacks, job.additional_deliveries
        self.holders, self.prefix, self.head, self.wishes = holders, prefix, head, wishes


_LAST_WRITTEN: Final = _Written()


def encode_copy(job: Job, now: int, prefix: bytes = b"") -> Text:
    """Write a job down for another node, behind a prefix; `now` is the monotonic clock of this one."""
    last = _LAST_WRITTEN
    if not last.is_of(job):
        last.write(job)
    requeue_at = job.requeue_at
    head = _pack_copy(
        last.head, job.ctime, max(0, job.expires_at - now), max(1, requeue_at - now) if requeue_at else 0,
        last.wishes, job.order_key,
    )  # fmt: skip
    if isinstance(job, NamedJob):
        prefix += _encode_rare(job.options, job.alias)
    elif job.options.is_rare:
        prefix += last.prefix
    if last.body_length > LARGE:
        return Pieces(grouped((prefix, head, job.id, job.queue, job.body, last.holders)))
    return b"".join((prefix, head, job.id, job.queue, job.body, last.holders))


@lru_cache(HOLDER_SETS_KEPT)
def _encode_holders(holders: frozenset[bytes]) -> bytes:
    return b"".join(sorted(holders)[:HOLDERS_MAX])


class _Read:
    """What of a copy was read last, and found sound, that is the same for the next one, nearly always."""

    __slots__ = (
        "additional_deliveries", "body_length", "delay_ms", "flags", "head", "holders_length", "id_length", "nacks",
        "prefix", "queue_length", "replicate", "retry_ms", "terms", "ttl_ms", "wishes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.prefix: bytes = b""  #: what stands in front of it: terms, without a fate
        self.terms: Terms = NO_TERMS
        self.head: bytes = b""  #: as they stand in a copy, and what they say; empty = there was none
        self.wishes: bytes = b""
        self.id_length: int = 0
        self.queue_length: int = 0
        self.body_length: int = 0
        self.holders_length: int = 0
        # As objects, which the next job shares.
        self.flags: object = 0
        self.replicate: object = 0
        self.ttl_ms: object = 0
        self.retry_ms: object = 0
        self.delay_ms: object = 0
        self.nacks: object = 0
        self.additional_deliveries: object = 0

    def note(self, data: bytes, start: int, job: StoredJob, prefix: bytes = b"") -> None:
        """Remember it of a copy that begins there, behind a prefix."""
        self.prefix, self.terms = prefix, job.terms
        self.head = data[start : start + _HEAD_SIZE]
        self.wishes = data[start + _WISHES_START : start + _WISHES_END]
        self.id_length, self.queue_length, self.body_length = len(job.id), len(job.queue), len(job.body)
        self.holders_length = len(job.holders) * NODE_ID_LENGTH if job.holders is not None else 0
        self.flags, self.replicate = job.flags, job.replicate
        self.ttl_ms, self.retry_ms, self.delay_ms = job.ttl_ms, job.retry_ms, job.delay_ms
        self.nacks, self.additional_deliveries = job.nacks, job.additional_deliveries


_LAST_READ: Final = _Read()
_LAST_READ_WITH_TERMS: Final = _Read()


def decode_copy(data: bytes, start: int = 0, body: bytes | None = None) -> StoredJob:
    """Read a copy back that begins there; its deadlines are what is left of them.  Raises BadRecord.

    `body`: the body, where the data are without it.
    """
    last = _LAST_READ
    if (
        body is None
        and data[start : start + _HEAD_SIZE] == last.head
        and data[start + _WISHES_START : start + _WISHES_END] == last.wishes
    ):
        job = _decode_alike(data, start, last)
        if job is not None:
            return job
    return _decode_other(data, start, last, body)


def _decode_alike(data: bytes, start: int, last: _Read) -> StoredJob | None:
    """Read a copy of which much is as in the last one; None = it is not sound."""
    id_start = start + _JOB_SIZE
    queue_start = id_start + last.id_length
    body_start = queue_start + last.queue_length
    holders_start = body_start + last.body_length
    end = holders_start + last.holders_length
    if end != len(data):
        return None
    ctime, expires, requeue, order_key = _unpack_times(data, start)
    stamp: int = ctime
    key: int = order_key
    lives_ms: int = expires
    waits_ms: int = requeue
    if (
        not 0 <= lives_ms <= SPAN_MAX_MS >= waits_ms >= 0
        or not 0 <= stamp <= _STAMP_SHORT >= key >= -_STAMP_SHORT
        or last.id_length != JOB_ID_LENGTH
        or data[id_start] != 0x44 or data[id_start + 1] != 0x49
        or data[queue_start - 2] != 0x53 or data[queue_start - 1] != 0x51
    ):  # fmt: skip
        return None
    # The class's own constructor takes twice as long.
    return _new_tuple(StoredJob, (
        data[id_start:queue_start], data[queue_start:body_start], data[body_start:holders_start], ACTIVE, last.flags,
        last.replicate, _holders_of(data[holders_start:end]) if last.holders_length else None,
        ctime, expires, requeue, last.ttl_ms, last.retry_ms, last.delay_ms, last.nacks, last.additional_deliveries,
        order_key, KIND_WORK, b"", last.terms, NO_FATE,
    ))  # fmt: skip


def _decode_with_terms(data: bytes, start: int) -> StoredJob | None:
    """Read a copy with terms of which much is as in the last one that had some; None = it is not, or is not sound."""
    last = _LAST_READ_WITH_TERMS
    job_start = start + len(last.prefix)
    if (
        data[start:job_start] == last.prefix
        and data[job_start : job_start + _HEAD_SIZE] == last.head
        and data[job_start + _WISHES_START : job_start + _WISHES_END] == last.wishes
    ):
        return _decode_alike(data, job_start, last)
    return None


def _decode_other(data: bytes, start: int, last: _Read, body: bytes | None) -> StoredJob:
    """Read any copy; what it has in common with the next one is remembered."""
    begins = data[start : start + len(_JOB_START)]
    if begins == _JOB_START:
        job = _decode_job(data, start, body)
    elif begins in (_NAMED_START, _FATED_START):
        alike = _decode_with_terms(data, start) if body is None else None
        if alike is not None:
            return alike
        job = _decode_rare(data, start, body)
    else:
        raise BadRecord(f"{begins!r} begins no copy of a job; {_JOB_START!r}, {_NAMED_START!r}, {_FATED_START!r} do")
    _, _, _, state, flags, _, holders, _, expires, requeue, *_ = job
    if state != ACTIVE or flags & ~COPIED_FLAGS:
        raise BadRecord(f"a copy in state {state} with flags {flags}; allowed are {ACTIVE} and bits of {COPIED_FLAGS}")
    if not 0 <= expires <= SPAN_MAX_MS >= requeue >= 0:
        raise BadRecord(f"a copy with a span that is not in 0 to {SPAN_MAX_MS} ms")
    if holders is not None and len(holders) > HOLDERS_MAX:
        raise BadRecord(f"a copy with {len(holders)} holders; allowed are {HOLDERS_MAX}")
    if body is None:
        if begins == _JOB_START:
            last.note(data, start, job)
        elif job.terms is not NO_TERMS and job.fate is NO_FATE and not (job.terms.headers or job.alias):
            job_start = start + _FATED.size + _FATED.unpack_from(data, start)[2]
            _LAST_READ_WITH_TERMS.note(data, job_start, job, data[start:job_start])
    return job


def encode_event(record: Fields, wall: int) -> bytes:
    """Write down what happened to a job, to all of them or to a queue; `wall` says when, in unix milliseconds."""
    kind = record[0]
    if kind == POLICY:
        return bytes((FORMAT, kind)) + encode_policy((record[1], record[2], record[3]))
    if kind == QUEUE_PAUSED:
        _, queue, pause = record
        return b"".join((_PAUSE.pack(FORMAT, kind, wall, pause, len(queue)), queue))
    if kind == UNIT_LEASED:
        _, job_id, scope, deliveries, worker, *since = record
        when = since[0] if since else wall
        head = _LEASE.pack(FORMAT, kind, when, len(job_id), deliveries & _COUNTER_MASK, len(scope), len(worker))
        return b"".join((head, job_id, scope, worker))
    if kind == GROUP:
        _, queue, scope, floor, *since = record
        head = _GROUP.pack(FORMAT, kind, since[0] if since else wall, len(queue), len(scope), len(floor))
        return b"".join((head, queue, scope, encode_floor(floor)))
    if kind == WATERMARK:
        return _EVENT.pack(FORMAT, kind, record[1], 0, 0)
    job_id, tail = (b"", b"") if kind == FLUSHED else record[1:]
    head = _EVENT.pack(FORMAT, kind, wall, len(job_id), len(tail))
    return b"".join((head, job_id, tail))


def place_in_copy(data: bytes, start: int = 0) -> tuple[int, int] | None:
    """Find where the body of a job begins and ends that begins there; None: it is not large, or not to be seen yet."""
    if data[start : start + len(_FATED_START)] == _FATED_START and len(data) >= start + _FATED.size:
        start += _FATED.size + sum(_FATED.unpack_from(data, start)[2:])
    if data[start : start + len(_NAMED_START)] == _NAMED_START and len(data) >= start + _NAMED.size:
        start += _NAMED.size + _NAMED.unpack_from(data, start)[3]
    if len(data) < start + _JOB_SIZE or data[start : start + len(_JOB_START)] != _JOB_START:
        return None
    _, _, _, _, id_length, _, _, queue_length, body_length = _HEAD.unpack_from(data, start)
    body_start: int = start + _JOB_SIZE + id_length + queue_length
    return (body_start, body_start + body_length) if body_length > LARGE else None


def decode_text(text: Text) -> Record:
    """Read one record back, of which a large body (`place_in_copy`) may be an object of its own.  Raises BadRecord."""
    if not isinstance(text, Pieces):
        return decode_record(text)
    data, body = text.parts[0] + b"".join(text.parts[2:]), text.parts[1]
    if data.startswith(_JOB_START):
        return (JOB_ADDED, _decode_job(data, 0, body))
    return (JOB_ADDED, _decode_rare(data, 0, body))


def decode_record(data: bytes) -> Record:
    """Read one record back.

    Returns (JOB_ADDED, StoredJob), (UNIT_DONE, job id, scope, when), (JOB_GONE, job id, reason, when),
    (FLUSHED, when), (QUEUE_PAUSED, queue, bits, when), (UNIT_LEASED, job id, scope, deliveries, worker, when),
    (GROUP, queue, scope, floor, when), (WATERMARK, until) or (POLICY, queue, field, register).  Raises BadRecord.
    """
    if data.startswith(_JOB_START):
        return (JOB_ADDED, _decode_job(data))
    if len(data) < 2:
        raise BadRecord(f"a record of {len(data)} bytes; the shortest has {_EVENT.size}")
    if data.startswith((_NAMED_START, _FATED_START)):
        return (JOB_ADDED, _decode_rare(data))
    if data[0] != FORMAT:
        raise BadRecord(f"format {data[0]} is not known to this version, which knows {FORMAT} to {FATED_FORMAT}")
    if data[1] in (UNIT_DONE, JOB_GONE, FLUSHED, WATERMARK):
        return _decode_event(data)
    if data[1] == QUEUE_PAUSED:
        return _decode_pause(data)
    if data[1] == UNIT_LEASED:
        return _decode_lease(data)
    if data[1] == GROUP:
        return _decode_group(data)
    if data[1] == POLICY:
        policy, end = decode_policy(data, _HEAD_OF_RECORD)
        if end != len(data):
            raise BadRecord(f"a policy in {len(data)} bytes whose parts add up to {end}")
        return (POLICY, *policy)
    raise BadRecord(f"kind {data[1]} is not known to this version, which knows {JOB_ADDED} to {POLICY}")


def _decode_job(data: bytes, start: int = 0, body: bytes | None = None) -> StoredJob:
    """Read a job that begins there, and with which the bytes end, with its body where that is not among them."""
    # A journal has millions of these, and links as many: what is checked here is checked without a call, and what is
    # counted with here has a type, for where the code is compiled.
    size = len(data) - start
    if size < _JOB_SIZE:
        raise BadRecord(f"a job in {size} bytes; the shortest has {_JOB_SIZE + OLD_JOB_ID_LENGTH}")
    state: int
    flags: int
    id_length: int
    holder_count: int
    queue_length: int
    body_length: int
    (
        _, _, state, flags, id_length, replicate, holder_count, queue_length, body_length,
        ctime, expires, requeue, ttl_ms, retry_ms, delay_ms, nacks, additional_deliveries, order_key,
    ) = _unpack_job(data, start)  # fmt: skip
    if body is not None:
        if len(body) != body_length:
            raise BadRecord(f"a body of {len(body)} bytes where {body_length} are announced")
        body_length = 0
    id_start = start + _JOB_SIZE
    queue_start = id_start + id_length
    body_start = queue_start + queue_length
    holders_start = body_start + body_length
    end = holders_start + holder_count * NODE_ID_LENGTH
    if end - start != size:
        raise BadRecord(f"a job in {size} bytes whose parts add up to {end - start}")
    job_id = data[id_start:queue_start]
    # As is_job_id would find, for ids of today: DI...SQ.
    if not (
        id_length == JOB_ID_LENGTH
        and data[id_start] == 0x44 and data[id_start + 1] == 0x49
        and data[queue_start - 2] == 0x53 and data[queue_start - 1] == 0x51
    ) and not is_job_id(job_id):  # fmt: skip
        raise BadRecord(f"{job_id!r} is no job id")
    if state > _LAST_STATE or flags > _KNOWN_FLAGS:
        raise BadRecord(f"state {state} with flags {flags}; allowed are 0 to {_LAST_STATE} and 0 to {_KNOWN_FLAGS}")
    stamp: int = ctime
    key: int = order_key
    lives_ms: int = ttl_ms
    waits_ms: int = retry_ms
    delayed_ms: int = delay_ms
    if (
        not 0 <= stamp <= _STAMP_SHORT >= key >= -_STAMP_SHORT
        or lives_ms > SPAN_MAX_MS or waits_ms > SPAN_MAX_MS or delayed_ms > SPAN_MAX_MS
    ):  # fmt: skip
        wrong = misfit(stamp, key, lives_ms, waits_ms, delayed_ms)
        if wrong:
            raise BadRecord(wrong)
    # The class's own constructor takes twice as long.
    return _new_tuple(StoredJob, (
        job_id, data[queue_start:body_start], data[body_start:holders_start] if body is None else body,
        state, flags, replicate,
        _holders_of(data[holders_start:end]) if holder_count else None,
        ctime, expires, requeue, ttl_ms, retry_ms, delay_ms, nacks, additional_deliveries, order_key, KIND_WORK, b"",
        NO_TERMS, NO_FATE,
    ))  # fmt: skip


def _decode_rare(data: bytes, start: int = 0, body: bytes | None = None) -> StoredJob:
    """Read a job that has terms, a fate or an alias, or is of another kind than work, and that begins there."""
    if data[start : start + len(_FATED_START)] != _FATED_START:
        return _decode_named(data, start, body)
    if len(data) - start < _FATED.size:
        raise BadRecord(f"a job in {len(data) - start} bytes; the shortest with terms has {_FATED.size + _JOB_SIZE}")
    _, _, terms_length, fate_length = _FATED.unpack_from(data, start)
    fate_start = start + _FATED.size + terms_length
    job_start = fate_start + fate_length
    if job_start > len(data) or not (terms_length or fate_length):
        raise BadRecord(f"terms of {terms_length} and a fate of {fate_length} bytes in {len(data) - start}")
    terms = decode_terms(data[start + _FATED.size : fate_start])
    fate = decode_fate(data[fate_start:job_start])
    begins = data[job_start : job_start + len(_JOB_START)]
    if begins == _JOB_START:
        job = _decode_job(data, job_start, body)
    elif begins == _NAMED_START:
        job = _decode_named(data, job_start, body)
    else:
        raise BadRecord(f"{begins!r} where a job begins, after its fate; {_JOB_START!r} and {_NAMED_START!r} do")
    if job.kind:
        raise BadRecord(f"a job of kind {job.kind} with terms or a fate; allowed are those of kind {KIND_WORK}")
    return job._replace(terms=terms, fate=fate)


def _decode_named(data: bytes, start: int = 0, body: bytes | None = None) -> StoredJob:
    """Read a job that has an alias, or is of another kind than work, and that begins there."""
    if len(data) - start < _NAMED.size:
        raise BadRecord(f"a job in {len(data) - start} bytes; the shortest with an alias has {_NAMED.size + _JOB_SIZE}")
    _, _, kind, length = _NAMED.unpack_from(data, start)
    alias_start = start + _NAMED.size
    job_start = alias_start + length
    alias = data[alias_start:job_start]
    if kind not in KIND_NAMES or not (kind or alias):
        raise BadRecord(f"a job of kind {kind} with an alias of {length} bytes; allowed are 0 to {max(KIND_NAMES)}")
    begins = data[job_start : job_start + len(_JOB_START)]
    if begins != _JOB_START:
        raise BadRecord(f"{begins!r} where a job begins, after its alias; {_JOB_START!r} does")
    return _decode_job(data, job_start, body)._replace(kind=kind, alias=alias)


class _Holders:
    """A set of holders as it was read last: nearly all jobs of a cluster have the same, and to compare is enough."""

    __slots__ = ("data", "node_ids")

    def __init__(self) -> None:
        self.data: bytes = b""
        self.node_ids: frozenset[bytes] = frozenset()


_LAST_HOLDERS: Final = _Holders()


def _holders_of(data: bytes) -> frozenset[bytes]:
    """Read the holders of a job; the same object for the same bytes, as long as it is remembered."""
    last = _LAST_HOLDERS
    if data != last.data:
        last.node_ids = _decode_holders(data)
        last.data = data
    return last.node_ids


@lru_cache(HOLDER_SETS_KEPT)
def _decode_holders(data: bytes) -> frozenset[bytes]:
    # A cluster has few such sets, and very many jobs.
    holders = [data[at : at + NODE_ID_LENGTH] for at in range(0, len(data), NODE_ID_LENGTH)]
    for holder in holders:
        if not is_node_id(holder):
            raise BadRecord(f"{holder!r} is no node id")
    # Written in order, each once: a record has one form only.
    if any(first >= second for first, second in pairwise(holders)):
        raise BadRecord("the holders of a job are not in order, each once")
    return frozenset(holders)


def _decode_event(data: bytes) -> Record:
    if len(data) < _EVENT.size:
        raise BadRecord(f"an event in {len(data)} bytes; the shortest has {_EVENT.size}")
    _, kind, wall, id_length, tail_length = _EVENT.unpack_from(data)
    tail_start = _EVENT.size + id_length
    if tail_start + tail_length != len(data):
        raise BadRecord(f"an event in {len(data)} bytes whose parts add up to {tail_start + tail_length}")
    if kind in (FLUSHED, WATERMARK):
        if len(data) != _EVENT.size:
            raise BadRecord(f"a {'flush' if kind == FLUSHED else 'watermark'} that names a job")
        return (kind, wall)
    job_id = data[_EVENT.size : tail_start]
    if id_length not in (JOB_ID_LENGTH, OLD_JOB_ID_LENGTH) or not is_job_id(job_id):
        raise BadRecord(f"{job_id!r} is no job id")
    return (kind, job_id, data[tail_start:], wall)


def _decode_lease(data: bytes) -> Record:
    if len(data) < _LEASE.size:
        raise BadRecord(f"a lease in {len(data)} bytes; the shortest has {_LEASE.size}")
    _, kind, wall, id_length, deliveries, scope_length, worker_length = _LEASE.unpack_from(data)
    scope_start = _LEASE.size + id_length
    worker_start = scope_start + scope_length
    if worker_start + worker_length != len(data):
        raise BadRecord(f"a lease in {len(data)} bytes whose parts add up to {worker_start + worker_length}")
    job_id = data[_LEASE.size : scope_start]
    if not is_job_id(job_id):
        raise BadRecord(f"{job_id!r} is no job id")
    return (kind, job_id, data[scope_start:worker_start], deliveries, data[worker_start:], wall)


def encode_floor(floor: tuple[tuple[bytes, int], ...]) -> bytes:
    """Write down up to where a group is done with the events of each node."""
    return b"".join(_STAMP.pack(origin, ctime) for origin, ctime in floor)


def decode_floor(data: bytes) -> tuple[tuple[bytes, int], ...]:
    """Read it back.  Raises BadRecord."""
    if len(data) % _STAMP.size:
        raise BadRecord(f"stamps of nodes in {len(data)} bytes; allowed is what can be divided by {_STAMP.size}")
    floor = tuple(_STAMP.iter_unpack(data))
    if any(first[0] >= second[0] for first, second in pairwise(floor)):
        raise BadRecord("stamps of nodes that are not in order, each once")
    for origin, ctime in floor:
        if origin.strip(b"0123456789abcdef") or ctime > STAMP_MAX:
            raise BadRecord(f"stamp {ctime} of {origin!r}; allowed are hex digits, and stamps up to {STAMP_MAX}")
    return floor


def _decode_group(data: bytes) -> Record:
    if len(data) < _GROUP.size:
        raise BadRecord(f"a group in {len(data)} bytes; the shortest has {_GROUP.size}")
    _, kind, wall, queue_length, scope_length, count = _GROUP.unpack_from(data)
    scope_start = _GROUP.size + queue_length
    floor_start = scope_start + scope_length
    if floor_start + count * _STAMP.size != len(data):
        raise BadRecord(f"a group in {len(data)} bytes whose parts add up to {floor_start + count * _STAMP.size}")
    scope = data[scope_start:floor_start]
    if scope and read_scope(scope) is None:
        raise BadRecord(f"{scope[:40]!r} is no scope; allowed are none, and an epoch, a colon and a name")
    return (kind, data[_GROUP.size : scope_start], scope, decode_floor(data[floor_start:]), wall)


def _decode_pause(data: bytes) -> Record:
    if len(data) < _PAUSE.size:
        raise BadRecord(f"a pause in {len(data)} bytes; the shortest has {_PAUSE.size}")
    _, kind, wall, pause, length = _PAUSE.unpack_from(data)
    if _PAUSE.size + length != len(data):
        raise BadRecord(f"a pause in {len(data)} bytes whose parts add up to {_PAUSE.size + length}")
    if pause not in PAUSE_NAMES:
        raise BadRecord(f"pause {pause}; allowed are 0 to {max(PAUSE_NAMES)}")
    return (kind, data[_PAUSE.size :], pause, wall)


def encode_policy(policy: Policy) -> bytes:
    """Write down a register and its place; the same bytes in the journal and on the bus."""
    queue, field, (counter, node_id, set_at, value) = policy
    data = _encode_value(field, value)
    return _POLICY.pack(field, counter, unhexlify(node_id), set_at, len(queue), len(data)) + queue + data


def _encode_value(field: int, value: Value) -> bytes:
    if isinstance(value, ScheduleSetting):
        return encode_schedule(value)
    if isinstance(value, LastFiring):
        return encode_last(value)
    if isinstance(value, Refusal):
        return encode_refusal(value)
    if isinstance(value, PauseSetting):
        return _PAUSE_VALUE.pack(value.bits, len(value.reason)) + value.reason + value.owner
    if not value:
        return _NO_NUMBERS
    spans = NUMBER_FIELDS[field].spans
    return bytes((len(value),)) + b"".join(
        _NUMBER.pack(_span_out(number) if place in spans else number) for place, number in enumerate(value)
    )


def _span_out(ms: int) -> int:
    return -ms if ms % 1_000 else ms // 1_000


def _span_in(number: int) -> int:
    return -number if number < 0 and number % 1_000 else number * 1_000


def decode_policy(data: bytes, at: int) -> tuple[Policy, int]:
    """Read the register that begins there; returns it and where it ends.  Raises BadRecord."""
    queue_start = at + _POLICY.size
    if len(data) < queue_start:
        raise BadRecord(f"a policy in {len(data) - at} bytes; the shortest has {_POLICY.size + _PAUSE_VALUE.size}")
    field, counter, raw_id, set_at, queue_length, value_length = _POLICY.unpack_from(data, at)
    value_start = queue_start + queue_length
    end = value_start + value_length
    if len(data) < end:
        raise BadRecord(f"a policy in {len(data) - at} bytes whose parts add up to {end - at}")
    if field not in FIELD_NAMES or counter > COUNTER_MAX or set_at > STAMP_MAX:
        raise BadRecord(
            f"field {field}, counter {counter}, set at {set_at}; allowed are 0 to {max(FIELD_NAMES)}, up to"
            f" {COUNTER_MAX}, and up to {STAMP_MAX}"
        )
    if field == GROUP_THROTTLE_FIELD and split_throttle_name(data[queue_start:value_start]) is None:
        raise BadRecord(f"{data[queue_start:value_start][:40]!r} names no group of a queue: its length, it, the queue")
    value: Value
    if field == PAUSE_FIELD:
        value = _decode_pause_value(data[value_start:end])
    elif field == SCHEDULE_FIELD:
        value = decode_schedule(data[value_start:end])
    elif field == SCHEDULE_FIRED_FIELD:
        value = decode_last(data[value_start:end], counter)
    elif field == SCHEDULE_REFUSED_FIELD:
        value = decode_refusal(data[value_start:end])
    else:
        value = _decode_numbers(field, data[value_start:end])
    return (data[queue_start:value_start], field, Register(counter, hexlify(raw_id), set_at, value)), end


def _decode_numbers(field: int, data: bytes) -> Numbers:
    allowed = NUMBER_FIELDS[field]
    if not data or len(data) != 1 + _NUMBER.size * data[0] or data[0] > allowed.most:
        raise BadRecord(f"{data[:1]!r} begins {len(data)} bytes of numbers; allowed are 0 to {allowed.most} numbers")
    numbers = tuple(
        _span_in(number) if place in allowed.spans else number
        for place, (number,) in enumerate(_NUMBER.iter_unpack(data[1:]))
    )
    if not all(allowed.allows(place, number) for place, number in enumerate(numbers)):
        name = FIELD_NAMES[field].decode()
        raise BadRecord(f"{name} {numbers}; allowed are {allowed.lowest} to {allowed.highest}")
    return numbers


def _decode_pause_value(data: bytes) -> PauseSetting:
    if len(data) < _PAUSE_VALUE.size:
        raise BadRecord(f"the value of a pause in {len(data)} bytes; the shortest has {_PAUSE_VALUE.size}")
    bits, reason_length = _PAUSE_VALUE.unpack_from(data)
    owner_start = _PAUSE_VALUE.size + reason_length
    reason, owner = data[_PAUSE_VALUE.size : owner_start], data[owner_start:]
    if bits not in PAUSE_NAMES:
        raise BadRecord(f"pause {bits}; allowed are 0 to {max(PAUSE_NAMES)}")
    if len(reason) != reason_length or reason_length > REASON_MAX or len(owner) > OWNER_MAX:
        raise BadRecord(
            f"a reason of {reason_length} bytes and an owner of {len(owner)}; allowed are {REASON_MAX} and {OWNER_MAX}"
        )
    if not (is_printable(reason) and is_printable(owner)):
        raise BadRecord("a reason or an owner that is not printable UTF-8")
    return PauseSetting(bits, reason, owner)
