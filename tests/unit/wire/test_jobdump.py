"""Jobs and events as bytes."""

import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disqued.core.model.calendar import LastFiring
from disqued.core.model.fate import NO_FATE
from disqued.core.model.gates import throttle_name
from disqued.core.model.groups import new_job, scope_of
from disqued.core.model.job import (
    ACTIVE,
    FLAG_DELIVERED,
    KIND_LOG,
    KIND_WORK,
    QUEUED,
    STAMP_MAX,
    Job,
    JobOptions,
    NamedJob,
)
from disqued.core.model.outbox import (
    FLUSHED,
    GROUP,
    JOB_ADDED,
    JOB_GONE,
    POLICY,
    QUEUE_PAUSED,
    UNIT_DONE,
    UNIT_LEASED,
    WATERMARK,
    Record,
)
from disqued.core.model.policies import (
    BACKOFF_FIELD,
    COUNTER_MAX,
    FIELD_NAMES,
    GROUP_THROTTLE_FIELD,
    NUMBER_FIELDS,
    PAUSE_FIELD,
    SCHEDULE_FIELD,
    SCHEDULE_FIRED_FIELD,
    SCHEDULE_PAUSE_FIELD,
    SCHEDULE_REFUSED_FIELD,
    PauseSetting,
    Register,
)
from disqued.core.model.terms import NO_TERMS, Terms
from disqued.wire.jobdump import (
    _POLICY,
    FORMAT,
    SPAN_MAX_MS,
    BadRecord,
    decode_copy,
    decode_record,
    encode_copy,
    encode_event,
    encode_job,
)
from disqued.wire.schedulevalues import encode_schedule
from tests.fates import fates, terms
from tests.schedule_values import JOB_ID, LAST, NIGHTLY, REFUSED, firings, refusals, schedules

ID = b"DI" + b"0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0" + b"SQ"
OLD_ID = b"D-0f0c644f-abcdefghijklmnopqrstuvwx-05a0"
NODE_A, NODE_B = b"a" * 40, b"b" * 40
OFFSET = 1_700_000_000_000

DEPLOY: Record = (POLICY, b"queue", PAUSE_FIELD, Register(3, NODE_A, 23, PauseSetting(1, b"deploy", b"ops")))

spans = st.integers(0, 2**32 * 1_000)
counters = st.integers(0, 2**32 - 1)
ids = st.sampled_from([ID, OLD_ID])
names = st.binary(max_size=300)
node_ids = st.binary(min_size=20, max_size=20).map(lambda raw: raw.hex().encode())
texts = st.text(max_size=300).filter(str.isprintable).map(str.encode)
registers = st.builds(
    Register, st.integers(0, COUNTER_MAX), node_ids, st.integers(0, STAMP_MAX),
    st.builds(PauseSetting, st.integers(0, 3), texts, texts),
)  # fmt: skip


@st.composite
def numbered(draw: st.DrawFn) -> Record:
    """Draw a record of a field of one number."""
    field = draw(st.sampled_from(sorted(NUMBER_FIELDS)))
    number = st.integers(max(1, NUMBER_FIELDS[field].lowest), min(65_535, NUMBER_FIELDS[field].highest))
    register = Register(
        draw(st.integers(0, COUNTER_MAX)), draw(node_ids), draw(st.integers(0, STAMP_MAX)),
        draw(st.just(()) | number.map(lambda number: (number,))),
    )  # fmt: skip
    name = st.binary(max_size=300)
    if field == GROUP_THROTTLE_FIELD:
        name = st.builds(throttle_name, st.binary(max_size=300), st.binary(min_size=1, max_size=255))
    return (POLICY, draw(name), field, register)


