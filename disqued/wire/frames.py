"""The bus on the wire: how a link between two nodes opens, and the frames that run on it.  Bytes in, bytes out.

A link opens with a proof, both ways, that the other side knows the secret of the cluster.  Nothing is believed before:

    who dials                                  who is dialed
      magic, version, nonce  ---------------->
                             <----------------  magic, version, nonce'
      greeting, proof        ---------------->  checked, or REFUSED with the reason
                             <----------------  greeting', proof'
      frame, frame, frame    ---------------->

A proof is the HMAC-SHA256 of the role, both nonces and every greeting said so far, under the secret; without a secret
it is that of the empty one.  So a proof of one link, role or direction is none for another.  After that bytes run one
way only: what the other node has to say, it says on a link of its own.

    handshake  magic 7, version 1; then parts: kind 1, length 2, content
    greeting   id 20, port 2, bus port 2, flags 1, meets 1, length of host 1, host
    frame      length 4, type 1, sender 20, sequence 8, body, MAC 16; little-endian, the length counts all of it
    BATCH      messages, each with its length (4)
    PIECE      size of the whole message 4, and the next bytes of it

A message that is larger than `PIECE_BYTES` travels in pieces, so that no frame takes long; whole messages may come
between the pieces of one.  The MAC is BLAKE2b under a key that the secret and both nonces give.  A frame that was
forged, repeated, moved or left out, or that is larger than allowed, ends the link: it is `BadFrame`, and nothing of it
is handed out.

Nothing here keeps time and nothing blocks; lengths are bytes, and each is checked before anything is kept for it.
"""

import hmac
import ipaddress
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from struct import Struct
from typing import Final, NoReturn, Protocol

from disqued.core.model.ids import NODE_ID_LENGTH
from disqued.core.model.messages import NODE_OWN, Greeting, Message
from disqued.wire import messages
from disqued.wire.pieces import IncomingText, Text, slices

MAGIC: Final = b"disqued"
VERSION: Final = 1
NONCE_BYTES: Final = 32
PIECE_BYTES: Final = 256 * 1024  #: of messages that one frame brings at most, its marks not counted
MESSAGES_PER_FRAME: Final = 1_000  #: some milliseconds' work
MESSAGE_MAX: Final = (1 << 32) - 1

_NONCE: Final = 1
_GREETING: Final = 2
_REFUSED: Final = 3
_PART = Struct("<BH")
_PART_MAX: Final = 512
_PROOF_BYTES: Final = 32
_HELLO = MAGIC + bytes([VERSION])
_OF_TLS: Final = (b"\x15", b"\x16")  #: what TLS begins with: an alert, a handshake

_WHO = Struct("<20sHHBBB")
_HOST_MAX: Final = 64

_BATCH: Final = 1
_PIECE: Final = 2
_HEAD = Struct("<IB20sQ")
_SIZE = Struct("<I")
_SIZE_BYTES: Final = 4
_MAC_BYTES: Final = 16
_HEAD_BYTES: Final[int] = _HEAD.size
_FRAME_MIN: Final[int] = _HEAD.size + _MAC_BYTES
_FRAME_MAX: Final[int] = _FRAME_MIN + PIECE_BYTES + _SIZE_BYTES * MESSAGES_PER_FRAME


class LinkRefused(Exception):
    """A link does not open; the text says why, and may be shown to the other side."""


class RefusedByPeer(LinkRefused):
    """The other side does not open the link, for the reason that it gives."""


class BadFrame(Exception):
    """A frame that ends the link."""

    def __init__(self, fault: str, problem: str) -> None:
        super().__init__(problem)
        self.fault = fault  #: forged, replayed, oversized or malformed: what it is counted as


class MessageCodec(Protocol):
    """How one message is written; `disqued.wire.messages` is one."""

    def encode(self, message: Message, now: int) -> Text:
        """Write a message; its deadlines become what is left of them at `now`."""

    def decode(self, text: Text) -> Message:
        """Read a message.  Raises `disqued.wire.messages.BadMessage`."""


