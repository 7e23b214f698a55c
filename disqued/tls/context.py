"""TLS contexts from certificates, keys and authorities, which are read again while the daemon runs.

    tls-cert-file, tls-key-file   ---+
    tls-ca-cert-file                 +--look--> context --> connections, until the next SIGHUP
    an endpoint string  ssl:...   ---+             |
                                                   +-- a certificate of the other end is required, or may be shown,
                                                       or is not asked for; an authority says who may come

Files that are read again count for new connections; open ones keep their context.  When a file cannot be read, or a key
does not belong to its certificate, the old context stays in force.

Host names are not compared: a client or node belongs if its certificate is signed by one of the authorities.

Times are seconds since 1970.
"""

import enum
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import attrs
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID
from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator
from zope.interface import implementer

from disqued.files import PrivateFileError, read_private

KEY_MAX_BYTES: Final = 64 * 1024  #: of a file with a key
PROTOCOLS: Final = {"TLSv1.2": SSL.TLS1_2_VERSION, "TLSv1.3": SSL.TLS1_3_VERSION}
#: Of TLS 1.2, which could do worse; TLS 1.3 has sound ones only.
CIPHERS: Final = b"ECDHE+AESGCM:ECDHE+CHACHA20"
#: Sessions are not resumed: whoever is not to come any more would be let in by an old one.
_OPTIONS: Final = (
    SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_TICKET | SSL.OP_CIPHER_SERVER_PREFERENCE
)  # fmt: skip
#: Why a certificate is not taken, by OpenSSL's number; others are told by their number.
_REFUSALS: Final = {
    9: "is not valid yet",
    10: "has expired",
    18: "is of no authority but itself",
    19: "is of another authority",
    20: "is of another authority",
    21: "is of another authority",
    23: "was revoked",
    24: "is of an authority that may sign none",
    26: "is for another purpose",
}
_OF_OTHERS: Final = (19, 20, 21)


class TlsError(Exception):
    """Certificates, or an authority, cannot be used; `str()` names the file and says why."""


class ClientCertificates(enum.Enum):
    """Whether the other end has to show a certificate."""

    YES = "yes"  #: and it has to be of the authority
    OPTIONAL = "optional"  #: one that is shown has to be
    NO = "no"  #: none is asked for


@attrs.frozen(kw_only=True)
class TlsFiles:
    """What contexts are made of, in the form PEM."""

    certificate: Path  #: ours, and those between it and the root
    key: Path  #: may be the same file; no other user of the machine may read it
    ca: Path | None  #: authorities whose certificates are taken
    asked: ClientCertificates = ClientCertificates.NO
    protocols: tuple[str, ...] = tuple(PROTOCOLS)

    def context(self) -> SSL.Context:
        """Read the files.  Raises TlsError."""
        context = SSL.Context(SSL.TLS_METHOD)
        _harden(context, self.protocols)
        _read("tls-cert-file", self.certificate, context.use_certificate_chain_file)
        try:
            context.use_privatekey(_key_in(self.key))
            context.check_privatekey()
        except SSL.Error:
            problem = "this is the key of another certificate than that of tls-cert-file"
            raise TlsError(f"tls-key-file {self.key}: {problem}") from None
        if self.ca is not None:
            trust(context, self.ca, self.asked, "tls-ca-cert-file")
        return context


def _key_in(path: Path) -> Any:
    """Read a key.  Raises TlsError."""
    try:
        return load_pem_private_key(read_private(path, KEY_MAX_BYTES), None)
    except PrivateFileError as error:
        raise TlsError(f"tls-key-file {error}") from None
    except (TypeError, ValueError, UnsupportedAlgorithm):
        problem = "no key in the form PEM that can be read without a password; nothing else is allowed"
        raise TlsError(f"tls-key-file {path}: {problem}") from None


def _harden(context: SSL.Context, protocols: Iterable[str]) -> None:
    """Speak nothing that is known to be weak."""
    versions = [PROTOCOLS[name] for name in protocols]
    context.set_min_proto_version(min(versions))
    context.set_max_proto_version(max(versions))
    context.set_options(_OPTIONS)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)  # an idle connection keeps 34 KiB less
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_session_id(b"disqued")
    context.set_cipher_list(CIPHERS)


def trust(context: SSL.Context, ca: Path, asked: ClientCertificates, label: str) -> None:
    """Take certificates of these authorities, and no others.  Raises TlsError, which calls the file by the label."""
    _read(label, ca, context.load_verify_locations)
    mode = {
        ClientCertificates.YES: SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT,
        ClientCertificates.OPTIONAL: SSL.VERIFY_PEER,
        ClientCertificates.NO: SSL.VERIFY_NONE,
    }[asked]
    if asked is not ClientCertificates.NO:
        _read(label, ca, lambda path: context.load_client_ca(path.encode()))
    context.set_verify(mode, _note)
    # Without it OpenSSL refuses clients that show a certificate and would resume a session.
    context.set_session_id(b"disqued")


def _read(label: str, path: Path, read: Callable[[str], object]) -> None:
    try:
        if path.is_fifo():  # whoever opens it waits for a writer
            raise TlsError(f"{label} {path}: this is a pipe; a file with certificates in the form PEM is needed")
        with path.open("rb"):
            pass
        read(str(path))
    except OSError as error:
        raise TlsError(f"{label} {path}: {error.strerror}") from None
    except SSL.Error as error:
        reason = openssl_reason(error) or "it holds nothing of the kind"
        raise TlsError(f"{label} {path}: {reason}; certificates in the form PEM are needed") from None


def _note(connection: SSL.Connection, certificate: Any, error: int, depth: int, good: int) -> bool:
    """Note why a certificate of the other end is not taken: OpenSSL's own words do not say it."""
    if not good:
        # That of an authority is sent along by some, and is then what is found wrong.
        whose = "its certificate" if depth == 0 or error in _OF_OTHERS else "a certificate that signs its own"
        protocol = connection.get_app_data()
        protocol.refusal = f"{whose} {_REFUSALS.get(error, f'is not taken, by number {error} of OpenSSL')}"
    return bool(good)


def openssl_reason(error: SSL.Error) -> str:
    """Say in OpenSSL's words what went wrong last; empty when it has none."""
    queue = error.args[0] if error.args else ()
    return str(queue[-1][-1]) if isinstance(queue, list) and queue else ""


def name_in(certificate: Any) -> str:
    """The common name in a certificate; empty when it has none, or is written in a way that cannot be read."""
    try:
        names = certificate.to_cryptography().subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except ValueError:  # what OpenSSL takes is more than what the parser does
        return ""
    return str(names[0].value) if names else ""


@implementer(IOpenSSLServerConnectionCreator, IOpenSSLClientConnectionCreator)
class Certificates:
    """Who we are and whom we trust, for both ends of connections."""

    def __init__(self, look: Callable[[], SSL.Context]) -> None:
        """Look at the files.  Raises what `look` does."""
        self._look = look
        self._context = look()

    def renew(self) -> None:
        """Look at them again; raises what `look` does, and then all stays as it was."""
        self._context = self._look()

    @property
    def ends_at(self) -> int:
        """When our certificate ends."""
        own = SSL.Connection(self._context, None).get_certificate()
        assert own is not None
        return int(own.to_cryptography().not_valid_after_utc.timestamp())

    def serverConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        connection = self._connection(protocol)
        connection.set_accept_state()
        return connection

    def clientConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        connection = self._connection(protocol)
        connection.set_connect_state()
        return connection

    def _connection(self, protocol: Any) -> SSL.Connection:
        connection = SSL.Connection(self._context, None)
        connection.set_app_data(protocol)
        return connection
