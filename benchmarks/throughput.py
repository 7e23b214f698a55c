"""Commands a second, in turns with a yardstick.

    round 1: empty, fill, load on disqued;  empty, load on the yardstick
    round 2: ...

Both servers run throughout, on the same processor, and only one has anything to do.  The number of commands is
chosen by a short trial, so that a round of either takes the same time.  After each round it is checked that the
commands did what they are for.
"""

from collections.abc import Sequence

import attrs

from benchmarks import load
from benchmarks.blast import blast
from benchmarks.figures import Goal, Row, ratios, spread
from benchmarks.load import CONNECTIONS, whole
from benchmarks.measure import Bench, Measure
from benchmarks.raw import words
from benchmarks.secured import secured
from benchmarks.servers import Beanstalkd, Disqued, Redis, Server

BODY = "hello"
QUEUE = "bench"
FETCHED_AT_ONCE = 1_000  #: jobs in one reply while ids are collected
PIPELINE = 16
FILL_PIPELINE = 64

ADDJOB = ("ADDJOB", QUEUE, BODY, "0")
GETJOB = ("GETJOB", "NOHANG", "FROM", QUEUE)
XADD = ("XADD", "s", "*", "body", BODY)


class WrongResult(Exception):
    """A server did not do what its replies say; the text says what is missing."""


@attrs.define
class Load:
    """A command that redis-benchmark sends to one server, round after round."""

    server: Server
    command: Sequence[str]
    pipeline: int
    takes_jobs: bool = False  #: the queue is filled before each round
    tls_port: int = 0  #: where it is sent with TLS; 0 = it is sent without
    rates: list[float] = attrs.field(factory=list)
    sent: int = 0
    cpu: tuple[float, float] = (0.0, 0.0)

    def trial(self, bench: Bench) -> int:
        """Try it briefly; returns how many commands fill a round."""
        count = whole(bench.size(8_000, 2_000), self.pipeline)
        rate = self._run(bench, count)
        return whole(rate * bench.round_s, self.pipeline)

    def round(self, bench: Bench, count: int) -> None:
        """Run it once more, and keep the figure."""
        self.rates.append(self._run(bench, count))
        self.sent += count

    def _run(self, bench: Bench, count: int) -> float:
        self.server.clear()
        if self.takes_jobs:
            load.run(self.server.port, ADDJOB, count, min(self.pipeline, FILL_PIPELINE), bench.left_s())
        before = self.server.cpu_seconds()
        rate = load.run(
            self.tls_port or self.server.port, self.command, count, self.pipeline, bench.left_s(),
            encrypted=bool(self.tls_port),
        ).rate  # fmt: skip
        after = self.server.cpu_seconds()
        self.cpu = (self.cpu[0] + after[0] - before[0], self.cpu[1] + after[1] - before[1])
        self._check(count)
        return rate

    def _check(self, count: int) -> None:
        """See that the commands of a round did what they are for."""
        if self.command[0] in ("ADDJOB", "GETJOB"):
            waiting = self.server.call(b"QLEN", QUEUE.encode())
            expected = 0 if self.takes_jobs else count
            if waiting != expected:
                raise WrongResult(f"{waiting} jobs wait after {count} {self.command[0]}, not {expected}")

    def cpu_per_command(self) -> str:
        """Processor time of the server for each command."""
        user, system = (seconds * 1e6 / max(1, self.sent) for seconds in self.cpu)
        return f"{user:.1f} µs + {system:.1f} µs"


@attrs.frozen
class Rate:
    """Commands a second of one command, beside one of redis-server."""

    ours: Sequence[str]
    theirs: Sequence[str]
    yardstick: str
    pipeline: int
    goal: Goal | None = None
    takes_jobs: bool = False
    options: Sequence[str] = ()  #: of both
    encrypted: bool = False  #: it is sent with TLS, to both

    def __call__(self, bench: Bench, name: str, title: str) -> Row:
        """Take the measure."""
        with (
            secured(self.encrypted) as (secure, (my_port, other_port)),
            Disqued(bench.processors, [*self.options, *secure(my_port)]) as daemon,
            Redis(bench.processors, [*self.options, *secure(other_port)]) as redis,
        ):
            mine = Load(daemon, self.ours, self.pipeline, self.takes_jobs, my_port)
            other = Load(redis, self.theirs, self.pipeline, tls_port=other_port)
            my_count, other_count = mine.trial(bench), other.trial(bench)
            mine.cpu = other.cpu = (0.0, 0.0)
            for _ in range(bench.rounds):
                mine.round(bench, my_count)
                other.round(bench, other_count)
        return Row(
            name, title, "/s", spread(mine.rates), self.yardstick, spread(other.rates), ratios(mine.rates, other.rates),
            self.goal, bench.rounds,
            note=f"processor time a command, own + kernel: {mine.cpu_per_command()}; redis {other.cpu_per_command()}",
        )  # fmt: skip


