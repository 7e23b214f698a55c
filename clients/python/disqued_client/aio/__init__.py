"""The client for asyncio, on hiredis.

client.py     the commands as coroutines
links.py      the connections to one node
worker.py     a worker whose handlers are coroutines or plain functions
"""

from .client import Client
from .worker import Worker

__all__ = ["Client", "Worker"]
