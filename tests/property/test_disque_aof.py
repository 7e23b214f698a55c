"""Any journal of Disque is read as it was written, however it arrives; any other bytes are refused in words."""

from hypothesis import example, given
from hypothesis import strategies as st

from disqued.core.model.job import ACTIVE, QUEUED, STAMP_MAX
from disqued.wire.disque_aof import DeletedJob, DisqueAof, LoadedJob
from tests.disque_journal import Entry, attempt, job_id, journal, read_in

u16, u32 = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1)
ids = st.builds(job_id, st.integers(0, 10**20), retry_s=st.integers(0, 1), first=st.booleans())
nodes = st.lists(st.binary(min_size=20, max_size=20).map(lambda raw: raw.hex().encode()), max_size=3)
strings = st.one_of(st.binary(max_size=40), st.just(b"*2\r\n$7\r\nLOADJOB\r\n$"))


@st.composite
def loaded_jobs(draw: st.DrawFn) -> LoadedJob:
    chosen = draw(ids)
    is_first = chosen.startswith(b"DI")
    state = draw(st.sampled_from([ACTIVE, QUEUED]))
    return LoadedJob(
        id=chosen,
        queue=draw(strings),
        body=draw(strings),
        state=state,
        queued_before=state == QUEUED or draw(st.booleans()),
        delivered=draw(st.booleans()),
        replicate=draw(u16),
        expires_s=draw(u32),
        ctime=draw(st.integers(0, STAMP_MAX)),
        delay_s=draw(u32),
        retry_s=draw(u32),
        nacks=0 if is_first else draw(u16),
        additional_deliveries=0 if is_first else draw(u16),
        nodes=tuple(draw(nodes)),
    )


journals = st.lists(st.one_of(loaded_jobs(), st.builds(DeletedJob, ids)), max_size=6)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """The bytes, cut where told."""
    places = sorted({min(cut, len(data)) for cut in cuts})
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


@given(journals, st.lists(st.integers(0, 1_000), max_size=8))
def test_a_journal_reads_as_it_was_written_in_pieces_of_any_size(written: list[Entry], cuts: list[int]) -> None:
    data = journal(*written)
    found, reader = read_in(pieces(data, cuts))
    assert found == written
    assert (reader.count, reader.size, reader.torn) == (len(written), len(data), "")


def outcome(chunks: list[bytes]) -> tuple[list[Entry], object]:
    """The records of any bytes, and how they end."""
    reader = DisqueAof(chunks)
    size = sum(map(len, chunks))
    found, error = attempt(reader)
    if error is not None:
        assert reader.size == error.start <= error.offset < size
        assert len(str(error)) < 500
        return found, (error.offset, error.number)
    assert (reader.size == size) is (reader.torn == "")
    return found, reader.torn


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=4))
@example(b"*2\r\n$7\r\nLOADJOB\r\n$84\r\n" + b"\0" * 90, [])
def test_any_bytes_give_records_or_say_where_they_are_wrong(data: bytes, cuts: list[int]) -> None:
    whole = outcome([data])
    # The pieces are no part of the outcome.
    assert outcome(pieces(data, cuts)) == whole
    assert outcome([data[at : at + 1] for at in range(len(data))]) == whole


@given(
    journals.filter(bool),
    st.integers(0, 10_000),
    st.integers(0, 10_000),
    st.one_of(st.binary(max_size=12), st.sampled_from([b"\r\n", b"$", b"\xff\xff\xff\xff", b"\0\0\0\0"])),
)
def test_a_journal_with_other_bytes_within_gives_records_or_says_where_it_is_wrong(
    written: list[Entry], start: int, length: int, new: bytes
) -> None:
    data = journal(*written)
    at = start % len(data)
    changed = data[:at] + new + data[at + length % 8 :]
    found, end = outcome([changed])
    untouched = sum(len(journal(*written[:count])) <= at for count in range(1, len(written) + 1))
    assert found[:untouched] == written[:untouched]
    assert outcome([changed[:at], changed[at:]]) == (found, end)
