"""The messages about how jobs end, and about cancelling them, as bytes; `messages` says how messages are written."""

from struct import Struct
from typing import Final

from disqued.core.model.messages import (
    CANCEL,
    CANCELLED,
    IDS_PER_MESSAGE,
    NAMES,
    OUTCOME,
    WAS_ACKED,
    WATCH,
    Message,
    Outcome,
)
from disqued.wire.fates import decode_fate, encode_fate
from disqued.wire.fields import BadMessage, Codec, Fields, cut, cut_id, ends_at, need

_HEAD = Struct("<BIH")
_OUTCOME = Struct("<BBII")
_STATE = Struct("<BB")
_TRIES_MAX: Final = 0xFFFF_FFFF


def _head_of(data: bytes) -> tuple[int, int, int]:
    """Read kind, number and count, which has its bound."""
    need(data, _HEAD.size)
    kind, number, count = _HEAD.unpack_from(data)
    if count > IDS_PER_MESSAGE:
        raise BadMessage(f"{NAMES[kind]}: {count} jobs; allowed are {IDS_PER_MESSAGE}")
    return kind, number, count


def _encode_ids(message: Fields, now: int) -> bytes:
    kind, number, job_ids = message
    parts = [bytes((len(job_id),)) + job_id for job_id in job_ids]
    return _HEAD.pack(kind, number, len(job_ids)) + b"".join(parts)


def _decode_ids(data: bytes) -> Message:
    kind, number, count = _head_of(data)
    at = _HEAD.size
    job_ids = []
    for _ in range(count):
        need(data, at + 1)
        job_id, at = cut_id(data, at + 1, data[at])
        job_ids.append(job_id)
    ends_at(data, at)
    return (kind, number, tuple(job_ids))


def _encode_outcomes(message: Fields, now: int) -> bytes:
    kind, number, outcomes = message
    parts = [_HEAD.pack(kind, number, len(outcomes))]
    for job_id, state, tries, fate in outcomes:
        text = encode_fate(fate)
        parts += (_OUTCOME.pack(len(job_id), state, min(tries, _TRIES_MAX), len(text)), job_id, text)
    return b"".join(parts)


def _decode_outcomes(data: bytes) -> Message:
    kind, number, count = _head_of(data)
    at = _HEAD.size
    outcomes = []
    for _ in range(count):
        need(data, at + _OUTCOME.size)
        id_length, state, tries, fate_length = _OUTCOME.unpack_from(data, at)
        if state > WAS_ACKED:
            raise BadMessage(f"{NAMES[kind]}: a job in state {state}; allowed are 0 to {WAS_ACKED}")
        job_id, at = cut_id(data, at + _OUTCOME.size, id_length)
        text, at = cut(data, at, fate_length, fate_length)
        outcomes.append(Outcome(job_id, state, tries, decode_fate(text)))
    ends_at(data, at)
    return (kind, number, tuple(outcomes))


def _encode_states(message: Fields, now: int) -> bytes:
    kind, number, states = message
    parts = [_STATE.pack(len(job_id), state) + job_id for job_id, state in states]
    return _HEAD.pack(kind, number, len(states)) + b"".join(parts)


def _decode_states(data: bytes) -> Message:
    kind, number, count = _head_of(data)
    at = _HEAD.size
    states = []
    for _ in range(count):
        need(data, at + _STATE.size)
        length, state = _STATE.unpack_from(data, at)
        if state > WAS_ACKED:
            raise BadMessage(f"{NAMES[kind]}: a job in state {state}; allowed are 0 to {WAS_ACKED}")
        job_id, at = cut_id(data, at + _STATE.size, length)
        states.append((job_id, state))
    ends_at(data, at)
    return (kind, number, tuple(states))


_IDS: Final = Codec("number 4, jobs 2; for each: length of id 1, id", _encode_ids, _decode_ids)

CODECS: Final[dict[int, Codec]] = {
    WATCH: _IDS,
    CANCEL: _IDS,
    OUTCOME: Codec(
        "number 4, jobs 2; for each: length of id 1, state 1, tries 4, length of fate 4, id, a fate as in `fates`",
        _encode_outcomes, _decode_outcomes,
    ),
    CANCELLED: Codec("number 4, jobs 2; for each: length of id 1, state 1, id", _encode_states, _decode_states),
}  # fmt: skip
