"""Machine: what the node calls on each part of the core.

    a message      --> hears        one handler for each kind
    a deadline     --> due          one handler for each class of `Timed`
    a client leaves what it waits for --> abandons, one handler for each class of `Timed`
    an event       --> a method, called on every machine in the order of `Node.machines`

A machine owns its tables and overrides what concerns it.  The node builds its dispatch tables from the machines once.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar, cast

from mypy_extensions import trait

from disqued.core.model.fate import Fate
from disqued.core.model.job import Job
from disqued.core.model.outbox import Client
from disqued.core.model.queues import Queue
from disqued.core.model.schedule import Timed

Item = TypeVar("Item", bound=Timed)
Hear = Callable[..., None]  #: takes the sender and the fields of the message
Act = Callable[[Timed], None]
Acts = dict[type[Timed], Act]


def on(kind: type[Item], act: Callable[[Item], None]) -> Acts:
    """Return the table entry of what is done with items of a class; join entries by `|`."""
    return {kind: cast("Act", act)}


@trait
class Machine:
    """A part of the core; each method is a no-op unless the machine overrides it."""

    __slots__ = ()

    def hears(self) -> dict[int, Hear]:
        """Return the handler of each kind of message that this machine takes."""
        return {}

    def due_table(self) -> Acts:
        """Return what is done with each class of item when its deadline comes."""
        return {}

    def abandon_table(self) -> Acts:
        """Return how each class of item ends when its client is gone."""
        return {}

    # Links and nodes.

    def link_opened(self, node_id: bytes) -> None:
        """Our link to a node has opened."""

    def link_closed(self, node_id: bytes) -> None:
        """Our link to a node is gone; messages still on it are lost."""

    def greeted(self, node_id: bytes) -> None:
        """The link of a node to us has opened."""

    def node_failed(self, node_id: bytes) -> None:
        """Most nodes agree that a node has failed."""

    def reachable_changed(self) -> None:
        """`state.peers.reachable` has changed."""

    def standing_changed(self) -> None:
        """Nodes were added or removed, fail or recover, or begin or stop draining."""

    def stalled(self) -> None:
        """The node stood still for so long that others may have found that it failed."""

    # Jobs.

    def fate_changed(self, job: Job, before: Fate) -> None:
        """A job has another fate than before."""

    def put_off_elsewhere(self, job: Job, left_ms: int, *, is_news: bool) -> None:
        """Another holder queues a job after this time, and not before; `is_news`: after a try not known here before."""

    # Clients and queues.

    def client_gone(self, client: Client) -> None:
        """The connection of a client has ended."""

    def queue_resumed(self, queue: Queue) -> None:
        """A queue gives its jobs, and may have been paused until now."""

    def gate_changed(self, name: bytes, field: int) -> None:
        """A register that limits what a queue hands out is new here, or is forgotten; `name` is that of its place."""

    def idle_changed(self, name: bytes) -> None:
        """The span of idleness of a queue, or the account of its use, is new here, or is forgotten."""

    def schedule_changed(self, name: bytes) -> None:
        """What the cluster says of a schedule, or that it says nothing any more, is new here."""

    # The whole node.

    def flushing(self) -> None:
        """Everything is about to be dropped: answer waiting clients, clear own tables."""

    def flushed(self) -> None:
        """Everything is dropped, the schedule too: schedule again what goes on."""


def handlers(machines: Iterable[Machine]) -> dict[int, Hear]:
    """Join the tables of messages; each kind has one handler."""
    joined: dict[int, Hear] = {}
    for machine in machines:
        for kind, hear in machine.hears().items():
            assert kind not in joined, f"two machines take messages of kind {kind}"
            joined[kind] = hear
    return joined


def join(tables: Iterable[Acts]) -> Acts:
    """Join tables by class of item; each class has one entry."""
    joined: Acts = {}
    for table in tables:
        for kind, act in table.items():
            assert kind not in joined, f"two machines look after {kind.__name__}"
            joined[kind] = act
    return joined
