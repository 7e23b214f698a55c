"""Any message comes back as it was; any other bytes are refused in words."""

from ipaddress import IPv4Address, IPv6Address

from hypothesis import given
from hypothesis import strategies as st

from disqued.core.cluster.notifications import KINDS
from disqued.core.model import messages as m
from disqued.core.model.fate import NO_FATE
from disqued.core.model.groups import new_job
from disqued.core.model.ids import is_job_id, is_node_id
from disqued.core.model.job import (
    ACTIVE,
    ALL_STATES,
    COPIED_FLAGS,
    KIND_LOG,
    KIND_WORK,
    STAMP_MAX,
    Job,
    JobOptions,
    NamedJob,
)
from disqued.core.model.messages import DRY, Gossip, Held, Message, Vitals, WorkerStatus
from disqued.core.model.policies import COUNTER_MAX, NUMBER_FIELDS, PAUSE_FIELD, SCHEDULE_FIELD, PauseSetting, Register
from disqued.core.model.terms import NO_TERMS
from disqued.core.recovery import StoredJob
from disqued.wire.fields import BadMessage
from disqued.wire.jobdump import SPAN_MAX_MS
from disqued.wire.messages import decode, encode
from tests.fates import fates, terms
from tests.schedule_values import schedules

NOW = 1 << 40
ID = b"DI" + b"0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0" + b"SQ"
OLD_ID = b"D-0f0c644f-abcdefghijklmnopqrstuvwx-05a0"

job_ids = st.sampled_from([ID, OLD_ID])
node_ids = st.binary(min_size=20, max_size=20).map(lambda raw: raw.hex().encode())
nodes = st.frozensets(node_ids, max_size=5)
names = st.binary(max_size=60)
spans = st.integers(0, SPAN_MAX_MS)
ports = st.integers(1, 65_535)
addresses = st.one_of(st.integers(0, 2**32 - 1).map(IPv4Address), st.integers(0, 2**128 - 1).map(IPv6Address))
rumours = st.builds(Gossip, node_ids, addresses.map(str), st.integers(0, 65_535), ports, st.integers(0, 7))


counts = st.integers(0, 2**64 - 1)
versions = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=32)
vitals = st.builds(Vitals, versions.map(str.encode), counts, counts, counts, counts, counts)


worker_ids = st.binary(min_size=1, max_size=40)
lives = st.builds(WorkerStatus, worker_ids, counts, spans, st.booleans())
held = st.lists(st.builds(Held, job_ids, names, st.integers(0, 2**32 - 1), spans), max_size=4).map(tuple)


numbers = st.integers(0, 2**32 - 1)
ids = st.lists(job_ids, max_size=4).map(tuple)
outcomes = st.builds(m.Outcome, job_ids, st.integers(0, m.WAS_ACKED), numbers, fates)
verdicts = st.tuples(job_ids, st.integers(0, m.WAS_ACKED))
log_leases = st.builds(m.EntryLease, names, spans, spans, numbers)
facts = st.builds(
    m.EntryStatus, job_ids, st.lists(names, max_size=3).map(tuple), st.lists(log_leases, max_size=3).map(tuple)
)  # fmt: skip
texts = st.text(max_size=60).filter(str.isprintable).map(str.encode)
registers = st.builds(
    Register, st.integers(1, COUNTER_MAX), node_ids, st.integers(0, STAMP_MAX),
    st.builds(PauseSetting, st.integers(0, 3), texts, texts),
)  # fmt: skip
some_states = st.integers(1, ALL_STATES).filter(lambda states: not states & ~ALL_STATES)
purged_states = some_states | some_states.map(lambda states: states | DRY)
numbered = st.builds(
    Register, st.integers(1, COUNTER_MAX), node_ids, st.integers(0, STAMP_MAX),
    st.just(()) | st.integers(1, 65_535).map(lambda number: (number,)),
)  # fmt: skip
scheduled = st.builds(
    Register, st.integers(1, COUNTER_MAX), node_ids, st.integers(0, STAMP_MAX), st.just(()) | schedules()
)
policies = (
    st.tuples(names, st.just(PAUSE_FIELD), registers)
    | st.tuples(names, st.sampled_from(sorted(NUMBER_FIELDS)[:-1]), numbered)
    | st.tuples(names, st.just(SCHEDULE_FIELD), scheduled)
)
origins = st.binary(min_size=4, max_size=4).map(lambda raw: raw.hex().encode())
floors = st.dictionaries(origins, st.integers(0, STAMP_MAX), max_size=4)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    kind = draw(st.sampled_from([KIND_WORK, KIND_LOG]))
    options = JobOptions(
        ttl_ms=draw(spans), retry_ms=draw(spans), delay_ms=draw(spans), replicate=draw(st.integers(1, 65_535)),
        kind=kind, terms=NO_TERMS if kind else draw(terms), fate=NO_FATE if kind else draw(fates),
    )  # fmt: skip
    options.stamp(NOW - draw(st.integers(0, 10_000)))
    queue, body, alias = draw(names), draw(names), draw(st.one_of(st.just(b""), names))
    job = new_job(draw(job_ids), queue, body, draw(st.integers(0, STAMP_MAX)), options, alias=alias)
    job.holders = draw(nodes) or None
    job.state = draw(st.integers(0, 3))
    job.flags = draw(st.integers(0, 255))
    job.nacks = draw(st.integers(0, 2**32 - 1))
    job.additional_deliveries = draw(st.integers(0, 2**32 - 1))
    job.order_key = draw(st.integers(-STAMP_MAX, STAMP_MAX))
    return job


