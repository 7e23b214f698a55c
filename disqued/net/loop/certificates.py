"""The TLS of one daemon: its certificates, when they end, and the handshakes that came to nothing.

    tls-port, endpoint ssl:..., tls-cluster --> Certificates --> TlsFactory --> the clients, the bus
         SIGHUP --> each is read anew              |
         once a day, and when read                 +--> the log warns of one that ends soon; INFO, metrics say when

It costs nothing where no setting asks for TLS, and needs the packages of disqued[tls] only then.

Times are seconds.
"""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import attrs
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from disqued.config import Config
from disqued.net.loop.lograte import LogRate

if TYPE_CHECKING:
    from disqued.net.loop.tlstransport import TlsFactory
    from disqued.tls.context import Certificates

DAY_S: Final = 86_400
WARN_S: Final = 30 * DAY_S  #: before the end of a certificate the log begins to speak of it
NEEDED: Final = "TLS needs the packages of disqued[tls]"

log = Logger()


class CertificateError(Exception):
    """The settings of TLS cannot be followed; `str()` says what is wrong with which."""


def certificates_of(config: Config, asked: str) -> "Certificates":
    """Read the files that the settings name; `asked`: yes, no, optional.  Raises CertificateError."""
    try:
        from disqued.tls.context import Certificates, ClientCertificates, TlsError, TlsFiles
    except ImportError as error:
        raise CertificateError(f"{NEEDED}: {error}") from None
    assert config.tls_cert_file is not None
    assert config.tls_key_file is not None
    files = TlsFiles(
        certificate=config.tls_cert_file, key=config.tls_key_file, ca=config.tls_ca_cert_file,
        asked=ClientCertificates(asked),
        protocols=config.tls_protocols,
    )  # fmt: skip
    try:
        return Certificates(files.context)
    except TlsError as error:
        raise CertificateError(str(error)) from None


@attrs.frozen
class _CertificateInUse:
    """A certificate, and where it is shown."""

    certificates: "Certificates"
    label: str  #: for INFO and metrics


class TlsListeners:
    """What of a daemon is reached by TLS."""

    def __init__(self, reactor: Any) -> None:
        self.failed_handshakes = 0  #: of others to us
        self._reactor = reactor
        self._renewed: dict[str, Certificates] = {}  #: by what they are for
        self._watched: dict[str, _CertificateInUse] = {}
        self._news = LogRate(reactor.seconds)
        self._call: IDelayedCall | None = None

    def factory(self, what: str, certificates: "Certificates", above: Any, *, label: str = "") -> "TlsFactory":
        """Put TLS below a factory that listens; `what` and `label` are as in `take`."""
        from disqued.net.loop.tlstransport import TlsFactory

        self.take(what, certificates, label=label)
        return TlsFactory(certificates, above, self._reactor, self._failed)

    def take(self, what: str, certificates: "Certificates", *, renews: bool = True, label: str = "") -> None:
        """Watch certificates, and renew them unless somebody else does, who calls `look` then.

        `what` names the setting in the log; `label` is a shorter name for INFO and metrics.
        """
        known = self._watched.get(what)
        if known is not None and known.certificates is certificates:
            return
        self._watched[what] = _CertificateInUse(certificates, label or what)
        if renews:
            self._renewed[what] = certificates
        self.look(what)
        if self._call is None:
            self._call = self._reactor.callLater(DAY_S, self._look_daily)

    def _look_daily(self) -> None:
        self._call = self._reactor.callLater(DAY_S, self._look_daily)
        for what in self._watched:
            self.look(what)

    def look(self, what: str) -> None:
        """Warn in the log when certificates that are watched end soon: they have been read, or a day has passed."""
        ends_at = self._watched[what].certificates.ends_at
        left, end = ends_at - time.time(), datetime.fromtimestamp(ends_at, UTC).isoformat(" ")
        if left <= 0:
            log.warn("The certificate of {what} has expired, {end}: who looks at it goes away", what=what, end=end)
        elif left < WARN_S:
            log.warn("The certificate of {what} expires soon, {end}; SIGHUP takes up a new one", what=what, end=end)

    def renew(self) -> None:
        """Take up what has been renewed; the log says what came of it, and what cannot be read changes nothing."""
        for what, certificates in self._renewed.items():
            try:
                certificates.renew()
            except Exception as error:  # whatever reading, the parser of a string, or OpenSSL raises
                log.error("SIGHUP: {what} keeps its certificate: {reason}", what=what, reason=str(error))
            else:
                log.info("SIGHUP: the certificate of {what} was read anew, for connections from now on", what=what)
                self.look(what)

    def _failed(self, address: Any, reason: str) -> None:
        self.failed_handshakes += 1
        host = getattr(address, "host", "a Unix socket")
        if self._news.is_new(f"{host}: {reason}"):
            log.info("TLS with {host} comes to nothing: {reason}", host=host, reason=reason)

    def stop(self) -> None:
        """Look at nothing any more."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    @property
    def ends(self) -> dict[str, int]:
        """When each certificate ends, unix seconds, by where it is shown; what ends first is the first."""
        found: dict[str, int] = {}
        for shown in self._watched.values():
            ends_at = shown.certificates.ends_at
            found[shown.label] = min(found.get(shown.label, ends_at), ends_at)
        return dict(sorted(found.items(), key=lambda pair: pair[1]))

    def facts(self) -> dict[str, Any]:
        """What INFO says of it; nothing where there is no TLS."""
        if not self._watched:
            return {}
        where, ends_at = next(iter(self.ends.items()))
        return {
            "tls_certificate_expires_in_seconds": int(ends_at - time.time()),
            "tls_certificate_expires_first": where,
            "tls_failed_handshakes": self.failed_handshakes,
        }
