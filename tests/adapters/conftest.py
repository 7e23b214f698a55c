"""A daemon for each test, ended with it."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest_twisted

from tests.adapters.http import AdminClient
from tests.adapters.http import admin as admin_of
from tests.adapters.inprocess import Running, start


@pytest_twisted.async_yield_fixture
async def launch(tmp_path: Path) -> AsyncIterator[Callable[..., Running]]:
    """Start daemons: `launch(...)` takes what `start` takes."""
    running: list[Running] = []

    def begin(*arguments: Any, **options: Any) -> Running:
        running.append(start(tmp_path, *arguments, **options))
        return running[-1]

    yield begin
    for daemon in running:
        await daemon.stop()


@pytest_twisted.async_yield_fixture
async def admin(launch: Callable[..., Running]) -> AsyncIterator[Callable[..., AdminClient]]:
    """Start daemons and ask their admin sides: `admin(...)` takes what `start` takes."""
    clients: list[AdminClient] = []

    def begin(*arguments: Any, **options: Any) -> AdminClient:
        clients.append(admin_of(launch(*arguments, **options)))
        return clients[-1]

    yield begin
    for client in clients:
        await client.stop()