scheduled = st.builds(
    Register, st.integers(0, COUNTER_MAX), node_ids, st.integers(0, STAMP_MAX), st.just(()) | schedules()
)
fired = st.builds(
    Register, st.integers(0, COUNTER_MAX), node_ids, st.integers(0, STAMP_MAX),
    st.just(()) | firings(),
)  # fmt: skip
refused = st.builds(Register, st.integers(0, COUNTER_MAX), node_ids, st.integers(0, STAMP_MAX), st.just(()) | refusals)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    kind = draw(st.sampled_from([KIND_WORK, KIND_LOG]))
    options = JobOptions(
        ttl_ms=draw(spans), retry_ms=draw(spans), delay_ms=draw(spans), replicate=draw(st.integers(1, 65_535)),
        kind=kind, terms=NO_TERMS if kind else draw(terms), fate=NO_FATE if kind else draw(fates),
    )  # fmt: skip
    options.stamp(draw(st.integers(0, 2**40)))
    queue, body, alias = draw(names), draw(names), draw(st.one_of(st.just(b""), names))
    job = new_job(draw(ids), queue, body, draw(spans) * 1_000, options, alias=alias)
    holders = draw(st.frozensets(st.binary(min_size=20, max_size=20).map(lambda raw: raw.hex().encode()), max_size=4))
    job.holders = holders or None
    job.flags = draw(st.integers(0, 7))
    job.nacks = draw(counters)
    job.additional_deliveries = draw(counters)
    job.order_key = draw(st.integers(-STAMP_MAX, STAMP_MAX))
    return job


events = st.one_of(
    st.tuples(st.just(UNIT_DONE), ids, st.binary(max_size=300)),
    st.tuples(st.just(JOB_GONE), ids, st.sampled_from([b"expired", b"deleted", b"evicted"])),
    st.just((FLUSHED,)),
    st.tuples(st.just(WATERMARK), st.integers(1, 2**63 - 1)),
    st.tuples(st.just(UNIT_LEASED), ids, names, counters, names),
    st.tuples(st.just(QUEUE_PAUSED), st.binary(max_size=300), st.integers(0, 3)),
    st.tuples(st.just(POLICY), st.binary(max_size=300), st.just(PAUSE_FIELD), registers),
    numbered(),
    st.tuples(st.just(POLICY), st.binary(max_size=300), st.just(SCHEDULE_FIELD), scheduled),
    st.tuples(st.just(POLICY), st.binary(max_size=300), st.just(SCHEDULE_FIRED_FIELD), fired),
    st.tuples(st.just(POLICY), st.binary(max_size=300), st.just(SCHEDULE_REFUSED_FIELD), refused),
    st.tuples(
        st.just(GROUP),
        names,
        st.one_of(st.just(b""), st.builds(scope_of, names, st.integers(0, 10**17))),
        st.dictionaries(
            st.binary(min_size=4, max_size=4).map(lambda raw: raw.hex().encode()), st.integers(0, STAMP_MAX), max_size=4
        ).map(lambda floor: tuple(sorted(floor.items()))),
    ),
)


def example_job() -> Job:
    options = JobOptions(ttl_ms=60_000, retry_ms=6_000, delay_ms=0, replicate=2)
    options.stamp(1_000)
    job = Job(ID, b"queue", b"body", OFFSET * 1_000_000, options)
    job.holders = frozenset({NODE_B, NODE_A})
    return job


def named_job() -> Job:
    options = JobOptions(ttl_ms=60_000, retry_ms=6_000, delay_ms=0, replicate=1)
    options.stamp(1_000)
    return NamedJob(ID, b"queue", b"body", OFFSET * 1_000_000, options, alias=b"alias")


@given(jobs(), st.sampled_from([ACTIVE, QUEUED]))
def test_a_job_comes_back_as_it_was(job: Job, state: int) -> None:
    kind, stored = decode_record(encode_job(job, OFFSET, state))
    assert kind == JOB_ADDED
    assert (stored.id, stored.queue, stored.body, stored.ctime) == (job.id, job.queue, job.body, job.ctime)
    assert (stored.state, stored.flags, stored.holders) == (state, job.flags, job.holders)
    assert (stored.nacks, stored.additional_deliveries) == (job.nacks, job.additional_deliveries)
    assert stored.order_key == job.order_key
    options = job.options
    assert (stored.ttl_ms, stored.retry_ms) == (options.ttl_ms, options.retry_ms)
    assert (stored.delay_ms, stored.replicate, stored.kind) == (options.delay_ms, options.replicate, options.kind)
    assert (stored.terms, stored.fate) == (options.terms, options.fate)
    assert stored.alias == (job.alias if isinstance(job, NamedJob) else b"")
    assert stored.expires == job.expires_at + OFFSET
    assert stored.requeue == (job.requeue_at + OFFSET if job.requeue_at else 0)


