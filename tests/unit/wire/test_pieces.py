"""Large texts stay in pieces: the same bytes, the same objects, and parts of a bounded size."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disqued.commands import table
from disqued.core.model.groups import new_job
from disqued.core.model.job import NamedJob
from disqued.core.model.messages import CLAIMED, GIVE, REPLJOB, YOURJOBS, Greeting
from disqued.net.cluster.linkqueue import LinkQueue
from disqued.wire.brief import encode_fetched2, encode_fetched3, encode_jobs
from disqued.wire.fields import BadMessage
from disqued.wire.frames import PIECE_BYTES, LinkAcceptor, LinkOpener, OwnCodec
from disqued.wire.jobdump import decode_record, decode_text, encode_copy, job_text, place_in_copy
from disqued.wire.messages import decode, place_of_body
from disqued.wire.messages import encode as encode_message
from disqued.wire.pieces import APART, LARGE, TOGETHER, IncomingText, Pieces, grouped, joined, slices, text_of, whole
from disqued.wire.replies import EncodedList, Status, Verbatim, encode, encode_push
from tests.core_fixtures import make_job

BODY = bytes(range(256)) * (2 * LARGE // 256)
JOB_ID = b"DI" + b"0" * 44 + b"SQ"


def holds(text: Any, body: bytes = BODY) -> bool:
    """Whether the body itself, and no copy of it, is one of the pieces."""
    return isinstance(text, Pieces) and any(part is body for part in text.parts)


parts_lists = st.lists(
    st.one_of(st.binary(max_size=40), st.sampled_from([bytes(APART - 1), b"b" * APART, b"c" * (APART + 1), BODY])),
    max_size=30,
)


@given(parts_lists)
def test_a_text_is_the_bytes_of_its_parts(parts: list[bytes]) -> None:
    text = text_of(parts)
    assert whole(text) == b"".join(parts)
    assert len(text) == len(b"".join(parts))
    assert isinstance(text, Pieces) == (len(text) > LARGE)


@given(parts_lists)
def test_short_neighbors_are_put_together_and_long_parts_stay_themselves(parts: list[bytes]) -> None:
    groups = grouped(parts)
    assert b"".join(groups) == b"".join(parts)
    assert all(groups)
    long_ones = [part for part in parts if len(part) >= APART]
    assert [id(group) for group in groups if any(group is part for part in long_ones)] == list(map(id, long_ones))
    assert all(len(group) <= TOGETHER for group in groups if not any(group is part for part in long_ones))


@given(st.lists(parts_lists, max_size=4))
def test_joined_texts_are_the_bytes_of_all_and_copy_no_long_piece(lists: list[list[bytes]]) -> None:
    texts = [text_of(parts) for parts in lists]
    text = joined(texts)
    assert whole(text) == b"".join(map(b"".join, lists))
    if any(isinstance(each, Pieces) for each in texts):
        inside = [part for each in texts if isinstance(each, Pieces) for part in each.parts if len(part) >= APART]
        assert isinstance(text, Pieces)
        assert all(any(part is piece for piece in text.parts) for part in inside)


@given(parts_lists, st.integers(1, 3 * APART))
def test_slices_add_up_and_none_is_longer_than_it_may_be(parts: list[bytes], most: int) -> None:
    text = text_of(parts)
    cut = list(slices(text, max(most, len(text) // 50 + 1)))
    assert b"".join(cut) == whole(text)
    assert all(len(part) == max(most, len(text) // 50 + 1) for part in cut[:-1])


# Replies.

ROW = (b"queue", JOB_ID, BODY)
COUNTED = (*ROW, b"nacks", 0, b"additional-deliveries", 1)


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize(
    "value",
    [
        BODY, [BODY, BODY], (b"a", [1, None, BODY]), {b"body": BODY, b"more": [BODY]}, [Status(b"OK"), BODY],
        [True, 1.5, "text", 2**70, BODY],
    ],
)  # fmt: skip
def test_any_reply_with_a_large_body_holds_the_body_itself(value: Any, protocol: int) -> None:
    text = encode(value, protocol)
    assert holds(text)
    # Spelt with another body of that length, at which nothing is cut differently.
    assert b"$%d\r\n%b\r\n" % (len(BODY), BODY) in whole(text)


def test_a_verbatim_text_that_is_large_is_itself() -> None:
    assert holds(encode(Verbatim(BODY), 3))


@pytest.mark.parametrize("rows", [[ROW], [ROW, ROW], [COUNTED], [COUNTED, COUNTED]])
def test_jobs_that_are_large_hold_their_bodies_and_are_spelt_as_ever(rows: list[Any]) -> None:
    for text in (encode_fetched2(rows), encode_fetched3(rows), encode(rows)):
        assert isinstance(text, Pieces)
        assert sum(part is BODY for part in text.parts) == len(rows)
        assert whole(text) == b"*%d\r\n" % len(rows) + b"".join(whole(encode(row)) for row in rows)
    assert whole(encode_jobs([ROW])) == whole(encode([ROW]))


def test_many_bodies_of_some_size_are_not_put_together() -> None:
    bodies = [bytes([number]) * (LARGE // 4) for number in range(50)]
    text = encode(bodies)
    assert all(holds(text, body) for body in bodies)
    assert max(map(len, text.parts)) == LARGE // 4


def test_a_list_that_is_spelt_bit_by_bit_holds_the_bodies_themselves() -> None:
    rows = [[b"id", BODY], [b"other", BODY[:-1]]]
    spelt = EncodedList()
    for row in rows:
        spelt.add([row])
    text = encode(spelt)
    assert holds(text)
    assert holds(text, rows[1][1])
    assert whole(text) == whole(encode(rows))


def test_a_push_message_that_is_large_is_of_its_kind() -> None:
    plain, pushed = encode_push((b"message", BODY), 2), encode_push((b"message", BODY), 3)
    assert holds(plain)
    assert holds(pushed)
    assert whole(plain) == b"*" + whole(pushed)[1:]
    assert whole(pushed)[:1] == b">"


def may_answer(entry: Any, value: Any) -> bool:
    """Whether a command may answer a value; one that has subcommands answers nothing itself."""
    try:
        return hasattr(entry, "reply") and bool(entry.reply.matches(value))
    except (TypeError, AttributeError, IndexError):  # a value of quite another form
        return False


def test_no_command_puts_a_large_body_into_another_object() -> None:
    """Whatever a command has for an encoder, of every value that its shape allows."""
    values = (BODY, [BODY], [ROW], [COUNTED], {b"body": BODY}, [b"queue", JOB_ID, BODY], [[JOB_ID, BODY]])
    answered = set()
    for entry in table.TABLE.values():
        for value in values:
            if not may_answer(entry, value):
                continue
            for protocol in (2, 3):
                text = entry.encoder(protocol)(value)
                if not whole(text).startswith(b"+"):  # a line
                    assert holds(text), entry.name
                    answered.add(entry.name)
    assert {"ECHO", "GETJOB", "QPEEK"} <= answered


# Jobs.


def large_job(**options: Any) -> Any:
    job = make_job(**options)
    job.body = BODY
    return job


def test_a_large_job_is_written_down_as_a_small_one_is_and_is_not_copied() -> None:
    job = large_job()
    text = job_text(job, 1_000)
    assert holds(text)
    assert decode_record(whole(text))[1].body == BODY
    assert holds(encode_copy(job, 0, b"prefix"))
    assert whole(encode_copy(job, 0, b"prefix")) == b"prefix" + whole(encode_copy(job, 0))


@pytest.mark.parametrize("alias", [b"", b"alias"])
def test_a_large_record_is_read_from_its_pieces_as_from_its_bytes(alias: bytes) -> None:
    job = large_job()
    if alias:
        job = NamedJob(job.id, job.queue, BODY, job.ctime, job.options, alias=alias)
    text = job_text(job, 1_000)
    assert isinstance(text, Pieces)
    assert decode_text(text) == decode_record(whole(text))
    assert decode_text(text)[1].alias == alias


@given(st.integers(1, LARGE))
def test_a_record_that_arrives_in_parts_is_what_was_written_and_its_body_an_object(step: int) -> None:
    text = job_text(large_job(), 1_000)
    data = whole(text)
    arriving = IncomingText(len(data), place_in_copy)
    for part in slices(text, max(step, 1_000)):
        arriving.add(part)
    came = arriving.text()
    assert arriving.got == len(data)
    assert isinstance(came, Pieces)
    assert came.parts[1] == BODY
    assert decode_text(came) == decode_record(data)
    assert decode_text(came)[1].body is came.parts[1]


def test_what_has_no_large_body_arrives_as_one_object() -> None:
    arriving = IncomingText(10, lambda begins: None)
    arriving.add(b"01234")
    arriving.add(memoryview(b"56789"))
    assert arriving.text() == b"0123456789"


def test_a_body_that_would_end_behind_the_text_is_none() -> None:
    arriving = IncomingText(10, lambda begins: (2, 11))
    arriving.add(b"0123456789")
    assert arriving.text() == b"0123456789"


# Messages between nodes.


def carried(message: Any) -> tuple[list[bytes], Any, Any]:
    """Send a message over a link: its frames, the text that came out, and the message that this is."""
    opener = LinkOpener(b"s", Greeting(b"a1" * 20, "", 7711, 17711, 0, True), b"1" * 32)
    acceptor = LinkAcceptor(b"s", Greeting(b"b2" * 20, "", 7711, 17711, 0, True), b"2" * 32)
    opener.feed(acceptor.feed(opener.feed(acceptor.feed(opener.start()))))
    reader = acceptor.reader(1 << 30)
    queue = LinkQueue(OwnCodec(), opener.writer(), 1 << 30)
    assert queue.add(message)
    frames: list[bytes] = []
    while (frame := queue.frame(0)) is not None:
        frames.append(frame)
        reader.feed(frame)
    text = reader.next()
    assert reader.next() is None
    return frames, text, decode(text)


@pytest.mark.parametrize("alias", [b"", b"alias"])
@pytest.mark.parametrize("queue", [b"q", b"q" * 60_000])
def test_a_large_copy_travels_in_bounded_frames_and_its_body_is_put_together_once(queue: bytes, alias: bytes) -> None:
    job: Any = large_job()
    if alias:
        job = new_job(job.id, queue, BODY, 1, job.options, alias=alias)
    job.queue = queue
    job.holders = frozenset((b"a1" * 20, b"b2" * 20))
    frames, text, message = carried((REPLJOB, job, True))
    assert max(map(len, frames)) <= PIECE_BYTES + 100
    assert text.parts[1] == BODY
    assert message == decode(whole(encode_message((REPLJOB, job, True), 0)))
    assert message[1].body is text.parts[1]
    assert (message[1].queue, message[1].alias, message[1].holders) == (queue, alias, job.holders)


@pytest.mark.parametrize(
    "around", [lambda jobs: (YOURJOBS, jobs, True), lambda jobs: (CLAIMED, 7, jobs)], ids=["YOURJOBS", "CLAIMED"]
)
@pytest.mark.parametrize("before", [0, 1, 20])
def test_a_large_job_behind_others_comes_as_an_object_too(before: int, around: Any) -> None:
    others = [make_job(number) for number in range(1, before + 1)]
    for other in others:
        other.body = b"b" * 50_000
    jobs = (*others, large_job())
    frames, text, message = carried(around(jobs))
    assert max(map(len, frames)) <= PIECE_BYTES + 100
    assert isinstance(text, Pieces)
    assert message == decode(whole(encode_message(around(jobs), 0)))
    came = message[1] if message[0] == YOURJOBS else message[2]
    assert came[-1].body is text.parts[1]


@pytest.mark.parametrize("before", [0, 1, 20])
def test_a_large_event_behind_others_comes_as_an_object_too(before: int) -> None:
    others = [(make_job(number).id, b"b" * 50_000) for number in range(1, before + 1)]
    give = (GIVE, 7, b"scope", (*others, (large_job().id, BODY)))
    frames, text, message = carried(give)
    assert max(map(len, frames)) <= PIECE_BYTES + 100
    assert isinstance(text, Pieces)
    assert message == give == decode(whole(encode_message(give, 0)))
    assert message[3][-1][1] is text.parts[1]


def test_an_event_whose_body_is_not_as_long_as_its_sender_says_is_refused() -> None:
    text = whole(encode_message((GIVE, 7, b"scope", ((large_job().id, BODY),)), 0))
    place = place_of_body(text)
    assert place is not None
    with pytest.raises(BadMessage, match="a body of"):
        decode(Pieces([text[: place[0]], text[place[0] : place[1] - 1], text[place[1] :]]))


def test_a_sender_that_says_another_length_of_the_body_is_refused() -> None:
    text = whole(encode_message((REPLJOB, large_job(), False), 0))
    place = place_of_body(text)
    assert place is not None
    with pytest.raises(BadMessage, match="a body of"):
        decode(Pieces([text[: place[0]], text[place[0] : place[1] - 1], text[place[1] :]]))
    with pytest.raises(BadMessage, match="parts add up"):
        decode(Pieces([text[: place[0]], text[place[0] : place[1]], text[place[1] :] + b"more"]))


@given(st.binary(max_size=200))
def test_to_look_for_a_body_never_fails_whatever_comes(data: bytes) -> None:
    for begins in (
        b"",
        bytes((REPLJOB, 0)),
        bytes((YOURJOBS, 0, 3, 0)),
        bytes((CLAIMED, 0, 0, 0, 0, 3, 0)),
        bytes((GIVE,)),
    ):
        place_of_body(begins + data)
    place_in_copy(data)
