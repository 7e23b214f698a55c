"""Input of one link: frames become messages, which the node receives one after the other.

    bytes --feed--> frames, proved --> messages, read --hear--> node     until nothing is complete, or time is up

The time is looked at after each message, but for the two kinds that a job with copies is made of: after a few of those.
A message that is a bug of ours is reported and left behind; a frame or a message that no sound node writes ends it.
It is the other side of `linkqueue`, and compiled like that one: with copies a job is four messages and more.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Final

from disqued.core.model.messages import GOTJOB, REPLJOB, Message
from disqued.core.node import Node
from disqued.wire import messages
from disqued.wire.frames import FrameReader, MessageCodec, OwnCodec, Reader

QUICK_ONES: Final = 8  #: messages of the quick kinds handled between two looks at the clock


class LinkInbox:
    """The messages of one other node."""

    def __init__(
        self, codec: MessageCodec, reader: Reader, sender: bytes, listener: Node | Callable[[bytes, Message], None],
        on_crash: Callable[[bytes, tuple[object, ...]], None],
    ) -> None:  # fmt: skip
        """Take the id of the other node, who hears it, and who is told of a bug of ours while it is handled."""
        # What it has to do with is known here, nearly always, and then called without a search for the method.
        self._is_own = isinstance(codec, OwnCodec)
        self._frames = reader if isinstance(reader, FrameReader) else None
        self._node = listener if isinstance(listener, Node) else None
        self.heard = 0  #: messages passed to the node
        self._codec = codec
        self._reader = reader
        self._sender = sender
        self._listener = listener.message if isinstance(listener, Node) else listener
        self._on_crash = on_crash

    @property
    def buffered(self) -> int:
        """Bytes of frames and messages that are not complete, as far as that is known."""
        return 0 if self._frames is None else self._frames.buffered

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        self._reader.feed(data)

    def hear(self, ends: float) -> bool:
        """Give the node what is complete, within a step; False = `ends`, of `perf_counter`, came before the last.

        Raises BadFrame, BadMessage.
        """
        codec, reader, sender, listener = self._codec, self._reader, self._sender, self._listener
        frames, node, is_own = self._frames, self._node, self._is_own
        unlooked = 0
        while True:
            text = reader.next() if frames is None else frames.next()
            if text is None:
                return True
            message = messages.decode(text) if is_own else codec.decode(text)
            self.heard += 1
            try:
                if node is None:
                    listener(sender, message)
                else:
                    node.message(sender, message)
            except Exception:
                self._on_crash(sender, message)
            unlooked += 1
            if unlooked < QUICK_ONES and message[0] in (REPLJOB, GOTJOB):
                continue
            unlooked = 0
            if perf_counter() > ends:
                return False
