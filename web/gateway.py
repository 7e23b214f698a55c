"""What the admin side sees of the daemon; `disqued.net` provides it, tests may provide their own.

    page, curl, Prometheus --HTTP--> web --Gateway.clients.call--> one step of the node, as a client's command is

What changes the queue is a command and goes through `clients.call`.  What only looks reads the `view` of the node
within one turn of the loop, and keeps it short: `SLICE_ROWS` rows, then others have their turn.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred

from disqued.acl.attempts import Attempts
from disqued.commands.host import Budget
from disqued.config import Config
from disqued.core.view import NodeView
from disqued.web.turns import SharedTurns

#: Bytes of a body that are searched for a text.
BODY_SEARCHED: Final = 1 << 16
#: Bytes of a name that a request can ask for, each of them escaped; a queue with a longer one is shown without a link.
NAME_MAX: Final = 5_000
SLICE_BYTES: Final = 1 << 19  #: of bodies searched in one turn, and one body more
SLICE_ROWS: Final = 200  #: queues or jobs looked at before others have their turn, a millisecond's work


class Commits(Protocol):
    """Counts of commits of the store."""

    done: int
    failed: int
    seconds: float  #: that those took that were done


class Clients(Protocol):
    """What runs commands for clients."""

    def call(
        self, words: Sequence[bytes], *, address: str, name: bytes = b"", is_gone: Callable[[], bool] = lambda: False
    ) -> Deferred[Any]:
        """Run a command; fires with its value (the shape that the table declares) or fails with a CommandError.

        `address` names who asks, to MONITOR and the slow log; `name` to those who hear of what was done.  Cancelling
        gives up what is blocked and returns jobs that were handed out.  No job is handed out when `is_gone` says that
        there is nobody any more: ask the transport of the request, whose `is_gone` looks at the socket.
        """


class Users(Protocol):
    """The users of the daemon."""

    attempts: Attempts  #: what each address has tried, of passwords on the port for clients, too

    def limits_unauthenticated(self) -> bool:
        """True when a client that says nothing of who it is may not do everything."""

    def admin_digest(self) -> bytes:
        """SHA-256 of the password of the settings, if clients who give it may do everything; b"" = they may not."""


class ShownCertificates(Protocol):
    """The certificates of the daemon."""

    @property
    def ends(self) -> Mapping[str, int]:
        """When each certificate that it shows ends, unix seconds, by where it is shown; empty without TLS."""


class Gateway(Protocol):
    """The daemon."""

    config: Config
    reactor: Any

    @property
    def ending(self) -> bool:
        """True when the daemon stops."""

    @property
    def loading(self) -> bool:
        """True while the store's records are being read: commands are answered LOADING."""

    @property
    def turns(self) -> SharedTurns:
        """Where clients with more to do than fits into a slice wait for their turns."""

    @property
    def view(self) -> NodeView:
        """Read-only view of the node."""

    @property
    def buffers(self) -> Budget:
        """What connections hold outside maxmemory: HTTP requests and responses report theirs, too."""

    @property
    def paused(self) -> bool:
        """True while nobody's commands run: they hear TRYAGAIN."""

    @property
    def store_failure(self) -> str | None:
        """Why nothing can be added now: the store's reason; None = all is well."""

    @property
    def commits(self) -> Commits:
        """Counts of its commits, as far as there is a store that wants the journal."""

    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """What INFO says that the node does not know: {section: {field: value}}."""

    @property
    def access(self) -> Users:
        """Its users."""

    @property
    def clients(self) -> Clients:
        """What runs commands for its clients."""

    @property
    def tls(self) -> ShownCertificates:
        """The certificates that it shows."""
