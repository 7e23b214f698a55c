"""Many clients that do a node no good at once: it stays small, serves the others, and ends what its limits end.

    the burden: connections that say nothing, read nothing, never come to an end, or bring bodies of 64 MiB
        |
    a node of small limits --> resident memory, from /proc --> bounded
        |
    somebody else: a job is added, taken and acknowledged, again and again

The same at full size, with times, is `make bench-load`.  Sizes are bytes; bounds are generous.
"""

import contextlib
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
import redis

from disqued.config import BUS_PORT_OFFSET
from tests.integration.daemon import HOST, LIMIT, Daemon, free_port, launch, wait_until

Start = Callable[..., Daemon]

MEBIBYTE = 1 << 20
IDLE = 300
DEAF = 40
GREEDY = 12
SLOW = 10  #: on each port
#: What a job, a connection or a buffer may cost beside what is counted.
SLACK = 32 * MEBIBYTE
PASSWORD = "a password that is long enough"
#: A node that gives strangers on its bus, and headers of HTTP, a second, and waits less for an answer to be read.
HURRY = "links.HANDSHAKE_S, input_timer.HEADER_S, input_timer.LINGER_S = 1.0, 1.0, 0.1"
IMPORTS = (
    "from disqued.net.cluster import links; from disqued.web.http import input_timer; from disqued.tap import main"
)
HASTY = (sys.executable, "-c", f"{IMPORTS}; {HURRY}; main()")


def memory(daemon: Daemon, what: str = "VmRSS") -> int:
    """Resident memory now, or the most that there ever was (VmHWM)."""
    [line] = [
        line for line in Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines() if line.startswith(what)
    ]
    return int(line.split()[1]) * 1_024


@contextlib.contextmanager
def grows_by_at_most(daemon: Daemon, bound: int) -> Iterator[None]:
    """Assert that the node never has more memory than before and a bound."""
    before = memory(daemon)
    # From here on the most is counted anew.
    Path(f"/proc/{daemon.process.pid}/clear_refs").write_text("5")
    yield
    grown = memory(daemon, "VmHWM") - before
    assert grown <= bound, f"{grown >> 20} MiB more than before, of {bound >> 20}"


def serves(client: redis.Redis) -> None:
    """Somebody else adds jobs, takes them, and acknowledges them."""
    for number in range(2):
        job_id = client.execute_command("ADDJOB", "others", f"body {number}", 0)
        assert client.execute_command("GETJOB", "FROM", "others") == [["others", job_id, f"body {number}"]]
        assert client.execute_command("ACKJOB", job_id) == 1


def clients(somebody: redis.Redis) -> int:
    """Count the connections of clients, that of the one who asks among them."""
    return int(somebody.info("clients")["connected_clients"])


def connected(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), LIMIT)