@given(events, st.integers(0, 2**50))
def test_an_event_comes_back_with_its_time(event: Record, wall: int) -> None:
    when = () if event[0] in (WATERMARK, POLICY) else (wall,)
    assert decode_record(encode_event(event, wall)) == (*event, *when)


def test_counters_beyond_their_field_do_not_stop_the_journal() -> None:
    job = example_job()
    job.nacks = 2**32 + 5
    assert decode_record(encode_job(job, 0))[1].nacks == 5


def test_a_job_has_one_form_whatever_the_order_of_its_holders() -> None:
    one, other = example_job(), example_job()
    other.holders = frozenset({NODE_A, NODE_B})
    assert encode_job(one, OFFSET) == encode_job(other, OFFSET)


def test_a_job_of_a_hundred_bytes_costs_less_than_a_hundred_more_and_its_names() -> None:
    job = example_job()
    job.holders = None
    assert len(encode_job(job, OFFSET)) - len(job.id + job.queue + job.body) < 100


@given(st.one_of(jobs().map(lambda job: encode_job(job, OFFSET)), events.map(lambda e: encode_event(e, 1))), st.data())
def test_changed_bytes_decode_or_are_refused(record: bytes, data: st.DataObject) -> None:
    changed = bytearray(record)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(len(changed) - 1, 0)))
        changed[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        decoded = decode_record(bytes(changed))
    except BadRecord:
        return
    assert decoded[0] in (JOB_ADDED, UNIT_DONE, JOB_GONE, FLUSHED, QUEUE_PAUSED, UNIT_LEASED, GROUP, WATERMARK, POLICY)


@given(st.binary(max_size=400))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    for head in (b"", *(bytes((FORMAT, kind)) for kind in (JOB_ADDED, UNIT_DONE, QUEUE_PAUSED, UNIT_LEASED, POLICY))):
        try:
            decode_record(head + data)
        except BadRecord as error:
            assert str(error)  # noqa: PT017


@pytest.mark.parametrize(
    "record",
    [
        encode_job(example_job(), OFFSET),
        encode_job(named_job(), OFFSET),
        encode_event((UNIT_DONE, ID, b"group"), 7),
        encode_event((UNIT_LEASED, ID, b"group", 3, b"worker"), 7),
        encode_event((QUEUE_PAUSED, b"queue", 3), 7),
        encode_event(DEPLOY, 7),
    ],
)
def test_every_shorter_or_longer_record_is_refused(record: bytes) -> None:
    for length in range(len(record)):
        with pytest.raises(BadRecord):
            decode_record(record[:length])
    with pytest.raises(BadRecord):
        decode_record(record + b"\0")


def replaced(record: bytes, at: int, value: bytes) -> bytes:
    return record[:at] + value + record[at + len(value) :]


def number(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=value < 0)


JOB = encode_job(example_job(), OFFSET)
NAMED = encode_job(named_job(), OFFSET)
EVENT = encode_event((JOB_GONE, ID, b"expired"), 7)
LEASE = encode_event((UNIT_LEASED, ID, b"", 3, b"worker-1"), 7)
PAUSE = encode_event((QUEUE_PAUSED, b"queue", 3), 7)
POLICY_RECORD = encode_event(DEPLOY, 7)
NIGHTLY_RECORD = encode_event((POLICY, b"nightly", SCHEDULE_FIELD, Register(3, NODE_A, 23, NIGHTLY)), 7)


def _schedule(value: bytes, field: int = SCHEDULE_FIELD) -> bytes:
    """A record of a schedule with these bytes as its value."""
    head = _POLICY.pack(field, 3, bytes.fromhex(NODE_A.decode()), 23, 1, len(value))
    return bytes((FORMAT, POLICY)) + head + b"n" + value


def _throttle(name: bytes, seconds: int = 5) -> bytes:
    """A record of the throttle of a group at this place."""
    return encode_event((POLICY, name, GROUP_THROTTLE_FIELD, Register(9, NODE_A, 23, (seconds * 1_000,))), 7)


GROUP_RECORD = encode_event((GROUP, b"queue", b"0:g", ((b"01234567", 5),)), 7)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (b"", "a record of 0 bytes; the shortest has 13"),
        (replaced(JOB, 0, b"\x09"), "format 9 is not known to this version, which knows 1 to 3"),
        (NAMED[:4], "a job in 4 bytes; the shortest with an alias has 86"),
        (replaced(NAMED, 2, b"\x02"), "a job of kind 2 with an alias of 5 bytes; allowed are 0 to 1"),
        (replaced(NAMED, 3, b"\x00"), "a job of kind 0 with an alias of 0 bytes"),
        (replaced(NAMED, 3, b"\x04"), "where a job begins, after its alias"),
        (replaced(NAMED, 3, b"\xff\xff"), "b'' where a job begins, after its alias"),
        (replaced(JOB, 1, b"\x09"), "kind 9 is not known to this version, which knows 0 to 8"),
        (replaced(JOB, 2, b"\x05"), "state 5 with flags 0; allowed are 0 to 4 and 0 to 15"),
        (replaced(JOB, 3, b"\x10"), "state 1 with flags 16; allowed are 0 to 4 and 0 to 15"),
        (replaced(JOB, 17, number(2**63 - 1)), f"a job of time {2**63 - 1} and order 1700000000000000000; allowed is"),
        (replaced(JOB, 17, number(STAMP_MAX + 1)), f"a job of time {STAMP_MAX + 1} and order"),
        (replaced(JOB, 17, number(-1)), "a job of time -1 and order"),
        (replaced(JOB, 73, number(2**63 - 1)), f"a job of time 1700000000000000000 and order {2**63 - 1}; allowed is"),
        (replaced(JOB, 73, number(-STAMP_MAX - 1)), f"and order {-STAMP_MAX - 1}; allowed is up to {STAMP_MAX}"),
        (replaced(JOB, 41, number(-1)), f"a job with a span of {2**64 - 1} ms; allowed is up to {SPAN_MAX_MS}"),
        (replaced(JOB, 49, number(SPAN_MAX_MS + 1)), f"a job with a span of {SPAN_MAX_MS + 1} ms"),
        (replaced(JOB, 57, number(SPAN_MAX_MS + 1)), f"a job with a span of {SPAN_MAX_MS + 1} ms"),
        (replaced(NAMED, 10 + 17, number(2**63 - 1)), f"a job of time {2**63 - 1} and order"),
        (replaced(JOB, 81, b"X"), "is no job id"),
        (replaced(JOB, len(JOB) - 1, b"B"), "is no node id"),
        (JOB[:-80] + NODE_B + NODE_A, "not in order, each once"),
        (JOB[:-80] + NODE_A + NODE_A, "not in order, each once"),
        (JOB[:50], "a job in 50 bytes; the shortest has 121"),
        (JOB[:-1], "whose parts add up to 218"),
        (EVENT[:5], "an event in 5 bytes; the shortest has 13"),
        (EVENT[:-1], "whose parts add up to 68"),
        (replaced(EVENT, 13, b"X"), "is no job id"),
        (replaced(EVENT, 1, b"\x03"), "a flush that names a job"),
        (LEASE[:18], "a lease in 18 bytes; the shortest has 19"),
        (LEASE[:-1], "a lease in 74 bytes whose parts add up to 75"),
        (replaced(LEASE, 19, b"X"), "is no job id"),
        (PAUSE[:14], "a pause in 14 bytes; the shortest has 15"),
        (PAUSE[:-1], "a pause in 19 bytes whose parts add up to 20"),
        (replaced(PAUSE, 10, b"\x04"), "pause 4; allowed are 0 to 3"),
        (GROUP_RECORD[:17], "a group in 17 bytes; the shortest has 18"),
        (GROUP_RECORD[:-1], "a group in 41 bytes whose parts add up to 42"),
        (POLICY_RECORD[:44], "a policy in 42 bytes; the shortest has 46"),
        (POLICY_RECORD[:-1], "a policy in 59 bytes whose parts add up to 60"),
        (POLICY_RECORD + b"\0", "a policy in 63 bytes whose parts add up to 62"),
        (replaced(POLICY_RECORD, 2, b"\x63"), f"field 99, counter 3, set at 23; allowed are 0 to {max(FIELD_NAMES)}"),
        (replaced(POLICY_RECORD, 2, b"\x01"), "begins 12 bytes of numbers; allowed are 0 to 1 numbers"),
        (replaced(POLICY_RECORD, 50, b"\x04"), "pause 4; allowed are 0 to 3"),
        (replaced(POLICY_RECORD, 51, b"\xff\xff"), "a reason of 65535 bytes"),
        (replaced(POLICY_RECORD, 43, b"\x02")[:-8], "the value of a pause in 2 bytes; the shortest has 3"),
        (replaced(POLICY_RECORD, 53, b"\n"), "a reason or an owner that is not printable UTF-8"),
        (NIGHTLY_RECORD[:60] + b"", "a policy in 58 bytes whose parts add up to"),
        (_schedule(b""), "a schedule in 0 bytes; the shortest has 69"),
        (_schedule(b"\0" * 69), "a schedule with a span above"),
        (_schedule(encode_schedule(NIGHTLY) + b"x"), "whose parts add up to"),
        (_schedule(replaced(encode_schedule(NIGHTLY), 0, b"\x04")), "a schedule of kind 4"),
        (
            _schedule(replaced(encode_schedule(NIGHTLY), 1, b"\x02")),
            "skips 2; allowed are 1 to 3, up to 1000, and 0 or 1",
        ),
        (_schedule(replaced(encode_schedule(NIGHTLY), 0, b"\x02")), "which do not fit"),
        (_schedule(replaced(encode_schedule(NIGHTLY), 4, b"\x01")), "which do not fit"),
        (_schedule(b"DI0", SCHEDULE_FIRED_FIELD), "outcomes of instants in 3 bytes; allowed are up to 5 of 9"),
        (_schedule(b"D" * 48, SCHEDULE_FIRED_FIELD), "is no job id; allowed are 48 bytes"),
        (_schedule(ID + b"\0" * 7, SCHEDULE_FIRED_FIELD), "outcomes of instants in 7 bytes"),
        (_schedule(b"\0" * 54, SCHEDULE_FIRED_FIELD), "is no job id"),
        (_schedule(ID + b"\0" * 62, SCHEDULE_FIRED_FIELD), "outcomes of instants in 54 bytes"),
        (_schedule(ID + b"\xff" * 8, SCHEDULE_FIRED_FIELD), "of instant 18446744073709551615; allowed are 1 to 4"),
        (_schedule(b"\1" * 8 + b"\5", SCHEDULE_FIRED_FIELD), "outcome 5 of instant"),
        (_schedule(b"\1" * 18, SCHEDULE_FIRED_FIELD), "outcomes of instants that are not in order, each once"),
        (_schedule(b"\1" * 7, SCHEDULE_REFUSED_FIELD), "a refusal in 7 bytes; allowed are 8 to 208"),
        (_schedule(b"\0" * 209, SCHEDULE_REFUSED_FIELD), "a refusal in 209 bytes"),
        (_schedule(b"\0" * 9, SCHEDULE_REFUSED_FIELD), "and an error in printable UTF-8"),
        (_schedule(b"\xff" * 8, SCHEDULE_REFUSED_FIELD), "a refusal of instant 18446744073709551615"),
        (_throttle(b"q"), "b'q' names no group of a queue"),
        (_throttle(b"\0q"), "names no group of a queue"),
        (_throttle(b""), "names no group of a queue"),
        (_throttle(b"\1aq", 0), "group-throttle (0,); allowed are 1 to 86400"),
        (replaced(GROUP_RECORD, 23, b"x"), "b'x:g' is no scope"),
        (replaced(GROUP_RECORD, 28, b"G"), "stamp 5 of b'01G34567'"),
    ],
)
def test_what_is_wrong_with_a_record_is_said(record: bytes, text: str) -> None:
    with pytest.raises(BadRecord) as caught:
        decode_record(record)
    assert text in str(caught.value)


