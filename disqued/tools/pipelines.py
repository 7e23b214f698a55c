"""Many commands on one connection of redis-py, a window of them at a time.

redis-py takes long to load, so this module is loaded when a node is asked.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import redis
from redis.connection import AbstractConnection

from disqued.client.blocking.connections import read_reply
from disqued.client.errors import server_error
from disqued.client.failures import ConnectionBroken
from disqued.client.ssl_context import refusal

#: So many commands, or bytes of them, are sent before their replies are read: what both sides can keep meanwhile.
WINDOW: Final = 256
WINDOW_BYTES: Final = 1 << 20

Words: TypeAlias = Sequence[bytes | str | int]


def exchange(connection: AbstractConnection, commands: Sequence[Words], limit: float) -> Iterator[Any]:
    """Send commands and yield their replies; one that is an error is a ServerError in its place.

    `limit` is how many seconds the node may take over each reply.  Raises Broken, NotTrusted.
    """
    try:
        for window in _windows(commands):
            connection.send_packed_command(connection.pack_commands(window), check_health=False)
            for _ in window:
                try:
                    yield read_reply(connection, limit)
                except redis.exceptions.ResponseError as error:
                    yield server_error(str(error))
    except (redis.exceptions.RedisError, OSError) as error:
        raise refusal(error) or ConnectionBroken(str(error)) from error


def _windows(commands: Sequence[Words]) -> Iterator[list[list[bytes]]]:
    """Cut commands into what may be under way at a time."""
    window: list[list[bytes]] = []
    size = 0
    for words in commands:
        encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        length = sum(map(len, encoded))
        if window and (len(window) >= WINDOW or size + length > WINDOW_BYTES):
            yield window
            window, size = [], 0
        window.append(encoded)
        size += length
    if window:
        yield window
