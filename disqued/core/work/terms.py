"""What a producer says of a job beside its queue and its body, and the options of a job that come of it.

    ADDJOB queue body | timeout REPLICATE DELAY RETRY TTL MAXLEN ASYNC
                        \\_______ Terms --options--> those of a job that is added now

Producers say the same terms again and again, so they are checked against each other, and filled in where something was
not said, once: anew only when other nodes can be reached, and with every job of theirs that leave the number of copies
to the node while this one takes no copy itself.

Source: Disque, src/job.c; spans are integer seconds where nothing else is said.
"""

from typing import Final

from disqued.core.model.job import JobOptions
from disqued.core.model.state import State
from disqued.core.work.replication import Replication
from disqued.errors import CommandError

RETRY_CAP_S: Final = 300  #: default retry period at most

ONCE: Final = "With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
NEVER_DELIVERED: Final = "The specified DELAY is greater than TTL. Job refused since would never be delivered"


class Terms:
    """What producers wish for a job; None = not said."""

    __slots__ = (
        "_delay", "_epoch", "_options", "_replicate", "_retry", "_ttl", "asynchronous", "by_default", "maxlen",
        "timeout_ms",
    )  # fmt: skip

    def __init__(
        self, *, ttl: int, retry: int | None, delay: int, replicate: int | None, maxlen: int, timeout_ms: int,
        asynchronous: bool,
    ) -> None:  # fmt: skip
        self.maxlen: int = maxlen  #: 0 = no limit
        self.timeout_ms: int = timeout_ms  #: 0 = for ever
        self.asynchronous: bool = asynchronous
        self.by_default: bool = replicate is None  #: as many copies as can be made are enough
        self._ttl: int = ttl
        self._retry: int | None = retry
        self._delay: int = delay
        self._replicate: int | None = replicate
        self._options: JobOptions | None = None
        self._epoch: int = -1  #: of the node and the nodes that it can reach, when the options were made

    def options(self, replication: Replication, state: State) -> JobOptions:
        """Those of a job that is added now.  Raises CommandError."""
        options = self._options
        if options is None or self._epoch != replication.epoch or (self.by_default and replication.takes_no_copy):
            options = self._made(replication, state)
            # How many copies can be made is another number as soon as this node takes one again.
            self._options = None if replication.takes_no_copy else options
            self._epoch = replication.epoch
        return options

    def _made(self, replication: Replication, state: State) -> JobOptions:
        """Check the wishes against each other, and fill in what was not wished."""
        retry, ttl, replicate = self._retry, self._ttl, self._replicate
        if replicate is None:
            replicate = replication.default_copies
        if retry is None:
            retry = min(RETRY_CAP_S, ttl // 10) or 1
        elif not retry and replicate > 1:
            raise CommandError(ONCE)
        if self._delay >= ttl:
            raise CommandError(NEVER_DELIVERED)
        return state.options(ttl * 1_000, retry * 1_000, self._delay * 1_000, replicate)