# ---- What redis-benchmark cannot send.


def chunked(commands: Sequence[bytes], size: int) -> list[bytes]:
    """Join commands to chunks of `size`; what does not fill a chunk is left out."""
    return [b"".join(commands[at : at + size]) for at in range(0, len(commands) - size + 1, size)]


def _delivered_ids(daemon: Server, count: int) -> list[bytes]:
    """Take `count` jobs; returns their ids."""
    ids: list[bytes] = []
    with daemon.connect() as connection:
        while len(ids) < count:
            rows = connection.call(b"GETJOB", b"NOHANG", b"COUNT", b"%d" % FETCHED_AT_ONCE, b"FROM", QUEUE.encode())
            if rows is None:
                raise WrongResult(f"{len(ids)} jobs could be taken, not {count}")
            ids += (row[1] for row in rows)
    return ids[:count]


def _read_ids(redis: Server, count: int) -> list[bytes]:
    """Read `count` entries of the stream as a consumer; returns their ids."""
    ids: list[bytes] = []
    with redis.connect() as connection:
        connection.call(b"XGROUP", b"CREATE", b"s", b"g", b"0")
        while len(ids) < count:
            reply = connection.call(
                b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"%d" % FETCHED_AT_ONCE, b"STREAMS", b"s", b">"
            )
            if reply is None:
                raise WrongResult(f"{len(ids)} entries could be read, not {count}")
            ids += (entry[0] for entry in reply[0][1])
    return ids[:count]


def _blasted(
    bench: Bench, server: Server, commands: Sequence[bytes], expected: bytes, pipeline: int = PIPELINE
) -> float:
    bench.left_s()
    chunks = chunked(commands, pipeline)
    return len(chunks) * pipeline / blast(server.port, chunks, pipeline, expected, CONNECTIONS)


def acknowledge(bench: Bench, name: str, title: str) -> Row:
    """ACKJOB beside XACK: each command names one job that was delivered and not acknowledged."""
    count = whole(bench.size(80_000, 12_000), PIPELINE)
    ours: list[float] = []
    theirs: list[float] = []
    with Disqued(bench.processors) as daemon, Redis(bench.processors) as redis:
        for _ in range(bench.rounds):
            daemon.clear()
            load.run(daemon.port, ADDJOB, count, PIPELINE, bench.left_s())
            acks = [words(b"ACKJOB", job_id) for job_id in _delivered_ids(daemon, count)]
            ours.append(_blasted(bench, daemon, acks, b":1\r\n"))
            if daemon.jobs():
                raise WrongResult(f"{daemon.jobs()} jobs are left after each was acknowledged")
            redis.clear()
            load.run(redis.port, XADD, count, PIPELINE, bench.left_s())
            acks = [words(b"XACK", b"s", b"g", entry) for entry in _read_ids(redis, count)]
            theirs.append(_blasted(bench, redis, acks, b":1\r\n"))
    return Row(
        name, title, "/s", spread(ours), "redis XACK", spread(theirs), ratios(ours, theirs), rounds=bench.rounds,
        note="the client is Python, for both",
    )  # fmt: skip


def put(bench: Bench, name: str, title: str) -> Row:
    """ADDJOB beside the same in another queue: beanstalkd's `put`."""
    count = whole(bench.size(80_000, 12_000), PIPELINE)
    body = BODY.encode()
    adds = [words(*(word.encode() for word in ADDJOB))] * count
    puts = [b"put 1024 0 300 %d\r\n%b\r\n" % (len(body), body)] * count
    ours: list[float] = []
    theirs: list[float] = []
    with Disqued(bench.processors) as daemon:
        for _ in range(bench.rounds):
            daemon.clear()
            ours.append(_blasted(bench, daemon, adds, b"+"))
            with Beanstalkd(bench.processors) as beanstalkd:
                theirs.append(_blasted(bench, beanstalkd, puts, b"INSERTED"))
    return Row(
        name, title, "/s", spread(ours), "beanstalkd put", spread(theirs), ratios(ours, theirs), rounds=bench.rounds,
        note="the client is Python, for both",
    )  # fmt: skip


