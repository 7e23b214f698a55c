"""The messages about streams as bytes; `messages` says how messages are written.

Times are integer milliseconds, all of them spans; stamps are those of `Job.ctime`.
"""

from binascii import hexlify, unhexlify
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from disqued.core.model.job import STAMP_MAX
from disqued.core.model.messages import (
    BEGIN,
    FACTS,
    FACTS_PER_MESSAGE,
    GIVE,
    HAVE,
    JOBS_PER_MESSAGE,
    MISSING,
    NAMES,
    OUTCOME_LATER,
    SETTLE,
    SETTLED,
    TAKE,
    UNSEEN,
    WANT,
    EntryLease,
    EntryStatus,
    Message,
)
from disqued.core.model.peers import PEERS_MAX
from disqued.wire.fields import BadMessage, Codec, Fields, cut, cut_id, ends_at, flag_of, need
from disqued.wire.jobdump import SPAN_MAX_MS
from disqued.wire.pieces import LARGE, Text, text_of

SCOPE_MAX: Final = (1 << 16) - 1  #: bytes
STAMPS_MAX: Final = 2 * PEERS_MAX  #: in a floor
IDS_PER_MESSAGE: Final = 1_000  #: in a SETTLE

_FACTS = Struct("<BIBH")
_FACT = Struct("<BHH")
_SCOPE = Struct("<H")
_LEASE = Struct("<HQQI")
_MISSING = Struct("<BIH")
_BEGIN = Struct("<BBHIHQ")
_STAMP = Struct("<4sQ")
_WANT = Struct("<BBI")
_TAKE = Struct("<BBIHQI")
_GIVE = Struct("<BIHH")
_GIVEN = Struct("<BI")
_SETTLE = Struct("<BBIIIH")
_SETTLED = Struct("<BIH")
_COUNT_MAX: Final = (1 << 32) - 1


def _span(span_ms: int) -> int:
    return min(max(0, span_ms), SPAN_MAX_MS)


def _check_span(data: bytes, *spans: int) -> None:
    if max(spans) > SPAN_MAX_MS:
        raise BadMessage(f"{NAMES[data[0]]}: a span of {max(spans)} ms; allowed are 0 to {SPAN_MAX_MS}")


def _check_count(data: bytes, count: int, most: int) -> None:
    if count > most:
        raise BadMessage(f"{NAMES[data[0]]}: {count} of what it tells of; allowed are {most}")


# FACTS and MISSING.


def encode_facts(message: Fields, now: int) -> bytes:
    """Write FACTS."""
    kind, number, facts, last = message
    parts = [_FACTS.pack(kind, number, bool(last), len(facts))]
    for fact in facts:
        parts += _fact_parts(fact)
    return b"".join(parts)


def _fact_parts(fact: EntryStatus) -> Iterator[bytes]:
    yield _FACT.pack(len(fact.job_id), len(fact.done), len(fact.leases))
    yield fact.job_id
    for scope in fact.done:
        yield _SCOPE.pack(len(scope))
        yield scope
    for scope, left_ms, elapsed_ms, deliveries in fact.leases:
        yield _LEASE.pack(len(scope), _span(left_ms), _span(elapsed_ms), min(deliveries, _COUNT_MAX))
        yield scope


def decode_facts(data: bytes) -> Message:
    """Read FACTS."""
    need(data, _FACTS.size)
    kind, number, _, count = _FACTS.unpack_from(data)
    last = flag_of(data, 5)
    _check_count(data, count, FACTS_PER_MESSAGE)
    facts = []
    at = _FACTS.size
    for _ in range(count):
        fact, at = _read_fact(data, at)
        facts.append(fact)
    ends_at(data, at)
    return (kind, number, tuple(facts), last)


def _read_fact(data: bytes, at: int) -> tuple[EntryStatus, int]:
    need(data, at + _FACT.size)
    id_length, done_count, lease_count = _FACT.unpack_from(data, at)
    job_id, at = cut_id(data, at + _FACT.size, id_length)
    done = []
    for _ in range(done_count):
        need(data, at + _SCOPE.size)
        scope, at = cut(data, at + _SCOPE.size, _SCOPE.unpack_from(data, at)[0], SCOPE_MAX)
        done.append(scope)
    leases = []
    for _ in range(lease_count):
        need(data, at + _LEASE.size)
        length, left_ms, elapsed_ms, deliveries = _LEASE.unpack_from(data, at)
        _check_span(data, left_ms, elapsed_ms)
        scope, at = cut(data, at + _LEASE.size, length, SCOPE_MAX)
        leases.append(EntryLease(scope, left_ms, elapsed_ms, deliveries))
    return EntryStatus(job_id, tuple(done), tuple(leases)), at


