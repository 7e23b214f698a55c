"""What was appended and is in no transaction yet: numbered notes, in their order."""

from collections.abc import Iterator

from disqued.core.model.clock import Clock
from disqued.core.model.outbox import Record
from disqued.core.recovery import draw
from disqued.persistence.sqlite.rows import Note, noted


class PendingNotes:
    """Makes notes of records, numbers them, and keeps those that wait for a transaction."""

    def __init__(self, clock: Clock) -> None:
        self.notes: list[Note] = []  #: those that wait
        self._clock = clock
        self._next_number = 1

    def begin_at(self, number: int) -> None:
        self._next_number = number

    def number(self, records: list[Record], *, with_state: bool = False) -> list[Note]:
        """Make notes of records as they are now; they are not kept here."""
        wall = self._clock.wall()
        first = self._next_number
        self._next_number += len(records)
        return noted(records, first, wall, wall - self._clock.now(), with_state=with_state)

    def slices(self, records: Iterator[Record | None], size: int) -> Iterator[list[Note]]:
        """Make notes of what a walk over the node meets, so many at a time; they are not kept here."""
        while (some := draw(records, size)) is not None:
            yield self.number(some)

    def append(self, records: list[Record]) -> None:
        """Keep notes of records as they are now."""
        self.notes += self.number(records)

    def take(self) -> list[Note]:
        notes, self.notes = self.notes, []
        return notes

    def put_back(self, notes: list[Note]) -> None:
        """Keep notes again that a transaction did not take, in front of the others."""
        self.notes = notes + self.notes

    def forget(self) -> None:
        self.notes = []
