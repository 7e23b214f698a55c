"""TLS of the blocking client: redis-py's connection on a context of our own.

redis-py's own makes a new context from the files for every connection, expects every node to have the name of its
address, and reports an untrusted certificate as a broken connection.
"""

import ssl
from typing import Any

import redis

from ..errors import NotTrusted
from ..ssl_context import BROKE_OFF, why_not
from ..tls import Tls


class SecureConnection(redis.Connection):
    """A TLS connection."""

    def __init__(self, tls: Tls, context: ssl.SSLContext, **options: Any) -> None:
        super().__init__(**options)
        self._tls = tls
        self._context = context

    def _connect(self) -> ssl.SSLSocket:
        sock = super()._connect()
        try:
            return self._context.wrap_socket(sock, server_hostname=self._tls.name_of(self.host))
        except BaseException as error:
            sock.close()
            if isinstance(error, ssl.SSLError) and not isinstance(error, BROKE_OFF):
                raise NotTrusted(why_not(error)) from error
            raise
