"""The ports of the admin side.

    AdminServer --listen--> ports --> channel: Twisted's HTTP, with limits --> app.Root --> Site

What is wrong with its settings stops the start, in one line that says what: AdminError.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred, ensureDeferred, gatherResults, maybeDeferred
from twisted.internet.endpoints import quoteStringArgument, serverFromString
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.config import Config
from disqued.config.credentials import written_out
from disqued.config.endpoint_strings import kind
from disqued.web.api import openapi
from disqued.web.audit import AuditLog
from disqued.web.channel import AdminFactory
from disqued.web.gateway import Gateway
from disqued.web.http.auth import Access
from disqued.web.http.tokens import TokenError
from disqued.web.pages import assets, render
from disqued.web.site import Site
from disqued.web.turns import next_turn

if TYPE_CHECKING:
    from disqued.tls.context import Certificates

log = Logger()

#: Gives a factory the port of an address that somebody else has opened already, if there is one.
Adopt = Callable[[Any, str, int], Any]

END_S: Final = 1.0  #: that answers have to leave when the node stops


class AdminError(Exception):
    """The admin side cannot be served; `str()` names the setting, and says what is wrong with it."""


class AdminServer:
    """Serves the admin side of a daemon."""

    def __init__(self, gateway: Gateway) -> None:
        """Read the tokens; nothing listens yet.  Raises AdminError."""
        config = gateway.config
        self._config = config
        self._reactor = gateway.reactor
        self._turns = gateway.turns
        try:
            users = gateway.access
            access = Access(config, gateway.reactor, users.limits_unauthenticated, users.admin_digest, users.attempts)
        except TokenError as error:
            raise AdminError(f"http-token-file {error}") from None
        except ValueError as error:
            raise AdminError(f"http-hosts: {error}") from None
        self.site = Site(gateway, access, AuditLog(config.http_audit_file))
        self.factory = AdminFactory(self.site, gateway.reactor, gateway.turns)
        self._ports: list[Any] = []
        self.certificates: Certificates | None = None  #: what it shows of itself, if it speaks TLS
        self._stopped = False
        #: Fires when all that is to be listened on is open: some endpoints take their time.
        self.opened: Deferred[None] = Deferred()

    def listen(self, failed: Callable[[str], None] = lambda reason: None, adopt: Adopt = lambda *_: None) -> None:
        """Open the ports, or take those that are open already; `failed` is told why an endpoint fails only later.

        A port that is in use stops the start, unless nobody has asked for it.  Raises AdminError.
        """
        self.site.history.pulse.start()
        ensureDeferred(self._prepare())
        if self._config.http_endpoint:
            self._open_endpoint(self._config.http_endpoint, failed)
        elif self._config.http_port:
            for address in self._config.http_bind:
                self._open_port(self._config, address, adopt)
            self.opened.callback(None)
        if self._ports and self.site.access.is_open:
            log.info("Whoever reaches the admin page from this machine is an admin; http-token-file changes that")

    async def _prepare(self) -> None:
        """Make what is made once: templates, the OpenAPI document, files in gzip.

        The first visitor would hold the loop with it.
        """
        templates = render.environment()
        for name in templates.list_templates():
            await next_turn(self._turns)
            if self._stopped:
                return
            templates.get_template(name)
        await next_turn(self._turns)
        openapi.written()
        await assets.pack(self._turns)

    def _open_port(self, config: Config, address: str, adopt: Adopt) -> None:
        try:
            port = adopt(self.factory, address, config.http_port)
            if port is None:
                port = self._reactor.listenTCP(config.http_port, self.factory, interface=address)
        except CannotListenError as error:
            if config.is_given("http-port") or config.is_given("http-bind"):
                raise AdminError(f"http-port: {error}") from None
            log.warn("There is no admin page: {reason}; set http-port", reason=str(error))
            return
        self._ports.append(port)
        host = f"[{address}]" if ":" in address else address
        log.info("The admin page is at http://{host}:{port}/", host=host, port=port.getHost().port)

    def _open_endpoint(self, text: str, failed: Callable[[str], None]) -> None:
        """Listen at an endpoint string.  Raises AdminError when it fails at once."""
        try:
            opening = self._endpoint(text).listen(self.factory)
        except Exception as error:  # whatever the parser of this kind of endpoint raises
            raise AdminError(_fault(text, error)) from None
        at_once: list[Failure] = []
        opening.addCallbacks(self._opened, at_once.append)
        if at_once:
            raise AdminError(_fault(text, at_once[0].value))
        if not opening.called:
            opening.addCallback(lambda _: failed(_fault(text, at_once[0].value)) if at_once else None)

    def _endpoint(self, text: str) -> Any:
        text = written_out(text, quoteStringArgument)
        if kind(text) != "ssl":
            return serverFromString(self._reactor, text)
        from disqued.tls.endpoint import RenewableTLS

        self.certificates = RenewableTLS(self._reactor, text)
        return self.certificates

    def renew(self) -> bool:
        """Read the certificate again, if there is one; returns whether it could be read.  The log says so, too."""
        if self.certificates is None:
            return False
        try:
            self.certificates.renew()
        except Exception as error:  # whatever reading, the parser, or OpenSSL raises
            log.error(
                "SIGHUP: the admin page keeps its certificate: {reason}",
                reason=_fault(self._config.http_endpoint, error),
            )
        else:
            log.info("SIGHUP: the certificate of the admin page was read anew, for connections from now on")
            return True
        return False

    def _opened(self, port: Any) -> Any:
        if self._stopped:
            return port.stopListening()
        self._ports.append(port)
        log.info("The admin page is at {address}", address=str(port.getHost()))
        self.opened.callback(None)
        return None

    @property
    def port(self) -> int:
        """The TCP port; 0 = none."""
        return int(getattr(self._ports[0].getHost(), "port", 0)) if self._ports else 0

    def stop(self) -> "Deferred[Any]":
        """Close the ports, the connections, and what the site holds."""
        self._stopped = True
        ports, self._ports = self._ports, []
        closed = gatherResults([maybeDeferred(port.stopListening) for port in ports], consumeErrors=True)
        ended = self.factory.end(END_S)
        ended.addBoth(lambda _: self.site.stop())
        return gatherResults([closed, ended], consumeErrors=True)


def _fault(text: str, error: BaseException | None) -> str:
    """Why an endpoint cannot be served; what OpenSSL says of a bad key is a list of tuples."""
    reason = str(error) or type(error).__name__
    if isinstance(error, ImportError):
        reason = f"{reason}; TLS needs the packages of disqued[tls]"
    return (
        f"http-endpoint {text}: {type(error).__name__}: {reason}; allowed are endpoint strings such as"
        " ssl:7780:privateKey=node.key:certKey=node.pem and unix:/run/disqued/http.sock"
    )
