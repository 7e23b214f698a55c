"""A job as a row: the columns, and what a daemon tells of a job put into them.

    SHOW id --> [name, value, name, value ...] --> what a row needs of it, of many jobs --> an Arrow batch of 11 columns

What is needed is looked for once: daemons of a version tell it in one order, and each reply is compared with that.

A daemon does not say when a job was handed out: `attempt_ts` is null in a table, and in a stream it is the moment at
which the reader was given the job.  Times are aware, UTC, microseconds.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from disqued.client.errors import BadReply
from disqued.wire import texts

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
        StructField("headers", MapType(StringType(), BinaryType(), valueContainsNull=False), nullable=False),
        StructField("attempt", IntegerType(), nullable=False),
        StructField("group", StringType(), nullable=True),
    ]
)
#: Spark takes no batch that differs in the least from this.
ARROW: Final = to_arrow_schema(SCHEMA, timezone="UTC")
NS_IN_US: Final = 1_000

#: What is needed of what SHOW tells of a job, in this order.
NEEDED: Final = (b"id", b"queue", b"body", b"ctime", b"nacks", b"additional-deliveries", b"state", b"retry")
#: Places in that.
QUEUE: Final = 1
BODY: Final = 2
NACKS: Final = 4
DELIVERIES: Final = 5
STATE: Final = 6
RETRY: Final = 7
HEADERS: Final = 8
ATTEMPT: Final = 9
GROUP: Final = 10
ACKED: Final = b"acked"  #: the state of a job that is done

#: Names and values of headers in turn.
HeaderWords: TypeAlias = Sequence[bytes]
NO_HEADERS: Final[HeaderWords] = ()
NO_GROUP: Final = b""
#: That, then headers, the number of the delivery and the group: `ctime` is nanoseconds since 1970 (None = not known),
#: `retry` is seconds.  A node has no body of what is done.
Told: TypeAlias = tuple[bytes, bytes, bytes, int | None, int, int, bytes, int, HeaderWords, int, bytes]


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
        # What nearly no job has comes behind that.
        more = told(reply[known[1] :]) if len(reply) > known[1] else {}
        attempt = more.get(b"attempt", 1 + job[NACKS] + job[DELIVERIES])
        return (*job, more.get(b"headers", NO_HEADERS), attempt, more.get(b"group", NO_GROUP))

    def _find(self, names: list[bytes]) -> tuple[list[bytes], int, Callable[[Sequence[Any]], tuple[Any, ...]]]:
        missing = [name.decode() for name in NEEDED if name not in names]
        if missing:
            raise BadReply(f"what answers is no node of disqued: SHOW tells nothing of {', '.join(missing)}")
        places = [names.index(name) for name in NEEDED]
        count = max(places) + 1
        return names[:count], 2 * count, itemgetter(*(2 * place + 1 for place in places))


needed: Final = _Places().needed


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
    columns = list(zip(*jobs, strict=True)) if jobs else [()] * (GROUP + 1)
    ids, queues, bodies, ctimes, nacks, deliveries = columns[:STATE]
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
        pa.array([header_pairs(words) for words in columns[HEADERS]], kinds[8]),
        pa.array(columns[ATTEMPT], kinds[9]),
        pa.array([group_name(group) for group in columns[GROUP]], kinds[10]),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def header_pairs(words: HeaderWords) -> list[tuple[str, bytes]]:
    """Return names and values of headers, which come in turn; names are ASCII."""
    return [(name.decode(), value) for name, value in zip(words[::2], words[1::2], strict=True)]


def group_name(group: bytes) -> str | None:
    """Write the name of a group as that of a queue; None for a job without one."""
    return texts.text(group) if group else None


def _names(queues: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    known = {name: texts.text(name) for name in set(queues)}
    if len(known) == 1:
        return pa.repeat(pa.scalar(*known.values(), kind), len(queues))
    return pa.array([known[name] for name in queues], kind)