@pytest.mark.parametrize("stamp", [0, 1 << 61, (1 << 61) + 1, STAMP_MAX])
def test_a_record_may_have_any_stamp_and_span_that_is_allowed(stamp: int) -> None:
    for sign in (1, -1):
        job = example_job()
        job.ctime, job.order_key = stamp, sign * stamp
        job.options = JobOptions(ttl_ms=SPAN_MAX_MS, retry_ms=SPAN_MAX_MS, delay_ms=SPAN_MAX_MS, replicate=1)
        stored = decode_record(encode_job(job, OFFSET))[1]
        assert (stored.ctime, stored.order_key) == (stamp, sign * stamp)
        assert stored.ttl_ms == stored.retry_ms == stored.delay_ms == SPAN_MAX_MS


# Copies: what a copy has in common with the last one is neither written nor read twice.


def another_than_the_last() -> None:
    """See to it that the next copy has nothing in common with the last one, be it one with terms or without."""
    job = example_job()
    for other in (Terms(max_tries=5, backoff_ms=6, backoff_most_ms=7), NO_TERMS):
        job.options = JobOptions(ttl_ms=1, retry_ms=2, delay_ms=3, replicate=4, terms=other)
        decode_copy(encode_copy(job, 0))


def job_with_terms() -> Job:
    job = example_job()
    job.options = JobOptions(ttl_ms=86_400_000, retry_ms=60_000, delay_ms=0, replicate=3, terms=Terms(max_tries=3))
    return job


