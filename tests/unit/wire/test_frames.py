"""Links of the bus on the wire: who gets in, and what of a stream of frames is believed."""

import hmac
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from struct import pack

import pytest

from disqued.core.model.messages import FLUSH, NODE_LEAVING, Greeting
from disqued.wire.frames import (
    MESSAGES_PER_FRAME,
    PIECE_BYTES,
    BadFrame,
    FrameReader,
    FrameWriter,
    LinkAcceptor,
    LinkOpener,
    LinkRefused,
    OwnDialect,
    RefusedByPeer,
    encode_greeting,
    pieces,
)

ANNA, BERT = b"a1" * 20, b"b2" * 20
OF_ANNA = Greeting(ANNA, "", 7711, 17711, 0, True)
OF_BERT = Greeting(BERT, "2001:db8::7", 7712, 17712, NODE_LEAVING, False)
LARGEST = 3 * PIECE_BYTES


def sides(secret: bytes = b"s", other: bytes = b"s") -> tuple[LinkOpener, LinkAcceptor]:
    return LinkOpener(secret, OF_ANNA, b"1" * 32), LinkAcceptor(other, OF_BERT, b"2" * 32)


def shake_hands(secret: bytes = b"s") -> tuple[FrameWriter, FrameReader]:
    opener, acceptor = sides(secret, secret)
    nonce = acceptor.feed(opener.start())
    answer = acceptor.feed(opener.feed(nonce))
    assert opener.feed(answer) == b""
    return opener.writer(), acceptor.reader(LARGEST)


def drain(reader: FrameReader) -> list[bytes]:
    texts = []
    while (text := reader.next()) is not None:
        texts.append(text)
    return texts


@pytest.mark.parametrize("secret", [b"s", b"", b"x" * 200])
def test_both_sides_learn_who_the_other_is_and_messages_get_through(secret: bytes) -> None:
    opener, acceptor = sides(secret, secret)
    nonce = acceptor.feed(opener.start())
    proof = opener.feed(nonce)
    assert opener.greeting is acceptor.greeting is None
    answer = acceptor.feed(proof)
    opener.feed(answer)
    assert (acceptor.greeting, opener.greeting) == (OF_ANNA, OF_BERT)
    writer, reader = opener.writer(), acceptor.reader(LARGEST)
    reader.feed(writer.batch([b"one", b"", b"two"]) + writer.batch([b"three"]))
    assert drain(reader) == [b"one", b"", b"two", b"three"]


def keyed(secret: bytes, role: bytes, *said: bytes) -> bytes:
    """What version 1 of the bus proves a role with."""
    text = b"disqued bus 1 " + role + b"".join(pack("<I", len(part)) + part for part in said)
    return hmac.new(secret, text, "sha256").digest()


def test_the_handshake_is_that_of_version_1_byte_for_byte() -> None:
    opener, acceptor = sides(b"sesame", b"sesame")
    one, two = b"1" * 32, b"2" * 32
    anna = bytes.fromhex(ANNA.decode()) + pack("<HHBBB", 7711, 17711, 0, 1, 0)
    bert = bytes.fromhex(BERT.decode()) + pack("<HHBBB", 7712, 17712, NODE_LEAVING, 0, 11) + b"2001:db8::7"
    assert opener.start() == b"disqued\1" + pack("<BH", 1, 32) + one
    assert acceptor.feed(opener.start()) == b"disqued\1" + pack("<BH", 1, 32) + two
    proof = opener.feed(b"disqued\1" + pack("<BH", 1, 32) + two)
    dials = anna + keyed(b"sesame", b"dials", one, two, anna)
    assert proof == pack("<BH", 2, len(dials)) + dials
    dialed = bert + keyed(b"sesame", b"is dialed", one, two, anna, bert)
    assert acceptor.feed(proof) == pack("<BH", 2, len(dialed)) + dialed
    opener.feed(pack("<BH", 2, len(dialed)) + dialed)

    writer, key = opener.writer(), keyed(b"sesame", b"frames", one, two)
    for number, (kind, frame, body) in enumerate([
        (1, writer.batch([b"one", b"two!"]), pack("<I", 3) + b"one" + pack("<I", 4) + b"two!"),
        (2, writer.piece(9, b"part"), pack("<I", 9) + b"part"),
    ]):  # fmt: skip
        head = pack("<IB20sQ", 33 + len(body) + 16, kind, anna[:20], number)
        assert frame == head + body + blake2b(head + body, key=key, digest_size=16).digest()


