"""The journal of Disque, read: pure, from chunks of bytes of any size.

A record is a command in the form of a request, and there are two; nothing stands before, between or behind them:

    *2\r\n $7\r\n LOADJOB\r\n $129\r\n  a job, 129 bytes                               \r\n
    *2\r\n $6\r\n DELJOB\r\n  $40\r\n   D-130f254d-QsheHqzDg4yS0nDMzI3PD+Md-003d       \r\n

A job is a fixed part, little-endian, and then the strings:

                          1.0-rc1    first release
    length of what follows   0  4       0  4
    id                       4 40       4 48     `D-...`, or `DI...SQ`
    state, and more         44  1      52  1     low four bits 1 active, 2 queued; high four of no meaning here
    flags                   45  1      53  1     1 queued before, 4 delivered; the others of no meaning here
    replicate               46  2      54  2
    end of life             48  4      56  4     unix seconds
    ctime                   52  8      60  8     as in `core.model.job`
    delay, retry            60  8      68  8     4 bytes each, seconds
    nacks, more deliveries  68  4       -        2 bytes each
    queue, body             length 4, bytes
    nodes                   count 4, 40 bytes each

There is no checksum.  What can be held against something is: the form of each record byte by byte, a job's length
against the one that it begins with, its parts against that length, ids and states against what they may be.  So a
damaged length is found where it stands, and is not taken for a file that ends early.

Nothing is kept but the record at hand, and of that no more than has arrived.
Source: Disque, src/aof.c, src/job.c (1.0-rc1, and the first release of April 2015).
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

import attrs

from disqued.core.model.ids import JOB_ID_LENGTH, NODE_ID_LENGTH, OLD_JOB_ID_LENGTH, is_job_id, is_node_id
from disqued.core.model.job import ACTIVE, QUEUED, STAMP_MAX

_LOADJOB: Final = b"*2\r\n$7\r\nLOADJOB\r\n$"
_DELJOB: Final = b"*2\r\n$6\r\nDELJOB\r\n$"
_END: Final = b"\r\n"

_RELEASE = Struct("<I40sBBHIQIIHH")
_FIRST = Struct("<I48sBBHIQII")
_LENGTH = Struct("<I")
#: Queue, body and nodes may be empty; their lengths are there.
SHORTEST_JOB: Final = _RELEASE.size + 3 * _LENGTH.size
_LONGEST_JOB: Final = _LENGTH.size + 2**32 - 1
_MAX_DIGITS: Final = len(str(_LONGEST_JOB))

_FLAG_QUEUED_BEFORE: Final = 1
_FLAG_DELIVERED: Final = 4


class BadJournal(ValueError):
    """A journal does not hold what Disque writes; the text says where and why."""

    def __init__(self, offset: int, number: int, start: int, what: str) -> None:
        super().__init__(f"damaged at byte {offset}, in record {number} that begins at byte {start}: {what}")
        self.offset = offset  #: the byte that is wrong, or the first byte of the part that is
        self.number = number  #: of the record, from 1
        self.start = start  #: first byte of the record; everything before it is good


@attrs.frozen
class LoadedJob:
    """LOADJOB: a job that the node came to know."""

    id: bytes  #: 40 bytes, or 48 from the first release
    queue: bytes
    body: bytes
    state: int  #: ACTIVE or QUEUED, when the record was written
    queued_before: bool  #: it was queued already, or this is a copy of a job of another node
    delivered: bool  #: this node handed it to a consumer
    replicate: int
    expires_s: int  #: unix seconds
    ctime: int
    delay_s: int
    retry_s: int  #: 0 = deliver at most once
    nacks: int
    additional_deliveries: int
    nodes: tuple[bytes, ...]  #: that may hold a copy, as they were written


@attrs.frozen
class DeletedJob:
    """DELJOB: a job that is acknowledged, over or deleted."""

    id: bytes


class _Bad(Exception):
    """What is wrong within a record, and at which of its bytes."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(what)
        self.at = at


