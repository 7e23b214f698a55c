"""Files of the event log are shipped whole, once, and removed only when they are safely there."""

from pathlib import Path

import pytest

from disqued.tools import ship_events
from disqued.tools.program import run
from disqued.tools.ship_events import ship

DONE, FAILED, MISUSED = 0, 1, 2


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "events"
    for day, node, name in (("1", "a", "events-7-1"), ("1", "b", "events-7-1"), ("2", "a", "events-7-9")):
        path = folder / f"date={day}" / f"node={node}" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{day}{node}\n")
    (folder / "date=2" / "node=a" / "_open-7-12.jsonl").write_text("not yet\n")
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


def texts(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_what_is_published_is_shipped_once(source: Path, target: Path) -> None:
    first = ship(source, target)
    assert (first.shipped, first.shipped_bytes, first.known) == (3, 9, 0)
    assert texts(target) == {name: text for name, text in texts(source).items() if "_open" not in name}
    second = ship(source, target)
    assert (second.shipped, second.known, second.removed) == (0, 3, 0)


def test_what_is_safely_there_is_removed_here(source: Path, target: Path) -> None:
    before = {name: text for name, text in texts(source).items() if "_open" not in name}
    assert ship(source, target, remove=True).removed == 1
    assert texts(target) == before
    # By its newest file a node knows, when it starts, where it has been.
    newest = ["date=1/node=b/events-7-1.jsonl", "date=2/node=a/events-7-9.jsonl"]
    assert sorted(texts(source)) == sorted([*newest, "date=2/node=a/_open-7-12.jsonl"])
    (source / "date=2" / "node=a" / "_open-7-12.jsonl").rename(source / "date=2" / "node=a" / "events-7-12.jsonl")
    (source / "date=2" / "node=b").mkdir()
    (source / "date=2" / "node=b" / "events-10-1.jsonl").write_text("later\n")
    assert ship(source, target, remove=True).removed == 2
    assert sorted(texts(source)) == ["date=2/node=a/events-7-12.jsonl", "date=2/node=b/events-10-1.jsonl"]


def test_half_a_file_is_never_seen_and_is_shipped_by_the_next_round(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(28, "No space left on device", "file")

    monkeypatch.setattr(ship_events.os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        ship(source, target, remove=True)
    assert texts(target) == {}
    assert len(texts(source)) == 4
    monkeypatch.undo()
    assert ship(source, target).shipped == 3


def test_a_copy_that_was_broken_off_is_made_again(source: Path, target: Path) -> None:
    ship(source, target)
    broken = target / "date=1" / "node=a" / "events-7-1.jsonl"
    broken.write_text("1")
    assert ship(source, target).shipped == 1
    assert broken.read_text() == "1a\n"


@pytest.mark.parametrize("text", ["1b\n", "2", "1a\n1a\n"])
def test_another_file_of_that_name_is_neither_replaced_nor_takes_ours_with_it(
    source: Path, target: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    other = target / "date=1" / "node=a" / "events-7-1.jsonl"
    other.parent.mkdir(parents=True)
    other.write_text(text)
    assert run(["ship-events", str(target), "--from", str(source), "--remove"]) == FAILED
    told = capsys.readouterr()
    assert told.err.endswith(f"{other} is there with other lines than the file here: both stay as they are\n")
    assert told.out == "files shipped: 2 (6 bytes), there already: 0, removed here: 0\n"
    assert other.read_text() == text
    assert (source / "date=1" / "node=a" / "events-7-1.jsonl").read_text() == "1a\n"


def test_the_tool_says_what_it_did(source: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ship-events", str(target), "--from", str(source), "--remove"]) == DONE
    assert capsys.readouterr().out == "files shipped: 3 (9 bytes), there already: 0, removed here: 1\n"


def test_the_folder_is_that_of_the_configuration(source: Path, target: Path, tmp_path: Path) -> None:
    file = tmp_path / "disqued.conf"
    file.write_text(f"dir {tmp_path}\nevents-dir events\n")
    assert run(["ship-events", str(target), "--config", str(file)]) == DONE
    assert len(texts(target)) == 3


def test_trouble_is_told_with_what_is_allowed(
    source: Path, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, status, said in (
        ([str(target), "--from", str(tmp_path / "none")], FAILED, "is no folder; --from or the events-dir"),
        ([str(tmp_path / "none"), "--from", str(source)], FAILED, "make it, or mount"),
        ([str(source), "--from", str(source)], FAILED, "the folder of the event log itself"),
        ([str(target), "--config", str(tmp_path / "none.conf")], MISUSED, "none.conf"),
    ):
        assert run(["ship-events", *words]) == status
        assert said in capsys.readouterr().err
    for word in ("-1", "foo", "nan", "inf"):
        assert run(["ship-events", str(target), "--every", word]) == MISUSED
        assert f"'{word}' is no number of seconds; allowed are 0 up to 31536000" in capsys.readouterr().err


def test_rounds_outlive_a_storage_that_is_away(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            monkeypatch.setattr(ship_events, "_copy", copy)
        elif len(pauses) == 3:
            raise KeyboardInterrupt

    def fail(path: Path, goal: Path) -> None:
        raise OSError(5, "Input/output error", str(goal))

    copy = ship_events._copy
    monkeypatch.setattr(ship_events, "_copy", fail)
    monkeypatch.setattr(ship_events.time, "sleep", pause)
    assert run(["ship-events", str(target), "--from", str(source), "--every", "5"]) == 130
    assert pauses == [5, 5, 5]
    told = capsys.readouterr()
    assert told.out == "files shipped: 3 (9 bytes), there already: 0, removed here: 0\n"
    assert "Input/output error" in told.err
