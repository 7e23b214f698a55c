"""Messages at the limits of their fields, and the bytes of version 1 of the bus."""

from pathlib import Path
from struct import pack

import pytest

from disqued.core.cluster.notifications import KINDS
from disqued.core.model import messages as m
from disqued.core.model.fate import NO_FATE
from disqued.core.model.job import ACKED, ALIAS_MAX, ALL_STATES, RETRY_NEVER_MS, STAMP_MAX, Job, JobOptions, NamedJob
from disqued.core.model.messages import DRY, Gossip, Message
from disqued.core.model.outbox import CANCEL, CLIENT_NAME_MAX, DEAD, DELETE, DONE, RETURNED, WORK
from disqued.core.model.peers import PEERS_MAX, RUMOURS_MAX
from disqued.core.model.policies import (
    BACKOFF_FIELD,
    COUNTER_MAX,
    FIELD_NAMES,
    NUMBER_FIELDS,
    OWNER_MAX,
    PAUSE_FIELD,
    RATE_FIELD,
    REASON_MAX,
    SCHEDULE_FIELD,
    SCHEDULE_FIRED_FIELD,
    SCHEDULE_PAUSE_FIELD,
    SCHEDULE_REFUSED_FIELD,
    TTL_FIELD,
    PauseSetting,
    Policy,
    Register,
)
from disqued.testing.clock import WALL_MS
from disqued.wire.fields import BadMessage
from disqued.wire.messages import decode, encode
from disqued.wire.questionmessages import WORDS_MAX
from tests.fates import FATE
from tests.schedule_values import LAST, NIGHTLY, REFUSED

NOW = 5_000
ID = b"DI" + b"0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0" + b"SQ"
NODE_A, NODE_B = b"a" * 40, b"b" * 40
SPAN = RETRY_NEVER_MS  #: ms of any span, at most
U16, U32, U64 = 2**16 - 1, 2**32 - 1, 2**64 - 1
SCOPE = b"s" * U16
WORKER = b"w" * m.WORKER_NAME_MAX
NODES = frozenset(b"%040x" % number for number in range(1_000))
FULL = m.NODE_LEAVING | m.NODE_FULL
RUMOUR = Gossip(NODE_A, "255.255.255.255", U16, U16, m.NODE_LEAVING | m.NODE_PFAIL | m.NODE_FAIL)
FACT = m.EntryStatus(ID, (b"0:a", SCOPE), (m.EntryLease(SCOPE, SPAN, 1, 2), m.EntryLease(b"0:b", 1, SPAN, U32)))
HELD = m.Held(ID, SCOPE, U32, SPAN)
FLOOR = {b"%08x" % number: STAMP_MAX - number for number in range(2 * PEERS_MAX)}


def a_job(alias: bytes = b"") -> Job:
    options = JobOptions(ttl_ms=60_000, retry_ms=6_000, delay_ms=0, replicate=2)
    options.stamp(NOW)
    job = NamedJob(ID, b"queue", b"body", 7, options, alias=alias) if alias else Job(ID, b"queue", b"body", 7, options)
    job.holders = frozenset({NODE_B, NODE_A})
    return job


#: Messages that go to the limit of each of their fields.


def policy(value: PauseSetting, *, counter: int = COUNTER_MAX, set_at: int = STAMP_MAX, queue: bytes = b"q") -> Policy:
    """What the cluster says of a queue."""
    return (queue, PAUSE_FIELD, Register(counter, NODE_A, set_at, value))