class DisqueAof:
    """Reads one journal, once, from its beginning."""

    __slots__ = ("_chunks", "count", "size", "torn")

    def __init__(self, chunks: Iterable[bytes]) -> None:
        """Take the bytes of the file, in pieces of any length."""
        self._chunks = chunks
        self.count: int = 0  #: whole records so far
        self.size: int = 0  #: bytes of these
        self.torn: str = ""  #: how the file ends within a record, behind `size`; empty when it is whole

    def __iter__(self) -> Iterator[LoadedJob | DeletedJob]:
        """Yield the records; stop at a torn end and say so in `torn`.  Raises BadJournal."""
        buffer = bytearray()
        for chunk in self._chunks:
            buffer += chunk
            at = 0
            while at < len(buffer):
                try:
                    payload, end = _frame(buffer, at)
                    if end == 0:
                        break
                    record = _decode(buffer, at, payload, end)
                except _Bad as error:
                    start = self.size
                    raise BadJournal(start + error.at - at, self.count + 1, start, str(error)) from None
                self.size += end - at
                self.count += 1
                at = end
                yield record
            del buffer[:at]
        if buffer:
            self.torn = f"the file ends within record {self.count + 1}, {len(buffer)} bytes after it begins"


def _frame(buffer: bytearray, at: int) -> tuple[int, int]:
    """Where the argument of the record at `at` begins, and where the record ends; (0, 0) when more has to arrive."""
    is_job = buffer.startswith(_LOADJOB, at)
    if not is_job and not buffer.startswith(_DELJOB, at):
        _check_beginning(buffer, at)
        return (0, 0)
    digits = at + len(_LOADJOB if is_job else _DELJOB)
    line_end = buffer.find(_END, digits, digits + _MAX_DIGITS + len(_END))
    if line_end < 0:
        _check_digits(buffer, digits)
        return (0, 0)
    length = _length(buffer, digits, line_end, is_job=is_job)
    payload = line_end + len(_END)
    _check_start(buffer, payload, length, digits, is_job=is_job)
    end = payload + length + len(_END)
    if end > len(buffer):
        return (0, 0)
    if buffer[end - len(_END) : end] != _END:
        raise _Bad(end - len(_END), "no line end behind the argument")
    return (payload, end)


def _check_beginning(buffer: bytearray, at: int) -> None:
    """Let a record go on that may still become one of the two."""
    begun = bytes(buffer[at : at + len(_LOADJOB)])
    same = max(_common(begun, _LOADJOB), _common(begun, _DELJOB))
    if same < len(begun):
        found = bytes(buffer[at + same : at + same + 16])
        raise _Bad(at + same, f"{found!r} is neither LOADJOB nor DELJOB, and a journal of Disque has nothing else")


def _common(one: bytes, other: bytes) -> int:
    """How many bytes two strings begin with that are the same."""
    for count, (first, second) in enumerate(zip(one, other, strict=False)):
        if first != second:
            return count
    return min(len(one), len(other))


def _check_digits(buffer: bytearray, digits: int) -> None:
    """Let a length go on whose line has not ended yet."""
    line = bytes(buffer[digits : digits + _MAX_DIGITS + 1])
    number = line.removesuffix(b"\r")
    if len(number) > _MAX_DIGITS or (number and not number.isdigit()):
        raise _Bad(digits, f"{line!r} is no length; allowed are numbers to {_LONGEST_JOB}")


def _length(buffer: bytearray, digits: int, line_end: int, *, is_job: bool) -> int:
    text = bytes(buffer[digits:line_end])
    if not text.isdigit() or text.startswith(b"0"):
        raise _Bad(digits, f"{text!r} is no length; it is written in decimal digits, without a zero in front")
    length = int(text)
    if is_job and not SHORTEST_JOB <= length <= _LONGEST_JOB:
        raise _Bad(digits, f"a job of {length} bytes; allowed are {SHORTEST_JOB} to {_LONGEST_JOB}")
    if not is_job and length not in (OLD_JOB_ID_LENGTH, JOB_ID_LENGTH):
        raise _Bad(digits, f"a job id of {length} bytes; allowed are {OLD_JOB_ID_LENGTH} and {JOB_ID_LENGTH}")
    return length


