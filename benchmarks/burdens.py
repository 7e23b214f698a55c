"""What others feel of those who burden a node: ``python -m benchmarks.burdens [--only NAME ...] [--minutes M]``.

    one client, a request every 5 ms:  ADDJOB, GETJOB, ACKJOB ... --times--> p50, p99, the worst
                                             |  alone, then beside a burden, for as long
    a burden, a process of its own:    ready ... until it is told to end --> what it did, what became of it
                                             |
    the node:                                +--> memory before, at most, and some seconds after

    idle      10 000 connections that say nothing
    active    1 000 connections that add, take and acknowledge jobs, a few thousand commands a second together
    deaf      500 consumers that ask for all they can get and read nothing
    trickle   100 connections on each port (RESP, bus, HTTP) that send a byte of an endless request now and then
    unread    200 clients that ask for a job of 10 MiB over HTTP and read nothing
    peek      a client that peeks at a job of 200 MiB over HTTP, again and again
    large     four clients that add, take and acknowledge bodies of 64 MiB
    bodies    12 clients that each send 190 of the 200 MB of a body
    words     12 clients that each send 900 000 words of a command, and not the last ones
    blocked   12 clients that wait for a job and send small commands meanwhile, as fast as they are taken
    peeks     200 clients that each ask for a job of 10 MiB and read nothing
    pipelines 200 clients that each send small commands as fast as they are taken, and read the replies
    requests  200 clients that each send pipelines over HTTP as fast as they are taken, and read the answers
    leases    30 000 groups whose leases of one event end together
    groups    QINFO of a queue with 100 000 groups, again and again
    pending   RQ.INSPECT PENDING of a list of which consumers have 100 000 elements
    workers   KEEPALIVE on one connection with 20 000 workers
    queues    WQ.QUEUES on a node with 100 000 queues
    soak      thousands of adds and acks a second for minutes, with a journal that is compacted meanwhile

The node is bound to one processor, everybody else shares the other one.  Memory is resident memory in MiB, times are
milliseconds unless a name says otherwise.
"""

import json
import multiprocessing
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from itertools import chain, count, cycle
from multiprocessing.connection import Connection as Pipe
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.figures import percentile
from benchmarks.load import LoadFailed
from benchmarks.machine import Processors, facts, stamp
from benchmarks.raw import HOST, Connection, words
from benchmarks.resources import open_limit
from benchmarks.servers import Disqued, free_port, redis_version
from disqued.testing.arguments import ExactParser

PAUSE_S: Final = 0.005  #: between two requests of the client that is watched
LOOK_S: Final = 0.25  #: between two looks at the memory
READY_S: Final = 120.0  #: how long a burden may take until it is one
SETTLE_S: Final = 5.0  #: how long the node has to give memory back
MEBIBYTE: Final = 1 << 20

IDLE, ACTIVE, DEAF, TRICKLING, LARGE = 10_000, 1_000, 500, 100, 4
UNREAD: Final = 200  #: clients of HTTP that read nothing
UNREAD_BODY, PEEK_BODY = 10 * MEBIBYTE, 200 * MEBIBYTE
ACTIVE_PAUSE_S: Final = 0.4  #: between two commands of one of the active connections
GREEDY, CROWD = 12, 200
LARGE_BODY: Final = 64 * MEBIBYTE
LEASING_GROUPS, MANY, WORKERS = 30_000, 100_000, 20_000
FILLED_AT_ONCE: Final = 500  #: commands in a pipeline
SOAK_CLIENTS, SOAK_AT_ONCE = 4, 20
SOAK_PAUSE_S: Final = 0.02  #: between two chunks of a client that soaks


@attrs.frozen
class Ports:
    """Where a node listens."""

    resp: int
    http: int

    @property
    def bus(self) -> int:
        """The port of the cluster bus."""
        return self.resp + 10_000


#: Burdens a node until the event, tells once through the pipe that it has begun, and then what came of it.
Attack = Callable[[Ports, Event, Pipe], None]