def as_received(job: Job) -> StoredJob:
    """What the other node makes of a job that is sent now."""
    options = job.options
    return StoredJob(
        id=job.id,
        queue=job.queue,
        body=job.body,
        state=ACTIVE,
        flags=job.flags & COPIED_FLAGS,
        replicate=options.replicate,
        holders=job.holders,
        ctime=job.ctime,
        expires=max(0, job.expires_at - NOW),
        requeue=max(1, job.requeue_at - NOW) if job.requeue_at else 0,
        ttl_ms=options.ttl_ms,
        retry_ms=options.retry_ms,
        delay_ms=options.delay_ms,
        nacks=job.nacks,
        additional_deliveries=job.additional_deliveries,
        order_key=job.order_key,
        kind=options.kind,
        alias=job.alias if isinstance(job, NamedJob) else b"",
        terms=options.terms,
        fate=options.fate,
    )


gossip = st.tuples(
    st.sampled_from([m.PING, m.PONG]), st.integers(0, 1), st.lists(rumours, max_size=6).map(tuple)
)  # fmt: skip
without_jobs: st.SearchStrategy[Message] = st.one_of(
    gossip,
    st.tuples(st.just(m.FAIL), node_ids),
    st.tuples(st.just(m.VITALS), vitals),
    st.tuples(st.sampled_from([m.GOTJOB, m.DELJOB]), job_ids),
    st.tuples(st.just(m.HOLDERS), job_ids, nodes),
    st.tuples(st.just(m.SETACK), job_ids, names, st.booleans(), nodes),
    st.tuples(st.just(m.GOTACK), job_ids, names, st.booleans(), nodes),
    st.tuples(st.just(m.WILLQUEUE), job_ids, names),
    st.tuples(st.sampled_from([m.ENQUEUE, m.WORKING]), job_ids, names, spans),
    st.tuples(st.just(m.QUEUED), job_ids, names, st.integers(0, 2)),
    st.tuples(st.sampled_from((m.NEEDJOBS, m.POLLJOBS)), names, st.integers(0, m.JOBS_PER_MESSAGE)),
    st.tuples(st.just(m.PAUSE), names, st.integers(0, 3)),
    st.tuples(st.just(m.POLICY), numbers, st.lists(policies, max_size=4).map(tuple)),
    st.tuples(
        st.just(m.PURGE),
        names,
        numbers,
        purged_states,
        numbers,
    ),
    st.tuples(st.just(m.PURGED), numbers, st.integers(0, (1 << 64) - 1), st.booleans()),
    st.tuples(st.just(m.LIVES), st.lists(lives, max_size=5).map(tuple)),
    st.tuples(st.just(m.LEASED), worker_ids, counts, spans, held),
    st.tuples(
        st.just(m.HANDOVER), worker_ids, counts, names, st.lists(names, max_size=4).map(tuple), held, st.booleans()
    ),
    st.tuples(st.just(m.LISTEN), st.booleans()),
    st.tuples(st.just(m.EVENT), names, st.sampled_from(KINDS), names),
    st.tuples(st.just(m.DELIVERED), job_ids, names, spans, spans, st.integers(0, (1 << 32) - 1)),
    st.tuples(st.just(m.CLAIM), names, st.integers(0, (1 << 32) - 1), st.integers(0, m.JOBS_PER_MESSAGE), spans, names),
    st.tuples(st.just(m.FLUSH), names, st.just(0)),
    st.tuples(st.just(m.FATE), job_ids, spans, numbers, numbers, fates),
    st.tuples(
        st.just(m.REDRIVE),
        st.binary(max_size=20),
        numbers,
        numbers,
        numbers,
        st.booleans(),
        st.lists(job_ids, max_size=3).map(tuple),
    ),
    st.tuples(st.just(m.REDRIVEN), numbers, numbers, st.integers(0, m.OWNED_ELSEWHERE)),
    st.tuples(st.sampled_from([m.WATCH, m.CANCEL]), numbers, ids),
    st.tuples(st.just(m.OUTCOME), numbers, st.lists(outcomes, max_size=4).map(tuple)),
    st.tuples(st.just(m.CANCELLED), numbers, st.lists(verdicts, max_size=4).map(tuple)),
    st.tuples(st.just(m.FACTS), numbers, st.lists(facts, max_size=4).map(tuple), st.booleans()),
    st.tuples(st.just(m.MISSING), numbers, ids),
    st.tuples(st.just(m.BEGIN), names, names, floors, spans, st.booleans()),
    st.tuples(st.sampled_from([m.WANT, m.HAVE]), names, names, st.booleans()),
    st.tuples(st.just(m.TAKE), names, names, numbers, st.integers(0, m.JOBS_PER_MESSAGE), spans, st.booleans()),
    st.tuples(st.just(m.GIVE), numbers, names, st.lists(st.tuples(job_ids, names), max_size=4).map(tuple)),
    st.tuples(st.just(m.SETTLE), names, names, numbers, st.integers(0, m.UNSEEN), ids),
    st.tuples(st.just(m.INQUIRE), names, numbers, st.integers(0, m.KEEP), st.lists(names, max_size=4).map(tuple)),
    st.tuples(
        st.just(m.FOUND),
        numbers,
        st.lists(
            st.sampled_from(
                [
                    (m.NOT_KNOWN, b""),
                    (m.SOON, b""),
                    (m.PENDING, ID),
                    (m.PENDING, OLD_ID),
                    (m.A_COPY, ID),
                    (m.ENDED, b""),
                ]
            ),
            max_size=4,
        ).map(tuple),
    ),
    st.tuples(
        st.just(m.SETTLED),
        numbers,
        st.lists(st.tuples(job_ids, st.integers(0, m.OUTCOME_LATER)), max_size=4).map(tuple),
    ),
)
with_jobs: st.SearchStrategy[Message] = st.one_of(
    st.tuples(st.just(m.REPLJOB), jobs(), st.booleans()),
    st.tuples(st.just(m.YOURJOBS), st.lists(jobs(), max_size=3).map(tuple), st.booleans()),
)
encoded = st.one_of(without_jobs, with_jobs).map(lambda message: encode(message, NOW))


