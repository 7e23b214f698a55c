"""Operators who redrive dead jobs while nodes and links fail.

    operator    REDRIVE queue on any node, now and then with COUNT or RATE; two at once meet on the same jobs

What must be so of the jobs is what `checker` says of tries, and of deliveries by two nodes.

Times are integer milliseconds.
"""

from typing import Any, Final

from disqued.testing.clients import RECONNECT_MS, Actor, Connection

REDRIVEN_EVERY_MS: Final = 10_000  #: one operator waits so long at most
LIMITS: Final = ((), (), (b"COUNT", b"3"), (b"RATE", b"5"))


class Redriver(Actor):
    """Redrives one queue after the other, until it is told to end."""

    def go_on(self) -> None:
        """Redrive a queue."""
        connection = self.connect()
        if connection is None:
            self.plan(RECONNECT_MS)
            return
        words = [b"REDRIVE", self.rng.choice(self.load.queues), *self.rng.choice(LIMITS)]
        connection.server.command(connection, words)

    def heard(self, connection: Connection, value: Any) -> None:
        """Wait, and go to another node."""
        connection.close()
        self.plan(self.rng.randint(1, REDRIVEN_EVERY_MS))
