"""`disqued cluster drain`: a node hands on all that it holds, until nothing is lost when it is stopped.

    CLUSTER LEAVING yes --> CLUSTER INFO again and again: jobs and acks left, and what is waited for
                        --> cluster_safe_to_stop:yes

The node goes on leaving when this ends before its time; only CLUSTER LEAVING no makes it stay.
"""

from typing import Final

import click

from disqued.client.addresses import read_address
from disqued.tools.cluster_waits import empty
from disqued.tools.connecting import Failed, Interrupted, Target, node_options
from disqued.tools.members import Member, members, named
from disqued.tools.values import Number

DRAIN_S: Final = 3_600.0


@click.command(short_help="let a node hand on all that it holds")
@click.argument("name", metavar="NODE")
@click.option("--cancel", is_flag=True, help="Let the node stay: what it has handed on stays where it is.")
@click.option("--wait", "wait_s", type=Number(0), default=DRAIN_S, show_default=True, metavar="SECONDS",
              help="How long it may take.")  # fmt: skip
@node_options
def drain(target: Target, name: str, *, cancel: bool, wait_s: float) -> None:
    """Let NODE hand on all that it holds, and wait until nothing is lost when it is stopped.

    NODE is its host:port, or its id or the beginning of that, where -h and -p name any node of the cluster.

    \b
    Examples:
      disqued cluster drain 10.0.0.3:7711
      disqued cluster drain 5f24c115 -h 10.0.0.1
      disqued cluster drain --cancel 10.0.0.3:7711

    The node serves its clients meanwhile, takes no new copies, and sends consumers that would wait to other nodes.  It
    is leaving until --cancel, over a restart, too; also when this command is interrupted or its time is over.
    """
    entry = target if ":" not in name else _at(target, name)
    known = members(entry)
    member = named(name, known)
    with member.target.node() as node:
        if cancel:
            node.call("CLUSTER", "LEAVING", "no")
            click.echo(f"{member.address} stays")
            return
        if len(known) == 1:
            raise Failed(f"{member.address} stands alone: there is no other node that could take its jobs")
        try:
            empty(node, member, wait_s)
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; {_goes_on(member)}") from None
        except Failed as error:
            raise type(error)(f"{error}; {_goes_on(member)}") from None
    click.echo(f"{member.address} is drained: nothing is lost when it is stopped")


def _goes_on(member: Member) -> str:
    return f"it goes on leaving, until disqued cluster drain --cancel {member.address}"


def _at(target: Target, name: str) -> Target:
    """The node that is named by its address.  Raises Failed."""
    try:
        return target.at(read_address(name))
    except ValueError as error:
        raise Failed(str(error)) from None
