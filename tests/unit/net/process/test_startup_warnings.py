"""What a node says at its start of settings that are allowed, and weak."""

from pathlib import Path

import pytest

from disqued.acl import aclfile
from disqued.acl.passwords import SHORT
from disqued.acl.rules import apply
from disqued.acl.user import User
from disqued.acl.users import Users, first_default
from disqued.commands import catalogue
from disqued.commands.categories import CommandBook
from disqued.config import Config
from disqued.net.process.startup_warnings import NAMED, weak_settings

assert catalogue.MODULES
BOOK = CommandBook()
LONG = "a-password-that-is-long"
SECRET = "cluster-secret x\n"
EVERYWHERE = f"bind 0.0.0.0\nrequirepass {LONG}\n{SECRET}"


def said(text: str, *lines: str) -> list[str]:
    """What is said of these settings, with these lines in the file of users."""
    config = Config.from_text(text, "/no/such/file.conf")
    config.check()
    users = Users(first_default(config.password_digest))
    for user in aclfile.parse("\n".join(lines).encode(), Path("users.acl"), BOOK):
        users.put(user)
    return list(weak_settings(config, users))


@pytest.mark.parametrize(
    ("text", "lines", "begins"),
    [
        (
            SECRET + "bind 0.0.0.0\nrequirepass 123456789012345",
            [],
            "requirepass: the password has fewer than 16 bytes, and",
        ),
        (SECRET + "endpoint tcp:7712\nrequirepass short", [], "requirepass: the password has fewer than 16 bytes"),
        (EVERYWHERE, ["user ann on >short"], "aclfile: a password of ann has fewer than 16 bytes, and"),
        (EVERYWHERE + "aclfile x", ["user default on nopass ~* &* +@all"], "the user default needs no password, and"),
        (
            SECRET + 'requirepass x\nrename-command AUTH ""',
            [],
            "rename-command takes AUTH away, and a password is wanted: nob",
        ),
        (
            SECRET + 'requirepass x\nrename-command acl ""',
            [],
            "rename-command takes ACL away: users change by a restart",
        ),
        (
            SECRET + 'rename-command AUTH ""',
            ["user default off"],
            "rename-command takes AUTH away, and a password is wanted",
        ),
        (
            "requirepass x",
            [],
            "clients have to say who they are, or may do little, and by the cluster bus whoever is on",
        ),
        (
            "",
            ["user default on nopass ~* +@read"],
            "clients have to say who they are, or may do little, and by the cluster bus whoever is on",
        ),
        ("http-bind 0.0.0.0\nhttp-token-file x", [], "http-bind: tokens travel beyond this machine in the clear, and"),
        ("http-endpoint tcp:7780\nhttp-token-file x", [], "http-endpoint: tokens travel beyond this machine in the"),
        ("http-endpoint tcp6:7780:interface=\\:\\:\nhttp-token-file x", [], "http-endpoint: tokens travel beyond this"),
    ],
)
def test_what_is_weak_is_said_in_one_line_with_what_to_do(text: str, lines: list[str], begins: str) -> None:
    (line,) = said(text, *lines)
    assert line.startswith(begins)
    assert any(
        word in line for word in ("take ", "set cluster-secret-file", "take out", "set http-endpoint", "give it one")
    ), line


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        (EVERYWHERE, []),
        (EVERYWHERE, [f"user ann on >{LONG}", "user default off"]),
        ("bind 0.0.0.0\naclfile x", [f"user default on #{'ab' * 32}"]),
        (SECRET + "requirepass short", ["user ann on >x"]),
        ("unixsocket /run/x\nport 0\nrequirepass short\nbind 0.0.0.0", []),
        (SECRET + "endpoint tcp:7712:interface=127.0.0.1 unix:/run/x\nrequirepass short", []),
        ("bind 0.0.0.0\nrequirepass short", [f"user default on >{LONG}"]),
        ('rename-command AUTH ""\nrename-command ACL ""', []),
        (SECRET + "requirepass x\nrename-command AUTH LOGIN\nrename-command ACL USERS", []),
        ("http-endpoint ssl:7780:privateKey=k:certKey=c\nhttp-token-file x", []),
        ("http-endpoint tcp:7780:interface=127.0.0.1\nhttp-token-file x", []),
        ("http-endpoint unix:/run/http.sock\nhttp-token-file x", []),
        ("http-port 0\nhttp-bind 0.0.0.0\nhttp-token-file x", []),
        ("aclfile x", ["user default on nopass ~* &* +@all"]),
    ],
)
def test_nothing_is_said_of_what_is_in_order(text: str, lines: list[str]) -> None:
    assert said(text, *lines) == []


