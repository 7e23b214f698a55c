"""What came on a link: the node hears it in order, in slices, and a bug of ours is left behind."""

import sys
from collections import deque
from collections.abc import Iterable
from time import perf_counter

import pytest

from disqued.core.model.messages import GOTACK, GOTJOB, Message
from disqued.net.cluster.linkinbox import QUICK_ONES, LinkInbox
from disqued.wire.fields import BadMessage
from disqued.wire.frames import BadFrame

SENDER = b"b" * 40
LATER, OVER = 3_600.0, -1.0  #: seconds from now


class Reader:
    """Gives out texts; one that is None is a frame that is not complete."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        self.texts = deque(texts)

    def feed(self, data: bytes) -> None:
        self.texts.append(data)

    def next(self) -> bytes | None:
        if self.texts and self.texts[0] == b"forged":
            raise BadFrame("forged", "a frame that the other node did not write so")
        return self.texts.popleft() if self.texts else None


class Codec:
    """Reads a text as an ack of it, or that there is a copy, and none that says bad."""

    def encode(self, message: Message, now: int) -> bytes:
        raise NotImplementedError("an inbox writes nothing")

    def decode(self, data: bytes) -> Message:
        if data == b"bad":
            raise BadMessage("bad")
        if data.startswith(b"copy"):
            return (GOTJOB, data)
        return (GOTACK, data, b"", False)


class Bed:
    """An inbox, what was heard, and what went wrong."""

    def __init__(self, *texts: bytes) -> None:
        self.heard: list[bytes] = []
        self.crashed: list[Message] = []
        self.inbox = LinkInbox(Codec(), Reader(texts), SENDER, self._listen, self._crash)

    def _listen(self, sender: bytes, message: Message) -> None:
        assert sender == SENDER
        if message[1] == b"bug":
            raise ZeroDivisionError
        self.heard.append(message[1])

    def _crash(self, sender: bytes, message: Message) -> None:
        assert sender == SENDER
        assert isinstance(sys.exception(), ZeroDivisionError)
        self.crashed.append(message)

    def hear(self, seconds: float = LATER) -> bool:
        return self.inbox.hear(perf_counter() + seconds)


def test_all_that_is_complete_is_heard_in_order() -> None:
    bed = Bed(b"1", b"2")
    assert bed.hear()
    bed.inbox.feed(b"3")
    assert bed.hear()
    assert bed.heard == [b"1", b"2", b"3"]
    assert bed.inbox.heard == 3


def test_one_message_is_heard_however_little_time_there_is_and_the_rest_later() -> None:
    bed = Bed(b"1", b"2", b"3")
    assert not bed.hear(OVER)
    assert bed.heard == [b"1"]
    assert bed.hear()
    assert bed.heard == [b"1", b"2", b"3"]


def test_the_time_is_looked_at_after_a_few_messages_that_are_quick_and_after_each_other_one() -> None:
    copies = [b"copy %d" % number for number in range(QUICK_ONES + 2)]
    bed = Bed(*copies, b"1", b"2")
    assert not bed.hear(OVER)
    assert bed.heard == copies[:QUICK_ONES]
    assert not bed.hear(OVER)
    assert bed.heard == [*copies, b"1"]


def test_a_bug_of_ours_is_told_and_the_next_message_is_heard() -> None:
    bed = Bed(b"1", b"bug", b"2")
    assert bed.hear()
    assert bed.heard == [b"1", b"2"]
    assert [message[1] for message in bed.crashed] == [b"bug"]
    assert bed.inbox.heard == 3


@pytest.mark.parametrize(("text", "error"), [(b"forged", BadFrame), (b"bad", BadMessage)])
def test_what_no_sound_node_writes_ends_it_after_what_came_before(text: bytes, error: type[Exception]) -> None:
    bed = Bed(b"1", text, b"2")
    with pytest.raises(error):
        bed.hear()
    assert bed.heard == [b"1"]
    assert bed.inbox.heard == 1
