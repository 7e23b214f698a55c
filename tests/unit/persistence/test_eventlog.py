"""The event log of a node whose loop is told to turn: what is there when it stops, and what is lost on the way."""

import json
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any

import pytest
from twisted.internet.task import Clock

from disqued.config import Config
from disqued.persistence.disk import Disk
from disqued.persistence.eventlog import log as module
from disqued.persistence.eventlog.files import PRUNE_S
from disqued.persistence.eventlog.log import EventLog
from tests.core_fixtures import Server
from tests.limits import seconds

LIMIT_S = seconds(30)


class Loop(Clock):
    """A reactor that turns when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: SimpleQueue[tuple[Any, ...]] = SimpleQueue()

    def callFromThread(self, function: Any, *args: Any) -> None:
        self._calls.put((function, *args))

    def turn(self) -> None:
        """Do what the thread asks for next, and wait for it to ask."""
        function, *args = self._calls.get(timeout=LIMIT_S)
        function(*args)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def event_log(server: Server, loop: Loop, tmp_path: Path) -> EventLog:
    return EventLog(server.node, loop, Config.from_text(f"dir {tmp_path}"))


def end(event_log: EventLog, loop: Loop) -> None:
    ended = event_log.stop()
    assert ended is not None
    while not ended.called:
        loop.turn()


def published(folder: Path) -> list[dict[str, Any]]:
    paths = sorted((folder / "events").rglob("events-*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_a_node_that_stops_before_its_folder_is_ready_loses_no_line(
    server: Server, loop: Loop, event_log: EventLog, tmp_path: Path
) -> None:
    event_log.follow("all", "start")
    server.add("q", "x")
    end(event_log, loop)
    assert [line["event"] for line in published(tmp_path)] == ["start", "add", "stop"]


def test_lines_are_handed_over_when_they_are_many_or_their_time_is_over(
    server: Server, loop: Loop, event_log: EventLog, tmp_path: Path
) -> None:
    event_log.follow("all", "start")
    loop.turn()
    loop.turn()
    for _ in range(20):
        server.add("q", "x")
        event_log.wake()
    assert event_log.facts()["events_waiting_bytes"] == 0
    loop.advance(module.FLUSH_S)
    assert event_log.facts()["events_waiting_bytes"] != 0
    loop.turn()
    assert event_log.facts()["events_waiting_bytes"] == 0
    server.add("q", "x")
    event_log.wake()
    while not event_log.facts()["events_waiting_bytes"]:
        server.add("q", "x")
        event_log.wake()
        assert server.state.trace.endings is not None
        assert not server.state.trace.endings.is_news()
    assert module.HANDED_OVER <= event_log.facts()["events_waiting_bytes"] < module.HANDED_OVER + (100 << 10)
    end(event_log, loop)
    lines = published(tmp_path)
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))


def test_lines_are_no_news_while_they_are_few_and_somebody_comes_for_them(
    server: Server, loop: Loop, event_log: EventLog
) -> None:
    event_log.follow("all", "start")
    loop.turn()
    loop.turn()
    server.add("q", "x")
    event_log.wake()
    lines = server.state.trace.endings
    assert lines is not None
    server.add("q", "y")
    assert not lines.is_news()
    loop.advance(module.FLUSH_S)
    assert not lines.is_news()  # they are on their way
    server.add("q", "z")
    assert lines.is_news()
    end(event_log, loop)


class HeldDisk(Disk):
    """A disk that writes nothing down before it is told to."""

    def __init__(self) -> None:
        self.goes_on = Event()

    def fdatasync(self, fd: int) -> None:
        assert self.goes_on.wait(LIMIT_S)
        super().fdatasync(fd)


@pytest.mark.parametrize("times", [1, 3])
def test_a_stop_waits_for_a_log_that_is_off_and_not_written_yet(
    server: Server, loop: Loop, config: Config, tmp_path: Path, times: int
) -> None:
    disk = HeldDisk()
    event_log = EventLog(server.node, loop, config, disk)
    event_log.follow("all", "start")
    loop.turn()
    loop.turn()
    for _ in range(times):
        event_log.follow("terminal")
        event_log.follow("all")
        server.add("q", "x")
    event_log.follow("off")
    ended = event_log.stop()
    assert ended is not None
    assert not ended.called
    disk.goes_on.set()
    while not ended.called:
        loop.turn()
    assert [line["event"] for line in published(tmp_path)].count("add") == times
    assert not list((tmp_path / "events").rglob("_open*"))
    assert event_log.stop() is None  # there is nothing left to wait for


def test_lines_for_which_too_much_waits_are_lost_and_leave_a_gap(
    server: Server, loop: Loop, event_log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event_log.follow("all", "start")
    loop.turn()
    loop.turn()
    monkeypatch.setattr(module, "BACKLOG_MAX", 10)
    server.add("q", "x")
    event_log.take()
    assert event_log.facts()["events_lost"] == 1
    monkeypatch.undo()
    server.add("q", "y")
    end(event_log, loop)
    assert [(line["seq"], line["event"]) for line in published(tmp_path)] == [(1, "start"), (3, "add"), (4, "stop")]


def test_what_is_lost_while_the_folder_is_not_ready_leaves_a_gap_too(
    server: Server, loop: Loop, event_log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNREADY_MAX", 2)
    event_log.follow("all", "start")
    for _ in range(3):
        server.add("q", "x")
    event_log.take()
    assert event_log.facts()["events_lost"] == 3
    server.add("q", "z")
    end(event_log, loop)
    assert [line["seq"] for line in published(tmp_path)] == [4, 5, 6]
    assert event_log.facts()["events_lost"] == 3


def befores(lines: list[dict[str, Any]]) -> list[tuple[int, int] | None]:
    """The line before each boot, as its start names it."""
    starts = [line for line in lines if line["event"] == "start"]
    return [(line["after_boot"], line["after_seq"]) if "after_boot" in line else None for line in starts]


def test_another_boot_begins_when_other_events_are_wanted(
    server: Server, loop: Loop, event_log: EventLog, tmp_path: Path
) -> None:
    event_log.follow("all", "start")
    loop.turn()
    loop.turn()
    server.add("q", "x")
    event_log.follow("terminal")
    server.add("q", "y")
    event_log.follow("terminal")
    event_log.follow("all")
    server.add("q", "z")
    end(event_log, loop)
    lines = published(tmp_path)
    first = lines[0]["boot"]
    assert [(line["boot"] - first, line["seq"], line["event"], line.get("reason")) for line in lines] == [
        (0, 1, "start", "clean"), (0, 2, "add", None), (0, 3, "stop", "off"),
        (1, 1, "start", "on"), (1, 2, "stop", "off"),
        (2, 1, "start", "on"), (2, 2, "add", None), (2, 3, "stop", None),
    ]  # fmt: skip
    assert lines[-2]["ts_us"] == server.state.wall * 1_000
    assert befores(lines) == [None, (first, 3), (first + 1, 2)]


def test_what_is_wanted_holds_at_once_though_the_folder_is_not_ready(
    server: Server, loop: Loop, event_log: EventLog, tmp_path: Path
) -> None:
    event_log.follow("terminal", "start")
    server.add("q", "x")
    event_log.follow("all")
    server.add("q", "y")
    server.advance(1_000)
    event_log.follow("off")
    server.add("q", "z")
    event_log.follow("all")
    server.add("q", "z")
    server.advance(1_000)
    assert not (tmp_path / "events").exists() or not published(tmp_path)
    while event_log.facts()["events_written"] != 7:
        loop.turn()
    end(event_log, loop)
    lines = published(tmp_path)
    first = lines[0]["boot"]
    assert [(line["boot"] - first, line["seq"], line["event"], line.get("reason")) for line in lines] == [
        (0, 1, "start", "clean"), (0, 2, "stop", "off"),
        (1, 1, "start", "on"), (1, 2, "add", None), (1, 3, "stop", "off"),
        (2, 1, "start", "on"), (2, 2, "add", None), (2, 3, "stop", None),
    ]  # fmt: skip
    assert event_log.facts()["events_lost"] == 0
    assert befores(lines) == [None, (first, 2), (first + 1, 3)]
    # Each boot begins when that was wanted, and not when its lines are made.
    walls = [line["ts_us"] for line in lines]
    assert walls == sorted(walls)
    assert walls[5] == walls[4] == walls[0] + 1_000_000


def test_events_that_are_wanted_no_more_before_the_folder_is_ready_are_written(
    server: Server, loop: Loop, event_log: EventLog, tmp_path: Path
) -> None:
    event_log.follow("all", "start")
    server.add("q", "x")
    event_log.follow("off")
    while event_log.facts()["events_files_published"] != 1:
        loop.turn()
    assert [line["event"] for line in published(tmp_path)] == ["start", "add", "stop"]
    assert event_log.stop() is None


def test_a_node_that_stops_when_events_are_just_wanted_no_more_loses_no_line(
    server: Server, loop: Loop, event_log: EventLog, tmp_path: Path
) -> None:
    event_log.follow("all", "start")
    server.add("q", "x")
    event_log.follow("off")
    end(event_log, loop)
    assert [line["event"] for line in published(tmp_path)] == ["start", "add", "stop"]


def test_another_id_before_the_folder_is_ready_parts_what_was_noted(
    server: Server, loop: Loop, event_log: EventLog, tmp_path: Path
) -> None:
    before = server.state.node_id
    event_log.follow("terminal", "start")
    event_log.follow("all")
    server.add("q", "x")
    server.node.membership.reset(hard=True)
    server.add("q", "y")
    end(event_log, loop)
    names = [before[:8].decode(), server.state.node_id[:8].decode()]
    folders = [next((tmp_path / "events").glob(f"date=*/node={name}")) for name in names]
    told = [
        [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]
        for folder in folders
    ]
    assert [[line["event"] for line in lines] for lines in told] == [
        ["start", "stop", "start", "add", "stop"], ["start", "add", "stop"],
    ]  # fmt: skip


def test_what_waits_for_a_folder_that_cannot_be_used_is_counted_when_nobody_wants_it_any_more(
    server: Server, loop: Loop, event_log: EventLog, tmp_path: Path
) -> None:
    obstacle = tmp_path / "events"
    obstacle.write_text("in the way")
    event_log.follow("terminal", "start")
    event_log.follow("all")
    server.add("q", "x")
    loop.turn()
    event_log.follow("off")
    assert event_log.facts()["events_lost"] == 3
    obstacle.unlink()
    event_log.follow("all")
    end(event_log, loop)
    assert [line["seq"] for line in published(tmp_path)] == [4, 5]


def test_what_waits_for_a_folder_is_counted_when_that_turns_out_to_be_none(
    server: Server, loop: Loop, event_log: EventLog, tmp_path: Path
) -> None:
    (tmp_path / "events").write_text("in the way")
    event_log.follow("all", "start")
    server.add("q", "x")
    event_log.follow("off")
    loop.turn()
    assert event_log.facts()["events_lost"] == 2
    assert loop.getDelayedCalls() == []


def test_boots_that_are_too_many_for_a_folder_that_is_not_ready_are_lost_and_counted(
    server: Server, loop: Loop, event_log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNREADY_MAX", 2)
    event_log.follow("all", "start")
    server.add("q", "x")
    server.add("q", "y")
    event_log.follow("off")
    assert event_log.facts()["events_lost"] == 3
    end(event_log, loop)
    assert [(line["seq"], line["event"]) for line in published(tmp_path)] == [(4, "start")]


def test_all_boots_that_wait_for_a_folder_share_the_bound_and_what_is_lost_is_missing_where_it_was(
    server: Server, loop: Loop, event_log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNREADY_MAX", 4)  # each of the two boots alone has fewer notes
    event_log.follow("all", "start")
    server.add("q", "x")
    event_log.follow("off")
    assert event_log.facts()["events_lost"] == 0
    event_log.follow("all")
    for _ in range(3):
        server.add("q", "y")
    event_log.take()
    assert event_log.facts()["events_lost"] == 3
    end(event_log, loop)
    first = published(tmp_path)[0]["boot"]
    assert [(line["boot"] - first, line["seq"], line["event"]) for line in published(tmp_path)] == [
        (0, 1, "start"), (0, 2, "add"), (0, 3, "stop"), (1, 4, "start"), (1, 5, "stop"),
    ]  # fmt: skip


def test_a_node_that_gets_another_id_while_nobody_wants_events_has_those_that_follow_under_it(
    server: Server, loop: Loop, event_log: EventLog, tmp_path: Path
) -> None:
    before = server.state.node_id
    event_log.follow("all", "start")
    server.add("q", "x")
    event_log.follow("off")
    server.node.membership.reset(hard=True)
    event_log.follow("all")
    server.add("q", "y")
    end(event_log, loop)
    for name, jobs in ((before, 1), (server.state.node_id, 1)):
        [folder] = (tmp_path / "events").glob(f"date=*/node={name[:8].decode()}")
        lines = [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]
        assert [line["event"] for line in lines].count("add") == jobs


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config.from_text(f"dir {tmp_path}")


def test_one_timer_publishes_a_file_however_often_it_is_written(
    server: Server, loop: Loop, event_log: EventLog
) -> None:
    event_log.follow("all", "start")
    loop.turn()
    loop.turn()
    timers = []
    for _ in range(3):
        server.add("q", "x")
        event_log.take()
        loop.turn()
        timers.append(len(loop.getDelayedCalls()))
    assert timers == [1, 1, 1]
    end(event_log, loop)


def test_other_limits_hold_at_once_for_what_is_open_and_for_what_is_kept(
    server: Server, loop: Loop, config: Config, tmp_path: Path
) -> None:
    event_log = EventLog(server.node, loop, config)
    event_log.follow("all", "start")
    loop.turn()
    loop.turn()
    server.add("q", "x")
    event_log.take()
    loop.turn()
    assert published(tmp_path) == []
    config.set("events-file-seconds", "1")
    event_log.configure(config)
    loop.turn()
    while not published(tmp_path):
        loop.advance(1)
        loop.turn()
    config.set("events-keep-size", "1")
    event_log.configure(config)
    loop.turn()
    assert published(tmp_path) == []
    end(event_log, loop)
    assert loop.getDelayedCalls() == []


def test_old_files_are_removed_while_nobody_wants_events(
    server: Server, loop: Loop, config: Config, tmp_path: Path
) -> None:
    old = tmp_path / "events" / "date=2000-01-01" / f"node={server.state.node_id[:8].decode()}"
    event_log = EventLog(server.node, loop, config)

    def leave() -> None:
        old.mkdir(parents=True)
        (old / "events-1-0000000000000001.jsonl").write_text("{}\n")

    leave()
    event_log.follow("off", "start")
    loop.advance(PRUNE_S)
    loop.turn()
    assert not old.exists()
    leave()
    event_log.configure(config)
    loop.turn()
    assert not old.exists()
    leave()
    loop.advance(PRUNE_S)
    loop.turn()
    assert not old.exists()
    assert event_log.stop() is None
    assert loop.getDelayedCalls() == []


def test_a_node_that_never_had_a_log_has_no_timer_for_it(server: Server, loop: Loop, event_log: EventLog) -> None:
    event_log.follow("off", "start")
    assert loop.getDelayedCalls() == []


def test_a_log_that_is_wanted_no_more_leaves_no_timer_where_nothing_is_to_be_removed(
    server: Server, loop: Loop, tmp_path: Path
) -> None:
    event_log = EventLog(server.node, loop, Config.from_text(f"dir {tmp_path}\nevents-keep-days 0"))
    event_log.follow("all", "start")
    loop.turn()
    loop.turn()
    server.add("q", "x")
    event_log.wake()
    assert len(loop.getDelayedCalls()) == 2, "one hands lines over, and one publishes the file"
    event_log.follow("off")
    assert loop.getDelayedCalls() == []
    end(event_log, loop)


def test_a_log_that_is_wanted_again_begins_when_the_one_before_is_put_away(
    server: Server, loop: Loop, event_log: EventLog, tmp_path: Path
) -> None:
    event_log.follow("all", "start")
    loop.turn()
    loop.turn()
    for times in range(1, 6):
        server.add("q", "x")
        event_log.follow("off")
        event_log.follow("all")
        while event_log.facts()["events_written"] != 3 * times + 1:
            loop.turn()
    end(event_log, loop)
    lines = published(tmp_path)
    assert [line["event"] for line in lines] == [*["start", "add", "stop"] * 5, "start", "stop"]
    assert (event_log.facts()["events_lost"], event_log.facts()["events_last_error"]) == (0, "")
