"""What a command may answer instead of a result: one class per thing that a caller can act on.

`code` is the first word of the error line and never changes: programs branch on it.  The docstring is the text,
where a class has only one; classes that need the facts of the case are given a text.

Source: Disque 1.0-rc1, whose words and texts are served as they were.
"""


class CommandError(Exception):
    """The command could not be carried out."""

    code = "ERR"

    def __init__(self, text: str | None = None) -> None:
        self.text = (text if text is not None else self.__doc__) or ""
        super().__init__(self.text)

    @property
    def line(self) -> bytes:
        """The error as it stands on the wire, without the dash and the line end."""
        return f"{self.code} {self.text}".encode("utf-8", "surrogateescape")


class InternalError(CommandError):
    """internal error"""


class SyntaxFault(CommandError):
    """syntax error"""


class WrongArity(CommandError):
    """A command was called with too few or too many arguments."""

    def __init__(self, name: str) -> None:
        super().__init__(f"wrong number of arguments for '{name}' command")


class TooManyWords(WrongArity):
    """A command was called with more words than it could have a use for."""

    def __init__(self, name: str, most: int) -> None:
        CommandError.__init__(self, f"wrong number of arguments for '{name}' command: {most} words at most")


class NothingNamed(WrongArity):
    """A command was called with options and without the values that it is about."""

    def __init__(self, name: str, needed: str) -> None:
        CommandError.__init__(self, f"wrong number of arguments for '{name}' command - needed as well: {needed}")


class UnknownCommand(CommandError):
    """No command of this name exists."""

    def __init__(self, name: bytes) -> None:
        super().__init__(f"unknown command '{name[:128].decode('utf-8', 'surrogateescape')}'")


class NotAnInteger(CommandError):
    """value is not an integer or out of range"""


class BadJobId(CommandError):
    """Invalid Job ID format."""

    code = "BADID"


class NotReplicated(CommandError):
    """Not enough reachable nodes for the requested replication level"""

    code = "NOREPL"


class QueuePaused(CommandError):
    """Queue paused in input, try later"""

    code = "PAUSED"

    def __init__(self, reason: str = "", owner: str = "") -> None:
        why = "; ".join(part for part in (reason, f"by {owner}" if owner else "") if part)
        super().__init__(f"{self.__doc__} ({why})" if why else None)


class WrongType(CommandError):
    """Operation against a key holding the wrong kind of value"""

    code = "WRONGTYPE"


class HasLimits(CommandError):
    """the queue has limits, and this command does not wait for its steward: take its jobs with GETJOB or RQ.POP"""

    code = "WRONGTYPE"


class LogWithoutLimits(CommandError):
    """the queue is a log, whose events have no limits, groups or throttles: limit a queue of jobs"""

    code = "WRONGTYPE"


class SlotsElsewhere(CommandError):
    """the queue has limits, and these elements have slots on other nodes; ENQUEUE takes them from their consumers"""


class Busy(CommandError):
    """too many events are being added in the background; wait, or raise bg-qadd-pool-size"""

    code = "BUSY"


class QueueTooLong(CommandError):
    """Queue is already longer than the specified MAXLEN count"""

    code = "MAXLEN"


class NameTooLong(CommandError):
    """the name of a queue has 65000 bytes at most"""


class NodeLeaving(CommandError):
    """This node is leaving the cluster, please connect to a different one"""

    code = "LEAVING"


class UnknownJob(CommandError):
    """Job not known in the context of this node."""

    code = "NOJOB"


class TooLate(CommandError):
    """Half of job TTL already elapsed, you are no longer allowed to postpone the next delivery."""

    code = "TOOLATE"


class JobIsDead(TooLate):
    """The job is dead: it is not delivered again before REDRIVE."""


class SlotIsOver(TooLate):
    """No consumer of this node has a slot for the job: its retry time is over, or another node handed it out."""


class JobCancelled(CommandError):
    """The job was cancelled: stop working on it."""

    code = "CANCELLED"


class EmptyKey(CommandError):
    """There is no such list on this node; the word is all that is said."""

    code = "EMPTYKEY"

    @property
    def line(self) -> bytes:
        """The word alone."""
        return self.code.encode()


class Unblocked(CommandError):
    """client unblocked via CLIENT UNBLOCK"""

    code = "UNBLOCKED"


class NotAuthenticated(CommandError):
    """Authentication required."""

    code = "NOAUTH"


class OutOfMemory(CommandError):
    """command not allowed when used memory > 'maxmemory'."""

    code = "OOM"


class JournalFailed(CommandError):
    """Errors writing to the AOF file"""

    code = "MISCONF"


class Loading(CommandError):
    """Disque is loading the dataset in memory"""

    code = "LOADING"


class NotNow(CommandError):
    """The node runs no commands now: CLIENT PAUSE, or it stops"""

    code = "TRYAGAIN"


class ProtocolVersion(CommandError):
    """unsupported protocol version"""

    code = "NOPROTO"


class WrongPassword(CommandError):
    """invalid username-password pair or user is disabled."""

    code = "WRONGPASS"


class TooManyPasswords(WrongPassword):
    """too many wrong passwords from this address; try again in <n> s"""

    def __init__(self, wait_s: int) -> None:
        super().__init__(f"too many wrong passwords from this address; try again in {wait_s} s")


class NoPermission(CommandError):
    """User <name> has no permissions to do that"""

    code = "NOPERM"

    def __init__(self, reason: bytes = b"", what: bytes = b"", text: str | None = None) -> None:
        super().__init__(text)
        self.reason = reason  #: command, key or channel
        self.what = what  #: which one


class NoWorker(CommandError):
    """no such worker is alive here: start again"""

    code = "NOWORKER"


class StaleWorker(CommandError):
    """somebody else is this worker now, with a higher epoch"""

    code = "STALE"


class NotWorking(CommandError):
    """<queue> is not one that the worker works on: WQ.WORK comes first"""

    code = "NOTWORKING"

    def __init__(self, queue: bytes) -> None:
        name = queue[:128].decode("utf-8", "surrogateescape")
        super().__init__(f"{name} is not one that the worker works on: WQ.WORK comes first")


class DuplicateTask(CommandError):
    """<id of the job that has the same task>"""

    code = "DUPLICATE"

    def __init__(self, job_id: bytes | None = None, *, soon: bool = False) -> None:
        """Name the job that has the task; `soon`: another client is about to add it, and it has no job yet."""
        if soon:
            super().__init__("the same task is being added by another client")
        else:
            super().__init__("the same task twice in one command" if job_id is None else job_id.decode("ascii"))
