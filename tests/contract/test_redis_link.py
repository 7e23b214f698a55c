"""When a connection to a Redis server is tried again, and what the log and the store hear of it, without a server."""

from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectError, DNSLookupError
from twisted.internet.error import TimeoutError as UserTimeout
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from disqued.config.kinds import RedisAddress
from disqued.persistence.interface import StoreError
from disqued.persistence.redis import link as redis_link
from disqued.persistence.redis.layout import Keys
from disqued.persistence.redis.link import (
    NEXT_ADDRESS_S,
    PATIENCE_S,
    Link,
    RedisConnection,
    ResponseError,
    ScriptMissing,
    ServerRefused,
    is_passing,
    reason_of,
)
from disqued.persistence.redis.reading import JobReader
from disqued.persistence.redis.server import RedisServer


@attrs.define(eq=False)
class Connection:
    """A connection whose server answers everything, until it is dropped."""

    why: str = ""
    is_foreign: bool = False
    asked: list[tuple[Any, ...]] = attrs.field(factory=list)
    error: Exception | None = None
    pong: bytes = b"PONG"
    hangs: bool = False

    def _answer(self, *command: Any, value: Any = None) -> "Deferred[Any]":
        self.asked.append(command)
        if self.hangs:
            return Deferred()
        return succeed(value) if self.error is None else fail(self.error)

    def auth(self, password: str, user: str | None) -> "Deferred[Any]":
        """Take the password."""
        return self._answer("auth", password, user)

    def ping(self) -> "Deferred[Any]":
        """Answer."""
        return self._answer("ping", value=self.pong)

    def select(self, database: int) -> "Deferred[Any]":
        """Take the database."""
        return self._answer("select", database)

    def script_load(self, script: bytes) -> "Deferred[Any]":
        """Take a script."""
        return self._answer("script", script)

    def drop(self, why: str) -> None:
        """End it."""
        self.why = self.why or why

    def whenDisconnected(self) -> "Deferred[None]":
        """Say that it is over."""
        return succeed(None)


class Bench:
    """A link whose attempts end as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, url: str = "redis://cache:6379/0") -> None:
        self.clock = Clock()
        self.next: list[Any] = []  #: connections and errors of the attempts to come; the last one stays
        self.attempts = 0
        self.ups = 0
        self.downs: list[tuple[str, bool, bool]] = []
        self.prepared: list[object] = []
        self.lines: list[str] = []
        reactor: Any = self.clock
        self.link = Link(RedisAddress.of(url), reactor, prepare=self._prepare,
                         up=self._up, down=lambda *told: self.downs.append(told), scripts=[b"one", b"two"])  # fmt: skip
        monkeypatch.setattr(self.link, "_reach", self._reach)

    def _up(self) -> None:
        self.ups += 1

    async def _prepare(self, connection: Any) -> None:
        self.prepared.append(connection)

    async def _reach(self) -> Any:
        self.attempts += 1
        answer = self.next.pop(0) if len(self.next) > 1 else self.next[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def hear(self, event: LogEvent) -> None:
        """Keep a line of the log."""
        self.lines.append(formatEvent(event))

    def pause(self) -> float:
        """Wait for the next attempt; returns after how many seconds it came."""
        (call,) = self.clock.getDelayedCalls()
        before, began = self.attempts, self.clock.seconds()
        self.clock.advance(call.getTime() - began)
        assert self.attempts == before + 1
        return round(self.clock.seconds() - began, 3)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A link to nobody."""
    bench = Bench(monkeypatch)
    globalLogPublisher.addObserver(bench.hear)
    yield bench
    globalLogPublisher.removeObserver(bench.hear)


