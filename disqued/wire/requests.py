r"""Requests: the bytes of one client become commands, each a list of byte strings.

The reference parser below, plain Python, defines the language.  It takes its
input in pieces of any size, remembers where it stopped, and looks at each byte
a bounded number of times.  Most chunks, however, hold whole commands in their
one canonical spelling, and for those it is slow: 3.3 us for an ADDJOB of four
words, where the shortcuts take 0.9 for one alone and 0.6 in a pipeline of sixteen
(CPython 3.11; hiredis by itself takes 0.35 and 0.2).  So a chunk that arrives
while nothing is buffered is first shown to them:

    chunk --> something unfinished, or limits lowered? --yes----------+
                | no                                                  |
                +- short: parse_single   ---not one plain command---+ |
                |                                                   | |
                +- else:  parse_pipeline <--------------------------+ |
                             |     |                                  |
                             |     +------None------------> reference parser
                             v                                        |
                         commands <-----------------------------------+

Who consumes says the same again and again: where the user of the parser expects that
(`RequestParser.expect_again`), the same chunk is not parsed a second time.

A shortcut answers only when it can prove that the reference parser would say
the same, and otherwise returns None and leaves no trace.  The proofs stand at
the functions.  hiredis, which reads pipelines, is a parser of replies: alone it
would allocate whatever an array header declares, and would take other types
for words.  Hence a guard before it and a proof after it.

Where the language is narrower than Disque's:

- Header lines end in CR LF.  A bare LF is answered at once as a bad length,
  where Disque would go on waiting for the CR.
- The two bytes after a bulk must be CR LF.  Disque skips whatever is there, so
  a declared length two too short cuts off the end of a body without a word.
- An inline line ends in LF or CR LF and no byte after it is touched (Disque
  loses one after a bare LF).
- A line is too long when it is longer than the limit, not when that many bytes
  happen to be buffered: the answer does not depend on how the bytes arrived.

Lengths and limits are in bytes.  Source: Disque 1.0-rc1, src/networking.c and
src/sds.c; limits before authentication and the guard against HTTP as in Redis 6.2.
"""

import re
from io import BytesIO
from itertools import chain
from typing import Any, Final

import hiredis

MAX_BULK: Final = 512 * 1024 * 1024
MAX_ARGS: Final = 1024 * 1024
MAX_LINE: Final = 64 * 1024
MAX_BUFFER: Final = 1024 * 1024 * 1024

#: Lengths up to this are read by table, and proved by table in parse_single.
SMALL_LENGTH: Final = 4096
#: Sizes of a command up to which the shortcuts win, alone and in a pipeline.  Both search
#: for CR LF at a nanosecond a byte, where the reference parser jumps over the words.
SINGLE_SIZE: Final = 512
PIPELINE_SIZE: Final = 1024
#: Size of a chunk that is remembered, at most: a pipeline of sixteen that ask for jobs of some queues.
REPEATED_SIZE: Final = 2048
#: Words of a command that is remembered, at most: a word takes some 50 bytes beside its own.
REPEATED_WORDS: Final = 16
#: How many words parse_single takes; a body full of CR LF is not cut finer than this.
SINGLE_WORDS: Final = 32
#: The most words that a pipelined command may have to pass the guard of parse_pipeline.
PIPELINE_WORDS: Final = 999

#: Bytes that a word takes besides its text: its object and its place in a list.
WORD_COST: Final = 56
#: The same for a command, that is, a list of words.
COMMAND_COST: Final = 96
#: Words of an unfinished command from which on each of its chunks may take a millisecond.
MANY_WORDS: Final = 512

_CRLF: Final = b"\r\n"
_STAR: Final = ord("*")
_DOLLAR: Final = ord("$")
_CR: Final = ord("\r")

_BAD_ARRAY: Final = b"ERR Protocol error: invalid multibulk length"
_BAD_BULK: Final = b"ERR Protocol error: invalid bulk length"
_TOO_LARGE: Final = b"ERR Protocol error: request larger than %d bytes"
_NO_CRLF: Final = b"ERR Protocol error: expected CRLF after bulk"

_DECIMAL_DIGITS: Final = 20  # of a signed 64-bit number, its sign included
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1


