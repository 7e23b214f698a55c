"""`disqued top`: the nodes and queues of a cluster, as they are now, again and again.

node_views.py   what the nodes are asked
table_rows.py   states, rates and order, from two views
screen.py       drawing, and keys
"""

import contextlib
import fnmatch
import json
import sys
import time
from typing import TYPE_CHECKING, Final

import attrs
import click

from disqued.tools.connecting import Target, node_options
from disqued.tools.top.node_views import ClusterWatch, NodeSnapshot, queues_in_all
from disqued.tools.top.table_rows import ORDERS, node_rows, queue_rows
from disqued.tools.values import Number

if TYPE_CHECKING:
    from disqued.tools.top.screen import TopView

INTERVAL_S: Final = 2.0
LINES: Final = 50  #: queues that --once shows


@click.command()
@click.option("--interval", type=Number(0.1, 3_600), default=INTERVAL_S, show_default=True,
              metavar="SECONDS", help="Time between two looks.")  # fmt: skip
@click.option("--sort", "order", type=click.Choice(list(ORDERS)), default="length", show_default=True,
              metavar="WORD",
              help="What queues are sorted by: length, age, in, out, blocked or name; a key changes it.")  # fmt: skip
@click.option("--reverse", is_flag=True, help="The other way round.")
@click.option("--queue", "pattern", default="*", metavar="PATTERN", help="Only queues whose names match, like mail-*.")
@click.option("--limit", type=click.IntRange(1), metavar="N",
              help=f"Queues to show at most.  [default: what fits; {LINES} with --once]")  # fmt: skip
@click.option("--once", is_flag=True, help="Look twice, for the rates, show that, and end.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line and look, for programs.")
@node_options
def command(  # noqa: PLR0917 - click gives them by name
    target: Target, interval: float, order: str, reverse: bool, pattern: str, limit: int | None, once: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Show the nodes and queues of a cluster, as they are now; q or Ctrl-C ends it.

    \b
    Examples:
      disqued top
      disqued top -h 10.0.0.1 --sort age --queue 'mail-*'
      disqued top --once --json | jq '.queues[] | select(.length > 1000)'

    -h and -p name any node; the others are found through it, and through each other when it goes away.  A node that
    does not answer is shown as away, and is there again when it answers; one that answers, but not to this user, is
    shown as refuses.  Why is told below the nodes.

    Of a node: state, memory and its limit (of), jobs with their copies, queues, clients, consumers that wait, commands
    a second (ops/s), and how many of the nodes that it knows it can give jobs to (sees).

    Of a queue: jobs that wait on all nodes, age of the oldest, jobs that were queued (in/s) and that left it (out/s) a
    second, consumers that wait for it, whether it is paused, and on how many nodes it is.

    Rates are of the time between two looks.  Of each node 2000 queues are looked at, and the age of the oldest job in
    the 200 longest.
    """
    shown = WatchedCluster(target, interval, order, reverse, pattern, limit)
    if not (once or as_json or sys.stdout.isatty()):
        raise click.UsageError("standard output is no terminal to draw on; --once and --json write to anything")
    with contextlib.suppress(KeyboardInterrupt):
        if once or as_json:
            shown.print(once=once, as_json=as_json)
        else:
            shown.draw()


@attrs.define
class WatchedCluster:
    """A cluster that is watched."""

    target: Target
    interval: float
    order: str
    reverse: bool
    pattern: str
    limit: int | None
    _looks: list[NodeSnapshot] = attrs.field(factory=list)
    _before: list[NodeSnapshot] = attrs.field(factory=list)

    def print(self, *, once: bool, as_json: bool) -> None:
        """Write what there is to standard output: once, or after every look for ever."""
        watch, wait_s = ClusterWatch(self.target), self.target.timeout
        self._look(watch, wait_s)
        while True:
            time.sleep(self.interval)
            self._look(watch, wait_s)
            if as_json:
                click.echo(json.dumps(self._object()))
            else:
                from disqued.tools.console_text import console
                from disqued.tools.top.screen import draw

                console().print(draw(self._view(), str(self.target), self.limit or LINES, keys=False))
            if once:
                return

    def draw(self) -> None:
        """Draw on the terminal until `q`."""
        from rich.console import Console
        from rich.live import Live

        from disqued.tools.top.screen import OTHER_LINES, draw, key, keyboard

        watch, console = ClusterWatch(self.target), Console()
        self._look(watch)
        with keyboard(), Live(console=console, screen=True, auto_refresh=False) as live:
            next_at = time.monotonic() + self.interval
            while True:
                view = self._view()
                errors = sum(1 for node in view.nodes if node.error)
                lines = max(1, console.height - OTHER_LINES - len(view.nodes) - errors)
                live.update(draw(view, str(self.target), min(lines, self.limit or lines), keys=True), refresh=True)
                pressed = key(next_at - time.monotonic())
                if pressed == "q":
                    return
                self._press(pressed)
                if time.monotonic() >= next_at:
                    self._look(watch)
                    next_at = time.monotonic() + self.interval

    def _press(self, pressed: str) -> None:
        if pressed == "r":
            self.reverse = not self.reverse
        for name, (key, _) in ORDERS.items():
            if pressed == key:
                self.order, self.reverse = name, False

    def _look(self, watch: ClusterWatch, wait_s: float = 0.0) -> None:
        """Look again.  What is drawn is looked at soon again; what is written once waits for each node."""
        self._before, self._looks = self._looks, watch.look(max(self.interval, wait_s))

    def _view(self) -> "TopView":
        from disqued.tools.top.screen import TopView

        rows = queue_rows(self._looks, self._before, self.order, reverse=self.reverse)
        rows = [row for row in rows if fnmatch.fnmatchcase(row.name, self.pattern)]
        in_all = queues_in_all(self._looks) if self.pattern == "*" else 0
        return TopView(node_rows(self._looks, self._before), rows, in_all, self.order, self.reverse)

    def _object(self) -> dict[str, object]:
        view = self._view()
        return {
            "at": time.time(),
            "nodes": [attrs.asdict(row) for row in view.nodes],
            "queues": [attrs.asdict(row) for row in view.queues[: self.limit]],
            "queues_in_all": view.queues_in_all,
        }
