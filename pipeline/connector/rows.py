"""A job as a row: the columns, and what a daemon tells of a job put into them.

    SHOW id --> [name, value, name, value ...] --> what a row needs of it, of many jobs --> an Arrow batch of 21 columns

What is needed is looked for once: daemons of a version tell it in one order, and each reply is compared with that.
What a job carries and what became of it (`kept_of`) are columns of stores, too.

A daemon does not say when a job was handed out: `attempt_ts` is null in a table, and in a stream it is the moment at
which the reader was given the job.  Times are aware, UTC, microseconds.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from disqued.client.errors import BadReply
from disqued.core.model.fate import NO_FATE, Failure, Fate, Word
from disqued.core.model.terms import NO_TERMS, Headers, Terms
from disqued.wire import texts

#: A try that failed.
_FAILURE: Final = StructType(
    [
        StructField("at", TimestampType(), nullable=False),
        StructField("node", StringType(), nullable=False),
        StructField("who", StringType(), nullable=False),
        StructField("reason", StringType(), nullable=False),
    ]
)
#: What a job carries and what became of it, named as in exports.
_KEPT: Final = (
    StructField("headers", MapType(StringType(), BinaryType(), valueContainsNull=False), nullable=False),
    StructField("group", StringType(), nullable=True),
    StructField("max_tries", IntegerType(), nullable=False),
    StructField("backoff_ms", LongType(), nullable=False),
    StructField("backoff_most_ms", LongType(), nullable=False),
    StructField("keep_dead_ms", LongType(), nullable=False),
    StructField("keep_result_ms", LongType(), nullable=False),
    StructField("generation", LongType(), nullable=False),
    StructField("is_cancelled", BooleanType(), nullable=False),
    StructField("failures", ArrayType(_FAILURE, containsNull=False), nullable=False),
    StructField("progress", StringType(), nullable=True),
)
SCHEMA: Final = StructType(
    [
        StructField("id", StringType(), nullable=False),
        StructField("queue", StringType(), nullable=False),
        StructField("body", BinaryType(), nullable=False),
        StructField("ctime", TimestampType(), nullable=True),
        StructField("nacks", IntegerType(), nullable=False),
        StructField("additional_deliveries", IntegerType(), nullable=False),
        StructField("attempt_ts", TimestampType(), nullable=True),
        StructField("node", StringType(), nullable=False),
        StructField("attempt", IntegerType(), nullable=False),
        StructField("state", StringType(), nullable=True),
        *_KEPT,
    ]
)
#: Spark takes no batch that differs in the least from this.
ARROW: Final = to_arrow_schema(SCHEMA, timezone="UTC")
NS_IN_US: Final = 1_000
US_IN_MS: Final = 1_000
MS_IN_S: Final = 1_000
SHORT_ID: Final = 8  #: digits of the id of a node in the columns

#: What is needed of what SHOW tells of a job, in this order.
NEEDED: Final = (b"id", b"queue", b"body", b"ctime", b"nacks", b"additional-deliveries", b"state", b"retry")
#: Places in that.
QUEUE: Final = 1
BODY: Final = 2
NACKS: Final = 4
DELIVERIES: Final = 5
STATE: Final = 6
RETRY: Final = 7
ATTEMPT: Final = 8
TERMS: Final = 9
FATE: Final = 10
ACKED: Final = b"acked"  #: the state of a job that is done
#: The states of jobs that are there.
_STATES: Final = {b"queued": "queued", b"active": "active", b"dead": "dead"}

#: That, then the number of the delivery, the terms and the fate: `ctime` is nanoseconds since 1970 (None = not known),
#: `retry` is seconds.  A node has no body of what is done.
Told: TypeAlias = tuple[bytes, bytes, bytes, int | None, int, int, bytes, float, int, Terms, Fate]


def told(reply: Sequence[Any]) -> dict[bytes, Any]:
    """Read names and values of SHOW."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


class _Places:
    """Where replies of SHOW have what is needed."""

    def __init__(self) -> None:
        """Know nothing before the first reply."""
        self._known: tuple[list[bytes], int, Callable[[Sequence[Any]], tuple[Any, ...]]] | None = None

    def needed(self, reply: Sequence[Any]) -> Told:
        """Take what is needed of a reply.  Raises BadReply."""
        known = self._known
        if known is None or reply[: known[1] : 2] != known[0]:
            known = self._known = self._find(list(reply[::2]))
        job = known[2](reply)
        if isinstance(job[RETRY], bytes):  # not whole seconds
            job = (*job[:RETRY], float(job[RETRY]))
        if len(reply) <= known[1]:
            return (*job, 1 + job[NACKS] + job[DELIVERIES], NO_TERMS, NO_FATE)
        # What nearly no job has comes behind that.
        more = told(reply[known[1] :])
        attempt = more.get(b"attempt", 1 + job[NACKS] + job[DELIVERIES])
        return (*job, attempt, _terms_of(more), _fate_of(more))

    def _find(self, names: list[bytes]) -> tuple[list[bytes], int, Callable[[Sequence[Any]], tuple[Any, ...]]]:
        missing = [name.decode() for name in NEEDED if name not in names]
        if missing:
            raise BadReply(f"what answers is no node of disqued: SHOW tells nothing of {', '.join(missing)}")
        places = [names.index(name) for name in NEEDED]
        count = max(places) + 1
        return names[:count], 2 * count, itemgetter(*(2 * place + 1 for place in places))