def read_alone(data: bytes) -> object:
    another_than_the_last()
    return decode_copy(data)


def written_alone(job: Job) -> bytes:
    another_than_the_last()
    return encode_copy(job, 0)


@given(jobs(), jobs(), st.data())
def test_a_copy_is_the_same_whatever_came_before_it(job: Job, other: Job, data: st.DataObject) -> None:
    # Like the first one, but for one thing or the other.
    for name in ("options", "holders", "body", "queue", "id", "flags", "nacks", "additional_deliveries", "order_key"):
        if data.draw(st.booleans(), label=name):
            setattr(other, name, getattr(job, name))
    for each in (job, other):
        each.expires_at, each.requeue_at = min(each.expires_at, SPAN_MAX_MS), min(each.requeue_at, SPAN_MAX_MS)
    expected = [written_alone(job), written_alone(other)]
    another_than_the_last()
    assert [encode_copy(job, 0), encode_copy(other, 0)] == expected
    copies = [read_alone(text) for text in expected]
    another_than_the_last()
    assert [decode_copy(text) for text in expected] == copies
    assert [decode_copy(b"prefix" + text, 6) for text in expected] == copies


@pytest.mark.reference
@pytest.mark.parametrize("terms_of_both", [NO_TERMS, Terms(max_tries=3)])
def test_copies_of_jobs_with_the_same_options_share_what_these_take_in_memory(terms_of_both: Terms) -> None:
    job, other = example_job(), example_job()
    job.options = other.options = JobOptions(
        ttl_ms=86_400_000, retry_ms=300_000, delay_ms=12_345, replicate=3_000, terms=terms_of_both
    )
    other.body = other.body[::-1]
    another_than_the_last()
    first = decode_copy(encode_copy(job, 0))
    for second in (decode_copy(encode_copy(other, 0)), decode_copy(b"prefix" + encode_copy(other, 0), 6)):
        assert second.body == other.body
        for name in ("ttl_ms", "retry_ms", "delay_ms", "replicate", "terms"):
            assert getattr(second, name) is getattr(first, name)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (17, (STAMP_MAX + 1).to_bytes(8, "little")),
        (17, b"\xff" * 8),
        (25, (SPAN_MAX_MS + 1).to_bytes(8, "little")),
        (25, b"\xff" * 8),
        (33, (SPAN_MAX_MS + 1).to_bytes(8, "little")),
        (33, b"\xff" * 8),
        (73, (STAMP_MAX + 1).to_bytes(8, "little")),
        (73, (-STAMP_MAX - 1).to_bytes(8, "little", signed=True)),
        (81, b"X"),
        (82, b"X"),
        (81 + 46, b"X"),
        (81 + 47, b"X"),
        (81 + 48 + 9, b"X"),
        (len(encode_copy(example_job(), 0)), b"more"),
    ],
)
@pytest.mark.parametrize("job", [example_job(), job_with_terms()], ids=["plain", "with-terms"])
def test_a_copy_is_refused_though_the_last_one_was_nearly_the_same(job: Job, at: int, value: bytes) -> None:
    good = encode_copy(job, 0)
    at += len(good) - len(encode_copy(example_job(), 0))
    bad = good[:at] + value + good[at + len(value) :]
    with pytest.raises(BadRecord) as alone:
        read_alone(bad)
    decode_copy(good)
    with pytest.raises(BadRecord) as after:
        decode_copy(bad)
    assert str(after.value) == str(alone.value)
    for end in range(len(good)):
        with pytest.raises(BadRecord):
            decode_copy(good[:end])


