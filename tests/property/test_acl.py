"""Any user that rules make is made again by its own line, and no rule does anything but make or refuse a user."""

from hypothesis import given
from hypothesis import strategies as st

from disqued.acl.rules import RuleError, apply
from disqued.acl.user import User
from disqued.commands import catalogue
from disqued.commands.categories import CATEGORIES, CommandBook
from disqued.core.model import glob

assert catalogue.MODULES
BOOK = CommandBook()

WORDS = st.sampled_from([
    "on", "off", "nopass", "resetpass", "allcommands", "nocommands", "allkeys", "resetkeys", "allchannels",
    "resetchannels", "reset",
])  # fmt: skip
NAMES = st.sampled_from(sorted(name.lower().replace(" ", "|") for name in BOOK.every()))
KINDS = st.sampled_from(["@all", *(f"@{name}" for name in CATEGORIES)])
COMMANDS = st.builds(str.__add__, st.sampled_from("+-"), st.one_of(NAMES, KINDS, st.just("config"), st.just("acl")))
TEXTS = st.one_of(st.just("*"), st.text("abc*?[]:|%~&+-@\\", max_size=5))
SIGNED = st.builds(str.__add__, st.sampled_from([">", "<", "~", "%R~", "%W~", "%RW~", "&"]), TEXTS)
RULES = st.lists(st.one_of(WORDS, COMMANDS, SIGNED), max_size=20)


def made(rules: list[str]) -> User:
    """The user that those of the rules make which are not refused, one after the other."""
    user = User(b"ann")
    for rule in rules:
        try:
            user = apply(user, [rule.encode()], BOOK)
        except RuleError:
            continue
    return user


@given(RULES)
def test_a_user_is_made_again_by_its_own_line(rules):
    user = made(rules)
    word, name, *own = user.line.split(b" ")
    assert (word, name) == (b"user", b"ann")
    assert apply(User(name), own, BOOK) == user


@given(RULES)
def test_what_is_granted_is_what_the_rules_say_from_left_to_right(rules):
    granted: set[str] = set()
    for rule in rules:
        word = rule.lower()
        if word in ("nocommands", "-@all", "reset"):
            granted = set()
        elif word in ("allcommands", "+@all"):
            granted = set(BOOK.every())
        elif word[:2] in ("+@", "-@"):
            names = BOOK.of_category(word[2:]) or frozenset()
            granted = granted | names if word[0] == "+" else granted - names
        elif word[:1] in ("+", "-"):
            names = BOOK.called(word[1:]) or frozenset()
            granted = granted | names if word[0] == "+" else granted - names
    user = made(rules)
    assert {name for name in BOOK.every() if user.may_run(name)} == granted


QUEUE_RULES = st.one_of(
    st.sampled_from(["allkeys", "resetkeys", "reset"]),
    st.builds(str.__add__, st.sampled_from(["~", "%R~", "%W~", "%RW~"]), TEXTS),
)


@given(st.lists(QUEUE_RULES, max_size=8), st.text("abc", max_size=3))
def test_a_queue_may_be_read_and_written_by_any_pattern_since_the_last_reset(rules, queue):
    granted: list[tuple[str, str]] = []
    for rule in rules:
        rights, tilde, pattern = rule.partition("~")
        if tilde:
            granted.append((rights or "RW", pattern))
        else:
            granted = [("RW", "*")] if rule == "allkeys" else []
    user = made(rules)
    for may, right in ((user.may_read, "R"), (user.may_write, "W")):
        assert may(queue.encode()) == any(
            right in rights and glob.matches(pattern.encode(), queue.encode()) for rights, pattern in granted
        )


@given(st.lists(st.binary(max_size=12), max_size=5))
def test_no_bytes_do_anything_but_make_or_refuse_a_user(rules):
    try:
        user = apply(User(b"ann"), rules, BOOK)
    except RuleError:
        return
    assert apply(User(b"ann"), user.line.split(b" ")[2:], BOOK) == user
