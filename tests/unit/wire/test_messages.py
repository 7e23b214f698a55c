"""Messages as bytes: what is refused, and what is said of it."""

import pytest

from disqued.core.model import messages as m
from disqued.core.model.fate import NO_FATE
from disqued.core.model.job import (
    FLAG_DELIVERED,
    FLAG_QUEUED_BEFORE,
    QUEUED,
    RETRY_NEVER_MS,
    STAMP_MAX,
    Job,
    JobOptions,
)
from disqued.core.model.messages import Gossip, Message
from disqued.core.model.policies import PAUSE_FIELD, PauseSetting, Register
from disqued.wire.fields import BadMessage
from disqued.wire.jobdump import HOLDERS_MAX, encode_job
from disqued.wire.messages import CODECS, decode, encode
from disqued.wire.reference import page
from tests.cluster_fixtures import Cluster
from tests.fates import FATE

ID = b"DI" + b"0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0" + b"SQ"
OLD_ID = b"D-130f254d-QsheHqzDg4yS0nDMzI3PD+Md-003d"
NODE_A, NODE_B = b"a" * 40, b"b" * 40
RUMOUR = Gossip(NODE_A, "127.0.0.1", 7711, 17711, m.NODE_PFAIL)
NOW = 5_000


def example_job() -> Job:
    options = JobOptions(ttl_ms=60_000, retry_ms=6_000, delay_ms=0, replicate=2)
    options.stamp(NOW)
    job = Job(ID, b"queue", b"body", 7, options)
    job.holders = frozenset({NODE_B, NODE_A})
    return job


