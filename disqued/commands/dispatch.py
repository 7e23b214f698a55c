"""Dispatch: the one way to run a command, for RESP, HTTP, the simulator and tests.

    RESP   ClientConnection --+
    HTTP   Caller ------------+-- execute(session, args) --> Outcome --> reply bytes, or a value
    testing/server.py, tests -+        |
                                       |  find     the command in the table
                                       |  parse    its arguments: by its grammar, or from the parse cache
                                       |  admit    session, permissions, memory, journal, loading; MONITOR
                                       |  run      node.command
                                       |  encode   the reply, for sessions that take bytes
                                       v  count    calls and time, slow log, latency monitor
                                     Outcome

A refusal is an outcome, too: its value is the CommandError.  So is BLOCKED, whose answer comes in a later step.  A bug
in a command is reported (`on_crash`), and its outcome is an InternalError.

Commands in `PLAIN` skip the admission while nothing asks for it: nobody monitors, the jobs are loaded, the session has
no limits, and, for commands that add data, memory is not short and the journal works.  That is a condition and not
another executor; what it skips would have refused nothing.

A step of the node (`Node.begin`, `Turn.finish_step`) belongs to the caller, since one step may run many commands; so
does the pause of all clients, during which no step begins.

Dispatch has no clock.  `seconds` returns monotonic seconds, `microseconds` unix microseconds.  A command begins when
the one before it in the same step was complete (`Outcome.at`), so that the clock is read once for each.  Slow log and
tally count microseconds, the latency monitor milliseconds.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from disqued.commands.latency import LatencyMonitor
from disqued.commands.monitor import monitored
from disqued.commands.permission import FOR_UNAUTHENTICATED
from disqued.commands.runnable import BLOCKED, NOTHING, Runnable
from disqued.commands.slowlog import SlowLog
from disqued.commands.table import PLAIN, Command, Flag, find, find_within, parse
from disqued.core.node import Call, Node
from disqued.errors import CommandError, InternalError, JournalFailed, Loading, OutOfMemory, WrongArity
from disqued.wire.brief import encode_error
from disqued.wire.pieces import Text


class Issuer(Protocol):
    """A session that issues commands, as far as dispatch knows it."""

    name: bytes  #: CLIENT SETNAME; empty for none
    limited: bool  #: permissions decide what it may do; its outcomes are `checked`

    def __hash__(self) -> int:
        """Any: to the node it is a client."""

    @property
    def address(self) -> str:
        """Its other end, for the slow log and MONITOR."""

    def check(self, entry: Command) -> None:
        """Refuse what this session cannot take now.  Raises CommandError."""


class Permissions(Protocol):
    """What limited sessions may do."""

    def admit(self, client: Any, entry: Command) -> None:
        """Refuse a command that the session may not run at all.  Raises CommandError."""

    def check_names(self, client: Any, entry: Command, call: Call) -> Call:
        """Refuse names that the session may not use; returns the call to run.  Raises CommandError."""


class Watcher(Protocol):
    """A session that sees every command (MONITOR)."""

    def __hash__(self) -> int:
        """Any: dispatch compares watchers, and no more."""

    def push(self, line: bytes) -> None:
        """Take the line of a command."""


class Activity(Protocol):
    """What wants to know when commands run again after a rest."""

    resting: bool

    def wake(self) -> None:
        """A command begins."""


class Outcome:
    """What became of a command, and how its session takes it.

    A session whose commands follow each other has one outcome for all of them, in turn.
    """

    def __init__(self, protocol: int = 0, *, checked: bool = False) -> None:
        self.protocol: int = protocol  #: RESP 2 or 3; 0 = the session takes values, and no reply is encoded
        self.checked: bool = checked  #: `Issuer.check`, and permissions, may refuse a command
        self.at: float = 0.0  #: clock reading when the command begins, then when it is complete: seconds
        self.word: bytes = b""  #: first word of the last command, if `plain` is not None
        self.plain: Command | None = None  #: what that word stands for where nothing has to be checked
        self.entry: Command | None = None  #: None = there is no such command
        self.runs: Runnable = NOTHING  #: the same as dispatch runs it; NOTHING = there is no such command
        self.value: Any = None  #: what the command returned, the CommandError that refused it, or BLOCKED
        self.failed: bool = False  #: `value` is a CommandError
        self.reply: Text = b""  #: `value` encoded

    def take(self, entry: Command | None) -> None:
        """Be about this command from now on."""
        self.entry = entry
        self.runs = NOTHING if entry is None else entry

    def answer(self, value: Any) -> None:
        """Take the value, or the CommandError, that the blocked command is answered in a later step."""
        self.value = value
        if isinstance(value, CommandError):
            self.fail(value)
        elif self.protocol:
            assert self.entry is not None
            self.reply = self.entry.encoder(self.protocol)(value)

    def fail(self, error: CommandError) -> None:
        """Be an error, whatever it was before."""
        self.value, self.failed, self.reply = error, True, encode_error(error.line)

    def handed(self) -> list[bytes]:
        """Ids of the jobs that the value hands to the client."""
        entry = self.entry
        if entry is None or self.failed or self.value is BLOCKED or not entry.hands_out or not self.value:
            return []
        return entry.handed(self.value)

    def promised(self) -> Iterable[bytes]:
        """Names of the jobs and units that must be durable before the value may leave."""
        entry = self.entry
        if entry is None or self.failed or self.value is BLOCKED or entry.promised is None:
            return ()
        return entry.promised(self.value)


class Dispatch:
    """Runs the commands of all sessions of one node."""

    def __init__(
        self, node: Node, *, seconds: Callable[[], float], microseconds: Callable[[], int],
        on_crash: Callable[[Any, list[bytes]], None], failure: Callable[[], str | None],
        slowlog: SlowLog, latency: LatencyMonitor, permissions: Permissions | None = None,
        activity: Activity | None = None,
    ) -> None:  # fmt: skip
        """Serve a node.

        `on_crash` reports the exception that is being handled, `failure` is the reason why the journal takes no jobs;
        without `permissions` no session is limited.
        """
        self.node = node
        self.seconds = seconds
        self.slowlog = slowlog
        self.latency = latency
        self.monitors: dict[Watcher, None] = {}
        self.loading = False
        self.commands_run = 0
        self._plain: dict[bytes, Command] = PLAIN
        self._state = node.state
        self._microseconds = microseconds
        self._on_crash = on_crash
        self._failure = failure
        self._permissions = permissions
        self._activity = activity
        self._guarded = False  #: every command is looked at
        self._slow_s = 0.0  #: commands that take longer are of interest to the slow log or the latency monitor
        self.find_guards()
        self.find_slow()

    # Commands.

    def execute(self, session: Issuer, args: list[bytes], outcome: Outcome) -> Outcome:
        """Run a command within the step that has begun; returns the outcome given, whose `at` says when it begins."""
        started = outcome.at
        self.commands_run += 1
        outcome.failed = False
        if args[0] != outcome.word:  # what a pipeline says again is looked up once
            outcome.plain = self._plain.get(args[0])
            # One that stands for nothing may be of any length, and is not kept.
            outcome.word = b"" if outcome.plain is None else args[0]
        if outcome.entry is not outcome.plain:
            outcome.take(outcome.plain)
        runs = outcome.runs
        state = self._state
        try:
            if (
                runs is NOTHING
                or self._guarded
                or outcome.checked
                or (
                    runs.needs_journal
                    and (
                        state.durability.read_only
                        or (state.memory.used > state.memory.low_mark and state.memory.level > 1)
                    )
                )
            ):
                call = self._admit(session, args, outcome)
                runs = outcome.runs
            else:
                call = runs.parse_cached(args)
            outcome.value = value = self.node.command(session, call)
            if value is not BLOCKED and outcome.protocol:
                outcome.reply = runs.encode2(value) if outcome.protocol == 2 else runs.encode3(value)
        except CommandError as error:
            outcome.fail(error)
        except Exception:  # a bug of ours: the node goes on without this command
            outcome.fail(InternalError())
            self._on_crash(session, args)
        outcome.at = ended = self.seconds()
        runs = outcome.runs
        if runs is not NOTHING:
            tally = runs.tally
            tally.calls += 1
            tally.usec += (ended - started) * 1e6
            if ended - started > self._slow_s:
                self._note_slow(session, outcome.entry, args, ended - started)
        return outcome

    def _admit(self, session: Issuer, args: list[bytes], outcome: Outcome) -> Any:
        """Find and parse a command, and check everything; returns the call to run.

        That a command may not run now comes before every error but a wrong number of arguments.  Raises CommandError.
        """
        entry = find(args) if outcome.protocol or not outcome.checked else find_within(args)
        outcome.take(entry)
        session.check(entry)
        try:
            # A call from the parse cache does not show what it names, which a limited session is asked about.
            is_cached = not session.limited and self._plain.get(args[0]) is entry
            call = entry.parse_cached(args) if is_cached else parse(entry, args)
        except WrongArity:
            raise
        except CommandError:
            self._check(session, entry)
            raise
        self._check(session, entry)
        if session.limited and self._permissions is not None:
            call = self._permissions.check_names(session, entry, call)
        for watcher in list(self.monitors):
            watcher.push(monitored(self._microseconds(), session.address, args))
        return call

    def _check(self, session: Issuer, entry: Command) -> None:
        """Refuse a command that may not run now.  Raises CommandError."""
        if self._activity is not None:
            self._activity.wake()
        if session.limited and self._permissions is not None:
            self._permissions.admit(session, entry)
        if entry.adds_data and self._state.memory.level > 1 and not self.node.make_room():
            raise OutOfMemory
        if entry.needs_journal and self._state.durability.read_only:
            raise JournalFailed(f"{JournalFailed.__doc__}: {self._failure()}")
        if self.loading and Flag.LOADING not in entry.flags and entry.name not in FOR_UNAUTHENTICATED:
            raise Loading

    def _note_slow(self, session: Issuer, entry: Command | None, args: list[bytes], seconds: float) -> None:
        """Give a command that took long to the slow log and the latency monitor."""
        usec, at = int(seconds * 1e6), self._microseconds() // 1_000_000
        self.slowlog.note(at, usec, args, session.address.encode(), session.name)
        is_fast = entry is not None and Flag.FAST in entry.flags
        self.latency.note("fast-command" if is_fast else "command", usec // 1_000, at)

    # What every command is looked at for.

    def set_loading(self, *, loading: bool) -> None:
        """Refuse most commands while the jobs are being loaded."""
        self.loading = loading
        self.find_guards()

    def watch(self, watcher: Watcher) -> None:
        """Show a session every command from now on."""
        self.monitors[watcher] = None
        self.find_guards()

    def unwatch(self, watcher: Watcher) -> None:
        """Show it no more commands."""
        self.monitors.pop(watcher, None)
        self.find_guards()

    def find_guards(self) -> None:
        """Decide whether every command is looked at; to be called when `Activity.resting` has changed."""
        self._guarded = self.loading or bool(self.monitors) or (self._activity is not None and self._activity.resting)

    def find_slow(self) -> None:
        """Decide what is slow; to be called when the threshold of the slow log or the latency monitor has changed."""
        limits = []
        if self.slowlog.threshold_us >= 0:
            limits.append(self.slowlog.threshold_us / 1e6)
        if self.latency.threshold_ms:
            limits.append(self.latency.threshold_ms / 1e3)
        self._slow_s = min(limits, default=float("inf"))
