"""Parsing of replies: from bytes and numbers to the results of commands.

Each reader takes the reply and the id of the node that sent it, and raises BadReply for a malformed reply.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, TypeAlias, TypeVar

from .errors import BadReply
from .job import NO_HEADERS, Job, Topology
from .outcomes import Outcome

T = TypeVar("T")
Reader: TypeAlias = Callable[[object, bytes], T]
#: Results of SHOW and QSTAT, by name: numbers, bytes, and lists of bytes.
Facts: TypeAlias = Mapping[str, object]


def read_raw(reply: object, node: bytes) -> object:
    """Return a reply unchanged."""
    return reply


def read_bytes(reply: object, node: bytes) -> bytes:
    """Read a status or a bulk string."""
    if isinstance(reply, str):  # a status, when the library reads it as text
        return reply.encode()
    if not isinstance(reply, bytes):
        raise BadReply(f"{reply!r} is no string")
    return reply


def read_word(reply: object, node: bytes) -> str:
    """Read a status as text."""
    return read_bytes(reply, node).decode()


def read_number(reply: object, node: bytes) -> int:
    """Read a number."""
    if not isinstance(reply, int):
        raise BadReply(f"{reply!r} is no number")
    return reply


def read_seconds(reply: object, node: bytes) -> int | float:
    """Read a span, which RESP2 has as text where it is not whole."""
    if isinstance(reply, bytes):
        with suppress(ValueError):
            return float(reply)
    if not isinstance(reply, int | float):
        raise BadReply(f"{reply!r} is no number of seconds")
    return reply


def read_list(reply: object) -> list[object]:
    """Read an array; null is an empty one."""
    if reply is None:
        return []
    if not isinstance(reply, list):
        raise BadReply(f"{reply!r} is no array")
    return reply


def read_jobs(reply: object, node: bytes) -> list[Job]:
    """Read `[queue, id, body]` of each job, with counters and headers as names and values after them."""
    return [_job(read_list(row), node) for row in read_list(reply)]


def _job(row: list[object], node: bytes) -> Job:
    more = _pairs(row[3:])
    nacks, additional, attempt = (
        read_number(more.get(name, 0), node) for name in ("nacks", "additional-deliveries", "attempt")
    )
    headers = _headers(more["headers"]) if "headers" in more else NO_HEADERS
    match row[:3]:
        case [bytes() as queue, bytes() as job_id, bytes() as body]:
            return Job(queue, job_id, body, nacks, additional, node, headers, attempt)
    raise BadReply(f"{row!r} is no job")


def _headers(reply: object) -> Mapping[str, bytes]:
    found = _pairs(read_list(reply))
    return {name: read_bytes(value, b"") for name, value in found.items()} if found else NO_HEADERS


def read_outcomes(reply: object, node: bytes) -> list[Outcome]:
    """Read `[id, state, result, tries, reason]` of each job."""
    return [_outcome(read_list(row)) for row in read_list(reply)]


def _outcome(row: list[object]) -> Outcome:
    match row:
        case [bytes() as job_id, bytes() as state, bytes() | None as value, int() as tries, bytes() as reason]:
            return Outcome(job_id, state.decode(), value, tries, reason.decode(errors="replace"))
    raise BadReply(f"{row!r} is no outcome of a job")


def read_outcome(reply: object, node: bytes) -> Outcome:
    """Read the outcome of one job."""
    match read_outcomes(reply, node):
        case [outcome]:
            return outcome
    raise BadReply(f"{reply!r} is not one outcome")


def read_words(reply: object, node: bytes) -> list[str]:
    """Read an array of words."""
    return [read_word(word, node) for word in read_list(reply)]


def read_facts(reply: object, node: bytes) -> Facts | None:
    """Read alternating names and values, or a map; None for null."""
    if reply is None:
        return None
    if isinstance(reply, dict):
        return {read_word(name, node): value for name, value in reply.items()}
    return _pairs(read_list(reply))


#: Spans among the facts of a job, and among those of a schedule.
_OF_JOBS: Final = ("delay", "retry", "backoff", "keep-dead", "keep-result")
_OF_SCHEDULES: Final = ("jitter", "ttl", "retry", "delay", "keepdead", "result")


def read_shown(reply: object, node: bytes) -> Facts | None:
    """Read SHOW: facts, with numbers for spans."""
    return _with_spans(read_facts(reply, node), _OF_JOBS)


def read_schedule(reply: object, node: bytes) -> Facts | None:
    """Read SCHEDULE GET: facts, with numbers for spans."""
    return _with_spans(read_facts(reply, node), _OF_SCHEDULES)


def _with_spans(facts: Facts | None, names: tuple[str, ...]) -> Facts | None:
    if facts is None:
        return None
    spans = {name: facts[name] for name in names if name in facts}
    return {**facts, **{
        name: [read_seconds(part, b"") for part in told] if isinstance(told, list) else read_seconds(told, b"")
        for name, told in spans.items()
    }}  # fmt: skip


def _pairs(row: list[object]) -> dict[str, object]:
    if len(row) % 2:
        raise BadReply(f"{row!r} are no names and values")
    return {read_word(name, b""): value for name, value in zip(row[::2], row[1::2], strict=True)}


def read_page(reply: object, node: bytes) -> tuple[bytes, list[bytes]]:
    """Read a page of a scan: the next cursor and the items."""
    match read_list(reply):
        case [cursor, list() as found]:
            return read_bytes(cursor, node), [read_bytes(each, node) for each in found]
    raise BadReply(f"{reply!r} is no page of a walk")


def read_hello(reply: object, node: bytes) -> Topology:
    """Read HELLO."""
    match reply:
        case [1, bytes() as own, *rows]:
            try:
                return Topology.of(own, [[read_bytes(each, node) for each in read_list(row)] for row in rows])
            except (ValueError, TypeError, AttributeError) as error:
                raise BadReply(f"HELLO answered {reply!r} ({error})") from error
    raise BadReply(f"HELLO answered {reply!r}, which is none of disqued")


def read_info(reply: object, node: bytes) -> dict[str, str]:
    """Read INFO: `name:value` in lines."""
    lines = read_word(reply, node).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
