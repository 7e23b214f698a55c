"""TLS of the standard library, for the sides that use it: the context, and errors in plain words."""

import contextlib
import ssl
from collections.abc import Iterator

from .errors import NotTrusted
from .tls import Tls, is_refusal

#: A connection that ends during the handshake, as when a node is killed: unrelated to certificates.
BROKE_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


def make_context(tls: Tls) -> ssl.SSLContext:
    """Make a context from the files.  Raises ValueError."""
    if tls.ca is None:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with _reading(f"ca {tls.ca}"):
            context.load_verify_locations(str(tls.ca))
    context.check_hostname = tls.check_host_name
    if tls.certificate is not None:
        with _reading(f"certificate {tls.certificate} with key {tls.key or tls.certificate}"):
            # Without a password OpenSSL would prompt at the terminal.
            context.load_cert_chain(str(tls.certificate), tls.files.get("key"), lambda: tls.key_password or "")
    return context


@contextlib.contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise ValueError(f"{what} cannot be used: {error}") from error


def why_not(error: ssl.SSLError) -> str:
    """Return why there is no TLS connection."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of the node is not trusted: {error.verify_message}"
    return f"TLS: {(error.reason or str(error)).lower().replace('_', ' ')}"


def refusal(error: BaseException) -> NotTrusted | None:
    """Return NotTrusted if the node ended the connection after the handshake because it refused our certificate."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is None or not is_refusal(why_not(cause)):
        return None
    return NotTrusted(f"the node refuses our certificate: {why_not(cause)}")
