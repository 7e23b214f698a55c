"""One process of a load: many connections on one event loop, and when each request is sent.

    without a rate   a connection sends P requests at once, and the next P when all replies are there; a request takes
                     from when it was sent to its reply
    with a rate      request k is due at start + k / rate, on connection k mod C, whatever became of those before.  Due
                     requests are sent as long as no more than P of the connection are under way; others wait.  A
                     request takes from when it was due to its reply

The second way is an open loop: a node that stands still for a second delays all that were due in that second, and all
of them are counted with what they waited.  In the first way nobody asks meanwhile, and nothing would be counted.

    parent  --start, when-->  Load      --Progress, now and then-->  parent
            --stop--------->            --Outcome, at the end----->

It is asyncio with a selector of its own, since the timers of the usual one are a millisecond too late or early.  Times
are seconds on the monotonic clock, which is the same one for all processes of a machine.
"""

import asyncio
import select
import selectors
import ssl
import time
from collections import Counter, deque
from functools import partial
from multiprocessing.connection import Connection as Pipe
from typing import Final

import attrs
import hiredis

from disqued.client.addresses import Socket, written
from disqued.client.ssl_context import make_context
from disqued.tools.bench.latencies import US, Latencies
from disqued.tools.bench.mix import ADDS, GETS, Mix, Requests, encode
from disqued.tools.connecting import Target

TOLD_EVERY_S: Final = 0.2
FINEST_S: Final = 0.002  #: timers below that go by `select`, which counts in microseconds
DUE_AT_ONCE: Final = 1_000  #: requests that are looked at before replies are read
ERRORS_KEPT: Final = 20  #: kinds of errors that are told apart


@attrs.frozen
class Plan:
    """What one process is to do."""

    target: Target
    mix: Mix
    queues: tuple[bytes, ...]
    size: int  #: bytes of a body
    connections: int
    pipeline: int
    #: Requests of this process; None = until the time is over.
    requests: int | None
    seconds: float | None
    #: Requests a second of this process; None = as many as it can.
    rate: float | None
    number: int  #: of the process, from 0
    processes: int


@attrs.define
class CommandTally:
    """What became of the requests of one command."""

    #: Microseconds, and how many requests took so many; errors are not among them.
    latencies: Counter[int] = attrs.field(factory=Counter)
    #: Replies that are errors, by their text.
    errors: Counter[str] = attrs.field(factory=Counter)
    #: GETJOBs that found no job.
    empty: int = 0
    #: Turns that another command had, as no job was known.
    passed_over: int = 0


@attrs.frozen
class Progress:
    """How far it is."""

    done: int


@attrs.frozen
class Outcome:
    """How a load went: what became of each command, by the numbers of the mix."""

    tallies: tuple[CommandTally, ...] = ()
    ended_at: float = 0.0
    #: Why it ended before its time; "" when it did not.
    error: str = ""


class FineSelector(selectors.DefaultSelector):
    """The selector of the system, with short waits as long as was asked for: epoll rounds them up to a millisecond."""

    def select(self, timeout: float | None = None) -> "list[tuple[selectors.SelectorKey, int]]":
        if timeout is not None and 0 < timeout < FINEST_S:
            select.select([self.fileno()], [], [], timeout)
            timeout = 0
        return super().select(timeout)


class LoadConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, load: "Load", number: int) -> None:
        self._load = load
        self._number = number
        self._reader = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        self._under_way: deque[tuple[int, float]] = deque()  #: template and since when, of each
        self._sent = 0
        self.is_open = asyncio.get_running_loop().create_future()
        self._greetings = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        greetings = self._load.greetings
        self._greetings = len(greetings)
        if greetings:
            transport.write(b"".join(encode(words) for words in greetings))
        else:
            self.is_open.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        why = (isinstance(error, OSError) and error.strerror) or str(error or "the node has closed it")
        if not self.is_open.done():
            self.is_open.set_exception(ConnectionError(why))
        self._load.lost(why)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    @property
    def has_open_requests(self) -> bool:
        return bool(self._under_way)

    # Sending.

    def send_round(self, now: float) -> None:
        """Send the next requests, all at once."""
        self._send([now] * self._load.take(self._load.pipeline))

    def send_due(self, now: float) -> None:
        """Send what is due by now, as far as there is room."""
        load = self._load
        room = load.pipeline - len(self._under_way)
        due: list[float] = []
        while len(due) < room:
            at = load.due(self._number + (self._sent + len(due)) * load.plan.connections)
            if at is None or at > now:
                break
            due.append(at)
        self._sent += len(due)
        self._send(due)

    def _send(self, since: list[float]) -> None:
        if not since or self._transport is None:
            return
        chunks = []
        for at in since:
            template, data = self._load.requests.next()
            self._under_way.append((template, at))
            chunks.append(data)
        self._transport.write(b"".join(chunks))

    # Replies.

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        reader = self._reader
        reader.feed(data)
        if self._greetings and not self._greet():
            return
        next_of, counted = self._under_way.popleft, self._load.counted
        while (reply := reader.gets()) is not False:
            template, since = next_of()
            counted(template, since, now, reply)
        self._load.answered(self, now)

    def _greet(self) -> bool:
        """Read the replies to what a connection begins with; tell whether all are there."""
        while self._greetings and (reply := self._reader.gets()) is not False:
            self._greetings -= 1
            if isinstance(reply, hiredis.ReplyError) and not self.is_open.done():
                self.is_open.set_exception(ConnectionError(str(reply)))
        if not self._greetings and not self.is_open.done():
            self.is_open.set_result(None)
        return False