@pytest.mark.parametrize("job", [example_job(), job_with_terms()], ids=["plain", "with-terms"])
def test_a_copy_of_which_one_byte_is_another_one_is_read_as_if_it_came_alone(job: Job) -> None:
    good = encode_copy(job, 0)

    def told(read: Callable[[bytes], object], text: bytes) -> object:
        try:
            return read(text)
        except BadRecord as error:
            return str(error)

    for at, byte in enumerate(good):
        for change in (1, 0x80):
            other = good[:at] + bytes((byte ^ change,)) + good[at + 1 :]
            alone = told(read_alone, other)
            read_alone(good)
            assert told(decode_copy, other) == alone, at


@pytest.mark.parametrize("stamp", [1 << 61, (1 << 61) + 1, STAMP_MAX])
def test_a_copy_may_have_any_stamp_that_is_allowed(stamp: int) -> None:
    for sign in (1, -1):
        job = example_job()
        decode_copy(encode_copy(job, 0))
        job.ctime, job.order_key = stamp, sign * stamp
        copy = decode_copy(encode_copy(job, 0))
        assert (copy.ctime, copy.order_key) == (stamp, sign * stamp)


def test_a_copy_with_terms_is_the_same_after_one_with_an_alias_and_the_same_options() -> None:
    plain = job_with_terms()
    named = new_job(ID, plain.queue, plain.body, plain.ctime, plain.options, alias=b"alias")
    expected = [written_alone(plain), written_alone(named)]
    another_than_the_last()
    assert [encode_copy(job, 0) for job in (named, plain, named)] == [expected[1], *expected]
    assert [decode_copy(text).alias for text in (expected[1], *expected)] == [b"alias", b"", b"alias"]


