"""Numbers on the command line: what is none, or has no end, is refused by every option that takes one."""

from collections.abc import Iterator

import click
import pytest

from disqued.tools import program
from disqued.tools.values import Number


def options(command: click.Command, *words: str) -> Iterator[tuple[tuple[str, ...], click.Option]]:
    """The options of a verb and of the verbs below it, each with the words before it."""
    context = click.Context(command)
    for option in command.params:
        if isinstance(option, click.Option):
            yield words, option
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from options(found, *words, name)


#: `check` says it in its own way (test_nagios.py), and has no numbers but those of other verbs.
NUMBERS = [
    (*words, option.opts[-1])
    for words, option in options(program.program)
    if isinstance(option.type, (click.types.FloatParamType, click.FloatRange)) and words[0] != "check"
]


def test_numbers_are_among_the_options_of_many_verbs() -> None:
    assert {words[0] for words in NUMBERS} >= {"bench", "cli", "cluster", "move", "restart", "top"}


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("words", NUMBERS, ids=" ".join)
def test_what_cannot_be_counted_with_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], text: str
) -> None:
    assert program.run([*words, text]) == program.MISUSED
    said = capsys.readouterr()
    assert said.out == ""
    assert "Invalid value for" in said.err
    assert words[-1] in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(("text", "number"), [("0", 0.0), ("2.5", 2.5), ("1e300", 1e300)])
def test_any_other_number_is_taken(text: str, number: float) -> None:
    assert Number(0).convert(text, None, None) == number