SLOT = m.SlotSpan(ID, b"group", NODE_A, 7, 15_000, b"worker-7")
EXAMPLES: list[Message] = [
    (m.PING, 1, (RUMOUR, Gossip(NODE_B, "2001:db8::1", 0, 1, 0))),
    (m.PONG, 0, ()),
    (m.FAIL, NODE_A),
    (m.REPLJOB, example_job(), False),
    (m.GOTJOB, ID),
    (m.HOLDERS, ID, frozenset({NODE_A, NODE_B})),
    (m.ENQUEUE, ID, b"", 1_500),
    (m.WILLQUEUE, ID, b"group"),
    (m.QUEUED, ID, b"", m.AGAIN),
    (m.WORKING, ID, b"", 300_000),
    (m.SETACK, ID, b"", False, frozenset()),
    (m.GOTACK, ID, b"group", True, frozenset({NODE_A})),
    (m.DELJOB, ID),
    (m.NEEDJOBS, b"queue", 100),
    (m.YOURJOBS, (example_job(), example_job()), True),
    (m.PAUSE, b"queue", 3),
    (m.POLLJOBS, b"queue", 7),
    (m.VITALS, m.Vitals(b"0.1.0", 1 << 33, 1 << 34, 1_000_000, 7, 5)),
    (m.LIVES, (m.WorkerStatus(b"w", 3, 3_000, True), m.WorkerStatus(b"v", 1, 0, False))),
    (m.LEASED, b"w", 3, 3_000, (m.Held(ID, b"", 2, 500), m.Held(ID, b"a group", 1, 0))),
    (m.HANDOVER, b"w", 4, b"the first", (b"q", b""), (m.Held(ID, b"", 2, 500),), True),
    (m.LISTEN, True),
    (m.EVENT, b"q", b"work", b"7"),
    (m.DELIVERED, ID, b"", RETRY_NEVER_MS, 1_500, 3),
    (m.CLAIM, b"queue", 7, 100, 60_000, b"w"),
    (m.CLAIMED, 7, (example_job(), example_job())),
    (m.FLUSH, b"queue", 0),
    (
        m.FACTS,
        7,
        (m.EntryStatus(ID, (b"0:a", b"1:b"), (m.EntryLease(b"0:c", 1_500, 500, 3),)), m.EntryStatus(ID, (), ())),
        True,
    ),
    (m.MISSING, 7, (ID,)),
    (m.BEGIN, b"queue", b"1:group", {b"01234567": 5, b"abcdef01": 1 << 60}, 60_000, True),
    (m.WANT, b"queue", b"group", True),
    (m.HAVE, b"queue", b"group", False),
    (m.TAKE, b"queue", b"group", 7, 100, 30_000, True),
    (m.GIVE, 7, b"0:group", ((ID, b"body"), (ID, b""))),
    (m.SETTLE, b"queue", b"group", 7, m.RETURN, (ID, ID)),
    (m.SETTLED, 7, ((ID, m.OUTCOME_LATER), (ID, m.OUTCOME_DONE))),
    (m.INQUIRE, b"queue", 7, m.ACK_ONE, (b"eone", b"")),
    (m.FOUND, 7, ((m.NOT_KNOWN, b""), (m.PENDING, ID), (m.SOON, b""), (m.A_COPY, ID), (m.ENDED, b""))),
    (
        m.POLICY,
        7,
        (
            (b"queue", PAUSE_FIELD, Register(3, NODE_A, 1_700_000_000_000, PauseSetting(3, b"deploy", b"ops"))),
            (b"", PAUSE_FIELD, Register(1, NODE_B, 0, PauseSetting(0, b"", b""))),
        ),
    ),
    (m.FATE, ID, 1_500, 2, 3, FATE),
    (m.REDRIVE, b"queue", 8, 7, 200, True, (ID, ID)),
    (m.PURGE, b"queue", 8, 6, 7),
    (m.PURGED, 8, 1 << 33, True),
    (m.REDRIVEN, 8, 150, m.OWNED_ELSEWHERE),
    (m.WATCH, 7, (ID, OLD_ID)),
    (m.OUTCOME, 7, (m.Outcome(ID, m.WAS_ACKED, 3, FATE), m.Outcome(OLD_ID, m.NOT_KNOWN, 0, NO_FATE))),
    (m.CANCEL, 7, (ID,)),
    (m.CANCELLED, 7, ((ID, m.WAS_CANCELLED), (OLD_ID, m.NOT_KNOWN))),
    (m.SLOTS_WANTED, b"queue", 9, 7, 8, True, (m.SlotWish(ID, -5, b"group", 15_000),), (SLOT,), (ID,), (OLD_ID,)),
    (m.SLOTS_GIVEN, b"queue", 9, 7, 8, (ID,), (ID, ID), (OLD_ID,)),
    (m.SLOTS_KEEP, b"queue", 9, 0, 1, (SLOT,), (ID,)),
    (m.SLOTS_KEPT, b"queue", 9, NODE_A, 1),
    (m.SLOTS_CLAIM, b"queue", 9),
    (m.SLOTS_CLAIMED, b"queue", 9, b"", m.SlotsKnown(True, 8, NODE_B, 1 << 40, (SLOT,)), (SLOT,)),
    (m.CATCH_UP, 1 << 40),
    (m.CAUGHT_UP, 1 << 40),
    (m.NEEDOTHERS, b"queue", 100, True, (b"a", b"", b"group")),
    (m.ASK, 7, (b"QSTAT", b"queue")),
    (m.TOLD, 7, False, [b"name", {b"a": -5}, None, True, 1.5, []]),
]


def named(message: Message) -> str:
    return m.NAMES[message[0]]


def test_there_is_an_example_of_every_kind() -> None:
    assert [named(message) for message in EXAMPLES] == list(m.NAMES.values())
    assert [getattr(m, name) for name in m.NAMES.values()] == list(m.NAMES) == sorted(m.NAMES)


def test_what_is_declared_of_a_kind_is_used_everywhere() -> None:
    assert {
        m.REPLJOB, m.GOTJOB, m.GOTACK, m.GIVE, m.SETTLED, m.FOUND, m.FATE, m.REDRIVEN, m.OUTCOME, m.CANCELLED,
    } == m.DURABLE_ALONE  # fmt: skip
    assert [kind.number for kind in m.KINDS] == sorted(m.NAMES)
    assert {m.PING, m.PONG, m.FAIL} == m.URGENT
    assert all(kind.topic and kind.fields and kind.meaning.endswith((".", "?")) for kind in m.KINDS)


