"""The command table: what is derived from the fields of a command, and the parser that is written from them."""

import linecache

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disqued.commands import catalogue, table
from disqued.commands.connection import Hello
from disqued.commands.shapes import OK
from disqued.commands.table import (
    LONG,
    WORDS_MAX,
    Flag,
    command,
    container,
    flag,
    option,
    optional,
    positional,
    repeated,
    rest,
)
from disqued.commands.values import BYTES, integer, one_of, whole
from disqued.errors import CommandError, NotReplicated, SyntaxFault, TooManyWords, UnknownCommand, WrongArity

assert catalogue  # it enters the commands into the table

SMALL = integer(1, 9, "N must be 1 to 9", "1 to 9")


@pytest.fixture
def enter(monkeypatch):
    """Enter commands into a table of the test's own; returns the entry of an attrs class."""
    monkeypatch.setattr(table, "TABLE", {})
    monkeypatch.setattr(table, "PLAIN", {})
    monkeypatch.setattr(table, "MANUAL", {})

    def enter_into(cls, name="T", **more):
        command(name, group="server", flags=Flag.READ, reply=OK, cost="O(1)", **more)(attrs.define(cls))
        first, _, second = name.encode().partition(b" ")
        entry = table.TABLE[first]
        return entry if isinstance(entry, table.Command) else entry.children.get(second, entry.alone)

    return enter_into


def parsed(entry, text):
    """The fields that a parser read from blank-separated words."""
    return attrs.astuple(entry.parse(text.encode().split()), recurse=False)


# Arity.


class Nothing:
    """No fields."""


class OneValue:
    """One value."""

    a: bytes = positional("A.")


class MaybeAnother:
    """One value, perhaps a second."""

    a: bytes = positional("A.")
    b: bytes = optional("B.")


class Options:
    """A value and options."""

    a: bytes = positional("A.")
    n: int = option("N", "N.", SMALL, 5)
    m: int = option("M", "M.", whole("M"), 0)
    fast: bool = flag("FAST", "Fast.")


class Rest:
    """Some values at the end."""

    ids: list[bytes] = rest("Ids.")


class RestOrNone:
    """Any values."""

    ids: list[bytes] = rest("Ids.", minimum=0)


class From:
    """Values after a word."""

    quick: bool = flag("QUICK", "Quick.")
    n: int = option("N", "N.", SMALL, 1)
    queues: list[bytes] = rest("Queues.", word="FROM")


class Scan:
    """A cursor anywhere among options."""

    cursor: int = optional("Cursor.", whole("cursor"), 0)
    n: int = option("N", "N.", SMALL, 5)
    states: tuple[int, ...] = repeated("STATE", "State.", one_of({b"UP": 1, b"DOWN": 2}, "STATE is up or down"))


class Two:
    """An option of two values."""

    auth: tuple[bytes, bytes] = option("AUTH", "Both.", BYTES, parts=("user", "password"))
    name: bytes = option("NAME", "Name.", BYTES)


@pytest.mark.parametrize(
    ("cls", "arity"),
    [
        (Nothing, 1),
        (OneValue, 2),
        (MaybeAnother, -2),
        (Options, -2),
        (Rest, -2),
        (RestOrNone, -1),
        (From, -3),
        (Scan, -1),
    ],
)
def test_arity_counts_the_name_and_is_negative_when_more_may_follow(enter, cls, arity):
    assert enter(cls).arity == arity


def test_arity_of_a_subcommand_counts_both_words(enter):
    container("T", group="server", flags=Flag.READ, summary="", misuse=lambda word, known: "")
    assert enter(OneValue, "T SUB").arity == 3


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (Nothing, "T x"),
        (OneValue, "T"),
        (OneValue, "T a b"),
        (Options, "T"),
        (Rest, "T"),
        (From, "T FROM"),
        (MaybeAnother, "T"),
    ],
)
def test_too_few_or_too_many_words_are_a_wrong_arity(enter, cls, text):
    with pytest.raises(WrongArity) as caught:
        parsed(enter(cls), text)
    assert caught.value.line == b"ERR wrong number of arguments for 't' command"


def test_a_declared_arity_lets_other_errors_through(enter):
    with pytest.raises(SyntaxFault):
        parsed(enter(From, arity=-2), "T FROM")


def test_more_words_than_have_a_place_are_a_wrong_arity(enter):
    entry = enter(MaybeAnother)
    assert parsed(entry, "T a b") == (b"a", b"b")
    with pytest.raises(TooManyWords, match="3 words at most"):
        parsed(entry, "T a b c")


