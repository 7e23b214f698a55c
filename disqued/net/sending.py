"""Sending at once: what is written goes straight to the socket while nothing is buffered.

    reply --nothing buffered--> send --what the socket does not take--> buffer --> sent when the loop says so
        \\__ otherwise ___________________________________________________^

Every reply passes here, so this is compiled with the core, and reads what it needs of the transport
(`net/transport.py`) instead of calling it.
"""

from typing import Any


def send_at_once(transport: Any, data: bytes) -> None:
    """Send on a transport with `sends_at_once`, which buffers what the socket does not take."""
    if not transport.at_once:
        transport.buffer(data)
        return
    sent = 0
    try:
        sent = transport.socket.send(data)
    except BlockingIOError:
        pass
    except OSError:
        # Twisted's own attempt meets the error again, and ends the connection.
        transport.refused = True
    if sent < len(data):
        transport.buffer(data[sent:] if sent else data)
