"""`disqued cli` prints what redis-cli prints, byte for byte: of replies of every form, and of a real node."""

import json
import re
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from disqued.client.tls import Tls
from disqued.tools.cli.redis_options import target_by
from disqued.tools.connecting import Target
from tests.integration.daemon import HOST, LIMIT, Daemon, environment

OURS = (sys.executable, "-m", "disqued.cli", "cli")
THEIRS = ("redis-cli",)

#: Replies as they are sent, by what they are.
REPLIES = {
    "status": b"+OK\r\n",
    "empty status": b"+\r\n",
    "error": b"-ERR why not\r\n",
    "integer": b":5\r\n",
    "negative": b":-12345678901\r\n",
    "string": b"$5\r\nhello\r\n",
    "empty string": b"$0\r\n\r\n",
    "all bytes": b"$256\r\n%b\r\n" % bytes(range(256)),
    "text": '$15\r\nzwölf "Jobs\\"\n\r\n'.encode(),
    "lines": b"$11\r\none\r\ntwo\n\tx\r\n",
    "nil": b"$-1\r\n",
    "nil array": b"*-1\r\n",
    "empty array": b"*0\r\n",
    "array": b"*3\r\n:1\r\n$1\r\na\r\n+b\r\n",
    "array with errors and nils": b"*4\r\n-ERR x\r\n$-1\r\n*-1\r\n*0\r\n",
    "jobs": b"*2\r\n*3\r\n$1\r\nq\r\n$2\r\nid\r\n$1\r\nx\r\n*3\r\n$1\r\nq\r\n$2\r\nid\r\n$1\r\ny\r\n",
    "many": b"*12\r\n" + b"".join(b"*2\r\n:%d\r\n*1\r\n$1\r\n\n\r\n" % number for number in range(12)),
    "deep": b"*1\r\n" * 6 + b"*2\r\n:1\r\n:2\r\n",
}
#: Those that only RESP3 has.
REPLIES_3 = {
    "null": b"_\r\n",
    "true": b"#t\r\n",
    "false": b"#f\r\n",
    "double": b",1.5\r\n",
    "whole double": b",10\r\n",
    "verbatim": b"=15\r\ntxt:Some string\r\n",
    "map": b"%2\r\n$1\r\na\r\n:1\r\n+b\r\n*2\r\n:2\r\n:3\r\n",
    "map of maps": b"%1\r\n$1\r\na\r\n%2\r\n+x\r\n_\r\n+y\r\n%1\r\n:1\r\n#t\r\n",
    "map with other keys": b"%2\r\n:1\r\n+x\r\n#t\r\n+y\r\n",
    "map of aggregates": b"%2\r\n+a\r\n*1\r\n*2\r\n:1\r\n:2\r\n%1\r\n+x\r\n:1\r\n~1\r\n:1\r\n",
    "map of lines": b"%1\r\n+b\r\n=9\r\ntxt:x\nyyy\r\n",
    "empty map": b"%0\r\n",
    "set": b"~3\r\n:1\r\n$1\r\nb\r\n,0.5\r\n",
    "empty set": b"~0\r\n",
    "maps in an array": b"*2\r\n%1\r\n+a\r\n:1\r\n%1\r\n+b\r\n*1\r\n~1\r\n:1\r\n",
}
FORMS = ((), ("--no-raw",), ("--raw",), ("--csv",), ("--json",), ("--raw", "-d", ";"))


