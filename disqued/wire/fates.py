"""Terms and fates of jobs as bytes, in the journal and between nodes; and the messages about them.

    terms, little-endian, 35 bytes and then the headers and the group:
        tries 2, back-off 8, longest back-off 8, stay of a dead job 8, stay of a result 8, number of headers 1
        for each header: length of name 1, length of value 2, name, value
        if there is a group: its length 1, its name
    fate, 10 bytes and then the words:
        generation 4, bits 1, tries of earlier generations 4, number of failures 1
        for each failure: time 8, node id 20, length of who 1, length of reason 2, who, reason
        progress and result, where the bits say so: time 8, node id 20, length of value 4, value

Bits: 1 dead, 2 cancelled, 4 rival results, 8 progress, 16 result.  `NO_TERMS` and `NO_FATE` are no bytes at all, so
that each value has one form.  A version that does not know groups refuses terms with one: their parts do not add up.

Durations are milliseconds, times unix milliseconds.  Whatever is counted has a bound.
"""

from binascii import hexlify, unhexlify
from struct import Struct, error
from typing import Final

from disqued.core.model.fate import (
    FAILURE_REASON_MAX,
    FAILURES_KEPT,
    NO_FATE,
    PROGRESS_MAX,
    RESULT_MAX,
    Failure,
    Fate,
    Word,
    last_failures,
)
from disqued.core.model.job import RETRY_NEVER_MS, STAMP_MAX
from disqued.core.model.messages import FATE, OWNED_ELSEWHERE, REDRIVE, REDRIVEN, Message
from disqued.core.model.outbox import CLIENT_NAME_MAX
from disqued.core.model.terms import NO_TERMS, Terms, headers_misfit
from disqued.wire.fields import BadMessage, BadRecord, Codec, Fields, cut, cut_id, ends_at, flag_of, need

_TERMS = Struct("<HQQQQB")
_HEADER = Struct("<BH")
_FATE = Struct("<IBIB")
_FAILURE = Struct("<Q20sBH")
_WORD = Struct("<Q20sI")
_MESSAGE = Struct("<BBQIII")
_REDRIVE = Struct("<BIIIBII")
_LAST_AT: Final = 13  #: where `last` is in it
_REDRIVEN = Struct("<BIIB")
_DEAD, _CANCELLED, _RIVALS, _PROGRESS, _RESULT = 1, 2, 4, 8, 16
_ALL_BITS: Final = 31
_COUNTER_MASK: Final = 0xFFFF_FFFF


def encode_terms(terms: Terms) -> bytes:
    """Write terms down; none are no bytes."""
    if terms == NO_TERMS:
        return b""
    headers = [_HEADER.pack(len(name), len(value)) + name + value for name, value in terms.headers]
    group = bytes((len(terms.group),)) + terms.group if terms.group else b""
    return b"".join((_TERMS.pack(*terms[:5], len(headers)), *headers, group))


def decode_terms(data: bytes) -> Terms:
    """Read terms back.  Raises BadRecord."""
    if not data:
        return NO_TERMS
    try:
        *numbers, count = _TERMS.unpack_from(data)
        at = _TERMS.size
        headers = []
        for _ in range(count):
            name_length, value_length = _HEADER.unpack_from(data, at)
            at += _HEADER.size
            headers.append((data[at : at + name_length], data[at + name_length : at + name_length + value_length]))
            at += name_length + value_length
        group = b""
        if at < len(data):
            group_start, length = at + 1, data[at]
            at = group_start + length
            group = data[group_start:at]
            if not length:
                raise BadRecord("terms with a group of 0 bytes; no bytes say that there is none")
    except error as problem:
        raise BadRecord(f"terms in {len(data)} bytes: {problem}") from None
    terms = Terms._make((*numbers, tuple(headers), group))
    if at != len(data):
        raise BadRecord(f"terms in {len(data)} bytes whose parts add up to {at}")
    if max(terms[1:5]) > RETRY_NEVER_MS:
        raise BadRecord(f"terms with a span of {max(terms[1:5])} ms; allowed is up to {RETRY_NEVER_MS}")
    wrong = headers_misfit(terms.headers)
    if wrong or terms == NO_TERMS:
        raise BadRecord(wrong or "terms that promise nothing; no bytes say that")
    return terms


def encode_fate(fate: Fate) -> bytes:
    """Write a fate down; none is no bytes."""
    if fate == NO_FATE:
        return b""
    bits = (
        _DEAD * fate.is_dead | _CANCELLED * fate.is_cancelled | _RIVALS * fate.has_rivals
        | _PROGRESS * (fate.progress is not None) | _RESULT * (fate.result is not None)
    )  # fmt: skip
    parts = [_FATE.pack(fate.generation, bits, fate.spent, len(fate.failures))]
    for at, node_id, who, reason in fate.failures:
        parts += (_FAILURE.pack(at, unhexlify(node_id), len(who), len(reason)), who, reason)
    for word in (fate.progress, fate.result):
        if word is not None:
            parts += (_WORD.pack(word.at, unhexlify(word.node_id), len(word.value)), word.value)
    return b"".join(parts)


