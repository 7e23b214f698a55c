"""What the codecs of messages and records share: forms, errors, and parts of bytes checked before they are used."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from disqued.core.model.ids import is_job_id
from disqued.core.model.messages import NAMES, Message
from disqued.wire.pieces import Text

JOB_ID_MAX: Final = 255  #: bytes that the length of an id may say; what is no id is refused


#: A message or a journal record whose fields are read by position.
Fields = tuple[Any, ...]


class Codec(NamedTuple):
    """How a kind of message is written and read."""

    layout: str  #: the bytes behind the kind: each part with its size, or with a length before it
    encode: Callable[[Fields, int], Text]  #: the second argument is the monotonic clock
    decode: Callable[[bytes], Message]


class BadRecord(ValueError):
    """Bytes that are no record; the text says what is wrong with them."""


class BadMessage(ValueError):
    """Bytes that are no message; the text says what is wrong with them."""


def need(data: bytes, size: int) -> None:
    """See to it that there are so many bytes."""
    if len(data) < size:
        raise BadMessage(f"{NAMES[data[0]]}: {len(data)} bytes, of which the part that is read next ends at {size}")


def ends_at(data: bytes, size: int) -> None:
    """See to it that there are so many bytes and no more."""
    if len(data) != size:
        raise BadMessage(f"{NAMES[data[0]]}: {len(data)} bytes whose parts add up to {size}")


def cut(data: bytes, at: int, length: int, most: int) -> tuple[bytes, int]:
    """Read so many bytes, which may be `most`; returns them and where they end."""
    if length > most:
        raise BadMessage(f"{NAMES[data[0]]}: a part of {length} bytes; allowed are {most}")
    need(data, at + length)
    return data[at : at + length], at + length


def cut_id(data: bytes, at: int, length: int) -> tuple[bytes, int]:
    """Read a job id of so many bytes; returns it and where it ends."""
    job_id, end = cut(data, at, length, JOB_ID_MAX)
    if not is_job_id(job_id):
        raise BadMessage(f"{NAMES[data[0]]}: {job_id!r} is no job id")
    return job_id, end


def flag_of(data: bytes, at: int) -> bool:
    """Read a byte that is 0 or 1."""
    need(data, at + 1)
    if data[at] > 1:
        raise BadMessage(f"{NAMES[data[0]]}: {data[at]} where 0 or 1 is allowed")
    return data[at] == 1
