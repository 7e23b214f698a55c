"""How nodes and queues are drawn.

    127.0.0.1:7711   3 nodes, 12 queues, 40k jobs, 5.2k commands/s
    NODE ...
    QUEUE ...
    queues 1-12 of 40, matching mail-*
    q quit   h help   s sort (ready) ...

Names of queues are data: nothing in them is read as a style, and what is no printable character is shown as an escape.
Where there is no room columns are left out, and names are cut, so that every figure has its place.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import attrs
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from disqued.tools.console_text import count, size
from disqued.tools.members import ID_SHOWN
from disqued.tools.polling import named_error
from disqued.tools.top.table_rows import (
    COLUMNS,
    NAME,
    NODE,
    NODES,
    ORDERS,
    PAUSED,
    RATES,
    NodeRow,
    QueueRow,
    rate_text,
)
from disqued.wire.texts import shown

OTHER_LINES: Final = 7  #: of the screen: heading, two headings of columns, blank lines, position and keys
NAME_ROOM: Final = 17  #: characters that names are given, for which columns are left out
PAUSE_ROOM: Final = 7  #: and pauses, whose reasons have the room that is left over
FEWEST: Final = 3  #: lines that nodes are given, and queues, however low the screen is
_COLOURS: Final = {"ok": "green", "left": "yellow", "leaving": "yellow", "loading": "yellow"}


@attrs.frozen
class TopView:
    """What is drawn."""

    nodes: Sequence[NodeRow]
    queues: Sequence[QueueRow]
    queues_in_all: int  #: the nodes have; more than rows when not all were looked at
    order: str
    reverse: bool
    pattern: str = "*"
    by_node: bool = False
    first: int = 0  #: number of the queue that is drawn first
    typed: str | None = None  #: pattern that is being typed


def draw(view: TopView, title: str, width: int, lines: int, height: int | None = None) -> RenderableType:
    """All of it, with so many queues at most; on a screen of a height the keys are in its last line."""
    nodes, left_out = (view.nodes, 0) if height is None else nodes_that_fit(view.nodes, height)
    parts: list[RenderableType] = [_heading(view, title), Text(), _nodes(nodes), *_errors(nodes)]
    if left_out:
        parts.append(Text(f"{left_out} nodes more", style="dim"))
    rows = view.queues[view.first :][:lines]
    parts += [Text(), queue_table(rows, width, by_node=view.by_node)]
    if height is None:
        return Group(*parts, _position(view, len(rows)))
    blank = max(0, queue_lines(view.nodes, height) - len(rows))
    return Group(*parts, *[Text()] * blank, _position(view, len(rows)), _keys(view, width))


def nodes_that_fit(nodes: Sequence[NodeRow], height: int) -> tuple[Sequence[NodeRow], int]:
    """Return the nodes that are drawn, those with trouble first if not all are, and how many are not."""
    room = max(FEWEST, (height - OTHER_LINES) // 2)
    if _node_lines(nodes) <= room:
        return nodes, 0
    found: list[NodeRow] = []
    for node in sorted(nodes, key=lambda node: node.state == "ok"):
        if _node_lines([*found, node]) >= room and found:
            break
        found.append(node)
    return found, len(nodes) - len(found)


def queue_lines(nodes: Sequence[NodeRow], height: int) -> int:
    """Return how many queues fit on a screen below the nodes."""
    shown_nodes, left_out = nodes_that_fit(nodes, height)
    return max(FEWEST, height - OTHER_LINES - _node_lines(shown_nodes) - (left_out > 0))


def _node_lines(nodes: Sequence[NodeRow]) -> int:
    return len(nodes) + sum(1 for node in nodes if node.error)


def _heading(view: TopView, title: str) -> Text:
    answering = [node for node in view.nodes if node.state != "away"]
    jobs = sum(node.jobs or 0 for node in answering)
    commands = sum(node.commands_s or 0 for node in answering)
    some = f" ({view.queues_in_all} on nodes, not all are looked at)" if view.queues_in_all > _parts(view) else ""
    text = (
        f"{title}  {len(answering)} of {len(view.nodes)} nodes, {len(view.queues)} queues{some},"
        f" {count(jobs)} copies of jobs, {count(commands)} commands/s"
    )
    return Text(text, no_wrap=True, overflow="ellipsis")


def _parts(view: TopView) -> int:
    return sum(1 if queue.node else queue.nodes for queue in view.queues)


def _table(columns: Iterable[tuple[str, bool]]) -> Table:
    """A table of columns by their titles, and whether they are text."""
    # One blank between columns: the table of nodes has room on a terminal of 80 columns, and no figure is cut there.
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", expand=False)
    for title, is_text in columns:
        table.add_column(title, justify="left" if is_text else "right", no_wrap=True, overflow="ellipsis")
    return table


def _nodes(nodes: Sequence[NodeRow]) -> Table:
    titles = ("node", "id", "state", "memory", "of", "jobs", "queues", "clients", "waiting", "ops/s", "sees")
    table = _table((title, title in ("node", "id", "state")) for title in titles)
    for node in nodes:
        state = Text(node.state, style=_COLOURS.get(node.state, "red"))
        if node.memory is None:
            table.add_row(printable(node.address), node.id[:ID_SHOWN], state)
            continue
        table.add_row(printable(node.address), node.id[:ID_SHOWN], state, size(node.memory),
                      size(node.memory_limit or 0), count(node.jobs or 0), count(node.queues or 0),
                      count(node.clients or 0), count(node.blocked or 0), rate_text(node.commands_s),
                      f"{node.sees}/{node.known}")  # fmt: skip
    return table


def _errors(nodes: Sequence[NodeRow]) -> list[Text]:
    """Why there is nothing of some nodes, a line each."""
    return [printable(named_error(node.address, node.error)) for node in nodes if node.error]


def queue_table(rows: Sequence[QueueRow], width: int, *, rates: bool = True, by_node: bool = False) -> Table:
    """Draw queues on so many columns; `rates`: there was a look before."""
    wanted = [
        column for column in COLUMNS if (rates or column not in RATES) and column is not (NODES if by_node else NODE)
    ]
    cells = {column.title: [column.cell(row) for row in rows] for column in wanted}
    widths = {title: max(map(cell_len, [title, *texts])) for title, texts in cells.items()}
    # Which columns there are depends on figures alone, so that they stay while queues are scrolled.
    least = {**widths, NAME.title: NAME_ROOM, PAUSED.title: PAUSE_ROOM}
    while sum(least.values()) + len(least) - 1 > width and any(column.rank for column in wanted):
        left_out = max(wanted, key=lambda column: column.rank)
        wanted.remove(left_out)
        del least[left_out.title]
    room = width - (sum(least.values()) + len(least) - 1) + NAME_ROOM + PAUSE_ROOM
    name_width = max(NAME_ROOM, min(widths[NAME.title], room - PAUSE_ROOM))
    most = {NAME.title: name_width, PAUSED.title: max(PAUSE_ROOM, room - min(name_width, widths[NAME.title]))}
    table = _table((column.title, column in (NAME, NODE, PAUSED)) for column in wanted)
    for number in range(len(rows)):
        table.add_row(*(_cut(cells[column.title][number], most.get(column.title)) for column in wanted))
    return table


def _cut(cell: str, most: int | None) -> Text:
    text = printable(cell)
    if most is not None:
        text.truncate(most, overflow="ellipsis")
    return text


def printable(name: str) -> Text:
    """A name as it can be shown, in one line."""
    return Text(shown(name), no_wrap=True, overflow="ellipsis")


def _position(view: TopView, drawn: int) -> Text:
    """Say which of the queues are drawn, and of which pattern, if that is not all of them."""
    matching = "" if view.pattern == "*" else f" that match {view.pattern}"
    total = len(view.queues)
    if not total:
        return printable(f"no queues{matching}")
    if drawn == total and not matching:
        return Text()
    rows = "rows" if view.by_node else "queues"
    span = f"{view.first + 1}-{view.first + drawn} of " if drawn < total else ""
    text = printable(f"{rows} {span}{total}{matching}")
    text.stylize("dim")
    return text


def _keys(view: TopView, width: int) -> Text:
    if view.typed is not None:
        line = printable(f"queues that match (* is any text): {view.typed}_   Enter: show   Esc: leave as it was")
    else:
        arrow = "reversed" if view.reverse else "first"
        line = Text(f"q quit  h help  arrows scroll  / filter  r reverse  s sort: {view.order} {arrow}", style="dim",
                    no_wrap=True, overflow="ellipsis")  # fmt: skip
    line.truncate(width, overflow="ellipsis")
    return line


def draw_help() -> RenderableType:
    """The keys, and what the columns mean."""
    lines = [
        ("q, Ctrl-C", "end"),
        ("h, ?", "show or leave this help"),
        ("up, down, j, k", "scroll the queues by one"),
        ("PgUp, PgDn, space", "scroll by a page"),
        ("Home, End", "show the first or the last queues"),
        ("s, >, <", "sort by the next column, or by the one before"),
        *((column.key, f"sort by {title}") for title, column in ORDERS.items()),
        ("r", "reverse the order"),
        ("/", "show queues that match a pattern, such as mail-*; nothing shows all"),
        ("m", "one row for each queue and node, or one for each queue"),
    ]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for keys, meaning in lines:
        table.add_row(keys, meaning)
    return Group(Text("disqued top: keys", style="bold"), Text(), table)
