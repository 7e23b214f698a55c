"""What a cluster costs and does: throughput with copies, a consumer on another node, acks after a partition.

Three daemons run on the processor of the servers, each with its own bus; where there are two processors they share
one, so that a third of it is each node's.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from benchmarks.figures import Goal, Row, percentile, ratios, spread
from benchmarks.load import whole
from benchmarks.measure import Bench, Measure
from benchmarks.raw import Connection, words
from benchmarks.servers import Disqued
from benchmarks.throughput import ADDJOB, PIPELINE, QUEUE, Load, WrongResult

NODES = 3
JOIN_S = 30.0  #: how long nodes may take to know each other
IDS_AT_ONCE = 400  #: in one ACKJOB
NODE_TIMEOUT_MS = 1_000

COPIED = (*ADDJOB[:3], "10000", "REPLICATE", str(NODES))


def facts_of(daemon: Disqued) -> dict[bytes, bytes]:
    """CLUSTER INFO by name."""
    text = daemon.call(b"CLUSTER", b"INFO")
    assert isinstance(text, bytes)
    return dict(line.split(b":", 1) for line in text.split(b"\r\n") if b":" in line)


def wait(bench: Bench, daemons: Sequence[Disqued], field: bytes, value: bytes, limit_s: float) -> None:
    """Wait until all of these say so in CLUSTER INFO.  Raises WrongResult."""
    until = time.monotonic() + limit_s
    while any(facts_of(daemon).get(field) != value for daemon in daemons):
        bench.left_s()
        if time.monotonic() > until:
            raise WrongResult(f"after {limit_s:g} s not every node says {field.decode()}:{value.decode()}")
        time.sleep(0.01)


@contextmanager
def joined(bench: Bench, *, http_ports: Sequence[int] = (0,) * NODES) -> Iterator[list[Disqued]]:
    """Three nodes that know each other; a node with port 0 has no pages."""
    settings = ("--cluster-node-timeout", str(NODE_TIMEOUT_MS), "--http-port")
    with ExitStack() as stack:
        daemons = [stack.enter_context(Disqued(bench.processors, (*settings, str(port)))) for port in http_ports]
        for other in daemons[1:]:
            daemons[0].call(b"CLUSTER", b"MEET", b"127.0.0.1", b"%d" % other.port)
        wait(bench, daemons, b"cluster_reachable_nodes", b"%d" % (NODES - 1), JOIN_S)
        yield daemons


def copies(pipeline: int, goal: Goal | None) -> Callable[[Bench, str, str], Row]:
    """ADDJOB with a copy on each of three nodes, beside ADDJOB on a node alone."""

    def take(bench: Bench, name: str, title: str) -> Row:
        with joined(bench) as daemons, Disqued(bench.processors) as alone:
            many = Load(daemons[0], COPIED, pipeline)
            single = Load(alone, ADDJOB, pipeline)
            many_count, single_count = many.trial(bench), single.trial(bench)
            for _ in range(bench.rounds):
                for other in daemons[1:]:
                    other.clear()
                many.round(bench, many_count)
                single.round(bench, single_count)
            held = [daemon.jobs() for daemon in daemons]
        if held != [many_count] * NODES:
            raise WrongResult(f"the nodes hold {held} jobs, each should have {many_count}")
        return Row(
            name, title, "/s", spread(many.rates), "one node", spread(single.rates), ratios(many.rates, single.rates),
            goal, bench.rounds,
        )  # fmt: skip

    return take


def elsewhere(bench: Bench, name: str, title: str) -> Row:
    """From ADDJOB on one node to the job in the hands of a consumer that is blocked on another."""
    count = bench.size(1_000, 200)
    times: list[float] = []
    with joined(bench) as daemons, daemons[0].connect() as producer, daemons[1].connect() as consumer:
        for _ in range(count):
            bench.left_s()
            consumer.send(words(b"GETJOB", b"FROM", QUEUE.encode()))
            _wait_blocked(daemons[1])
            started = time.perf_counter()
            producer.call(b"ADDJOB", QUEUE.encode(), b"hello", b"0", b"REPLICATE", b"1")
            ((_, job_id, _),) = consumer.receive()
            times.append((time.perf_counter() - started) * 1e3)
            consumer.call(b"ACKJOB", job_id)
    return Row(
        name, title, "ms", spread([percentile(times, 99)]),
        note=f"{count} jobs; median {percentile(times, 50):.2f} ms, most {max(times):.2f} ms",
    )  # fmt: skip


def outcome(bench: Bench, name: str, title: str) -> Row:
    """Time from ADDJOB to the reply of WAITJOB on one node, and to the delivery on another one.

    The worker acknowledges at once, so that what is left is what the clients and nodes take.
    """
    count = bench.size(1_000, 200)
    to_delivery: list[float] = []
    to_result: list[float] = []
    with (
        joined(bench) as daemons, daemons[0].connect() as producer, daemons[1].connect() as worker,
    ):  # fmt: skip
        for number in range(count):
            bench.left_s()
            worker.send(words(b"GETJOB", b"FROM", QUEUE.encode()))
            _wait_blocked(daemons[1])
            result = b"result %d" % number
            started = time.perf_counter()
            job_id = producer.call(b"ADDJOB", QUEUE.encode(), b"hello", b"0", b"REPLICATE", b"1", b"RESULT", b"60")
            producer.send(words(b"WAITJOB", b"10000", job_id))
            ((_, given_id, _),) = worker.receive()
            to_delivery.append((time.perf_counter() - started) * 1e3)
            worker.call(b"ACKJOB", given_id, b"RESULT", result)
            ((_, state, found, _, _),) = producer.receive()
            to_result.append((time.perf_counter() - started) * 1e3)
            if (given_id, state, found) != (job_id, b"acked", result):
                raise WrongResult(f"WAITJOB says {state!r} with {found!r}, and the result was {result!r}")
    ours, theirs = ([percentile(times, 99)] for times in (to_result, to_delivery))
    return Row(
        name, title, "ms", spread(ours), "add to delivery", spread(theirs), ratios(ours, theirs), Goal(3.0), 1,
        note=f"{count} jobs; medians {percentile(to_result, 50):.2f} and {percentile(to_delivery, 50):.2f} ms,"
        f" most {max(to_result):.2f} and {max(to_delivery):.2f} ms",
    )  # fmt: skip


def _wait_blocked(daemon: Disqued) -> None:
    while b"blocked_clients:1" not in _clients_of(daemon):
        time.sleep(0.001)


def _clients_of(daemon: Disqued) -> bytes:
    facts = daemon.call(b"INFO", b"clients")
    assert isinstance(facts, bytes)
    return facts


def collection(bench: Bench, name: str, title: str) -> Row:
    """Time from the end of a partition until jobs that were acknowledged behind it are gone on all three nodes."""
    count = whole(bench.size(100_000, 20_000), PIPELINE)
    with joined(bench) as daemons:
        first, _, last = daemons
        load = Load(first, COPIED, PIPELINE)
        load.round(bench, count)
        os.kill(last.pid, signal.SIGSTOP)
        try:
            wait(bench, daemons[:2], b"cluster_reachable_nodes", b"1", JOIN_S)
            with first.connect() as connection:
                _acknowledge(connection, count)
            kept = first.jobs()
        finally:
            os.kill(last.pid, signal.SIGCONT)
        started = time.perf_counter()
        while any(daemon.jobs() for daemon in daemons):
            bench.left_s()
            time.sleep(0.01)
        seconds = time.perf_counter() - started
    if kept != count:
        raise WrongResult(f"{kept} acks were kept behind the partition, not {count}")
    goal_s = 10.0 * count / 100_000
    return Row(
        name, title, "s", spread([seconds]), goal=Goal(round(goal_s, 3), unit="s"),
        note=f"{count} jobs with a copy on each node; one node was stopped while they were acknowledged",
    )  # fmt: skip


def _acknowledge(connection: Connection, count: int) -> None:
    """Get and acknowledge so many jobs."""
    left = count
    while left:
        rows = connection.call(b"GETJOB", b"NOHANG", b"COUNT", b"%d" % IDS_AT_ONCE, b"FROM", QUEUE.encode())
        if rows is None:
            raise WrongResult(f"{left} jobs of {count} could not be taken")
        connection.call(b"ACKJOB", *(row[1] for row in rows))
        left -= len(rows)


MEASURES = (
    Measure(
        "copies",
        "ADDJOB with REPLICATE 3 on three nodes, no pipelining, 50 connections",
        copies(1, Goal(0.3, at_least=True)),
    ),
    Measure("copies-p16", "the same, pipeline 16", copies(PIPELINE, None)),
    Measure("elsewhere", "p99 from ADDJOB on one node to a consumer that is blocked on another", elsewhere),
    Measure("outcome", "p99 from ADDJOB to WAITJOB with the result of a worker on another node", outcome),
    Measure("collection", "acked jobs gone on all nodes after a partition", collection),
)
