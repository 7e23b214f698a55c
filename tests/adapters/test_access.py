"""Users on live connections: what a change does to those who are there, and who is let in at the door."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hiredis
import pytest
import pytest_twisted
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from disqued.acl.attempts import BURST
from disqued.commands.categories import CATEGORIES
from disqued.commands.table import Command
from disqued.config import Config
from disqued.net.clients.access import DENIED, is_loopback
from disqued.net.clients.input_queue import CHUNKS_MAX
from disqued.net.clients.unauthenticated import UnauthenticatedClients
from disqued.net.process.secrets import read_password, renew_password
from tests.adapters.inprocess import RawClient, Running, pack, wait_until

Launch = Callable[..., Running]
async_test = pytest_twisted.ensureDeferred
PASSWORD = "requirepass secret"
EVERYTHING = ("on", ">pw", "allkeys", "allchannels", "allcommands")


async def user(running: Running, name: str, *rules: str) -> RawClient:
    """Make a user, and a connection of it."""
    admin = await running.connect()
    if not running.daemon.access.is_open:
        assert await admin.call("AUTH", "secret") == b"OK"
    assert await admin.call("ACL", "SETUSER", name, *rules) == b"OK"
    client = await running.connect()
    assert await client.call("AUTH", name, "pw") == b"OK"
    return client


async def administrator(running: Running) -> RawClient:
    client = await running.connect()
    if not running.daemon.access.is_open:
        await client.call("AUTH", "secret")
    return client


def said(reply: Any) -> str:
    """The line of an error."""
    assert isinstance(reply, hiredis.ReplyError), reply
    return str(reply)


# What it costs.


@async_test
async def test_who_may_do_everything_is_never_asked(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    running = launch(settings=PASSWORD)
    admin, limited = await user(running, "root", *EVERYTHING), await user(running, "ann", *EVERYTHING, "-debug")
    asked: list[str] = []
    admit = running.daemon.access.admit

    def admitting(who: Any, entry: Command) -> None:
        asked.append(entry.name)
        admit(who, entry)

    monkeypatch.setattr(running.daemon.access, "admit", admitting)
    assert (await admin.call("ADDJOB", "q", "x", 0)).startswith(b"DI")
    assert asked == []
    assert await limited.call("QLEN", "q") == 1
    assert asked == ["QLEN"]


# Changes.


@async_test
async def test_rights_count_from_the_next_command_on(launch: Launch) -> None:
    running = launch()
    ann = await user(running, "ann", "on", ">pw", "~mine", "+@all")
    admin = await administrator(running)
    assert said(await ann.call("QLEN", "theirs")) == "NOPERM User ann has no permissions to access the 'theirs' queue"
    await admin.call("ACL", "SETUSER", "ann", "~theirs", "-qlen")
    assert said(await ann.call("QLEN", "theirs")) == "NOPERM User ann has no permissions to run the 'qlen' command"
    assert (await ann.call("ADDJOB", "theirs", "x", 0)).startswith(b"DI")


def log_in(how: str, name: str, password: str) -> tuple[str, ...]:
    """The words with which a client becomes a user."""
    return ("AUTH", name, password) if how == "AUTH" else (*how.split(), "AUTH", name, password)


@pytest.mark.parametrize("how", ["AUTH", "HELLO 2", "HELLO 3"])
@async_test
async def test_names_and_passwords_of_users_are_in_their_own_case(launch: Launch, how: str) -> None:
    running = launch()
    admin = await administrator(running)
    for name, queue in (("Bob", "upper"), ("bob", "lower")):
        rules = ("on", f">{name}-PassWord", f"~{queue}", "+qlen", "+acl|whoami", "+auth")
        assert await admin.call("ACL", "SETUSER", name, *rules) == b"OK"
    assert await admin.call("ACL", "USERS") == [b"Bob", b"bob", b"default"]
    for name, other, own, others in (("Bob", "bob", "upper", "lower"), ("bob", "Bob", "lower", "upper")):
        client = await running.connect()
        for wrong in (
            log_in(how, other, f"{name}-PassWord"),
            log_in(how, name.upper(), f"{name}-PassWord"),
            log_in(how, name, f"{name}-password"),
            log_in(how, name, f"{name}-PASSWORD"),
        ):
            assert said(await client.call(*wrong)).startswith("WRONGPASS")
        assert not isinstance(await client.call(*log_in(how, name, f"{name}-PassWord")), hiredis.ReplyError)
        assert await client.call("ACL", "WHOAMI") == name.encode()
        assert await client.call("QLEN", own) == 0
        assert said(await client.call("QLEN", others)) == (
            f"NOPERM User {name} has no permissions to access the '{others}' queue"
        )
        assert await admin.call("ACL", "DRYRUN", name, "QLEN", own) == b"OK"
        assert f"user={name} " in (await admin.call("CLIENT", "LIST")).decode()
    before = await admin.call("ACL", "LIST")
    assert await admin.call("ACL", "SETUSER", "Bob", "+qstat") == b"OK"
    assert await admin.call("ACL", "LIST") == [before[0] + b" +qstat", *before[1:]]
    assert await admin.call("ACL", "GETUSER", "BOB") is None
    assert await admin.call("ACL", "DELUSER", "BOB", "Bob") == 1
    assert await admin.call("ACL", "USERS") == [b"bob", b"default"]
    assert said(await admin.call("ACL", "DRYRUN", "Bob", "QLEN", "upper")) == "ERR User 'Bob' not found"


@async_test
async def test_names_of_queues_and_channels_in_rules_are_in_their_own_case(launch: Launch) -> None:
    running = launch()
    ann = await user(running, "ann", "on", ">pw", "~Mail*", "&News*", "+@all")
    assert await ann.call("QLEN", "Mailbox") == 0
    for queue in ("mailbox", "MAILBOX", "aMail", "mail"):
        assert said(await ann.call("QLEN", queue)).startswith("NOPERM")
    for channel in ("news", "NEWS", "aNews"):
        assert said(await ann.call("SUBSCRIBE", channel)).startswith("NOPERM")
    assert not isinstance(await ann.call("SUBSCRIBE", "News"), hiredis.ReplyError)


@async_test
async def test_a_change_in_the_middle_of_a_pipeline_counts_at_once(launch: Launch) -> None:
    running = launch()
    ann = await user(running, "ann", *EVERYTHING)
    ann.transport.write(pack("PING") + pack("ACL", "SETUSER", "ann", "resetkeys") + pack("QLEN", "q") + pack("PING"))
    first, done, refused, last = await ann.replies(4)
    assert (first, done, last) == (b"PONG", b"OK", b"PONG")
    assert said(refused).startswith("NOPERM")


@async_test
async def test_a_user_who_is_deleted_or_turned_off_is_gone(launch: Launch) -> None:
    running = launch()
    admin = await administrator(running)
    for words in (("ACL", "DELUSER", "ann"), ("ACL", "SETUSER", "ann", "off")):
        ann, other = await user(running, "ann", *EVERYTHING), await user(running, "bob", *EVERYTHING)
        waiting = await running.connect()
        await waiting.call("AUTH", "ann", "pw")
        waiting.send("GETJOB", "FROM", "q")
        await wait_until(lambda: bool(running.daemon.node.state.waiting.blocked))
        await admin.call(*words)
        await ann.closed()
        await waiting.closed()
        assert not running.daemon.node.state.waiting.blocked
        assert await other.call("PING") == b"PONG"
        assert said(await other.call("AUTH", "ann", "pw")).startswith("WRONGPASS")


@async_test
async def test_who_deletes_itself_hears_the_reply(launch: Launch) -> None:
    running = launch()
    ann = await user(running, "ann", *EVERYTHING)
    ann.transport.write(pack("ACL", "DELUSER", "ann") + pack("ADDJOB", "q", "x", 0))
    assert await ann.replies(1) == [1]
    await ann.closed()
    assert len(running.daemon.node.state.jobs) == 0


@async_test
async def test_who_waits_listens_or_watches_is_ended_when_its_rights_change(launch: Launch) -> None:
    running = launch()
    admin = await administrator(running)
    consumer = await user(running, "ann", "on", ">pw", "~q", "&wq:q:*", "+@all")
    consumer.send("GETJOB", "FROM", "q")
    listener, idle = await running.connect(), await running.connect()
    for client in (listener, idle):
        await client.call("AUTH", "ann", "pw")
    await listener.call("SUBSCRIBE", "wq:q:work")
    await wait_until(lambda: bool(running.daemon.node.state.waiting.blocked))
    # Neither a password nor a wider right ends anything.
    await admin.call("ACL", "SETUSER", "ann", ">another", "&more")
    assert running.daemon.node.state.waiting.blocked
    assert await idle.call("ACL", "WHOAMI") == b"ann"
    assert not consumer.lost
    assert not listener.lost
    await admin.call("ACL", "SETUSER", "ann", "resetkeys", "~other")
    await consumer.closed()
    assert await idle.call("QLEN", "other") == 0
    await admin.call("ACL", "SETUSER", "ann", "resetchannels")
    await listener.closed()
    for words in (("QREGISTER", "other"), ("QREGISTER", "GROUP", "g", "other")):
        registered = await running.connect()
        await registered.call("AUTH", "ann", "pw")
        assert await registered.call(*words) == b"OK"
        await admin.call("ACL", "SETUSER", "ann", f"~{len(words)}")
        await registered.closed()
    watcher = await user(running, "root", *EVERYTHING)
    await watcher.call("MONITOR")
    await admin.call("ACL", "SETUSER", "root", "-monitor")
    await watcher.closed()


@pytest.mark.parametrize("rules", [("resetkeys",), ("-@fast", "-@slow"), ("nocommands",), ("-getjob",)])
@async_test
async def test_a_consumer_that_may_do_less_than_everything_waits_no_more(
    launch: Launch, rules: tuple[str, ...]
) -> None:
    running = launch()
    consumer = await user(running, "ann", *EVERYTHING)
    admin = await administrator(running)
    consumer.send("GETJOB", "FROM", "q")
    await wait_until(lambda: bool(running.daemon.node.state.waiting.blocked))
    await admin.call("ACL", "SETUSER", "ann", ">another", "resetchannels", "allchannels")
    assert not consumer.lost
    await admin.call("ACL", "SETUSER", "ann", *rules)
    await consumer.closed()
    assert not running.daemon.node.state.waiting.blocked


@async_test
async def test_a_default_user_that_gets_a_password_shuts_out_who_gave_none(launch: Launch) -> None:
    running = launch()
    admin, other, watcher = [await running.connect() for _ in range(3)]
    ann = await user(running, "ann", *EVERYTHING)
    await watcher.call("MONITOR")
    admin.transport.write(pack("ACL", "SETUSER", "default", ">secret") + pack("PING"))
    assert (await admin.replies(1)) == [b"OK"]
    assert said((await admin.replies(1))[0]).startswith("NOAUTH")
    await watcher.closed()
    assert said(await other.call("PING")).startswith("NOAUTH")
    assert await other.call("AUTH", "secret") == b"OK"
    assert await ann.call("PING") == b"PONG"
    await ann.call("ACL", "SETUSER", "default", ">more")
    assert await other.call("PING") == b"PONG"
    stranger = await running.connect()
    assert said(await stranger.call("PING")).startswith("NOAUTH")
    await ann.call("ACL", "SETUSER", "default", "nopass")
    assert await stranger.call("PING") == b"PONG"


@async_test
async def test_requirepass_is_the_password_of_the_default_user(launch: Launch) -> None:
    running = launch(settings=PASSWORD)
    admin = await administrator(running)
    assert b"nopass" not in (await admin.call("ACL", "LIST"))[0]
    assert await admin.call("CONFIG", "SET", "requirepass", "other") == b"OK"
    stranger = await running.connect()
    assert said(await stranger.call("AUTH", "default", "secret")).startswith("WRONGPASS")
    assert await stranger.call("AUTH", "default", "other") == b"OK"
    assert await admin.call("CONFIG", "SET", "requirepass", "") == b"OK"
    assert await (await running.connect()).call("PING") == b"PONG"
    assert (await admin.call("ACL", "LIST"))[0] == b"user default on nopass ~* &* +@all"


@async_test
async def test_a_limited_default_user_is_what_a_connection_is_that_says_nothing(launch: Launch) -> None:
    running = launch()
    root = await user(running, "root", *EVERYTHING)
    await root.call("ACL", "SETUSER", "default", "resetkeys", "~public", "-@dangerous")
    client = await running.connect()
    assert await client.call("QLEN", "public") == 0
    assert said(await client.call("QLEN", "private")).startswith("NOPERM")
    assert said(await client.call("ACL", "SETUSER", "default", "allkeys")).startswith("NOPERM")
    assert await client.call("AUTH", "root", "pw") == b"OK"
    assert await client.call("QLEN", "private") == 0
    assert await client.call("RESET") == b"RESET"
    assert said(await client.call("QLEN", "private")).startswith("NOPERM")


@async_test
async def test_a_file_says_who_the_default_user_is_and_else_requirepass_does(launch: Launch, tmp_path: Path) -> None:
    for text, works in (("user ann on nopass +@all\n", "secret"), ("user default on >file ~* &* +@all\n", "file")):
        path = tmp_path / f"{works}.acl"
        path.write_text(text)
        path.chmod(0o600)
        running = launch(settings=f"{PASSWORD}\naclfile {path}")
        client = await running.connect()
        for password in ("secret", "file"):
            with capturedLogs() as logged:
                reply = await client.call("AUTH", "default", password)
            assert (reply == b"OK") == (password == works)
            assert any("A wrong password" in event["log_format"] for event in logged) == (password != works)
        ignored = "the password of the settings does not count: aclfile has the user default"
        assert (ignored in running.daemon.config.warnings) == (works == "file")
        await running.stop()


@async_test
async def test_a_file_that_is_loaded_again_counts_for_the_connections_there_are(launch: Launch, tmp_path: Path) -> None:
    path = tmp_path / "users.acl"
    path.write_text("user ann on >pw ~mine +@all\nuser bob on >pw +@all\n")
    path.chmod(0o600)
    running = launch(settings=f"aclfile {path}")
    admin, ann, bob = [await running.connect() for _ in range(3)]
    for client, name in ((ann, "ann"), (bob, "bob")):
        assert await client.call("AUTH", name, "pw") == b"OK"
    path.write_text("user ann off\nuser cid on +nothing\n")
    assert "line 2: Error in ACL SETUSER modifier '+nothing'" in said(await admin.call("ACL", "LOAD"))
    assert await ann.call("QLEN", "mine") == 0
    assert await bob.call("PING") == b"PONG"
    path.write_text("user ann on >other ~theirs +@all\n")
    assert await admin.call("ACL", "LOAD") == b"OK"
    await bob.closed()
    assert await ann.call("QLEN", "theirs") == 0
    assert said(await ann.call("QLEN", "mine")).startswith("NOPERM")
    assert await admin.call("ACL", "USERS") == [b"ann", b"default"]
    assert await admin.call("ACL", "SETUSER", "ann", "reset") == b"OK"
    await ann.closed()
    assert await admin.call("ACL", "SAVE") == b"OK"
    assert path.read_text() == "user ann off resetchannels -@all\nuser default on nopass ~* &* +@all\n"


@async_test
async def test_without_a_file_of_users_there_is_none_to_load_or_save(launch: Launch) -> None:
    admin = await launch().connect()
    for word in ("LOAD", "SAVE"):
        assert said(await admin.call("ACL", word)).startswith("ERR there is no file of users")


# What the subcommands of ACL answer.


@async_test
async def test_a_user_is_described_by_its_rights(launch: Launch) -> None:
    running = launch()
    admin = await running.connect()
    await admin.call("HELLO", 3)
    await admin.call("ACL", "SETUSER", "ann", "on", ">pw", "%R~seen", "~mine", "&wq:a", "&wq:b", "-@all", "+qlen")
    assert await admin.call("ACL", "GETUSER", "ann") == {
        b"flags": [b"on"],
        b"passwords": [hashlib.sha256(b"pw").hexdigest().encode()],
        b"commands": b"-@all +qlen",
        b"keys": b"%R~seen ~mine",
        b"channels": b"&wq:a &wq:b",
        b"selectors": [],
    }
    assert await admin.call("ACL", "GETUSER", "nobody") is None
    assert await admin.call("ACL", "WHOAMI") == b"default"
    assert await admin.call("ACL", "SETUSER", "ann") == b"OK"
    unknown = "ERR Error in ACL SETUSER modifier '+nothing': Unknown command or category name in ACL"
    assert said(await admin.call("ACL", "SETUSER", "bob", "on", "+nothing")) == unknown
    assert said(await admin.call("ACL", "SETUSER", "a b")) == "ERR Usernames can't contain spaces or null characters"
    assert said(await admin.call("ACL", "DELUSER", "ann", "default")) == "ERR The 'default' user cannot be removed"
    assert await admin.call("ACL", "DELUSER", "ann", "nobody", "ann") == 1
    ann = await user(running, "ann", "on", ">pw", "+acl|whoami")
    assert await ann.call("ACL", "WHOAMI") == b"ann"
    assert said(await ann.call("ACL", "USERS")) == "NOPERM User ann has no permissions to run the 'acl|users' command"


@async_test
async def test_categories_and_their_commands_are_named(launch: Launch) -> None:
    admin = await launch().connect()
    assert await admin.call("ACL", "CAT") == [name.encode() for name in CATEGORIES]
    assert await admin.call("ACL", "CAT", "PubSub") == [b"psubscribe", b"punsubscribe", b"subscribe", b"unsubscribe"]
    assert b"config|get" in await admin.call("ACL", "CAT", "admin")
    assert said(await admin.call("ACL", "CAT", "@read")) == "ERR Unknown category '@read'"
    lines = [bytes(line) for line in await admin.call("ACL", "HELP")]
    assert lines[0] == b"ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    assert lines[1:3] == [b"CAT", b"    Name the categories of commands, or the commands of one."]
    assert len(lines) == 1 + 2 * 13


@pytest.mark.parametrize(("words", "digits"), [((), 64), ((1,), 1), ((4,), 1), ((5,), 2), ((4_096,), 1_024)])
@async_test
async def test_a_password_is_made_up_of_random_digits(launch: Launch, words: tuple[int, ...], digits: int) -> None:
    admin = await launch().connect()
    made = await admin.call("ACL", "GENPASS", *words)
    assert len(made) == digits
    assert set(made) <= set(b"0123456789abcdef")
    assert digits < 64 or await admin.call("ACL", "GENPASS", *words) != made


@async_test
async def test_a_password_has_bits_and_not_too_many(launch: Launch) -> None:
    admin = await launch().connect()
    for bits in (0, -1, 4_097, "many"):
        assert said(await admin.call("ACL", "GENPASS", bits)).endswith(
            "a positive number up to 4096 - allowed are whole numbers"
        )


@async_test
async def test_a_dry_run_says_what_the_user_would_hear_and_runs_nothing(launch: Launch) -> None:
    admin = await launch().connect()
    await admin.call("ACL", "SETUSER", "ann", "on", "~mine", "+@write", "+ping", "-addjob")
    unknown = "DI0f0c644f" + "0" * 32 + "05a0SQ"
    for words, answer in (
        (("PING",), b"OK"),
        (("PAUSE", "mine", "in"), b"OK"),
        (("ADDJOB", "mine", "x", 0), b"User ann has no permissions to run the 'addjob' command"),
        (("PAUSE", "theirs", "in"), b"User ann has no permissions to access the 'theirs' queue"),
        (("WQ.FINISH", unknown), b"Job not known in the context of this node."),
    ):
        assert await admin.call("ACL", "DRYRUN", "ann", *words) == answer
    assert said(await admin.call("ACL", "DRYRUN", "bob", "PING")) == "ERR User 'bob' not found"
    assert said(await admin.call("ACL", "DRYRUN", "ann", "NOTHING")) == "ERR Command 'NOTHING' not found"
    assert await admin.call("PAUSE", "mine", "state") == b"none"
    assert await admin.call("ACL", "LOG") == []


@pytest.mark.reference
@async_test
async def test_what_was_refused_is_in_the_log_newest_first(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    running = launch()
    ann = await user(running, "ann", "on", ">pw", "~mine", "&mine", "+@all", "-info")
    admin = await running.connect()
    await admin.call("HELLO", 3)
    wall = 1_700_000_000_000
    monkeypatch.setattr(running.daemon.node.clock, "wall", lambda: wall)
    for words in (("INFO",), ("QLEN", "theirs"), ("SUBSCRIBE", "theirs"), ("AUTH", "bob", "guess"), ("INFO",)):
        await ann.call(*words)
    newest, *others = await admin.call("ACL", "LOG")
    monkeypatch.setattr(type(running.daemon), "microseconds", lambda self: (wall + 2_500) * 1_000)
    assert [
        (entry[b"reason"], entry[b"object"], entry[b"username"], entry[b"count"]) for entry in [newest, *others]
    ] == [
        (b"command", b"info", b"ann", 2),
        (b"auth", b"AUTH", b"bob", 1),
        (b"channel", b"theirs", b"ann", 1),
        (b"key", b"theirs", b"ann", 1),
    ]
    assert newest[b"context"] == b"toplevel"
    assert newest[b"client-info"].startswith(b"id=")
    assert newest[b"timestamp-created"] == newest[b"timestamp-last-updated"] == wall
    assert [entry[b"entry-id"] for entry in [newest, *others]] == [0, 3, 2, 1]
    assert [entry[b"age-seconds"] for entry in await admin.call("ACL", "LOG", 2)] == [b"2.500"] * 2
    assert await admin.call("ACL", "LOG", 0) == await admin.call("ACL", "LOG", -1) == []
    for number in range(12):
        await ann.call("QLEN", f"theirs-{number}")
    assert len(await admin.call("ACL", "LOG")) == 10
    assert len(await admin.call("ACL", "LOG", 100)) == 16
    assert await admin.call("ACL", "LOG", "reset") == b"OK"
    assert await admin.call("ACL", "LOG") == []
    assert said(await admin.call("ACL", "LOG", "some")).endswith("count is a whole number of 64 bits, or RESET")


# Wrong passwords.


@async_test
async def test_wrong_passwords_are_slowed_per_address(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    running = launch(settings=PASSWORD)
    clock = Clock()
    monkeypatch.setattr(running.daemon.access, "_seconds", clock.seconds)
    client, before = await running.connect(), await running.connect()
    assert await before.call("AUTH", "secret") == b"OK"
    await before.call("ACL", "SETUSER", "ann", *EVERYTHING)
    for number in range(BURST):
        assert said(await client.call("AUTH", f"guess-{number}")) == "ERR invalid password"
    too_soon = "WRONGPASS too many wrong passwords from this address; try again in 6 s"
    # Even the right one is not looked at, on any connection: nothing is learned by trying it.
    # Nor does it count that a password was right for another user.
    for words in (
        ("AUTH", "guess"), ("AUTH", "ann", "pw"), ("HELLO", 3, "AUTH", "ann", "pw"), ("AUTH", "ann", "secret"),
        ("AUTH", "defaults", "ecret"),
    ):  # fmt: skip
        assert said(await (await running.connect()).call(*words)) == too_soon
    # But one that was right from here is: of many clients at one address, one cannot lock out the others.
    assert await (await running.connect()).call("AUTH", "secret") == b"OK"
    assert before.unread_replies == 0
    clock.advance(6)
    assert await client.call("AUTH", "ann", "pw") == b"OK"
    stats = (await before.call("INFO", "stats")).decode()
    assert f"acl_access_denied_auth:{BURST}\r\n" in stats
    assert "acl_access_delayed_auth:5\r\n" in stats


@async_test
async def test_who_gives_a_wrong_password_is_a_stranger_again_where_there_are_any(launch: Launch) -> None:
    running = launch(settings=PASSWORD)
    client = await administrator(running)
    assert said(await client.call("AUTH", "guess")) == "ERR invalid password"
    assert said(await client.call("PING")).startswith("NOAUTH")
    assert len(running.daemon.unauthenticated) == 1
    await running.stop()
    open_to_all = await launch().connect()
    assert said(await open_to_all.call("AUTH", "ann", "guess")).startswith("WRONGPASS")
    assert await open_to_all.call("PING") == b"PONG"


@async_test
async def test_no_password_stays_among_the_inputs_that_a_crash_report_shows(launch: Launch) -> None:
    running = launch(settings=PASSWORD)
    # Each on a connection of its own: what it sends later hides nothing for it.
    guesser, admin, maker, changer = [await running.connect() for _ in range(4)]
    await guesser.call("AUTH", "hidden-guess")
    for client in (admin, maker, changer):
        await client.call("HELLO", 3, "AUTH", "default", "secret")
    await maker.call("ACL", "SETUSER", "ann", "on", ">hidden-too")
    await changer.call("CONFIG", "SET", "requirepass", "hidden-last")
    await admin.call("ADDJOB", "q", "shown", 0)
    kept = repr(running.daemon.crashes.recent)
    assert "hidden" not in kept
    assert "secret" not in kept
    assert "shown" in kept


@async_test
async def test_the_password_of_the_file_is_kept_as_its_hash_alone(launch: Launch, tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("from a file\n")
    path.chmod(0o600)
    running = launch(settings=f"requirepass-file {path}")
    config = running.daemon.config
    read_password(config)
    assert "from a file" not in repr(vars(config))
    client, other = await running.connect(), await running.connect()
    assert await client.call("AUTH", "from a file") == b"OK"
    # Read anew, it changes nothing unless it is another one.
    await client.call("ACL", "SETUSER", "default", ">one-more")
    renew_password(config)
    assert await other.call("AUTH", "one-more") == b"OK"
    path.write_text("another\n")
    renew_password(config)
    assert said(await other.call("AUTH", "one-more")) == "ERR invalid password"
    assert await other.call("AUTH", "another") == b"OK"


# The door.


@pytest.mark.parametrize(
    ("address", "is_local"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("10.0.0.1", False), ("fe80::1%eth0", False)],
)
def test_loopback_is_this_machine(address: str, is_local: bool) -> None:
    assert is_loopback(address) is is_local


@async_test
async def test_who_opens_the_default_user_opens_it_to_this_machine_alone(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = launch(settings=PASSWORD)
    admin = await administrator(running)
    await admin.call("ACL", "SETUSER", "default", "nopass")
    assert await (await running.connect()).call("PING") == b"PONG"
    monkeypatch.setattr("disqued.net.clients.access.is_loopback", lambda address: False)
    client = await running.connect()
    assert said((await client.replies(1))[0]) == DENIED.decode()
    await client.closed()
    await admin.call("ACL", "SETUSER", "default", ">secret")
    assert await (await running.connect()).call("AUTH", "secret") == b"OK"


@async_test
async def test_a_file_of_users_that_opens_the_default_user_opens_it_to_this_machine_alone(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "users.acl"
    path.write_text("user default on nopass ~* &* +@all\n")
    path.chmod(0o600)
    running = launch(settings=f"aclfile {path}")
    assert await (await running.connect()).call("PING") == b"PONG"
    monkeypatch.setattr("disqued.net.clients.access.is_loopback", lambda address: False)
    assert said((await (await running.connect()).replies(1))[0]) == DENIED.decode()


# Strangers.


@async_test
async def test_a_stranger_who_says_nothing_is_ended(launch: Launch) -> None:
    running = launch(settings=f"{PASSWORD}\nauth-timeout 0")
    silent, half, guesser, member = [await running.connect() for _ in range(4)]
    half.transport.write(b"*2\r\n$4\r\nAUTH\r\n$6\r\nsec")
    await guesser.call("AUTH", "guess")
    await member.call("AUTH", "secret")
    assert len(running.daemon.unauthenticated) == 3
    await member.call("CONFIG", "SET", "auth-timeout", 1)
    for client in (silent, half, guesser):
        await client.closed()
    assert await member.call("PING") == b"PONG"
    assert len(running.daemon.unauthenticated) == 0
    assert "unauthenticated_clients_ended:3" in (await member.call("INFO", "stats")).decode()


class Stranger:
    """A connection, as far as `UnauthenticatedClients` looks at it."""

    address = "somewhere"
    peer: Any = SimpleNamespace(host="somewhere")
    is_ended = False

    def kill(self) -> None:
        self.is_ended = True


def test_of_strangers_from_one_address_the_log_tells_once() -> None:
    clock, config = Clock(), Config.from_text("auth-timeout 10")
    strangers = UnauthenticatedClients(config, clock)
    for _ in range(5):
        strangers.add(Stranger())
    with capturedLogs() as events:
        clock.advance(10)
    assert strangers.ended == 5
    assert len([event for event in events if "has not authenticated" in (event["log_format"] or "")]) == 1


def test_each_stranger_has_the_same_time() -> None:
    clock, config = Clock(), Config.from_text("auth-timeout 10")
    strangers = UnauthenticatedClients(config, clock)
    first, second, third = Stranger(), Stranger(), Stranger()
    strangers.add(first)
    clock.advance(4)
    strangers.add(second)
    strangers.add(first)
    clock.advance(5.5)
    strangers.add(third)
    assert not first.is_ended
    clock.advance(0.5)
    assert [one.is_ended for one in (first, second, third)] == [True, False, False]
    strangers.remove(second)
    clock.advance(9)
    assert not third.is_ended
    config.set("auth-timeout", "100")
    clock.advance(80)
    assert not third.is_ended
    config.set("auth-timeout", "20")
    clock.advance(0)
    assert third.is_ended
    assert not second.is_ended
    assert strangers.ended == 2
    assert not clock.getDelayedCalls()


@async_test
async def test_of_too_many_strangers_the_oldest_is_ended(launch: Launch) -> None:
    running = launch(settings=f"{PASSWORD}\nmax-unauthenticated-clients 3")
    member = await administrator(running)
    strangers = []
    for _ in range(5):
        strangers.append(await running.connect())
        count = min(3, len(strangers))
        await wait_until(lambda count=count: len(running.daemon.unauthenticated) == count)
    await strangers[0].closed()
    await wait_until(lambda: len(running.daemon.clients.by_id) == 4)
    for client in strangers[2:]:
        assert await client.call("AUTH", "secret") == b"OK"
    assert strangers[1].lost
    assert await member.call("PING") == b"PONG"


@async_test
async def test_strangers_do_not_fill_a_node(launch: Launch) -> None:
    running = launch(settings=f"{PASSWORD}\nmaxclients 3")
    member = await administrator(running)
    strangers = [await running.connect() for _ in range(2)]
    await wait_until(lambda: len(running.daemon.unauthenticated) == 2)
    late = await running.connect()
    assert await late.call("AUTH", "secret") == b"OK"
    await strangers[0].closed()
    another = await running.connect()
    assert await another.call("AUTH", "secret") == b"OK"
    await strangers[1].closed()
    refused = await running.connect()
    assert said((await refused.replies(1))[0]) == "ERR max number of clients reached"
    assert await member.call("PING") == b"PONG"


@async_test
async def test_counts_begin_anew_with_resetstat(launch: Launch) -> None:
    running = launch(settings=PASSWORD)
    member, guesser = await administrator(running), await running.connect()
    await guesser.call("AUTH", "guess")
    running.daemon.unauthenticated.make_room()
    await guesser.closed()
    stats = (await member.call("INFO", "stats")).decode()
    assert "acl_access_denied_auth:1" in stats
    assert "unauthenticated_clients_ended:1" in stats
    await member.call("CONFIG", "RESETSTAT")
    stats = (await member.call("INFO", "stats")).decode()
    assert "acl_access_denied_auth:0" in stats
    assert "unauthenticated_clients_ended:0" in stats


@async_test
async def test_who_is_let_in_is_no_stranger_any_more(launch: Launch) -> None:
    running = launch(settings=PASSWORD)
    client = await running.connect()
    await client.call("AUTH", "secret")
    assert len(running.daemon.unauthenticated) == 0
    await client.call("RESET")
    assert len(running.daemon.unauthenticated) == 1
    client.transport.loseConnection()
    await client.closed()
    await wait_until(lambda: len(running.daemon.unauthenticated) == 0)


@async_test
async def test_a_connection_that_gives_a_wrong_password_watches_and_hears_nothing_more(launch: Launch) -> None:
    running = launch(settings=PASSWORD)
    admin, watcher, listener = [await administrator(running) for _ in range(3)]
    await watcher.call("MONITOR")
    await listener.call("HELLO", 3)
    listener.send("PSUBSCRIBE", "wq:*")
    await listener.replies(1)
    assert await listener.call("QREGISTER", "q") == b"OK"
    for client in (watcher, listener):
        client.send("AUTH", "wrong")
    await listener.replies(1)
    while not str((await watcher.replies(1))[0]).startswith("ERR invalid password"):
        pass
    assert await admin.call("ADDJOB", "q", "the body", 0)
    assert not running.daemon.dispatch.monitors
    assert not running.daemon.pubsub.patterns
    assert not running.daemon.node.consumers.names()
    assert watcher.unread_replies == listener.unread_replies == 0


@async_test
async def test_a_connection_that_becomes_another_users_goes_on_with_what_that_one_may(launch: Launch) -> None:
    running = launch()
    admin, watcher, allowed = [await running.connect() for _ in range(3)]
    await admin.call("ACL", "SETUSER", "ann", "on", ">pw", "~mine", "&wq:mine:*", "+@all", "-monitor")
    listener = await running.connect()
    # A pattern that covers no more than the user's own is still not one of these.
    narrow = await running.connect()
    for client, pattern in ((listener, "wq:*"), (narrow, "wq:mine:a*"), (allowed, "wq:mine:*")):
        await client.call("HELLO", 3)
        client.send("PSUBSCRIBE", pattern)
        await client.replies(1)
        client.send("AUTH", "ann", "pw")
        await client.replies(1)
    assert await watcher.call("MONITOR") == b"OK"
    watcher.send("AUTH", "ann", "pw")
    await wait_until(lambda: not running.daemon.dispatch.monitors)
    assert list(running.daemon.pubsub.patterns) == [b"wq:mine:*"]
    assert await allowed.call("QREGISTER", "mine") == b"OK"
    assert await allowed.call("AUTH", "ann", "pw") == b"OK"
    assert running.daemon.node.consumers.names() == [b"mine"]
    member = await running.connect()
    assert await member.call("QREGISTER", "GROUP", "g", "theirs") == b"OK"
    assert running.daemon.node.streams.members.by_client
    assert await member.call("AUTH", "ann", "pw") == b"OK"
    assert not running.daemon.node.streams.members.by_client


WORD = 16 * 1024  #: bytes of a word that a stranger may send
KEPT = 10 * (WORD + 64) + 2 * 65_536  #: what a stranger makes a node keep: a command of ten words, and a read or two
FLOOD = b"x" * 65_536


@pytest.mark.parametrize(
    "beginning",
    [
        b"*1000000\r\n",
        b"*10\r\n$1000000\r\n",
        b"*10\r\n" + (b"$16384\r\n" + b"x" * WORD + b"\r\n") * 9 + b"$16384\r\n",
        b"x",
        pack("PING") * 1_000,
        pack("SUBSCRIBE", *(f"channel-{number}" for number in range(9))) * 100,
        pack("MONITOR") * 100,
        pack("AUTH", "x" * 10_000) * 100,
        pack("HELLO", 3, "SETNAME", "x" * 10_000) * 100,
        pack("NOTHING" + "x" * 10_000) * 100,
    ],
    ids=["words", "word", "ten words", "line", "refused", "subscribe", "monitor", "passwords", "name", "unknown"],
)
@async_test
async def test_a_stranger_makes_the_node_keep_no_more_than_stated(launch: Launch, beginning: bytes) -> None:
    running = launch(settings=PASSWORD)
    client = await running.connect()
    [session] = running.daemon.clients.sessions()
    client.transport.pauseProducing()  # what it is answered it does not read
    most = 0
    for chunk in (beginning, *[FLOOD] * 64):
        if client.lost or session.is_lost:
            break
        received = running.daemon.traffic.bytes_in
        client.transport.write(chunk)
        await wait_until(
            lambda received=received: (
                running.daemon.traffic.bytes_in > received or session.is_stalled or session.is_lost
            )
        )
        most = max(most, session.input_buffered + session.output_buffered)
        if session.is_stalled:
            break
    assert most <= KEPT
    assert not session.subscriptions
    assert not session.monitors
    assert len(session.name) == 0


@async_test
async def test_an_unauthenticated_client_is_read_no_further_while_nothing_is_run(launch: Launch) -> None:
    running = launch(settings=PASSWORD)
    admin = await running.connect()
    assert await admin.call("AUTH", "secret") == b"OK"
    assert await admin.call("CLIENT", "PAUSE", 60_000) == b"OK"
    stranger = await running.connect()
    connection = list(running.daemon.clients.by_id.values())[-1]
    session = connection.session
    stranger.transport.write(pack("PING") * 200_000)
    await wait_until(lambda: not connection._read_on)
    # What was read before, and one read more.
    assert session.input_buffered <= CHUNKS_MAX + 2 * 65_536
    assert running.daemon.clients._pause_end is not None
    running.daemon.clients._pause_end.reset(0)
    assert len(await stranger.replies(200_000)) == 200_000
    assert session.input_buffered == 0
