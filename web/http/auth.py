"""Who asks, and what they may do.

    http-token-file              Authorization: Bearer <token>, or a session that the login form has opened with one
    no file, requirepass         the same, with the password as the token of an admin who sees bodies, as long as
                                 clients who give it may do everything: it is the user `default`'s
    neither                      only loopback is served then: whoever asks is an admin who sees bodies, as long as the
                                 user `default` of the port for clients needs no password and may do everything, too;
                                 else nobody gets in

`bodies` is a right of its own: an admin whose token is without it does not see the body of a job.  The password is the
one in force when it is asked for, since CONFIG SET may change it; sessions that an old one has opened end with it.
"""

import select
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from twisted.logger import Logger

from disqued.acl.attempts import Attempts
from disqued.config import Config
from disqued.web.http.exchange import Operation, Role, Visitor, never
from disqued.web.http.origins import Hosts, check_read, check_write, header
from disqued.web.http.problems import Problem
from disqued.web.http.sessions import LIFE_S, Sessions
from disqued.web.http.tokens import Token, TokenFile, digest_of, find

log = Logger()

CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="disqued"'}


class Access:
    """Decides about visitors."""

    def __init__(
        self, config: Config, clock: Any, limits_unauthenticated: Callable[[], bool], admin_digest: Callable[[], bytes],
        attempts: Attempts | None = None,
    ) -> None:  # fmt: skip
        """`clock` has `seconds()`; `attempts` is what to share, if it is not for the tokens alone.

        `limits_unauthenticated` tells whether a client that says nothing of who it is may do less than everything,
        `admin_digest` is the SHA-256 of the password that lets clients do everything, or b"".

        Raises TokenError, ValueError.
        """
        self._config = config
        self._strangers_are_limited = limits_unauthenticated
        self._admin_digest = admin_digest
        self._clock = clock
        path = config.http_token_file
        self._file = None if path is None else TokenFile(path, clock.seconds())
        self.hosts = Hosts(config.http_bind, config.http_hosts)
        self._sessions = Sessions()
        self._attempts = Attempts() if attempts is None else attempts

    # Who asks.

    @property
    def is_open(self) -> bool:
        """True when nobody has to say who they are."""
        return self._file is None and not self._config.password_digest and not self._strangers_are_limited()

    def visitor(self, request: Any) -> Visitor:
        """Find out who asks; who gives no token is nobody.  Raises Problem 400, 401, 429."""
        if self.is_open:
            return self.guest(request)
        given = header(request, "Authorization")
        if given is not None:
            return _visitor(self._check(_bearer(given), request), request)
        return self.guest(request)

    def guest(self, request: Any) -> Visitor:
        """Find out who asks for what everybody may see: no token is looked at, so none can be guessed."""
        if self.is_open:
            return Visitor("local", Role.ADMIN, True, address_of(request), end_of(request))
        token = self._session_token(request)
        return self.nobody(request) if token is None else _visitor(token, request)

    def still_holds(self, request: Any, visitor: Visitor) -> bool:
        """Tell whether what a request gave, some time ago, still makes this visitor of whoever sent it."""
        if self.is_open:
            return visitor.role is Role.ADMIN and visitor.sees_bodies
        try:
            given = header(request, "Authorization")
            token = self._session_token(request) if given is None else find(self._tokens(), _bearer(given))
        except Problem:
            # What was of no account while everybody was let in.
            return False
        return token is not None and _visitor(token, request) == visitor

    @property
    def complaint(self) -> str:
        """Why the file of tokens as it is now is not what is in force; empty = it is, or there is none."""
        return "" if self._file is None else self._file.complaint

    @staticmethod
    def nobody(request: Any) -> Visitor:
        """Who has said nothing of who they are, or nothing that holds."""
        return Visitor("nobody", Role.NOBODY, False, address_of(request), end_of(request))

    def _tokens(self) -> tuple[Token, ...]:
        if self._file is not None:
            return self._file.tokens(self._clock.seconds())
        digest = self._admin_digest()
        return (Token("password", Role.ADMIN, True, digest),) if digest else ()

    def _check(self, text: str, request: Any) -> Token:
        """Find the token that was given.  Raises Problem 401, 429."""
        now, host = self._clock.seconds(), _host_of(request)
        wait = self._attempts.wait(host, digest_of(text), now)
        if wait:
            raise Problem(
                429, f"too many wrong tokens from {host}; try again in {wait} s", headers={"Retry-After": str(wait)}
            )
        token = find(self._tokens(), text)
        if token is None:
            self._attempts.failed(host, now)
            log.warn("A wrong token on the admin side, from {host}", host=host)
            raise Problem(401, "this token is not known; allowed are those in http-token-file", headers=CHALLENGE)
        self._attempts.succeeded(host, token.digest)
        return token

    # Sessions.

    def login(self, text: str, request: Any) -> tuple[Visitor, str]:
        """Open a session for a token; returns who it is, and the value of Set-Cookie.  Raises Problem 401, 429."""
        if self.is_open:
            return self.visitor(request), _cookie(request, "", 0)
        token = self._check(text, request)
        name = self._sessions.begin(token.digest, self._clock.seconds())
        return _visitor(token, request), _cookie(request, name, LIFE_S)

    def logout(self, request: Any) -> str:
        """Close the session of a request, if it has one; returns the value of Set-Cookie."""
        name = _session_name(request)
        if name is not None:
            self._sessions.end(name)
        return _cookie(request, "", 0)

    def _session_token(self, request: Any) -> Token | None:
        """The token that the session of a request was opened with, if both still are."""
        name = _session_name(request)
        digest = None if name is None else self._sessions.token(name, self._clock.seconds())
        if digest is None:
            return None
        return next((token for token in self._tokens() if token.digest == digest), None)

    # What they may do.

    def admit(self, visitor: Visitor, operation: Operation, request: Any) -> None:
        """Check that a visitor may ask for an operation.  Raises Problem 400, 401, 403, 415."""
        if visitor.role < operation.role:
            if visitor.role is Role.NOBODY:
                text = "a token is needed: Authorization: Bearer <token>, or a session from /login"
                raise Problem(401, text, headers=CHALLENGE)
            least = operation.role.name.lower()
            raise Problem(403, f"{visitor.name} has the role {visitor.role.name.lower()}; allowed from {least} on")
        if operation.needs_bodies and not visitor.sees_bodies:
            raise Problem(
                403, f"{visitor.name} may not see bodies of jobs; allowed with the word bodies in its token's line"
            )
        if operation.writes or operation.method != "GET":
            has_session = not self.is_open and not request.requestHeaders.hasHeader(b"Authorization")
            has_session = has_session and _session_name(request) is not None
            check_write(request, has_session=has_session, takes_form=operation.takes_form)
        elif operation.role > Role.NOBODY:
            check_read(request)


