"""What waits to leave on a link: its order, its limit, and the frames that it becomes."""

import sys
from collections.abc import Sequence

import attrs
import pytest

from disqued.core.model.job import FLAG_GIVEN_UP, Job, JobOptions
from disqued.core.model.messages import (
    CLAIMED,
    DELJOB,
    EVENT,
    FAIL,
    GOTJOB,
    HANDOVER,
    LEASED,
    LIVES,
    NEEDJOBS,
    PING,
    PONG,
    REPLJOB,
    YOURJOBS,
    Message,
)
from disqued.net.cluster.linkqueue import (
    MESSAGE_COST,
    RUMOUR_COST,
    TAKEN_KEPT,
    TEXT_KEPT,
    TEXTS_KEPT,
    UNIT_COST,
    URGENT_MAX,
    LinkQueue,
    QueuedMessage,
    SharedTexts,
    spread,
    weigh,
)
from disqued.wire.frames import MESSAGES_PER_FRAME, PIECE_BYTES

OPTIONS = JobOptions(ttl_ms=1_000, retry_ms=0, delay_ms=0, replicate=2)


@attrs.define
class Codec:
    """Writes a message as its kind, and the body of its job; notes when."""

    times: list[int] = attrs.field(factory=list)

    def encode(self, message: Message, now: int) -> bytes:
        if message[0] == NEEDJOBS:
            raise ZeroDivisionError
        self.times.append(now)
        body: bytes = message[1].body if message[0] == REPLJOB else b""
        return bytes([message[0]]) + body

    def decode(self, data: bytes) -> Message:
        return (data[0],)


@attrs.define
class Writer:
    """Notes what it is to write; a frame is the number of it."""

    written: list[tuple[str, int]] = attrs.field(factory=list)  #: batch and its messages, piece and its bytes
    kinds: list[int] = attrs.field(factory=list)

    def batch(self, texts: Sequence[bytes]) -> bytes:
        assert sum(map(len, texts)) <= PIECE_BYTES
        self.written.append(("batch", len(texts)))
        self.kinds += [text[0] for text in texts]
        return b"f"

    def piece(self, size: int, part: bytes | memoryview) -> bytes:
        assert 0 < len(part) <= PIECE_BYTES
        self.written.append(("piece", len(part)))
        return b"f"


def copy(size: int) -> Message:
    return (REPLJOB, Job(b"DI" + b"0" * 44 + b"SQ", b"q", b"x" * size, 1, OPTIONS), False)


def make(limit: int = 1 << 30) -> tuple[LinkQueue, Writer]:
    writer = Writer()
    return LinkQueue(Codec(), writer, limit), writer


def drain(queue: LinkQueue) -> None:
    while queue.frame(0) is not None:
        pass


def test_many_messages_share_a_frame_in_their_order() -> None:
    queue, writer = make()
    for kind in (DELJOB, REPLJOB, DELJOB):
        assert queue.add(copy(1) if kind == REPLJOB else (kind, b"id"))
    drain(queue)
    assert writer.written == [("batch", 3)]
    assert writer.kinds == [DELJOB, REPLJOB, DELJOB]
    assert (len(queue), queue.weight, queue.sent) == (0, 0, 3)


def test_a_frame_takes_a_bounded_number_of_messages() -> None:
    queue, writer = make()
    for _ in range(MESSAGES_PER_FRAME + 1):
        queue.add((DELJOB, b"id"))
    drain(queue)
    assert writer.written == [("batch", MESSAGES_PER_FRAME), ("batch", 1)]


