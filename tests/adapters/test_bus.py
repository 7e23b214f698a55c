"""The bus between daemons of one process, and against peers that are broken or hostile."""

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from struct import pack
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater
from twisted.logger import formatEvent, globalLogPublisher

from disqued import __version__
from disqued.core.model.ids import NODE_ID_LENGTH
from disqued.core.model.job import Job, JobOptions
from disqued.core.model.messages import (
    DELJOB,
    FACTS,
    MISSING,
    NEEDJOBS,
    PING,
    PONG,
    REPLJOB,
    VITALS,
    Greeting,
    Message,
    Target,
)
from disqued.core.model.peers import BRIEF_MANY
from disqued.net.cluster import bus as bus_module
from disqued.net.cluster import links
from disqued.wire.frames import PIECE_BYTES, FrameReader, FrameWriter, LinkAcceptor, LinkOpener
from disqued.wire.messages import decode, encode
from tests.adapters.inprocess import RawClient, Running, start, wait_until

async_test = pytest_twisted.ensureDeferred
SECRET = b"sesame"
STRANGER = b"c3" * 20
OPTIONS = JobOptions(ttl_ms=60_000, retry_ms=10_000, delay_ms=0, replicate=2)
JOB_ID = b"DI" + b"0" * 44 + b"SQ"

Begin = Callable[..., Running]


@pytest_twisted.async_yield_fixture
async def begin(tmp_path: Path) -> AsyncIterator[Begin]:
    """Start daemons with a bus, each with an id and a folder of its own."""
    running: list[Running] = []

    def begin_one(settings: str = "", *, name: str = "", secret: bytes = SECRET, **options: Any) -> Running:
        folder = tmp_path / (name or f"node-{len(running)}")
        folder.mkdir(exist_ok=True)
        running.append(start(folder, settings, seed=len(running), bus=True, secret=secret, **options))
        return running[-1]

    yield begin_one
    for daemon in running:
        await daemon.stop()


def identity(running: Running) -> bytes:
    return running.daemon.node.state.node_id


def is_linked(one: Running, other: Running) -> bool:
    return identity(other) in one.daemon.node.state.peers.linked


async def join(one: Running, other: Running) -> None:
    """Let two nodes know each other, with a link each way."""
    one.meet(other)
    await wait_until(lambda: is_linked(one, other) and is_linked(other, one))


def heard_by(running: Running) -> list[Message]:
    """Have the messages to a node noted that are not about who is there, nor what is said when a link opens."""
    heard: list[Message] = []
    handle = running.daemon.node.message

    def listen(sender: bytes, message: Message) -> None:
        if message[0] in (PING, PONG, VITALS, FACTS, MISSING):
            handle(sender, message)
        else:
            heard.append(message)

    listen_by(running, listen)
    return heard


def listen_by(running: Running, listener: Callable[[bytes, Message], None]) -> None:
    """Let messages to a node go elsewhere, through the links that are open and those that will be."""
    running.daemon.node.message = listener  # type: ignore[method-assign]
    for connection in running.daemon.bus._incoming.values():
        assert connection._inbox is not None
        connection._inbox._listener = listener


def counters(running: Running) -> bus_module.BusCounters:
    return running.daemon.bus.counters


def job(size: int) -> Job:
    return Job(JOB_ID, b"q", b"x" * size, 1, OPTIONS)


class Peer(RawClient):
    """Somebody who speaks the bus by hand."""

    def __init__(self, secret: bytes = SECRET, node_id: bytes = STRANGER, *, meets: bool = False) -> None:
        super().__init__()
        self.opener = LinkOpener(secret, Greeting(node_id, "127.0.0.1", 1, 2, 0, meets), b"n" * 32)
        self._fed = 0

    def dataReceived(self, data: bytes) -> None:
        """Keep what comes, which is no RESP."""
        self.received += data
        self._look()

    async def shake_hands(self) -> FrameWriter:
        """Open the link."""
        self.transport.write(self.opener.start())
        while self.opener.greeting is None:
            await self.until(lambda: len(self.received) > self._fed)
            data = bytes(self.received[self._fed :])
            self._fed += len(data)
            self.transport.write(self.opener.feed(data))
        return self.opener.writer()


