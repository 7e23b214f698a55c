"""Subscriptions: channels and patterns of each connection, and the messages on their way to it.

    node --- EVENT for this node ---> PubSub.publish ---> each connection that listens to the channel, or to a pattern

A message is sent at most once, and only to who listens at that moment.  Who does not read is not waited for: a
connection that leaves too many bytes of messages unread is ended, as Redis does.

Clients choose patterns and the names of queues, so that the work of an event is counted (`glob.cost`): when that of a
turn is done, events wait in order, and the patterns that are left are tried in turns of their own.

    publish --> [event, event, ...] --TURN_UNITS at a time--> patterns, one after another --> who listens to them

If too much waits, the connection with the longest patterns is ended: it alone could not be served otherwise.

Source: the Redis manual, "Pub/Sub", "Client side output buffer limits".
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from twisted.logger import Logger

from disqued.commands.host import Session
from disqued.core.cluster.notifications import channel_of
from disqued.core.model import glob
from disqued.core.node import Node
from disqued.errors import CommandError
from disqued.net.clients.connection import ClientSession, session_of
from disqued.wire.replies import encode_push

#: Most channels and patterns of one connection.
SUBSCRIPTIONS_MAX = 10_000
CHANNEL_MAX = 65_536  #: bytes of a channel's name
SUBSCRIPTION_BYTES_MAX = 1 << 20  #: bytes of all names and patterns of a connection together
#: Units of `glob.cost` in a turn, some milliseconds; a message to one who listens is MESSAGE_UNITS.
TURN_UNITS = 4_000
MESSAGE_UNITS = 5
WAITING_MAX = 32 << 20  #: bytes of events that wait for patterns to be tried
EVENT_COST = 256  #: bytes that an event takes besides its text

_Table = dict[bytes, dict[ClientSession, None]]


class _Event(NamedTuple):
    """What is told to those whose pattern fits."""

    channel: bytes
    content: bytes
    only: object  #: the only recipient; None = all

    @property
    def size(self) -> int:
        """Bytes that it takes while it waits."""
        return EVENT_COST + len(self.channel) + len(self.content)


class PubSub:
    """All subscriptions of one node."""

    log = Logger()

    def __init__(self, node: Node, reactor: Any) -> None:
        """`reactor` has `callLater`."""
        self._node = node
        self._reactor = reactor
        self._waiting: deque[_Event] = deque()
        self._waiting_size = 0
        self._left: Iterator[bytes] | None = None  #: patterns still to be matched with the first waiting message
        self._is_due = False  #: a turn for what waits will come
        self._has_ended_one = False  #: in this turn
        self._spent = 0  #: units of this turn
        self._turn = -1  #: the clock of the step that `_spent` is of
        self.channels: _Table = {}
        self.patterns: _Table = {}
        self.delivered = 0  #: messages, each counted for each connection that it went to

    # Listening.

    def subscribe(self, session: Session, names: Iterable[bytes], *, patterns: bool) -> list[tuple[bytes, bytes, int]]:
        client = session_of(session)
        wanted = list(names)
        own = client.subscriptions
        more = frozenset(wanted) - own.of(patterns=patterns).keys()
        longest = glob.PATTERN_MAX if patterns else CHANNEL_MAX
        if (
            len(own) + len(more) > SUBSCRIPTIONS_MAX
            or max(map(len, wanted)) > longest
            or own.name_bytes + sum(map(len, more)) > SUBSCRIPTION_BYTES_MAX
        ):
            raise CommandError(
                f"a connection listens to {SUBSCRIPTIONS_MAX} channels and patterns at most, of "
                f"{SUBSCRIPTION_BYTES_MAX} bytes together; a channel has up to {CHANNEL_MAX} bytes, a pattern up to "
                f"{glob.PATTERN_MAX}"
            )
        table = self.patterns if patterns else self.channels
        word = b"psubscribe" if patterns else b"subscribe"
        told = []
        for name in wanted:
            own.add(name, patterns=patterns)
            table.setdefault(name, {})[client] = None
            told.append((word, name, len(own)))
        self._node.notifications.set_listening(listens=True)
        client.note_checks()
        client.report()
        return told

    def unsubscribe(
        self, session: Session, names: Iterable[bytes], *, patterns: bool
    ) -> list[tuple[bytes, bytes | None, int]]:
        client = session_of(session)
        own = client.subscriptions
        word = b"punsubscribe" if patterns else b"unsubscribe"
        told: list[tuple[bytes, bytes | None, int]] = []
        for name in list(names) or list(own.of(patterns=patterns)):
            self._remove(client, name, patterns=patterns)
            told.append((word, name, len(own)))
        self._note_listening()
        return told or [(word, None, len(own))]

    def forget(self, client: ClientSession) -> None:
        """A connection has ended, or begins anew."""
        for name in list(client.subscriptions.channels):
            self._remove(client, name, patterns=False)
        for name in list(client.subscriptions.patterns):
            self._remove(client, name, patterns=True)
        self._note_listening()

    def _remove(self, client: ClientSession, name: bytes, *, patterns: bool) -> None:
        table = self.patterns if patterns else self.channels
        if client.subscriptions.remove(name, patterns=patterns):
            client.note_checks()
            listeners = table[name]
            del listeners[client]
            if not listeners:
                del table[name]

    def _note_listening(self) -> None:
        self._node.notifications.set_listening(listens=bool(self.channels or self.patterns))

    # Telling.

    def publish(self, queue: bytes, kind: bytes, content: bytes, only: object = None) -> None:
        """Tell an event to all who listen, or to that one alone."""
        channel = channel_of(queue, kind)
        for client in list(self.channels.get(channel, ())):
            if only is None or client is only:
                self._push(client, (b"message", channel, content))
        if self.patterns:
            if self._turn != self._node.state.now and not self._is_due:
                self._turn, self._spent = self._node.state.now, 0
            self._waiting.append(event := _Event(channel, content, only))
            self._waiting_size += event.size
            if not self._is_due:
                self._try_patterns()
            if self._waiting_size > WAITING_MAX and not self._has_ended_one:
                self._end_one()

    def _try_patterns(self) -> None:
        """Tell what waits to those whose pattern fits, until it is enough for this turn."""
        while self._waiting:
            event = self._waiting[0]
            if self._left is None:
                self._left = iter(list(self.patterns))
            for pattern in self._left:
                if pattern not in self.patterns:
                    continue  # nobody listens to it any more
                self._spent += glob.cost(pattern, event.channel)
                if glob.matches(pattern, event.channel):
                    self._tell(pattern, event)
                if self._spent > TURN_UNITS:
                    self._is_due = True
                    self._reactor.callLater(0, self._next_turn)
                    return
            self._left = None
            self._waiting.popleft()
            self._waiting_size -= event.size

    def _next_turn(self) -> None:
        self._is_due, self._spent, self._has_ended_one = False, 0, False
        self._try_patterns()

    def _tell(self, pattern: bytes, event: _Event) -> None:
        for client in list(self.patterns[pattern]):
            if event.only is None or client is event.only:
                self._spent += MESSAGE_UNITS
                self._push(client, (b"pmessage", pattern, event.channel, event.content))

    def _end_one(self) -> None:
        """Too much waits: end the connection whose patterns are longest, all together; one in a turn."""
        self._has_ended_one = True
        sizes: Counter[ClientSession] = Counter()
        for pattern, listeners in self.patterns.items():
            sizes.update(dict.fromkeys(listeners, len(pattern)))
        for client, size in sizes.most_common(1):
            self.log.warn(
                "Client {client} listens to patterns of {size} bytes, more than events can be tried with: closed",
                client=client.address, size=size,
            )  # fmt: skip
            self.forget(client)
            client.kill()

    def _push(self, client: ClientSession, parts: tuple[bytes, ...]) -> None:
        self.delivered += 1
        client.push(encode_push(parts, client.protocol))
