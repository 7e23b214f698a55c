"""Output queue of one link: in order, urgent messages first, bounded.

    PING, PONG, FAIL --> urgent ----------------+
                                                +--> frames, when the transport wants more
    everything else  --> ordinary --> pieces ---+
                                      (of one large message)

Messages wait as they were given and are written down when they leave: so what is left of a deadline is right however
long that took, and a job that waits costs no second copy of its body.  Beyond the limit the newest messages are
dropped; whoever needs an answer asks again.  Weights are bytes, roughly those of memory.

A copy goes to several nodes at the same time: it waits once for all of them, and is written down once for those that
it leaves to in one go.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from mypy_extensions import mypyc_attr

from disqued.core.model.job import FLAG_GIVEN_UP, Job
from disqued.core.model.messages import (
    CLAIMED,
    EVENT,
    GOTJOB,
    HANDOVER,
    LEASED,
    LIVES,
    PING,
    POLICY,
    PONG,
    REPLJOB,
    URGENT,
    YOURJOBS,
    Message,
)
from disqued.core.model.policies import size_of
from disqued.wire import messages as own
from disqued.wire.fields import Fields
from disqued.wire.frames import MESSAGES_PER_FRAME, PIECE_BYTES, MessageCodec, OwnCodec, Writer, pieces
from disqued.wire.pieces import Text

MESSAGE_COST: Final = 200  #: bytes that a message takes besides its bodies
RUMOUR_COST: Final = 100
UNIT_COST: Final = 250  #: bytes that a message takes for each unit or worker
URGENT_MAX: Final = 256  #: urgent messages that may wait
TEXT_KEPT: Final = 4_096  #: longest text, in bytes, that is kept for other links
TEXTS_KEPT: Final = 4_096  #: such texts at the same time
TAKEN_KEPT: Final = 1_024  #: places of what was taken out of a line, before the line is written anew


def weigh(message: Fields) -> int:
    """Bytes of memory that a message keeps while it waits."""
    kind: int = message[0]
    if kind == REPLJOB:
        job: Job = message[1]
        return MESSAGE_COST + len(job.body)
    if kind == GOTJOB:
        return MESSAGE_COST
    if kind in (YOURJOBS, CLAIMED):
        jobs = message[1] if kind == YOURJOBS else message[2]
        return MESSAGE_COST + sum(MESSAGE_COST + len(job.body) for job in jobs)
    if kind in (PING, PONG):
        return MESSAGE_COST + RUMOUR_COST * len(message[2])
    if kind in (LIVES, LEASED):
        return MESSAGE_COST + UNIT_COST * len(message[-1])
    if kind == HANDOVER:
        return MESSAGE_COST + UNIT_COST * len(message[5]) + sum(map(len, message[4]))
    if kind == POLICY:
        sizes = [len(name) + size_of(register.value) for name, _, register in message[2]]
        return MESSAGE_COST + UNIT_COST * len(message[2]) + sum(sizes)
    if kind == EVENT:
        return MESSAGE_COST + len(message[1]) + len(message[3])
    return MESSAGE_COST


@mypyc_attr(acyclic=True)
class QueuedMessage:
    """A message that waits, on one link or on several."""

    __slots__ = ("job", "links", "message", "text", "weight")

    def __init__(self, message: Fields) -> None:
        self.message: Message = message
        self.weight: int = weigh(message)
        self.job: Job | None = message[1] if message[0] == REPLJOB else None  #: that it is a copy of
        self.links: int = 0  #: on which it waits
        self.text: Text | None = None  #: its encoded text, for other links that write it now


class SharedTexts:
    """The texts of what several links write, until they have."""

    __slots__ = ("_kept", "_now")

    def __init__(self) -> None:
        self._kept: list[QueuedMessage] = []
        self._now: int = 0  #: as of when they are written down

    def at(self, now: int) -> None:
        """See to it that there is no text of another time."""
        if self._now != now:
            self.forget()
            self._now = now

    def keep(self, waiting: QueuedMessage, text: Text) -> None:
        """Keep a text for other links, if it is worth that."""
        if len(text) <= TEXT_KEPT and len(self._kept) < TEXTS_KEPT:
            waiting.text = text
            self._kept.append(waiting)

    def forget(self) -> None:
        """Every link had its turn, and what they write about may change."""
        for waiting in self._kept:
            waiting.text = None
        self._kept.clear()


class _Fifo:
    """What waits in a row: in at one end, out at the other."""

    __slots__ = ("_items", "_taken")

    def __init__(self) -> None:
        self._items: list[QueuedMessage | None] = []
        self._taken: int = 0  #: of them

    def __len__(self) -> int:
        return len(self._items) - self._taken

    def add(self, waiting: QueuedMessage) -> None:
        """Let one wait behind all others."""
        self._items.append(waiting)

    def take(self) -> QueuedMessage:
        """Take out the first; there is one."""
        waiting = self._items[self._taken]
        assert waiting is not None
        self._items[self._taken] = None
        self._taken += 1
        if self._taken == len(self._items):
            self._items.clear()
            self._taken = 0
        elif self._taken >= TAKEN_KEPT and 2 * self._taken >= len(self._items):
            del self._items[: self._taken]
            self._taken = 0
        return waiting

    def put_back(self, waiting: QueuedMessage) -> None:
        """Let what was taken out last be the first again."""
        if self._taken:
            self._taken -= 1
            self._items[self._taken] = waiting
        else:
            self._items.insert(0, waiting)


class LinkQueue:
    """The messages that wait, and the frames that they become."""

    def __init__(self, codec: MessageCodec, writer: Writer, limit: int, texts: SharedTexts | None = None) -> None:
        """`limit`: bytes that may wait; one message may always wait, however large it is.

        `texts`: shared by the queues of a node; None = each message is written down for this link alone.
        """
        self.limit = limit
        self.weight = 0  #: bytes waiting
        self.sent = 0  #: messages encoded
        self.touched = False  #: `spread` has added something
        self._codec = codec
        self._is_own = isinstance(codec, OwnCodec)  # then it is called without a search for the method
        self._texts = texts
        self._writer = writer
        self._urgent = _Fifo()
        self._ordinary = _Fifo()
        #: The rest of a message that is written in pieces, its size and its weight.
        self._pieces: Iterator[bytes | memoryview] = iter(())
        self._left = 0
        self._size = 0
        self._weight = 0

    def __len__(self) -> int:
        return len(self._urgent) + len(self._ordinary) + bool(self._left)

    def add(self, message: Message) -> bool:
        """Let a message wait; False = there is no room for it, and it is dropped."""
        return self.put(QueuedMessage(message))

    def put(self, waiting: QueuedMessage) -> bool:
        """Let a message wait that may wait on other links, too; False = it is dropped, as in `add`."""
        weight = waiting.weight
        if waiting.job is None and waiting.message[0] in URGENT:
            if len(self._urgent) >= URGENT_MAX:
                return False
            self._urgent.add(waiting)
        else:
            if self.weight + weight > self.limit and self.weight:
                return False
            self._ordinary.add(waiting)
        waiting.links += 1
        self.weight += weight
        return True

    def frame(self, now: int) -> bytes | None:
        """Write the next frame, as of the monotonic time `now`; None = nothing waits."""
        if len(self._urgent):
            return self._batch(self._urgent, now)
        if self._left:
            return self._piece()
        if len(self._ordinary):
            return self._batch(self._ordinary, now)
        return None

    def _batch(self, line: _Fifo, now: int) -> bytes | None:
        """Write as many messages as one frame takes, or the first piece of one that is larger than a frame.

        Copies that were given up are left out; when nothing else waits here, what waits elsewhere comes next.
        """
        texts: list[bytes] = []
        size = 0
        if self._texts is not None:
            self._texts.at(now)
        while len(line) and len(texts) < MESSAGES_PER_FRAME:
            # Out of the line first: should it be impossible to write, then it is not tried for ever.
            waiting = line.take()
            weight = waiting.weight
            if texts and size + weight > PIECE_BYTES:
                line.put_back(waiting)
                break
            self.weight -= weight
            waiting.links -= 1
            job = waiting.job
            if job is not None and job.flags & FLAG_GIVEN_UP:
                continue  # it needs not leave any more
            text = waiting.text
            if text is None:
                try:
                    text = self._write(waiting, now)
                except Exception:
                    if not texts:
                        raise
                    # What was written before it leaves first; then it is tried again, alone.
                    self._put_back(line, waiting)
                    break
            if size + len(text) > PIECE_BYTES:
                if not texts:
                    return self._begin_pieces(text, weight)
                self._put_back(line, waiting)
                break
            texts.append(text)  # type: ignore[arg-type]  # one in pieces is longer than a frame
            size += len(text)
        if not texts:
            return self.frame(now)
        self.sent += len(texts)
        return self._writer.batch(texts)

    def _put_back(self, line: _Fifo, waiting: QueuedMessage) -> None:
        """Let a message that was taken out last wait as before."""
        line.put_back(waiting)
        waiting.links += 1
        self.weight += waiting.weight

    def _write(self, waiting: QueuedMessage, now: int) -> Text:
        """Write a message down, for this link and for those on which it waits."""
        message = waiting.message
        text = own.encode(message, now) if self._is_own else self._codec.encode(message, now)
        if waiting.links and self._texts is not None:
            self._texts.keep(waiting, text)
        return text

    def _begin_pieces(self, text: Text, weight: int) -> bytes:
        self._pieces, self._left, self._size, self._weight = pieces(text), len(text), len(text), weight
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


def spread(
    messages: Sequence[tuple[bytes, Message]], queues: dict[bytes, LinkQueue]
) -> tuple[list[bytes], list[tuple[bytes, Message]], int]:
    """Let messages wait on the links of the nodes that they are for.

    Returns the nodes that have something waiting now, what is for nodes without a link, and how many were dropped.
    """
    touched: list[bytes] = []
    unlinked: list[tuple[bytes, Message]] = []
    dropped = 0
    waiting: QueuedMessage | None = None
    for node_id, message in messages:
        queue = queues.get(node_id)
        if queue is None:
            unlinked.append((node_id, message))
            continue
        # Who says the same to several nodes does so in one go, with the same object.
        if waiting is None or waiting.message is not message:
            waiting = QueuedMessage(message)
        if not queue.put(waiting):
            dropped += 1
        elif not queue.touched:
            queue.touched = True
            touched.append(node_id)
    for node_id in touched:
        queues[node_id].touched = False
    return touched, unlinked, dropped
