"""The log in the journal of systemd: a socket stands for journald's stream, and what comes out of it is looked at."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.config import Config
from disqued.net.process.journald import ErrorLines, is_journal, standard_error
from disqued.net.process.logformat import observer


@attrs.frozen
class Stream:
    """A connection to journald: the end of the service, and that of the journal."""

    out: socket.socket
    journal: socket.socket

    @property
    def variables(self) -> dict[str, str]:
        """What systemd says of it."""
        found = os.fstat(self.out.fileno())
        return {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}

    def logger(self, settings: str = "") -> Logger:
        """A logger as the daemon makes it, whose output is the stream."""
        out = open(self.out.fileno(), "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - closed with the socket
        assert is_journal(out, self.variables)
        return Logger("here", observer=observer(Config.from_text(settings), out, to_journal=True))

    def lines(self) -> list[str]:
        """What the journal was given; the service is over."""
        self.out.shutdown(socket.SHUT_WR)
        with self.journal.makefile(encoding="utf-8", newline="\n") as told:
            return told.read().split("\n")[:-1]


@pytest.fixture
def stream() -> Iterator[Stream]:
    out, journal = socket.socketpair()
    with out, journal:
        yield Stream(out, journal)


def test_each_line_has_the_priority_of_its_level_and_no_time(stream: Stream) -> None:
    log = stream.logger("loglevel debug")
    for say in (log.debug, log.info, log.warn, log.error, log.critical):
        say("said {word}", word="\N{SNOWMAN}")
    assert stream.lines() == [
        "<7>[here#debug] said \N{SNOWMAN}",
        "<6>[here#info] said \N{SNOWMAN}",
        "<4>[here#warn] said \N{SNOWMAN}",
        "<3>[here#error] said \N{SNOWMAN}",
        "<2>[here#critical] said \N{SNOWMAN}",
    ]


def test_each_line_of_a_traceback_has_its_priority_too(stream: Stream) -> None:
    log = stream.logger()
    try:
        raise ZeroDivisionError("planted\n<7>within")
    except ZeroDivisionError:
        log.failure("went wrong", Failure())
    first, *more = stream.lines()
    assert first == "<2>[here#critical] went wrong"
    assert more[0] == "<2>\tTraceback (most recent call last):"
    assert more[-2:] == ["<2>\tbuiltins.ZeroDivisionError: planted", "<2>\t<7>within"]
    assert all(line.startswith("<2>\t") for line in more)


@pytest.mark.parametrize("end", ["\n", "\0"])
def test_nobody_makes_a_line_of_another_priority(stream: Stream, end: str) -> None:
    stream.logger().info("a queue is called {name}", name=f"q{end}<0>all is lost")
    told = stream.lines()
    assert [line[:3] for line in told] == ["<6>"] * len(told)
    assert "\0" not in "".join(told)


def test_an_event_of_nothing_is_no_line(stream: Stream) -> None:
    log = stream.logger()
    log.info("")
    log.info("something")
    assert stream.lines() == ["<6>[here#info] something"]


def test_json_in_the_journal_is_whole_behind_its_priority(stream: Stream) -> None:
    stream.logger("log-format json").warn("two\nlines")
    (line,) = stream.lines()
    assert line.startswith("<4>{")
    told = json.loads(line.removeprefix("<4>"))
    assert (told["level"], told["message"]) == ("warn", "two\nlines")
    assert told["time"].endswith("Z")


def test_the_variable_alone_says_nothing(stream: Stream, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        assert not is_journal(file, stream.variables)
        assert standard_error(file, stream.variables) is file
    assert not is_journal(file, stream.variables), "a closed file is none"
    assert not is_journal(None, stream.variables)
    with open(stream.out.fileno(), "w", encoding="utf-8", closefd=False) as out:
        assert not is_journal(out, {})
        assert not is_journal(out, {"JOURNAL_STREAM": "what is this"})


def test_what_is_written_to_standard_error_before_the_log_is_errors(stream: Stream) -> None:
    with open(stream.out.fileno(), "w", encoding="utf-8", closefd=False) as out:
        err = standard_error(out, stream.variables)
        assert isinstance(err, ErrorLines)
        assert err.fileno() == stream.out.fileno()
        err.write("disqued: ")
        err.write("wrong\nTraceback:\n  File")
        err.write(" x\n")
        err.flush()
    assert stream.lines() == ["<3>disqued: wrong", "<3>Traceback:", "<3>  File x"]
