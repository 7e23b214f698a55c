"""Startup warnings about unsafe settings.

    a password that is found by trying, where others than this machine may try
    a secret on the command line, or in a file that every user of the machine may read
    a bus that takes every node of this machine, where a password is wanted
    AUTH or ACL taken away, where a password is wanted
    tokens that travel beyond this machine without TLS
    a default user without a password, where clients come from elsewhere

What is worse than weak does not start at all: see `Config.check`.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from disqued.acl.passwords import SHORT
from disqued.acl.users import Users
from disqued.config import SECRETS, Config

NAMED: Final = 5  #: users that a line names


def weak_settings(config: Config, users: Users) -> Iterator[str]:
    """Say what is weak, and what to do about it: a line for each."""
    if config.clients_come_from_elsewhere:
        yield from _short_passwords(config, users)
        if users.default.is_open and (config.has_password or config.aclfile is not None):
            yield (
                "the user default needs no password, and clients come from beyond this machine: they are refused"
                " (protected mode); give it one in aclfile (user default on >password ...), or turn it off"
            )
    yield from _shown_secrets(config)
    anybody_is_anything = users.default.is_open and users.default.may_do_everything
    if not anybody_is_anything and config.bus_addresses and not config.nodes_prove_themselves:
        yield (
            "clients have to say who they are, or may do little, and by the cluster bus whoever is on this machine may"
            " join as a node, and have jobs: set cluster-secret-file, the same on every node, or tls-cluster"
        )
    yield from _commands_taken_away(config, users)
    if setting := config.admins_come_in_the_clear:
        yield (
            f"{setting}: tokens travel beyond this machine in the clear, and who sees one may use it; set http-endpoint"
            " to ssl:PORT:privateKey=KEY:certKey=CERTIFICATE, or bind 127.0.0.1 behind a proxy with TLS"
        )


def _short_passwords(config: Config, users: Users) -> Iterator[str]:
    why = f"fewer than {SHORT} bytes, and clients come from beyond this machine: it is found by trying"
    if config.has_short_password and config.password_digest in users.default.digests:
        setting = "requirepass" if config.requirepass_file is None else "requirepass-file"
        yield f"{setting}: the password has {why}; take one that ACL GENPASS makes up"
    names = [_shown(user.name) for user in users.all() if user.has_short_password]
    if names:
        shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
        yield f"aclfile: a password of {shown} has {why}; take those that ACL GENPASS makes up"


def _shown_secrets(config: Config) -> Iterator[str]:
    for name in filter(config.holds_secret, SECRETS):
        path, line = config.place_of(name)
        instead = "put it into a file that is yours alone" + ("" if name == "redis-url" else f", {name}-file")
        if path == "command line":
            yield f"{name} stands on the command line, where every user of this machine sees it (ps): {instead}"
        elif line and _is_for_everybody(path):
            yield f"{name}: every user of this machine may read {path}: chmod o-rwx, or {instead}"


def _is_for_everybody(path: str) -> bool:
    with suppress(OSError):
        return bool(os.stat(path).st_mode & stat.S_IROTH)
    return False


def _commands_taken_away(config: Config, users: Users) -> Iterator[str]:
    gone = {old for old, new in config.rename_command if not new}
    if users.default.is_open:
        return
    if "AUTH" in gone:
        left = "nobody" if "HELLO" in gone else "nobody who says no HELLO 3 AUTH user password"
        yield f"rename-command takes AUTH away, and a password is wanted: {left} can get in; take the line out"
    if "ACL" in gone:
        yield (
            "rename-command takes ACL away: users change by a restart alone, and nobody sees what was refused to whom"
            " (ACL LOG); take the line out, and -acl from users who are not to have it"
        )


def _shown(name: bytes) -> str:
    return name[:64].decode("utf-8", "backslashreplace")
