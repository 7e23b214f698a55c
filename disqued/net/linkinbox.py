"""What came on one link: frames become messages, and the node hears them one after the other.

    bytes --feed--> frames, proved --> messages, read --hear--> node     until nothing is complete, or time is up

A message that is a bug of ours is reported and left behind; a frame or a message that no sound node writes ends it.
It is the other side of `net/linkqueue.py`, and compiled like that one: with copies a job is four messages and more.
"""

from collections.abc import Callable
from time import perf_counter

from disqued.core.messages import Message
from disqued.wire.frames import Codec, Reader


class LinkInbox:
    """The messages of one other node."""

    def __init__(
        self, codec: Codec, reader: Reader, sender: bytes, listener: Callable[[bytes, Message], None],
        on_crash: Callable[[bytes, Message], None],
    ) -> None:  # fmt: skip
        """Take the id of the other node, who hears it, and who is told of a bug of ours while it is handled."""
        self.heard = 0  #: messages that the node was given
        self._codec = codec
        self._reader = reader
        self._sender = sender
        self._listener = listener
        self._on_crash = on_crash

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        self._reader.feed(data)

    def hear(self, ends: float) -> bool:
        """Give the node what is complete, within a step; False = `ends`, of `perf_counter`, came before the last.

        Raises BadFrame, BadMessage.
        """
        codec, reader, sender, listener = self._codec, self._reader, self._sender, self._listener
        while True:
            text = reader.next()
            if text is None:
                return True
            message = codec.decode(text)
            self.heard += 1
            try:
                listener(sender, message)
            except Exception:
                self._on_crash(sender, message)
            if perf_counter() > ends:
                return False
