"""`disqued bench`: a load on a node, and how long its requests take.

mix.py         which commands, and how often each
load.py        one process of it: connections, and when each request is sent
crew.py        all processes, and what they have counted together
latencies.py   every request is counted, percentiles are exact
report.py      table, JSON, CSV
leftovers.py   the jobs that stay behind
"""

import contextlib
import json
import os
from collections.abc import Sequence
from typing import Any, Final

import click

from disqued.client.errors import DisquedError
from disqued.tools.bench.mix import DEFAULT, BadMix, Mix, make_mix, of_words, read_mix, template
from disqued.tools.connecting import Failed, Target, node_options
from disqued.tools.program import FAILED, INTERRUPTED
from disqued.tools.values import Number

CONNECTIONS: Final = 50
REQUESTS: Final = 100_000
SIZE: Final = 64
SIZE_MAX: Final = 512 << 20
QUEUES_MAX: Final = 1_000


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, metavar="[COMMAND ...]")
@click.option("-c", "--connections", type=click.IntRange(1, 10_000), default=CONNECTIONS, show_default=True,
              metavar="N", help="Connections, over all processes.")  # fmt: skip
@click.option("-n", "--requests", type=click.IntRange(1), metavar="N", help=f"Requests in all.  [default: {REQUESTS}]")
@click.option("--seconds", type=Number(0, min_open=True), metavar="SECONDS",
              help="Go on for that time, in the place of -n.")  # fmt: skip
@click.option("-P", "--pipeline", type=click.IntRange(1, 10_000), default=1, show_default=True, metavar="N",
              help="Requests that a connection has under way at most.")  # fmt: skip
@click.option("-d", "--size", type=click.IntRange(0, SIZE_MAX), default=SIZE, show_default=True, metavar="BYTES",
              help="Length of __body__.")  # fmt: skip
@click.option("--rate", type=Number(0, min_open=True), metavar="N",
              help="Requests a second, due at even times, whatever became of those before.")  # fmt: skip
@click.option("--mix", metavar="NAME=WEIGHT,...", help=f"Commands, and how often each.  [default: {DEFAULT}]")
@click.option("--command", "commands", multiple=True, metavar="NAME=TEMPLATE", help="One more name for --mix.")
@click.option("--queue", default="bench", show_default=True, metavar="NAME", help="What __queue__ is.")
@click.option("--queues", type=click.IntRange(1, QUEUES_MAX), default=1, show_default=True, metavar="N",
              help="Several: NAME-0, NAME-1 ... in turn.")  # fmt: skip
@click.option("--processes", type=click.IntRange(1, 256), default=1, show_default=True, metavar="N",
              help="Processes that send: more, when one is all that it can.")  # fmt: skip
