"""How long very large bodies hold the loop of a node: ``python -m benchmarks.giants [--only NAME ...]``.

    client: ADDJOB, GETJOB, QPEEK ... of bodies of 200 MB --> node, whose poller writes down each turn of the loop
                                                                      processor time of its thread, time on the clock
    the longest turn of each kind  <----------------------------------+

A turn is what the loop does between two waits for the poller: no other client is served meanwhile.  The processor time
of the loop's own thread does not depend on what else the machine does; the clock also sees waits for disks and for the
other threads of the node.  Times are milliseconds.
"""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

import attrs

from benchmarks.machine import Processors
from benchmarks.raw import HOST, Connection, ServerError, words
from benchmarks.secured import secured, unchecked
from benchmarks.servers import Disqued, Redis, ServerMissing, free_port
from disqued.testing.arguments import ExactParser

MEGABYTE: Final = 1_000_000
LOG: Final = "DISQUED_TURNS"  #: names the file that a node writes its long turns to
NOTED_S: Final = 0.005  #: shorter turns are not written down
LIMIT_S: Final = 300.0  #: how long a reply may take
QUIET_S: Final = 0.3  #: after a step, for what a node does behind its reply
SEVERAL: Final = 20  #: bodies of one reply, together as large as the one
MANY: Final = 1_000  #: as many, each small
GIANTS: Final = 8  #: bodies of the size that is measured, together

LOCATION = ("--maxmemory", "4gb", "--proto-max-bulk-len", "2gb", "--client-output-buffer-limit", "normal 4gb 4gb 600")