def encode_missing(message: Fields, now: int) -> bytes:
    """Write MISSING."""
    kind, number, ids = message
    return _MISSING.pack(kind, number, len(ids)) + _packed_ids(ids)


def decode_missing(data: bytes) -> Message:
    """Read MISSING."""
    need(data, _MISSING.size)
    kind, number, count = _MISSING.unpack_from(data)
    _check_count(data, count, FACTS_PER_MESSAGE)
    return (kind, number, _read_ids(data, _MISSING.size, count))


def _packed_ids(ids: Iterable[bytes]) -> bytes:
    return b"".join(bytes((len(job_id),)) + job_id for job_id in ids)


def _read_ids(data: bytes, at: int, count: int) -> tuple[bytes, ...]:
    """Read so many ids, with which the message ends."""
    ids = []
    for _ in range(count):
        need(data, at + 1)
        job_id, at = cut_id(data, at + 1, data[at])
        ids.append(job_id)
    ends_at(data, at)
    return tuple(ids)


# BEGIN.


def encode_begin(message: Fields, now: int) -> bytes:
    """Write BEGIN."""
    kind, queue, scope, floor, left_ms, asks = message
    stamps = sorted(floor.items())[:STAMPS_MAX]
    head = _BEGIN.pack(kind, bool(asks), len(scope), len(queue), len(stamps), _span(left_ms))
    packed = [_STAMP.pack(unhexlify(origin), min(max(0, stamp), STAMP_MAX)) for origin, stamp in stamps]
    return b"".join((head, scope, queue, *packed))


def decode_begin(data: bytes) -> Message:
    """Read BEGIN; the floor is {first 8 hex digits of a node id: stamp}."""
    need(data, _BEGIN.size)
    kind, _, scope_length, queue_length, count, left_ms = _BEGIN.unpack_from(data)
    asks = flag_of(data, 1)
    _check_span(data, left_ms)
    _check_count(data, count, STAMPS_MAX)
    scope, at = cut(data, _BEGIN.size, scope_length, SCOPE_MAX)
    queue, at = cut(data, at, queue_length, queue_length)
    ends_at(data, at + count * _STAMP.size)
    floor = {}
    for start in range(at, len(data), _STAMP.size):
        origin, stamp = _STAMP.unpack_from(data, start)
        if stamp > STAMP_MAX:
            raise BadMessage(f"BEGIN: a stamp of {stamp}; allowed are 0 to {STAMP_MAX}")
        floor[hexlify(origin)] = stamp
    if len(floor) != count or list(floor) != sorted(floor):
        raise BadMessage("BEGIN: stamps that are not in the order of their nodes, one each")
    return (kind, queue, scope, floor, left_ms, asks)


# WANT, HAVE, TAKE and GIVE.


def encode_want(message: Fields, now: int) -> bytes:
    """Write WANT or HAVE."""
    kind, queue, group, whether = message
    return _WANT.pack(kind, bool(whether), len(queue)) + queue + group  # type: ignore[no-any-return]


def decode_want(data: bytes) -> Message:
    """Read WANT or HAVE."""
    need(data, _WANT.size)
    kind, _, length = _WANT.unpack_from(data)
    whether = flag_of(data, 1)
    queue, at = cut(data, _WANT.size, length, length)
    return (kind, queue, _group(data, at), whether)


def _group(data: bytes, at: int) -> bytes:
    """Read the name of a group, with which the message ends."""
    return cut(data, at, len(data) - at, SCOPE_MAX)[0]


def encode_take(message: Fields, now: int) -> bytes:
    """Write TAKE."""
    kind, queue, group, number, count, lease_ms, strict = message
    head = _TAKE.pack(kind, bool(strict), number, min(count, JOBS_PER_MESSAGE), _span(lease_ms), len(queue))
    return head + queue + group  # type: ignore[no-any-return]


def decode_take(data: bytes) -> Message:
    """Read TAKE."""
    need(data, _TAKE.size)
    kind, _, number, count, lease_ms, length = _TAKE.unpack_from(data)
    strict = flag_of(data, 1)
    _check_span(data, lease_ms)
    _check_count(data, count, JOBS_PER_MESSAGE)
    queue, at = cut(data, _TAKE.size, length, length)
    return (kind, queue, _group(data, at), number, count, lease_ms, strict)


def encode_give(message: Fields, now: int) -> Text:
    """Write GIVE."""
    kind, number, scope, events = message
    parts = [_GIVE.pack(kind, number, len(scope), len(events)), scope]
    for job_id, body in events:
        parts += (_GIVEN.pack(len(job_id), len(body)), job_id, body)
    return text_of(parts)