def _check_start(buffer: bytearray, payload: int, length: int, digits: int, *, is_job: bool) -> None:
    """Hold the length against what the argument begins with, as far as that has arrived."""
    if not is_job:
        mark = bytes(buffer[payload : payload + 2])
        if len(mark) == 2 and mark != (b"D-" if length == OLD_JOB_ID_LENGTH else b"DI"):
            raise _Bad(payload, f"a job id of {length} bytes that begins with {mark!r}")
    elif len(buffer) >= payload + _LENGTH.size:
        told = _LENGTH.unpack_from(buffer, payload)[0] + _LENGTH.size
        if told != length:
            raise _Bad(digits, f"the job has {length} bytes by this length, and {told} by the one that it begins with")


def _decode(buffer: bytearray, at: int, payload: int, end: int) -> LoadedJob | DeletedJob:
    """The record whose argument begins at `payload`."""
    data = bytes(buffer[payload : end - len(_END)])
    try:
        return _decode_job(data) if buffer.startswith(_LOADJOB, at) else DeletedJob(_checked_id(data, 0))
    except _Bad as error:
        raise _Bad(payload + error.at, str(error)) from None


def _checked_id(job_id: bytes, at: int) -> bytes:
    if not is_job_id(job_id):
        raise _Bad(at, f"{job_id!r} is no job id")
    return job_id


def _decode_job(data: bytes) -> LoadedJob:
    nacks = additional_deliveries = 0
    if data.startswith(b"DI", _LENGTH.size):
        fixed = _FIRST.size
        if len(data) < fixed + 3 * _LENGTH.size:
            raise _Bad(0, f"a job of {len(data)} bytes; with such an id the shortest has {fixed + 3 * _LENGTH.size}")
        _, job_id, state, flags, replicate, expires_s, ctime, delay_s, retry_s = _FIRST.unpack_from(data)
    else:
        fixed = _RELEASE.size
        (
            _, job_id, state, flags, replicate, expires_s, ctime, delay_s, retry_s, nacks, additional_deliveries,
        ) = _RELEASE.unpack_from(data)  # fmt: skip
    _checked_id(job_id, _LENGTH.size)
    state_at = _LENGTH.size + len(job_id)
    state &= 0x0F
    if state not in (ACTIVE, QUEUED):
        raise _Bad(state_at, f"state {state}; a journal holds jobs that are active ({ACTIVE}) or queued ({QUEUED})")
    if ctime > STAMP_MAX:
        raise _Bad(state_at + 8, f"creation at {ctime}; allowed is up to {STAMP_MAX}")
    queue, body_at = _string(data, fixed, "queue")
    body, nodes_at = _string(data, body_at, "body")
    return LoadedJob(
        id=job_id, queue=queue, body=body, state=state,
        queued_before=state == QUEUED or flags & _FLAG_QUEUED_BEFORE != 0, delivered=flags & _FLAG_DELIVERED != 0,
        replicate=replicate, expires_s=expires_s, ctime=ctime, delay_s=delay_s, retry_s=retry_s, nacks=nacks,
        additional_deliveries=additional_deliveries, nodes=_nodes(data, nodes_at),
    )  # fmt: skip


def _string(data: bytes, at: int, name: str) -> tuple[bytes, int]:
    """The string at `at`, and where it ends; the length of the next part has to follow it."""
    length = _LENGTH.unpack_from(data, at)[0]
    start = at + _LENGTH.size
    end = start + length
    room = len(data) - _LENGTH.size - start
    if length > room:
        raise _Bad(at, f"a {name} of {length} bytes where there is room for {max(room, 0)}")
    return data[start:end], end


def _nodes(data: bytes, at: int) -> tuple[bytes, ...]:
    """The ids of nodes that a job ends with."""
    count = _LENGTH.unpack_from(data, at)[0]
    start = at + _LENGTH.size
    if start + count * NODE_ID_LENGTH != len(data):
        raise _Bad(at, f"{count} nodes of {NODE_ID_LENGTH} bytes each in {len(data) - start} bytes")
    nodes = []
    for place in range(start, len(data), NODE_ID_LENGTH):
        node = data[place : place + NODE_ID_LENGTH]
        if not is_node_id(node):
            raise _Bad(place, f"{node!r} is no node id")
        nodes.append(node)
    return tuple(nodes)
