"""The blocking client, on redis-py, for programs without an event loop.

client.py        the commands as methods; one client may be used by many threads
connections.py   the connections to one node
worker.py        a worker with threads for its handlers
"""

from ..naming import install_line

try:
    from .client import Client
    from .worker import Worker
except ModuleNotFoundError as missing:
    if missing.name != "redis":
        raise
    raise ImportError(f"{__name__} needs redis-py: {install_line()}", name="redis") from missing

__all__ = ["Client", "Worker"]
