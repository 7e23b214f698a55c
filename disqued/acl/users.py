"""The users of a node, by name; `default` is always among them.

A connection that has said nothing is `default`, if that one needs no password.  Its password is the `requirepass` of
the settings, unless a file of users says otherwise.

Source: the Redis manual, "ACL".
"""

from collections.abc import Iterable

import attrs

from disqued.acl.passwords import digest_of, is_one_of
from disqued.acl.user import DEFAULT, User
from disqued.core.model.memory import Memory


def first_default(digest: bytes) -> User:
    """The default user of a node without a file: it may do everything, with this password or, for b"", with any."""
    return User(
        DEFAULT, enabled=True, nopass=not digest, digests=(digest,) if digest else (),
        all_commands=True, all_queues=True, all_channels=True,
    )  # fmt: skip


def with_password(user: User, digest: bytes) -> User:
    """Let a user have this password and no other; b"" = any will do."""
    return attrs.evolve(user, nopass=not digest, digests=(digest,) if digest else ())


class Users:
    """All users; what they take beyond the one that is always there is counted."""

    def __init__(self, default: User, memory: Memory | None = None) -> None:
        self._by_name: dict[bytes, User] = {DEFAULT: default}
        self._memory = memory  #: None = nobody counts

    @property
    def default(self) -> User:
        """Who a connection is that has said nothing."""
        return self._by_name[DEFAULT]

    def get(self, name: bytes) -> User | None:
        """The user of a name, if there is one."""
        return self._by_name.get(name)

    def names(self) -> list[bytes]:
        """All names, in order."""
        return sorted(self._by_name)

    def all(self) -> list[User]:
        """All users, by name."""
        return [self._by_name[name] for name in self.names()]

    def put(self, user: User) -> None:
        """Let a user be as given."""
        self._count(self.cost_of(user))
        self._by_name[user.name] = user

    def cost_of(self, user: User) -> int:
        """Bytes that it takes more, or below 0 fewer, to let a user be as given."""
        old = self._by_name.get(user.name)
        return user.cost - (0 if old is None else old.cost)

    def remove(self, name: bytes) -> User | None:
        """Forget a user; returns who it was.  `default` stays."""
        user = None if name == DEFAULT else self._by_name.pop(name, None)
        if user is not None:
            self._count(-user.cost)
        return user

    def _count(self, size: int) -> None:
        if self._memory is not None:
            self._memory.hold(size)

    def replace(self, users: Iterable[User]) -> None:
        """Let there be these users and no others; `default` stays as it is if it is not among them."""
        wanted = {user.name: user for user in users}
        for name in self.names():
            if name not in wanted:
                self.remove(name)
        for user in wanted.values():
            self.put(user)

    def check(self, name: bytes, password: bytes) -> User | None:
        """The user that a name and a password make; None when they make none.

        Whether there is such a user, or it has no password, takes the same time to find out.
        """
        digest = digest_of(password)
        user = self._by_name.get(name)
        is_right = is_one_of(_NOTHING if user is None else user.digests, digest)
        if user is None or not user.enabled:
            return None
        return user if is_right or user.nopass else None


_NOTHING = (digest_of(b""),)