class _Answering(socketserver.StreamRequestHandler):
    """Answers `REPLY name` with what has that name."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            words = [self._word() for _ in range(int(line[1:]))]
            if words[0] == b"HELLO":
                self.wfile.write(b"%1\r\n+proto\r\n:3\r\n")
            else:
                name = words[-1].decode()
                self.wfile.write((REPLIES | REPLIES_3).get(name, b"-ERR unknown\r\n"))

    def _word(self) -> bytes:
        return self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2]


@pytest.fixture(scope="module")
def node() -> Iterator[int]:
    """A server that answers anything, while it is wanted; its port."""
    with socketserver.ThreadingTCPServer((HOST, 0), _Answering) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join(LIMIT)


def printed(program: Sequence[str], port: int, words: Sequence[str | bytes], typed: bytes = b"") -> bytes:
    """Run one of the two to its end; what it says on standard output."""
    done = subprocess.run(
        [*program, "-h", HOST, "-p", str(port), *words], input=typed, env=environment(), cwd="/", capture_output=True,
        timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.stderr == b""
    return done.stdout


def lines(names: Sequence[str]) -> bytes:
    return b"".join(b'REPLY "%b"\n' % name.encode() for name in names)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("protocol", ["-2", "-3"])
def test_replies_of_every_form_are_printed_as_redis_cli_does(node: int, form: Sequence[str], protocol: str) -> None:
    names = [*REPLIES] if protocol == "-2" else [*REPLIES, *REPLIES_3]
    typed = lines(names) + b"\n  \n3 REPLY status\nREPLY 'no such'\n"
    assert printed(OURS, node, (protocol, *form), typed) == printed(THEIRS, node, (protocol, *form), typed)


@pytest.mark.parametrize("form", FORMS)
def test_one_command_prints_the_same_as_in_a_pipe(node: int, form: Sequence[str]) -> None:
    for name in ("jobs", "error", "map of maps"):
        words = ("-3", *form, "REPLY", name)
        assert printed(OURS, node, words) == printed(THEIRS, node, words), name


LINES = (
    b"ADDJOB cli plain 0",
    b'ADDJOB cli "two words" 0',
    b"ADDJOB cli 'as \\n it \\' is' 0",
    b'ADDJOB cli "\\x00\\xff\\n\\r\\t\\a\\b\\\\\\"" 0',
    "ADDJOB cli zwölf 0".encode(),
    b"addjob   cli\tx\t0  ",
    b'ADDJOB cli "" 0',
    b"ADDJOB cli a\\nb 0",
    b'ADDJOB cli "\\q\\x4" 0',
    b'ADDJOB cli mid"quote d" 0',
)


def test_lines_are_split_as_redis_cli_splits_them(daemon: Daemon) -> None:
    for line in LINES:
        bodies = []
        for program in (OURS, THEIRS):
            [job] = printed(program, daemon.port, (), line + b"\n").split()
            with daemon.redis(decode_responses=False) as client:
                [[_, taken, body]] = client.execute_command("GETJOB", "FROM", "cli")
            assert taken == job
            bodies.append(body)
        assert bodies[0] == bodies[1], line


@pytest.mark.parametrize("form", FORMS)
def test_a_real_node_reads_the_same_in_both(daemon: Daemon, form: Sequence[str]) -> None:
    queue = f"same-{FORMS.index(form)}"
    with daemon.redis() as client:
        job = client.execute_command("ADDJOB", queue, b"\x00body\xff\n", 0, "RETRY", 0)
    # Where a form is for programs, ours is kept to for texts as well: redis-cli prints them as they are.
    texts = () if {"--csv", "--json"} & set(form) else ("INFO nosuch", "INFO keyspace")
    typed = "".join(
        f"{line}\n"
        for line in (
            "PING", "PING 'hello there'", f"QLEN {queue}", f"QPEEK {queue} 1", "HELLO", "NOSUCH", "QSTAT nobody",
            "SHOW DI", "CONFIG GET max*", "COMMAND DOCS ADDJOB CONFIG", "COMMAND INFO ADDJOB", f"ADDJOB {queue}",
            "SCAN 0", f"JSCAN QUEUE {queue}", "CLUSTER MYID", 'ECHO ""', *texts, "CONFIG SET x y",
        )
    ).encode()  # fmt: skip
    for protocol in ("-2", "-3"):
        ours = printed(OURS, daemon.port, (protocol, *form), typed)
        assert job.encode() in ours
        assert ours == printed(THEIRS, daemon.port, (protocol, *form), typed)


@pytest.mark.parametrize("name", ["INFO", "CLUSTER NODES", "CLUSTER INFO", "CLIENT LIST"])
def test_long_texts_are_shown_as_they_are_to_people_too(daemon: Daemon, name: str) -> None:
    ours, theirs = (printed(program, daemon.port, ("--no-raw", *name.split())) for program in (OURS, THEIRS))
    assert [line.partition(b":")[0] for line in re.sub(rb"\d+", b"0", ours).split(b"\n")] == [
        line.partition(b":")[0] for line in re.sub(rb"\d+", b"0", theirs).split(b"\n")
    ]


def test_arguments_are_bytes(daemon: Daemon) -> None:
    body = bytes(range(1, 256))
    job = printed(OURS, daemon.port, ("ADDJOB", "bytes", body, "0")).strip()
    with daemon.redis(decode_responses=False) as client:
        assert client.execute_command("GETJOB", "FROM", "bytes") == [[b"bytes", job, body]]


def test_the_last_argument_comes_from_standard_input(daemon: Daemon) -> None:
    body = bytes(range(256)) + b"\n"
    words = ("--no-raw", "-x", "ECHO")
    said = printed(OURS, daemon.port, words, body)
    assert b"\\x00" in said
    assert said == printed(THEIRS, daemon.port, words, body)


def test_a_form_for_programs_is_that_of_long_texts_too(daemon: Daemon) -> None:
    assert "core_build" in json.loads(printed(OURS, daemon.port, ("--json", "INFO", "server")))
    assert printed(OURS, daemon.port, ("--csv", "INFO", "server")).count(b"\n") == 1


# The options that redis-cli has.


def ours(*words: object, **variables: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*OURS, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT,
        env={**environment(), **variables}, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_a_password_that_is_not_needed_is_told_of_and_the_command_is_run(daemon: Daemon) -> None:
    at = ("-p", daemon.port)
    said = f"disqued cli: {HOST}:{daemon.port} needs no password; the one that is given is not used\n"
    assert ours(*at, "-a", "any", "PING") == (0, "PONG\n", said)
    assert ours(*at, "--pass", "any", "PING") == (0, "PONG\n", said)
    assert ours(*at, "PING", REDISCLI_AUTH="any") == (0, "PONG\n", said)
    assert ours(*at, "-a", "any", "--no-auth-warning", "PING") == (0, "PONG\n", "")
    status, out, err = ours(*at, "--user", "ann", "-a", "any", "PING")
    assert (status, out) == (1, "")
    assert "WRONGPASS" in err


def test_options_of_redis_cli_do_what_they_do_there(start: Callable[..., Daemon]) -> None:
    daemon = start()
    daemon.call("ACL", "SETUSER", "ann", "on", ">s3/cret", "~*", "+@all")
    daemon.call("CONFIG", "SET", "requirepass", "own")
    place = f"{HOST}:{daemon.port}"
    assert ours("-u", f"redis://ann:s3%2Fcret@{place}/0", "ACL", "WHOAMI") == (0, "ann\n", "")
    assert ours("-u", f"redis://:own@{place}", "-n", 0, "ACL", "WHOAMI") == (0, "default\n", "")
    assert ours("-u", f"redis://{place}", "ACL", "WHOAMI", REDISCLI_AUTH="own") == (0, "default\n", "")
    assert ours("-p", daemon.port, "-e", "NOSUCH", REDISCLI_AUTH="own")[0] == 1
    assert "invalid password" in ours("-p", daemon.port, "PING", REDISCLI_AUTH="other")[2]


def test_what_tls_needs_may_stand_beside_a_uri() -> None:
    own = Tls()
    assert target_by(Target(tls=own), "rediss://h:1", "0").tls is own


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-n", "1", "PING"), "-n 1: a node has one database, and 0 is allowed"),
        (("-u", "redis://h:1", "-p", "2", "PING"), "-u says what -p does: one of them is allowed"),
        (("-u", "h:1", "PING"), "-u: allowed are redis://USER:PASSWORD@HOST:PORT/0, rediss://... and unix:///PATH"),
        (("--tls", "-u", "redis://h:1", "PING"), "-u: `tls` is given, and a URL without TLS"),
        (("--tls", "--cacert", "/nowhere", "-u", "rediss://h:1", "PING"), "/nowhere"),
        (("-u", "http://:geheim@h:1", "PING"), "-u: 'http://h:1' names no node; the forms are"),
    ],
)
def test_options_that_do_not_fit_are_refused_with_what_is_allowed(words: Sequence[str], said: str) -> None:
    status, out, err = ours(*words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert "geheim" not in err
