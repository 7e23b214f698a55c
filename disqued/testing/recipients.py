"""The clients of one process, and their replies on the way from a command to the client.

    command --> due ---commit begins---> held ---commit is done---> leaving --answer--> the client
                 `-----------nothing to commit, or done at once-------^

A reply that is leaving is handed over when the step that runs is over, so that no client acts in the middle of it.
"""

from collections.abc import Callable
from typing import Any, Protocol

from disqued.commands.dispatch import Outcome
from disqued.commands.table import Command
from disqued.errors import CommandError


class SimClient(Protocol):
    """A client as its node sees it."""

    is_gone: bool  #: it has broken its connection

    def __hash__(self) -> int:
        """Any: the core compares clients, and no more."""

    def answered(self, value: Any) -> None:
        """The reply to its command, or the error."""

    def lost(self) -> None:
        """The connection is broken."""


class AskingNode:
    """Another node that has asked for a command."""

    is_gone = False

    def __init__(self, tell: Callable[[object], None], leave: "Callable[[SimClient], object]") -> None:
        """`tell` hears the value of its one command, `leave` that it has gone then."""
        self._tell = tell
        self._leave = leave

    def answered(self, value: Any) -> None:
        self._leave(self)
        self._tell(value)

    def lost(self) -> None:
        """Nobody is to be told: its question is over with the link."""


class SimRecipient:
    """The replies of one client that have not left yet; it issues commands, and is a `Recipient` to the turn."""

    name = b""
    address = ""
    limited = False

    def __init__(self, client: SimClient, leave: "Callable[[SimRecipient], None]") -> None:
        """`leave` is called when replies have become `leaving`."""
        self.client = client
        self.blocked: Outcome | None = None  #: of the command that it waits in
        self.due: list[Outcome] = []  #: they wait for the next commit
        self.held: list[Outcome] = []  #: they wait for the commit that is under way
        self.leaving: list[Outcome] = []  #: they leave when the step that runs is over
        self._leave = leave

    def check(self, entry: Command) -> None:
        """It may run every command."""

    @property
    def is_held(self) -> bool:
        return bool(self.held)

    def is_gone(self) -> bool:
        """Return whether the client has broken its connection."""
        return self.client.is_gone

    def unblock(self, value: Any) -> None:
        assert self.blocked is not None
        self.blocked.answer(value)
        self.due.append(self.blocked)
        self.blocked = None

    def flush(self) -> None:
        due, self.due = self.due, []
        self._send(due)

    def hold(self) -> None:
        self.held += self.due
        self.due = []

    def release(self) -> None:
        held, self.held = self.held, []
        self._send(held)

    def _send(self, replies: list[Outcome]) -> None:
        if replies:
            self.leaving += replies
            self._leave(self)

    def take_back(self, unkept: set[bytes], error: CommandError) -> list[bytes]:
        taken: list[bytes] = []
        for outcome in (*self.held, *self.due):
            told = [name for name in outcome.promised() if name in unkept]
            if told:
                taken += told
                outcome.fail(error)
        return taken

    def drop(self) -> list[bytes]:
        """Drop the replies that did not leave; returns the ids of the jobs in them."""
        dropped = [*self.leaving, *self.held, *self.due]
        self.due, self.held, self.leaving = [], [], []
        return [name for outcome in dropped for name in outcome.handed()]


class SimClients:
    """The clients of one process: who waits for a reply, and whose replies are leaving."""

    def __init__(self, leaves: Callable[[], None]) -> None:
        """`leaves` is called whenever replies have become ready to leave; `answer` hands them over."""
        self._leaves = leaves
        self._waiting: dict[SimClient, None] = {}
        self._recipients: dict[SimClient, SimRecipient] = {}
        self._leaving: list[SimRecipient] = []
        self._is_closed = False

    def wait(self, client: SimClient) -> None:
        """Note that a client waits for a reply."""
        self._waiting[client] = None

    def recipient(self, client: SimClient) -> SimRecipient:
        """Return the recipient of a client, a new one for its first command."""
        recipient = self._recipients.get(client)
        if recipient is None:
            recipient = self._recipients[client] = SimRecipient(client, self._leave)
        return recipient

    def _leave(self, recipient: SimRecipient) -> None:
        self._leaving.append(recipient)
        self._leaves()

    def stop_waiting(self, client: SimClient) -> None:
        """Note that a client waits for no reply any more."""
        self._waiting.pop(client, None)

    def remove(self, client: SimClient) -> SimRecipient | None:
        """Forget a client that is gone; returns its recipient, None when it has issued no command."""
        return self._recipients.pop(client, None)

    def answer(self) -> None:
        """Hand the replies that are leaving to their clients."""
        leaving, self._leaving = self._leaving, []
        for recipient in leaving:
            replies, recipient.leaving = recipient.leaving, []
            client = recipient.client
            for outcome in replies:
                if not self._is_closed and not client.is_gone:
                    self.stop_waiting(client)
                    client.answered(outcome.value)

    def close(self) -> None:
        """End with the process: clients that wait for a reply lose their connection."""
        self._is_closed = True
        waiting, self._waiting = self._waiting, {}
        for client in waiting:
            client.lost()
