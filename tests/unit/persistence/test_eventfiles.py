"""Files of the event log: published whole, healed after a crash, removed by age and size, and no error lost."""

import errno
import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from disqued.persistence.disk import Disk
from disqued.persistence.eventlog import files as files_module
from disqued.persistence.eventlog.files import DAY_S, PRUNE_S, EventFiles, Facts, Limits
from disqued.wire.eventlines import LinesPart

NODE = "1f0e2d3c"
NODE_ID = NODE.encode() * 5
DAY = 1_800_000_000 // DAY_S * DAY_S + 3_600  #: an hour after midnight


class Clock:
    """Both clocks, which are told to move."""

    def __init__(self) -> None:
        self.wall = float(DAY)
        self.monotonic = 10.0

    def advance(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


class FailingDisk(Disk):
    """A disk that fails at the step of this name, `after` some bytes of a write."""

    def __init__(self) -> None:
        self.fails = ""

    def _check(self, name: str) -> None:
        if name == self.fails:
            raise OSError(errno.ENOSPC, "No space left on device")

    def create(self, path: Path) -> int:
        self._check("create")
        return super().create(path)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if self.fails in ("write", "cut") and len(data) > 3:
            return super().write(fd, data[:3])
        if self.fails in ("write", "cut"):
            self._check(self.fails)
        if self.fails == "rest":
            raise OSError(errno.EIO, "Input/output error")
        return super().write(fd, data)

    def cut(self, fd: int, size: int) -> None:
        self._check("cut")
        super().cut(fd, size)

    def fdatasync(self, fd: int) -> None:
        self._check("fdatasync")
        super().fdatasync(fd)

    def rename(self, old: Path, new: Path) -> None:
        self._check("rename")
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self._check("remove")
        super().remove(path)


def line(seq: int, size: int = 0, boot: int = 7) -> bytes:
    says = {"v": 1, "boot": boot, "seq": seq, "x": "x" * size}
    return json.dumps(says, separators=(",", ":")).encode() + b"\n"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


@pytest.fixture
def make(tmp_path: Path, clock: Clock, disk: FailingDisk) -> Callable[..., EventFiles]:
    def files(*, file_bytes: int = 1_000, file_s: int = 300, keep_days: int = 0, keep_bytes: int = 0) -> EventFiles:
        return EventFiles(
            tmp_path, NODE_ID, Limits(file_bytes, file_s, keep_days, keep_bytes), Facts(), disk,
            wall=lambda: clock.wall, monotonic=lambda: clock.monotonic,
        )  # fmt: skip

    return files


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.jsonl"))


def seqs(folder: Path, pattern: str = "events-*.jsonl") -> list[int]:
    """Numbers of the lines of all files of a pattern; each line must be whole."""
    return [
        json.loads(text)["seq"]
        for path in sorted(folder.rglob(pattern))
        for text in path.read_bytes().removesuffix(b"\n").split(b"\n")
    ]


def part(text: bytes, first: int, count: int, boot: int = 7, node_id: bytes = NODE_ID) -> LinesPart:
    """Lines as the loop hands them over: a piece for each, and what is no whole one."""
    made = LinesPart(node_id, boot, first)
    made.count, made.size, made.pieces = count, len(text), text.splitlines(keepends=True)
    return made


def write(files: EventFiles, *numbers: int, size: int = 0, boot: int = 7) -> None:
    for seq in numbers:
        files.write(part(line(seq, size, boot), seq, 1, boot))


def test_lines_are_seen_when_their_file_is_published(make: Callable[..., EventFiles], tmp_path: Path) -> None:
    files = make()
    files.begin()
    write(files, 1, 2)
    assert names(tmp_path) == ["_open-7-0000000000000001.jsonl"]
    assert (tmp_path / "date=2027-01-15" / f"node={NODE}").is_dir()
    files.publish()
    assert names(tmp_path) == ["events-7-0000000000000001.jsonl"]
    assert seqs(tmp_path) == [1, 2]
    assert (files.facts.lines, files.facts.files, files.facts.path) == (2, 1, "")


def test_a_file_ends_by_size_by_age_and_by_day(make: Callable[..., EventFiles], tmp_path: Path, clock: Clock) -> None:
    files = make(file_bytes=100, file_s=60)
    files.begin()
    write(files, 1, 2, size=80)
    assert seqs(tmp_path) == [1]
    clock.advance(61)
    write(files, 3)
    assert seqs(tmp_path) == [1, 2]
    clock.wall += DAY_S
    write(files, 4)
    assert seqs(tmp_path) == [1, 2, 3]
    assert len(list(tmp_path.glob("date=*"))) == 2


def test_a_file_whose_time_is_over_is_published_though_nothing_happens(
    make: Callable[..., EventFiles], tmp_path: Path, clock: Clock
) -> None:
    files = make(file_s=60)
    files.begin()
    write(files, 1)
    files.look()
    assert seqs(tmp_path) == []
    clock.advance(61)
    files.look()
    assert seqs(tmp_path) == [1]


def test_what_a_crash_left_open_is_published_up_to_its_last_whole_line(
    make: Callable[..., EventFiles], tmp_path: Path
) -> None:
    files = make()
    found = files.begin()
    assert (found.ended_well, found.last) == (True, None)
    boot = found.boot
    files.write(part(line(1, boot=boot) + line(2, boot=boot) + b'{"seq": 3, "x', 1, 3, boot))
    again = make().begin()
    assert (again.ended_well, again.last) == (False, (boot, 2))
    assert again.boot > boot
    assert seqs(tmp_path) == [1, 2]
    assert make().begin().ended_well


def test_a_crash_that_left_no_whole_line_leaves_no_file(make: Callable[..., EventFiles], tmp_path: Path) -> None:
    make().write(part(b'{"seq"', 1, 1))
    found = make().begin()
    assert (found.ended_well, found.last) == (False, None)
    assert names(tmp_path) == []


def test_a_boot_has_a_higher_number_than_those_before_even_if_the_clock_went_back(
    make: Callable[..., EventFiles], clock: Clock
) -> None:
    files = make()
    boot = files.begin().boot
    write(files, 1, boot=boot)
    files.publish()
    clock.wall -= 1_000_000
    assert make().begin().boot == boot + 1


def test_a_boot_is_told_of_the_last_line_before_it_in_whichever_file_that_is(
    make: Callable[..., EventFiles], tmp_path: Path, clock: Clock
) -> None:
    files = make(file_bytes=1)
    write(files, 1, 2, 3, boot=7)
    clock.wall -= 10 * DAY_S  # the folder of a later boot is of an earlier day
    write(files, 1, 2, boot=8)
    files.publish()
    assert make().begin().last == (8, 2)
    for path in tmp_path.rglob("events-8-*.jsonl"):
        path.unlink()
    assert make().begin().last == (7, 3)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"no line\n", b"[1]\n", b'{"v":1,"boot":9}\n', b'{"v":1,"boot":9,"seq":-1,"x":1}\n',
        b"[" * 100_000 + b"\n", line(1, boot=8), line(1, boot=9)[:-1],
        b'{"v":1,"boot":9,"seq":' + b"1" * 30 + b',"x":1}\n',
        b'{"v":1,"boot":1e400,"seq":1,"x":1}\n', line(1, size=2_000_000, boot=9),
    ],
)  # fmt: skip
def test_a_last_line_that_cannot_be_read_is_not_told_of_but_what_is_before_it(
    make: Callable[..., EventFiles], tmp_path: Path, text: bytes
) -> None:
    files = make()
    write(files, 1, 2, boot=7)
    files.publish()
    path = next(tmp_path.rglob("events-7-*.jsonl"))
    path.with_name(f"events-9-{1:016}.jsonl").write_bytes(text)
    found = make().begin()
    assert found.boot > 9
    assert found.last == (7, 2)