def serve() -> None:
    """Run a node that notes its long turns."""
    from disqued.net.loop import reactor as module
    from disqued.net.loop.turns import Turns
    from disqued.tap import main

    log = os.open(os.environ[LOG], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def noting(poll: Callable[[float, int], Any]) -> Callable[[float, int], Any]:
        spent, began = time.thread_time(), time.monotonic()

        def watched(longest: float, count: int) -> Any:
            nonlocal spent, began
            now_spent, now = time.thread_time(), time.monotonic()
            if now_spent - spent > NOTED_S or now - began > NOTED_S:
                os.write(log, b"%.6f %.3f %.3f\n" % (now, (now_spent - spent) * 1_000, (now - began) * 1_000))
            try:
                return poll(longest, count)
            finally:
                spent, began = time.thread_time(), time.monotonic()

        return watched

    def make(*args: Any, poll: Callable[[float, int], Any], **named: Any) -> Turns:
        return Turns(*args, poll=noting(poll), **named)

    vars(module)["Turns"] = make
    main()


class Node(Disqued):
    """A node whose turns are noted."""

    def __init__(self, *options: str) -> None:
        super().__init__(Processors(None, None), (*LOCATION, *options))
        self.turns = self.folder / "turns"

    def arguments(self) -> list[str]:
        """The command line, without the additional options."""
        line = super().arguments()
        line[2] = "from benchmarks.giants import serve; serve()"
        return line

    def start(self, limit_s: float = LIMIT_S) -> None:
        """Start it and wait until it serves.  Raises ServerMissing."""
        os.environ[LOG] = str(self.turns)
        super().start(limit_s)

    def connect(self) -> Connection:
        """A connection to it."""
        return Connection(self.port, LIMIT_S)

    def worst(self, since: float) -> tuple[float, float]:
        """The longest turn that ended since then: processor time, and time on the clock."""
        text = self.turns.read_text(encoding="ascii") if self.turns.exists() else ""
        rows = [tuple(map(float, line.split())) for line in text.splitlines()]
        late = [row for row in rows if row[0] >= since]
        return max((row[1] for row in late), default=0.0), max((row[2] for row in late), default=0.0)


@attrs.define
class Bench:
    """The nodes of a case, what is done to them, and what that took."""

    size: int
    nodes: list[Node]
    say: Callable[[str, float, float], None]
    name: str
    clients: list[Connection] = attrs.field(factory=list)

    @property
    def body(self) -> bytes:
        """A body of the size that is measured."""
        return b"x" * self.size

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Note the longest turn of any node within this."""
        time.sleep(QUIET_S)
        began = time.monotonic()
        try:
            yield
            time.sleep(QUIET_S)
        except (ServerError, OSError, ServerMissing) as error:
            print(f"    {self.name}, {what}: {error}", flush=True)
        worst = [node.worst(began) for node in self.nodes]
        self.say(f"{self.name}, {what}", max(each[0] for each in worst), max(each[1] for each in worst))

    def ask(self, what: str, *command: bytes, client: Connection | None = None) -> Any:
        """Run a command as a step; returns what it answers."""
        with self.step(what):
            return (client or self.clients[0]).call(*command)

    def tell(self, *command: bytes) -> Any:
        """Run a command that is not measured."""
        return self.clients[0].call(*command)


def _facts(text: Any, name: bytes) -> bytes:
    return next((line[len(name) + 1 :] for line in text.split(b"\r\n") if line.startswith(name + b":")), b"")


def _until(done: Callable[[], bool]) -> None:
    ends = time.monotonic() + LIMIT_S
    while not done():
        if time.monotonic() > ends:
            raise ServerError("what was to happen did not")
        time.sleep(0.05)


def replies(bench: Bench) -> None:
    """Every command whose reply has bodies, without a store."""
    body = bench.body
    job_id = bench.ask("ADDJOB", b"ADDJOB", b"q", body, b"0", b"RETRY", b"3600")
    bench.ask("QPEEK", b"QPEEK", b"q", b"1")
    bench.ask("SHOW", b"SHOW", job_id)
    bench.ask("JSCAN REPLY all", b"JSCAN", b"0", b"REPLY", b"all", b"BUSYLOOP")
    bench.ask("GETJOB", b"GETJOB", b"FROM", b"q")
    bench.ask("NACK", b"NACK", job_id)
    bench.ask("GETJOB WITHCOUNTERS", b"GETJOB", b"WITHCOUNTERS", b"FROM", b"q")
    bench.ask("CLIENT LIST", b"CLIENT", b"LIST")
    bench.ask("ACKJOB", b"ACKJOB", job_id)
    with bench.nodes[0].connect() as waiting, bench.step("a blocked GETJOB and an ADDJOB"):
        waiting.send(words(b"GETJOB", b"FROM", b"waited"))
        time.sleep(0.1)
        bench.tell(b"ADDJOB", b"waited", body, b"0")
        job = waiting.receive()
        bench.tell(b"ACKJOB", job[0][1])
    bench.tell(b"HELLO", b"3")
    for at in range(SEVERAL):
        bench.tell(b"ADDJOB", b"several", body[at::SEVERAL], b"0", b"RETRY", b"3600")
    for at in range(MANY):
        bench.tell(b"ADDJOB", b"many", body[at::MANY], b"0", b"RETRY", b"3600")
    bench.ask(f"RESP3, QPEEK of {SEVERAL}", b"QPEEK", b"several", b"100")
    bench.ask(f"RESP3, QPEEK of {MANY}", b"QPEEK", b"many", b"1000")
    bench.ask(f"RESP3, GETJOB COUNT {SEVERAL}", b"GETJOB", b"COUNT", b"100", b"FROM", b"several")
    bench.ask(f"RESP3, GETJOB COUNT {MANY}", b"GETJOB", b"WITHCOUNTERS", b"COUNT", b"1000", b"FROM", b"many")
    bench.ask("ECHO", b"ECHO", body)
    bench.ask("PING word", b"PING", body)
    bench.ask("a queue of that name", b"ADDJOB", body, b"x", b"0")
    bench.ask("ADDJOB with a wrong option", b"ADDJOB", b"q", b"x", b"0", body)
    bench.ask("an unknown command of that length", body)
    ids = [bench.tell(b"ADDJOB", b"q", body, b"0", b"RETRY", b"3600") for _ in range(GIANTS)]
    bench.ask(f"ACKJOB of {GIANTS} such", b"ACKJOB", *ids)
    for _ in range(GIANTS):
        bench.tell(b"ADDJOB", b"q", body, b"0", b"RETRY", b"3600")
    bench.ask(f"DEBUG FLUSHALL of {GIANTS} such", b"DEBUG", b"FLUSHALL")


def families(bench: Bench) -> None:
    """The other families of queues, without a store."""
    body = bench.body
    bench.ask("QADD", b"QADD", b"log", b"3600", body)
    bench.ask("QGET", b"QGET", b"log", b"group")
    bench.ask("RQ.PUSH", b"RQ.PUSH", b"list", body)
    bench.ask("RQ.INSPECT", b"RQ.INSPECT", b"list", b"0", b"10")
    bench.ask("RQ.POP", b"RQ.POP", b"list")
    bench.ask("RQ.INSPECT PENDING", b"RQ.INSPECT", b"list", b"PENDING", b"0", b"10")
    bench.ask("RQ.RECOVER", b"RQ.RECOVER", b"list", b"1", b"0")
    bench.tell(b"WORKER", b"START", b"ID", b"w", b"TTL", b"0")
    bench.tell(b"WQ.WORK", b"tasks")
    bench.ask("WQ.ENQUEUE", b"WQ.ENQUEUE", b"tasks", b"TASKS", body)
    bench.ask("WQ.ENQUEUE UNIQUE", b"WQ.ENQUEUE", b"unique", b"UNIQUE", b"TASKS", body)
    bench.ask("WQ.PEEK", b"WQ.PEEK", b"tasks")
    bench.ask("WQ.TASKS", b"WQ.TASKS", b"tasks")
    taken = bench.ask("WQ.DEQUEUE", b"WQ.DEQUEUE", b"tasks")
    bench.ask("WQ.PROCS", b"WQ.PROCS")
    bench.ask("WQ.FINISH", b"WQ.FINISH", taken[0][1])
    bench.ask("QLPUSH", b"QLPUSH", b"okq", b"event", body)
    bench.ask("QLPEEK", b"QLPEEK", b"okq")
    bench.ask("QRPOP", b"QRPOP", b"okq")


def watchers(bench: Bench) -> None:
    """Commands of that length, while they are watched."""
    node = bench.nodes[0]
    with node.connect() as monitor, node.connect() as listener, node.connect() as idle:
        bench.tell(b"CONFIG", b"SET", b"slowlog-log-slower-than", b"0")
        monitor.call(b"MONITOR")
        listener.call(b"PSUBSCRIBE", b"*")
        bench.ask("ADDJOB with MONITOR, SLOWLOG, PSUBSCRIBE", b"ADDJOB", b"q", bench.body, b"0", b"RETRY", b"3600")
        bench.ask("SLOWLOG GET", b"SLOWLOG", b"GET")
        bench.ask("QNOTIFY", b"QNOTIFY", b"5", bench.body)
        idle.send(words(b"QPEEK", b"q", b"1"))
        bench.ask("CLIENT LIST beside an unread reply", b"CLIENT", b"LIST")
        bench.ask("INFO beside an unread reply", b"INFO")
        with bench.step("a client with an unread reply ends"):
            idle.close()


def stored(bench: Bench) -> None:
    """A store, from the command to the next start."""
    node, body = bench.nodes[0], bench.body
    job_id = bench.ask("ADDJOB", b"ADDJOB", b"q", body, b"0", b"RETRY", b"3600")
    for at in range(SEVERAL):
        bench.tell(b"ADDJOB", b"several", body[at::SEVERAL], b"0", b"RETRY", b"3600")
    with bench.step(f"ADDJOB of {SEVERAL}, a pipeline"):
        part = body[::SEVERAL]
        bench.clients[0].send(words(b"ADDJOB", b"pipeline", part, b"0") * SEVERAL)
        for _ in range(SEVERAL):
            bench.clients[0].receive()
    bench.ask("GETJOB", b"GETJOB", b"FROM", b"q")
    with bench.step("compaction"):
        try:
            bench.tell(b"BGREWRITEAOF")
            _until(lambda: _facts(bench.tell(b"INFO", b"persistence"), b"aof_rewrite_in_progress") == b"0")
        except ServerError as error:
            print(f"    {bench.name}, compaction: {error}")
    with bench.step("the next start"):
        bench.clients[0].close()
        node.kill()
        node.start()
        bench.clients[0] = node.connect()
        bench.tell(b"PING")
    bench.ask("ACKJOB", b"ACKJOB", job_id)
    bench.ask("QADD", b"QADD", b"log", b"3600", body)
    other = b"aof" if bench.name == "sqlite" else b"sqlite"
    with bench.step(f"CONFIG SET persistence {other.decode()}"):
        bench.tell(b"CONFIG", b"SET", b"persistence", other)
        time.sleep(3.0)
    with bench.step("SHUTDOWN REWRITE-AOF"):
        bench.clients[0].send(words(b"SHUTDOWN", b"REWRITE-AOF"))
        with suppress(ConnectionError):
            bench.clients[0].receive()
        node._process.wait(LIMIT_S)  # type: ignore[union-attr]


def cluster(bench: Bench) -> None:
    """Copies, federation and a node that leaves."""
    second = bench.nodes[1]
    body = bench.body
    bench.tell(b"CLUSTER", b"MEET", HOST.encode(), b"%d" % second.port)
    _until(lambda: _facts(bench.tell(b"CLUSTER", b"INFO"), b"cluster_size") == b"2")
    time.sleep(1.0)
    job_id = bench.ask("ADDJOB REPLICATE 2", b"ADDJOB", b"q", body, b"60000", b"REPLICATE", b"2", b"RETRY", b"3600")
    with second.connect() as other:
        with bench.step("GETJOB at the other node, by federation"):
            bench.tell(b"ADDJOB", b"away", body, b"0", b"REPLICATE", b"1")
            job = other.call(b"GETJOB", b"TIMEOUT", b"60000", b"FROM", b"away")
            other.call(b"ACKJOB", job[0][1])
        bench.ask("ACKJOB of a job with copies", b"ACKJOB", job_id)
        for at in range(3):
            bench.tell(b"ADDJOB", b"staying", body[at::3], b"0", b"REPLICATE", b"1", b"RETRY", b"3600")
        with bench.step("CLUSTER LEAVING"):
            bench.tell(b"CLUSTER", b"LEAVING", b"yes")
            _until(lambda: bench.tell(b"QLEN", b"staying") == 0)
            for _ in range(3):
                [[_, job_id, _]] = other.call(b"GETJOB", b"TIMEOUT", b"60000", b"FROM", b"staying")
                other.call(b"ACKJOB", job_id)
        other.call(b"PSUBSCRIBE", b"*")
        bench.ask("QADD with a listener elsewhere", b"QADD", b"log", b"3600", body, client=bench.clients[1])


class Secured(Connection):
    """A connection with TLS."""

    def __init__(self, port: int) -> None:
        super().__init__(port, LIMIT_S)
        self._socket = unchecked().wrap_socket(self._socket)


def tls(bench: Bench) -> None:
    """Bodies in and out through TLS."""
    port = int(bench.nodes[0]._options[bench.nodes[0]._options.index("--tls-port") + 1])
    with Secured(port) as client:
        bench.ask("ADDJOB", b"ADDJOB", b"q", bench.body, b"0", b"RETRY", b"3600", client=client)
        bench.ask("QPEEK", b"QPEEK", b"q", b"1", client=client)
        bench.ask("GETJOB", b"GETJOB", b"FROM", b"q", client=client)


def http(bench: Bench) -> None:
    """Bodies out over HTTP."""
    port = int(bench.nodes[0]._options[bench.nodes[0]._options.index("--http-port") + 1])
    bench.tell(b"ADDJOB", b"q", bench.body, b"0", b"RETRY", b"3600")
    ask = b'{"queues": ["q"]}'
    post = b"POST /api/commands/GETJOB HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % len(ask)
    for what, head, sent in (
        ("GET /api/qpeek/q", b"GET /api/qpeek/q HTTP/1.1\r\n", b""), ("POST /api/commands/GETJOB", post, ask),
    ):  # fmt: skip
        with bench.step(what), socket.create_connection((HOST, port), LIMIT_S) as client:
            client.sendall(head + b"Host: localhost\r\nConnection: close\r\n\r\n" + sent)
            received = b"".join(iter(lambda: client.recv(1 << 20), b""))
            if len(received) < bench.size:
                raise ServerError(f"an answer of {len(received)} bytes: {received!r}")


@attrs.frozen
class Case:
    """Something that is done, and the nodes that it is done to."""

    name: str
    run: Callable[[Bench], None]
    options: tuple[str, ...] = ()
    nodes: int = 1


def cases(redis: int, safe: Sequence[str]) -> list[Case]:
    """All cases; `redis` is the port of a Redis server, `safe` the options of a port with TLS."""
    return [
        Case("no store", replies),
        Case("families", families),
        Case("watched", watchers),
        Case("aof everysec", stored, ("--appendonly", "yes", "--appendfsync", "everysec")),
        Case("aof always", stored, ("--appendonly", "yes", "--appendfsync", "always")),
        Case("sqlite", stored, ("--persistence", "sqlite")),
        Case("redis", stored, ("--persistence", "redis", "--redis-url", f"redis://{HOST}:{redis}/0")),
        Case("cluster", cluster, (), 2),
        Case("cluster aof", cluster, ("--appendonly", "yes", "--appendfsync", "everysec"), 2),
        Case("tls", tls, tuple(safe)),
        Case("http", http, ("--http-port", str(free_port()))),
    ]


def measure(case: Case, size: int, say: Callable[[str, float, float], None]) -> None:
    """Take the figures of one case."""
    with ExitStack() as stack:
        nodes = []
        for _ in range(case.nodes):
            node = Node(*case.options)
            nodes.append(stack.enter_context(node))
        bench = Bench(size, nodes, say, case.name)
        bench.clients = [node.connect() for node in nodes]
        case.run(bench)
        for client in bench.clients:
            client.close()


def main() -> int:
    """Print a line for each step."""
    parser = ExactParser(prog="python -m benchmarks.giants")
    parser.add_argument("--megabytes", type=int, default=200, help="size of the bodies; 200")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="of the cases: no store, families ...")
    options = parser.parse_args()
    if options.megabytes < 1:
        parser.error(f"--megabytes {options.megabytes}; allowed are numbers from 1 on")

    def say(what: str, spent: float, passed: float) -> None:
        print(f"{what:60} {spent:8.1f} ms of processor time, {passed:8.1f} ms on the clock", flush=True)

    print(f"bodies of {options.megabytes} MB; the longest turn of the loop", flush=True)
    with ExitStack() as stack:
        secure, (port, _) = stack.enter_context(secured())
        redis = stack.enter_context(Redis(Processors(None, None)))
        for case in cases(redis.port, secure(port)):
            if not options.only or case.name in options.only:
                try:
                    measure(case, options.megabytes * MEGABYTE, say)
                except (ServerError, ServerMissing, OSError) as error:
                    print(f"{case.name}: {error}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
