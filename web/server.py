"""The port of the admin side.

AdminServer --listen--> Twisted's HTTP, with limits on lines, headers, bodies and time --> app.Root --> Site
"""

from typing import Any

from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.web.server import Site as HttpSite

from disqued.config import Config
from disqued.web.app import Root
from disqued.web.audit import AuditLog
from disqued.web.auth import Access
from disqued.web.gateway import Gateway
from disqued.web.site import Site

log = Logger()


class AdminServer:
    """Serves the admin side of a daemon."""

    def __init__(self, gateway: Gateway) -> None:
        config = gateway.config
        self._config = config
        self._reactor = gateway.reactor
        self.site = Site(gateway, Access(config), AuditLog(config.http_audit_file))
        self._ports: list[Any] = []

    def listen(self) -> None:
        """Open the ports.

        One that is in use stops the start, unless nobody has asked for it.  Raises CannotListenError.
        """
        config = self._config
        factory = HttpSite(Root(self.site), reactor=self._reactor)
        factory.displayTracebacks = False
        if config.http_endpoint:
            self._open_endpoint(config, factory)
            return
        for address in config.http_bind:
            try:
                self._ports.append(self._reactor.listenTCP(config.http_port, factory, interface=address))
            except CannotListenError as error:
                if config.is_given("http-port") or config.is_given("http-bind"):
                    raise
                log.warn("There is no admin page: {reason}; set http-port", reason=str(error))
            else:
                host = f"[{address}]" if ":" in address else address
                port = self._ports[-1].getHost().port
                log.info("The admin page is at http://{host}:{port}/", host=host, port=port)

    def _open_endpoint(self, config: Config, factory: Any) -> None:
        serverFromString(self._reactor, config.http_endpoint).listen(factory).addCallback(self._ports.append)

    @property
    def port(self) -> int:
        """The TCP port; 0 = none."""
        return int(self._ports[0].getHost().port) if self._ports else 0

    def stop(self) -> "Deferred[Any]":
        """Close the ports and what the site holds."""
        ports, self._ports = self._ports, []
        self.site.stop()
        return gatherResults([maybeDeferred(port.stopListening) for port in ports])
