"""Shapes: each accepts what it says and nothing else, and spells it for both protocols."""

import pytest

from disqued.commands import shapes
from disqued.commands.shapes import JOBS, NO_REPLY, OK, SILENCE, array, bulk, either, integer, mapping, pairs, tuple_of
from disqued.wire.replies import Status

WORD, NUMBER = bulk("word"), integer("number")


@pytest.mark.parametrize(
    ("shape", "good", "bad"),
    [
        (shapes.status("text"), [Status(b"x"), b"x"], [1, None, "x"]),
        (NUMBER, [0, -5], [True, 1.0, b"1", None]),
        (WORD, [b"", b"x"], [Status(b"x"), "x", 1, None]),
        (OK, [Status(b"OK")], [b"OK", Status(b"KO"), None]),
        (array(WORD, "words"), [[], (b"a", b"b")], [[1], b"ab", None]),
        (tuple_of("pair", WORD, NUMBER), [[b"a", 1], (b"a", 1)], [[b"a"], [1, b"a"], [b"a", 1, 2], b"a1", None]),
        (pairs("facts", "a", "b"), [[b"a", 1, b"b", 2]], [[b"b", 1, b"a", 2], [b"a", 1], [b"a", 1, b"b"], {b"a": 1}]),
        (mapping("facts"), [{}, {b"a": 1}], [[], [b"a", 1], None]),
        (either(WORD, NUMBER), [b"a", 1], [None, [1]]),
        (shapes.null_or(WORD), [b"a", None], [1, NO_REPLY]),
        (shapes.null_array_or(array(WORD, "")), [[b"a"], None], [[1], b"a"]),
        (shapes.or_silence(OK), [Status(b"OK"), NO_REPLY], [b"OK", None]),
        (SILENCE, [NO_REPLY], [None, b"", Status(b"OK")]),
        (
            JOBS,
            [None, [], [(b"q", b"id", b"body")], [(b"q", b"id", b"body", b"nacks", 0, b"additional-deliveries", 1)]],
            [
                [(b"q", b"id")],
                [(b"q", b"id", 1)],
                [(b"q", b"id", b"body", b"nacks", b"0", b"additional-deliveries", 1)],
            ],
        ),
    ],
    ids=lambda value: value.text if isinstance(value, shapes.Shape) else "",
)
def test_a_shape_accepts_what_it_says_and_nothing_else(shape, good, bad):
    assert [value for value in good if not shape.matches(value)] == []
    assert [value for value in bad if shape.matches(value)] == []


@pytest.mark.parametrize(
    ("shape", "value", "resp2", "resp3"),
    [
        (shapes.null_or(WORD), None, b"$-1\r\n", b"_\r\n"),
        (shapes.null_array_or(array(WORD, "")), None, b"*-1\r\n", b"_\r\n"),
        (shapes.null_array_or(array(WORD, "")), [b"a"], b"*1\r\n$1\r\na\r\n", b"*1\r\n$1\r\na\r\n"),
        (JOBS, None, b"*-1\r\n", b"_\r\n"),
        (JOBS, [], b"*0\r\n", b"*0\r\n"),
        (mapping(""), {b"a": 1}, b"*2\r\n$1\r\na\r\n:1\r\n", b"%1\r\n$1\r\na\r\n:1\r\n"),
        (shapes.status(""), b"id", b"+id\r\n", b"+id\r\n"),
    ],
)
def test_nulls_and_maps_are_spelt_as_each_protocol_has_them(shape, value, resp2, resp3):
    assert (shape.encode2(value), shape.encode3(value)) == (resp2, resp3)


def test_rows_with_counters_are_spelt_whole():
    row = (b"q", b"id", b"body", b"nacks", 2, b"additional-deliveries", 1)
    assert JOBS.encode2([row]).startswith(b"*1\r\n*7\r\n$1\r\nq\r\n")
    assert JOBS.encode2([row]).endswith(b"$21\r\nadditional-deliveries\r\n:1\r\n")