needed: Final = _Places().needed


def headers_of(words: Sequence[bytes]) -> Headers:
    """Return headers of which a daemon tells names and values in turn."""
    return tuple(zip(words[::2], words[1::2], strict=True))


def _terms_of(more: Mapping[bytes, Any]) -> Terms:
    """Read the terms of a job, of which SHOW tells all or none."""
    if b"max-tries" not in more:
        return NO_TERMS
    spans = (*more[b"backoff"], more[b"keep-dead"], more[b"keep-result"])
    first, most, dead, result = (round(MS_IN_S * float(seconds)) for seconds in spans)
    headers, group = headers_of(more[b"headers"]), more.get(b"group", b"")
    return Terms(more[b"max-tries"], first, most, dead, result, headers, group)


def _fate_of(more: Mapping[bytes, Any]) -> Fate:
    """Read what became of a job that is not over; SHOW does not tell when and to which node it told its progress."""
    if b"generation" not in more:
        return NO_FATE
    return Fate(
        generation=more[b"generation"],
        is_cancelled=b"cancelled" in more,
        failures=tuple(Failure(*one) for one in more[b"failures"]),
        progress=Word(0, b"", more[b"progress"]) if b"progress" in more else None,
    )


def groups_of(reply: Sequence[Any]) -> Sequence[Any]:
    """Take what SHOW tells of the groups of an event: it comes last."""
    return reply[-1] if reply[-2] == b"groups" else ()


@lru_cache
def text(name: bytes) -> str:
    """Write the name of a queue as whoever names it, or a pattern of it, does; `\\xNN` for what is not UTF-8.

    In columns names are as `wire.texts.text` writes them, which can be turned back.
    """
    return name.decode("utf-8", "backslashreplace")


def batch_of(jobs: Sequence[Told], nodes: str | Sequence[str], attempt_us: int | None = None) -> pa.RecordBatch:
    """Put jobs into an Arrow batch: with the node (8 hex digits) that told of all, or of each."""
    columns = list(zip(*jobs, strict=True)) if jobs else [()] * (FATE + 1)
    ids, queues, bodies, ctimes, nacks, deliveries = columns[:STATE]
    kept = list(zip(*map(kept_of, columns[TERMS], columns[FATE]), strict=True)) or [()] * len(_KEPT)
    kinds = ARROW.types
    count = len(jobs)
    arrays = [
        pa.array(ids, kinds[0]),
        _names(queues, kinds[1]),
        pa.array(bodies, kinds[2]),
        pa.array(ctimes, pa.timestamp("ns", "UTC")).cast(kinds[3], safe=False),
        pa.array(nacks, kinds[4]),
        pa.array(deliveries, kinds[5]),
        pa.repeat(pa.scalar(attempt_us, kinds[6]), count),
        pa.repeat(pa.scalar(nodes, kinds[7]), count) if isinstance(nodes, str) else pa.array(nodes, kinds[7]),
        pa.array(columns[ATTEMPT], kinds[8]),
        pa.array([_STATES.get(state) for state in columns[STATE]], kinds[9]),
        *map(pa.array, kept, kinds[10:]),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def kept_of(terms: Terms, fate: Fate) -> tuple[Any, ...]:
    """Return what a job carries and what became of it, as its last columns have it."""
    if terms is NO_TERMS and fate is NO_FATE:
        return _NOTHING_KEPT
    return (
        [(name.decode(), value) for name, value in terms.headers],  # names are ASCII
        texts.text(terms.group) if terms.group else None,
        terms.max_tries,
        terms.backoff_ms,
        terms.backoff_most_ms,
        terms.keep_dead_ms,
        terms.keep_result_ms,
        fate.generation,
        fate.is_cancelled,
        [_failure(one) for one in fate.failures],
        None if fate.progress is None else texts.text(fate.progress.value),
    )


_NOTHING_KEPT: Final[tuple[Any, ...]] = ([], None, 0, 0, 0, 0, 0, 0, False, [], None)


def _failure(one: Failure) -> tuple[int, str, str, str]:
    node, who, reason = map(texts.text, (one.node_id[:SHORT_ID], one.who, one.reason))
    return one.at * US_IN_MS, node, who, reason


def _names(queues: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    known = {name: texts.text(name) for name in set(queues)}
    if len(known) == 1:
        return pa.repeat(pa.scalar(*known.values(), kind), len(queues))
    return pa.array([known[name] for name in queues], kind)