def test_a_copy_that_cannot_be_written_fails_each_time_and_leaves_the_next_as_it_is() -> None:
    sound, unsound = example_job(), example_job()
    unsound.options = JobOptions(ttl_ms=1, retry_ms=2, delay_ms=3, replicate=1 << 16)
    expected = written_alone(sound)
    for _ in range(2):
        with pytest.raises(struct.error):
            encode_copy(unsound, 0)
        assert encode_copy(sound, 0) == expected


# The bytes of formats 1 and 2: a journal is read by later releases.

BYTES = Path(__file__).parent / "journal_version_1.txt"


def full_job(alias: bytes = b"", kind: int = KIND_WORK) -> Job:
    """A job of which no two numbers are the same."""
    options = JobOptions(ttl_ms=1_001, retry_ms=2_002, delay_ms=3_003, replicate=404, kind=kind)
    job = new_job(ID, b"queue", b"body of it", 5_005, options, alias=alias)
    job.expires_at, job.requeue_at, job.order_key = 6_006, 7_007, -8_008
    job.nacks, job.additional_deliveries, job.flags = 9, 10, FLAG_DELIVERED
    job.holders = frozenset({NODE_B, NODE_A})
    return job


WRITTEN: dict[str, bytes] = {
    "job": encode_job(full_job(), 100_000, QUEUED),
    "job-without-timer": encode_job(example_job(), OFFSET),
    "named-job": encode_job(full_job(b"alias"), 100_000),
    "event": encode_job(full_job(kind=KIND_LOG), 100_000),
    "copy": encode_copy(full_job(), 1_000, b"prefix"),
    "named-copy": encode_copy(full_job(b"alias"), 1_000),
    "unit-done": encode_event((UNIT_DONE, ID, b"0:group"), 11),
    "job-gone": encode_event((JOB_GONE, ID, b"expired"), 12),
    "flushed": encode_event((FLUSHED,), 13),
    "watermark": encode_event((WATERMARK, 14), 99),
    "queue-paused": encode_event((QUEUE_PAUSED, b"queue", 2), 15),
    "unit-leased": encode_event((UNIT_LEASED, ID, b"0:group", 16, b"worker"), 17),
    "unit-leased-before": encode_event((UNIT_LEASED, ID, b"", 16, b"", 18), 99),
    "group": encode_event((GROUP, b"queue", b"0:group", ((b"01234567", 19), (b"abcdef01", 20))), 21),
    "group-before": encode_event((GROUP, b"queue", b"", (), 22), 99),
    "policy": encode_event(DEPLOY, 99),
    **{
        name: encode_event((POLICY, b"nightly", field, register), 99)
        for name, field, register in (
            ("policy-schedule", SCHEDULE_FIELD, Register(3, NODE_A, 23, NIGHTLY)),
            ("policy-schedule-deleted", SCHEDULE_FIELD, Register(4, NODE_A, 24, ())),
            ("policy-schedule-pause", SCHEDULE_PAUSE_FIELD, Register(1, NODE_B, 25, (1,))),
            ("policy-schedule-fired", SCHEDULE_FIRED_FIELD, Register(26, NODE_B, 27, LAST)),
            ("policy-schedule-refused", SCHEDULE_REFUSED_FIELD, Register(28, NODE_B, 29, REFUSED)),
            ("policy-backoff", BACKOFF_FIELD, Register(1, NODE_B, 30, (500, 60_000))),
        )
    },
}


def test_each_record_is_that_of_the_first_release_byte_for_byte() -> None:
    expected = dict(line.split() for line in BYTES.read_text().splitlines())
    assert {name: data.hex() for name, data in WRITTEN.items()} == expected


def test_no_bit_of_a_record_goes_without_a_meaning() -> None:
    for name, data in WRITTEN.items():
        if "copy" in name:
            continue
        sound = decode_record(data)
        for bit in range(8 * len(data)):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            with suppress(BadRecord):
                assert decode_record(bytes(changed)) != sound, (name, bit)


def test_the_last_job_of_a_schedule_is_read_as_it_was_written_before_outcomes_were() -> None:
    for data, last in ((JOB_ID, LastFiring(JOB_ID, 3)), (b"", LastFiring(b""))):
        record = decode_record(_schedule(data, SCHEDULE_FIRED_FIELD))
        assert record == (POLICY, b"n", SCHEDULE_FIRED_FIELD, Register(3, NODE_A, 23, last))
