"""TLS of the blocking client: redis-py's connection on a context of our own.

redis-py makes a context from its files for every connection, asks every node for the name that it was reached by, and
reports a certificate that is not trusted as a broken connection.
"""

import socket
import ssl
from typing import Any

import redis

from disqued.client.errors import NotTrusted
from disqued.client.ssl_context import BROKE_OFF, why_not
from disqued.client.tls import Tls


class SecureConnection(redis.SSLConnection):
    """A connection by TLS."""

    def __init__(self, tls: Tls, context: ssl.SSLContext, **options: Any) -> None:
        super().__init__(**options)
        self._tls = tls
        self._context = context

    def _wrap_socket_with_ssl(self, sock: socket.socket) -> ssl.SSLSocket:
        try:
            return self._context.wrap_socket(sock, server_hostname=self._tls.name_of(self.host))
        except BROKE_OFF:
            raise
        except ssl.SSLError as error:
            sock.close()
            raise NotTrusted(why_not(error)) from error