@pytest.mark.parametrize("cls", [Options, Rest, From])
def test_a_command_has_an_end_however_many_words_its_grammar_allows(enter, cls):
    entry = enter(cls)
    with pytest.raises(TooManyWords) as caught:
        entry.parse([b"T"] * (WORDS_MAX + 1))
    assert caught.value.line == b"ERR wrong number of arguments for 't' command: %d words at most" % WORDS_MAX
    assert isinstance(caught.value, WrongArity)


def test_as_many_words_as_are_allowed_are_read(enter):
    assert parsed(enter(Rest), "T" + " a" * (WORDS_MAX - 1)) == ([b"a"] * (WORDS_MAX - 1),)
    assert parsed(enter(From), "T" + " N 3" * 100 + " FROM" + " q" * (WORDS_MAX - 202))[1] == 3


class Long:
    """Values without end."""

    ids: list[bytes] = rest("A.", whole("ids"), minimum=0, long=True)

    @classmethod
    def in_parts(cls, words):
        return ("in parts", words)


def test_a_rest_that_is_long_is_read_at_once_only_as_far_as_that_is_quick(enter):
    entry = enter(Long)
    assert parsed(entry, "T") == ([],)
    assert parsed(entry, "T" + " 5" * (LONG - 1)) == ([5] * (LONG - 1),)
    words = [b"T"] + [b"not read"] * LONG
    assert entry.parse(words) == ("in parts", words)
    assert entry.parse(words)[1] is words


def test_a_parser_compares_the_number_of_words_no_more_often_than_it_must(enter):
    """Parsers are on the way of each command."""
    for cls, comparisons in ((Nothing, 1), (OneValue, 1), (Options, 2), (Rest, 2), (Long, 1)):
        enter(cls)
        lines = linecache.getlines("<parser of T>")
        assert sum(line.startswith("    if n ") for line in lines) == comparisons, "".join(lines)


# Values in their places and options anywhere.


def test_options_stand_in_any_order_and_case_and_the_last_one_counts(enter):
    entry = enter(Options)
    assert parsed(entry, "T a") == (b"a", 5, 0, False)
    assert parsed(entry, "T a fast n 3 M 4") == (b"a", 3, 4, True)
    assert parsed(entry, "T a N 1 N 2 FAST FAST") == (b"a", 2, 0, True)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("T a WHAT", "unknown option 'WHAT'; expected N, M or FAST"),
        ("T a N", "N without its value: allowed are 1 to 9"),
        ("T a M 3 N", "N without its value: allowed are 1 to 9"),
        ("T a FAST x", "unknown option 'x'; expected N, M or FAST"),
        ("T a FASTER", "unknown option 'FASTER'; expected N, M or FAST"),
        ("T a N 3 3", "unknown option '3'; expected N, M or FAST"),
    ],
)
def test_a_word_that_is_no_option_or_lacks_its_value_is_a_syntax_error(enter, text, error):
    with pytest.raises(SyntaxFault) as caught:
        parsed(enter(Options), text)
    assert caught.value.text == f"syntax error - {error}"


def test_a_command_may_have_another_text_for_a_wrong_word(enter):
    with pytest.raises(SyntaxFault) as caught:
        parsed(enter(Scan, fault="invalid cursor"), "T 1 x")
    assert caught.value.text == "invalid cursor - unknown option 'x'; expected cursor, N or STATE"


def test_a_very_long_word_is_no_option(enter):
    with pytest.raises(SyntaxFault):
        enter(Options).parse([b"T", b"a", b"FAST" + b" " * 1_000_000])


def test_a_value_that_looks_like_an_option_is_a_value(enter):
    assert parsed(enter(Options), "T FAST") == (b"FAST", 5, 0, False)
    with pytest.raises(CommandError, match="N must be 1 to 9"):
        parsed(enter(Options), "T a N FAST")


class Late:
    """A value that is read after the options."""

    limit: int = positional("Limit.", integer(0, 9, "limit is bad", "0 to 9"))
    n: int = option("N", "N.", SMALL, 5)
    m: int = option("M", "M.", integer(0, 0, "M must be 0", "0"), 0)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("T x N 0 M 1", "N must be 1 to 9"),
        ("T x M 1 N 0", "M must be 0"),
        ("T x N 0 WHAT", "N must be 1 to 9"),
        ("T x WHAT N 0", "syntax error - unknown option 'WHAT'; expected N or M"),
        ("T x N 3", "limit is bad"),
    ],
)
def test_the_first_bad_option_from_the_left_is_reported_and_values_in_places_come_last(enter, text, error):
    with pytest.raises(CommandError) as caught:
        parsed(enter(Late), text)
    assert caught.value.text == error


