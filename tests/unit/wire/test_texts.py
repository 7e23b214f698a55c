"""Bytes as text: back again without loss, and in one line that does nothing to a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disqued.wire import texts


@pytest.mark.parametrize(
    ("value", "text"),
    [(b"mail", "mail"), (b"", ""), ("größe".encode(), "größe"), (b"a\xffb", "a\\xffb"), (b"a\\xff", "a\\\\xff")],
)
def test_bytes_are_text_where_they_can_be_and_escaped_where_not(value: bytes, text: str) -> None:
    assert texts.text(value) == text
    assert texts.raw(text) == value


@given(st.binary(max_size=20))
def test_every_name_comes_back_from_its_text(value: bytes) -> None:
    assert texts.raw(texts.text(value)) == value


@given(st.text(max_size=20))
def test_any_text_stands_for_some_bytes(value: str) -> None:
    assert isinstance(texts.raw(value), bytes)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain größe", "plain größe"),
        ("two\nlines", "two\\nlines"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\u202eb", "a\\u202eb"),
        ("tab\tand\rreturn", "tab\\tand\\rreturn"),
    ],
)
def test_what_a_terminal_would_obey_is_written_as_its_number(value: str, shown: str) -> None:
    assert texts.shown(value) == shown
    assert texts.shown(value).isprintable()
