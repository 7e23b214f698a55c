"""Readers of arguments: what they accept, and the error for everything else."""

import json
from decimal import ROUND_HALF_UP, Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disqued.commands import values
from disqued.commands.table import MANUAL
from disqued.commands.values import JOB_ID
from disqued.core.model.spans import seconds_text
from disqued.errors import BadJobId, CommandError, NotAnInteger
from disqued.wire.pieces import whole
from disqued.wire.replies import encode
from tests.core_fixtures import UNKNOWN_ID, Server

SEED_ID = b"DI0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0SQ"
OLD_ID = b"D-130f254d-QsheHqzDg4yS0nDMzI3PD+Md-003d"


def line_of(read, text):
    with pytest.raises(CommandError) as caught:
        read(text)
    return caught.value.line


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"0", 0),
        (b"", 0),
        (b"7", 7),
        (b"+7", 7),
        (b"-7", -7),
        (b"007", 7),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", -(2**63)),
    ],
)
def test_an_integer_is_a_signed_decimal_of_64_bits(text, value):
    assert values.read_integer(text) == value


@pytest.mark.parametrize(
    "text",
    [b"x", b" 1", b"1 ", b"1.0", b"-", b"+", b"--1", b"+-1", b"1e3", b"0x10", b"1_000", b"9223372036854775808",
     b"-9223372036854775809", b"99999999999999999999", b"9" * 5_000, "\N{ARABIC-INDIC DIGIT ONE}".encode()],
)  # fmt: skip
def test_anything_else_is_not_an_integer(text):
    with pytest.raises(NotAnInteger):
        values.read_integer(text)


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_64_bit_integer_is_read_back(number):
    assert values.read_integer(b"%d" % number) == number


@given(st.binary(max_size=30))
def test_no_bytes_make_the_reader_of_integers_fail_otherwise(text):
    try:
        value = values.read_integer(text)
    except NotAnInteger:
        return
    assert -(2**63) <= value < 2**63


def test_a_bounded_integer_has_one_error_for_all_that_is_not_allowed():
    read = values.bounded(1, 5, "COUNT must be 1 to 5")
    assert [read(b"1"), read(b"5")] == [1, 5]
    assert {line_of(read, text) for text in (b"0", b"6", b"x")} == {b"ERR COUNT must be 1 to 5"}


def test_a_time_out_is_not_negative_and_0_is_for_ever():
    assert [values.read_timeout(text) for text in (b"0", b"00", b"250")] == [0, 0, 250]
    assert line_of(values.read_timeout, b"-1") == b"ERR timeout is negative"
    assert [values.read_timeout(text) for text in (b"0.0", b"0.2", b"2.5e2", b"9223372036854775807")] == [
        0, 1, 250, 2**63 - 1,
    ]  # fmt: skip
    for text in (b"soon", b"9223372036854775808", b"1e400"):
        assert line_of(values.read_timeout, text) == b"ERR " + values.TIMEOUT_MISFIT.encode()


def test_a_span_in_seconds_that_no_record_could_hold_is_refused_with_the_limit():
    read = values.seconds("TTL", "TTL must be a number > 0").read
    assert read is not None
    assert [read(b"2147483647"), read(b"2147483647.999")] == [2_147_483_647_000, 2_147_483_647_999]
    for text in (b"2147483648", b"2147483647.9995", b"3e9", b"1e400", b"9" * 4_096):
        assert line_of(read, text) == b"ERR TTL must be below 2147483648 seconds"
    for text in (b"0", b"", b"-0.001", b"-1e400", b"nan"):
        assert line_of(read, text) == b"ERR TTL must be a number > 0"


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        (b"", 0),
        (b"0", 0),
        (b"-0.0", 0),
        (b"0e999999", 0),
        (b"2", 2_000),
        (b"+0.5", 500),
        (b".5", 500),
        (b"5.", 5_000),
        (b"1e-3", 1),
        (b"1E+3", 1_000_000),
        (b"1e0003", 1_000_000),
        (b"4.998765432101234", 4_999),
        (b"0.0004999", 1),
        (b"1e-999999", 1),
        (b"-0.0001", -1),
        (b"0.0014", 1),
        (b"0.0015", 2),
        (b"0.0025", 3),
        (b"0.0014" + b"9" * 60, 1),
        (b"0" * 2_000 + b"7." + b"0" * 2_000, 7_000),
        (f"{5e-324:.1074f}".encode(), 1),
        (b"1234567890123456", 1_234_567_890_123_456_000),
        (b"9223372036854775.807", 2**63 - 1),
        (b"9223372036854775.808", 2**63),
        (b"9" * 4_096, 2**63),
        (b"1e400", 2**63),
        (b"-1e400", -(2**63) - 1),
        (b"-9223372036854775809", -(2**63) - 1),
    ],
)
def test_a_span_is_rounded_to_the_nearest_millisecond_and_never_to_0(text, ms):
    assert values.read_span(text, values.SECOND) == ms


