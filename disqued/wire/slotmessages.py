"""The messages about limited queues as bytes; `messages` says how messages are written.

Parts that several of them have:

    name    length 4, the name of the queue
    ids     count 4; for each: length of id 1, id
    slots   count 4; for each: length of id 1, length of group 1, length of client 1, boot 4, left ms 8, node id 20, id,
            group, client
    wishes  count 4; for each: length of id 1, length of group 1, order key 8, span ms 8, id, group

An order key is signed.
"""

from binascii import hexlify, unhexlify
from struct import Struct
from typing import Final

from disqued.core.model.messages import (
    GROUPS_PER_MESSAGE,
    JOBS_PER_MESSAGE,
    NAMES,
    NEEDOTHERS,
    SLOTS_CLAIM,
    SLOTS_CLAIMED,
    SLOTS_GIVEN,
    SLOTS_KEEP,
    SLOTS_KEPT,
    SLOTS_MAX,
    SLOTS_WANTED,
    WISHES_PER_MESSAGE,
    Message,
    SlotsKnown,
    SlotSpan,
    SlotWish,
)
from disqued.wire.fields import BadMessage, Codec, Fields, cut, cut_id, ends_at, flag_of, need
from disqued.wire.jobdump import SPAN_MAX_MS

_NAME = Struct("<BI")
_COUNT = Struct("<I")
_SLOT = Struct("<BBBIQ20s")
_WISH = Struct("<BBqQ")
_OTHERS = Struct("<HBB")
_WANTED = Struct("<QIIB")
_GIVEN = Struct("<QII")
_KEEP = Struct("<QQQ")
_KEPT = Struct("<Q20sQ")
_CLAIM = Struct("<Q")
_CLAIMED = Struct("<Q20sBQ20sQ")
_SPAN_MAX: Final = SPAN_MAX_MS
_NOBODY: Final = bytes(20)


def _raw(node_id: bytes) -> bytes:
    return unhexlify(node_id) if node_id else _NOBODY


def _node(raw: bytes) -> bytes:
    return b"" if raw == _NOBODY else hexlify(raw)


def _with_name(kind: int, name: bytes) -> bytes:
    return _NAME.pack(kind, len(name)) + name


def _name_of(data: bytes) -> tuple[int, bytes, int]:
    need(data, _NAME.size)
    kind, length = _NAME.unpack_from(data)
    name, at = cut(data, _NAME.size, length, length)
    return kind, name, at


def _count_of(data: bytes, at: int, most: int) -> tuple[int, int]:
    need(data, at + _COUNT.size)
    (count,) = _COUNT.unpack_from(data, at)
    if count > most:
        raise BadMessage(f"{NAMES[data[0]]}: {count} jobs; allowed are {most}")
    return count, at + _COUNT.size


def _check_span(data: bytes, span_ms: int) -> None:
    if span_ms > _SPAN_MAX:
        raise BadMessage(f"{NAMES[data[0]]}: a span of {span_ms} ms; allowed are {_SPAN_MAX}")


def _encode_ids(job_ids: tuple[bytes, ...]) -> bytes:
    return _COUNT.pack(len(job_ids)) + b"".join([bytes((len(job_id),)) + job_id for job_id in job_ids])


def _decode_ids(data: bytes, at: int) -> tuple[tuple[bytes, ...], int]:
    count, at = _count_of(data, at, SLOTS_MAX)
    job_ids = []
    for _ in range(count):
        need(data, at + 1)
        job_id, at = cut_id(data, at + 1, data[at])
        job_ids.append(job_id)
    return tuple(job_ids), at


def _encode_slots(slots: tuple[SlotSpan, ...]) -> bytes:
    parts = [_COUNT.pack(len(slots))]
    for job_id, group, node_id, boot, left_ms, client in slots:
        head = _SLOT.pack(len(job_id), len(group), len(client), boot, left_ms, unhexlify(node_id))
        parts += (head, job_id, group, client)
    return b"".join(parts)


