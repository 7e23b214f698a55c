"""Users as real clients manage and meet them: redis-py's acl_* methods, redis-cli, and a real Redis for comparison."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
import redis

from tests.integration.daemon import HOST, LIMIT, Daemon, environment, free_port
from tests.redis_server import RedisServer

Start = Callable[..., Daemon]
PROTOCOLS = pytest.mark.parametrize("protocol", [2, 3], ids=["RESP2", "RESP3"])


@pytest.fixture
def node(start: Start) -> Daemon:
    return start()


def connected(node: Daemon, user: str, password: str = "secret", **options: object) -> redis.Redis:
    """A client of a user, as redis-py comes."""
    return redis.Redis(
        HOST, node.port, username=user, password=password, retry=None, decode_responses=True, **options
    )  # fmt: skip


# redis-py.


@PROTOCOLS
def test_redis_py_makes_reads_and_forgets_users(node: Daemon, protocol: int) -> None:
    with redis.Redis(HOST, node.port, protocol=protocol, decode_responses=True) as admin:
        assert admin.acl_whoami() == "default"
        assert admin.acl_setuser(
            "ann", enabled=True, passwords=["+secret"], commands=["+addjob", "+config|get"], categories=["+@read"],
            keys=["mail:*"], channels=["wq:mail:*"],
        )  # fmt: skip
        assert admin.acl_users() == ["ann", "default"]
        described = admin.acl_getuser("ann")
        assert described["flags"] == ["on"]
        assert described["enabled"]
        assert described["keys"] == ["~mail:*"]
        assert described["channels"] == ["&wq:mail:*"]
        assert set(described["commands"]) == {"+addjob", "+config|get"}
        assert set(described["categories"]) == {"-@all", "+@read"}
        assert len(described["passwords"][0]) == 64
        assert admin.acl_list()[1] == "user default on nopass ~* &* +@all"
        assert "write" in admin.acl_cat()
        assert "addjob" in admin.acl_cat("write")
        assert len(admin.acl_genpass()) == 64
        assert len(admin.acl_genpass(5)) == 2
        assert admin.acl_dryrun("ann", "ADDJOB", "mail:1", "x", "0") == "OK"
        assert "no permissions" in admin.acl_dryrun("ann", "ADDJOB", "other", "x", "0")
        assert admin.acl_help()[0].startswith("ACL")
        assert admin.acl_getuser("nobody") is None
        assert admin.acl_deluser("ann") == 1
        assert admin.acl_users() == ["default"]


@PROTOCOLS
def test_a_user_does_what_it_may_and_no_more(node: Daemon, protocol: int) -> None:
    node.call("ACL", "SETUSER", "ann", "on", ">secret", "~mail:*", "+@all", "-@dangerous")
    with connected(node, "ann", protocol=protocol) as ann:
        assert ann.acl_whoami() == "ann"
        job = ann.execute_command("ADDJOB", "mail:1", "body", 0)
        theirs = node.call("ADDJOB", "secret", "body", 0)
        assert ann.execute_command("GETJOB", "FROM", "mail:1") == [["mail:1", job, "body"]]
        assert ann.execute_command("ACKJOB", job) == 1
        assert ann.execute_command("ACKJOB", job) == 0
        for refused in (("ADDJOB", "secret", "x", 0), ("GETJOB", "FROM", "mail:1", "secret"), ("ACKJOB", theirs)):
            named = f"the queue of the job '{theirs}'" if theirs in refused else "the 'secret' queue"
            with pytest.raises(redis.exceptions.NoPermissionError, match=f"no permissions to access {named}"):
                ann.execute_command(*refused)
        with pytest.raises(redis.exceptions.NoPermissionError, match=r"'config\|get' command"):
            ann.config_get()
        assert ann.execute_command("QSCAN") == ["0", ["mail:1"]]
    assert node.call("QLEN", "secret") == 1


@PROTOCOLS
def test_what_was_refused_is_logged(node: Daemon, protocol: int) -> None:
    node.call("ACL", "SETUSER", "ann", "on", ">secret", "~mail:*", "+@all", "-debug")
    with connected(node, "ann", protocol=protocol) as ann, redis.Redis(HOST, node.port, protocol=protocol) as admin:
        for refused in (("QLEN", "other"), ("DEBUG", "SLEEP", 0), ("SUBSCRIBE", "wq:x:work"), ("AUTH", "ann", "guess")):
            with pytest.raises(redis.exceptions.RedisError):
                ann.execute_command(*refused)
        entries = admin.acl_log()
        assert [(entry["reason"], entry["object"], entry["username"]) for entry in entries] == [
            ("auth", "AUTH", "ann"), ("channel", "wq:x:work", "ann"), ("command", "debug|sleep", "ann"),
            ("key", "other", "ann"),
        ]  # fmt: skip
        assert entries[0]["count"] == 1
        assert "ann" in str(entries[3]["client-info"])
        assert len(admin.acl_log(2)) == 2
        stats = admin.info("stats")
        assert [stats[f"acl_access_denied_{why}"] for why in ("auth", "cmd", "key", "channel")] == [1, 1, 1, 1]
        assert admin.acl_log_reset()
        assert admin.acl_log() == []


def test_a_wrong_password_and_an_unknown_user_are_refused_alike(node: Daemon) -> None:
    node.call("ACL", "SETUSER", "ann", "on", ">secret")
    node.call("ACL", "SETUSER", "off", ">secret")
    for user, password in (("ann", "guess"), ("nobody", "secret"), ("off", "secret")):
        with connected(node, user, password) as client, pytest.raises(redis.exceptions.AuthenticationError) as caught:
            client.ping()
        assert str(caught.value) == "invalid username-password pair or user is disabled."


# redis-cli.


def cli(node: Daemon, *words: str) -> str:
    """Run redis-cli to its end; returns what it printed."""
    argv = ["redis-cli", "-h", HOST, "-p", str(node.port), *words]
    done = subprocess.run(argv, capture_output=True, timeout=LIMIT, check=True, text=True)
    return done.stdout.rstrip("\n")


def test_redis_cli_works_as_a_user(node: Daemon) -> None:
    assert cli(node, "ACL", "SETUSER", "ann", "on", ">secret", "~mail", "+@all") == "OK"
    ann = ("--no-auth-warning", "--user", "ann", "--pass", "secret")
    assert cli(node, *ann, "ACL", "WHOAMI") == "ann"
    assert cli(node, *ann, "ADDJOB", "mail", "body", "0").startswith("DI")
    assert cli(node, *ann, "QLEN", "other") == "NOPERM User ann has no permissions to access the 'other' queue"
    assert cli(node, *ann, "-3", "ACL", "GETUSER", "ann").splitlines()[0].startswith("flags")
    assert "SETUSER" in cli(node, "ACL", "HELP")


# The file.


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "users.acl"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_users_of_a_file_are_there_at_the_start_and_saved_to_it(start: Start, tmp_path: Path) -> None:
    file = written(tmp_path, "# ours\nuser ann on nopass ~mail +@all\n")
    node = start("--aclfile", str(file))
    with connected(node, "ann") as ann:
        assert ann.acl_whoami() == "ann"
    node.call("ACL", "SETUSER", "bob", "on", ">secret", "+@read")
    assert node.call("ACL", "SAVE")
    assert file.stat().st_mode & 0o777 == 0o600
    assert [line.split()[1] for line in file.read_text().splitlines()] == ["ann", "bob", "default"]
    node.stop()
    again = start("--aclfile", str(file))
    assert again.call("ACL", "USERS") == ["ann", "bob", "default"]


def test_loading_takes_all_of_a_file_or_nothing(start: Start, tmp_path: Path) -> None:
    file = written(tmp_path, "user ann on nopass +@all\n")
    node = start("--aclfile", str(file))
    with connected(node, "ann") as ann:
        assert ann.ping()
        before = node.call("ACL", "LIST")
        file.write_text("user bob on nopass +@all\nuser cid on +nothing\n")
        with pytest.raises(redis.exceptions.ResponseError, match="line 2: Error in ACL SETUSER modifier"):
            node.call("ACL", "LOAD")
        assert node.call("ACL", "LIST") == before
        assert ann.ping()
        file.write_text("user bob on nopass +@all\n")
        assert node.call("ACL", "LOAD")
        assert node.call("ACL", "USERS") == ["bob", "default"]
        with pytest.raises(redis.exceptions.ConnectionError):
            ann.ping()


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        (
            "user ann on\nuser bob +nothing\n",
            0o600,
            "line 2: Error in ACL SETUSER modifier '+nothing': Unknown command",
        ),
        ("ann on\n", 0o600, "line 1: this line defines no user"),
        ("user ann on\n", 0o644, "every user of this machine may read it"),
    ],
)
def test_a_bad_file_stops_the_start_in_one_line(tmp_path: Path, text: str, mode: int, problem: str) -> None:
    file = written(tmp_path, text, mode)
    argv = [
        sys.executable, "-m", "disqued.cli", "--port", str(free_port()), "--http-port", "0", "--dir", str(tmp_path),
        "--aclfile", str(file),
    ]  # fmt: skip
    done = subprocess.run(argv, env=environment(), capture_output=True, timeout=LIMIT, check=False, text=True)
    assert done.returncode != 0
    [line] = [line for line in done.stderr.splitlines() if "aclfile" in line]
    assert line.startswith(f"disqued: aclfile {file}")
    assert problem in line


def test_without_a_file_there_is_nothing_to_load_or_save(node: Daemon) -> None:
    for word in ("LOAD", "SAVE"):
        with pytest.raises(redis.exceptions.ResponseError, match="the setting aclfile"):
            node.call("ACL", word)


def test_a_file_that_cannot_be_written_stays_as_it_was(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    file = written(folder, "user ann on nopass\n")
    node = start("--aclfile", str(file))
    folder.rename(tmp_path / "gone")
    with pytest.raises(redis.exceptions.ResponseError, match="No such file"):
        node.call("ACL", "SAVE")
    assert (tmp_path / "gone" / "users.acl").read_text() == "user ann on nopass\n"
    assert os.listdir(tmp_path / "gone") == ["users.acl"]


# Beside a real Redis.


@attrs.frozen
class Same:
    """A step that both have to answer alike."""

    words: tuple[str, ...]


@attrs.frozen
class Differs:
    """A step whose answers differ, and why."""

    words: tuple[str, ...]
    theirs: str
    ours: str
    why: str


def same(line: str) -> Same:
    return Same(tuple(line.split()))


def differs(line: str, theirs: str, ours: str, why: str) -> Differs:
    return Differs(tuple(line.split()), theirs, ours, why)


# Of several commands Redis 7.0 shows the rules in the order of a hash table, another one in each run; disqued, and
# Redis from 7.2 on, as they were said.  So no step here has two of them.
_ALLOWED = "the error says what is allowed"
_NO_INTEGER = "ERR value is not an integer or out of range"
_BITS = "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096"
_WHO = "as Redis from 7.2 on says it: the user, and not `this user`"
_HEX = "0" * 64

SCRIPT = (
    same("ACL LIST"),
    same("ACL USERS"),
    same("ACL WHOAMI"),
    same("ACL GETUSER default"),
    same("ACL GETUSER ann"),
    same("ACL SETUSER ann"),
    same("ACL GETUSER ann"),
    same("ACL SETUSER ann on >secret ~mail:* %R~seen %W~added &wq:* +ping"),
    same("ACL GETUSER ann"),
    same("ACL LIST"),
    same("ACL SETUSER ann >secret >other ~mail:*"),
    same("ACL GETUSER ann"),
    same("ACL SETUSER ann <other"),
    differs(
        "ACL SETUSER ann <other",
        "ERR Error in ACL SETUSER modifier '<other': The password you are trying to remove from the user does not "
        "exist",
        "ERR Error in ACL SETUSER modifier '<(redacted)': The password you are trying to remove from the user does not "
        "exist",
        "no error shows a password",
    ),
    same(f"ACL SETUSER ann #{_HEX}"),
    same("ACL LIST"),
    same(f"ACL SETUSER ann !{_HEX}"),
    same(f"ACL SETUSER ann !{_HEX}"),
    same("ACL SETUSER ann #123"),
    same(f"ACL SETUSER ann #{'A' * 64}"),
    same("ACL SETUSER ann nopass"),
    same("ACL LIST"),
    same("ACL SETUSER ann resetpass"),
    same("ACL SETUSER ann %R~mail:*"),
    same("ACL SETUSER ann %W~seen"),
    same("ACL LIST"),
    same("ACL SETUSER ann %X~a"),
    same("ACL SETUSER ann %~a"),
    same("ACL SETUSER ann ~*"),
    same("ACL SETUSER ann ~a"),
    same("ACL SETUSER ann ~*"),
    same("ACL LIST"),
    same("ACL SETUSER ann resetkeys allchannels"),
    same("ACL SETUSER ann &a"),
    same("ACL LIST"),
    same("ACL SETUSER ann resetchannels &a &b &a"),
    same("ACL LIST"),
    same("ACL SETUSER ann allcommands"),
    same("ACL SETUSER ann -ping"),
    same("ACL LIST"),
    same("ACL SETUSER ann +ping"),
    differs(
        "ACL GETUSER ann", "+@all", "+@all +ping",
        "what is granted anyhow stays among the rules, as in Redis from 7.2 on",
    ),
    same("ACL SETUSER ann nocommands"),
    same("ACL SETUSER ann +config|get"),
    same("ACL LIST"),
    same("ACL SETUSER ann +config"),
    same("ACL LIST"),
    same("ACL SETUSER ann -@all +info"),
    same("ACL GETUSER ann"),
    same("ACL SETUSER ann +nothing"),
    same("ACL SETUSER ann +@nothing"),
    same("ACL SETUSER ann +config|nothing"),
    same("ACL SETUSER ann +config|get|x"),
    same("ACL SETUSER ann nonsense"),
    same("ACL SETUSER ann on nonsense ~never"),
    same("ACL GETUSER ann"),
    differs(
        "ACL SETUSER ann +ping|x", "OK",
        "ERR Error in ACL SETUSER modifier '+ping|x': Unknown command or category name in ACL",
        "first arguments of commands without subcommands cannot be granted; Redis has deprecated them",
    ),
    differs(
        "ACL SETUSER ann (+ping)", "OK",
        "ERR Error in ACL SETUSER modifier '(+ping)': selectors are not supported: a second user takes other rights; "
        "allowed are rules without brackets",
        "two users take two sets of rights",
    ),
    differs(
        "ACL SETUSER ann skip-sanitize-payload", "OK",
        "ERR Error in ACL SETUSER modifier 'skip-sanitize-payload': no payload is ever restored here, so there is none "
        "to sanitize: leave the word out",
        "there is no RESTORE",
    ),
    same("ACL SETUSER ann reset"),
    differs(
        "ACL LIST", "user ann off sanitize-payload resetchannels -@all", "user ann off resetchannels -@all",
        "there is no RESTORE",
    ),
    same("ACL DELUSER ann"),
    same("ACL SETUSER ann ON AllKeys NoPass AllCommands"),
    same("ACL LIST"),
    same("ACL DELUSER default"),
    same("ACL DELUSER nobody ann ann"),
    same("ACL DELUSER"),
    same("ACL USERS"),
    same("ACL CAT nothing"),
    *(differs(f"ACL GENPASS {bits}", _BITS, f"{_BITS} - allowed are whole numbers", _ALLOWED) for bits in (0, 4_097)),
    differs("ACL GENPASS x", _NO_INTEGER, f"{_BITS} - allowed are whole numbers", _ALLOWED),
    same("ACL LOG"),
    same("ACL LOG RESET"),
    differs("ACL LOG x", _NO_INTEGER, f"{_NO_INTEGER} - count is a whole number of 64 bits, or RESET", _ALLOWED),
    same("ACL"),
    same("ACL NOTHING"),
    same("ACL SETUSER"),
    same("ACL GETUSER"),
    same("ACL WHOAMI x"),
    same("ACL DRYRUN nobody ping"),
    same("ACL SETUSER ann on nopass +ping +info ~mine"),
    same("ACL DRYRUN ann ping"),
    same("ACL DRYRUN ann nothing"),
    differs(
        "ACL DRYRUN ann echo x", "This user has no permissions to run the 'echo' command",
        "User ann has no permissions to run the 'echo' command", _WHO,
    ),
    differs(
        "ACL SETUSER bob %R", "OK", "ERR Error in ACL SETUSER modifier '%R': Syntax error",
        "there is no pattern in it; Redis 7.0 takes it for one that is empty",
    ),
    same("AUTH nobody secret"),
    same("AUTH ann secret"),
    differs(
        "ACL WHOAMI", "NOPERM this user has no permissions to run the 'acl|whoami' command",
        "NOPERM User ann has no permissions to run the 'acl|whoami' command", _WHO,
    ),
    differs(
        "ECHO x", "NOPERM this user has no permissions to run the 'echo' command",
        "NOPERM User ann has no permissions to run the 'echo' command", _WHO,
    ),
    same("PING"),
)  # fmt: skip


def spoken(client: redis.Redis, words: tuple[str, ...]) -> object:
    """What is answered: an error by its line, a map in RESP2 as it stands."""
    connection = client.connection
    assert connection is not None
    connection.send_command(*words)
    try:
        return connection.read_response()
    except (redis.exceptions.ResponseError, redis.exceptions.AuthenticationError) as error:
        words_of = {
            redis.exceptions.NoPermissionError: "NOPERM ",
            redis.exceptions.AuthenticationError: "WRONGPASS ",
        }
        return words_of.get(type(error), "ERR ") + str(error)


def _told(reply: object) -> object:
    """What a difference is told by: a text, the commands of GETUSER, the first user of LIST."""
    if not isinstance(reply, list):
        return reply
    return reply[reply.index("commands") + 1] if "commands" in reply else reply[0]


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.kill()


def test_the_grammar_is_that_of_a_real_redis(node: Daemon, real: RedisServer) -> None:
    plain = {"decode_responses": True, "protocol": 2, "single_connection_client": True, "driver_info": None}
    with redis.Redis(HOST, real.port, **plain) as theirs, redis.Redis(HOST, node.port, **plain) as ours:
        for step in SCRIPT:
            said, answered = spoken(theirs, step.words), spoken(ours, step.words)
            if isinstance(step, Same):
                assert answered == said, step.words
            else:
                assert said != answered, f"{step.words}: no difference any more ({step.why})"
                for expected, found in ((step.theirs, said), (step.ours, answered)):
                    assert _told(found) == expected, step.words
