"""The node's id: drawn once, kept, and never shared by two processes."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from disqued.net.identity import Identity, IdentityError


def test_an_id_is_drawn_once_and_kept(tmp_path: Path) -> None:
    first = Identity.load(tmp_path / "nodes.conf", 7711, Random(1))
    first.release()
    second = Identity.load(tmp_path / "nodes.conf", 7711, Random(2))
    second.release()
    assert first.node_id == second.node_id
    assert (tmp_path / "nodes.conf").read_bytes() == b"%b :7711 myself 0 0 connected\n" % first.node_id


def test_the_id_of_a_file_of_disque_is_kept(tmp_path: Path) -> None:
    other, own = b"e" * 40, b"2" * 40
    (tmp_path / "nodes.conf").write_bytes(
        b"%b 127.0.0.1:18812 noflags 0 1795255367758 connected\n\n%b 127.0.0.1:18811 myself,leaving 0 0 connected\n"
        b"vars something 1\n" % (other, own)
    )
    identity = Identity.load(tmp_path / "nodes.conf", 7711, Random(1))
    identity.release()
    assert identity.node_id == own


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"garbage\n", "line 1: expected an id of 40 hex digits and five more fields"),
        (b"\n" + b"z" * 40 + b" :1 myself 0 0 connected\n", "line 2: expected an id"),
        (b"a" * 40 + b" :1 noflags 0 0 connected\n", "no line says `myself`"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path: Path, text: bytes, problem: str) -> None:
    (tmp_path / "nodes.conf").write_bytes(text)
    with pytest.raises(IdentityError, match=problem):
        Identity.load(tmp_path / "nodes.conf", 7711, Random(1))


def test_a_second_process_is_kept_away(tmp_path: Path) -> None:
    identity = Identity.load(tmp_path / "nodes.conf", 7711, Random(1))
    code = (
        "from pathlib import Path; from random import Random; from disqued.net.identity import Identity;"
        f"Identity.load(Path({str(tmp_path / 'nodes.conf')!r}), 7711, Random(1))"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    identity.release()
    assert run.returncode == 1
    assert "is locked: another disqued is running in this folder" in run.stderr


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    identity = Identity.load(tmp_path / "nodes.conf", 7711, Random(1))
    identity.path = tmp_path / "missing" / "nodes.conf"
    with pytest.raises(IdentityError, match="error saving the cluster node config: No such file or directory"):
        identity.save()
    identity.release()
