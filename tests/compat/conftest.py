"""One node for the whole recording."""

import time
from collections.abc import Iterator

import pytest

from tests.compat.playing import Client, Exchange, Run, play
from tests.compat.replies import parse
from tests.integration.conftest import plugins_known
from tests.integration.daemon import HOST, LIMIT, Daemon, launch

__all__ = ["plugins_known"]


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Start a node as the recorded one was started: with defaults, and logging warnings alone."""
    daemon = launch(tmp_path_factory.mktemp("compat") / "data", ["--loglevel", "warning"])
    yield daemon
    daemon.stop()


@pytest.fixture(scope="session")
def exchanges(node: Daemon) -> list[Exchange]:
    """Play the recording on the fresh node."""
    client = Client(HOST, node.port, LIMIT)
    node_id = parse(client.call(b"CLUSTER", b"MYID")).text
    assert node_id is not None
    played = play(client, Run(node_id, node.port, node.directory, time.time()))
    client.close()
    return played