async def connect(running: Running, **options: Any) -> Peer:
    """Connect to the bus of a daemon by hand."""
    endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", running.bus_port)
    peer = await connectProtocol(endpoint, Peer(**options))
    running.clients.append(peer)
    return peer


# Links and messages.


@async_test
async def test_two_nodes_meet_and_each_has_a_link_of_its_own_to_the_other(begin: Begin) -> None:
    one, other = begin(), begin()
    await join(one, other)
    for running in (one, other):
        await wait_until(lambda running=running: counters(running).messages_received >= 2)
        facts = running.daemon.bus.facts()
        assert (facts["cluster_links_out"], facts["cluster_links_in"]) == (1, 1)
        assert facts["cluster_enabled"] == 1
        assert facts["cluster_bus_port"] == running.bus_port
        assert facts["cluster_stats_messages_sent"] >= 2
        assert facts["cluster_net_input_bytes"] > 100
        assert facts["cluster_net_output_bytes"] > 100


@pytest.mark.reference
@async_test
async def test_the_messages_of_one_turn_share_a_frame_and_keep_their_order(begin: Begin) -> None:
    one, other = begin(), begin()
    await join(one, other)
    heard = heard_by(other)
    frames: list[int] = []
    connection = one.daemon.bus._open[identity(other)]
    write = connection.transport.write
    connection.transport.write = lambda data: (frames.append(len(data)), write(data))
    for number in range(100):
        one.send((identity(other), (NEEDJOBS, b"queue", number)))
    assert frames == []
    await wait_until(lambda: len(heard) == 100)
    assert [message[2] for message in heard] == list(range(100))
    # Pings and pongs may have gone before and after them.
    assert len([size for size in frames if size > 100 * len(encode((NEEDJOBS, b"queue", 1), 0))]) == 1


@async_test
async def test_what_other_nodes_say_is_read_in_the_rounds_of_clients(begin: Begin) -> None:
    one, other = begin(), begin()
    await join(one, other)
    await wait_until(lambda: one.daemon.bus._incoming)
    (connection,) = one.daemon.bus._incoming.values()
    assert connection.transport.handle is not None


@pytest.mark.reference
@async_test
async def test_large_messages_arrive_whole(begin: Begin) -> None:
    one, other = begin(), begin()
    await join(one, other)
    heard = heard_by(other)
    sizes = [10, 3 * PIECE_BYTES + 7, 5, PIECE_BYTES, 2 * PIECE_BYTES]
    one.send(*((identity(other), (REPLJOB, job(size), True)) for size in sizes))
    await wait_until(lambda: len(heard) == len(sizes))
    assert [len(message[1].body) for message in heard] == sizes


@pytest.mark.reference
@async_test
async def test_messages_under_way_count_towards_what_connections_hold(begin: Begin) -> None:
    one, other = begin(), begin()
    await join(one, other)
    heard = heard_by(other)
    one.send(*((identity(other), (REPLJOB, job(8_000_000), True)) for _ in range(4)))
    await wait_until(lambda: len(heard) == 4)
    assert other.daemon.buffers.peak > 1_000_000
    assert one.daemon.buffers.peak > 1_000_000
    await wait_until(lambda: one.daemon.buffers.used == other.daemon.buffers.used == 0)


@async_test
async def test_a_link_that_holds_most_is_ended_and_opened_again(begin: Begin) -> None:
    one, other = begin(), begin()
    await join(one, other)
    [link] = other.daemon.bus._incoming.values()
    link.end_for_buffers(1)
    await wait_until(lambda: not is_linked(one, other))
    await wait_until(lambda: is_linked(one, other))
    assert other.daemon.bus._incoming[identity(one)] is not link


@async_test
async def test_a_message_to_a_node_without_a_link_is_dropped_and_counted(begin: Begin) -> None:
    one = begin()
    one.send((STRANGER, (DELJOB, JOB_ID)))
    await wait_until(lambda: counters(one).dropped_without_link == 1)


@async_test
async def test_a_node_that_comes_back_is_linked_again_by_both(begin: Begin) -> None:
    one, other = begin(), begin()
    await join(one, other)
    bus_port = other.bus_port
    await other.stop()
    await wait_until(lambda: not is_linked(one, other))
    again = begin(name="node-1", bus_port=bus_port)
    assert identity(again) == identity(other)
    await wait_until(lambda: is_linked(one, again))


