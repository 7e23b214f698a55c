"""Requests that RFC 9112 forbids or lets a server repair: each gets one clear problem, on plain connections and TLS.

What is repaired by one program and not by the next lets a request hide in another one (request smuggling).
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import ensureDeferred, gatherResults
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol, wrapClientTLS
from twisted.internet.ssl import CertificateOptions
from twisted.logger import LogEvent, LogLevel, globalLogPublisher

from disqued.web.channel import USUAL_BODY_MAX
from disqued.web.http import heads
from disqued.web.http.framing import SIZE_LINE_MAX, TRAILERS_MAX, ChunkedBody
from disqued.web.http.head_lines import HEADER_BYTES, HEADERS_MAX
from disqued.web.http.problems import Problem
from disqued.web.server import AdminServer
from tests.adapters.http import read_answer
from tests.adapters.inprocess import RawClient, Running
from tests.certificates import make_certificate

Launch = Callable[..., Running]
async_test = pytest_twisted.ensureDeferred
pytestmark = pytest.mark.filterwarnings("ignore:Passing pyOpenSSL:DeprecationWarning")

HOST = b"Host: 127.0.0.1\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST
POST = b"POST /api/ack HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
END = b"\r\n"
MUCH = b"9" * 5_000


def got(line: bytes) -> bytes:
    """A request with one more header line."""
    return GET + line + END + END


def sent(*lines: bytes, body: bytes = b"{}") -> bytes:
    """A request with a body, and header lines that say how long it is."""
    return POST + b"".join(line + END for line in lines) + END + body


#: What the route says of a request that is well formed.
NO_FIELD = "the field ids is needed"

#: What is wrong, the bytes, and the status of the problem.
CASES: list[tuple[str, bytes, int]] = [
    # Where the body ends.
    ("both framings", sent(b"Content-Length: 2", b"Transfer-Encoding: chunked"), 400),
    ("both framings, turned round", sent(b"Transfer-Encoding: chunked", b"Content-Length: 2"), 400),
    ("two lengths", sent(b"Content-Length: 2", b"Content-Length: 3"), 400),
    ("the same length twice", sent(b"Content-Length: 2", b"Content-Length: 2"), 400),
    ("lengths in capitals", sent(b"Content-Length: 2", b"CONTENT-LENGTH: 2"), 400),
    ("a list of lengths", sent(b"Content-Length: 2, 2"), 400),
    ("a length with a plus", sent(b"Content-Length: +2"), 400),
    ("a length below zero", sent(b"Content-Length: -2"), 400),
    ("a length with a blank", sent(b"Content-Length: 2 0"), 400),
    ("a hexadecimal length", sent(b"Content-Length: 0x2"), 400),
    ("a length with underscores", sent(b"Content-Length: 1_0"), 400),
    ("a length of other digits", sent(b"Content-Length: \xb2"), 400),
    ("a length of UTF-8 digits", sent("Content-Length: ٢".encode()), 400),
    ("an empty length", sent(b"Content-Length:"), 400),
    ("a length with a fraction", sent(b"Content-Length: 2.0"), 400),
    ("a length of 5 000 digits", sent(b"Content-Length: " + MUCH), 413),
    ("a length of 19 digits", sent(b"Content-Length: " + b"9" * 19), 413),
    ("a length above the limit", sent(b"Content-Length: %d" % (USUAL_BODY_MAX + 1)), 413),
    ("chunked twice", sent(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), 400),
    ("chunked, identity in two lines", sent(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"), 400),
    ("identity, chunked in two lines", sent(b"Transfer-Encoding: identity", b"Transfer-Encoding: chunked"), 400),
    ("chunked, identity", sent(b"Transfer-Encoding: chunked, identity"), 400),
    ("chunked, chunked", sent(b"Transfer-Encoding: chunked, chunked"), 400),
    ("identity alone", sent(b"Transfer-Encoding: identity"), 400),
    ("gzip alone", sent(b"Transfer-Encoding: gzip"), 400),
    ("gzip, chunked", sent(b"Transfer-Encoding: gzip, chunked"), 501),
    ("identity, chunked", sent(b"Transfer-Encoding: identity, chunked"), 501),
    ("a coding like chunked", sent(b"Transfer-Encoding: xchunked"), 400),
    ("chunked with a parameter", sent(b"Transfer-Encoding: chunked;q=1"), 400),
    ("chunked in quotes", sent(b'Transfer-Encoding: "chunked"'), 400),
    ("chunked after a vertical tab", sent(b"Transfer-Encoding: \x0bchunked"), 400),
    ("an empty coding", sent(b"Transfer-Encoding:"), 400),
    ("a coding with HTTP/1.0", sent(b"Transfer-Encoding: chunked").replace(b"HTTP/1.1", b"HTTP/1.0"), 400),
    ("a compressed body", sent(b"Content-Encoding: gzip", b"Content-Length: 2"), 415),
    ("a body that is compressed twice", sent(b"Content-Encoding: identity, br", b"Content-Length: 2"), 415),
    # Lines.
    ("a folded header", got(b"X-A: b\r\n c"), 400),
    ("a folded header with a tab", got(b"X-A: b\r\n\tc"), 400),
    ("a folded length", sent(b"Content-Length:\r\n 2"), 400),
    ("a first header that is folded", b"GET / HTTP/1.1\r\n X-A: b\r\n" + HOST + END, 400),
    ("a space before the colon", got(b"X-A : b"), 400),
    ("a tab before the colon", sent(b"Content-Length\t: 2"), 400),
    ("no colon", got(b"X-A"), 400),
    ("no name", got(b": b"), 400),
    ("a name with a blank", got(b"X A: b"), 400),
    ("a name with parentheses", got(b"X(A): b"), 400),
    ("a name that is no ASCII", got("X-Ä: b".encode()), 400),
    ("a name with NUL", got(b"X\0A: b"), 400),
    ("NUL in a value", got(b"X-A: b\0c"), 400),
    ("CR in a value", got(b"X-A: b\rc"), 400),
    ("a control character in a value", got(b"X-A: b\x01c"), 400),
    ("DEL in a value", got(b"X-A: b\x7fc"), 400),
    ("LF alone", GET.replace(b"\r\n", b"\n") + b"\n", 400),
    ("LF alone in a header", got(b"X-A: b\nX-C: d"), 400),
    ("LF alone at the end", GET + b"\n", 400),
    ("CR alone at the end", GET + b"\r\r\n", 400),
    ("CR CR LF", GET.replace(b"\r\n", b"\r\r\n") + END, 400),
    ("too many headers", GET + b"X: y\r\n" * HEADERS_MAX + END, 431),
    ("a long header", got(b"X: " + b"x" * HEADER_BYTES), 431),
    ("a long request line", b"GET /" + b"x" * HEADER_BYTES, 431),
    # The request line.
    ("no version", b"GET /\r\n" + HOST + END, 400),
    ("one word", b"NONSENSE\r\n\r\n", 400),
    ("two spaces", b"GET  / HTTP/1.1\r\n" + HOST + END, 400),
    ("a tab between words", b"GET\t/ HTTP/1.1\r\n" + HOST + END, 400),
    ("a space at the end", b"GET / HTTP/1.1 \r\n" + HOST + END, 400),
    ("a space before the method", b" GET / HTTP/1.1\r\n" + HOST + END, 400),
    ("two empty lines before it", b"\r\n\r\n" + GET + END, 400),
    ("a method with a bracket", b"GET[ / HTTP/1.1\r\n" + HOST + END, 400),
    ("a method that is no ASCII", b"G\xc3\x8bT / HTTP/1.1\r\n" + HOST + END, 400),
    ("an empty method", b" / HTTP/1.1\r\n" + HOST + END, 400),
    ("a method that no route has", b"BREW /healthz HTTP/1.1\r\n" + HOST + END, 501),
    ("a method in small letters", b"get /healthz HTTP/1.1\r\n" + HOST + END, 501),
    ("HEAD in small letters", b"head /healthz HTTP/1.1\r\n" + HOST + END, 501),
    ("HTTP/2's preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    ("HTTP/2.0", b"GET / HTTP/2.0\r\n" + HOST + END, 505),
    ("HTTP/1.2", b"GET / HTTP/1.2\r\n" + HOST + END, 505),
    ("HTTP/0.9", b"GET / HTTP/0.9\r\n" + HOST + END, 505),
    ("a version in small letters", b"GET / http/1.1\r\n" + HOST + END, 400),
    ("a version with more digits", b"GET / HTTP/1.10\r\n" + HOST + END, 400),
    ("a version with a comma", b"GET / HTTP/1,1\r\n" + HOST + END, 400),
    ("another protocol", b"GET / RTSP/1.0\r\n" + HOST + END, 400),
    ("a target without a slash", b"GET healthz HTTP/1.1\r\n" + HOST + END, 400),
    ("a target of another scheme", b"GET ftp://127.0.0.1/ HTTP/1.1\r\n" + HOST + END, 400),
    ("* with GET", b"GET * HTTP/1.1\r\n" + HOST + END, 400),
    ("a target for CONNECT", b"CONNECT 127.0.0.1:80 HTTP/1.1\r\n" + HOST + END, 400),
    ("a fragment", b"GET /healthz#x HTTP/1.1\r\n" + HOST + END, 400),
    ("a target that is no ASCII", "GET /é HTTP/1.1\r\n".encode() + HOST + END, 400),
    ("a target with DEL", b"GET /\x7f HTTP/1.1\r\n" + HOST + END, 400),
    ("a target with NUL", b"GET /\0 HTTP/1.1\r\n" + HOST + END, 400),
    ("a percent sign alone", b"GET /% HTTP/1.1\r\n" + HOST + END, 400),
    ("a percent sign without digits", b"GET /?a=%zz HTTP/1.1\r\n" + HOST + END, 400),
    ("an unknown parameter", b"GET /healthz?" + b"a=b&" * 3_000 + b" HTTP/1.1\r\n" + HOST + END, 400),
    # Who and what.
    ("no host", b"GET /healthz HTTP/1.1\r\n\r\n", 400),
    ("no host with HTTP/1.0", b"GET /healthz HTTP/1.0\r\n\r\n", 400),
    ("two hosts", GET + HOST + END, 400),
    ("two hosts that differ", GET + b"Host: evil.example\r\n\r\n", 400),
    ("a list of hosts", GET.replace(b"127.0.0.1", b"127.0.0.1, evil.example") + END, 421),
    ("a host with a user", GET.replace(b"127.0.0.1", b"a@127.0.0.1") + END, 421),
    ("a host with a path", GET.replace(b"127.0.0.1", b"127.0.0.1/") + END, 421),
    ("an empty host", GET.replace(b" 127.0.0.1", b"") + END, 421),
    ("another host", GET.replace(b"127.0.0.1", b"evil.example") + END, 421),
    ("a target with another host", b"GET http://evil.example/healthz HTTP/1.1\r\n" + HOST + END, 421),
    ("two tokens", got(b"Authorization: Bearer a\r\nAuthorization: Bearer b"), 400),
    ("two types", sent(b"Content-Type: text/plain", b"Content-Length: 2"), 400),
    ("two origins", got(b"Origin: null\r\nOrigin: http://127.0.0.1"), 400),
    ("an expectation", sent(b"Expect: 200-ok", b"Content-Length: 2"), 417),
    ("two expectations", sent(b"Expect: 100-continue", b"Expect: 100-continue", b"Content-Length: 2"), 400),
    ("another type", sent(b"Content-Length: 2").replace(b"application/json", b"text/json"), 415),
    ("another charset", sent(b"Content-Length: 2").replace(b"json\r", b"json; charset=utf-16\r"), 415),
    ("a charset in quotes", sent(b"Content-Length: 2").replace(b"json\r", b'json;x=y; Charset="latin-1"\r'), 415),
    # Chunks.
    ("a chunk of 5 000 digits", CHUNKED + MUCH + END, 400),
    ("a chunk of 16 digits", CHUNKED + b"1" * 16 + END, 400),
    ("a chunk that is very large", CHUNKED + b"f" * 15 + END + b"x" * (USUAL_BODY_MAX + 1), 413),
    ("a chunk with a sign", CHUNKED + b"+2\r\n{}\r\n0\r\n\r\n", 400),
    ("a chunk below zero", CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n", 400),
    ("a chunk with 0x", CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n", 400),
    ("a chunk with an underscore", CHUNKED + b"0_2\r\n{}\r\n0\r\n\r\n", 400),
    ("a chunk with a blank before it", CHUNKED + b" 2\r\n{}\r\n0\r\n\r\n", 400),
    ("a chunk without a size", CHUNKED + b"\r\n{}\r\n0\r\n\r\n", 400),
    ("a chunk that is no number", CHUNKED + b"xyz\r\n", 400),
    ("a chunk with LF alone", CHUNKED + b"2\n{}\r\n0\r\n\r\n", 400),
    ("a chunk that ends with LF alone", CHUNKED + b"2\r\n{}\n0\r\n\r\n", 400),
    ("a chunk that is longer", CHUNKED + b"2\r\n{}}\r\n0\r\n\r\n", 400),
    ("a long extension", CHUNKED + b"2;" + b"x" * SIZE_LINE_MAX, 400),
    ("an extension with NUL", CHUNKED + b"2;a=\0\r\n{}\r\n0\r\n\r\n", 400),
    ("an extension with CR", CHUNKED + b"2;a=\rb\r\n{}\r\n0\r\n\r\n", 400),
    ("an extension without a semicolon", CHUNKED + b"2 a\r\n{}\r\n0\r\n\r\n", 400),
    ("a trailer without a colon", CHUNKED + b"2\r\n{}\r\n0\r\nX-A\r\n\r\n", 400),
    ("a trailer with a length", CHUNKED + b"2\r\n{}\r\n0\r\nContent-Length: 2\r\n\r\n", 400),
    ("a trailer that is folded", CHUNKED + b"2\r\n{}\r\n0\r\nX-A: b\r\n c\r\n\r\n", 400),
    ("long trailers", CHUNKED + b"2\r\n{}\r\n0\r\n" + b"X: y\r\n" * TRAILERS_MAX, 400),
    ("a long trailer", CHUNKED + b"2\r\n{}\r\n0\r\nX: " + b"y" * TRAILERS_MAX, 400),
    # JSON.
    ("no JSON", sent(b"Content-Length: 1", body=b"{"), 400),
    ("no body", sent(b"Content-Length: 0", body=b""), 400),
    ("a name twice", sent(b"Content-Length: 20", body=b'{"ids":[], "ids":[]}'), 400),
    ("a BOM", sent(b"Content-Length: 13", body=b'\xef\xbb\xbf{"ids":[]}'), 400),
    ("NaN", sent(b"Content-Length: 11", body=b'{"ids":NaN}'), 400),
    ("half of a surrogate pair", sent(b"Content-Length: 18", body=b'{"ids":["\\ud800"]}'), 400),
    ("depth", sent(b"Content-Length: 200000", body=b"[" * 200_000), 400),
    ("an integer of 5 000 digits", sent(b"Content-Length: 5008", body=b'{"ids":' + MUCH + b"}"), 400),
]  # fmt: skip

#: What is unusual and allowed, and the status of the answer.
ALLOWED: list[tuple[str, bytes, int]] = [
    ("an empty line before it", b"\r\n" + GET + END, 200),
    ("HTTP/1.0", GET.replace(b"HTTP/1.1", b"HTTP/1.0") + END, 200),
    ("a host with a port", GET.replace(b"127.0.0.1", b"127.0.0.1:7780") + END, 200),
    ("a hundred headers", GET + b"X: y\r\n" * (HEADERS_MAX - 1) + END, 200),
    ("a URL", b"GET http://127.0.0.1/healthz HTTP/1.1\r\n" + HOST + END, 200),
    ("blanks around a value", got(b"X-A: \t b\t ") , 200),
    ("an empty value", got(b"X-A:"), 200),
    ("a value that is no ASCII", got("X-A: é".encode()), 200),
    ("a header twice", got(b"Accept: text/html\r\nAccept: application/json"), 200),
    ("a name in capitals", GET.replace(b"Host", b"HOST") + END, 200),
    ("an expectation", sent(b"Expect: 100-Continue", b"Content-Length: 10", body=b'{"ids":[]}'), 100),
    ("chunks", CHUNKED + b'a;x="y"\r\n{"ids":[]}\r\n00\r\nX-A: b\r\n\r\n', 200),
    ("chunked in capitals", CHUNKED.replace(b"chunked", b"Chunked") + b'A\r\n{"ids":[]}\r\n0\r\n\r\n', 200),
    ("leading zeros", sent(b"Content-Length: 00010", body=b'{"ids":[]}'), 200),
    ("identity", sent(b"Content-Encoding: identity", b"Content-Length: 10", body=b'{"ids":[]}'), 200),
    ("a charset", sent(b"Content-Length: 10", body=b'{"ids":[]}').replace(b"json\r", b'json; charset="UTF-8"\r'), 200),
    ("a query with marks", b"GET /queues?q=%5B1|2[3]{4}^`%60 HTTP/1.1\r\n" + HOST + END, 200),
    ("OPTIONS *", b"OPTIONS * HTTP/1.1\r\n" + HOST + END, 200),
]  # fmt: skip


class Client(RawClient):
    """Keeps what comes."""

    def dataReceived(self, data: bytes) -> None:
        """Keep it."""
        self.received += data
        self._look()


@pytest_twisted.async_yield_fixture(params=["tcp", "tls"])
async def connect(launch: Launch, tmp_path: Path, request: Any) -> AsyncIterator[Callable[[], Any]]:
    """A function that connects to an admin side."""
    key, certificate = tmp_path / "node.key", tmp_path / "node.pem"
    make_certificate(key, certificate)
    kind = {
        "tcp": "tcp:0:interface=127.0.0.1",
        "tls": f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}",
    }
    server = AdminServer(launch(f"http-endpoint {kind[request.param]}").daemon)
    server.listen()
    clients: list[Client] = []

    async def begin() -> Client:
        where: Any = TCP4ClientEndpoint(reactor, "127.0.0.1", server.port)
        if request.param == "tls":
            where = wrapClientTLS(CertificateOptions(verify=False), where)
        clients.append(await connectProtocol(where, Client()))
        return clients[-1]

    yield begin
    for client in clients:
        if not client.lost:
            client.transport.abortConnection()
            await client.closed()
    await server.stop()


@pytest.fixture
def failures() -> Iterator[list[LogEvent]]:
    """What the log says of bugs."""
    found: list[LogEvent] = []

    def note(event: LogEvent) -> None:
        if "log_failure" in event or event.get("log_level", LogLevel.info) >= LogLevel.error:
            found.append(event)

    globalLogPublisher.addObserver(note)
    yield found
    globalLogPublisher.removeObserver(note)


async def status_of(client: Client, data: bytes) -> int:
    """Send a request, and wait for its whole answer; returns the status."""
    client.transport.write(data)
    await client.until(lambda: b"\r\n\r\n" in client.received and (client.lost or is_whole(bytes(client.received))))
    return int(client.received[9:12])


def is_whole(received: bytes) -> bool:
    """Return whether an answer has all the bytes that it announces."""
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return not lengths or len(body) >= int(lengths[0].split(b":")[1])


@async_test
async def test_what_is_forbidden_gets_one_clear_problem(connect: Callable[[], Any], failures: list[LogEvent]) -> None:
    async def ask(name: str, data: bytes, status: int) -> tuple[str, Any] | None:
        client = await connect()
        await status_of(client, data)
        answer = read_answer(bytes(client.received), data.split(b" ")[0].decode("latin-1"))
        is_problem = answer.headers.get("content-type") == "application/problem+json"
        if answer.status != status or not is_problem or not answer.body["detail"]:
            return name, answer
        if NO_FIELD in answer.body["detail"]:
            return name, "the route refused it, so that the request was taken for a good one"
        return None if bytes(client.received).count(b"\r\nServer: ") == 1 else (name, bytes(client.received))

    for number in range(0, len(CASES), 20):
        asked = [ensureDeferred(ask(*case)) for case in CASES[number : number + 20]]
        assert [found for found in await gatherResults(asked) if found] == []
    assert failures == []


@async_test
async def test_what_is_unusual_and_allowed_is_answered(connect: Callable[[], Any], failures: list[LogEvent]) -> None:
    found = {}
    for name, data, _ in ALLOWED:
        client = await connect()
        found[name] = await status_of(client, data)
    assert found == {name: status for name, _, status in ALLOWED}
    assert failures == []


@pytest.mark.parametrize("line", [b"*1", b"PING", b"GET /", b"GET / HTTP/9"])
@async_test
async def test_a_first_line_of_another_protocol_is_refused_before_there_is_more(
    connect: Callable[[], Any], line: bytes
) -> None:
    client = await connect()
    assert await status_of(client, line + b"\r\n") in (400, 505)


# What hides behind a request is never taken for one.

HIDDEN = b"GET /api/hidden HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def is_refused_by_reading(data: bytes) -> bool:
    """Return whether a head or a body is refused, whatever a route makes of them."""
    return read_in(data, len(data)) != 0


def read_in(data: bytes, size: int) -> int:
    """Read a request in pieces of so many bytes, as the channel does; returns the status of the problem, or 0."""
    lines: list[bytes] = []
    rest = b""
    body: Any = None
    try:
        for piece in pieces(data, size):
            rest += piece
            while body is None and b"\n" in rest:
                line, _, rest = rest.partition(b"\n")
                heads.check_line(line)
                if len(line) > 1:
                    lines.append(line[:-1])
                elif lines:
                    head = heads.read(lines)
                    body = ChunkedBody(lambda _: None, lambda _: None) if head.length is None else False
            if body:
                body.dataReceived(rest)
                rest = b""
    except Problem as problem:
        json.dumps(problem.document)
        return problem.status
    return 0


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    """Cut bytes into pieces."""
    return (data[at : at + size] for at in range(0, len(data), size))


@pytest.mark.parametrize("line", [b" a: b", b"\tb", b" Content-Length: 2"])
def test_a_folded_header_is_called_so(line: bytes) -> None:
    with pytest.raises(Problem, match="a header goes on in a second line"):
        heads.read([b"GET / HTTP/1.1", b"Host: localhost", line])


@pytest.mark.parametrize("size", [1, 2, 3, 1_000])
def test_chunks_are_put_together_and_what_follows_is_left(size: int) -> None:
    taken: list[bytes] = []
    ended: list[bytes] = []
    reader = ChunkedBody(taken.append, ended.append)
    data = b"5\r\nhello\r\n3 ; a=b\r\n wo\r\n00003\r\nrld\r\n0\r\nX-A: b\r\n\r\n" + HIDDEN
    for at in range(0, len(data), size):
        if ended:
            ended[0] += data[at : at + size]
        else:
            reader.dataReceived(data[at : at + size])
    assert (b"".join(taken), ended) == (b"hello world", [HIDDEN])


@pytest.mark.parametrize("case", [case for case in CASES if is_refused_by_reading(case[1])], ids=lambda case: case[0])
def test_a_request_is_refused_however_it_is_cut_into_packets(case: tuple[str, bytes, int]) -> None:
    _, data, status = case
    assert {read_in(data, size) for size in (1, 2, 7)} == {status}
