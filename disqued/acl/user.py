"""A user: who it is, whether it may come in, and what it may do.

    on  #5e88...  ~mail:* %R~audit  resetchannels &wq:mail:*  -@all +@read +ackjob
    |   |         |                 |                         |
    |   |         |                 |                         commands: the last rule that speaks of one counts
    |   |         |                 channels it may listen to
    |   |         patterns of the names of queues: read and write, or one of both
    |   digests of its passwords
    may come in

A user never changes: a rule makes another one of it (`rules`).  `User.rules` spells one so that the same rules make
the same user again, of whatever version.

Source: the Redis manual, "ACL"; here what Redis calls keys are queues of any family.
"""

import sys
from collections.abc import Iterator
from itertools import count
from typing import Final

import attrs

from disqued.core.model import glob

DEFAULT: Final = b"default"
ANY: Final = b"*"
REMEMBERED: Final = 16_384  #: queues that all users together were asked about
REMEMBERED_BYTES: Final = 256  #: of a name

USER_COST: Final = 500  #: bytes of a user without what it may do and its passwords
DIGEST_COST: Final = 80  #: bytes of a password
PATTERN_COST: Final = 150  #: bytes of a pattern of queues without its text
TEXT_COST: Final = 70  #: bytes of a pattern of channels, or of a rule on commands, without its text

#: What was found out of queues: {(number of the user, queue): (may be read, may be written)}.
_found: dict[tuple[int, bytes], tuple[bool, bool]] = {}
_numbers = count()


@attrs.frozen
class Pattern:
    """A glob pattern of names of queues, and what may be done with those that match."""

    text: bytes
    reads: bool = True
    writes: bool = True

    @property
    def rule(self) -> bytes:
        """The rule that grants it."""
        if self.reads and self.writes:
            return b"~" + self.text
        return (b"%R~" if self.reads else b"%W~") + self.text


@attrs.frozen
class User:
    """One user."""

    name: bytes
    enabled: bool = False
    nopass: bool = False  #: any password will do
    digests: tuple[bytes, ...] = ()  #: SHA-256 of each of its passwords
    all_commands: bool = False  #: what `commands` is said of: every command, or none
    commands: tuple[str, ...] = ()  #: +name, -name, +name|sub, +@category ..., as they were said, each once
    granted: frozenset[str] = frozenset()  #: names of the commands that come of it; see `may_run`
    all_queues: bool = False
    queues: tuple[Pattern, ...] = ()
    all_channels: bool = False
    channels: tuple[bytes, ...] = ()
    #: Those of its digests that are of short passwords, as far as these were seen themselves.
    short: frozenset[bytes] = attrs.field(default=frozenset(), eq=False, repr=False)
    _number: int = attrs.field(factory=lambda: next(_numbers), init=False, eq=False, repr=False)  #: no other one has it

    @property
    def cost(self) -> int:
        """Bytes that it takes, as memory is counted."""
        texts = [*self.channels, *self.commands]
        return (
            USER_COST + len(self.name) + DIGEST_COST * (len(self.digests) + len(self.short))
            + sum([PATTERN_COST + len(pattern.text) for pattern in self.queues])
            + sum([TEXT_COST + len(text) for text in texts]) + sys.getsizeof(self.granted)
        )  # fmt: skip

    @property
    def is_open(self) -> bool:
        """True when whoever comes is this user, if they like."""
        return self.enabled and self.nopass

    @property
    def has_short_password(self) -> bool:
        """True when one of its passwords was seen to be short; of one that came as its digest nobody knows."""
        return not self.short.isdisjoint(self.digests)

    @property
    def may_do_everything(self) -> bool:
        """True when there is nothing that it would have to be asked about."""
        return self.all_commands and not self.commands and self.all_queues and self.all_channels

    def may_run(self, name: str) -> bool:
        """Tell whether it may run a command of this name; a subcommand has two words."""
        return (self.all_commands and not self.commands) or name in self.granted

    def may_read(self, queue: bytes) -> bool:
        """Tell whether it may see what a queue holds."""
        return self.all_queues or self._rights(queue)[0]

    def may_write(self, queue: bytes) -> bool:
        """Tell whether it may change what a queue holds."""
        return self.all_queues or self._rights(queue)[1]

    def _rights(self, queue: bytes) -> tuple[bool, bool]:
        """Whether a queue may be read, and whether it may be written; remembered of the last ones."""
        found = _found.get((self._number, queue))
        if found is None:
            fitting = [one for one in self.queues if glob.matches(one.text, queue)]
            found = any(one.reads for one in fitting), any(one.writes for one in fitting)
            if len(_found) >= REMEMBERED:
                _found.clear()
            if len(queue) <= REMEMBERED_BYTES:
                _found[self._number, queue] = found
        return found

    def may_listen(self, channel: bytes, *, is_pattern: bool) -> bool:
        """Tell whether it may listen to a channel; a pattern has to be one of its own, as in Redis."""
        if self.all_channels:
            return True
        if is_pattern:
            return channel in self.channels
        return any(glob.matches(pattern, channel) for pattern in self.channels)

    # How it is spelled.

    @property
    def flags(self) -> list[bytes]:
        """``on`` or ``off``, and ``nopass``."""
        return [b"on" if self.enabled else b"off", *([b"nopass"] if self.nopass else [])]

    @property
    def queue_rules(self) -> bytes:
        """Its queues, as GETUSER answers them."""
        return b"~*" if self.all_queues else b" ".join(pattern.rule for pattern in self.queues)

    @property
    def channel_rules(self) -> bytes:
        """Its channels, as GETUSER answers them."""
        return b"&*" if self.all_channels else b" ".join(b"&" + pattern for pattern in self.channels)

    @property
    def command_rules(self) -> bytes:
        """Its commands, as GETUSER answers them."""
        return " ".join(("+@all" if self.all_commands else "-@all", *self.commands)).encode()

    @property
    def rules(self) -> Iterator[bytes]:
        """Rules that make this user of a new one of its name."""
        yield from self.flags
        for digest in self.digests:
            yield b"#" + digest.hex().encode()
        if self.queue_rules:
            yield self.queue_rules
        if not self.all_channels:
            yield b"resetchannels"
        if self.channel_rules:
            yield self.channel_rules
        yield self.command_rules

    @property
    def line(self) -> bytes:
        """The line of a file of users, and of ACL LIST."""
        return b" ".join((b"user", self.name, *self.rules))
