"""Every error word that a command can answer has a status of its own choosing, and stands in the reference."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import disqued
from disqued.commands.table import every_command
from disqued.errors import CommandError
from disqued.web.api.fields import error_words
from disqued.web.http.problems import STATUS, Problem
from disqued.web.http_reference import WHEN, page
from disqued.web.routes import ROUTES

REFERENCE = Path(__file__).parents[2] / "docs/reference/http.md"
#: Words that only HTTP itself knows.
OWN = {"HTTP", "NOQUEUE", "NOREPORTS", "BADREPORTS"}
#: Parts that commands are carried out by; what they may raise is in one tree of classes.
PARTS = ("core", "commands", "net", "persistence")


def classes() -> set[type[CommandError]]:
    """Every class of errors that there is, once all modules that may bring one are there."""
    for part in PARTS:
        package = importlib.import_module(f"disqued.{part}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found, left = set[type[CommandError]](), [CommandError]
    while left:
        found.add(one := left.pop())
        left += one.__subclasses__()
    return {one for one in found if one.__module__.partition(".")[0] == disqued.__name__}


WORDS = {one.code for one in classes()}


def rows(text: str) -> dict[str, tuple[str, str]]:
    """Status and meaning of each word in the table of a page."""
    return {
        word: (status, when)
        for word, status, when in re.findall(r"^\| `([A-Z]+)` \| (.+?) \| (.+) \|$", text, re.MULTILINE)
    }


def test_the_words_are_those_of_the_classes() -> None:
    assert {"ERR", "WRONGTYPE", "BUSY", "EMPTYKEY", "NOREPL"} <= WORDS
    declared = {word for entry in every_command() for word in error_words(entry)}
    assert declared <= WORDS
    assert {word for entry in ROUTES for word in entry.errors} <= WORDS | OWN


def test_no_word_is_told_that_nothing_answers() -> None:
    assert set(WHEN) == WORDS | OWN
    assert set(STATUS) == (WORDS | OWN) - {"HTTP"}


@pytest.mark.parametrize("word", sorted(WORDS))
def test_a_word_has_a_status_and_a_meaning_in_the_reference(word: str) -> None:
    for text in (page(), REFERENCE.read_text(encoding="utf-8")):
        status, when = rows(text)[word]
        assert int(status) == STATUS[word]
        assert when.endswith(".")


@pytest.mark.parametrize("word", sorted(WORDS))
def test_a_problem_has_the_status_of_its_word(word: str) -> None:
    error = CommandError("why")
    error.code = word
    problem = Problem.of(error)
    assert (problem.status, problem.code) == (STATUS[word], word)
