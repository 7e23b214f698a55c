"""disqueue-node and thunk-disque, the clients of Disque for Node.

Each scenario is a script's, in node/; what it saw is judged here.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.daemon import LIMIT, Daemon

SCRIPTS = Path(__file__).parent / "node"


def play(client: str, daemon: Daemon, queue: str, scenario: str, password: str = "") -> Any:
    """Play one scenario with one client and return what it reports."""
    assert (SCRIPTS / "node_modules").is_dir(), "the Node clients are not installed; `make test` installs them"
    done = subprocess.run(
        ["node", str(SCRIPTS / f"{client}.js"), str(daemon.port), queue, scenario],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "PASSWORD": password},
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.fixture(params=["disqueue", "thunk"])
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def rows(taken: list) -> list:
    """Bring the jobs of either client into one form: disqueue-node makes objects of them."""
    return [[job["queue"], job["jobId"], job["body"]] if isinstance(job, dict) else job[:3] for job in taken]


def test_a_job_is_added_taken_and_acknowledged(client: str, daemon: Daemon, queue: str) -> None:
    seen = play(client, daemon, queue, "session")
    assert seen["waiting"] == 1
    assert rows(seen["taken"]) == [[queue, seen["job"], "to: ann"]]
    assert seen["acknowledged"] == 1
    assert seen["shown"] is None


def test_every_option_of_a_job_is_understood(client: str, daemon: Daemon, queue: str) -> None:
    shown = play(client, daemon, queue, "options")["shown"]
    assert (shown["state"], shown["delay"], shown["retry"], shown["repl"]) == ("active", 30, 20, 1)
    assert shown["ttl"] in range(3540, 3601)


def test_a_blocked_consumer_gets_the_job_when_it_comes(client: str, daemon: Daemon, queue: str) -> None:
    seen = play(client, daemon, queue, "blocking")
    assert rows(seen["taken"]) == [[queue, seen["job"], "at last"]]


def test_a_job_that_failed_is_given_back_postponed_and_deleted(client: str, daemon: Daemon, queue: str) -> None:
    seen = play(client, daemon, queue, "failure")
    assert seen["nacked"] == 1
    assert rows(seen["again"]) == [[queue, seen["job"], "body"]]
    counters = seen["again"][0]["nacks"] if client == "disqueue" else seen["again"][0][4]
    assert counters == 1
    assert (seen["postponed"], seen["enqueued"], seen["dequeued"], seen["deleted"]) == (20, 1, 1, 1)
    assert seen["error"].startswith("BADID")
    assert not seen["empty"]
    assert not seen.get("late")
    assert seen["forgotten"] == 1


def test_disqueue_node_looks_at_queues_and_the_node(daemon: Daemon, queue: str) -> None:
    seen = play("disqueue", daemon, queue, "looking")
    assert seen["scanned"]["cursor"] == 0
    assert queue in seen["scanned"]["queues"]
    assert seen["info"]["server"]["process_id"] == str(daemon.process.pid)
    assert int(seen["info"]["jobs"]["registered_jobs"]) >= 1
    assert seen["hello"]["version"] == 1
    assert seen["hello"]["nodeIds"][0] == seen["hello"]["nodeId"]


def test_thunk_disque_looks_at_queues_jobs_and_the_node(daemon: Daemon, queue: str) -> None:
    seen = play("thunk", daemon, queue, "looking")
    assert queue in seen["scanned"][1]
    assert seen["jobs"] == ["0", [seen["job"]]]
    assert seen["peeked"] == [[queue, seen["job"], "body"]]
    assert (seen["stat"]["name"], seen["stat"]["len"]) == (queue, 1)
    assert seen["paused"] == "none"
    assert seen["ping"] == "PONG"
    assert len(seen["time"]) == 2
    assert seen["info"]["process_id"] == str(daemon.process.pid)
    version, node, us = seen["hello"]
    assert (version, us[0], us[2]) == (1, node, str(daemon.port))


# disqueue-node has an option for it, but asks for INFO first and never gets further when that is refused.
def test_thunk_disque_gives_a_password_on_connecting(start: Callable[..., Daemon], queue: str) -> None:
    daemon = start()
    daemon.call("CONFIG", "SET", "requirepass", "sesame")
    assert play("thunk", daemon, queue, "session", password="sesame")["acknowledged"] == 1
