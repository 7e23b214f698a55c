"""Options that are there because redis-cli has them: lines that people and scripts have for it serve here, too.

-u URI    ---> address, user, password and TLS of the target
-n 0      ---> a node has one database, and another one is refused
-e        ---> as it is always: a reply that is an error is exit status 1
REDISCLI_AUTH ---> the password, where nothing else gives one
--no-auth-warning ---> nothing is said of a password that is not needed
"""

import os
from typing import Final

import attrs
import click

from disqued.client.addresses import read_nodes, read_server
from disqued.tools.connecting import Target, on_line
from disqued.tools.values import options

VARIABLE: Final = "REDISCLI_AUTH"
#: Options that say what a URI says.
_SAID: Final = {
    "host": "-h", "port": "-p", "socket": "-s", "password": "-a", "password_file": "--password-file",
    "askpass": "--askpass", "user": "--user",
}  # fmt: skip

#: Gives a verb these options: `uri`, `database`, `fails` and `no_auth_warning`.
redis_options: Final = options(
    click.option("-u", "uri", metavar="URI", help="The node, as redis://USER:PASSWORD@HOST:PORT or rediss://..."),
    click.option("-n", "database", default="0", metavar="0", help="Database: a node has the one, 0."),
    click.option("-e", "fails", is_flag=True, help="End with 1 when a reply is an error: it is so without it, too."),
    click.option("--no-auth-warning", is_flag=True, help="Do not tell of a password that the node does not need."),
)


def target_by(target: Target, uri: str | None, database: str) -> Target:
    """The node that these options mean.  Raises click.UsageError."""
    if database != "0":
        raise click.UsageError(f"-n {database}: a node has one database, and 0 is allowed")
    if uri is not None:
        target = _named(target, uri)
    if target.password is None and (password := os.environ.get(VARIABLE)):
        target = attrs.evolve(target, password=os.fsencode(password))
    return target


def _named(target: Target, uri: str) -> Target:
    others = [option for name, option in _SAID.items() if on_line(name)]
    if others:
        raise click.UsageError(f"-u says what {others[0]} does: one of them is allowed")
    if "://" not in uri:
        raise click.UsageError("-u: allowed are redis://USER:PASSWORD@HOST:PORT/0, rediss://... and unix:///PATH")
    try:
        server, (_, access) = read_server(uri), read_nodes(uri, tls=target.tls)
        named = attrs.evolve(target, address=server.address, user=server.user.encode() or target.user,
                             password=server.password.encode() or target.password, tls=access.tls)  # fmt: skip
        if named.tls is not None:
            named.way()  # reads the files
    except ValueError as error:
        raise click.UsageError(f"-u: {error}") from None
    return named
