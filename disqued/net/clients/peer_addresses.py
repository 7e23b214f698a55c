"""The two ends of a connection, as CLIENT LIST shows them.

    transport --> its address there, its address here --> ip:port   [ipv6]:port   path:0 of a Unix socket
        +-------> the certificate that the other end has shown --> its common name

Source: Disque, src/anet.c; the fields addr and laddr of Redis.
"""

import os
from typing import Any

from twisted.internet.address import UNIXAddress


class Peer:
    """The other end of a transport, as far as the transport knows it now."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    @property
    def descriptor(self) -> int:
        return int(self._transport.fileno())

    @property
    def is_unix(self) -> bool:
        return isinstance(self._transport.getHost(), UNIXAddress)

    @property
    def address(self) -> str:
        """``ip:port`` of the other end; that of a Unix socket is our own."""
        return self.local_address if self.is_unix else _written(self._transport.getPeer())

    @property
    def host(self) -> str:
        """The address of the other end without its port; empty on a Unix socket."""
        return "" if self.is_unix else str(self._transport.getPeer().host)

    @property
    def local_address(self) -> str:
        return _written(self._transport.getHost())

    @property
    def certificate_name(self) -> str:
        name: str = getattr(self._transport, "common_name", "")
        return name


def _written(address: Any) -> str:
    if isinstance(address, UNIXAddress):
        return f"{os.fsdecode(address.name or b'')}:0"
    return f"[{address.host}]:{address.port}" if ":" in address.host else f"{address.host}:{address.port}"
