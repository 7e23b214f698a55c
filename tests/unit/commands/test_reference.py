"""The reference: complete, and the same as what the code says."""

from pathlib import Path

import pytest

from disqued.commands import reference, table
from disqued.commands.table import TABLE, Container, every_command

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "commands.md"


def entry_of(*words):
    return table.find([word.encode() for word in words])


def test_the_page_in_the_repository_is_what_the_table_says():
    assert PAGE.read_text(encoding="utf-8") == reference.page(), f"run {reference.COMMAND_LINE}"


def test_every_command_is_on_the_page_once():
    lines = reference.page().splitlines()
    for entry in every_command():
        parent = TABLE[entry.name.split()[0].encode()]
        level = "####" if isinstance(parent, Container) else "###"
        assert lines.count(f"{level} {entry.name}") == 1


def test_every_group_has_a_place_on_the_page():
    assert {entry.group for entry in TABLE.values()} == set(reference.GROUPS)


@pytest.mark.parametrize("entry", list(every_command()), ids=lambda entry: entry.name)
def test_every_command_and_every_argument_is_described(entry):
    assert entry.summary.endswith(".")
    assert entry.cost.startswith("O(")
    assert entry.flags.value
    assert len(entry.reply.text) > 3
    for field in entry.fields:
        assert field.arg.doc.endswith(".")
        assert field.arg.kind.allowed


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("ADDJOB",),
            (
                "ADDJOB queue body timeout [REPLICATE n] [DELAY n] [RETRY n] [TTL n] [MAXLEN n] [ASYNC] [MAXTRIES n]"
                " [BACKOFF first [most]] [KEEPDEAD n] [RESULT n] [HEADER name value] ... [GROUP group]"
                " [KEY key]"
            ),
        ),
        (
            ("GETJOB",),
            (
                "GETJOB [NOHANG] [WITHCOUNTERS] [WITHHEADERS] [TIMEOUT n] [COUNT n] [ORDERED] [WORKER worker]"
                " FROM queue ..."
            ),
        ),
        (("ACKJOB",), "ACKJOB [RESULT result] [id ...]"),
        (("PAUSE",), "PAUSE queue [REASON reason] in|out|all|none|state|bcast|node ..."),
        (("CONFIG", "SET"), "CONFIG SET name value"),
        (("HELLO",), "HELLO [version] [AUTH user password] [SETNAME name]"),
        (("CLUSTER", "LEAVING"), "CLUSTER LEAVING [yes|no]"),
        (("TIME",), "TIME"),
    ],
)
def test_the_syntax_line_is_derived_from_the_grammar(words, line):
    assert reference.syntax(entry_of(*words)) == line


def test_errors_are_those_of_the_arguments_and_of_the_command_each_once():
    lines = reference.errors(entry_of("AUTH"))
    assert "ERR Client sent AUTH, but no password is set" in lines
    assert reference.errors(entry_of("SHOW")) == ["BADID Invalid Job ID format."]
    assert len(set(lines)) == len(lines)
    assert reference.errors(entry_of("TIME")) == []


def test_bars_in_a_table_do_not_split_its_cells():
    rows = [line for line in reference.page().splitlines() if line.startswith("| `")]
    assert all(len(row.replace(r"\|", "").split("|")) in (4, 5) for row in rows)