@async_test
async def test_a_second_node_with_the_id_of_one_that_answers_is_refused_and_told_why(
    begin: Begin, tmp_path: Path
) -> None:
    one, other = begin(), begin()
    await join(one, other)
    twin_folder = tmp_path / "twin"
    twin_folder.mkdir()
    (twin_folder / "nodes.conf").write_bytes((tmp_path / "node-1" / "nodes.conf").read_bytes())
    link = one.daemon.bus._incoming[identity(other)]
    twin = begin(name="twin")
    assert identity(twin) == identity(other)
    twin.meet(one)
    await wait_until(lambda: counters(one).handshakes_refused > 0)
    await wait_until(lambda: counters(twin).refused_by_others > 0)
    assert one.daemon.bus._incoming[identity(other)] is link
    assert is_linked(one, other)
    # When the first one is gone, the other one may come.
    await other.stop()
    await wait_until(lambda: one.daemon.bus._incoming.get(identity(twin)) not in (None, link))


@async_test
async def test_a_link_that_the_node_finds_stale_is_made_anew(begin: Begin) -> None:
    one, other = begin(), begin()
    await join(one, other)
    old = one.daemon.bus._open[identity(other)]
    one.daemon.node.state.peers.by_id[identity(other)].stale = True
    one.daemon.node.outbox.members_changed = True
    one.send()
    await wait_until(lambda: one.daemon.bus._open.get(identity(other)) not in (None, old))
    assert is_linked(one, other)
    assert old.closed


@async_test
async def test_a_node_that_keeps_ending_its_links_is_named_once_with_its_version(begin: Begin) -> None:
    one, other = begin(), begin()
    await join(one, other)
    lines: list[str] = []
    globalLogPublisher.addObserver(observer := lambda event: lines.append(str(formatEvent(event))))
    for _ in range(BRIEF_MANY + 2):
        await wait_until(lambda: is_linked(one, other))
        one.daemon.bus._open[identity(other)].end("it was ended there")
    globalLogPublisher.removeObserver(observer)
    [line] = [line for line in lines if "keeps ending the link" in line]
    assert identity(other).decode() in line
    assert f"to this node, version {__version__}" in line


@async_test
async def test_a_node_that_is_forgotten_is_not_dialed_any_more(begin: Begin) -> None:
    one, other = begin(), begin()
    await join(one, other)
    node = one.daemon.node
    node.begin()
    node.membership.forget(identity(other))
    one.send()
    await wait_until(lambda: not one.daemon.bus._links and not one.daemon.bus._open)
    refused = node.state.peers.refused
    other.send((identity(one), (DELJOB, JOB_ID)))
    await wait_until(lambda: node.state.peers.refused > refused)


@async_test
async def test_a_node_with_a_new_id_opens_every_link_anew(begin: Begin) -> None:
    one, other = begin(), begin()
    await join(one, other)
    old = identity(other)
    other.daemon.node.begin()
    other.daemon.node.membership.reset(hard=True)
    other.send()
    for _ in range(2):
        await deferLater(reactor, 0)
    assert not other.daemon.bus._links
    assert not other.daemon.bus._incoming
    assert identity(other) != old
    await join(other, one)


@async_test
async def test_a_meeting_with_nobody_is_tried_again_and_given_up(begin: Begin) -> None:
    one = begin("cluster-node-timeout 1")
    node = one.daemon.node
    node.begin()
    node.membership.meet("127.0.0.1", 1, 1)
    one.send()
    await wait_until(lambda: bool(one.daemon.bus._links))
    await wait_until(lambda: not one.daemon.bus._links)
    assert not [
        call
        for call in reactor.getDelayedCalls()
        if isinstance(getattr(call.func, "__self__", None), links.OutgoingLink)
    ]


@async_test
async def test_a_lone_node_sets_no_timer_for_its_bus(begin: Begin) -> None:
    one = begin()
    await wait_until(lambda: one.daemon.bus._follow_call is None)
    owners = [getattr(call.func, "__self__", None) for call in reactor.getDelayedCalls()]
    assert one.daemon.bus not in owners
    assert not [owner for owner in owners if isinstance(owner, links.OutgoingLink | links.IncomingConnection)]


