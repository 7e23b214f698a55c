"""ACL: the users, what they may do, and what was refused to them.

A user is made by rules (`disqued.acl.rules`); what Redis calls keys are here queues of any family.  A change counts
from the next command of each connection on; connections of a user who is deleted or turned off are ended.

Source: the Redis manual, ACL pages; Redis 7.0, whose replies and error texts these are.
"""

from collections.abc import Iterable
from typing import Any

import attrs

from disqued.acl.denials import Denial
from disqued.acl.user import User
from disqued.commands import table
from disqued.commands.categories import CATEGORIES, bar_name
from disqued.commands.connection import DONE
from disqued.commands.host import Session
from disqued.commands.permission import check_command, check_names
from disqued.commands.shapes import OK, Shape, array, bulk, either, integer, mapping, null_or
from disqued.commands.table import Flag, command, container, optional, positional, rest
from disqued.commands.values import BYTES, INT64_MAX, INT64_MIN, NAME, Kind, bounded, readable
from disqued.commands.values import integer as integer_kind
from disqued.core.node import Node
from disqued.errors import CommandError, NoPermission, OutOfMemory, UnknownCommand, UnknownJob
from disqued.wire.replies import Status

_ACL = Flag.ADMIN | Flag.READ | Flag.LOADING
_OWN = Flag.READ | Flag.LOADING


def _acl_misuse(word: str, known: bool) -> str:
    if known:
        return f"wrong number of arguments for 'acl|{word.lower()}' command"
    return f"unknown subcommand '{word}'. Try ACL HELP."


container("ACL", group="server", flags=_ACL, summary="Users, and what they may do.", misuse=_acl_misuse)


# Users.


@command(
    "ACL SETUSER", group="server", flags=_ACL, reply=OK, cost="O(N) in the rules and the clients",
    errors=(
        "Error in ACL SETUSER modifier '<rule>': <reason>",
        "Usernames can't contain spaces or null characters",
        OutOfMemory,
    ),
    is_of_connection=True,
)  # fmt: skip
@attrs.define
class AclSetUser:
    """Make a user, or change one, by rules: all of them or none.

    Rules: on, off; nopass, resetpass, >password, <password, #sha256, !sha256; +command, -command, +command|subcommand,
    +@category, -@category, allcommands, nocommands; ~queues, %R~queues, %W~queues, allkeys, resetkeys; &channels,
    allchannels, resetchannels; reset.  Patterns are as those of CONFIG GET.  A new user is off and may do nothing.

    Connections of a user that is off from now on are ended, and so are those that wait, listen or watch (MONITOR) while
    their user's rights change.
    """

    name: bytes = positional("The user.", NAME)
    rules: list[bytes] = rest("Rules, applied from left to right.", NAME, minimum=0)

    def run(self, node: Node, client: Session) -> Status:
        client.host.access.set_user(self.name, self.rules)
        return DONE


@command(
    "ACL DELUSER", group="server", flags=_ACL, reply=integer("users that are gone"), cost="O(N) in the clients",
    errors=("The 'default' user cannot be removed",), is_of_connection=True,
)  # fmt: skip
@attrs.define
class AclDelUser:
    """Forget users, and end their connections."""

    names: list[bytes] = rest("The users.", NAME)

    def run(self, node: Node, client: Session) -> int:
        return client.host.access.delete_users(self.names)


_USER = mapping("flags, passwords (SHA-256), commands, keys, channels, selectors (there are none)")


@command(
    "ACL GETUSER", group="server", flags=_ACL, reply=null_or(_USER), cost="O(N) in the rules", is_of_connection=True
)
@attrs.define
class AclGetUser:
    """Describe a user; null when there is none of this name."""

    name: bytes = positional("The user.", NAME)

    def run(self, node: Node, client: Session) -> dict[bytes, Any] | None:
        user = client.host.access.users.get(self.name)
        if user is None:
            return None
        return {
            b"flags": user.flags,
            b"passwords": [digest.hex().encode() for digest in user.digests],
            b"commands": user.command_rules,
            b"keys": user.queue_rules,
            b"channels": user.channel_rules,
            b"selectors": [],
        }