@pytest.mark.parametrize(
    "word",
    ["LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "OOM", "MISCONF", "NOREPLICAS"],
)
def test_waiting_helps_against_what_a_server_says_of_its_state(bench: Bench, word: str) -> None:
    assert is_passing(ResponseError(f"{word} some reason"))
    bench.next = [Connection(error=ResponseError(f"{word} some reason"))]
    bench.link.start()
    assert bench.downs == [(f"{word} some reason", False, False)]


@pytest.mark.parametrize("text", ["ERR BUSY", "NOAUTH Authentication required.", "WRONGPASS", "busy", ""])
def test_waiting_helps_not_against_what_a_server_refuses(bench: Bench, text: str) -> None:
    assert not is_passing(ResponseError(text))
    bench.next = [Connection(error=ResponseError(text))]
    bench.link.start()
    assert [told[1:] for told in bench.downs] == [(False, True)]


def test_a_script_that_a_server_has_lost_is_loaded_with_the_next_connection() -> None:
    assert is_passing(ScriptMissing("NOSCRIPT No matching script."))


def test_attempts_are_made_with_pauses_that_double_up_to_two_seconds(bench: Bench) -> None:
    bench.next = [ConnectError()]
    bench.link.start()
    assert [bench.pause() for _ in range(7)] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert len(bench.lines) == 1, "the log hears once that the server is away"
    assert bench.lines[0].startswith("redis cache:6379: ")
    assert len(bench.downs) == 8
    assert bench.ups == 0
    for _ in range(2_000):
        bench.pause()
    assert bench.pause() == 2.0


def test_a_connection_that_works_ends_the_pauses_and_the_log_tells(bench: Bench) -> None:
    sound = Connection()
    bench.next = [ConnectError(), ConnectError(), ConnectError(), sound, ConnectError()]
    bench.link.start()
    for _ in range(3):
        bench.pause()
    assert (bench.ups, bench.prepared, bench.link.connection) == (1, [sound], sound)
    assert sound.asked == [("ping",), ("script", b"one"), ("script", b"two")]
    assert len(bench.lines) == 1, "that it is there is no proof that it works"
    bench.link.confirm()
    bench.link.confirm()
    assert bench.lines[1:] == ["redis cache:6379: connected again"]
    bench.downs.clear()
    bench.link.drop("it lies")
    assert sound.why == "it lies"
    assert bench.downs == [("it lies", False, False)]
    assert bench.lines[2:] == ["redis cache:6379: it lies; it is tried again"]
    assert [bench.pause() for _ in range(2)] == [0.1, 0.2]
    bench.link.drop("there is none")
    assert sound.why == "it lies"


def test_a_connection_that_is_lost_is_made_again_at_once_and_only_the_first_time(bench: Bench) -> None:
    first, second = Connection(), Connection()
    bench.next = [first, second, ConnectError()]
    bench.link.start()
    bench.link.confirm()
    first.why = "the connection was lost"
    lost: Any = first
    bench.link._lost(lost)
    assert bench.link.is_hopeful
    assert bench.downs == [("the connection was lost", True, False)]
    assert bench.pause() == 0
    assert bench.link.connection is second
    assert not bench.link.is_hopeful
    bench.link._lost(lost)
    assert bench.link.connection is second, "the end of the old connection is not that of the new one"
    lost = second
    bench.link._lost(lost)
    assert not bench.link.is_hopeful, "it was lost again before it had done anything"
    assert bench.downs[1][1:] == (False, False)
    assert bench.pause() == 0.2


@pytest.mark.parametrize(("failures", "pause"), [(0, 0.0), (1, 0.2)])
def test_a_connection_that_is_given_up_in_hope_is_made_again_at_once(bench: Bench, failures: int, pause: float) -> None:
    bench.next = [*[ConnectError()] * failures, Connection(), ConnectError()]
    bench.link.start()
    for _ in range(failures):
        bench.pause()
    bench.link.drop("a script is missing", hopeful=True)
    assert bench.downs[-1] == ("a script is missing", not failures, False)
    assert bench.pause() == pause


def test_a_server_is_greeted_with_user_password_and_database(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, "redis://ann:secret@cache:6379/3")
    connection = Connection()
    bench.next = [connection]
    bench.link.start()
    assert connection.asked[:3] == [("auth", "secret", "ann"), ("ping",), ("select", 3)]
    bench = Bench(monkeypatch, "redis://:secret@cache:6379/0")
    bench.next = [other := Connection()]
    bench.link.start()
    assert other.asked[:2] == [("auth", "secret", None), ("ping",)]
    assert len(other.asked) == 4


def test_what_answers_otherwise_than_a_server_is_refused_for_as_long_as_nobody_changes_it(bench: Bench) -> None:
    odd = Connection(pong=b"HTTP")
    bench.next = [odd, ConnectError()]
    bench.link.start()
    why = "what answers there is no Redis server: PING is answered with b'HTTP'"
    assert bench.downs == [(why, False, True)]
    assert odd.why == why
    assert bench.ups == 0
    assert bench.link.connection is None


def test_an_attempt_whose_connection_ends_tells_the_reason_of_the_connection(bench: Bench) -> None:
    for foreign in (True, False):
        connection = Connection(error=ConnectError(), why="cut off", is_foreign=foreign)
        bench.next = [connection]
        bench.link.start() if not bench.downs else bench.pause()
        assert bench.downs[-1] == ("cut off", False, foreign)


def test_a_link_that_is_stopped_connects_no_more(bench: Bench) -> None:
    bench.next = [ConnectError()]
    bench.link.start()
    stopped = Deferred.fromCoroutine(bench.link.stop())
    assert stopped.called
    assert bench.clock.getDelayedCalls() == []
    lost: Any = Connection()
    bench.link.connection = lost
    downs = len(bench.downs)
    stopped = Deferred.fromCoroutine(bench.link.stop())
    assert stopped.called
    assert lost.why == "it is not needed any more"
    assert bench.link.connection is None
    bench.link._end("gone")
    assert len(bench.downs) == downs
    assert bench.clock.getDelayedCalls() == []


def test_an_attempt_under_way_ends_with_its_link(bench: Bench) -> None:
    connection = Connection(hangs=True)
    bench.next = [connection]
    bench.link.start()
    Deferred.fromCoroutine(bench.link.stop())
    assert connection.why == "it is not needed any more"
    assert (bench.ups, bench.downs, bench.lines) == (0, [], [])
    assert bench.clock.getDelayedCalls() == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (DNSLookupError("no such host"), "the name of the host is not known"),
        (ConnectError(osError=111), "connection refused"),
        (UserTimeout(), "it cannot be reached in time"),
        (ServerRefused("two\nlines  of it"), "two lines of it"),
        (ServerRefused(), "ServerRefused"),
    ],
)
def test_a_reason_is_one_line(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


def test_a_server_has_limited_time_to_be_reached_and_each_of_its_addresses_is_tried_soon(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []

    class Endpoint:
        def __init__(self, reactor: object, host: str, port: int, **limits: float) -> None:
            asked.append((reactor, host, port, limits))

        def connect(self, factory: Any) -> "Deferred[Any]":
            return succeed(factory.buildProtocol(None))

    monkeypatch.undo()
    monkeypatch.setattr(redis_link, "HostnameEndpoint", Endpoint)
    reached = Deferred.fromCoroutine(bench.link._reach())
    assert asked == [(bench.clock, "cache", 6_379, {"timeout": PATIENCE_S, "attemptDelay": NEXT_ADDRESS_S})]
    assert reached.called
    assert isinstance(reached.result, RedisConnection)
    assert reached.result.replyTimeout == PATIENCE_S


def test_an_error_of_ours_in_an_attempt_ends_its_connection_and_is_told(bench: Bench) -> None:
    async def fail_to(_: object) -> None:
        raise RuntimeError("a bug")

    connection = Connection()
    bench.next = [connection]
    bench.link._prepare = fail_to
    bench.link.start()
    assert connection.why == "it is not needed any more"
    assert [line for line in bench.lines if "Internal error while connecting" in line]
    assert bench.ups == 0


# The server behind the link.


@pytest.fixture
def held() -> tuple[RedisServer, Connection]:
    """A server that can be used, and its connection."""
    reactor: Any = Clock()

    async def make_room(_: object) -> None:
        raise AssertionError("nothing is full")

    server = RedisServer(RedisAddress.of("redis://cache:6379/0"), Keys("disqued"), reactor, synced=print,
                         full=make_room, up=lambda: None, down=print)  # fmt: skip
    connection = Connection()
    server._link.connection = connection  # type: ignore[assignment]
    server._is_up()
    return server, connection


def test_a_connection_that_is_given_up_has_the_reason_that_it_had_already(held: tuple[RedisServer, Any]) -> None:
    server, connection = held
    connection.why = "what answers there is no Redis server"
    server.drop(connection, "the connection was lost")
    assert server.away == server.last_error == "what answers there is no Redis server"


def test_a_connection_without_a_reason_is_given_up_for_the_one_that_is_said(held: tuple[RedisServer, Any]) -> None:
    server, connection = held
    server.drop(Connection(), "another connection is not this one's")  # type: ignore[arg-type]
    assert server.away is None
    server.drop(connection, "the lease is gone")
    assert server.away == connection.why == "the lease is gone"


@pytest.mark.parametrize(
    ("answer", "loss", "works"),
    [([b"ok"], None, True), ([b"lost", b"was emptied"], "was emptied", True), ([b"lost", b"was emptied"], None, False)],
)
def test_a_lease_that_is_renewed_shows_that_the_server_works(
    held: tuple[RedisServer, Any], answer: list[Any], loss: str | None, works: bool
) -> None:
    server, connection = held
    server.loss = loss
    server._link._failures = 3
    server._beaten(answer, connection)
    assert (server._link._failures == 0, server.away is None) == (works, works)


def test_a_server_that_gives_fewer_jobs_than_were_written_stops_the_start() -> None:
    replies: dict[str, Any] = {"HMGET": [None, None], "HGETALL": [], "HSCAN": [b"0", []]}
    reader = JobReader(Keys("disqued"), lambda word, *_: succeed(replies[word]))
    with pytest.raises(StoreError, match=r"\{disqued\}:jobs gave 0 jobs where 3 were written"):
        list(reader.records(3, in_order=False))
