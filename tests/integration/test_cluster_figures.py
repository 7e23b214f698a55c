"""Figures of the cluster on the pages of one node, read in a real browser: sums of what Redis commands answer.

    RESP on every node --told, told_jobs ...--> sums  <-- must be equal --  cells by their labels <--look-- Chromium

While jobs come and go no two looks are at the same instant: a figure that only grows must lie between the sums before
the page was drawn and after it, and one of a queue that nobody uses must not move.  At rest every figure is the sum.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from disqued.reports.value_formats import NONE
from tests.browser import Browser, browser
from tests.integration.cluster import QUICK, ends_well, flags
from tests.integration.daemon import HOST, Daemon, wait_until
from tests.integration.test_cluster_pages import WithPages
from tests.limits import LIMIT

#: Columns of the table of queues and, with those below, of the page of a queue, by fields of QSTAT.
COLUMNS: Final = {
    "Ready": "len", "In flight": "in-flight", "Delayed copies": "delayed", "Dead copies": "dead",
    "Failing copies": "failing", "Waiting consumers": "blocked",
}  # fmt: skip
TOTALS: Final = {"Queued": "jobs-in", "Delivered": "delivered", "Acknowledged copies": "consumed"}
WORKER_COLUMNS: Final = {"Tasks": "processes", "Started": "started", "Completed": "done", "Requeued": "returned"}
#: What the load lets grow alone; nobody uses the queue `quiet`.
GROWING: Final = {
    "mail": ("Delayed copies", "Dead copies", "Failing copies", "Queued", "Delivered", "Acknowledged copies"),
    "held": ("In flight", "Queued", "Delivered"),
    "added": ("Ready", "Queued"),
    "quiet": (*COLUMNS, *TOTALS),
}
#: Figures of the overview, by those of the table of queues, and of it and the page of a node by fields of INFO.
OF_QUEUES: Final = {
    "Jobs ready": "Ready", "In flight": "In flight", "Delayed copies": "Delayed copies", "Dead copies": "Dead copies",
    "Failing copies": "Failing copies",
}  # fmt: skip
OF_CLIENTS: Final = {"Waiting consumers": "blocked_clients", "Clients": "connected_clients"}
OF_NODE: Final = {
    "Jobs": "registered_jobs", "Dead jobs": "dead_jobs", "Failing jobs": "failing_jobs", "Queues": "registered_queues",
    **OF_CLIENTS,
}  # fmt: skip
#: What of these the load lets grow alone.
GROWING_SUMS: Final = ("Delayed copies", "Dead copies", "Failing copies")
GROWING_OF_NODE: Final = ("Jobs", "Dead jobs", "Failing jobs")
WITH_COPIES: Final = " copies of other nodes' jobs included"
TERMS: Final = (5_000, "REPLICATE", 1, "RETRY", 3_600)
#: Script: the cells of each row of a table by their labels, and the row's key and heading.
CELLS: Final = """
return [...document.querySelectorAll(arguments[0] + " tr:not(:has(td.none))")].map((row) => Object.fromEntries([
  ["key", row.dataset.key ?? ""], ["head", row.querySelector("th")?.textContent.trim() ?? ""],
  ...[...row.querySelectorAll("[data-label]")].map((cell) => [cell.dataset.label, cell.textContent.trim()]),
]));
"""
#: Script: the large figures of a page by their names.
FIGURES: Final = """
const said = (figure, name) => figure.querySelector(name).textContent.trim().replace(/\\s+/g, " ");
return Object.fromEntries([...document.querySelectorAll(arguments[0] + " .figure")].map((figure) =>
  [said(figure, "dt"), said(figure, "dd")]));
"""

Sums = dict[str, dict[str, int]]
Known = TypeVar("Known")


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all the tests here."""
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[WithPages]:
    with ends_well(WithPages(tmp_path, QUICK)) as nodes:
        nodes.start(3)
        yield nodes


@pytest.fixture
def clients(cluster: WithPages) -> Iterator[list[Any]]:
    """A connection to each node that lasts, and fills it with jobs in every state."""
    opened = [node.redis(single_connection_client=True) for node in cluster.nodes]
    for number, client in enumerate(opened):
        fill(client, number)
    yield opened
    for client in opened:
        client.close()


