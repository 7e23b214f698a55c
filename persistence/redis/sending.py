"""Sending: batches on their way to the server, in order, whatever becomes of it.

    good --- the server is away ------------> records wait, in order ---------------> good again
     |  +--- it has lost its data ----------> all is written anew (store.py) --------> good again
     +------ another run writes there ------> final

The server is *away* when it cannot be reached, does not answer or takes no writes.  It has *lost its data* when it is
empty or older than what it had acknowledged: from then on nothing is acknowledged, until what the node knows has been
written aside, put into place in one step, and followed by what was appended meanwhile.
"""

from functools import partial
from typing import Any, Final

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.config.kinds import RedisAddress
from disqued.persistence.interface import StoreError, StoreFailed
from disqued.persistence.redis.backlog import Backlog
from disqued.persistence.redis.layout import APPLY, HISTORY, RELIEVE, Keys
from disqued.persistence.redis.link import RedisConnection, RedisError
from disqued.persistence.redis.server import RedisServer, explain
from disqued.persistence.redis.waiters import Waiters

WINDOW: Final = 1 << 20  #: bytes that are on their way at most, one batch more
BATCHES_AHEAD: Final = 50  #: how many batches are searched at a time for what a full server can remove
LAST_WAIT_S: Final = 5.0  #: how long the end of the store waits for the server


class BatchSender:
    """Sends the batches of a backlog, and answers those who wait for them."""

    log = Logger()

    def __init__(self, address: RedisAddress, keys: Keys, reactor: IReactorTime) -> None:
        """Take a server; it is connected to when the caller starts it."""
        self.server = RedisServer(
            address, keys, reactor, synced=self._synced, full=self._relieve, up=self._is_up, down=self._is_down
        )
        self.backlog = Backlog()
        self.applied = Waiters()  #: who waits for the server to apply a batch
        self.is_loaded: bool = False  #: nothing is sent before
        self._reactor = reactor

    def begin(self, sequence: int) -> None:
        """Send what is appended from now on, behind the batch of this number."""
        self.backlog.begin(sequence)
        self.is_loaded = True

    def final(self) -> str | None:
        """Why nothing that is appended now can be acknowledged, until somebody does something about it."""
        return str(self.server.refusal) if self.server.refusal is not None else self.server.loss

    def failed(self) -> StoreFailed:
        """Make the error of records that wait."""
        return self.server.failed(f"{self.server.away or 'it is slow'}; {self.backlog.count} records wait")

    def pump(self) -> None:
        """Send what was sealed, as far as the window has room."""
        server = self.server
        connection = server.connection
        if connection is None or not self.is_loaded or server.loss is not None:
            return
        while self.backlog.sent_size < WINDOW and (batch := self.backlog.next_to_send()):
            answer = server.send(APPLY, HISTORY, batch.number - 1, batch.number, *batch.args)
            answer.addCallbacks(self._answered, self._refused, callbackArgs=(connection,), errbackArgs=(connection,))
            answer.addErrback(self.report)

    def _answered(self, answer: list[Any], connection: RedisConnection) -> None:
        if connection is not self.server.connection:
            return
        if answer[0] != b"ok":
            # What that means, a new connection finds out.
            self.server.drop(connection, explain(answer), hopeful=True)
            return
        self.backlog.answered()
        self.server.confirm()
        self.pump()
        self.applied.reached(self.backlog.applied)

    def _refused(self, failure: Failure, connection: RedisConnection) -> None:
        if not isinstance(failure.value, RedisError):
            self.report(failure)
        assert failure.value is not None
        self.server.refused(failure.value, connection)

    def report(self, failure: Failure) -> None:
        """Log a bug of ours."""
        self.log.failure("Internal error in the Redis store", failure=failure)

    # The server comes and goes.

    def _synced(self, answer: list[Any]) -> None:
        """Compare what a server that is back says with what was sent.  Raises StoreError."""
        server = self.server
        assert server.possession is not None
        if not self.is_loaded:
            if answer[0] != b"ok" or int(answer[1]) != server.possession.sequence:
                raise StoreError(f"{server.where}: its data have changed while they were being loaded")
        elif answer[0] != b"ok":
            self._has_lost(answer[1].decode())
        elif self.backlog.resume(int(answer[1])):
            server.loss = None
            self.applied.reached(self.backlog.applied)
        else:
            self._has_lost(f"is at batch {int(answer[1])}, and had acknowledged {self.backlog.applied}")

    def _has_lost(self, how: str) -> None:
        server = self.server
        if server.loss is None:
            server.loss = f"{server.where}: it has lost its data (it {how}); all jobs are to be written anew"
            self.log.error("{reason}", reason=server.loss)
        self._fail_waiting()

    async def _relieve(self, connection: RedisConnection) -> None:
        """Remove from a server that is out of memory the jobs that are over."""
        self.backlog.seal()
        for _ in range(BATCHES_AHEAD):
            found = self.backlog.removals()
            if found is None:
                return
            if found:
                await self.server.send_on(connection, RELIEVE, HISTORY, *found)

    def _is_up(self) -> None:
        if not self.backlog.count or not self.is_loaded:
            self.server.confirm()
        self.pump()

    def _is_down(self, hopeful: bool) -> None:
        self.backlog.rewind()
        if self.server.refusal is not None and self.is_loaded:
            self.log.critical("{reason}", reason=str(self.server.refusal))
        if not hopeful:
            self._fail_waiting()

    def _fail_waiting(self) -> None:
        """Fail those who wait in vain."""
        final = self.final()
        if final is None:
            self.applied.fail(self.failed, all_of_them=False)
        else:
            self.applied.fail(partial(StoreFailed, final), all_of_them=True)

    async def drain(self) -> None:
        """Wait until everything that was appended has been applied; not for ever.  Raises StoreFailed."""
        self.backlog.seal()
        self.pump()
        if not self.backlog.count:
            return
        drained = self.applied.wait(self.backlog.last, is_patient=True)
        limit = self._reactor.callLater(LAST_WAIT_S, drained.cancel)
        try:
            await drained
        except CancelledError:
            self.applied.forget(drained)
            raise self.failed() from None
        finally:
            if limit.active():
                limit.cancel()