class Writer(Protocol):
    """The sending end of a link that is open."""

    def batch(self, texts: Sequence[bytes]) -> bytes:
        """Write messages of `PIECE_BYTES` together at most, and of `MESSAGES_PER_FRAME`."""

    def piece(self, size: int, part: bytes | memoryview) -> bytes:
        """Write the next part, of `PIECE_BYTES` at most, of a message of this size."""


class Reader(Protocol):
    """The receiving end of a link that is open."""

    def feed(self, data: bytes) -> None:
        """Take bytes; who feeds without taking messages out keeps all of them in memory."""

    def next(self) -> Text | None:
        """Take out a message; None = it is not here yet.  Raises BadFrame."""


class Opening(Protocol):
    """One side of a link that is being opened."""

    greeting: Greeting | None  #: what the other side proved to be; None = it did not yet

    def start(self) -> bytes:
        """The bytes to begin with."""

    def feed(self, data: bytes) -> bytes:
        """Take bytes, and return those to answer with.  Raises Refused."""

    def refuse(self, reason: str) -> bytes:
        """What tells the other side that there will be no link, and why."""


class Dialing(Opening, Protocol):
    """The side that dials, and will write."""

    def writer(self) -> Writer:
        """What writes on the link, once there is a greeting."""


class Dialed(Opening, Protocol):
    """The side that is dialed, and will read."""

    def reader(self, largest: int) -> Reader:
        """What reads messages of this size at most, once there is a greeting; takes what came already."""


class Dialect(Protocol):
    """One language of links: its handshake, its frames, its messages."""

    codec: MessageCodec

    def dial(self, secret: bytes, greeting: Greeting, nonce: bytes) -> Dialing:
        """Open a link to another node."""

    def answer(self, secret: bytes, greeting: Greeting, nonce: bytes) -> Dialed:
        """Be the one who is dialed."""


class OwnCodec:
    """Our own codec, as an object; who is compiled and has to do with no other calls `messages` itself."""

    encode = staticmethod(messages.encode)
    decode = staticmethod(messages.decode)


class OwnDialect:
    """The language described here."""

    codec: MessageCodec = OwnCodec()

    def dial(self, secret: bytes, greeting: Greeting, nonce: bytes) -> "LinkOpener":
        return LinkOpener(secret, greeting, nonce)

    def answer(self, secret: bytes, greeting: Greeting, nonce: bytes) -> "LinkAcceptor":
        return LinkAcceptor(secret, greeting, nonce)


# --- Opening a link --------------------------------------------------------------------------------------------------