@pytest.mark.parametrize("at", [0, 1 << 16, 200_000])
def test_a_frame_is_proved_over_all_its_bytes(at: int) -> None:
    writer, reader = shake_hands()
    frame = bytearray(writer.batch([b"x" * 250_000]))
    frame[100 + at] ^= 1
    reader.feed(bytes(frame))
    with pytest.raises(BadFrame, match="did not write so"):
        reader.next()


def test_what_a_reader_keeps_is_counted_until_it_is_handed_out() -> None:
    writer, reader = shake_hands()
    frame, first, rest = writer.batch([b"abc"]), writer.piece(10, b"12345"), writer.piece(10, b"67890")
    reader.feed(frame[:20])
    assert reader.buffered == 20
    assert reader.next() is None
    reader.feed(frame[20:30])
    assert reader.buffered == 30
    reader.feed(frame[30:] + first + rest[:7])
    assert drain(reader) == [b"abc"]
    assert reader.buffered == 5 + 7
    reader.feed(rest[7:])
    assert drain(reader) == [b"1234567890"]
    assert reader.buffered == 0


def test_frames_that_came_with_the_last_bytes_of_the_handshake_are_not_lost() -> None:
    opener, acceptor = sides()
    proof = opener.feed(acceptor.feed(opener.start()))
    writer = FrameWriter(opener._prove(b"frames", b"1" * 32, b"2" * 32), bytes.fromhex(ANNA.decode()))
    acceptor.feed(proof + writer.batch([b"early"]))
    assert drain(acceptor.reader(LARGEST)) == [b"early"]


@pytest.mark.parametrize(("secret", "other"), [(b"s", b"t"), (b"s", b""), (b"", b"s")])
def test_who_does_not_know_the_secret_is_refused_before_the_greeting_is_believed(secret: bytes, other: bytes) -> None:
    opener, acceptor = sides(secret, other)
    proof = opener.feed(acceptor.feed(opener.start()))
    with pytest.raises(LinkRefused, match="cluster-secret has to be the same"):
        acceptor.feed(proof)
    assert acceptor.greeting is None


def test_who_is_dialed_proves_nothing_to_a_stranger() -> None:
    _, acceptor = sides()
    stranger = LinkOpener(b"", OF_ANNA, b"3" * 32)
    said = acceptor.feed(stranger.start())
    assert len(said) == 8 + 3 + 32  # its nonce, and neither greeting nor proof


def test_somebody_who_answers_without_the_secret_is_refused_by_who_dials() -> None:
    opener, acceptor = sides(b"s", b"wrong")
    answer = acceptor.feed(opener.start())
    opener.feed(answer)
    impostor = LinkAcceptor(b"wrong", OF_BERT, b"2" * 32)
    writer = LinkOpener(b"wrong", OF_ANNA, b"1" * 32)
    forged = impostor.feed(writer.start() + writer.feed(answer))
    with pytest.raises(LinkRefused, match="secret"):
        opener.feed(forged.removeprefix(answer))
    assert opener.greeting is None


def test_a_proof_is_good_for_one_link_alone() -> None:
    opener, acceptor = sides()
    proof = opener.feed(acceptor.feed(opener.start()))
    again = LinkAcceptor(b"s", OF_BERT, b"4" * 32)
    again.feed(opener.start())
    with pytest.raises(LinkRefused, match="secret"):
        again.feed(proof)


def test_what_one_side_said_cannot_be_held_up_to_it_as_a_mirror() -> None:
    opener, _ = sides()
    with pytest.raises(LinkRefused, match="nonce"):
        opener.feed(opener.start())


