"""Live workers in virtual time.

    START, WQ.WORK --> WQ.DEQUEUE --> work, and KEEPALIVE meanwhile --> WQ.FINISH, ACKJOB or RQ.ACK --> again
          ^            GETJOB WORKER   |--> falls silent, and is somebody else after a while
          |            RQ.POP WORKER   |--> its connection ends: with BIND that is its death,
          +----------------------------+    else it goes on elsewhere, as the same worker

While it works it says so in time; work may take longer than the retry period of its tasks.  What it has it tells the
checker, and takes back when it may be dead.  Times are integer milliseconds.
"""

from abc import abstractmethod
from random import Random
from typing import TYPE_CHECKING, Any

from disqued.errors import CommandError
from disqued.testing.checker import Checker, Ledger
from disqued.testing.clients import RECONNECT_MS, Actor, Connection, Load

if TYPE_CHECKING:
    from disqued.testing.server import SimServer

TTL_MS = 3_000
WORK_MS_MAX = 20_000  #: what a task takes at most
SILENCE = 0.06  #: chance that it dies without a word
LEAVE = 0.06  #: chance that its connection ends


class WorkerActor(Actor):
    """Somebody who is a worker, and another one after its death, until it is told to end."""

    def __init__(self, servers: "list[SimServer]", checker: Ledger, load: Load, name: str, rng: Random) -> None:
        super().__init__(servers, checker, load, name, rng)
        self._lives = 0
        self._asked: str = ""  #: what it waits for the answer to
        self._held: dict[bytes, bytes] = {}  #: what it has, by the names that it has it under, and the ids of the jobs
        self._busy_until = 0
        self._silent: list[Connection] = []  #: open, and never used again
        self._begin_life()

    def _begin_life(self) -> None:
        self._lives += 1
        self.id = f"{self.name}, {self._lives}".encode()
        self._began = False  #: it has been started
        self._bound = self.rng.random() < 0.5

    def _be_born(self) -> None:
        """Be another worker from now on."""
        self._lose()
        self._begin_life()

    @abstractmethod
    def _lose(self, back_in_ms: int | None = None) -> None:
        """Not know any more whether what it has is its own; others can have it so soon, None = nobody knows when."""

    def retire(self) -> None:
        """End now; what it has comes back."""
        self._lose(0 if self._bound else TTL_MS)
        self.end()

    def end(self) -> None:
        """Do nothing more; connections that nobody uses end, too."""
        super().end()
        for connection in self._silent:
            connection.close()

    def go_on(self) -> None:
        connection = self.connect()
        if connection is None:
            self.plan(RECONNECT_MS)
        elif not self._began:
            more = [b"BIND"] if self._bound else []
            self._say(connection, "start", b"WORKER", b"START", b"ID", self.id, b"TTL", b"%d" % TTL_MS, *more)
        elif self._held:
            self._work_on(connection)
        else:
            self._fetch(connection)

    def _say(self, connection: Connection, what: str, *words: bytes) -> None:
        self._asked = what
        connection.server.command(connection, list(words))

    @abstractmethod
    def _fetch(self, connection: Connection) -> None:
        """Ask for something."""

    @abstractmethod
    def _finish(self, connection: Connection) -> None:
        """Say that something is done."""

    def _work_on(self, connection: Connection) -> None:
        """Go on working, or finish one of the tasks; some die before."""
        if self.events.now < self._busy_until:
            self._say(connection, "alive", b"WORKER", b"KEEPALIVE")
            return
        draw = self.rng.random()
        if draw < SILENCE:
            # From here on nobody hears of it, and its connection stays open.
            self._lose(TTL_MS)
            self._silent.append(connection)
            self._connection = None
            self._be_born()
            self.plan(self.rng.randint(100, 5_000))
        elif draw < SILENCE + LEAVE:
            self._leave(connection)
        else:
            self._finish(connection)

    def _leave(self, connection: Connection) -> None:
        """Break the connection; who is not bound to it goes on elsewhere."""
        if self._bound:
            self._lose(0)
        connection.close()
        self._lost_connection()

    def _lost_connection(self) -> None:
        """Be somebody new, or the same on another connection, which may be too late: then START says so."""
        self._asked = ""
        if self._bound:
            self._be_born()
        else:
            self._part()
            self._began = False
        self.plan(self.rng.randint(50, 1_500))

    def _part(self) -> None:
        """Go on as the same worker on another connection."""

    def heard(self, connection: Connection, value: Any) -> None:
        """Hear the answer, and go on."""
        asked, self._asked = self._asked, ""
        if isinstance(value, CommandError):
            self._fail(asked, value)
            if value.code in ("NOWORKER", "STALE"):
                self._be_born()
            elif value.code == "LEAVING":
                connection.close()
            self.plan(self.rng.randint(200, 1_000))
            return
        if asked == "start":
            self._begin(value)
        else:
            self._hear(connection, asked, value)
        self.plan(TTL_MS // 3 if self._held else self.rng.randint(1, 100))

    def _fail(self, asked: str, error: CommandError) -> None:
        """Hear that a command failed."""
        self._lose()

    def _begin(self, value: Any) -> None:
        """Hear that it was started, or that it has been all the time."""
        self._began = True

    @abstractmethod
    def _hear(self, connection: Connection, asked: str, value: Any) -> None:
        """Hear another answer."""

    def _be_busy(self) -> None:
        rng = self.rng
        self._busy_until = self.events.now + rng.randint(0, WORK_MS_MAX if rng.random() < 0.1 else self.load.work_ms)

    def disconnected(self, connection: Connection) -> None:
        """The node is gone, and with it, as far as it knows, what it had."""
        if connection is self._connection:
            self._lose()
            self._lost_connection()


class LiveWorker(WorkerActor):
    """Takes tasks as a worker."""

    checker: Checker

    def __init__(self, servers: "list[SimServer]", checker: Checker, load: Load, name: str, rng: Random) -> None:
        super().__init__(servers, checker, load, name, rng)
        self._popped: dict[bytes, tuple[bytes, bytes]] = {}  #: jobs that it had from a list: which, and their names
        self._works = False  #: it has said on which queues it works
        self._finishing = b""

    def _lose(self, back_in_ms: int | None = None) -> None:
        self.checker.left(self._held.values())
        self._held.clear()
        self._popped.clear()

    def _begin_life(self) -> None:
        super()._begin_life()
        self._works = False

    def _part(self) -> None:
        # It may be dead by the time that it is heard of again.
        self._lose()
        self._works = False

    def _fetch(self, connection: Connection) -> None:
        if not self._works:
            self._say(connection, "work", b"WQ.WORK", *self.load.queues)
            return
        queues = self.rng.sample(self.load.queues, len(self.load.queues))
        count = b"%d" % self.rng.choice((1, 1, 3))
        draw = self.rng.random()
        if draw < 0.3:
            words = [b"GETJOB", b"COUNT", count, b"TIMEOUT", b"5000", b"WORKER", self.id, b"FROM", *queues]
            self._say(connection, "jobs", *words)
        elif draw < 0.6:
            words = [b"RQ.POP", b"COUNT", count, b"BLOCK", b"5000", b"WORKER", self.id, b"KEYS", *queues]
            self._say(connection, "elements", *words)
        else:
            self._say(connection, "tasks", b"WQ.DEQUEUE", *queues, b"COUNT", count, b"BLOCK", b"5000")

    def _finish(self, connection: Connection) -> None:
        process, job_id = next(iter(self._held.items()))
        del self._held[process]
        self.checker.left([job_id])
        self.checker.ack_sent(job_id)
        self._finishing = job_id
        if job_id in self._popped:
            self._say(connection, "finish", b"RQ.ACK", *self._popped.pop(job_id))
        else:
            self._say(connection, "finish", b"WQ.FINISH" if process != job_id else b"ACKJOB", process)

    def _hear(self, connection: Connection, asked: str, value: Any) -> None:
        if asked == "work":
            self._works = True
        elif asked == "elements":
            self._popped = {row.job_id: (row[0], row[1]) for row in value or []}
            self._take(connection, [(row[0], row.job_id, row[2]) for row in value or []])
        elif asked in ("tasks", "jobs"):
            self._take(connection, value or [])
        elif asked == "finish" and value:
            self.checker.acked(self._finishing, self.events.now, known=True)

    def _take(self, connection: Connection, rows: list[Any]) -> None:
        now = self.events.now
        for queue, process, body in rows:
            job_id = process.partition(b":")[0]
            self.events.note(process)
            request = self.checker.delivered(job_id, queue, body, now, connection.server.number)
            if request is not None and request.retry_ms:
                self.checker.taken(job_id, self.id, now)
            self._held[process] = job_id
        self._be_busy()
