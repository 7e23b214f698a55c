"""The lines of a head, one after the other, and what is told of one that never ends."""

import pytest
from twisted.web.http_headers import Headers

from disqued.web.http.head_lines import HEADER_BYTES, HEADERS_MAX, HeadLines
from disqued.web.http.problems import Problem


def test_an_empty_line_before_a_head_is_taken_and_one_behind_it_ends_it() -> None:
    lines = HeadLines()
    assert [lines.add(line) for line in (b"\r", b"GET /a HTTP/1.1\r", b"Host: b\r")] == [None] * 3
    assert len(lines) == 2
    head = lines.add(b"\r")
    assert head is not None
    assert (head.method, head.target, head.fields) == (b"GET", b"/a", [(b"Host", b"b")])
    assert len(lines) == 0


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ([b"\r", b"\r"], 400),
        ([b"GET / HTTP/1.1\r", *[b"X: y\r"] * (HEADERS_MAX + 1)], 431),
        ([b"GET / HTTP/1.1\r", *[b"X: %b\r" % (b"y" * 1_000)] * (HEADER_BYTES // 1_000 + 1)], 431),
    ],
)
def test_a_head_over_its_limits_is_refused(sent: list[bytes], status: int) -> None:
    lines = HeadLines()
    for line in sent[:-1]:
        lines.add(line)
    with pytest.raises(Problem) as refused:
        lines.add(sent[-1])
    assert refused.value.status == status


def test_what_has_come_of_a_head_says_who_asks() -> None:
    lines, headers = HeadLines(), Headers()
    assert lines.sketch(headers) == b""
    for line in (b"GET /a HTTP/1.1\r", b"Accept: text/html\r"):
        lines.add(line)
    assert lines.sketch(headers) == b"/a"
    assert headers.getRawHeaders(b"accept") == [b"text/html"]
