"""Disque's journal is read exactly, and its jobs become ours as the import promises."""

import re
import tracemalloc
from struct import pack

import attrs
import pytest

from disqued.core.model.job import ACTIVE, FLAG_DELIVERED, FLAG_QUEUED_BEFORE, QUEUED, STAMP_MAX
from disqued.core.model.outbox import GONE_DELETED, JOB_GONE, UNIT_DONE, UNIT_LEASED
from disqued.tools.import_aof import Holdings, make_job
from disqued.wire.disque_aof import BadJournal, DeletedJob, DisqueAof, LoadedJob
from disqued.wire.jobdump import decode_record, encode_job
from tests.disque_journal import (
    NODE,
    NOW_S,
    RECORDED,
    attempt,
    command,
    entries,
    job_id,
    journal,
    loaded,
    moved,
    payload,
    read_in,
    told,
)

WALL = NOW_S * 1_000
OFFSET = WALL - 5_000_000  #: the monotonic clock is at 5 000 s


# Reading.


def test_the_recorded_journal_holds_what_its_node_said() -> None:
    about = told()
    alive: dict[bytes, LoadedJob] = {}
    gone = []
    for entry in entries(RECORDED.read_bytes()):
        if isinstance(entry, LoadedJob):
            alive[entry.id] = entry
        else:
            gone.append(entry.id.decode())
            del alive[entry.id]
    assert gone == about["gone"]
    assert [
        {
            "id": job.id.decode(), "queue": job.queue.decode("latin-1"), "body": job.body.decode("latin-1"),
            "retry": job.retry_s, "delay": job.delay_s, "ttl": job.expires_s - job.ctime // 10**9,
            "repl": job.replicate, "ctime": job.ctime,
        }
        for job in alive.values()
    ] == about["live"]  # fmt: skip
    assert {job.nodes for job in alive.values()} == {(about["node"].encode(),)}
    assert {job.queue: job.state for job in alive.values() if job.state == ACTIVE} == {b"delayed": ACTIVE}


def test_a_record_of_the_first_release_is_read_with_its_longer_id() -> None:
    job = loaded(7, first=True, state=ACTIVE, queued_before=False, delay_s=30, body=b"\r\n$")
    assert len(job.id) == 48
    assert entries(journal(job, DeletedJob(job.id))) == [job, DeletedJob(job.id)]


def test_both_forms_may_stand_in_one_journal() -> None:
    jobs = [loaded(1), loaded(2, first=True), loaded(3, nacks=65_535, additional_deliveries=2, nodes=(NODE, b"f" * 40))]
    assert entries(journal(*jobs)) == jobs


def test_what_has_no_meaning_in_a_journal_is_not_looked_at() -> None:
    job = loaded(1)
    data = bytearray(payload(job, flags=0xF9))
    data[44] |= 0xA0  # attempts to collect an acknowledgement
    assert entries(command(b"LOADJOB", bytes(data))) == [job]


def test_an_empty_file_is_an_empty_journal() -> None:
    assert entries(b"") == []


def test_a_journal_cut_anywhere_gives_its_whole_records_and_says_where_it_is_torn() -> None:
    whole = [loaded(1), DeletedJob(job_id(1)), loaded(2, first=True, body=b""), DeletedJob(job_id(2, first=True))]
    ends = [len(journal(*whole[:count])) for count in range(len(whole) + 1)]
    data = journal(*whole)
    for cut in range(len(data) + 1):
        found, reader = read_in([data[:cut]])
        complete = max(count for count, end in enumerate(ends) if end <= cut)
        assert (found, reader.count, reader.size) == (whole[:complete], complete, ends[complete])
        assert reader.torn == (
            f"the file ends within record {complete + 1}, {cut - ends[complete]} bytes after it begins"
            if cut > ends[complete]
            else ""
        )


def test_one_flipped_bit_takes_no_record_away_in_silence() -> None:
    whole = [loaded(1), DeletedJob(job_id(1)), loaded(2, first=True, body=b""), loaded(3)]
    data = journal(*whole)
    last = len(journal(*whole[:-1]))
    refused = 0
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        reader = DisqueAof([bytes(flipped)])
        found, error = attempt(reader)
        if error is not None:
            refused += 1
            assert error.start <= bit // 8
            assert error.offset <= bit // 8 + 64
        else:
            # No checksum: a bit of a body or of a time is not seen.
            assert len(found) == len(whole) or (reader.torn and reader.size == last)
    assert refused > len(data) * 3


def damaged(number: int = 1, at: int = 0, new: bytes = b"", **fields: object) -> bytes:
    """A LOADJOB whose argument has other bytes from `at` on."""
    data = payload(loaded(number, **fields))
    return command(b"LOADJOB", data[:at] + new + data[at + len(new) :])