def idle(ports: Ports, end: Event, pipe: Pipe) -> None:
    """Hold connections."""
    wanted = open_limit(IDLE)
    with ExitStack() as stack:
        for _ in range(wanted):
            held = stack.enter_context(socket.create_connection((HOST, ports.resp), 10.0))
            held.sendall(words(b"PING"))
            held.recv(64)
        pipe.send("ready")
        end.wait()
    pipe.send(f"{wanted} connections held")


def _cycle(queue: bytes) -> Iterable[Callable[[Any], bytes]]:
    """Requests of a client that works off what it adds; each is made of the reply to the one before."""
    yield lambda _: words(b"ADDJOB", queue, b"hello", b"0")
    yield lambda _: words(b"GETJOB", b"FROM", queue)
    yield lambda jobs: words(b"ACKJOB", jobs[0][1])


def active(ports: Ports, end: Event, pipe: Pipe) -> None:
    """Let each of many connections add a job, take one and acknowledge it, with a pause after each command."""
    selector = selectors.DefaultSelector()
    done = 0
    with ExitStack() as stack:
        work: dict[Connection, Any] = {}
        due: list[tuple[float, Connection, Any]] = []
        for number in range(ACTIVE):
            connection = Connection(ports.resp)
            stack.callback(connection.close)
            selector.register(connection, selectors.EVENT_READ)
            work[connection] = cycle(_cycle(b"active-%02d" % (number % 100)))
            due.append((time.monotonic() + ACTIVE_PAUSE_S * number / ACTIVE, connection, None))
        pipe.send("ready")
        while not end.is_set():
            now = time.monotonic()
            while due and due[0][0] <= now:
                _, connection, reply = due.pop(0)
                connection.send(next(work[connection])(reply))
            for key, _ in selector.select(0.002):
                connection = key.fileobj  # type: ignore[assignment]  # what was registered
                for reply in connection.hear():
                    done += 1
                    due.append((time.monotonic() + ACTIVE_PAUSE_S, connection, reply))
    pipe.send(f"{ACTIVE} connections, {done} commands")


def deaf(ports: Ports, end: Event, pipe: Pipe) -> None:
    """Ask for jobs of 10 KiB, a hundred at a time, and read none of them."""
    with Connection(ports.resp) as connection:
        for _ in range(1_000):
            connection.call(b"ADDJOB", b"fat", b"x" * 10_240, b"0", b"RETRY", b"1")
    asks = [words(b"QPEEK", b"fat", b"100"), words(b"GETJOB", b"NOHANG", b"COUNT", b"100", b"FROM", b"fat")]
    ended = 0
    deaf_ones: list[socket.socket] = []

    def connect() -> socket.socket:
        made = socket.create_connection((HOST, ports.resp), 10.0)
        made.setblocking(False)
        return made

    deaf_ones = [connect() for _ in range(DEAF)]
    pipe.send("ready")
    for number in count():
        if end.is_set():
            break
        at = number % DEAF
        try:
            deaf_ones[at].send(asks[number % 2])
        except BlockingIOError:
            pass
        except OSError:
            ended += 1
            deaf_ones[at].close()
            deaf_ones[at] = connect()
        if at == 0:
            time.sleep(0.01)
    for each in deaf_ones:
        each.close()
    pipe.send(f"{DEAF} consumers; the node ended {ended} of those that came, one after the other")


def trickle(ports: Ports, end: Event, pipe: Pipe) -> None:
    """Send requests that never end, a byte now and then."""
    begun = {
        ports.resp: b"*3\r\n$6\r\nADDJOB\r\n$100000\r\n",
        ports.bus: b"disqued\x01" + b"\x01\x20\x00",  # how a link begins, before 32 bytes
        ports.http: b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: ",
    }
    held = [(port, _begin(port, text)) for port, text in begun.items() for _ in range(TRICKLING)]
    ended = dict.fromkeys(begun, 0)
    pipe.send("ready")
    while not end.wait(0.5):
        for at, (port, each) in enumerate(held):
            try:
                each.send(b"a")
            except OSError:
                ended[port] += 1
                each.close()
                held[at] = (port, _begin(port, begun[port]))
    for _, each in held:
        each.close()
    pipe.send(
        f"{TRICKLING} on each port; ended by the node: {ended[ports.resp]} on RESP, {ended[ports.bus]} on the bus, "
        f"{ended[ports.http]} on HTTP"
    )