class _Side(ABC):
    """What both sides of a handshake do: collect parts, prove, check."""

    def __init__(self, secret: bytes, greeting: Greeting, nonce: bytes) -> None:
        """`nonce` is `NONCE_BYTES` that nobody can foresee and that are used for nothing else."""
        assert len(nonce) == NONCE_BYTES
        self.greeting: Greeting | None = None
        self._secret = secret
        self._own = encode_greeting(greeting)
        self._nonce = nonce
        self._other_nonce = b""
        self._data = bytearray()
        self._hello_seen = False
        self._has_spoken = False

    def start(self) -> bytes:
        self._has_spoken = True
        return _HELLO + _part(_NONCE, self._nonce)

    def refuse(self, reason: str) -> bytes:
        part = _part(_REFUSED, reason.encode("ascii", "replace")[:_PART_MAX])
        return part if self._has_spoken else _HELLO + part

    def feed(self, data: bytes) -> bytes:
        self._data += data
        answer = b""
        if not self._hello_seen and not self._take_hello():
            return answer
        while self.greeting is None and (part := self._take_part()) is not None:
            answer += self._on_part(*part)
        return answer

    def _take_hello(self) -> bool:
        """Check magic and version as far as they are here; say whether they are complete."""
        got = bytes(self._data[: len(_HELLO)])
        if got[:1] in _OF_TLS:
            raise LinkRefused("TLS is spoken there, and not here; tls-cluster has to be the same on every node")
        if not MAGIC.startswith(got[: len(MAGIC)]):
            raise LinkRefused("this is not a node of disqued: a link begins with another word")
        if len(got) < len(_HELLO):
            return False
        if got[-1] != VERSION:
            raise LinkRefused(f"version {got[-1]} of the bus is spoken there, and {VERSION} here")
        del self._data[: len(_HELLO)]
        self._hello_seen = True
        return True

    def _take_part(self) -> tuple[int, bytes] | None:
        """Take a part of the handshake out; its length is checked as soon as it is known."""
        if len(self._data) < _PART.size:
            return None
        kind, length = _PART.unpack_from(self._data)
        if length > _PART_MAX:
            raise LinkRefused(f"a part of {length} bytes in a handshake; {_PART_MAX} at most are allowed")
        end = _PART.size + length
        if len(self._data) < end:
            return None
        content = bytes(self._data[_PART.size : end])
        del self._data[:end]
        return kind, content

    def _on_part(self, kind: int, content: bytes) -> bytes:
        if kind == _REFUSED:
            raise RefusedByPeer(_readable(content))
        if kind == _NONCE and not self._other_nonce:
            if len(content) != NONCE_BYTES or content == self._nonce:
                raise LinkRefused("the nonce is not 32 bytes of its own")
            self._other_nonce = content
            return self._on_nonce()
        if kind == _GREETING and self._other_nonce and len(content) > _PROOF_BYTES:
            return self._on_greeting(content[:-_PROOF_BYTES], content[-_PROOF_BYTES:])
        raise LinkRefused(f"part {kind} does not belong at this place of a handshake")

    @abstractmethod
    def _on_nonce(self) -> bytes:
        """Answer the nonce of the other end."""

    @abstractmethod
    def _on_greeting(self, text: bytes, proof: bytes) -> bytes:
        """Answer what the other end says of itself, and proves."""

    def _prove(self, role: bytes, *said: bytes) -> bytes:
        """The proof of a role; every text is preceded by its length, so that no two lists of texts are the same."""
        digest = hmac.new(self._secret, b"disqued bus 1 " + role, "sha256")
        for text in said:
            digest.update(_SIZE.pack(len(text)) + text)
        return digest.digest()

    def _check(self, proof: bytes, expected: bytes) -> None:
        if not hmac.compare_digest(proof, expected):
            raise LinkRefused(
                "the secret of the cluster is another one; cluster-secret has to be the same on every node"
            )


class LinkOpener(_Side):
    """The side that dials: it proves itself first, and writes afterwards."""

    def _on_nonce(self) -> bytes:
        proof = self._prove(b"dials", self._nonce, self._other_nonce, self._own)
        return _part(_GREETING, self._own + proof)

    def _on_greeting(self, text: bytes, proof: bytes) -> bytes:
        self._check(proof, self._prove(b"is dialed", self._nonce, self._other_nonce, self._own, text))
        if self._data:
            raise LinkRefused("there is more than a greeting, on a link that only this side writes on")
        self.greeting = decode_greeting(text)
        return b""

    def writer(self) -> "FrameWriter":
        assert self.greeting is not None
        return FrameWriter(self._prove(b"frames", self._nonce, self._other_nonce), self._own[:20])


class LinkAcceptor(_Side):
    """The side that is dialed: it proves itself only to who has done so, and reads afterwards."""

    def start(self) -> bytes:
        """Nothing: it speaks when it is spoken to."""
        return b""

    def _on_nonce(self) -> bytes:
        return super().start()

    def _on_greeting(self, text: bytes, proof: bytes) -> bytes:
        self._check(proof, self._prove(b"dials", self._other_nonce, self._nonce, text))
        self._other = text[:20]
        self.greeting = decode_greeting(text)
        own_proof = self._prove(b"is dialed", self._other_nonce, self._nonce, text, self._own)
        return _part(_GREETING, self._own + own_proof)

    def reader(self, largest: int) -> "FrameReader":
        reader = FrameReader(self._prove(b"frames", self._other_nonce, self._nonce), self._other, largest)
        reader.feed(bytes(self._data))
        return reader


