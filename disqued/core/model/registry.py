"""Jobs by id, in many small tables.

One table of millions of entries stops the world when it grows: Python moves every entry at once, a fifth of a second
at five millions.  Many small ones grow one at a time.  They also give a scan something to hold on to: its cursor
is the number of a table, so an entry that is there throughout a scan is met, whatever comes and goes meanwhile.

Tables are chosen by three characters near the beginning of the middle of an id, which are random, as hex digits and as
base64.  Sixteen ids that a node makes one after the other share them (`ids`): jobs that come together, and go so,
find their table where the processor has it at hand, and not where memory was last touched thousands of jobs ago.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from mypy_extensions import i64

from disqued.core.model.job import Job

TABLES: Final = 4096
_MASK: Final = TABLES - 1
_AT: Final = 11  #: where the three begin: in the middle of either form of id, and in what sixteen ids share
BEGINNING: Final = _AT + 3  #: characters of an id that say which table it is in


def _number(job_id: bytes) -> int:
    """The number of the table of an id."""
    if len(job_id) < _AT + 3:
        return 0
    first: i64 = job_id[_AT]
    second: i64 = job_id[_AT + 1]
    third: i64 = job_id[_AT + 2]
    # The lower half of a character is the value of a digit, but for letters, which go on where digits end.
    first, second, third = first + 9 * (first >> 6), second + 9 * (second >> 6), third + 9 * (third >> 6)
    return ((first & 15) << 8 | (second & 15) << 4 | third & 15) & _MASK


def table_of(beginning: bytes) -> int:
    """Return the number of the table of all ids that begin with `BEGINNING` characters, or more."""
    return _number(beginning)


class Registry:
    """Every job that this node knows, by id."""

    __slots__ = ("_length", "_tables")

    def __init__(self) -> None:
        self._tables: list[dict[bytes, Job]] = [{} for _ in range(TABLES)]
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Job]:
        for table in filter(None, self._tables):
            yield from table.values()

    def get(self, job_id: bytes) -> Job | None:
        """Look a job up."""
        return self._tables[_number(job_id)].get(job_id)

    def add(self, job: Job) -> None:
        """Enter a job whose id is not in here."""
        self._tables[_number(job.id)][job.id] = job
        self._length += 1

    def put(self, job: Job) -> Job | None:
        """Enter a job in the place of one that has the same id, if there is one; returns that one."""
        job_id = job.id
        table = self._tables[_number(job_id)]
        before = table.pop(job_id) if job_id in table else None
        table[job_id] = job
        if before is None:
            self._length += 1
        return before

    def remove(self, job: Job) -> None:
        """Take out a job that is in here."""
        del self._tables[_number(job.id)][job.id]
        self._length -= 1

    def table(self, number: int, start: int = 0, end: int | None = None) -> list[Job]:
        """Return the jobs of one of the `TABLES` tables from one place to another, oldest entry first: O(end)."""
        return list(islice(self._tables[number].values(), start, end))

    def release(self) -> Iterator[int]:
        """Let go of all jobs, table by table; yields how many each held.  The registry is not used again."""
        while self._tables:
            yield len(self._tables.pop())

    def from_table(self, number: int) -> Iterator[tuple[int, list[Job]]]:
        """Yield the tables that hold something, from this number on: number, jobs in the order in which they came."""
        tables = self._tables
        for at in range(number, TABLES):
            if tables[at]:
                yield at, list(tables[at].values())
