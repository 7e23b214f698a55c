"""Logs: JSON lines for machines, text for people, levels that can be changed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.config import Config
from disqued.net.logs import observer, open_log


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
