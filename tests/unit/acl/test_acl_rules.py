"""The grammar of rules: what each makes of a user, and what it is refused with."""

import pytest

from disqued.acl import rules
from disqued.acl.passwords import digest_of
from disqued.acl.rules import RuleError, apply
from disqued.acl.user import REMEMBERED, REMEMBERED_BYTES, Pattern, User, _found
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
        (("%R~*", "%W~*"), "off ~* resetchannels -@all"),
        (("~*", "%RW~*", "~*"), "off ~* resetchannels -@all"),
        (("%R~a", "%W~b", "%W~a"), "off ~a %W~b resetchannels -@all"),
        (("~a", "%R~a"), "off ~a resetchannels -@all"),
        (("~a", "~*", "resetkeys"), "off resetchannels -@all"),
        (("&x", "&*", "resetchannels"), "off resetchannels -@all"),
        (("&x", "&x"), "off resetchannels &x -@all"),
        (("&*", "&*"), "off &* -@all"),
        (("~a", "allkeys"), "off ~* resetchannels -@all"),
        (("~*", "resetkeys", "~a"), "off ~a resetchannels -@all"),
        (("&wq:*", "&x"), "off resetchannels &wq:* &x -@all"),
        (("&x", "allchannels"), "off &* -@all"),
        (("&*", "resetchannels"), "off resetchannels -@all"),
        (("+ping", "+config|get"), "off resetchannels -@all +ping +config|get"),
        (("+PING", "-ping"), "off resetchannels -@all -ping"),
        (("+config|get", "+config"), "off resetchannels -@all +config"),
        (("+rq.pushx", "-rq.push"), "off resetchannels -@all +rq.pushx -rq.push"),
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
        (("allkeys", "%R~*"), rules.AFTER_ALL_QUEUES),
        (("%R~*", "%W~*", "%W~*"), rules.AFTER_ALL_QUEUES),
        (("&*", "&a"), rules.AFTER_ALL_CHANNELS),
        (("<never",), rules.NO_SUCH_PASSWORD),
        ((f"!{HEX}",), rules.NO_SUCH_PASSWORD),
        (("#123",), rules.BAD_HASH),
        ((f"#{HEX.upper()}",), rules.BAD_HASH),
        ((f"#{HEX}0",), rules.BAD_HASH),
        ((f"#0{HEX}",), rules.BAD_HASH),
        ((f"#{HEX}\n",), rules.BAD_HASH),
        ((f"#{HEX[:-1]}g",), rules.BAD_HASH),
        (("!zz",), rules.BAD_HASH),
        (("(+ping ~x)",), rules.SELECTORS),
        (("clearselectors",), rules.SELECTORS),
        (("skip-sanitize-payload",), rules.SANITIZING),
        (("Sanitize-Payload",), rules.SANITIZING),
        (("ClearSelectors",), rules.SELECTORS),
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
    user = made(*(f">{number}" for number in range(rules.PATTERNS_MAX)))
    with pytest.raises(RuleError) as caught:
        made(">never", of=user)
    assert str(caught.value).startswith("Error in ACL SETUSER modifier '>(redacted)': ")


def test_a_rule_that_is_no_text_is_shown_as_the_bytes_that_it_has():
    with pytest.raises(RuleError) as caught:
        apply(User(b"ann"), [b"+\xffnothing"], BOOK)
    assert str(caught.value) == f"Error in ACL SETUSER modifier '+\udcffnothing': {rules.UNKNOWN}"


def test_the_bounds_of_rules_are_those_that_the_manual_states():
    assert (rules.COMMAND_RULES_MAX, rules.PATTERNS_MAX, rules.PATTERN_BYTES_MAX, rules.SHOWN_MAX) == (
        1_024, 1_024, 1_024, 128,
    )  # fmt: skip
    assert made("~" + "x" * 1_024).may_read(b"x" * 1_024)
    assert made("&" + "x" * 1_024).may_listen(b"x" * 1_024, is_pattern=False)
    assert refused("&" + "x" * 1_025).endswith("a pattern has 1024 bytes at most")


def test_names_and_passwords_are_in_their_own_case_and_words_of_rules_in_any():
    user = made(">Secret", "ON", "+PING")
    assert user.digests == (digest_of(b"Secret"),)
    assert refused("<secret").endswith(rules.NO_SUCH_PASSWORD)
    assert made("~A", "&A", of=user).line.endswith(b" ~A resetchannels &A -@all +ping")


def test_rules_on_commands_are_bounded_too(monkeypatch):
    monkeypatch.setattr(rules, "COMMAND_RULES_MAX", 2)
    user = made("+ping", "+info")
    assert made("-ping", of=user).command_rules == b"-@all +info -ping"
    with pytest.raises(RuleError, match="fewer, wider rules are allowed"):
        made("+addjob", of=user)


def test_a_rule_about_a_command_ends_those_about_its_subcommands_and_no_others():
    user = made("+config|get", "+config|set", "+client|list", "+config")
    assert user.command_rules == b"-@all +client|list +config"
    assert made("-config|get", of=user).command_rules == b"-@all +client|list +config -config|get"
    assert [user.may_run(name) for name in ("CONFIG GET", "CONFIG REWRITE", "CLIENT LIST", "CLIENT KILL")] == [
        True, True, True, False,
    ]  # fmt: skip


