"""What waits to leave on one link: in order, urgent things first, and never too much.

    PING, PONG, FAIL --> urgent ----------------+
                                                +--> frames, when the transport wants more
    everything else  --> ordinary --> pieces ---+
                                      (of one large message)

Messages wait as they were given and are written down when they leave: so what is left of a deadline is right however
long that took, and a job that waits costs no second copy of its body.  Beyond the limit the newest messages are
dropped; whoever needs an answer asks again.  Weights are bytes, roughly those of memory.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

from disqued.core.job import FLAG_GIVEN_UP
from disqued.core.messages import (
    CLAIMED,
    EVENT,
    HANDOVER,
    LEASED,
    LIVES,
    PING,
    PONG,
    REPLJOB,
    URGENT,
    YOURJOBS,
    Message,
)
from disqued.wire.frames import MESSAGES_PER_FRAME, PIECE_BYTES, Codec, Writer, pieces

MESSAGE_COST: Final = 200  #: bytes that a message takes beside the bodies that it brings
RUMOUR_COST: Final = 100
UNIT_COST: Final = 250  #: bytes that what is said of a unit or a worker takes
URGENT_MAX: Final = 256  #: urgent messages that may wait


def weigh(message: Message) -> int:
    """Bytes of memory that a message keeps while it waits."""
    kind = message[0]
    if kind == REPLJOB:
        return MESSAGE_COST + len(message[1].body)
    if kind in (YOURJOBS, CLAIMED):
        jobs = message[1] if kind == YOURJOBS else message[2]
        return MESSAGE_COST + sum(MESSAGE_COST + len(job.body) for job in jobs)
    if kind in (PING, PONG):
        return MESSAGE_COST + RUMOUR_COST * len(message[2])
    if kind in (LIVES, LEASED):
        return MESSAGE_COST + UNIT_COST * len(message[-1])
    if kind == HANDOVER:
        return MESSAGE_COST + UNIT_COST * len(message[5]) + sum(map(len, message[4]))
    if kind == EVENT:
        return MESSAGE_COST + len(message[1]) + len(message[3])
    return MESSAGE_COST


def _is_moot(message: Message) -> bool:
    """Tell whether a message needs not leave any more: a copy of a job that was given up meanwhile."""
    return message[0] == REPLJOB and bool(message[1].flags & FLAG_GIVEN_UP)


class LinkQueue:
    """The messages that wait, and the frames that they become."""

    def __init__(self, codec: Codec, writer: Writer, limit: int) -> None:
        """`limit`: bytes that may wait; one message may always wait, however large it is."""
        self.limit = limit
        self.weight = 0  #: bytes that wait
        self.sent = 0  #: messages that were written down
        self._codec = codec
        self._writer = writer
        self._urgent: deque[tuple[int, Message]] = deque()
        self._ordinary: deque[tuple[int, Message]] = deque()
        #: What is not written yet of a message that is written in pieces, its size and its weight.
        self._pieces: Iterator[memoryview] = iter(())
        self._left = 0
        self._size = 0
        self._weight = 0

    def __len__(self) -> int:
        return len(self._urgent) + len(self._ordinary) + bool(self._left)

    def add(self, message: Message) -> bool:
        """Let a message wait; False = there is no room for it, and it is dropped."""
        weight = weigh(message)
        if message[0] in URGENT:
            if len(self._urgent) >= URGENT_MAX:
                return False
            self._urgent.append((weight, message))
        else:
            if self.weight + weight > self.limit and self.weight:
                return False
            self._ordinary.append((weight, message))
        self.weight += weight
        return True

    def frame(self, now: int) -> bytes | None:
        """Write the next frame, as of the monotonic time `now`; None = nothing waits."""
        if self._urgent:
            return self._batch(self._urgent, now)
        if self._left:
            return self._piece()
        if self._ordinary:
            return self._batch(self._ordinary, now)
        return None

    def _batch(self, queue: deque[tuple[int, Message]], now: int) -> bytes | None:
        """Write as many messages as one frame takes, or the first piece of one that is larger than a frame.

        Copies that were given up are left out; when nothing else waits here, what waits elsewhere comes next.
        """
        texts: list[bytes] = []
        size = 0
        while queue and len(texts) < MESSAGES_PER_FRAME:
            weight, message = queue[0]
            if texts and size + weight > PIECE_BYTES:
                break
            # Out of the queue first: should it be impossible to write, then it is not tried for ever.
            queue.popleft()
            self.weight -= weight
            if _is_moot(message):
                continue
            text = self._codec.encode(message, now)
            if size + len(text) > PIECE_BYTES:
                if not texts:
                    return self._begin_pieces(text, weight)
                queue.appendleft((weight, message))
                self.weight += weight
                break
            texts.append(text)
            size += len(text)
        if not texts:
            return self.frame(now)
        self.sent += len(texts)
        return self._writer.batch(texts)

    def _begin_pieces(self, text: bytes, weight: int) -> bytes:
        self._pieces, self._left, self._size, self._weight = iter(pieces(text)), len(text), len(text), weight
        self.weight += weight
        return self._piece()

    def _piece(self) -> bytes:
        part = next(self._pieces)
        self._left -= len(part)
        if not self._left:
            self._pieces = iter(())
            self.weight -= self._weight
            self.sent += 1
        return self._writer.piece(self._size, part)
