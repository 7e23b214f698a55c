"""`disqued schedule`: the schedules of a cluster."""

import os
from typing import Any, Final

import click

from disqued.client.replies import read_facts
from disqued.tools.connecting import Failed, NodeConnection, Target, node_options
from disqued.tools.console_text import short
from disqued.tools.queue_verbs.field_tables import moment, print_table

NEXT_SHOWN: Final = 5
#: Facts of a schedule that are moments, in unix seconds; 0 = there is none.
_MOMENTS: Final = ("next", "last", "error-instant", "set-at")


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@click.argument("words", metavar="[WORD...]", nargs=-1)
@click.option("--pause", is_flag=True, help="Pause the schedule in the whole cluster.")
@click.option("--resume", is_flag=True, help="End its pause.")
@click.option("--fire", is_flag=True, help="Add one job now, and print its id.")
@click.option("--delete", "del", is_flag=True, help="Delete the schedule; jobs that it has added stay.")
@node_options
def command(target: Target, name: str | None, words: tuple[str, ...], **flags: bool) -> None:
    """Show the schedules of the cluster, or one of them with its last and next times; or set or change one.

    \b
    Examples:
      disqued schedule
      disqued schedule nightly
      disqued schedule nightly "0 2 * * *" TZ Europe/Berlin QUEUE reports BODY sales
      disqued schedule nightly --pause

    WORDs are those of SCHEDULE SET behind the name; DRYRUN among them sets nothing and shows the next times.
    What became of a job is told as far as the node knows, in the words of SCHEDULE GET.
    """
    verbs = [flag.upper() for flag, is_given in flags.items() if is_given]
    if len(verbs) > 1:
        raise click.UsageError("one of --pause, --resume, --fire and --delete is allowed at a time")
    if verbs and name is None:
        raise click.UsageError("--pause, --resume, --fire and --delete go with the NAME of a schedule")
    if verbs and words:
        raise click.UsageError("WORDs set a schedule; they go without --pause, --resume, --fire and --delete")
    with target.node() as node:
        if name is None:
            _list(node)
        elif words:
            reply = node.call("SCHEDULE", "SET", os.fsencode(name), *map(os.fsencode, words))
            if isinstance(reply, list):
                _show_next(reply)
            else:
                _show(node, name)
        elif verbs:
            reply = node.call("SCHEDULE", *verbs, os.fsencode(name))
            if reply == 0:
                raise _unknown(name)
            click.echo(reply.decode() if isinstance(reply, bytes) else reply)
        else:
            _show(node, name)


def _unknown(name: str) -> Failed:
    return Failed(f"there is no schedule {short(name)}; `disqued schedule` names those that there are")


def _list(node: NodeConnection) -> None:
    rows = node.call("SCHEDULE", "LIST")
    texts = [
        [
            _text(name), _text(when), _text(queue), state.decode(), _moment(next_at), _moment(last_at), became.decode(),
            _text(error),
        ]
        for name, when, queue, state, next_at, last_at, became, error in rows
    ]  # fmt: skip
    print_table(["name", "when", "queue", "state", "next", "last", "became", "error"], texts)


def _show(node: NodeConnection, name: str) -> None:
    """Print what a schedule says, what became of its last instants, and when it comes next."""
    facts: Any = read_facts(node.call("SCHEDULE", "GET", os.fsencode(name)), b"")
    if facts is None:
        raise _unknown(name)
    runs = facts.pop("runs")
    rows = [[key, _moment(value) if key in _MOMENTS else _shown(value)] for key, value in facts.items()]
    print_table(["field", "value"], rows)
    for at, job_id, state in runs:
        click.echo(f"run: {moment(at)}  {state.decode():9}  {job_id.decode()}".rstrip())
    _show_next(node.call("SCHEDULE", "NEXT", os.fsencode(name), NEXT_SHOWN))


def _show_next(instants: list[Any]) -> None:
    for at in instants:
        click.echo(f"next: {moment(at)}")


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(_shown, value))
    return _text(value) if isinstance(value, bytes) else str(value)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _moment(at: int) -> str:
    return moment(at) if at else ""