@command(
    "ACL LIST", group="server", flags=_ACL, reply=array(bulk("line"), "a line per user"), cost="O(N) in the users",
    is_of_connection=True,
)  # fmt: skip
@attrs.define
class AclList:
    """Describe every user in the words of a file of users, by name."""

    def run(self, node: Node, client: Session) -> list[bytes]:
        return [user.line for user in client.host.access.users.all()]


@command(
    "ACL USERS", group="server", flags=_ACL, reply=array(bulk("name"), "names"), cost="O(N) in the users",
    is_of_connection=True,
)  # fmt: skip
@attrs.define
class AclUsers:
    """Name every user."""

    def run(self, node: Node, client: Session) -> list[bytes]:
        return client.host.access.users.names()


@command("ACL WHOAMI", group="server", flags=_OWN, reply=bulk("name"), cost="O(1)", is_of_connection=True)
@attrs.define
class AclWhoAmI:
    """Name the user of this connection."""

    def run(self, node: Node, client: Session) -> bytes:
        return b"default" if client.user is None else client.user.name


# What there is to grant.


@command(
    "ACL CAT", group="server", flags=_OWN, reply=array(bulk("name"), "names of categories, or of commands"),
    cost="O(N) in the commands", errors=("Unknown category '<category>'",), is_of_connection=True,
)  # fmt: skip
@attrs.define
class AclCat:
    """Name the categories of commands, or the commands of one."""

    category: bytes | None = optional("The category, without its @.", NAME)

    def run(self, node: Node, client: Session) -> list[bytes]:
        if self.category is None:
            return [name.encode() for name in CATEGORIES]
        name = readable(self.category)
        found = client.host.access.book.of_category(name.lower())
        if found is None:
            raise CommandError(f"Unknown category '{name}'")
        return sorted(bar_name(one).encode() for one in found)


_BITS_MAX = 4_096
_BITS_ERROR = (
    "ACL GENPASS argument must be the number of bits for the output password, "
    f"a positive number up to {_BITS_MAX} - allowed are whole numbers"
)
_BITS = integer_kind(1, _BITS_MAX, _BITS_ERROR, f"1 to {_BITS_MAX}")