def test_a_frame_takes_a_bounded_number_of_bytes() -> None:
    queue, writer = make()
    for _ in range(5):
        queue.add(copy(PIECE_BYTES // 2 - 1_000))
    drain(queue)
    assert writer.written == [("batch", 2), ("batch", 2), ("batch", 1)]


def test_a_message_that_just_fits_in_a_frame_is_not_cut() -> None:
    queue, writer = make()
    for size in (PIECE_BYTES - 1, PIECE_BYTES):
        queue.add(copy(size))  # the codec here writes one byte more
    drain(queue)
    assert writer.written == [("batch", 1), ("piece", PIECE_BYTES), ("piece", 1)]


def test_messages_that_are_larger_than_they_look_are_put_back_and_fill_the_next_frame() -> None:
    class Long(Codec):
        def encode(self, message: Message, now: int) -> bytes:
            return bytes([message[0]]) * (PIECE_BYTES - 10)

    writer = Writer()
    queue = LinkQueue(Long(), writer, 1 << 30)
    for _ in range(3):
        queue.add((DELJOB, b"id"))
    drain(queue)
    assert writer.written == [("batch", 1)] * 3
    assert queue.weight == 0


def test_who_is_there_is_told_between_the_pieces_of_a_large_message() -> None:
    queue, writer = make()
    queue.add((DELJOB, b"id"))
    queue.add(copy(2 * PIECE_BYTES))
    queue.add((DELJOB, b"id"))
    queue.frame(0)
    queue.frame(0)
    for message in ((PING, 0, ()), (PONG, 0, ()), (FAIL, b"a" * 40)):
        queue.add(message)
    drain(queue)
    sizes = [("piece", PIECE_BYTES), ("batch", 3), ("piece", PIECE_BYTES), ("piece", 1)]
    assert writer.written == [("batch", 1), *sizes, ("batch", 1)]
    assert writer.kinds == [DELJOB, PING, PONG, FAIL, DELJOB]
    assert (len(queue), queue.weight, queue.sent) == (0, 0, 6)


def test_what_is_left_of_deadlines_is_that_of_the_moment_of_leaving() -> None:
    codec = Codec()
    queue = LinkQueue(codec, Writer(), 1 << 30)
    queue.add(copy(1))
    queue.frame(77)
    assert codec.times == [77]


def test_beyond_the_limit_the_newest_are_dropped_and_one_message_always_fits() -> None:
    queue, _ = make(limit=1_000)
    assert queue.add(copy(5_000))
    assert not queue.add((DELJOB, b"id"))
    drain(queue)
    taken = [queue.add((DELJOB, b"id")) for _ in range(10)]
    assert taken == [True] * (1_000 // MESSAGE_COST) + [False] * 5
    assert queue.weight <= 1_000


def test_who_is_there_is_told_even_when_there_is_no_room_but_not_without_bound() -> None:
    queue, _ = make(limit=1_000)
    queue.add(copy(5_000))
    taken = [queue.add((PING, 0, ())) for _ in range(URGENT_MAX + 5)]
    assert taken == [True] * URGENT_MAX + [False] * 5


def test_a_message_that_cannot_be_written_is_not_tried_again() -> None:
    queue, writer = make()
    queue.add((NEEDJOBS, b"q", 1))
    queue.add((DELJOB, b"id"))
    with pytest.raises(ZeroDivisionError):
        queue.frame(0)
    drain(queue)
    assert writer.kinds == [DELJOB]
    assert queue.weight == 0


def test_messages_before_one_that_cannot_be_written_leave() -> None:
    queue, writer = make()
    for message in ((DELJOB, b"1"), (NEEDJOBS, b"q", 1), copy(5)):
        queue.add(message)
    queue.frame(0)
    assert (writer.kinds, len(queue), queue.sent) == ([DELJOB], 2, 1)
    with pytest.raises(ZeroDivisionError):
        queue.frame(0)
    drain(queue)
    assert (writer.kinds, queue.weight, queue.sent) == ([DELJOB, REPLJOB], 0, 2)


def test_jobs_weigh_what_their_bodies_take() -> None:
    job = copy(1_000)[1]
    assert weigh((REPLJOB, job, True)) >= 1_000
    assert weigh((YOURJOBS, (job, job), True)) >= 2_000
    assert weigh((DELJOB, job.id)) == MESSAGE_COST
    assert weigh((PING, 0, (1, 2, 3))) > MESSAGE_COST


def test_a_copy_that_was_given_up_before_it_left_does_not_leave() -> None:
    queue, writer = make()
    copies = [copy(10) for _ in range(4)]
    for message in (*copies, (DELJOB, b"")):
        queue.add(message)
    for message in copies[1:]:
        message[1].flags |= FLAG_GIVEN_UP
    while queue.frame(0) is not None:
        pass
    assert writer.kinds == [REPLJOB, DELJOB]
    assert (queue.weight, len(queue), queue.sent) == (0, 0, 2)


def test_a_queue_of_nothing_but_copies_that_were_given_up_writes_nothing() -> None:
    queue, writer = make()
    for _ in range(2 * MESSAGES_PER_FRAME):
        message = copy(10)
        message[1].flags |= FLAG_GIVEN_UP
        queue.add(message)
    assert queue.frame(0) is None
    assert (writer.written, queue.weight) == ([], 0)


# Several links.


def links(limit: int = 1 << 30) -> tuple[dict[bytes, LinkQueue], Codec, list[Writer], SharedTexts]:
    """The queues of two nodes, and what they write with."""
    codec, writers, texts = Codec(), [Writer(), Writer()], SharedTexts()
    return {
        name: LinkQueue(codec, writer, limit, texts) for name, writer in zip((b"a", b"b"), writers, strict=True)
    }, codec, writers, texts  # fmt: skip


def to_both(*messages: Message) -> list[tuple[bytes, Message]]:
    return [(name, message) for message in messages for name in (b"a", b"b")]


def test_messages_are_spread_over_the_links_and_it_is_said_what_became_of_them() -> None:
    queues, _, writers, _ = links()
    queues[b"b"].limit = 1
    known = to_both((DELJOB, b"1"), (DELJOB, b"2"))
    touched, unlinked, dropped = spread([*known, (b"c", (FAIL, b"3"))], queues)
    assert (touched, unlinked, dropped) == ([b"a", b"b"], [(b"c", (FAIL, b"3"))], 1)
    for queue in queues.values():
        drain(queue)
    assert [writer.written for writer in writers] == [[("batch", 2)], [("batch", 1)]]
    assert spread([(b"b", (DELJOB, b"4"))], queues)[0] == [b"b"]


def test_a_copy_for_two_nodes_is_written_down_once() -> None:
    queues, codec, writers, _ = links()
    spread(to_both(copy(1), copy(2), (DELJOB, b"id")), queues)
    for queue in queues.values():
        queue.frame(7)
    assert codec.times == [7] * 3
    assert [writer.kinds for writer in writers] == [[REPLJOB, REPLJOB, DELJOB]] * 2


def test_what_leaves_later_is_written_down_as_of_then() -> None:
    queues, codec, _, _ = links()
    spread(to_both(copy(1)), queues)
    queues[b"a"].frame(7)
    queues[b"b"].frame(8)
    assert codec.times == [7, 8]


def test_no_text_is_kept_beyond_the_moment_in_which_the_links_write() -> None:
    queues, codec, _, texts = links()
    message = copy(1)
    spread(to_both(message), queues)
    queues[b"a"].frame(7)
    texts.forget()
    queues[b"b"].frame(7)
    assert codec.times == [7, 7]


def test_no_long_text_is_kept_nor_one_that_nobody_waits_for() -> None:
    queues, codec, _, _ = links()
    spread(to_both(copy(TEXT_KEPT)), queues)
    for queue in queues.values():
        queue.frame(7)
    assert codec.times == [7, 7]
    waiting = QueuedMessage(copy(1))
    assert queues[b"a"].put(waiting)
    queues[b"a"].frame(7)
    assert waiting.text is None


def test_a_text_of_the_largest_kept_size_is_written_down_once() -> None:
    queues, codec, _, _ = links()
    spread(to_both(copy(TEXT_KEPT - 1)), queues)  # the codec here writes one byte more
    for queue in queues.values():
        queue.frame(7)
    assert codec.times == [7]


def test_texts_that_were_forgotten_make_room_for_others() -> None:
    _, _, _, texts = links()
    for _ in range(3):
        for number in range(TEXTS_KEPT + 1):
            waiting = QueuedMessage((DELJOB, b"id"))
            texts.keep(waiting, b"text")
            assert (waiting.text is not None) == (number < TEXTS_KEPT)
        texts.forget()
        assert waiting.text is None


def test_a_message_that_is_put_back_waits_on_as_many_links_as_before() -> None:
    class Long(Codec):
        def encode(self, message: Message, now: int) -> bytes:
            return bytes([message[0]]) * (PIECE_BYTES - 10)

    queues = {name: LinkQueue(Long(), Writer(), 1 << 30, SharedTexts()) for name in (b"a", b"b")}
    waiting = [QueuedMessage((DELJOB, b"id")), QueuedMessage((DELJOB, b"id"))]
    for queue in queues.values():
        assert all(map(queue.put, waiting))
    queues[b"a"].frame(7)
    assert [each.links for each in waiting] == [1, 2]
    assert (queues[b"a"].weight, len(queues[b"a"])) == (MESSAGE_COST, 1)
    queues[b"a"].frame(7)
    assert [each.links for each in waiting] == [1, 1]
    assert (queues[b"a"].weight, len(queues[b"a"])) == (0, 0)


def test_a_large_message_is_let_go_when_its_last_piece_is_written() -> None:
    text = b"\0" * (2 * PIECE_BYTES + 1)

    class Same(Codec):
        def encode(self, message: Message, now: int) -> bytes:
            return text

    queue = LinkQueue(Same(), Writer(), 1 << 30)
    before = sys.getrefcount(text)
    queue.add((DELJOB, b"id"))
    queue.frame(0)
    assert sys.getrefcount(text) > before
    weights = []
    while queue.frame(0) is not None:
        weights.append((queue.weight, len(queue), queue.sent))
    assert weights == [(MESSAGE_COST, 1, 0), (0, 0, 1)]
    assert sys.getrefcount(text) == before


def test_a_message_weighs_what_it_keeps_while_it_waits() -> None:
    body, name = copy(100)[1], b"n" * 10
    assert weigh((DELJOB, b"id")) == MESSAGE_COST
    assert weigh((GOTJOB, b"id")) == MESSAGE_COST
    assert weigh((REPLJOB, body, True)) == MESSAGE_COST + 100
    assert weigh((YOURJOBS, [body, body])) == MESSAGE_COST + 2 * (MESSAGE_COST + 100)
    assert weigh((CLAIMED, b"q", [body])) == MESSAGE_COST + MESSAGE_COST + 100
    assert weigh((PING, 0, [(), ()])) == weigh((PONG, 0, [(), ()])) == MESSAGE_COST + 2 * RUMOUR_COST
    assert weigh((LIVES, [(), (), ()])) == weigh((LEASED, 0, [(), (), ()])) == MESSAGE_COST + 3 * UNIT_COST
    assert weigh((HANDOVER, 0, 0, 0, [name, name], [()])) == MESSAGE_COST + UNIT_COST + 20
    assert weigh((EVENT, name, b"kind", name)) == MESSAGE_COST + 20


def test_a_message_that_is_dropped_weighs_nothing_and_waits_nowhere() -> None:
    queue, _ = make(limit=2 * MESSAGE_COST)
    waiting = [QueuedMessage((DELJOB, b"id")) for _ in range(3)]
    assert [queue.put(each) for each in waiting] == [True, True, False]
    assert [each.links for each in waiting] == [1, 1, 0]
    assert (queue.weight, len(queue)) == (2 * MESSAGE_COST, 2)
    urgent = [QueuedMessage((PING, 0, ())) for _ in range(URGENT_MAX + 1)]
    assert [queue.put(each) for each in urgent] == [True] * URGENT_MAX + [False]
    assert urgent[-1].links == 0
    drain(queue)
    assert (queue.weight, len(queue)) == (0, 0)
    assert [each.links for each in waiting] == [0, 0, 0]


def test_a_copy_that_was_given_up_between_two_links_leaves_on_the_first_alone() -> None:
    queues, _, writers, _ = links()
    message = copy(1)
    spread(to_both(message), queues)
    queues[b"a"].frame(7)
    message[1].flags |= FLAG_GIVEN_UP
    assert queues[b"b"].frame(7) is None
    assert [writer.kinds for writer in writers] == [[REPLJOB], []]


def test_a_long_line_moves_on_and_keeps_its_order() -> None:
    queue, writer = make()
    kinds = [DELJOB, REPLJOB, YOURJOBS]
    count = 3 * TAKEN_KEPT
    for number in range(count):
        queue.add((kinds[number % 3], copy(0)[1], False) if number % 3 == 1 else (kinds[number % 3], ()))
    assert len(queue) == count
    while queue.frame(0) is not None:
        queue.add((DELJOB, b"id")) if len(queue) == count - MESSAGES_PER_FRAME else None
    assert writer.kinds == [kinds[number % 3] for number in range(count)] + [DELJOB]
    assert (len(queue), queue.weight, queue.sent) == (0, 0, count + 1)
