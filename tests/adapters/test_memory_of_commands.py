"""What each command leaves in memory is counted, or is within a fixed bound that the reference names.

Every command of the table runs many times with long names that are all different, and what the process has allocated
since is held against what the node counts:

    NOTHING      nothing of it outlasts the command, and nothing is counted
    USED         `used_memory` has grown by what it keeps, and by no more than is true
    BUFFERS      it is counted with what connections hold outside maxmemory (`mem_clients_normal`)
    a number     so many bytes at most are kept, however often it runs

A command without a row fails the test.
"""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from benchmarks.profile import Bed, Transport
from benchmarks.raw import words
from disqued.commands.table import every_command

NOTHING: Final = -1
USED: Final = -2
BUFFERS: Final = -3
RATIO = 1.3  #: of what is allocated to what is counted
DOUBLE = 2  #: of what is counted to what is allocated
LONG = 6_000  #: bytes of a name
TIMES = 150
WARM = 80  #: times before it is measured: tables, caches and the last inputs are there
SLACK = 120_000  #: bytes that an allocator, a table that grows and a log of a fixed length may take
TURNS_MAX = 2_000
CONNECTION = 16_000  #: bytes that a connection takes by itself, as the allocator counts them


class Name:
    """Stands for a name of so many bytes, another one each time."""

    def __init__(self, size: int = LONG, head: bytes = b"") -> None:
        self.size = size
        self.head = head

    def text(self, number: int) -> bytes:
        """The name of this time."""
        return (self.head + b"%08d" % number).ljust(self.size, b"n")


N = Name()


class Sink(Transport):
    """A transport that keeps the last reply alone."""

    def __init__(self) -> None:
        super().__init__()
        self.reply = b""
        self.write = self.keep

    def keep(self, data: bytes) -> None:
        """Send."""
        self.reply = data

    def fileno(self) -> int:
        """The descriptor."""
        return 7

    def is_gone(self) -> bool:
        """Tell whether the other end has closed."""
        return False

    def unregisterProducer(self) -> None:
        """Nothing."""

    loseConnection = abortConnection = unregisterProducer