@async_test
async def test_without_a_secret_only_this_machine_is_dialed(begin: Begin) -> None:
    one = begin(secret=b"")
    assert one.daemon.bus._may_dial(Target("127.0.0.1", 1, b"", meets=True))
    assert not one.daemon.bus._may_dial(Target("192.0.2.1", 1, b"", meets=True))
    assert begin().daemon.bus._may_dial(Target("192.0.2.1", 1, b"", meets=True))


@pytest.mark.reference
@async_test
async def test_a_bug_that_a_message_meets_is_reported_and_the_node_goes_on(begin: Begin) -> None:
    one, other = begin(), begin()
    await join(one, other)
    handle = other.daemon.node.message

    def stumble(sender: bytes, message: Message) -> None:
        if message[0] == DELJOB:
            raise ZeroDivisionError
        handle(sender, message)

    listen_by(other, stumble)
    one.send((identity(other), (DELJOB, JOB_ID)), (identity(other), (DELJOB, JOB_ID)))
    await wait_until(lambda: other.daemon.crashes.count == 2)
    assert is_linked(one, other)
    report = next(other.daemon.config.dir.glob("crash-*"))
    assert "ZeroDivisionError" in report.read_text()
    report.unlink()


@pytest.mark.reference
@async_test
async def test_a_message_that_cannot_be_written_is_reported_and_the_others_leave(begin: Begin) -> None:
    one, other = begin(), begin()
    await join(one, other)
    heard = heard_by(other)
    one.send((identity(other), (NEEDJOBS, None, 1)), (identity(other), (NEEDJOBS, b"q", 2)))
    await wait_until(lambda: heard == [(NEEDJOBS, b"q", 2)])
    assert one.daemon.crashes.count == 1


@pytest.mark.reference
@async_test
async def test_a_daemon_that_is_to_end_hears_nothing_more_and_goes_on_where_it_was_if_it_stays(begin: Begin) -> None:
    one, other = begin(), begin()
    await join(one, other)
    heard = heard_by(other)
    other.daemon.bus.pause()
    one.send(*((identity(other), (NEEDJOBS, b"q", number)) for number in range(3)))
    received = counters(other).bytes_in
    await wait_until(lambda: counters(other).bytes_in > received)
    assert heard == []
    other.daemon.bus.resume()
    await wait_until(lambda: len(heard) == 3)


# Strangers, and worse.


@async_test
async def test_who_has_another_secret_is_told_so_and_gets_no_link(begin: Begin) -> None:
    one, other = begin(), begin(secret=b"another")
    one.meet(other)
    await wait_until(lambda: counters(other).handshakes_refused > 0 and counters(one).refused_by_others > 0)
    assert not is_linked(one, other)
    assert not one.daemon.node.state.peers.by_id
    assert not other.daemon.node.state.peers.by_id


@async_test
@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 1_000, b"RCmb\0\0\0\x90" + b"x" * 136, b"disqued\1\1\xff\xff"]
)
async def test_garbage_is_refused_and_changes_nothing(begin: Begin, data: bytes) -> None:
    one = begin()
    peer = await connect(one)
    peer.transport.write(data)
    await peer.closed()
    assert counters(one).handshakes_refused == 1
    assert not one.daemon.bus._handshakes
    assert b"disqued" in peer.received


@async_test
async def test_strangers_do_not_fill_the_log(begin: Begin) -> None:
    one = begin()
    lines: list[str] = []
    globalLogPublisher.addObserver(observer := lambda event: lines.append(str(formatEvent(event))))
    for _ in range(3):
        peer = await connect(one)
        peer.transport.write(b"GET / HTTP/1.1\r\n\r\n")
        await peer.closed()
    globalLogPublisher.removeObserver(observer)
    assert len([line for line in lines if "not taken" in line]) == 1


@async_test
async def test_a_handshake_that_is_never_finished_is_ended(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "HANDSHAKE_S", 0.05)
    one = begin()
    silent, half = await connect(one), await connect(one)
    half.transport.write(half.opener.start())
    await silent.closed()
    await half.closed()
    assert b"took longer" in half.received
    assert not one.daemon.bus._handshakes


