"""The checker: what clients saw, held against what was promised to them.

It takes facts in the order in which they became known, from whoever saw them: the simulator in virtual time, or real
clients of real processes.  It knows no node.

    asked, answered | refused      a producer and its ADDJOB
    delivered, acked, nacked       a consumer and its job
    went_down, came_up             a process ended, and the next one of its node serves
    lost_memory                    a crash took what a node had acknowledged: no disk, no sync, or a disk that is gone
    healed                         what failed is well again, and somebody takes what is left

What must be so, whatever fails:

    intact           what is delivered is what was added, under one id, from the queue that it was added to
    at least once    a job whose ADDJOB was answered is delivered, and again until somebody acknowledges it, before
                     its TTL ends, unless W of its holders have lost their memory (W: the copies asked for)
    at most once     a job with retry 0 is never heard of twice
    one for a key    of what was said under one key, while nobody was apart, one job was there when it was answered
    purged           a job that a purge has ended on all of its holders is not delivered after the answer (`purges`)
    redriven once    a job that is redriven after the heal is not delivered by two nodes within its retry period
    tries            the tries of a job that is over are not fewer than one node has delivered, as far as it says so

and, where the rules of a run say so:

    acks last        a job whose acknowledgement was taken by a node that knew it does not come back after the heal
    exactly once     no job is delivered twice, and none after its acknowledgement was heard
    one at a time    no job is delivered again within its retry period, nor after an acknowledgement that came in it;
                     at a node that knew the job; any other may cross a delivery that is under way
    in order         what one producer added at one node is delivered at that node in the order in which it was added
    soon             a job does not wait while a consumer of its queue does, wherever
    on time          no job is delivered after its TTL
    tries            the tries of a job that is over are its deliveries, as long as nobody gives a job back untried
    after a start    a delayed job whose time comes while its node is down is delivered soon after the start

The body of each job begins with its number, so that a job is known whose ADDJOB was never answered.

Times are integer milliseconds of one clock, that of the observer.
"""

from collections.abc import Callable, Hashable, Iterable

import attrs

NodeName = Hashable
CHANCE_MS = 120_000  #: that a job must have after the heal: more than every retry and delay
CLOSE_MS = 500  #: before its time or behind it a job may have been delivered, or its time noted as over
GRACE_MS = 5_000  #: after the heal, in which nodes tell each other what they missed
ASKED_MS = 100  #: in which a node has heard who has a key, and made its job; one that is to wait asks again after that
LATE_MS = 50  #: that a message may be under way where nothing is slow
FILLER = bytes(range(256))


