"""Policies of queues: what operators say, and whether all nodes follow (what a pause keeps back: `pausewatch`).

    PAUSE or QPOLICY on a node --> answered: the register is not older at the end of the age, on any node

Times are integer milliseconds.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from disqued.core.model.policies import FIELD_NAMES, NO_DEFAULTS, PAUSE_FIELD, Place, Register
from disqued.core.model.state import State
from disqued.testing.clients import Operator


class Site(Protocol):
    """A node as operators see it."""

    state: State
    is_up: bool
    is_paused: bool

    def command(self, client: Any, words: list[bytes]) -> None:
        """Run a command."""


class PolicyChecker:
    """The words of operators for the whole cluster, and what has become of them."""

    def __init__(self, servers: Iterable[Site]) -> None:
        self._servers = list(servers)
        self._said: dict[Place, Register] = {}  #: the greatest of each that was answered

    def say(self, server: Site, *words: bytes) -> None:
        """Give a PAUSE or a QPOLICY to a node."""
        known = server.state.queues.policies.registers
        before = dict(known)
        after: dict[Place, Register] = {}

        def answered(value: Any) -> None:
            if not isinstance(value, Exception):
                for place, register in after.items():
                    self._said[place] = max(register, self._said.get(place, register))

        server.command(Operator(answered), list(words))
        if server.is_up and not server.is_paused:
            after.update((place, register) for place, register in known.items() if before.get(place) != register)

    def forget(self) -> None:
        """A crash took what was acknowledged: no word is certain any more."""
        self._said.clear()

    def agree(self) -> bool:
        """Return whether all nodes say the same of all queues."""
        first, *others = [server.state.queues.policies.registers for server in self._servers]
        return all(registers == first for registers in others)

    def lost(self) -> list[str]:
        """Tell of words that were answered, and that not even an older one has taken the place of."""
        registers = self._servers[0].state.queues.policies.registers
        return [
            f"{FIELD_NAMES[field].decode()} of {queue!r} was answered, as {said}, and the nodes know "
            f"{registers.get((queue, field))}"
            for (queue, field), said in self._said.items()
            if (queue, field) not in registers or registers[queue, field] < said
        ]

    def unfollowed(self) -> list[str]:
        """Tell of queues that are not paused, or have other defaults, than the node knows that they should."""
        return [*self._unpaused(), *self._without_defaults()]

    def _unpaused(self) -> list[str]:
        return [
            f"{server} has {name!r} paused as {0 if queue is None else queue.pause}, not as {said}"
            for server in self._servers
            for name, field in server.state.queues.policies.registers
            if field == PAUSE_FIELD
            for said in (server.state.queues.policies.pause_of(name).bits,)
            for queue in (server.state.queues.by_name.get(name),)
            if said & ~(0 if queue is None else queue.pause)
        ]

    def _without_defaults(self) -> list[str]:
        return [
            f"{server} takes {taken} for {name!r}, and knows {known}"
            for server in self._servers
            for policies in (server.state.queues.policies,)
            for name in {name for name, _ in policies.registers}
            for taken, known in ((policies.defaults.get(name, NO_DEFAULTS), policies.derive_defaults(name)),)
            if taken != known
        ]