def place_in_give(data: bytes) -> tuple[int, int] | None:
    """Find where the large body of a GIVE begins and ends, which begins so; None: there is none so far."""
    if len(data) < _GIVE.size:
        return None
    length: int = _GIVE.unpack_from(data)[2]
    at = _GIVE.size + length
    while len(data) >= at + _GIVEN.size:
        id_length, body_length = _GIVEN.unpack_from(data, at)
        at += _GIVEN.size + id_length
        if body_length > LARGE:
            return at, at + body_length
        at += body_length
    return None


def decode_give(data: bytes, apart: bytes | None = None) -> Message:
    """Read GIVE; the first body that is large may have come apart (`place_in_give`)."""
    need(data, _GIVE.size)
    kind, number, length, count = _GIVE.unpack_from(data)
    _check_count(data, count, JOBS_PER_MESSAGE)
    scope, at = cut(data, _GIVE.size, length, SCOPE_MAX)
    events = []
    for _ in range(count):
        need(data, at + _GIVEN.size)
        id_length, body_length = _GIVEN.unpack_from(data, at)
        job_id, at = cut_id(data, at + _GIVEN.size, id_length)
        if apart is not None and body_length > LARGE:
            body, apart = apart, None
            if len(body) != body_length:
                raise BadMessage(f"GIVE: a body of {len(body)} bytes; it says {body_length}")
        else:
            body, at = cut(data, at, body_length, body_length)
        events.append((job_id, body))
    ends_at(data, at)
    return (kind, number, scope, tuple(events))


# SETTLE and SETTLED.


def encode_settle(message: Fields, now: int) -> bytes:
    """Write SETTLE."""
    kind, queue, group, number, verb, ids = message
    head = _SETTLE.pack(kind, verb, number, len(queue), len(group), len(ids))
    return b"".join((head, queue, group, _packed_ids(ids)))


def decode_settle(data: bytes) -> Message:
    """Read SETTLE."""
    need(data, _SETTLE.size)
    kind, verb, number, queue_length, group_length, count = _SETTLE.unpack_from(data)
    if verb > UNSEEN:
        raise BadMessage(f"SETTLE: verb {verb}; allowed are 0 to {UNSEEN}")
    _check_count(data, count, IDS_PER_MESSAGE)
    queue, at = cut(data, _SETTLE.size, queue_length, queue_length)
    group, at = cut(data, at, group_length, SCOPE_MAX)
    return (kind, queue, group, number, verb, _read_ids(data, at, count))


def encode_settled(message: Fields, now: int) -> bytes:
    """Write SETTLED."""
    kind, number, outcomes = message
    parts = [bytes((outcome, len(job_id))) + job_id for job_id, outcome in outcomes]
    return _SETTLED.pack(kind, number, len(outcomes)) + b"".join(parts)


def decode_settled(data: bytes) -> Message:
    """Read SETTLED."""
    need(data, _SETTLED.size)
    kind, number, count = _SETTLED.unpack_from(data)
    _check_count(data, count, IDS_PER_MESSAGE)
    outcomes = []
    at = _SETTLED.size
    for _ in range(count):
        need(data, at + 2)
        outcome, length = data[at], data[at + 1]
        if outcome > OUTCOME_LATER:
            raise BadMessage(f"SETTLED: an outcome of {outcome}; allowed are 0 to {OUTCOME_LATER}")
        job_id, at = cut_id(data, at + 2, length)
        outcomes.append((job_id, outcome))
    ends_at(data, at)
    return (kind, number, tuple(outcomes))


_WANT_CODEC: Final = Codec("whether 1, length of queue 4, queue, group", encode_want, decode_want)

CODECS: Final[dict[int, Codec]] = {
    FACTS: Codec(
        "number 4, last 1, events 2; for each: length of job id 1, done 2, leases 2, job id; for each that is done:"
        " length 2, scope; for each lease: length of scope 2, left 8, elapsed 8, deliveries 4, scope",
        encode_facts, decode_facts,
    ),
    MISSING: Codec("number 4, ids 2; for each: length 1, job id", encode_missing, decode_missing),
    BEGIN: Codec(
        "asks 1, length of scope 2, of queue 4, stamps 2, left 8, scope, queue; for each stamp: the first 4 bytes of a"
        " node id, stamp 8",
        encode_begin, decode_begin,
    ),
    WANT: _WANT_CODEC,
    HAVE: _WANT_CODEC,
    TAKE: Codec("strict 1, number 4, count 2, lease 8, length of queue 4, queue, group", encode_take, decode_take),
    GIVE: Codec(
        "number 4, length of scope 2, events 2, scope; for each: length of job id 1, of body 4, job id, body",
        encode_give, decode_give,
    ),
    SETTLE: Codec(
        "verb 1, number 4, length of queue 4, of group 4, ids 2, queue, group; for each id: length 1, job id",
        encode_settle, decode_settle,
    ),
    SETTLED: Codec(
        "number 4, events 2; for each: outcome 1, length of job id 1, job id", encode_settled, decode_settled
    ),
}  # fmt: skip
