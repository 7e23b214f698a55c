"""The file with the process id: what it is written to, what it is not, and when it is removed."""

import os
from pathlib import Path

import pytest

from disqued.net.process.pidfile import PidFile, PidFileError


def test_it_holds_the_process_id_and_goes_with_the_process(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    path.write_text("4194304 and more, of a process that was killed\n")
    file = PidFile(path)
    file.write()
    assert path.read_text() == f"{os.getpid()}\n"
    file.remove()
    assert not path.exists()


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    path = tmp_path / "none" / "pid"
    with pytest.raises(PidFileError, match=rf"pidfile {path}: No such file or directory; allowed is a regular file"):
        PidFile(path).write()


def test_a_symbolic_link_is_refused_and_its_target_kept(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("kept")
    (tmp_path / "pid").symlink_to(target)
    with pytest.raises(PidFileError, match="this is a symbolic link; allowed is a regular file"):
        PidFile(tmp_path / "pid").write()
    assert target.read_text() == "kept"


def test_a_pipe_is_refused_whether_somebody_reads_it_or_not(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    os.mkfifo(path)
    with pytest.raises(PidFileError, match="allowed is a regular file"):
        PidFile(path).write()
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(PidFileError, match="this is no regular file; allowed"):
            PidFile(path).write()
    finally:
        os.close(reader)


def test_a_file_that_another_process_has_taken_since_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    file = PidFile(path)
    file.write()
    path.write_text("1\n")
    file.remove()
    assert path.read_text() == "1\n"


def test_one_that_is_gone_by_the_end_is_no_error(tmp_path: Path) -> None:
    file = PidFile(tmp_path / "pid")
    file.write()
    (tmp_path / "pid").unlink()
    file.remove()