@command(
    "ACL GENPASS", group="server", flags=_OWN, reply=bulk("hex digits"), cost="O(1)", errors=(_BITS_ERROR,),
    is_of_connection=True,
)  # fmt: skip
@attrs.define
class AclGenPass:
    """Make up a password out of random bits, four in each hex digit."""

    bits: int = optional("How many bits.", _BITS, 256)

    def run(self, node: Node, client: Session) -> bytes:
        return client.host.access.random_digits((self.bits + 3) // 4)


@command(
    "ACL DRYRUN", group="server", flags=_ACL, reply=either(OK, bulk("why not")), cost="O(N) in the words",
    errors=("User '<name>' not found", "Command '<name>' not found"), is_of_connection=True,
)  # fmt: skip
@attrs.define
class AclDryRun:
    """Ask whether a user may run a command, which is not run: OK, or why not."""

    name: bytes = positional("The user.", NAME)
    command: bytes = positional("The command.", NAME)
    arguments: list[bytes] = rest("Its arguments.", BYTES, minimum=0)

    def run(self, node: Node, client: Session) -> bytes:
        user = client.host.access.users.get(self.name)
        if user is None:
            raise CommandError(f"User '{readable(self.name)}' not found")
        return self._outcome(user, node)

    def _outcome(self, user: User, node: Node) -> bytes:
        words = [self.command, *self.arguments]
        try:
            entry = table.find(words)
        except UnknownCommand:
            raise CommandError(f"Command '{readable(self.command)}' not found") from None
        try:
            check_command(user, entry)
            check_names(user, entry, table.parse(entry, words), node)
        except (NoPermission, UnknownJob) as error:
            return error.text.encode("utf-8", "surrogateescape")
        return DONE


# What was refused.


def _read_count(text: bytes) -> int | None:
    """Read how many entries are wanted; None = forget them all."""
    return None if text[:8].upper() == b"RESET" else _read_number(text)


_BAD_COUNT = "value is not an integer or out of range - count is a whole number of 64 bits, or RESET"
_read_number = bounded(INT64_MIN, INT64_MAX, _BAD_COUNT)
_COUNT = Kind(
    "integer", _read_count, "a whole number, or RESET", {"type": ["integer", "string"]}, (f"ERR {_BAD_COUNT}",)
)
_LOGGED = 10


@command(
    "ACL LOG", group="server", flags=_ACL, reply=either(OK, array(mapping("entry"), "of entries, newest first")),
    cost="O(count)", is_of_connection=True,
)  # fmt: skip
@attrs.define
class AclLog:
    """What was refused, newest first: passwords, commands, queues and channels; ACL LOG RESET forgets it.

    Of each: count, reason (auth, command, key or channel), context, object, username, age-seconds, client-info,
    entry-id, timestamp-created, timestamp-last-updated.  The same again within a minute is counted in one entry.
    """

    count: int | None = optional("How many entries, 10 unless given; or RESET.", _COUNT, _LOGGED)

    def run(self, node: Node, client: Session) -> Any:
        denials = client.host.access.denials
        if self.count is None:
            denials.clear()
            return DONE
        wall = client.host.microseconds() // 1_000
        return [_row(entry, wall) for _, entry in zip(range(max(0, self.count)), denials, strict=False)]


def _row(entry: Denial, wall: int) -> dict[bytes, Any]:
    return {
        b"count": entry.count,
        b"reason": entry.reason,
        b"context": b"toplevel",
        b"object": entry.what,
        b"username": entry.user,
        b"age-seconds": b"%.3f" % (max(0, wall - entry.created_at) / 1_000),
        b"client-info": entry.client,
        b"entry-id": entry.id,
        b"timestamp-created": entry.created_at,
        b"timestamp-last-updated": entry.updated_at,
    }


# The file.


_NO_FILE = "there is no file of users; allowed is ACL LOAD or ACL SAVE where the setting aclfile names one"


@command(
    "ACL LOAD", group="server", flags=_ACL, reply=OK, cost="O(N) in the users and the clients",
    errors=(_NO_FILE, "aclfile <path>, line <n>: <reason>"), is_of_connection=True,
)  # fmt: skip
@attrs.define
class AclLoad:
    """Take the users of the file that `aclfile` names in place of those that there are: all of them, or none."""

    def run(self, node: Node, client: Session) -> Status:
        client.host.access.load()
        return DONE


@command(
    "ACL SAVE", group="server", flags=_ACL, reply=OK, cost="O(N) in the users",
    errors=(_NO_FILE, "aclfile <path>: <reason>"), is_of_connection=True,
)  # fmt: skip
@attrs.define
class AclSave:
    """Write the users to the file that `aclfile` names, whole or not at all; its comments are lost."""

    def run(self, node: Node, client: Session) -> Status:
        client.host.access.save()
        return DONE


@command(
    "ACL HELP", group="server", flags=_OWN,
    reply=array(Shape("line", lambda value: isinstance(value, Status)), "lines"), cost="O(1)", is_of_connection=True,
)  # fmt: skip
@attrs.define
class AclHelp:
    """Name the subcommands of ACL."""

    def run(self, node: Node, client: Session) -> list[Status]:
        return [Status(line.encode()) for line in _help(table.every_command())]


def _help(entries: Iterable[table.Command]) -> Iterable[str]:
    yield "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    for entry in entries:
        if entry.name.startswith("ACL "):
            yield entry.name.removeprefix("ACL ")
            yield f"    {entry.summary}"
