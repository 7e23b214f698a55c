"""Policies of queues: what operators say, and whether all nodes follow (what a pause keeps back: `pausewatch`).

    PAUSE or QPOLICY on a node --> answered: the register is not older at the end of the age, on any node, unless it
                                   has expired with its queue
    a job for a queue with IDLE -> while a node has it the fields do not expire that its node had as it was added;
                                   they do, on every node, once all these jobs have ended

Times are integer milliseconds.
"""

from collections.abc import Iterable
from typing import Any, Final, Protocol

from disqued.core.model.job import ACKED
from disqued.core.model.policies import (
    EXPIRING_FIELDS,
    FIELD_NAMES,
    NO_DEFAULTS,
    PAUSE_FIELD,
    USE_FIELD,
    Place,
    Register,
)
from disqued.core.model.state import State
from disqued.testing.clients import Operator

IDLE_QUEUES: Final = (b"idle-1", b"idle-2")  #: queues that expire; no other clients of a story use them


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
        #: Jobs of queues that expire, and the fields of these as each was added.
        self._used: dict[bytes, dict[Place, Register]] = {}
        self._adds = False  #: such jobs were added
        self._expired: list[str] = []  #: what a node took for expired while it had such a job

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
        self._used = {job_id: {} for job_id in self._used}

    def use(self, server: Site, queue: bytes) -> None:
        """Add a job to a queue that expires."""
        registers = server.state.queues.policies.registers
        fields = {place: registers[place] for place in registers if _expires(place) and place[0] == queue}

        def answered(value: Any) -> None:
            if isinstance(value, bytes):
                self._used[value] = fields

        self._adds = True
        server.command(Operator(answered), [b"ADDJOB", queue, b"x", b"1000", b"TTL", b"1000000", b"REPLICATE", b"1"])

    def empty(self, server: Site, queue: bytes) -> None:
        """End the jobs of a queue that expires, on the nodes that can be reached."""
        self._look()
        self._used = {
            job_id: {place: field for place, field in fields.items() if place[0] != queue}
            for job_id, fields in self._used.items()
        }
        server.command(Operator(), [b"QPURGE", queue])

    def _look(self) -> None:
        """Check that no queue expires on a node that had a job of it since it learned the fields."""
        for server in self._servers:
            registers = server.state.queues.policies.registers
            for job_id, fields in self._used.items() if server.is_up else ():
                job = server.state.jobs.get(job_id)
                use = registers.get((next(iter(fields))[0], USE_FIELD)) if fields else None
                if job is not None and job.state != ACKED and use is not None and use.counter & 1:
                    self._expired.append(f"{server} has job {job_id!r} and takes its queue for expired: {use}")

    def unkept(self) -> list[str]:
        """Tell of fields that have expired although a node has had a job of the queue since they were known."""
        self._look()
        known = self._servers[0].state.queues.policies.registers
        return self._expired + [
            f"{FIELD_NAMES[number].decode()} of {queue!r}, as {field}, has expired, and {server} has job {job_id!r}"
            for job_id, fields in self._used.items()
            for server in self._servers
            for job in (server.state.jobs.get(job_id),)
            if job is not None and job.state != ACKED
            for (queue, number), field in fields.items()
            if (queue, number) not in known or known[queue, number] < field
        ]

    def release(self) -> None:
        """End the jobs of the queues that expire, on all nodes, those whose producer has heard nothing included."""
        for queue in IDLE_QUEUES if self._adds else ():
            self.empty(self._servers[0], queue)
        self._used.clear()
        self._expired.clear()
        self._adds = False

    def have_expired(self) -> bool:
        """Return whether no node knows a field of a queue that expires."""
        return not any(_expires(place) for server in self._servers for place in server.state.queues.policies.registers)

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
            if not self._servers[0].state.queues.policies.has_expired(queue, field, said)
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


def _expires(place: Place) -> bool:
    return place[0] in IDLE_QUEUES and place[1] in EXPIRING_FIELDS
