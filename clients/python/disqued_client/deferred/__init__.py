"""The client for Twisted, on txredisapi; programs name it `disqued_client`.

client.py     the commands as methods that return Deferreds
links.py      the connections to one node
stranded.py   errors for programs whose reactor does not run
protocol.py   one of them; loads txredisapi, once a client has its reactor
worker.py     a worker whose handlers are coroutines, Deferreds or plain functions
"""

from importlib.util import find_spec

from ..naming import PACKAGE, install_line

if find_spec("txredisapi") is None:
    raise ImportError(f"{PACKAGE} needs txredisapi: {install_line('twisted')}", name="txredisapi")

from .client import Client
from .worker import Worker

__all__ = ["Client", "Worker"]
