"""Job ids and node ids.

    DI 0f0c644f d3ccb51c2cedbd47fcb6f312646c993c 05a0 SQ      48 bytes
    |  |        |                                |    suffix
    |  |        |                                TTL in minutes, hex, at most ffff
    |  |        first 32 hex digits of SHA1(seed || counter, 8 bytes little-endian)
    |  first 8 hex digits of the creating node's id
    prefix

Ids of Disque 1.0 (``D-``, 8 hex, ``-``, 24 characters of base64, ``-``, 4 hex; 40 bytes) are accepted wherever an id
is read, so that jobs brought over keep theirs.  Source: the Disque README, "Job IDs"; src/job.c.
"""

from binascii import hexlify
from hashlib import sha1

BATCH = 64  #: ids made at a time: in a tight loop one costs two thirds of what it costs between system calls

NODE_ID_LENGTH = 40
JOB_ID_LENGTH = 48
OLD_JOB_ID_LENGTH = 40


def is_job_id(value: bytes) -> bool:
    """Tell whether a value has the form of a job id; what stands between the marks is not looked at."""
    if len(value) == JOB_ID_LENGTH:
        return value[:2] == b"DI" and value[46:] == b"SQ"
    return len(value) == OLD_JOB_ID_LENGTH and value[:2] == b"D-" and value[10] == value[35] == 0x2D


def is_node_id(value: bytes) -> bool:
    """Tell whether a value is a node id: 40 lower-case hex digits."""
    return len(value) == NODE_ID_LENGTH and not value.strip(b"0123456789abcdef")


def comes_first(node_id: bytes, other: bytes, job_id: bytes) -> bool:
    """Tell which of two nodes keeps a job in its queue that both have queued: True = the first one.

    Each job favours other nodes: what decides is the ids of the nodes, turned by the random part of the job's.
    """
    start, length = (10, 32) if len(job_id) == JOB_ID_LENGTH else (11, 24)
    turn = int.from_bytes((job_id[start : start + length] * 2)[:NODE_ID_LENGTH], "big")
    return int.from_bytes(node_id, "big") ^ turn > int.from_bytes(other, "big") ^ turn


class JobIds:
    """The ids of one run of one node."""

    __slots__ = ("_counter", "_prefix", "_ready", "_seed")

    def __init__(self, node_id: bytes, seed: bytes) -> None:
        """Take the id of the creating node and a seed that no other run has."""
        self._prefix = b"DI" + node_id[:8]
        self._seed = seed
        self._counter = 0
        self._ready: list[bytes] = []

    def next(self, ttl_suffix: bytes) -> bytes:
        """Make an id that ends with `JobOptions.ttl_suffix`."""
        ready = self._ready
        if not ready:
            self._refill()
        return ready.pop() + ttl_suffix

    def _refill(self) -> None:
        seed, prefix, ready = self._seed, self._prefix, self._ready
        last = self._counter + BATCH
        for count in range(last, self._counter, -1):
            digest = sha1(seed + count.to_bytes(8, "little"), usedforsecurity=False).digest()
            ready.append(prefix + hexlify(digest[:16]))
        self._counter = last