def _part(kind: int, content: bytes) -> bytes:
    return _PART.pack(kind, len(content)) + content


def _readable(text: bytes) -> str:
    """A text of someone who has proved nothing, fit for a log."""
    return "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in text)


def encode_greeting(greeting: Greeting) -> bytes:
    """Write a greeting down."""
    host = greeting.host.encode("ascii")
    who = _WHO.pack(
        bytes.fromhex(greeting.id.decode("ascii")), greeting.port, greeting.bus_port, greeting.flags & NODE_OWN,
        greeting.meets, len(host),
    )  # fmt: skip
    return who + host


def decode_greeting(text: bytes) -> Greeting:
    """Read a greeting.  Raises Refused."""
    if len(text) < _WHO.size:
        raise LinkRefused("the greeting is cut off")
    node_id, port, bus_port, flags, meets, length = _WHO.unpack_from(text)
    host = text[_WHO.size :]
    if len(host) != length or length > _HOST_MAX or not _is_host(host):
        raise LinkRefused("the greeting names no IPv4 or IPv6 address")
    if flags & ~NODE_OWN or meets > 1 or not bus_port:
        raise LinkRefused("the greeting holds something that version 1 does not know")
    return Greeting(node_id.hex().encode("ascii"), host.decode("ascii"), port, bus_port, flags, bool(meets))


def _is_host(host: bytes) -> bool:
    try:
        return not host or bool(ipaddress.ip_address(host.decode("ascii")))
    except ValueError:
        return False


# --- Frames ----------------------------------------------------------------------------------------------------------


def pieces(text: Text) -> Iterator[bytes | memoryview]:
    """Cut a message into parts for `FrameWriter.piece`."""
    return slices(text, PIECE_BYTES)


class FrameWriter:
    """Writes frames, one after the other."""

    def __init__(self, key: bytes, sender: bytes) -> None:
        """`key` is of this link alone; `sender` is the id of this node, 20 bytes."""
        assert len(sender) * 2 == NODE_ID_LENGTH
        self._blank = blake2b(key=key, digest_size=_MAC_BYTES)
        self._sender = sender
        self._sequence = 0

    def batch(self, texts: Sequence[bytes]) -> bytes:
        assert len(texts) <= MESSAGES_PER_FRAME
        # The texts of a frame are of a few lengths, and each is packed once.
        last, packed, length = -1, b"", 0
        body: list[bytes | memoryview] = []
        for text in texts:
            size = len(text)
            if size != last:
                last, packed = size, _SIZE.pack(size)
            length += size
            body.append(packed)
            body.append(text)
        return self._frame(_BATCH, length + _SIZE_BYTES * len(texts), body)

    def piece(self, size: int, part: bytes | memoryview) -> bytes:
        return self._frame(_PIECE, _SIZE_BYTES + len(part), [_SIZE.pack(size), part])

    def _frame(self, kind: int, size: int, body: list[bytes | memoryview]) -> bytes:
        """Put a frame together whose body has this size."""
        length = _FRAME_MIN + size
        assert length <= _FRAME_MAX
        body.insert(0, _HEAD.pack(length, kind, self._sender, self._sequence))
        frame = b"".join(body)
        self._sequence += 1
        mac = self._blank.copy()
        mac.update(frame)
        return frame + mac.digest()


def _length_of(data: bytes | bytearray) -> int:
    """The length of the frame that these bytes begin with."""
    length: int = _SIZE.unpack_from(data)[0]
    return length


