"""The grammar of rules: what each makes of a user, and what it is refused with."""

import pytest

from disqued.acl import rules
from disqued.acl.passwords import digest_of
from disqued.acl.rules import RuleError, apply
from disqued.acl.user import REMEMBERED, REMEMBERED_BYTES, Pattern, User
from disqued.commands import catalogue
from disqued.commands.categories import CommandBook

assert catalogue.MODULES
BOOK = CommandBook()
HEX = digest_of(b"secret").hex()


def made(*texts: str, of: User | None = None) -> User:
    return apply(User(b"ann") if of is None else of, [text.encode() for text in texts], BOOK)


def refused(*texts: str) -> str:
    with pytest.raises(RuleError) as caught:
        made(*texts)
    return str(caught.value)


def test_a_new_user_is_off_and_may_do_nothing():
    user = User(b"ann")
    assert user.line == b"user ann off resetchannels -@all"
    assert not any((user.enabled, user.may_run("PING"), user.may_read(b"q"), user.may_write(b"q")))
    assert not user.may_listen(b"wq:q:work", is_pattern=False)


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (("on",), "on resetchannels -@all"),
        (("on", "off"), "off resetchannels -@all"),
        (("nopass",), "off nopass resetchannels -@all"),
        ((">secret",), f"off #{HEX} resetchannels -@all"),
        ((f"#{HEX}",), f"off #{HEX} resetchannels -@all"),
        ((">secret", ">secret"), f"off #{HEX} resetchannels -@all"),
        ((">secret", "nopass"), "off nopass resetchannels -@all"),
        (("nopass", ">secret"), f"off #{HEX} resetchannels -@all"),
        ((">secret", "<secret"), "off resetchannels -@all"),
        ((">secret", f"!{HEX}"), "off resetchannels -@all"),
        (("nopass", "resetpass"), "off resetchannels -@all"),
        (("~mail:*", "~x"), "off ~mail:* ~x resetchannels -@all"),
        (("~mail:*", "~mail:*"), "off ~mail:* resetchannels -@all"),
        (("%R~a", "%W~b", "%RW~c"), "off %R~a %W~b ~c resetchannels -@all"),
        (("%r~a", "%W~a"), "off ~a resetchannels -@all"),
        (("%R~*",), "off %R~* resetchannels -@all"),
        (("~a", "allkeys"), "off ~* resetchannels -@all"),
        (("~*", "resetkeys", "~a"), "off ~a resetchannels -@all"),
        (("&wq:*", "&x"), "off resetchannels &wq:* &x -@all"),
        (("&x", "allchannels"), "off &* -@all"),
        (("&*", "resetchannels"), "off resetchannels -@all"),
        (("+ping", "+config|get"), "off resetchannels -@all +ping +config|get"),
        (("+PING", "-ping"), "off resetchannels -@all -ping"),
        (("+config|get", "+config"), "off resetchannels -@all +config"),
        (("+@Read", "-getjob"), "off resetchannels -@all +@read -getjob"),
        (("allcommands", "-@admin"), "off resetchannels +@all -@admin"),
        (("+@all", "-ping", "nocommands"), "off resetchannels -@all"),
        (("+@all", "-@all", "+ping"), "off resetchannels -@all +ping"),
        (("on", ">x", "~*", "&*", "+@all", "reset"), "off resetchannels -@all"),
        (("ON", "AllKeys"), "on ~* resetchannels -@all"),
    ],
)
def test_rules_make_a_user(texts, line):
    assert made(*texts).line == f"user ann {line}".encode()


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (("",), rules.SYNTAX),
        (("foo",), rules.SYNTAX),
        (("~",), None),
        (("~a b",), rules.SYNTAX),
        (("~a\nb",), rules.SYNTAX),
        (("&a\x00b",), rules.SYNTAX),
        (("%~a",), rules.SYNTAX),
        (("%X~a",), rules.SYNTAX),
        (("%RW",), rules.SYNTAX),
        (("+nothing",), rules.UNKNOWN),
        (("+@nothing",), rules.UNKNOWN),
        (("+config|nothing",), rules.UNKNOWN),
        (("+ping|x",), rules.UNKNOWN),
        (("+config|get|x",), rules.FIRST_ARGUMENT),
        (("~*", "~a"), rules.AFTER_ALL_QUEUES),
        (("allkeys", "%R~a"), rules.AFTER_ALL_QUEUES),
        (("&*", "&a"), rules.AFTER_ALL_CHANNELS),
        (("<never",), rules.NO_SUCH_PASSWORD),
        ((f"!{HEX}",), rules.NO_SUCH_PASSWORD),
        (("#123",), rules.BAD_HASH),
        ((f"#{HEX.upper()}",), rules.BAD_HASH),
        (("!zz",), rules.BAD_HASH),
        (("(+ping ~x)",), rules.SELECTORS),
        (("clearselectors",), rules.SELECTORS),
        (("skip-sanitize-payload",), rules.SANITIZING),
        (("~" + "x" * 1_025,), "a pattern has 1024 bytes at most"),
    ],
)
def test_what_is_no_rule_is_refused_with_its_reason(texts, reason):
    if reason is None:
        assert made(*texts).queues == (Pattern(b""),)
        return
    shown = "(redacted)" if texts[-1].startswith("<") else texts[-1][1:128]
    assert refused(*texts) == f"Error in ACL SETUSER modifier '{texts[-1][:1]}{shown}': {reason}"


