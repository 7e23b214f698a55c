"""Terms: what a job is promised besides its times and its copies.

Terms are part of the options of a job.  They are in its copies, in its journal record and in its move to another node,
and they never change, so that each holder knows how to treat the job without asking.

Nearly all jobs have the terms `NO_TERMS`, one object, and cost nothing more.  Durations are milliseconds.
"""

import re
from typing import Final, NamedTuple
from zlib import crc32

TRIES_MAX: Final = 65_535
HEADERS_MAX: Final = 16
HEADER_NAME_MAX: Final = 255  #: bytes
HEADERS_BYTES_MAX: Final = 8_192  #: of all names and values together
HEADER_COST: Final = 180  #: bytes of a header without its name and value: two strings, their pair, its place
GROUP_MAX: Final = 255  #: bytes of the name of a group
GROUP_COST: Final = 430  #: bytes of a group without its name: options that jobs of other groups do not share

SCHEDULE_NAME: Final = b"schedule-name"  #: name of the header that says which schedule added a job
TRACEPARENT: Final = b"traceparent"  #: name of the header that says which trace a job belongs to
#: Version, trace id, parent id and flags, as W3C Trace Context has them; versions after 00 may add fields.
_TRACEPARENT: Final = re.compile(
    rb"(?!ff|00.{53}-)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?", re.DOTALL
)

DOUBLINGS_MAX: Final = 45  #: doublings of a millisecond that are longer than any job lives

Headers = tuple[tuple[bytes, bytes], ...]


class Terms(NamedTuple):
    """The terms of a job."""

    max_tries: int = 0  #: a job that would be queued for one more try is dead instead; 0 = no limit
    backoff_ms: int = 0  #: delay after the first NACK, twice as long after each further one; 0 = none
    backoff_most_ms: int = 0  #: the longest such delay
    keep_dead_ms: int = 0  #: how long a dead job stays beyond its time to live
    keep_result_ms: int = 0  #: how long its result is kept after the acknowledgement; 0 = not at all
    headers: Headers = ()  #: (name, value), each name once
    group: bytes = b""  #: group within the queue (`grouped`); empty = that of all jobs without a name of a group

    @property
    def stay_ms(self) -> int:
        """How long a job may stay beyond its time to live."""
        return max(self.keep_dead_ms, self.keep_result_ms)


NO_TERMS: Final = Terms()


def backoff_of(terms: Terms, job_id: bytes, nacks: int) -> int:
    """Return the delay after so many NACKs; the same on all nodes.

    Twice as long after each further NACK, up to the longest, and then up to a tenth more or less.
    """
    doublings = min(max(0, nacks - 1), DOUBLINGS_MAX)
    span_ms = min(terms.backoff_ms << doublings, terms.backoff_most_ms)
    return span_ms * (9_000 + crc32(b"%b:%d" % (job_id, nacks)) % 2_001) // 10_000


def cost_of_terms(terms: Terms) -> int:
    """Return the bytes that the headers and the group of a job take."""
    size = sum([HEADER_COST + len(name) + len(value) for name, value in terms.headers])
    return size + GROUP_COST + len(terms.group) if terms.group else size


def trace_id_of(headers: Headers) -> bytes:
    """Return the trace id of a traceparent header, 32 hex digits; empty if there is none, or it is malformed."""
    for name, value in headers:
        if name == TRACEPARENT and (found := _TRACEPARENT.fullmatch(value)) is not None:
            trace_id: bytes = found[1]
            return trace_id
    return b""


def schedule_of(headers: Headers) -> bytes:
    """Return the schedule that a job's headers name; empty if they name none."""
    for name, value in headers:
        if name == SCHEDULE_NAME:
            return value
    return b""


def headers_misfit(headers: Headers) -> str:
    """Say what is wrong with the headers of a job; empty = they are sound."""
    if len(headers) > HEADERS_MAX:
        return f"{len(headers)} headers; allowed are {HEADERS_MAX}"
    size = sum([len(name) + len(value) for name, value in headers])
    if size > HEADERS_BYTES_MAX:
        return f"headers of {size} bytes; allowed are {HEADERS_BYTES_MAX}"
    names = [name for name, _ in headers]
    for name in names:
        if not 0 < len(name) <= HEADER_NAME_MAX or not name.isascii() or not name.decode().isprintable():
            shown = name[:40].decode("latin-1").encode("unicode_escape").decode()
            return f"header name '{shown}'; allowed are 1 to {HEADER_NAME_MAX} bytes of printable ASCII"
    if len(set(names)) < len(names):
        return f"header {max(names, key=names.count).decode()!r} is given twice; allowed is once"
    return ""
