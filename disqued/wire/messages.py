"""The messages between nodes as bytes: one message of `core.model.messages` at a time.

A message begins with its kind, 1 byte; `CODECS` says what follows, and docs/reference/bus.md is written from it.  All
integers are little-endian and unsigned.  Forms for streams are in `streammessages`, for names in `namemessages`, for
policies in `policymessages`, for slots in `slotmessages`, for fates in `fates`, for results in `outcomemessages`, for
questions in `questionmessages`.

Fields that a kind has no use for are 0.  The other end is a program that may be wrong or hostile: every length is
checked before it is used, the lengths must account for each byte, and what is counted has a bound.  A message has one
form only, so that what decodes at all is what a node can have meant.

Times are integer milliseconds, all of them spans.
"""

from binascii import hexlify, unhexlify
from collections.abc import Callable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import pairwise
from struct import Struct
from typing import Any, Final

from disqued.core.cluster.notifications import KINDS
from disqued.core.model.ids import JOB_ID_LENGTH, is_job_id
from disqued.core.model.job import ALL_STATES, Job, StoredJob
from disqued.core.model.messages import (
    AS_BEFORE,
    CATCH_UP,
    CAUGHT_UP,
    CLAIM,
    CLAIMED,
    DELIVERED,
    DELJOB,
    DRY,
    ENQUEUE,
    EVENT,
    FAIL,
    FLUSH,
    GIVE,
    GOTACK,
    GOTJOB,
    HANDOVER,
    HOLDERS,
    JOBS_PER_MESSAGE,
    LEASED,
    LISTEN,
    LIVES,
    NAMES,
    NEEDJOBS,
    NODE_FAIL,
    NODE_LEAVING,
    NODE_OWN,
    NODE_PFAIL,
    PAUSE,
    PING,
    POLLJOBS,
    PONG,
    PURGE,
    PURGED,
    QUEUED,
    REPLJOB,
    RETURNED,
    SETACK,
    VITALS,
    WILLQUEUE,
    WORKER_NAME_MAX,
    WORKERS_PER_MESSAGE,
    WORKING,
    YOURJOBS,
    Gossip,
    Held,
    Message,
    Vitals,
    WorkerStatus,
)
from disqued.core.model.peers import RUMOURS_MAX
from disqued.core.model.queues import PAUSE_NAMES
from disqued.wire import fates
from disqued.wire import namemessages as names
from disqued.wire import outcomemessages as outcomes
from disqued.wire import policymessages as policies
from disqued.wire import questionmessages as questions
from disqued.wire import slotmessages as slots
from disqued.wire import streammessages as streams
from disqued.wire.fields import BadMessage, BadRecord, Codec, Fields, cut, ends_at, flag_of, need
from disqued.wire.jobdump import (
    HOLDER_SETS_KEPT,
    HOLDERS_MAX,
    SPAN_MAX_MS,
    decode_copy,
    encode_copy,
    place_in_copy,
)
from disqued.wire.pieces import LARGE, Pieces, Text, joined

ADDRESSES_KEPT: Final = 1_024  #: whose two forms are remembered, and rumours: the same ones are in every gossip
VERSION_MAX: Final = 32  #: bytes of a version

_GOSSIP = Struct("<BBH")
_RUMOUR = Struct("<20sBHHB")
_VITALS = Struct("<BB5Q")
_COPIES = Struct("<BBH")
_LENGTH = Struct("<I")
_NODES = Struct("<BBBHH")
_UNIT = Struct("<BBHQ")
_QUEUE = Struct("<BH")
_LIVES = Struct("<BH")
_LIFE = Struct("<BHQQ")
_LEASED = Struct("<BHHQQ")
_HANDOVER = Struct("<BBHIHHQ")
_HELD = Struct("<BHIQ")
_EVENT = Struct("<BBII")
_ATTEMPT_MAX: Final = 2**32 - 1
_LEASE = Struct("<BBHQQI")
_CLAIM = Struct("<BIHQH")
_PURGE = Struct("<BIBI")
_PURGED = Struct("<BIQ")
_NUMBER = Struct("<BQ")
_CLAIMED = Struct("<BIH")

