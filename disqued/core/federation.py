"""Jobs go to where consumers wait: NEEDJOBS, YOURJOBS.

Source: Disque, src/queue.c.
"""

from disqued.core.delivery import Delivery
from disqued.core.messages import Message
from disqued.core.queues import Queue
from disqued.core.state import State


class Federation:
    """The machine that moves jobs between the queues of one name."""

    __slots__ = ("_delivery", "_state")

    def __init__(self, state: State, delivery: Delivery) -> None:
        self._state = state
        self._delivery = delivery

    def need(self, queues: list[Queue]) -> None:
        """A consumer found these queues empty, and waits or will come again: ask others."""

    def emptied(self, queue: Queue) -> None:
        """A consumer took the last job of a queue: ask those that gave before."""

    def give(self) -> None:
        """Bring jobs of the queues in `state.giving` to the nodes that want them."""

    def link_opened(self, node_id: bytes) -> None:
        """Ask a node that has just become reachable."""

    def on_needjobs(self, sender: bytes, message: Message) -> None:
        """Give jobs, or remember who wants some."""

    def on_yourjobs(self, sender: bytes, message: Message) -> None:
        """Take jobs over."""
