"""Subscriptions: which connection listens to what, and events on their way to it.

    node --- EVENT for this node ---> PubSub.publish ---> each connection that listens to the channel, or to a pattern

A message is sent at most once, and only to who listens at that moment.  Who does not read is not waited for: a
connection that leaves too many bytes of messages unread is ended, as Redis does.

Source: the Redis manual, "Pub/Sub", "Client side output buffer limits".
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from disqued.core import glob
from disqued.core.events import channel_of
from disqued.errors import CommandError
from disqued.wire.replies import encode_push

if TYPE_CHECKING:
    from disqued.core.node import Node
    from disqued.net.clients import ClientConnection

#: Channels and patterns that one connection may listen to.
SUBSCRIPTIONS_MAX = 10_000
CHANNEL_MAX = 65_536  #: bytes of a channel's name
PATTERN_MAX = 1_024  #: bytes of a pattern, which is tried on every event
UNREAD_MAX = 32 << 20  #: bytes of messages and replies that one who listens may leave unread

_Table = dict[bytes, "dict[ClientConnection, None]"]


class PubSub:
    """All subscriptions of one node."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self.channels: _Table = {}
        self.patterns: _Table = {}
        self.delivered = 0  #: messages, each counted for each connection that it went to

    # Listening.

    def subscribe(
        self, client: "ClientConnection", names: Iterable[bytes], *, patterns: bool
    ) -> list[tuple[bytes, bytes, int]]:
        """Let a connection listen; returns what it is told for each name.  Raises CommandError, nothing is changed."""
        wanted = list(names)
        own = client.patterns if patterns else client.channels
        more = len(frozenset(wanted) - own.keys())
        longest = PATTERN_MAX if patterns else CHANNEL_MAX
        if client.subscriptions + more > SUBSCRIPTIONS_MAX or max(map(len, wanted)) > longest:
            raise CommandError(
                f"a connection listens to {SUBSCRIPTIONS_MAX} channels and patterns at most; a channel has up to "
                f"{CHANNEL_MAX} bytes, a pattern up to {PATTERN_MAX}"
            )
        table = self.patterns if patterns else self.channels
        word = b"psubscribe" if patterns else b"subscribe"
        told = []
        for name in wanted:
            own[name] = None
            table.setdefault(name, {})[client] = None
            told.append((word, name, client.subscriptions))
        self._node.events.set_listening(listens=True)
        return told

    def unsubscribe(
        self, client: "ClientConnection", names: Iterable[bytes], *, patterns: bool
    ) -> list[tuple[bytes, bytes | None, int]]:
        """Let a connection listen no more; returns what it is told for each name, or for none."""
        own = client.patterns if patterns else client.channels
        word = b"punsubscribe" if patterns else b"unsubscribe"
        told: list[tuple[bytes, bytes | None, int]] = []
        for name in list(names) or list(own):
            self._remove(client, name, patterns=patterns)
            told.append((word, name, client.subscriptions))
        self._note_listening()
        return told or [(word, None, client.subscriptions)]

    def forget(self, client: "ClientConnection") -> None:
        """A connection has ended, or begins anew."""
        for name in list(client.channels):
            self._remove(client, name, patterns=False)
        for name in list(client.patterns):
            self._remove(client, name, patterns=True)
        self._note_listening()

    def _remove(self, client: "ClientConnection", name: bytes, *, patterns: bool) -> None:
        own, table = (client.patterns, self.patterns) if patterns else (client.channels, self.channels)
        if name in own:
            del own[name]
            listeners = table[name]
            del listeners[client]
            if not listeners:
                del table[name]

    def _note_listening(self) -> None:
        self._node.events.set_listening(listens=bool(self.channels or self.patterns))

    # Telling.

    def publish(self, queue: bytes, kind: bytes, content: bytes, only: object = None) -> None:
        """Tell an event to all who listen, or to that one alone."""
        channel = channel_of(queue, kind)
        for client in list(self.channels.get(channel, ())):
            if only is None or client is only:
                self._push(client, (b"message", channel, content))
        for pattern, listeners in list(self.patterns.items()):
            if glob.matches(pattern, channel):
                for client in list(listeners):
                    if only is None or client is only:
                        self._push(client, (b"pmessage", pattern, channel, content))

    def _push(self, client: "ClientConnection", parts: tuple[bytes, ...]) -> None:
        self.delivered += 1
        client.push(encode_push(parts, client.protocol))
