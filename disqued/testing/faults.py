"""What goes wrong: faults of every kind, drawn from a seed, begun and ended in virtual time.

Each kind draws from a generator of its own, so that a story told again without one kind is otherwise as similar as it
can be; that is how a failing seed is reduced.  `heal` ends everything at once.  Each fault writes a line of the log.

    crash       kill -9, then a new process            power        the same, and what was not synced is gone
    pause       SIGSTOP, SIGCONT                       restart      a controlled one, queues and all
    busy        something else has the processor, or the loop, for some hundred milliseconds: no fault at all
    partition   two sides that hear nothing            one_way      some hear others who do not hear them
    clog        swizzled: links of some nodes stop one after the other, and go on in another order
    cut         links break                            mess         single messages lost, doubled, put off
    slow        seconds of delay                       clock        wall clocks jump by hours
    set_clock   a wall clock is set forward or back by up to three minutes, and set right again
    full_disk   writes fail                            bad_sync     syncs fail
    leaving     CLUSTER LEAVING, and when it says that it is safe the node is stopped and its disk is wiped
    queue       PAUSE in, out, all, none               compact      the journal is written anew

Times are integer milliseconds.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from disqued.persistence.interface import StoreFailed
from disqued.testing.clients import Load, Operator
from disqued.testing.driver import STAGES
from disqued.testing.events import generator
from disqued.testing.network import Path, SimNetwork
from disqued.testing.operations import OPERATIONS
from disqued.testing.policies import PolicyChecker
from disqued.testing.server import SimServer

HOUR_MS: Final = 3_600_000
SET_MS: Final = 180_000  #: by which a clock is set forward or back, at most
BUSY_MS: Final = 700  #: that a node without a fault may be busy for, at most

KINDS: Final = (
    "crash", "power", "pause", "busy", "restart", "partition", "one_way", "clog", "cut", "mess", "slow", "clock",
    "full_disk", "bad_sync", "leaving", "queue", "compact", "policy", "set_clock",
)  # fmt: skip


class FaultInjector:
    """Begins faults and ends them."""

    def __init__(
        self, servers: list[SimServer], network: SimNetwork, load: Load, kinds: Iterable[str], seed: str
    ) -> None:  # fmt: skip
        self._servers = servers
        self._network = network
        self._load = load
        self._events = network.events
        self._rng = {kind: generator(f"{seed} fault {kind}") for kind in (*KINDS, *OPERATIONS)}
        self._kinds = tuple(kinds)
        self._ends: dict[int, Callable[[], None]] = {}
        self._number = 0
        self._until = 0
        self.policies = PolicyChecker(servers)
        self.log: list[str] = []  #: one line per fault
        self.counts: dict[str, int] = {}

    # Beginning and ending.

    def rage(self, until: int, every_ms: int) -> None:
        """Let faults of each kind begin until a time, on average so many milliseconds apart over all kinds."""
        self._until = until
        mean_ms = every_ms * len(self._kinds)
        for kind in self._kinds:
            self._plan(kind, mean_ms)

    def _plan(self, kind: str, mean_ms: int) -> None:
        wait_ms = int(self._rng[kind].expovariate(1 / mean_ms)) + 1
        if self._events.now + wait_ms < self._until:
            self._events.after(wait_ms, self._begin, (kind, mean_ms))

    def _begin(self, plan: tuple[str, int]) -> None:
        kind, mean_ms = plan
        if self._events.now < self._until:
            operate, rng = OPERATIONS.get(kind), self._rng[kind]
            server = None if operate is None else self._one(rng)
            if operate is None:
                getattr(self, f"_{kind}")(rng)
            elif server is not None:
                for said in operate(server, self._load, rng, self.policies):
                    self._tell(kind, f"{said} on {server}")
            self._plan(kind, mean_ms)

    def _ends_after(self, ms: int, end: Callable[[], None]) -> None:
        self._number += 1
        self._ends[self._number] = end
        self._events.after(ms, self._end, self._number)

    def _end(self, number: int) -> None:
        end = self._ends.pop(number, None)
        if end is not None:
            end()

    def heal(self) -> None:
        """End every fault, in the order in which they began."""
        self._until = 0
        for number in list(self._ends):
            self._end(number)

    def _tell(self, kind: str, what: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.log.append(f"{self._events.now:>9} {kind}: {what}")

    def _span(self, rng: Random, low_ms: int, high_ms: int) -> int:
        """A span between the two, short ones more often than long ones."""
        return int(low_ms * (high_ms / low_ms) ** rng.random())

    def _one(self, rng: Random) -> SimServer | None:
        up = [server for server in self._servers if server.is_up and not server.is_paused]
        return rng.choice(up) if up else None

    def _some_paths(self, rng: Random, part: float) -> list[Path]:
        paths = self._network.paths
        return rng.sample(paths, max(1, int(len(paths) * part)))

    # Processes.

    def _crash(self, rng: Random) -> None:
        server = self._one(rng)
        if server is None:
            return
        down_ms = self._span(rng, 50, 30_000)
        self._tell("crash", f"{server}, back after {down_ms} ms")
        server.kill(power=False)
        self._ends_after(down_ms, _starter(server))

    def _power(self, rng: Random) -> None:
        server = self._one(rng)
        if server is None:
            return
        down_ms = self._span(rng, 1_000, 60_000)
        stage = rng.choice((None, *STAGES))
        self._tell("power", f"{server}, {stage or 'between turns'}, back after {down_ms} ms")

        def die() -> None:
            server.kill(power=True)
            self._ends_after(down_ms, _starter(server))

        if stage is None:
            die()
            return
        server.power_failure.plan(stage, die)
        self._ends_after(down_ms, server.power_failure.cancel)

    def _pause(self, rng: Random) -> None:
        self._hold_up("pause", rng, 100, 40_000)

    def _busy(self, rng: Random) -> None:
        self._hold_up("busy", rng, 20, BUSY_MS)

    def _hold_up(self, kind: str, rng: Random, low_ms: int, high_ms: int) -> None:
        server = self._one(rng)
        if server is not None:
            span_ms = self._span(rng, low_ms, high_ms)
            self._tell(kind, f"{server} for {span_ms} ms")
            server.pause()
            self._ends_after(span_ms, lambda: _resume(server))

    def _restart(self, rng: Random) -> None:
        server = self._one(rng)
        if server is None or server.driver.turn.failure is not None or not server.journal.records:
            return
        self._tell("restart", f"{server}")
        try:
            server.restart()
        except StoreFailed:
            self._tell("restart", f"{server} cannot write its journal, and goes on")

    # The network.

    def _partition(self, rng: Random) -> None:
        servers = self._servers
        side = set(rng.sample(range(len(servers)), rng.randint(1, len(servers) - 1)))
        paths = [path for path in self._network.paths if (path.source.number in side) != (path.target.number in side)]
        self._block("partition", f"nodes {sorted(side)} from the others", paths, self._span(rng, 500, 60_000))

    def _one_way(self, rng: Random) -> None:
        paths = self._some_paths(rng, rng.choice((0.1, 0.3, 0.6)))
        self._block("one_way", _shown(paths), paths, self._span(rng, 500, 60_000))

    def _block(self, kind: str, what: str, paths: list[Path], span_ms: int) -> None:
        self._tell(kind, f"{what} for {span_ms} ms")
        for path in paths:
            path.block()
        self._ends_after(span_ms, lambda: _unblock(paths))

    def _clog(self, rng: Random) -> None:
        servers = self._servers
        some = set(rng.sample(range(len(servers)), rng.randint(1, len(servers))))
        paths = [path for path in self._network.paths if path.source.number in some or path.target.number in some]
        span_ms = self._span(rng, 1_000, 40_000)
        self._tell("clog", f"links of nodes {sorted(some)}, one after the other, over {span_ms} ms")
        starts = sorted(rng.randint(0, span_ms) for _ in paths)
        ends = sorted(rng.randint(span_ms, 2 * span_ms) for _ in paths)
        rng.shuffle(paths)
        backwards = rng.sample(paths, len(paths))
        begun: set[int] = set()
        for path, start_ms in zip(paths, starts, strict=True):
            self._events.after(start_ms, lambda path: self._clog_one(path, begun), path)
        for path, end_ms in zip(backwards, ends, strict=True):
            self._ends_after(end_ms, lambda path=path: _unclog_one(path, begun))  # type: ignore[misc]

    def _clog_one(self, path: Path, begun: set[int]) -> None:
        if self._events.now < self._until and id(path) not in begun:
            begun.add(id(path))
            path.block()

    def _cut(self, rng: Random) -> None:
        paths = self._some_paths(rng, rng.choice((0.1, 0.3, 1.0)))
        self._tell("cut", _shown(paths))
        for path in paths:
            if path.link is not None:
                path.link.break_off()

    def _mess(self, rng: Random) -> None:
        paths = self._some_paths(rng, rng.choice((0.3, 1.0)))
        part = rng.choice((0.05, 0.2, 0.5))
        span_ms = self._span(rng, 1_000, 60_000)
        self._tell("mess", f"{part:.0%} of the messages on {_shown(paths)} for {span_ms} ms")
        for path in paths:
            path.mess = part
        self._ends_after(span_ms, lambda: _tidy(paths))

    def _slow(self, rng: Random) -> None:
        paths = self._some_paths(rng, rng.choice((0.3, 1.0)))
        delay_ms = self._span(rng, 20, 3_000)
        span_ms = self._span(rng, 1_000, 60_000)
        self._tell("slow", f"up to {2 * delay_ms} ms on {_shown(paths)} for {span_ms} ms")
        for path in paths:
            path.delay_ms = path.jitter_ms = delay_ms
        self._ends_after(span_ms, lambda: _speed_up(paths))

    # Machines.

    def _clock(self, rng: Random) -> None:
        server = rng.choice(self._servers)
        server.clock.drift_ms = rng.choice((0, 1, 1)) * rng.randint(-3 * HOUR_MS, 3 * HOUR_MS)
        self._tell("clock", f"{server} is {server.clock.drift_ms} ms off")

    def _set_clock(self, rng: Random) -> None:
        server = rng.choice(self._servers)
        span_ms = self._span(rng, 1_000, 60_000)
        most_ms = rng.choice((5_000, SET_MS, SET_MS))
        server.clock.drift_ms = rng.randint(-most_ms, most_ms)
        self._tell("set_clock", f"{server} is {server.clock.drift_ms} ms off for {span_ms} ms")
        self._ends_after(span_ms, lambda: setattr(server.clock, "drift_ms", 0))

    def _full_disk(self, rng: Random) -> None:
        self._break_disk("full_disk", "is_full", rng)

    def _bad_sync(self, rng: Random) -> None:
        self._break_disk("bad_sync", "fails_sync", rng)

    def _break_disk(self, kind: str, how: str, rng: Random) -> None:
        server = rng.choice(self._servers)
        span_ms = self._span(rng, 500, 30_000)
        self._tell(kind, f"{server} for {span_ms} ms")
        setattr(server.disk, how, True)
        self._ends_after(span_ms, lambda: setattr(server.disk, how, False))

    def _compact(self, rng: Random) -> None:
        server = self._one(rng)
        if server is not None:
            self._tell("compact", f"{server}")
            try:
                server.driver.compact()
            except StoreFailed:
                self._tell("compact", f"{server} cannot")

    # Operators.

    def _queue(self, rng: Random) -> None:
        server = self._one(rng)
        if server is None:
            return
        queue = rng.choice(self._load.queues)
        what = rng.choice((b"in", b"out", b"all"))
        words = [what, *([b"node"] if rng.random() < 0.5 else [])]
        span_ms = self._span(rng, 1_000, 20_000)
        self._tell("queue", f"PAUSE {queue.decode()} {b' '.join(words).decode()} on {server}, {span_ms} ms")
        self.policies.say(server, b"PAUSE", queue, *words)
        self._ends_after(span_ms, lambda: self._resume_queue(server, queue))

    def _resume_queue(self, server: SimServer, queue: bytes) -> None:
        """End a pause by a word on its node, or on another one where that is down."""
        for each in (server, *self._servers):
            if each.is_up and not each.is_paused:
                self.policies.say(each, b"PAUSE", queue, b"none")
                return

    def _policy(self, rng: Random) -> None:
        """Set or unset a default that changes nothing for the jobs of the story, which say it themselves or fit."""
        server = self._one(rng)
        if server is None:
            return
        queue = rng.choice(self._load.queues)
        number = b"%d" % rng.randint(1_000_000, 2_000_000)
        words = rng.choice((
            (b"SET", b"TTL", number), (b"SET", b"MAXLEN", number), (b"SET", b"TTL", number, b"MAXLEN", number),
            (b"UNSET", b"ttl"), (b"UNSET", b"ttl", b"maxlen"),
        ))  # fmt: skip
        self._tell("policy", f"QPOLICY {queue.decode()} {b' '.join(words).decode()} on {server}")
        self.policies.say(server, b"QPOLICY", queue, *words)

    def _leaving(self, rng: Random) -> None:
        server = self._one(rng)
        if server is None or any(other.is_up and other.state.leaving for other in self._servers):
            return
        span_ms = self._span(rng, 2_000, 60_000)
        self._tell("leaving", f"{server} for {span_ms} ms at most")
        server.command(Operator(), [b"CLUSTER", b"LEAVING", b"yes"])
        self._ends_after(span_ms, lambda: _stay(server))
        boot = server.boot

        def look(_: object) -> None:
            if server.boot != boot or not server.is_up or not server.state.leaving:
                return
            if not server.is_paused and _is_safe_to_stop(server):
                self._tell("leaving", f"{server} says that it is safe: stopped, its disk wiped, back after 5 s")
                server.stop()
                server.disk.wipe()
                self._ends_after(5_000, lambda: _come_back(server))
                return
            self._events.after(250, look)

        self._events.after(250, look)


def _come_back(server: SimServer) -> None:
    if not server.is_up:
        server.start()
        _stay(server)


def _is_safe_to_stop(server: SimServer) -> bool:
    server.node.begin()
    return server.node.leaving.is_safe


def _stay(server: SimServer) -> None:
    if server.is_up:
        server.command(Operator(), [b"CLUSTER", b"LEAVING", b"no"])


def _starter(server: SimServer) -> Callable[[], None]:
    def start() -> None:
        if not server.is_up:
            server.start()

    return start


def _resume(server: SimServer) -> None:
    if server.is_paused:
        server.resume()


def _unblock(paths: list[Path]) -> None:
    for path in paths:
        path.unblock()


def _unclog_one(path: Path, begun: set[int]) -> None:
    if id(path) in begun:
        path.unblock()
    begun.add(id(path))


def _tidy(paths: list[Path]) -> None:
    for path in paths:
        path.mess = 0.0


def _speed_up(paths: list[Path]) -> None:
    for path in paths:
        path.delay_ms, path.jitter_ms = 1, path.usual_jitter_ms


def _shown(paths: list[Path]) -> str:
    if len(paths) > 8:
        return f"{len(paths)} paths"
    return " ".join(f"{path.source.number}>{path.target.number}" for path in paths)