# A cursor anywhere.


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("T", (0, 5, ())),
        ("T 7", (7, 5, ())),
        ("T N 3 7", (7, 3, ())),
        ("T 7 N 3", (7, 3, ())),
        ("T STATE up STATE down", (0, 5, (1, 2))),
        ("T STATE up 8 STATE up", (8, 5, (1, 1))),
    ],
)
def test_the_first_word_that_is_no_option_is_the_optional_value(enter, text, fields):
    assert parsed(enter(Scan), text) == fields


def test_a_second_word_that_is_no_option_is_a_syntax_error(enter):
    with pytest.raises(SyntaxFault):
        parsed(enter(Scan), "T 7 8")


def test_an_option_without_its_value_is_not_the_optional_value(enter):
    with pytest.raises(SyntaxFault, match="N without its value: allowed are 1 to 9"):
        parsed(enter(Scan), "T N")


def test_a_repeated_option_does_not_remember_the_call_before(enter):
    entry = enter(Scan)
    parsed(entry, "T STATE up")
    assert parsed(entry, "T STATE down") == (0, 5, (2,))


# Options of several values.


def test_an_option_of_two_values_reads_both(enter):
    entry = enter(Two)
    assert parsed(entry, "T AUTH me secret NAME x") == ((b"me", b"secret"), b"x")
    assert parsed(entry, "T AUTH NAME x") == ((b"NAME", b"x"), None)


@pytest.mark.parametrize("text", ["T AUTH", "T AUTH me", "T NAME x AUTH me"])
def test_an_option_of_two_values_needs_both(enter, text):
    with pytest.raises(SyntaxFault):
        parsed(enter(Two), text)


# The rest.


def test_the_rest_is_all_that_follows(enter):
    assert parsed(enter(Rest), "T a b c") == ([b"a", b"b", b"c"],)
    assert parsed(enter(RestOrNone), "T") == ([],)


def test_the_rest_after_a_word_may_look_like_options(enter):
    assert parsed(enter(From), "T N 2 QUICK from QUICK N FROM") == (True, 2, [b"QUICK", b"N", b"FROM"])


@pytest.mark.parametrize("text", ["T QUICK QUICK", "T QUICK FROM", "T N FROM q", "T a FROM q"])
def test_the_word_before_the_rest_must_be_there_and_something_after_it(enter, text):
    with pytest.raises(CommandError):
        parsed(enter(From), text)


class Among:
    """A rest with options among its values."""

    first: bytes = positional("First.")
    n: int = option("N", "N.", SMALL, 5)
    quick: bool = flag("QUICK", "Quick.")
    more: list[bytes] = rest("More.", minimum=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("T a b", (b"a", 5, False, [b"b"])),
        ("T a b c", (b"a", 5, False, [b"b", b"c"])),
        ("T a N 3 b QUICK c", (b"a", 3, True, [b"b", b"c"])),
        ("T a b n 3 quick", (b"a", 3, True, [b"b"])),
        ("T N N 3 b", (b"N", 3, False, [b"b"])),
        ("T quick b N", (b"quick", 5, False, [b"b", b"N"])),
    ],
)
def test_options_may_stand_among_the_values_of_a_rest_without_a_word(enter, text, expected):
    assert parsed(enter(Among), text) == expected


@pytest.mark.parametrize("text", ["T", "T a", "T a QUICK", "T a N 3", "T a N 3 QUICK"])
def test_options_do_not_count_as_values_of_a_rest(enter, text):
    with pytest.raises(WrongArity):
        parsed(enter(Among), text)


def read_by_hand(words):
    """What `Options` says of the words after the name, read without a generated parser."""
    n, m, fast = 5, 0, False
    left = list(words[1:])
    while left:
        word = left.pop(0)
        if word == b"FAST":
            fast = True
        elif word in (b"N", b"M") and left:
            value = left.pop(0)
            number = 0 if value == b"" else int(value) if value.isdigit() else None
            if word == b"N" and (number is None or not 1 <= number <= 9):
                raise CommandError("N must be 1 to 9")
            if number is None:
                raise CommandError("value is not an integer or out of range - M takes whole numbers of 64 bits")
            n, m = (number, m) if word == b"N" else (n, number)
        elif word in (b"N", b"M"):
            allowed = "1 to 9" if word == b"N" else "whole numbers of 64 bits"
            raise SyntaxFault(f"syntax error - {word.decode()} without its value: allowed are {allowed}")
        else:
            raise SyntaxFault(f"syntax error - unknown option {word.decode()!r}; expected N, M or FAST")
    return (words[0], n, m, fast)


