"""What clients send: the language of the reference parser, its limits, and what closes a connection."""

import sys
import tracemalloc

import pytest

from disqued.wire.requests import (
    REPEATED_WORDS,
    WORD_COST,
    ProtocolError,
    RequestParser,
    parse_pipeline,
    parse_single,
    split_words,
)

ADDJOB = b"*4\r\n$6\r\nADDJOB\r\n$5\r\nqueue\r\n$5\r\nhello\r\n$1\r\n0\r\n"
ADDJOB_WORDS = [b"ADDJOB", b"queue", b"hello", b"0"]
PING = b"*1\r\n$4\r\nPING\r\n"


def pack(*words: bytes) -> bytes:
    """Spell a command the way clients do."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def bytewise(parser: RequestParser, data: bytes) -> list[list[bytes]]:
    """Feed one byte at a time."""
    return [command for at in range(len(data)) for command in parser.feed(data[at : at + 1])]


@pytest.mark.parametrize(
    ("data", "commands"),
    [
        (PING, [[b"PING"]]),
        (ADDJOB, [ADDJOB_WORDS]),
        (ADDJOB * 3, [ADDJOB_WORDS] * 3),
        (b"PING\r\n", [[b"PING"]]),
        (b"PING\nPING\r\n", [[b"PING"], [b"PING"]]),
        (b"  ADDJOB  q\tbody 0 \r\n", [[b"ADDJOB", b"q", b"body", b"0"]]),
        (b"\r\n\n \r\nPING\n", [[b"PING"]]),
        (b"*0\r\n*-1\r\n*-17\r\n" + PING, [[b"PING"]]),
        (PING + b"QLEN q\r\n" + PING, [[b"PING"], [b"QLEN", b"q"], [b"PING"]]),
        (pack(b"ADDJOB", b"", b"\r\n*9999\r\n$1\r\n", b"0"), [[b"ADDJOB", b"", b"\r\n*9999\r\n$1\r\n", b"0"]]),
        (pack(b"GET", b"/", b"HTTP/1.1") + pack(b"POST"), [[b"GET", b"/", b"HTTP/1.1"], [b"POST"]]),
        (pack(*[b"w"] * 1500), [[b"w"] * 1500]),
        (b"", []),
    ],
)
def test_commands_are_read_whole_or_byte_by_byte(data: bytes, commands: list[list[bytes]]) -> None:
    whole, pieces = RequestParser(), RequestParser()
    assert whole.feed(data) == commands
    assert bytewise(pieces, data) == commands
    assert whole.error is None
    assert pieces.error is None


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"*1048577\r\n", b"invalid multibulk length"),
        (b"*x\r\n", b"invalid multibulk length"),
        (b"*\r\n", b"invalid multibulk length"),
        (b"*04\r\n", b"invalid multibulk length"),
        (b"*+4\r\n", b"invalid multibulk length"),
        (b"*-0\r\n", b"invalid multibulk length"),
        (b"* 4\r\n", b"invalid multibulk length"),
        (b"*1_0\r\n", b"invalid multibulk length"),
        (b"*99999999999999999999\r\n", b"invalid multibulk length"),
        (b"*-9223372036854775809\r\n", b"invalid multibulk length"),
        (b"*" + b"9" * 5000 + b"\r\n", b"invalid multibulk length"),
        (b"*1\n$4\nPING\n", b"invalid multibulk length"),
        (b"*1\r\n:5\r\n", b"expected '$', got ':'"),
        (b"*1\r\n+PING\r\n", b"expected '$', got '+'"),
        (b"*1\r\n\r\n", b"expected '$', got '\r'"),
        (b"*1\r\n*1\r\n$1\r\na\r\n", b"expected '$', got '*'"),
        (b"*1\r\n$-1\r\n", b"invalid bulk length"),
        (b"*1\r\n$536870913\r\n", b"invalid bulk length"),
        (b"*1\r\n$01\r\na\r\n", b"invalid bulk length"),
        (b"*1\r\n$\r\n\r\n", b"invalid bulk length"),
        (b"*1\r\n$4\nPING\r\n", b"invalid bulk length"),
        (b"*1\r\n$4\r\nPING\n\n", b"expected CRLF after bulk"),
        (b"*1\r\n$2\r\nPING\r\n", b"expected CRLF after bulk"),
        (b"*" + b"1" * 65_536, b"too big mbulk count string"),
        (b"*1\r\n$" + b"1" * 65_536, b"too big bulk count string"),
        (b"A" * 65_537, b"too big inline request"),
        (b"A" * 65_537 + b"\r\n", b"too big inline request"),
        (b'SHOW "abc\r\n', b"unbalanced quotes in request"),
        (b"SHOW 'abc\r\n", b"unbalanced quotes in request"),
        (b'SHOW "a"b\r\n', b"unbalanced quotes in request"),
        (b'SHOW "a\\"\r\n', b"unbalanced quotes in request"),
    ],
)
def test_a_broken_request_ends_the_conversation_after_the_commands_before_it(data: bytes, error: bytes) -> None:
    whole, pieces = RequestParser(), RequestParser()
    assert whole.feed(ADDJOB + data) == [ADDJOB_WORDS]
    assert bytewise(pieces, ADDJOB + data) == [ADDJOB_WORDS]
    assert whole.error == pieces.error == b"ERR Protocol error: " + error
    assert whole.feed(PING) == []
    assert not whole.http_attempt


def test_lines_of_exactly_the_limit_are_read() -> None:
    parser = RequestParser()
    assert parser.feed(b"A" * 65_536 + b"\n") == [[b"A" * 65_536]]
    assert parser.feed(b"A" * 65_535 + b"\r\n") == [[b"A" * 65_535]]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"a b", [b"a", b"b"]),
        (b'"a b" c', [b"a b", b"c"]),
        (b'"\\x00\\xfF\\n\\r\\t\\b\\a\\\\\\"\\q\\xzz"', [b'\x00\xff\n\r\t\b\a\\"qxzz']),
        (b"'it\\'s \\n \\\\ '", [b"it's \\n \\\\ "]),
        (b"ab\"c d\" e'f'", [b"abc d", b"ef"]),
        (b"\"\" '' x", [b"", b"", b"x"]),
        (b"back\\slash 'q'", [b"back\\slash", b"q"]),
        (b'\t"a"\x0b\x0cb\r', [b"a", b"b"]),
        (b"", []),
    ],
)
def test_inline_words_are_quoted_as_in_a_shell(line: bytes, words: list[bytes]) -> None:
    assert split_words(line) == words


def test_empty_inline_words_are_dropped() -> None:
    assert RequestParser().feed(b'ADDJOB "" q \'\'\r\n""\r\nPING\r\n') == [[b"ADDJOB", b"q"], [b"PING"]]


@pytest.mark.parametrize("line", [b"'a\\' b", b"'a\\\\'", b"'a\\", b'"a\\', b"'a'b", b'a"b'])
def test_unbalanced_quotes_are_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError, match="unbalanced quotes"):
        split_words(line)


@pytest.mark.parametrize(
    "line",
    [
        b"POST / HTTP/1.1",
        b"post",
        b"Host: localhost:7711",
        b"HOST:localhost",
        b"GET / HTTP/1.1",
        b"GET /?q=\"'",
        b"OPTIONS * HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"CONNECT localhost:7711 HTTP/1.1",
    ],
)
def test_http_closes_the_connection_without_a_word(line: bytes) -> None:
    parser = RequestParser()
    assert parser.feed(b"PING\r\n" + line + b"\r\nPING\r\n") == [[b"PING"]]
    assert parser.error == b""
    assert parser.http_attempt


def test_words_that_only_look_like_http_are_commands() -> None:
    parser = RequestParser()
    assert parser.feed(b"GET\r\nGET key\r\nHOST x\r\n") == [[b"GET"], [b"GET", b"key"], [b"HOST", b"x"]]
    assert not parser.http_attempt


class TestBeforeAuthentication:
    @pytest.fixture
    def parser(self) -> RequestParser:
        parser = RequestParser()
        parser.restrict()
        return parser

    def test_small_commands_pass(self, parser: RequestParser) -> None:
        largest = [b"AUTH"] + [b"x" * 16_384] * 9
        assert parser.feed(pack(*largest) + b"AUTH x\r\n") == [largest, [b"AUTH", b"x"]]
        assert parser.error is None

    @pytest.mark.parametrize("data", [b"*11\r\n", b"a b c d e f g h i j k\r\n", b"*1048576\r\n"])
    def test_many_words_are_refused(self, parser: RequestParser, data: bytes) -> None:
        assert parser.feed(data) == []
        assert parser.error == b"ERR Protocol error: unauthenticated multibulk length"

    @pytest.mark.parametrize("data", [b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", b"AUTH " + b"x" * 16_385 + b"\n"])
    def test_long_words_are_refused(self, parser: RequestParser, data: bytes) -> None:
        assert parser.feed(data) == []
        assert parser.error == b"ERR Protocol error: unauthenticated bulk length"

    def test_what_is_never_allowed_keeps_its_own_error(self, parser: RequestParser) -> None:
        parser.feed(b"*1048577\r\n")
        assert parser.error == b"ERR Protocol error: invalid multibulk length"
        assert parser.lift() == []
        assert parser.error is not None

    @pytest.mark.parametrize(
        "large", [[b"ACKJOB", *[b"id"] * 20], [b"ADDJOB", b"q", b"x" * 20_000, b"0"]], ids=["many words", "a long word"]
    )
    @pytest.mark.parametrize("inline", [False, True])
    def test_lifting_reads_on_behind_the_command_that_authenticated(
        self, parser: RequestParser, large: list[bytes], inline: bool
    ) -> None:
        spelt = b" ".join(large) + b"\r\n" if inline else pack(*large)
        data = pack(b"AUTH", b"secret") + spelt + ADDJOB * 3 + ADDJOB[:20]
        assert parser.feed(data) == [[b"AUTH", b"secret"]]
        assert str(parser.error).startswith("b'ERR Protocol error: unauthenticated")
        assert parser.lift() == [large, ADDJOB_WORDS, ADDJOB_WORDS, ADDJOB_WORDS]
        assert parser.error is None
        assert parser.feed(ADDJOB[20:]) == [ADDJOB_WORDS]

    def test_lifting_in_the_middle_of_a_command_changes_nothing_else(self, parser: RequestParser) -> None:
        assert parser.feed(ADDJOB[:30]) == []
        assert parser.lift() == []
        assert parser.feed(ADDJOB[30:]) == [ADDJOB_WORDS]
        assert parser.lift() == []

    @pytest.mark.parametrize("cut", range(1, 10))
    def test_lifting_reads_on_although_the_large_header_came_in_two_chunks(
        self, parser: RequestParser, cut: int
    ) -> None:
        parser.restrict(args=3, bulk=100)
        request = b"*1\r\n$150\r\n" + b"x" * 150 + b"\r\n"
        assert parser.feed(request[:cut]) == []
        assert parser.feed(request[cut:]) == []
        assert parser.lift() == [[b"x" * 150]]
        assert parser.feed(b"PING\r\n") == [[b"PING"]]

    def test_restricting_twice_still_lifts_to_the_first_limits(self, parser: RequestParser) -> None:
        parser.restrict(args=2, bulk=10)
        parser.lift()
        assert (parser.max_args, parser.max_bulk) == (1024 * 1024, 512 * 1024 * 1024)


class TestLimits:
    def test_own_limits_hold(self) -> None:
        assert RequestParser(max_bulk=3).feed(b"*1\r\n$4\r\nPING\r\n") == []
        assert RequestParser(max_bulk=4).feed(b"*1\r\n$4\r\nPING\r\n") == [[b"PING"]]
        long_inline = RequestParser(max_bulk=3)
        assert long_inline.feed(b"PING\r\n") == []
        assert long_inline.error == b"ERR Protocol error: invalid bulk length"
        many = RequestParser(max_args=2)
        assert many.feed(pack(b"a", b"b") + pack(b"a", b"b", b"c")) == [[b"a", b"b"]]
        assert many.error == b"ERR Protocol error: invalid multibulk length"

    @pytest.mark.parametrize("size", [1, 7, 1000])
    def test_a_command_cannot_grow_beyond_the_buffer_limit(self, size: int) -> None:
        data = pack(*[b"x" * 90] * 12)
        parser = RequestParser(max_bulk=100, max_buffer=1000)
        for at in range(0, len(data), size):
            assert parser.feed(data[at : at + size]) == []
        assert parser.error == b"ERR Protocol error: request larger than 1000 bytes"

    def test_declared_lengths_cost_no_memory(self) -> None:
        tracemalloc.start()
        try:
            for data in [
                b"*1048576\r\n$536870912\r\n",
                b"*999\r\n" * 8,
                b"*2\r\n*1000000\r\n",
                b"*1\r\n~99999999\r\n*1\r\n",
                b"*1\r\n>99999999\r\n*1\r\n",
                b"*1\r\n$1\r\naXX>99999999\r\n*1\r\n",
                b"*1\r\n%99999999\r\n*1\r\n",
            ]:
                RequestParser().feed(data)
            assert tracemalloc.get_traced_memory()[1] < 500_000
        finally:
            tracemalloc.stop()

    def test_a_large_body_in_pieces_is_kept_once(self) -> None:
        body = bytes(range(256)) * 65_536  # 16 MiB
        data = pack(b"ADDJOB", b"q", body, b"0")
        parser = RequestParser()
        commands = []
        tracemalloc.start()
        try:
            for at in range(0, len(data), 65_536):
                commands += parser.feed(data[at : at + 65_536])
            # The pending bytes, which grow ahead by an eighth, and the word made of them.
            assert tracemalloc.get_traced_memory()[1] < 2.5 * len(body)
        finally:
            tracemalloc.stop()
        assert commands == [[b"ADDJOB", b"q", body, b"0"]]

    def test_a_client_that_sends_byte_by_byte_costs_no_more_than_its_bytes(self) -> None:
        # Were each byte to cost a look at all before it, this would take minutes.
        parser = RequestParser()
        body = b"x" * 300_000
        assert bytewise(parser, pack(b"ADDJOB", b"q", body, b"0"))[0][2] == body
        assert bytewise(parser, b"a" * 60_000 + b"\n") == [[b"a" * 60_000]]


class TestSaidAgain:
    def remembers(self, data: bytes, before: bytes = b"", after: bytes = b"") -> bool:
        """Tell whether a chunk is remembered that comes between others."""
        parser = RequestParser()
        parser.feed(before)
        parser.expect_again(data, parser.feed(data))
        parser.feed(after)
        return parser.feed(data) is parser.feed(data)

    @pytest.mark.parametrize("data", [pack(b"GETJOB", b"FROM", b"q"), pack(b"GETJOB") * 16, b"getjob from q\r\n"])
    def test_a_command_and_the_same_several_times_are_remembered(self, data: bytes) -> None:
        assert self.remembers(data)
        assert self.remembers(data, after=PING)

    def test_nothing_is_remembered_unasked(self) -> None:
        parser = RequestParser()
        assert parser.feed(PING) is not parser.feed(PING)

    def test_different_commands_and_long_ones_are_not_remembered(self) -> None:
        assert not self.remembers(PING + pack(b"GETJOB"))
        assert not self.remembers(pack(b"GETJOB", b"x" * 2_000, b"x" * 100))
        assert self.remembers(pack(*[b"x"] * REPEATED_WORDS))
        assert not self.remembers(pack(*[b"x"] * (REPEATED_WORDS + 1)))

    def test_a_chunk_that_is_part_of_a_command_is_not_remembered(self) -> None:
        end, begin = b"$4\r\nPING\r\n", b"*1\r\n"
        assert not self.remembers(end, before=begin)
        assert not self.remembers(PING + begin)

    def test_a_chunk_that_ends_what_was_begun_is_not_taken_for_what_it_was(self) -> None:
        parser = RequestParser()
        commands = parser.feed(PING)
        parser.expect_again(PING, commands)
        assert parser.feed(b"*2\r\n$4\r\nECHO\r\n$14\r\n") == []
        assert parser.feed(PING + b"\r\n") == [[b"ECHO", PING]]
        parser.feed(b"*1\r\n$14\r\n")
        assert parser.feed(PING) == []

    def test_lower_limits_hold_for_what_was_said_before(self) -> None:
        parser = RequestParser()
        data = pack(b"GETJOB", b"FROM", b"q")
        parser.expect_again(data, parser.feed(data))
        parser.restrict(args=2)
        assert parser.feed(b"") == []
        assert parser.feed(data) == []
        assert parser.error is not None


class TestShortcuts:
    @pytest.mark.parametrize(
        "words", [[b"PING"], ADDJOB_WORDS, [b""], [b"w"] * 32, [b"SHOW", b"x" * 4095], [b"*1\r", b"\n$1"]]
    )
    def test_a_plain_command_is_taken(self, words: list[bytes]) -> None:
        assert parse_single(pack(*words)) == words

    @pytest.mark.parametrize(
        "data",
        [
            ADDJOB[:-1],
            ADDJOB * 2,
            ADDJOB + b"x",
            pack(b"a\r\nb"),
            pack(*[b"w"] * 33),
            pack(b"x" * 4096),
            b"*0\r\n",
            b"PING\r\n",
            b"*1\r\n$5\r\nPING\r\n",
            b"",
        ],
    )
    def test_what_is_not_one_plain_command_is_left_alone(self, data: bytes) -> None:
        assert parse_single(data) is None

    def test_a_plain_pipeline_is_taken(self) -> None:
        assert parse_pipeline(ADDJOB * 16 + PING) == [ADDJOB_WORDS] * 16 + [[b"PING"]]

    @pytest.mark.parametrize(
        "end",
        [
            b"*1",
            b"*1\r\n",
            b"*0\r\n",
            b"*-1\r\n",
            b"*2\r\n$1\r\na\r\n",
            b"*1\r\n$1\r\na",
            b"*1\r\n$1\r\na\r",
            b"*1\r\n$1\r\naXX",
            b"*1\r\n$1\r\na\n\r",
            b"*1\r\n$3\r\na",
            b"*1\r\n+OK\r\n",
            b"*1\r\n+OK\r\n*2\r\n",
            b"*1\r\n+*2\r\n*2\r\n",
            b"*2\r\n+OK\r\n+OK\r\n#f\r\n*2\r\n",
            b"*2\r\n+OK\r\n+OK\r\n,0\r\n*2\r\n",
            b"*1\r\n(12\r\n",
            b"*1\r\n:12\r\n",
            b"*1\r\n,1.5\r\n",
            b"*1\r\n#t\r\n",
            b"*1\r\n_\r\n",
            b"*1\r\n-ERR\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n*1\r\n$1\r\na\r\n",
            b"*1\r\n=7\r\ntxt:abc\r\n",
            b"*2\r\n=7\r\n\r\nx:abc\r\n$1\r\naXX",
            b"*1\r\n%1\r\n$1\r\na\r\n$1\r\nb\r\n",
            b"%1\r\n$1\r\na\r\n$1\r\nb\r\n",
            b"%0\r\n",
            b"|1\r\n$1\r\na\r\n$1\r\nb\r\n",
            b"~1\r\n$1\r\na\r\n",
            b">1\r\n$1\r\na\r\n",
            b"$1\r\na\r\n",
            b"$0\r\n\r\n",
            b"+\r\n",
            b"+OK\r\n",
            b":0\r\n",
            b":0\r\n:0\r\n",
            b":",
            b"#f\r\n",
            b"-ERR\r\n",
            b"PING\r\n",
            b"*1\r\n$3\r\na\rb\r\n",
            pack(*[b"w"] * 1000),
        ],
    )
    def test_no_other_pipeline_is_taken_and_none_disturbs_the_next(self, end: bytes) -> None:
        assert parse_pipeline(ADDJOB + end) is None
        assert parse_pipeline(ADDJOB + end + ADDJOB) is None
        assert parse_pipeline(ADDJOB + ADDJOB) == [ADDJOB_WORDS] * 2

    def test_a_long_pipeline_is_read_wherever_its_chunks_end(self) -> None:
        data = ADDJOB * 50
        for size in range(len(ADDJOB), 3 * len(ADDJOB)):
            parser = RequestParser()
            commands = [words for at in range(0, len(data), size) for words in parser.feed(data[at : at + size])]
            assert commands == [ADDJOB_WORDS] * 50


# What an unfinished request takes.

HEADERS = 40  #: bytes of lines that are read and not kept


@pytest.mark.parametrize("size", [0, 1, 100, 70_000, 1_000_000])
def test_a_word_that_comes_in_pieces_is_whole_and_counted_meanwhile(size: int) -> None:
    parser = RequestParser()
    word = bytes(index % 251 for index in range(size))
    data = b"*2\r\n$4\r\nECHO\r\n$%d\r\n%b\r\n" % (size, word)
    found: list[list[bytes]] = []
    step = max(1, size // 7)
    for at in range(0, len(data), step):
        found += parser.feed(data[at : at + step])
        if at + step < len(data):
            assert at - HEADERS <= parser.held <= at + step + 2 * WORD_COST
    assert found == [[b"ECHO", word]]
    assert parser.held == 0


def test_words_of_an_unfinished_command_count_with_what_they_take() -> None:
    parser = RequestParser()
    parser.feed(b"*100000\r\n" + b"".join(b"$6\r\n%06d\r\n" % number for number in range(50_000)))
    words = parser._words
    real = sys.getsizeof(words) + sum(map(sys.getsizeof, words))
    assert len(words) == 50_000
    assert real <= parser.held <= 1.5 * real
    assert parser.is_long


def test_what_is_wrong_lets_go_of_what_came_before() -> None:
    parser = RequestParser()
    parser.feed(b"*2\r\n$4\r\nECHO\r\n$100000\r\n" + b"x" * 90_000)
    assert parser.held > 90_000
    parser.feed(b"x" * 10_000 + b"??")
    assert parser.error is not None
    assert parser.held < 1_000


def test_a_word_is_handed_out_without_a_copy() -> None:
    parser = RequestParser()
    size = 30_000_000
    parser.feed(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % size)
    chunk = b"x" * 65_536
    tracemalloc.start()
    try:
        for _ in range(size // len(chunk)):
            parser.feed(chunk)
        [[_, word]] = parser.feed(b"x" * (size % len(chunk)) + b"\r\n")
        # It grows by an eighth at a time; a copy would be as much again.
        assert tracemalloc.get_traced_memory()[1] < size * 3 // 2
    finally:
        tracemalloc.stop()
    assert len(word) == size


def test_a_client_that_has_said_nothing_has_nothing_unfinished() -> None:
    assert RequestParser().idle
