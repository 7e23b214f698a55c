"""The blocking client works with any redis-py from 5.0: one session with each release that took other options."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.integration.daemon import HOST, LIMIT, Daemon, free_port
from tests.integration.test_tls import options

ROOT = Path(__file__).resolve().parents[2]
RELEASES = ROOT / "build" / "redis-py"  #: which `make test` fetches


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of something that takes connections and says nothing."""
    with socket.create_server((HOST, 0)) as listening:
        yield listening.getsockname()[1]


@pytest.mark.parametrize("release", ["5.0.0", "6.4.0", "7.4.0"])
def test_a_session_of_the_blocking_client_with_an_older_redis_py(
    release: str, start: Callable[..., Daemon], silent: int, tmp_path: Path
) -> None:
    assert (RELEASES / release).is_dir(), f"no {RELEASES / release}: make test fetches it"
    authority, port = Authority(tmp_path), free_port()
    daemon = start(
        *options(authority, authority.issue("node", HOST), "--tls-port", str(port), "--tls-auth-clients", "no")
    )
    program = Path(__file__).with_name("older_redis_py.py")
    words = [sys.executable, str(program), *map(str, (daemon.port, port, authority.file, silent))]
    found = subprocess.run(
        words, capture_output=True, check=False, text=True, timeout=LIMIT,
        env={**os.environ, "PYTHONPATH": f"{RELEASES / release}{os.pathsep}{ROOT}"},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == {
        "redis": release,
        "refused": ["no reply within 0.3 s", "not trusted"],
        "body": "by tcp",
        "acked": 1,
        "word": "BADID",
        "none": [],
        "asked": 1,
        "late": "late",
        "worked": ["a task"],
        "tasks left": 0,
        "by tls": 0,
    }
