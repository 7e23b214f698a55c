"""`disqued policy`: what a queue says of jobs that do not say it themselves."""

import os

import click

from disqued.core.model.policies import PAUSE_FIELD, QUEUE_FIELD_NAMES
from disqued.tools.connecting import Target, node_options
from disqued.tools.console_text import short
from disqued.tools.queue_verbs.field_tables import moment, print_table

FIELDS = [name.decode() for field, name in QUEUE_FIELD_NAMES.items() if field != PAUSE_FIELD]


@click.command()
@click.argument("queue", metavar="QUEUE")
@click.argument("fields", metavar="[FIELD=VALUE...]", nargs=-1)
@click.option("--unset", multiple=True, metavar="FIELD", help="Take this field back; may be given several times.")
@node_options
def command(target: Target, queue: str, fields: tuple[str, ...], unset: tuple[str, ...]) -> None:
    """Show the policy of QUEUE in the whole cluster, or set fields of it.

    \b
    Examples:
      disqued policy mail
      disqued policy mail maxtries=5 backoff=10,600
      disqued policy mail fair
      disqued policy mail --unset maxtries

    Fields: ttl, retry, replicate, maxlen, maxtries, backoff (FIRST or FIRST,MOST), keepdead, result, and fair without
    a value.  ADDJOB takes each from its queue that it does not give itself; fair lets the groups of the queue take
    turns.
    """
    name = os.fsencode(queue)
    words: list[str] = []
    for field in fields:
        key, sign, value = field.partition("=")
        if key == "fair" and value in {"", "1"}:
            words.append(key)
            continue
        if not sign:
            raise click.UsageError(f"{short(field)} is no FIELD=VALUE, such as maxtries=5")
        _check(key)
        words += [key, *value.split(",")]
    for key in unset:
        _check(key)
    with target.node() as node:
        if words:
            node.call("QPOLICY", name, "SET", *words)
        if unset:
            node.call("QPOLICY", name, "UNSET", *unset)
        rows = node.call("QPOLICY", name, "GET")
    texts = [[field.decode(), value.decode(), moment(at), node_id[:8].decode()] for field, value, node_id, at in rows]
    print_table(["field", "value", "set", "on node"], texts)


def _check(field: str) -> None:
    """Check the name of a field.  Raises UsageError."""
    if field.lower() not in FIELDS:
        raise click.UsageError(f"{short(field)} is no field; allowed are {', '.join(FIELDS)}")