@pytest.fixture
def page(window: Browser, cluster: WithPages) -> Iterator[Browser]:
    """The browser at the pages of the first node, and no complaint at the end."""
    window.base = f"http://{HOST}:{cluster.ports[0]}"
    yield window
    assert window.complaints() == []
    window.open("/login")  # nothing listens any more


def fill(client: Any, number: int) -> None:
    """Give a node jobs in every state, more to a later node, and a worker that has some."""
    call = client.execute_command
    call("CLIENT", "SETNAME", f"client-{number}")
    call("WORKER", "START", "ID", f"worker-{number}", "NAME", f"press {number}", "TTL", 0)
    for queue in ("mail", "held", "added", "quiet"):
        for body in range(12 + number):
            call("ADDJOB", queue, f"{number} {body}", *TERMS)
    for queue in ("mail", "quiet"):
        call("ADDJOB", queue, "later", *TERMS, "DELAY", 3_600)
        (_, dead, _), (_, failing, _), (_, late, _), (_, done, _), *_ = call("GETJOB", "COUNT", 6, "FROM", queue)
        call("NACK", "DEAD", dead)
        call("NACK", "REASON", "no such street", failing)
        call("NACK", "DELAY", 3_600, "REASON", "nobody is at home", late)
        call("ACKJOB", done)
    for _ in range(2 + number):
        call("ADDJOB", "copied", "everywhere", 5_000, "REPLICATE", 3, "RETRY", 3_600)
    call("ADDJOB", "copied", "later", 5_000, "REPLICATE", 3, "RETRY", 3_600, "DELAY", 3_600)
    call("GETJOB", "FROM", "copied")


@contextmanager
def waiting(daemons: Sequence[Daemon]) -> Iterator[None]:
    """Let a consumer wait on each of these nodes for jobs that never come."""
    consumers: list[Any] = [daemon.redis(single_connection_client=True) for daemon in daemons]
    for consumer in consumers:
        consumer.connection.send_command("GETJOB", "FROM", "awaited")
    for daemon in daemons:
        daemon.wait_blocked()
    yield
    for consumer in consumers:
        consumer.close()


@contextmanager
def working(daemons: Sequence[Daemon]) -> Iterator[None]:
    """Let jobs come and go on these nodes all the time."""
    over, failed = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            lines: list[Any] = [daemon.redis(single_connection_client=True) for daemon in daemons]
            for number, line in enumerate(lines):
                line.execute_command("WORKER", "START", "ID", f"load-{number}", "TTL", 0)
            while not over.wait(0.02):
                for line in lines:
                    work_a_round(line)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(LIMIT)
    assert not failed, failed


def work_a_round(client: Any) -> None:
    """Add and take: one job of each fate."""
    call = client.execute_command
    for queue, count in (("mail", 3), ("held", 1), ("added", 1)):
        for _ in range(count):
            call("ADDJOB", queue, "x", *TERMS)
    call("ADDJOB", "mail", "later", *TERMS, "DELAY", 3_600)
    (_, done, _), (_, dead, _), (_, late, _) = call("GETJOB", "NOHANG", "COUNT", 3, "FROM", "mail")
    call("ACKJOB", done)
    call("NACK", "DEAD", dead)
    call("NACK", "DELAY", 3_600, "REASON", "nobody is at home", late)
    assert call("GETJOB", "NOHANG", "FROM", "held")


# What the nodes answer.


def by_name(values: Any) -> dict[str, Any]:
    """Read a flat array of names and values."""
    return dict(zip(values[::2], values[1::2], strict=True))


def told(clients: Sequence[Any], queue: str) -> dict[str, int]:
    """Add up QSTAT of nodes."""
    answers = [client.execute_command("QSTAT", queue, "FULL") for client in clients]
    rows = [by_name(answer) for answer in answers if answer is not None]
    sums = {label: sum(row[field] for row in rows) for label, field in {**COLUMNS, **TOTALS}.items()}
    return {**sums, "Requeued": sums["Queued"] - sum(row["produced"] for row in rows)}


