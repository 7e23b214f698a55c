"""Loading: the store's records put into the node, a slice per turn of the loop.

    IStore.load --> records --> Recovery --> node            clients hear -LOADING meanwhile
                    a Deferred: wait for it, then go on      the log tells every few seconds how far it is

Source: Disque, src/aof.c (loadAppendOnlyFile), whose fields of INFO these are.
"""

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.core.model.outbox import Record
from disqued.core.node import Node
from disqued.core.recovery import AT_END, Recovery
from disqued.persistence.interface import IStore, StoreError

RECORDS_PER_SLICE = 2_000  #: records put into the node before clients get their turn
TOLD_EVERY_S = 2.0  #: how often progress is logged


class Loader:
    """One load, from the start of the daemon until it serves."""

    log = Logger()

    def __init__(
        self, node: Node, store: IStore, reactor: IReactorTime, *,
        done: Callable[[Recovery], None], failed: Callable[[str], None],
    ) -> None:  # fmt: skip
        """Take an open store; `done` is called at the end, or `failed` with the reason."""
        self._node = node
        self._store = store
        self._reactor = reactor
        self._done = done
        self._failed = failed
        self._records: Iterator[Record | Deferred[None]] = iter(())
        self._recovery: Recovery | None = None
        self._started_s = 0.0
        self._told_s = 0.0
        self._started_unix = 0
        self.slices = 0  #: how often records were put into the node: it counts on while the load goes on

    def start(self) -> None:
        """Begin."""
        self._started_s = self._told_s = self._reactor.seconds()
        self._started_unix = int(time.time())
        # Nothing that a load makes is garbage, so looking for it is only work.
        gc.disable()
        self._records = self._store.load()
        self._slice()

    def facts(self) -> dict[str, int]:
        """The fields of INFO that tell how far it is."""
        total, loaded = self._store.bytes_total, self._store.bytes_loaded
        spent_s = self._reactor.seconds() - self._started_s
        left_s = spent_s * (total - loaded) / loaded if loaded else 1
        return {
            "loading_start_time": self._started_unix,
            "loading_total_bytes": total,
            "loading_loaded_bytes": loaded,
            "loading_loaded_perc": loaded * 100 // total if total else 0,
            "loading_eta_seconds": round(left_s),
        }

    def progress(self) -> str:
        """How far it is, for people."""
        facts, jobs = self.facts(), len(self._node.state.jobs)
        percent, left_s = facts["loading_loaded_perc"], facts["loading_eta_seconds"]
        return f"Loading: {percent} %, {jobs} jobs so far, about {left_s} s to go"

    def _slice(self) -> None:
        """Load some records; nothing is journaled yet, for what is loaded is stored."""
        self._node.begin()
        self.slices += 1
        try:
            stopped = self._apply_some()
        except StoreError as error:
            self._end_in_failure(str(error))
            return
        if stopped is AT_END:
            self._end()
        elif stopped is not None:
            stopped.addCallbacks(lambda _: self._slice(), self._wait_failed)
        else:
            self._tell()
            self._reactor.callLater(0, self._slice)

    def _apply_some(self) -> Any:
        """Apply a slice of records; returns what has to be waited for, AT_END, or None where there are more."""
        if self._recovery is None:
            # What the store says of queues is valid from its first record on.
            first = next(self._records, AT_END)
            if not isinstance(first, tuple):
                return first
            self._begin().apply(first)
        assert self._recovery is not None
        return self._recovery.apply_some(self._records, RECORDS_PER_SLICE)

    def _begin(self) -> Recovery:
        self._recovery = Recovery(self._node.state, restores_queues=self._store.restores_queues)
        return self._recovery

    def _tell(self) -> None:
        now_s = self._reactor.seconds()
        if now_s - self._told_s >= TOLD_EVERY_S:
            self._told_s = now_s
            self.log.info("{progress}", progress=self.progress())

    def _wait_failed(self, failure: Failure) -> None:
        if not isinstance(failure.value, StoreError):
            self.log.failure("Internal error while loading", failure=failure)
        self._end_in_failure(str(failure.value))

    def _end_in_failure(self, reason: str) -> None:
        self.log.critical("Loading failed: {reason}", reason=reason)
        gc.enable()
        self._failed(reason)

    def _end(self) -> None:
        recovery = self._recovery or self._begin()
        gc.freeze()
        gc.enable()
        seconds = self._reactor.seconds() - self._started_s
        self.log.info(
            "Ready: {jobs} jobs, loaded in {seconds} s", jobs=len(self._node.state.jobs), seconds=f"{seconds:.1f}"
        )
        if recovery.expired:
            self.log.info(
                "{count} jobs were left out: their time was over, or their queue was flushed",
                count=len(recovery.expired),
            )
        self._done(recovery)