@async_test
async def test_somebody_who_answers_and_then_says_nothing_is_given_up(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "HANDSHAKE_S", 0.05)
    one = begin()
    deaf = Deaf()
    port = deaf.meet(one)
    await wait_until(lambda: deaf.lost > 1)
    await port.stopListening()


@async_test
async def test_too_many_strangers_push_out_the_first_of_them(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_module, "HANDSHAKES_MAX", 3)
    one = begin()
    strangers = [await connect(one) for _ in range(3)]
    await wait_until(lambda: len(one.daemon.bus._handshakes) == 3)
    await (await connect(one, meets=True)).shake_hands()
    await strangers[0].closed()
    assert counters(one).handshakes_pushed_out == 1
    assert not strangers[1].lost


@async_test
async def test_a_node_that_connects_again_takes_the_place_of_its_older_link(begin: Begin) -> None:
    one = begin()
    first = await connect(one)
    await first.shake_hands()
    second = await connect(one)
    await second.shake_hands()
    await first.closed()
    assert len(one.daemon.bus._incoming) == 1


@async_test
async def test_a_node_that_is_not_known_can_prove_itself_and_still_changes_nothing(begin: Begin) -> None:
    one = begin()
    peer = await connect(one)
    writer = await peer.shake_hands()
    peer.transport.write(writer.batch([encode((REPLJOB, job(5), False), 0)]))
    await wait_until(lambda: one.daemon.node.state.peers.refused == 1)
    assert not one.daemon.node.state.peers.by_id
    assert not len(one.daemon.node.state.jobs)


def again(frame: bytes) -> bytes:
    return frame + frame


def flipped(frame: bytes) -> bytes:
    return frame[:-20] + bytes([frame[-20] ^ 1]) + frame[-19:]


def enormous(frame: bytes) -> bytes:
    return pack("<I", 0xFFFF_FFFF) + frame


def without_length(frame: bytes) -> bytes:
    return b"\0" * 60


@async_test
@pytest.mark.parametrize(
    ("spoil", "counter", "heard"),
    [
        (again, "replayed", 1),
        (flipped, "forged", 0),
        (enormous, "oversized", 0),
        (without_length, "malformed", 0),
    ],
)
async def test_what_no_sound_node_writes_ends_the_link_and_is_counted(
    begin: Begin, spoil: Callable[[bytes], bytes], counter: str, heard: int
) -> None:
    one = begin()
    peer = await connect(one)
    writer = await peer.shake_hands()
    peer.transport.write(spoil(writer.batch([encode((DELJOB, JOB_ID), 0)])))
    await peer.closed()
    assert getattr(counters(one), counter) == 1
    assert counters(one).messages_received == heard
    assert one.daemon.bus.facts()[f"cluster_frames_{counter}"] == 1
    client = await one.connect()
    assert await client.call("PING") == b"PONG"


@async_test
async def test_a_message_that_is_none_ends_the_link_and_is_counted(begin: Begin) -> None:
    one = begin()
    peer = await connect(one)
    writer = await peer.shake_hands()
    peer.transport.write(writer.batch([encode((DELJOB, JOB_ID), 0), b"\xff", encode((DELJOB, JOB_ID), 0)]))
    await peer.closed()
    assert counters(one).bad_messages == 1
    assert counters(one).messages_received == 1


@async_test
async def test_a_message_larger_than_clients_could_send_is_refused_by_its_size(begin: Begin) -> None:
    one = begin("proto-max-bulk-len 1kb")
    peer = await connect(one)
    writer = await peer.shake_hands()
    peer.transport.write(writer.piece(bus_module.MESSAGE_SLACK + 2_049, b"x"))
    await peer.closed()
    assert counters(one).oversized == 1


@async_test
async def test_who_is_dialed_may_not_write_on_the_link(begin: Begin) -> None:
    one = begin()
    deaf = Deaf(SECRET, chatters=True)
    port = deaf.meet(one)
    await wait_until(lambda: deaf.lost > 0)
    (link,) = one.daemon.bus._links.values()
    assert link._told == "the other end writes on a link that is ours to write on"
    await port.stopListening()


