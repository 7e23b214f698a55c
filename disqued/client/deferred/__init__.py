"""The client for Twisted, on txredisapi; programs name it `disqued.client`.

client.py     the commands as methods that return Deferreds
links.py      the connections to one node
stranded.py   errors for programs whose reactor does not run
protocol.py   one of them; loads txredisapi, once a client has its reactor
worker.py     a worker whose handlers are coroutines, Deferreds or plain functions
"""

from importlib.util import find_spec

if find_spec("txredisapi") is None:
    raise ImportError('disqued.client needs txredisapi: pip install "disqued[client]"', name="txredisapi")

from disqued.client.deferred.client import Client
from disqued.client.deferred.worker import Worker

__all__ = ["Client", "Worker"]
