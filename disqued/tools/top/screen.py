"""How nodes and queues are drawn, and the keys that change it.

    127.0.0.1:7711   3 nodes, 12 queues, 40k jobs, 5.2k commands/s
    NODE ...
    QUEUE ...
    q quit   sort: l length  a age ...

Names of queues are data: nothing in them is read as a style, and what is no printable character is shown as an escape.
They are cut where there is no room, so that every figure has its place.
"""

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Iterator, Sequence

import attrs
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from disqued.tools.console_text import count, short, size, span
from disqued.tools.members import ID_SHOWN
from disqued.tools.top.table_rows import ORDERS, NodeRow, QueueRow
from disqued.wire.texts import shown

OTHER_LINES = 6  #: of the screen: heading, two headings of columns, blank lines and keys
_COLOURS = {"ok": "green", "left": "yellow", "leaving": "yellow", "loading": "yellow"}


@attrs.frozen
class TopView:
    """What is drawn."""

    nodes: Sequence[NodeRow]
    queues: Sequence[QueueRow]
    queues_in_all: int  #: the nodes have; more than rows when not all were looked at
    order: str
    reverse: bool


def draw(view: TopView, title: str, queue_lines: int, *, keys: bool) -> RenderableType:
    """All of it, with so many queues at most."""
    parts: list[RenderableType] = [_heading(view, title), Text(), _nodes(view), *_errors(view), Text()]
    parts.append(queue_table(view.queues[:queue_lines]))
    left = len(view.queues) - queue_lines
    if left > 0:
        parts.append(Text(f"{left} queues more", style="dim"))
    if keys:
        parts.append(_keys(view))
    return Group(*parts)


def _heading(view: TopView, title: str) -> Text:
    answering = [node for node in view.nodes if node.state != "away"]
    jobs = sum(node.jobs or 0 for node in answering)
    commands = sum(node.commands_s or 0 for node in answering)
    some = f" ({view.queues_in_all} on nodes, not all are looked at)" if view.queues_in_all > _parts(view) else ""
    return Text(
        f"{title}   {len(answering)} of {len(view.nodes)} nodes, {len(view.queues)} queues{some},"
        f" {count(jobs)} jobs with their copies, {count(commands)} commands/s"
    )


def _parts(view: TopView) -> int:
    return sum(queue.nodes for queue in view.queues)


def _table(*columns: str) -> Table:
    """A table whose first column gives way to the others, if it is one of queues: their names may be of any length."""
    # One blank between columns: the table of nodes has room on a terminal of 80 columns, and no figure is cut there.
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", expand=False)
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number == 0 or name in ("id", "state", "paused") else "right",
                         no_wrap=name != "queue", overflow="ellipsis")  # fmt: skip
    return table


def _nodes(view: TopView) -> Table:
    table = _table("node", "id", "state", "memory", "of", "jobs", "queues", "clients", "waiting", "ops/s", "sees")
    for node in view.nodes:
        state = Text(node.state, style=_COLOURS.get(node.state, "red"))
        if node.memory is None:
            table.add_row(printable(node.address), node.id[:ID_SHOWN], state)
            continue
        table.add_row(printable(node.address), node.id[:ID_SHOWN], state, size(node.memory),
                      size(node.memory_limit or 0), count(node.jobs or 0), count(node.queues or 0),
                      count(node.clients or 0), count(node.blocked or 0), _rate(node.commands_s),
                      f"{node.sees}/{node.known}")  # fmt: skip
    return table


def _errors(view: TopView) -> list[Text]:
    """Why there is nothing of some nodes, a line each."""
    return [printable(f"{node.address}: {node.error}") for node in view.nodes if node.error]


def queue_table(queues: Sequence[QueueRow], *, rates: bool = True) -> Table:
    """Draw queues; `rates`: there was a look before."""
    titles = ("length", "oldest", *(("in/s", "out/s") if rates else ()))
    table = _table("queue", *titles, "failing", "dead", "waiting", "paused", "nodes")
    for queue in queues:
        cells = [count(queue.length), "" if queue.oldest_s is None else span(queue.oldest_s)]
        cells += [_rate(queue.in_s), _rate(queue.out_s)] if rates else []
        cells += [count(queue.failing), count(queue.dead), count(queue.blocked)]
        cells += ["" if queue.pause == "none" else queue.pause, str(queue.nodes)]
        table.add_row(Text(short(queue.name), no_wrap=True, overflow="ellipsis"), *cells)
    return table


def _rate(per_second: float | None) -> str:
    if per_second is None:
        return "-"
    return f"{per_second:.1f}".removesuffix(".0") if per_second < 10 else count(per_second)


def printable(name: str) -> Text:
    """A name as it can be shown, in one line."""
    return Text(shown(name), no_wrap=True, overflow="ellipsis")


def _keys(view: TopView) -> Text:
    line = Text("q quit   r reverse   sort:", style="dim")
    for name, (key, _) in ORDERS.items():
        line.append(f"  {key} {name}", style="bold" if name == view.order else "dim")
    return line


# The keyboard.


@contextlib.contextmanager
def keyboard() -> Iterator[None]:
    """Read single keys, unseen, for the time of the `with`; nothing changes when standard input is no terminal."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def key(wait_s: float) -> str:
    """The key that is pressed within a time; "" for none.  The end of the input is a `q`."""
    if not sys.stdin.isatty():
        select.select([], [], [], wait_s)
        return ""
    readable, _, _ = select.select([sys.stdin], [], [], max(0.0, wait_s))
    if not readable:
        return ""
    return os.read(sys.stdin.fileno(), 1).decode(errors="replace") or "q"
