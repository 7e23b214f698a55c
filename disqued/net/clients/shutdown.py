"""On shutdown, keep reading a client until it has received its replies.

    close   of a socket with bytes that nobody has read, or that come later: the system drops what is on its way to
            the other end, and tells it that the connection was reset
    part    what is due --> FIN --> what still comes is read and thrown away
                                --> its end, or the other end's system has all that was due, or LINGER_S --> close

So a client in the midst of a pipeline hears of each job that it has added, and then of the end.  The others, of which
the system knows nothing that is under way, are closed at once.

Times are seconds.
"""

from collections.abc import Iterable
from typing import Final

from twisted.internet.base import ReactorBase
from twisted.internet.task import deferLater

from disqued.net.clients.connection import ClientConnection

LINGER_S: Final = 1.0  #: how long the stop waits at most for clients that read what is due
LOOK_S: Final = 0.01  #: between two looks at how many are left


async def part(reactor: ReactorBase, clients: Iterable[ClientConnection]) -> None:
    """End the connections of clients, of which no command is run any more."""
    lingering = [client for client in list(clients) if client.part()]
    until = reactor.seconds() + LINGER_S
    while reactor.seconds() < until and any(client.is_busy for client in lingering):
        await deferLater(reactor, LOOK_S)
    for client in lingering:
        client.transport.loseConnection()
