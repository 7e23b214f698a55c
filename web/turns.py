"""Long work in slices: after each, everybody else has their turn of the loop."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater


def next_turn(reactor: Any) -> "Deferred[None]":
    """Fires in the next turn of the loop."""
    return deferLater(reactor, 0, lambda: None)