def _begin(port: int, text: bytes) -> socket.socket:
    made = socket.create_connection((HOST, port), 10.0)
    made.sendall(text)
    return made


def unread(ports: Ports, end: Event, pipe: Pipe) -> None:
    """Ask for a large job over HTTP on many connections, and read nothing."""
    with Connection(ports.resp) as client:
        job_id = client.call(b"ADDJOB", b"unread", b"x" * UNREAD_BODY, b"0")
    pipe.send("ready")
    held = [_begin(ports.http, _get(b"/api/show/" + job_id)) for _ in range(UNREAD)]
    end.wait()
    for each in held:
        each.close()
    pipe.send(f"{UNREAD} clients of HTTP asked for a job of {UNREAD_BODY // MEBIBYTE} MiB and read nothing")


def peek(ports: Ports, end: Event, pipe: Pipe) -> None:
    """Peek at a very large job over HTTP."""
    with Connection(ports.resp) as client:
        client.call(b"ADDJOB", b"peek", b"x" * PEEK_BODY, b"0")
    pipe.send("ready")
    done = 0
    while not end.is_set():
        with _begin(ports.http, _get(b"/api/qpeek/peek")) as client:
            received = sum(map(len, iter(lambda: client.recv(MEBIBYTE), b"")))
        if received < PEEK_BODY:
            raise LoadFailed(f"an answer of {received} bytes came, and not of {PEEK_BODY}")
        done += 1
    pipe.send(f"{done} answers with a job of {PEEK_BODY // MEBIBYTE} MiB were read over HTTP")


def _get(path: bytes) -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path


def large(ports: Ports, end: Event, pipe: Pipe) -> None:
    """Add, take and acknowledge large bodies, one after the other on each connection."""
    body = b"x" * LARGE_BODY
    moved = 0
    with ExitStack() as stack:
        clients = [stack.enter_context(Connection(ports.resp)) for _ in range(LARGE)]
        pipe.send("ready")
        for client in cycle(clients):
            if end.is_set():
                break
            client.call(b"ADDJOB", b"large", body, b"0")
            [[_, job_id, got]] = client.call(b"GETJOB", b"FROM", b"large")
            if len(got) != LARGE_BODY:
                raise LoadFailed(f"a body of {len(got)} bytes came back, not {LARGE_BODY}")
            client.call(b"ACKJOB", job_id)
            moved += 1
    pipe.send(f"{moved} bodies of 64 MiB went in and out")


def _offer(port: int, end: Event, pipe: Pipe, requests: Iterable[tuple[bytes, bytes]], *, reads: bool) -> None:
    """Send each client's request, then something again and again, as far as the node takes it; then tell of it."""
    selector = selectors.DefaultSelector()
    sent = ended = 0
    left: dict[socket.socket, tuple[memoryview, bytes]] = {}
    for first, again in requests:
        made = socket.create_connection((HOST, port), 10.0)
        made.setblocking(False)
        left[made] = memoryview(first), again
        selector.register(made, selectors.EVENT_WRITE | (selectors.EVENT_READ if reads else 0))
    pipe.send("ready")
    while not end.is_set():
        for key, events in selector.select(0.05):
            connection: socket.socket = key.fileobj  # type: ignore[assignment]  # what was registered
            rest, again = left[connection]
            try:
                if events & selectors.EVENT_READ and not connection.recv(1 << 16):
                    raise ConnectionResetError
                if events & selectors.EVENT_WRITE:
                    count_sent = connection.send(rest[: 1 << 18])
                    sent += count_sent
                    left[connection] = rest[count_sent:] or memoryview(again), again
                    if not left[connection][0]:
                        selector.unregister(connection)
            except BlockingIOError:
                pass
            except OSError:
                ended += 1
                selector.unregister(connection)
    for connection in left:
        connection.close()
    pipe.send(f"{len(left)} clients sent {sent / MEBIBYTE:,.0f} MiB; the node ended {ended} of them")


def bodies(ports: Ports, end: Event, pipe: Pipe) -> None:
    """Send nearly all of a large body."""
    begun = b"*4\r\n$6\r\nADDJOB\r\n$4\r\nlate\r\n$200000000\r\n" + b"x" * 190_000_000
    _offer(ports.resp, end, pipe, [(begun, b"")] * GREEDY, reads=False)


