"""Pages of queues on three real nodes: their figures are the sums of what Redis commands answer on all of them."""

import re
import select
import socket
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import attrs
import pytest

from tests.integration.cluster import QUICK, Cluster, ends_well
from tests.integration.daemon import HOST, Daemon, free_port, launch, wait_until
from tests.limits import LIMIT

#: Fields of QSTAT in the order of the columns of the page of a queue; the table of queues begins with the first five.
FIELDS = ("len", "in-flight", "delayed", "dead", "failing", "blocked", "jobs-in", "delivered", "consumed")


@attrs.define
class ShownCluster(Cluster):
    """A cluster whose first node has pages."""

    http_port: int = attrs.field(factory=free_port)

    def launch(self, number: int, port: int = 0) -> Daemon:
        """Start the process of a node."""
        options = self.options if number else (*self.options, "--http-port", str(self.http_port))
        return launch(self.directory / f"node-{number}", options, port=port)

    def problem(self, path: str) -> str:
        """Get the page of something that is missing."""
        with pytest.raises(HTTPError, match="404") as caught:
            self.page(path)
        return str(caught.value.read().decode())

    def page(self, path: str) -> str:
        """Get a page."""
        asked = Request(f"http://{HOST}:{self.http_port}{path}", headers={"Accept": "text/html"})
        with urlopen(asked, timeout=LIMIT) as answer:
            return str(answer.read().decode())


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[ShownCluster]:
    with ends_well(ShownCluster(tmp_path, QUICK)) as cluster:
        cluster.start(3)
        yield cluster


def figures(html: str, key: str) -> list[str]:
    """What the row of a key says, without its rates and ages."""
    row = re.search(rf'<tr data-key="{re.escape(key)}">(.*?)</tr>', html, re.DOTALL)
    assert row is not None, html
    return [
        unescape(cell)
        for cell in re.findall(r'<td data-label="[^"]*" class="num(?: strong)?">(?:<a [^>]*>)?([^<]*)<', row[1])
    ]


def told(daemons: list[Daemon], queue: str) -> list[str]:
    """Add up what QSTAT answers on nodes."""
    answers = [daemon.call("QSTAT", queue, "FULL") for daemon in daemons]
    rows = [dict(zip(answer[::2], answer[1::2], strict=True)) for answer in answers if isinstance(answer, list)]
    return [str(sum(row[name] for row in rows)) for name in FIELDS]


def counts(cells: list[str]) -> list[str]:
    """Ready, in flight, delayed, dead and failing, without copies elsewhere and done."""
    return [*cells[:3], *cells[5:7]]


def shown_in_all(html: str) -> list[str]:
    cells = figures(html, "all")
    return [*counts(cells), *cells[10:14]]


def part(html: str, key: str) -> str:
    """The text of an element of the page, up to the end of its last paragraph."""
    found = html.partition(f'<div id="{key}">')[2].partition("</div>")[0]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", found)).split())


def fill(cluster: Cluster) -> None:
    """Give every node jobs in every state."""
    for number, daemon in enumerate(cluster.nodes, 1):
        for body in range(4 + number):
            daemon.call("ADDJOB", "mail", f"{number} {body}", 5_000, "REPLICATE", 1, "RETRY", 3_600)
        daemon.call("ADDJOB", "mail", "later", 5_000, "REPLICATE", 1, "DELAY", 3_600)
        (_, dead, _), (_, done, _), *_ = daemon.call("GETJOB", "COUNT", 3, "FROM", "mail")  # type: ignore[misc]
        daemon.call("NACK", dead, "DEAD")
        daemon.call("ACKJOB", done)
    cluster.nodes[1].call("ADDJOB", "elsewhere", "x", 5_000, "REPLICATE", 1)


