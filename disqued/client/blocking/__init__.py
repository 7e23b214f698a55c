"""The blocking client, on redis-py, for programs without an event loop.

client.py        the commands as methods; one client may be used by many threads
connections.py   the connections to one node
worker.py        a worker with threads for its handlers
"""

try:
    from disqued.client.blocking.client import Client
    from disqued.client.blocking.worker import Worker
except ModuleNotFoundError as missing:
    if missing.name != "redis":
        raise
    text = 'disqued.client.blocking needs redis-py: pip install "disqued[client]"'
    raise ImportError(text, name="redis") from missing

__all__ = ["Client", "Worker"]
