"""A cluster of real daemons under load, with one fault after the other.

    a round    the bank opens: producers and consumers on every node
               some faults, drawn at random: kill -9 of one node or of all, a node lost with its disk and replaced,
               SIGSTOP, LEAVING with a stop and a start; where nodes have hosts of their own, cuts of the network
               between them, both ways or one way
               all is well again; what was answered was delivered, no node holds anything

Times are seconds.
"""

from collections.abc import Callable
from random import Random

import attrs

from tests.integration.cluster import Cluster, HostedCluster, cluster_info
from tests.integration.daemon import wait_until
from tests.limits import seconds
from tests.torture.fates import FateBank

FAULTS_PER_ROUND = 4
#: A node that is started again does not know any more who was forgotten, and asks strangers for a minute.
EMPTY_LIMIT = seconds(200)


@attrs.define
class Rounds:
    """Rounds on one cluster, whose nodes all run before and after each of them."""

    cluster: Cluster
    random: Random
    rounds: int = 0  #: begun
    done: list[str] = attrs.field(factory=list)  #: faults of the last round

    def round(self) -> list[str]:
        """Open the bank, let things fail, and say what is wrong in the end; empty = nothing."""
        self.rounds += 1
        self.done.clear()
        with FateBank(self.cluster.nodes, self.random.randrange(1 << 32)) as bank:
            bank.wait_business()
            for _ in range(FAULTS_PER_ROUND):
                fault = self.random.choice(self._faults())
                self.done.append(fault.__name__.strip("_"))
                bank.apart(f"{self.done[-1]} begins")
                fault(bank)
                self.cluster.wait_joined()
                bank.together(f"{self.done[-1]} is over")
                bank.wait_business()
            bank.close()
            self.cluster.wait_empty(EMPTY_LIMIT)
            wrong = bank.verdict()
        self.done.append(bank.tally.line())
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

    def _kill(self, bank: FateBank) -> None:
        number, others = self._draw()
        self.cluster.kill(number)
        bank.wait_business(others)
        self.cluster.restart(number)

    def _kill_all(self, bank: FateBank) -> None:
        numbers = range(len(self.cluster.nodes))
        self.cluster.kill(*numbers)
        self.cluster.restart(*numbers)

    def _lose(self, bank: FateBank) -> None:
        number, others = self._draw()
        self.cluster.kill(number)
        bank.lost(number)
        bank.wait_business(others)
        self.cluster.replace(number)

    def _freeze(self, bank: FateBank) -> None:
        number, others = self._draw()
        self.cluster.freeze(number)
        self.cluster.wait_lost(number)
        bank.wait_business(others)
        self.cluster.thaw(number)

    def _leave(self, bank: FateBank) -> None:
        number, others = self._draw()
        leaver = self.cluster.nodes[number]
        leaver.call("CLUSTER", "LEAVING", "yes")
        wait_until(lambda: cluster_info(leaver)["cluster_safe_to_stop"] == "yes", "a node that is safe to stop")
        self.cluster.stop(number)
        bank.wait_business(others)
        self.cluster.restart(number)
        self.cluster.nodes[number].call("CLUSTER", "LEAVING", "no")

    def _cut(self, bank: FateBank) -> None:
        number, others = self._draw()
        assert isinstance(self.cluster, HostedCluster)
        self.cluster.network.split([number], others)
        self.cluster.wait_lost(number)
        bank.wait_business()
        self.cluster.network.heal()

    def _deafen(self, bank: FateBank) -> None:
        number, others = self._draw()
        assert isinstance(self.cluster, HostedCluster)
        deaf_to = self.random.choice(others)
        self.cluster.network.deafen(number, [deaf_to])
        self.cluster.wait_lost(deaf_to, [self.cluster.nodes[number]])
        bank.wait_business()
        self.cluster.network.heal()