def body_of(number: int, size: int) -> bytes:
    """The body of the job of this number: all bytes occur, none of two jobs is the same."""
    return b"%d:" % number + (FILLER * (size // len(FILLER) + 1))[number % 7 :][:size]


@attrs.define
class Request:
    """An ADDJOB as its producer knows it, and what became of the job."""

    number: int
    queue: bytes
    body: bytes
    replicate: int  #: 0 = left to the node: one copy is what it promises
    retry_ms: int
    ttl_ms: int
    delay_ms: int
    node: NodeName  #: which it was sent to
    producer: Hashable
    asked_at: int
    waits_for_copies: bool = True  #: False: ASYNC, only the node that answers has it for sure
    job_id: bytes | None = None  #: once a consumer or the producer has heard of it
    answered_at: int | None = None
    holders: frozenset[NodeName] | None = None  #: nodes that may have a copy when it was answered; None = not known
    deliveries: int = 0
    delivered_by: dict[NodeName, int] = attrs.field(factory=dict)  #: deliveries of each node
    first_delivery_at: int | None = None
    last_delivery_at: int | None = None
    again_after_ack: int = 0  #: deliveries after an acknowledgement was heard
    acked_at: int | None = None  #: when a client first heard that its acknowledgement was taken
    acked_on: NodeName = None  #: the node that said so; None = nobody noted it
    ack_sent: bool = False
    firm_at: int | None = None  #: when that was first said by a node that knew the job
    fast_acked: bool = False
    is_keyed: bool = False  #: it was said with a key, and perhaps several times
    is_once: bool = False  #: of one with a key: there must have been one job when it was answered
    #: Of one with a key: other jobs that came of it, which have numbers of their own.
    twins: list["Request"] = attrs.field(factory=list)
    was_over: bool = False  #: of one of several: somebody had acknowledged it before the producer was answered
    made_at: int = 0  #: of one of several, as far as the nodes knew when it was first heard of
    #: Of one with a key: when it was said last to each node, by the beginning of the id, as ids of jobs have it.
    said_at: dict[bytes, int] = attrs.field(factory=dict)

    @property
    def is_promised(self) -> bool:
        """Whether its producer was told that it is there."""
        return self.answered_at is not None


@attrs.define
class Rules:
    """Which of the promises hold in the run that is checked."""

    acks_last: bool = True
    #: Acknowledgements taken by nodes that did not know the job last, too: no such node has failed.
    all_acks_last: bool = False
    exactly_once: bool = False
    #: One at a time: how long a late acknowledgement may take to be known everywhere; None = not checked.
    crossing_ms: int | None = None
    in_order: bool = False
    #: A job that could be delivered at once is, within this time; None = not checked.
    soon_ms: int | None = None
    #: Whether jobs with retry 0 must arrive, too: nothing that may take one with it has happened.
    once_arrives: bool = False
    on_time: bool = False
    #: What a worker has that is alive nobody else gets.
    workers_keep: bool = False
    #: What was acknowledged before the heal is forgotten everywhere within this time; None = not checked.
    collected_ms: int | None = None
    #: No node takes another one for failed: none fails, and none is held up.
    nobody_suspected: bool = False
    #: A job is not dead of which every delivery was given back untried: no node takes it for lost meanwhile.
    untried_lives: bool = False
    #: The tries of a job that is over are its deliveries: no node, link or message fails.
    tries_are_deliveries: bool = False
    #: Within which a delayed job is delivered whose time came while its node was down; None = not checked.
    after_start_ms: int | None = None


class Ledger:
    """What was asked for, what became of it, and who lost its memory: the facts that all checkers take."""

    def __init__(self, made_at: Callable[[bytes], int] = lambda job_id: 0) -> None:
        #: Every request, by number.
        self.requests: dict[int, Request] = {}
        self.violations: list[str] = []
        #: Deliveries that count as tries, by job, node and generation.
        self._tries: dict[tuple[bytes, NodeName, int], int] = {}
        self._last_try: dict[bytes, tuple[bytes, NodeName, int]] = {}  #: the last delivery of each job
        #: Of each job in each generation: deliveries, and how many of them were given back untried for certain.
        self._untried: dict[tuple[bytes, int], tuple[int, int]] = {}
        #: Of jobs that were redriven: the generation, the node and the time of the last delivery.
        self._redriven: dict[bytes, tuple[int, NodeName, int]] = {}
        self._made_at = made_at
        self._by_id: dict[bytes, Request] = {}
        self._losses: dict[NodeName, int] = {}  #: when a node lost its memory last
        #: When the processes of a node ended, and the next ones served: [end, start]; start 0 = not yet.
        self._lives: dict[NodeName, list[list[int]]] = {}
        self._next = 0
        self._healed_at: int | None = None

    def next_number(self) -> int:
        """A number that no job has had."""
        self._next += 1
        return self._next

    def asked(self, request: Request) -> None:
        """A producer sends an ADDJOB."""
        self.requests[request.number] = request

    def answered(self, number: int, job_id: bytes, at: int, holders: frozenset[NodeName] | None) -> None:
        """It was answered: the job is there."""
        asked = self.requests[number]
        request = self._that_is(asked, job_id)
        request.answered_at = at
        request.holders = holders
        self._identify(request, job_id)
        for one in (asked, *asked.twins):
            one.was_over = one.ack_sent and one is not request

    def refused(self, number: int) -> None:
        """It was refused; the job may be delivered all the same, for a part of the cluster may have it by then."""

    def lost_memory(self, node: NodeName, at: int) -> None:
        """A node has lost what it had acknowledged."""
        self._losses[node] = at

    def went_down(self, node: NodeName, at: int) -> None:
        """The process of a node ended."""
        self._lives.setdefault(node, []).append([at, 0])

    def came_up(self, node: NodeName, at: int) -> None:
        """The next one serves."""
        lives = self._lives.get(node)
        if lives:
            lives[-1][1] = at

    def healed(self, at: int) -> None:
        """Faults have ended, and consumers take what is left: from now on every job has its chance."""
        self._healed_at = at

    # What follows from them.

    def blame(self, what: str) -> None:
        """Note that something is wrong."""
        self.violations.append(what)

    def _find(self, job_id: bytes, queue: bytes, body: bytes) -> Request | None:
        """Whose the job is that came, held against what was added; None: nobody's, which is wrong."""
        number = body.partition(b":")[0]
        request = self.requests.get(int(number)) if number.isdigit() else None
        if request is None or request.body != body or request.queue != queue:
            self.blame(f"{job_id!r} from queue {queue!r} has a body that nobody added there: {body[:40]!r}")
            return None
        request = self._that_is(request, job_id)
        self._identify(request, job_id)
        return request

    def _that_is(self, request: Request, job_id: bytes) -> Request:
        """Which of the jobs that came of an ADDJOB with a key this is; of any other there is one."""
        if not request.is_keyed or request.job_id in (None, job_id):
            return request
        known = self._by_id.get(job_id)
        if known is None:
            known = attrs.evolve(
                request, number=self.next_number(), job_id=None, answered_at=None, holders=None, deliveries=0,
                delivered_by={}, first_delivery_at=None, last_delivery_at=None, again_after_ack=0, acked_at=None,
                acked_on=None, ack_sent=False, firm_at=None, fast_acked=False, twins=[], was_over=False, made_at=0,
            )  # fmt: skip
            self.requests[known.number] = known
            request.twins.append(known)
        return known

    def _doubles(self) -> list[str]:
        """Keys of which several jobs were there at once, though nobody was apart."""
        found: list[str] = []
        for request in self.requests.values():
            if not request.is_once or not request.twins:
                continue
            jobs = [one for one in (request, *request.twins) if one.job_id is not None]
            answered_at = max(one.answered_at or 0 for one in jobs)
            there = [one for one in jobs if not one.was_over and not _is_later(one, answered_at, request.said_at)]
            if len(there) > 1:
                found.append(f"one for each key: of {request.number} " + " and ".join(map(shown, there)))
        return found

    def _identify(self, request: Request, job_id: bytes) -> None:
        """Hold the id of a job against what was known of it."""
        if request.job_id is None:
            request.job_id = job_id
            if request.is_keyed:
                request.made_at = self._made_at(job_id)
            other = self._by_id.setdefault(job_id, request)
            if other is not request:
                self.blame(f"one id for two jobs: {shown(request)} and {shown(other)}")
        elif request.job_id != job_id:
            self.blame(f"two ids for one job: {shown(request)} and {job_id!r}")

    def may_be_lost(self, request: Request) -> bool:
        """Tell whether a job has an excuse for not being there: its end, or the memory of those who held it."""
        if self._healed_at is not None and request.asked_at + request.ttl_ms < self._healed_at + CHANCE_MS:
            return True
        if not request.waits_for_copies and request.holders is None:
            # Its node keeps no copy itself, or nobody could look.
            return True
        copies = max(1, request.replicate) if request.waits_for_copies else 1
        return self._lost_holders(request) >= copies

    def _lost_holders(self, request: Request) -> int:
        return sum(
            at >= request.asked_at and (request.holders is None or node in request.holders)
            for node, at in self._losses.items()
        )


def _is_later(job: Request, answered_at: int, said_at: dict[bytes, int]) -> bool:
    """Tell whether a job was made after the answer, by a node that was told its key shortly before.

    That one has found the key free again, as the first job was done.  One that waited for that should have heard of it.
    """
    assert job.job_id is not None
    said = said_at.get(job.job_id[2:10])
    return said is not None and job.made_at > answered_at and job.made_at < said + ASKED_MS


class Checker(Ledger):
    """Takes facts about jobs of work, and says what is wrong with them."""

    def __init__(self, rules: Rules | None = None, made_at: Callable[[bytes], int] = lambda job_id: 0) -> None:
        """Take what must be so, and what says when a job was made; 0 = nobody knows."""
        super().__init__(made_at)
        self.rules = rules or Rules()
        #: Deliveries after an acknowledgement was heard: the job, when, and the node.
        self.returned: list[tuple[Request, int, NodeName]] = []
        self._last_number: dict[tuple[Hashable, bytes, NodeName], int] = {}
        self._held: dict[bytes, Hashable] = {}  #: by live workers, as far as they know
        self.given: dict[bytes, set[bytes]] = {}  #: results that consumers gave, by job
        self.cancelled: set[bytes] = set()  #: jobs of which a node said that they are, or will be
        self.purged: dict[bytes, int] = {}  #: when a purge was answered that has ended a job everywhere
        #: Of each queue that was purged: until when a job may have been added that a purge ends, for each purge.
        self.purged_until: dict[bytes, list[int]] = {}

    # Facts.

    def tried(self, job_id: bytes, node: NodeName, generation: int, max_tries: int, at: int) -> None:
        """Note that a node handed out a job that may be tried so often."""
        place = (job_id, node, generation)
        self._tries[place] = tries = self._tries.get(place, 0) + 1
        self._last_try[job_id] = place
        heard, untried = self._untried.get((job_id, generation), (0, 0))
        self._untried[job_id, generation] = (heard + 1, untried)
        if tries > max_tries:
            self.violations.append(f"node {node} delivered {job_id!r} {tries} times; it has {max_tries} tries")
        if generation:
            self._check_redriven(self._by_id[job_id], generation, node, at)

    def delivered(self, job_id: bytes, queue: bytes, body: bytes, at: int, node: NodeName) -> Request | None:
        """A consumer has heard of a job, from this node; returns whose it is."""
        request = self._find(job_id, queue, body)
        if request is None:
            return None
        request.deliveries += 1
        request.delivered_by[node] = request.delivered_by.get(node, 0) + 1
        if not request.retry_ms and request.deliveries > 1:
            self.blame(f"at most once: {shown(request)} is delivered the {request.deliveries}. time, at {at}")
        if self.rules.exactly_once:
            self._check_once(request, at)
        if self.rules.crossing_ms is not None:
            self._check_one_at_a_time(request, at, self.rules.crossing_ms)
        request.last_delivery_at = at
        if at > self.purged.get(job_id, at):
            self.blame(f"purged: {shown(request)} is delivered at {at}, and was purged at {self.purged[job_id]}")
        if request.acked_at is not None:
            request.again_after_ack += 1
            self.returned.append((request, at, node))
        self._check_return(request, at)
        if self.rules.on_time and at > request.asked_at + request.ttl_ms + LATE_MS:
            self.blame(f"on time: {shown(request)} is delivered at {at}")
        if request.first_delivery_at is None:
            request.first_delivery_at = at
            if self.rules.in_order:
                self._check_order(request, node)
            if self.rules.soon_ms is not None:
                self._check_soon(request, at, self.rules.soon_ms)
            due_by = self._due_after_start(request)
            if due_by and at > due_by:
                self.blame(f"after a start: {shown(request)} could be had until {due_by}, and was delivered at {at}")
        return request

    def taken(self, job_id: bytes, worker: Hashable, at: int) -> None:
        """A live worker has a job from now on."""
        other = self._held.get(job_id, worker)
        if self.rules.workers_keep and other != worker:
            self.blame(f"one worker: {job_id!r} is given to {worker} at {at}, and {other} is alive and has it")
        self._held[job_id] = worker

    def left(self, job_ids: Iterable[bytes]) -> None:
        """A worker may not have these any more: it is done with them, or may be dead."""
        for job_id in job_ids:
            self._held.pop(job_id, None)

    def given_back(self, job_ids: Iterable[bytes]) -> None:
        """Note that a consumer gives jobs back: they may be delivered again at once."""
        for job_id in job_ids:
            self._redriven.pop(job_id, None)

    def not_tried(self, job_ids: Iterable[bytes]) -> None:
        """Note that a consumer says that it has not begun with jobs: their last delivery may be no try."""
        for job_id in job_ids:
            place = self._last_try.get(job_id)
            if place is not None:
                self._tries[place] -= 1

    def returned_untried(self, job_ids: Iterable[bytes]) -> None:
        """Note that a node has taken back jobs with which their consumer had not begun."""
        for job_id in job_ids:
            place = self._last_try.get(job_id)
            if place is not None:
                heard, untried = self._untried[job_id, place[2]]
                self._untried[job_id, place[2]] = (heard, untried + 1)

    def is_untried(self, job_id: bytes, generation: int) -> bool:
        """Return whether every delivery of a job in a generation was given back untried, and there was one."""
        heard, untried = self._untried.get((job_id, generation), (0, 0))
        return 0 < heard == untried

    def over(self, job_id: bytes, tries: int, nodes: Iterable[NodeName]) -> None:
        """Note that these nodes say together that a job is over after so many tries.

        A node knows its own deliveries.  It may count tries that nobody had: of a job that waits on a node that does
        not answer, and of one that was acknowledged where nobody knew of a delivery.
        """
        request = self._by_id.get(job_id)
        if request is None:
            return  # a copy whose producer was refused, and that nobody has had
        least = max((request.delivered_by.get(node, 0) for node in nodes if node not in self._losses), default=0)
        if self.rules.tries_are_deliveries and tries != request.deliveries:
            self.blame(f"tries: of {shown(request)} nodes say {tries}, and consumers had it {request.deliveries} times")
        elif tries < least:
            self.blame(f"tries: of {shown(request)} nodes say {tries}, and one of them delivered it {least} times")

    def known(self, job_id: bytes) -> Request | None:
        """The request of a job."""
        return self._by_id.get(job_id)

    def ack_sent(self, job_id: bytes, *, fast: bool = False) -> None:
        """Somebody has asked to acknowledge a job; whether that was heard is not known yet."""
        request = self._by_id.get(job_id)
        if request is not None:
            request.ack_sent = True
            request.fast_acked = request.fast_acked or fast

    def acked(self, job_id: bytes, at: int, *, known: bool, node: NodeName = None) -> None:
        """And was answered, by this node; `known`: it said that it knew the job."""
        request = self._by_id.get(job_id)
        if request is not None:
            if request.acked_at is None:
                request.acked_at, request.acked_on = at, node
            if known and request.firm_at is None:
                request.firm_at = at

    # Verdict.

    def missing(self) -> list[Request]:
        """Jobs that were promised, that nobody has acknowledged or, with retry 0, heard of, and that have no excuse."""
        return [request for request in self.requests.values() if self.is_missing(request)]

    def verdict(self) -> list[str]:
        """Say what is wrong, at the end of a run in which every job has had its chance; empty = nothing."""
        missing = [
            f"at least once: {shown(request)} was delivered {request.deliveries} times and never acknowledged"
            for request in self.missing()
        ]
        missing += [
            f"after a start: {shown(request)} was not delivered at all"
            for request in self.requests.values()
            if not request.deliveries and self._due_after_start(request) and not self.may_be_lost(request)
        ]
        return self.violations + self._doubles() + missing

    def _due_after_start(self, request: Request) -> int:
        """When a job must be delivered whose time came while its node was down, at the latest; 0 = it did not."""
        soon_ms = self.rules.after_start_ms
        if soon_ms is None or not request.delay_ms or request.answered_at is None or request.ack_sent:
            return 0
        earliest, latest = request.asked_at + request.delay_ms, request.answered_at + request.delay_ms
        lives = self._lives.get(request.node, [])
        for number, (end, start) in enumerate(lives):
            stays_up = number + 1 == len(lives) or lives[number + 1][0] > start + soon_ms
            if end + CLOSE_MS < earliest and latest < start and stays_up:
                return start + soon_ms
        return 0

    def is_missing(self, request: Request) -> bool:
        """Return whether a job was promised, and is neither acknowledged nor excused."""
        if not request.is_promised or request.ack_sent or request.asked_at <= self._purged_until(request.queue):
            return False
        if not request.retry_ms and (request.deliveries or not self.rules.once_arrives):
            return False
        return not self.may_be_lost(request)

    # Parts.

    def _purged_until(self, queue: bytes) -> int:
        return max(self.purged_until.get(queue, ()), default=-1)

    def _check_once(self, request: Request, at: int) -> None:
        if request.deliveries > 1:
            self.blame(f"exactly once: {shown(request)} is delivered the {request.deliveries}. time, at {at}")
        if request.acked_at is not None:
            self.blame(f"{shown(request)} is delivered at {at}, and was acknowledged at {request.acked_at}")

    def _check_one_at_a_time(self, request: Request, at: int, crossing_ms: int) -> None:
        """Blame a delivery that is too early, or that an acknowledgement has made needless; nobody gives jobs back."""
        last_at, acked_at = request.last_delivery_at, request.acked_at
        if last_at is None:
            return
        if at < last_at + request.retry_ms:
            self.blame(f"one at a time: {shown(request)} is delivered at {at}, and was delivered at {last_at}")
        if acked_at is not None:
            in_time = request.firm_at is not None and request.firm_at <= last_at + request.retry_ms
            if at > acked_at + (0 if in_time else crossing_ms):
                self.blame(f"one at a time: {shown(request)} is delivered at {at}, and was acknowledged at {acked_at}")

    def _check_return(self, request: Request, at: int) -> None:
        """Blame a delivery after the heal of a job that was acknowledged before."""
        healed_at, rules = self._healed_at, self.rules
        acked_at = request.acked_at if rules.all_acks_last else request.firm_at if rules.acks_last else None
        if acked_at is None or healed_at is None or request.fast_acked or not acked_at < healed_at < at - GRACE_MS:
            return
        self.blame(f"acks last: {shown(request)} is delivered at {at}, and was acknowledged at {acked_at}")

    def done_by(self, at: int) -> "list[Request]":
        """Jobs whose acknowledgement was heard by that time."""
        return [
            request
            for request in self.requests.values()
            if request.acked_at is not None and request.acked_at <= at and not request.fast_acked
        ]

    def _check_redriven(self, request: Request, generation: int, node: NodeName, at: int) -> None:
        """Blame a second delivery of a redriven job where all nodes hear each other and nobody gave it back."""
        assert request.job_id is not None
        before, other, last_at = self._redriven.get(request.job_id, (generation, node, at))
        self._redriven[request.job_id] = generation, node, at
        is_healed = self._healed_at is not None and last_at >= self._healed_at
        if is_healed and before == generation and other != node and at < last_at + request.retry_ms:
            self.blame(f"redriven once: {shown(request)} is delivered at {at} by {node}, and at {last_at} by {other}")

    def _check_order(self, request: Request, node: NodeName) -> None:
        if request.delay_ms or node != request.node:
            return
        key = (request.producer, request.queue, node)
        before = self._last_number.get(key, 0)
        if request.number < before:
            self.blame(f"in order: {shown(request)} is delivered after number {before} of the same producer")
        else:
            self._last_number[key] = request.number

    def _check_soon(self, request: Request, at: int, soon_ms: int) -> None:
        ready_at = (request.answered_at or at) + request.delay_ms
        if at - ready_at > soon_ms:
            self.blame(f"soon: {shown(request)} could be had from {ready_at} on, and was delivered at {at}")


def shown(request: Request) -> str:
    """A job in the words of a failure."""
    name = "not known" if request.job_id is None else request.job_id.decode()
    return (
        f"job {request.number} ({name}, queue {request.queue.decode()}, node {request.node}, asked at"
        f" {request.asked_at}, answered at {request.answered_at}, W {request.replicate}"
        f"{'' if request.waits_for_copies else ' ASYNC'}, retry {request.retry_ms}, delay {request.delay_ms},"
        f" ttl {request.ttl_ms})"
    )
