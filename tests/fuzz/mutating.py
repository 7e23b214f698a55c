"""Inputs from inputs, without a view of what they cover: for where atheris is not, and the same in every process.

take one of the corpus, and one to six times:   flip, cut, repeat, insert a word of the target, join another one
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

LONGEST: Final = 4_096  #: bytes of an input

#: Words that a blind search would hardly find.
WORDS: Final[dict[str, tuple[bytes, ...]]] = {
    "resp": (
        *(b"*1\r\n", b"*2\r\n", b"$-1\r\n", b"$0\r\n\r\n", b"*-1\r\n", b"\r\n", b"PING\r\n", b"GETJOB FROM q\r\n"),
        *(b"ADDJOB q x 0\r\n", b"RETRY 1 ", b"TTL 1 ", b"DELAY 1 ", b"MULTI", b"CLIENT ", b"HELLO 3\r\n", b"COUNT 9"),
        *(b"-1", b"9223372036854775807", b"18446744073709551616", b"NOHANG ", b"TIMEOUT 1 ", b"\xff", b"QSCAN 0 "),
    ),
    "bus": (b"\0\0\0", b"\xff\xff\xff\xff", b"disqued\1", b"\1\0\x20", b"DI" + b"0" * 44 + b"SQ", b"ab" * 20),
    "journal": (b"\0\0\0\0", b"\xff" * 8, b"DI" + b"0" * 44 + b"SQ", b"*2\r\n$7\r\nLOADJOB\r\n$", b"\1\2", b"\2\1"),
    "http": (
        *(b"GET ", b"POST ", b"/api/", b" HTTP/1.1\r\n", b"Host: 127.0.0.1\r\n", b"Content-Length: 5\r\n", b"\r\n\r\n"),
        *(b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"%2e%2e/", b"?count=-1", b"Cookie: a=b\r\n"),
        *(b"Content-Type: application/json\r\n", b'{"queue": "q"}', b"null", b"[[[[", b"Authorization: Bearer x\r\n"),
    ),
}


WORDS["users"] = (
    *WORDS["resp"],
    *(b"DI" + b"0" * 44 + b"SQ", b"vault", b"mail:1", b"mail:*", b"vault:log", b"*", b"AUTH few x\r\n", b"ACL "),
    *(b"ACKJOB ", b"SHOW ", b"DELJOB ", b"QPEEK vault 1\r\n", b"GETJOB FROM mail:1 vault\r\n", b"PSUBSCRIBE "),
)
WORDS["tokens"] = (
    *WORDS["http"],
    *(
        b"Authorization: Bearer 0123456789abcdef\r\n",
        b"Cookie: disqued-session=",
        b"vault",
        b"mail:1",
        b"X-Disqued: 1\r\n",
    ),
    *(b"DI" + b"0" * 44 + b"SQ", b"/api/commands/", b"/api/queues/", b"/api/jobs/", b"POST /login HTTP/1.1\r\n"),
)


def mutants(name: str, corpus: Sequence[bytes], count: int, seed: int = 1) -> Iterator[bytes]:
    """Make so many inputs for a target."""
    rng = Random(f"{name} {seed}")
    for _ in range(count):
        data = bytearray(rng.choice(corpus))
        for _ in range(rng.randint(1, 6)):
            _change(data, rng, corpus, WORDS[name])
        yield bytes(data[:LONGEST])


def _change(data: bytearray, rng: Random, corpus: Sequence[bytes], words: Sequence[bytes]) -> None:
    at, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    match rng.randrange(6):
        case 0 if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 1:
            del data[at : min(end, at + rng.randint(1, 16))]
        case 2:
            data[at:at] = data[at : min(end, at + 64)]
        case 3:
            data[at:at] = rng.choice(words)
        case 4 if data:
            data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        case _:
            other = rng.choice(corpus)
            data[at:end] = other[rng.randint(0, len(other)) :]
