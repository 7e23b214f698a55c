"""The ways to a node, of both clients: TLS with all that certificates can be, Unix sockets, URLs, and strangers."""

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import gatherResults
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.threads import deferToThread

from disqued.client import AccessDenied, BadReply, NotTrusted, Tls, Unreachable
from tests.certificates import Authority
from tests.integration.client_sides import Gate, address, until
from tests.integration.cluster import Cluster, ends_well
from tests.integration.daemon import HOST, Daemon, launch
from tests.integration.fronts import Front

SHORT = {"patience": 0.5, "reply_timeout": 1, "connect_timeout": 1}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom nodes and clients are known to."""
    return Authority(tmp_path_factory.mktemp("authority"))


@attrs.define
class Fronts:
    """Ports with TLS, by what is to be seen of them."""

    authority: Authority
    started: list[Front] = attrs.field(factory=list)

    def front(self, name: str, *hosts: str, knows: Path | None = None, **more: Any) -> Front:
        """Listen with a certificate of the authority."""
        self.started.append(Front(self.authority.issue(name, *hosts, **more), knows))
        self.started[-1].listen()
        return self.started[-1]

    async def stop(self) -> None:
        """Close all."""
        await gatherResults([front.stop() for front in self.started])


@pytest_twisted.async_yield_fixture
async def fronts(authority: Authority) -> AsyncIterator[Fronts]:
    made = Fronts(authority)
    yield made
    await made.stop()


def url(front: Front, host: str = HOST) -> str:
    return f"disqueds://{host}:{front.port}"


@attrs.define
class Differing(Cluster):
    """Nodes that are told something each of its own."""

    own: list[tuple[str, ...]] = attrs.field(kw_only=True)

    def launch(self, number: int, port: int = 0) -> Daemon:
        return launch(self.directory / f"node-{number}", (*self.options, *self.own[number]), port=port)


async def works(client: Any, queue: str) -> None:
    """A job goes all its way."""
    job_id = await client.add(queue, "x", retry=60)
    [job] = await client.get(queue)
    assert (job.id, await client.ack(job)) == (job_id, 1)


@pytest_twisted.ensureDeferred
async def test_a_node_is_reached_by_tls(side: Any, daemon: Daemon, fronts: Fronts, queue: str) -> None:
    front = fronts.front("node", HOST)
    front.leads_to(daemon)
    client = side.client(url(front), tls=Tls(ca=fronts.authority.file))
    await works(client, queue)
    assert client.node == f"{HOST}:{front.port}"
    await works(side.client((HOST, front.port), tls=Tls(ca=fronts.authority.file)), queue)
    await works(side.client(f"rediss://{HOST}:{front.port}/0?ca={fronts.authority.file}"), queue)


@pytest_twisted.ensureDeferred
async def test_the_nodes_that_hello_names_are_reached_by_tls_too(side: Any, tmp_path: Path, fronts: Fronts) -> None:
    ends = [fronts.front(f"node-{n}", "queue.example") for n in range(2)]
    with ends_well(Differing(tmp_path, own=[end.options for end in ends])) as cluster:
        await deferToThread(cluster.start, 2)
        for end, node in zip(ends, cluster.nodes, strict=True):
            end.leads_to(node)
        tls = Tls(ca=fronts.authority.file, host_name="queue.example")
        client = side.client(url(ends[0]), tls=tls)
        gate = Gate()
        gate.open()
        worker = side.worker(client, ["q"], partial(side.waits, gate), poll=0.2, live=True)
        await until(lambda: client.known_nodes == {(HOST, end.port) for end in ends}, "both known by their fronts")
        await until(lambda: client.node == f"{HOST}:{ends[0].port}", "a node that is talked to")
        cluster.kill(0)
        await side.client(url(ends[1]), tls=tls).add("q", "x", replicate=1)
        await until(lambda: worker.figures.done == 1, "a job done on the other node")
        worker.stop()
        await worker.ended


@pytest_twisted.ensureDeferred
async def test_a_certificate_that_is_not_in_order_is_told_at_once(
    side: Any, daemon: Daemon, fronts: Fronts, tmp_path: Path, queue: str
) -> None:
    trusting = Tls(ca=fronts.authority.file)
    cases = [
        (fronts.front("right", HOST), Tls(ca=Authority(tmp_path, "somebody else").file), "unable to get local issuer"),
        (fronts.front("right", HOST), None, "unable to get local issuer|self-signed"),
        (fronts.front("over", HOST, ends_in=timedelta(-1)), trusting, "certificate has expired"),
        (fronts.front("other", "127.0.0.2"), trusting, r"not (valid )?for '127\.0\.0\.1'"),
        (fronts.front("named", HOST), Tls(ca=fronts.authority.file, host_name="b.example"), "for 'b.example'"),
    ]
    for front, tls, text in cases:
        front.leads_to(daemon)
        client = side.client(url(front), tls=tls)
        for _ in range(2):
            with pytest.raises(NotTrusted, match=f"^the certificate of the node is not trusted: .*({text})"):
                await client.add(queue, "x")
        worker = side.worker(client, [queue], print)
        with pytest.raises(NotTrusted, match=text):
            await worker.ended
    assert daemon.call("QLEN", queue) == 0


@pytest_twisted.ensureDeferred
async def test_the_name_in_a_certificate_may_be_another_one(
    side: Any, daemon: Daemon, fronts: Fronts, queue: str
) -> None:
    front = fronts.front("queue", "queue.example")
    front.leads_to(daemon)
    ca = fronts.authority.file
    await works(side.client(url(front), tls=Tls(ca=ca, host_name="queue.example")), queue)
    await works(side.client(url(front), tls=Tls(ca=ca, check_host_name=False)), queue)


@pytest_twisted.ensureDeferred
async def test_a_node_that_wants_to_know_its_clients_is_shown_a_certificate(
    side: Any, daemon: Daemon, fronts: Fronts, tmp_path: Path, queue: str
) -> None:
    front = fronts.front("node", HOST, knows=fronts.authority.file)
    front.leads_to(daemon)
    ca = fronts.authority.file
    key, certificate = fronts.authority.issue("ann", password=b"sesame")
    tls = Tls(ca=ca, certificate=certificate, key=key, key_password="sesame")
    await works(side.client(url(front), tls=tls), queue)
    strange_key, strange = Authority(tmp_path, "somebody else").issue("eve")
    for refused in (Tls(ca=ca), Tls(ca=ca, certificate=strange, key=strange_key)):
        client = side.client(url(front), tls=refused)
        with pytest.raises(NotTrusted, match=r"the node refuses our certificate: .*alert"):
            await client.add(queue, "x")
    assert daemon.call("QLEN", queue) == 0


@pytest_twisted.ensureDeferred
async def test_a_certificate_that_is_renewed_is_taken_up(
    side: Any, daemon: Daemon, fronts: Fronts, tmp_path: Path, queue: str
) -> None:
    front = fronts.front("node", HOST, knows=fronts.authority.file)
    front.leads_to(daemon)
    eve = Authority(tmp_path, "somebody else").issue("eve")
    ours = tmp_path / "ours.pem"
    ours.write_bytes(b"".join(path.read_bytes() for path in eve))
    client = side.client(url(front), tls=Tls(ca=fronts.authority.file, certificate=ours))
    with pytest.raises(NotTrusted, match="refuses our certificate"):
        await client.qlen(queue)
    ours.write_bytes(b"".join(path.read_bytes() for path in fronts.authority.issue("ann")))
    await works(client, queue)
    ours.write_bytes(b"nonsense")
    await front.stop()
    with pytest.raises(NotTrusted, match=r"files of TLS have changed and cannot be used: certificate .*ours\.pem"):
        await client.qlen(queue)
    front.listen()


@pytest_twisted.ensureDeferred
async def test_another_node_is_asked_when_a_certificate_is_not_in_order(
    side: Any, daemon: Daemon, fronts: Fronts, queue: str
) -> None:
    good, bad = fronts.front("good", HOST), fronts.front("bad", "127.0.0.2")
    for front in (good, bad):
        front.leads_to(daemon)
    for _ in range(4):
        client = side.client(url(bad), url(good), tls=Tls(ca=fronts.authority.file))
        await works(client, queue)
        assert client.node == f"{HOST}:{good.port}"


@pytest_twisted.ensureDeferred
async def test_a_port_without_tls_is_told_from_one_with_it(side: Any, daemon: Daemon, fronts: Fronts) -> None:
    with pytest.raises(NotTrusted, match="TLS: "):
        await side.client(f"disqueds://{address(daemon)}", **SHORT).qlen("q")
    front = fronts.front("node", HOST)
    front.leads_to(daemon)
    with pytest.raises(Unreachable):
        await side.client(f"disqued://{HOST}:{front.port}", **SHORT).qlen("q")


@pytest_twisted.ensureDeferred
async def test_a_node_that_is_away_behind_its_tls_is_waited_for(
    side: Any, daemon: Daemon, fronts: Fronts, queue: str
) -> None:
    front = fronts.front("node", HOST)  # which leads nowhere, and ends each connection
    client = side.client(url(front), tls=Tls(ca=fronts.authority.file), **SHORT)
    with pytest.raises(Unreachable):
        await client.qlen(queue)
    patient = side.client(url(front), tls=Tls(ca=fronts.authority.file))
    waiting = patient.qlen(queue)
    front.leads_to(daemon)
    assert await waiting == 0
    await front.stop()
    with pytest.raises(Unreachable):
        await client.qlen(queue)
    front.listen()
    await works(patient, queue)


@pytest.mark.parametrize("what", ["ca", "certificate", "key"])
def test_files_that_cannot_be_used_are_told_before_anything_is_asked(
    side: Any, what: str, authority: Authority, tmp_path: Path
) -> None:
    key, certificate = authority.issue("ann")
    files = {"ca": authority.file, "certificate": certificate, "key": key}
    with pytest.raises(ValueError, match=r"TLS: .*No such file.*missing\.pem"):
        side.client("disqueds://host", tls=Tls(**{**files, what: tmp_path / "missing.pem"}))
    (tmp_path / "broken.pem").write_text("nonsense")
    with pytest.raises(ValueError, match=rf"TLS: {'ca' if what == 'ca' else 'certificate'} .*broken\.pem.*cannot be"):
        side.client("disqueds://host", tls=Tls(**{**files, what: tmp_path / "broken.pem"}))


def test_a_key_that_is_not_opened_by_its_password_is_told(side: Any, authority: Authority) -> None:
    key, certificate = authority.issue("ann", password=b"sesame")
    for password in (None, "simsala"):
        with pytest.raises(ValueError, match=r"TLS: certificate .*ann\.pem with key .*ann\.key cannot be used"):
            side.client("disqueds://host", tls=Tls(certificate=certificate, key=key, key_password=password))


@pytest_twisted.ensureDeferred
async def test_a_port_that_begins_no_tls_is_given_up(side: Any, stranger: Callable[[bytes], int]) -> None:
    with pytest.raises(Unreachable, match=r"handshake|timed out|Timeout"):
        await side.client(f"disqueds://{HOST}:{stranger(b'')}", **SHORT).qlen("q")


# Unix sockets.


@pytest.fixture(scope="module")
def behind_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Path]]:
    """A daemon, and its socket."""
    folder = tmp_path_factory.mktemp("socket")
    running = launch(folder / "data", ("--unixsocket", str(folder / "s")))
    yield running, folder / "s"
    running.stop()


@pytest_twisted.ensureDeferred
async def test_a_node_is_reached_by_its_socket_alone(side: Any, behind_socket: tuple[Daemon, Path], queue: str) -> None:
    daemon, path = behind_socket
    client = side.client(f"unix://{path}")
    await works(client, queue)
    assert (client.node, len(client.known_nodes)) == (f"unix://{path}", 1)
    waiting = client.get(queue)
    await until(lambda: daemon.blocked() == 1, "a consumer that waits")
    job_id = await client.add(queue, "x", retry=60)
    assert [job.id for job in await waiting] == [job_id]
    away = path.with_name("away")
    with pytest.raises(Unreachable, match=f"unix://{away}: .*(No such file|not found)"):
        await side.client(f"unix://{away}", **SHORT).qlen(queue)
    waiting = side.client(f"unix://{away}").qlen(queue)
    away.symlink_to(path)
    assert await waiting == 0
    away.unlink()


@pytest_twisted.ensureDeferred
async def test_a_socket_comes_first_and_the_other_nodes_are_there_when_it_is_gone(
    side: Any, behind_socket: tuple[Daemon, Path], daemon: Daemon, queue: str
) -> None:
    other, path = behind_socket
    link = path.with_name("link")
    link.symlink_to(path)
    client = side.client(address(daemon), f"unix://{link}")
    await works(client, queue)
    assert client.node == f"unix://{link}"
    link.unlink()
    other.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert await client.qlen(queue) == 0  # an addition could be uncertain
    await works(client, queue)
    assert client.node == address(daemon)


@pytest_twisted.ensureDeferred
async def test_a_password_may_be_in_the_url(side: Any, behind_socket: tuple[Daemon, Path], queue: str) -> None:
    daemon, path = behind_socket
    daemon.call("CONFIG", "SET", "requirepass", "s/same")
    try:
        await works(side.client(f"disqued://:s%2Fsame@{address(daemon)}"), queue)
        await works(side.client(f"redis://default:s%2Fsame@{address(daemon)}"), queue)
        await works(side.client(f"unix://:s%2Fsame@{path}"), queue)
        await works(side.client(address(daemon), username="default", password="s/same"), queue)
        for wrong in (f"disqued://:x@{address(daemon)}", f"disqued://ann:s%2Fsame@{address(daemon)}"):
            with pytest.raises(AccessDenied):
                await side.client(wrong).qlen(queue)
    finally:
        with daemon.redis(password="s/same") as admin:
            admin.config_set("requirepass", "")


# Strangers.


class Parrot(Protocol):
    """A server that is no node, and answers everything with the same words."""

    def __init__(self, words: bytes) -> None:
        self._words = words

    def dataReceived(self, data: bytes) -> None:
        self.transport.write(self._words)


@pytest_twisted.async_yield_fixture
async def stranger() -> AsyncIterator[Callable[[bytes], int]]:
    """Start servers that are no nodes; gives the port of each."""
    listening: list[Any] = []

    def begin(words: bytes) -> int:
        factory = Factory.forProtocol(lambda: Parrot(words))
        factory.noisy = False
        listening.append(reactor.listenTCP(0, factory, interface=HOST))
        return int(listening[-1].getHost().port)

    yield begin
    for port in listening:
        await port.stopListening()


WEB = b"HTTP/1.1 400 Bad Request\r\n\r\n"
ALERT = b"\x15\x03\x03\x00\x02\x02\x46"
REDIS = b"*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n8.0.0\r\n"


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize("says", [REDIS, b"-ERR unknown command 'HELLO'\r\n"], ids=["redis", "old"])
async def test_a_server_that_is_no_node_is_told_and_passed_over(
    side: Any, stranger: Callable[[bytes], int], daemon: Daemon, queue: str, says: bytes
) -> None:
    port = stranger(says)
    client = side.client((HOST, port), **SHORT)
    for _ in range(2):
        with pytest.raises(BadReply, match=r"HELLO answered .*, which is none of disqued"):
            await client.add(queue, "x")
    for _ in range(4):
        both = side.client((HOST, port), address(daemon))
        await works(both, queue)
        assert both.node == address(daemon)


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize("says", [WEB, ALERT], ids=["web", "tls"])
async def test_a_server_of_another_protocol_is_told(side: Any, stranger: Callable[[bytes], int], says: bytes) -> None:
    client = side.client((HOST, stranger(says)), **SHORT)
    with pytest.raises(Unreachable, match=r"Protocol error|another protocol"):
        await client.qlen("q")