@given(without_jobs)
def test_a_message_without_jobs_comes_back_as_it_was(message: Message) -> None:
    assert decode(encode(message, NOW)) == message


@given(jobs(), st.booleans())
def test_a_copy_comes_back_with_what_is_left_of_its_time(job: Job, quiet: bool) -> None:
    assert decode(encode((m.REPLJOB, job, quiet), NOW)) == (m.REPLJOB, as_received(job), quiet)


@given(st.lists(jobs(), max_size=4), st.booleans())
def test_jobs_that_move_come_back_in_order(moved: list[Job], queued: bool) -> None:
    expected = (m.YOURJOBS, tuple(as_received(job) for job in moved), queued)
    assert decode(encode((m.YOURJOBS, tuple(moved), queued), NOW)) == expected


def check_job(job: StoredJob) -> None:
    assert is_job_id(job.id)
    assert job.state == ACTIVE
    assert not job.flags & ~COPIED_FLAGS
    assert all(0 <= span <= SPAN_MAX_MS for span in (job.expires, job.requeue, job.ttl_ms, job.retry_ms, job.delay_ms))
    assert 0 <= job.ctime <= STAMP_MAX
    assert abs(job.order_key) <= STAMP_MAX
    assert all(map(is_node_id, job.holders or ()))


def check_decodes_or_is_refused(data: bytes) -> None:
    """Whatever is not refused is a message that a node can have sent."""
    try:
        message = decode(data)
    except BadMessage as error:
        assert 0 < len(str(error)) < 500  # noqa: PT017
        return
    if message[0] == m.REPLJOB:
        check_job(message[1])
    elif message[0] == m.YOURJOBS:
        assert len(message[1]) <= m.JOBS_PER_MESSAGE
        for job in message[1]:
            check_job(job)
    else:
        assert encode(message, NOW) == data


@given(encoded, st.data())
def test_a_message_with_any_bits_flipped_decodes_to_a_message_or_is_refused(
    message: bytes, data: st.DataObject
) -> None:
    changed = bytearray(message)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    check_decodes_or_is_refused(bytes(changed))


@given(encoded, st.data())
def test_a_message_with_bytes_put_in_or_taken_out_decodes_to_a_message_or_is_refused(
    message: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(message)))
    check_decodes_or_is_refused(message[:at] + data.draw(names) + message[at + data.draw(st.integers(0, 9)) :])


@given(st.integers(0, 255), st.binary(max_size=300))
def test_any_bytes_decode_to_a_message_or_are_refused(kind: int, data: bytes) -> None:
    check_decodes_or_is_refused(data)
    check_decodes_or_is_refused(bytes((kind,)) + data)