@pytest.mark.parametrize("kind", ["folder", "fifo", "link", "loop", "refused"])
def test_what_is_no_file_or_cannot_be_read_is_passed_over(
    make: Callable[..., EventFiles], tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = make()
    write(files, 1, boot=7)
    files.publish()
    path = next(tmp_path.rglob("events-7-*.jsonl")).with_name(f"events-9-{1:016}.jsonl")
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("nowhere")
    elif kind == "loop":
        path.symlink_to(path.name)
    else:
        path.write_bytes(line(1, boot=9))
        opened = Path.open

        def refuse(self: Path, *words: str) -> object:
            if self == path:
                raise PermissionError(errno.EACCES, "Permission denied")
            return opened(self, *words)

        monkeypatch.setattr(Path, "open", refuse)
    assert make().begin().last == (7, 1)


def test_files_of_other_nodes_are_left_alone(make: Callable[..., EventFiles], tmp_path: Path, clock: Clock) -> None:
    other = tmp_path / "date=2000-01-01" / "node=ffffffff"
    other.mkdir(parents=True)
    for name in ("_open-1-0000000000000001.jsonl", "events-1-0000000000000001.jsonl"):
        (other / name).write_bytes(b'{"seq')
    files = make(keep_days=1, keep_bytes=1)
    files.begin()
    write(files, 1)
    files.publish()
    assert sorted(path.name for path in other.iterdir()) == [
        "_open-1-0000000000000001.jsonl",
        "events-1-0000000000000001.jsonl",
    ]


def test_old_days_are_removed_with_their_folders(make: Callable[..., EventFiles], tmp_path: Path, clock: Clock) -> None:
    files = make(keep_days=2)
    files.begin()
    for seq in range(1, 6):
        write(files, seq)
        clock.advance(DAY_S)
    files.publish()
    assert seqs(tmp_path) == [4, 5]
    assert len(list(tmp_path.glob("date=*"))) == 2


def test_the_oldest_go_when_too_much_is_kept(make: Callable[..., EventFiles], tmp_path: Path) -> None:
    files = make(file_bytes=1, keep_bytes=3 * len(line(1)))
    files.begin()
    write(files, *range(1, 9))
    files.publish()
    assert seqs(tmp_path) == [6, 7, 8]


def test_what_is_not_published_is_never_removed(make: Callable[..., EventFiles], tmp_path: Path) -> None:
    files = make(keep_bytes=1)
    files.begin()
    write(files, 1, 2)
    files.prune()
    assert seqs(tmp_path, "_open*") == [1, 2]


@pytest.mark.parametrize("step", ["write", "rest", "create"])
def test_lines_that_cannot_be_written_are_lost_whole_and_counted(
    make: Callable[..., EventFiles], tmp_path: Path, disk: FailingDisk, step: str
) -> None:
    files = make()
    files.begin()
    if step != "create":
        write(files, 1)
    disk.fails = step
    write(files, 2, 3)
    assert files.facts.lost == 2
    assert "No space left" in files.facts.error or "Input/output" in files.facts.error
    disk.fails = ""
    write(files, 4)
    files.publish()
    assert seqs(tmp_path) == ([4] if step == "create" else [1, 4])
    assert files.facts.error == ""


def test_a_file_that_cannot_be_cut_is_left_to_the_next_start(
    make: Callable[..., EventFiles], tmp_path: Path, disk: FailingDisk
) -> None:
    files = make()
    files.begin()
    write(files, 1)
    disk.fails = "cut"
    write(files, 2)
    disk.fails = ""
    write(files, 3)
    files.publish()
    assert seqs(tmp_path) == [3]
    make().begin()
    assert seqs(tmp_path) == [1, 3]


@pytest.mark.parametrize("step", ["rename", "fdatasync", "remove"])
def test_a_file_that_cannot_be_published_costs_no_line_and_is_published_by_the_next_start(
    make: Callable[..., EventFiles], tmp_path: Path, disk: FailingDisk, clock: Clock, step: str
) -> None:
    files = make(file_s=60, keep_days=1)
    files.begin()
    write(files, 1)
    files.publish()
    clock.advance(3 * DAY_S)
    write(files, 2)
    clock.advance(61)
    disk.fails = step
    write(files, 3)
    assert "No space left" in files.facts.unpublished
    assert (files.facts.error, files.facts.lost) == ("", 0)
    disk.fails = ""
    clock.advance(61)
    files.look()
    assert files.facts.unpublished == ""
    make(keep_days=1).begin()
    assert seqs(tmp_path) == [2, 3]


def test_an_open_file_says_how_long_it_has_left(make: Callable[..., EventFiles], clock: Clock) -> None:
    files = make(file_s=60)
    assert files.look() == 0
    write(files, 1)
    clock.advance(20)
    assert files.look() == 40
    clock.advance(40)
    assert files.look() == 0


def take_away(path: Path, tmp_path: Path, how: str) -> None:
    if how == "removed":
        path.unlink()
    elif how == "folder":
        shutil.rmtree(tmp_path)
    elif how == "moved":
        path.parent.rename(path.parent.with_name("elsewhere"))
    else:
        path.unlink()
        path.write_bytes(b"another's")


@pytest.mark.parametrize("how", ["removed", "folder", "moved", "replaced"])
def test_a_file_that_was_taken_away_is_noticed_and_lines_go_to_another_one(
    make: Callable[..., EventFiles], tmp_path: Path, how: str
) -> None:
    files = make()
    files.begin()
    write(files, 1, 2)
    take_away(Path(files.facts.path), tmp_path, how)
    write(files, 3)
    assert files.facts.lost == 2
    assert "it was removed or moved while it was written and 2 events with it" in files.facts.unpublished
    write(files, 4)
    files.publish()
    folder = tmp_path / "date=2027-01-15" / f"node={NODE}"
    assert seqs(folder) == [3, 4]
    assert (files.facts.lines, files.facts.files, files.facts.lost) == (4, 1, 2)


def test_a_file_that_was_taken_away_is_noticed_though_nothing_is_written(
    make: Callable[..., EventFiles], tmp_path: Path
) -> None:
    files = make()
    write(files, 1)
    shutil.rmtree(tmp_path)
    files.look()
    assert (files.facts.lost, files.facts.path, files.facts.files) == (1, "", 0)
    assert "removed or moved" in files.facts.unpublished
    write(files, 2)
    shutil.rmtree(tmp_path)
    with pytest.raises(OSError, match="and 1 events with it"):
        files.publish()
    assert files.facts.lost == 2


def test_another_age_holds_for_the_file_that_is_open(
    make: Callable[..., EventFiles], tmp_path: Path, clock: Clock
) -> None:
    files = make(file_s=300)
    write(files, 1)
    clock.advance(20)
    files.limits = Limits(1_000, 60, 0, 0)
    assert files.look() == 40
    files.limits = Limits(1_000, 20, 0, 0)
    files.look()
    assert seqs(tmp_path) == [1]


def test_old_files_are_removed_when_limits_change_and_each_hour_though_nothing_is_written(
    make: Callable[..., EventFiles], tmp_path: Path, clock: Clock
) -> None:
    files = make(file_bytes=1)
    write(files, 1, 2, 3)
    files.publish()
    files.look()
    files.limits = Limits(1, 300, 0, 2 * len(line(1)))
    assert files.look() == 0
    assert seqs(tmp_path) == [2, 3]
    files.limits = Limits(1, 300, 1, 0)
    assert files.look() == PRUNE_S
    assert seqs(tmp_path) == [2, 3]
    clock.wall += 3 * DAY_S
    files.look()
    assert seqs(tmp_path) == [2, 3], "not before an hour is over"
    clock.advance(PRUNE_S)
    files.look()
    assert seqs(tmp_path) == []


def test_old_files_that_cannot_be_removed_are_told_of_until_they_are(
    make: Callable[..., EventFiles], disk: FailingDisk
) -> None:
    files = make(file_bytes=1)
    write(files, 1)
    files.publish()
    disk.fails = "remove"
    files.limits = Limits(1, 300, 0, 1)
    files.look()
    assert "No space left" in files.facts.unremoved
    disk.fails = ""
    files.limits = Limits(1, 300, 0, 2)
    files.look()
    assert files.facts.unremoved == ""


def test_a_file_whose_time_ends_while_it_is_looked_at_is_looked_at_again(tmp_path: Path) -> None:
    now = itertools.count(0, 31)  # each look at the clock is half of the file's time later
    files = EventFiles(
        tmp_path, NODE_ID, Limits(1_000, 60, 0, 0), Facts(), wall=lambda: DAY, monotonic=lambda: next(now),
    )  # fmt: skip
    files.begin()
    write(files, 1)
    assert files.look() == 29


def test_each_boot_has_files_of_its_own_and_another_node_a_folder_of_its_own(
    make: Callable[..., EventFiles], tmp_path: Path
) -> None:
    files = make()
    files.begin()
    write(files, 1, 2)
    files.write(part(line(1), 1, 1, boot=8))
    assert names(tmp_path) == ["_open-8-0000000000000001.jsonl", "events-7-0000000000000001.jsonl"]
    files.write(part(line(1), 1, 1, boot=9, node_id=b"ab" * 20))
    files.publish()
    assert [path.parent.name for path in sorted(tmp_path.rglob("events-*.jsonl"), key=lambda path: path.name)] == [
        f"node={NODE}", f"node={NODE}", "node=abababab",
    ]  # fmt: skip


@pytest.mark.parametrize("pieces", [1, 2])
def test_what_was_written_of_lines_that_do_not_fit_is_taken_back_whole(
    make: Callable[..., EventFiles], tmp_path: Path, disk: FailingDisk, pieces: int
) -> None:
    files = make()
    files.begin()
    write(files, 1)
    written = 0

    def fail(fd: int, data: bytes | memoryview) -> int:
        nonlocal written
        written += 1
        if written == pieces:
            raise OSError(errno.ENOSPC, "No space left on device")
        return Disk.write(disk, fd, data)

    disk.write = fail  # type: ignore[method-assign]
    files.write(part(line(2) + line(3), 2, 2))
    del disk.write  # type: ignore[method-assign]
    write(files, 4)
    files.publish()
    assert (seqs(tmp_path), files.facts.lost, files.facts.lines) == ([1, 4], 2, 2)


@pytest.mark.parametrize("at_a_time", [1, 3, 4, 5, 1_000])
@pytest.mark.parametrize(
    ("data", "whole"),
    [(b"", 0), (b"no end", 0), (b"one\ntwo\nthree", 8), (b"one\n\n", 5), (b"\nlong line without an end", 1)],
)
def test_the_last_whole_line_is_found_from_the_end_a_part_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_a_time: int, data: bytes, whole: int
) -> None:
    monkeypatch.setattr(files_module, "_LAST_BYTES", at_a_time)
    (tmp_path / "open").write_bytes(data)
    assert files_module._whole_lines(tmp_path / "open") == whole
