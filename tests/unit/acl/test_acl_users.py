"""The table of users, the file that keeps them, and the log of what was refused."""

import hmac
import os
from pathlib import Path

import pytest

from disqued.acl import aclfile
from disqued.acl.aclfile import AclFileError
from disqued.acl.denials import AUTH, CLIENT_MAX, GROUPED_MS, OBJECT_MAX, QUEUE, Denials
from disqued.acl.passwords import digest_of, is_one_of
from disqued.acl.rules import apply, is_name
from disqued.acl.user import User
from disqued.acl.users import Users, first_default, with_password
from disqued.commands import catalogue
from disqued.commands.categories import CommandBook

assert catalogue.MODULES
BOOK = CommandBook()


def user(name: bytes, *rules: bytes) -> User:
    return apply(User(name), rules, BOOK)


# The table.


def test_without_a_password_the_default_user_is_open_and_may_do_everything():
    assert first_default(b"").line == b"user default on nopass ~* &* +@all"
    assert first_default(b"").is_open
    assert first_default(b"").may_do_everything


def test_with_a_password_it_is_not_open():
    default = first_default(digest_of(b"secret"))
    assert not default.is_open
    assert default.may_do_everything
    assert with_password(default, b"").is_open
    assert with_password(default, digest_of(b"other")).digests == (digest_of(b"other"),)


@pytest.mark.parametrize(
    ("name", "password", "is_right"),
    [
        (b"ann", b"one", True),
        (b"ann", b"two", True),
        (b"ann", b"three", False),
        (b"ann", b"ONE", False),
        (b"Ann", b"one", False),
        (b"ann", b"one ", False),
        (b"ann", b"", False),
        (b"off", b"one", False),
        (b"any", b"whatever", True),
        (b"nobody", b"", False),
        (b"nobody", b"one", False),
    ],
)
def test_a_name_and_a_password_make_a_user(name, password, is_right):
    users = Users(first_default(b""))
    users.put(user(b"ann", b"on", b">one", b">two"))
    users.put(user(b"off", b">one"))
    users.put(user(b"any", b"on", b"nopass"))
    assert users.check(name, password) == (users.get(name) if is_right else None)


def test_the_default_user_is_never_removed():
    users = Users(first_default(b""))
    assert users.remove(b"default") is None
    assert users.names() == [b"default"]


def test_users_come_by_name():
    users = Users(first_default(b""))
    users.put(user(b"zoe"))
    users.put(user(b"ann"))
    assert [one.name for one in users.all()] == users.names() == [b"ann", b"default", b"zoe"]


@pytest.mark.parametrize(
    ("name", "is_one"), [(b"ann", True), (b"", False), (b"a b", False), (b"a\nb", False), (b"\0", False)]
)
def test_a_name_holds_no_blank(name, is_one):
    assert is_name(name) is is_one


def test_other_users_take_the_place_of_all_but_default():
    users = Users(first_default(b""))
    users.put(user(b"ann", b"on"))
    users.replace([user(b"bob", b"on")])
    assert users.names() == [b"bob", b"default"]
    assert users.default.may_do_everything
    users.replace([user(b"default", b"off")])
    assert not users.default.enabled
    assert users.names() == [b"default"]


def test_a_user_that_is_off_does_not_come_in_with_its_password_nor_without_one():
    users = Users(first_default(b""))
    users.put(user(b"ann", b"off", b"nopass"))
    assert users.check(b"ann", b"") is None
    users.put(user(b"ann", b">one"))
    assert users.check(b"ann", b"one") is None
    users.put(user(b"ann", b"on"))
    assert users.check(b"ann", b"") is None
    assert users.remove(b"ann") is not None
    assert users.remove(b"ann") is None


def test_every_password_is_compared_also_after_the_right_one(monkeypatch):
    compared = []

    def compare(one, other):
        compared.append(one)
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    digests = [digest_of(b"one"), digest_of(b"two")]
    assert is_one_of(digests, digests[0])
    assert compared == digests


def test_a_name_that_nobody_has_takes_one_comparison_too(monkeypatch):
    compared = []
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: compared.append(one) or one == other)
    assert Users(first_default(b"")).check(b"nobody", b"") is None
    assert len(compared) == 1


# The file.


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_what_is_saved_is_loaded_again(tmp_path):
    users = [user(b"ann", b"on", b">one", b"~mail:*", b"%R~x", b"&wq:*", b"+@read", b"-info"), first_default(b"")]
    aclfile.save(tmp_path / "users.acl", users)
    assert aclfile.load(tmp_path / "users.acl", BOOK) == users


def test_the_file_is_for_its_owner_alone_whatever_it_was_before(tmp_path):
    path = private(tmp_path / "users.acl", "")
    path.chmod(0o644)
    aclfile.save(path, [first_default(b"")])
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["users.acl"]


