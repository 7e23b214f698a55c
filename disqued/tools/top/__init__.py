"""`disqued top`: the nodes and queues of a cluster, as they are now, again and again.

node_views.py   what the nodes are asked
table_rows.py   states, rates and order, from two views
screen.py       drawing
keyboard.py     keys
"""

import contextlib
import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from disqued.tools.connecting import Target, node_options
from disqued.tools.top.node_views import AGES_MAX, QUEUES_MAX, ClusterWatch, NodeSnapshot, QueueChoice, queues_in_all
from disqued.tools.top.table_rows import FORMER_NAMES, ORDERS, as_object, node_rows, queue_rows
from disqued.tools.values import Number

if TYPE_CHECKING:
    from disqued.tools.top.keyboard import Keyboard
    from disqued.tools.top.screen import TopView

INTERVAL_S: Final = 2.0
LINES: Final = 50  #: queues that --once shows
ENDS: Final = {"home": 0, "end": sys.maxsize}  #: keys, and the number of the queue that is drawn first then


class QueueColumn(click.Choice[str]):
    """A column that queues are sorted by; names that it had before are taken, too."""

    def __init__(self) -> None:
        super().__init__(list(ORDERS))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        column: str = super().convert(FORMER_NAMES.get(value, value), param, ctx)
        return column


@click.command()
@click.option("--interval", type=Number(0.1, 3_600), default=INTERVAL_S, show_default=True,
              metavar="SECONDS", help="Time between two looks.")  # fmt: skip
@click.option("--sort", "order", type=QueueColumn(), default="ready", show_default=True, metavar="COLUMN",
              help=f"Column that queues are sorted by: {', '.join(ORDERS)}; keys change it.")  # fmt: skip
@click.option("--reverse", is_flag=True, help="The other way round.")
@click.option("--queue", "pattern", default="*", metavar="PATTERN", help="Only queues whose names match, like mail-*.")
@click.option("--by-node", is_flag=True, help="One row for each queue and node.")
@click.option("--limit", type=click.IntRange(1), metavar="N",
              help=f"Queues to show at most.  [default: what fits; {LINES} with --once]")  # fmt: skip
