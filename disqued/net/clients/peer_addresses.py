"""The two ends of a connection, as CLIENT LIST shows them.

    transport --> its address there, its address here --> ip:port   [ipv6]:port   path:0 of a Unix socket
        +-------> the certificate that the other end has shown --> its common name

Source: Disque, src/anet.c; the fields addr and laddr of Redis.
"""

import os
from typing import Any

from twisted.internet.address import UNIXAddress


def is_unix(transport: Any) -> bool:
    """True for a connection through a Unix socket."""
    return isinstance(transport.getHost(), UNIXAddress)


def other_end(transport: Any) -> str:
    """The address of the other end; that of a Unix socket is our own."""
    return own_end(transport) if is_unix(transport) else _written(transport.getPeer())


def own_end(transport: Any) -> str:
    """The address that the other end has connected to."""
    return _written(transport.getHost())


def _written(address: Any) -> str:
    if isinstance(address, UNIXAddress):
        return f"{os.fsdecode(address.name or b'')}:0"
    return f"[{address.host}]:{address.port}" if ":" in address.host else f"{address.host}:{address.port}"


def common_name(transport: Any) -> str:
    """The common name in the certificate of the other end; empty where there is no TLS, no certificate or no name."""
    name: str = getattr(transport, "common_name", "")
    return name
