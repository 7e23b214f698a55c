"""Links of the bus under every split of their bytes, and readers under bytes of any kind."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disqued.core.model.messages import Greeting
from disqued.wire.frames import (
    BadFrame,
    FrameReader,
    LinkAcceptor,
    LinkOpener,
    LinkRefused,
    decode_greeting,
    encode_greeting,
)

NODE_IDS = st.binary(min_size=20, max_size=20).map(lambda raw: raw.hex().encode())
HOSTS = st.one_of(st.just(""), st.ip_addresses().map(str))
PORTS = st.integers(1, 65535)
GREETINGS = st.builds(Greeting, NODE_IDS, HOSTS, st.integers(0, 65535), PORTS, st.integers(0, 1), st.booleans())
TEXTS = st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=5), max_size=6)


@st.composite
def splits(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Cut bytes at any places."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(GREETINGS, GREETINGS, st.binary(max_size=80), TEXTS, st.data())
def test_a_link_opens_and_carries_its_messages_however_the_stream_is_split(
    own: Greeting, other: Greeting, secret: bytes, batches: list[list[bytes]], data: st.DataObject
) -> None:
    opener = LinkOpener(secret, own, b"1" * 32)
    acceptor = LinkAcceptor(secret, other, b"2" * 32)
    to_acceptor, to_opener = opener.start(), b""
    while to_acceptor or to_opener:
        to_opener += b"".join(map(acceptor.feed, data.draw(splits(to_acceptor))))
        to_acceptor = b"".join(map(opener.feed, data.draw(splits(to_opener))))
        to_opener = b""
    assert (opener.greeting, acceptor.greeting) == (other, own)
    writer, reader = opener.writer(), acceptor.reader(1 << 20)
    stream = b"".join(map(writer.batch, batches))
    heard = []
    for part in data.draw(splits(stream)):
        reader.feed(part)
        while (text := reader.next()) is not None:
            heard.append(text)
    assert heard == [text for texts in batches for text in texts]
    assert reader.buffered == 0


@given(st.lists(st.binary(max_size=200), max_size=5), st.booleans())
def test_bytes_of_any_kind_open_no_link_and_raise_nothing_else(parts: list[bytes], sound_start: bool) -> None:
    own = Greeting(b"a1" * 20, "", 1, 2, 0, False)
    for side in (LinkOpener(b"s", own, b"1" * 32), LinkAcceptor(b"s", own, b"2" * 32)):
        with suppress(LinkRefused):
            if sound_start:
                side.feed(LinkOpener(b"s", own, b"3" * 32).start())
            for part in parts:
                side.feed(part)
        assert side.greeting is None


@given(st.lists(st.binary(max_size=400), max_size=6))
def test_a_reader_of_bytes_of_any_kind_hands_out_nothing_and_raises_nothing_else(parts: list[bytes]) -> None:
    reader = FrameReader(b"k" * 32, b"a" * 20, 1_000)
    with suppress(BadFrame):
        for part in parts:
            reader.feed(part)
            assert reader.next() is None


@given(GREETINGS)
def test_a_greeting_reads_as_it_was_written(greeting: Greeting) -> None:
    assert decode_greeting(encode_greeting(greeting)) == greeting


@given(st.binary(max_size=100))
def test_a_greeting_of_any_bytes_is_refused_or_reads_as_written(text: bytes) -> None:
    try:
        greeting = decode_greeting(text)
    except LinkRefused:
        return
    assert encode_greeting(greeting) == text


@pytest.mark.parametrize("where", [25, 65_536 + 100, 200_000, -20, -1])
def test_a_bit_changed_anywhere_in_a_large_frame_is_refused(where: int) -> None:
    own = Greeting(b"a1" * 20, "", 1, 2, 0, False)
    opener, acceptor = LinkOpener(b"secret", own, b"1" * 32), LinkAcceptor(b"secret", own, b"2" * 32)
    nonce = acceptor.feed(opener.start())
    opener.feed(acceptor.feed(opener.feed(nonce)))
    writer, reader = opener.writer(), acceptor.reader(1 << 20)
    stream = bytearray(writer.batch([bytes(range(256)) * 1_024]))
    stream[where] ^= 1
    reader.feed(bytes(stream))
    with pytest.raises(BadFrame):
        reader.next()
