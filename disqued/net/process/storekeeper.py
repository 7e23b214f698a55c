"""The store of a daemon: changing it, configuring it, and its fields in INFO.

    CONFIG SET persistence --change--> Switch --> another store
    CONFIG SET appendfsync --configure--> the store, and the one that is to take its place
    SHUTDOWN REWRITE-AOF --write_snapshot--> the store: the last word
    any other stop in order --stop--> the store: the progress of jobs

Source: Disque, src/aof.c; Redis, src/aof.c (INFO).
"""

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from disqued.config import BadValue, Config
from disqued.config.settings import StoreSettings
from disqued.core.recovery import progressed, snapshot
from disqued.errors import CommandError
from disqued.net.process.driver import Driver
from disqued.net.process.switching import OpenStore, StoreMarker, StoreSwitch
from disqued.persistence.interface import StoreError

LOOK_S: Final = 1.0  #: how often the store's files are looked for


class StoreKeeper:
    """Keeps the store of one daemon as its settings say."""

    log = Logger()

    def __init__(
        self, config: Config, driver: Driver, name: str, open_store: OpenStore, *, obstacle: Callable[[], str]
    ) -> None:
        """Take the name of the store that the driver has, and what opens another one.

        `obstacle` returns why the store cannot change now, "" when it can.
        """
        self._config = config
        self._driver = driver
        self.switch = StoreSwitch(driver, StoreMarker(config.dir), name, opener=open_store, failed=self._stays)
        self._obstacle = obstacle
        self._has_snapshot = False  #: the store has the queues as they are, and nothing may follow
        self._looks = LoopingCall(self._look)
        self._looks.clock = driver.reactor
        for setting in StoreSettings.settings.values():
            if setting.mutable and setting not in (StoreSettings.persistence, StoreSettings.appendonly):
                config.subscribe(setting.name, lambda _: self._configure())
        config.subscribe(StoreSettings.persistence.name, self._change)

    def start(self) -> None:
        """Look every second whether the store is still there, while there is one that keeps something."""
        if not self._looks.running:
            self._looks.start(LOOK_S, now=False)

    def stop(self) -> None:
        """Give up a change of the store, look no more, and write down what waited for another record."""
        if self._looks.running:
            self._looks.stop()
        self.switch.abandon()
        node = self._driver.node
        if node.state.journaling and not self._has_snapshot:
            node.begin()
            node.outbox.journal.extend(progressed(node.state))
            self._driver.turn.finish_step(None)

    def _look(self) -> None:
        if self._driver.store.records:
            self._driver.look_soon()
        elif self.switch.target is None:
            self._looks.stop()

    def _change(self, name: str) -> None:
        """Begin to move the jobs to the store of that name.  Raises BadValue."""
        if name == self.switch.name and self.switch.target is None:
            return
        obstacle = self._obstacle()
        if obstacle:
            raise BadValue("persistence", name, problem=obstacle)
        try:
            self.switch.begin(name)
        except StoreError as error:
            raise BadValue("persistence", name, problem=str(error)) from None
        self.start()

    def go_where_configured(self) -> None:
        """Move the jobs to the store that the configuration names, should they have been loaded from another one."""
        name = self._config.persistence
        if name == self.switch.name:
            return
        try:
            self.switch.begin(name)
        except StoreError as error:
            self.log.error("The store stays {old}, not {new}: {reason}", old=self.switch.name, new=name, reason=error)
            self._stays(self.switch.name)
        else:
            self.start()

    def _stays(self, name: str) -> None:
        self._config.set("persistence", name)

    def _configure(self) -> None:
        """Let the stores hear of settings that changed."""
        self._driver.store.configure(self._config)
        if self._driver.handover.successor is not None:
            self._driver.handover.successor.configure(self._config)

    def compact(self) -> None:
        if self._driver.store.status().get("aof_rewrite_in_progress"):
            raise CommandError("Background append only file rewriting already in progress")
        try:
            self._driver.compact()
        except StoreError as error:
            raise CommandError(str(error)) from None

    async def write_snapshot(self) -> None:
        """Write a fresh journal with queues and all, whatever the store.  Raises StoreError."""
        await self._driver.settle()
        result = self._driver.store.rewrite(snapshot(self._driver.node.state))
        if result is not None:
            await result
        self._has_snapshot = True

    def facts(self) -> dict[str, Any]:
        """What the section Persistence of INFO says of the store."""
        switch, driver = self.switch, self._driver
        facts: dict[str, Any] = {"persistence": switch.name, **driver.store.status()}
        if switch.target is not None:
            facts["persistence_changing_to"] = switch.target
            if switch.target == "aof":
                facts["aof_state"] = "wait-rewrite"
        if switch.last_failure is not None:
            facts["persistence_change_failed"] = switch.last_failure
        if driver.turn.failure is not None:
            facts["aof_last_write_status"] = "err"
            facts["persistence_failure"] = driver.turn.failure
        return facts
