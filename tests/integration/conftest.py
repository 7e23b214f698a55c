"""Daemons, queue names and the clients of the library for the tests of this folder."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_twisted

from tests.integration.client_sides import AioSide, BlockingSide, DeferredSide, Side, address
from tests.integration.daemon import Daemon
from tests.integration.fixtures import daemon, plugins_known, queue, start

__all__ = ["client", "daemon", "plugins_known", "queue", "side", "start"]


@pytest_twisted.async_yield_fixture(params=[DeferredSide, BlockingSide, AioSide], ids=["deferred", "blocking", "aio"])
async def side(request: pytest.FixtureRequest) -> AsyncIterator[Side]:
    """One of the three clients of the library; what a test makes of it is closed when that is over."""
    chosen = request.param()
    yield chosen
    await chosen.close()


@pytest.fixture
def client(side: Side, daemon: Daemon) -> Any:
    """Make a client of the daemon of the module."""
    return side.client(address(daemon))
