"""The Redis clients of today, with their defaults and with each protocol that they can be asked for.

Each connects in a process of its own and says what was answered: python_clients.py, node/redisclients.js.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from tests.integration.daemon import HOST, LIMIT, Daemon
from tests.integration.python_clients import sessions

HERE = Path(__file__).parent
NODE = HERE / "node"
#: Clients of npm, and the protocols that each can be asked for.
NODE_CLIENTS = {
    "ioredis": ("2", "3"),
    "iovalkey": (),
    "node-redis-5": ("2", "3"),
    "node-redis-6": ("2", "3"),
    "valkey-glide": ("2", "3"),
}


def check(argv: list[object], queue: str) -> None:
    """Run a client's session; it has to end by itself and without a warning."""
    done = subprocess.run(
        list(map(str, argv)), stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, check=False,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    job, taken, acknowledged = json.loads(done.stdout)
    assert (taken, acknowledged) == ([[queue, job, "to: ann"]], 1)


@pytest.mark.parametrize(("client", "protocol"), list(sessions()))
def test_a_client_for_python_works_as_it_comes(client: str, protocol: str | None, daemon: Daemon, queue: str) -> None:
    words = [client, daemon.port, queue, *([protocol] if protocol else [])]
    check([sys.executable, HERE / "python_clients.py", *words], queue)


def test_clients_that_look_for_a_redis_cluster_say_that_this_is_none(daemon: Daemon) -> None:
    with pytest.raises(redis.RedisClusterException, match="Cluster mode is not enabled on this node"):
        redis.RedisCluster(host=HOST, port=daemon.port)
    program = f"""
        const {{ Cluster }} = require("ioredis");
        const cluster = new Cluster([{{ port: {daemon.port} }}], {{ clusterRetryStrategy: () => null }});
        cluster.on("error", (error) => console.log(error.lastNodeError?.message ?? error.message));
        cluster.on("end", () => process.exit());
    """
    words = ["node", "-e", program]
    done = subprocess.run(words, cwd=NODE, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, check=True)
    assert b"ERR This instance has cluster support disabled - disqued is no Redis Cluster" in done.stdout


@pytest.mark.parametrize(
    ("client", "protocol"),
    [(client, protocol) for client, protocols in NODE_CLIENTS.items() for protocol in (None, *protocols)],
)
def test_a_client_for_node_works_as_it_comes(client: str, protocol: str | None, daemon: Daemon, queue: str) -> None:
    assert (NODE / "node_modules").is_dir(), "the Node clients are not installed; `make test` installs them"
    words = [daemon.port, queue, client, *([protocol] if protocol else [])]
    check(["node", NODE / "redisclients.js", *words], queue)
