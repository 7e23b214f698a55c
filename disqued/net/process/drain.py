"""Drain on shutdown: where its settings say so, a node hands its jobs on before it stops.

    SIGTERM --cluster-leave-timeout > 0--> leaving, as after CLUSTER LEAVING yes; clients are served as before
                                              | nothing is lost by a stop any more
                                              | or no node can be reached that takes jobs
                                              | or the time is over, or the setting 0 by now
                                              | or SHUTDOWN, or another SIGTERM or SIGINT
                                              v
                                           the stop

A node that left only to stop is a member as any other when it starts again, whatever ended it: nodes.conf does not say
that it was leaving.  One whose operator had said CLUSTER LEAVING yes before stays one that is leaving.

Times are seconds.  Source: `core.cluster.leaving`; Disque has the command and leaves the waiting to the operator.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from twisted.internet.task import deferLater
from twisted.logger import Logger

if TYPE_CHECKING:
    from disqued.net.process.daemon import Daemon

LOOK_S: Final = 0.1  #: between two looks at how far it has come
TOLD_EVERY_S: Final = 1.0  #: how often `tell` hears of it


class Drain:
    """The leaving of one daemon before its end."""

    log = Logger()

    def __init__(self, daemon: "Daemon", tell: Callable[[str], None]) -> None:
        """`tell` hears how far it is, as long as it goes on."""
        self._daemon = daemon
        self._tell = tell
        self._is_hurried = False

    def hurry(self) -> None:
        """Leave it at what was handed on until now."""
        self._is_hurried = True

    async def say(self) -> None:
        """Leave, if that is wanted, and wait until the node may stop."""
        daemon, reactor = self._daemon, self._daemon.reactor
        began = reactor.seconds()
        told = began - TOLD_EVERY_S
        if not self._is_wanted(0.0):
            return
        self._begin()
        while not daemon.node.leaving.is_safe and self._is_wanted(reactor.seconds() - began):
            if reactor.seconds() - told >= TOLD_EVERY_S:
                told = reactor.seconds()
                facts = daemon.node.leaving.facts()
                self._tell(f"Leaving before the stop: {facts['cluster_leaving_jobs_left']} jobs to be handed on")
            await deferLater(reactor, LOOK_S)
        if daemon.node.leaving.is_safe:
            self.log.info("All that this node held is on other nodes")
        else:
            self.log.warn(
                "Stopping before all was handed on: {left} jobs are left here",
                left=daemon.node.leaving.facts()["cluster_leaving_jobs_left"],
            )

    def _is_wanted(self, spent_s: float) -> bool:
        """Tell whether the node is to leave, or to go on with it after that time."""
        daemon = self._daemon
        if self._is_hurried or daemon.loading or daemon.ending or spent_s >= daemon.config.cluster_leave_timeout:
            return False
        return bool(daemon.node.state.peers.reachable)

    def _begin(self) -> None:
        self.log.info(
            "Leaving before the stop, for {seconds} s at most; another SIGTERM or SIGINT stops without the rest of it",
            seconds=self._daemon.config.cluster_leave_timeout,
        )
        if not self._daemon.node.state.leaving:
            self._daemon.identity.hides_leaving = True
            self._daemon.leave()