def address_of(request: Any) -> str:
    """``ip:port`` of who asks; ``unix`` through a Unix socket."""
    peer = request.getClientAddress()
    if not hasattr(peer, "host"):
        return "unix"
    return f"[{peer.host}]:{peer.port}" if ":" in peer.host else f"{peer.host}:{peer.port}"


def _host_of(request: Any) -> str:
    return getattr(request.getClientAddress(), "host", "unix")


def end_of(request: Any) -> Callable[[], bool]:
    """Return the function that says whether the client of a request has closed its connection.

    With TLS, too, the end of the connection below counts.
    """
    transport = request.channel.transport
    while not hasattr(transport, "socket") and hasattr(transport, "transport"):
        transport = transport.transport
    below = getattr(transport, "socket", None)
    return never if below is None else partial(_has_closed, below)


def _has_closed(connection: socket.socket) -> bool:
    if connection.fileno() < 0:
        return True
    poller = select.poll()
    poller.register(connection, select.POLLRDHUP)
    return bool(poller.poll(0))


def _visitor(token: Token, request: Any) -> Visitor:
    return Visitor(token.name, token.role, token.sees_bodies, address_of(request), end_of(request))


def _bearer(text: str) -> str:
    """The token in an Authorization header.  Raises Problem 401."""
    scheme, _, token = text.strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Problem(401, "Authorization is none that is known; allowed is Bearer <token>", headers=CHALLENGE)
    return token.strip()


def _cookie_name(request: Any) -> str:
    """The name of our cookie: browsers do not tell ports apart, and several nodes may run on one machine."""
    return f"disqued-{getattr(request.getHost(), 'port', 'unix')}"


def _session_name(request: Any) -> str | None:
    value = request.getCookie(_cookie_name(request).encode("ascii"))
    return value.decode("latin-1") if value else None


def _cookie(request: Any, value: str, life_s: int) -> str:
    secure = "; Secure" if request.isSecure() else ""
    return f"{_cookie_name(request)}={value}; Path=/; Max-Age={life_s}; HttpOnly; SameSite=Strict{secure}"