class FrameReader:
    """Takes frames apart; every frame is proved before anything of it is handed out."""

    def __init__(self, key: bytes, sender: bytes, largest: int) -> None:
        """`largest`: bytes of one message; `sender` is the id of the other node, 20 bytes."""
        self._blank = blake2b(key=key, digest_size=_MAC_BYTES)
        self._sender = sender
        self._largest = min(largest, MESSAGE_MAX)
        self._sequence = 0
        self._data = bytearray()
        self._read = b""  #: that is not in there yet: nearly always it is a frame, and no more
        self._ready: list[Text] = []
        self._taken = 0  #: of these
        self._unfinished: IncomingText | None = None

    @property
    def buffered(self) -> int:
        """Bytes that are kept: of frames and of messages that are not complete."""
        return len(self._data) + len(self._read) + (self._unfinished.got if self._unfinished is not None else 0)

    def feed(self, data: bytes) -> None:
        if self._read:
            self._data += self._read
        self._read = data

    def next(self) -> Text | None:
        while self._taken == len(self._ready):
            if not self._take_frame():
                return None
        text = self._ready[self._taken]
        self._taken += 1
        return text

    def _take_frame(self) -> bool:
        """Take a frame apart, if it is complete."""
        data, read = self._data, self._read
        if read:
            self._read = b""
            if not data and len(read) >= _FRAME_MIN and _length_of(read) == len(read) <= _FRAME_MAX:
                self._open(read)
                return True
            data += read
        if len(data) < _SIZE.size:
            return False
        length = _length_of(data)
        if length > _FRAME_MAX:
            raise BadFrame("oversized", f"a frame of {length} bytes; at most {_FRAME_MAX} are allowed")
        if length < _FRAME_MIN:
            raise BadFrame("malformed", f"a frame of {length} bytes; at least {_FRAME_MIN} are needed")
        if len(data) < length:
            return False
        frame = bytes(memoryview(data)[:length])
        del data[:length]
        self._open(frame)
        return True

    def _open(self, frame: bytes) -> None:
        """Check a frame, and take what it brings."""
        mac = self._blank.copy()
        mac.update(memoryview(frame)[:-_MAC_BYTES])
        _, kind, sender, sequence = _HEAD.unpack_from(frame)
        if not hmac.compare_digest(mac.digest(), frame[-_MAC_BYTES:]) or sender != self._sender:
            raise BadFrame("forged", "a frame that the other node did not write so")
        if sequence != self._sequence:
            raise BadFrame("replayed", f"frame {sequence} where {self._sequence} was due")
        self._sequence += 1
        if kind == _BATCH:
            self._ready, self._taken = self._batch(frame), 0
        elif kind == _PIECE:
            self._take_piece(memoryview(frame)[_HEAD.size : -_MAC_BYTES])
        else:
            raise BadFrame("malformed", f"a frame of type {kind}; 1 and 2 are allowed")

    def _batch(self, frame: bytes) -> list[Text]:
        """The messages of a frame; none of them is handed out unless all are sound."""
        texts: list[Text] = []
        at, end, largest = _HEAD_BYTES, len(frame) - _MAC_BYTES, self._largest
        while at < end:
            start = at + _SIZE_BYTES
            if start > end:
                raise BadFrame("malformed", "a frame that ends within a length")
            size = frame[at] | frame[at + 1] << 8 | frame[at + 2] << 16 | frame[at + 3] << 24
            at = start + size
            if at > end:
                raise BadFrame("malformed", "a message that is longer than its frame")
            if size > largest:
                self._refuse_size(size)
            texts.append(frame[start:at])
        return texts

    def _take_piece(self, body: memoryview) -> None:
        if len(body) <= _SIZE.size:
            raise BadFrame("malformed", "an empty piece")
        (size,) = _SIZE.unpack_from(body)
        if self._unfinished is None:
            if size > self._largest:
                self._refuse_size(size)
            self._unfinished = IncomingText(size, messages.place_of_body)
        whole = self._unfinished
        if size != whole.size or whole.got + len(body) - _SIZE.size > size:
            raise BadFrame("malformed", "a piece that does not belong to the message begun")
        whole.add(body[_SIZE.size :])
        if whole.got == size:
            self._ready, self._taken = [whole.text()], 0
            self._unfinished = None

    def _refuse_size(self, size: int) -> NoReturn:
        raise BadFrame("oversized", f"a message of {size} bytes; at most {self._largest} are allowed")