def test_a_password_that_is_refused_is_not_shown():
    assert "never" not in refused("<never")


@pytest.mark.parametrize(
    ("sign", "most"), [("~", rules.PATTERNS_MAX), ("&", rules.PATTERNS_MAX), (">", rules.PATTERNS_MAX)]
)
def test_a_user_has_no_more_rules_of_a_kind_than_stated(sign, most):
    user = made(*(f"{sign}{number}" for number in range(most)))
    with pytest.raises(RuleError, match="more than 1024 of a kind"):
        made(f"{sign}one more", of=user) if sign == ">" else made(f"{sign}more", of=user)


def test_a_rule_that_fails_leaves_the_user_as_it_was():
    user = made("on", "~a")
    with pytest.raises(RuleError):
        made("+@all", "~b", "nonsense", of=user)
    assert user.line == b"user ann on ~a resetchannels -@all"


def test_what_a_user_may_read_and_write_are_two_things():
    user = made("%R~seen:*", "%W~added:*", "~both:*")
    assert [user.may_read(name) for name in (b"seen:1", b"added:1", b"both:1", b"else")] == [True, False, True, False]
    assert [user.may_write(name) for name in (b"seen:1", b"added:1", b"both:1", b"else")] == [False, True, True, False]


def test_what_is_remembered_of_queues_is_bounded():
    user = made("~mail:*")
    for number in range(3 * REMEMBERED):
        assert user.may_read(b"mail:%d" % number)
        assert not user.may_write(b"other:%d" % number)
    assert user.may_read(b"mail:" + b"x" * REMEMBERED_BYTES)
    assert len(user._found) <= REMEMBERED
    assert user.may_read(b"mail:1")
    assert max(map(len, user._found)) <= REMEMBERED_BYTES
    assert not made("resetkeys", of=user).may_read(b"mail:1")


def test_a_pattern_to_listen_to_has_to_be_one_of_the_users_own():
    user = made("&wq:mail:*")
    assert user.may_listen(b"wq:mail:work", is_pattern=False)
    assert user.may_listen(b"wq:mail:*", is_pattern=True)
    assert not user.may_listen(b"wq:mail:d*", is_pattern=True)


def test_the_last_rule_that_speaks_of_a_command_counts():
    user = made("+@all", "-@dangerous", "+info", "-config", "+config|get")
    assert [user.may_run(name) for name in ("INFO", "CONFIG GET", "CONFIG SET", "SHUTDOWN", "ADDJOB")] == [
        True, True, False, False, True,
    ]  # fmt: skip


def test_only_who_may_do_everything_is_never_asked():
    everything = ("+@all", "~*", "&*")
    assert made(*everything).may_do_everything
    for left_out in everything:
        assert not made(*(rule for rule in everything if rule != left_out)).may_do_everything
    assert not made(*everything, "-debug").may_do_everything