def test_empty_lines_and_comments_say_nothing(tmp_path):
    path = private(tmp_path / "users.acl", "# ours\n\n  user ann on\t+ping \r\n")
    assert [one.line for one in aclfile.load(path, BOOK)] == [b"user ann on resetchannels -@all +ping"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "user ann on\nann on\n",
            "line 2: this line defines no user; allowed are lines of the word user, a name, and rules",
        ),
        ("user\n", "line 1: this line defines no user; allowed are lines of the word user, a name, and rules"),
        (
            "\nuser ann +nothing\n",
            "line 2: Error in ACL SETUSER modifier '+nothing': Unknown command or category name in ACL",
        ),
        ("user ann on\nuser ann off\n", "line 2: this user has a line before; one is allowed"),
        ("user a\0b on\n", "line 1: the name is none; allowed are bytes without blanks"),
    ],
)
def test_a_bad_line_is_named(tmp_path, text, problem):
    path = private(tmp_path / "users.acl", text)
    with pytest.raises(AclFileError) as caught:
        aclfile.load(path, BOOK)
    assert str(caught.value) == f"aclfile {path}, {problem}"


def test_a_file_that_others_may_read_is_refused(tmp_path):
    path = private(tmp_path / "users.acl", "user ann on\n")
    path.chmod(0o644)
    with pytest.raises(AclFileError, match="every user of this machine may read it"):
        aclfile.load(path, BOOK)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(AclFileError, match=r"users\.acl: No such file"):
        aclfile.load(tmp_path / "users.acl", BOOK)


def test_a_file_that_is_too_long_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(aclfile, "FILE_MAX", 20)
    with pytest.raises(AclFileError, match="too long; allowed are 20 bytes"):
        aclfile.load(private(tmp_path / "users.acl", "# " + "x" * 30), BOOK)


# The log.


def test_the_same_within_a_minute_is_one_entry():
    denials = Denials(10)
    denials.note(QUEUE, b"q", b"ann", b"first", 1_000)
    denials.note(AUTH, b"AUTH", b"ann", b"between", 2_000)
    denials.note(QUEUE, b"q", b"ann", b"second", 1_000 + GROUPED_MS)
    newest, oldest = denials
    assert (newest.count, newest.client, newest.created_at, newest.updated_at) == (
        2,
        b"second",
        1_000,
        1_000 + GROUPED_MS,
    )
    assert (oldest.reason, oldest.count) == (AUTH, 1)
    assert denials.counts == {AUTH: 1, b"command": 0, QUEUE: 2, b"channel": 0}


def test_the_same_much_later_is_another_entry():
    denials = Denials(10)
    denials.note(QUEUE, b"q", b"ann", b"", 0)
    denials.note(QUEUE, b"q", b"ann", b"", GROUPED_MS + 1)
    assert [entry.id for entry in denials] == [1, 0]


def test_the_same_is_looked_for_among_the_newest_ten_alone():
    denials = Denials(100)
    for number in range(10):
        denials.note(QUEUE, b"%d" % number, b"ann", b"", 0)
    denials.note(QUEUE, b"0", b"ann", b"", 0)
    assert [entry.what for entry in denials][:2] == [b"0", b"9"]
    denials.note(QUEUE, b"10", b"ann", b"", 0)
    denials.note(QUEUE, b"1", b"ann", b"", 0)
    assert sum(entry.what == b"1" for entry in denials) == 2


@pytest.mark.parametrize("other", [(AUTH, b"q", b"ann"), (QUEUE, b"r", b"ann"), (QUEUE, b"q", b"bob")])
def test_another_reason_queue_or_user_is_another_entry(other):
    denials = Denials(10)
    denials.note(QUEUE, b"q", b"ann", b"", 0)
    denials.note(*other, b"", 0)
    assert [(entry.reason, entry.what, entry.user, entry.count) for entry in denials] == [
        (*other, 1), (QUEUE, b"q", b"ann", 1),
    ]  # fmt: skip
    denials.clear()
    assert not list(denials)


def test_what_the_log_keeps_has_the_sizes_that_the_manual_states():
    assert (OBJECT_MAX, CLIENT_MAX, GROUPED_MS) == (128, 1_024, 60_000)


def test_the_log_is_bounded_and_so_is_what_it_keeps():
    denials = Denials(2)
    for number in range(5):
        denials.note(QUEUE, b"%d" % number + b"x" * 1_000, b"u" * 1_000, b"c" * 5_000, 0)
    denials.note(QUEUE, b"4" + b"x" * 1_000, b"u" * 1_000, b"d" * 5_000, 0)
    assert [entry.client for entry in denials] == [b"d" * CLIENT_MAX, b"c" * CLIENT_MAX]
    assert [(entry.what[:1], len(entry.what), len(entry.user)) for entry in denials] == [
        (b"4", OBJECT_MAX, OBJECT_MAX), (b"3", OBJECT_MAX, OBJECT_MAX),
    ]  # fmt: skip
    denials.set_length(1)
    assert [entry.id for entry in denials] == [4]
    denials.set_length(0)
    denials.note(QUEUE, b"q", b"ann", b"", 0)
    assert not list(denials)
    assert denials.counts[QUEUE] == 7
