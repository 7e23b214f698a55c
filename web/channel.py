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

from collections.abc import Iterable
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
from disqued.web.http import answers, heads, input_timer
from disqued.web.http.bodies import Body
from disqued.web.http.exchange import Role
from disqued.web.http.framing import ChunkedBody, SizedBody
from disqued.web.http.head_lines import HEADER_BYTES, HeadLines, too_long
from disqued.web.http.input_timer import InputTimer
from disqued.web.http.problems import Problem
from disqued.web.http.unread import UnreadAnswers
from disqued.web.pages.problem_pages import problem_reply
from disqued.web.routes import ROUTES
from disqued.web.site import Site
from disqued.web.turns import SharedTurns

CONNECTIONS_MAX: Final = 500
SHARE_MAX: Final = CONNECTIONS_MAX // 2  #: of them, from one IP address
BODY_MAX: Final = 64 << 20  #: of a job in a request, where proto-max-bulk-len is not below it
BODY_SLACK: Final = 64 << 10  #: what may stand around it
USUAL_BODY_MAX: Final = 256 << 10  #: of a request that brings no job
STRANGERS_BODY_MAX: Final = 16 << 10  #: of a request that says nothing of who asks
IDLE_S: Final = 75.0
WAITING_MAX: Final = 16 << 10  #: of input that waits for its turn before its connection is read no further
HOLD_STEP: Final = 4096  #: by how much a connection holds more or less before the budget hears of it
SERVER: Final = b"disqued"


def _path_of(target: bytes) -> bytes:
    """The path of a target, whether it names its host or not."""
    whole = heads.ABSOLUTE.fullmatch(target)
    path = (target if whole is None else whole["rest"]).partition(b"?")[0]
    # Subcommands had spaces in their paths.
    return path.replace(b"%20", b"/") if path.startswith(b"/api/commands/") else path


class AdminRequest(Request):
    """A request whose body is in memory, and is never taken for parameters."""

    channel: "AdminChannel"
    content: Any
    received = 0
    is_known = False  #: its sender has been asked who it is, and may send a large body
    target = b""  #: as its head has it

    def check_length(self, length: int | None) -> None:
        """Look at the body that is announced: its sender, when it may be large, and its length.  Raises Problem."""
        if length is None or length > STRANGERS_BODY_MAX:
            self.parseCookies()
            self.is_known = self.channel.site.admin.access.visitor(self).role > Role.NOBODY
        if length is not None:
            self.check_size(length)

    def check_size(self, size: int) -> None:
        """Refuse a body that is larger than its path and its sender allow.  Raises Problem."""
        site = self.channel.site
        limit = STRANGERS_BODY_MAX
        if self.is_known:
            limit = site.body_limit if _path_of(self.target) in site.large else USUAL_BODY_MAX
        if size > limit:
            raise Problem(413, f"the body is longer than {limit} bytes")

    def gotLength(self, length: int | None) -> None:
        self.content = BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
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
        self.content.seek(0)
        path = self._of_this_host(path)
        self.method, self.uri, self.clientproto = command, path, version
        self.path = _path_of(path)
        self.args = parse_qs(path.partition(b"?")[2], 1)
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


def _refusal(admin: Site, request: AdminRequest, problem: Problem) -> bytes:
    """Return the answer that tells a problem to the sender of a request, of which all or some has come."""
    reply = problem_reply(admin, admin.access.nobody(request), request, problem, _path_of(request.target))
    assert isinstance(reply.body, bytes)
    own = {"Content-Type": reply.media, "Content-Length": str(len(reply.body)), "Connection": "close"}
    fields = {**answers.HEADERS, **reply.headers, **own}
    lines = [f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}", "Server: disqued",
             *(f"{name}: {value}" for name, value in fields.items())]  # fmt: skip
    return "\r\n".join([*lines, "", ""]).encode("ascii") + reply.body