@attrs.frozen
class Telling:
    """A job's way, ADDJOB, GETJOB and ACKJOB, with an event log of all that happens, beside the same without."""

    pipeline: int

    def __call__(self, bench: Bench, name: str, title: str) -> Row:
        """Take the measure."""
        count = whole(bench.size(80_000, 12_000), self.pipeline)
        rates: list[list[float]] = [[], []]
        used = [0.0, 0.0]
        with Disqued(bench.processors, ("--events", "all")) as telling, Disqued(bench.processors) as silent:
            for _ in range(bench.rounds):
                for number, daemon in enumerate((telling, silent)):
                    before = sum(daemon.cpu_seconds())
                    rates[number].append(count / self._way_of_jobs(bench, daemon, count))
                    used[number] += sum(daemon.cpu_seconds()) - before
        ours, theirs = rates
        return Row(
            name, title, "jobs/s", spread(ours), "events off", spread(theirs), ratios(ours, theirs),
            Goal(0.95, at_least=True), bench.rounds,
            note=f"processor time with the log is {used[0] / used[1]:.2f} of that without",
        )  # fmt: skip

    def _way_of_jobs(self, bench: Bench, daemon: Disqued, count: int) -> float:
        """Seconds that so many jobs take, one command each, to be added, to be delivered and to be acknowledged."""
        daemon.clear()
        add = load.run(daemon.port, ADDJOB, count, self.pipeline, bench.left_s()).rate
        get = load.run(daemon.port, GETJOB, count, self.pipeline, bench.left_s()).rate
        daemon.clear()
        load.run(daemon.port, ADDJOB, count, PIPELINE, bench.left_s())
        acks = [words(b"ACKJOB", job_id) for job_id in _delivered_ids(daemon, count)]
        ack = _blasted(bench, daemon, acks, b":1\r\n", self.pipeline)
        return count / add + count / get + count / ack


_JOURNAL = ("--appendonly", "yes", "--appendfsync", "everysec")

MEASURES = (
    Measure("ping", "PING, no pipelining, 50 connections", Rate(["PING"], ["PING"], "redis PING", 1)),
    Measure(
        "addjob",
        "ADDJOB of 5 bytes, no pipelining, 50 connections",
        Rate(ADDJOB, XADD, "redis XADD", 1, Goal(1.0, at_least=True)),
    ),
    Measure(
        "addjob-p16",
        "ADDJOB of 5 bytes, pipeline 16, 50 connections",
        Rate(ADDJOB, XADD, "redis XADD", PIPELINE, Goal(0.45, at_least=True)),
    ),
    Measure(
        "getjob-p16",
        "GETJOB NOHANG FROM a queue that is filled, pipeline 16, 50 connections",
        Rate(GETJOB, XADD, "redis XADD", PIPELINE, Goal(0.6, at_least=True), takes_jobs=True),
    ),
    Measure("ackjob-p16", "ACKJOB of delivered jobs, one each, pipeline 16, 50 connections", acknowledge),
    Measure(
        "addjob-aof",
        "ADDJOB of 5 bytes with a journal, appendfsync everysec, no pipelining, 50 connections",
        Rate(ADDJOB, XADD, "redis XADD with the same", 1, options=_JOURNAL),
    ),
    Measure(
        "addjob-tls",
        "ADDJOB of 5 bytes through TLS, no pipelining, 50 connections",
        Rate(ADDJOB, XADD, "redis XADD through TLS", 1, encrypted=True),
    ),
    Measure(
        "addjob-tls-p16",
        "ADDJOB of 5 bytes through TLS, pipeline 16, 50 connections",
        Rate(ADDJOB, XADD, "redis XADD through TLS", PIPELINE, encrypted=True),
    ),
    Measure("events", "a job's way with `events all`, no pipelining", Telling(1)),
    Measure("events-p16", "a job's way with `events all`, pipeline 16", Telling(PIPELINE)),
    Measure("put-p16", "ADDJOB of 5 bytes, pipeline 16, 50 connections, beside another queue", put, optional=True),
)
