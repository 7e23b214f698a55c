"""Clear errors for a Twisted client in a program without a running reactor.

    Client().add(...) in a script        nothing is ever sent: a message on standard error when the program ends
    await Client().add(...) in asyncio   RuntimeError at once
    with Client() as client:             TypeError at once

A program may call a client before it runs its reactor, so the first case is known only at the end.
"""

import atexit
import sys
from typing import Any, Final

from ..naming import PACKAGE

WAYS: Final = (
    f"`from {PACKAGE}.blocking import Client` returns answers, `from {PACKAGE}.aio import Client` has "
    f"coroutines for asyncio, and `from {PACKAGE} import Client` returns Deferreds for Twisted, whose reactor runs "
    "the program (twisted.internet.task.react)"
)
IN_ASYNCIO: Final = f"{PACKAGE}.Client is the client for Twisted, and this is asyncio. Choose a client: {WAYS}"
NO_CONTEXT: Final = f"{PACKAGE}.Client is the client for Twisted and has `async with` alone. Choose a client: {WAYS}"
NEVER_SENT: Final = (
    f"{PACKAGE}.Client: {{count}} sent nothing, as it is the client for Twisted and the reactor never ran. "
    f"Choose a client: {WAYS}"
)

#: Commands that wait for the global reactor to start.
_waiting = 0


def check_running(reactor: Any) -> None:
    """Check the reactor of a command.  Raises RuntimeError in an asyncio event loop."""
    if getattr(reactor, "running", True) or reactor is not sys.modules.get("twisted.internet.reactor"):
        return
    if getattr(reactor, "_startedBefore", False):  # it has run, and the program is ending
        return
    if _is_in_asyncio():
        raise RuntimeError(IN_ASYNCIO)
    _note(reactor)


def _is_in_asyncio() -> bool:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _note(reactor: Any) -> None:
    global _waiting  # noqa: PLW0603 - one global reactor, one end of the program
    if not _waiting:
        atexit.register(_say)
        reactor.callWhenRunning(_forget)
    _waiting += 1


def _forget() -> None:
    global _waiting  # noqa: PLW0603
    _waiting = 0
    atexit.unregister(_say)


def _say() -> None:
    count = "a command" if _waiting == 1 else f"{_waiting} commands"
    sys.stderr.write(NEVER_SENT.format(count=count) + "\n")
