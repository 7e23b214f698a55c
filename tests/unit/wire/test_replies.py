"""What clients get: the exact bytes of each kind of reply, in RESP2 and RESP3."""

import enum
from typing import Any

import pytest

from disqued.wire.brief import encode_error, encode_fetched2, encode_integer, encode_jobs, encode_status
from disqued.wire.pieces import whole
from disqued.wire.replies import Error, Status, Verbatim, encode


class Level(enum.IntEnum):
    HIGH = 7


@pytest.mark.parametrize(
    ("value", "resp2", "resp3"),
    [
        (Status(b"OK"), b"+OK\r\n", b"+OK\r\n"),
        (Error(b"ERR syntax error"), b"-ERR syntax error\r\n", b"-ERR syntax error\r\n"),
        (0, b":0\r\n", b":0\r\n"),
        (1023, b":1023\r\n", b":1023\r\n"),
        (1024, b":1024\r\n", b":1024\r\n"),
        (-1, b":-1\r\n", b":-1\r\n"),
        (2**63 - 1, b":9223372036854775807\r\n", b":9223372036854775807\r\n"),
        (2**63, b"$19\r\n9223372036854775808\r\n", b"(9223372036854775808\r\n"),
        (Level.HIGH, b":7\r\n", b":7\r\n"),
        (b"a\r\nb", b"$4\r\na\r\nb\r\n", b"$4\r\na\r\nb\r\n"),
        (b"", b"$0\r\n\r\n", b"$0\r\n\r\n"),
        ("é", b"$2\r\n\xc3\xa9\r\n", b"$2\r\n\xc3\xa9\r\n"),
        (Verbatim(b"text"), b"$4\r\ntext\r\n", b"=8\r\ntxt:text\r\n"),
        (Verbatim(b"# t", b"mkd"), b"$3\r\n# t\r\n", b"=7\r\nmkd:# t\r\n"),
        (None, b"$-1\r\n", b"_\r\n"),
        (True, b":1\r\n", b"#t\r\n"),
        (False, b":0\r\n", b"#f\r\n"),
        (1.5, b"$3\r\n1.5\r\n", b",1.5\r\n"),
        (2.0, b"$1\r\n2\r\n", b",2\r\n"),
        (float("-inf"), b"$4\r\n-inf\r\n", b",-inf\r\n"),
        ([], b"*0\r\n", b"*0\r\n"),
        ([1, (b"a", None)], b"*2\r\n:1\r\n*2\r\n$1\r\na\r\n$-1\r\n", b"*2\r\n:1\r\n*2\r\n$1\r\na\r\n_\r\n"),
        (
            {b"a": 1, "b": [True]},
            b"*4\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n*1\r\n:1\r\n",
            b"%2\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n*1\r\n#t\r\n",
        ),
    ],
)
def test_each_kind_of_value_has_its_spelling(value: Any, resp2: bytes, resp3: bytes) -> None:
    assert encode(value) == encode(value, 2) == resp2
    assert encode(value, 3) == resp3


def test_a_client_cannot_break_a_line_out_of_an_error_or_a_status() -> None:
    assert encode_error(b"ERR unknown command 'a\r\n+OK\n'") == b"-ERR unknown command 'a  +OK '\r\n"
    assert encode_status(b"a\r\nb") == b"+a  b\r\n"
    assert [encode_status(word) for word in (b"\rb", b"a\n")] == [b"+ b\r\n", b"+a \r\n"]
    assert encode([Status(b"\n"), Error(b"\r")]) == b"*2\r\n+ \r\n- \r\n"


@pytest.mark.parametrize("value", [object(), {1, 2}, bytearray(b"x"), [b"a", 1j]])
def test_a_value_without_a_spelling_is_named(value: Any) -> None:
    with pytest.raises(TypeError, match=r"a reply cannot hold a (object|set|bytearray|complex); it can hold Status, "):
        encode(value)


def test_a_verbatim_text_has_a_form_of_three_letters_that_clients_know() -> None:
    with pytest.raises(ValueError, match="form"):
        Verbatim(b"text", b"html")


@pytest.mark.parametrize("number", [-(2**63), -1, 0, 1, 1023, 1024, 2**63 - 1])
def test_integers_have_their_decimal_spelling(number: int) -> None:
    assert encode_integer(number) == b":%d\r\n" % number


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 4095, 4096, 100_000])
@pytest.mark.parametrize("count", [0, 1, 2, 70])
def test_jobs_are_spelt_like_any_array_of_their_words(size: int, count: int) -> None:
    jobs = [(b"queue", b"D" * 48, b"\r\n" * (size // 2) + b"x" * (size % 2)), (b"q" * size, b"D" * 40, b"")] * count
    for some in (jobs, jobs[:1], jobs[1:2]):
        assert whole(encode_jobs(some)) == whole(encode(some))


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 100_000])
def test_a_body_is_spelt_the_same_at_every_size_with_counters_too(size: int) -> None:
    body = b"x" * size
    row = (b"q", b"D" * 48, body, b"nacks", 0, b"additional-deliveries", 2)
    assert encode(body) == b"$%d\r\n" % size + body + b"\r\n"
    assert encode_fetched2([row]) == encode([row])