def decode_fate(data: bytes) -> Fate:
    """Read a fate back.  Raises BadRecord."""
    if not data:
        return NO_FATE
    try:
        generation, bits, spent, count = _FATE.unpack_from(data)
        if bits > _ALL_BITS or count > FAILURES_KEPT:
            raise BadRecord(
                f"a fate with bits {bits} and {count} failures; allowed are 0 to {_ALL_BITS} and {FAILURES_KEPT}"
            )
        failures, at = _decode_failures(data, count)
        progress = result = None
        if bits & _PROGRESS:
            progress, at = _decode_word(data, at, PROGRESS_MAX)
        if bits & _RESULT:
            result, at = _decode_word(data, at, RESULT_MAX)
    except error as problem:
        raise BadRecord(f"a fate in {len(data)} bytes: {problem}") from None
    if at != len(data):
        raise BadRecord(f"a fate in {len(data)} bytes whose parts add up to {at}")
    fate = Fate(
        generation, bool(bits & _DEAD), spent, bool(bits & _CANCELLED), failures, progress, result, bool(bits & _RIVALS)
    )
    if fate == NO_FATE:
        raise BadRecord("a fate that says nothing; no bytes say that")
    return fate


def _decode_failures(data: bytes, count: int) -> tuple[tuple[Failure, ...], int]:
    """Read so many failures; returns them and where they end."""
    at = _FATE.size
    failures = []
    for _ in range(count):
        when, raw_id, who_length, reason_length = _FAILURE.unpack_from(data, at)
        at += _FAILURE.size
        who = data[at : at + who_length]
        at += who_length + reason_length
        reason = data[at - reason_length : at]
        if when > STAMP_MAX or who_length > CLIENT_NAME_MAX or reason_length > FAILURE_REASON_MAX:
            raise BadRecord(
                f"a failure at {when} with {who_length} and {reason_length} bytes; allowed are up to {STAMP_MAX},"
                f" {CLIENT_NAME_MAX} and {FAILURE_REASON_MAX}"
            )
        failures.append(Failure(when, hexlify(raw_id), who, reason))
    found = tuple(failures)
    if found != last_failures(found):
        raise BadRecord("failures that are not in order, each once")
    return found, at


def _decode_word(data: bytes, at: int, longest: int) -> tuple[Word, int]:
    """Read the progress or result that begins there; returns it and where it ends."""
    when, raw_id, length = _WORD.unpack_from(data, at)
    at += _WORD.size
    if when > STAMP_MAX or length > longest:
        raise BadRecord(f"a value of {length} bytes, set at {when}; allowed are {longest}, and up to {STAMP_MAX}")
    return Word(when, hexlify(raw_id), data[at : at + length]), at + length


# The message.


def _encode_message(message: Fields, now: int) -> bytes:
    kind, job_id, left_ms, nacks, additional_deliveries, fate = message
    data = encode_fate(fate)
    counters = (nacks & _COUNTER_MASK, additional_deliveries & _COUNTER_MASK)
    return b"".join((_MESSAGE.pack(kind, len(job_id), left_ms, *counters, len(data)), job_id, data))


def _decode_message(data: bytes) -> Message:
    need(data, _MESSAGE.size)
    kind, length, left_ms, nacks, additional_deliveries, size = _MESSAGE.unpack_from(data)
    if left_ms > RETRY_NEVER_MS:
        raise BadMessage(f"FATE: {left_ms} ms; allowed are 0 to {RETRY_NEVER_MS}")
    job_id, at = cut_id(data, _MESSAGE.size, length)
    ends_at(data, at + size)
    return (kind, job_id, left_ms, nacks, additional_deliveries, decode_fate(data[at:]))


def _encode_redrive(message: Fields, now: int) -> bytes:
    kind, queue, number, first, count, last, ids = message
    head = _REDRIVE.pack(kind, number, first, count, last, len(queue), len(ids))
    return b"".join((head, queue, *(bytes((len(job_id),)) + job_id for job_id in ids)))


def _decode_redrive(data: bytes) -> Message:
    need(data, _REDRIVE.size)
    kind, number, first, count, _, length, id_count = _REDRIVE.unpack_from(data)
    last = flag_of(data, _LAST_AT)
    queue, at = cut(data, _REDRIVE.size, length, length)
    ids = []
    for _ in range(id_count):
        need(data, at + 1)
        job_id, at = cut_id(data, at + 1, data[at])
        ids.append(job_id)
    ends_at(data, at)
    return (kind, queue, number, first, count, last, tuple(ids))


def _encode_redriven(message: Fields, now: int) -> bytes:
    return _REDRIVEN.pack(*message)


def _decode_redriven(data: bytes) -> Message:
    ends_at(data, _REDRIVEN.size)
    kind, number, count, rest = _REDRIVEN.unpack(data)
    if rest > OWNED_ELSEWHERE:
        raise BadMessage(f"REDRIVEN: rest {rest}; allowed are 0 to {OWNED_ELSEWHERE}")
    return (kind, number, count, rest)


CODECS: Final[dict[int, Codec]] = {
    REDRIVE: Codec(
        "number 4, first 4, count 4, last 1, length of queue 4, number of ids 4, queue; for each id: length 1, id",
        _encode_redrive,
        _decode_redrive,
    ),
    REDRIVEN: Codec("number 4, count 4, rest 1", _encode_redriven, _decode_redriven),
    FATE: Codec(
        "length of job id 1, left 8, nacks 4, additional deliveries 4, length of fate 4, job id, a fate as in `fates`",
        _encode_message,
        _decode_message,
    ),
}
