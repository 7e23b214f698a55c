"""Access of clients: users, passwords, permissions, and what was refused.

    a connection comes --> the default user needs no password? --yes--> it is `default`
                                   | no
                                   v
                           unauthenticated: small limits, little time (`unauthenticated`)
                                   |  AUTH, HELLO AUTH
                                   v
                           its user; `limited` unless that one may do everything

Only who is limited is asked about: once per command, before it runs.  A user never changes; when rules make another one
of it, the connections that it has get that one.  Wrong passwords are slowed per address, as on the admin side.

Source: Redis, src/acl.c; the Redis manual, "ACL".
"""

import secrets
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Any

from twisted.logger import Logger

from disqued.acl import aclfile
from disqued.acl.aclfile import AclFileError
from disqued.acl.attempts import Attempts
from disqued.acl.denials import AUTH, Denials
from disqued.acl.passwords import digest_of
from disqued.acl.rules import RuleError, apply, is_name
from disqued.acl.user import DEFAULT, User
from disqued.acl.users import Users, first_default, with_password
from disqued.commands.categories import CommandBook
from disqued.commands.clients import describe_client
from disqued.commands.host import Session
from disqued.commands.permission import FOR_UNAUTHENTICATED, check_command, check_names
from disqued.commands.table import Command
from disqued.config import Config
from disqued.core.node import Call, Node
from disqued.errors import CommandError, NoPermission, NotAuthenticated, TooManyPasswords
from disqued.net.clients.connection import ClientSession, session_of
from disqued.net.clients.pubsub import PubSub

DENIED = (
    b"DENIED this node needs no password any more, so that it takes connections from its own machine alone: connect "
    b"from there, or through its Unix socket, and give the default user a password (ACL SETUSER default resetpass "
    b">password), or turn it off"
)
_NO_FILE = "there is no file of users; allowed is ACL LOAD or ACL SAVE where the setting aclfile names one"
_BAD_NAME = "Usernames can't contain spaces or null characters"


