"""What waits of a client's input is taken in order, and counted."""

from disqued.net.clients.input_queue import CHUNK_COST, CHUNKS_MAX, RESUMED, InputQueue
from disqued.wire.requests import RequestParser, weight


def test_commands_and_chunks_are_counted_while_they_wait() -> None:
    queue = InputQueue(RequestParser())
    queue.postpone([[b"PING"], [b"QLEN", b"q"]])
    queue.put_off(b"PING\r\n")
    assert queue.waiting == weight([b"PING"]) + weight([b"QLEN", b"q"]) + 6 + CHUNK_COST
    assert queue.take_commands() == [[b"PING"], [b"QLEN", b"q"]]
    assert queue.take_chunk() == b"PING\r\n"
    assert queue.waiting == 0


def test_postponed_commands_come_before_those_that_wait() -> None:
    queue = InputQueue(RequestParser())
    queue.postpone([[b"%d" % number] for number in range(RESUMED + 2)])
    first = queue.take_commands()
    assert len(first) == RESUMED
    queue.postpone(first[-1:])
    assert queue.take_commands() == [[b"%d" % number] for number in range(RESUMED - 1, RESUMED + 2)]


def test_an_unfinished_command_counts_and_is_not_dropped() -> None:
    queue = InputQueue(RequestParser())
    queue.parser.feed(b"*1\r\n$9000\r\nhalf")
    queue.put_off(b"x" * CHUNKS_MAX)
    assert queue.is_full
    assert not queue.is_short
    queue.drop()
    assert not queue.is_full
    assert queue.is_short
    assert queue.waiting == 0
    assert queue.parser.held > 0
