"""The file system as the stores use it: what is written whole, who may have a lock, and whose files are watched."""

import errno
import os
from pathlib import Path

import pytest

from disqued.persistence.disk import Disk, FileWatch, reason, write_all
from disqued.persistence.interface import StoreFailed


class Slow(Disk):
    """Takes a few bytes with each write."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.writes = 0

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write some."""
        self.writes += 1
        return super().write(fd, data[: self.most])


@pytest.mark.parametrize(("most", "writes"), [(1, 10), (3, 4), (10, 1), (11, 1)])
def test_all_is_written_in_as_many_writes_as_the_system_wants(tmp_path: Path, most: int, writes: int) -> None:
    disk = Slow(most)
    fd = disk.create(tmp_path / "file")
    write_all(disk, fd, b"0123456789")
    disk.close(fd)
    assert (tmp_path / "file").read_bytes() == b"0123456789"
    assert disk.writes == writes


def test_a_system_that_takes_nothing_is_not_asked_for_ever(tmp_path: Path) -> None:
    disk = Slow(0)
    fd = disk.create(tmp_path / "file")
    with pytest.raises(OSError, match="Input/output error"):
        write_all(disk, fd, b"data")
    disk.close(fd)
    assert disk.writes == 1


def test_a_file_is_made_for_this_program_and_its_group_and_appended_to(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "file"
    path.write_bytes(b"of before")
    before = os.umask(0)
    try:
        fd = disk.create(path)
        lock = disk.lock(tmp_path / "lock")
    finally:
        os.umask(before)
    assert lock is not None
    assert path.read_bytes() == b""
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o640
    disk.write(fd, b"one")
    path.write_bytes(b"two")
    disk.write(fd, b"three")
    assert path.read_bytes() == b"twothree"
    assert not os.get_inheritable(fd)
    assert not os.get_inheritable(lock)
    disk.close(fd)
    disk.close(lock)
    with pytest.raises(FileNotFoundError):
        disk.append_to(tmp_path / "none")
    fd = disk.append_to(path)
    disk.write(fd, b"four")
    disk.cut(fd, 5)
    disk.close(fd)
    assert path.read_bytes() == b"twoth"
    disk.truncate(path, 3)
    assert (path.read_bytes(), disk.size(path)) == (b"two", 3)


def test_a_file_that_is_cut_is_synced_and_closed_whatever_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, path = Disk(), tmp_path / "file"
    path.write_bytes(b"0123456789")
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(os.fstat(fd).st_size))
    before = len(os.listdir("/proc/self/fd"))
    disk.truncate(path, 4)
    assert synced == [4]

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "bad disk")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match="bad disk"):
        disk.truncate(path, 2)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="bad disk"):
        disk.sync_directory(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_lock_is_for_one_and_one_of_a_removed_file_keeps_nobody_out(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "lock"
    first = disk.lock(path)
    assert first is not None
    before = len(os.listdir("/proc/self/fd"))
    assert disk.lock(path) is None
    assert len(os.listdir("/proc/self/fd")) == before
    assert disk.has_name(first, path)
    path.unlink()
    assert not disk.has_name(first, path)
    second = disk.lock(path)
    assert second is not None
    assert not disk.has_name(first, path)
    assert disk.has_name(second, path)
    assert disk.lock(path) is None
    disk.close(second)
    third = disk.lock(path)
    assert third is not None
    for fd in (first, third):
        disk.close(fd)


def test_a_lock_whose_file_is_replaced_meanwhile_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, path = Disk(), tmp_path / "lock"
    looks = iter([False, False, True])
    monkeypatch.setattr("disqued.persistence.disk.Disk.has_name", lambda self, fd, path: next(looks))
    before = len(os.listdir("/proc/self/fd"))
    lock = disk.lock(path)
    assert lock is not None
    assert next(looks, None) is None
    assert len(os.listdir("/proc/self/fd")) == before + 1
    disk.close(lock)


@pytest.mark.parametrize(("error", "refused"), [(errno.EWOULDBLOCK, False), (errno.EACCES, False), (errno.EIO, True)])
def test_only_another_process_makes_a_lock_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, refused: bool
) -> None:
    def fail(fd: int, operation: int) -> None:
        raise OSError(error, "no")

    monkeypatch.setattr("fcntl.flock", fail)
    before = len(os.listdir("/proc/self/fd"))
    if refused:
        with pytest.raises(OSError, match="no"):
            Disk().lock(tmp_path / "lock")
    else:
        assert Disk().lock(tmp_path / "lock") is None
    assert len(os.listdir("/proc/self/fd")) == before


# Watching.


def watched(folder: Path, *names: str) -> tuple[FileWatch, list[Path]]:
    """Watch files of ten bytes."""
    watch, paths = FileWatch(Disk()), [folder / name for name in names]
    for path in paths:
        path.write_bytes(b"0123456789")
        watch.keep(path, 10)
    watch.look()
    return watch, paths


def test_a_watched_file_may_grow_and_be_written_to(tmp_path: Path) -> None:
    watch, (path,) = watched(tmp_path, "one")
    with path.open("r+b") as file:
        file.write(b"x" * 11)
    watch.look()


def test_a_watched_file_that_is_gone_replaced_or_shorter_is_missed_by_name(tmp_path: Path) -> None:
    watch, (one, other) = watched(tmp_path, "one", "other")
    os.truncate(other, 9)
    with pytest.raises(StoreFailed, match=r"other was cut off while it was in use: it has 9 bytes of 10"):
        watch.look()
    watch.look([one])
    with pytest.raises(StoreFailed, match="cut off"):
        watch.look([one, other])
    (tmp_path / "new").write_bytes(b"0123456789")
    other.unlink()
    with pytest.raises(StoreFailed, match="other was taken away while it was in use: No such file or directory"):
        watch.look()
    (tmp_path / "new").rename(other)
    with pytest.raises(StoreFailed, match="other was replaced while it was in use"):
        watch.look()
    watch.keep(other)
    watch.look()
    os.truncate(other, 0)
    watch.look()


def test_the_least_size_of_a_watched_file_can_be_changed_and_of_another_is_nothing(tmp_path: Path) -> None:
    watch, (path,) = watched(tmp_path, "one")
    watch.keep_size(path, 11)
    with pytest.raises(StoreFailed, match="10 bytes of 11"):
        watch.look()
    watch.keep_size(path, 4)
    os.truncate(path, 4)
    watch.look()
    unknown = tmp_path / "unknown"
    watch.keep_size(unknown, 5)
    watch.look([unknown])
    watch.forget()
    path.unlink()
    watch.look()
    watch.look([path])
    path.write_bytes(b"")
    watch.keep(path)
    watch.look()


def test_a_file_that_is_not_there_cannot_be_watched(tmp_path: Path) -> None:
    watch = FileWatch(Disk())
    with pytest.raises(FileNotFoundError):
        watch.keep(tmp_path / "none")
    watch.look()


def test_the_reason_of_an_error_is_the_word_of_the_system_or_what_there_is() -> None:
    assert reason(OSError(errno.ENOSPC, "No space left on device")) == "No space left on device"
    assert reason(OSError("only a text")) == "only a text"
