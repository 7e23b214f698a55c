"""Logs: JSON lines for machines, text for people, levels that can be changed."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from twisted.logger import Logger, globalLogPublisher
from twisted.python import log as legacy_log
from twisted.python.failure import Failure

from disqued.config import Config
from disqued.net.process.logformat import follow_hangups, observer, open_log, reopen


@contextmanager
def logging(config: Config) -> Iterator[Logger]:
    """A logger that writes as the settings say."""
    with open_log(config) as out:
        yield Logger("here", observer=observer(config, out))


def config_for(folder: Path, settings: str = "") -> Config:
    return Config.from_text(f"dir {folder}\nlogfile log\n{settings}")


def lines(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines()


def test_a_log_that_is_no_terminal_is_one_json_object_a_line(tmp_path: Path) -> None:
    with logging(config_for(tmp_path)) as log:
        log.info("two\nlines, {number} and \N{SNOWMAN}", number=7)
    (line,) = map(json.loads, lines(tmp_path))
    assert line["message"] == "two\nlines, 7 and \N{SNOWMAN}"
    assert (line["level"], line["logger"]) == ("info", "here")
    assert line["time"].endswith("Z")


def test_a_failure_brings_its_traceback_on_the_same_line(tmp_path: Path) -> None:
    with logging(config_for(tmp_path)) as log:
        try:
            raise ZeroDivisionError("planted")
        except ZeroDivisionError:
            log.failure("went wrong", Failure())
    (line,) = map(json.loads, lines(tmp_path))
    assert line["level"] == "critical"
    assert "ZeroDivisionError: planted" in line["traceback"]


def test_people_get_text(tmp_path: Path) -> None:
    with logging(config_for(tmp_path, "log-format human")) as log:
        log.info("hello")
    (line,) = lines(tmp_path)
    assert line.endswith("[here#info] hello")


def test_the_level_is_followed_while_the_daemon_runs(tmp_path: Path) -> None:
    config = config_for(tmp_path, "loglevel warning")
    with logging(config) as log:
        log.info("unheard")
        log.warn("heard")
        config.set("loglevel", "debug")
        log.debug("heard too")
    assert [json.loads(line)["message"] for line in lines(tmp_path)] == ["heard", "heard too"]


def test_what_libraries_tell_is_heard_from_verbose_on_and_their_warnings_always(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    with open_log(config) as out:
        observe = observer(config, out)
        library, ours = Logger("twisted.scripts", observer=observe), Logger("disqued.tap", observer=observe)
        globalLogPublisher.addObserver(observe)
        try:
            for name in ("notice", "verbose", "warning"):
                config.set("loglevel", name)
                library.info("{name} reactor class", name=name)
                legacy_log.msg(f"{name} Daemon starting on 7711")
                library.warn("{name} library warns", name=name)
                ours.info("{name} Listening", name=name)
        finally:
            globalLogPublisher.removeObserver(observe)
    assert [json.loads(line)["message"] for line in lines(tmp_path)] == [
        *("notice library warns", "notice Listening"),
        *("verbose reactor class", "verbose Daemon starting on 7711", "verbose library warns", "verbose Listening"),
        "warning library warns",
    ]


def test_a_log_that_was_moved_away_goes_on_in_a_new_file(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    with open_log(config) as out:
        log = Logger("here", observer=observer(config, out))
        log.info("before")
        (tmp_path / "log").rename(tmp_path / "log.1")
        log.info("between")
        reopen(config, out)
        log.info("after")
    assert [json.loads(line)["message"] for line in lines(tmp_path)] == ["after"]
    assert (tmp_path / "log.1").read_text().count("\n") == 2


def test_a_log_that_cannot_be_opened_anew_goes_on_where_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    config = config_for(folder)
    with open_log(config) as out:
        log = Logger("here", observer=observer(config, out))
        folder.rename(tmp_path / "moved")
        reopen(config, out)
        log.info("still heard")
    assert [json.loads(line)["message"] for line in lines(tmp_path / "moved")] == ["still heard"]
    assert not folder.exists()


def test_sighup_opens_the_log_anew_on_the_thread_of_the_loop(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    put_off: list[Callable[[], None]] = []

    class Loop:
        def callFromThread(self, function: Callable[..., None], *args: object) -> None:
            put_off.append(lambda: function(*args))

    before = signal.getsignal(signal.SIGHUP)
    try:
        with open_log(config) as out:
            follow_hangups(Loop(), partial(reopen, config, out))
            (tmp_path / "log").unlink()
            os.kill(os.getpid(), signal.SIGHUP)
            assert not (tmp_path / "log").exists()
            for function in put_off:
                function()
            assert (tmp_path / "log").exists()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_sighup_opens_nothing_when_there_is_no_file(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = Config.from_text(f"dir {tmp_path}")
    out = open_log(config)
    observe = observer(config, out)
    globalLogPublisher.addObserver(observe)
    try:
        reopen(config, out)
    finally:
        globalLogPublisher.removeObserver(observe)
    assert "SIGHUP: the log goes to standard output" in capfd.readouterr().out