@pytest.mark.parametrize(
    "text",
    [b"nan", b"inf", b"-Infinity", b"0x1p3", b"1_0", b" 1", b"1 ", b"1\n", b".", b"e3", b"1e", b"1e+", b"1.2.3", b"--1",
     b"1e1000000", b"9" * 4_097, b"1,5", b"soon", b"1\x00",
     "\N{ARABIC-INDIC DIGIT ONE}".encode()],
)  # fmt: skip
def test_what_is_no_decimal_is_no_span(text):
    with pytest.raises(ValueError):  # noqa: PT011 - the reader has no text of its own
        values.read_span(text, values.SECOND)


def exactly(text: str, unit: int) -> int:
    """Milliseconds of a decimal, by arithmetic without bounds."""
    with localcontext() as context:
        context.prec = 2_000
        ms = (Decimal(text) * unit).quantize(Decimal(1), ROUND_HALF_UP)
    return int(ms) or (Decimal(text) > 0) - (Decimal(text) < 0)


@given(st.floats(-9e14, 9e14), st.sampled_from([values.MILLISECOND, values.SECOND]))
def test_a_span_is_what_python_json_and_c_print(number, unit):
    for text in (repr(number), json.dumps(number), f"{number:g}", f"{number:e}", f"{number:f}", f"{number:.20G}"):
        check_span(text, unit)


def check_span(text: str, unit: int) -> None:
    assert values.read_span(text.encode(), unit) == exactly(text, unit)


@given(st.from_regex(rb"[+-]?([0-9]{1,14}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,2})?", fullmatch=True))
def test_a_span_has_as_many_digits_as_it_has(text):
    wanted = exactly(text.decode(), values.SECOND)
    assert values.read_span(text, values.SECOND) == max(-(2**63) - 1, min(wanted, 2**63))


def test_a_command_with_plain_digits_is_read_without_decimals(monkeypatch):
    server = Server()

    def fail(_):
        raise AssertionError("a plain number took the long way")

    monkeypatch.setattr(values, "Decimal", fail)
    assert server("ADDJOB", "q", "x", 1_500, "TTL", 2**31 - 1, "RETRY", 300, "DELAY", 0, "KEEPDEAD", 60)
    assert server("GETJOB", "TIMEOUT", 2**40, "FROM", "q")
    with pytest.raises(AssertionError):
        server("ADDJOB", "q", "x", 0, "TTL", "1e3")


@pytest.mark.parametrize(
    ("ms", "told", "text"),
    [(0, 0, b"0"), (2_000, 2, b"2"), (500, 0.5, b"0.5"), (1, 0.001, b"0.001"), (1_250, 1.25, b"1.25"),
     (2_147_483_647_999, 2_147_483_647.999, b"2147483647.999")],
)  # fmt: skip
def test_a_span_is_told_as_an_integer_where_it_is_whole(ms, told, text):
    shown = values.in_seconds(ms)
    assert (shown, type(shown)) == (told, type(told))
    assert seconds_text(ms) == text
    assert whole(encode(shown, 3)) == (b":%b\r\n" if isinstance(told, int) else b",%b\r\n") % text


