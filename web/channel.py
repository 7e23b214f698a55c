"""Twisted's HTTP/1.1, with limits on everything that a client may send, or be slow about.

    connection --> request line and headers --> body --> the route --> answer --> the next request, or idle
                   16 KiB, 100 of them,         size,    (its own      in pieces,
                   20 s in all                  10 KiB    time)        read at 20 KB/s at least
                                                in 10 s

Connections take turns: what a client sends waits in a buffer until its connection has its turn of the loop, and in
each turn at most one request is parsed and given to its route.  So a pipeline, or a crowd, holds nobody else up.  A
connection whose buffer is full is not read.

What is over a limit is told as every problem is, and the connection ends; what is too slow is cut.  When there are
too many connections, the one that has been idle for longest makes room for the new one.  Bodies of requests and answers
stay in memory, and count towards the budget of all connections of the node.  Times are seconds, sizes bytes.
"""

import socket
from collections.abc import Iterable
from contextlib import suppress
from http import HTTPStatus
from io import BytesIO
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.protocol import connectionDone
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel, parse_qs
from twisted.web.server import Request
from twisted.web.server import Site as HttpSite

from disqued.web.app import Root
from disqued.web.http import answers, heads
from disqued.web.http.bodies import Body
from disqued.web.http.exchange import Reply, Role
from disqued.web.http.framing import ChunkedBody, SizedBody
from disqued.web.http.problems import Problem
from disqued.web.pages.problem_pages import problem_reply
from disqued.web.routes import ROUTES
from disqued.web.site import Site
from disqued.web.turns import SharedTurns

CONNECTIONS_MAX: Final = 500
SHARE_MAX: Final = CONNECTIONS_MAX // 2  #: of them, from one IP address
HEADER_BYTES: Final = 16 << 10  #: request line and headers
HEADERS_MAX: Final = 100
BODY_MAX: Final = 64 << 20  #: of a job in a request, where proto-max-bulk-len is not below it
BODY_SLACK: Final = 64 << 10  #: what may stand around it
USUAL_BODY_MAX: Final = 256 << 10  #: of a request that brings no job
STRANGERS_BODY_MAX: Final = 16 << 10  #: of a request that says nothing of who asks
HEADER_S: Final = 20.0
PROGRESS_S: Final = 10.0
PROGRESS_BYTES: Final = 10 << 10  #: of a body, in each PROGRESS_S
IDLE_S: Final = 75.0
READ_S: Final = 30.0  #: that a client may read nothing, and more where much has been written that it can read:
READ_BYTES_S: Final = 20_000.0
QUIET: Final = 64 << 10  #: of answers that a transport takes before it says that the client does not read
LOOK_S: Final = 1.0  #: between two looks at a client that does not read
WAITING_MAX: Final = 16 << 10  #: of input that waits for its turn before its connection is read no further
HOLD_STEP: Final = 4096  #: by how much a connection holds more or less before the budget hears of it
LINGER_S: Final = 2.0  #: that what is still coming is thrown away after a refusal, so that the client gets to read it
SERVER: Final = b"disqued"


def _path_of(target: bytes) -> bytes:
    """The path of a target, whether it names its host or not."""
    whole = heads.ABSOLUTE.fullmatch(target)
    return (target if whole is None else whole["rest"]).partition(b"?")[0]


