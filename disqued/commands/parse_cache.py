"""Parse caches of the hot commands, and the calls that they make.

    ADDJOB queue body | timeout options     the options behind the bar repeat: parsed once, kept as `CachedOptions`
    GETJOB | options FROM queues            the whole command repeats: one `Fetch` serves every client that sends it
    ACKJOB | id ...                         nothing repeats; only the form of the ids is checked

    words --in the cache?--> compiled call --run--> the core
      \\__ no: the parser made from the grammar --> the class in `commands/jobs.py`, which runs the same compiled call

A call is the body of its command on every path; the cache saves parsing alone.  Anything unusual goes to the parser:
invalid words, very many words, a job with a key.

Each command keeps at most `CACHED` entries, of at most `CACHED_WORDS` words and `CACHED_BYTES` bytes each.

Durations are integer milliseconds.  Source: Disque, src/job.c and src/queue.c.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from mypy_extensions import mypyc_attr

from disqued.commands.runnable import BLOCKED
from disqued.commands.taking import note_taken, wait_for_jobs, with_new
from disqued.core.model.ids import is_job_id
from disqued.core.model.job import KIND_WORK, JobOptions, Unit
from disqued.core.model.outbox import Client
from disqued.core.model.policies import Defaults, PolicyTable
from disqued.core.model.queues import Queue
from disqued.core.model.spans import seconds_text
from disqued.core.model.state import State
from disqued.core.model.terms import NO_TERMS, Headers, Terms
from disqued.core.model.waiters import Form
from disqued.core.model.worker import Worker
from disqued.core.node import CompiledCall, Node
from disqued.core.work.additions import AliasOf
from disqued.core.work.delivery import PLAIN, form_with
from disqued.core.work.placement import Placement
from disqued.core.workers.workers import WorkerForm
from disqued.errors import CommandError

CACHED: Final = 1_000  #: entries of each command
CACHED_WORDS: Final = 16  #: words of an entry, at most
CACHED_BYTES: Final = 512  #: bytes of these words together, at most
FEW: Final = 16  #: words of an ACKJOB that needs no parser, its name included, and one more
BARE: Final = 4  #: words of an ADDJOB without options
FILLED: Final = 16  #: defaults of queues for which the options of an entry are kept
DEFAULT_TTL_MS: Final = 86_400_000
RETRY_CAP_S: Final = 300  #: default retry period, at most
BACKOFF_MOST_MS: Final = 3_600_000  #: longest delay of a BACKOFF that says only the first one

ONCE: Final = "With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
NEVER_DELIVERED: Final = "The specified DELAY is greater than TTL. Job refused since would never be delivered"

ONE_TRY: Final = "MAXTRIES and BACKOFF go with a RETRY above 0: a job with RETRY 0 has one try"

Parser = Callable[[list[bytes]], Any]


# ADDJOB.


def _or(said: int | None, default: int | None) -> int | None:
    return default if said is None else said


class WishedTerms(NamedTuple):
    """The terms that ADDJOB asks for, in milliseconds; None = not said."""

    max_tries: int | None = None
    backoff: tuple[int, ...] | None = None  #: the first delay, and the longest where that was said
    keep_dead: int | None = None
    keep_result: int | None = None
    headers: Headers = ()
    group: bytes = b""

    def filled(self, defaults: Defaults, *, has_one_try: bool) -> "WishedTerms":
        """Return the terms, completed by the defaults of a queue; for one try there are none of tries."""
        return WishedTerms(
            self.max_tries if has_one_try else _or(self.max_tries, defaults.max_tries),
            self.backoff if has_one_try or self.backoff is not None else defaults.backoff,
            _or(self.keep_dead, defaults.keep_dead),
            _or(self.keep_result, defaults.keep_result),
            self.headers,
            self.group,
        )

    def complete(self, dead_ttl_ms: int) -> Terms:
        """Return the terms; a dead job stays for `dead_ttl_ms` unless something else was said."""
        first, most = (0, 0) if self.backoff is None else (self.backoff[0], self.backoff[-1])
        if self.backoff is not None and len(self.backoff) == 1:
            most = BACKOFF_MOST_MS
        may_die = self.max_tries is not None or self.keep_dead is not None
        keep_dead_ms = dead_ttl_ms if self.keep_dead is None else self.keep_dead
        terms = Terms(
            self.max_tries or 0,
            first,
            max(first, most),
            keep_dead_ms if may_die else 0,
            self.keep_result or 0,
            self.headers,
            self.group,
        )
        return NO_TERMS if terms == NO_TERMS else terms


NO_WISHES: Final = WishedTerms()


class CachedOptions:
    """What ADDJOB says after queue and body, and the options of a job that follow from it; None = not said.

    The options are checked against each other, and completed, once; again only when the reachable nodes change, and
    with every job whose number of copies is left to a node that takes no copy itself.
    """

    __slots__ = (
        "_delay", "_epoch", "_filled", "_from_queue", "_options", "_replicate", "_retry", "_said_maxlen", "_terms",
        "_ttl", "asynchronous", "by_default", "maxlen", "timeout_ms",
    )  # fmt: skip

    def __init__(
        self, *, ttl: int | None, retry: int | None, delay: int, replicate: int | None, maxlen: int | None,
        timeout_ms: int, asynchronous: bool, terms: WishedTerms = NO_WISHES, from_queue: str = "",
    ) -> None:  # fmt: skip
        """Take the options; `ttl`, `retry` and `delay` are milliseconds.

        `from_queue` names those times and copies that are defaults of the queue.
        """
        self.maxlen: int = maxlen or 0  #: 0 = no limit
        self._said_maxlen: int | None = maxlen
        self.timeout_ms: int = timeout_ms  #: 0 = for ever
        self.asynchronous: bool = asynchronous
        self.by_default: bool = replicate is None  #: as many copies as can be made are enough
        self._ttl: int | None = ttl
        self._retry: int | None = retry
        self._delay: int = delay
        self._replicate: int | None = replicate
        self._terms: WishedTerms = terms
        self._from_queue: str = from_queue
        self._options: JobOptions | None = None
        self._epoch: int = -1  #: of the node and the nodes that it can reach, when the options were made
        self._filled: dict[Defaults, CachedOptions] = {}

    def of_queue(self, policies: PolicyTable, queue: bytes) -> "CachedOptions":
        """Return the options, completed by the defaults of a queue."""
        defaults = policies.defaults.get(queue)
        if defaults is None:
            return self
        filled = self._filled.get(defaults)
        if filled is None:
            if len(self._filled) >= FILLED:
                self._filled.clear()
            retry = _or(self._retry, defaults.retry)
            filled = self._filled[defaults] = CachedOptions(
                ttl=_or(self._ttl, defaults.ttl), retry=retry, delay=self._delay,
                replicate=_or(self._replicate, defaults.replicate), maxlen=_or(self._said_maxlen, defaults.maxlen),
                timeout_ms=self.timeout_ms, asynchronous=self.asynchronous,
                terms=self._terms.filled(defaults, has_one_try=retry == 0), from_queue=self._taken_from(defaults),
            )  # fmt: skip
        return filled

    def _taken_from(self, defaults: Defaults) -> str:
        """Name the times and the copies that are defaults of the queue."""
        found: list[str] = []
        if self._ttl is None and defaults.ttl is not None:
            found.append(f"TTL {seconds_text(defaults.ttl).decode()}")
        if self._retry is None and defaults.retry is not None:
            found.append(f"RETRY {seconds_text(defaults.retry).decode()}")
        if self._replicate is None and defaults.replicate is not None:
            found.append(f"REPLICATE {defaults.replicate}")
        return ", ".join(found)

    def _error(self, text: str) -> CommandError:
        """Return an error that names the defaults of the queue among the options."""
        return CommandError(f"{text} - QPOLICY of the queue says {self._from_queue}" if self._from_queue else text)

    def options(self, placement: Placement, state: State) -> JobOptions:
        """Return the options of a job that is added now.  Raises CommandError."""
        options, memory = self._options, state.memory
        if (
            options is None
            or self._epoch != placement.epoch
            or (self.by_default and (memory.used > memory.low_mark or state.leaving))
        ):
            options = self._made(placement, state)
            # How many copies can be made is another number as soon as this node takes one again.
            self._options = None if placement.takes_no_copy else options
            self._epoch = placement.epoch
        return options

    def _made(self, placement: Placement, state: State) -> JobOptions:
        """Check the options against each other, and complete them."""
        retry, ttl, replicate = self._retry, DEFAULT_TTL_MS if self._ttl is None else self._ttl, self._replicate
        if replicate is None:
            replicate = placement.default_copies
        if retry is None:
            # Whole seconds, as in Disque.
            retry = (min(RETRY_CAP_S, ttl // 10_000) or 1) * 1_000
        elif not retry and (self._terms.max_tries is not None or self._terms.backoff is not None):
            raise self._error(ONE_TRY)
        elif not retry and replicate > 1:
            raise self._error(ONCE)
        if self._delay >= ttl:
            raise self._error(NEVER_DELIVERED)
        terms = NO_TERMS if self._terms is NO_WISHES else self._terms.complete(state.shared.dead_ttl_ms)
        return state.shared.options(ttl, retry, self._delay, replicate, terms=terms)


@mypyc_attr(acyclic=True)
class Addition(CompiledCall):
    """ADDJOB."""

    __slots__ = ("_alias_of", "_timeout_ms", "body", "options", "queue")

    def __init__(
        self, queue: bytes, body: bytes, options: CachedOptions, timeout_ms: int, alias_of: AliasOf | None = None
    ) -> None:
        """Add a job, under an alias if `alias_of` makes one, to wait so long for its copies (0 = for ever)."""
        self.queue: bytes = queue
        self.body: bytes = body
        self.options: CachedOptions = options
        self._timeout_ms: int = timeout_ms
        self._alias_of: AliasOf | None = alias_of

    def run(self, node: Node, client: Client) -> Any:
        """Add the job; returns its id, or BLOCKED.  Raises what `CachedOptions.options` and `Additions.add` raise."""
        cached = self.options
        state = node.state
        if state.queues.policies.defaults:
            cached = cached.of_queue(state.queues.policies, self.queue)
        job_id = node.additions.add(
            client, self.queue, self.body, cached.options(node.placement, state),
            maxlen=cached.maxlen, timeout_ms=self._timeout_ms, asynchronous=cached.asynchronous,
            by_default=cached.by_default, alias_of=self._alias_of,
        )  # fmt: skip
        return BLOCKED if job_id is None else job_id


# GETJOB.


class Fetch(CompiledCall):
    """GETJOB."""

    __slots__ = (
        "_count", "_form", "_is_bare", "_is_ordered", "_names", "_nohang", "_timeout_ms", "_waiting", "_worker",
    )  # fmt: skip

    def __init__(
        self, names: list[bytes], count: int, timeout_ms: int, worker: bytes | None, *, nohang: bool, ordered: bool,
        with_counters: bool, with_headers: bool,
    ) -> None:  # fmt: skip
        """Take up to `count` jobs of these queues, for a worker if one is named; wait so long (0 = for ever).

        `ordered`: each queue is emptied before the next one is looked at.
        """
        self._names: list[bytes] = names
        self._count: int = count
        self._timeout_ms: int = timeout_ms
        self._worker: bytes | None = worker
        self._nohang: bool = nohang
        self._form: Form = form_with(counters=with_counters, headers=with_headers)
        self._is_ordered: bool = ordered
        #: How it takes jobs once it has waited: with `ordered` as many as it may, of the first queue that has some.
        self._waiting: Form = form_with(counters=with_counters, headers=with_headers, count=count if ordered else 1)
        self._is_bare: bool = worker is None and self._form is PLAIN  #: a job is a row, and nothing else happens to it

    def run(self, node: Node, client: Client) -> Any:
        """Take the jobs; returns rows as `JOBS` describes them, None, or BLOCKED."""
        worker: Worker | None = None if self._worker is None else node.workers.named(self._worker)
        state, delivery = node.state, node.delivery
        by_name = state.queues.by_name
        queues: list[Queue] = []
        for name in self._names:
            queue = by_name.get(name)
            if queue is None:
                queues = with_new(node, self._names)
                break
            queues.append(queue)
        if self._count == 1 and len(queues) == 1:  # mostly, so that it is worth lines of its own
            unit = delivery.take(queues[0])
            if unit is not None and self._is_bare and not state.peers.linked:
                return [(unit.queue, unit.id, unit.body)]
            units: list[Unit] = [] if unit is None else [unit]
        elif self._is_ordered:
            units = delivery.drain(queues, self._count)
        else:
            units = delivery.fetch(queues, self._count)
        if not units:
            return self._wait(node, client, queues, worker)
        note_taken(node, queues, units, worker)
        if self._form is not PLAIN:
            return [self._form.row(unit) for unit in units]
        return [(unit.queue, unit.id, unit.body) for unit in units]

    def _wait(self, node: Node, client: Client, queues: list[Queue], worker: Worker | None) -> Any:
        """Wait for the first job, since there is none in these queues; returns BLOCKED, or None with NOHANG."""
        state, delivery = node.state, node.delivery
        for queue in queues:
            queue.check_kind(KIND_WORK)
        if self._nohang and not (state.waiting.behind and delivery.is_behind(queues)):
            if state.peers.linked:
                node.federation.local_demand.need(queues)
            return None
        form = self._waiting
        if worker is not None:
            form = WorkerForm(node.workers, worker, form)
        return wait_for_jobs(
            node, client, queues, form, named=len(self._names), timeout_ms=self._timeout_ms, nohang=self._nohang
        )


# ACKJOB.


@mypyc_attr(acyclic=True)
class Acknowledgement(CompiledCall):
    """ACKJOB."""

    __slots__ = ("_ids",)

    def __init__(self, ids: list[bytes]) -> None:
        """Take ids of the right form."""
        self._ids: list[bytes] = ids

    def run(self, node: Node, client: Client) -> Any:
        """Acknowledge one after the other; returns how many were known and not done."""
        acks = node.acks
        done = 0
        for job_id in self._ids:
            done += acks.acknowledge(job_id)
        return done


# The caches.


def _is_kept(words: list[bytes]) -> bool:
    """Return whether words are few and short enough to be kept."""
    return len(words) <= CACHED_WORDS and sum([len(word) for word in words]) <= CACHED_BYTES


def cached_options(parse: Parser) -> Parser:
    """Cache the options of ADDJOB."""
    known: dict[bytes | tuple[bytes, ...], CachedOptions] = {}

    def parse_cached(args: list[bytes]) -> Any:
        # As a rule there is a timeout alone, which saves a tuple.
        words = args[3] if len(args) == BARE else tuple(args[3:])
        options = known.get(words)
        if options is not None:
            return Addition(args[1], args[2], options, options.timeout_ms)
        call = parse(args)
        if call.key is None and _is_kept(args[3:]):
            if len(known) >= CACHED:
                known.clear()
            known[words] = call.cached_options()
        return call

    return parse_cached


def cached_fetches(parse: Parser) -> Parser:
    """Cache whole GETJOBs."""
    known: dict[tuple[bytes, ...], Any] = {}
    last_words: list[bytes] = []
    last_call: Any = None

    def parse_cached(args: list[bytes]) -> Any:
        nonlocal last_words, last_call
        # A consumer repeats its command many times in a row: to compare is cheaper than to look up.
        if args == last_words:
            return last_call
        words = tuple(args)
        call = known.get(words)
        if call is None:
            call = parse(args).fetch()
            if not _is_kept(args):
                return call
            if len(known) >= CACHED:
                known.clear()
            known[words] = call
        last_words, last_call = args, call
        return call

    return parse_cached


def checked_ids(parse: Parser) -> Parser:
    """Check the ids of a short ACKJOB without the parser; there is nothing to cache."""

    def parse_checked(args: list[bytes]) -> Any:
        if len(args) > FEW:
            return parse(args)
        ids = args[1:]
        for job_id in ids:
            if not is_job_id(job_id):
                return parse(args)
        return Acknowledgement(ids)

    return parse_checked


def ids_alone(make: Callable[[list[bytes]], Any], most: int) -> Callable[[Parser], Parser]:
    """Check the ids of a command of at most so many words, all of them ids, without its parser."""

    def before(parse: Parser) -> Parser:
        def parse_ids(args: list[bytes]) -> Any:
            if len(args) > most:
                return parse(args)
            ids = args[1:]
            for job_id in ids:
                if not is_job_id(job_id):
                    return parse(args)
            return make(ids)

        return parse_ids

    return before