class Load:
    """The load of one process."""

    def __init__(self, plan: Plan, pipe: Pipe) -> None:
        self.plan = plan
        self.pipeline = plan.pipeline
        self.greetings = plan.target.access.greetings
        self.requests = Requests(plan.mix, plan.queues, b"x" * plan.size, plan.number, plan.processes)
        self._pipe = pipe
        self._tallies = [CommandTally() for _ in plan.mix.templates]
        self._latencies = [Latencies() for _ in plan.mix.templates]
        self._gets = [each.verb == GETS for each in plan.mix.templates]
        source = GETS if plan.mix.handed_out else ADDS
        self._tells = [each.verb == source for each in plan.mix.templates]
        self._taken = self._done = 0
        self._begin_at = 0.0
        self._next_due = 0  #: number of the request that the timer is set to
        self._lanes: list[LoadConnection] = []
        self._end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._last_reply_at = 0.0
        self._stopped_at: float | None = None
        self._is_cut = False  #: somebody has said that it is enough

    async def run(self) -> Outcome:
        try:
            await self._connect()
        except (OSError, ssl.SSLError) as error:
            return Outcome(error=f"no connection to {written(self.plan.target.address)}: {error}")
        self._pipe.send(None)  # ready
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe.fileno(), self._hear)
        why = await self._end
        loop.remove_reader(self._pipe.fileno())
        lanes, self._lanes = self._lanes, []
        for lane in lanes:
            lane.close()
        for tally, latencies, passed in zip(self._tallies, self._latencies, self.requests.passed_over, strict=True):
            tally.latencies, tally.passed_over = latencies.counts, passed
        return Outcome(tuple(self._tallies), self._last_reply_at, why)

    async def _connect(self) -> None:
        loop, target = asyncio.get_running_loop(), self.plan.target
        for number in range(self.plan.connections):
            made = partial(LoadConnection, self, number)
            if isinstance(target.address, Socket):
                _, lane = await loop.create_unix_connection(made, target.address.path)
            else:
                host, port = target.address
                context = None if target.tls is None else make_context(target.tls)
                name = target.tls.name_of(host) if target.tls else None
                _, lane = await loop.create_connection(made, host, port, ssl=context, server_hostname=name)
            self._lanes.append(lane)
            await asyncio.wait_for(lane.is_open, target.timeout)

    # What the parent says.

    def _hear(self) -> None:
        try:
            begin_at = self._pipe.recv()
        except EOFError:
            self._finish("nobody wants to know any more")
            return
        if begin_at is None:
            self._is_cut = True
            self._stop()
        else:
            asyncio.get_running_loop().call_at(begin_at, self._begin, begin_at)

    def _begin(self, begin_at: float) -> None:
        loop = asyncio.get_running_loop()
        self._begin_at = self._last_reply_at = begin_at
        if self.plan.seconds is not None:
            loop.call_at(begin_at + self.plan.seconds, self._stop)
        self._tell()
        if self.plan.rate is None:
            now = time.monotonic()
            for lane in self._lanes:
                lane.send_round(now)
        else:
            self._send_due()

    def _stop(self) -> None:
        """Send nothing that is not due already, or nothing at all, and end when the replies are there."""
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
        self._look()

    def _tell(self) -> None:
        """Tell how far it is, and see whether the node still answers."""
        if self._end.done():
            return
        now = time.monotonic()
        silent = now - self._last_reply_at
        if any(lane.has_open_requests for lane in self._lanes) and silent > self.plan.target.timeout:
            self._finish(
                f"{written(self.plan.target.address)} said nothing for {self.plan.target.timeout:g} s (--timeout)"
            )
            return
        self._pipe.send(Progress(self._done))
        asyncio.get_running_loop().call_later(TOLD_EVERY_S, self._tell)

    def _finish(self, error: str) -> None:
        if not self._end.done():
            self._end.set_result(error)

    # Without a rate.

    def take(self, wanted: int) -> int:
        """Take so many of the requests that are left, or as many as there are."""
        if self._stopped_at is not None:
            return 0
        if self.plan.requests is not None:
            wanted = min(wanted, self.plan.requests - self._taken)
        self._taken += wanted
        return wanted

    # With a rate.

    def due(self, number: int) -> float | None:
        """When a request is due; None when there is no such request."""
        assert self.plan.rate is not None
        if self._is_cut or (self.plan.requests is not None and number >= self.plan.requests):
            return None
        at = self._begin_at + number / self.plan.rate
        last = self._stopped_at
        if self.plan.seconds is not None:
            end = self._begin_at + self.plan.seconds
            last = end if last is None else min(last, end)
        return None if last is not None and at >= last else at

    def _send_due(self) -> None:
        """Send all that is due on whichever connection, and come back when the next is due."""
        loop, now = asyncio.get_running_loop(), time.monotonic()
        for _ in range(DUE_AT_ONCE):
            at = self.due(self._next_due)
            if at is None or self._end.done():
                return
            if at > now:
                loop.call_at(at, self._send_due)
                return
            self._lanes[self._next_due % self.plan.connections].send_due(now)
            self._next_due += 1
        loop.call_soon(self._send_due)

    # Replies.

    def counted(self, template: int, since: float, now: float, reply: object) -> None:
        self._done += 1
        if isinstance(reply, hiredis.ReplyError):
            errors = self._tallies[template].errors
            text = str(reply)
            errors[text if text in errors or len(errors) < ERRORS_KEPT else "others"] += 1
            return
        self._latencies[template].add(int((now - since) * US))
        if self._tells[template]:
            if self._gets[template]:
                self.requests.ids.extend(job[1] for job in reply or ())  # type: ignore[attr-defined]
            else:
                self.requests.ids.append(reply)  # type: ignore[arg-type]
        if self._gets[template] and not reply:
            self._tallies[template].empty += 1

    def answered(self, lane: LoadConnection, now: float) -> None:
        """Go on with a connection that has heard something."""
        self._last_reply_at = now
        if self.plan.rate is not None:
            lane.send_due(now)
        elif not lane.has_open_requests:
            lane.send_round(now)
        self._look()

    def lost(self, why: str) -> None:
        if self._lanes:
            self._finish(f"the connection to {written(self.plan.target.address)} broke: {why}")

    def _look(self) -> None:
        if not self._is_all_sent() or any(lane.has_open_requests for lane in self._lanes):
            return
        self._finish("")

    def _is_all_sent(self) -> bool:
        if self.plan.rate is not None:
            return self.due(self._done) is None
        if self._stopped_at is not None:
            return True
        return self.plan.requests is not None and self._taken >= self.plan.requests


def work(plan: Plan, pipe: Pipe) -> None:
    """Be one process of a load."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(FineSelector())) as runner:
        pipe.send(runner.run(_run(plan, pipe)))


async def _run(plan: Plan, pipe: Pipe) -> Outcome:
    return await Load(plan, pipe).run()
