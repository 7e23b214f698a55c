"""A daemon for each test, ended with it."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest_twisted

from tests.adapters.inprocess import Running, start


@pytest_twisted.async_yield_fixture
async def launch(tmp_path: Path) -> AsyncIterator[Callable[..., Running]]:
    """Start daemons: `launch(settings, store)`."""
    running: list[Running] = []

    def begin(settings: str = "", store: Any = None) -> Running:
        running.append(start(tmp_path, settings, store))
        return running[-1]

    yield begin
    for daemon in running:
        await daemon.stop()
