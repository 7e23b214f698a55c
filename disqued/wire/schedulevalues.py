"""What a schedule of jobs says, as bytes: the values of its registers in the journal and on the bus.

    a schedule, 69 bytes and then the strings:
        kind 1, skips 1, catch-up 2, number 8, jitter 8
        TTL 8, retry 8, delay 8, replicate 2, maxlen 8, asynchronous 1
        lengths: cron line 1, zone 1, queue 4, body 4, terms 4
        cron line, zone, queue, body, terms as in `fates`
    its last job: the id, or nothing

Durations and instants are milliseconds.  A schedule that was deleted is one byte 0, as an empty field of numbers is.
"""

from struct import Struct
from typing import Final

from disqued.core.model.calendar import (
    AT,
    CATCH_UP_MAX,
    CRON,
    EVERY,
    KIND_NAMES,
    UTC,
    JobTemplate,
    LastFiring,
    ScheduleSetting,
)
from disqued.core.model.ids import is_job_id
from disqued.core.model.job import RETRY_NEVER_MS, STAMP_MAX
from disqued.core.model.policies import Numbers
from disqued.wire.fates import decode_terms, encode_terms
from disqued.wire.fields import BadRecord

_SCHEDULE = Struct("<BBHQQQQQHQBBBIII")
_NOTHING: Final = b"\0"


def encode_schedule(setting: ScheduleSetting) -> bytes:
    """Write down what a schedule says."""
    job = setting.job
    terms = encode_terms(job.terms)
    head = _SCHEDULE.pack(
        setting.kind, setting.skips, setting.catch_up, setting.number, setting.jitter_ms, job.ttl_ms, job.retry_ms,
        job.delay_ms, job.replicate, job.maxlen, job.asynchronous, len(setting.line), len(setting.zone), len(job.queue),
        len(job.body), len(terms),
    )  # fmt: skip
    return b"".join((head, setting.line, setting.zone, job.queue, job.body, terms))


def decode_schedule(data: bytes) -> ScheduleSetting | Numbers:
    """Read back what a schedule says; no numbers where it was deleted.  Raises BadRecord."""
    if data == _NOTHING:
        return ()
    if len(data) < _SCHEDULE.size:
        raise BadRecord(f"a schedule in {len(data)} bytes; the shortest has {_SCHEDULE.size}")
    (
        kind, skips, catch_up, number, jitter_ms, ttl_ms, retry_ms, delay_ms, replicate, maxlen, asynchronous, *lengths,
    ) = _SCHEDULE.unpack_from(data)  # fmt: skip
    strings = []
    at = _SCHEDULE.size
    for length in lengths:
        strings.append(data[at : at + length])
        at += length
    if at != len(data):
        raise BadRecord(f"a schedule in {len(data)} bytes whose parts add up to {at}")
    line, zone, queue, body, terms = strings
    if max(jitter_ms, ttl_ms, retry_ms, delay_ms) > RETRY_NEVER_MS or not ttl_ms:
        raise BadRecord(f"a schedule with a span above {RETRY_NEVER_MS} ms, or no TTL")
    if kind not in KIND_NAMES or catch_up > CATCH_UP_MAX or max(skips, asynchronous) > 1 or maxlen >= 1 << 63:
        raise BadRecord(
            f"a schedule of kind {kind}, catch-up {catch_up}, skips {skips}; allowed are {CRON} to {AT}, up to"
            f" {CATCH_UP_MAX}, and 0 or 1"
        )
    if not _is_sound(kind, line, zone, number):
        raise BadRecord(f"a schedule of kind {kind} with line {line[:40]!r} and number {number}, which do not fit")
    job = JobTemplate(
        queue, body, ttl_ms, retry_ms, delay_ms, replicate, maxlen, bool(asynchronous), decode_terms(terms)
    )
    return ScheduleSetting(kind, line, number, zone, bool(skips), catch_up, jitter_ms, job)


def _is_sound(kind: int, line: bytes, zone: bytes, number: int) -> bool:
    """Return whether what a schedule says about its instants can be used; cron lines are checked by the calendar."""
    if kind == CRON:
        return bool(line and zone) and not number
    return not line and zone == UTC and 0 < number <= (STAMP_MAX if kind == AT else RETRY_NEVER_MS) and kind >= EVERY


def encode_last(last: LastFiring) -> bytes:
    """Write down the last job of a schedule."""
    return last.job_id


def decode_last(data: bytes) -> LastFiring:
    """Read back the last job of a schedule.  Raises BadRecord."""
    if data and not is_job_id(data):
        raise BadRecord(f"{data[:60]!r} is no job id; allowed are 48 bytes DI...SQ, or none")
    return LastFiring(data)