def unfinished(ports: Ports, end: Event, pipe: Pipe) -> None:
    """Send nearly all words of a long command."""
    begun = b"*1000000\r\n$6\r\nACKJOB\r\n" + b"".join(b"$6\r\n%06d\r\n" % number for number in range(900_000))
    _offer(ports.resp, end, pipe, [(begun, b"")] * GREEDY, reads=False)


def blocked(ports: Ports, end: Event, pipe: Pipe) -> None:
    """Wait for a job that never comes, and go on sending."""
    begun = words(b"GETJOB", b"FROM", b"never")
    _offer(ports.resp, end, pipe, [(begun, b"*1\r\n$4\r\nPING\r\n" * 10_000)] * GREEDY, reads=False)


def peeks(ports: Ports, end: Event, pipe: Pipe) -> None:
    """Ask for a large job, and read nothing."""
    with Connection(ports.resp) as connection:
        connection.call(b"ADDJOB", b"large", b"x" * (10 * MEBIBYTE), b"0")
    _offer(ports.resp, end, pipe, [(words(b"QPEEK", b"large", b"1"), b"")] * CROWD, reads=False)


def pipelines(ports: Ports, end: Event, pipe: Pipe) -> None:
    """Send small commands without a pause."""
    _offer(ports.resp, end, pipe, [(words(b"PING"), words(b"QLEN", b"pipelines") * 2_000)] * CROWD, reads=True)


def requests(ports: Ports, end: Event, pipe: Pipe) -> None:
    """Send pipelines over HTTP without a pause: for a page, for what is not there, and with a wrong token."""
    kinds = (b"GET / HTTP/1.1\r\n", b"GET /nix HTTP/1.1\r\n", b"GET /api/info HTTP/1.1\r\nAuthorization: Bearer no\r\n")
    pipeline = b"".join(kind + b"Host: localhost\r\n\r\n" for kind in kinds) * 300
    _offer(ports.http, end, pipe, [(pipeline, pipeline)] * CROWD, reads=True)


def soak(ports: Ports, end: Event, pipe: Pipe) -> None:
    """Add, take and acknowledge in pipelines."""
    add = words(b"ADDJOB", b"soak", b"x" * 100, b"0") * SOAK_AT_ONCE
    take = (b"GETJOB", b"NOHANG", b"COUNT", b"%d" % SOAK_AT_ONCE, b"FROM", b"soak")
    done = 0
    started = time.monotonic()
    with ExitStack() as stack:
        clients = [stack.enter_context(Connection(ports.resp)) for _ in range(SOAK_CLIENTS)]
        pipe.send("ready")
        for client in cycle(clients):
            if end.is_set():
                break
            client.send(add)
            for _ in range(SOAK_AT_ONCE):
                client.receive()
            jobs = client.call(*take) or ()
            if jobs:
                client.call(b"ACKJOB", *(job[1] for job in jobs))
            done += len(jobs)
            time.sleep(SOAK_PAUSE_S / SOAK_CLIENTS)
    pipe.send(f"{done / (time.monotonic() - started):,.0f} jobs a second added, taken and acknowledged")


def _fill(connection: Connection, commands: Iterable[tuple[bytes, ...]]) -> None:
    """Run commands in pipelines, whatever they answer."""
    batch: list[bytes] = []
    for command in chain(commands, [()]):
        if command:
            batch.append(words(*command))
        if len(batch) == FILLED_AT_ONCE or not command:
            connection.send(b"".join(batch))
            for _ in batch:
                connection.receive()
            batch.clear()


def leases(ports: Ports, end: Event, pipe: Pipe) -> None:
    """Let the leases of very many groups end together, again and again."""
    rounds = 0
    with Connection(ports.resp) as connection:
        connection.call(b"QADD", b"leases", b"3600", b"event")
        pipe.send("ready")
        while not end.is_set():
            _fill(connection, ((b"QGET", b"leases", b"group-%d" % n, b"EX", b"3") for n in range(LEASING_GROUPS)))
            rounds += 1
    pipe.send(f"{LEASING_GROUPS} groups, {rounds} leases each")


