"""The grammar of rules: each makes another user of a user.

    on off                   it may come in, or not
    nopass                   any password will do; those that it had are forgotten
    resetpass                it has no password, and cannot come in until it gets one
    >word  <word             add and take away a password; #hex and !hex the same by its SHA-256
    +name -name              commands; of one with subcommands all of them
    +name|sub -name|sub      one subcommand
    +@kind -@kind            the commands of a category; @all, and allcommands, nocommands
    ~pattern  %R~  %W~  %RW~ queues by a glob pattern: read and write, or one of both; allkeys is ~*, resetkeys none
    &pattern                 channels by a glob pattern; allchannels is &*, resetchannels none
    reset                    as new: off, no password, no command, no queue, no channel

Which commands there are is told by a `CommandCatalogue`.  Redis's selectors are refused: two users take two sets
of rights.

Source: the Redis manual, "ACL"; Redis 7.0, whose error texts these are.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

import attrs

from disqued.acl.passwords import digest_of, is_hex, is_one_of, is_short
from disqued.acl.user import ANY, Pattern, User

SHOWN_MAX: Final = 128  #: bytes of a rule that an error shows
COMMAND_RULES_MAX: Final = 1_024  #: rules on commands that one user may have
PATTERNS_MAX: Final = 1_024  #: patterns of queues that one user may have; as many of channels, and of passwords
PATTERN_BYTES_MAX: Final = 1_024

UNKNOWN: Final = "Unknown command or category name in ACL"
SYNTAX: Final = "Syntax error"
AFTER_ALL_QUEUES: Final = (
    "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. "
    "Try 'resetkeys' to start with an empty list of patterns"
)
AFTER_ALL_CHANNELS: Final = (
    "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. "
    "Try 'resetchannels' to start with an empty list of channels"
)
NO_SUCH_PASSWORD: Final = "The password you are trying to remove from the user does not exist"  # noqa: S105
BAD_HASH: Final = "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
FIRST_ARGUMENT: Final = "Allowing first-arg of a subcommand is not supported"
SELECTORS: Final = "selectors are not supported: a second user takes other rights; allowed are rules without brackets"
SANITIZING: Final = "no payload is ever restored here, so there is none to sanitize: leave the word out"
TOO_MANY: Final = f"more than {PATTERNS_MAX} of a kind: fewer, wider rules are allowed"


class RuleError(Exception):
    """A rule that is none; `str()` says which, and why."""

    def __init__(self, rule: bytes, reason: str) -> None:
        self.reason = reason
        super().__init__(f"Error in ACL SETUSER modifier '{_shown(rule)}': {reason}")


class CommandCatalogue(Protocol):
    """The commands that there are."""

    def called(self, name: str) -> frozenset[str] | None:
        """The commands of a name in lower case, ``config`` or ``config|get``; None when there is none."""

    def of_category(self, name: str) -> frozenset[str] | None:
        """The commands of a category in lower case; None when there is none."""

    def every(self) -> frozenset[str]:
        """All commands."""


def apply(user: User, rules: Iterable[bytes], book: CommandCatalogue) -> User:
    """Make another user by rules, all of them or none.  Raises RuleError."""
    for rule in rules:
        try:
            user = _apply(user, rule, book)
        except ValueError as error:
            raise RuleError(rule, str(error)) from None
    return user


def is_name(name: bytes) -> bool:
    """Tell whether a user may be called so."""
    return bool(name) and not _has_blank(name)


def _apply(user: User, rule: bytes, book: CommandCatalogue) -> User:
    """Make another user by one rule.  Raises ValueError."""
    word = _WORDS.get(rule[:32].lower())
    if word is not None:
        return word(user)
    sign, text = rule[:1], rule[1:]
    if sign in (b"+", b"-"):
        return _with_command(user, _lower(text), book, grant=sign == b"+")
    if sign in _SIGNS:
        return _SIGNS[sign](user, text)
    if sign == b"(" or rule[:32].lower() == b"clearselectors":
        raise ValueError(SELECTORS)
    if rule[:32].lower() in (b"sanitize-payload", b"skip-sanitize-payload"):
        raise ValueError(SANITIZING)
    raise ValueError(SYNTAX)


# Passwords.


def _with_digest(user: User, digest: bytes) -> User:
    if is_one_of(user.digests, digest):
        return attrs.evolve(user, nopass=False)
    return attrs.evolve(user, nopass=False, digests=_more(user.digests, digest))


def _with_password(user: User, password: bytes) -> User:
    digest = digest_of(password)
    user = _with_digest(user, digest)
    if not is_short(password):
        return user
    return attrs.evolve(user, short=(user.short | {digest}).intersection(user.digests))


def _without_digest(user: User, digest: bytes) -> User:
    if not is_one_of(user.digests, digest):
        raise ValueError(NO_SUCH_PASSWORD)
    return attrs.evolve(user, digests=tuple(known for known in user.digests if known != digest))


def _from_hex(text: bytes) -> bytes:
    if not is_hex(text):
        raise ValueError(BAD_HASH)
    return bytes.fromhex(text.decode("ascii"))


# Queues and channels.


def _with_queues(user: User, text: bytes, *, reads: bool = True, writes: bool = True) -> User:
    known = next((pattern for pattern in user.queues if pattern.text == text), None)
    if known is not None:
        reads, writes = known.reads or reads, known.writes or writes
    pattern = Pattern(text, reads, writes)
    if pattern == Pattern(ANY):
        return _all_queues(user)
    if user.all_queues:
        raise ValueError(AFTER_ALL_QUEUES)
    _check_pattern(text)
    if known is None:
        return attrs.evolve(user, queues=_more(user.queues, pattern))
    return attrs.evolve(user, queues=tuple(pattern if one is known else one for one in user.queues))


def _with_some_rights(user: User, text: bytes) -> User:
    """``%R~pattern`` and its kin."""
    letters, tilde, pattern = text.partition(b"~")
    letters = letters.upper()
    if not tilde or not letters or letters.strip(b"RW"):
        raise ValueError(SYNTAX)
    return _with_queues(user, pattern, reads=b"R" in letters, writes=b"W" in letters)


def _all_queues(user: User) -> User:
    return attrs.evolve(user, all_queues=True, queues=())


def _with_channels(user: User, text: bytes) -> User:
    if user.all_channels and text != ANY:
        raise ValueError(AFTER_ALL_CHANNELS)
    _check_pattern(text)
    if text == ANY:
        return _all_channels(user)
    if text in user.channels:
        return user
    return attrs.evolve(user, channels=_more(user.channels, text))


def _all_channels(user: User) -> User:
    return attrs.evolve(user, all_channels=True, channels=())


def _check_pattern(text: bytes) -> None:
    if _has_blank(text):
        raise ValueError(SYNTAX)
    if len(text) > PATTERN_BYTES_MAX:
        raise ValueError(f"a pattern has {PATTERN_BYTES_MAX} bytes at most")


# Commands.


def _with_command(user: User, name: str, book: CommandCatalogue, *, grant: bool) -> User:
    """Grant or withdraw a command or a category; what was said of the same before is said no more."""
    if name == "@all":
        return _all_commands(user) if grant else _no_commands(user)
    names = book.of_category(name[1:]) if name.startswith("@") else book.called(name)
    if names is None:
        parent = book.called(name.partition("|")[0])
        raise ValueError(FIRST_ARGUMENT if name.count("|") > 1 and parent is not None else UNKNOWN)
    rules = [rule for rule in user.commands if rule[1:] != name and not rule[1:].startswith(f"{name}|")]
    if len(rules) >= COMMAND_RULES_MAX:
        raise ValueError(TOO_MANY)
    everything = user.all_commands and not user.commands
    granted = book.every() if everything else user.granted
    return attrs.evolve(
        user, commands=(*rules, f"{'+' if grant else '-'}{name}"), granted=granted | names if grant else granted - names
    )


def _all_commands(user: User) -> User:
    return attrs.evolve(user, all_commands=True, commands=(), granted=frozenset())


def _no_commands(user: User) -> User:
    return attrs.evolve(user, all_commands=False, commands=(), granted=frozenset())


_WORDS: Final[dict[bytes, Callable[[User], User]]] = {
    b"on": lambda user: attrs.evolve(user, enabled=True),
    b"off": lambda user: attrs.evolve(user, enabled=False),
    b"nopass": lambda user: attrs.evolve(user, nopass=True, digests=()),
    b"resetpass": lambda user: attrs.evolve(user, nopass=False, digests=()),
    b"allcommands": _all_commands,
    b"nocommands": _no_commands,
    b"allkeys": _all_queues,
    b"resetkeys": lambda user: attrs.evolve(user, all_queues=False, queues=()),
    b"allchannels": _all_channels,
    b"resetchannels": lambda user: attrs.evolve(user, all_channels=False, channels=()),
    b"reset": lambda user: User(user.name),
}

_SIGNS: Final[dict[bytes, Callable[[User, bytes], User]]] = {
    b">": _with_password,
    b"<": lambda user, text: _without_digest(user, digest_of(text)),
    b"#": lambda user, text: _with_digest(user, _from_hex(text)),
    b"!": lambda user, text: _without_digest(user, _from_hex(text)),
    b"~": _with_queues,
    b"%": _with_some_rights,
    b"&": _with_channels,
}


T = TypeVar("T")


def _more(known: tuple[T, ...], new: T) -> tuple[T, ...]:
    if len(known) >= PATTERNS_MAX:
        raise ValueError(TOO_MANY)
    return (*known, new)


def _lower(text: bytes) -> str:
    return text[:SHOWN_MAX].decode("utf-8", "surrogateescape").lower()


def _shown(rule: bytes) -> str:
    """A rule as an error may show it: of a password only that it is one."""
    if rule[:1] in (b">", b"<"):
        return f"{rule[:1].decode()}(redacted)"
    return rule[:SHOWN_MAX].decode("utf-8", "surrogateescape")


def _has_blank(text: bytes) -> bool:
    return any(byte in b" \t\n\v\f\r\0" for byte in text)
