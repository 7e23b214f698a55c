"""The codec under every input: shortcuts against the reference parser, replies against hiredis."""

import math
from itertools import pairwise
from typing import Any
from unittest import mock

import hiredis
from hypothesis import example, given, settings
from hypothesis import strategies as st

from disqued.wire.brief import encode_jobs
from disqued.wire.replies import Error, Status, Verbatim, encode
from disqued.wire.requests import RequestParser, parse_pipeline, parse_single

Outcome = tuple[list[list[bytes]], bytes | None, bool]

# --- Requests --------------------------------------------------------------------------


def pack(words: list[bytes]) -> bytes:
    """Spell a command the way clients do."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


WORDS = st.one_of(
    st.binary(max_size=8),
    st.sampled_from(
        [b"ADDJOB", b"queue", b"hello", b"0", b"\r\n", b"\r", b"*1\r\n", b"$1\r\n", b"*9999", b">1", b"x" * 300]
    ),
)
COMMANDS = st.lists(WORDS, min_size=1, max_size=6)
#: Pieces of the grammar in and out of place: what a confused or hostile client may send.
FRAGMENTS = st.one_of(
    COMMANDS.map(pack),
    st.sampled_from(
        b"*0\r\n|*-1\r\n|*-5\r\n|*04\r\n|*+1\r\n|*1\n|*1\r\n|*2\r\n|*999\r\n|*1000\r\n|* 1\r\n|$-1\r\n|$0\r\n\r\n"
        b"|$1\r\na\r\n|$1\r\naXX|$1\na\n|$+1\r\na\r\n|$01\r\na\r\n|$1\r\n\r\r\n|$2\r\na\r\r\n|+OK\r\n|+\r\n|-ERR\r\n|:0\r\n|:1\r\n|,1.5\r\n"
        b"|(12\r\n|#t\r\n|#f\r\n|_\r\n|=7\r\ntxt:abc\r\n|=7\r\n\r\nx:abc\r\n|~1\r\n|~9\r\n|>1\r\n|>9999\r\n|%1\r\n|%0\r\n"
        b'|!3\r\nERR\r\n|\r\n|\n|\r|PING\r\n|PING\n|SHOW "a b"\r\n|SHOW \'a\r\n|"" \'\'\n|POST / HTTP/1.1\r\n'
        b"|host: x\r\n|GET / HTTP/1.1\r\n|*|$|:|0|*1|*1\r|$5\r\nab".split(b"|")
    ),
    st.sampled_from([b"|1\r\n", b"|0\r\n"]),
    st.binary(max_size=4),
)
STREAMS = st.lists(FRAGMENTS, max_size=8).map(b"".join)


@st.composite
def damaged_streams(draw: st.DrawFn) -> bytes:
    """A good pipeline with a few bytes changed, removed or doubled."""
    data = bytearray(b"".join(map(pack, draw(st.lists(COMMANDS, min_size=1, max_size=5)))))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data) - 1))
        data[at : at + draw(st.integers(0, 2))] = draw(
            st.sampled_from([b"", b"\r", b"\n", b"*", b"$", b"0", b"9", b"+", b"-"])
        )
        if not data:
            break
    return bytes(data)


def reference(data: bytes) -> Outcome:
    """Parse with the plain parser alone, however the chunk looks."""
    parser = RequestParser()
    with (
        mock.patch("disqued.wire.requests.parse_single", return_value=None),
        mock.patch("disqued.wire.requests.parse_pipeline", return_value=None),
    ):
        return parser.feed(data), parser.error, parser.http_attempt


def in_pieces(data: bytes, cuts: list[int]) -> Outcome:
    """Parse with shortcuts, the input cut at these places."""
    parser = RequestParser()
    commands = []
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in pairwise(places):
        commands += parser.feed(data[start:end])
    return commands, parser.error, parser.http_attempt


CUTS = st.lists(st.integers(0, 10_000), max_size=6)


@settings(max_examples=600)
@given(st.one_of(STREAMS, damaged_streams()), CUTS)
@example(b"*1\r\n+OK\r\n*2\r\n", [])
@example(b"*2\r\n=7\r\n\r\nx:abc\r\n$1\r\naXX*1\r\n$1\r\na\r\n", [])
def test_shortcuts_and_splits_change_nothing(data: bytes, cuts: list[int]) -> None:
    expected = reference(data)
    assert in_pieces(data, []) == expected
    assert in_pieces(data, cuts) == expected


@settings(max_examples=60)
@given(st.one_of(STREAMS, damaged_streams()))
def test_one_cut_at_every_byte_and_all_cuts_together_change_nothing(data: bytes) -> None:
    expected = reference(data)
    for cut in range(len(data)):
        assert in_pieces(data, [cut]) == expected
    assert in_pieces(data, list(range(len(data)))) == expected


@settings(max_examples=600)
@given(st.one_of(STREAMS, damaged_streams()))
def test_what_a_shortcut_takes_the_reference_parser_takes_too(data: bytes) -> None:
    if data:
        pipeline = parse_pipeline(data)
        assert pipeline is None or (pipeline, None, False) == reference(data)
    single = parse_single(data)
    assert single is None or ([single], None, False) == reference(data)


@settings(max_examples=300)
@given(st.data())
def test_what_is_expected_again_is_read_as_the_first_time(data: st.DataObject) -> None:
    chunks = data.draw(st.lists(st.one_of(COMMANDS.map(pack), FRAGMENTS), min_size=1, max_size=3))
    one, other = RequestParser(), RequestParser()
    for chunk in data.draw(st.lists(st.sampled_from([*chunks, chunks[0] * 2]), max_size=12)):
        commands = one.feed(chunk)
        assert (commands, one.error) == (other.feed(chunk), other.error)
        if commands:
            one.expect_again(chunk, commands)


@given(st.lists(COMMANDS, max_size=10), CUTS)
def test_what_clients_pack_arrives(commands: list[list[bytes]], cuts: list[int]) -> None:
    data = b"".join(
        hiredis.pack_command(tuple(words))  # type: ignore[arg-type]  # its stub knows tuples of one only
        for words in commands
    )
    assert in_pieces(data, cuts) == (commands, None, False)


@given(st.lists(COMMANDS, min_size=1, max_size=8), CUTS)
def test_restricted_and_lifted_input_arrives_whole(commands: list[list[bytes]], cuts: list[int]) -> None:
    data = b"".join(map(pack, commands))
    parser = RequestParser()
    received: list[list[bytes]] = []
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    parser.restrict(args=3, bulk=100)
    for start, end in pairwise(places):
        received += parser.feed(data[start:end])
        if parser.error is not None:
            received += parser.lift()
    assert (received, parser.error) == (commands, None)


# --- Replies ---------------------------------------------------------------------------

INT64 = st.integers(-(2**63), 2**63 - 1)
LINES = st.binary(max_size=20)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    INT64,
    st.floats(),
    st.binary(max_size=40),
    st.text(max_size=20),
    LINES.map(Status),
    st.binary(max_size=20).map(Verbatim),
)
VALUES = st.recursive(
    LEAVES,
    lambda values: (
        st.lists(values, max_size=5)
        | st.lists(values, max_size=5).map(tuple)
        | st.dictionaries(st.binary(max_size=8), values, max_size=5)
    ),
    max_leaves=12,
)


def as_read(value: Any, protocol: int) -> Any:
    """Say what a client should read for a value."""
    match value:
        case Status():
            return bytes(value).replace(b"\r", b" ").replace(b"\n", b" ")
        case Verbatim():
            return value.text
        case bool():
            return value if protocol == 3 else int(value)
        case float():
            return value if protocol == 3 else repr(value).removesuffix(".0").encode()
        case str():
            return value.encode()
        case list() | tuple():
            return [as_read(element, protocol) for element in value]
        case dict() if protocol == 3:
            return {key: as_read(element, protocol) for key, element in value.items()}
        case dict():
            return [word for key, element in value.items() for word in (key, as_read(element, protocol))]
        case _:
            return value


def depth(value: Any) -> int:
    """Count the levels of a value; hiredis reads no more than nine."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return 1 + max(map(depth, inner), default=0)