@pytest.mark.parametrize("text", [SEED_ID, OLD_ID])
def test_ids_of_the_seed_and_of_1_0_are_job_ids(text):
    assert values.read_job_id(text) is text


@pytest.mark.parametrize("text", [b"", b"foo", SEED_ID[:-1], b"XX" + SEED_ID[2:], SEED_ID[:-2] + b"XX", OLD_ID + b"0",
                                  b"X" + OLD_ID[1:], OLD_ID.replace(b"-", b"_")])  # fmt: skip
def test_other_bytes_are_no_job_id(text):
    with pytest.raises(BadJobId) as caught:
        values.read_job_id(text)
    assert caught.value.line == b"BADID Invalid Job ID format."


def test_a_choice_is_read_in_any_case_and_nothing_longer_is_taken_for_it():
    read = values.one_of({b"ID": 1, b"ALL": 2}, "Invalid REPLY type, try ID or ALL").read
    assert [read(text) for text in (b"id", b"All")] == [1, 2]
    for text in (b"", b"ALLL", b"ID" + b" " * 40):
        assert line_of(read, text) == b"ERR Invalid REPLY type, try ID or ALL"


def test_a_kind_names_the_errors_that_its_reader_raises():
    for kind, text in [
        (values.whole("n"), b"x"),
        (values.TIMEOUT, b"x"),
        (values.TIMEOUT, b"-1"),
        (values.JOB_ID, b"x"),
        (values.integer(1, 2, "one or two", "1 or 2"), b"3"),
        (values.seconds("TTL", "bad"), b"0"),
        (values.seconds("TTL", "bad"), b"%d" % 2**40),
        (values.span(values.SECOND, 1, 5_000, "bad", "above 0 to 5"), b"5.001"),
        (values.one_of({b"A": 1}, "only a"), b"x"),
    ]:
        assert kind.read is not None
        assert line_of(kind.read, text).decode() in kind.errors


def test_an_integer_with_limits_says_what_is_allowed_beside_its_error():
    kind = values.integer(1, 9, "count must be from 1 to 9", "1 to 9")
    assert kind.read(b"9") == 9
    assert line_of(kind.read, b"10") == b"ERR count must be from 1 to 9"
    assert kind.allowed == "1 to 9"
    assert kind.schema == {"type": "integer", "minimum": 1, "maximum": 9}


def options_beside_ids() -> list[tuple[str, str]]:
    """The commands whose options may stand among ids, with each option that has a value."""
    found = []
    for entry in MANUAL.values():
        tail = next((field.arg for field in entry.fields if field.arg.style == "rest"), None)
        if tail is not None and tail.keyword is None and tail.kind is JOB_ID:
            found += [
                (entry.name, arg.keyword.decode()) for field in entry.fields if (arg := field.arg).style == "option"
            ]
    return found


@pytest.mark.parametrize(("name", "word"), options_beside_ids())
@pytest.mark.parametrize("ids", [0, 1, 20])
def test_an_option_without_its_value_is_a_syntax_error(name: str, word: str, ids: int) -> None:
    queue = ["q"] if any(field.arg.style == "positional" for field in MANUAL[name].fields) else []
    server = Server()
    for spelled in (word, word.lower()):
        line = server.refusal(name, *queue, *[UNKNOWN_ID] * ids, spelled)
        assert line.startswith(f"ERR syntax error - {word} without its value: allowed are ")


def test_an_option_without_its_value_after_very_many_ids_is_a_syntax_error() -> None:
    line = Server().refusal("NACK", *[UNKNOWN_ID] * 600, "DELAY")
    assert line.startswith("ERR syntax error - DELAY without its value: allowed are ")


def test_there_are_commands_whose_options_stand_among_ids() -> None:
    assert {("ACKJOB", "RESULT"), ("NACK", "DELAY"), ("NACK", "REASON"), ("REDRIVE", "COUNT")} <= {
        *options_beside_ids()
    }
