"""Notes that wait for a transaction: their numbers and their order."""

from disqued.persistence.sqlite.pending import PendingNotes
from disqued.persistence.sqlite.rows import Note
from disqued.testing.clock import Clock
from tests.databases import added


def numbers(notes: list[Note]) -> list[int]:
    return [note[1] for note in notes]


def test_notes_that_no_transaction_took_stay_in_front() -> None:
    pending = PendingNotes(Clock())
    pending.append([added(1), added(2)])
    notes = pending.take()
    assert pending.notes == []
    pending.append([added(3)])
    pending.put_back(notes)
    assert numbers(pending.notes) == [1, 2, 3]
    pending.forget()
    assert pending.notes == []


def test_every_note_has_the_next_number_whether_it_waits_or_not() -> None:
    pending = PendingNotes(Clock())
    pending.begin_at(7)
    pending.append([added(1)])
    slices = pending.slices(iter([added(number) for number in range(5)]), 2)
    assert [numbers(notes) for notes in slices] == [[8, 9], [10, 11], [12]]
    pending.append([added(2)])
    assert numbers(pending.notes) == [7, 13]
