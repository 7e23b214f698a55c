"""What one node takes: memory for jobs and connections, time to come back and to deliver, and what it does idle."""

import resource
import socket
import time
from contextlib import ExitStack
from random import Random

import attrs

from benchmarks import load
from benchmarks.figures import Goal, Row, percentile, spread
from benchmarks.load import whole
from benchmarks.measure import Bench, Measure
from benchmarks.raw import HOST, Connection, words
from benchmarks.secured import secured, unchecked
from benchmarks.servers import START_S, Disqued, Redis, Server
from benchmarks.throughput import FILL_PIPELINE, QUEUE, WrongResult

MILLION = 1_000_000
BODY_SIZE = 100
SETTLE_S = 1.0  #: until a server that has just been used is idle


def _fill(bench: Bench, server: Disqued, count: int) -> None:
    """Add jobs with bodies of 100 bytes."""
    command = ("ADDJOB", QUEUE, "x" * BODY_SIZE, "0")
    load.run(server.port, command, count, FILL_PIPELINE, bench.left_s())
    if server.jobs() != count:
        raise WrongResult(f"the node holds {server.jobs()} jobs, not {count}")


def memory(bench: Bench, name: str, title: str) -> Row:
    """Resident memory that each job adds."""
    count = whole(bench.size(MILLION, 100_000), FILL_PIPELINE)
    with Disqued(bench.processors) as daemon:
        before = daemon.resident_bytes()
        _fill(bench, daemon, count)
        after = daemon.resident_bytes()
    return Row(
        name, title, "bytes", spread([(after - before) / count]), goal=Goal(600, unit="bytes"),
        note=f"{count} jobs: {before / 2**20:.0f} MiB before, {after / 2**20:.0f} MiB after",
    )  # fmt: skip


def recovery(bench: Bench, name: str, title: str) -> Row:
    """Time from kill -9 until the node serves again, with every job that it had acknowledged."""
    count = whole(bench.size(MILLION, 100_000), FILL_PIPELINE)
    goal_s = 8.0 * count / MILLION
    with Disqued(bench.processors, ("--appendonly", "yes", "--appendfsync", "everysec")) as daemon:
        _fill(bench, daemon, count)
        size = sum(file.stat().st_size for file in daemon.folder.iterdir() if file.is_file())
        started = time.perf_counter()
        daemon.kill()
        daemon.start(max(START_S, 10 * goal_s))
        seconds = time.perf_counter() - started
        if daemon.jobs() != count:
            raise WrongResult(f"{daemon.jobs()} jobs came back, not {count}")
    return Row(
        name, title, "s", spread([seconds]), goal=Goal(round(goal_s, 3), unit="s"),
        note=f"{count} jobs, {size / 2**20:.0f} MiB of files that the system still has in memory; all came back",
    )  # fmt: skip


def _is_compacting(daemon: Disqued) -> bool:
    facts = daemon.call(b"INFO", b"persistence")
    assert isinstance(facts, bytes)
    return b"aof_rewrite_in_progress:1" in facts


def compaction(bench: Bench, name: str, title: str) -> Row:
    """p99 of ADDJOB while the journal is written anew, and without; in turns, under full load of 50 connections."""
    count = whole(bench.size(MILLION, 100_000), FILL_PIPELINE)
    command = ("ADDJOB", "other", "hello", "0")
    without: list[float] = []
    during: list[float] = []
    settings = (
        "--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0", "--maxmemory", "4gb",
    )  # fmt: skip
    with Disqued(bench.processors, settings) as daemon:
        _fill(bench, daemon, count)
        adds = whole(bench.size(60_000, 5_000), 1)
        for _ in range(bench.rounds):
            without.append(load.run(daemon.port, command, adds, 1, bench.left_s()).p99_ms)
            daemon.call(b"BGREWRITEAOF")
            during.append(load.run(daemon.port, command, adds, 1, bench.left_s()).p99_ms)
            outlived = _is_compacting(daemon)
            while _is_compacting(daemon):
                bench.left_s()
                time.sleep(0.05)
    more = [mine - other for mine, other in zip(during, without, strict=True)]
    return Row(
        name, title, "ms more", spread(more), goal=Goal(20.0, unit="ms more"), rounds=bench.rounds,
        note=f"{count} jobs; p99 {percentile(without, 50):.1f} ms without, {percentile(during, 50):.1f} ms during"
        + ("" if outlived else "; the compaction was over before the load"),
    )  # fmt: skip


@attrs.frozen
class Delivery:
    """How one server is made to deliver: bytes that block a consumer, and bytes that end its wait."""

    server: Server
    wait: bytes
    add: bytes

    def milliseconds(self, bench: Bench, count: int, rng: Random) -> list[float]:
        """Time from add to delivery, at random moments of an idle server."""
        found: list[float] = []
        with self.server.connect() as consumer, self.server.connect() as producer:
            for _ in range(count):
                bench.left_s()
                time.sleep(rng.uniform(0.0005, 0.003))
                found.append(self._once(consumer, producer) * 1_000)
        return found

    def _once(self, consumer: Connection, producer: Connection) -> float:
        """Block a consumer, add, and wait until it is served; returns seconds from before the add."""
        consumer.send(self.wait)
        time.sleep(0.001)  # the consumer is blocked before the producer adds: a millisecond is long for a server
        started = time.perf_counter()
        producer.send(self.add)
        consumer.receive()
        seconds = time.perf_counter() - started
        producer.receive()
        return seconds


