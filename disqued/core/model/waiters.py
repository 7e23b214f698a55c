"""Consumers: how those that wait take units, and who has what was taken.

Consumers that wait (`Waiter`) are served in the order in which they came, each as its command says (`Form`): those of
GETJOB get one job.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from mypy_extensions import mypyc_attr

from disqued.core.model.job import Unit
from disqued.core.model.outbox import Client, address_of, given_name_of, number_of
from disqued.core.model.schedule import Timed
from disqued.core.model.worker import Worker


@mypyc_attr(allow_interpreted_subclasses=True)
class Form(ABC):
    """How a consumer takes units, and what it is answered; the commands that fetch say so, each family its own way."""

    __slots__ = ("count", "worker")

    def __init__(self, count: int = 1, worker: Worker | None = None) -> None:
        self.count: int = count  #: most units that a waiting consumer receives, all of one queue
        #: Who takes them, and gives them back by its death; None = nobody in particular.
        self.worker: Worker | None = worker

    @property
    def nothing(self) -> object:
        """What one is answered who does not wait, when it has turned out that there is nothing."""
        return None

    @abstractmethod
    def row(self, unit: Unit) -> object:
        """What is answered for one unit, which has just been taken; what else is to be done with it is done here."""


class Consumer:
    """A client that has taken units.  Its leases name it, and outlive its connection."""

    __slots__ = ("_address", "_client", "_name", "id")

    def __init__(self, client: Client) -> None:
        self._client: Client | None = client  #: None = its connection has ended
        self._name = self._address = b""
        self.id: int = number_of(client)  #: as CLIENT LIST has it; 0 = it has none

    @property
    def is_gone(self) -> bool:
        """True when its connection has ended."""
        return self._client is None

    @property
    def name(self) -> bytes:
        """What it has called itself (CLIENT SETNAME); empty = nothing."""
        return self._name if self._client is None else given_name_of(self._client)

    @property
    def address(self) -> bytes:
        """Where its connection comes, or came, from; empty = it has no address."""
        return self._address if self._client is None else address_of(self._client)

    @property
    def word(self) -> bytes:
        """Its name, or its address if it has none."""
        return self.name or self.address

    def leave(self) -> None:
        """Keep what is shown of it, as its connection ends."""
        self._name, self._address = self.name, self.address
        self._client = None


#: Since when a consumer has a unit, and which; None = that is not known, as after a restart.
Lease = tuple[int, Consumer | None]


class Awaited(Timed):
    """A queue as its waiting consumers see it."""

    __slots__ = ("name", "waiters", "watchers")

    def __init__(self, name: bytes) -> None:
        self.awake_at = 0
        self.name: bytes = name
        self.waiters: dict[Waiter, None] = {}  #: first come first
        self.watchers: dict[Waiter, None] = {}  #: clients that only want to know of units

    @property
    def is_awaited(self) -> bool:
        """True while somebody waits for its units, be it to take one or to hear of one."""
        return bool(self.waiters or self.watchers)


class Waiter(Timed):
    """A consumer blocked in GETJOB or another command that fetches."""

    __slots__ = ("client", "form", "nohang", "queues", "since")

    def __init__(self, client: Client, queues: Sequence[Awaited], form: Form, *, nohang: bool = False) -> None:
        self.awake_at = 0
        self.client: Client = client
        self.queues: Sequence[Awaited] = queues  #: each once, in the order named
        self.form: Form = form
        self.nohang: bool = nohang  #: waits only until it is certain that there is no job
        self.since: int = 0  #: when it began to wait; set by `Blocking`

    @property
    def nothing(self) -> object:
        """What it is answered when there is nothing for it."""
        return self.form.nothing if self.nohang else None

    def enter(self) -> None:
        """Begin to wait."""
        for queue in self.queues:
            queue.waiters[self] = None

    def leave(self) -> None:
        """Wait no more."""
        for queue in self.queues:
            queue.waiters.pop(self, None)


class Watcher(Waiter):
    """A client that waits to hear which queue has a unit, and takes none: nothing is kept for it."""

    __slots__ = ()

    def enter(self) -> None:
        """Begin to wait."""
        for queue in self.queues:
            queue.watchers[self] = None

    def leave(self) -> None:
        """Wait no more."""
        for queue in self.queues:
            queue.watchers.pop(self, None)