_COUNT_MAX = (1 << 32) - 1
_RAW_ID = 20  #: bytes of a node id that is not written in hex
_RUMOUR_FLAGS = NODE_LEAVING | NODE_PFAIL | NODE_FAIL
_ADDRESS_LENGTHS = (4, 16)
#: The number of a UNIT, at most.
_UNIT_MAX: Final = {WILLQUEUE: 0, ENQUEUE: SPAN_MAX_MS, QUEUED: RETURNED, WORKING: SPAN_MAX_MS}
#: The number of a QUEUE, at most.
_QUEUE_MAX: Final = {NEEDJOBS: JOBS_PER_MESSAGE, POLLJOBS: JOBS_PER_MESSAGE, PAUSE: max(PAUSE_NAMES), FLUSH: 0}
_REPLJOB, _QUIET_REPLJOB = bytes((REPLJOB, 0)), bytes((REPLJOB, 1))
_COPY_START: Final = 2  #: of the job, in a REPLJOB
_COPIES_START: Final[dict[int, int]] = {YOURJOBS: _COPIES.size, CLAIMED: _CLAIMED.size}  #: of the jobs, in others
_GOTJOB, _DELJOB = bytes((GOTJOB,)), bytes((DELJOB,))
_NO_NODES: frozenset[bytes] = frozenset()

#: PINGs and PONGs that are known again: nodes say the same each second, as long as nothing happens to them.
GOSSIP_KEPT = 512

assert AS_BEFORE == 0


def encode(message: Message, now: int) -> Text:
    """Write a message down; `now` is the monotonic clock of this node, on which the deadlines of its jobs are."""
    kind: int = message[0]
    if kind == REPLJOB:
        return _encode_repljob(message, now)
    if kind == GOTJOB:
        return _encode_gotjob(message, now)
    return _ENCODERS[kind](message, now)


def decode(text: Text) -> Message:
    """Read a message back; in place of a `Job` it has a `StoredJob`.  Raises BadMessage.

    A text in pieces is what is before a large body (`place_of_body`), the body, and what is behind it.
    """
    if text.__class__ is Pieces:
        return _decode_with_body(text)
    data: bytes = text  # type: ignore[assignment]  # it is no other
    if not data:
        raise BadMessage("an empty message; the shortest has 2 bytes")
    kind = data[0]
    if kind >= len(_DECODERS):
        return _refuse(data)
    try:
        # Not by the table: a job with copies is little else than these.
        if kind == REPLJOB:
            return _decode_repljob(data)
        if kind == GOTJOB:
            return _decode_job(data)
        return _DECODERS[kind](data)
    except BadRecord as error:
        raise BadMessage(f"{NAMES[kind]}: {error}") from error


def _refuse(data: bytes) -> Message:
    raise BadMessage(f"kind {data[0]} is not known to this version, which knows kinds up to {max(CODECS)}")


def place_of_body(data: bytes) -> tuple[int, int] | None:
    """Find where the large body of a message begins and ends, which begins so; None: there is none so far.

    There is one at most: what is large ends a message (`FETCHED_BYTES`).
    """
    if len(data) < _COPIES.size:
        return None
    kind = data[0]
    if kind == REPLJOB:
        return place_in_copy(data, _COPY_START)
    if kind == GIVE:
        return streams.place_in_give(data)
    if kind not in _COPIES_START:
        return None
    at = _COPIES_START[kind]
    while len(data) >= at + _LENGTH.size:
        length: int = _LENGTH.unpack_from(data, at)[0]
        at += _LENGTH.size
        if length > LARGE:
            return place_in_copy(data, at)
        at += length
    return None


def _decode_with_body(text: Any) -> Message:
    """Read a message whose body came apart from the rest."""
    pieces: Pieces = text
    data, body = pieces.parts[0] + b"".join(pieces.parts[2:]), pieces.parts[1]
    kind = data[0]
    try:
        if kind == REPLJOB:
            return (REPLJOB, decode_copy(data, _COPY_START, body), flag_of(data, 1))
        if kind == YOURJOBS:
            return _decode_yourjobs(data, body)
        if kind == GIVE:
            return streams.decode_give(data, body)
        return _decode_claimed(data, body)
    except BadRecord as error:
        raise BadMessage(f"{NAMES[kind]}: {error}") from error


