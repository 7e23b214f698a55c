"""`disqued policy`: what a queue says of jobs that do not say it themselves."""

import os
import re
from typing import Final

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
      disqued policy mail inflight=5 rate=10/1s:50
      disqued policy mail --unset maxtries

    Fields: ttl, retry, replicate, maxlen, maxtries, backoff (FIRST or FIRST,MOST), keepdead, result, and fair without
    a value.  ADDJOB takes each from its queue that it does not give itself; fair lets the groups of the queue take
    turns.

    Limits: inflight and groupinflight, rate and grouprate (JOBS/SECONDS or JOBS/SECONDS:BURST, such as 10/1s:50),
    partition (strict or available).

    idle: seconds without jobs, consumers and use after which the queue forgets its policy.
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
        words += [key, *_values(key.lower(), value)]
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


#: JOBS/SECONDS or JOBS/SECONDS:BURST.
_RATE: Final = re.compile(r"(\d+)/(\d+\.?\d*|\.\d+)s?(?::(\d+))?")


def _values(key: str, value: str) -> list[str]:
    """Return the words of a value."""
    if key not in ("rate", "grouprate"):
        return value.split(",")
    found = _RATE.fullmatch(value)
    if found is None:
        raise click.UsageError(f"{short(value)} is no rate: expected JOBS/SECONDS[:BURST], as in 10/1s:50")
    count, per, burst = found.groups()
    return [count, "PER", per, *(() if burst is None else ("BURST", burst))]
