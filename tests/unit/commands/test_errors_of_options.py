"""Errors of all commands name what is wrong and say what is allowed: read off the table, so that none is left out."""

from collections.abc import Iterator

import pytest

from disqued.commands import catalogue
from disqued.commands.table import Arg, Command, Field, manual, parse
from disqued.errors import CommandError
from tests.core_fixtures import UNKNOWN_ID

assert catalogue.MODULES  # it enters the commands into the table

UNKNOWN = b"NO-SUCH-WORD"


def refusal(entry: Command, words: list[bytes]) -> str:
    """Parse words that are no such command; returns the error."""
    with pytest.raises(CommandError) as caught:
        parse(entry, words)
    return caught.value.line.decode()


def valid(arg: Arg) -> bytes:
    """Return a value that an argument takes."""
    if arg.kind.words:
        return arg.kind.words[0].encode()
    for value in (UNKNOWN_ID, b"1", b"2", b"first", b"@daily"):
        try:
            if arg.read is not None:
                arg.read(value)
        except CommandError:
            continue
        return value
    raise AssertionError(arg)


def word_of(arg: Arg) -> bytes:
    assert arg.keyword is not None
    return arg.keyword


def rest_of(entry: Command) -> Arg | None:
    return next((field.arg for field in entry.fields if field.arg.style == "rest"), None)


def takes_any_word(entry: Command) -> bool:
    """Return whether a word that is no option is one of the queues at the end."""
    rest = rest_of(entry)
    return rest is not None and rest.kind.names == "queue" and (rest.keyword is None or rest.bare)


def begun(entry: Command, *styles: str) -> list[bytes]:
    """Return the words of a command up to its options, with its optional values too if they are among `styles`."""
    places = [valid(field.arg) for field in entry.fields if field.arg.style in ("positional", *styles)]
    return [*entry.name.encode().split(), *places]


def long_enough(entry: Command, words: list[bytes], last: list[bytes]) -> list[bytes]:
    """Return the words with flags between them, so that they are not too few."""
    flags = [word_of(field.arg) for field in entry.fields if field.arg.style == "flag"]
    return [*words, *flags[:1] * (abs(entry.arity) - len(words) - len(last)), *last]


def arguments(*styles: str) -> Iterator[tuple[Command, Field]]:
    for entry in manual():
        yield from ((entry, field) for field in entry.fields if field.arg.style in styles)


def ids(found: list[tuple[Command, Field]]) -> list[str]:
    return [f"{entry.name} {field.label}" for entry, field in found]


WITH_VALUES = list(arguments("option"))


@pytest.mark.parametrize(("entry", "field"), WITH_VALUES, ids=ids(WITH_VALUES))
def test_an_option_without_its_value_is_named_with_what_is_allowed(entry: Command, field: Field) -> None:
    word = word_of(field.arg)
    words = long_enough(entry, begun(entry), [word])
    rest = rest_of(entry)
    if rest is not None and rest.kind.names == "queue" and rest.keyword is None:
        assert parse(entry, words) is not None, "a queue that is called like the option"
        return
    line = refusal(entry, words)
    assert word.decode() in line
    assert "allowed are " in line or f"expected {word.decode()} " in line


HAVE_OPTIONS = [
    entry for entry in manual() if any(field.arg.style in ("option", "flag") for field in entry.fields)
    and not takes_any_word(entry)
]  # fmt: skip


@pytest.mark.parametrize("entry", HAVE_OPTIONS, ids=[entry.name for entry in HAVE_OPTIONS])
def test_an_unknown_word_is_refused_with_the_options_that_there_are(entry: Command) -> None:
    line = refusal(entry, long_enough(entry, begun(entry, "optional"), [UNKNOWN]))
    assert UNKNOWN.decode() in line or line.startswith("BADID ") or entry.name == "PAUSE"
    for field in entry.fields:
        if field.arg.keyword is not None:
            assert field.arg.keyword.decode() in line


NUMBERS = [
    (entry, field) for entry, field in arguments("positional", "optional", "option")
    if field.arg.kind.name == "integer" and entry.name != "HELLO"  # a version, which Redis clients know by NOPROTO
]  # fmt: skip


@pytest.mark.parametrize(("entry", "field"), NUMBERS, ids=ids(NUMBERS))
@pytest.mark.parametrize("value", [b"1.5", b"one"])
def test_what_is_no_whole_number_is_refused_with_its_name_and_what_is_allowed(
    entry: Command, field: Field, value: bytes
) -> None:
    arg = field.arg
    words = begun(entry)
    if arg.style == "positional":
        places = [other.name for other in entry.fields if other.arg.style == "positional"]
        words[len(entry.name.split()) + places.index(field.name)] = value
    elif arg.style == "optional":
        before = [other for other in entry.fields if other.arg.style == "optional"]
        words += [*(valid(other.arg) for other in before[: before.index(field)]), value]
    else:
        between = arg.words or ("",) * arg.width
        words += [word_of(arg), *(word for before in between for word in (before.encode(), value) if word)]
    rest = rest_of(entry)
    if rest is not None and rest.minimum:
        words += [*filter(None, [rest.keyword]), *[valid(rest)] * rest.minimum]
    line = refusal(entry, long_enough(entry, words, []))
    assert (arg.keyword or field.label.encode()).decode().lower() in line.lower()
    assert "whole" in line or (field.name == "cursor" and "expected cursor, " in line)
