"""What every route shares: the way to the node, who may do what, the log of actions, histories, metrics, reports."""

from typing import Any

from disqued.commands import table
from disqued.web.audit import AuditLog
from disqued.web.gateway import Gateway
from disqued.web.http.auth import Access
from disqued.web.http.bodies import Body, JSONWriter, LongValues
from disqued.web.http.exchange import JSON, Reply, Visitor
from disqued.web.http.problems import Problem
from disqued.web.http.values import as_bytes
from disqued.web.turns import InThread, OneAtATime
from disqued.web.views.cluster_overview import ClusterWatch
from disqued.web.views.everywhere import Everywhere
from disqued.web.views.failed_jobs import FailedJobs
from disqued.web.views.history import History
from disqued.web.views.live import Live
from disqued.web.views.metrics import Metrics
from disqued.web.views.node_states import Drains
from disqued.web.views.queue_views import QueueTable, Rates
from disqued.web.views.reports_file import ReportsFile


class Site:
    """The admin side of one daemon."""

    def __init__(self, gateway: Gateway, access: Access, audit: AuditLog) -> None:
        self.gateway = gateway
        self.access = access
        self.audit = audit
        self.everywhere = Everywhere(gateway)
        self.drains = Drains(self.everywhere)
        self.history = History(gateway)
        self.rates = Rates(gateway, self.history)
        self.queues = QueueTable(gateway, self.everywhere, self.rates)
        self.large_walk = OneAtATime()  #: for pages that gather many rows
        self.failed = FailedJobs(gateway, self.everywhere, self.queues, self.large_walk)
        self.cluster = ClusterWatch(gateway, self.everywhere, self.queues, self.rates, self.drains)
        self.live = Live(gateway)
        self.metrics = Metrics(gateway, self.history.pulse)
        self.reports = ReportsFile(gateway.config.reports_file, gateway.reactor)
        self.kept = LongValues()  #: long values of answers that are being sent
        self.in_thread = InThread(gateway.reactor)

    @property
    def trouble(self) -> list[str]:
        """What an operator should know of this node at once: sentences."""
        gateway = self.gateway
        found: list[str] = []
        if self.access.complaint:
            found.append("The token file is invalid, so the previous tokens stay in effect. The log says why.")
        if self.audit.failures:
            found.append(f"Audit log entries that could not be written: {self.audit.failures}.")
        if gateway.loading:
            found.append("The node is loading its data and answers commands with LOADING.")
        if gateway.paused:
            found.append("Commands are suspended by CLIENT PAUSE, or because the node is stopping.")
        if gateway.store_failure:
            found.append(f"No jobs can be added: {gateway.store_failure}")
        if gateway.view.memory.level >= 2:
            found.append("Memory is nearly full. The node evicts what it may drop.")
        return found

    async def call(self, visitor: Visitor, *words: bytes | str | int) -> Any:
        """Run a command for a visitor; returns its value.

        Raises CommandError, and Problem 404 for a command that was renamed or removed.
        """
        given = [word if isinstance(word, bytes) else as_bytes(word) for word in words]
        name = table.name_of(given)
        if not table.is_callable(name):
            raise Problem.no_command(name)
        return await self.gateway.clients.call(
            given, address=f"{visitor.address}/{visitor.name}", name=visitor.name.encode(), is_gone=visitor.is_gone
        )

    async def json(self, value: Any) -> Reply:
        """Make an answer of a value, in slices; long values in it are encoded when they are sent."""
        body = Body(self.kept)
        try:
            await JSONWriter(self.gateway.turns, body).write(value)
        except BaseException:
            body.close()
            raise
        return Reply(body.next_piece() if body.is_short else body, JSON)

    def stop(self) -> None:
        self.history.pulse.stop()
        self.live.stop()
        self.audit.close()