# GOSSIP and NODE.


def _encode_gossip(message: Fields, now: int) -> bytes:
    kind, flags, rumours = message
    return _GOSSIP.pack(kind, flags, len(rumours)) + b"".join(map(_encode_rumour, rumours))


@lru_cache(GOSSIP_KEPT)
def _decode_gossip(data: bytes) -> Message:
    need(data, _GOSSIP.size)
    kind, flags, count = _GOSSIP.unpack_from(data)
    if flags & ~NODE_OWN or count > RUMOURS_MAX:
        raise BadMessage(
            f"{NAMES[kind]}: flags {flags} and {count} rumours; allowed are bits of {NODE_OWN} and 0 to {RUMOURS_MAX}"
        )
    rumours = []
    at = _GOSSIP.size
    for _ in range(count):
        rumour, at = _decode_rumour(data, at)
        rumours.append(rumour)
    ends_at(data, at)
    return (kind, flags, tuple(rumours))


@lru_cache(ADDRESSES_KEPT)
def _encode_rumour(rumour: Gossip) -> bytes:
    node_id, host, port, bus_port, flags = rumour
    address = _packed(host)
    return _RUMOUR.pack(unhexlify(node_id), flags, port, bus_port, len(address)) + address


def _decode_rumour(data: bytes, at: int) -> tuple[Gossip, int]:
    """Read the rumour that begins there; returns it and where it ends."""
    start = at + _RUMOUR.size
    need(data, start)
    # The last of its numbers is the length of the address behind them.
    length = data[start - 1]
    end = start + length
    if length in _ADDRESS_LENGTHS:
        need(data, end)
    return _rumour_of(data[at:end], data[0]), end


@lru_cache(ADDRESSES_KEPT)
def _rumour_of(raw: bytes, kind: int) -> Gossip:
    """Read the bytes of a rumour in a message of that kind."""
    node_id, flags, port, bus_port, length = _RUMOUR.unpack_from(raw)
    if length not in _ADDRESS_LENGTHS or flags > _RUMOUR_FLAGS or not bus_port:
        raise BadMessage(
            f"{NAMES[kind]}: a rumour with flags {flags}, bus port {bus_port} and an address of {length} bytes; "
            f"allowed are 0 to {_RUMOUR_FLAGS}, 1 to 65535, 4 or 16"
        )
    return Gossip(hexlify(node_id), _host_of(raw[_RUMOUR.size :]), port, bus_port, flags)


@lru_cache(ADDRESSES_KEPT)
def _packed(host: str) -> bytes:
    return ip_address(host).packed


@lru_cache(ADDRESSES_KEPT)
def _host_of(packed: bytes) -> str:
    return str(IPv4Address(packed) if len(packed) == _ADDRESS_LENGTHS[0] else IPv6Address(packed))


def _encode_node(message: Fields, now: int) -> bytes:
    return bytes((message[0],)) + unhexlify(message[1])


def _decode_node(data: bytes) -> Message:
    ends_at(data, 1 + _RAW_ID)
    return (data[0], hexlify(data[1:]))


def _encode_vitals(message: Fields, now: int) -> bytes:
    version, *numbers = message[1]
    return _VITALS.pack(VITALS, len(version), *numbers) + version  # type: ignore[no-any-return]


def _decode_vitals(data: bytes) -> Message:
    need(data, _VITALS.size)
    _, length, *numbers = _VITALS.unpack_from(data)
    version = data[_VITALS.size :]
    ends_at(data, _VITALS.size + length)
    if not (0 < length <= VERSION_MAX and version.isascii() and version.decode("ascii").isprintable()):
        raise BadMessage(f"VITALS: a version of {length} bytes; allowed are 1 to {VERSION_MAX}, printable ASCII")
    return (VITALS, Vitals(version, *numbers))


# COPY and COPIES.


def _encode_repljob(message: Fields, now: int) -> Text:
    _, job, quiet = message
    return encode_copy(job, now, _QUIET_REPLJOB if quiet else _REPLJOB)


def _decode_repljob(data: bytes) -> Message:
    return (REPLJOB, decode_copy(data, _COPY_START), flag_of(data, 1))