class AdminRequest(Request):
    """A request whose body is in memory, and is never taken for parameters."""

    channel: "AdminChannel"
    content: Any
    received = 0
    is_known = False  #: its sender has been asked who it is, and may send a large body

    def gotLength(self, length: int | None) -> None:
        """Make room for the body."""
        self.content = BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
        """Take a part of the body."""
        channel = self.channel
        if channel.takes(self, len(data)):
            self.received += len(data)
            self.content.write(data)

    def take_body(self) -> bytes:
        """Return the body, and keep it no longer."""
        body: bytes = self.content.getvalue()
        self.content = BytesIO()
        return body

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Go on with a request that is complete."""
        self.content.seek(0)
        path = self._of_this_host(path)
        self.method, self.uri, self.clientproto = command, path, version
        self.path, _, query = path.partition(b"?")
        self.args = parse_qs(query, 1)
        self.process()

    def _of_this_host(self, target: bytes) -> bytes:
        """The path and query of a target; one that names its host, as to a proxy, says more than the header Host."""
        whole = heads.ABSOLUTE.fullmatch(target)
        if whole is None:
            return target
        self.requestHeaders.setRawHeaders(b"host", [whole["host"]])
        rest = whole["rest"]
        return rest if rest.startswith(b"/") else b"/" + rest

    def processingFailed(self, reason: Failure) -> Failure:
        """Answer a bug of ours."""
        self._log.failure("Internal error before a route was found", failure=reason)
        if not self.startedWriting:
            admin = self.channel.site.admin
            problem = Problem(500, "internal error; the log has its traceback", code="ERR")
            self.write(answers.reply(self, problem_reply(admin, admin.access.nobody(self), self, problem, self.path)))
        self.finish()
        return reason


class AdminChannel(HTTPChannel):
    """One connection."""

    requestFactory = AdminRequest
    delimiter = b"\n"  # so that a line without CR is seen, and refused
    MAX_LENGTH = HEADER_BYTES

    transport: Any
    site: "AdminFactory"
    _path = b""  #: target of the request that is coming, once its head has

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[bytes] = []  #: of the head that is coming
        self._head_size = 0
        self._closes = False  #: the client wants no further answer
        self._refused = False
        self._lost = False
        self.paused = (
            True  #: LineReceiver leaves the input in its buffer; False during a turn, until a request is whole
        )
        self._is_queued = False  #: it waits for its turn
        self._watch: Any = None  #: the timer of a request that is still coming
        self._in_body = False
        self._progress = 0  #: of the body, since the timer was set
        self._reading: Any = None  #: the timer of looks at a client that does not read; None = it does
        self._read_by = 0.0  #: when it has to have read what is unread
        self._unread = 0  #: bytes of answers since the client had read all, as far as is known
        self._body: Body | None = None  #: of the answer that is being sent
        self._reported = 0  #: what the budget knows of
        self._active_at = 0.0  #: when something came last, or an answer was complete
        self.host: str | None = None  #: IP address of the client; None through a Unix socket
        self.is_leaving = False  #: it has made room for another one

    # Connections.

    def connectionMade(self) -> None:
        """Take the connection, or turn it away when there are too many and none of them is idle."""
        super().connectionMade()
        self._active_at = self.site.reactor.seconds()
        self.host = getattr(self.transport.getPeer(), "host", None)
        self.site.channels.add(self)
        fault = self.site.make_room(self)
        if fault is not None:
            self.refuse(Problem(503, fault, headers={"Retry-After": "5"}))

    @property
    def idle_since(self) -> float | None:
        """When this connection fell idle; None while it sends a body or is answered."""
        is_busy = self._handlingRequest or self._in_body or self._is_queued or self._reading is not None
        return None if is_busy else self._active_at

    @property
    def is_refused(self) -> bool:
        """True once it was told that it ends; what still comes is thrown away."""
        return self._refused

    def make_room(self) -> None:
        """Close at once, in favour of another connection."""
        self.is_leaving = self._refused = True
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Forget the connection; what its requests wait for is given up."""
        self._lost = True
        self.clearLineBuffer()
        self._stop_watch()
        self._stop_reading()
        for request in self.requests:
            self._let_go(request)
        super().connectionLost(reason)
        self.site.budget.drop(self)
        self.site.forget(self)

    def end(self) -> None:
        """Close: at once when nothing is being answered, else after what was written."""
        if self.transport is not None:
            self.loseConnection()

    # What comes.

    def dataReceived(self, data: bytes) -> None:
        """Keep bytes until it is this connection's turn; after a refusal they are thrown away."""
        if self._refused:
            return
        self._active_at = self.site.reactor.seconds()
        if self._in_body:
            self._progress += len(data)
        super().dataReceived(data)
        self._queue(is_short=len(self._buffer) <= WAITING_MAX)
        self._read_or_wait()
        self.report()

    def _queue(self, *, is_short: bool) -> None:
        """Wait for a turn, if there is input that may be taken now."""
        may_go_on = not (self._handlingRequest or self._waitingForTransport or self._is_queued)
        if may_go_on and self._buffer and not self._refused and not self._lost:
            self._is_queued = True
            self.site.turns.add(self, is_short=is_short)

    def turn(self) -> None:
        """Take input until a request is whole, and begin to answer it."""
        self._is_queued = False
        if self._refused or self._lost or self._handlingRequest or self._waitingForTransport:
            return
        self.paused = False
        try:
            LineReceiver.dataReceived(self, b"")
        except BaseException:  # a bug of ours
            self.transport.abortConnection()
            raise
        finally:
            self.paused = True
        if not self._lost:
            self._watch_partial()
            self._read_or_wait()
            self.report()

    def _read_or_wait(self) -> None:
        """Read on while little waits; then the end of an idle client is noticed."""
        stalled = self._waitingForTransport and not self._handlingRequest
        if stalled or len(self._buffer) > WAITING_MAX:
            self._networkProducer.pauseProducing()
        else:
            self._networkProducer.resumeProducing()

    def _watch_partial(self) -> None:
        """Limit the time that the rest of a request has to come."""
        waits = self._handlingRequest or self._is_queued or self._waitingForTransport
        has_begun = self.requests or self._lines or self._buffer
        is_partial = has_begun and not waits and not self._refused
        if is_partial and self._watch is None and not self._lost:
            self._watch = self.site.reactor.callLater(HEADER_S, self._too_slow)

    def _stop_watch(self) -> None:
        self._in_body = False
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _too_slow(self) -> None:
        self._watch = None
        self.refuse(Problem(408, f"the headers did not come within {HEADER_S:.0f} s"))

    def _look_at_body(self) -> None:
        """Cut a client whose body hardly grows."""
        self._watch = None
        if self._progress < PROGRESS_BYTES:
            self.refuse(Problem(408, f"the body comes slower than {PROGRESS_BYTES} bytes in {PROGRESS_S:.0f} s"))
        else:
            self._watch_body()

    def _watch_body(self) -> None:
        self._in_body, self._progress = True, 0
        self._watch = self.site.reactor.callLater(PROGRESS_S, self._look_at_body)

    def lineReceived(self, line: bytes) -> None:
        """Take a line of the head, without its LF; the first line may be empty."""
        if self._refused:
            return
        self._head_size += len(line)
        if self._head_size > HEADER_BYTES:
            self.lineLengthExceeded(line)
            return
        try:
            heads.check_line(line)
            self._take_line(line[:-1])
        except Problem as problem:
            self.refuse(problem)

    def _take_line(self, line: bytes) -> None:
        """Take a line of the head; the empty one after it begins the request.  Raises Problem."""
        if line and len(self._lines) > HEADERS_MAX:
            raise Problem(431, f"there are more than {HEADERS_MAX} headers")
        if line:
            if not self._lines:
                # What speaks another protocol may wait for an answer to its first line.
                heads.read_request_line(line)
            self._lines.append(line)
        elif self._lines:
            self._begin(heads.read(self._lines))
        elif self._head_size > 1:
            raise Problem(400, "this is no request of HTTP/1.1: there are empty lines before it")

    def _begin(self, head: heads.RequestHead) -> None:
        """Begin a request whose head has come."""
        self._lines, self._head_size = [], 0
        request = self.requestFactory(self)
        self.requests.append(request)
        for name, value in head.fields:
            request.requestHeaders.addRawHeader(name, value)
        self._command, self._path, self._version = head.method, head.target, head.version
        self._closes, self.length = head.closes, head.length
        if head.length is None:
            self._transferDecoder: Any = ChunkedBody(request.handleContentChunk, self._finishRequestBody)
        elif head.length:
            self._transferDecoder = SizedBody(head.length, request.handleContentChunk, self._finishRequestBody)
        self.allHeadersReceived()
        if self._refused:
            return
        if self.length == 0:
            self.allContentReceived()
        else:
            self.setRawMode()

    def checkPersistence(self, request: AdminRequest, version: bytes) -> bool:
        """Return whether another request may come after this one."""
        if self._closes:
            request.responseHeaders.setRawHeaders(b"Connection", [b"close"])
        return not self._closes

    def lineLengthExceeded(self, line: bytes) -> None:
        """Refuse headers that are too long."""
        self.refuse(Problem(431, f"request line and headers are longer than {HEADER_BYTES} bytes"))

    def allHeadersReceived(self) -> None:
        """Look at what is to come before it comes."""
        if self._refused:
            return
        self._stop_watch()
        request = self.requests[-1]
        objection = self._objection(request)
        if objection is not None:
            request.gotLength(0)
            self.refuse(objection)
            return
        super().allHeadersReceived()
        if self.length != 0:
            self._watch_body()

    def _objection(self, request: AdminRequest) -> Problem | None:
        """What is wrong with the body that is announced: its sender, when it may be large, or its length."""
        if self.length is None or self.length > STRANGERS_BODY_MAX:
            request.parseCookies()
            try:
                request.is_known = self.site.admin.access.visitor(request).role > Role.NOBODY
            except Problem as problem:
                return problem
        limit = self._limit(request)
        return _too_long(limit) if self.length is not None and self.length > limit else None

    def rawDataReceived(self, data: bytes) -> None:
        """Take a part of a body."""
        if self._refused:
            return
        try:
            super().rawDataReceived(data)
        except Problem as problem:
            self.refuse(problem)

    def _finishRequestBody(self, data: bytes) -> None:
        """Have the request answered; what came behind its body is the next one."""
        self._buffer = data
        self.allContentReceived()

    def allContentReceived(self) -> None:
        """Have the request answered; the next one waits for another turn."""
        if not self._refused:
            self.paused = True
            self._stop_watch()
            super().allContentReceived()

    def takes(self, request: AdminRequest, size: int) -> bool:
        """Return whether so many bytes more of a body may come; else refuse the request."""
        if self._refused:
            return False
        limit = self._limit(request)
        if request.received + size > limit:
            self.refuse(_too_long(limit))
            return False
        self.report(size)
        return not self._refused

    def _limit(self, request: AdminRequest) -> int:
        if not request.is_known:
            return STRANGERS_BODY_MAX
        return self.site.body_limit if _path_of(self._path) in self.site.large else USUAL_BODY_MAX

    # What leaves.

    def refuse(self, problem: Problem) -> None:
        """Answer a problem before there is a request that a route could answer, and end the connection."""
        if self._refused:
            return
        self._refused = True
        self.clearLineBuffer()
        self._stop_watch()
        self.setTimeout(None)
        self._networkProducer.resumeProducing()
        for request in self.requests:
            self._let_go(request)
        reply = self._told(problem)
        assert isinstance(reply.body, bytes)
        own = {"Content-Type": reply.media, "Content-Length": str(len(reply.body)), "Connection": "close"}
        fields = {**answers.HEADERS, **reply.headers, **own}
        lines = [
            f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}", "Server: disqued",
            *(f"{name}: {value}" for name, value in fields.items()),
        ]  # fmt: skip
        self.transport.write("\r\n".join([*lines, "", ""]).encode("ascii") + reply.body)
        self._watch = self.site.reactor.callLater(LINGER_S, self._linger_ends)

    def _told(self, problem: Problem) -> Reply:
        """A problem as it is told to whoever asks, as far as that has come."""
        admin = self.site.admin
        if self.requests:
            request, path = self.requests[-1], self._path
        else:
            request, path = self._sketch()
        return problem_reply(admin, admin.access.nobody(request), request, problem, _path_of(path))

    def _sketch(self) -> tuple[AdminRequest, bytes]:
        """Return a request with the headers that have come and make sense, and its target: to see who asks."""
        request = self.requestFactory(self)
        for line in self._lines[1:]:
            with suppress(Problem):
                request.requestHeaders.addRawHeader(*heads.read_field(line))
        words = self._lines[0].split(b" ") if self._lines else []
        return request, words[1] if len(words) > 1 else b""

    def _linger_ends(self) -> None:
        self._watch = None
        self.transport.abortConnection()

    def writeHeaders(self, version: bytes, code: bytes, reason: bytes, headers: Any) -> None:
        """Write the headers of an answer, without telling the versions of what is behind it."""
        headers.setRawHeaders(b"Server", [SERVER])
        super().writeHeaders(version, code, reason, headers)

    def requestDone(self, request: AdminRequest) -> None:
        """Go on with the next request, in a turn of its own; it may have come already."""
        self._let_go(request)
        self._active_at = self.site.reactor.seconds()
        if not self.persistent:
            self.clearLineBuffer()
        super().requestDone(request)
        self._queue(is_short=False)
        self._watch_partial()
        self._read_or_wait()

    def _let_go(self, request: AdminRequest) -> None:
        """Stop counting a body that is no longer in memory."""
        request.received = 0
        self.report()

    def send(self, request: AdminRequest, body: Body) -> "Deferred[None]":
        """Send the body of an answer, a piece whenever there is room for it; fires when all of it is written."""
        self._body = body
        sender = Sender(self, request, body)
        request.registerProducer(sender, False)
        self.report()
        return sender.done

    def sent(self) -> None:
        """Note that the body of an answer has been written, or is given up."""
        self._body = None
        self.report()

    def write(self, data: bytes) -> None:
        """Write a part of an answer."""
        self._count(len(data))
        super().write(data)

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        """Write a part of an answer that comes in chunks."""
        parts = list(iovec)
        self._count(sum(map(len, parts)))
        super().writeSequence(parts)

    def _count(self, size: int) -> None:
        if self._reading is None:
            # What the client has not read of what was written before is less, or the transport would have said so.
            self._unread = min(self._unread, QUIET)
        self._unread += size

    def pauseProducing(self) -> None:
        """Meet a client that does not read as fast as we write."""
        super().pauseProducing()
        if self._reading is None:
            patience = READ_S + (self._unread + self._kernel_size()) / READ_BYTES_S
            self._read_by = self.site.reactor.seconds() + patience
            self._reading = self.site.reactor.callLater(LOOK_S, self._look_at_reader)
        self.report()

    def _kernel_size(self) -> int:
        """Bytes that the kernel may keep for the client, which shows no progress while it reads those."""
        sock = getattr(self.transport, "socket", None)
        return 0 if sock is None else int(sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))

    def resumeProducing(self) -> None:
        """Go on: the client has read all."""
        self._stop_reading()
        super().resumeProducing()
        self._queue(is_short=False)
        self._watch_partial()
        self._read_or_wait()
        self.report()

    def _stop_reading(self) -> None:
        self._unread = 0
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _look_at_reader(self) -> None:
        """Cut a client that has read too little for too long; see what its answer costs by now."""
        if self.site.reactor.seconds() < self._read_by:
            self._reading = self.site.reactor.callLater(LOOK_S, self._look_at_reader)
            self.report()
            return
        self._reading = None
        self._log.info("{peer} does not read its answer: cut", peer=str(self.transport.getPeer()))
        self.transport.abortConnection()

    # What it holds.

    def report(self, more: int = 0) -> None:
        """Tell the budget of all connections what this one holds, and `more`, where that has changed."""
        held = more + sum(request.received for request in self.requests) + len(self._buffer)
        if self._reading is not None:
            held += self._unread
        if self._body is not None:
            held += self._body.size
        if not self._lost and (abs(held - self._reported) >= HOLD_STEP or (self._reported and not held)):
            self._reported = held
            self.site.budget.hold(self, held)

    def end_for_buffers(self, size: int) -> None:
        """End the connection, which holds the most while all of them hold too much."""
        self._reported = 0
        self._log.info("{peer} holds {size} bytes, too much: cut", peer=str(self.transport.getPeer()), size=size)
        if self._in_body:
            detail = f"all connections together hold too much, and this one most of it: {size} bytes"
            self.refuse(Problem(503, detail, headers={"Retry-After": "5"}))
        else:
            self.transport.abortConnection()

    def timeoutConnection(self) -> None:
        """Close a connection that is idle; one whose client still reads an answer is not."""
        if self._reading is not None:
            self.setTimeout(self.timeOut)
            return
        self.loseConnection()
        self._abortingCall = self.callLater(LINGER_S, self.forceAbortClient)