class Stage:
    """A daemon, and a client of it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.bed = Bed.make(folder, settings="maxclients 100000\nslowlog-log-slower-than -1")
        self.node = self.bed.node
        self.bed.client.session.begin(Sink(), None, None)
        self.client = self.connect()

    def connect(self) -> Any:
        """Connect one more client."""
        client = self.bed.daemon.clients.buildProtocol(None)
        client.makeConnection(Sink())
        return client

    def say(self, *some: object, client: Any = None) -> bytes:
        """Run a command to its end, or until its client is blocked; returns the last part of the reply."""
        client = client or self.client
        client.transport.reply = b""
        client.dataReceived(words(*map(_bytes, some)))
        for _ in range(TURNS_MAX):
            if not (client._input.waiting or client._is_queued or len(self.node.state.unfinished)):
                break
            self.bed.reactor.advance(0)
        return bytes(client.transport.reply)

    @property
    def used(self) -> int:
        """Bytes that `used_memory` counts."""
        return self.node.state.memory.used

    @property
    def buffers(self) -> int:
        """Bytes that connections hold, as they are counted."""
        return self.bed.daemon.buffers.used


def _bytes(word: object) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


@attrs.frozen
class Row:
    """What a command keeps."""

    words: tuple[object, ...]
    kept: int = NOTHING
    before: Callable[[Stage, int], object] | None = None  #: what is done before each, and counts with it
    each_its_own: bool = False  #: every one comes on a connection of its own, which stays
    once: Callable[[Stage], object] = lambda stage: None  #: what is done before all
    times: int = TIMES
    answers: bytes = b""  #: how the reply begins; empty = it is no error


def said(*some: object, **facts: Any) -> Row:
    """A command in these words."""
    return Row(some, **facts)


def as_worker(stage: Stage) -> None:
    """Let the client be a worker."""
    stage.say("WORKER", "START", "ID", "w", "TTL", 0)


ROWS: dict[str, Row] = {}


class Job:
    """Stands for the id of a job with a long body that was just added: one that waits, or that a consumer has."""

    def __init__(self, *, taken: bool = False, event: bool = False) -> None:
        self.taken = taken
        self.event = event

    def make(self, stage: Stage, number: int) -> bytes:
        """Add it."""
        body = N.text(number)
        if self.event:
            reply = stage.say("QADD", "log", 5_000, body)
            if self.taken:
                reply = stage.say("QGET", "log", "group", "EX", 5_000)
        else:
            reply = stage.say("ADDJOB", "q", body, 0)
            if self.taken:
                reply = stage.say("GETJOB", "FROM", "q")
        at = reply.index(b"DI")
        return reply[at : at + 48]


JOB, HELD = Job(), Job(taken=True)
EVENT, HELD_EVENT = Job(event=True), Job(taken=True, event=True)
ID = Name(0, b"DI" + b"0" * 32)  # with the eight digits of the number; `_words` makes an id of it
CHANNEL = Name(6_000, b"wq:")
SHORT = Name(240)
WORKER = Name(1_000)
PATTERN = Name(250)
WIDE = Name(60_000)


def with_log(stage: Stage) -> None:
    """Let there be a log with an event."""
    stage.say("QADD", "log", 5_000, "event")


def with_key(stage: Stage) -> None:
    """Let there be a list with an element, a queue with a task, and a worker on it."""
    as_worker(stage)
    stage.say("WQ.WORK", "tasks")
    stage.say("RQ.PUSH", "list", "element")


def add_there(stage: Stage, number: int) -> None:
    """Add a job to the queue of the name of this time."""
    stage.say("ADDJOB", N.text(number), "body", 0)


def add_event_there(stage: Stage, number: int) -> None:
    """Add an event to the log of the name of this time."""
    stage.say("QADD", N.text(number), 60, "event")


def start_worker(stage: Stage, number: int) -> None:
    """Start the worker of this time."""
    stage.say("WORKER", "START", "ID", WORKER.text(number))


def work_there(stage: Stage, number: int) -> None:
    """Work on the queue of the name of this time."""
    stage.say("WQ.WORK", N.text(number))


ROWS |= {
    "ACKJOB": said("ACKJOB", JOB, ID),
    "ACL CAT": said("ACL", "CAT", N, answers=b"-ERR"),
    "ACL DELUSER": said("ACL", "DELUSER", N),
    "ACL DRYRUN": said("ACL", "DRYRUN", "default", "ADDJOB", N, N, 0),
    "ACL GENPASS": said("ACL", "GENPASS"),
    "ACL GETUSER": said("ACL", "GETUSER", N),
    "ACL HELP": said("ACL", "HELP"),
    "ACL LIST": said("ACL", "LIST"),
    "ACL LOAD": said("ACL", "LOAD", answers=b"-ERR"),
    "ACL LOG": said("ACL", "LOG"),
    "ACL SAVE": said("ACL", "SAVE", answers=b"-ERR"),
    "ACL SETUSER": said("ACL", "SETUSER", SHORT, "on", "+ping", "+@read", Name(900, b"~"), kept=USED),
    "ACL USERS": said("ACL", "USERS"),
    "ACL WHOAMI": said("ACL", "WHOAMI"),
    "ADDJOB": said("ADDJOB", N, N, 0, "KEY", WORKER, kept=USED),
    "AUTH": said("AUTH", N, N, answers=b"-WRONGPASS"),
    "BGREWRITEAOF": said("BGREWRITEAOF", answers=b"-ERR"),
    "CLIENT GETNAME": said("CLIENT", "GETNAME"),
    "CLIENT ID": said("CLIENT", "ID"),
    "CLIENT INFO": said("CLIENT", "INFO"),
    "CLIENT KILL": said("CLIENT", "KILL", "ADDR", N),
    "CLIENT LIST": said("CLIENT", "LIST"),
    "CLIENT MAINT_NOTIFICATIONS": said("CLIENT", "MAINT_NOTIFICATIONS", "OFF", "MOVING-ENDPOINT-TYPE", N),
    "CANCEL": said("CANCEL", JOB, ID),
    "CLIENT PAUSE": said("CLIENT", "PAUSE", 0),
    "CLIENT RECEIPTS": said("CLIENT", "RECEIPTS", "OFF"),
    "CLIENT REPLY": said("CLIENT", "REPLY", "ON"),
    "CLIENT SETINFO": said("CLIENT", "SETINFO", "LIB-NAME", SHORT),
    "CLIENT SETNAME": said("CLIENT", "SETNAME", SHORT),
    "CLIENT UNBLOCK": said("CLIENT", "UNBLOCK", 1_000_000, "ERROR"),
    "CLUSTER ASK": said("CLUSTER", "ASK", "*", "QLEN", SHORT),
    "CLUSTER COUNT-FAILURE-REPORTS": said("CLUSTER", "COUNT-FAILURE-REPORTS", N, answers=b"-ERR"),
    "CLUSTER FORGET": said("CLUSTER", "FORGET", N, answers=b"-ERR"),
    "CLUSTER INFO": said("CLUSTER", "INFO"),
    "CLUSTER LEAVING": said("CLUSTER", "LEAVING", "no"),
    "CLUSTER MEET": said("CLUSTER", "MEET", N, 7711, answers=b"-ERR"),
    "CLUSTER MYID": said("CLUSTER", "MYID"),
    "CLUSTER NODES": said("CLUSTER", "NODES"),
    "CLUSTER RESET": said("CLUSTER", "RESET", before=add_there),
    "CLUSTER SAVECONFIG": said("CLUSTER", "SAVECONFIG"),
    "COMMAND": said("COMMAND"),
    "COMMAND COUNT": said("COMMAND", "COUNT"),
    "COMMAND DOCS": said("COMMAND", "DOCS", N),
    "COMMAND INFO": said("COMMAND", "INFO", N),
    "COMMAND LIST": said("COMMAND", "LIST"),
    "CONFIG GET": said("CONFIG", "GET", PATTERN, kept=1 << 20),
    "CONFIG RESETSTAT": said("CONFIG", "RESETSTAT"),
    "CONFIG REWRITE": said("CONFIG", "REWRITE", answers=b"-ERR"),
    "CONFIG SET": said("CONFIG", "SET", N, N, answers=b"-ERR"),
    "DEBUG ERROR": said("DEBUG", "ERROR", N, answers=b"-"),
    "DEBUG FLUSHALL": said("DEBUG", "FLUSHALL", before=add_there),
    "DEBUG SLEEP": said("DEBUG", "SLEEP", 0),
    "DEBUG STRUCTSIZE": said("DEBUG", "STRUCTSIZE"),
    "DELJOB": said("DELJOB", JOB, ID),
    "DEQUEUE": said("DEQUEUE", JOB, ID, kept=USED),
    "ECHO": said("ECHO", N),
    "ENQUEUE": said("ENQUEUE", HELD, ID, kept=USED),
    "FASTACK": said("FASTACK", JOB, ID),
    "GETJOB": said("GETJOB", "FROM", WIDE, Name(60_000, b"b"), kept=USED, each_its_own=True, times=15),
    "HELLO": said("HELLO", 2, "SETNAME", SHORT),
    "INFO": said("INFO", N),
    "JSCAN": said("JSCAN", 0, "QUEUE", N),
    "LATENCY DOCTOR": said("LATENCY", "DOCTOR"),
    "LATENCY GRAPH": said("LATENCY", "GRAPH", N, answers=b"-ERR"),
    "LATENCY HISTORY": said("LATENCY", "HISTORY", N),
    "LATENCY LATEST": said("LATENCY", "LATEST"),
    "LATENCY RESET": said("LATENCY", "RESET", N),
    "LOADJOB": said("LOADJOB", N, answers=b"-ERR"),
    "MONITOR": said("MONITOR", each_its_own=True, times=20),
    "NACK": said("NACK", HELD, ID, kept=USED),
    "PAUSE": said("PAUSE", N, "in", kept=USED),
    "PING": said("PING", N),
    "PSUBSCRIBE": said("PSUBSCRIBE", PATTERN, kept=BUFFERS, times=600),
    "PUNSUBSCRIBE": said("PUNSUBSCRIBE", PATTERN),
    "QACK": said("QACK", "log", N, EVENT, kept=USED),
    "QADD": said("QADD", N, 5_000, N, kept=USED),
    "QFLUSH": said("QFLUSH", N, kept=USED, before=add_event_there),
    "QGET": said("QGET", "log", N, "EX", 5_000, once=with_log, kept=USED),
    "QGROUP FORGET": said("QGROUP", "FORGET", "log", N, once=with_log),
    "QGROUP LIST": said("QGROUP", "LIST", N),
    "QGROUP RETURN": said("QGROUP", "RETURN", "log", "group", HELD_EVENT, kept=USED),
    "QGROUP START": said("QGROUP", "START", "log", N, "FIRST", once=with_log, kept=USED),
    "QINFO": said("QINFO", N),
    "QCONSUMERS": said("QCONSUMERS", N),
    "QLEN": said("QLEN", N),
    "QLPEEK": said("QLPEEK", N),
    "QLPUSH": said("QLPUSH", N, N, N, kept=USED),
    "QNOTIFY": said("QNOTIFY", "group", 500, WIDE, kept=USED, each_its_own=True, times=15),
    "QPOLICY": said("QPOLICY", N, "SET", "TTL", 60, kept=USED),
    "QPURGE": said("QPURGE", N),
    "QPEEK": said("QPEEK", N, 10),
    "QREGISTER": said(
        "QREGISTER", *(Name(60_000, b"%d" % at) for at in range(30)), each_its_own=True, times=15, kept=16 << 20
    ),
    "QRPEEK": said("QRPEEK", N),
    "QRPOP": said("QRPOP", N),
    "QRPUSH": said("QRPUSH", N, N, N, kept=USED),
    "QSCAN": said("QSCAN", 0, "MINLEN", 5),
    "QSTAT": said("QSTAT", N),
    "SLOTS": said("SLOTS", N),
    "QSTATUS": said("QSTATUS", N),
    "QUIT": said("QUIT", N, each_its_own=True, times=20),
    "RESET": said("RESET"),
    "RQ.ACK": said("RQ.ACK", N, N),
    "RQ.INFO": said("RQ.INFO", N, answers=b"-EMPTYKEY"),
    "RQ.INSPECT": said("RQ.INSPECT", N, 0, 5, answers=b"-EMPTYKEY"),
    "RQ.POP": said("RQ.POP", "BLOCK", 0, "KEYS", N),
    "RQ.PUSH": said("RQ.PUSH", N, N, kept=USED),
    "RQ.PUSHX": said("RQ.PUSHX", N, "DELAY", 500, "ELEMS", N, kept=USED),
    "RQ.RECOVER": said("RQ.RECOVER", N, 5, 0),
    "ROLE": said("ROLE"),
    "SCAN JOB": said("SCAN", "JOB", 0, "QUEUE", N),
    "SCAN QUEUE": said("SCAN", "QUEUE", 0, "MINLEN", 5),
    "SELECT": said("SELECT", 0),
    "REDRIVE": said("REDRIVE", N),
    "SHOW": said("SHOW", ID),
    "SCHEDULE DEL": said("SCHEDULE", "DEL", SHORT),
    "SCHEDULE FIRE": said("SCHEDULE", "FIRE", SHORT, answers=b"-ERR no such schedule"),
    "SCHEDULE GET": said("SCHEDULE", "GET", SHORT),
    "SCHEDULE LIST": said("SCHEDULE", "LIST"),
    "SCHEDULE NEXT": said("SCHEDULE", "NEXT", SHORT, answers=b"-ERR no such schedule"),
    "SCHEDULE PAUSE": said("SCHEDULE", "PAUSE", SHORT, answers=b"-ERR no such schedule"),
    "SCHEDULE RESUME": said("SCHEDULE", "RESUME", SHORT, answers=b"-ERR no such schedule"),
    "SCHEDULE SET": said("SCHEDULE", "SET", SHORT, "EVERY", 86_400, "QUEUE", "q", "BODY", N, kept=USED),
    "SHUTDOWN": said("SHUTDOWN", times=1),
    "SLOWLOG GET": said("SLOWLOG", "GET"),
    "SLOWLOG LEN": said("SLOWLOG", "LEN"),
    "SLOWLOG RESET": said("SLOWLOG", "RESET"),
    "SUBSCRIBE": said("SUBSCRIBE", CHANNEL, kept=BUFFERS, times=80),
    "THROTTLE": said("THROTTLE", N, 60, kept=USED),
    "TIME": said("TIME"),
    "UNSUBSCRIBE": said("UNSUBSCRIBE", N),
    "WORKER FAIL": said("WORKER", "FAIL", WORKER, before=start_worker),
    "WORKER INFO": said("WORKER", "INFO", WORKER, answers=b"-NOWORKER"),
    "WORKER KEEPALIVE": said("WORKER", "KEEPALIVE", WORKER, answers=b"-NOWORKER"),
    "WORKER LIST": said("WORKER", "LIST", "QUEUE", N),
    "WORKER START": said("WORKER", "START", "ID", WORKER, "NAME", WORKER, kept=USED),
    "WORKER STOP": said("WORKER", "STOP", WORKER, before=start_worker),
    "WAITJOB": said("WAITJOB", 1, ID),
    "WORKING": said("WORKING", HELD, kept=USED),
    "WQ.CANCEL": said("WQ.CANCEL", N, N),
    "WQ.DELETE": said("WQ.DELETE", N, kept=USED, before=add_there),
    "WQ.DEQUEUE": said("WQ.DEQUEUE", N, once=as_worker, answers=b"-NOTWORKING"),
    "WQ.ENQUEUE": said("WQ.ENQUEUE", N, "UNIQUE", "TASKS", N, kept=USED),
    "WQ.FINISH": said("WQ.FINISH", HELD, "RESULT", N),
    "WQ.LEN": said("WQ.LEN", N),
    "WQ.PEEK": said("WQ.PEEK", N),
    "WQ.PROCS": said("WQ.PROCS", "QUEUE", N),
    "WQ.QUEUES": said("WQ.QUEUES"),
    "WQ.REQUEST": said("WQ.REQUEST", N),
    "WQ.RETURN": said("WQ.RETURN", HELD, kept=USED),
    "WQ.TASKS": said("WQ.TASKS", N),
    "WQ.UNWORK": said("WQ.UNWORK", N, once=as_worker, before=work_there),
    "WQ.WORK": said("WQ.WORK", N, once=as_worker, kept=USED),
}  # fmt: skip

#: The same commands in other words, where these keep something else.
MORE: dict[str, Row] = {
    "WAITJOB that waits": said("WAITJOB", 0, JOB, kept=USED, each_its_own=True),
    "ADDJOB with headers": said("ADDJOB", "q", "x", 0, "HEADER", "kind", N, "HEADER", "a", "b", kept=USED),
    "ADDJOB with small headers": said("ADDJOB", "q", "x", 0, "HEADER", "kind", SHORT, kept=USED, times=1_000),
    "NACK with a reason": said("NACK", HELD, "REASON", Name(1_000), kept=USED),
    "WORKING with progress": said("WORKING", HELD, "PROGRESS", Name(1_000), kept=USED),
    "ADDJOB with a delay": said("ADDJOB", N, "body", 0, "DELAY", 500, "RETRY", 0, kept=USED),
    "ADDJOB to one long name": said("ADDJOB", b"q" * LONG, N, 0, kept=USED),
    "ADDJOB of small jobs": said("ADDJOB", "q", SHORT, 0, kept=USED, times=2_000),
    "a job that was taken from a queue that is no more": said(
        "ADDJOB", N, "body", 0, "RETRY", 0, kept=USED, before=lambda stage, number: _take_and_forget(stage, number - 1)
    ),
    "GETJOB of very many names": said(
        "GETJOB", "FROM", *(f"queue {at}" for at in range(1_000)), kept=BUFFERS, each_its_own=True, times=30
    ),
    "QGET that blocks": said("QGET", WIDE, WIDE, "BLOCK", 500, kept=USED, each_its_own=True, times=15),
    "QREGISTER GROUP": said(
        "QREGISTER", "GROUP", WIDE, *(Name(60_000, b"%d" % at) for at in range(30)),
        each_its_own=True, times=15, kept=16 << 20,
    ),
    "RQ.POP that blocks": said("RQ.POP", "BLOCK", 500_000, "KEYS", WIDE, kept=USED, each_its_own=True, times=15),
    "QADD with a delay": said("QADD", N, 5_000, "event", "DELAY", 500, kept=USED),
    "QACK of an event that is not there": said("QACK", N, N, ID),
    "ACL SETUSER of many rules": said(
        "ACL", "SETUSER", SHORT, *(Name(900, b"~%d" % at) for at in range(20)), kept=USED
    ),
    "ACL SETUSER of passwords": said(
        "ACL", "SETUSER", SHORT, *(Name(90, b">%d" % at) for at in range(20)), kept=USED
    ),
}  # fmt: skip


def _take_and_forget(stage: Stage, number: int) -> None:
    """Take the job of a queue, and let the queue be forgotten."""
    name = N.text(number)
    stage.say("GETJOB", "NOHANG", "FROM", name)
    queue = stage.node.state.queues.by_name.get(name)
    if queue is not None:
        queue.accessed_at -= 10_000_000
        stage.node.collect_queue(queue)


@pytest.fixture(autouse=True)
def _traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def _spelled(stage: Stage, row: Row, number: int) -> list[object]:
    found: list[object] = []
    for word in row.words:
        if word is ID:
            found.append(b"DI%040d05a0SQ" % number)
        elif isinstance(word, Name):
            found.append(word.text(number))
        elif isinstance(word, Job):
            found.append(word.make(stage, number))
        else:
            found.append(word)
    return found


def run(stage: Stage, row: Row, first: int, times: int) -> None:
    """Run a command so many times."""
    for number in range(first, first + times):
        if row.before is not None:
            row.before(stage, number)
        client = stage.connect() if row.each_its_own else stage.client
        reply = stage.say(*_spelled(stage, row, number), client=client)
        assert reply.startswith(row.answers) if row.answers else not reply.startswith(b"-") or row.kept > 0, reply


def allocated(stage: Stage) -> int:
    """Bytes that are allocated now, without the last inputs, which are kept for a crash report."""
    stage.bed.daemon.crashes.recent.clear()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_each_command_has_its_row() -> None:
    assert {entry.name for entry in every_command()} == ROWS.keys()


@pytest.mark.parametrize("name", [*ROWS, *MORE])
def test_what_a_command_keeps_is_counted(name: str, tmp_path: Path) -> None:
    row = (ROWS | MORE)[name]
    stage = Stage(tmp_path / "node")
    row.once(stage)
    run(stage, row, 1, min(WARM, row.times))
    before, used, buffers = allocated(stage), stage.used, stage.buffers
    run(stage, row, 1_000, row.times)
    connections = CONNECTION * row.times if row.each_its_own else 0
    grown = allocated(stage) - before - connections
    used, buffers = stage.used - used, stage.buffers - buffers
    counted = used if row.kept == USED else buffers if row.kept == BUFFERS else max(0, row.kept)
    assert grown <= RATIO * counted + SLACK
    if row.kept == USED:
        # A long name counts with the queue and with each job, as either may be the last to hold it.
        assert used <= DOUBLE * (grown + connections) + SLACK
        assert used > 0
    elif row.kept == BUFFERS:
        assert buffers > 0
    else:
        assert used == 0
