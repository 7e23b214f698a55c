"""What is fuzzed: functions that take any bytes, and raise when something happens that must not.

    resp     requests, and the commands that they make        parser whole = parser byte by byte; no internal error
    bus      handshakes, frames, messages and what they do    refused in words, or done; no internal error
    journal  segments, records, jobs, journals of Disque      refused in words, or read
    http     requests to the admin side                       answers that are HTTP; no status of 500
    users    requests of strangers, and of users of few       nothing of others shown or changed: access.py
    tokens   the same, to the admin side                      nothing shown or changed, either

The first byte of an input says which part of the target takes the rest.
"""

import atexit
import contextlib
import functools
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import hiredis

from disqued.core.model.messages import Greeting
from disqued.persistence.aof.segments import SegmentReader, framed, header
from disqued.persistence.interface import StoreDamaged
from disqued.web.server import AdminServer
from disqued.wire.disque_aof import BadJournal, DisqueAof
from disqued.wire.fields import BadMessage, BadRecord
from disqued.wire.frames import BadFrame, FrameReader, FrameWriter, LinkAcceptor, LinkOpener, LinkRefused
from disqued.wire.jobdump import decode_copy, decode_record
from disqued.wire.messages import decode
from disqued.wire.requests import RequestParser
from tests.fuzz.access import tokens, users
from tests.fuzz.node import Fuzzed, fuzzed
from tests.fuzz.requests import ask

OTHER: Final = b"ab" * 20  #: another node
GREETING: Final = Greeting(OTHER, "127.0.0.1", 7712, 17712, 0, False)
KEY: Final = b"k" * 32
LARGEST: Final = 1 << 20
STEP: Final = 7  #: bytes at a time, where a stream is given in pieces


def _split(data: bytes) -> tuple[int, bytes]:
    return (data[0], data[1:]) if data else (0, b"")


# --- RESP ------------------------------------------------------------------------------------------------------------


def resp(data: bytes) -> None:
    """Requests, and what they do."""
    _parse_in_pieces(data)
    with fuzzed() as node:
        client, wire = node.client()
        other, _ = node.client()
        client.dataReceived(data)
        node.turn()
        # What waits is given a chance: a job for who is blocked, and time for what is due.
        other.dataReceived(b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$1\r\nx\r\n$1\r\n0\r\n")
        node.turn()
        node.reactor.advance(2)
        node.turn()
        node.check()
        reader = hiredis.Reader()
        reader.feed(bytes(wire.written))
        while reader.gets() is not False:
            pass


def _parse_in_pieces(data: bytes) -> None:
    whole, pieces = (RequestParser(max_bulk=1 << 16, max_buffer=1 << 17) for _ in range(2))
    at_once = whole.feed(data)
    found: list[list[bytes]] = []
    for at in range(0, len(data), STEP):
        if pieces.error is None:
            found += pieces.feed(data[at : at + STEP])
    assert (found, pieces.error) == (at_once, whole.error)


# --- The bus ---------------------------------------------------------------------------------------------------------


def bus(data: bytes) -> None:
    """Handshakes, frames, and messages."""
    part, rest = _split(data)
    (_handshake, _frames, _messages)[part % 3](rest)


def _handshake(data: bytes) -> None:
    for side in (LinkAcceptor(b"secret", GREETING, b"1" * 32), LinkOpener(b"secret", GREETING, b"2" * 32)):
        side.start()
        with suppress(LinkRefused):
            side.feed(data)


def _frames(data: bytes) -> None:
    reader = FrameReader(KEY, bytes.fromhex(OTHER.decode()), LARGEST)
    with suppress(BadFrame):
        for at in range(0, len(data), STEP):
            reader.feed(data[at : at + STEP])
            while reader.next() is not None:
                pass
    assert reader.buffered <= len(data)


def _messages(data: bytes) -> None:
    """Messages that the other node has written and proved: what they say is not to be trusted either."""
    texts = [data[at + 2 : at + 2 + _size(data, at)] for at in _places(data)]
    if not texts:
        return
    writer = FrameWriter(KEY, bytes.fromhex(OTHER.decode()))
    reader = FrameReader(KEY, bytes.fromhex(OTHER.decode()), LARGEST)
    reader.feed(writer.batch(texts))
    with fuzzed() as node:
        daemon = node.daemon
        daemon.node.begin()
        daemon.node.greeted(GREETING, "127.0.0.1", "127.0.0.1")
        daemon.turn.finish_step(None)
        with suppress(BadFrame, BadMessage):
            while (text := reader.next()) is not None:
                message = decode(text)
                daemon.node.begin()
                daemon.node.message(OTHER, message)
                daemon.turn.finish_step(None)
        node.turn()
        node.reactor.advance(2)
        node.turn()
        node.check()


def _size(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "big")


def _places(data: bytes) -> list[int]:
    """Where texts begin that have their size before them."""
    places, at = [], 0
    while at + 2 < len(data) and len(places) < 50:
        places.append(at)
        at += 2 + _size(data, at)
    return places


# --- The journal -----------------------------------------------------------------------------------------------------


def journal(data: bytes) -> None:
    """Segments, records, copies of jobs, and what Disque has written."""
    part, rest = _split(data)
    (_segment, _records, _record, _copy, _disque)[part % 5](rest)


def _read_segment(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "segment"
        path.write_bytes(data)
        with path.open("rb") as file, suppress(StoreDamaged):
            for _ in SegmentReader(path, file, 1, 1):
                pass


def _segment(data: bytes) -> None:
    _read_segment(data)


def _records(data: bytes) -> None:
    """Records that are whole by their checksums, whatever they hold."""
    texts = [data[at + 2 : at + 2 + _size(data, at)] for at in _places(data)]
    _read_segment(header(1) + b"".join(framed([text for text in texts if text], 1)))


def _record(data: bytes) -> None:
    with suppress(BadRecord):
        decode_record(data)


def _copy(data: bytes) -> None:
    with suppress(BadRecord):
        decode_copy(data)


def _disque(data: bytes) -> None:
    outcomes = []
    for pieces in ([data], [data[at : at + STEP] for at in range(0, len(data), STEP)]):
        reader = DisqueAof(pieces)
        where: tuple[int, ...] = ()
        records: list[object] = []
        try:
            records += reader
        except BadJournal as problem:
            where = (problem.offset, problem.number)
        outcomes.append((records, reader.size, reader.torn, where))
    assert outcomes[0] == outcomes[1], outcomes


# --- HTTP ------------------------------------------------------------------------------------------------------------


@functools.cache
def _admin() -> tuple[Fuzzed, AdminServer]:
    """One admin side for all inputs: to make it takes fifty times as long as to ask it something."""
    lasting = contextlib.ExitStack()
    atexit.register(lasting.close)
    node = lasting.enter_context(fuzzed())
    return node, AdminServer(node.daemon)


def http(data: bytes) -> None:
    """Requests to the admin side."""
    node, server = _admin()
    ask(node, server, data)


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "resp": resp,
    "bus": bus,
    "journal": journal,
    "http": http,
    "users": users,
    "tokens": tokens,
}
