"""The client for Twisted, on txredisapi; programs name it `disqued.client`.

client.py   the commands as methods that return Deferreds
links.py    the connections to one node
worker.py   a worker whose handlers are coroutines, Deferreds or plain functions
"""

try:
    from disqued.client.deferred.client import Client
    from disqued.client.deferred.worker import Worker
except ModuleNotFoundError as missing:
    if missing.name != "txredisapi":
        raise
    raise ImportError('disqued.client needs txredisapi: pip install "disqued[client]"', name="txredisapi") from missing

__all__ = ["Client", "Worker"]