def _encode_yourjobs(message: Fields, now: int) -> Text:
    kind, jobs, queued = message
    return _encode_copies(_COPIES.pack(kind, bool(queued), len(jobs)), jobs, now)


def _encode_claimed(message: Fields, now: int) -> Text:
    kind, number, jobs = message
    return _encode_copies(_CLAIMED.pack(kind, number, len(jobs)), jobs, now)


def _encode_copies(head: bytes, jobs: tuple[Job, ...], now: int) -> Text:
    texts: list[Text] = [head]
    for job in jobs:
        copy = encode_copy(job, now)
        texts += (_LENGTH.pack(len(copy)), copy)
    return joined(texts)


def _decode_yourjobs(data: bytes, body: bytes | None = None) -> Message:
    need(data, _COPIES.size)
    queued = flag_of(data, 1)
    count = _COPIES.unpack_from(data)[2]
    return (YOURJOBS, _decode_copies(data, _COPIES.size, count, body), queued)


def _decode_claimed(data: bytes, body: bytes | None = None) -> Message:
    need(data, _CLAIMED.size)
    kind, number, count = _CLAIMED.unpack_from(data)
    return (kind, number, _decode_copies(data, _CLAIMED.size, count, body))


def _decode_copies(data: bytes, at: int, count: int, body: bytes | None) -> tuple[StoredJob, ...]:
    """Read so many jobs, with which the message ends; the first that is large has the body that came apart."""
    if count > JOBS_PER_MESSAGE:
        raise BadMessage(f"{NAMES[data[0]]}: {count} jobs; allowed are {JOBS_PER_MESSAGE}")
    jobs = []
    for _ in range(count):
        start = at + _LENGTH.size
        need(data, start)
        length: int = _LENGTH.unpack_from(data, at)[0]
        apart: bytes | None = None
        if body is not None and length > LARGE:
            apart, body = body, None
            length -= len(apart)
        at = start + length
        need(data, at)
        jobs.append(decode_copy(data[start:at], 0, apart))
    ends_at(data, at)
    return tuple(jobs)


# JOB.  GOTJOB is as frequent as jobs are.


def _encode_gotjob(message: Fields, now: int) -> bytes:
    return _GOTJOB + message[1]  # type: ignore[no-any-return]


def _encode_deljob(message: Fields, now: int) -> bytes:
    return _DELJOB + message[1]  # type: ignore[no-any-return]


def _decode_job(data: bytes) -> Message:
    job_id = data[1:]
    # As is_job_id would find, for ids of today: DI...SQ.
    if not (
        len(data) == 1 + JOB_ID_LENGTH
        and data[1] == 0x44 and data[2] == 0x49 and data[JOB_ID_LENGTH - 1] == 0x53 and data[JOB_ID_LENGTH] == 0x51
    ) and not is_job_id(job_id):  # fmt: skip
        raise BadMessage(f"{NAMES[data[0]]}: {job_id[:JOB_ID_LENGTH]!r} is no job id")
    return (data[0], job_id)


# NODES and UNIT.


def _encode_holders(message: Fields, now: int) -> bytes:
    kind, job_id, node_ids = message
    return _encode_nodes(kind, job_id, b"", False, node_ids)


def _encode_ack(message: Fields, now: int) -> bytes:
    kind, job_id, scope, flag, node_ids = message
    return _encode_nodes(kind, job_id, scope, flag, node_ids)


