"""Job ids and node ids, and what else a node draws or counts.

    DI 0f0c644f d3cc b51c2cedbd47fcb6f312646c993c 05a0 SQ      48 bytes
    |  |        |    |                            |    suffix
    |  |        |    |                            TTL in minutes, hex, at most ffff
    |  |        |    28 hex digits of its own
    |  |        4 hex digits that 16 ids share: jobs that come together lie together (core/model/registry.py)
    |  first 8 hex digits of the creating node's id
    prefix

A batch of ids is SHAKE128(seed || its number, 8 bytes little-endian): what 16 share, what is of each of them, what the
next 16 share, and so on.

Ids of Disque 1.0 (``D-``, 8 hex, ``-``, 24 characters of base64, ``-``, 4 hex; 40 bytes) are accepted wherever an id
is read, so that jobs brought over keep theirs.  Source: the Disque README, "Job IDs"; src/job.c.
"""

from binascii import hexlify
from hashlib import shake_128
from random import Random
from typing import Final

from mypy_extensions import i64

BATCH: Final = 64  #: ids that are made of one hash: it costs an id a fifth of what a hash of its own would

NODE_ID_LENGTH: Final = 40
JOB_ID_LENGTH: Final = 48
OLD_JOB_ID_LENGTH: Final = 40
SHARERS: Final = 16  #: ids that begin with the same digits
AHEAD_NS: Final = 86_400_000 * 1_000_000  #: how far ahead the stamp of another node may be and still move our stamps
QUESTIONS: Final = (1 << 32) - 1  #: the numbers of questions start again after this one
_D: Final = 0x44
_I: Final = 0x49
_S: Final = 0x53
_Q: Final = 0x51
_DASH: Final = 0x2D
_SHARED: Final = 4  # hex digits
_OWN: Final = 28  # hex digits
_GROUP: Final = _SHARED + SHARERS * _OWN


def is_job_id(value: bytes) -> bool:
    """Tell whether a value has the form of a job id; what stands between the marks is not looked at."""
    if len(value) == JOB_ID_LENGTH:
        return value[0] == _D and value[1] == _I and value[46] == _S and value[47] == _Q
    return len(value) == OLD_JOB_ID_LENGTH and value[0] == _D and value[1] == value[10] == value[35] == _DASH


def is_node_id(value: bytes) -> bool:
    """Tell whether a value is a node id: 40 lower-case hex digits."""
    return len(value) == NODE_ID_LENGTH and not value.strip(b"0123456789abcdef")


def comes_first(node_id: bytes, other: bytes, job_id: bytes) -> bool:
    """Tell which of two nodes keeps a job in its queue that both have queued: True = the first one.

    Each job favours other nodes: what decides is the ids of the nodes, turned by what is random in the job's own part.
    """
    start, length = (10 + _SHARED, _OWN) if len(job_id) == JOB_ID_LENGTH else (11, 24)
    turn = int.from_bytes((job_id[start : start + length] * 2)[:NODE_ID_LENGTH], "big")
    return int.from_bytes(node_id, "big") ^ turn > int.from_bytes(other, "big") ^ turn


class JobIds:
    """The ids of one run of one node."""

    __slots__ = ("_batches", "_prefix", "_ready", "_seed")

    def __init__(self, node_id: bytes, seed: bytes) -> None:
        """Take the id of the creating node and a seed that no other run has."""
        self._prefix = b"DI" + node_id[:8]
        self._seed = seed
        self._batches = 0
        self._ready: list[bytes] = []

    def next(self, ttl_suffix: bytes) -> bytes:
        """Make an id that ends with `JobOptions.ttl_suffix`."""
        ready = self._ready
        if not ready:
            self._refill()
        return ready.pop() + ttl_suffix

    def _refill(self) -> None:
        ready = self._ready
        self._batches += 1
        batch = shake_128(self._seed + self._batches.to_bytes(8, "little"), usedforsecurity=False)
        digits = hexlify(batch.digest(BATCH // SHARERS * _GROUP // 2))
        for group in range(len(digits) - _GROUP, -1, -_GROUP):
            start = self._prefix + digits[group : group + _SHARED]
            for at in range(group + _GROUP - _OWN, group, -_OWN):
                ready.append(start + digits[at : at + _OWN])


class Numbers:
    """The generators of one node."""

    __slots__ = ("ids", "last_ctime", "questions", "rng")

    def __init__(self, ids: JobIds, rng: Random) -> None:
        self.ids: JobIds = ids
        self.rng: Random = rng  #: draws nodes and shifts times
        self.last_ctime: int = 0  #: the highest stamp that was given or seen
        self.questions: int = 0  #: the number of the last question to other nodes

    def next_ctime(self, wall: int) -> int:
        """Stamp a job that is created now: unix nanoseconds, counted up within a millisecond, never going back."""
        # With a number of the machine: one of Python's costs ten times as much, above 2 ** 31.
        ctime = i64(wall) * 1_000_000
        if ctime <= self.last_ctime:
            ctime = i64(self.last_ctime) + 1
        self.last_ctime = ctime
        return ctime

    def next_front(self, wall: int) -> int:
        """Return the order key of a unit that is put in front of all others now."""
        return -self.next_ctime(wall)

    def stamp_behind(self, ctime: int, wall: int) -> None:
        """Stamp later jobs behind what another node knows, unless that is too far ahead."""
        if self.last_ctime < ctime < i64(wall) * 1_000_000 + AHEAD_NS:
            self.last_ctime = ctime

    def next_number(self) -> int:
        """Number a question to other nodes, which its answer repeats; never 0, and of 32 bits."""
        self.questions = self.questions % QUESTIONS + 1
        return self.questions

    def spread(self, span_ms: int) -> int:
        """Draw a shift within a span, to keep the timers of several nodes out of step."""
        return int(self.rng.random() * span_ms)
