"""Terms and fates as bytes."""

import pytest
from hypothesis import given

from disqued.core.model.fate import FAILURE_REASON_MAX, NO_FATE, PROGRESS_MAX, Failure, Fate, Word
from disqued.core.model.job import RETRY_NEVER_MS, STAMP_MAX
from disqued.core.model.terms import HEADERS_BYTES_MAX, HEADERS_MAX, NO_TERMS, Terms
from disqued.wire.fates import decode_fate, decode_terms, encode_fate, encode_terms
from disqued.wire.fields import BadRecord
from tests.fates import FATE, NODE_A, TERMS, fates, terms


@given(terms)
def test_terms_come_back_as_they_were(promised: Terms) -> None:
    assert decode_terms(encode_terms(promised)) == promised


@given(fates)
def test_a_fate_comes_back_as_it_was(fate: Fate) -> None:
    assert decode_fate(encode_fate(fate)) == fate


def test_none_is_no_bytes_and_one_object() -> None:
    assert encode_terms(Terms()) == encode_fate(Fate()) == b""
    assert decode_terms(b"") is NO_TERMS
    assert decode_fate(b"") is NO_FATE


@pytest.mark.parametrize(
    ("promised", "text"),
    [
        (Terms(backoff_ms=RETRY_NEVER_MS + 1), f"a span of {RETRY_NEVER_MS + 1} ms; allowed is up to {RETRY_NEVER_MS}"),
        (Terms(headers=tuple((b"%d" % n, b"") for n in range(HEADERS_MAX + 1))), "17 headers; allowed are 16"),
        (Terms(headers=((b"x", b"v" * HEADERS_BYTES_MAX),)), "headers of 8193 bytes; allowed are 8192"),
        (Terms(headers=((b"x", b""), (b"x", b""))), "header 'x' is given twice; allowed is once"),
        (Terms(headers=((b"\xff", b""),)), "header name '\\\\xff'; allowed are 1 to 255 bytes of printable ASCII"),
    ],
)
def test_terms_that_no_node_accepts_are_refused(promised: Terms, text: str) -> None:
    with pytest.raises(BadRecord, match=text):
        decode_terms(encode_terms(promised))


@pytest.mark.parametrize(
    ("fate", "text"),
    [
        (Fate(failures=(Failure(7, NODE_A, b"", b""), Failure(5, NODE_A, b"", b""))), "not in order, each once"),
        (Fate(failures=(Failure(7, NODE_A, b"", b""),) * 2), "not in order, each once"),
        (Fate(failures=tuple(Failure(n, NODE_A, b"", b"") for n in range(6))), "6 failures; allowed are 0 to 31 and 5"),
        (Fate(failures=(Failure(7, NODE_A, b"", b"r" * (FAILURE_REASON_MAX + 1)),)), "0 and 1025 bytes; allowed are"),
        (Fate(failures=(Failure(STAMP_MAX + 1, NODE_A, b"", b""),)), "a failure at 9214364837600034817"),
        (
            Fate(progress=Word(1, NODE_A, b"p" * (PROGRESS_MAX + 1))),
            "a value of 1025 bytes, set at 1; allowed are 1024",
        ),
        (Fate(result=Word(STAMP_MAX + 1, NODE_A, b"")), "a value of 0 bytes, set at 9214364837600034817"),
    ],
)
def test_a_fate_that_no_node_writes_is_refused(fate: Fate, text: str) -> None:
    with pytest.raises(BadRecord, match=text):
        decode_fate(encode_fate(fate))


def test_what_is_cut_off_or_goes_on_is_refused() -> None:
    promised, became = encode_terms(TERMS), encode_fate(FATE)
    assert decode_terms(promised) == TERMS
    assert decode_fate(became) == FATE
    for length in range(1, len(promised)):
        with pytest.raises(BadRecord):
            decode_terms(promised[:length])
    for length in range(1, len(became)):
        with pytest.raises(BadRecord):
            decode_fate(became[:length])
    for decode, data in ((decode_terms, promised + b"\1"), (decode_fate, became + b"\0")):
        with pytest.raises(BadRecord, match="add up to"):
            decode(data)


def test_a_group_is_behind_all_that_older_versions_know() -> None:
    plain = encode_terms(TERMS)
    grouped = encode_terms(TERMS._replace(group=b"acme"))
    assert grouped == plain + b"\x04acme"
    for data in (plain + b"\x05acme", plain + b"\x03acme"):
        with pytest.raises(BadRecord, match="add up to"):
            decode_terms(data)
    with pytest.raises(BadRecord, match="a group of 0 bytes"):
        decode_terms(plain + b"\0")


def test_what_says_nothing_is_no_bytes() -> None:
    with pytest.raises(BadRecord, match="terms that promise nothing"):
        decode_terms(bytes(35))
    with pytest.raises(BadRecord, match="a fate that says nothing"):
        decode_fate(bytes(10))
    with pytest.raises(BadRecord, match="bits 32 and 0 failures; allowed are 0 to 31 and 5"):
        decode_fate(bytes((0, 0, 0, 0, 32, 0, 0, 0, 0, 0)))