def test_every_kind_has_a_form() -> None:
    assert set(CODECS) == {kind.number for kind in m.KINDS}
    assert all(form.layout for form in CODECS.values())


@pytest.mark.parametrize("message", EXAMPLES, ids=named)
def test_every_kind_has_a_machine_that_hears_it(message: Message) -> None:
    a, b = Cluster(2)
    a.node.begin()
    a.node.message(b.id, decode(encode(message, NOW)))


def test_the_page_has_a_row_for_every_kind() -> None:
    rows = [line.split(" | ") for line in page().splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert sorted(int(row[0].removeprefix("| ")) for row in rows) == sorted(m.NAMES)
    for row in rows:
        assert row[1].split()[0] == m.NAMES[int(row[0].removeprefix("| "))]
        assert row[4].removesuffix(" |") == CODECS[int(row[0].removeprefix("| "))].layout


#: Kinds that end with a string whose length is what is left.
OPEN_ENDED = {m.NEEDJOBS, m.PAUSE, m.POLLJOBS, m.CLAIM, m.FLUSH, m.PURGE, m.WANT, m.HAVE, m.TAKE}


@pytest.mark.parametrize("message", EXAMPLES, ids=named)
def test_every_message_that_is_cut_or_too_long_is_refused(message: Message) -> None:
    data = encode(message, NOW)
    shortest = 3 if message[0] in OPEN_ENDED else len(data)
    for length in range(shortest):
        with pytest.raises(BadMessage):
            decode(data[:length])
    if message[0] not in OPEN_ENDED:
        with pytest.raises(BadMessage):
            decode(data + b"\0")


@pytest.mark.parametrize("message", EXAMPLES, ids=named)
def test_no_flipped_bit_is_more_than_a_refusal(message: Message) -> None:
    data = encode(message, NOW)
    refused = 0
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            decode(bytes(changed))
        except BadMessage:
            refused += 1
    assert refused


def test_deadlines_travel_as_what_is_left_of_them() -> None:
    job = example_job()
    kind, received, quiet = decode(encode((m.REPLJOB, job, True), NOW + 1_000))
    assert (kind, quiet) == (m.REPLJOB, True)
    assert (received.expires, received.requeue) == (59_000, 5_000)


def test_a_deadline_that_is_over_is_neither_below_zero_nor_forgotten() -> None:
    job = example_job()
    for now in (NOW + 6_000, NOW + 70_000):
        _, received, _ = decode(encode((m.REPLJOB, job, False), now))
        assert received.requeue == 1
    assert received.expires == 0


def test_a_copy_says_nothing_that_its_sender_alone_knows() -> None:
    job = example_job()
    job.state = QUEUED
    job.flags = FLAG_DELIVERED | FLAG_QUEUED_BEFORE | 64
    received = decode(encode((m.REPLJOB, job, False), NOW))[1]
    assert (received.state, received.flags) == (1, FLAG_QUEUED_BEFORE)


def test_more_holders_than_a_message_takes_are_left_out() -> None:
    many = frozenset(b"%040x" % number for number in range(HOLDERS_MAX + 5))
    job = example_job()
    job.holders = many
    expected = frozenset(sorted(many)[:HOLDERS_MAX])
    assert decode(encode((m.REPLJOB, job, False), NOW))[1].holders == expected
    assert decode(encode((m.HOLDERS, ID, many), NOW))[2] == expected


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "an empty message"),
        *((bytes((kind,)), f"kind {kind} is not known") for kind in range(max(m.NAMES)) if kind not in m.NAMES),
        (bytes((max(m.NAMES) + 1,)), f"kind {max(m.NAMES) + 1} is not known to this version"),
        (encode((m.REDRIVEN, 8, 150, 3), 0), "REDRIVEN: rest 3; allowed are 0 to 2"),
        (encode((m.WATCH, 7, (ID,) * 201), 0), "WATCH: 201 jobs; allowed are 200"),
        (
            encode((m.OUTCOME, 7, (m.Outcome(ID, 14, 1, NO_FATE),)), 0),
            "OUTCOME: a job in state 14; allowed are 0 to 13",
        ),
        (encode((m.CANCELLED, 7, ((ID, 14),)), 0), "CANCELLED: a job in state 14; allowed are 0 to 13"),
        (b"\x12\xff\xff", "LIVES: 65535 workers; allowed are 200"),
        (b"\x12\x01\x00\x02\x01\x00" + bytes(16) + b"w", "LIVES: alive 2, an id of 1 bytes and 0 ms to live"),
        (b"\x12\x01\x00\x01\x00\x00" + bytes(16), "LIVES: alive 1, an id of 0 bytes"),
        (b"\x12\x01\x00\x01\xff\xff" + bytes(16), "LIVES: a part of 65535 bytes; allowed are 1024"),
        (b"\x13\x01\x00\x00\x00" + bytes(16), "LEASED: an id of 0 bytes"),
        (b"\x13\xff\xff\x01\x00" + bytes(16) + b"w", "LEASED: 65535 units; allowed are 100"),
        (b"\x14\x02" + bytes(18) + b"w", "HANDOVER"),
        (b"\x15\x02", "LISTEN: 2 where 0 or 1 is allowed"),
        (b"\x16\x09" + bytes(8), "EVENT: type 9; allowed are 0 to 5"),
        (b"\x16\x00\x09" + bytes(7) + b"q", "EVENT: 11 bytes, of which the part that is read next ends at 19"),
        (b"\xff", "kind 255 is not known"),
        (encode((m.PING, 0, ()), 0)[:3], "PING: 3 bytes, of which the part that is read next ends at 4"),
        (b"\x00\x02\x00\x00", "PING: flags 2 and 0 rumours; allowed are bits of 9 and 0 to 100"),
        (b"\x01\x00\x65\x00", "PONG: flags 0 and 101 rumours"),
        (encode((m.PING, 0, (Gossip(NODE_A, "1.2.3.4", 1, 1, 8),)), 0), "a rumour with flags 8"),
        (encode((m.PING, 0, (Gossip(NODE_A, "1.2.3.4", 1, 0, 0),)), 0), "bus port 0"),
        (encode((m.FAIL, NODE_A), 0)[:-1], "FAIL: 20 bytes whose parts add up to 21"),
        (b"\x03\x02", "REPLJOB: b'' begins no copy of a job"),
        (b"\x03\x02" + encode((m.REPLJOB, example_job(), False), 0)[2:], "REPLJOB: 2 where 0 or 1 is allowed"),
        (b"\x03\x00" + encode_job(example_job(), 0, QUEUED), "REPLJOB: a copy in state 2 with flags 0"),
        (b"\x03\x00" + encode_job(example_job(), -10 * NOW), "REPLJOB: a copy with a span that is not in 0 to"),
        (encode((m.GOTJOB, ID), 0)[:-1], "GOTJOB: b'DI0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0S' is no job id"),
        (encode((m.DELJOB, b"x" * 48), 0), "DELJOB: b'xxx"),
        *((encode((m.GOTJOB, ID[:at] + b"x" + ID[at + 1 :]), 0), "is no job id") for at in (0, 1, 46, 47)),
        (b"\x05" + b"\0" * 6, "HOLDERS: b'' is no job id"),
        (encode((m.QUEUED, ID, b"", 5), 0), "QUEUED: 5; allowed is 0 to 4"),
        (encode((m.ENQUEUE, ID, b"", 1 << 60), 0), "ENQUEUE: 1152921504606846976; allowed is 0 to"),
        (b"\x0d\x65\x00q", "NEEDJOBS: 101; allowed is 0 to 100"),
        (b"\x11\x00" + bytes(40), "VITALS: a version of 0 bytes; allowed are 1 to 32, printable ASCII"),
        (b"\x11\x21" + bytes(40) + b"1" * 33, "VITALS: a version of 33 bytes"),
        (b"\x11\x03" + bytes(40) + b"1\n2", "VITALS: a version of 3 bytes"),
        (b"\x11\x02" + bytes(40) + b"\xc3\xa9", "VITALS: a version of 2 bytes"),
        (b"\x0f\x04\x00q", "PAUSE: 4; allowed is 0 to 3"),
        (encode((m.DELIVERED, ID, b"", 1 << 60, 0, 1), 0), "DELIVERED: 1152921504606846976 and 0 ms; allowed are 0 to"),
        (encode((m.DELIVERED, b"x" * 48, b"", 1, 0, 1), 0), "DELIVERED: b'xxx"),
        (b"\x18" + bytes(4) + b"\x65\x00" + bytes(10) + b"q", "CLAIM: 101 jobs of 0 ms; allowed are 100 and"),
        (b"\x19" + bytes(4) + b"\x65\x00", "CLAIMED: 101 jobs; allowed are 100"),
        (encode((m.PURGE, b"q", 1, 8, 0), 0), "PURGE: states 8; allowed are bits of 151, one or more of 23"),
        (b"\x1a\x01\x00q", "FLUSH: 1; allowed is 0 to 0"),
        (b"\x0e\x00\x65\x00", "YOURJOBS: 101 jobs; allowed are 100"),
        (
            b"\x0e\x00\x01\x00\xff\xff\xff\xff",
            "YOURJOBS: 8 bytes, of which the part that is read next ends at 42949673",
        ),
    ],
)
def test_what_is_wrong_with_a_message_is_said(data: bytes, text: str) -> None:
    with pytest.raises(BadMessage) as caught:
        decode(data)
    assert text in str(caught.value)


