"""The slow log: what is kept of a command, and for how long."""

import pytest

from disqued.commands import catalogue
from disqued.commands.slowlog import SlowLog, redacted, shortened
from disqued.commands.table import TABLE

assert catalogue.MODULES


def noted(log, usec=50_000, args=(b"PING",)):
    log.note(1_700_000_000, usec, list(args), b"127.0.0.1:1", b"")


def test_only_what_took_as_long_as_the_threshold_is_kept():
    log = SlowLog(10_000, 128)
    for usec in (9_999, 10_000, 10_001):
        noted(log, usec)
    assert [entry.usec for entry in log] == [10_001, 10_000]


def test_a_negative_threshold_keeps_nothing_and_0_everything():
    log = SlowLog(-1, 128)
    noted(log, 10**9)
    assert len(log) == 0
    log.threshold_us = 0
    noted(log, 0)
    assert len(log) == 1


def test_the_oldest_falls_out_and_ids_go_on_counting():
    log = SlowLog(0, 2)
    for _ in range(3):
        noted(log)
    assert [entry.id for entry in log] == [2, 1]
    log.clear()
    noted(log)
    assert [entry.id for entry in log] == [3]


def test_a_shorter_length_keeps_the_newest_and_a_longer_one_all():
    log = SlowLog(0, 4)
    for _ in range(4):
        noted(log)
    log.set_length(2)
    assert [entry.id for entry in log] == [3, 2]
    log.set_length(3)
    noted(log)
    assert [entry.id for entry in log] == [4, 3, 2]
    log.set_length(0)
    noted(log)
    assert len(log) == 0


def test_a_long_argument_is_cut_and_says_by_how_much():
    assert shortened([b"a" * 128, b"b" * 131]) == [b"a" * 128, b"b" * 128 + b"... (3 more bytes)"]


def test_of_many_arguments_32_are_kept_the_last_saying_how_many_more():
    assert len(shortened([b"x"] * 32)) == 32
    assert shortened([b"x"] * 32)[-1] == b"x"
    kept = shortened([b"x"] * 100)
    assert len(kept) == 32
    assert kept[-2:] == [b"x", b"... (69 more arguments)"]


def test_a_huge_command_leaves_a_small_entry():
    log = SlowLog(0, 1)
    noted(log, args=[b"x" * 1_000_000] * 1_000)
    assert sum(map(len, next(iter(log)).args)) < 32 * 160


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"AUTH secret", b"AUTH (redacted)"),
        (b"ACL SETUSER ann on >secret", b"ACL SETUSER (redacted) (redacted) (redacted)"),
        (b"acl dryrun ann auth secret", b"acl dryrun (redacted) (redacted) (redacted)"),
        (b"ACL LIST", b"ACL LIST"),
        (b"auth me secret", b"auth (redacted) (redacted)"),
        (b"HELLO 3 AUTH me secret SETNAME x", b"HELLO 3 AUTH (redacted) (redacted) SETNAME x"),
        (b"hello 3 auth secret", b"hello 3 auth (redacted)"),
        (b"config set Cluster-Secret x", b"config set Cluster-Secret (redacted)"),
        (b"HELLO 3 AUTH AUTH secret", b"HELLO 3 AUTH (redacted) (redacted)"),
        (b"CONFIG SET requirepass secret", b"CONFIG SET requirepass (redacted)"),
        (b"config set RequirePass secret more", b"config set RequirePass (redacted) (redacted)"),
        (b"CONFIG SET maxmemory 1gb", b"CONFIG SET maxmemory 1gb"),
        (b"CONFIG GET requirepass", b"CONFIG GET requirepass"),
        (b"ADDJOB auth secret 0", b"ADDJOB auth secret 0"),
        (b"HELLO", b"HELLO"),
        (b"CONFIG SET redis-url redis://:secret@127.0.0.1", b"CONFIG SET redis-url (redacted)"),
    ],
)
def test_passwords_are_hidden_and_nothing_else(line, shown):
    words = redacted(line.split())
    assert b" ".join(words).startswith(shown)
    assert b"secret" not in b" ".join(words) or line.startswith(b"ADDJOB")


def test_passwords_are_hidden_whatever_their_command_is_called_now(monkeypatch):
    for old, new in ((b"AUTH", b"LOGIN"), (b"CONFIG", b"SETTINGS"), (b"HELLO", b"AHOY"), (b"ACL", b"USERS")):
        monkeypatch.setitem(TABLE, new, TABLE[old])
        monkeypatch.delitem(TABLE, old)
    monkeypatch.setitem(TABLE, b"AUTH", TABLE[b"PING"])
    for line, shown in (
        (b"login secret", b"login (redacted)"),
        (b"Settings SET requirepass secret", b"Settings SET requirepass (redacted)"),
        (b"AHOY 3 AUTH me secret", b"AHOY 3 AUTH (redacted) (redacted)"),
        (b"USERS SETUSER ann >secret", b"USERS SETUSER (redacted) (redacted)"),
        # Who does not know of the new name says the old one.
        (b"AUTH secret", b"AUTH (redacted)"),
        (b"ADDJOB login secret 0", b"ADDJOB login secret 0"),
    ):
        assert b" ".join(redacted(line.split())) == shown


def test_the_log_keeps_no_password():
    log = SlowLog(0, 1)
    noted(log, args=[b"AUTH", b"secret"])
    assert next(iter(log)).args == [b"AUTH", b"(redacted)"]


def test_hiding_a_password_leaves_the_command_itself_alone():
    args = [b"AUTH", b"secret"]
    redacted(args)
    assert args == [b"AUTH", b"secret"]


def test_where_there_is_no_command_there_is_nothing_to_hide() -> None:
    assert redacted([]) == []
