"""Categories of commands, for rules such as +@read: read off the table, but for what Disque's flags do not say.

    job queue log list worker cluster connection     what a command is about: its group
    read write                                       whether it looks at jobs and queues, or changes them
    fast slow                                        by its flag
    admin dangerous blocking pubsub                  below

Disque flags every command of CLIENT as one for admins, PAUSE as one that only reads, and SLOWLOG as one for everybody.
Here the categories say what Redis's say of the same commands.  A category is lower case; names of commands are as the
table has them: ``CONFIG GET``.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Final

from disqued.commands.table import Command, Flag, manual

#: Category of each group of commands; those of the group `server` are in others only.
_OF_GROUP: Final = {
    "jobs": "job", "queues": "queue", "logs": "log", "lists": "list", "workers": "worker", "cluster": "cluster",
    "connection": "connection",
}  # fmt: skip
#: Groups whose commands are about jobs and queues.
_OF_DATA: Final = frozenset({"jobs", "queues", "logs", "lists", "workers"})

PUBSUB: Final = frozenset({"SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE"})
#: They may wait for data.
BLOCKING: Final = frozenset({"GETJOB", "QGET", "QNOTIFY", "RQ.POP", "WQ.DEQUEUE"})
#: What a client says of its own connection, whatever the flags say.
OF_OWN_CONNECTION: Final = frozenset(
    f"CLIENT {word}" for word in ("GETNAME", "ID", "INFO", "MAINT_NOTIFICATIONS", "REPLY", "SETINFO", "SETNAME")
)
#: They show what others sent, whatever the flags say.
ALSO_ADMIN: Final = frozenset({"SLOWLOG GET", "SLOWLOG LEN", "SLOWLOG RESET"})
#: They show much of the node, or end what is not theirs.
ALSO_DANGEROUS: Final = frozenset({"INFO", "QFLUSH", "QPURGE", "WORKER FAIL", "WQ.DELETE"})
#: They change something, whatever the flags say.
ALSO_WRITE: Final = frozenset({"PAUSE"})

#: All categories, in the order in which ACL CAT shows them.
CATEGORIES: Final = (
    "job", "queue", "log", "list", "worker", "cluster", "connection", "pubsub", "read", "write", "admin", "dangerous",
    "blocking", "fast", "slow",
)  # fmt: skip


def writes(entry: Command) -> bool:
    """Tell whether a command changes jobs or queues."""
    return entry.name in ALSO_WRITE or Flag.WRITE in entry.flags


def categories_of(entry: Command) -> frozenset[str]:
    """The categories of a command."""
    is_pubsub = entry.name in PUBSUB
    is_admin = entry.name in ALSO_ADMIN or (Flag.ADMIN in entry.flags and entry.name not in OF_OWN_CONNECTION)
    is_about_data = entry.group in _OF_DATA and not is_pubsub
    holds = {
        _OF_GROUP.get(entry.group, ""): not is_pubsub,
        "pubsub": is_pubsub,
        "read": is_about_data and not writes(entry),
        "write": is_about_data and writes(entry),
        "admin": is_admin,
        "dangerous": is_admin or entry.name in ALSO_DANGEROUS,
        "blocking": entry.name in BLOCKING,
        "fast": Flag.FAST in entry.flags,
        "slow": Flag.FAST not in entry.flags,
    }
    return frozenset(name for name, held in holds.items() if held and name)


def bar_name(name: str) -> str:
    """How rules and replies call a command: ``config|get``."""
    return name.lower().replace(" ", "|")


class CommandBook:
    """The commands of the table, as rules call them; `rename-command` changes nothing here."""

    @cached_property
    def _by_name(self) -> Mapping[str, frozenset[str]]:
        """Each name and what it stands for; that of a command with subcommands stands for all of them."""
        found: dict[str, set[str]] = {}
        for entry in manual():
            first, bar, _ = bar_name(entry.name).partition("|")
            found.setdefault(first, set()).add(entry.name)
            if bar:
                found.setdefault(bar_name(entry.name), set()).add(entry.name)
        return {name: frozenset(names) for name, names in found.items()}

    @cached_property
    def _by_category(self) -> Mapping[str, frozenset[str]]:
        found: dict[str, set[str]] = {name: set() for name in CATEGORIES}
        for entry in manual():
            for category in categories_of(entry):
                found[category].add(entry.name)
        return {name: frozenset(names) for name, names in found.items()}

    def called(self, name: str) -> frozenset[str] | None:
        return self._by_name.get(name)

    def of_category(self, name: str) -> frozenset[str] | None:
        return self._by_category.get(name)

    def every(self) -> frozenset[str]:
        return frozenset().union(*self._by_name.values())
