"""Rates of INFO without a timer while nothing happens."""

import shutil
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.internet.task import Clock

from disqued.net.process.statistics import SAMPLES, Statistics, disk_space, executable


@attrs.define
class Watched:
    """What Statistics reads of a daemon, on a clock that is told when to move."""

    reactor: Clock = attrs.field(factory=Clock)
    commands_run: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    changes: list[bool] = attrs.field(factory=list)

    @property
    def node(self) -> Any:
        return self

    @property
    def traffic(self) -> Any:
        return self

    @property
    def dispatch(self) -> Any:
        return self

    @property
    def clock(self) -> Any:
        return self

    def now(self) -> int:
        return round(self.reactor.seconds() * 1_000)

    def follow(self) -> Statistics:
        statistics = Statistics(0)
        statistics.watch(self, lambda: self.changes.append(statistics.resting))  # type: ignore[arg-type]
        return statistics

    def work(self, turns: int, commands: int) -> None:
        """Let some tenths of a second pass, with so many commands in each."""
        for _ in range(turns):
            self.commands_run += commands
            self.bytes_in += commands * 1_024
            self.reactor.advance(Statistics.SAMPLE_S)


def test_nothing_is_timed_before_the_first_command_and_after_the_end() -> None:
    watched = Watched()
    statistics = watched.follow()
    assert watched.reactor.getDelayedCalls() == []
    statistics.wake()
    assert len(watched.reactor.getDelayedCalls()) == 1
    statistics.stop()
    assert watched.reactor.getDelayedCalls() == []


def test_rates_are_those_of_the_last_samples() -> None:
    watched = Watched()
    statistics = watched.follow()
    statistics.wake()
    watched.work(turns=5, commands=1)
    watched.work(turns=SAMPLES, commands=7)
    assert statistics._rates() == (70, 70.0, 0.0)


def test_the_timer_ends_when_nothing_has_happened_for_all_of_the_samples() -> None:
    watched = Watched()
    statistics = watched.follow()
    statistics.wake()
    watched.work(turns=3, commands=5)
    watched.work(turns=SAMPLES, commands=0)
    assert (watched.changes, watched.reactor.getDelayedCalls()) == ([False, True], [])
    assert statistics._rates() == (0, 0.0, 0.0)


def test_the_timer_goes_on_while_there_is_little_to_do() -> None:
    watched = Watched()
    statistics = watched.follow()
    statistics.wake()
    for _ in range(5):
        watched.work(turns=SAMPLES - 1, commands=0)
        watched.work(turns=1, commands=1)
    assert not statistics.resting
    assert statistics._rates()[0] == 1


def test_what_came_while_it_rested_belongs_to_no_rate() -> None:
    watched = Watched()
    statistics = watched.follow()
    statistics.wake()
    watched.work(turns=SAMPLES + 1, commands=0)
    watched.bytes_out += 10**9
    watched.reactor.advance(3_600)
    statistics.wake()
    statistics.wake()
    watched.work(turns=2, commands=3)
    assert statistics._rates() == (30, 30.0, 0.0)
    assert watched.changes == [False, True, False]


def test_the_program_is_the_script_or_else_the_interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "disqued"
    script.touch()
    (tmp_path / "link").symlink_to(script)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "link"), "--port", "1"])
    assert executable() == str(script)
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert executable() == sys.executable


def test_room_on_the_disk_is_that_of_the_file_system_of_a_folder(tmp_path: Path) -> None:
    found = disk_space(tmp_path)
    assert 0 <= found["dir_free_bytes"] <= found["dir_size_bytes"]
    assert found["dir_size_bytes"] == shutil.disk_usage(tmp_path).total
    assert disk_space(tmp_path / "none") == {}