def test_a_command_withdrawn_from_some_leaves_the_others():
    user = made("+@read", "-getjob")
    assert not user.may_run("GETJOB")
    assert user.may_run("QLEN")
    assert not made("+getjob", "-@read", of=user).may_run("QLEN")
    assert not made("+@all", "-getjob", "-@all", "+ping", of=user).may_run("QLEN")


def test_passwords_are_withdrawn_one_by_one():
    user = made(">one", ">two", ">three", "<two")
    assert user.digests == (digest_of(b"one"), digest_of(b"three"))
    assert made(f"!{digest_of(b'one').hex()}", of=user).digests == (digest_of(b"three"),)


def test_a_password_that_others_had_before_it_makes_no_new_one_and_needs_no_room(monkeypatch):
    monkeypatch.setattr(rules, "PATTERNS_MAX", 2)
    user = made("nopass", ">one", ">two")
    assert made(">one", of=made("nopass", of=user)).digests == (digest_of(b"one"),)
    assert made(">one", of=user).digests == user.digests
    assert not made(">one", of=user).nopass


def test_a_short_password_is_known_while_it_is_one_of_the_users():
    user = made(">short", ">" + "x" * 16)
    assert user.has_short_password
    assert not made("<short", of=user).has_short_password
    assert not made(">" + "x" * 16).has_short_password
    assert made(">" + "x" * 15).has_short_password
    assert not made(f"#{HEX}").has_short_password
    assert made(f"#{HEX}", ">secret").has_short_password
    twice = made(">one", ">two", "<one")
    assert twice.has_short_password
    assert not made("<two", of=twice).has_short_password


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


@pytest.mark.parametrize("name", [b"mail:1", b"MAIL:1", b"xMail:1", b"Mail", b"Mail:", b"Mail:12", b"Mail:1\n"])
def test_a_pattern_is_for_whole_names_in_their_own_case(name):
    user = made("~Mail:?", "&Mail:?")
    assert user.may_read(b"Mail:1")
    assert user.may_write(b"Mail:1")
    assert user.may_listen(b"Mail:1", is_pattern=False)
    assert not user.may_read(name)
    assert not user.may_write(name)
    assert not user.may_listen(name, is_pattern=False)
    assert user.may_listen(b"Mail:?", is_pattern=True)
    assert not user.may_listen(b"mail:?", is_pattern=True)


def test_what_is_remembered_of_queues_is_bounded():
    user = made("~mail:*")
    for number in range(3 * REMEMBERED):
        assert user.may_read(b"mail:%d" % number)
        assert not user.may_write(b"other:%d" % number)
        assert len(_found) <= REMEMBERED
    assert user.may_read(b"mail:" + b"x" * REMEMBERED_BYTES)
    assert user.may_read(b"mail:" + b"x" * (REMEMBERED_BYTES - 5))
    assert user.may_read(b"mail:1")
    assert user.may_read(b"mail:2")
    assert 2 <= len(_found) <= REMEMBERED
    assert max(len(name) for _, name in _found) == REMEMBERED_BYTES
    assert not made("resetkeys", of=user).may_read(b"mail:1")


def test_a_pattern_to_listen_to_has_to_be_one_of_the_users_own():
    user = made("&wq:mail:*")
    assert user.may_listen(b"wq:mail:work", is_pattern=False)
    assert user.may_listen(b"wq:mail:*", is_pattern=True)
    assert not user.may_listen(b"wq:mail:d*", is_pattern=True)
    assert not user.may_listen(b"wq:other", is_pattern=False)
    for wide in ("&*", "allchannels"):
        assert made(wide).may_listen(b"wq:other", is_pattern=False)
        assert made(wide).may_listen(b"wq:*", is_pattern=True)


def test_rights_on_queues_and_on_channels_do_not_mix():
    queues, channels = made("~mail:*"), made("&mail:*")
    assert not queues.may_listen(b"mail:1", is_pattern=False)
    assert not channels.may_read(b"mail:1")
    assert not channels.may_write(b"mail:1")
    assert not made("~*").may_listen(b"mail:1", is_pattern=False)
    assert not made("&*").may_read(b"mail:1")


def test_what_was_found_out_of_a_queue_is_forgotten_with_a_rule_about_queues():
    user = made("~mail:1")
    assert (user.may_read(b"mail:2"), user.may_read(b"mail:1")) == (False, True)
    wider = made("%R~mail:*", of=user)
    assert (wider.may_read(b"mail:2"), wider.may_write(b"mail:2"), wider.may_write(b"mail:1")) == (True, False, True)
    assert not made("resetkeys", "%R~mail:*", of=wider).may_write(b"mail:1")


def test_a_user_is_open_only_while_it_is_on_and_needs_no_password():
    assert made("on", "nopass").is_open
    assert not made("nopass").is_open
    assert not made("on").is_open
    assert not made("on", "nopass", ">x").is_open


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