class Sender:
    """Writes the body of an answer, a piece whenever the transport has room for it."""

    def __init__(self, channel: AdminChannel, request: AdminRequest, body: Body) -> None:
        """`body` is closed by the caller."""
        self.done: Deferred[None] = Deferred(lambda _: self._stop())
        self._channel = channel
        self._request = request
        self._body = body
        self._is_over = False

    def resumeProducing(self) -> None:
        """Write the next piece."""
        if self._is_over:
            return
        try:
            piece = self._body.next_piece()
        except Exception:  # a bug of ours, which whoever waits will log
            self._stop()
            self.done.errback(Failure())
            return
        if piece:
            self._request.write(piece)
            self._channel.report()
        else:
            self._stop()
            self.done.callback(None)

    def stopProducing(self) -> None:
        """Do nothing: when the connection is lost, whoever waits is cancelled."""

    def _stop(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._request.producer = None
            self._channel.unregisterProducer()
            self._channel.sent()


class AdminFactory(HttpSite):
    """Makes a channel for each connection."""

    noisy = False
    displayTracebacks = False
    requestFactory = AdminRequest
    protocol = AdminChannel  # type: ignore[assignment]  # Twisted means one that may also be HTTP/2

    def __init__(self, admin: Site, reactor: Any, turns: SharedTurns) -> None:
        """`turns` gives each connection with input its turn."""
        super().__init__(Root(admin), requestFactory=AdminRequest, timeout=IDLE_S, reactor=reactor)
        self.admin = admin
        self.turns = turns
        self.budget = admin.gateway.buffers
        #: Paths of the routes that take whole jobs.
        self.large = frozenset(entry.path.encode("ascii") for entry in ROUTES if entry.is_large)
        self.channels: set[AdminChannel] = set()
        self._when_empty: list[Deferred[None]] = []

    @property
    def body_limit(self) -> int:
        """What a body may be: the largest job in base64, and what stands around it."""
        largest = min(self.admin.gateway.config.proto_max_bulk_len, BODY_MAX)
        return largest // 3 * 4 + BODY_SLACK

    def acceptableProtocols(self) -> list[bytes]:
        """What TLS clients may speak."""
        return [b"http/1.1"]

    def log(self, request: Any) -> None:
        """Write no line per request: the log of actions has what matters."""

    def startFactory(self) -> None:
        """Open no log of requests, and set no timer for one."""

    def make_room(self, new: AdminChannel) -> str | None:
        """Keep to the limits when a connection has come: returns what is wrong when no idle one can be closed for it.

        Who has a full share loses a connection of its own; else the one that has been idle for longest goes.
        """
        ours = [channel for channel in self.channels if channel.host is not None and channel.host == new.host]
        if not _keep_to(SHARE_MAX, ours, new):
            return f"{SHARE_MAX} connections from {new.host} are open already"
        if not _keep_to(CONNECTIONS_MAX, self.channels, new):
            return f"{CONNECTIONS_MAX} connections are open already"
        return None

    def forget(self, channel: AdminChannel) -> None:
        """Note that a connection has ended."""
        self.channels.discard(channel)
        if not self.channels:
            waiting, self._when_empty = self._when_empty, []
            for done in waiting:
                done.callback(None)

    def end(self, patience_s: float) -> "Deferred[None]":
        """Close all connections, after a moment by force; fires when none is left."""
        done: Deferred[None] = Deferred()
        if not self.channels:
            done.callback(None)
            return done
        self._when_empty.append(done)
        force = self.reactor.callLater(patience_s, self._abort)
        done.addBoth(lambda _: force.cancel() if force.active() else None)
        for channel in list(self.channels):
            channel.end()
        return done

    def _abort(self) -> None:
        for channel in list(self.channels):
            channel.transport.abortConnection()


def _keep_to(limit: int, channels: Iterable[AdminChannel], new: AdminChannel) -> bool:
    """Close what has been refused, then the one that has been idle for longest; False when none of them is idle."""
    staying = [channel for channel in channels if not channel.is_leaving]
    if len(staying) > limit:
        for channel in staying:
            if channel.is_refused:
                channel.make_room()
        staying = [channel for channel in staying if not channel.is_leaving]
    if len(staying) <= limit:
        return True
    idle = [(since, channel) for channel in staying if channel is not new and (since := channel.idle_since) is not None]
    if idle:
        min(idle, key=lambda one: one[0])[1].make_room()
    return bool(idle)


def _too_long(limit: int) -> Problem:
    return Problem(413, f"the body is longer than {limit} bytes")
