"""Files that hold secrets: who else may read or write one, and what is no file."""

import os
from pathlib import Path

import pytest

from disqued.files import PrivateFileError, create_anew, read_private


def private(tmp_path: Path, mode: int) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(b"hush-hush")
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o660, 0o400])
def test_the_beginning_of_a_private_file_is_read(tmp_path: Path, mode: int) -> None:
    assert read_private(private(tmp_path, mode), 4) == b"hush"


@pytest.mark.parametrize(("mode", "what"), [(0o644, "read"), (0o602, "write"), (0o666, "read"), (0o604, "read")])
def test_one_that_every_user_may_read_or_write_is_refused(tmp_path: Path, mode: int, what: str) -> None:
    with pytest.raises(PrivateFileError, match=rf"every user of this machine may {what} it \(mode {mode:o}\); allowed"):
        read_private(private(tmp_path, mode), 4)


def test_a_pipe_keeps_nobody_waiting(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o600)
    with pytest.raises(PrivateFileError, match="this is no regular file"):
        read_private(path, 4)


def test_a_folder_and_what_is_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(PrivateFileError, match=r"Is a directory|no regular file"):
        read_private(tmp_path, 4)
    with pytest.raises(PrivateFileError, match="No such file"):
        read_private(tmp_path / "none", 4)


def test_what_is_made_anew_takes_no_file_and_no_link_that_is_there(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.write_text("as it was")
    theirs.chmod(0o666)
    for plant in (ours.symlink_to, ours.hardlink_to):
        plant(theirs)
        with create_anew(ours) as file:
            file.write(b"new")
        assert (theirs.read_text(), ours.read_text()) == ("as it was", "new")
        assert ours.stat().st_mode & 0o007 == 0
        ours.unlink()
