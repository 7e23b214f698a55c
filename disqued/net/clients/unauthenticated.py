"""Limits on the number and the age of unauthenticated clients.

    restrict --> [oldest, ..., newest] --AUTH--> a user's connection
                     |
                     +-- its time is over, or there are too many: ended, the oldest first

A client that knows a password sends it at once, so it is never among the oldest of many: a flood of unauthenticated
clients pushes out none but these.  `RequestParser.restrict` bounds what each may send, so all of them together take at
most `max-unauthenticated-clients` times that.  Instants are monotonic milliseconds.
"""

from typing import Any, Protocol

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from disqued.config import Config
from disqued.net.clients.peer_addresses import Peer
from disqued.net.loop.lograte import LogRate


class UnauthenticatedClient(Protocol):
    """An unauthenticated connection."""

    address: str  #: of the other end, for the log
    peer: Peer

    def __hash__(self) -> int:
        """Any: they are compared, and no more."""

    def kill(self) -> None:
        """End the connection."""


class UnauthenticatedClients:
    """The unauthenticated connections of a daemon."""

    log = Logger()

    def __init__(self, config: Config, reactor: Any) -> None:
        """`reactor` has `seconds` and `callLater`."""
        self._config = config
        self._reactor = reactor
        self._since: dict[UnauthenticatedClient, float] = {}  #: oldest first; reactor seconds
        self._timer: IDelayedCall | None = None
        self.news = LogRate(reactor.seconds)
        self.ended = 0  #: connections that were closed: too slow, or too many
        config.subscribe("auth-timeout", lambda _: self._set_timer())
        config.subscribe("max-unauthenticated-clients", lambda _: self._end_some())

    def __len__(self) -> int:
        return len(self._since)

    def add(self, client: UnauthenticatedClient) -> None:
        """A connection has to say who it is, from now on."""
        if client in self._since:
            return
        self._since[client] = self._reactor.seconds()
        self._end_some()
        if self._timer is None:
            self._set_timer()

    def remove(self, client: UnauthenticatedClient) -> None:
        """A connection has said who it is, or is gone."""
        if self._since.pop(client, None) is not None and not self._since:
            self.stop()

    def make_room(self) -> bool:
        """End the oldest one, if there is one, for somebody who comes while the node is full; tells whether it did."""
        if not self._since:
            return False
        self._end(next(iter(self._since)), "the node is full")
        return True

    def reset(self) -> None:
        """Count anew."""
        self.ended = 0

    def stop(self) -> None:
        """Look at nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_some(self) -> None:
        """End the oldest ones while there are too many."""
        while len(self._since) > self._config.max_unauthenticated_clients:
            self._end(next(iter(self._since)), "there are too many others")

    def _set_timer(self) -> None:
        """Come back when the time of the oldest one is over."""
        self.stop()
        timeout = self._config.auth_timeout
        if timeout and self._since:
            oldest = next(iter(self._since.values()))
            self._timer = self._reactor.callLater(max(0.0, oldest + timeout - self._reactor.seconds()), self._due)

    def _due(self) -> None:
        self._timer = None
        limit = self._reactor.seconds() - self._config.auth_timeout
        for client, since in list(self._since.items()):
            if since > limit:
                break
            self._end(client, "it said nothing in time")
        self._set_timer()

    def _end(self, client: UnauthenticatedClient, reason: str) -> None:
        del self._since[client]
        self.ended += 1
        if self.news.is_new(f"{client.peer.host}: {reason}"):
            self.log.info(
                "Client {client} has not authenticated, and {reason}: closed", client=client.address, reason=reason
            )
        client.kill()