def test_jobs_that_a_worker_has_come_back_each_with_its_own() -> None:
    held = (m.Held(ID, b"", 2, 500), m.Held(ID, b"a group", 1, 0))
    message = (m.LEASED, b"w", 3, 3_000, held)
    assert decode(encode(message, 0)) == message


def test_node_ids_have_one_order() -> None:
    message = encode((m.SETACK, ID, b"", True, frozenset({NODE_A, NODE_B})), 0)
    turned = message[:-40] + message[-20:] + message[-40:-20]
    for data in (turned, message[:-20] + message[-40:-20]):
        with pytest.raises(BadMessage, match="not in order, each once"):
            decode(data)


def test_a_time_that_the_next_job_could_not_follow_is_refused() -> None:
    for field in ("ctime", "order_key"):
        job = example_job()
        setattr(job, field, 2**63 - 1)
        with pytest.raises(BadMessage, match="REPLJOB: a job of time"):
            decode(encode((m.REPLJOB, job, False), NOW))


def test_a_group_begins_behind_no_stamp_that_the_journal_could_not_be_read_with() -> None:
    begin = (m.BEGIN, b"queue", b"1:group", {b"01234567": STAMP_MAX}, 60_000, False)
    data = encode(begin, 0)
    assert decode(data) == begin
    with pytest.raises(BadMessage, match=f"BEGIN: a stamp of {STAMP_MAX + 1}"):
        decode(data[:-8] + (STAMP_MAX + 1).to_bytes(8, "little"))
    assert encode((*begin[:3], {b"01234567": STAMP_MAX + 1}, *begin[4:]), 0) == data


def test_a_wrong_number_of_a_machine_is_sent_as_the_nearest_that_is_allowed() -> None:
    assert decode(encode((m.NEEDJOBS, b"q", 1_000), 0)) == (m.NEEDJOBS, b"q", m.JOBS_PER_MESSAGE)
    assert decode(encode((m.WORKING, ID, b"", -5), 0)) == (m.WORKING, ID, b"", 0)
