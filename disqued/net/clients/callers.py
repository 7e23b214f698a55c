"""Callers: commands from other parts of the process, such as the admin side, without a client connection.

    Caller.run(words) --> the step of a command, with every check that a client's has
                              |
                    driver: journal, commit, messages --> flush, or hold and release --> the Deferred fires

A caller runs one command.  Like a client's reply its outcome is told once what it says is as durable as promised, and
the jobs that it was given go back when it is cancelled before it has heard of them.  It is no client: it is not counted
as one, CLIENT LIST does not show it, and MONITOR is not for it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred

from disqued.acl.user import User
from disqued.commands.dispatch import Outcome
from disqued.commands.host import Host
from disqued.commands.table import BLOCKED, NO_REPLY, Command
from disqued.errors import CommandError, NotNow
from disqued.net.clients.connection import CLOSED, ClientSession
from disqued.net.clients.traffic import Traffic


class _Inside:
    """The `Peer` of a caller: there is no other end."""

    descriptor = -1
    is_unix = False
    local_address = certificate_name = ""


class Caller:
    """Runs one command; a `Session` to it, and a `Recipient` to the turn."""

    protocol = 0  #: it takes values
    authenticated = True
    user: User | None = None
    limited = False  #: its permissions are decided elsewhere
    monitors = False
    subscriptions = ()
    reply_mode = "on"
    receipts = False
    peer = _Inside()
    is_closing = False
    input_buffered = output_buffered = 0

    def __init__(
        self, host: Host, traffic: Traffic, session_id: int, address: str,
        is_gone: Callable[[], bool] = lambda: False, *, name: bytes = b"",
    ) -> None:  # fmt: skip
        """`address` names the caller to MONITOR and the slow log; `is_gone` returns whether it is there no more."""
        self.id = session_id
        self.name = name
        self.address = address
        self.lib: dict[bytes, bytes] = {}
        self.host = host
        self.connected_at = self.active_at = traffic.node.clock.now()
        self._traffic = traffic
        self.is_held = False
        self._outcome = Outcome(checked=True)
        self._heard: Deferred[Any] = Deferred(lambda _: self.cancel())
        self._gone = False
        self._is_away = is_gone

    @property
    def last_command(self) -> str:
        entry = self._outcome.entry
        return "NULL" if entry is None else entry.name.lower().replace(" ", "|")

    @property
    def is_blocked(self) -> bool:
        return self._outcome.value is BLOCKED

    # The command.

    def run(self, words: Sequence[bytes]) -> "Deferred[Any]":
        """Run a command; fires with what it returns, None for a command without a reply, or with a CommandError."""
        traffic, dispatch = self._traffic, self._traffic.dispatch
        if traffic.paused:
            self._heard.errback(NotNow())
            return self._heard
        traffic.node.begin(self)
        self._outcome.at = dispatch.seconds()
        dispatch.execute(self, list(words), self._outcome)
        traffic.turn.finish_step(self)
        return self._heard

    def check(self, entry: Command) -> None:
        """Refuse a command that hands out jobs, when nobody waits for them any more.  Raises CommandError."""
        if entry.hands_out and self._is_away():
            raise CommandError(CLOSED)

    def cancel(self) -> None:
        """Nobody wants the outcome any more: what is blocked is given up, and jobs that were handed out go back."""
        self._gone = True
        traffic = self._traffic
        if traffic.ending:
            return  # what was written of the jobs for the next start holds
        traffic.node.begin()
        traffic.node.gone(self, self._outcome.handed())
        traffic.turn.finish_step(None)

    # What the driver asks for.

    def is_gone(self) -> bool:
        """Tell whether nobody waits for the outcome any more."""
        return self._gone or self._is_away()

    def unblock(self, value: Any) -> None:
        self._outcome.answer(value)

    def hold(self) -> None:
        """The outcome waits for a commit that is under way."""
        self.is_held = True

    def release(self) -> None:
        """What was held may be told."""
        self.is_held = False
        self.flush()

    def flush(self) -> None:
        """Tell the outcome, if there is one."""
        if self.is_blocked or self._gone or self.is_held:
            return
        outcome, self._outcome = self._outcome, Outcome()
        self._gone = True
        traffic = self._traffic
        traffic.node.state.custody.part_with(self)  # no connection ends that would do it
        if self in traffic.node.sessions.by_client:
            # It was a worker's for this one command.
            traffic.node.begin()
            traffic.node.gone(self)
            traffic.turn.finish_step(None)
        if outcome.failed:
            self._heard.errback(outcome.value)
        else:
            self._heard.callback(None if outcome.value is NO_REPLY else outcome.value)

    def take_back(self, unkept: set[bytes], error: CommandError) -> list[bytes]:
        taken = [job_id for job_id in self._outcome.promised() if job_id in unkept]
        if taken:
            self._outcome.fail(error)
        return taken

    # What only makes sense on a connection.

    def close(self) -> None:
        """It ends by itself."""

    def kill(self) -> None:
        """It ends by itself."""

    def set_protocol(self, version: int) -> None:
        """It gets values, not bytes."""


Commander = ClientSession | Caller  #: what gives commands to a daemon