@pytest.mark.reference
@async_test
async def test_clients_have_their_turn_while_a_peer_floods_the_node(begin: Begin) -> None:
    one = begin()
    done = 0

    def take_long(sender: bytes, message: Message) -> None:
        nonlocal done
        done += 1
        time.sleep(0.002)

    listen_by(one, take_long)
    peer, client = await connect(one), await one.connect()
    writer = await peer.shake_hands()
    peer.transport.write(writer.batch([encode((DELJOB, JOB_ID), 0)] * 1_000))
    await wait_until(lambda: done > 0)
    assert await client.call("PING") == b"PONG"
    assert done < 200
    assert one.daemon.bus.busy == 1
    peer.transport.abortConnection()
    listen_by(one, lambda sender, message: None)
    await wait_until(lambda: one.daemon.bus.busy == 0)


class Deaf(Factory):
    """Listens for links; each is opened as by a node that reads nothing afterwards."""

    noisy = False

    def __init__(self, secret: bytes = b"", *, chatters: bool = False, node_id: bytes = STRANGER) -> None:
        self.secret = secret
        self.chatters = chatters
        self.node_id = node_id
        self.port = 0
        self.connections: list[Any] = []
        self.lost = 0

    def meet(self, running: Running) -> Any:
        """Have a node join this one; returns the port that is to be closed."""
        port = reactor.listenTCP(0, self, interface="127.0.0.1")
        self.port = port.getHost().port
        running.daemon.node.begin()
        running.daemon.node.membership.meet("127.0.0.1", 1, self.port)
        running.send()
        return port

    def buildProtocol(self, addr: Any) -> RawClient:
        """Take a link."""
        return DeafEnd(self)


class DeafEnd(RawClient):
    """One link of somebody who does not read."""

    def __init__(self, factory: Deaf) -> None:
        super().__init__()
        self.deaf = factory
        own = Greeting(factory.node_id, "127.0.0.1", 1, factory.port, 0, False)
        self.acceptor = LinkAcceptor(factory.secret, own, b"m" * 32)
        factory.connections.append(self)

    def dataReceived(self, data: bytes) -> None:
        """Open the link and read no more, or answer the first frame; without a secret keep silent."""
        if not self.deaf.secret:
            return
        if self.acceptor.greeting is not None:
            self.transport.write(b"hello")
            return
        self.transport.write(self.acceptor.feed(data))
        if self.acceptor.greeting is not None and not self.deaf.chatters:
            self.transport.pauseProducing()

    def connectionLost(self, reason: Any = None) -> None:
        """Note the end."""
        self.deaf.lost += 1


@async_test
async def test_a_peer_that_never_reads_costs_bounded_memory_and_no_client_waits(begin: Begin) -> None:
    one = begin("cluster-link-buffer-limit 1mb")
    deaf = Deaf(SECRET)
    port = deaf.meet(one)
    await wait_until(lambda: STRANGER in one.daemon.node.state.peers.linked)
    large = job(100_000)
    client = await one.connect()
    for _ in range(100):
        one.send(*[(STRANGER, (REPLJOB, large, True))] * 10)
        assert await client.call("PING") == b"PONG"
    await wait_until(lambda: counters(one).dropped_buffer_full > 0)
    buffered = one.daemon.bus.facts()["cluster_buffered_bytes"]
    assert (1 << 20) / 2 < buffered < (1 << 20) + 3 * PIECE_BYTES
    connection = deaf.connections[0]
    connection.transport.resumeProducing()
    reader = connection.acceptor.reader(1 << 20)
    connection.dataReceived = reader.feed
    copies: list[Message] = []

    def all_came() -> bool:
        copies.extend(copies_read(reader))
        return len(copies) + counters(one).dropped_buffer_full == 1_000

    await wait_until(all_came)
    assert one.daemon.bus.facts()["cluster_buffered_bytes"] == 0
    connection.transport.abortConnection()
    await port.stopListening()


def copies_read(reader: FrameReader) -> list[Message]:
    """Take out the copies of jobs that came."""
    copies = []
    while (text := reader.next()) is not None:
        message = decode(text)
        if message[0] == REPLJOB:
            copies.append(message)
    return copies


def test_ids_in_these_tests_have_the_form_of_ids() -> None:
    assert len(STRANGER) == NODE_ID_LENGTH
