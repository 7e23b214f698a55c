"""Clients whose commands have no reply yet: consumers that wait for jobs, and everything else that is waited for."""

from disqued.core.model.machine import Acts
from disqued.core.model.outbox import Client
from disqued.core.model.queues import Queue
from disqued.core.model.schedule import Timed
from disqued.core.model.waiters import Waiter


class WantedQueues(Timed):
    """Limited queues of which consumers want jobs, so that their stewards are to be asked; due at once."""

    __slots__ = ("queues",)

    def __init__(self) -> None:
        self.awake_at = 0
        self.queues: dict[Queue, None] = {}


class BlockedClients:
    """Who waits for what, from one flush to the next."""

    __slots__ = ("abandons", "asking", "behind", "blocked", "waits", "wanted")

    def __init__(self) -> None:
        self.blocked: dict[Client, Waiter] = {}  #: consumers
        #: What other clients wait for, such as copies or answers of other nodes.
        self.waits: dict[Client, dict[Timed, None]] = {}
        #: Queues that begin with more expired jobs than one step drops; what is behind these is not known yet.
        self.behind: dict[Queue, None] = {}
        self.asking: dict[Queue, None] = {}  #: of these: those whose steward is asked
        self.wanted: WantedQueues = WantedQueues()
        self.abandons: Acts = {}  #: how each class of wait ends when its client is gone

    def clear(self) -> None:
        """Forget who waits."""
        self.blocked = {}
        self.waits = {}
        self.behind = {}
        self.asking = {}
        self.wanted = WantedQueues()

    def add(self, client: Client, item: Timed) -> None:
        """Note what a client waits for."""
        waits = self.waits
        if client in waits:
            waits[client][item] = None
        else:
            waits[client] = {item: None}

    def remove(self, client: Client, item: Timed) -> None:
        """Note that a client waits for this no longer."""
        waits = self.waits[client]
        del waits[item]
        if not waits:
            del self.waits[client]

    def abandon(self, client: Client) -> None:
        """End what a client waits for that is gone."""
        for item in list(self.waits.get(client, ())):
            self.abandons[type(item)](item)
