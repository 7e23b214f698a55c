"""A cluster of real daemons under load, with one fault after the other.

    a round    the banks open: producers and consumers on every node, of queues without limits and of limited ones
               some faults, drawn at random: kill -9 of one node or of all, a node lost with its disk and replaced,
               SIGSTOP, LEAVING with a stop and a start; where nodes have hosts of their own, cuts of the network
               between them, both ways or one way
               all is well again; what was answered was delivered, no node holds anything

Times are seconds.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from random import Random

import attrs

from tests.holdings import Limit
from tests.integration.cluster import Cluster, HostedCluster, cluster_info
from tests.integration.daemon import wait_until
from tests.limitbank import LimitBank, set_limits
from tests.limits import seconds
from tests.torture.fates import FateBank

FAULTS_PER_ROUND = 4
#: A node that is started again does not know any more who was forgotten, and asks strangers for a minute.
EMPTY_LIMIT = seconds(200)
#: Queues that have limits.
LIMITS = {
    b"five": Limit(in_flight=5),
    b"groups": Limit(group_in_flight=1),
    b"rated": Limit(rate=50, burst=50),
}


@attrs.define
class Banks:
    """All clients of a round."""

    fates: FateBank
    limited: LimitBank

    def wait_business(self, nodes: Iterable[int] | None = None, *, hands_out: bool = True) -> None:
        """Wait until these nodes have done something, and until limited queues have handed jobs out somewhere."""
        self.fates.wait_business(nodes)
        if hands_out:
            self.limited.wait_business()

    @contextmanager
    def fault(self, what: str) -> Iterator[None]:
        """Let nodes be apart."""
        self.fates.apart(f"{what} begins")
        with self.limited.fault(what):
            yield

    def joined(self) -> None:
        """Note that all nodes are in the cluster and hear each other."""
        self.fates.together("it is over")
        self.limited.joined()

    def lost(self, node: int) -> None:
        """Note that a node has lost everything that it knew."""
        self.fates.lost(node)
        self.limited.lost(node)

    def close(self) -> None:
        """Wait until the last job is over."""
        self.fates.close()
        self.limited.close()


@attrs.define
class Rounds:
    """Rounds on one cluster, whose nodes all run before and after each of them."""

    cluster: Cluster
    random: Random
    rounds: int = 0  #: begun
    done: list[str] = attrs.field(factory=list)  #: faults of the last round

    def round(self) -> list[str]:
        """Open the banks, let things fail, and say what is wrong in the end; empty = nothing."""
        self.rounds += 1
        self.done.clear()
        nodes, seeds = self.cluster.nodes, [self.random.randrange(1 << 32) for _ in range(2)]
        set_limits(nodes, LIMITS)
        with FateBank(nodes, seeds[0]) as bank, LimitBank(nodes, seeds[1], LIMITS) as limited:
            banks = Banks(bank, limited)
            banks.wait_business()
            for _ in range(FAULTS_PER_ROUND):
                fault = self.random.choice(self._faults())
                self.done.append(fault.__name__.strip("_"))
                with banks.fault(self.done[-1]):
                    fault(banks)
                    self.cluster.wait_joined()
                    banks.joined()
                banks.wait_business()
            banks.close()
            self.cluster.wait_empty(EMPTY_LIMIT)
            wrong = [*bank.verdict(), *limited.verdict()]
        self.done += [bank.tally.line(), f"limited queues\n    {limited.line()}"]
        return wrong

    def line(self) -> str:
        """The figures of the last round."""
        return f"round {self.rounds}: {', '.join(self.done)}"

    def _faults(self) -> list[Callable[[FateBank], None]]:
        faults = [self._kill, self._kill, self._kill_all, self._lose, self._freeze, self._leave]
        cuts = [self._cut, self._cut, self._deafen]
        return [*faults, *cuts] if isinstance(self.cluster, HostedCluster) else faults

    def _draw(self) -> tuple[int, list[int]]:
        """Choose a node, and name the others."""
        numbers = list(range(len(self.cluster.nodes)))
        number = self.random.choice(numbers)
        return number, [other for other in numbers if other != number]

    def _kill(self, banks: Banks) -> None:
        number, others = self._draw()
        with banks.limited.crash(1):
            self.cluster.kill(number)
        banks.wait_business(others)
        self.cluster.restart(number)

    def _kill_all(self, banks: Banks) -> None:
        numbers = range(len(self.cluster.nodes))
        with banks.limited.crash(len(numbers)):
            self.cluster.kill(*numbers)
        self.cluster.restart(*numbers)

    def _lose(self, banks: Banks) -> None:
        number, others = self._draw()
        with banks.limited.crash(1):
            self.cluster.kill(number)
        banks.lost(number)
        banks.wait_business(others)
        self.cluster.replace(number)

    def _freeze(self, banks: Banks) -> None:
        number, others = self._draw()
        self.cluster.freeze(number)
        self.cluster.wait_lost(number)
        banks.wait_business(others)
        self.cluster.thaw(number)

    def _leave(self, banks: Banks) -> None:
        number, others = self._draw()
        leaver = self.cluster.nodes[number]
        leaver.call("CLUSTER", "LEAVING", "yes")
        wait_until(lambda: cluster_info(leaver)["cluster_safe_to_stop"] == "yes", "a node that is safe to stop")
        self.cluster.stop(number)
        banks.wait_business(others)
        self.cluster.restart(number)
        self.cluster.nodes[number].call("CLUSTER", "LEAVING", "no")

    def _cut(self, banks: Banks) -> None:
        number, others = self._draw()
        assert isinstance(self.cluster, HostedCluster)
        self.cluster.network.split([number], others)
        self.cluster.wait_lost(number)
        banks.wait_business()
        self.cluster.network.heal()

    def _deafen(self, banks: Banks) -> None:
        number, others = self._draw()
        assert isinstance(self.cluster, HostedCluster)
        deaf_to = self.random.choice(others)
        self.cluster.network.deafen(number, [deaf_to])
        self.cluster.wait_lost(deaf_to, [self.cluster.nodes[number]])
        banks.wait_business()
        self.cluster.network.heal()