@click.option("--once", is_flag=True, help="Look twice, for the rates, show that, and end.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line and look, for programs.")
@node_options
def command(  # noqa: PLR0917 - click gives them by name
    target: Target, interval: float, order: str, reverse: bool, pattern: str, by_node: bool, limit: int | None,
    once: bool, as_json: bool,
) -> None:  # fmt: skip
    """Show the nodes and queues of a cluster, as they are now; q or Ctrl-C ends it, and h shows the other keys.

    \b
    Examples:
      disqued top
      disqued top -h 10.0.0.1 --sort oldest --queue 'mail-*'
      disqued top --once --json | jq '.queues[] | select(.length > 1000)'

    -h and -p name any node; the others are found through it, and through each other when it goes away.  A node that
    does not answer is shown as away, and is there again when it answers; one that answers, but not to this user, is
    shown as refuses.  Why is told below the nodes.

    Of a node: state, memory and its limit (of), jobs with their copies, queues, clients, consumers that wait, commands
    a second (ops/s), and how many of the nodes that it knows it can give jobs to (sees).

    Of a queue, over all nodes that answer: jobs that are ready, in flight (consumers have them), delayed, failing and
    dead, age of the oldest that is ready, jobs that were queued (in/s) and that consumers were handed (out/s) a
    second, consumers that wait for it, on how many nodes it is, and its pause with the reason.  Each holder of a
    failing or dead job counts it: these figures are those of the node that has most of them.  Holders count a job that
    a NACK or a back-off has put off, too, so that delayed may be too many.  A dash stands for what a node of an older
    version does not tell.  A narrow terminal shows fewer columns.

    Rates are of the time between two looks.  Of each node 2000 queues are looked at, and the age of the oldest job in
    the 200 longest.
    """
    choice = QueueChoice(pattern, QUEUES_MAX, AGES_MAX)
    shown = WatchedCluster(target, interval, choice, order, reverse, by_node, limit)
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
    choice: QueueChoice
    order: str = "ready"
    reverse: bool = False
    by_node: bool = False
    limit: int | None = None
    first: int = 0  #: number of the queue that is to be drawn first; while there are fewer, the last ones are
    typed: str | None = None  #: pattern that is being typed
    helps: bool = False
    _looks: list[NodeSnapshot] = attrs.field(factory=list)
    _before: list[NodeSnapshot] = attrs.field(factory=list)

    def print(self, *, once: bool, as_json: bool) -> None:
        """Write what there is to standard output: once, or after every look for ever."""
        watch, wait_s = ClusterWatch(self.target, self.choice), self.target.timeout
        self.note(watch.look(max(self.interval, wait_s)))
        while True:
            time.sleep(self.interval)
            self.note(watch.look(max(self.interval, wait_s)))
            if as_json:
                click.echo(json.dumps(self._object()))
            else:
                from disqued.tools.console_text import console, fitting_width
                from disqued.tools.top.screen import draw

                console().print(draw(self.view(), str(self.target), fitting_width(), self.limit or LINES))
            if once:
                return

    def draw(self) -> None:
        """Draw on the terminal until `q`."""
        from rich.console import Console
        from rich.live import Live

        from disqued.tools.top.keyboard import keyboard

        watch, console = ClusterWatch(self.target, self.choice), Console()
        self.note(watch.look(self.interval))
        with keyboard() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
            looking = Looking(watch, self.interval, keys)
            looking.start()
            while True:
                width, height = console.size
                live.update(self._drawn(width, height), refresh=True)
                for key in keys.wait():
                    if self.press(key, height):
                        return
                for looks in looking.taken():
                    self.note(looks)

    def _drawn(self, width: int, height: int) -> Any:
        from disqued.tools.top.screen import draw, draw_help

        if self.helps:
            return draw_help()
        view = self.view()
        page = self._page(view, height)
        first = max(0, min(self.first, len(view.queues) - page))
        return draw(attrs.evolve(view, first=first), str(self.target), width, page, height)

    def _page(self, view: "TopView", height: int) -> int:
        """Return how many queues are drawn at a time."""
        from disqued.tools.top.screen import queue_lines

        lines = queue_lines(view.nodes, height)
        return min(lines, self.limit or lines)

    def press(self, key: str, height: int) -> bool:
        """Do what a key means; return whether that is the end."""
        if self.typed is not None:
            self._type(key)
        elif self.helps:
            self.helps = False
            return key == "q"
        elif key == "q":
            return True
        elif key in ("h", "?"):
            self.helps = True
        elif key == "/":
            self.typed = "" if self.choice.pattern == "*" else self.choice.pattern
        elif key == "m":
            self.by_node = not self.by_node
        elif key == "r":
            self.reverse = not self.reverse
        elif key in ("s", ">", "<"):
            titles = list(ORDERS)
            step = -1 if key == "<" else 1
            self._sort(titles[(titles.index(self.order) + step) % len(titles)])
        elif titles := [title for title, column in ORDERS.items() if column.key == key]:
            self._sort(titles[0])
        else:
            self._scroll(key, height)
        return False

    def _sort(self, order: str) -> None:
        self.order, self.reverse, self.first = order, False, 0

    def _scroll(self, key: str, height: int) -> None:
        if key in ENDS:
            self.first = ENDS[key]
            return
        view = self.view()
        page = self._page(view, height)
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page-up": -page, "page-down": page, " ": page}
        if view.queues:  # else no node answers just now, and the place stays
            last = max(0, len(view.queues) - page)
            self.first = max(0, min(min(self.first, last) + steps.get(key, 0), last))

    def _type(self, key: str) -> None:
        """Change the pattern that is being typed, or take it."""
        assert self.typed is not None
        if key == "enter":
            self.choice.pattern, self.first, self.typed = self.typed or "*", 0, None
        elif key == "escape":
            self.typed = None
        elif key in ("backspace", "clear"):
            self.typed = self.typed[:-1] if key == "backspace" else ""
        elif len(key) == 1 and key.isprintable():
            self.typed += key

    def note(self, looks: list[NodeSnapshot]) -> None:
        """Show these looks from now on, and rates since those before."""
        self._before, self._looks = self._looks, looks

    def view(self) -> "TopView":
        """Make what is drawn of the last looks."""
        from disqued.tools.top.screen import TopView

        rows = queue_rows(self._looks, self._before, self.order, reverse=self.reverse, by_node=self.by_node,
                          fits=self.choice.fits)  # fmt: skip
        in_all = queues_in_all(self._looks) if self.choice.pattern == "*" else 0
        return TopView(node_rows(self._looks, self._before), rows,
                       in_all, self.order, self.reverse, self.choice.pattern, self.by_node, 0, self.typed)  # fmt: skip

    def _object(self) -> dict[str, object]:
        view = self.view()
        return {**as_object(view.nodes, view.queues[: self.limit]), "queues_in_all": view.queues_in_all}


class Looking(threading.Thread):
    """Looks at the nodes again and again, while keys are waited for."""

    def __init__(self, watch: ClusterWatch, interval: float, keys: "Keyboard") -> None:
        super().__init__(daemon=True)
        self._watch = watch
        self._interval = interval
        self._keys = keys
        self._looks: list[list[NodeSnapshot]] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        """Look until the end of the process."""
        try:
            while True:
                time.sleep(self._interval)
                self._looks.append(self._watch.look(self._interval))
                self._keys.interrupt()
        except BaseException as error:
            self._error = error
            self._keys.interrupt()

    def taken(self) -> list[list[NodeSnapshot]]:
        """Return the looks since the last call.  Raises what has ended the thread."""
        if self._error is not None:
            raise self._error
        looks, self._looks = self._looks, []
        return looks