def _decode_slots(data: bytes, at: int) -> tuple[tuple[SlotSpan, ...], int]:
    count, at = _count_of(data, at, SLOTS_MAX)
    slots = []
    for _ in range(count):
        need(data, at + _SLOT.size)
        id_length, group_length, client_length, boot, left_ms, raw = _SLOT.unpack_from(data, at)
        _check_span(data, left_ms)
        job_id, at = cut_id(data, at + _SLOT.size, id_length)
        group, at = cut(data, at, group_length, group_length)
        client, at = cut(data, at, client_length, client_length)
        slots.append(SlotSpan(job_id, group, hexlify(raw), boot, left_ms, client))
    return tuple(slots), at


def _encode_others(message: Fields, now: int) -> bytes:
    kind, name, count, waits, groups = message
    head = _OTHERS.pack(min(count, JOBS_PER_MESSAGE), waits, len(groups))
    return _with_name(kind, name) + head + b"".join([bytes((len(group),)) + group for group in groups])


def _decode_others(data: bytes) -> Message:
    kind, name, at = _name_of(data)
    need(data, at + _OTHERS.size)
    count, _, group_count = _OTHERS.unpack_from(data, at)
    waits = flag_of(data, at + 2)
    for number, most, what in ((count, JOBS_PER_MESSAGE, "jobs"), (group_count, GROUPS_PER_MESSAGE, "groups")):
        if number > most:
            raise BadMessage(f"{NAMES[kind]}: {number} {what}; allowed are {most}")
    at += _OTHERS.size
    groups = []
    for _ in range(group_count):
        need(data, at + 1)
        group, at = cut(data, at + 1, data[at], data[at])
        groups.append(group)
    ends_at(data, at)
    return (kind, name, count, waits, tuple(groups))


def _encode_wanted(message: Fields, now: int) -> bytes:
    kind, name, epoch, boot, number, whole, wanted, running, ended, returned = message
    parts = [_with_name(kind, name), _WANTED.pack(epoch, boot, number, whole), _COUNT.pack(len(wanted))]
    for job_id, order_key, group, span_ms in wanted:
        parts += (_WISH.pack(len(job_id), len(group), order_key, span_ms), job_id, group)
    return b"".join((*parts, _encode_slots(running), _encode_ids(ended), _encode_ids(returned)))


def _decode_wanted(data: bytes) -> Message:
    kind, name, at = _name_of(data)
    need(data, at + _WANTED.size)
    epoch, boot, number, _ = _WANTED.unpack_from(data, at)
    whole = flag_of(data, at + _WANTED.size - 1)
    count, at = _count_of(data, at + _WANTED.size, WISHES_PER_MESSAGE)
    wanted = []
    for _ in range(count):
        need(data, at + _WISH.size)
        id_length, group_length, order_key, span_ms = _WISH.unpack_from(data, at)
        _check_span(data, span_ms)
        job_id, at = cut_id(data, at + _WISH.size, id_length)
        group, at = cut(data, at, group_length, group_length)
        wanted.append(SlotWish(job_id, order_key, group, span_ms))
    running, at = _decode_slots(data, at)
    ended, at = _decode_ids(data, at)
    returned, at = _decode_ids(data, at)
    ends_at(data, at)
    return (kind, name, epoch, boot, number, whole, tuple(wanted), running, ended, returned)


def _encode_given(message: Fields, now: int) -> bytes:
    kind, name, epoch, boot, number, *lists = message
    return _with_name(kind, name) + _GIVEN.pack(epoch, boot, number) + b"".join(map(_encode_ids, lists))


def _decode_given(data: bytes) -> Message:
    kind, name, at = _name_of(data)
    need(data, at + _GIVEN.size)
    epoch, boot, number = _GIVEN.unpack_from(data, at)
    given, at = _decode_ids(data, at + _GIVEN.size)
    waiting, at = _decode_ids(data, at)
    held, at = _decode_ids(data, at)
    ends_at(data, at)
    return (kind, name, epoch, boot, number, given, waiting, held)


def _encode_keep(message: Fields, now: int) -> bytes:
    kind, name, epoch, after, number, taken, ended = message
    return _with_name(kind, name) + _KEEP.pack(epoch, after, number) + _encode_slots(taken) + _encode_ids(ended)


