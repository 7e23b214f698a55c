"""Answers in gzip: for which clients, which of them, and the compressor of a long one.

    Accept-Encoding: gzip, br;q=0.5    -->  Content-Encoding: gzip, for text, JSON and SVG of LEAST bytes or more
    Accept-Encoding: gzip;q=0, or none -->  as it is

A long answer is compressed a piece at a time, as it is sent, and a short one at once; files of the pages are kept
compressed.  Events (text/event-stream) are not: each is to leave at once.

BREACH: the length of a compressed answer says something of what is in it, and attackers who choose a part of the text
can guess the rest from many lengths.  Two things keep them from it.  No answer holds what opens a door: a session is a
cookie, forms have no token, since writes are checked by their origin (`origins`), and tokens and passwords are on no
page.  And a request that another site causes (Sec-Fetch-Site) is never answered in gzip, so that no site can have a
browser ask again and again with guesses of names and bodies of jobs.  Sizes are bytes.
"""

import re
import zlib
from typing import Any, Final

from disqued.web.turns import SharedTurns, next_turn

LEAST: Final = 1_024  #: what is shorter is sent as it is
LEVEL: Final = 1  #: for what is compressed while a client waits: a millisecond for 48 KiB, a fifth more than the best
KEPT_LEVEL: Final = 9  #: for what is compressed once
KEPT_PIECE: Final = 16 << 10  #: of that in a turn of the loop, some milliseconds' work
PACKER_BYTES: Final = 264 << 10  #: memory of a compressor
_GZIP: Final = 31  #: window bits of zlib for the largest window, with gzip's header and trailer
_WEIGHT: Final = re.compile(r"(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")


def takes_gzip(request: Any) -> bool:
    """Return whether the answer to a request may be in gzip: its client likes that, and no other site causes it."""
    headers = request.requestHeaders
    if any(site not in (b"same-origin", b"none") for site in headers.getRawHeaders(b"sec-fetch-site", [])):
        return False
    weights = _weights(b",".join(headers.getRawHeaders(b"accept-encoding", [])).decode("latin-1"))
    weight = weights.get("gzip", weights.get("*", 0.0))
    return weight > 0 and weight >= weights.get("identity", 0.0)


def _weights(accepted: str) -> dict[str, float]:
    """Return the weight of each coding of an Accept-Encoding; one that cannot be read is not accepted."""
    found: dict[str, float] = {}
    for element in accepted.lower().split(","):
        coding, *parameters = (part.strip() for part in element.split(";"))
        texts = [part.partition("=")[2].strip() for part in parameters if part.partition("=")[0].strip() == "q"]
        text = texts[0] if texts else "1"
        found[coding] = float(text) if _WEIGHT.fullmatch(text) else 0.0
    return found


class Packer:
    """Compresses an answer that is sent in pieces."""

    def __init__(self, level: int = LEVEL) -> None:
        self._zlib = zlib.compressobj(level, zlib.DEFLATED, _GZIP)
        self._is_over = False

    def add(self, piece: bytes) -> bytes:
        """Return a piece compressed, all of it: what is sent next never depends on how little that was."""
        return self._zlib.compress(piece) + self._zlib.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        """Return what ends the answer, and b"" from then on."""
        if self._is_over:
            return b""
        self._is_over = True
        return self._zlib.flush()


def packed(data: bytes) -> bytes:
    """Compress a short answer."""
    return zlib.compress(data, LEVEL, _GZIP)


async def packed_in_turns(data: bytes, turns: SharedTurns) -> bytes:
    """Compress as well as can be, some of the data in each turn of the loop."""
    packer = zlib.compressobj(KEPT_LEVEL, zlib.DEFLATED, _GZIP)
    pieces = []
    for at in range(0, len(data), KEPT_PIECE):
        await next_turn(turns)
        pieces.append(packer.compress(data[at : at + KEPT_PIECE]))
    return b"".join((*pieces, packer.flush()))
