"""`disqued cluster create` and `add`: nodes come to know each other.

    look at every node --> refuse what cannot be one cluster --> CLUSTER MEET from the first to each other one
                       --> wait until every node sees every other one

Nodes are met at digits, so names of hosts are looked up here; and at one address for all, so that a loopback address
goes with loopback addresses alone.
"""

import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

import click

from disqued.client.addresses import Socket, read_address
from disqued.client.replies import read_hello
from disqued.tools.cluster_views import NodeReport, look_at, look_at_all
from disqued.tools.cluster_waits import wait_joined
from disqued.tools.connecting import Failed, Target, node_options
from disqued.tools.members import Member, members
from disqued.tools.values import Number

JOIN_S: Final = 60.0

YES = click.option("--yes", is_flag=True, help="Join them although nodes hold jobs, or are of other clusters.")
WAIT = click.option("--wait", "wait_s", type=Number(0), default=JOIN_S, show_default=True, metavar="SECONDS",
                    help="How long nodes may take to see each other.")  # fmt: skip


@click.command(short_help="make one cluster of nodes that stand alone")
@click.argument("nodes", nargs=-1, required=True, metavar="HOST:PORT...")
@YES
@WAIT
@node_options
def create(target: Target, nodes: tuple[str, ...], *, yes: bool, wait_s: float) -> None:
    """Make one cluster of nodes that stand alone, and wait until each sees each.

    Each node is named by the address at which the others reach it.  The options of the connection (--password-file,
    --tls ...) hold for all of them; -h, -p and -s are not looked at.

    \b
    Examples:
      disqued cluster create 127.0.0.1:7711 127.0.0.1:7712 127.0.0.1:7713
      disqued cluster create --password-file secret 10.0.0.1:7711 10.0.0.2:7711 10.0.0.3:7711

    Nodes that hold jobs are refused without --yes: in a cluster their jobs are everybody's.  Exit status 1 when some do
    not see each other in time; what was joined stays so, and the same command goes on with it.
    """
    if len(nodes) < 2:
        raise click.UsageError("a cluster is made of two nodes or more: disqued cluster create HOST:PORT HOST:PORT ...")
    views = [_view(target, name) for name in nodes]
    _check_apart(views)
    check_addresses(views)
    if not yes:
        _check_jobs(views, "create")
        _check_strangers(views)
    join(views[0], views[1:], wait_s)
    click.echo(f"{len(views)} nodes are one cluster")


@click.command(short_help="let nodes join the cluster of another one")
@click.argument("nodes", nargs=-1, required=True, metavar="HOST:PORT...")
@YES
@WAIT
@node_options
def add(target: Target, nodes: tuple[str, ...], *, yes: bool, wait_s: float) -> None:
    """Let nodes join the cluster of the node that -h and -p name, and wait until each sees each.

    \b
    Examples:
      disqued cluster add -h 10.0.0.1 10.0.0.4:7711

    Existing jobs are not copied to a new node: it fills with new ones.  Nodes that hold jobs, or belong to another
    cluster, are refused without --yes.
    """
    known = [look for look in look_at_all(members(target)) if not look.error]
    if not known:
        raise Failed(f"no node of the cluster of {target} answers")
    views = [_view(target, name) for name in nodes]
    there = {view.id for view in known}
    fresh = [view for view in views if view.id not in there]
    _check_apart([*known, *fresh])
    if isinstance(target.address, Socket):
        raise click.UsageError("the node of the cluster is named by host and port (-h, -p): others have to reach it")
    check_addresses([known[0], *fresh])
    if not yes:
        _check_jobs(fresh, "add")
        _check_strangers(fresh)
    if fresh:
        join(known[0], fresh, wait_s, known)
    click.echo(f"{len(known) + len(fresh)} nodes are one cluster, {len(fresh)} of them new")


def join(first: NodeReport, others: Sequence[NodeReport], wait_s: float, known: Sequence[NodeReport] = ()) -> None:
    """Let a node meet others, and wait until all of them, and those that it knows, see each other.

    Raises Failed, and the errors of `disqued.client.errors`.
    """
    with first.member.target.node() as node:
        for other in others:
            host, port = _digits(other.member.target)
            node.call("CLUSTER", "MEET", host, port, other.facts["cluster_bus_port"])
    wait_joined([view.member for view in {view.id: view for view in (first, *known, *others)}.values()], wait_s)


# What is refused.


def _view(target: Target, name: str) -> NodeReport:
    """Look at a node, which has to answer.  Raises click.UsageError, and the errors of `disqued.client.errors`."""
    try:
        place = target.at(read_address(name))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with place.node() as node:
        id_ = read_hello(node.call("HELLO"), b"").id.decode()
        return look_at(Member(id_, place), node)


def _check_apart(views: Sequence[NodeReport]) -> None:
    """Raise Failed for two that are the same node, or say that they are."""
    seen: dict[str, NodeReport] = {}
    for view in views:
        first = seen.setdefault(view.id, view)
        if first is not view:
            raise Failed(
                f"{first.member.address} and {view.member.address} have one id: the same node, or a copied data folder"
                " (CLUSTER RESET HARD gives one of them another id)"
            )


def check_addresses(views: Sequence[NodeReport]) -> None:
    """Raise click.UsageError for addresses of which some are of this machine alone."""
    local = [view for view in views if ip_address(_digits(view.member.target)[0]).is_loopback]
    if local and len(local) < len(views):
        raise click.UsageError(
            f"{local[0].member.address} is an address that this machine alone reaches, and others are not: name each"
            " node as the others reach it"
        )


def _check_jobs(views: Sequence[NodeReport], verb: str) -> None:
    for view in views:
        if view.jobs:
            raise Failed(
                f"{view.name} holds {view.jobs} jobs, which would be those of the whole cluster: disqued cluster {verb}"
                " --yes joins it all the same"
            )


def _check_strangers(views: Sequence[NodeReport]) -> None:
    """Raise Failed for a node that has a cluster with others than these."""
    ids = {view.id for view in views}
    for view in views:
        strangers = [line for line in view.others if line.id not in ids and "handshake" not in line.flags]
        if strangers:
            raise Failed(
                f"{view.name} belongs to a cluster with {strangers[0].address} already, which would join, too: --yes"
                " does that"
            )


def _digits(target: Target) -> tuple[str, int]:
    """The address of a node as CLUSTER MEET takes it.  Raises Failed."""
    assert not isinstance(target.address, Socket)
    host, port = target.address
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0], port  # type: ignore[return-value]
    except OSError as error:
        raise Failed(f"the host {host} cannot be looked up: {error.strerror}") from None