def _decode_keep(data: bytes) -> Message:
    kind, name, at = _name_of(data)
    need(data, at + _KEEP.size)
    epoch, after, number = _KEEP.unpack_from(data, at)
    taken, at = _decode_slots(data, at + _KEEP.size)
    ended, at = _decode_ids(data, at)
    ends_at(data, at)
    return (kind, name, epoch, after, number, taken, ended)


def _encode_kept(message: Fields, now: int) -> bytes:
    kind, name, epoch, steward, number = message
    return _with_name(kind, name) + _KEPT.pack(epoch, _raw(steward), number)


def _decode_kept(data: bytes) -> Message:
    kind, name, at = _name_of(data)
    ends_at(data, at + _KEPT.size)
    epoch, raw, number = _KEPT.unpack_from(data, at)
    return (kind, name, epoch, _node(raw), number)


def _encode_claim(message: Fields, now: int) -> bytes:
    kind, name, epoch = message
    return _with_name(kind, name) + _CLAIM.pack(epoch)


def _decode_claim(data: bytes) -> Message:
    kind, name, at = _name_of(data)
    ends_at(data, at + _CLAIM.size)
    (epoch,) = _CLAIM.unpack_from(data, at)
    return (kind, name, epoch)


def _encode_claimed(message: Fields, now: int) -> bytes:
    kind, name, epoch, steward, known, running = message
    is_complete, known_epoch, known_steward, number, slots = known
    head = _CLAIMED.pack(epoch, _raw(steward), is_complete, known_epoch, _raw(known_steward), number)
    return _with_name(kind, name) + head + _encode_slots(slots) + _encode_slots(running)


def _decode_claimed(data: bytes) -> Message:
    kind, name, at = _name_of(data)
    need(data, at + _CLAIMED.size)
    epoch, raw, _, known_epoch, known_raw, number = _CLAIMED.unpack_from(data, at)
    is_complete = flag_of(data, at + 28)
    slots, at = _decode_slots(data, at + _CLAIMED.size)
    running, at = _decode_slots(data, at)
    ends_at(data, at)
    return (
        kind,
        name,
        epoch,
        _node(raw),
        SlotsKnown(is_complete, known_epoch, _node(known_raw), number, slots),
        running,
    )


_IDS: Final = "count 4, for each: length of id 1, id"
_SLOTS: Final = (
    "count 4, for each: length of id 1, length of group 1, length of client 1, boot 4, left ms 8, node id 20, id, "
    "group, client"
)
_WISHES: Final = "count 4, for each: length of id 1, length of group 1, order key 8, span ms 8, id, group"

CODECS: Final[dict[int, Codec]] = {
    NEEDOTHERS: Codec(
        "length of queue 4, queue, count 2, waits 1, groups 1; for each: length 1, group",
        _encode_others, _decode_others,
    ),
    SLOTS_WANTED: Codec(
        f"length of queue 4, queue, epoch 8, boot 4, number 4, whole 1; wanted: {_WISHES}; running: {_SLOTS}; "
        f"ended: {_IDS}; returned: the same", _encode_wanted, _decode_wanted,
    ),
    SLOTS_GIVEN: Codec(
        f"length of queue 4, queue, epoch 8, boot 4, number 4; given: {_IDS}; waiting, held: the same",
        _encode_given, _decode_given,
    ),
    SLOTS_KEEP: Codec(
        f"length of queue 4, queue, epoch 8, after 8, number 8; taken: {_SLOTS}; ended: {_IDS}",
        _encode_keep, _decode_keep,
    ),
    SLOTS_KEPT: Codec("length of queue 4, queue, epoch 8, steward 20, number 8", _encode_kept, _decode_kept),
    SLOTS_CLAIM: Codec("length of queue 4, queue, epoch 8", _encode_claim, _decode_claim),
    SLOTS_CLAIMED: Codec(
        "length of queue 4, queue, epoch 8, steward 20, complete 1, epoch of what is known 8, its steward 20, its "
        f"number 8; slots: {_SLOTS}; running: the same", _encode_claimed, _decode_claimed,
    ),
}  # fmt: skip
