"""The file of a Unix socket: taken over from the dead, left to the living."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.protocol import Factory

from disqued.net.loop.socketfile import SocketFileTaken, UnixPort, clear_stale


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose paths are short enough for sockets: the current one, for the time of the test."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield Path()
    os.chdir(before)


def bound(path: Path, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """A socket with a file, as a process leaves it that was killed: nobody accepts."""
    one = socket.socket(socket.AF_UNIX, kind)
    one.bind(os.fsencode(path))
    return one


def port(path: Path) -> UnixPort:
    return UnixPort(os.fsencode(path), Factory(), 5, 0o600, reactor)


def test_where_nothing_is_there_is_nothing_to_clear(folder: Path) -> None:
    clear_stale(b"socket")
    assert os.listdir() == []


def test_a_socket_of_a_dead_process_is_removed(folder: Path) -> None:
    bound(folder / "socket").close()
    clear_stale(b"socket")
    assert os.listdir() == []


def test_a_socket_on_which_somebody_listens_is_left_alone(folder: Path) -> None:
    with closing(bound(folder / "socket")) as living:
        living.listen(0)
        for _ in range(4):  # the later ones find its queue full
            with pytest.raises(SocketFileTaken, match="unixsocket socket: another process listens on it; stop that"):
                clear_stale(b"socket")
        assert os.listdir() == ["socket"]


def test_a_socket_of_another_kind_is_left_alone(folder: Path) -> None:
    with closing(bound(folder / "socket", socket.SOCK_DGRAM)):
        with pytest.raises(SocketFileTaken, match="unixsocket socket: Protocol wrong type for socket"):
            clear_stale(b"socket")
        assert os.listdir() == ["socket"]


def test_a_file_that_is_no_socket_is_left_alone(folder: Path) -> None:
    Path("socket").write_text("precious")
    with pytest.raises(SocketFileTaken, match="there is a file of this name, and it is no socket; name another path"):
        port(folder / "socket").startListening()
    assert Path("socket").read_text() == "precious"


def test_a_folder_that_is_missing_is_said_in_words(folder: Path) -> None:
    with pytest.raises(SocketFileTaken, match="unixsocket no/socket: there is no such folder"):
        port(folder / "no" / "socket").startListening()


@pytest.mark.parametrize("removed_before", [False, True])
@pytest_twisted.ensureDeferred
async def test_the_file_is_gone_when_the_port_is_closed(folder: Path, removed_before: bool) -> None:
    bound(folder / "socket").close()
    listening = port(folder / "socket")
    listening.startListening()
    assert Path("socket").stat().st_mode & 0o777 == 0o600
    if removed_before:
        Path("socket").unlink()
    await listening.stopListening()
    assert os.listdir() == []
