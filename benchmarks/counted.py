"""What a node counts of each structure, against what its process takes: resident bytes, at scale.

``python -m benchmarks.counted [--quick] [--only NAME] [--json FILE]``

A node of its own is filled with very many of one thing.  Counted is what `used_memory` and `mem_clients_normal` have
grown by since, resident what the process has; the ratio of the two is not to be above `GOAL`.  What has a fixed limit
in place of a count is not in here.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs

from benchmarks.machine import Processors, facts, stamp
from benchmarks.raw import Connection, ServerError, words
from benchmarks.servers import Disqued, ServerMissing, redis_version
from disqued.testing.arguments import ExactParser

GOAL = 1.3
CHUNK = 500  #: commands on their way at a time
SETTLE_S = 0.3  #: until a node has done what it put off
SETTINGS = ("--maxmemory", "12gb", "--maxclients", "12000", "--slowlog-log-slower-than", "-1")
BODY = b"x" * 100
HEAD = """\
| Structure | How many | Counted, bytes each | Resident, bytes each | Ratio | ≤ 1.3 |
|---|---|---|---|---|---|"""

Fill = Callable[["Filled"], None]


@attrs.define
class Filled:
    """A node, and how many things it is to have."""

    node: Disqued
    count: int
    stack: ExitStack
    _own: Connection | None = None

    @property
    def own(self) -> Connection:
        """The one connection of those who need no other."""
        if self._own is None:
            self._own = self.connect()
        return self._own

    def connect(self) -> Connection:
        """Open a connection that stays."""
        return self.stack.enter_context(self.node.connect())

    def each(self, *parts: bytes, first: int = 0, count: int | None = None, on: Connection | None = None) -> None:
        """Run a command for each number; %d in its words is that number.  Raises ServerError."""
        connection = on or self.own
        numbers = range(first, first + (self.count if count is None else count))
        for at in range(0, len(numbers), CHUNK):
            some = numbers[at : at + CHUNK]
            connection.send(b"".join(words(*(_spelled(part, number) for part in parts)) for number in some))
            for _ in some:
                connection.receive()


def _spelled(part: bytes, number: int) -> bytes:
    return part % number if b"%d" in part else part


def jobs(to: Filled) -> None:
    """Jobs of 100 bytes."""
    to.each(b"ADDJOB", b"queue", BODY, b"0")


def delayed(to: Filled) -> None:
    """Delayed jobs, each of a queue of its own."""
    to.each(b"ADDJOB", b"a queue of which there is one job %d", BODY, b"0", b"DELAY", b"5000")


def half_done(to: Filled) -> None:
    """Jobs, after as many others were acknowledged."""
    for at in range(0, 2 * to.count, CHUNK):
        to.own.send(b"".join(words(b"ADDJOB", b"queue", BODY, b"0") for _ in range(CHUNK)))
        ids = [to.own.receive() for _ in range(CHUNK)]
        done = [job_id for job_id in ids[at // CHUNK % 2 :: 2] if isinstance(job_id, bytes)]
        to.own.call(b"ACKJOB", *done)


def held(to: Filled) -> None:
    """Jobs that consumers have."""
    jobs(to)
    for _ in range(-(-to.count // CHUNK)):
        to.own.call(b"GETJOB", b"COUNT", b"%d" % CHUNK, b"FROM", b"queue")


def held_by_worker(to: Filled) -> None:
    """Jobs that a worker has."""
    jobs(to)
    to.own.call(b"WORKER", b"START", b"ID", b"worker", b"TTL", b"0")
    for _ in range(-(-to.count // CHUNK)):
        to.own.call(b"GETJOB", b"WORKER", b"worker", b"COUNT", b"%d" % CHUNK, b"FROM", b"queue")


def keys(to: Filled) -> None:
    """Jobs with keys."""
    to.each(b"ADDJOB", b"queue", BODY, b"0", b"KEY", b"key %d")


def unique(to: Filled) -> None:
    """Unique tasks."""
    to.each(b"WQ.ENQUEUE", b"queue", b"UNIQUE", b"TASKS", b"task %d of a length that tasks may have")


def lists(to: Filled) -> None:
    """Elements of reliable lists."""
    to.each(b"RQ.PUSH", b"list", BODY)


def queues(to: Filled) -> None:
    """Queues with a job in each."""
    to.each(b"ADDJOB", b"queue %d", b"x", b"0")


def events(to: Filled) -> None:
    """Events of a log."""
    to.each(b"QADD", b"log", b"50000", BODY)


def units(to: Filled) -> None:
    """Events of a log that a group has."""
    events(to)
    for _ in range(-(-to.count // CHUNK)):
        to.own.call(b"QGET", b"log", b"group", b"EX", b"50000", b"COUNT", b"%d" % CHUNK)


def groups(to: Filled) -> None:
    """Groups with one event each."""
    to.own.call(b"QADD", b"log", b"50000", BODY)
    to.each(b"QGET", b"log", b"group %d", b"EX", b"50000")


def marks(to: Filled) -> None:
    """Groups that acknowledged one event."""
    event = to.own.call(b"QADD", b"log", b"50000", BODY)
    assert isinstance(event, bytes)
    to.each(b"QGET", b"log", b"group %d", b"EX", b"50000")
    to.each(b"QACK", b"log", b"group %d", event)


def workers(to: Filled) -> None:
    """Workers."""
    to.each(b"WORKER", b"START", b"ID", b"worker %d", b"TTL", b"0")


def work(to: Filled) -> None:
    """Queues that a worker works on."""
    to.own.call(b"WORKER", b"START", b"ID", b"worker", b"TTL", b"0")
    to.each(b"WQ.WORK", b"queue %d")


def users(to: Filled) -> None:
    """Users of the ACL."""
    to.each(b"ACL", b"SETUSER", b"user-%d", b"on", b">a password, number %d", b"~queue:%d:*",
            b"&wq:%d:*", b"+@read", b"+addjob", b"-info")  # fmt: skip


def subscriptions(to: Filled) -> None:
    """Subscriptions to channels, 5 000 a connection."""
    for first in range(0, to.count, 5_000):
        to.each(b"SUBSCRIBE", b"wq:queue %d:work", first=first, count=min(5_000, to.count - first), on=to.connect())


def waiting(to: Filled) -> None:
    """Names that blocked consumers wait for, 1 000 a connection."""
    names = [b"queue %d" % number for number in range(1_000)]
    to.each(b"PAUSE", b"queue %d", b"in", count=1_000)
    for _ in range(to.count // 1_000):
        to.connect().send(words(b"GETJOB", b"FROM", *names))


#: By name: how to fill a node, with how many, and with how many where it is to be quick.
STRUCTURES: dict[str, tuple[Fill, int, int]] = {
    "jobs": (jobs, 300_000, 50_000),
    "delayed": (delayed, 200_000, 50_000),
    "half-done": (half_done, 150_000, 50_000),
    "held": (held, 200_000, 50_000),
    "held-by-worker": (held_by_worker, 200_000, 50_000),
    "keys": (keys, 200_000, 50_000),
    "unique": (unique, 200_000, 50_000),
    "lists": (lists, 200_000, 50_000),
    "queues": (queues, 100_000, 20_000),
    "events": (events, 200_000, 50_000),
    "units": (units, 200_000, 50_000),
    "groups": (groups, 60_000, 20_000),
    "marks": (marks, 60_000, 20_000),
    "workers": (workers, 60_000, 20_000),
    "work": (work, 200_000, 50_000),
    "users": (users, 10_000, 5_000),
    "subscriptions": (subscriptions, 100_000, 40_000),
    "waiting": (waiting, 500_000, 200_000),
}


@attrs.frozen
class Figure:
    """What very many of one thing take."""

    name: str
    title: str
    count: int
    counted: int  #: bytes
    resident: int  #: bytes

    @property
    def ratio(self) -> float:
        """Resident bytes for each that is counted."""
        return self.resident / max(1, self.counted)

    @property
    def line(self) -> str:
        """A row of a table."""
        verdict = "met" if self.ratio <= GOAL else "not met"
        return (
            f"| {self.title} | {self.count} | {self.counted / self.count:.0f} | {self.resident / self.count:.0f} "
            f"| {self.ratio:.2f} | {verdict} |"
        )


def counted(node: Disqued) -> int:
    """Bytes that a node counts."""
    found = 0
    for section, name in ((b"memory", b"used_memory:"), (b"clients", b"mem_clients_normal:")):
        text = node.call(b"INFO", section)
        assert isinstance(text, bytes)
        found += next(int(line[len(name) :]) for line in text.split(b"\r\n") if line.startswith(name))
    return found


def measure(name: str, processors: Processors, *, quick: bool) -> Figure:
    """Fill a node and take the figures.  Raises ServerError."""
    fill, many, few = STRUCTURES[name]
    count = few if quick else many
    with Disqued(processors, SETTINGS) as node, ExitStack() as stack:
        time.sleep(SETTLE_S)
        before, resident = counted(node), node.resident_bytes()
        fill(Filled(node, count, stack))
        time.sleep(SETTLE_S)
        title = (fill.__doc__ or "").rstrip(".")
        return Figure(name, title, count, counted(node) - before, node.resident_bytes() - resident)


def figures(names: Iterable[str], processors: Processors, *, quick: bool) -> Iterator[Figure]:
    """Take the figures of some structures."""
    for name in names:
        yield measure(name, processors, quick=quick)


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = ExactParser(prog="python -m benchmarks.counted", description="Hold counted against resident memory.")
    parser.add_argument("--quick", action="store_true", help="fewer of everything: a minute or two")
    parser.add_argument("--only", action="append", choices=STRUCTURES, metavar="NAME", help=", ".join(STRUCTURES))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; returns 1 when a structure takes more than it counts, beyond the goal."""
    options = read_options(arguments)
    processors = Processors.find()
    try:
        known = facts(processors, redis_version())
    except ServerMissing as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    processors.become_client()
    print(f"[{stamp(known)}]")
    print(HEAD, flush=True)
    found = []
    try:
        for figure in figures(options.only or STRUCTURES, processors, quick=options.quick):
            print(figure.line, flush=True)
            found.append(figure)
    except (ServerError, OSError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    if options.json is not None:
        rows = [{**attrs.asdict(figure), "ratio": figure.ratio, "machine": known} for figure in found]
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return int(any(figure.ratio > GOAL for figure in found))


if __name__ == "__main__":
    sys.exit(main())
