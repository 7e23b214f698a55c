"""Producers who are not sure, and say the same again: with a key, until somebody answers.

    ADDJOB ... KEY n --answered--> think, and the next one
          ^   |--> the connection breaks while it waits; its node notices at once, or up to two seconds later
          |   |--> its node goes down
          |   +--> refused: NOREPL, LEAVING, MISCONF ...
          +---- again, on the same node or on another one

One job is there for each key when the answer comes, as long as nobody was apart: every node could hear every other
when it was said first, and none has gone down since but one to which alone it had been said until then.  (Another one
may have a copy of a job that was given up meanwhile, and come back with it.)  And none was silent: the one that answers
did not give up waiting for another one.  Times are integer milliseconds.
"""

from random import Random
from typing import TYPE_CHECKING, Any, Final

from disqued.core.work.inquiries import INQUIRY_MS
from disqued.errors import CommandError
from disqued.testing.checker import Checker, Request
from disqued.testing.clients import RECONNECT_MS, Connection, Load, Producer, holders_of

if TYPE_CHECKING:
    from disqued.testing.server import SimServer

BREAKS_MS: Final = 12  #: after the command, at most: while other nodes are asked, and copies made
AGAIN_MS: Final = (3, 60)  #: before it says the same again, at most
NOTICED_MS: Final = (0, 10, 2_000)  #: after which a node knows at the latest that a connection is gone
TRIES: Final = 50  #: after which it gives up


class KeyedProducer(Producer):
    """Adds some jobs, one after the other, and each of them once."""

    def __init__(
        self, servers: "list[SimServer]", checker: Checker, load: Load, name: str, rng: Random, *, count: int
    ) -> None:
        super().__init__(servers, checker, load, name, rng, count=count)
        self._said: Request | None = None  #: what it waits for an answer to, or is about to say again
        self._tries = 0
        self._boots: list[int] = []  #: of all nodes when it was said first; empty = some could not hear each other
        self._said_to: set[int] = set()  #: numbers of nodes
        self._several_knew = False  #: nodes at the same time

    def go_on(self) -> None:
        """Say the same again, or the next one."""
        connection = self.connect()
        if connection is None:
            self.plan(RECONNECT_MS)
        elif self._said is not None:
            self._say(connection, self._said)
        elif self._left <= 0:
            self.end()
        else:
            self._left -= 1
            self._said = request = self._draw(connection.server)
            request.is_keyed = True
            self._tries, self._said_to, self._several_knew = 0, set(), False
            self._boots = [server.boot for server in self.servers] if self._all_hear_each_other() else []
            self.checker.asked(request)
            self._say(connection, request)

    def _say(self, connection: Connection, request: Request) -> None:
        self._tries += 1
        self._said_to.add(connection.server.number)
        request.said_at[connection.server.id[:8]] = self.events.now
        if len(self._said_to - self._changed()) > 1:
            self._several_knew = True
        if self.rng.random() < self.load.breaks:
            self.events.after(self.rng.randint(0, BREAKS_MS), self._break, (connection, request.number))
        connection.server.command(connection, [*self._words(request), b"KEY", b"%d" % request.number])

    def _break(self, what: tuple[Connection, int]) -> None:
        """Lose the connection, if it still waits on it for the answer to this request."""
        connection, number = what
        if connection.is_gone or self._said is None or self._said.number != number:
            return
        connection.is_gone = True
        rng = self.rng
        self.events.after(rng.randint(0, rng.choice(NOTICED_MS)), connection.server.leave, connection)
        self.plan(rng.randint(0, rng.choice(AGAIN_MS)))

    def _all_hear_each_other(self) -> bool:
        others = len(self.servers) - 1
        return all(server.is_up and len(server.state.peers.linked) == others for server in self.servers)

    def _changed(self) -> set[int]:
        """Numbers of the nodes that are down, or were, since it was said first."""
        return {
            server.number
            for server, boot in zip(self.servers, self._boots, strict=False)
            if not server.is_up or server.boot != boot
        }

    def _nobody_was_apart(self) -> bool:
        """Tell whether all nodes are what they were, but for one to which alone it was said until it went down."""
        changed = self._changed()
        if not self._boots or len(changed) > 1 or not changed <= self._said_to:
            return False
        return not changed or not self._several_knew

    def heard(self, connection: Connection, value: Any) -> None:
        """Note that it is there, or say it again."""
        request = self._said
        if request is None:
            return
        if not isinstance(value, CommandError):
            self._said = None
            asked_ms = self.events.now - request.said_at[connection.server.id[:8]]
            request.is_once = self._nobody_was_apart() and asked_ms < INQUIRY_MS
            self.checker.answered(request.number, value, self.events.now, holders_of(connection.server, value))
        else:
            self.checker.refused(request.number)
            if self._tries >= TRIES:
                self._said = None
            elif self.rng.random() < 0.5:
                connection.close()
        self.plan(self.rng.randint(0, self.load.think_ms))

    def disconnected(self, connection: Connection) -> None:
        """Its node went down; it says the same again to another one."""
        if connection is self._connection:
            self.plan(RECONNECT_MS)
