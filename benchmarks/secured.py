"""What a server is told so that it speaks TLS on a second port, in the words that disqued and redis-server share.

    port        asked whether it serves, cleared, counted       as ever
    tls-port    loaded, or held open

The certificate signs itself, its key is on P-256, and clients need none; redis-benchmark is told not to check it.
"""

import ssl
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.servers import free_port
from tests.certificates import make_certificate

Secure = Callable[[int], Sequence[str]]  #: a port -> options of a server that speaks TLS there


@contextmanager
def secured(wanted: bool = True) -> Iterator[tuple[Secure, tuple[int, int]]]:
    """Give a way to name the options, and two ports; where it is not wanted no options, and 0."""
    if not wanted:
        yield (lambda _: ()), (0, 0)
        return
    with tempfile.TemporaryDirectory(prefix="disqued-bench-tls-") as folder:
        key, certificate = Path(folder) / "key.pem", Path(folder) / "certificate.pem"
        make_certificate(key, certificate)

        def options(port: int) -> Sequence[str]:
            return (
                "--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key),
                "--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no",
            )  # fmt: skip

        yield options, (free_port(), free_port())


def unchecked() -> ssl.SSLContext:
    """A client's side that takes any certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
