"""A step does a bounded part of the work, however much there is in the node: lines are counted, and not time.

Every command of the table runs once in a node with so much of everything, and once in one with ten times as much:
queues, jobs that wait, that consumers have, that are done; events, groups that have, had, or wait for some; workers on
the same connection and on others; keys, unique tasks, blocked consumers, registrations, subscriptions, connections.  So
do the ends of connections, deadlines, deaths and flushes.

    the command looks at what it is asked for alone    it runs as many lines in either node, and a few more
    it answers, or changes, more where there is more   it does so bit by bit: no step runs more than STEP lines

What is counted is each line that Python runs between two returns to the loop.  Loops of C functions are not seen; they
take some nanoseconds for each object.  Slices are a tenth of what they are, so that small nodes show them.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
import pytest

from benchmarks.profile import Bed, Transport
from benchmarks.raw import words
from disqued.commands import clients, groups, jobs, lists, parts, scans, tasks, workers
from disqued.commands.table import every_command
from disqued.core import node
from disqued.core.cluster import leaving
from disqued.core.model import schedule, state
from disqued.core.node import Node
from disqued.core.streams import acksets, starts
from disqued.core.work import blocking, delivery, purges
from disqued.core.workers import tasks as core_tasks
from disqued.core.workers import worker_leases
from disqued.core.workers import workers as core_workers
from disqued.net.clients import pubsub
from tests.counting import lines_of

pytestmark = pytest.mark.reference

SMALL, LARGE = 120, 1_200
SLACK = 120  #: lines that a step may run more in the larger node: blocks, tables and searches by halves
STEP = 12_500  #: lines that a step may run, where slices are a tenth of what they are
ONE_EVENT = (
    65 * LARGE
)  #: lines that one event may run which ends for so many groups at once, beside the rest of its step
WORKERS = 15 * LARGE  #: lines that a flush may run, which looks at each worker
REQUEUES = 4 * STEP  #: lines that a tick may run in which a tenth of DUE_PER_TICK jobs are queued again
TURNS_MAX = 5_000

#: What one step does at most, in a tenth of it.
SLICES: list[tuple[Any, str]] = [
    (parts, "LOOKED_AT_PER_PART"), (parts, "SPELT_PER_PART"), (parts, "SORTED_AT_ONCE"), (groups, "SPELT_PER_PART"),
    (groups, "COUNTED_PER_PART"), (groups, "NAMED_PER_PART"),
    (workers, "LISTED_PER_PART"), (clients, "LISTED_PER_PART"),
    (tasks, "LISTED_PER_PART"), (lists, "COUNTED_AT_ONCE"), (jobs, "CHANGED_PER_PART"), (jobs, "CHANGED_EFFORT"),
    (starts, "FORGOTTEN_PER_PART"), (starts, "FORGOTTEN_EFFORT"), (starts, "TOLD_PER_PART"),
    (blocking, "SERVED_AT_ONCE"), (delivery, "SERVED_AT_ONCE"), (delivery, "OVER_AT_ONCE"), (delivery, "OVER_PER_PART"),
    (schedule, "BEGUN_AT_ONCE"), (acksets, "LOOKED_AT_PER_PART"), (acksets, "QUEUES_PER_PART"),
    (purges, "ENDED_PER_PART"), (purges, "LOOKED_AT_PER_PART"),
    (node, "DUE_PER_TICK"), (node, "EFFORT_PER_TICK"), (starts, "ENDED_AT_ONCE"),
    (starts, "BEGINNINGS_AT_ONCE"),
    (state, "FREED_AT_ONCE"), (core_tasks, "LOOKED_AT_ONCE"), (core_tasks, "CHANGED_AT_ONCE"),
    (leaving, "LOOKED_AT_PER_STEP"), (pubsub, "TURN_UNITS"),
    (scans, "ELEMENTS_MAX"), (scans, "LOOKED_AT_MAX"), (scans, "DESCRIBED_MAX"),
    (core_workers, "WORKERS_AT_ONCE"), (worker_leases, "LEASES_AT_ONCE"),
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _small_slices() -> Iterator[None]:
    with mock.patch.multiple(sys.modules[__name__], SLACK=SLACK):
        patches = [mock.patch.object(module, name, max(1, getattr(module, name) // 10)) for module, name in SLICES]
        # What another module has taken over by name.
        patches.append(mock.patch("disqued.core.streams.entrydelivery.SERVED_AT_ONCE", delivery.SERVED_AT_ONCE // 10))
        for patch in patches:
            patch.start()
        yield
        for patch in patches:
            patch.stop()


class Wire(Transport):
    """What a connection needs of a transport: replies are kept."""

    unsent = 0

    def __init__(self) -> None:
        super().__init__()
        self.replies: list[bytes] = []
        self.write = self.replies.append
        self.writeSequence = self.replies.extend

    def fileno(self) -> int:
        """The descriptor."""
        return 7

    def is_gone(self) -> bool:
        """Tell whether the other end has closed."""
        return False

    def unregisterProducer(self) -> None:
        """Nothing."""

    loseConnection = abortConnection = unregisterProducer


def has_run(client: Any) -> bool:
    """Return whether a client has been answered, and has nothing more to say."""
    return not (client.session.is_blocked or client._input.waiting or client._is_queued)


class Crowd:
    """A node with so much of everything, and one client whose commands are counted."""

    def __init__(self, folder: Path, size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.size = size
        self.time_went_by = False
        self.bed = Bed.make(folder, settings="maxclients 100000")
        self.node: Node = self.bed.node
        self.bed.client.session.begin(Wire(), None, None)
        self.others = self.connect()
        self.ids: dict[str, list[Any]] = {}
        self.fill()

    def connect(self) -> Any:
        """Connect one more client."""
        client = self.bed.daemon.clients.buildProtocol(None)
        client.makeConnection(Wire())
        return client

    def say(self, *some: object, client: Any = None) -> bytes:
        """Run a command to its end; returns the reply as it is written."""
        client = client or self.others
        client.transport.replies.clear()
        client.dataReceived(words(*map(_bytes, some)))
        for _ in range(TURNS_MAX):
            if has_run(client):
                break
            self.bed.reactor.advance(0)
        return b"".join(client.transport.replies)

    def begin(self, *some: object, client: Any) -> None:
        """Begin a command that blocks its client."""
        client.dataReceived(words(*map(_bytes, some)))
        assert client.session.is_blocked, some

    def id_of(self, reply: bytes) -> bytes:
        """The id of the job in a reply."""
        at = reply.index(b"DI") if b"DI" in reply else reply.index(b"D-")
        return reply[at : at + 48]

    def fill(self) -> None:
        """Make so much of everything."""
        say, size = self.say, self.size
        for number in range(size):
            say("ADDJOB", f"own {number}", "body", 0)
            say("ADDJOB", "waits", f"body {number}", 0)
            say("ADDJOB", "held", "body", 0, "RETRY", 3_000)
            say("ADDJOB", "keyed", "body", 0, "KEY", f"key {number}")
            say("WQ.ENQUEUE", "unique", "UNIQUE", "TASKS", f"task {number}")
            say("QADD", "long", 5_000, "event")
        self.ids["held"] = [unit.id for unit in self.take("held", size)]
        self.ids["wide"] = [self.id_of(say("QADD", "wide", 5_000, "event")) for _ in range(3)]
        first = self.ids["wide"][0]
        for number in range(size):
            group = f"group {number}"
            say("QGET", "wide", group, "EX", 3_000)
            if number % 3 == 0:
                say("QACK", "wide", group, first)
            elif number % 3 == 1:
                say("QGROUP", "START", "begun", group, "FIRST")
            say("QGET", "long", "one", "EX", 3_000)
        mine, theirs = self.connect(), self.connect()
        for number in range(size):
            say("WORKER", "START", "ID", f"mine {number}", "TTL", 0, client=mine)
            say("WORKER", "START", "ID", f"theirs {number}", "TTL", 0, client=theirs)
        self.mine = mine
        for at in range(0, size, 60):
            say("QREGISTER", *(f"registered {number}" for number in range(at, at + 60)), client=self.connect())
            say(
                "QREGISTER", "GROUP", "g", *(f"member {number}" for number in range(at, at + 60)), client=self.connect()
            )
            listener = self.connect()
            say("SUBSCRIBE", *(f"wq:q{number}:work" for number in range(at, at + 60)), client=listener)
            say("PSUBSCRIBE", *(f"wq:p{number}:*" for number in range(at, at + 60)), client=listener)
        self.blocked: list[Any] = []
        for number in range(size):
            self.blocked.append(self.connect())
            self.begin("GETJOB", "FROM", "awaited", client=self.blocked[-1])
            self.begin("QGET", "quiet", f"group {number}", "BLOCK", 3_000, client=self.connect())

    def take(self, name: str, count: int) -> list[Any]:
        """Let somebody have jobs of a queue."""
        queue = self.node.state.queues.by_name[name.encode()]
        taken: list[Any] = []
        while len(taken) < count:
            taken += self.node.delivery.fetch([queue], count - len(taken))
        return taken

    def steps(self, act: Callable[[], object], over: Callable[[], bool]) -> list[int]:
        """The lines that each step of something runs."""
        counted = [lines_of(act)]
        for _ in range(TURNS_MAX):
            if over():
                return counted
            counted.append(lines_of(self.turn))
        raise AssertionError("it does not end")

    def turn(self) -> None:
        """Make the calls that are due now, and none that these ask for."""
        reactor: Any = self.bed.reactor
        for call in [call for call in reactor.calls if call.getTime() <= reactor.seconds()]:
            if call in reactor.calls:
                reactor.calls.remove(call)
                call.called = 1
                call.func(*call.args, **call.kw)
        if self.is_due:
            self.tick()

    def pass_ms(self, span_ms: int) -> None:
        """Let so much time go by, and begin what is due then."""
        clock = self.node.clock
        later, wall = clock.now() + span_ms, clock.wall() + span_ms
        clock.now, clock.wall = (lambda: later), (lambda: wall)  # type: ignore[method-assign]
        self.time_went_by = True
        self.tick()

    def tick(self) -> None:
        """Do the first part of what is due."""
        self.node.begin()
        self.node.tick()
        self.bed.daemon.turn.finish_step(None)

    @property
    def is_due(self) -> bool:
        """Tell whether deadlines are over that time has gone by."""
        due = self.node.deadline()
        return self.time_went_by and due is not None and due <= self.node.clock.now()

    def settle(self) -> None:
        """Let everything come to an end that has begun."""
        for _ in range(TURNS_MAX):
            if self.is_quiet:
                return
            self.turn()
        raise AssertionError("it does not come to rest")

    @property
    def is_quiet(self) -> bool:
        """Tell whether nothing is left that was begun."""
        reactor: Any = self.bed.reactor
        is_due = any(call.getTime() <= reactor.seconds() for call in reactor.calls)
        return not len(self.node.state.unfinished) and not is_due and not self.is_due


def _bytes(word: object) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


@attrs.frozen
class Case:
    """A command, and what it may cost."""

    make: Callable[[Crowd], tuple[object, ...]]  #: its words
    grows: str = ""  #: what it answers or changes more of where there is more; "" = its steps are as long in any node
    most: int = STEP  #: lines that a step of it may run
    fresh: bool = False  #: it leaves little of the node
    blocks: bool = False  #: it waits for what does not come
    before: Callable[[Crowd], object] = lambda crowd: None  #: what is there before
    client: Callable[[Crowd], Any] = lambda crowd: crowd.connect()


def said(*some: object, **facts_: Any) -> Case:
    """A command in these words."""
    return Case(lambda crowd: some, **facts_)


def with_job(*some: object, **facts_: Any) -> Case:
    """A command with a job that waits in a queue of its own, in the place of None."""
    return Case(lambda crowd: tuple(_new_job(crowd) if word is None else word for word in some), **facts_)


def with_held(*some: object, **facts_: Any) -> Case:
    """A command with a job that a consumer has, among very many, in the place of None."""
    return Case(lambda crowd: tuple(crowd.ids["held"].pop() if word is None else word for word in some), **facts_)


def _new_job(crowd: Crowd) -> bytes:
    return crowd.id_of(crowd.say("ADDJOB", "own 5", "body", 0))


def as_worker(*some: object, **facts_: Any) -> Case:
    """A command of a worker that has taken tasks of a queue."""

    def client(crowd: Crowd) -> Any:
        made = crowd.connect()
        crowd.say("WORKER", "START", "TTL", 0, client=made)
        crowd.say("WQ.WORK", "own 7", "waits", client=made)
        return made

    return Case(lambda crowd: some, client=client, **facts_)


def of_many(*some: object, **facts_: Any) -> Case:
    """A command on the connection that shows the life of very many workers."""
    return Case(lambda crowd: some, client=lambda crowd: crowd.mine, **facts_)


def _held_by_worker(crowd: Crowd) -> tuple[object, ...]:
    crowd.say("WORKER", "START", "ID", "holder", "TTL", 0)
    crowd.say("GETJOB", "WORKER", "holder", "COUNT", crowd.size // 2, "FROM", "waits")
    return ("WORKER", "FAIL", "holder")


def set_beat(crowd: Crowd) -> None:
    """Set a schedule that does not come meanwhile, among very many."""
    for number in range(crowd.size // 10):
        crowd.say("SCHEDULE", "SET", f"beat {number}", "EVERY", 86_400, "QUEUE", "waits", "BODY", "body")
    crowd.say("SCHEDULE", "SET", "beat", "EVERY", 86_400, "QUEUE", "waits", "BODY", "body")


def _loaded(crowd: Crowd) -> tuple[object, ...]:
    return ("LOADJOB", b"not a job")


#: Every command of the table.
CASES: dict[str, Case] = {
    "ACKJOB": with_held("ACKJOB", None),
    "ACL CAT": said("ACL", "CAT"),
    "ACL DELUSER": said("ACL", "DELUSER", "nobody"),
    "ACL DRYRUN": said("ACL", "DRYRUN", "default", "PING"),
    "ACL GENPASS": said("ACL", "GENPASS"),
    "ACL GETUSER": said("ACL", "GETUSER", "default"),
    "ACL HELP": said("ACL", "HELP"),
    "ACL LIST": said("ACL", "LIST"),
    "ACL LOAD": said("ACL", "LOAD"),
    "ACL LOG": said("ACL", "LOG"),
    "ACL SAVE": said("ACL", "SAVE"),
    "ACL SETUSER": said("ACL", "SETUSER", "somebody", "on", grows="connections, each of which may be the user's"),
    "ACL USERS": said("ACL", "USERS"),
    "ACL WHOAMI": said("ACL", "WHOAMI"),
    "ADDJOB": said("ADDJOB", "waits", "body", 0),
    "AUTH": said("AUTH", "password"),
    "BGREWRITEAOF": said("BGREWRITEAOF"),
    "CANCEL": with_held("CANCEL", None),
    "CLIENT GETNAME": said("CLIENT", "GETNAME"),
    "CLIENT ID": said("CLIENT", "ID"),
    "CLIENT INFO": said("CLIENT", "INFO"),
    "CLIENT KILL": said("CLIENT", "KILL", "ID", 1, grows="connections looked at, as many as maxclients allows"),
    "CLIENT LIST": said("CLIENT", "LIST", grows="connections"),
    "CLIENT MAINT_NOTIFICATIONS": said("CLIENT", "MAINT_NOTIFICATIONS", "OFF"),
    "CLIENT PAUSE": said("CLIENT", "PAUSE", 0),
    "CLIENT RECEIPTS": said("CLIENT", "RECEIPTS", "OFF"),
    "CLIENT REPLY": said("CLIENT", "REPLY", "ON"),
    "CLIENT SETINFO": said("CLIENT", "SETINFO", "LIB-NAME", "lib"),
    "CLIENT SETNAME": said("CLIENT", "SETNAME", "name"),
    "CLIENT UNBLOCK": said("CLIENT", "UNBLOCK", 1, grows="connections looked at, as many as maxclients allows"),
    "CLUSTER ASK": said("CLUSTER", "ASK", "*", "QLEN", "waits"),
    "CLUSTER COUNT-FAILURE-REPORTS": said("CLUSTER", "COUNT-FAILURE-REPORTS", "0" * 40),
    "CLUSTER FORGET": said("CLUSTER", "FORGET", "0" * 40),
    "CLUSTER INFO": said("CLUSTER", "INFO"),
    "CLUSTER LEAVING": said("CLUSTER", "LEAVING", "yes", grows="blocked consumers, who are refused", fresh=True),
    "CLUSTER MEET": said("CLUSTER", "MEET", "127.0.0.1", 1),
    "CLUSTER MYID": said("CLUSTER", "MYID"),
    "CLUSTER NODES": said("CLUSTER", "NODES"),
    "CLUSTER RESET": said("CLUSTER", "RESET", grows="all that is flushed", most=2 * WORKERS, fresh=True),
    "CLUSTER SAVECONFIG": said("CLUSTER", "SAVECONFIG"),
    "COMMAND": said("COMMAND"),
    "COMMAND COUNT": said("COMMAND", "COUNT"),
    "COMMAND DOCS": said("COMMAND", "DOCS"),
    "COMMAND INFO": said("COMMAND", "INFO", "ping"),
    "COMMAND LIST": said("COMMAND", "LIST"),
    "CONFIG GET": said("CONFIG", "GET", "*"),
    "CONFIG RESETSTAT": said("CONFIG", "RESETSTAT"),
    "CONFIG REWRITE": said("CONFIG", "REWRITE"),
    "CONFIG SET": said("CONFIG", "SET", "maxmemory", "1gb"),
    "DEBUG ERROR": said("DEBUG", "ERROR", "ERR no"),
    "DEBUG FLUSHALL": said("DEBUG", "FLUSHALL", grows="all that is flushed", most=2 * WORKERS, fresh=True),
    "DEBUG SLEEP": said("DEBUG", "SLEEP", 0),
    "DEBUG STRUCTSIZE": said("DEBUG", "STRUCTSIZE"),
    "DELJOB": with_job("DELJOB", None),
    "DEQUEUE": with_job("DEQUEUE", None),
    "ECHO": said("ECHO", "hello"),
    "ENQUEUE": with_held("ENQUEUE", None),
    "FASTACK": with_held("FASTACK", None),
    "GETJOB": said("GETJOB", "FROM", "waits"),
    "HELLO": said("HELLO"),
    "INFO": said("INFO", grows="connections looked at, as many as maxclients allows", most=20 * LARGE),
    "JSCAN": said("JSCAN", 0, "COUNT", 50, grows="jobs looked at, so many for each that is wanted"),
    "LATENCY DOCTOR": said("LATENCY", "DOCTOR"),
    "LATENCY GRAPH": said("LATENCY", "GRAPH", "command"),
    "LATENCY HISTORY": said("LATENCY", "HISTORY", "command"),
    "LATENCY LATEST": said("LATENCY", "LATEST"),
    "LATENCY RESET": said("LATENCY", "RESET"),
    "LOADJOB": Case(_loaded),
    "MONITOR": said("MONITOR"),
    "NACK": with_held("NACK", None),
    "PAUSE": said("PAUSE", "awaited", "in"),
    "PING": said("PING"),
    "PSUBSCRIBE": said("PSUBSCRIBE", "wq:*"),
    "PUNSUBSCRIBE": said("PUNSUBSCRIBE", "wq:*"),
    "QACK": Case(lambda crowd: ("QACK", "wide", "group 1", crowd.ids["wide"][0])),
    "QADD": said("QADD", "wide", 5_000, "event"),
    "QFLUSH": said("QFLUSH", "wide", grows="what is flushed", most=ONE_EVENT, fresh=True),
    "QGET": said("QGET", "wide", "group 2"),
    "QGROUP FORGET": said("QGROUP", "FORGET", "long", "one", grows="events that the group has"),
    "QGROUP LIST": said("QGROUP", "LIST", "wide", grows="groups"),
    "QGROUP RETURN": Case(lambda crowd: ("QGROUP", "RETURN", "wide", "group 4", crowd.ids["wide"][0])),
    "QGROUP START": said("QGROUP", "START", "long", "two", "NOW"),
    "QINFO": said("QINFO", "wide", grows="groups"),
    "QCONSUMERS": said("QCONSUMERS", "held", grows="what consumers have"),
    "QLEN": said("QLEN", "waits"),
    "QLPEEK": said("QLPEEK", "waits"),
    "QLPUSH": said("QLPUSH", "waits", "an id", "body"),
    "QNOTIFY": said("QNOTIFY", "one", 0, "long"),
    "QPEEK": said("QPEEK", "waits", 10),
    "QREGISTER": said("QREGISTER", "a", "b"),
    "QRPEEK": said("QRPEEK", "waits"),
    "QRPOP": said("QRPOP", "waits"),
    "QRPUSH": said("QRPUSH", "waits", "another id", "body"),
    "QSCAN": said("QSCAN", 0, "COUNT", 10, "MINLEN", 1),
    "QPOLICY": said("QPOLICY", "waits", "GET"),
    "QPURGE": said("QPURGE", "own 0"),
    "QSTAT": said("QSTAT", "waits"),
    "SLOTS": said("SLOTS", "waits"),
    "QSTATUS": said("QSTATUS", "wide", grows="groups"),
    "QUIT": said("QUIT"),
    "RESET": said("RESET"),
    "REDRIVE": said("REDRIVE", "waits"),
    "RQ.ACK": with_held("RQ.ACK", "held", None),
    "RQ.INFO": said("RQ.INFO", "held", grows="elements"),
    "RQ.INSPECT": said("RQ.INSPECT", "held", "PENDING", -3, 3),
    "RQ.POP": said("RQ.POP", "waits"),
    "RQ.PUSH": said("RQ.PUSH", "waits", "element"),
    "RQ.PUSHX": said("RQ.PUSHX", "waits", "element"),
    "RQ.RECOVER": said("RQ.RECOVER", "held", 3, 0),
    "ROLE": said("ROLE"),
    "SCAN JOB": said("SCAN", "JOB", 0, "COUNT", 50, grows="jobs looked at, so many for each that is wanted"),
    "SCAN QUEUE": said("SCAN", "QUEUE", 0, "COUNT", 10),
    "SELECT": said("SELECT", 0),
    "SCHEDULE DEL": said("SCHEDULE", "DEL", "nobody"),
    "SCHEDULE FIRE": said("SCHEDULE", "FIRE", "beat", before=set_beat),
    "SCHEDULE GET": said("SCHEDULE", "GET", "beat", before=set_beat),
    "SCHEDULE LIST": said("SCHEDULE", "LIST", grows="schedules", before=set_beat),
    "SCHEDULE NEXT": said("SCHEDULE", "NEXT", "beat", before=set_beat),
    "SCHEDULE PAUSE": said("SCHEDULE", "PAUSE", "beat", before=set_beat),
    "SCHEDULE RESUME": said("SCHEDULE", "RESUME", "beat", before=set_beat),
    "SCHEDULE SET": said("SCHEDULE", "SET", "beat", "EVERY", 86_400, "QUEUE", "waits", "BODY", "body"),
    "SHOW": Case(lambda crowd: ("SHOW", crowd.ids["wide"][2])),
    "SHUTDOWN": said("SHUTDOWN", fresh=True, blocks=True),
    "SLOWLOG GET": said("SLOWLOG", "GET", -1, before=lambda crowd: crowd.say("SLOWLOG", "RESET")),
    "SLOWLOG LEN": said("SLOWLOG", "LEN"),
    "SLOWLOG RESET": said("SLOWLOG", "RESET"),
    "SUBSCRIBE": said("SUBSCRIBE", "wq:a:work"),
    "THROTTLE": said("THROTTLE", "waits", 60, "GROUP", "acme", fresh=True),
    "TIME": said("TIME"),
    "UNSUBSCRIBE": said("UNSUBSCRIBE", "wq:a:work"),
    "WORKER FAIL": Case(_held_by_worker, grows="what the worker has"),
    "WORKER INFO": said("WORKER", "INFO", "mine 3"),
    "WORKER KEEPALIVE": of_many("WORKER", "KEEPALIVE", "mine 5"),
    "WORKER LIST": said("WORKER", "LIST", grows="workers"),
    "WORKER START": of_many("WORKER", "START", "ID", "mine 7"),
    "WORKER STOP": of_many("WORKER", "STOP", "mine 9"),
    "WAITJOB": said("WAITJOB", 1, b"DI" + b"f" * 40 + b"05a0SQ"),
    "WORKING": with_held("WORKING", None),
    "WQ.CANCEL": said("WQ.CANCEL", "waits", "body 99999", grows="tasks compared"),
    "WQ.DELETE": said("WQ.DELETE", "unique", grows="tasks"),
    "WQ.DEQUEUE": as_worker("WQ.DEQUEUE", "waits"),
    "WQ.ENQUEUE": said("WQ.ENQUEUE", "unique", "UNIQUE", "TASKS", "one more"),
    "WQ.FINISH": with_held("WQ.FINISH", None),
    "WQ.LEN": said("WQ.LEN", "waits"),
    "WQ.PEEK": said("WQ.PEEK", "waits"),
    "WQ.PROCS": said("WQ.PROCS", "QUEUE", "held", grows="processes"),
    "WQ.QUEUES": said("WQ.QUEUES", grows="queues"),
    "WQ.REQUEST": said("WQ.REQUEST", "waits"),
    "WQ.RETURN": with_held("WQ.RETURN", None),
    "WQ.TASKS": said("WQ.TASKS", "waits", 100_000, 1, grows="tasks passed over"),
    "WQ.UNWORK": as_worker("WQ.UNWORK", "own 7"),
    "WQ.WORK": as_worker("WQ.WORK", "own 8"),
}  # fmt: skip

#: The same commands in other words, where these are more work.
MORE: dict[str, Case] = {
    "QSTATUS of all": said("QSTATUS", grows="queues looked at"),
    "QINFO of all": said("QINFO", grows="queues looked at"),
    "WQ.PROCS of all": said("WQ.PROCS", grows="processes"),
    "WORKER LIST QUEUE": said("WORKER", "LIST", "QUEUE", "own 7", grows="workers looked at"),
    "RQ.INSPECT PENDING in the middle": said("RQ.INSPECT", "held", "PENDING", 50, 3),
    "RQ.INSPECT of what waits": said("RQ.INSPECT", "waits", -3, 3),
    "QSCAN BUSYLOOP": said("QSCAN", 0, "BUSYLOOP", "MINLEN", 5, grows="queues looked at"),
    "QGET that blocks": said("QGET", "quiet", "nobody else", "BLOCK", 60, blocks=True),
    "GETJOB that blocks": said("GETJOB", "FROM", "awaited", blocks=True),
    "QADD to very many who wait": said("QADD", "quiet", 60, "event", grows="consumers served", fresh=True),
    "PAUSE that ends": said(
        "PAUSE", "awaited", "none", grows="consumers served", fresh=True,
        before=lambda crowd: [
            crowd.say("PAUSE", "awaited", "out"),
            *(crowd.say("ADDJOB", "awaited", "body", 0) for _ in range(crowd.size)),
        ],
    ),
    "QGROUP START of a group with very much": said(
        "QGROUP", "START", "long", "one", "NOW", grows="events that the group has", fresh=True
    ),
    "DELJOB of an event of very many groups": Case(
        lambda crowd: ("DELJOB", *crowd.ids["wide"]), grows="facts and leases", most=ONE_EVENT, fresh=True
    ),
    "SHOW of an event of very many groups": Case(
        lambda crowd: ("SHOW", crowd.ids["wide"][0]), grows="groups that it answers", most=20 * LARGE
    ),
}  # fmt: skip

_crowds: dict[int, Crowd] = {}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("crowds")
    _crowds.clear()


def crowd_of(place: Path, size: int, *, fresh: bool) -> Crowd:
    """A node with so much of everything; one for all that leave it as it is."""
    if fresh:
        return Crowd(place / f"fresh-{size}", size)
    if size not in _crowds:
        _crowds[size] = Crowd(place / f"shared-{size}", size)
    return _crowds[size]


def counted(place: Path, case: Case, size: int) -> list[int]:
    """The lines of each step of a command."""
    crowd = crowd_of(place, size, fresh=case.fresh)
    case.before(crowd)
    client, some = case.client(crowd), case.make(crowd)
    text = words(*map(_bytes, some))
    crowd.settle()
    return crowd.steps(
        lambda: client.dataReceived(text),
        lambda: (case.blocks or has_run(client)) and (not case.grows or crowd.is_quiet),
    )


def slips(case: Case, small: list[int], large: list[int]) -> str:
    """What is not as it should be."""
    if max(large) <= max(small) + SLACK:
        return ""
    if not case.grows:
        return f"a step runs {max(small)} lines, and {max(large)} where there is ten times as much"
    if max(large) > case.most:
        return f"a step runs {max(large)} lines, more than {case.most}"
    return ""


def test_every_command_has_a_case_and_nothing_else_does() -> None:
    assert sorted(CASES) == sorted(
        entry.name for entry in every_command() if entry.make.__module__.startswith("disqued")
    )


@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_no_step_of_a_command_grows_with_everything(place: Path, name: str) -> None:
    case = CASES.get(name) or MORE[name]
    small, large = counted(place, case, SMALL), counted(place, case, LARGE)
    told = slips(case, small, large)
    assert not told, f"{name}: {told}"


#: What happens by itself, or to a connection: what is there before, what begins it, and whether it is over.
EVENTS: dict[str, tuple[Callable[[Crowd], object], Callable[[Crowd], object], int]] = {
    "the end of a connection that shows the life of very many workers": (
        lambda crowd: None, lambda crowd: crowd.mine.connectionLost(), STEP,
    ),
    "the end of a connection to which very many workers are bound": (
        lambda crowd: [
            crowd.say("WORKER", "START", "ID", f"bound {number}", "TTL", 0, "BIND", client=crowd.mine)
            for number in range(crowd.size)
        ],
        lambda crowd: crowd.mine.connectionLost(), 2 * STEP,
    ),
    "the end of a consumer among very many": (
        lambda crowd: None, lambda crowd: crowd.blocked[-1].connectionLost(), STEP,
    ),
    "leases of very many groups that end together": (
        lambda crowd: None, lambda crowd: crowd.pass_ms(3_000_001), REQUEUES,
    ),
    "the end of very many events and jobs together": (
        lambda crowd: None, lambda crowd: crowd.pass_ms(5_000_001), ONE_EVENT + 2 * STEP,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EVENTS)
def test_no_step_of_what_happens_grows_with_everything(place: Path, name: str) -> None:
    before, begin, most = EVENTS[name]
    found: list[list[int]] = []
    for size in (SMALL, LARGE):
        crowd = Crowd(place / f"event-{size}", size)
        before(crowd)
        crowd.settle()
        found.append(crowd.steps(lambda crowd=crowd: begin(crowd), lambda crowd=crowd: crowd.is_quiet))
    told = slips(Case(lambda crowd: (), grows=name, most=most), *found)
    assert not told, f"{name}: {told}"


def test_a_step_that_grows_is_noticed() -> None:
    plain, slices = said("PING"), said("QINFO", grows="groups")
    assert not slips(plain, [100], [100 + SLACK])
    assert "where there is ten times as much" in slips(plain, [100], [101 + SLACK])
    assert not slips(slices, [100], [STEP])
    assert f"more than {STEP}" in slips(slices, [100], [100, STEP + 1])