def entry_outside_the_table(cls):
    """An entry for a test that makes many calls; it leaves no trace in the table."""
    command("T", group="server", flags=Flag.READ, reply=OK, cost="O(1)")(attrs.define(cls))
    entry = table.TABLE.pop(b"T")
    del table.MANUAL["T"], table.PLAIN[b"T"], table.PLAIN[b"t"]
    assert isinstance(entry, table.Command)
    return entry


OPTIONS = entry_outside_the_table(Options)


@given(st.lists(st.sampled_from([b"N", b"M", b"FAST", b"3", b"0", b"x", b""]), min_size=1, max_size=8))
def test_a_generated_parser_reads_what_the_grammar_says(words):
    def outcome(read):
        try:
            return read()
        except CommandError as error:
            return error.line

    expected = outcome(lambda: read_by_hand(words))
    assert outcome(lambda: attrs.astuple(OPTIONS.parse([b"T", *words]), recurse=False)) == expected


# The table.


def test_a_command_is_found_in_any_case(enter):
    entry = enter(OneValue, "HEAVY")
    assert table.find([b"heavy"]) is table.find([b"HeAvY"]) is entry


def test_an_unknown_command_is_named_as_it_was_sent_and_not_at_length(enter):
    with pytest.raises(UnknownCommand) as caught:
        table.find([b"nOpe" * 100])
    assert caught.value.line == b"ERR unknown command '" + b"nOpe" * 32 + b"'"


def test_a_name_that_is_no_text_is_echoed_byte_by_byte(enter):
    with pytest.raises(UnknownCommand) as caught:
        table.find([b"\xff\x00"])
    assert caught.value.line == b"ERR unknown command '\xff\x00'"


def test_plain_commands_are_looked_up_without_changing_their_case(enter):
    entry = enter(OneValue)
    assert sorted(table.PLAIN) == [b"T", b"t"]
    assert table.PLAIN[b"T"] is table.PLAIN[b"t"] is entry


def test_a_command_with_subcommands_is_not_plain(enter):
    container("T", group="server", flags=Flag.READ, summary="", misuse=misuse)
    enter(OneValue, "T SUB")
    assert table.PLAIN == {}


def misuse(word, known):
    return f"{word}: {'words' if known else 'unknown'}"


def test_a_container_answers_its_own_errors(enter):
    container("T", group="server", flags=Flag.READ, summary="", misuse=misuse)
    entry = enter(Options, "T SUB")
    assert table.find([b"t", b"sub", b"x"]) is entry
    assert attrs.astuple(table.parse(entry, [b"t", b"sub", b"x", b"FAST"]))[0] == b"x"
    with pytest.raises(CommandError, match="nope: unknown"):
        table.find([b"T", b"nope"])
    with pytest.raises(CommandError, match="sub: words"):
        table.parse(entry, [b"T", b"sub"])
    with pytest.raises(CommandError, match="unknown option 'WHAT'; expected N, M or FAST"):
        table.parse(entry, [b"T", b"sub", b"x", b"WHAT"])
    with pytest.raises(CommandError, match="N must be 1 to 9"):
        table.parse(entry, [b"T", b"sub", b"x", b"N", b"0"])


def test_a_container_without_a_subcommand_is_a_wrong_arity_unless_it_means_something_alone(enter):
    container("T", group="server", flags=Flag.READ, summary="", misuse=misuse)
    with pytest.raises(WrongArity):
        table.find([b"T"])
    entry = enter(Nothing)
    assert table.find([b"T"]) is entry
    assert table.parse(entry, [b"T"]) is not None


def test_summary_and_manual_are_read_off_the_docstring(enter):
    class Documented:
        """First line.

        Second paragraph,
          indented further.
        """

    entry = enter(Documented)
    assert (entry.summary, entry.manual) == ("First line.", "Second paragraph,\n  indented further.")


def test_declared_errors_are_kept_as_the_lines_that_a_client_reads(enter):
    entry = enter(Nothing, errors=(NotReplicated, "no such thing"))
    assert entry.errors == (
        "NOREPL Not enough reachable nodes for the requested replication level",
        "ERR no such thing",
    )


