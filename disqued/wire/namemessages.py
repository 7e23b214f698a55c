"""The messages about names as bytes; `messages` says how messages are written."""

from struct import Struct
from typing import Final

from disqued.core.model.job import ALIAS_MAX
from disqued.core.model.messages import A_COPY, ENDED, FOUND, INQUIRE, KEEP, NOT_KNOWN, PENDING, SOON, Message
from disqued.wire.fields import BadMessage, Codec, Fields, cut, cut_id, ends_at, need

_INQUIRE = Struct("<BBIII")
_LENGTH = Struct("<H")
_FOUND = Struct("<BII")
_ENTRY: Final = 2  #: bytes in front of an id
_STANDINGS: Final = (NOT_KNOWN, PENDING, SOON, A_COPY, ENDED)  #: that FOUND says, by their numbers on the link
_WITH_ID: Final = (1, 3)


def encode_inquire(message: Fields, now: int) -> bytes:
    """Write INQUIRE."""
    kind, queue, number, verb, aliases = message
    parts = [_INQUIRE.pack(kind, verb, number, len(aliases), len(queue)), queue]
    for alias in aliases:
        parts += (_LENGTH.pack(len(alias)), alias)
    return b"".join(parts)


def decode_inquire(data: bytes) -> Message:
    """Read INQUIRE."""
    need(data, _INQUIRE.size)
    kind, verb, number, count, length = _INQUIRE.unpack_from(data)
    if verb > KEEP:
        raise BadMessage(f"INQUIRE: verb {verb}; allowed are 0 to {KEEP}")
    queue, at = cut(data, _INQUIRE.size, length, length)
    aliases = []
    for _ in range(count):
        need(data, at + _LENGTH.size)
        alias, at = cut(data, at + _LENGTH.size, _LENGTH.unpack_from(data, at)[0], ALIAS_MAX)
        aliases.append(alias)
    ends_at(data, at)
    return (kind, queue, number, verb, tuple(aliases))


def encode_found(message: Fields, now: int) -> bytes:
    """Write FOUND."""
    kind, number, what = message
    parts = [bytes((_STANDINGS.index(how), len(job_id))) + job_id for how, job_id in what]
    return _FOUND.pack(kind, number, len(what)) + b"".join(parts)


def decode_found(data: bytes) -> Message:
    """Read FOUND."""
    need(data, _FOUND.size)
    kind, number, count = _FOUND.unpack_from(data)
    what = []
    at = _FOUND.size
    for _ in range(count):
        need(data, at + _ENTRY)
        how, length = data[at], data[at + 1]
        at += _ENTRY
        if how >= len(_STANDINGS) or (how in _WITH_ID) != (length > 0):
            raise BadMessage(f"FOUND: {how} and an id of {length} bytes; one goes with 1 and 3, none with 0, 2 and 4")
        job_id = b""
        if length:
            job_id, at = cut_id(data, at, length)
        what.append((_STANDINGS[how], job_id))
    ends_at(data, at)
    return (kind, number, tuple(what))


CODECS: Final[dict[int, Codec]] = {
    INQUIRE: Codec(
        "verb 1, number 4, names 4, length of queue 4, queue; for each name: length 2, name",
        encode_inquire, decode_inquire,
    ),
    FOUND: Codec(
        "number 4, names 4; for each: how 1, length of job id 1 (0 = none), job id", encode_found, decode_found
    ),
}  # fmt: skip
