"""TLS of the client for Twisted: a context from the files, and verification of the node's name.

    connect --> handshake: is the certificate signed by a trusted authority? (OpenSSL)
                          then: is it for the expected name? (service_identity)
            --> the first command

No command is sent before both checks.  Twisted neither reports what is wrong with a certificate, nor can it leave the
name unchecked or check another one; so this module does both.
"""

import contextlib
import re
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.serialization import load_pem_private_key
from OpenSSL import SSL
from service_identity import CertificateError, VerificationError
from service_identity.pyopenssl import verify_hostname, verify_ip_address
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.internet.ssl import CertificateOptions
from zope.interface import implementer

from ..errors import NotTrusted
from ..tls import Tls, is_refusal

#: Errors of X509_verify_cert by number; other errors are reported by number.
_FINDINGS: Final = {
    2: "unable to get issuer certificate",
    9: "certificate is not yet valid",
    10: "certificate has expired",
    18: "self-signed certificate",
    19: "self-signed certificate in certificate chain",
    20: "unable to get local issuer certificate",
    21: "unable to verify the first certificate",
    23: "certificate revoked",
    24: "invalid CA certificate",
    26: "unsuitable certificate purpose",
    79: "invalid CA certificate",
}


_KEY: Final = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)


def make_context(tls: Tls) -> SSL.Context:
    """Make a context from the files.  Raises ValueError."""
    context = CertificateOptions().getContext()  # with Twisted's choice of versions and ciphers
    if tls.ca is None:
        context.set_default_verify_paths()
    else:
        with _reading(f"ca {tls.ca}"):
            context.load_verify_locations(str(tls.ca))
    context.set_verify(SSL.VERIFY_PEER, _look)
    if tls.certificate is not None:
        with _reading(f"certificate {tls.certificate} with key {tls.key or tls.certificate}"):
            context.use_certificate_chain_file(str(tls.certificate))
            context.use_privatekey(_read_key(Path(tls.key or tls.certificate), tls.key_password or ""))
            context.check_privatekey()
    return context


def _read_key(path: Path, password: str) -> Any:
    """Read the key in a file that may also contain certificates.  Raises ValueError."""
    found = _KEY.search(path.read_bytes())
    if found is None:
        raise ValueError("there is no key")
    is_encrypted = b"ENCRYPTED" in found[0]
    return load_pem_private_key(found[0], password.encode() if is_encrypted else None)


@contextlib.contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except (SSL.Error, OSError, ValueError, TypeError) as error:  # TypeError: a key without its password
        raise ValueError(f"{what} cannot be used: {_words(error)}") from error


def _look(connection: SSL.Connection, certificate: Any, finding: int, depth: int, is_fine: int) -> bool:
    """Note what is wrong with a certificate, which OpenSSL reports nowhere else."""
    if not is_fine:
        connection.set_app_data(_FINDINGS.get(finding, f"verification error {finding}"))
    return bool(is_fine)


@implementer(IOpenSSLClientConnectionCreator)
class Secure:
    """Makes the TLS connections to one host, and verifies its name."""

    def __init__(self, tls: Tls, context: SSL.Context, host: str) -> None:
        self._context = context
        self._name = tls.name_of(host)
        self._checks_name = tls.check_host_name

    def clientConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        connection = SSL.Connection(self._context, None)
        if not _is_ip(self._name):
            connection.set_tlsext_host_name(self._name.encode("idna"))
        return connection

    def check_name(self, connection: SSL.Connection) -> None:
        """Check that a trusted certificate is for the expected node.  Raises NotTrusted."""
        if not self._checks_name:
            return
        verify = verify_ip_address if _is_ip(self._name) else verify_hostname
        try:
            verify(connection, self._name)
        except (VerificationError, CertificateError) as error:
            text = f"the certificate of the node is not trusted: it is not for {self._name!r}"
            raise NotTrusted(text) from error


def _is_ip(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def why_not(error: BaseException | None, connection: SSL.Connection, *, is_agreed: bool) -> NotTrusted | None:
    """Return NotTrusted if certificates ended a connection; `is_agreed`: our side of the handshake was done."""
    if not isinstance(error, SSL.Error) or isinstance(error, SSL.SysCallError | SSL.ZeroReturnError):
        return None
    words = _words(error)
    finding = connection.get_app_data()  # before `_look` it holds an object of Twisted
    if isinstance(finding, str):
        return NotTrusted(f"the certificate of the node is not trusted: {finding}")
    if is_agreed:
        return NotTrusted(f"the node refuses our certificate: TLS: {words}") if is_refusal(words) else None
    return None if "unexpected eof" in words else NotTrusted(f"TLS: {words}")


def _words(error: Exception) -> str:
    """Format an error; OpenSSL's are lists of (library, function, reason)."""
    if isinstance(error, SSL.Error) and error.args and isinstance(error.args[0], list):
        return "; ".join(str(reason) for *_, reason in error.args[0]) or "unknown error"
    return str(error)