def test_every_command_comes_by_name_with_its_subcommands(enter):
    enter(Nothing, "Z")
    container("B", group="server", flags=Flag.READ, summary="", misuse=misuse)
    enter(Nothing, "B TWO")
    enter(Nothing, "B ONE")
    enter(Nothing, "B")
    assert [entry.name for entry in table.every_command()] == ["B", "B ONE", "B TWO", "Z"]


def test_a_fault_in_a_parser_shows_the_line_of_its_source(enter):
    enter(Options)
    assert any("word == b'FAST'" in line for line in linecache.getlines("<parser of T>"))


# The commands that there are.


def test_a_command_is_named_by_its_first_two_words_if_it_is_called_so():
    assert [table.name_of(line.encode().split()) for line in ("CONFIG GET port", "QLEN q", "QLEN", "NOPE GET")] == [
        "CONFIG GET", "QLEN", "QLEN", "NOPE",
    ]  # fmt: skip


#: Commands that a node answers while it reads its journal: they look at no job and no queue.
LOADING = (
    "ACL_CAT ACL_DELUSER ACL_DRYRUN ACL_GENPASS ACL_GETUSER ACL_HELP ACL_LIST ACL_LOAD ACL_LOG ACL_SAVE ACL_SETUSER "
    "ACL_USERS ACL_WHOAMI AUTH CLIENT_GETNAME CLIENT_ID CLIENT_INFO CLIENT_KILL CLIENT_LIST CLIENT_MAINT_NOTIFICATIONS "
    "CLIENT_PAUSE CLIENT_RECEIPTS CLIENT_REPLY CLIENT_SETINFO CLIENT_SETNAME CLIENT_UNBLOCK COMMAND COMMAND_COUNT "
    "COMMAND_DOCS COMMAND_INFO COMMAND_LIST HELLO INFO LATENCY_DOCTOR LATENCY_GRAPH LATENCY_HISTORY LATENCY_LATEST "
    "LATENCY_RESET PSUBSCRIBE PUNSUBSCRIBE QUIT RESET SELECT SHUTDOWN SUBSCRIBE UNSUBSCRIBE"
)
#: Commands that may make jobs or what is kept of them, and are refused when memory is full.
NEEDS_ROOM = (
    "ADDJOB ENQUEUE NACK QADD QGROUP_START QLPUSH QRPUSH REDRIVE RQ.PUSH RQ.PUSHX SCHEDULE_FIRE WORKER_START WQ.ENQUEUE"
)


def test_every_command_looks_or_changes_but_for_those_that_try_the_node():
    both = Flag.READ | Flag.WRITE
    assert {entry.name.partition(" ")[0] for entry in table.every_command() if not entry.flags & both} == {"DEBUG"}
    assert not [entry.name for entry in table.every_command() if entry.flags & both == both]


@pytest.mark.parametrize(("wanted", "commands"), [(Flag.LOADING, LOADING), (Flag.DENY_OOM, NEEDS_ROOM)])
def test_when_a_node_is_not_ready_or_full_these_commands_differ(wanted, commands):
    found = {entry.name.replace(" ", "_") for entry in table.every_command() if wanted in entry.flags}
    assert found == set(commands.split())


def test_each_command_is_found_by_its_own_name_and_its_class_is_that_of_its_module() -> None:
    assert all(entry.name.encode() == words for words, entry in table.TABLE.items())
    assert Hello(version=3).version == 3


# Options that are given once.


class Once:
    """A value that may be an option's, and an option that is given once."""

    a: list[bytes] = rest("A.", minimum=0)
    n: int = option("N", "N.", SMALL, 5, once=True)


def test_where_a_value_may_stand_the_word_of_an_option_without_its_value_is_that_value(enter):
    entry = enter(Once)
    assert parsed(entry, "T N") == ([b"N"], 5)
    assert parsed(entry, "T N 3 N") == ([b"N"], 3)
    with pytest.raises(CommandError, match="N is given twice; allowed is once"):
        parsed(entry, "T N 3 N 3")


def test_a_command_that_names_its_options_takes_each_once_but_for_those_that_repeat(enter):
    entry = enter(Scan, once=True)
    assert parsed(entry, "T STATE up STATE down") == (0, 5, (1, 2))
    with pytest.raises(CommandError, match="N is given twice; allowed is once"):
        parsed(entry, "T N 1 N 2")
    with pytest.raises(SyntaxFault, match="syntax error - unknown option 'FAST'; expected cursor, N or STATE"):
        parsed(entry, "T 1 FAST")