def test_a_flipped_bit_anywhere_in_the_handshake_ends_it_or_leaves_it_unfinished() -> None:
    opener, acceptor = sides()
    hello = opener.start()
    nonce = acceptor.feed(hello)
    proof = opener.feed(nonce)
    for said in (hello, proof):
        for bit in range(8 * len(said)):
            flipped = bytearray(said)
            flipped[bit // 8] ^= 1 << bit % 8
            opener, acceptor = sides()
            with suppress(LinkRefused):
                acceptor.feed(bytes(flipped) if said is hello else hello)
                acceptor.feed(proof if said is hello else bytes(flipped))
            assert acceptor.greeting is None


def test_a_flipped_bit_anywhere_in_the_answer_opens_no_link() -> None:
    opener, acceptor = sides()
    nonce = acceptor.feed(opener.start())
    answer = nonce + acceptor.feed(opener.feed(nonce))
    for bit in range(8 * len(answer)):
        flipped = bytearray(answer)
        flipped[bit // 8] ^= 1 << bit % 8
        opener, _ = sides()
        with suppress(LinkRefused):
            opener.feed(bytes(flipped))
        assert opener.greeting is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", "not a node of disqued"),
        (b"RCmb\0\0\0\x90", "not a node of disqued"),
        (b"\x16\x03\x01", "TLS is spoken there, and not here"),
        (b"\x15", "TLS is spoken there, and not here"),
        (b"disqued\2", "version 2 of the bus is spoken there, and 1 here"),
        (b"disqued\1\1\xff\xff", "a part of 65535 bytes"),
        (b"disqued\1\1\3\0abc", "nonce"),
        (b"disqued\1\2\x30\0" + b"x" * 48, "does not belong"),
        (b"disqued\1\7\0\0", "part 7 does not belong"),
        (b"disqued\1" + (b"\1\x20\0" + b"n" * 32) * 2, "part 1 does not belong"),
    ],
)
def test_what_is_no_handshake_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(LinkRefused, match=reason):
        sides()[1].feed(data)


@pytest.mark.parametrize("side", [0, 1])
def test_the_reason_of_a_refusal_reaches_the_other_side_fit_for_a_log(side: int) -> None:
    opener, acceptor = sides()
    acceptor.feed(opener.start())
    told = sides()[side]
    if side:
        told.feed(opener.start())
        refusal = opener.refuse("no \x1b[31mway é" + "." * 1_000)
    else:
        refusal = sides()[1].refuse("no \x1b[31mway é" + "." * 1_000)
    with pytest.raises(RefusedByPeer, match=r"no \?\[31mway \?\.\.\."):
        told.feed(refusal)


def greeting_text(**changes: object) -> bytes:
    return encode_greeting(OF_BERT._replace(**changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"short", "cut off"),
        (greeting_text(host="")[:-1] + b"\1x", "no IPv4 or IPv6 address"),
        (greeting_text() + b"x", "no IPv4 or IPv6 address"),
        (greeting_text(bus_port=0), "version 1 does not know"),
        (greeting_text()[:24] + b"\xff" + greeting_text()[25:], "version 1 does not know"),
        (greeting_text()[:25] + b"\2" + greeting_text()[26:], "version 1 does not know"),
    ],
)
def test_a_greeting_that_makes_no_sense_is_refused_although_it_is_proved(text: bytes, reason: str) -> None:
    opener, acceptor = sides()
    opener._own = text
    proof = opener.feed(acceptor.feed(opener.start()))
    with pytest.raises(LinkRefused, match=reason):
        acceptor.feed(proof)


def test_who_dials_refuses_bytes_behind_the_greeting() -> None:
    opener, acceptor = sides()
    answer = acceptor.feed(opener.feed(acceptor.feed(opener.start())))
    with pytest.raises(LinkRefused, match="only this side writes"):
        opener.feed(answer + b"x")


# Frames.