class ProtocolError(Exception):
    """The client broke the protocol; `text` is the error line it gets, b"" for none."""

    def __init__(self, text: bytes) -> None:
        """Keep the text of the error line, without the leading `-`."""
        super().__init__(text.decode("latin-1"))
        self.text = text


class RestrictionError(ProtocolError):
    """The client sent more than it may before authentication; `at` is where in the chunk."""

    def __init__(self, text: bytes, at: int) -> None:
        """Keep the place of the line that the parser would have to read again."""
        super().__init__(text)
        self.at = at
        #: What has to be read again, where that is not the chunk from `at` on.
        self.rest: bytes | None = None


class HttpAttemptError(ProtocolError):
    """The client speaks HTTP: perhaps a browser that was led here, so nothing is answered."""


# --- Shortcuts -------------------------------------------------------------------------

#: Bulk headers by length: _BULK_HEADERS[5] == b"$5".
_BULK_HEADERS: Final = [b"$%d" % length for length in range(SMALL_LENGTH)]
#: Array headers by the number of pieces that a command is cut into at CR LF: the array
#: header, two for each word, the empty rest.  No command gives fewer than four.
_ARRAY_HEADERS: Final = [
    b"*%d" % (pieces // 2 - 1) if pieces >= 4 and pieces % 2 == 0 else None for pieces in range(2 * SINGLE_WORDS + 3)
]


def parse_single(data: bytes) -> list[bytes] | None:
    """Parse one short command that is the whole of `data`.

    Cut at each CR LF, a command without CR LF in its words is: the array header,
    then by turns a bulk header and a word, then nothing.  When every header is the
    one that its word must have, joining the pieces again gives `data`: it is the
    canonical spelling of these words, and has no other reading.
    """
    pieces = data.split(_CRLF, 2 * SINGLE_WORDS + 1)
    if pieces[-1] or pieces[0] != _ARRAY_HEADERS[len(pieces)]:
        return None
    words = pieces[2::2]
    at = 1
    try:
        for word in words:
            if pieces[at] != _BULK_HEADERS[len(word)]:
                return None
            at += 2
    except IndexError:  # a word longer than the table
        return None
    return words


#: An array of 1000 or more; a plain first character lets `re` skip with memchr.
_LARGE_ARRAY: Final = re.compile(rb"\*[0-9]{4}").search
#: Headers of RESP3 aggregates and of verbatim strings.
_RESP3_HEADER: Final = re.compile(rb"[%|~>=][0-9]+\r").search


def _may_hold_resp3(data: bytes) -> bool:
    """Say if a RESP3 header may be in `data`; a test for an int is a bare memchr."""
    return (61 in data or 62 in data or 126 in data or 124 in data or 37 in data) and (_RESP3_HEADER(data) is not None)


#: Fed after a chunk; comes back as a reply of its own when the chunk ended between two.
_END: Final = b":0\r\n"
_NOT_ENOUGH: Final = object()
#: Readers proved empty.  Making one costs as much as reading four commands, and one for
#: each connection would keep its buffer while the connection idles.
_readers: Final[list[hiredis.Reader]] = []


def parse_pipeline(data: bytes) -> list[list[bytes]] | None:
    """Parse many short commands that together are the whole of `data`.

    Before hiredis sees the chunk, a guard refuses what could make it allocate more
    than a few kilobytes ahead of the bytes: large arrays, and sets, pushes, maps.
    They, attributes and verbatim strings are refused in all their spellings.

    What hiredis made of the rest is accepted when

    1. the number fed behind the chunk came back as the last reply, so the chunk
       ended where a reply ended;
    2. every other reply is a list with something in it, and its elements are bytes,
       or joining them would fail: so `*` arrays of `$`, `+` or `(` strings;
    3. no word holds a CR, and the CR LF in the chunk are one for each command and
       two for each word.  Each header has exactly one.  A `+` or `(` has no second,
       and a `$` has one only if its word is followed by it; with no CR in the words
       they cannot come from anywhere else.  So all words are `$` strings, properly
       ended.

    hiredis reads no number but the canonical one, which leaves the reference parser
    no other reading either.
    """
    if data[0] != _STAR or _LARGE_ARRAY(data) or _may_hold_resp3(data):
        return None
    reader = _readers.pop() if _readers else hiredis.Reader(notEnoughData=_NOT_ENOUGH)
    reader.feed(data)
    reader.feed(_END)
    try:
        commands: list[Any] = [*iter(reader.gets, _NOT_ENOUGH)]
        end = commands.pop() if commands else None
        words = [*chain.from_iterable(commands)]
        text = b"".join(words)
    except (hiredis.HiredisError, TypeError):
        return None
    if end != 0 or type(end) is not int or not all(commands):
        return None
    if _CR in text or data.count(_CRLF) != len(commands) + 2 * len(words):
        return None
    _readers.append(reader)
    return commands


# --- Inline lines ----------------------------------------------------------------------

#: One piece of an inline line: plain text, "text", 'text', or blanks.  A closing quote
#: needs a blank or the end behind it.  No byte can match in two ways, so a match that
#: fails has cost no more than one look at each byte.
_INLINE_PIECE: Final = re.compile(
    rb"""
      (?P<plain>  [^\s"']++ )
    | "(?P<double>  (?: [^"\\] | \\. )*+ )"   (?= \s | \Z )
    | '(?P<single>  (?: [^'\\] | \\'? )*+ )'  (?= \s | \Z )
    | (?P<blanks> \s++ )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def _unescape(match: re.Match[bytes]) -> bytes:
    """Give the byte that an escape inside double quotes stands for."""
    name: bytes = match[1]
    if len(name) == 3:
        return bytes.fromhex(name[1:].decode("ascii"))
    return _ESCAPED.get(name, name)


def unescaped(piece: bytes) -> bytes:
    """Give the bytes that stand between two double quotes."""
    return _ESCAPE.sub(_unescape, piece)


def split_words(line: bytes) -> list[bytes]:
    r"""Split a line on blanks, with quotes as in a shell; words may come out empty.

    `"..."` knows `\n \r \t \b \a \\ \" \xHH`, `'...'` knows `\'`.

    Raises:
        ProtocolError: a quote is not closed, or is closed in the middle of a word.
    """
    if b'"' not in line and b"'" not in line:
        return line.split()
    words: list[bytes] = []
    at, inside = 0, False
    while at < len(line):
        match = _INLINE_PIECE.match(line, at)
        if match is None:
            raise ProtocolError(b"ERR Protocol error: unbalanced quotes in request")
        at = match.end()
        piece: bytes = match[match.lastgroup or 0]
        if match.lastgroup == "blanks":
            inside = False
            continue
        if match.lastgroup == "double":
            piece = unescaped(piece)
        elif match.lastgroup == "single":
            piece = piece.replace(b"\\'", b"'")
        if inside:
            words[-1] += piece
        else:
            words.append(piece)
        inside = True
    return words


def _inline_words(line: bytes) -> list[bytes]:
    """Read an inline line, its LF included; empty words do not count."""
    if _is_http(line):
        raise HttpAttemptError(b"")
    return [word for word in split_words(line[:-1].removesuffix(b"\r")) if word]


_HTTP_METHODS: Final = frozenset(
    (b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT", b"PRI")
)


def _is_http(line: bytes) -> bool:
    """Say if an inline line opens an HTTP request, or is its Host header."""
    words = line.split(None, 2)
    if not words:
        return False
    first = words[0].upper()
    if first == b"POST" or first.startswith(b"HOST:"):
        return True
    if first not in _HTTP_METHODS or len(words) < 2:
        return False
    return words[1].startswith(b"/") or words[-1].upper().startswith(b"HTTP/")


# --- The reference parser --------------------------------------------------------------

#: Whole headers, line end included, to the numbers in them.
_ARRAY_LENGTHS: Final = {b"*%d\r\n" % length: length for length in range(SINGLE_WORDS)}
_BULK_LENGTHS: Final = {b"$%d\r\n" % length: length for length in range(SMALL_LENGTH)}


def _canonical_number(text: bytes) -> int | None:
    """Read a signed 64-bit decimal in its only spelling: no `+`, no `-0`, no leading zero."""
    if len(text) > _DECIMAL_DIGITS:
        return None
    try:
        number = int(text)
    except ValueError:
        return None
    if b"%d" % number != text or not _INT64_MIN <= number <= _INT64_MAX:
        return None
    return number


def _header_number(line: bytes) -> int | None:
    """Read the number of a header line such as b"*3\\r\\n"."""
    return _canonical_number(line[1:-2]) if line.endswith(_CRLF) else None


def weight(words: list[bytes]) -> int:
    """Bytes of memory that a parsed command takes."""
    return COMMAND_COST + WORD_COST * len(words) + sum(map(len, words))


class RequestParser:
    """Reads what one client sends.

    After each `feed`, run the commands that it returned and then look at `error`: when
    it is set the connection is to be closed, after an error line if it is not empty.
    """

    __slots__ = (
        "_again", "_body", "_got", "_length", "_lifted", "_missing", "_pending", "_said", "_searched", "_size",
        "_whole", "_words", "error", "http_attempt", "idle", "max_args", "max_buffer", "max_bulk", "max_line",
    )  # fmt: skip

    def __init__(
        self, max_bulk: int = MAX_BULK, max_args: int = MAX_ARGS, max_line: int = MAX_LINE, max_buffer: int = MAX_BUFFER
    ) -> None:
        """Take the longest word, the most words, the longest line without its LF, and the most bytes of one command.

        `max_buffer` is more than `max_bulk`.
        """
        self.max_bulk = max_bulk
        self.max_args = max_args
        self.max_line = max_line
        self.max_buffer = max_buffer
        #: Why the client is to be disconnected; from then on its input is ignored.
        self.error: bytes | None = None
        #: The client spoke HTTP; worth a line in the log, as it may be an attack.
        self.http_attempt = False
        #: Nothing is unfinished and nothing went wrong: a shortcut may try the next chunk.
        self.idle = True
        #: The beginning of a line, or of what ends a word; its rest has not come yet.
        self._pending = bytearray()
        #: The beginning of a word, and how many bytes of it have come.  A `BytesIO` grows in place, and hands out what
        #: it holds without a copy.
        self._body: BytesIO | None = None
        self._got = 0
        #: How much of the line in `_pending` is known to hold no LF.
        self._searched = 0
        #: The words so far of an unfinished command, their bytes with headers, and how many
        #: words it still misses; zero between commands.
        self._words: list[bytes] = []
        self._size = 0
        self._missing = 0
        #: Length of the word whose header has been read; -1 when a line is next.
        self._length = -1
        #: (max_args, max_bulk) as they will be once the client is authenticated.
        self._lifted: tuple[int, int] | None = None
        #: Nothing was unfinished when the last chunk came.
        self._whole = True
        #: A chunk that is said again and again, and the commands that it is.
        self._said = b""
        self._again: list[list[bytes]] = []

    @property
    def held(self) -> int:
        """Bytes of memory that the unfinished command takes."""
        return len(self._pending) + self._got + self._size + WORD_COST * len(self._words)

    @property
    def is_long(self) -> bool:
        """True when so many words of the unfinished command have come that reading it takes its time."""
        return len(self._words) > MANY_WORDS

    def feed(self, data: bytes) -> list[list[bytes]]:
        """Take a chunk of any size and return the commands that it completed, in order; they are not to be changed."""
        self._whole = self.idle
        if self.idle and data == self._said:
            return self._again
        return self._read(data)

    def _read(self, data: bytes) -> list[list[bytes]]:
        """The same for a chunk that was not said before."""
        if self.idle and len(data) < self.max_bulk and self.max_args >= PIPELINE_WORDS:
            if len(data) <= SINGLE_SIZE:
                words = parse_single(data)
                if words is not None:
                    return [words]
            commands = self._pipeline(data)
            if commands is not None:
                return commands
        return self._parse(data)

    def expect_again(self, data: bytes, commands: list[list[bytes]]) -> None:
        """Remember the last chunk and its commands, if it is short and says one command, or the same several times."""
        if commands is self._again or len(data) > REPEATED_SIZE or not (self._whole and self.idle):
            return
        if len(commands[0]) <= REPEATED_WORDS and commands.count(commands[0]) == len(commands):
            self._said, self._again = data, [commands[0]] * len(commands)

    def _pipeline(self, data: bytes) -> list[list[bytes]] | None:
        """Parse a chunk of many commands the fast way, if that is safe and worth it.

        It is worth it when the first command is short; the others then mostly are.
        A chunk that ends within a command is cut before its last `*` line; if that
        was the right place, what follows it is left to the reference parser.
        """
        if data.find(b"*", 1, PIPELINE_SIZE) < 0:
            return None
        commands = parse_pipeline(data)
        if commands is None:
            cut = data.rfind(b"\r\n*") + 2
            commands = parse_pipeline(data[:cut]) if cut > 2 else None
            if commands is not None:
                commands += self._parse(data[cut:])
        return commands

    def restrict(self, args: int = 10, bulk: int = 16 * 1024) -> None:
        """Lower the limits until `lift`, for a client that is not authenticated yet."""
        if self._lifted is None:
            self._lifted = self.max_args, self.max_bulk
        self.max_args, self.max_bulk = args, bulk
        self._said, self._again = b"", []

    def lift(self) -> list[list[bytes]]:
        """Restore the limits; return the commands that `restrict` alone had kept back.

        A client may send AUTH and a larger command in one chunk.  `feed` then returns
        what comes before the larger one and sets `error`; when one of these commands
        authenticates the client, this takes the error back and reads on.
        """
        if self._lifted is None:
            return []
        self.max_args, self.max_bulk = self._lifted
        self._lifted = None
        if self.error is None or not self._pending:
            return []
        self.error = None
        return self._parse(b"")

    def _parse(self, data: bytes) -> list[list[bytes]]:
        """Do what `feed` promises, for every input."""
        commands: list[list[bytes]] = []
        if self.error is not None:
            return commands
        try:
            if not self.idle:
                data = self._resume(data, commands)
            self._parse_chunk(data, commands)
        except RestrictionError as excess:
            self.error = excess.text
            self._pending = bytearray(data[excess.at :] if excess.rest is None else excess.rest)
            self._searched = 0
        except ProtocolError as error:
            self.error = error.text
            self.http_attempt = isinstance(error, HttpAttemptError)
            self._pending = bytearray()
            self._words = []
            self._body, self._got = None, 0
        self.idle = not (self._pending or self._missing or self.error is not None)
        return commands

    def _resume(self, data: bytes, commands: list[list[bytes]]) -> bytes:
        """Finish the command that the last chunk left; return what is still to parse.

        With that command behind, the chunk may go on as a pipeline.
        """
        if self._body is not None:
            data = self._complete_word(data, commands)
        elif self._pending:
            data = self._complete_line(data)
        if self._missing and data:
            try:
                at = self._take_words(data, 0)
            except RestrictionError as error:
                error.rest = data[error.at :]
                raise
            if self._missing:
                self._keep(data, at)
                return b""
            self._finish_command(commands)
            data = data[at:]
        if self._missing or self._pending or not data:
            return b""
        self.idle = True
        commands += self._read(data)
        return b""

    def _complete_line(self, data: bytes) -> bytes:
        """Append a chunk to the pending line; return what can be parsed now, or b"".

        The line is left alone until it is complete, so that the cost of many small chunks is that of a few large ones.
        """
        pending = self._pending
        pending += data
        if pending.find(b"\n", self._searched) < 0:
            self._searched = len(pending)
            self._check_line(pending[0], len(pending))
            return b""
        self._pending = bytearray()
        return bytes(pending)

    def _complete_word(self, data: bytes, commands: list[list[bytes]]) -> bytes:
        """Append a chunk to the word that has begun; return what follows the word, or b""."""
        body = self._body
        assert body is not None
        missing = self._length - self._got
        if len(data) <= missing:
            body.write(data)
            self._got += len(data)
            return b""
        if missing:
            body.write(memoryview(data)[:missing])
            self._got = self._length
        rest = bytes(self._pending) + data[missing:]
        if len(rest) < 2:
            self._pending = bytearray(rest)
            return b""
        if rest[:2] != _CRLF:
            raise ProtocolError(_NO_CRLF)
        self._words.append(body.getvalue())
        taken = self._length + 2
        self._pending = bytearray()
        self._body, self._got, self._length = None, 0, -1
        self._grow(taken)
        self._missing -= 1
        if not self._missing:
            self._finish_command(commands)
        return rest[2:]

    def _finish_command(self, commands: list[list[bytes]]) -> None:
        """Pass on the words that are now complete."""
        commands.append(self._words)
        self._words = []
        self._size = 0

    def _parse_chunk(self, data: bytes, commands: list[list[bytes]]) -> None:
        """Append the commands in `data` to `commands` and keep what is unfinished."""
        at, size = 0, len(data)
        while at < size:
            if self._missing:
                at = self._take_words(data, at)
                if self._missing:
                    break
                self._finish_command(commands)
                continue
            end = data.find(b"\n", at) + 1
            if not end:
                self._check_line(data[at], size - at)
                break
            self._missing = _ARRAY_LENGTHS.get(data[at:end], MAX_ARGS)
            if self._missing > self.max_args or self._missing == MAX_ARGS:
                self._missing = 0
                self._begin_command(data, at, end, commands)
            at = end
        self._keep(data, at)

    def _keep(self, data: bytes, at: int) -> None:
        """Keep the rest of a chunk: the beginning of a line or, once its header was read, of a word."""
        if at >= len(data):
            return
        if self._length >= 0:
            self._body = BytesIO()
            self._complete_word(data[at:], [])
        else:
            self._pending = bytearray(memoryview(data)[at:])
            self._searched = len(self._pending)

    def _begin_command(self, data: bytes, at: int, end: int, commands: list[list[bytes]]) -> None:
        """Read the line from `at` to `end`: inline, or an unusual array header."""
        line = data[at:end]
        self._check_line(line[0], len(line) - 1)
        if line[0] == _STAR:
            number = _header_number(line)
            if number is None:
                raise ProtocolError(_BAD_ARRAY)
            self._check_count(number, at)
            self._missing = max(number, 0)
            return
        words = _inline_words(line)
        if words:
            self._check_count(len(words), at)
            self._check_length(max(map(len, words)), at)
            commands.append(words)

    def _take_words(self, data: bytes, at: int) -> int:
        """Take words until the command is complete or the chunk ends; return the new place."""
        words, missing, length = self._words, self._missing, self._length
        start, size, max_bulk = at, len(data), self.max_bulk
        while missing:
            if length < 0:
                end = data.find(b"\n", at) + 1
                if not end:
                    self._check_line(data[at] if at < size else 0, size - at)
                    break
                length = _BULK_LENGTHS.get(data[at:end], max_bulk)
                if length >= max_bulk:
                    self._missing = missing
                    length = self._bulk_length(data[at:end], at)
                at = end
            stop = at + length
            if stop + 2 > size:
                break
            if data[stop : stop + 2] != _CRLF:
                raise ProtocolError(_NO_CRLF)
            words.append(data[at:stop])
            at = stop + 2
            length = -1
            missing -= 1
        self._missing, self._length = missing, length
        self._grow(at - start)
        return at

    def _grow(self, taken: int) -> None:
        """Add to the size of the command; with the word that was announced it must fit."""
        self._size += taken
        if self._size + max(self._length, 0) > self.max_buffer:
            raise ProtocolError(_TOO_LARGE % self.max_buffer)

    def _bulk_length(self, line: bytes, at: int) -> int:
        """Read b"$5\\r\\n" found at `at`, when it is not one of the usual ones."""
        self._check_line(line[0], len(line) - 1)
        if line[0] != _DOLLAR:
            raise ProtocolError(b"ERR Protocol error: expected '$', got '%c'" % line[0])
        number = _header_number(line)
        if number is None or number < 0:
            raise ProtocolError(_BAD_BULK)
        self._check_length(number, at)
        return number

    def _check_line(self, first: int, length: int) -> None:
        """Refuse a line, or the beginning of one, that is too long."""
        if length <= self.max_line:
            return
        if self._missing:
            raise ProtocolError(b"ERR Protocol error: too big bulk count string")
        if first == _STAR:
            raise ProtocolError(b"ERR Protocol error: too big mbulk count string")
        raise ProtocolError(b"ERR Protocol error: too big inline request")

    def _check_count(self, number: int, at: int) -> None:
        """Refuse a command of too many words; its line is at `at`."""
        if number <= self.max_args:
            return
        if self._lifted is None or number > self._lifted[0]:
            raise ProtocolError(_BAD_ARRAY)
        raise RestrictionError(b"ERR Protocol error: unauthenticated multibulk length", at)

    def _check_length(self, number: int, at: int) -> None:
        """Refuse a word that is too long; the line that says so is at `at`."""
        if number <= self.max_bulk:
            return
        if self._lifted is None or number > self._lifted[1]:
            raise ProtocolError(_BAD_BULK)
        raise RestrictionError(b"ERR Protocol error: unauthenticated bulk length", at)