class Access:
    """The users of a daemon, and its door."""

    log = Logger()

    def __init__(
        self, config: Config, node: Node, pubsub: PubSub, seconds: Callable[[], float], *,
        sessions: Callable[[], Iterable[ClientSession]], on_password: Callable[[], None],
    ) -> None:  # fmt: skip
        """Read the file of users, if there is one.  Raises AclFileError.

        `seconds` is a monotonic clock, `sessions` returns the connections that there are, and `on_password` is called
        when the command that runs has a password among its words.
        """
        self._config = config
        self._node = node
        self._pubsub = pubsub
        self._seconds = seconds
        self._sessions = sessions
        self.book = CommandBook()
        self.users = Users(first_default(config.password_digest), node.state.memory)
        self.denials = Denials(config.acllog_max_len)
        self._on_password = on_password
        self.attempts = Attempts()
        self.slowed = 0  #: passwords that came too soon after wrong ones, and were refused unread
        if config.aclfile is not None:
            users = aclfile.load(config.aclfile, self.book)
            self.users.replace(users)
            if config.has_password and any(user.name == DEFAULT for user in users):
                config.warnings.append("the password of the settings does not count: aclfile has the user default")
        config.subscribe("requirepass", self.set_default_password)
        config.subscribe("acllog-max-len", self.denials.set_length)

    @property
    def is_open(self) -> bool:
        return self.users.default.is_open

    def limits_unauthenticated(self) -> bool:
        """True when a client that says nothing of who it is may not do everything."""
        default = self.users.default
        return not (default.is_open and default.may_do_everything)

    def admin_digest(self) -> bytes:
        """SHA-256 of the password of the settings, if whoever gives it to this node may do everything; b"" = it is not.

        It is that of the user `default`, unless the file of users or ACL SETUSER say otherwise.
        """
        digest, default = self._config.password_digest, self.users.default
        counts = default.enabled and default.may_do_everything and digest in default.digests
        return digest if counts else b""

    def facts(self) -> dict[str, int]:
        """What INFO says of refusals: by Redis's names, and passwords that came too soon."""
        names = {"auth": "auth", "command": "cmd", "key": "key", "channel": "channel"}
        counts = {f"acl_access_denied_{names[why.decode()]}": count for why, count in self.denials.counts.items()}
        return {**counts, "acl_access_delayed_auth": self.slowed}

    def reset_counts(self) -> None:
        """Count anew."""
        self.slowed = 0
        self.denials.counts = dict.fromkeys(self.denials.counts, 0)

    # At the door.

    def greet(self, client: ClientSession) -> None:
        """Take a client in as the default user, or as an unauthenticated one, or not at all."""
        if not self.is_open:
            client.restrict()
        elif self._needs_protection and not client.peer.is_unix and not is_loopback(client.peer.host):
            client.refuse(DENIED)
        else:
            client.become(self.users.default)

    @property
    def _needs_protection(self) -> bool:
        """True when it is the users alone, and no longer the settings, that let everybody in.

        Where no password was ever meant to be, the settings have seen to it that nobody comes from elsewhere.
        """
        return self._config.has_password or self._config.aclfile is not None

    def log_in(self, session: Session, name: bytes, password: bytes) -> bool:
        client = session_of(session)
        self._on_password()
        address, now = client.peer.host or "unix", self._seconds()
        digest = digest_of(digest_of(name) + password)
        wait = self.attempts.wait(address, digest, now)
        if wait:
            self.slowed += 1
            raise TooManyPasswords(wait)
        user = self.users.check(name, password)
        if user is None:
            self.attempts.failed(address, now)
            self.log.warn("A wrong password, or a user that there is not, from {client}", client=client.address)
            self._note(client, AUTH, b"AUTH", name)
            if not self.is_open:
                self._end_others(client, None)
                client.restrict()
            return False
        self.attempts.succeeded(address, digest)
        if client.user is not user and not user.may_do_everything:
            self._end_others(client, user)
        client.become(user)
        return True

    def _end_others(self, client: ClientSession, user: User | None) -> None:
        """A connection is another user's from now on, or nobody's: it ends what that one may not go on with."""
        if client.monitors and (user is None or not user.may_run("MONITOR")):
            client.watch_commands(watches=False)
        if client.subscriptions and (user is None or not _may_listen(client, user)):
            self._pubsub.forget(client)
        self._node.consumers.forget(client)
        self._node.streams.members.forget(client)

    def reset(self, client: ClientSession) -> None:
        """Make a connection one that has said nothing."""
        if self.is_open:
            client.become(self.users.default)
        else:
            client.restrict()

    # Before a command of a client that is limited.

    def admit(self, client: Any, entry: Command) -> None:
        """Refuse a command that the client may not run at all.  Raises NotAuthenticated (NOAUTH), NoPermission."""
        if not client.authenticated:
            if entry.name not in FOR_UNAUTHENTICATED:
                raise NotAuthenticated
            return
        try:
            check_command(client.user, entry)
        except NoPermission as error:
            self._note(client, error.reason, error.what, client.user.name)
            raise

    def check_names(self, client: Any, entry: Command, call: Call) -> Call:
        """Refuse what the client may not name; returns the call as it may be run.  Raises CommandError."""
        if not client.authenticated:
            return call
        try:
            return check_names(client.user, entry, call, self._node, client)
        except NoPermission as error:
            self._note(client, error.reason, error.what, client.user.name)
            raise

    def _note(self, client: Any, reason: bytes, what: bytes, user: bytes) -> None:
        self.denials.note(reason, what, user, describe_client(client, self._node.clock.now()), self._node.clock.wall())

    # Changes.

    def set_user(self, name: bytes, rules: Iterable[bytes]) -> None:
        self._on_password()
        if not is_name(name):
            raise CommandError(_BAD_NAME)
        old = self.users.get(name)
        try:
            user = apply(User(name) if old is None else old, rules, self.book)
        except RuleError as error:
            raise CommandError(str(error)) from None
        self._check_room([user])
        self._put(user)

    def _check_room(self, users: Iterable[User]) -> None:
        """Check that there is room for users as given.  Raises OutOfMemory (OOM)."""
        size = sum(map(self.users.cost_of, users))
        if size > 0:
            self._node.check_names(size)

    def delete_users(self, names: Iterable[bytes]) -> int:
        wanted = list(dict.fromkeys(names))
        if DEFAULT in wanted:
            raise CommandError("The 'default' user cannot be removed")
        gone = [user for user in map(self.users.remove, wanted) if user is not None]
        for user in gone:
            self._end(user.name)
        return len(gone)

    def set_default_password(self, password: str) -> None:
        """Let the default user have the password of the settings, and no other one; none when it is empty."""
        self._on_password()
        self._put(with_password(self.users.default, self._config.password_digest if password else b""))

    def load(self) -> None:
        """Take the users of the file in place of those that there are.  Raises CommandError, and nothing is changed."""
        if self._config.aclfile is None:
            raise CommandError(_NO_FILE)
        try:
            users = aclfile.load(self._config.aclfile, self.book)
        except AclFileError as error:
            raise CommandError(str(error)) from None
        self._check_room(users)
        kept = {DEFAULT, *(user.name for user in users)}
        self.delete_users(name for name in self.users.names() if name not in kept)
        for user in users:
            self._put(user)

    def save(self) -> None:
        path = self._config.aclfile
        if path is None:
            raise CommandError(_NO_FILE)
        try:
            aclfile.save(path, self.users.all())
        except OSError as error:
            raise CommandError(f"aclfile {path}: {error.strerror}") from None

    def random_digits(self, count: int) -> bytes:
        return secrets.token_hex((count + 1) // 2)[:count].encode()

    def _put(self, user: User) -> None:
        """Let a user be as given, for the connections that it has, too."""
        old = self.users.get(user.name)
        self.users.put(user)
        if old is None:
            return
        if not user.enabled:
            self._end(user.name)
            return
        for client in self._of(user.name):
            self._renew(client, old, user)
        if user.name == DEFAULT and user.is_open:
            for client in list(self._sessions()):
                if not client.authenticated:
                    client.become(user)

    def _renew(self, client: ClientSession, old: User, user: User) -> None:
        """A connection's user is another one now."""
        is_shut_out = old.is_open and not user.is_open
        has_other_rights = (old.granted, old.commands, old.all_commands, old.all_queues, old.queues) != (
            user.granted, user.commands, user.all_commands, user.all_queues, user.queues
        )  # fmt: skip
        waits = client.is_blocked or client.monitors or self._is_registered(client)
        if (is_shut_out and (waits or client.subscriptions)) or (
            not user.may_do_everything and ((waits and has_other_rights) or not _may_listen(client, user))
        ):
            client.kill()
        elif is_shut_out:
            client.restrict()
        else:
            client.become(user)

    def _is_registered(self, client: ClientSession) -> bool:
        """Tell whether a QNOTIFY of this connection would look at queues that it named before."""
        node = self._node
        return client in node.streams.members.by_client or bool(node.consumers.queues_of(client))

    def _end(self, name: bytes) -> None:
        for client in self._of(name):
            client.kill()

    def _of(self, name: bytes) -> list[ClientSession]:
        return [client for client in self._sessions() if client.user is not None and client.user.name == name]


def _may_listen(client: ClientSession, user: User) -> bool:
    """Tell whether a user may listen to all that a connection listens to."""
    return all(user.may_listen(name, is_pattern=False) for name in client.subscriptions.channels) and all(
        user.may_listen(name, is_pattern=True) for name in client.subscriptions.patterns
    )


def is_loopback(address: str) -> bool:
    """Tell whether an address is of this machine."""
    return ip_address(address.partition("%")[0]).is_loopback
