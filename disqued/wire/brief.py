"""The replies that a busy node writes most, each spelt in one step: ids, counts, errors and jobs; and plain values.

They are spelt as `wire/replies.py` says, which has all kinds of replies and these among them.  This is compiled with
the core, for every ADDJOB, GETJOB and ACKJOB ends here.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from disqued.wire.pieces import Text, text_of

#: Headers of words shorter than this are spelt in advance.
SMALL_LENGTH: Final = 1024
#: Integers below this are spelt in advance.
SMALL_INTEGERS: Final = 1024

#: Integers from here to there are spelt as such; larger ones have spellings of their own.
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

_CR: Final = 0x0D
_LF: Final = 0x0A
_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")


def encode_status(value: bytes) -> bytes:
    """Spell a status line."""
    # Looking for two bytes takes a fraction of the time that a translation does.
    return b"+%b\r\n" % (value.translate(_ONE_LINE) if _CR in value or _LF in value else value)


def encode_error(text: bytes) -> bytes:
    """Spell an error line; `text` begins with its word, as in b"ERR syntax error"."""
    return b"-" + text.translate(_ONE_LINE) + b"\r\n"


_INTEGERS: Final = [b":%d\r\n" % number for number in range(SMALL_INTEGERS)]


def encode_integer(number: int) -> bytes:
    """Spell an integer of at most 64 bits."""
    return _INTEGERS[number] if 0 <= number < SMALL_INTEGERS else b":%d\r\n" % number


def append_plain(value: Any, resp3: bool, parts: list[bytes], append_other: Callable[..., None]) -> None:
    """Append the pieces that spell bytes, an integer of 64 bits, None, or an array of such; `append_other` has others.

    Only of these classes themselves: what inherits from them may be another kind of reply.
    """
    kind = value.__class__
    if kind is bytes:
        word: bytes = value
        size = len(word)
        if size < SMALL_LENGTH:
            parts.append(_BULK_HEADERS[size])
            parts.append(word)
            parts.append(b"\r\n")
        else:
            parts += (b"$%d\r\n" % size, word, b"\r\n")
    elif kind is int and INT64_MIN <= value <= INT64_MAX:
        parts.append(encode_integer(value))
    elif kind is list or kind is tuple:
        parts.append(b"*%d\r\n" % len(value))
        for element in value:
            append_plain(element, resp3, parts, append_other)
    elif value is None:
        parts.append(b"_\r\n" if resp3 else b"$-1\r\n")
    else:
        append_other(value, resp3, parts)


_BULK_HEADERS: Final = [b"$%d\r\n" % length for length in range(SMALL_LENGTH)]
#: The bytes before the words of a job, by the length of the word.
_QUEUE_HEADERS: Final = [b"*3\r\n$%d\r\n" % length for length in range(SMALL_LENGTH)]
_ONE_JOB_HEADERS: Final = [b"*1\r\n%b" % header for header in _QUEUE_HEADERS]
_WORD_HEADERS: Final = [b"\r\n$%d\r\n" % length for length in range(SMALL_LENGTH)]


def encode_jobs(jobs: Sequence[tuple[bytes, bytes, bytes]]) -> Text:
    """Spell what GETJOB answers without counters: [(queue, id, body), ...].

    A word is copied once, by the join, and not at all where the reply is large.
    """
    if len(jobs) == 1:  # nearly always
        queue, job_id, body = jobs[0]
        if len(queue) < SMALL_LENGTH and len(body) < SMALL_LENGTH:
            id_header, body_header = _WORD_HEADERS[len(job_id)], _WORD_HEADERS[len(body)]
            return b"".join([_ONE_JOB_HEADERS[len(queue)], queue, id_header, job_id, body_header, body, b"\r\n"])
    parts = [b"*%d\r\n" % len(jobs)]
    for queue, job_id, body in jobs:
        size = len(body)
        parts.append(_QUEUE_HEADERS[len(queue)] if len(queue) < SMALL_LENGTH else b"*3\r\n$%d\r\n" % len(queue))
        parts.append(queue)
        parts.append(_WORD_HEADERS[len(job_id)])
        parts.append(job_id)
        parts.append(_WORD_HEADERS[size] if size < SMALL_LENGTH else b"\r\n$%d\r\n" % size)
        parts.append(body)
        parts.append(b"\r\n")
    return text_of(parts)


def encode_fetched2(rows: Any) -> Text:
    """Spell what GETJOB answers in RESP2: rows as `encode_jobs` has them, or with more behind; None = nothing."""
    return b"*-1\r\n" if rows is None else _encode_rows(rows)


def encode_fetched3(rows: Any) -> Text:
    """Spell it in RESP3."""
    return b"_\r\n" if rows is None else _encode_rows(rows)


def _encode_rows(rows: Any) -> Text:
    if not rows or len(rows[0]) == 3:
        return encode_jobs(rows)
    parts = [b"*%d\r\n" % len(rows)]
    for row in rows:
        parts.append(b"*%d\r\n" % len(row))
        for value in row:
            if isinstance(value, bytes):
                parts += (b"$%d\r\n" % len(value), value, b"\r\n")
            elif isinstance(value, list):
                parts.append(b"*%d\r\n" % len(value))
                for word in value:
                    parts += (b"$%d\r\n" % len(word), word, b"\r\n")
            else:
                parts.append(encode_integer(value))
    return text_of(parts)


def ids_of_jobs(rows: Any) -> list[bytes]:
    """The ids in such rows."""
    return [row[1] for row in rows]