def latency(bench: Bench, name: str, title: str) -> Row:
    """Time from ADDJOB to the blocked consumer, p99 of each round; redis-server with XREAD BLOCK in turns."""
    count = bench.size(400, 100)
    rng = Random(bench.seed)
    ours: list[list[float]] = []
    theirs: list[list[float]] = []
    with Disqued(bench.processors) as daemon, Redis(bench.processors) as redis:
        queue = QUEUE.encode()
        jobs = Delivery(daemon, words(b"GETJOB", b"FROM", queue), words(b"ADDJOB", queue, b"hello", b"0"))
        entries = Delivery(
            redis,
            words(b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$"),
            words(b"XADD", b"s", b"*", b"body", b"hello"),
        )
        for _ in range(bench.rounds):
            ours.append(jobs.milliseconds(bench, count, rng))
            theirs.append(entries.milliseconds(bench, count, rng))
    mine, other = (spread([percentile(each, 99) for each in rounds]) for rounds in (ours, theirs))
    middle, their_middle = (percentile([value for each in rounds for value in each], 50) for rounds in (ours, theirs))
    return Row(
        name, title, "ms", mine, "redis XREAD BLOCK", other, goal=Goal(1.0, unit="ms"), rounds=bench.rounds,
        seed=bench.seed,
        note=f"{count} deliveries a round; p50 {middle:.3f} ms, worst {max(map(max, ours)):.3f} ms; "
        f"redis p50 {their_middle:.3f} ms, worst {max(map(max, theirs)):.3f} ms",
    )  # fmt: skip


def open_limit(wanted: int) -> int:
    """How many connections this process may open, at most `wanted`; raises its own limit as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = hard if hard != resource.RLIM_INFINITY else max(soft, wanted + 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(limit, wanted + 200)), hard))
    return min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)


def _hold(bench: Bench, server: Server, count: int, tls_port: int = 0) -> float:
    """Hold idle connections, each of which has been served once; returns bytes of the server for each."""
    context = unchecked()

    def hold() -> None:
        held = stack.enter_context(socket.create_connection((HOST, tls_port or server.port), 10.0))
        if tls_port:
            held = stack.enter_context(context.wrap_socket(held))
        held.sendall(words(b"PING"))
        held.recv(64)

    with ExitStack() as stack:
        for _ in range(16):  # what the first connections bring with them is not theirs
            hold()
        before = server.resident_bytes()
        for _ in range(count):
            bench.left_s()
            hold()
        server.call(b"PING")
        return (server.resident_bytes() - before) / count


def connections(bench: Bench, name: str, title: str) -> Row:
    """Memory that an idle connection takes."""
    count = open_limit(bench.size(10_000, 1_000))
    room = ("--maxclients", str(count + 100))
    with Disqued(bench.processors, room) as daemon:
        ours = _hold(bench, daemon, count) / 1_024
    with Redis(bench.processors, room) as redis:
        theirs = _hold(bench, redis, count) / 1_024
    return Row(
        name, title, "KiB", spread([ours]), "redis", spread([theirs]), goal=Goal(8.0, unit="KiB"),
        note=f"{count} connections were held at once",
    )  # fmt: skip


def encrypted_connections(bench: Bench, name: str, title: str) -> Row:
    """Memory that an idle connection with TLS takes."""
    count = open_limit(bench.size(4_000, 500))
    with (
        secured() as (secure, (my_port, other_port)),
        Disqued(bench.processors, secure(my_port)) as daemon,
        Redis(bench.processors, secure(other_port)) as redis,
    ):
        ours = _hold(bench, daemon, count, my_port) / 1_024
        theirs = _hold(bench, redis, count, other_port) / 1_024
    return Row(
        name, title, "KiB", spread([ours]), "redis", spread([theirs]),
        note=f"{count} connections were held at once",
    )  # fmt: skip


def _wakeups(server: Server, seconds: float) -> tuple[float, float]:
    """Wake-ups a second of an idle server, and the share of a processor that it takes."""
    time.sleep(SETTLE_S)
    woken, used, started = server.wakeups(), sum(server.cpu_seconds()), time.perf_counter()
    time.sleep(seconds)
    span = time.perf_counter() - started
    return (server.wakeups() - woken) / span, (sum(server.cpu_seconds()) - used) / span


def idle(bench: Bench, name: str, title: str) -> Row:
    """How often an idle node wakes up."""
    seconds = bench.size(5, 1)
    with Disqued(bench.processors) as daemon, Redis(bench.processors) as redis:
        ours, share = _wakeups(daemon, seconds)
        theirs, _ = _wakeups(redis, seconds)
    return Row(
        name, title, "/s", spread([ours]), "redis", spread([theirs]),
        note=f"over {seconds} s, with {share:.1%} of a processor",
    )  # fmt: skip


MEASURES = (
    Measure("memory", "resident memory for each job of 100 bytes", memory),
    Measure("recovery", "from kill -9 to serving, jobs of 100 bytes in the journal", recovery),
    Measure("compaction", "p99 of ADDJOB while the journal is compacted, above that without", compaction),
    Measure("latency", "add to delivery of one blocked consumer, p99, idle node", latency),
    Measure("connections", "memory for each idle connection", connections),
    Measure("connections-tls", "memory for each idle connection with TLS", encrypted_connections),
    Measure("idle", "wake-ups of an idle node", idle),
)