@click.option("--keep", is_flag=True, help="Leave the jobs that are left in their queues.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@click.option("--csv", "as_csv", is_flag=True, help="CSV, a line for each command.")
@node_options
@click.pass_context
def command(  # noqa: PLR0917 - click gives them by name
    context: click.Context, target: Target, words: tuple[str, ...], connections: int, requests: int | None,
    seconds: float | None, pipeline: int, size: int, rate: float | None, mix: str | None, commands: tuple[str, ...],
    queue: str, queues: int, processes: int, keep: bool, as_json: bool, as_csv: bool,
) -> None:  # fmt: skip
    """Put a load on a node, and tell how long its requests take: p50, p99, p99.9 and the longest.

    \b
    Examples:
      disqued bench                                     jobs are added, taken and acknowledged
      disqued bench -c 10 -P 16 -n 1000000 --mix addjob
      disqued bench --rate 5000 --seconds 60 --mix addjob=5,getjob=4,ackjob=1
      disqued bench --mix a,getjob --command a='ADDJOB __queue__ __body__ 0 TTL 9'
      disqued bench -n 1000 QPEEK __queue__ 10          this command alone
      disqued bench --rate 1000 --json | jq '.commands[-1].p99_ms'

    Without --rate each connection sends -P requests at once, and the next when all replies are there; a request takes
    from when it was sent to its reply.  That finds out how much a node can do.  It hides stalls: while the node stands
    still nobody asks.

    With --rate request k is due at k / rate, and takes from when it was DUE to its reply.  A node that stands still for
    a second delays all that were due meanwhile, and each of them counts with what it waited, sent or not.  That is what
    users of the node see; use it to find out how a node does under a load that it can bear.

    In commands __queue__ is the queue, __body__ the body, __n__ a number that comes once, and __id__ a job that this
    load was told of: handed out by its GETJOBs, or if it has none, added by its ADDJOBs.  While no job is known another
    command has the turn.  Names that --mix knows without --command are addjob, getjob, ackjob, fastack, nack, working,
    enqueue, dequeue, deljob, show, qlen, qpeek, qstat, ping and hello.

    Jobs that are left in the queues at the end are told, and acknowledged unless --keep says otherwise; so a queue that
    holds jobs before is refused.  What other commands than ADDJOB add is left.

    Exit status 0 when all replies were fine, 1 when some were errors or the node went away, 2 for a load that cannot
    be.
    """
    if requests is not None and seconds is not None:
        raise click.UsageError("-n says how many requests and --seconds how long: one of them is allowed")
    if as_json and as_csv:
        raise click.UsageError("--json and --csv are two forms of the same: one of them is allowed")
    names = [os.fsencode(queue)] if queues == 1 else [os.fsencode(f"{queue}-{number}") for number in range(queues)]
    try:
        chosen = _mix(words, mix, commands)
        filled = _filled(chosen, names, keep=keep)
    except BadMix as error:
        raise click.UsageError(str(error)) from None
    if requests is None and seconds is None:
        requests = REQUESTS
    processes = min(processes, connections, requests or processes)
    load = {"address": str(target), "connections": connections, "pipeline": pipeline, "size": size, "rate": rate,
            "processes": processes}  # fmt: skip
    _check(target, [] if keep else filled)

    from disqued.tools.bench.crew import Crew
    from disqued.tools.bench.leftovers import leftovers, remove

    plans = _plans(target, chosen, names, load, requests, seconds)
    try:
        figures = Crew(plans).run()
    except Failed:
        with contextlib.suppress(Failed, DisquedError):  # the first failure is the one to tell
            remove(target, [] if keep else filled)
        raise
    left = len(leftovers(target, filled)) if keep else remove(target, filled)
    _tell(figures, {**load, "left": left, "removed": not keep}, as_json=as_json, as_csv=as_csv)
    context.exit(INTERRUPTED if figures.was_interrupted else FAILED if figures.errors else 0)


def _mix(words: Sequence[str], mix: str | None, commands: Sequence[str]) -> Mix:
    """The commands that were asked for.  Raises BadMix."""
    if words:
        if mix is not None or commands:
            raise BadMix("a COMMAND is all that the load is made of; --mix and --command do not go with it")
        return make_mix([of_words(words[0].lower(), words)], [1])
    own = {}
    for text in commands:
        name, equals, body = text.partition("=")
        if not equals or not name or set(name) & set(",= "):
            raise BadMix(f"--command {text!r} is written NAME='ADDJOB __queue__ __body__ 0'")
        own[name] = template(name, body)
    return read_mix(mix or (",".join(own) if own else DEFAULT), own)


def _filled(mix: Mix, queues: list[bytes], *, keep: bool) -> list[bytes]:
    """The queues whose jobs are told of at the end.  Raises BadMix when they are to be removed and nobody can know."""
    try:
        return mix.filled(queues)
    except BadMix:
        if keep:
            return []
        raise


def _check(target: Target, filled: Sequence[bytes]) -> None:
    """See that the node answers, and that nobody else's jobs are in the queues.  Raises Failed."""
    from disqued.tools.bench.leftovers import leftovers

    with target.node() as node:
        node.call("PING")
    if filled and (there := leftovers(target, filled)):
        raise Failed(
            f"{len(there)} jobs are in {b', '.join(filled[:3]).decode(errors='replace')} already, and what is left"
            " there is removed at the end: name another --queue, or --keep them all"
        )


def _plans(  # noqa: PLR0917 - they stand as in `Plan`
    target: Target, mix: Mix, queues: list[bytes], load: dict[str, Any], requests: int | None, seconds: float | None
) -> list[Any]:
    """Share the load among processes, as evenly as it goes."""
    from disqued.tools.bench.load import Plan

    processes: int = load["processes"]
    rate: float | None = load["rate"]

    def share(whole: int, number: int) -> int:
        return whole * (number + 1) // processes - whole * number // processes

    return [
        Plan(
            target, mix, tuple(queues), load["size"], share(load["connections"], number), load["pipeline"],
            None if requests is None else share(requests, number), seconds, None if rate is None else rate / processes,
            number, processes,
        )
        for number in range(processes)
    ]  # fmt: skip


def _tell(figures: Any, more: dict[str, Any], *, as_json: bool, as_csv: bool) -> None:
    from disqued.tools.bench import report
    from disqued.tools.console_text import console

    if as_json:
        click.echo(json.dumps(report.as_object(figures, more)))
        return
    if as_csv:
        click.echo(report.as_csv(figures), nl=False)
        return
    rate = "as fast as it goes" if more["rate"] is None else f"{more['rate']:g} requests a second"
    click.echo(
        f"{more['address']}: {more['connections']} connections, pipeline {more['pipeline']}, bodies of"
        f" {more['size']} bytes, {rate}, {figures.seconds:.2f} s\n"
    )
    console().print(report.as_table(figures))
    lines = [*report.remarks(figures)]
    if more["left"]:
        lines.append(f"{more['left']:,} jobs were left, and are {'removed' if more['removed'] else 'kept'}")
    click.echo("\n".join(["", *lines]) if lines else "", nl=bool(lines))
