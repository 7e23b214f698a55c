"""Consumers that say which queues they serve: connections by the queues that they registered for.

    QREGISTER mail news --> this connection is a consumer of these two and of no others, until it ends
    QNOTIFY 30          --> the name of one of them that has something, once there is

A name costs nothing but its place here: no queue is made for it.  Clients decide how many names there are, so that they
are bounded in bytes.
"""

from collections.abc import Iterable

from disqued.core.model.machine import Machine
from disqued.core.model.outbox import Client
from disqued.core.model.queues import check_name
from disqued.errors import OutOfMemory

NAME_COST = 200  #: bytes of one name of one client beside its text: its places in the tables
BYTES_MAX = 16 << 20


class Consumers(Machine):
    """Every client that has registered for queues."""

    __slots__ = ("_by_client", "_by_queue", "size")

    def __init__(self) -> None:
        self._by_client: dict[Client, dict[bytes, None]] = {}
        self._by_queue: dict[bytes, int] = {}
        self.size: int = 0  #: bytes, as they are counted

    def __len__(self) -> int:
        return len(self._by_client)

    def register(self, client: Client, names: Iterable[bytes]) -> None:
        """Make a client a consumer of these queues and of no others.  Raises OutOfMemory (OOM), NameTooLong (ERR)."""
        wanted = dict.fromkeys(names)
        for name in wanted:
            check_name(name)
        size = sum(map(len, wanted)) + NAME_COST * len(wanted)
        if self.size - self._size_of(client) + size > BYTES_MAX:
            raise OutOfMemory
        self.forget(client)
        if wanted:
            self._by_client[client] = wanted
            self.size += size
            for name in wanted:
                self._by_queue[name] = self._by_queue.get(name, 0) + 1

    def client_gone(self, client: Client) -> None:
        if self._by_client:
            self.forget(client)

    def forget(self, client: Client) -> None:
        """A client is no consumer any more."""
        self.size -= self._size_of(client)
        for name in self._by_client.pop(client, ()):
            self._by_queue[name] -= 1
            if not self._by_queue[name]:
                del self._by_queue[name]

    def queues_of(self, client: Client) -> tuple[bytes, ...]:
        """The queues that a client registered for, each once."""
        return tuple(self._by_client.get(client, ()))

    def has(self, client: Client, name: bytes) -> bool:
        """Tell whether a client is a consumer of a queue."""
        return name in self._by_client.get(client, ())

    def count(self, name: bytes) -> int:
        """How many clients are consumers of a queue."""
        return self._by_queue.get(name, 0)

    def names(self) -> list[bytes]:
        """Every queue that has consumers."""
        return list(self._by_queue)

    def _size_of(self, client: Client) -> int:
        names = self._by_client.get(client, ())
        return sum(map(len, names)) + NAME_COST * len(names)