def test_figures_are_sums_over_all_nodes_and_those_that_are_silent_dead_or_leaving(nodes: ShownCluster) -> None:
    fill(nodes)
    sums = told(nodes.nodes, "mail")
    assert sums[:5] == ["9", "3", "3", "3", "0"]
    page = nodes.page("/queues/mail")
    assert shown_in_all(page) == sums
    assert "Sums over 3 nodes" in part(page, "sources")
    for node_id, daemon in zip(nodes.ids, nodes.nodes, strict=True):
        cells = figures(page, node_id)
        assert [*counts(cells), *cells[10:14]] == told([daemon], "mail")
    assert counts(figures(nodes.page("/queues?q=ma*"), "mail")) == sums[:5]
    assert "Ready</dt><dd>1</dd>" in nodes.page("/queues/elsewhere"), "another node has it"

    nodes.freeze(2)
    page = nodes.page("/queues/mail")
    assert f"Node {nodes.ids[2][:8]} " in part(page, "sources")
    assert shown_in_all(page) == told(nodes.nodes[:2], "mail")
    nodes.thaw(2)
    nodes.wait_joined()
    wait_until(lambda: shown_in_all(nodes.page("/queues/mail")) == sums, "the figures of all nodes")

    nodes.kill(2)
    nodes.wait_lost(2, nodes.nodes[:1])
    page = nodes.page("/queues/mail")
    assert f"Node {nodes.ids[2][:8]} ({HOST}:{nodes.nodes[2].port}) " in part(page, "sources")
    assert shown_in_all(page) == told(nodes.nodes[:2], "mail")
    wait_until(lambda: nodes.ids[2][:8] in part(nodes.page("/queues"), "sources"), "the table names it, too")
    assert counts(figures(nodes.page("/queues"), "mail")) == told(nodes.nodes[:2], "mail")[:5]

    missing = nodes.problem("/queues/nowhere")
    assert f"there is no queue nowhere on any node that answers; the figures of {nodes.ids[2][:8]} " in missing

    nodes.nodes[1].call("CLUSTER", "LEAVING", "yes")
    wait_until(
        lambda: shown_in_all(nodes.page("/queues/mail")) == told(nodes.nodes[:2], "mail"), "sums with one that leaves"
    )


class OpenPage:
    """A page of a queue that is open: its stream of events, of which one comes in each period."""

    def __init__(self, port: int, query: str) -> None:
        self.line = socket.create_connection((HOST, port), LIMIT)
        self.line.sendall(f"GET /api/events?{query} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode())
        self.events = 0

    def read(self, limit: float = LIMIT) -> bool:
        """Read what has come; False when nothing came in this time."""
        if not select.select([self.line], [], [], limit)[0]:
            return False
        data = self.line.recv(1 << 20)
        assert data, "the stream has ended"
        self.events += data.count(b"\ndata: {") + data.count(b"\n: nothing new")
        return True

    def read_more(self, events: int) -> None:
        """Wait until so many more have come."""
        wanted = self.events + events
        while self.events < wanted:
            assert self.read(), f"{self.events} events, and then none"


def asked(daemon: Daemon, command: str) -> int:
    """Count how often a node has run a command."""
    with daemon.redis() as client:
        return int(client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])


def test_ten_open_pages_ask_each_node_once_in_a_period(nodes: ShownCluster) -> None:
    nodes.nodes[1].call("ADDJOB", "mail", "x", 5_000, "REPLICATE", 1)
    # Ten views, of which each is drawn for itself, have the same questions.
    pages = [OpenPage(nodes.http_port, f"page=queue&queue=mail&n={number}") for number in range(1, 11)]
    for page in pages:
        page.read_more(1)
    first = pages[0]
    before = {command: asked(nodes.nodes[1], command) for command in ("qstat", "qconsumers")}
    assert min(before.values()) >= 1
    periods = first.events
    first.read_more(5)
    after = {command: asked(nodes.nodes[1], command) for command in before}
    # What was asked until now is in the next event at the latest, and that comes behind those that wait to be read.
    while first.read(0):
        pass
    first.read_more(1)
    # An answer is shared for as long as a period lasts, so that some periods need no question.
    for command, count in after.items():
        assert 2 <= count - before[command] <= first.events - periods + 1, command
    for page in pages:
        page.line.close()
