"""One session of a Redis client for Python from the command line: add a job, get it, acknowledge it, print the replies.

    python python_clients.py CLIENT PORT QUEUE [PROTOCOL]

Without a protocol the client has its defaults.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

HOST = "127.0.0.1"

#: The commands of a session, each made from the replies before.
SESSION: tuple[Callable[[str, list[Any]], Sequence[str]], ...] = (
    lambda queue, _: ("ADDJOB", queue, "to: ann", "0"),
    lambda queue, _: ("GETJOB", "FROM", queue),
    lambda _, replies: ("ACKJOB", replies[0]),
)


def play(call: Callable[..., Any], queue: str) -> list[Any]:
    """Run a session with a client that blocks."""
    replies: list[Any] = []
    for step in SESSION:
        replies.append(call(*step(queue, replies)))
    return replies


async def play_async(call: Callable[..., Awaitable[Any]], queue: str) -> list[Any]:
    """Run a session with a client that is awaited."""
    replies: list[Any] = []
    for step in SESSION:
        replies.append(await call(*step(queue, replies)))
    return replies


def protocol_option(protocol: str | None) -> dict[str, int]:
    """The protocol as redis-py and its relatives take it."""
    return {} if protocol is None else {"protocol": int(protocol)}


def redis_py(port: int, queue: str, protocol: str | None) -> list[Any]:
    """redis-py."""
    import redis

    with redis.Redis(HOST, port, **protocol_option(protocol)) as client:
        return play(client.execute_command, queue)


async def redis_asyncio(port: int, queue: str, protocol: str | None) -> list[Any]:
    """redis-py with asyncio: aioredis, whose own last release no Python since 3.11 can import, became a part of it."""
    import redis.asyncio

    async with redis.asyncio.Redis(host=HOST, port=port, **protocol_option(protocol)) as client:
        return await play_async(client.execute_command, queue)


def valkey_py(port: int, queue: str, protocol: str | None) -> list[Any]:
    """valkey-py."""
    import valkey

    client = valkey.Valkey(HOST, port, **protocol_option(protocol))
    try:
        return play(client.execute_command, queue)
    finally:
        client.close()


async def valkey_asyncio(port: int, queue: str, protocol: str | None) -> list[Any]:
    """valkey-py with asyncio."""
    import valkey.asyncio

    client = valkey.asyncio.Valkey(host=HOST, port=port, **protocol_option(protocol))
    try:
        return await play_async(client.execute_command, queue)
    finally:
        await client.aclose()


async def valkey_glide(port: int, queue: str, protocol: str | None) -> list[Any]:
    """valkey-glide, whose core is in Rust."""
    from glide import GlideClient, GlideClientConfiguration, NodeAddress, ProtocolVersion

    options = {} if protocol is None else {"protocol": ProtocolVersion[f"RESP{protocol}"]}
    client = await GlideClient.create(GlideClientConfiguration([NodeAddress(HOST, port)], **options))
    try:
        return await play_async(lambda *words: client.custom_command(list(words)), queue)
    finally:
        await client.close()


async def coredis(port: int, queue: str, protocol: str | None) -> list[Any]:
    """coredis, which has RESP3 alone."""
    import coredis
    from coredis.response._callbacks import NoopCallback

    assert protocol is None
    async with coredis.Redis(host=HOST, port=port) as client:

        async def call(name: str, *words: str) -> Any:
            return await client.create_request(name.encode(), *words, callback=NoopCallback())

        return await play_async(call, queue)


CLIENTS: dict[str, Callable[[int, str, str | None], Any]] = {
    each.__name__: each for each in (redis_py, redis_asyncio, valkey_py, valkey_asyncio, valkey_glide, coredis)
}
#: Clients that speak one protocol.
ONE_PROTOCOL = {"coredis"}


def sessions() -> Iterator[tuple[str, str | None]]:
    """Each client with its defaults, and with each protocol that can be chosen."""
    for name in CLIENTS:
        yield name, None
        if name not in ONE_PROTOCOL:
            yield from ((name, protocol) for protocol in ("2", "3"))


def text(reply: Any) -> Any:
    """A reply as JSON can say it."""
    if isinstance(reply, (list, tuple)):
        return [text(each) for each in reply]
    return reply.decode() if isinstance(reply, bytes) else reply


def main(name: str, port: str, queue: str, protocol: str | None = None) -> None:
    """Run a session and print it."""
    replies = CLIENTS[name](int(port), queue, protocol)
    if asyncio.iscoroutine(replies):
        replies = asyncio.run(replies)
    sys.stdout.write(json.dumps(text(replies)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
