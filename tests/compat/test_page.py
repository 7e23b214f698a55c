"""docs/compat.md says what is so: its first table is the table of differences, its other statements hold."""

import re
from collections.abc import Iterator

import pytest

from tests.compat.differences import DIFFERENCES
from tests.compat.playing import Client
from tests.compat.replies import fields, parse
from tests.integration.daemon import HOST, LIMIT, ROOT, Daemon, launch

PAGE = ROOT / "docs" / "compat.md"


def section(title: str) -> str:
    """The text under a heading of the page, without the heading."""
    sections = re.split(r"^## (.*)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(sections[1::2], sections[2::2], strict=True))[title]


def test_the_page_lists_every_difference_and_nothing_else() -> None:
    keys = re.findall(r"^\| `([^`]+)` \|", section("Replies that differ"), re.MULTILINE)
    assert keys == [difference.key for difference in DIFFERENCES]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Start a node that may be treated badly."""
    daemon = launch(tmp_path_factory.mktemp("page") / "data")
    yield daemon
    daemon.stop()


@pytest.fixture
def client(other: Daemon) -> Iterator[Client]:
    """Connect to it, emptied."""
    connection = Client(HOST, other.port, LIMIT)
    connection.call(b"DEBUG", b"FLUSHALL")
    yield connection
    connection.close()


def words(line: str, job_id: bytes) -> list[bytes]:
    """Cut a line into the words of a command; ``$ID`` is the job that was added last, ``~`` a blank within a word."""
    return [word.encode().replace(b"$ID", job_id).replace(b"~", b" ") for word in line.split(" ")]


ADDED = r"\+DI\w{44}SQ\r\n"
OLD_ID = "D-99352f26-S2S2NoyERI+BAbkCwqo0tHAv-05a1"
ROW = r"\*3\r\n\$1\r\nq\r\n\$48\r\n\w{48}\r\n\$1\r\nb\r\n"
NO_COPY = r"-NOREPL Not enough reachable nodes for the requested replication level"

#: What the page says, and commands with the replies (patterns) that show it.
STATEMENTS: dict[str, list[tuple[str, str]]] = {
    "ids of 1.0-rc1 are read": [(f"SHOW {OLD_ID}", r"\$-1\r\n"), (f"DELJOB {OLD_ID}", r":0\r\n")],
    "the TTL in an id is in minutes, of any parity": [
        ("ADDJOB q b 0 TTL 120 RETRY 1", r"\+DI\w{40}0002SQ\r\n"),
        ("ADDJOB q b 0 TTL 180 RETRY 0", r"\+DI\w{40}0003SQ\r\n"),
    ],
    "an unknown job that is acknowledged is ignored": [
        (f"ACKJOB {OLD_ID}", r":0\r\n"),
        ("INFO jobs", r"\$\d+\r\n# Jobs\r\nregistered_jobs:0\r\n(?s:.*)"),
    ],
    "RETRY is a tenth of the TTL, from 1 to 300 seconds": [
        *[("ADDJOB q b 0 TTL 5", ADDED), ("SHOW $ID", r"(?s).*\$5\r\nretry\r\n:1\r\n.*")],
        *[("ADDJOB q b 0 TTL 600", ADDED), ("SHOW $ID", r"(?s).*\$5\r\nretry\r\n:60\r\n.*")],
        *[("ADDJOB q b 0 TTL 6000", ADDED), ("SHOW $ID", r"(?s).*\$5\r\nretry\r\n:300\r\n.*")],
    ],
    "both grammars of the walks work": [
        ("ADDJOB q b 0", ADDED),
        ("SCAN JOB 0 STATE queued COUNT 5 MAXIDLE 3600", r"\*2\r\n\$1\r\n0\r\n\*1\r\n\+\w{48}\r\n"),
        ("JSCAN STATE queued COUNT 5 MAXIDLE 3600", r"\*2\r\n\$1\r\n0\r\n\*1\r\n\+\w{48}\r\n"),
        ("SCAN QUEUE 0 MAXIDLE 3600", r"\*2\r\n\$1\r\n0\r\n\*1\r\n\$1\r\nq\r\n"),
        ("QSCAN MAXIDLE 3600", r"\*2\r\n\$1\r\n0\r\n\*1\r\n\$1\r\nq\r\n"),
        ("SCAN 0", r"-ERR SCAN takes JOB or QUEUE, then a cursor and options\r\n"),
    ],
    "QSTAT FULL adds 28 fields at the end": [
        ("ADDJOB q b 0", ADDED),
        ("QSTAT q", r"(?s)\*20\r\n\$4\r\nname\r\n.*\$5\r\npause\r\n\$4\r\nnone\r\n"),
        (
            "QSTAT q FULL",
            (
                r"(?s)\*76\r\n.*none\r\n\$8\r\nproduced\r\n:1\r\n\$8\r\nconsumed\r\n:0\r\n\$7\r\nsources\r\n\*0\r\n.*ctime\r\n:\d+\r\n"
                r"\$12\r\npause-reason\r\n\$0\r\n\r\n\$8\r\npause-by\r\n\$0\r\n\r\n\$8\r\npause-at\r\n:0\r\n"
                r"\$10\r\npause-node\r\n\$4\r\nnone\r\n\$4\r\ndead\r\n:0\r\n\$7\r\nfailing\r\n:0\r\n"
                r"\$7\r\ndelayed\r\n:0\r\n\$6\r\ngroups\r\n:0\r\n\$13\r\nthrottled-for\r\n:0\r\n"
                r"\$8\r\ninflight\r\n:0\r\n\$14\r\ngroup-inflight\r\n:0\r\n\$4\r\nrate\r\n\$0\r\n\r\n"
                r"\$10\r\ngroup-rate\r\n\$0\r\n\r\n\$9\r\npartition\r\n\$0\r\n\r\n"
                r"\$5\r\nslots\r\n:0\r\n\$13\r\nslots-awaited\r\n:0\r\n\$7\r\nsteward\r\n\$0\r\n\r\n"
                r"\$13\r\nslots-blocked\r\n\$0\r\n\r\n"
                r"\$9\r\nin-flight\r\n:0\r\n\$9\r\nelsewhere\r\n:0\r\n\$4\r\ndone\r\n:0\r\n\$6\r\noldest\r\n:0\r\n"
                r"\$9\r\ndelivered\r\n:0\r\n"
                r"\$10\r\nslots-lost\r\n:0\r\n"
            ),
        ),
    ],
    "jobs-out counts fetches": [
        *[("ADDJOB q b 0", ADDED), ("DEQUEUE $ID", ":1\r\n"), ("ENQUEUE $ID", ":1\r\n")],
        ("QSTAT q", r"(?s).*\$7\r\njobs-in\r\n:2\r\n\$8\r\njobs-out\r\n:0\r\n.*"),
    ],
    "an acknowledged job is gone": [
        *[("ADDJOB q b 0", ADDED), ("ACKJOB $ID", ":1\r\n")],
        ("WORKING $ID", r"-NOJOB Job not known in the context of this node\.\r\n"),
    ],
    "spans of 2^31 seconds are refused": [
        ("ADDJOB q b 0 TTL 2147483648", r"-ERR TTL must be below 2147483648 seconds\r\n"),
        ("ADDJOB q b 0 RETRY 4294967296", r"-ERR RETRY must be below 2147483648 seconds\r\n"),
        ("ADDJOB q b 0 DELAY 2147483648", r"-ERR DELAY must be below 2147483648 seconds\r\n"),
        ("ADDJOB q b 0 TTL 2147483647", ADDED),
    ],
    "spans are decimals, and whole ones are told as integers": [
        ("ADDJOB q b 1e3 DELAY 0.5 RETRY .25 TTL 6e1", ADDED),
        ("SHOW $ID", r"(?s).*ttl\r\n:60\r\n.*delay\r\n\$3\r\n0\.5\r\n\$5\r\nretry\r\n\$4\r\n0\.25\r\n.*"),
        ("ADDJOB q b 0 DELAY 5.0 RETRY 1e-9 TTL 10", ADDED),
        ("SHOW $ID", r"(?s).*delay\r\n:5\r\n\$5\r\nretry\r\n\$5\r\n0\.001\r\n.*"),
        ("ADDJOB q b 0 DELAY nan", r"-ERR DELAY time must be a non negative number - allowed are seconds, .*\r\n"),
    ],
    "REPLICATE is 1 by default, and refused beyond": [
        *[("ADDJOB q b 0", ADDED), ("SHOW $ID", r"(?s).*\$4\r\nrepl\r\n:1\r\n.*")],
        ("ADDJOB q b 0 REPLICATE 2", NO_COPY + r"\r\n"),
    ],
    "PAUSE in does not stop ENQUEUE and NACK": [
        *[("ADDJOB q b 0", ADDED), ("PAUSE q in node", r"\+in\r\n")],
        *[("DEQUEUE $ID", ":1\r\n"), ("ENQUEUE $ID", ":1\r\n"), ("DEQUEUE $ID", ":1\r\n"), ("NACK $ID", ":1\r\n")],
    ],
    "a leaving node sends jobs away and says so": [
        ("CLUSTER LEAVING yes", r"\+OK\r\n"),
        (
            "ADDJOB q b 0",
            NO_COPY + r", since I'm unable to hold a copy of the message for the following reason: "
            r"I'm leaving the cluster\r\n",
        ),
        ("GETJOB NOHANG FROM q", r"\*-1\r\n"),
        ("HELLO", r"(?s).*\$3\r\n100\r\n"),
        ("CLUSTER LEAVING no", r"\+OK\r\n"),
    ],
    "memory is counted, and the ladder has its rungs at 75 and 100 %": [
        ("DEBUG STRUCTSIZE", r"\+job:480 queue:1140\r\n"),
        *[("CONFIG SET maxmemory 2180", r"\+OK\r\n"), ("ADDJOB q b 0", ADDED), ("ADDJOB q b 0", ADDED)],
        *[("ADDJOB q b 0", NO_COPY + ".*I'm out of memory\r\n"), ("ENQUEUE", ":0\r\n")],
        ("CONFIG SET maxmemory 2090", r"\+OK\r\n"),
        *[(name, r"-OOM command not allowed .*\r\n") for name in ("ADDJOB q b 0", "ENQUEUE", "NACK")],
        ("CONFIG SET maxmemory 1gb", r"\+OK\r\n"),
    ],
    "as many jobs are evicted as are needed": [
        *[("ADDJOB q b 0 RETRY 0", ADDED)] * 9,
        ("GETJOB COUNT 9 FROM q", rf"\*9\r\n({ROW}){{9}}"),
        *[("CONFIG SET maxmemory 2940", r"\+OK\r\n"), ("ENQUEUE", ":0\r\n")],
        ("INFO jobs", r"\$\d+\r\n# Jobs\r\nregistered_jobs:3\r\n(?s:.*)"),
        ("CONFIG SET maxmemory 1gb", r"\+OK\r\n"),
    ],
    "HELLO with a version is the handshake, alone it is Disque's": [
        ("HELLO 2", r"(?s)\*14\r\n\$6\r\nserver\r\n\$7\r\ndisqued\r\n.*"),
        ("HELLO", r"(?s)\*3\r\n:1\r\n\$40\r\n.*"),
        ("HELLO 4", r"-NOPROTO unsupported protocol version\r\n"),
    ],
    "what Redis clients send is answered": [
        *[("SELECT 0", r"\+OK\r\n"), ("SELECT 1", r"-ERR DB index is out of range - allowed is 0\r\n")],
        *[("CLIENT SETINFO LIB-NAME x", r"\+OK\r\n"), ("CLIENT ID", r":\d+\r\n")],
        ("CLIENT INFO", r"(?s).* qbuf-free=0 obl=0 oll=0 .* resp=2 lib-name=x lib-ver= laddr=[^ ]+\n\r\n"),
        ("AUTH default x", r"-ERR Client sent AUTH, but no password is set\r\n"),
        ("COMMAND INFO quit", r"(?s)\*1\r\n\*6\r\n\$4\r\nquit\r\n.*"),
    ],
    "passwords are hidden": [
        ("CONFIG SET slowlog-log-slower-than 0", r"\+OK\r\n"),
        ("AUTH secret", r"-ERR .*\r\n"),
        ("SLOWLOG GET 1 FULL", r"(?s)\*1\r\n\*6\r\n.*\$4\r\nAUTH\r\n\$10\r\n\(redacted\)\r\n\$\d+\r\n127.*"),
        ("CONFIG SET slowlog-log-slower-than 10000", r"\+OK\r\n"),
    ],
    "an unknown command is named with 128 bytes": [("x" * 200, rf"-ERR unknown command '{'x' * 128}'\r\n")],
    "settings refuse what would do harm": [
        ("CONFIG SET maxmemory 0", r"-ERR Invalid argument '0' for CONFIG SET 'maxmemory' - allowed are .+\r\n"),
        ("CONFIG SET cluster-node-timeout 0", r"-ERR Invalid argument '0' for .+ - allowed are .+\r\n"),
        ("CONFIG SET slowlog-log-slower-than -2", r"-ERR Invalid argument '-2' for .*\r\n"),
        ("CONFIG SET client-output-buffer-limit normal~1~2~3~normal~1~2~3", r"-ERR Invalid argument .*\r\n"),
        ("CONFIG SET dir x", r"-ERR Unsupported CONFIG parameter: dir; it can be changed only in the file .+\r\n"),
    ],
    "settings take what they did not take in 1.0-rc1": [
        *[("CONFIG SET slowlog-log-slower-than -1", r"\+OK\r\n"), ("CONFIG SET hz 1000000", r"\+OK\r\n")],
        ("CONFIG GET hz", r"(?s).*\$7\r\n1000000\r\n"),
        *[("CONFIG SET tcp-keepalive yes", r"\+OK\r\n"), ("CONFIG GET tcp-keepalive", r"(?s).*\$3\r\n300\r\n")],
        *[("CONFIG SET tcp-keepalive no", r"\+OK\r\n"), ("CONFIG GET tcp-keepalive", r"(?s).*\$1\r\n0\r\n")],
        ("CONFIG SET auto-aof-rewrite-min-size 64mb", r"\+OK\r\n"),
        ("CONFIG SET slowlog-log-slower-than 10000", r"\+OK\r\n"),
    ],
    "without a secret no other machine is called": [
        ("CLUSTER MEET 192.0.2.1 7711", r"-ERR 192\.0\.2\.1 is beyond this machine.*: set cluster-secret.*\r\n"),
        ("CLUSTER MEET 127.0.0.1 7711 70000", r"-ERR Invalid bus port specified: 70000 - allowed are 1 to 65535\r\n"),
        (f"CLUSTER COUNT-FAILURE-REPORTS {'f' * 40}", rf"-ERR Unknown node {'f' * 40}\r\n"),
    ],
    "a node can become another one": [
        *[("ADDJOB q b 0", ADDED), ("CLUSTER RESET HARD", r"\+OK\r\n"), ("QLEN q", r":0\r\n")],
        ("CLUSTER RESET", r"\+OK\r\n"),
    ],
    "what there is not cannot be rewritten": [
        ("BGREWRITEAOF", r"-ERR there is no journal to rewrite: `persistence` is none\r\n"),
    ],
    "what could end the process is not there": [
        *[
            (f"DEBUG {name}", rf"-ERR Unknown DEBUG subcommand or wrong number of arguments for '{name}'\r\n")
            for name in ("LOADAOF", "RESTART", "CRASH-AND-RECOVER", "SEGFAULT", "OOM", "ASSERT")
        ],
        *[("DEBUG SLEEP 0", r"\+OK\r\n"), ("DEBUG ERROR FOO", r"-FOO\r\n")],
    ],
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_what_the_page_says_is_so(client: Client, statement: str) -> None:
    job_id = b""
    for line, pattern in STATEMENTS[statement]:
        reply = client.call(*words(line, job_id))
        assert re.fullmatch(pattern, reply.decode("latin-1")), (line, reply)
        if reply.startswith(b"+DI"):
            job_id = reply[1:-2]


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"*1\r\n$4\nPING\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$4\r\nPINGxx", b"-ERR Protocol error: expected CRLF after bulk\r\n"),
        (b"*+1\r\n$4\r\nPING\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*01\r\n$4\r\nPING\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
        (b"x" * 65_537 + b"\n", b"-ERR Protocol error: too big inline request\r\n"),
    ],
)
def test_the_protocol_is_as_strict_as_the_page_says(client: Client, sent: bytes, answered: bytes) -> None:
    assert client.send(sent) == answered
    assert client.is_ended()


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1\r\n", b"POST /x HTTP/1.1\r\n", b"Host: localhost\r\n"])
def test_http_is_not_answered(client: Client, line: bytes) -> None:
    client.send_only(line)
    assert client.is_ended()


def test_no_byte_is_lost_after_a_bare_lf(client: Client) -> None:
    assert client.send(b"PING\nPING\r\n") == b"+PONG\r\n"
    assert client.read() == b"+PONG\r\n"


def test_before_authentication_commands_are_small(other: Daemon, client: Client) -> None:
    assert client.call(b"CONFIG", b"SET", b"requirepass", b"secret") == b"+OK\r\n"
    try:
        for words, part in ([b"PING"] * 11, b"multibulk"), ([b"PING", b"x" * 16_385], b"bulk"):
            stranger = Client(HOST, other.port, LIMIT)
            assert stranger.call(*words) == b"-ERR Protocol error: unauthenticated %b length\r\n" % part
            assert stranger.is_ended()
            stranger.close()
    finally:
        friend = Client(HOST, other.port, LIMIT)
        assert friend.call(b"AUTH", b"default", b"secret") == b"+OK\r\n"
        assert friend.call(b"CONFIG", b"SET", b"requirepass", b"") == b"+OK\r\n"
        friend.close()


def test_a_delivery_restarts_the_retry_timer(client: Client) -> None:
    job_id = client.call(b"ADDJOB", b"q", b"b", b"0", b"RETRY", b"60")[1:-2]
    assert client.call(b"DEBUG", b"SLEEP", b"0.2") == b"+OK\r\n"
    # What comes in one piece is run at one time, so that the number is exact.
    assert client.send(b"GETJOB FROM q\r\nSHOW %b\r\n" % job_id).startswith(b"*1\r\n")
    assert fields(parse(client.read()))[b"next-requeue-within"].text == b"60000"


def test_flushall_answers_a_consumer_that_waits(other: Daemon, client: Client) -> None:
    consumer = Client(HOST, other.port, LIMIT)
    consumer.send_only(b"GETJOB FROM q\r\n")
    other.wait_blocked()
    assert client.call(b"DEBUG", b"FLUSHALL") == b"+OK\r\n"
    assert consumer.read() == b"*-1\r\n"
    consumer.close()


def test_a_consumer_that_has_gone_takes_no_job(other: Daemon, client: Client) -> None:
    consumer = Client(HOST, other.port, LIMIT)
    consumer.send_only(b"GETJOB FROM q\r\n")
    other.wait_blocked()
    consumer.close()
    assert client.call(b"ADDJOB", b"q", b"b", b"0", b"RETRY", b"0").startswith(b"+DI")
    assert client.call(b"QLEN", b"q") == b":1\r\n"
