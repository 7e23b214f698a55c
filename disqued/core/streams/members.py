"""Connections that consume queues as members of a group (QREGISTER GROUP), for those who count them and for QNOTIFY.

A connection is a consumer of exactly the queues that it named last; when it ends, of no queue.  Those that serve queues
without a group are in `consumers`.  Clients decide how many names there are, so that they are bounded in bytes.
"""

from typing import NamedTuple

from disqued.core.model.outbox import Client
from disqued.core.model.queues import check_name
from disqued.core.work.consumers import BYTES_MAX, NAME_COST
from disqued.errors import OutOfMemory


class Registration(NamedTuple):
    """What one connection consumes."""

    group: bytes
    queues: tuple[bytes, ...]  #: each once, in the order named


class GroupMembers:
    """Every connection that registered as a member of a group."""

    __slots__ = ("_counts", "by_client", "size")

    def __init__(self) -> None:
        self.by_client: dict[Client, Registration] = {}
        self.size: int = 0  #: bytes, as they are counted
        self._counts: dict[bytes, dict[bytes, int]] = {}  #: {queue: {group: connections}}

    def register(self, client: Client, group: bytes, queues: list[bytes]) -> None:
        """Let a connection be a consumer of these queues and of no others.

        Raises OutOfMemory (OOM), NameTooLong (ERR).
        """
        registration = Registration(group, tuple(dict.fromkeys(queues)))
        for name in registration.queues:
            check_name(name)
        if self.size - _size(self.by_client.get(client)) + _size(registration) > BYTES_MAX:
            raise OutOfMemory
        self.forget(client)
        if queues:
            self.by_client[client] = registration
            self.size += _size(registration)
            for name in registration.queues:
                counts = self._counts.setdefault(name, {})
                counts[group] = counts.get(group, 0) + 1

    def forget(self, client: Client) -> None:
        """Let a connection be a consumer no more."""
        registration = self.by_client.pop(client, None)
        if registration is None:
            return
        self.size -= _size(registration)
        for name in registration.queues:
            counts = self._counts[name]
            counts[registration.group] -= 1
            if not counts[registration.group]:
                del counts[registration.group]
                if not counts:
                    del self._counts[name]

    def count(self, queue: bytes, group: bytes) -> int:
        """Connections that consume a queue as members of a group."""
        counts = self._counts.get(queue)
        return 0 if counts is None else counts.get(group, 0)

    def groups(self, queue: bytes) -> list[bytes]:
        """Groups as whose members connections consume a queue."""
        return list(self._counts.get(queue, ()))

    def has(self, queue: bytes) -> bool:
        """Return whether any connection consumes a queue."""
        return queue in self._counts

    def queues(self) -> list[bytes]:
        """Queues that any connection consumes."""
        return list(self._counts)


def _size(registration: Registration | None) -> int:
    """Bytes that a registration takes, as they are counted."""
    if registration is None:
        return 0
    return sum(NAME_COST + len(name) + len(registration.group) for name in registration.queues)
