"""What a schedule of jobs says, as bytes: the values of its registers in the journal and on the bus.

    a schedule, 69 bytes and then the strings:
        kind 1, skips 1, catch-up 2, number 8, jitter 8
        TTL 8, retry 8, delay 8, replicate 2, maxlen 8, asynchronous 1
        lengths: cron line 1, zone 1, queue 4, body 4, terms 4
        cron line, zone, queue, body, terms as in `fates`
    its last instants: the id of its last job and the instant of that 8, or neither; and of each of the last instants,
        in order: instant 8, outcome 1.  An id alone, without its instant, was written before outcomes were.
    its last refusal: instant 8, error

Durations and instants are milliseconds.  A schedule that was deleted is one byte 0, as an empty field of numbers is.
"""

from itertools import pairwise
from struct import Struct
from typing import Final

from disqued.core.model.calendar import (
    AT,
    CATCH_UP_MAX,
    CRON,
    ERROR_MAX,
    EVERY,
    KIND_NAMES,
    OUTCOME_NAMES,
    OUTCOMES_KEPT,
    UTC,
    JobTemplate,
    LastFiring,
    Refusal,
    ScheduleSetting,
)
from disqued.core.model.ids import is_job_id
from disqued.core.model.job import RETRY_NEVER_MS, STAMP_MAX
from disqued.core.model.policies import COUNTER_MAX, Numbers, is_printable
from disqued.wire.fates import decode_terms, encode_terms
from disqued.wire.fields import BadRecord

_SCHEDULE = Struct("<BBHQQQQQHQBBBIII")
_NOTHING: Final = b"\0"
_ID_BYTES: Final = 48
_INSTANT = Struct("<Q")
_OUTCOME = Struct("<QB")


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
    """Write down what became of the last instants of a schedule."""
    job = last.job_id + _INSTANT.pack(last.fired_at) if last.job_id else b""
    return job + b"".join(_OUTCOME.pack(instant, outcome) for instant, outcome in last.outcomes)


def decode_last(data: bytes, counter: int) -> LastFiring | Numbers:
    """Read it back from a register with this counter; no numbers where it was forgotten.  Raises BadRecord."""
    if data == _NOTHING:
        return ()
    job_id, fired_at, at = b"", 0, 0
    if len(data) >= _ID_BYTES:
        job_id, at = data[:_ID_BYTES], _ID_BYTES
        if not is_job_id(job_id):
            raise BadRecord(f"{job_id!r} is no job id; allowed are 48 bytes DI...SQ, or none")
        fired_at = counter
        if len(data) >= _ID_BYTES + _INSTANT.size:
            (fired_at,) = _INSTANT.unpack_from(data, at)
            at += _INSTANT.size
    count, rest = divmod(len(data) - at, _OUTCOME.size)
    if rest or count > OUTCOMES_KEPT:
        raise BadRecord(
            f"outcomes of instants in {len(data) - at} bytes; allowed are up to {OUTCOMES_KEPT} of {_OUTCOME.size}"
        )
    outcomes = tuple(_OUTCOME.iter_unpack(data[at:]))
    if any(first[0] >= second[0] for first, second in pairwise(outcomes)):
        raise BadRecord("outcomes of instants that are not in order, each once")
    for instant, outcome in (*outcomes, (fired_at, 1)):
        if outcome not in OUTCOME_NAMES or instant > COUNTER_MAX:
            raise BadRecord(
                f"outcome {outcome} of instant {instant}; allowed are 1 to {max(OUTCOME_NAMES)}, up to {COUNTER_MAX}"
            )
    return LastFiring(job_id, fired_at, outcomes)


def encode_refusal(refusal: Refusal) -> bytes:
    """Write down why a job of a schedule was refused."""
    return _INSTANT.pack(refusal.instant) + refusal.error


def decode_refusal(data: bytes) -> Refusal | Numbers:
    """Read it back; no numbers where it was forgotten.  Raises BadRecord."""
    if data == _NOTHING:
        return ()
    if not _INSTANT.size <= len(data) <= _INSTANT.size + ERROR_MAX:
        raise BadRecord(f"a refusal in {len(data)} bytes; allowed are {_INSTANT.size} to {_INSTANT.size + ERROR_MAX}")
    (instant,), error = _INSTANT.unpack_from(data), data[_INSTANT.size :]
    if instant > COUNTER_MAX or not is_printable(error):
        raise BadRecord(f"a refusal of instant {instant}; allowed are {COUNTER_MAX}, and an error in printable UTF-8")
    return Refusal(instant, error)