def _asker(fill: Callable[[Connection], None], *ask: bytes) -> Attack:
    """A burden that fills a node, and says a command again and again."""

    def attack(ports: Ports, end: Event, pipe: Pipe) -> None:
        asked = 0
        with Connection(ports.resp) as connection:
            fill(connection)
            pipe.send("ready")
            while not end.is_set():
                connection.call(*ask)
                asked += 1
        pipe.send(f"{ask[0].decode()} {asked} times")

    return attack


def _fill_groups(connection: Connection) -> None:
    connection.call(b"QADD", b"groups", b"3600", b"event")
    _fill(connection, ((b"QGET", b"groups", b"group-%d" % number, b"EX", b"3600") for number in range(MANY)))


def _fill_pending(connection: Connection) -> None:
    _fill(connection, ((b"RQ.PUSH", b"pending", b"element") for _ in range(MANY)))
    _fill(connection, ((b"RQ.POP", b"COUNT", b"1000", b"pending") for _ in range(MANY // 1_000)))


def _fill_workers(connection: Connection) -> None:
    _fill(connection, ((b"WORKER", b"START", b"ID", b"w-%d" % number, b"TTL", b"0") for number in range(WORKERS)))


def _fill_queues(connection: Connection) -> None:
    _fill(connection, ((b"ADDJOB", b"queues-%d" % number, b"hello", b"0") for number in range(MANY)))
    _fill(connection, ((b"GETJOB", b"FROM", b"queues-%d" % number) for number in range(MANY)))


@attrs.frozen
class Burden:
    """A burden, and the node that bears it."""

    name: str
    attack: Attack
    options: tuple[str, ...] = ()
    seconds: float = 20.0


#: What the memory of the node is measured against: 1.3 times this, 150 MiB, and the buffers of connections.
SMALL: Final = ("--maxmemory", "200mb")
BURDENS: Final = (
    Burden("idle", idle, ("--maxclients", "12000")),
    Burden("active", active, ("--maxclients", "12000")),
    Burden("deaf", deaf),
    Burden("trickle", trickle),
    Burden("unread", unread, ("--maxmemory", "1gb")),
    Burden("peek", peek, ("--maxmemory", "1gb", "--proto-max-bulk-len", "300mb")),
    Burden("large", large, ("--maxmemory", "2gb")),
    Burden("bodies", bodies, SMALL),
    Burden("words", unfinished, SMALL),
    Burden("blocked", blocked, SMALL),
    Burden("peeks", peeks, SMALL),
    Burden("pipelines", pipelines, SMALL),
    Burden("requests", requests, SMALL),
    Burden("leases", leases),
    Burden("groups", _asker(_fill_groups, b"QINFO", b"groups")),
    Burden("pending", _asker(_fill_pending, b"RQ.INSPECT", b"pending", b"PENDING", b"-1", b"1")),
    Burden("workers", _asker(_fill_workers, b"WORKER", b"KEEPALIVE", b"w-1")),
    Burden("queues", _asker(_fill_queues, b"WQ.QUEUES")),
    Burden(
        "soak", soak,
        ("--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-min-size", "16mb"), seconds=300.0,
    ),
)  # fmt: skip


@attrs.define
class Watched:
    """A client that is watched, and the memory of its node."""

    daemon: Disqued
    times: list[float] = attrs.field(factory=list)
    memory: list[float] = attrs.field(factory=list)

    def work(self, seconds: float) -> None:
        """Add, take and acknowledge a job, again and again."""
        ends = time.monotonic() + seconds
        look_at = 0.0
        with self.daemon.connect() as connection:
            while (now := time.monotonic()) < ends:
                if now >= look_at:
                    self.memory.append(self.daemon.resident_bytes() / MEBIBYTE)
                    look_at = now + LOOK_S
                reply: Any = None
                for request in _cycle(b"watched"):
                    data = request(reply)
                    started = time.perf_counter()
                    connection.send(data)
                    reply = connection.receive()
                    self.times.append((time.perf_counter() - started) * 1_000)
                    time.sleep(PAUSE_S)

    def third(self, number: int) -> float:
        """The middle of the memory in the first, second or last third of the time."""
        size = len(self.memory) / 3
        return percentile(self.memory[int(number * size) : int((number + 1) * size)] or self.memory, 50)


def bear(burden: Burden, processors: Processors, seconds: float) -> dict[str, Any]:
    """Take the figures of one burden.  Raises LoadFailed."""
    http = free_port()
    with Disqued(processors, ("--http-port", str(http), *burden.options)) as daemon:
        alone, beside = Watched(daemon), Watched(daemon)
        alone.work(min(seconds, 20.0))
        before = daemon.resident_bytes() / MEBIBYTE
        context = multiprocessing.get_context("fork")
        end = context.Event()
        here, there = context.Pipe()
        attacker = context.Process(target=burden.attack, args=(Ports(daemon.port, http), end, there), daemon=True)
        attacker.start()
        there.close()  # so that its end is heard
        try:
            if not here.poll(READY_S):
                raise LoadFailed(f"the burden {burden.name} was not there after {READY_S:.0f} s")
            here.recv()
            beside.work(seconds)
            end.set()
            if not here.poll(READY_S):
                raise LoadFailed(f"the burden {burden.name} failed; what it says stands above")
            outcome = here.recv()
        finally:
            end.set()
            attacker.join(READY_S)
            attacker.kill()
        time.sleep(SETTLE_S)
        after = daemon.resident_bytes() / MEBIBYTE
        journal = sum(file.stat().st_size for file in daemon.folder.rglob("*") if file.is_file()) / MEBIBYTE
    return {
        "name": burden.name, "outcome": outcome, "seconds": seconds,
        **{f"{what}_alone_ms": round(value, 2) for what, value in _times(alone.times).items()},
        **{f"{what}_beside_ms": round(value, 2) for what, value in _times(beside.times).items()},
        "before_mib": round(before, 1), "first_third_mib": round(beside.third(0), 1),
        "last_third_mib": round(beside.third(2), 1), "most_mib": round(max(beside.memory), 1),
        "after_mib": round(after, 1), "files_mib": round(journal, 1),
    }  # fmt: skip


def _times(values: Sequence[float]) -> dict[str, float]:
    return {"p50": percentile(values, 50), "p99": percentile(values, 99), "worst": max(values)}


def tell(found: dict[str, Any]) -> str:
    """The figures of a burden, for people."""
    return (
        f"{found['name']}: {found['outcome']}, in {found['seconds']:.0f} s\n"
        f"  others: p50 {found['p50_alone_ms']} -> {found['p50_beside_ms']} ms, p99 {found['p99_alone_ms']} -> "
        f"{found['p99_beside_ms']} ms, the worst {found['worst_alone_ms']} -> {found['worst_beside_ms']} ms\n"
        f"  memory: {found['before_mib']} MiB before, {found['first_third_mib']} in the first third, "
        f"{found['last_third_mib']} in the last, {found['most_mib']} at most, {found['after_mib']} afterwards; "
        f"files {found['files_mib']} MiB"
    )


def main() -> int:
    """Print the figures of each burden as soon as they are there."""
    parser = ExactParser(prog="python -m benchmarks.burdens", description="What others feel of a burden.")
    names = [burden.name for burden in BURDENS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--minutes", type=float, help="of the soak (5); every other burden is borne for 20 s")
    parser.add_argument("--seconds", type=float, help="of each burden, in place of all that")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    options = parser.parse_args()
    for name in ("minutes", "seconds"):
        if getattr(options, name) is not None and not getattr(options, name) > 0:
            parser.error(f"--{name} {getattr(options, name)}; allowed are numbers above 0")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the servers are ended
    processors = Processors.find()
    line = stamp(known := facts(processors, redis_version()))
    processors.become_client()
    open_limit(IDLE)
    report = []
    for burden in BURDENS:
        if options.only and burden.name not in options.only:
            continue
        seconds = options.seconds or (burden.name == "soak" and options.minutes and options.minutes * 60)
        report.append(bear(burden, processors, seconds or burden.seconds))
        print(tell(report[-1]), flush=True)
    print(f"[{line}]")
    if options.json is not None:
        with suppress(FileExistsError):
            options.json.parent.mkdir(parents=True)
        options.json.write_text(json.dumps([{**each, "machine": known} for each in report], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