def _encode_nodes(kind: int, job_id: bytes, scope: bytes, flag: bool, node_ids: frozenset[bytes]) -> bytes:
    raw = _pack_ids(node_ids) if node_ids else b""
    head = _NODES.pack(kind, bool(flag), len(job_id), len(scope), len(raw) // _RAW_ID)
    return head + job_id + scope + raw


@lru_cache(HOLDER_SETS_KEPT)
def _pack_ids(node_ids: frozenset[bytes]) -> bytes:
    # Hex digits sort as the bytes do that they stand for.
    return unhexlify(b"".join(sorted(node_ids)[:HOLDERS_MAX]))


def _decode_nodes(data: bytes) -> Message:
    need(data, _NODES.size)
    kind, flag, id_length, scope_length, count = _NODES.unpack_from(data)
    scope_start = _NODES.size + id_length
    ids_start = scope_start + scope_length
    ends_at(data, ids_start + count * _RAW_ID)
    job_id = data[_NODES.size : scope_start]
    if not is_job_id(job_id):
        raise BadMessage(f"{NAMES[kind]}: {job_id[:JOB_ID_LENGTH]!r} is no job id")
    if count > HOLDERS_MAX or flag > (kind != HOLDERS) or (kind == HOLDERS and scope_length):
        raise BadMessage(f"{NAMES[kind]}: {count} nodes (allowed: {HOLDERS_MAX}), or a field that it does not have")
    node_ids = _unpack_ids(data[ids_start:]) if count else _NO_NODES
    if kind == HOLDERS:
        return (kind, job_id, node_ids)
    scope = data[scope_start:ids_start]
    return (kind, job_id, scope, flag == 1, node_ids)


@lru_cache(HOLDER_SETS_KEPT)
def _unpack_ids(raw: bytes) -> frozenset[bytes]:
    node_ids = [hexlify(raw[at : at + _RAW_ID]) for at in range(0, len(raw), _RAW_ID)]
    if any(first >= second for first, second in pairwise(node_ids)):
        raise BadMessage("node ids that are not in order, each once")
    return frozenset(node_ids)


def _encode_unit(message: Fields, now: int) -> bytes:
    kind, job_id, scope = message[:3]
    number = 0 if kind == WILLQUEUE else max(0, message[3])
    return _UNIT.pack(kind, len(job_id), len(scope), number) + job_id + scope  # type: ignore[no-any-return]


def _decode_unit(data: bytes) -> Message:
    need(data, _UNIT.size)
    kind, id_length, scope_length, number = _UNIT.unpack_from(data)
    scope_start = _UNIT.size + id_length
    ends_at(data, scope_start + scope_length)
    job_id, scope = data[_UNIT.size : scope_start], data[scope_start:]
    if not is_job_id(job_id):
        raise BadMessage(f"{NAMES[kind]}: {job_id[:JOB_ID_LENGTH]!r} is no job id")
    if number > _UNIT_MAX[kind]:
        raise BadMessage(f"{NAMES[kind]}: {number}; allowed is 0 to {_UNIT_MAX[kind]}")
    return (kind, job_id, scope) if kind == WILLQUEUE else (kind, job_id, scope, number)


# LEASE and CLAIM.


def _encode_lease(message: Fields, now: int) -> bytes:
    kind, job_id, scope, left_ms, elapsed_ms, deliveries = message
    head = _LEASE.pack(kind, len(job_id), len(scope), left_ms, min(elapsed_ms, SPAN_MAX_MS), deliveries & _COUNT_MAX)
    return head + job_id + scope  # type: ignore[no-any-return]


def _decode_lease(data: bytes) -> Message:
    need(data, _LEASE.size)
    kind, id_length, scope_length, left_ms, elapsed_ms, deliveries = _LEASE.unpack_from(data)
    scope_start = _LEASE.size + id_length
    ends_at(data, scope_start + scope_length)
    job_id, scope = data[_LEASE.size : scope_start], data[scope_start:]
    if not is_job_id(job_id):
        raise BadMessage(f"{NAMES[kind]}: {job_id[:JOB_ID_LENGTH]!r} is no job id")
    if max(left_ms, elapsed_ms) > SPAN_MAX_MS:
        raise BadMessage(f"{NAMES[kind]}: {left_ms} and {elapsed_ms} ms; allowed are 0 to {SPAN_MAX_MS}")
    return (kind, job_id, scope, left_ms, elapsed_ms, deliveries)


def _encode_claim(message: Fields, now: int) -> bytes:
    kind, queue, number, count, elapsed_ms, worker_id = message
    head = _CLAIM.pack(kind, number, min(count, JOBS_PER_MESSAGE), min(elapsed_ms, SPAN_MAX_MS), len(worker_id))
    return head + worker_id + queue  # type: ignore[no-any-return]


def _decode_claim(data: bytes) -> Message:
    need(data, _CLAIM.size)
    kind, number, count, elapsed_ms, length = _CLAIM.unpack_from(data)
    worker_id, at = cut(data, _CLAIM.size, length, WORKER_NAME_MAX)
    if count > JOBS_PER_MESSAGE or elapsed_ms > SPAN_MAX_MS:
        raise BadMessage(
            f"{NAMES[kind]}: {count} jobs of {elapsed_ms} ms; allowed are {JOBS_PER_MESSAGE} and {SPAN_MAX_MS}"
        )
    return (kind, data[at:], number, count, elapsed_ms, worker_id)


# QUEUE.


def _encode_queue(message: Fields, now: int) -> bytes:
    kind, queue, number = message
    return _QUEUE.pack(kind, min(max(0, number), _QUEUE_MAX[kind])) + queue  # type: ignore[no-any-return]


def _decode_queue(data: bytes) -> Message:
    need(data, _QUEUE.size)
    kind, number = _QUEUE.unpack_from(data)
    if number > _QUEUE_MAX[kind]:
        raise BadMessage(f"{NAMES[kind]}: {number}; allowed is 0 to {_QUEUE_MAX[kind]}")
    return (kind, data[_QUEUE.size :], number)


# Workers and events.


def _encode_lives(message: Fields, now: int) -> bytes:
    kind, lives = message
    parts = [_LIVES.pack(kind, len(lives))]
    for worker_id, epoch, ttl_ms, alive in lives:
        parts += (_LIFE.pack(bool(alive), len(worker_id), epoch, ttl_ms), worker_id)
    return b"".join(parts)


def _decode_lives(data: bytes) -> Message:
    need(data, _LIVES.size)
    kind, count = _LIVES.unpack_from(data)
    if count > WORKERS_PER_MESSAGE:
        raise BadMessage(f"LIVES: {count} workers; allowed are {WORKERS_PER_MESSAGE}")
    lives = []
    at = _LIVES.size
    for _ in range(count):
        need(data, at + _LIFE.size)
        alive, length, epoch, ttl_ms = _LIFE.unpack_from(data, at)
        worker_id, at = cut(data, at + _LIFE.size, length, WORKER_NAME_MAX)
        if alive > 1 or not worker_id or ttl_ms > SPAN_MAX_MS:
            raise BadMessage(f"LIVES: alive {alive}, an id of {length} bytes and {ttl_ms} ms to live are no worker")
        lives.append(WorkerStatus(worker_id, epoch, ttl_ms, alive == 1))
    ends_at(data, at)
    return (kind, tuple(lives))


def _encode_leased(message: Fields, now: int) -> bytes:
    kind, worker_id, epoch, ttl_ms, units = message
    head = _LEASED.pack(kind, len(units), len(worker_id), epoch, ttl_ms)
    return b"".join((head, worker_id, *_encode_held(units)))


def _encode_held(units: tuple[Held, ...]) -> Iterator[bytes]:
    for job_id, scope, attempt, age_ms in units:
        yield _HELD.pack(len(job_id), len(scope), min(attempt, _ATTEMPT_MAX), min(max(0, age_ms), SPAN_MAX_MS))
        yield job_id
        yield scope


def _decode_leased(data: bytes) -> Message:
    need(data, _LEASED.size)
    kind, count, length, epoch, ttl_ms = _LEASED.unpack_from(data)
    worker_id, at = cut(data, _LEASED.size, length, WORKER_NAME_MAX)
    if not worker_id or ttl_ms > SPAN_MAX_MS:
        raise BadMessage(f"LEASED: an id of {length} bytes and {ttl_ms} ms to live are no worker")
    return (kind, worker_id, epoch, ttl_ms, _decode_held(data, at, count))


def _decode_held(data: bytes, at: int, count: int) -> tuple[Held, ...]:
    """Read units up to the end."""
    if count > JOBS_PER_MESSAGE:
        raise BadMessage(f"{NAMES[data[0]]}: {count} units; allowed are {JOBS_PER_MESSAGE}")
    units = []
    for _ in range(count):
        need(data, at + _HELD.size)
        id_length, scope_length, attempt, age_ms = _HELD.unpack_from(data, at)
        job_id, at = cut(data, at + _HELD.size, id_length, JOB_ID_LENGTH)
        scope, at = cut(data, at, scope_length, scope_length)
        if not is_job_id(job_id) or age_ms > SPAN_MAX_MS:
            raise BadMessage(f"{NAMES[data[0]]}: {job_id!r} is no job id, or {age_ms} ms are too many")
        units.append(Held(job_id, scope, attempt, age_ms))
    ends_at(data, at)
    return tuple(units)


def _encode_handover(message: Fields, now: int) -> bytes:
    kind, worker_id, epoch, name, queues, units, last = message
    head = _HANDOVER.pack(kind, bool(last), len(units), len(queues), len(worker_id), len(name), epoch)
    named = b"".join(_LENGTH.pack(len(queue)) + queue for queue in queues)
    return b"".join((head, worker_id, name, named, *_encode_held(units)))


def _decode_handover(data: bytes) -> Message:
    need(data, _HANDOVER.size)
    kind, last, count, queue_count, id_length, name_length, epoch = _HANDOVER.unpack_from(data)
    worker_id, at = cut(data, _HANDOVER.size, id_length, WORKER_NAME_MAX)
    name, at = cut(data, at, name_length, WORKER_NAME_MAX)
    if not worker_id or last > 1:
        raise BadMessage(f"HANDOVER: an id of {id_length} bytes, or {last} where 0 or 1 is allowed")
    queues = []
    for _ in range(queue_count):
        need(data, at + _LENGTH.size)
        length = _LENGTH.unpack_from(data, at)[0]
        queue, at = cut(data, at + _LENGTH.size, length, length)
        queues.append(queue)
    return (kind, worker_id, epoch, name, tuple(queues), _decode_held(data, at, count), last == 1)


def _encode_purge(message: Fields, now: int) -> bytes:
    kind, queue, number, states, first = message
    return _PURGE.pack(kind, number, states, first) + queue  # type: ignore[no-any-return]


def _decode_purge(data: bytes) -> Message:
    need(data, _PURGE.size)
    kind, number, states, first = _PURGE.unpack_from(data)
    if not states & ALL_STATES or states & ~(ALL_STATES | DRY):
        raise BadMessage(f"PURGE: states {states}; allowed are bits of {ALL_STATES | DRY}, one or more of {ALL_STATES}")
    return (kind, data[_PURGE.size :], number, states, first)


def _encode_purged(message: Fields, now: int) -> bytes:
    kind, number, count, over = message
    return _PURGED.pack(kind, number, count) + bytes((over,))


def _decode_purged(data: bytes) -> Message:
    ends_at(data, _PURGED.size + 1)
    kind, number, count = _PURGED.unpack_from(data)
    return (kind, number, count, flag_of(data, _PURGED.size))


def _encode_number(message: Fields, now: int) -> bytes:
    kind, number = message
    return _NUMBER.pack(kind, number)


def _decode_number(data: bytes) -> Message:
    ends_at(data, _NUMBER.size)
    kind, number = _NUMBER.unpack(data)
    return (kind, number)


def _encode_listen(message: Fields, now: int) -> bytes:
    return bytes((message[0], bool(message[1])))


def _decode_listen(data: bytes) -> Message:
    ends_at(data, 2)
    return (data[0], flag_of(data, 1))


def _encode_event(message: Fields, now: int) -> bytes:
    kind, queue, event, content = message[:4]
    return _EVENT.pack(kind, KINDS.index(event), len(queue), len(content)) + queue + content  # type: ignore[no-any-return]


def _decode_event(data: bytes) -> Message:
    need(data, _EVENT.size)
    kind, number, length, size = _EVENT.unpack_from(data)
    if number >= len(KINDS):
        raise BadMessage(f"EVENT: type {number}; allowed are 0 to {len(KINDS) - 1}")
    queue, at = cut(data, _EVENT.size, length, length)
    ends_at(data, at + size)
    return (kind, queue, KINDS[number], data[at:])


_GOSSIP_CODEC: Final = Codec(
    "flags 1, rumours 2; for each: node id 20, flags 1, client port 2, bus port 2, length of the address 1, address: 4"
    " bytes of IPv4 or 16 of IPv6",
    _encode_gossip, _decode_gossip,
)  # fmt: skip
_NODES_LAYOUT: Final = (
    "flag 1, length of job id 1, of scope 2, node ids 2, job id, scope, node ids of 20 bytes, in order, each once"
)
_UNIT_CODEC: Final = Codec(
    "length of job id 1, of scope 2, delay, how or left 8 (0 in WILLQUEUE), job id, scope", _encode_unit, _decode_unit
)
_NUMBER_CODEC: Final = Codec("number 8", _encode_number, _decode_number)
_QUEUE_CODEC: Final = Codec("count or bits 2, queue", _encode_queue, _decode_queue)
_COPIES_LAYOUT: Final = "jobs 2; for each: length 4, a copy as in `jobdump`"
_HELD_LAYOUT: Final = "for each unit: length of job id 1, of scope 2, attempt 4, age 8, job id, scope"

#: How each kind is written.
CODECS: Final[dict[int, Codec]] = {
    PING: _GOSSIP_CODEC,
    PONG: _GOSSIP_CODEC,
    FAIL: Codec("node id 20", _encode_node, _decode_node),
    VITALS: Codec(
        "length of the version 1, memory 8, limit 8, jobs 8, queued 8, given 8, version", _encode_vitals, _decode_vitals
    ),
    REPLJOB: Codec("quiet 1, a copy as in `jobdump`", _encode_repljob, _decode_repljob),
    GOTJOB: Codec("job id", _encode_gotjob, _decode_job),
    HOLDERS: Codec(_NODES_LAYOUT, _encode_holders, _decode_nodes),
    ENQUEUE: _UNIT_CODEC,
    WILLQUEUE: _UNIT_CODEC,
    QUEUED: _UNIT_CODEC,
    CATCH_UP: _NUMBER_CODEC,
    CAUGHT_UP: _NUMBER_CODEC,
    WORKING: _UNIT_CODEC,
    SETACK: Codec(_NODES_LAYOUT, _encode_ack, _decode_nodes),
    GOTACK: Codec(_NODES_LAYOUT, _encode_ack, _decode_nodes),
    DELJOB: Codec("job id", _encode_deljob, _decode_job),
    NEEDJOBS: _QUEUE_CODEC,
    YOURJOBS: Codec(f"queued 1, {_COPIES_LAYOUT}", _encode_yourjobs, _decode_yourjobs),
    PAUSE: _QUEUE_CODEC,
    POLLJOBS: _QUEUE_CODEC,
    LIVES: Codec(
        "workers 2; for each: alive 1, length of its id 2, epoch 8, ttl 8, id", _encode_lives, _decode_lives
    ),
    LEASED: Codec(
        f"units 2, length of the worker's id 2, epoch 8, ttl 8, worker; {_HELD_LAYOUT}", _encode_leased, _decode_leased
    ),
    HANDOVER: Codec(
        "last 1, units 2, queues 4, length of the worker's id 2, of its name 2, epoch 8, worker, name; for each queue:"
        f" length 4, queue; {_HELD_LAYOUT}",
        _encode_handover, _decode_handover,
    ),
    LISTEN: Codec("whether 1", _encode_listen, _decode_listen),
    EVENT: Codec("type 1, length of queue 4, of content 4, queue, content", _encode_event, _decode_event),
    DELIVERED: Codec(
        "length of job id 1, of scope 2, left 8, elapsed 8, deliveries 4, job id, scope", _encode_lease, _decode_lease
    ),
    CLAIM: Codec(
        "number 4, count 2, elapsed 8, length of the worker's id 2, worker, queue", _encode_claim, _decode_claim
    ),
    CLAIMED: Codec(f"number 4, {_COPIES_LAYOUT}", _encode_claimed, _decode_claimed),
    FLUSH: _QUEUE_CODEC,
    PURGE: Codec("number 4, states 1, first 4, queue", _encode_purge, _decode_purge),
    PURGED: Codec("number 4, count 8, over 1", _encode_purged, _decode_purged),
    **streams.CODECS,
    **names.CODECS,
    **policies.CODECS,
    **slots.CODECS,
    **fates.CODECS,
    **outcomes.CODECS,
    **questions.CODECS,
}  # fmt: skip
_ENCODERS: Final[dict[int, Callable[[Fields, int], Text]]] = {kind: CODECS[kind].encode for kind in NAMES}
_DECODERS: Final[list[Callable[[bytes], Message]]] = [
    CODECS[kind].decode if kind in CODECS else _refuse for kind in range(max(CODECS) + 1)
]
