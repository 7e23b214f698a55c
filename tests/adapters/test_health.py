"""The health checks say what load balancers and orchestrators take them for, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
import pytest_twisted

from disqued.web.api.health import obstacles
from disqued.web.http.exchange import Role
from disqued.web.routes import ROUTES
from tests.adapters.http import admin
from tests.adapters.inprocess import RecordingStore, Running, wait_until

Launch = Callable[..., Running]


async def _loaded(running: Running) -> None:
    await wait_until(lambda: not running.daemon.loading)


@pytest_twisted.ensureDeferred
async def test_a_node_that_serves_is_alive_started_and_ready(launch: Launch) -> None:
    running = launch()
    await _loaded(running)
    client = admin(running)
    for path in ("/healthz", "/startupz", "/readyz"):
        answer = await client.get(path)
        assert (answer.status, answer.body) == (200, {"status": "ok", "reasons": []}), path
    await client.stop()


@pytest_twisted.ensureDeferred
async def test_a_node_that_loads_is_alive_and_neither_started_nor_ready(launch: Launch) -> None:
    running = launch()
    await _loaded(running)
    client = admin(running)
    running.daemon.dispatch.set_loading(loading=True)
    assert (await client.get("/healthz")).status == 200
    for path in ("/startupz", "/readyz"):
        answer = await client.get(path)
        assert (answer.status, answer.body) == (503, {"status": "not ready", "reasons": ["loading"]}), path
    running.daemon.dispatch.set_loading(loading=False)
    await client.stop()


@pytest_twisted.ensureDeferred
async def test_a_node_whose_store_fails_is_not_ready_and_does_not_tell_the_reason_of_the_store(launch: Launch) -> None:
    store = RecordingStore()
    running = launch(store=store)
    await _loaded(running)
    client = admin(running)
    store.fails = True
    resp = await running.connect()
    await resp.call("ADDJOB", "q", "body", 0)
    answer = await client.get("/readyz")
    assert (answer.status, answer.body["reasons"]) == (503, ["store-failed"])
    assert "space" not in str(answer.body)
    assert (await client.get("/healthz")).status == 200
    store.fails = False
    await client.stop()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda daemon: daemon.node.delivery.set_leaving(leaving=True), "leaving"),
        (lambda daemon: setattr(daemon.traffic, "paused", True), "paused"),
        (lambda daemon: setattr(daemon.traffic, "ending", True), "ending"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_a_node_that_is_to_be_left_alone_is_not_ready(
    launch: Launch, change: Callable[[Any], None], reason: str
) -> None:
    running = launch()
    await _loaded(running)
    change(running.daemon)
    assert obstacles(running.daemon) == [reason]
    running.daemon.traffic.paused = running.daemon.traffic.ending = False


def test_health_needs_no_token() -> None:
    roles = {route.path: route.role for route in ROUTES if route.tag == "health"}
    assert roles == {"/healthz": Role.NOBODY, "/readyz": Role.NOBODY, "/startupz": Role.NOBODY}