def is_ended(connection: socket.socket, heard: bytearray | None = None) -> bool:
    """Say whether the node has ended a connection, and keep what it said before; nothing is waited for."""
    connection.setblocking(False)
    try:
        while said := connection.recv(65_536):
            if heard is not None:
                heard += said
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def test_idle_connections_cost_little_and_end_by_the_limits(start: Start) -> None:
    daemon = start("--maxclients", str(IDLE + 1))
    with ExitStack() as stack, daemon.redis() as other:
        serves(other)
        with grows_by_at_most(daemon, IDLE * 16_384 + SLACK // 4):
            idle = [stack.enter_context(connected(daemon.port)) for _ in range(IDLE)]
            for each in idle:
                each.sendall(b"PING\r\n")
                assert each.recv(64) == b"+PONG\r\n"
            serves(other)
        with connected(daemon.port) as one_more:
            assert one_more.recv(64).startswith(b"-ERR max number of clients reached")
        other.execute_command("CONFIG", "SET", "maxclients", 10 * IDLE)
        other.execute_command("CONFIG", "SET", "timeout", 1)
        left = set(idle)

        def all_ended() -> bool:
            # One that does not become idle itself.
            with daemon.redis() as another:
                serves(another)
                left.difference_update([each for each in left if is_ended(each)])
                return not left and clients(another) == 1

        wait_until(all_ended, "the idle ones were ended")


def test_consumers_that_never_read_are_ended_and_cost_no_more_than_their_limit(start: Start) -> None:
    limit, size = MEBIBYTE, 16 * MEBIBYTE
    daemon = start("--client-output-buffer-limit", f"normal {limit} 0 0")
    with ExitStack() as stack, daemon.redis() as other:
        # More than the system keeps for a connection, and the limit.
        other.execute_command("ADDJOB", "fat", "x" * size, 0)
        deaf = [stack.enter_context(connected(daemon.port)) for _ in range(DEAF)]
        with grows_by_at_most(daemon, DEAF * limit + 2 * size + SLACK):
            for each in deaf:
                each.sendall(b"QPEEK fat 1\r\n")
                serves(other)
            wait_until(lambda: clients(other) == 1, "those that read nothing were ended")
        assert other.execute_command("QLEN", "fat") == 1


def test_who_never_comes_to_an_end_is_ended_on_each_port(start: Start) -> None:
    http = free_port()
    daemon = start("--http-port", str(http), "--auth-timeout", "1", program=HASTY)
    with daemon.redis() as other:
        other.execute_command("CONFIG", "SET", "requirepass", PASSWORD)
    ports = {
        daemon.port: b"*2\r\n$4\r\nAUTH\r\n$10000\r\n",
        daemon.port + BUS_PORT_OFFSET: b"disqued\x01" + b"\x01\x20\x00",
        http: b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: ",
    }
    with ExitStack() as stack, daemon.redis(password=PASSWORD) as other:
        serves(other)
        turns = count()
        heard = {port: bytearray() for port in ports}
        with grows_by_at_most(daemon, SLACK):
            slow = {stack.enter_context(connected(port)): port for port in ports for _ in range(SLOW)}
            for each, port in slow.items():
                each.sendall(ports[port])

            def all_ended() -> bool:
                serves(other)
                # So seldom that none comes to its end: 32 bytes would be one for the bus.
                if next(turns) % 8 == 0:
                    for each in slow:
                        with contextlib.suppress(OSError):
                            each.send(b"a")
                for each in [each for each, port in slow.items() if is_ended(each, heard[port])]:
                    del slow[each]
                return not slow

            wait_until(all_ended, f"those that are still there were ended: {slow}")
        # By time, and not for what they said.
        assert other.info("stats")["unauthenticated_clients_ended"] == SLOW
        assert "the handshake took longer than 1 s" in daemon.log()
        assert heard[http].count(b"HTTP/1.1 408 ") == SLOW
        other.execute_command("CONFIG", "SET", "requirepass", "")


def head(length: int) -> bytes:
    """An ADDJOB up to its body."""
    return b"*4\r\n$6\r\nADDJOB\r\n$5\r\nlarge\r\n$%d\r\n" % length


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A node whose connections may hold 64 MiB, besides the largest of them, which may hold 100 MB."""
    running = launch(tmp_path_factory.mktemp("tight") / "data", ("--maxmemory", "100mb"))
    yield running
    running.stop()


def _send_all(connections: dict[socket.socket, memoryview], other: redis.Redis, until: Callable[[], bool]) -> None:
    """Send on each connection as much as the node takes, in turns, until a condition holds; somebody else is served."""
    for each in connections:
        each.setblocking(False)

    def went_on() -> bool:
        for each, rest in list(connections.items()):
            try:
                connections[each] = rest[each.send(rest[:262_144]) :] if rest else rest
            except BlockingIOError:
                pass
            except OSError:
                del connections[each]
        assert other.ping()
        return until()

    wait_until(went_on, "as much was sent as is taken")


def held(somebody: redis.Redis) -> int:
    """Bytes that connections hold, as the node counts them."""
    return int(somebody.info("clients")["mem_clients_normal"])


UNFINISHED = {
    "body": head(95_000_000) + bytes(90_000_000),
    "words": b"*1000000\r\n$6\r\nACKJOB\r\n" + b"".join(b"$6\r\n%06d\r\n" % number for number in range(900_000)),
    "short words": b"*1000000\r\n$6\r\nACKJOB\r\n" + b"$2\r\nab\r\n" * 900_000,
}


@pytest.mark.parametrize("kind", UNFINISHED)
def test_unfinished_requests_of_many_clients_share_one_bound(tight: Daemon, kind: str) -> None:
    with ExitStack() as stack, tight.redis() as other, grows_by_at_most(tight, 64 * MEBIBYTE + 100_000_000 + SLACK):
        serves(other)
        ended = int(other.info("clients")["mem_clients_ended"])
        begun = {stack.enter_context(connected(tight.port)): memoryview(UNFINISHED[kind]) for _ in range(GREEDY)}
        _send_all(begun, other, lambda: not any(begun.values()))
        assert 1 <= len(begun) < GREEDY
        wait_until(lambda: int(other.info("clients")["mem_clients_ended"]) - ended >= GREEDY - len(begun), "counted")
        assert held(other) <= 64 * MEBIBYTE + 100_000_000
        serves(other)
    with tight.redis() as other:
        wait_until(lambda: held(other) == 0, "nothing is held any more")


@pytest.mark.parametrize("small_one", [b"*1\r\n$4\r\nPING\r\n", b"a\r\n"])
def test_a_blocked_client_that_goes_on_sending_is_not_read_from(tight: Daemon, small_one: bytes) -> None:
    more = small_one * (16 * MEBIBYTE // len(small_one))
    with ExitStack() as stack, tight.redis() as other, grows_by_at_most(tight, SLACK):
        serves(other)
        waiting = [stack.enter_context(connected(tight.port)) for _ in range(GREEDY)]
        for each in waiting:
            each.sendall(b"GETJOB FROM never\r\n")
        tight.wait_blocked(GREEDY)
        full: dict[socket.socket, int] = {}

        def takes_no_more() -> bool:
            sizes = {each: len(rest) for each, rest in begun.items()}
            same, full_before = sizes == full, bool(full)
            full.update(sizes)
            return same and full_before and min(sizes.values()) > 0

        begun = {each: memoryview(more) for each in waiting}
        _send_all(begun, other, takes_no_more)
        assert len(begun) == GREEDY
        assert held(other) <= GREEDY * MEBIBYTE
        serves(other)
        # It is noticed all the same that they are gone.
        for each in waiting:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.close()
        wait_until(lambda: clients(other) == 1 and tight.blocked() == 0, "all are forgotten")


def test_large_replies_that_nobody_reads_share_one_bound(tight: Daemon) -> None:
    size = 10 * MEBIBYTE
    with ExitStack() as stack, tight.redis() as other:
        job_id = other.execute_command("ADDJOB", "fat", "x" * size, 0)
        # What is held, and one reply that is being made.
        with grows_by_at_most(tight, 64 * MEBIBYTE + 3 * size + SLACK):
            deaf = [stack.enter_context(connected(tight.port)) for _ in range(DEAF)]
            for each in deaf:
                each.sendall(b"QPEEK fat 1\r\n")
                serves(other)
            assert held(other) <= 64 * MEBIBYTE + size
        assert other.execute_command("ACKJOB", job_id) == 1


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A node that takes bodies of 64 MiB, and has room for two of them, not for three."""
    limits = ("--maxmemory", "160mb", "--proto-max-bulk-len", str(64 * MEBIBYTE))
    running = launch(tmp_path_factory.mktemp("small") / "data", limits)
    yield running
    running.stop()


def test_a_body_that_is_only_announced_costs_nothing(small: Daemon) -> None:
    with ExitStack() as stack, small.redis() as other, grows_by_at_most(small, SLACK):
        announced = [stack.enter_context(connected(small.port)) for _ in range(SLOW)]
        for each in announced:
            each.sendall(head(64 * MEBIBYTE) + b"x" * 1_000)
        serves(other)
        assert [each for each in announced if is_ended(each)] == [], "what was announced may still come"
        with connected(small.port) as too_large:
            too_large.sendall(head(64 * MEBIBYTE + 1))
            assert too_large.recv(200).startswith(b"-ERR Protocol error: ")
            wait_until(lambda: is_ended(too_large), "nothing more is heard from it")


def test_bodies_of_64_mib_go_in_and_out_while_others_are_served(small: Daemon) -> None:
    body = b"x" * (64 * MEBIBYTE)
    with small.redis(decode_responses=False) as large, small.redis() as other:
        # The body as it comes in, the job, and the reply as it goes out.
        with grows_by_at_most(small, 4 * len(body) + SLACK):
            for _ in range(3):
                with connected(small.port) as producer:
                    producer.sendall(head(len(body)) + body[: len(body) // 2])
                    serves(other)
                    producer.sendall(body[len(body) // 2 :] + b"\r\n$1\r\n0\r\n")
                    assert producer.recv(200).startswith(b"+DI")
                serves(other)
                [[_, job_id, taken]] = large.execute_command("GETJOB", "FROM", "large")
                assert taken == body
                assert large.execute_command("ACKJOB", job_id) == 1
        wait_until(lambda: other.info("memory")["used_memory"] < MEBIBYTE, "what was done is not counted any more")


def test_bodies_beyond_the_memory_are_refused_and_the_others_served_again(small: Daemon) -> None:
    body = "x" * (64 * MEBIBYTE)
    with small.redis() as other, grows_by_at_most(small, 6 * len(body) + SLACK):
        added = [other.execute_command("ADDJOB", "large", body, 0) for _ in range(2)]
        with pytest.raises(redis.ResponseError, match="NOREPL"):
            other.execute_command("ADDJOB", "large", body, 0)
        assert other.execute_command("ACKJOB", *added) == 2
        serves(other)