def told_of_all(clients: Sequence[Any]) -> Sums:
    """Add up QSTAT of nodes for each queue that one of them has."""
    names = {name for client in clients for name in client.execute_command("QSCAN", 0, "COUNT", 1_000)[1]}
    return {queue: told(clients, queue) for queue in names}


def told_cluster(clients: Sequence[Any]) -> dict[str, int]:
    """Add up what nodes say of their queues and of themselves."""
    queues, infos = told_of_all(clients), [client.info() for client in clients]
    sums = {label: sum(row[of] for row in queues.values()) for label, of in OF_QUEUES.items()}
    sums |= {label: sum(info[field] for info in infos) for label, field in OF_CLIENTS.items()}
    return {**sums, "Queues": len(queues)}


def told_node(client: Any) -> dict[str, int]:
    """What a node says of itself."""
    info = client.info()
    return {label: info[field] for label, field in OF_NODE.items()}


def told_workers(clients: Sequence[Any]) -> Sums:
    """What each node says of its workers."""
    rows = [by_name(row) for client in clients for row in client.execute_command("WORKER", "LIST", "FULL")]
    return {row["id"]: {label: row[field] for label, field in WORKER_COLUMNS.items()} for row in rows}


def told_consumers(clients: Mapping[str, Any], queue: str) -> list[tuple[str, str, int, bool]]:
    """Node, consumer, jobs that it has, and whether it waits."""
    rows = [
        (node_id[:8], by_name(row)) for node_id, client in clients.items()
        for row in client.execute_command("QCONSUMERS", queue)
    ]  # fmt: skip
    return sorted(
        (node, row["worker"] or row["consumer"], row["jobs"], row["waiting-for"] is not None) for node, row in rows
    )


