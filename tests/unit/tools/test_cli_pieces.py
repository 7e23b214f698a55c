"""The pieces of `disqued cli` that need no node: lines, replies, what completion and hints make of COMMAND DOCS."""

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disqued.tools.cli.batch import repetition
from disqued.tools.cli.command_lines import BadLine, quoted, split
from disqued.tools.cli.documents import Documents, follow
from disqued.tools.cli.history import is_secret
from disqued.tools.cli.interactive import hint_of
from disqued.tools.cli.replies import BadProtocol, Closed, Reply, ReplyKind, read_reply
from disqued.wire.replies import encode
from tests.fakes import Client, Daemon

TERMS = (
    "[MAXTRIES max-tries] [BACKOFF first [most]] [KEEPDEAD keep-dead] [RESULT result]"
    " [HEADER name value [name value ...]] [GROUP group]"
)


def read(data: bytes) -> Reply:
    return read_reply(BytesIO(data))


def documents(protocol: int) -> Documents:
    """What a node would tell of its own commands."""
    return Documents.of(read(encode(Client(Daemon()).says("COMMAND", "DOCS"), protocol)))


@pytest.fixture(scope="module", params=[2, 3])
def known(request: pytest.FixtureRequest) -> Documents:
    return documents(request.param)


# Lines.


@given(st.lists(st.binary()))
def test_what_is_quoted_is_split_as_it_was(words: list[bytes]) -> None:
    assert split(b" ".join(map(quoted, words))) == words


@pytest.mark.parametrize("line", [b'"open', b"'open", b'"a"b', b"'a'b", b'a "b"c'])
def test_quotes_that_are_not_closed_are_refused(line: bytes) -> None:
    with pytest.raises(BadLine):
        split(line)


@pytest.mark.parametrize(
    ("words", "times", "left"),
    [
        ([b"3", b"PING"], 3, [b"PING"]),
        ([b"3"], 1, [b"3"]),
        ([b"0", b"PING"], 1, [b"0", b"PING"]),
        ([b"PING", b"3"], 1, [b"PING", b"3"]),
    ],
)
def test_a_number_before_a_command_says_how_often(words: list[bytes], times: int, left: list[bytes]) -> None:
    assert repetition(words) == (times, left)


# Replies.


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_connection_that_ends_within_a_reply_is_noticed(cut: int) -> None:
    whole = b"*1\r\n$2\r\nab\r\n"
    assert read(whole).items[0].text == b"ab"
    with pytest.raises(Closed):
        read(whole[:cut])


@pytest.mark.parametrize("data", [b"HTTP/1.1 200 OK\r\n", b"$x\r\n", b"*1000\r\n+a", b"*1\r\n" * 200 + b":1\r\n"])
def test_what_is_no_reply_is_refused(data: bytes) -> None:
    with pytest.raises((BadProtocol, Closed)):
        read(data)


def test_attributes_are_passed_over_and_long_errors_are_errors() -> None:
    assert read(b"|1\r\n+ttl\r\n:5\r\n+OK\r\n") == Reply(ReplyKind.STATUS, b"OK")
    assert read(b"!5\r\nERR x\r\n") == Reply(ReplyKind.ERROR, b"ERR x")


# Hints and completion, of the commands that there are.


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("QLEN", " queue"),
        ("qlen ", "queue"),
        ("QLEN mail", ""),
        ("QLEN mail more", ""),
        ("NOSUCH", ""),
        ("CONFIG", " subcommand [argument ...]"),
        ("CONFIG SET max", " value"),
        ("ACKJOB", " [id [id ...]] [RESULT result]"),
        ("ACKJOB id ", "[id ...] [RESULT result]"),
        ('ADDJOB "not closed', ""),
        (
            "ADDJOB q body 0 RETRY",
            f" retry [REPLICATE replicate] [DELAY delay] [TTL ttl] [MAXLEN maxlen] [ASYNC] {TERMS} [KEY key]",
        ),
        (
            "ADDJOB q body 0 retry 5 async ",
            f"[REPLICATE replicate] [DELAY delay] [TTL ttl] [MAXLEN maxlen] {TERMS} [KEY key]",
        ),
        (
            "GETJOB FROM q",
            (
                " [queue ...] [NOHANG] [WITHCOUNTERS] [WITHHEADERS] [TIMEOUT timeout] [COUNT count] [ORDERED]"
                " [WORKER worker]"
            ),
        ),
        (
            "GETJOB COUNT ",
            (
                "count [NOHANG] [WITHCOUNTERS] [WITHHEADERS] [TIMEOUT timeout] [ORDERED] [WORKER worker] FROM queue"
                " [queue ...]"
            ),
        ),
    ],
)
def test_a_hint_says_what_is_missing(known: Documents, line: str, hint: str) -> None:
    assert hint_of(known, line) == hint


def test_an_option_is_no_option_in_the_place_of_an_argument(known: Documents) -> None:
    assert hint_of(known, "ADDJOB retry body ") == hint_of(known, "ADDJOB q body ")


@pytest.mark.parametrize(
    ("words", "begun", "next_words"),
    [
        ([], "addj", ["addjob"]),
        ([], "ADDJ", ["ADDJOB"]),
        (["help"], "getj", ["getjob"]),
        (["config"], "RE", ["RESETSTAT", "REWRITE"]),
        (["CONFIG", "SET"], "", []),
        (["ADDJOB"], "", []),
        (["ADDJOB", "q", "b", "0"], "re", ["replicate", "retry", "result"]),
        (["ADDJOB", "q", "b", "0", "RETRY"], "", []),
        (["ADDJOB", "q", "b", "0", "RETRY", "1"], "R", ["REPLICATE", "RESULT"]),
        (["PAUSE", "q"], "b", ["bcast"]),
        (["NOSUCH"], "", []),
    ],
)
def test_known_words_are_completed(known: Documents, words: list[str], begun: str, next_words: list[str]) -> None:
    assert [word for word, _ in known.completions(words, begun)] == next_words


def test_every_command_can_be_walked_through_by_its_own_syntax(known: Documents) -> None:
    for document in known.commands.values():
        for told in (document, *document.subcommands.values()):
            position = follow(told.arguments, [])
            assert position is not None
            assert position.hint() == told.syntax.removeprefix(told.name).strip()
            assert told.summary in told.help()


def test_help_tells_of_a_command_a_subcommand_and_a_group(known: Documents) -> None:
    assert "\n  ADDJOB queue body timeout [REPLICATE" in known.help("addjob")
    assert "\n  CONFIG SET name value" in known.help("config set")
    assert "  CONFIG GET pattern\n" in known.help("CONFIG")
    assert "\n  QLEN queue\n" in known.help("@queues")
    assert "@jobs" in known.help("")
    assert "there is no command nosuch" in known.help("nosuch")
    assert "there is no group @nosuch" in known.help("@nosuch")


# History.


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("AUTH hush", True),
        ("auth ann hush", True),
        ("2 auth hush", True),
        ('AUTH "not closed', True),
        ("HELLO 3 AUTH ann hush", True),
        ("HELLO", False),
        ("acl setuser ann on >hush", True),
        ("ACL LIST", False),
        ("CONFIG SET requirepass hush", True),
        ("config set maxmemory 1 cluster-secret hush", True),
        ("CONFIG SET maxmemory 100", False),
        ("CONFIG GET requirepass", False),
        ("ADDJOB auth body 0", False),
        ("", False),
    ],
)
def test_lines_with_passwords_are_known(line: str, *, secret: bool) -> None:
    assert is_secret(line) is secret
