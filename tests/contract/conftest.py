"""What the stores of these tests need beside a folder."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from tests.contract.redis_runs import Run
from tests.redis_server import RedisServer


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server for all tests that do not harm it; they empty it first."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def server(shared_redis: RedisServer) -> RedisServer:
    """A server that is empty and runs as its defaults say; it may not be stopped."""
    shared_redis.call("FLUSHALL")
    return shared_redis


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that the test starts and stops as it likes."""
    server = RedisServer(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def run() -> Iterator[Callable[..., Run]]:
    """Makes runs of a node that keep their records in a server; all have ended when the test is over."""
    runs: list[Run] = []

    def make(server: RedisServer, **settings: object) -> Run:
        runs.append(Run(server, **settings))
        return runs[-1]

    yield make
    for each in runs:
        pytest_twisted.blockon(Deferred.fromCoroutine(each.abandon()))