def same(one: Any, other: Any) -> bool:
    """Compare what was read, types included, with NaN equal to itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


@settings(max_examples=300)
@given(VALUES.filter(lambda value: depth(value) < 8), st.sampled_from([2, 3]))
def test_clients_read_what_was_meant(value: Any, protocol: int) -> None:
    reader = hiredis.Reader(notEnoughData=reader_waits)
    reader.feed(encode(value, protocol) + encode(Status(b"next"), protocol))
    assert same(reader.gets(), as_read(value, protocol))
    assert reader.gets() == b"next"
    assert reader.gets() is reader_waits


reader_waits = object()


@given(LINES)
def test_an_error_is_always_one_line(text: bytes) -> None:
    spelt = encode(Error(b"ERR " + text))
    assert spelt.index(b"\n") == len(spelt) - 1
    assert spelt.index(b"\r") == len(spelt) - 2
    assert len(spelt) == len(text) + 7


@given(
    st.lists(st.tuples(st.binary(max_size=20), st.binary(min_size=40, max_size=48), st.binary(max_size=60)), max_size=5)
)
def test_jobs_are_spelt_like_any_array(jobs: list[tuple[bytes, bytes, bytes]]) -> None:
    assert encode_jobs(jobs) == encode(jobs) == encode(jobs, 3)