START = len(command(b"LOADJOB", b"x" * 129)) - 131  #: where the argument of a LOADJOB with three digits begins


@pytest.mark.parametrize(
    ("data", "offset", "text"),
    [
        (b"PING\r\n", 0, "is neither LOADJOB nor DELJOB"),
        (b"\0" * 50, 0, "is neither LOADJOB nor DELJOB"),
        (b"DISQUEDJ\1\0\0\0", 0, "a journal of Disque has nothing else"),
        (b"*2\r\n$4\r\nPING\r\n", 5, r"b'4\\r\\nPING\\r\\n' is neither"),
        (b"*3\r\n$7\r\nLOADJOB\r\n", 1, "is neither"),
        (b"*2\r\n$7\r\nloadjob\r\n", 8, "is neither"),
        (b"*2\r\n$7\r\nLOADJOB\r\n$x", 18, "b'x' is no length"),
        (b"*2\r\n$7\r\nLOADJOB\r\n$-1\r\n", 18, "b'-1' is no length"),
        (b"*2\r\n$7\r\nLOADJOB\r\n$0129\r\n", 18, "without a zero in front"),
        (b"*2\r\n$7\r\nLOADJOB\r\n$99999999999", 18, "is no length; allowed are numbers to 4294967299"),
        (b"*2\r\n$7\r\nLOADJOB\r\n$4294967300\r\n", 18, "allowed are 84 to 4294967299"),
        (b"*2\r\n$7\r\nLOADJOB\r\n$83\r\n", 18, "a job of 83 bytes; allowed are 84"),
        (b"*2\r\n$6\r\nDELJOB\r\n$41\r\n", 17, "a job id of 41 bytes; allowed are 40 and 48"),
        (b"*2\r\n$6\r\nDELJOB\r\n$48\r\nD-", 21, "a job id of 48 bytes that begins with b'D-'"),
        (command(b"DELJOB", b"D-" + b"x" * 38), 21, "is no job id"),
        (journal(DeletedJob(job_id(1)))[:-2] + b"xx", 61, "no line end"),
        (damaged(at=0, new=b"\x7f"), START - 5, "by the one that it begins with"),
        (damaged(at=4, new=b"X"), START + 4, "is no job id"),
        (damaged(at=44, new=b"\3"), START + 44, r"state 3; .* active \(1\) or queued \(2\)"),
        (damaged(at=44, new=b"\0"), START + 44, "state 0"),
        (damaged(at=59, new=b"\xff"), START + 52, "creation at"),
        (damaged(at=52, new=pack("<Q", STAMP_MAX + 1)), START + 52, f"creation at {STAMP_MAX + 1}; allowed is up to"),
        (damaged(at=72, new=pack("<I", 200)), START + 72, "a queue of 200 bytes where there is room for"),
        (damaged(at=81, new=pack("<I", 2**32 - 1)), START + 81, "a body of 4294967295 bytes where there is room for"),
        (damaged(at=91, new=pack("<I", 2)), START + 91, "2 nodes of 40 bytes each in 40 bytes"),
        (damaged(at=95, new=b"G"), START + 95, "is no node id"),
        (command(b"LOADJOB", pack("<I", 82) + b"DI" + b"x" * 80), 22, "with such an id the shortest has 88"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", [b"", journal(loaded(9), DeletedJob(job_id(9)))])
def test_damage_is_found_at_its_byte(data: bytes, offset: int, text: str, before: bytes) -> None:
    with pytest.raises(BadJournal, match=text) as caught:
        list(DisqueAof([before + data]))
    assert (caught.value.offset, caught.value.start) == (len(before) + offset, len(before))
    assert caught.value.number == (3 if before else 1)
    assert f"damaged at byte {caught.value.offset}, in record {caught.value.number} that begins at byte" in str(
        caught.value
    )


def test_a_length_without_its_bytes_costs_no_memory() -> None:
    data = b"*2\r\n$7\r\nLOADJOB\r\n$4294967299\r\n" + pack("<I", 2**32 - 1) + b"D-"
    tracemalloc.start()
    try:
        _, reader = read_in([data])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reader.torn
    assert peak < 100_000


def test_a_journal_moved_in_time_is_the_same_otherwise() -> None:
    data = RECORDED.read_bytes()
    there_and_back = moved(moved(data, 86_400), -86_400)
    assert entries(there_and_back) == entries(data)
    assert entries(moved(data, 5)) != entries(data)


# Jobs of Disque as ours.


def test_a_job_keeps_what_it_is() -> None:
    job = make_job(loaded(3, nacks=4, additional_deliveries=5, replicate=2, delivered=True), WALL, OFFSET, queues=True)
    assert (job.id, job.queue, job.body, job.ctime) == (job_id(3), b"queue", b"body 3", (NOW_S - 1) * 10**9 + 3)
    assert (job.options.ttl_ms, job.options.retry_ms, job.options.delay_ms, job.options.replicate) == (
        3_601_000, 60_000, 0, 2,
    )  # fmt: skip
    assert job.expires_at + OFFSET == (NOW_S + 3_600) * 1_000
    assert (job.nacks, job.additional_deliveries, job.order_key) == (4, 5, job.ctime)
    assert job.flags == FLAG_QUEUED_BEFORE | FLAG_DELIVERED
    # Nodes of the other cluster are none of ours.
    assert job.holders is None


@pytest.mark.parametrize(
    ("fields", "queues", "state", "before", "requeue_s"),
    [
        # As after a crash, its place in the queue is not known.
        ({}, False, ACTIVE, True, 60),
        ({"retry_s": 0}, False, ACTIVE, True, None),
        ({}, True, QUEUED, True, 60),
        ({"retry_s": 0}, True, QUEUED, True, None),
        ({"state": ACTIVE}, True, ACTIVE, True, 60),
        ({"state": ACTIVE, "retry_s": 0}, True, ACTIVE, True, None),
        # Delayed: until its time, and not longer.
        ({"state": ACTIVE, "queued_before": False, "delay_s": 301}, False, ACTIVE, False, 300),
        ({"state": ACTIVE, "queued_before": False, "delay_s": 301, "retry_s": 0}, False, ACTIVE, False, 300),
        ({"state": ACTIVE, "queued_before": False, "delay_s": 301, "retry_s": 0}, True, ACTIVE, False, 300),
        # The delay is over: a node that was stopped with care never queued it.
        ({"state": ACTIVE, "queued_before": False, "delay_s": 1, "retry_s": 0}, True, ACTIVE, False, 0),
        # A copy of a delayed job on another node bears the mark of a queued one.
        ({"state": ACTIVE, "delay_s": 301}, False, ACTIVE, False, 300),
        ({"state": ACTIVE, "delay_s": 301}, True, ACTIVE, False, 300),
        ({"state": ACTIVE, "delay_s": 1}, True, ACTIVE, True, 60),
        ({"state": ACTIVE, "delay_s": 301, "retry_s": 0}, False, ACTIVE, True, None),
    ],
)
def test_a_job_comes_back_in_its_state(
    fields: dict[str, int], queues: bool, state: int, before: bool, requeue_s: int | None
) -> None:
    job = make_job(loaded(1, **fields), WALL, OFFSET, queues=queues)
    assert job.state == state
    assert bool(job.flags & FLAG_QUEUED_BEFORE) is before
    assert (job.requeue_at and job.requeue_at + OFFSET) == (0 if requeue_s is None else (NOW_S + requeue_s) * 1_000)


def test_a_deadline_that_falls_on_the_zero_of_the_clock_is_not_lost() -> None:
    job = loaded(1, state=ACTIVE, queued_before=False, delay_s=1)
    assert make_job(job, WALL, WALL, queues=True).requeue_at == 1


def test_a_stamp_ahead_of_the_clock_leaves_a_job_its_life() -> None:
    """A clock that was set back while Disque ran, whose stamps never go back."""
    job = loaded(1, ctime=(NOW_S + 7_200) * 10**9)
    assert make_job(job, WALL, OFFSET, queues=False).options.ttl_ms == 3_600_000


def test_the_text_of_damage_fits_in_a_line() -> None:
    with pytest.raises(BadJournal) as caught:
        list(DisqueAof([journal(attrs.evolve(loaded(1), id=b"D-" + b"\n" * 38))]))
    assert re.fullmatch(r".{20,300}", str(caught.value))


# What the store has already.


def test_a_job_that_somebody_has_or_that_a_group_is_done_with_is_there_still() -> None:
    holdings = Holdings()
    job = make_job(attrs.evolve(loaded(), expires_s=NOW_S + 60), WALL, OFFSET, queues=False)
    holdings.note(decode_record(encode_job(job, OFFSET)), WALL)
    assert (holdings.known, holdings.alive) == ({job.id}, {job.id})
    holdings.note((UNIT_LEASED, job.id, b"", 1, b"anna", WALL), WALL)
    holdings.note((UNIT_DONE, job.id, b"group", WALL), WALL)
    assert holdings.alive == {job.id}
    holdings.note((UNIT_DONE, job.id, b"", WALL), WALL)
    assert (holdings.known, holdings.alive) == ({job.id}, set())
    holdings.note((JOB_GONE, job_id(99), GONE_DELETED, WALL), WALL)
    assert holdings.known == {job.id, job_id(99)}