def test_without_auth_and_hello_nobody_gets_in() -> None:
    (line,) = said(SECRET + 'requirepass x\nrename-command AUTH ""\nrename-command HELLO ""')
    assert "wanted: nobody can get in" in line


def test_of_very_many_users_some_are_named() -> None:
    (line,) = said(EVERYWHERE, *(f"user user-{number} on >short" for number in range(NAMED + 7)))
    assert f"user-0, user-1, user-10, user-11, user-2 and {7} more has fewer" in line


def test_the_password_of_a_file_is_known_to_be_short_though_it_is_not_kept() -> None:
    config = Config.from_text("bind 0.0.0.0\nrequirepass-file x")
    for password, is_said in (("x" * (SHORT - 1), True), ("x" * SHORT, False)):
        config.use_password(password)
        lines = list(weak_settings(config, Users(first_default(config.password_digest))))
        assert [line.startswith("requirepass-file: the password has fewer") for line in lines] == [True] * is_said


def test_a_short_password_that_was_taken_away_is_nothing_to_speak_of() -> None:
    ann = apply(User(b"ann"), [b">short", f">{LONG}".encode()], BOOK)
    assert ann.has_short_password
    assert not apply(ann, [b"<short"], BOOK).has_short_password
    assert not apply(ann, [b"nopass"], BOOK).has_short_password
    assert len(apply(ann, [b"<short", b">shorter", b"<shorter", b">a"], BOOK).short) == 1, "it does not grow"
    assert ann == apply(User(b"ann"), [b"#" + digest.hex().encode() for digest in ann.digests], BOOK)


def test_secrets_on_the_command_line_are_spoken_of_and_not_shown() -> None:
    config = Config()
    url = "redis://:hush-hush@127.0.0.1"
    config.apply_arguments([("requirepass", "hush-hush"), ("cluster-secret", "hush-hush"), ("redis-url", url)])
    config.check()
    lines = list(weak_settings(config, Users(first_default(config.password_digest))))
    assert [line.partition(" stands on the command line, where every user")[0] for line in lines] == [
        "requirepass",
        "redis-url",
        "cluster-secret",
    ]
    assert lines[0].endswith("put it into a file that is yours alone, requirepass-file")
    assert not any("hush" in line for line in lines)


@pytest.mark.parametrize(("mode", "is_said"), [(0o644, True), (0o640, False)])
def test_a_file_with_a_secret_that_everybody_may_read_is_spoken_of(tmp_path: Path, mode: int, is_said: bool) -> None:
    main, more = tmp_path / "disqued.conf", tmp_path / "more.conf"
    main.write_text(f"include {more}\nmaxmemory 1gb\n")
    more.write_text(f"{SECRET}requirepass {LONG}\n")
    more.chmod(mode)
    config = Config.from_file(main)
    lines = list(weak_settings(config, Users(first_default(config.password_digest))))
    told = f": every user of this machine may read {more}: chmod o-rwx, or put it into a file that is yours alone, "
    expected = [f"{name}{told}{name}-file" for name in ("requirepass", "cluster-secret")]
    assert lines == (expected if is_said else [])
    config.set("requirepass", "another-one-that-is-long")
    assert len(list(weak_settings(config, Users(first_default(config.password_digest))))) == is_said