#: Numbers that are outside of the bounds of a field.
OUTSIDE = [
    # A span below 0 is not written: of those that are not 0 the shortest is 1 ms, which nothing else means.
    *((field, allowed.lowest - 1) for field, allowed in NUMBER_FIELDS.items() if allowed.lowest or not allowed.spans),
    *(
        (field, (allowed.highest + 1) * (1_000 if 0 in allowed.spans else 1))
        for field, allowed in NUMBER_FIELDS.items()
        if allowed.highest < 2**63 - 1
    ),
]
POLICIES = (policy(PauseSetting(1, b"", b"")),) * m.POLICIES_PER_MESSAGE
U64 = (1 << 64) - 1
LONG_SLOT = m.SlotSpan(ID, b"g" * 255, NODE_A, U32, SPAN, b"c" * CLIENT_NAME_MAX)
LARGEST: list[Message] = [
    (m.PING, FULL, (RUMOUR,) * RUMOURS_MAX),
    (m.PONG, FULL, (RUMOUR._replace(host="ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),)),
    (m.FAIL, b"f" * 40),
    (m.VITALS, m.Vitals(b"1" * 32, U64, U64 - 1, U64 - 2, U64 - 3, U64 - 4)),
    (m.GOTJOB, ID),
    (m.DELJOB, ID),
    (m.HOLDERS, ID, NODES),
    (m.SETACK, ID, SCOPE, True, NODES),
    (m.GOTACK, ID, SCOPE, False, NODES),
    (m.GOTACK, ID, b"", True, frozenset()),
    (m.WILLQUEUE, ID, SCOPE),
    (m.ENQUEUE, ID, SCOPE, SPAN),
    (m.WORKING, ID, SCOPE, SPAN),
    *((m.QUEUED, ID, SCOPE, how) for how in (m.AS_BEFORE, m.AGAIN, m.ASKED, m.RETURNED)),
    (m.NEEDJOBS, b"q" * 70_000, m.JOBS_PER_MESSAGE),
    (m.POLLJOBS, b"", m.JOBS_PER_MESSAGE),
    *((m.PAUSE, b"q", bits) for bits in range(4)),
    (m.FLUSH, b"q", 0),
    (
        m.LIVES,
        (m.WorkerStatus(WORKER, U64, SPAN, True), *(m.WorkerStatus(b"v", 0, 0, False),) * (m.WORKERS_PER_MESSAGE - 1)),
    ),
    (m.LEASED, WORKER, U64, SPAN, (HELD,) * m.JOBS_PER_MESSAGE),
    (m.HANDOVER, WORKER, U64, WORKER, (b"q" * 70_000, b""), (HELD,) * m.JOBS_PER_MESSAGE, False),
    (m.HANDOVER, b"w", 0, b"", (), (), True),
    (m.LISTEN, False),
    (m.LISTEN, True),
    *((m.EVENT, b"q" * 70_000, kind, b"c" * 70_000) for kind in KINDS),
    (m.DELIVERED, ID, SCOPE, SPAN, 1, 2),
    (m.DELIVERED, ID, b"", 1, SPAN, U32),
    (m.CLAIM, b"q", U32, m.JOBS_PER_MESSAGE, 1, WORKER),
    (m.CLAIM, b"", 0, 0, SPAN, b""),
    (m.FACTS, U32, (FACT, *(m.EntryStatus(ID, (), ()),) * (m.FACTS_PER_MESSAGE - 1)), True),
    (m.FACTS, 0, (), False),
    (m.MISSING, U32, (ID,) * m.FACTS_PER_MESSAGE),
    (m.BEGIN, b"q" * 70_000, SCOPE, FLOOR, SPAN, True),
    (m.BEGIN, b"", b"", {}, 0, False),
    *((kind, b"q" * 70_000, SCOPE, whether) for kind in (m.WANT, m.HAVE) for whether in (False, True)),
    (m.TAKE, b"q" * 70_000, SCOPE, U32, m.JOBS_PER_MESSAGE, SPAN, True),
    (m.TAKE, b"", b"", 0, 0, 0, False),
    (m.GIVE, U32, SCOPE, ((ID, b"b" * 70_000), *((ID, b""),) * (m.JOBS_PER_MESSAGE - 1))),
    *((m.SETTLE, b"q" * 70_000, SCOPE, U32, verb, (ID,) * 1_000) for verb in range(m.UNSEEN + 1)),
    (m.SETTLED, U32, tuple((ID, number % (m.OUTCOME_LATER + 1)) for number in range(1_000))),
    *((m.INQUIRE, b"q" * 70_000, U32, verb, (b"a" * ALIAS_MAX, b"")) for verb in range(m.KEEP + 1)),
    (m.FOUND, U32, ((m.NOT_KNOWN, b""), (m.PENDING, ID), (m.SOON, b""), (m.A_COPY, ID), (m.ENDED, b""))),
    (m.POLICY, U32, (policy(PauseSetting(3, b"r" * REASON_MAX, b"o" * OWNER_MAX), queue=b"q" * 70_000), *POLICIES[1:])),
    (m.POLICY, 0, ()),
    (m.FATE, ID, SPAN, U32, U32, FATE),
    (m.FATE, ID, 0, 0, 0, NO_FATE),
    (m.REDRIVE, b"q" * 70_000, U32, U32, U32, True, (ID,) * 1_000),
    (m.REDRIVE, b"", 0, 0, 0, False, ()),
    (m.PURGE, b"q" * 70_000, U32, ALL_STATES | DRY, U32),
    (m.PURGED, U32, (1 << 64) - 1, True),
    (m.CATCH_UP, (1 << 64) - 1),
    (m.CAUGHT_UP, (1 << 64) - 1),
    (m.REDRIVEN, U32, U32, m.OWNED_ELSEWHERE),
    (m.WATCH, U32, (ID,) * m.IDS_PER_MESSAGE),
    (m.OUTCOME, U32, (m.Outcome(ID, m.WAS_ACKED, U32, FATE),) * m.IDS_PER_MESSAGE),
    (m.CANCEL, U32, (ID,) * m.IDS_PER_MESSAGE),
    (m.CANCELLED, U32, ((ID, m.WAS_ACKED),) * m.IDS_PER_MESSAGE),
    (
        m.SLOTS_WANTED,
        b"q" * 70_000,
        U64,
        U32,
        U32,
        True,
        (m.SlotWish(ID, -(1 << 63), b"g" * 255, SPAN),) * 1_000,
        (LONG_SLOT,) * 1_000,
        (ID,) * 1_000,
        (ID,) * 1_000,
    ),
    (m.SLOTS_WANTED, b"", 0, 0, 0, False, (), (), (), ()),
    (m.SLOTS_GIVEN, b"q" * 70_000, U64, U32, U32, (ID,) * m.WISHES_PER_MESSAGE, (ID,), (ID,) * 1_000),
    (m.NEEDOTHERS, b"q" * 70_000, m.JOBS_PER_MESSAGE, True, (b"g" * 255,) * m.GROUPS_PER_MESSAGE),
    (m.SLOTS_KEEP, b"q" * 70_000, U64, U64 - 1, U64, (LONG_SLOT,) * m.SLOTS_MAX, (ID,) * 1_000),
    (m.SLOTS_KEPT, b"q" * 70_000, U64, NODE_A, U64),
    (m.SLOTS_CLAIM, b"q" * 70_000, U64),
    (
        m.SLOTS_CLAIMED,
        b"q" * 70_000,
        U64,
        b"",
        m.SlotsKnown(True, U64, NODE_B, U64, (LONG_SLOT,) * 1_000),
        (LONG_SLOT,),
    ),
    (m.ASK, U32, (b"w" * 70_000,) * WORDS_MAX),
    (m.TOLD, U32, True, b"ERR " + b"e" * 1_000_000),
    (m.TOLD, U32, False, [[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]),
]


def named(message: Message) -> str:
    return m.NAMES[message[0]]


@pytest.mark.parametrize("message", LARGEST, ids=named)
def test_a_message_at_the_limit_of_each_field_comes_back_as_it_was(message: Message) -> None:
    assert decode(encode(message, NOW)) == message


@pytest.mark.parametrize("kind", [m.REPLJOB, m.YOURJOBS, m.CLAIMED])
@pytest.mark.parametrize("flag", [False, True])
def test_a_message_with_jobs_brings_each_field_of_them_and_its_own(kind: int, flag: bool) -> None:
    jobs = (a_job(), a_job(b"e" * ALIAS_MAX), *(a_job(),) * (m.JOBS_PER_MESSAGE - 2))
    if kind == m.REPLJOB:
        _, got, told = decode(encode((kind, jobs[flag], flag), NOW))
        received, sent = (got,), jobs[flag : flag + 1]
    elif kind == m.YOURJOBS:
        _, received, told = decode(encode((kind, jobs, flag), NOW))
        sent = jobs
    else:
        _, number, received = decode(encode((kind, U32 - flag, jobs), NOW))
        sent, told = jobs, number == U32 - 1
        assert number == U32 - flag
    assert told is flag
    assert [(job.id, job.queue, job.body, job.alias, job.ctime, job.holders) for job in received] == [
        (ID, b"queue", b"body", job.alias if isinstance(job, NamedJob) else b"", 7, {NODE_A, NODE_B}) for job in sent
    ]
    assert {(job.ttl_ms, job.retry_ms, job.delay_ms, job.replicate) for job in received} == {(60_000, 6_000, 0, 2)}


def raised(message: Message, limit: int, size: int) -> bytes:
    """Write a message, with one more in the field of so many bytes that holds this number, which is the only one."""
    data, field = encode(message, NOW), limit.to_bytes(size, "little")
    assert data.count(field) == 1, data.count(field)
    return data.replace(field, (limit + 1).to_bytes(size, "little"))


SHORT_RUMOUR = Gossip(b"e" * 40, "9.9.9.9", 1, 1, 0)
#: Messages of which one number is as large as it may be: the message, the number, its size.
NUMBERS: list[tuple[Message, int, int]] = [
    ((m.PING, 0, (SHORT_RUMOUR,) * RUMOURS_MAX), RUMOURS_MAX, 2),
    ((m.PONG, 0, (SHORT_RUMOUR._replace(flags=7),)), 7, 1),
    ((m.ENQUEUE, ID, b"", SPAN), SPAN, 8),
    ((m.WORKING, ID, b"", SPAN), SPAN, 8),
    ((m.QUEUED, ID, b"", m.RETURNED), m.RETURNED, 8),
    ((m.NEEDJOBS, b"q", m.JOBS_PER_MESSAGE), m.JOBS_PER_MESSAGE, 2),
    ((m.POLLJOBS, b"q", m.JOBS_PER_MESSAGE), m.JOBS_PER_MESSAGE, 2),
    ((m.PAUSE, b"q", 3), 3, 2),
    ((m.FLUSH, b"q", 0), 0, 2),
    ((m.LIVES, (m.WorkerStatus(b"w", 0, SPAN, True),)), SPAN, 8),
    ((m.LIVES, (m.WorkerStatus(WORKER, 0, 0, True),)), m.WORKER_NAME_MAX, 2),
    ((m.LIVES, (m.WorkerStatus(b"w", 0, 0, False),) * m.WORKERS_PER_MESSAGE), m.WORKERS_PER_MESSAGE, 2),
    ((m.LEASED, b"w", 0, SPAN, ()), SPAN, 8),
    ((m.LEASED, WORKER, 0, 0, ()), m.WORKER_NAME_MAX, 2),
    ((m.LEASED, b"w", 0, 0, (m.Held(ID, b"", 1, SPAN),)), SPAN, 8),
    ((m.LEASED, b"w", 0, 0, (m.Held(ID, b"", 1, 0),) * m.JOBS_PER_MESSAGE), m.JOBS_PER_MESSAGE, 2),
    ((m.HANDOVER, WORKER, 0, b"n", (), (), True), m.WORKER_NAME_MAX, 2),
    ((m.HANDOVER, b"w", 0, WORKER, (), (), True), m.WORKER_NAME_MAX, 2),
    ((m.HANDOVER, b"w", 0, b"n", (), (m.Held(ID, b"", 1, 0),) * m.JOBS_PER_MESSAGE, True), m.JOBS_PER_MESSAGE, 2),
    ((m.DELIVERED, ID, b"", SPAN, 1, 2), SPAN, 8),
    ((m.DELIVERED, ID, b"", 1, SPAN, 2), SPAN, 8),
    ((m.CLAIM, b"q", 0, m.JOBS_PER_MESSAGE, 0, b"w"), m.JOBS_PER_MESSAGE, 2),
    ((m.CLAIM, b"q", 0, 1, SPAN, b"w"), SPAN, 8),
    ((m.CLAIM, b"q", 0, 1, 0, WORKER), m.WORKER_NAME_MAX, 2),
    ((m.CLAIMED, 7, (a_job(),) * m.JOBS_PER_MESSAGE), m.JOBS_PER_MESSAGE, 2),
    ((m.YOURJOBS, (a_job(),) * m.JOBS_PER_MESSAGE, False), m.JOBS_PER_MESSAGE, 2),
    ((m.FACTS, 7, (m.EntryStatus(ID, (), ()),) * m.FACTS_PER_MESSAGE, True), m.FACTS_PER_MESSAGE, 2),
    ((m.FACTS, 7, (m.EntryStatus(ID, (), (m.EntryLease(b"", SPAN, 1, 2),)),), True), SPAN, 8),
    ((m.FACTS, 7, (m.EntryStatus(ID, (), (m.EntryLease(b"", 1, SPAN, 2),)),), True), SPAN, 8),
    ((m.MISSING, 7, (ID,) * m.FACTS_PER_MESSAGE), m.FACTS_PER_MESSAGE, 2),
    ((m.BEGIN, b"q", b"g", {}, SPAN, True), SPAN, 8),
    ((m.BEGIN, b"q", b"g", {b"01234567": STAMP_MAX}, 0, True), STAMP_MAX, 8),
    ((m.BEGIN, b"q", b"g", dict.fromkeys(FLOOR, 0), 0, True), 2 * PEERS_MAX, 2),
    ((m.TAKE, b"q", b"g", 7, m.JOBS_PER_MESSAGE, 0, True), m.JOBS_PER_MESSAGE, 2),
    ((m.TAKE, b"q", b"g", 7, 1, SPAN, True), SPAN, 8),
    ((m.GIVE, 7, b"g", ((ID, b""),) * m.JOBS_PER_MESSAGE), m.JOBS_PER_MESSAGE, 2),
    ((m.SETTLE, b"q", b"g", 7, 0, (ID,) * 1_000), 1_000, 2),
    ((m.SETTLED, 7, ((ID, 0),) * 1_000), 1_000, 2),
    ((m.SETTLED, 7, ((ID, m.OUTCOME_LATER),)), m.OUTCOME_LATER, 1),
    ((m.FATE, ID, SPAN, 2, 3, NO_FATE), SPAN, 8),
    ((m.WATCH, 7, (ID,) * m.IDS_PER_MESSAGE), m.IDS_PER_MESSAGE, 2),
    ((m.CANCEL, 7, (ID,) * m.IDS_PER_MESSAGE), m.IDS_PER_MESSAGE, 2),
    ((m.OUTCOME, 7, (m.Outcome(ID, 1, 2, NO_FATE),) * m.IDS_PER_MESSAGE), m.IDS_PER_MESSAGE, 2),
    ((m.OUTCOME, 7, (m.Outcome(ID, m.WAS_ACKED, 2, NO_FATE),)), m.WAS_ACKED, 1),
    ((m.CANCELLED, 7, ((ID, m.WAS_CANCELLED),) * m.IDS_PER_MESSAGE), m.IDS_PER_MESSAGE, 2),
    ((m.CANCELLED, 7, ((ID, m.WAS_ACKED),)), m.WAS_ACKED, 1),
    ((m.POLICY, 7, POLICIES), m.POLICIES_PER_MESSAGE, 2),
    ((m.SLOTS_GIVEN, b"q", 0, 0, 0, (ID,) * m.SLOTS_MAX, (), ()), m.SLOTS_MAX, 4),
    ((m.NEEDOTHERS, b"q", m.JOBS_PER_MESSAGE, True, ()), m.JOBS_PER_MESSAGE, 2),
    ((m.NEEDOTHERS, b"q", 1, True, (b"",) * m.GROUPS_PER_MESSAGE), m.GROUPS_PER_MESSAGE, 1),
    ((m.SLOTS_WANTED, b"q", 0, 0, 0, False, (m.SlotWish(ID, 0, b"", 0),) * 1_000, (), (), ()), 1_000, 4),
    ((m.SLOTS_WANTED, b"q", 0, 0, 0, False, (m.SlotWish(ID, 0, b"", SPAN),), (), (), ()), SPAN, 8),
    ((m.SLOTS_KEEP, b"q", 0, 0, 0, (m.SlotSpan(ID, b"", NODE_A, 0, SPAN, b""),), ()), SPAN, 8),
    ((m.ASK, 7, (b"",) * WORDS_MAX), WORDS_MAX, 2),
    ((m.TOLD, 7, True, b"ERR"), 1, 1),
    ((m.POLICY, 7, POLICIES[:1]), COUNTER_MAX, 8),
    ((m.POLICY, 7, POLICIES[:1]), STAMP_MAX, 8),
    ((m.POLICY, 7, (policy(PauseSetting(3, b"r", b"o"), queue=b"12345678"),)), 3, 1),
    ((m.POLICY, 7, (policy(PauseSetting(1, b"r" * REASON_MAX, b"")),)), REASON_MAX, 2),
]  # fmt: skip


@pytest.mark.parametrize(("message", "limit", "size"), NUMBERS, ids=[named(each[0]) for each in NUMBERS])
def test_one_more_than_the_limit_of_a_field_is_refused_by_what_is_allowed(
    message: Message, limit: int, size: int
) -> None:
    decode(encode(message, NOW))
    with pytest.raises(BadMessage) as caught:
        decode(raised(message, limit, size))
    said = str(caught.value)
    assert said.startswith(named(message) + ": ")
    assert "allowed" in said or "are no worker" in said or "too many" in said


def test_one_node_more_than_a_message_takes_is_refused() -> None:
    for message in ((m.HOLDERS, ID, NODES), (m.SETACK, ID, b"", True, NODES)):
        longer = raised(message, 1_000, 2) + b"\xff" * 20
        with pytest.raises(BadMessage, match=f"{named(message)}: 1001 nodes"):
            decode(longer)


def test_a_willqueue_has_no_number() -> None:
    data = bytearray(encode((m.WILLQUEUE, ID, b""), NOW))
    data[4] = 1
    with pytest.raises(BadMessage, match="WILLQUEUE: 1; allowed is 0 to 0"):
        decode(bytes(data))


@pytest.mark.parametrize(
    "message",
    [
        (m.VITALS, m.Vitals(b"1" * 33, 0, 0, 0, 0, 0)),
        (m.SETTLE, b"q", b"g", 7, m.UNSEEN + 1, ()),
        (m.INQUIRE, b"q", 7, m.KEEP + 1, ()),
        *((m.FOUND, 7, ((how, ID),)) for how in (m.NOT_KNOWN, m.SOON, m.ENDED)),
        *((m.FOUND, 7, ((how, b""),)) for how in (m.PENDING, m.A_COPY)),
        (m.SETTLED, 7, ((ID, m.OUTCOME_LATER + 1),)),
        (m.POLICY, 7, (policy(PauseSetting(1, b"", b""), counter=0),)),
        (m.POLICY, 7, (policy(PauseSetting(1, b"r" * (REASON_MAX + 1), b"")),)),
        (m.POLICY, 7, (policy(PauseSetting(1, b"", b"o" * (OWNER_MAX + 1))),)),
        *((m.POLICY, 7, (policy(PauseSetting(1, text, b"")),)) for text in (b"two\nlines", b"\xff", b"\x7f")),
        (m.POLICY, 7, (policy(PauseSetting(1, b"", b"\r")),)),
        (m.POLICY, 7, ((b"q", 1, Register(1, NODE_A, 0, PauseSetting(1, b"", b""))),)),
        (m.POLICY, 7, ((b"q", max(FIELD_NAMES) + 1, Register(1, NODE_A, 0, ())),)),
        *((m.POLICY, 7, ((b"q", field, Register(1, NODE_A, 0, (number,))),)) for field, number in OUTSIDE),
        (m.POLICY, 7, ((b"q", TTL_FIELD, Register(1, NODE_A, 0, (60, 60))),)),
        (m.POLICY, 7, ((b"q", BACKOFF_FIELD, Register(1, NODE_A, 0, (1, 2, 3))),)),
        *((m.PURGE, b"q", 1, states, 0) for states in (0, DRY, 1 << ACKED, ALL_STATES + 1)),
        *((kind, flags, ()) for kind in (m.PING, m.PONG) for flags in (2, 4, 6, 16, 32, 64, 128)),
    ],
    ids=named,
)
def test_a_number_that_no_version_1_writes_is_refused(message: Message) -> None:
    with pytest.raises(BadMessage, match=f"^{named(message)}: "):
        decode(encode(message, NOW))


@pytest.mark.parametrize("number", [-2_000, -(2**63), -(2**31) * 1_000 - 1])
def test_a_span_that_no_node_writes_is_refused(number: int) -> None:
    """Whole seconds are no milliseconds, so that each span has one form."""
    data = encode((m.POLICY, 7, ((b"q", TTL_FIELD, Register(1, NODE_A, 0, (60_000,))),)), NOW)
    assert data.endswith(pack("<q", 60))
    with pytest.raises(BadMessage, match=r"^POLICY: ttl"):
        decode(data[:-8] + pack("<q", number))


def test_a_standing_that_found_does_not_have_is_refused() -> None:
    data = encode((m.FOUND, 7, ((m.ENDED, b""),)), NOW)
    with pytest.raises(BadMessage, match=r"^FOUND: 5 and an id of 0 bytes; "):
        decode(data.replace(b"\x04", b"\x05"))


@pytest.mark.parametrize(
    ("message", "nearest"),
    [
        ((m.DELIVERED, ID, b"", 1, SPAN + 1, 2), (m.DELIVERED, ID, b"", 1, SPAN, 2)),
        ((m.CLAIM, b"q", 7, 101, SPAN + 1, b"w"), (m.CLAIM, b"q", 7, 100, SPAN, b"w")),
        ((m.ENQUEUE, ID, b"", -1), (m.ENQUEUE, ID, b"", 0)),
        ((m.NEEDJOBS, b"q", -1), (m.NEEDJOBS, b"q", 0)),
        ((m.LEASED, b"w", 1, 0, (m.Held(ID, b"", U32 + 1, -1),)), (m.LEASED, b"w", 1, 0, (m.Held(ID, b"", U32, 0),))),
        ((m.LEASED, b"w", 1, 0, (m.Held(ID, b"", 1, SPAN + 1),)), (m.LEASED, b"w", 1, 0, (m.Held(ID, b"", 1, SPAN),))),
        (
            (m.FACTS, 7, (m.EntryStatus(ID, (), (m.EntryLease(b"", -1, SPAN + 1, U32 + 1),)),), True),
            (m.FACTS, 7, (m.EntryStatus(ID, (), (m.EntryLease(b"", 0, SPAN, U32),)),), True),
        ),
        ((m.BEGIN, b"q", b"g", {b"01234567": -1}, SPAN + 1, True), (m.BEGIN, b"q", b"g", {b"01234567": 0}, SPAN, True)),
        ((m.TAKE, b"q", b"g", 7, 101, SPAN + 1, True), (m.TAKE, b"q", b"g", 7, 100, SPAN, True)),
    ],
    ids=[m.NAMES[kind] for kind in (m.DELIVERED, m.CLAIM, m.ENQUEUE, m.NEEDJOBS, m.LEASED, m.LEASED, m.FACTS, m.BEGIN,
                                    m.TAKE)],
)  # fmt: skip
def test_a_number_beyond_its_field_is_sent_as_the_nearest(message: Message, nearest: Message) -> None:
    assert decode(encode(message, NOW)) == nearest


# ---- The bytes of version 1.  Nodes of two releases run in one cluster while it is upgraded.

BYTES = Path(__file__).parent / "bus_version_1.txt"
SLOT = m.SlotSpan(ID, b"group", NODE_A, 7, 15_000, b"worker-7")
SMALL: list[Message] = [
    (m.PING, m.NODE_LEAVING, (Gossip(NODE_A, "127.0.0.1", 7711, 17711, m.NODE_PFAIL),)),
    (m.PONG, m.NODE_FULL, (Gossip(NODE_B, "2001:db8::1", 0, 1, m.NODE_FAIL),)),
    (m.FAIL, NODE_A),
    (m.REPLJOB, a_job(), False),
    (m.GOTJOB, ID),
    (m.HOLDERS, ID, frozenset({NODE_A, NODE_B})),
    (m.ENQUEUE, ID, b"g", 1_500),
    (m.WILLQUEUE, ID, b"group"),
    (m.QUEUED, ID, b"g", m.AGAIN),
    (m.WORKING, ID, b"g", 300_000),
    (m.SETACK, ID, b"g", False, frozenset()),
    (m.GOTACK, ID, b"group", True, frozenset({NODE_A})),
    (m.DELJOB, ID),
    (m.NEEDJOBS, b"queue", 100),
    (m.YOURJOBS, (a_job(), a_job(b"alias")), True),
    (m.PAUSE, b"queue", 3),
    (m.POLLJOBS, b"queue", 7),
    (m.VITALS, m.Vitals(b"0.1.0", 1 << 33, 1 << 34, 1_000_000, 7, 5)),
    (m.LIVES, (m.WorkerStatus(b"w", 3, 3_000, True), m.WorkerStatus(b"v", 1, 0, False))),
    (m.LEASED, b"w", 3, 3_000, (m.Held(ID, b"a group", 2, 500),)),
    (m.HANDOVER, b"w", 4, b"the first", (b"q", b""), (m.Held(ID, b"", 2, 500),), True),
    (m.LISTEN, True),
    (m.EVENT, b"q", b"work", b"7"),
    (m.DELIVERED, ID, b"g", 6_000, 1_500, 3),
    (m.CLAIM, b"queue", 7, 100, 60_000, b"w"),
    (m.CLAIMED, 7, (a_job(),)),
    (m.FLUSH, b"queue", 0),
    (m.FACTS, 7, (m.EntryStatus(ID, (b"0:a", b"1:b"), (m.EntryLease(b"0:c", 1_500, 500, 3),)),), True),
    (m.MISSING, 7, (ID,)),
    (m.BEGIN, b"queue", b"1:group", {b"01234567": 5, b"abcdef01": 1 << 60}, 60_000, True),
    (m.WANT, b"queue", b"group", True),
    (m.HAVE, b"queue", b"group", False),
    (m.TAKE, b"queue", b"group", 7, 100, 30_000, True),
    (m.GIVE, 7, b"0:group", ((ID, b"body"),)),
    (m.SETTLE, b"queue", b"group", 8, m.RETURN, (ID,)),
    (m.SETTLED, 7, ((ID, m.OUTCOME_LATER), (ID, m.OUTCOME_DONE))),
    (m.INQUIRE, b"queue", 7, m.ACK_ONE, (b"eone", b"")),
    (m.FOUND, 7, ((m.NOT_KNOWN, b""), (m.PENDING, ID))),
    (m.POLICY, 7, (policy(PauseSetting(1, b"deploy", b"ops"), counter=3, set_at=1_700_000_000_000),)),
    (m.FATE, ID, 1_500, 2, 3, FATE),
    (m.REDRIVE, b"queue", 8, 7, 200, True, (ID,)),
    (m.PURGE, b"queue", 8, 6, 7),
    (m.PURGED, 8, 1 << 33, True),
    (m.REDRIVEN, 8, 150, m.OWNED_ELSEWHERE),
    (m.WATCH, 7, (ID,)),
    (m.OUTCOME, 7, (m.Outcome(ID, m.WAS_ACKED, 3, FATE), m.Outcome(ID, m.NOT_KNOWN, 0, NO_FATE))),
    (m.CANCEL, 7, (ID,)),
    (m.CANCELLED, 7, ((ID, m.WAS_CANCELLED),)),
    (m.SLOTS_WANTED, b"queue", 9, 7, 8, True, (m.SlotWish(ID, -5, b"group", 15_000),), (SLOT,), (ID,), (ID,)),
    (m.SLOTS_GIVEN, b"queue", 9, 7, 8, (ID,), (ID, ID), (ID,)),
    (m.SLOTS_KEEP, b"queue", 9, 0, 1, (SLOT,), (ID,)),
    (m.SLOTS_KEPT, b"queue", 9, NODE_A, 1),
    (m.SLOTS_CLAIM, b"queue", 9),
    (m.SLOTS_CLAIMED, b"queue", 9, b"", m.SlotsKnown(True, 8, NODE_B, 1 << 40, (SLOT,)), (SLOT,)),
    (m.CATCH_UP, 1 << 40),
    (m.CAUGHT_UP, 1 << 40),
    (m.NEEDOTHERS, b"queue", 100, True, (b"group",)),
    (m.ASK, 7, (b"QSTAT", b"queue")),
    (m.TOLD, 7, False, [b"name", {b"a": -5}, None, True, 1.5, []]),
]


#: What one kind of message says of schedules, and of spans that are not whole seconds, by further names.
MORE_POLICIES: dict[str, Message] = {
    name: (m.POLICY, 7, ((b"nightly", field, register),))
    for name, field, register in (
        ("POLICY-schedule", SCHEDULE_FIELD, Register(3, NODE_A, WALL_MS, NIGHTLY)),
        ("POLICY-schedule-deleted", SCHEDULE_FIELD, Register(4, NODE_A, WALL_MS, ())),
        ("POLICY-schedule-pause", SCHEDULE_PAUSE_FIELD, Register(1, NODE_B, WALL_MS, (1,))),
        ("POLICY-schedule-fired", SCHEDULE_FIRED_FIELD, Register(WALL_MS, NODE_B, WALL_MS, LAST)),
        ("POLICY-schedule-refused", SCHEDULE_REFUSED_FIELD, Register(WALL_MS, NODE_B, WALL_MS, REFUSED)),
        ("POLICY-ttl", TTL_FIELD, Register(1, NODE_B, WALL_MS, (60_000,))),
        ("POLICY-rate", RATE_FIELD, Register(1, NODE_B, WALL_MS, (3, 1_500, 1))),
    )
}


def test_each_kind_of_message_is_that_of_version_1_byte_for_byte() -> None:
    expected = dict(line.split() for line in BYTES.read_text().splitlines())
    messages = {named(message): message for message in SMALL} | MORE_POLICIES
    assert {name: encode(message, NOW).hex() for name, message in messages.items()} == expected
    assert [name for name in expected if name not in MORE_POLICIES] == list(m.NAMES.values())
    for name, message in MORE_POLICIES.items():
        assert decode(bytes.fromhex(expected[name])) == message


def test_the_limits_cover_each_kind_of_message() -> None:
    with_jobs = {m.REPLJOB, m.YOURJOBS, m.CLAIMED}
    assert {message[0] for message in LARGEST} | with_jobs == set(m.NAMES)


@pytest.mark.parametrize("kind", [m.GOTJOB, m.DELJOB])
@pytest.mark.parametrize("at", [0, 1, 46, 47])
def test_each_byte_that_marks_an_id_as_one_of_a_job_is_looked_at(kind: int, at: int) -> None:
    good = encode((kind, ID), NOW)
    assert decode(good) == (kind, ID)
    for value in (ID[at] - 1, ID[at] + 1, 0, 255):
        wrong = bytearray(good)
        wrong[1 + at] = value
        with pytest.raises(BadMessage, match="is no job id"):
            decode(bytes(wrong))


def test_each_type_of_event_keeps_its_number_on_the_bus() -> None:
    messages: list[Message] = [
        (m.EVENT, b"queue", kind, b"content") for kind in (WORK, RETURNED, DONE, CANCEL, DELETE, DEAD)
    ]
    texts = [encode(message, NOW) for message in messages]
    assert [text[1] for text in texts] == [0, 1, 2, 3, 4, 5]
    assert [decode(text) for text in texts] == messages