def told_connections(clients: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Node, number and name of each client."""
    return sorted(
        (node_id[:8], line["id"], line["name"] or NONE) for node_id, client in clients.items()
        for line in client.client_list()
    )  # fmt: skip


def told_job(clients: Mapping[str, Any], job_id: str) -> list[tuple[str, str, int, int]]:
    """Node, phase, NACKs and requeues, for each node that knows the job."""
    answers = [(node_id, client.execute_command("SHOW", job_id)) for node_id, client in clients.items()]
    rows = [(node_id[:8], by_name(answer)) for node_id, answer in answers if answer is not None]
    return sorted((node, row["phase"], row["nacks"], row["additional-deliveries"]) for node, row in rows)


# What the pages show.


def whole(text: str) -> int:
    return int(text.replace("\u202f", "").replace(" ", ""))  # FIGURES makes each space a plain one


def cells(page: Browser, path: str, table: str) -> list[dict[str, str]]:
    """Open a page, and read the rows of a table; an empty path reads the page that is open."""
    if path:
        page.open(path)
    found: list[dict[str, str]] = page.run(CELLS, table)
    return found


def table_of_queues(page: Browser) -> Sums:
    rows = cells(page, "/queues", "#queue-rows")
    return {row["key"]: {label: whole(row[label]) for label in COLUMNS} for row in rows}


def rows_of_queue(page: Browser) -> Sums:
    """What the page of a queue, which is open, shows of each node, and of all of them as `all`."""
    rows = cells(page, "", "#queue-nodes")
    return {row["key"]: {label: whole(row[label]) for label in (*COLUMNS, *TOTALS)} for row in rows}


def facts_of_queue(page: Browser) -> dict[str, int]:
    """The large figures of the page of a queue, which is open."""
    figures = page.run(FIGURES, "#queue-facts")
    return {
        label: whole(figures[f"{label} total" if label not in COLUMNS else label])
        for label in (*COLUMNS, *TOTALS, "Requeued")
    }


def figures_of_cluster(page: Browser) -> dict[str, int]:
    page.open("/")
    figures = page.run(FIGURES, "#cluster")
    return {label: whole(figures[label]) for label in (*OF_QUEUES, *OF_CLIENTS, "Queues")}


def figures_of_node(page: Browser, node_id: str) -> dict[str, int]:
    page.open(f"/nodes/{node_id}")
    figures = {name.removesuffix(WITH_COPIES): value for name, value in page.run(FIGURES, "#node").items()}
    return {label: whole(figures[label]) for label in OF_NODE}


def table_of_nodes(page: Browser, known: Mapping[str, Any]) -> dict[str, int]:
    """How many jobs the overview says that each of these nodes has."""
    rows = cells(page, "/", "#nodes")
    return {row["key"]: whole(row["Jobs with copies"]) for row in rows if row["key"] in known}


def table_of_workers(page: Browser) -> Sums:
    rows = cells(page, "/workers", "#worker-rows")
    return {row["key"]: {label: whole(row[label]) for label in WORKER_COLUMNS} for row in rows}


def live_workers(page: Browser) -> tuple[int, int]:
    """How many workers the page counts in its heading and in its figures."""
    page.open("/workers")
    return whole(page.text("h1 small")), whole(page.run(FIGURES, "#worker-facts")["Live all nodes"])


def consumers(page: Browser) -> list[tuple[str, str, int, bool]]:
    """The consumers on the page of a queue, which is open."""
    rows = cells(page, "", "#consumers")
    return sorted((row["Node"][:8], row["head"], whole(row["In flight"]), row["Waiting"] != NONE) for row in rows)


def connections(page: Browser) -> list[tuple[str, str, str]]:
    rows = cells(page, "/connections", "#connections")
    assert page.text("h1 small") == str(len(rows))
    return sorted((row["Node"][:8], row["Number"], row["Name"]) for row in rows)


def nodes_of_job(page: Browser, job_id: str) -> list[tuple[str, str, int, int]]:
    rows = [row for row in cells(page, f"/jobs/{job_id}", "#job-nodes") if "Phase" in row]
    return sorted((row["key"], row["Phase"], whole(row["NACKs"]), whole(row["Requeues"])) for row in rows)


def narrowed(sums: Sums, labels: Sequence[str]) -> Sums:
    """Some of the figures, of the queues of which there are any."""
    return {queue: {label: row[label] for label in labels} for queue, row in sums.items()}


# Holding one against the other.


def wait_same(shown: Callable[[], Known], told: Callable[[], Known], what: str) -> None:
    """Wait until a page shows what the nodes tell."""
    seen: list[Known] = []

    def is_same() -> bool:
        seen[:] = [shown(), told()]
        return seen[0] == seen[1]

    try:
        wait_until(is_same, what)
    except AssertionError as error:
        raise AssertionError(f"{error}: the page shows {seen[0]}, the nodes tell {seen[1]}") from error


def lies_between(before: Sums, shown: Sums, after: Sums, growing: Mapping[str, Sequence[str]]) -> list[str]:
    """Say which of the figures that only grow are outside the sums of before and after."""
    return [
        f"{queue}, {label}: {before[queue][label]} <= {row[label]} <= {after[queue][label]}"
        for queue, row in shown.items()
        for label in growing.get(queue, ())
        if label in row and not before[queue][label] <= row[label] <= after[queue][label]
    ]


def wait_between(
    shown: Callable[[], Sums], told: Callable[[], Sums], what: str, growing: Mapping[str, Sequence[str]] = GROWING
) -> None:
    """Wait until a page that was opened between two rounds of questions shows nothing outside of what they say.

    An answer is shared for a moment, so that a page may be older than the first round once, and not always.
    """
    outside: list[str] = []

    def is_between() -> bool:
        before = told()
        found = shown()
        outside[:] = lies_between(before, found, told(), growing) if growing.keys() & found else ["nothing is shown"]
        return not outside

    try:
        wait_until(is_between, what)
    except AssertionError as error:
        raise AssertionError(f"{error}: {outside}") from error


def check_growing(page: Browser, clients: Sequence[Any], queue: str) -> None:
    """Hold both accounts of the page of a queue against the nodes while its figures grow."""

    def facts() -> Sums:
        page.open(f"/queues/{queue}")
        return {queue: facts_of_queue(page)}

    def rows() -> Sums:
        page.open(f"/queues/{queue}")
        return {queue: rows_of_queue(page)["all"]}

    for figures in (facts, rows):
        wait_between(figures, lambda: {queue: told(clients, queue)}, f"the figures of {queue}")


def check_growing_sums(page: Browser, known: Mapping[str, Any]) -> None:
    """Hold the overview, and the page of each node that answers, against the nodes while their figures grow."""
    clients = list(known.values())
    wait_between(
        lambda: {"all": figures_of_cluster(page)}, lambda: {"all": told_cluster(clients)}, "the overview",
        {"all": GROWING_SUMS},
    )  # fmt: skip
    for node_id, client in known.items():

        def shown(node_id: str = node_id) -> Sums:
            return {"node": figures_of_node(page, node_id)}

        def of_node(client: Any = client) -> Sums:
            return {"node": told_node(client)}

        wait_between(shown, of_node, f"the page of node {node_id}", {"node": GROWING_OF_NODE})


def check_under_load(page: Browser, known: Mapping[str, Any]) -> None:
    """Hold the table of queues, and the pages of queues, nodes and all of them, against nodes whose figures grow."""
    clients = list(known.values())
    check_growing_sums(page, known)
    before = told_of_all(clients)
    wait_between(lambda: table_of_queues(page), lambda: told_of_all(clients), "the table of queues")
    for queue in GROWING:
        check_growing(page, clients, queue)
    after = told_of_all(clients)
    for queue, labels in GROWING.items():
        for label in labels:
            assert (after[queue][label] > before[queue][label]) == (queue != "quiet"), (queue, label)


def check_queue(page: Browser, known: Mapping[str, Any], queue: str) -> None:
    """Hold the figures of a queue, its rows and its consumers against what these nodes tell."""
    clients = list(known.values())

    def rows() -> Sums:
        answers = {node_id: client.execute_command("QSTAT", queue) for node_id, client in known.items()}
        having = {node_id: told([known[node_id]], queue) for node_id, answer in answers.items() if answer is not None}
        return narrowed({"all": told(clients, queue), **having}, (*COLUMNS, *TOTALS))

    def shown() -> Any:
        page.open(f"/queues/{queue}")
        return facts_of_queue(page), rows_of_queue(page), consumers(page)

    wait_same(shown, lambda: (told(clients, queue), rows(), told_consumers(known, queue)), f"the page of {queue}")


def check_job(page: Browser, known: Mapping[str, Any], job_id: str) -> None:
    """Hold what the page of a job says of each node against SHOW there."""
    wait_same(lambda: nodes_of_job(page, job_id), lambda: told_job(known, job_id), f"the nodes of {job_id}")


def check_at_rest(page: Browser, known: Mapping[str, Any], jobs: Sequence[str]) -> None:
    """Hold every figure against the sum over these nodes, which are those that answer."""
    clients = list(known.values())
    wait_same(lambda: table_of_queues(page), lambda: narrowed(told_of_all(clients), list(COLUMNS)), "the queues")
    check_nodes(page, known)
    for queue in told_of_all(clients):
        check_queue(page, known, queue)
    for job_id in jobs:
        check_job(page, known, job_id)
    wait_same(lambda: table_of_workers(page), lambda: told_workers(clients), "the table of workers")
    wait_same(lambda: live_workers(page), lambda: (len(told_workers(clients)),) * 2, "the count of workers")
    wait_same(lambda: connections(page), lambda: told_connections(known), "the table of connections")


def check_nodes(page: Browser, known: Mapping[str, Any]) -> None:
    """Hold the overview and the pages of nodes against what these nodes tell."""
    clients = list(known.values())
    wait_same(lambda: figures_of_cluster(page), lambda: told_cluster(clients), "the overview")
    for node_id, client in known.items():

        def shown(node_id: str = node_id) -> dict[str, int]:
            return figures_of_node(page, node_id)

        def of_node(client: Any = client) -> dict[str, int]:
            return told_node(client)

        wait_same(shown, of_node, f"the page of node {node_id}")

    def jobs() -> dict[str, int]:
        return {node_id: told_node(client)["Jobs"] for node_id, client in known.items()}

    wait_same(lambda: table_of_nodes(page, known), jobs, "the table of nodes")


def by_id(cluster: WithPages, clients: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(cluster.ids, clients, strict=False))


def jobs_of(client: Any, *queues: str) -> list[str]:
    """One job in each state of each of these queues that there is on a node."""
    found: dict[tuple[str, str], str] = {}
    for queue in queues:
        _, rows = client.execute_command("JSCAN", 0, "QUEUE", queue, "COUNT", 10_000, "REPLY", "all")
        for row in map(by_name, rows):
            found.setdefault((queue, row["phase"]), row["id"])
    return list(found.values())


def check_fits(page: Browser, path: str) -> None:
    """See that no table of a page is wider than a window of 1440 pixels lets it be."""
    page.cdp("Emulation.setDeviceMetricsOverride", width=1440, height=900, deviceScaleFactor=1, mobile=False)
    try:
        page.open(path)
        page.find("tbody tr[data-key]")
        wide = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth)"
        assert page.run(f"return {wide}.map((one) => one.outerHTML.slice(0, 200))") == []
    finally:
        page.cdp("Emulation.clearDeviceMetricsOverride")


def wait_names_node(page: Browser, path: str, node_id: str) -> None:
    """Wait until a page says that the figures of a node are missing."""

    def said() -> list[str]:
        page.open(path)
        found: list[str] = page.run("return [...document.querySelectorAll('.trouble')].map((one) => one.textContent)")
        return [one for one in found if f"Node {node_id[:8]} " in one and "Its figures are missing here." in one]

    wait_until(said, f"the node that is dead on {path}")


def test_figures_are_sums_while_jobs_come_and_go(page: Browser, cluster: WithPages, clients: list[Any]) -> None:
    with working(cluster.nodes[:2]):
        check_under_load(page, by_id(cluster, clients))
        page.open("/queues/mail")
        page.run("window.sameAsBefore = true")
        floor = told(clients, "mail")["Acknowledged copies"]
        wait_until(lambda: shown_live(page) >= floor, "the new figures, without a reload")
        assert page.run("return window.sameAsBefore") is True
        cluster.kill(2)
        cluster.wait_lost(2, cluster.nodes[:1])
        check_under_load(page, by_id(cluster, clients[:2]))
    check_at_rest(page, by_id(cluster, clients[:2]), ())


def shown_live(page: Browser) -> int:
    """What the page that is open says of all jobs of its queue that are done."""
    return rows_of_queue(page)["all"]["Acknowledged copies"]


def test_figures_at_rest_are_sums_of_all_nodes_then_of_those_that_live(
    page: Browser, cluster: WithPages, clients: list[Any]
) -> None:
    jobs = [job_id for client in clients[:2] for job_id in jobs_of(client, "quiet", "copied")]
    assert len(jobs) >= 8
    with waiting(cluster.nodes[:2]):
        check_at_rest(page, by_id(cluster, clients), jobs)
        for path in ("/", "/queues", "/queues/mail"):
            check_fits(page, path)
        cluster.kill(2)
        cluster.wait_lost(2, cluster.nodes[:1])
        check_at_rest(page, by_id(cluster, clients[:2]), jobs)
        assert f"Without the figures of node {cluster.ids[2][:8]}." in cluster.page("/")
        for path in ("/queues", "/queues/mail", "/workers", "/connections"):
            wait_names_node(page, path, cluster.ids[2])


def test_figures_are_sums_while_a_node_leaves(page: Browser, cluster: WithPages, clients: list[Any]) -> None:
    jobs = jobs_of(clients[1], "quiet", "copied")
    clients[1].execute_command("CLUSTER", "LEAVING", "yes")
    wait_until(lambda: "leaving" in flags(cluster.nodes[0], cluster.ids[1]), "the word of the node that leaves")
    check_at_rest(page, by_id(cluster, clients), jobs)
    wait_until(lambda: clients[1].execute_command("QLEN", "mail") == 0, "jobs that have moved to the others")
    check_at_rest(page, by_id(cluster, clients), jobs)
