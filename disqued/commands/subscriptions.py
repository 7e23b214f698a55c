"""SUBSCRIBE and its kin: events of queues, as every Redis client reads them.

Channels are ``wq:<queue>:<type>``; the types are work, returned, done, cancel, delete and dead.
Source: the Redis manual, "Pub/Sub".
"""

from typing import Any

import attrs

from disqued.commands.host import Session
from disqued.commands.shapes import pushes, status
from disqued.commands.table import Flag, command, rest
from disqued.commands.values import CHANNEL, CHANNEL_PATTERN
from disqued.core.node import Node
from disqued.wire.replies import Status

_FLAGS = Flag.READ | Flag.LOADING | Flag.FAST
_REPLY = pushes("[the command in lower case, the channel or pattern, how many of both there are now]")


@command("SUBSCRIBE", group="workers", flags=_FLAGS, reply=_REPLY, cost="O(1) per channel", is_of_connection=True)
@attrs.define
class Subscribe:
    """Listen to channels: what is told on them comes as messages on this connection.

    Under RESP2 it takes nothing but (P)SUBSCRIBE, (P)UNSUBSCRIBE, PING, RESET and QUIT as long as it listens.
    """

    channels: list[bytes] = rest("Channels, such as wq:mail:work.", CHANNEL)

    def run(self, node: Node, client: Session) -> Any:
        return client.host.pubsub.subscribe(client, self.channels, patterns=False)


@command("PSUBSCRIBE", group="workers", flags=_FLAGS, reply=_REPLY, cost="O(1) per pattern", is_of_connection=True)
@attrs.define
class PSubscribe:
    """Listen to all channels that match glob patterns."""

    patterns: list[bytes] = rest("Patterns, such as wq:mail:*.", CHANNEL_PATTERN)

    def run(self, node: Node, client: Session) -> Any:
        return client.host.pubsub.subscribe(client, self.patterns, patterns=True)


@command("UNSUBSCRIBE", group="workers", flags=_FLAGS, reply=_REPLY, cost="O(1) per channel", is_of_connection=True)
@attrs.define
class Unsubscribe:
    """Listen to channels no more: to those named, or to none at all."""

    channels: list[bytes] = rest("Channels; none means all of them.", CHANNEL, minimum=0)

    def run(self, node: Node, client: Session) -> Any:
        return client.host.pubsub.unsubscribe(client, self.channels, patterns=False)


@command("PUNSUBSCRIBE", group="workers", flags=_FLAGS, reply=_REPLY, cost="O(1) per pattern", is_of_connection=True)
@attrs.define
class PUnsubscribe:
    """Listen to patterns no more: to those named, or to none at all."""

    patterns: list[bytes] = rest("Patterns; none means all of them.", CHANNEL_PATTERN, minimum=0)

    def run(self, node: Node, client: Session) -> Any:
        return client.host.pubsub.unsubscribe(client, self.patterns, patterns=True)


@command(
    "RESET", group="connection", flags=_FLAGS, reply=status("RESET"), cost="O(N) in the subscriptions",
    is_of_connection=True,
)  # fmt: skip
@attrs.define
class Reset:
    """Make this connection as new: RESP2, no subscriptions, no name, all replies, and no password given yet."""

    def run(self, node: Node, client: Session) -> Status:
        client.host.clients.reset_session(client)
        return Status(b"RESET")