def test_a_large_message_travels_in_pieces_and_others_may_come_between_them() -> None:
    writer, reader = shake_hands()
    text = bytes(range(256)) * (LARGEST // 256)
    for part in pieces(text):
        reader.feed(writer.piece(len(text), part))
        reader.feed(writer.batch([b"ping"]))
    assert drain(reader) == [b"ping", b"ping", text, b"ping"]
    assert reader.buffered == 0


def test_a_full_frame_is_within_the_limit_of_frames() -> None:
    writer, reader = shake_hands()
    texts = [b"x" * (PIECE_BYTES // MESSAGES_PER_FRAME)] * MESSAGES_PER_FRAME
    reader.feed(writer.batch(texts))
    reader.feed(writer.batch([b"y" * PIECE_BYTES]))
    reader.feed(writer.piece(PIECE_BYTES, b"z" * PIECE_BYTES))
    assert drain(reader) == [*texts, b"y" * PIECE_BYTES, b"z" * PIECE_BYTES]
    assert (MESSAGES_PER_FRAME, PIECE_BYTES) == (1_000, 1 << 18)  # in every release that speaks version 1


def test_the_largest_frame_may_come_in_parts_and_one_byte_more_may_not() -> None:
    writer, reader = shake_hands()
    # The piece fills a frame; a batch has its lengths besides.
    texts = [b"x" * (PIECE_BYTES // MESSAGES_PER_FRAME)] * (MESSAGES_PER_FRAME - 1)
    texts.append(b"y" * (PIECE_BYTES - sum(map(len, texts))))
    frame = writer.batch(texts)
    reader.feed(frame[:50])
    assert reader.next() is None
    reader.feed(frame[50:])
    assert drain(reader) == texts
    length = int.from_bytes(frame[:4], "little")
    assert refused(shake_hands()[1], (length + 1).to_bytes(4, "little") + frame[4:50]) == "oversized"


def refused(reader: FrameReader, data: bytes) -> str:
    reader.feed(data)
    with pytest.raises(BadFrame) as caught:
        drain(reader)
    return caught.value.fault


def test_a_flipped_bit_anywhere_in_a_frame_ends_the_link_and_brings_nothing() -> None:
    writer, _ = shake_hands()
    frame = writer.batch([b"ACK", b"of a job"])
    for bit in range(32, 8 * len(frame)):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        assert refused(shake_hands()[1], bytes(flipped)) == "forged"


def test_a_flipped_bit_in_a_length_brings_nothing() -> None:
    writer, _ = shake_hands()
    frame = writer.batch([b"ACK", b"of a job"])
    for bit in range(32):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        _, reader = shake_hands()
        reader.feed(bytes(flipped))
        with suppress(BadFrame):
            assert drain(reader) == []


def test_a_frame_that_comes_again_ends_the_link() -> None:
    writer, reader = shake_hands()
    frame = writer.batch([b"once"])
    reader.feed(frame)
    assert drain(reader) == [b"once"]
    assert refused(reader, frame) == "replayed"


def test_frames_that_change_places_end_the_link() -> None:
    writer, reader = shake_hands()
    first, second = writer.batch([b"first"]), writer.batch([b"second"])
    assert refused(reader, second + first) == "replayed"


@pytest.mark.parametrize("left_out", [1, 2, 1_000])
def test_a_frame_that_is_left_out_ends_the_link_and_nothing_behind_it_is_handed_out(left_out: int) -> None:
    writer, reader = shake_hands()
    reader.feed(writer.batch([b"first"]))
    assert drain(reader) == [b"first"]
    for _ in range(left_out):
        writer.batch([b"lost"])
    assert refused(reader, writer.batch([b"behind"])) == "replayed"


def test_a_frame_of_another_link_is_none_of_this_one() -> None:
    opener = LinkOpener(b"s", OF_ANNA, b"5" * 32)
    acceptor = LinkAcceptor(b"s", OF_BERT, b"2" * 32)
    opener.feed(acceptor.feed(opener.feed(acceptor.feed(opener.start()))))
    assert refused(shake_hands()[1], opener.writer().batch([b"hello"])) == "forged"


def test_a_frame_in_the_name_of_another_node_is_forged() -> None:
    opener, acceptor = sides()
    acceptor.feed(opener.feed(acceptor.feed(opener.start())))
    writer = FrameWriter(opener._prove(b"frames", b"1" * 32, b"2" * 32), b"\xb2" * 20)
    assert refused(acceptor.reader(LARGEST), writer.batch([b"hello"])) == "forged"


@pytest.mark.parametrize(
    ("length", "fault"),
    [(0xFFFF_FFFF, "oversized"), (PIECE_BYTES + 8192, "oversized"), (48, "malformed"), (0, "malformed")],
)
def test_a_length_is_checked_before_anything_is_kept_for_it(length: int, fault: str) -> None:
    assert refused(shake_hands()[1], pack("<I", length)) == fault


def _one_too_large(writer: FrameWriter) -> bytes:
    return writer.piece(LARGEST + 1, b"begin")


def _too_many_bytes(writer: FrameWriter) -> bytes:
    return writer.piece(9, b"begin") + writer.piece(9, b"and end")


def _another_message(writer: FrameWriter) -> bytes:
    return writer.piece(9, b"begin") + writer.piece(8, b"x")


def _unknown_kind(writer: FrameWriter) -> bytes:
    return writer._frame(3, 0, [b""])


def _length_cut_off(writer: FrameWriter) -> bytes:
    return writer._frame(1, 2, [b"\1\0"])


def _longer_than_the_frame(writer: FrameWriter) -> bytes:
    return writer._frame(1, 5, [b"\2\0\0\0x"])


@pytest.mark.parametrize(
    ("write", "fault"),
    [
        (_one_too_large, "oversized"),
        (_too_many_bytes, "malformed"),
        (_another_message, "malformed"),
        (_unknown_kind, "malformed"),
        (_length_cut_off, "malformed"),
        (_longer_than_the_frame, "malformed"),
        (lambda writer: writer.piece(9, b""), "malformed"),
    ],
)
def test_a_node_that_writes_nonsense_is_not_followed(write: Callable[[FrameWriter], bytes], fault: str) -> None:
    writer, reader = shake_hands()
    assert refused(reader, write(writer)) == fault


@pytest.mark.parametrize("bit", range(2, 32))
def test_no_bit_of_a_length_in_a_frame_is_overlooked(bit: int) -> None:
    writer, reader = shake_hands()
    reader.feed(writer._frame(1, 7, [pack("<I", 3 | 1 << bit), b"abc"]))
    with pytest.raises(BadFrame, match="a message that is longer than its frame"):
        reader.next()


@pytest.mark.parametrize("bit", range(32))
def test_no_bit_of_the_size_of_a_message_in_pieces_is_overlooked(bit: int) -> None:
    writer, reader = shake_hands()
    reader.feed(writer.piece(1_000, b"x" * 500))
    assert reader.next() is None
    reader.feed(writer.piece(1_000 ^ 1 << bit, b"x" * 500))
    with pytest.raises(BadFrame, match="a piece that does not belong to the message begun"):
        reader.next()


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (_one_too_large, f"a message of {LARGEST + 1} bytes; at most {LARGEST} are allowed"),
        (_unknown_kind, "a frame of type 3; 1 and 2 are allowed"),
        (_length_cut_off, "a frame that ends within a length"),
        (lambda writer: writer.batch([b"lost"])[:0] + writer.batch([b"next"]), "frame 1 where 0 was due"),
        (lambda writer: bytes(80) + writer.batch([]), "a frame of 0 bytes; at least 49 are needed"),
        (lambda writer: b"\xff" * 4, "a frame of 4294967295 bytes; at most 266193 are allowed"),
    ],
)
def test_what_is_wrong_with_a_frame_is_said(write: Callable[[FrameWriter], bytes], text: str) -> None:
    writer, reader = shake_hands()
    reader.feed(write(writer))
    with pytest.raises(BadFrame) as caught:
        reader.next()
    assert str(caught.value) == text


def test_nothing_of_a_frame_is_handed_out_when_one_of_its_messages_is_not_sound() -> None:
    writer, reader = shake_hands()
    reader.feed(writer._frame(1, 5 + 4, [pack("<I", 1), b"a", pack("<I", 1)]))
    with pytest.raises(BadFrame):
        reader.next()
    assert reader.next() is None


@pytest.mark.parametrize("number", [0, 1, 255, 256, 2**16, 2**32, 2**40])
def test_a_frame_is_taken_once_whatever_its_number(number: int) -> None:
    writer, reader = shake_hands()
    writer._sequence = reader._sequence = number
    frame, following = writer.batch([b"once"]), writer.batch([b"and on"])
    reader.feed(frame)
    assert drain(reader) == [b"once"]
    reader.feed(following)
    assert drain(reader) == [b"and on"]
    for again in (frame, following):
        assert refused(reader, again) == "replayed"


def test_the_dialect_of_disqued_opens_a_link_and_has_its_messages() -> None:
    dialect = OwnDialect()
    dialing = dialect.dial(b"s", OF_ANNA, b"1" * 32)
    dialed = dialect.answer(b"s", OF_BERT, b"2" * 32)
    assert dialing.start() == sides()[0].start()
    nonce = dialed.feed(dialing.start())
    assert nonce == sides()[1].feed(dialing.start())
    dialing.feed(dialed.feed(dialing.feed(nonce)))
    assert (dialed.greeting, dialing.greeting) == (OF_ANNA, OF_BERT)
    reader = dialed.reader(LARGEST)
    reader.feed(dialing.writer().batch([dialect.codec.encode((FLUSH, b"queue", 0), 0)]))
    text = reader.next()
    assert text is not None
    assert dialect.codec.decode(text) == (FLUSH, b"queue", 0)


def test_a_message_beyond_the_limit_is_refused_in_a_batch_as_well() -> None:
    opener, acceptor = sides()
    opener.feed(acceptor.feed(opener.feed(acceptor.feed(opener.start()))))
    assert refused(acceptor.reader(10), opener.writer().batch([b"x" * 11])) == "oversized"


# The format, by hand: nodes of another version have to understand each other.


def proof(key: bytes, role: bytes, *texts: bytes) -> bytes:
    """An HMAC over the role and the texts, each behind its length."""
    return hmac.new(
        key, b"disqued bus 1 " + role + b"".join(len(text).to_bytes(4, "little") + text for text in texts), "sha256"
    ).digest()


def test_a_link_opens_and_frames_are_written_as_version_1_says() -> None:
    anna, bert = encode_greeting(OF_ANNA), encode_greeting(OF_BERT)
    opener, acceptor = LinkOpener(b"s", OF_ANNA, b"1" * 32), LinkAcceptor(b"s", OF_BERT, b"2" * 32)
    hello, answer = b"disqued\x01\x01\x20\x00" + b"1" * 32, b"disqued\x01\x01\x20\x00" + b"2" * 32
    assert opener.start() == hello
    assert acceptor.feed(hello) == answer
    greeting = opener.feed(answer)
    assert greeting[3:] == anna + proof(b"s", b"dials", b"1" * 32, b"2" * 32, anna)
    assert acceptor.feed(greeting)[3:] == bert + proof(b"s", b"is dialed", b"1" * 32, b"2" * 32, anna, bert)
    opener.feed(b"\x02" + (len(bert) + 32).to_bytes(2, "little") + bert + proof(
        b"s", b"is dialed", b"1" * 32, b"2" * 32, anna, bert
    ))  # fmt: skip
    writer = opener.writer()
    for sequence in range(2):
        head = (
            (4 + 1 + 20 + 8 + 4 + 3 + 16).to_bytes(4, "little") + b"\x01" + anna[:20] + sequence.to_bytes(8, "little")
        )
        frame = head + (3).to_bytes(4, "little") + b"one"
        mac = blake2b(frame, key=proof(b"s", b"frames", b"1" * 32, b"2" * 32), digest_size=16).digest()
        assert writer.batch([b"one"]) == frame + mac

    reader = acceptor.reader(10)
    reader.feed(opener.writer().batch([b"x" * 10]))
    assert drain(reader) == [b"x" * 10]
    reader = acceptor.reader(10)
    reader.feed(opener.writer().piece(10, b"x" * 10))
    assert drain(reader) == [b"x" * 10]