class AdminChannel(HTTPChannel):
    """One connection."""

    requestFactory = AdminRequest
    delimiter = b"\n"  # so that a line without CR is seen, and refused
    MAX_LENGTH = HEADER_BYTES

    transport: Any
    site: "AdminFactory"

    def __init__(self) -> None:
        super().__init__()
        self._head = HeadLines()
        self._closes = False  #: the client wants no further answer
        self.is_refused = False  #: it was told that it ends; what still comes is thrown away
        self._lost = False
        self.paused = (
            True  #: LineReceiver leaves the input in its buffer; False during a turn, until a request is whole
        )
        self._is_queued = False  #: it waits for its turn
        self._body: Body | None = None  #: of the answer that is being sent
        self._reported = 0  #: what the budget knows of
        self._active_at = 0.0  #: when something came last, or an answer was complete
        self.host: str | None = None  #: IP address of the client; None through a Unix socket
        self.is_leaving = False  #: it has made room for another one

    # Connections.

    def connectionMade(self) -> None:
        """Take the connection, or turn it away when there are too many and none of them is idle."""
        super().connectionMade()
        self._input = InputTimer(self.site.reactor)
        self._unread = UnreadAnswers(self.site.reactor)
        self._active_at = self.site.reactor.seconds()
        self.host = getattr(self.transport.getPeer(), "host", None)
        self.site.channels.add(self)
        fault = self.site.make_room(self)
        if fault is not None:
            self.refuse(Problem(503, fault, headers={"Retry-After": "5"}))

    @property
    def idle_since(self) -> float | None:
        """When this connection fell idle; None while it sends a body or is answered."""
        is_busy = self._handlingRequest or self._input.in_body or self._is_queued or self._unread.is_watched
        return None if is_busy else self._active_at

    def make_room(self) -> None:
        """Close at once, in favour of another connection."""
        self.is_leaving = self.is_refused = True
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Forget the connection; what its requests wait for is given up."""
        self._lost = True
        self.clearLineBuffer()
        self._input.stop()
        self._unread.stop()
        for request in self.requests:
            self._let_go(request)
        super().connectionLost(reason)
        self.site.budget.drop(self)
        self.site.forget(self)

    # What comes.

    def dataReceived(self, data: bytes) -> None:
        """Keep bytes until it is this connection's turn; after a refusal they are thrown away."""
        if self.is_refused:
            return
        self._active_at = self.site.reactor.seconds()
        self._input.note(len(data))
        super().dataReceived(data)
        self._queue(is_short=len(self._buffer) <= WAITING_MAX)
        self._read_or_wait()
        self.report()

    def _queue(self, *, is_short: bool) -> None:
        """Wait for a turn, if there is input that may be taken now."""
        may_go_on = not (self._handlingRequest or self._waitingForTransport or self._is_queued)
        if may_go_on and self._buffer and not self.is_refused and not self._lost:
            self._is_queued = True
            self.site.turns.add(self, is_short=is_short)

    def turn(self) -> None:
        """Take input until a request is whole, and begin to answer it."""
        self._is_queued = False
        if self.is_refused or self._lost or self._handlingRequest or self._waitingForTransport:
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
        has_begun = self.requests or self._head or self._buffer
        is_partial = has_begun and not waits and not self.is_refused
        if is_partial and not self._lost:
            self._input.watch_head(self.refuse)

    def lineReceived(self, line: bytes) -> None:
        """Take a line of the head, without its LF; the first line may be empty."""
        if self.is_refused:
            return
        try:
            head = self._head.add(line)
            if head is not None:
                self._begin(head)
        except Problem as problem:
            self.refuse(problem)

    def _begin(self, head: heads.RequestHead) -> None:
        request = self.requestFactory(self)
        request.target = head.target
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
        if self.is_refused:
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
        self.refuse(too_long())

    def allHeadersReceived(self) -> None:
        """Look at what is to come before it comes."""
        if self.is_refused:
            return
        self._input.stop()
        request = self.requests[-1]
        try:
            request.check_length(self.length)
        except Problem as problem:
            request.gotLength(0)
            self.refuse(problem)
            return
        super().allHeadersReceived()
        if self.length != 0:
            self._input.watch_body(self.refuse)

    def rawDataReceived(self, data: bytes) -> None:
        if self.is_refused:
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
        if not self.is_refused:
            self.paused = True
            self._input.stop()
            super().allContentReceived()

    def takes(self, request: AdminRequest, size: int) -> bool:
        """Return whether so many bytes more of a body may come; else refuse the request."""
        if self.is_refused:
            return False
        try:
            request.check_size(request.received + size)
        except Problem as problem:
            self.refuse(problem)
            return False
        self.report(size)
        return not self.is_refused

    # What leaves.

    def refuse(self, problem: Problem) -> None:
        """Answer a problem before there is a request that a route could answer, and end the connection."""
        if self.is_refused:
            return
        self.is_refused = True
        self.clearLineBuffer()
        self._input.stop()
        self.setTimeout(None)
        self._networkProducer.resumeProducing()
        for request in self.requests:
            self._let_go(request)
        # The one that is coming shows who asks, as far as it has come.
        coming = self.requests[-1] if self.requests else self.requestFactory(self)
        if not self.requests:
            coming.target = self._head.sketch(coming.requestHeaders)
        self.transport.write(_refusal(self.site.admin, coming, problem))
        self._input.linger(self.transport.abortConnection)

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
        self._unread.count(len(data))
        super().write(data)

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        """Write a part of an answer that comes in chunks."""
        parts = list(iovec)
        self._unread.count(sum(map(len, parts)))
        super().writeSequence(parts)

    def pauseProducing(self) -> None:
        """Meet a client that does not read as fast as we write."""
        super().pauseProducing()
        self._unread.watch(self.transport, self.report, self._cut_reader)
        self.report()

    def resumeProducing(self) -> None:
        """Go on: the client has read all."""
        self._unread.stop()
        super().resumeProducing()
        self._queue(is_short=False)
        self._watch_partial()
        self._read_or_wait()
        self.report()

    def _cut_reader(self) -> None:
        """End the connection of a client that has read too little for too long."""
        self._log.info("{peer} does not read its answer: cut", peer=str(self.transport.getPeer()))
        self.transport.abortConnection()

    # What it holds.

    def report(self, more: int = 0) -> None:
        """Tell the budget of all connections what this one holds, and `more`, where that has changed."""
        held = more + sum(request.received for request in self.requests) + len(self._buffer) + self._unread.held
        if self._body is not None:
            held += self._body.size
        if not self._lost and (abs(held - self._reported) >= HOLD_STEP or (self._reported and not held)):
            self._reported = held
            self.site.budget.hold(self, held)

    def end_for_buffers(self, size: int) -> None:
        """End the connection, which holds the most while all of them hold too much."""
        self._reported = 0
        self._log.info("{peer} holds {size} bytes, too much: cut", peer=str(self.transport.getPeer()), size=size)
        if self._input.in_body:
            detail = f"all connections together hold too much, and this one most of it: {size} bytes"
            self.refuse(Problem(503, detail, headers={"Retry-After": "5"}))
        else:
            self.transport.abortConnection()

    def timeoutConnection(self) -> None:
        """Close a connection that is idle; one whose client still reads an answer is not."""
        if self._unread.is_watched:
            self.setTimeout(self.timeOut)
            return
        self.loseConnection()
        self._abortingCall = self.callLater(input_timer.LINGER_S, self.forceAbortClient)


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
            channel.loseConnection()
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
