"""Mistakes in the protocol, each of which the simulator must notice: the test of the tests.

A mutant replaces a piece of the source of a method, which must be there exactly once, and leaves everything else as it
is.  So a mutant whose piece has changed fails loudly instead of proving nothing.
"""

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import attrs

from disqued.commands import lists
from disqued.commands.cluster import ClusterAsk
from disqued.core import recovery
from disqued.core.cluster import schedules as firing
from disqued.core.cluster.admission import Admission
from disqued.core.cluster.failure_detector import FailureDetector
from disqued.core.cluster.federation import Federation
from disqued.core.cluster.gates import Gates
from disqued.core.cluster.idleness import Idleness
from disqued.core.cluster.instants import Instants
from disqued.core.cluster.leaving import Leaving
from disqued.core.cluster.local_demand import LocalDemand
from disqued.core.cluster.membership import Membership
from disqued.core.cluster.policy_sync import Policies
from disqued.core.cluster.questions import Questions
from disqued.core.cluster.schedules import Schedules
from disqued.core.cluster.stewards import Stewards
from disqued.core.cluster.transfer import Transfer
from disqued.core.lists import Lists
from disqued.core.model import policies as registers
from disqued.core.model.applicants import Applicants
from disqued.core.model.endings import Endings
from disqued.core.model.grouped import GroupedUnits
from disqued.core.model.groups import Group, PassedEntries
from disqued.core.model.ids import JobIds
from disqued.core.model.peers import Peers
from disqued.core.model.policies import PolicyTable
from disqued.core.model.queues import Queues
from disqued.core.model.slots import Bucket
from disqued.core.model.state import State
from disqued.core.model.watermark import Watermark
from disqued.core.node import Node
from disqued.core.recovery import Recovery
from disqued.core.streams.acksets import AckSets
from disqued.core.streams.entries import Streams
from disqued.core.streams.entrydelivery import EntryDelivery
from disqued.core.streams.given import GivenEntries
from disqued.core.streams.offers import EntryOffers
from disqued.core.streams.owners import EntryOwners
from disqued.core.streams.pending import PendingEntries
from disqued.core.streams.reconciliation import Reconciliation
from disqued.core.streams.starts import GroupStarts
from disqued.core.turn import Turn
from disqued.core.work import acks, inquiries, outcomes
from disqued.core.work.ackrounds import AckRounds
from disqued.core.work.acks import Acks
from disqued.core.work.additions import Additions
from disqued.core.work.cancels import Cancels
from disqued.core.work.copies import Copies
from disqued.core.work.deadletters import DeadLetters
from disqued.core.work.delivery import Delivery
from disqued.core.work.fates import Fates
from disqued.core.work.inquiries import Inquiries
from disqued.core.work.keys import Keys
from disqued.core.work.leases import Leases
from disqued.core.work.purges import Purges
from disqued.core.work.queueing import Queueing
from disqued.core.work.redrives import Redrives
from disqued.core.work.replicas import Replicas
from disqued.core.work.replication import Replication
from disqued.core.work.requeueing import Requeueing
from disqued.core.work.sessions import Sessions
from disqued.core.work.sharing import Sharing
from disqued.core.workers.worker_leases import WorkerLeases
from disqued.core.workers.workers import WorkerForm, Workers
from disqued.testing import driver, server
from disqued.testing.checker import Rules
from disqued.testing.clients import LONG_TTL_S, Load
from disqued.testing.journal import ALWAYS, EVERYSEC, NO, NONE
from disqued.testing.profiles import BY_NAME, DELAYED, DILIGENT, HURRIED, LISTED, PATIENT, UNSURE, WORKED
from disqued.testing.streamrecords import StreamRules
from disqued.testing.streams import UNENDING_MS, StreamLoad
from disqued.testing.world import Profile

SEEDS = range(1, 17)  #: of the stories in one of which a mistake must be noticed

_SHORT = {"hours": 0.01, "quiet_ms": 0, "drain_ms": 500_000}
#: Everything is well, every job is queued somewhere at once, and consumers are quick.
CALM = Profile(
    "mutant-calm", load=DILIGENT, consumers=5, jobs=10, bursts=2,
    rules=Rules(all_acks_last=True, exactly_once=True, soon_ms=2_500, once_arrives=True), **_SHORT,
)  # fmt: skip
#: Jobs wait for longer than their retry period, in queues and with consumers.
SLOW = Profile(
    "mutant-slow", load=attrs.evolve(PATIENT, replicate=(2, 2, 3), think_ms=200, work_ms=7_000),
    producers=5, jobs=6, consumers=6, bursts=10, pause_ms=20_000,
    rules=Rules(all_acks_last=True, exactly_once=True, on_time=True), **_SHORT,
)  # fmt: skip
#: Loops are busy and messages late, and so are consumers.
BUSY = attrs.evolve(
    BY_NAME["busy"], name="mutant-busy", bursts=4, every_ms=200, load=attrs.evolve(HURRIED, replicate=(1, 3, 3)),
    **_SHORT,
)  # fmt: skip
#: Two nodes are apart for less time than they wait for each other.
HELD = attrs.evolve(BY_NAME["held"], name="mutant-held", **_SHORT)
#: One node serves, the others have copies.
ORDER = Profile(
    "mutant-order", load=attrs.evolve(DILIGENT, think_ms=200), consumers=3, jobs=15, one_node=True, bursts=2,
    rules=Rules(exactly_once=True, in_order=True, once_arrives=True), **_SHORT,
)  # fmt: skip
#: Consumers who die, give back and take their time.
_ROUGH = Load(retries_s=(0, 0, 2, 5), dies=0.1, nacks=0.15, works_on=0.1)
ROUGH = Profile("mutant-rough", load=_ROUGH, bursts=2, **_SHORT)
#: Nodes are apart now and then, for seconds, and no link breaks.
APART = Profile(
    "mutant-apart", kinds=("partition", "clog", "cut"), every_ms=4_000, bursts=3, asked_at_once=2,
    load=Load(retries_s=(5, 20, 30), acks_elsewhere=0.4, acks_again=0.4, fast_acks=0.0),
    rules=Rules(all_acks_last=True, collected_ms=10_000), **_SHORT,
)  # fmt: skip
#: The same, and most acks are heard by nodes that do not have the job, often by two of them.
DUMMIES = attrs.evolve(
    APART, name="mutant-dummies",
    load=Load(retries_s=(20, 40), replicate=(1,), acks_elsewhere=0.8, acks_again=0.8, fast_acks=0.0),
)  # fmt: skip
#: Messages are lost, doubled and late; jobs are delivered at most once for the most part.
MESSY = Profile("mutant-messy", kinds=("mess",), every_ms=3_000, load=Load(retries_s=(0, 0, 2)), bursts=2, **_SHORT)
#: Processes end and start again from a journal that has everything; clients know one node, so that jobs stay there.
CRASHES = Profile(
    "mutant-crashes", kinds=("crash", "power", "restart", "compact", "partition"), every_ms=2_500, policies=(ALWAYS,),
    load=Load(retries_s=(0, 20, 60, 90), delays_s=(0, 0, 3, 20), work_ms=2_000), bursts=3, consumers=3,
    one_node=True, **_SHORT,
)  # fmt: skip
#: Jobs have few tries, and consumers who give back; what is dead is to stay so.
RETRIES = attrs.evolve(
    BY_NAME["retries"], name="mutant-retries", every_ms=3_000, bursts=3,
    kinds=("partition", "cut", "mess", "crash", "restart"), **_SHORT,
)  # fmt: skip
#: Nothing fails, and consumers give back most jobs untried.
UNTRIED = attrs.evolve(BY_NAME["untried"], name="mutant-untried", bursts=3, **_SHORT)
#: Queues are paused, here and everywhere, while nodes come and go.
POLICIES = attrs.evolve(
    BY_NAME["policies"], name="mutant-policies", every_ms=1_000, bursts=3,
    kinds=tuple(kind for kind in BY_NAME["policies"].kinds if kind != "idle"), **_SHORT,
)  # fmt: skip
#: Queues expire, and are used again, and words of that take their time.
IDLE = attrs.evolve(
    POLICIES, name="mutant-idle", nodes=2, kinds=("idle", "slow"), every_ms=3_000,
)  # fmt: skip
#: Queues are fair and throttled, while nodes come and go.
FAIR = attrs.evolve(
    BY_NAME["fair"], name="mutant-fair", kinds=("throttle", "fair", "cut", "crash", "restart"), every_ms=1_000,
    bursts=3, **_SHORT,
)  # fmt: skip
#: The same between two nodes, where messages are lost and no link breaks.
MESSY_PAUSES = attrs.evolve(POLICIES, name="mutant-messy-pauses", nodes=2, kinds=("queue", "mess"), every_ms=2_000)
#: Links fail, and messages are late when all dead jobs are redriven in the end.
REDRIVEN_LATE = attrs.evolve(
    BY_NAME["retries"], name="mutant-redriven-late", nodes=4, kinds=("cut",), every_ms=3_000, jitter_ms=1_500,
    load=attrs.evolve(BY_NAME["retries"].load, replicate=(3,), retries_s=(10,), tries=(1,), nacks=0.6),
    redrivers=0, consumers=3, bursts=3, **_SHORT,
)  # fmt: skip
#: Schedules fire, and nothing fails.
SCHEDULES_CALM = attrs.evolve(BY_NAME["schedules-calm"], name="mutant-schedules-calm", bursts=2, **_SHORT)
#: Schedules fire, while nodes come and go.
SCHEDULES = attrs.evolve(
    BY_NAME["schedules"], name="mutant-schedules", every_ms=2_000, bursts=3,
    kinds=("partition", "crash", "power", "cut"), **_SHORT,
)  # fmt: skip
#: The same on two sides, of which one has nobody who takes the jobs.
SCHEDULES_APART = attrs.evolve(SCHEDULES, name="mutant-schedules-apart", nodes=3, kinds=("partition",), schedules=1)
#: Nodes stop and start, and their clocks are set.
SCHEDULES_CLOCKS = attrs.evolve(
    SCHEDULES, name="mutant-schedules-clocks", kinds=("set_clock", "crash", "compact"), every_ms=1_500
)
#: Queues are limited, while nodes come and go, and are suspected soon.
LIMITS = attrs.evolve(
    BY_NAME["limits"], name="mutant-limits", every_ms=4_000, timeout_ms=2_000, bursts=4, consumers=16,
    kinds=("partition", "one_way", "cut", "crash"),
    load=attrs.evolve(BY_NAME["limits"].load, replicate=(3,), work_ms=3_000), **{**_SHORT, "drain_ms": 1_200_000},
)  # fmt: skip
#: The same, and nothing fails.
LIMITS_CALM = attrs.evolve(BY_NAME["limits-calm"], name="mutant-limits-calm", bursts=2, **_SHORT)
#: Queues are limited, and all nodes crash, often together.
LIMITS_CRASH = attrs.evolve(
    BY_NAME["limits-crash"], name="mutant-limits-crash", every_ms=1_500, bursts=4, consumers=16,
    load=attrs.evolve(BY_NAME["limits-crash"].load, work_ms=3_000), **{**_SHORT, "drain_ms": 1_200_000},
)  # fmt: skip
#: The same where messages are lost, doubled and late, and no link breaks.
LIMITS_MESSY = attrs.evolve(LIMITS, name="mutant-limits-messy", kinds=("mess", "slow"))
#: Producers wait for results and cancel jobs, while nodes come and go.
RESULTS = attrs.evolve(
    BY_NAME["results"], name="mutant-results", every_ms=2_000, bursts=3, **{**_SHORT, "drain_ms": 1_200_000}
)
#: The same where messages are lost and no link breaks.
MESSY_RESULTS = attrs.evolve(
    RESULTS, name="mutant-messy-results", nodes=3, kinds=("mess",), load=attrs.evolve(RESULTS.load, replicate=(2, 3))
)
#: Nothing fails, and consumers tell other nodes of what they have done.
RESULTS_CALM = attrs.evolve(
    BY_NAME["results-calm"], name="mutant-results-calm", bursts=2, **{**_SHORT, "drain_ms": 1_200_000}
)
#: Operators purge queues, while nodes come and go.
PURGES = attrs.evolve(BY_NAME["purges"], name="mutant-purges", every_ms=4_000, bursts=3, **_SHORT)
#: Operators ask all nodes what a command answers.
QUESTIONS = attrs.evolve(BY_NAME["questions"], name="mutant-questions", every_ms=4_000, bursts=2, **_SHORT)
#: Nothing fails; queues are purged while jobs that are delivered at most once move.
PURGED_ON_THE_MOVE = attrs.evolve(
    PURGES, name="mutant-purged-on-the-move", kinds=(), purgers=6, consumers=8, jobs=60, jitter_ms=20,
    load=attrs.evolve(PURGES.load, retries_s=(0,), delays_s=(0,), think_ms=50, work_ms=200, dies=0.0, nacks=0.0),
)  # fmt: skip
#: Jobs move while processes end, and their consumers die with them in their hands.
RETURNS = Profile(
    "mutant-returns", kinds=("crash",), every_ms=3_000, policies=(ALWAYS,), bursts=3, consumers=6, jobs=20,
    load=Load(
        retries_s=(20, 30), replicate=(1,), delays_s=(0,), dies=0.3, nacks=0.2, works_on=0.0, fast_acks=0.0,
        asynchronous=0.0, acks_elsewhere=0.0,
    ),
    rules=Rules(), **_SHORT,
)  # fmt: skip
#: The same, from a journal that is written anew most of the time.
COMPACTED = attrs.evolve(
    CRASHES,
    name="mutant-compacted",
    kinds=("crash", "compact"),
    every_ms=1_500,
    consumers=2,
    rules=Rules(acks_last=False),
)
#: The same, from a journal that lacks the last second, or more.
UNSYNCED = attrs.evolve(
    CRASHES, name="mutant-unsynced", kinds=("power", "restart"), policies=(EVERYSEC, NO), rules=Rules(acks_last=False)
)
#: Commits take their time; power and disks fail meanwhile.
COMMITS = Profile(
    "mutant-commits", nodes=2, kinds=("power", "crash", "full_disk", "bad_sync"), every_ms=2_000, policies=(ALWAYS,),
    commit_ms=800, load=Load(retries_s=(0, 5, 20), delays_s=(0, 0, 3), replicate=(1, 2), asynchronous=0.0), bursts=4,
    rules=Rules(acks_last=False), **_SHORT,
)  # fmt: skip
#: The same, and disks are well: what a node has said it knows after a power cut.
COMMITS_POWER = attrs.evolve(
    COMMITS, name="mutant-commits-power", kinds=("power", "crash"), every_ms=1_500, bursts=6,
    load=attrs.evolve(COMMITS.load, acks_elsewhere=0.5), rules=Rules(),
)  # fmt: skip
#: Commits take longer than it takes to be suspected, and nothing fails.
COMMITS_LONG = Profile(
    "mutant-commits-long", load=attrs.evolve(DILIGENT, retries_s=(60,)), policies=(ALWAYS,), commit_ms=3_000,
    timeout_ms=600, bursts=2, rules=Rules(nobody_suspected=True), **_SHORT,
)  # fmt: skip
#: Copies are all that a part of the nodes have.
COMMITS_MIXED = attrs.evolve(
    COMMITS, name="mutant-commits-mixed", nodes=3, policies=(ALWAYS, NONE), commit_ms=0, every_ms=1_000,
    kinds=("power", "crash", "full_disk"), load=attrs.evolve(COMMITS.load, replicate=(2,), retries_s=(20,)),
)  # fmt: skip
#: A node that is down when the times of delayed jobs come.
DELAYS = Profile(
    "mutant-delays", nodes=1, kinds=("crash", "power", "compact"), every_ms=5_000, policies=(ALWAYS, EVERYSEC, NO),
    load=DELAYED,
    bursts=4, consumers=6, rules=Rules(acks_last=False, after_start_ms=5_000), **_SHORT,
)  # fmt: skip
#: Nothing is written down: copies are all that there is.
FRAGILE = Profile(
    "mutant-fragile", nodes=4, kinds=("crash", "partition"), every_ms=6_000, policies=(NONE,), bursts=15,
    pause_ms=10_000, consumers=3,
    load=Load(retries_s=(20, 30), replicate=(2, 2, 3), delays_s=(0, 3, 20), asynchronous=0.0, work_ms=3_000),
    rules=Rules(acks_last=False), **_SHORT,
)  # fmt: skip
#: The same, with three copies of each job and not much time between two faults.
FRAGILE_TWICE = attrs.evolve(
    FRAGILE,
    name="mutant-fragile-twice",
    every_ms=5_000,
    load=attrs.evolve(FRAGILE.load, replicate=(3,), delays_s=(20,), think_ms=1_000),
)
#: Nodes leave while there is much to take along, and are wiped.
LEAVING = Profile(
    "mutant-leaving", nodes=3, kinds=("leaving",), every_ms=6_000, bursts=3,
    load=Load(retries_s=(20, 30), delays_s=(0, 20), work_ms=3_000), rules=Rules(acks_last=False), **_SHORT,
)  # fmt: skip
#: Nodes are full all the time.
FULL = Profile(
    "mutant-full", kinds=(), maxmemory=20_000, bursts=4, jobs=40,
    load=Load(retries_s=(0, 0, 2, 5), ttls_s=(LONG_TTL_S,)), rules=Rules(acks_last=False, once_arrives=True), **_SHORT,
)  # fmt: skip


#: The same; messages are lost, and nearly all jobs are delivered at most once, after a delay.
MESSY_FULL = attrs.evolve(
    FULL, name="mutant-messy-full", kinds=("mess",), every_ms=2_000, maxmemory=20_540,
    load=Load(retries_s=(0, 0, 0, 5), delays_s=(3, 8), ttls_s=(LONG_TTL_S,)), rules=Rules(acks_last=False),
)  # fmt: skip


#: Live workers, some of whom die, and whose tasks take longer than their retry periods.
WORKERS = Profile(
    "mutant-workers", load=attrs.evolve(WORKED, retries_s=(3,), replicate=(2, 3), work_ms=9_000), consumers=1,
    workers=8, bursts=2, pushes=1, rules=Rules(workers_keep=True), **_SHORT,
)  # fmt: skip


#: Reliable lists, whose consumers die now and then; a node comes back from its journal.
LISTS = Profile(
    "mutant-lists", load=attrs.evolve(LISTED, replicate=(1, 1, 2), dies=0.15), producers=1, consumers=1, lists=4,
    jobs=15, kinds=("crash",), every_ms=6_000, bursts=3, rules=Rules(acks_last=False), **_SHORT,
)  # fmt: skip


#: Events for groups of consumers, some of whom die, dawdle and give back, and nothing else goes wrong.
LOGS = Profile(
    "mutant-logs", nodes=1, load=DILIGENT, producers=0, consumers=0, logs=6, jobs=15, bursts=2,
    log_rules=StreamRules(exact=True), **_SHORT,
)  # fmt: skip
#: The same, on a node that comes back from its journal again and again.
LOGS_CRASH = attrs.evolve(
    LOGS, name="mutant-logs-crash", kinds=("crash", "power", "restart", "compact"), every_ms=1_500, bursts=3,
    log_load=StreamLoad(flushes=0.1), log_rules=StreamRules(on_time_ms=150_000),
)  # fmt: skip
_SHORT_LIVES = (220_000, 220_000, 220_000, 20_000, 5_000)
#: Events of three nodes, for consumers of all of them.
LOGS_CLUSTER = attrs.evolve(
    LOGS, name="mutant-logs-cluster", nodes=3, bursts=1, jobs=20, log_drain_ms=60_000,
    log_load=StreamLoad(lives_ms=_SHORT_LIVES, crew_leases_ms=(UNENDING_MS,), acks_elsewhere=0.5, late=0.2),
)  # fmt: skip
#: The same, and the nodes are apart most of the time.
LOGS_APART = attrs.evolve(
    LOGS_CLUSTER, name="mutant-logs-apart", kinds=("partition", "cut"), every_ms=1_000, bursts=2, pause_ms=25_000,
    jobs=15, quiet_ms=660_000, log_load=StreamLoad(lives_ms=_SHORT_LIVES, flushes=0.1, rests_ms=5_000),
    log_rules=StreamRules(on_time_ms=150_000, all_acks_last=True),
)  # fmt: skip


#: Producers who lose their connections and say the same again with a key, on whichever node.
KEYS = Profile(
    "mutant-keys", load=attrs.evolve(UNSURE, retries_s=(0, 0, 10), breaks=0.95, think_ms=100), keyed=True,
    producers=8, jobs=20, bursts=2,
    rules=Rules(all_acks_last=True, exactly_once=True, once_arrives=True), **_SHORT,
)  # fmt: skip


#: What may be delivered once, on disks that fail.
DELAYS_DISKS = attrs.evolve(
    DELAYS, name="mutant-delays-disks", kinds=("power", "bad_sync", "full_disk"), every_ms=2_000,
    policies=(EVERYSEC, NO),
)  # fmt: skip


@attrs.frozen
class Edit:
    """Pieces of the source of something, and what stands there instead."""

    owner: Any  #: class or module
    name: str
    pieces: tuple[tuple[str, str], ...]


@attrs.frozen
class Mutant:
    """A mistake."""

    name: str
    profile: Profile
    edits: tuple[Edit, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Make the mistake, for a while."""
        with ExitStack() as stack:
            for edit in self.edits:
                stack.enter_context(mock.patch.object(edit.owner, edit.name, _mutated(edit)))
            yield


def _mutated(edit: Edit) -> Any:
    """What the edited source defines."""
    assert edit.name in vars(edit.owner), f"{edit.owner.__name__} has no {edit.name} any more"
    thing = vars(edit.owner)[edit.name]
    function = getattr(thing, "fget", None) or getattr(thing, "__func__", None) or thing
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in edit.pieces:
        found = source.count(old)
        assert found == 1, f"{edit.owner.__name__}.{edit.name} has {old!r} {found} times, and once is expected"
        source = source.replace(old, new)
    scope: dict[str, Any] = {}
    # The mistakes are those of this file.
    exec(compile(source, inspect.getfile(function), "exec"), function.__globals__, scope)
    return scope[edit.name]


def _mutant(name: str, profile: Profile, owner: Any, method: str, old: str, new: str, *more: tuple[str, str]) -> Mutant:
    return Mutant(name, profile, (Edit(owner, method, ((old, new), *more)),))


_RENEWS = "self._state.begin_work(self._renew_parts(worker, jobs_of(worker.leases)))"
#: A worker has, all of a sudden, what others have.
_TAKES_ALL = (
    "worker.leases = dict.fromkeys(self._state.custody.bound, 0); "
    "self._state.custody.bound.update(dict.fromkeys(self._state.custody.bound, worker))"
)

#: Nobody who has forgotten a job says so: it would mend what some mistakes break.
_SILENT = Edit(State, "say_ended", (("if job_id in self.custody.ended:", "if False:"),))


def _besides(mutant: Mutant, *edits: Edit) -> Mutant:
    """Make another mistake at the same time."""
    return attrs.evolve(mutant, edits=(*mutant.edits, *edits))


MUTANTS: tuple[Mutant, ...] = (
    # Acknowledgement.
    _mutant(
        "an ack is kept and told to nobody", CALM,
        Acks, "_ask", "state.say_done(node_id, job, last=len(missing) == 1)", "pass",
    ),
    _besides(
        _mutant(
            "an ack is forgotten at once, whoever else holds the job", CALM,
            Acks, "acknowledge", "if job.holders is None:", "if True:",
        ),
        _SILENT,
    ),
    _besides(
        _mutant(
            "the list of the holders is forgotten when the job is done", CALM,
            Acks, "_become_done", "done.holders = job.holders",
            "done.holders = state.shared.holders(frozenset((state.node_id,)))",
        ),
        _SILENT,
    ),
    _mutant(
        "who hears of an ack neither answers nor notes who knows", CALM,
        Acks, "on_setack", "state.send(sender, (GOTACK, job_id, scope, True, job.holders))", "pass",
        ("job.confirmed = state.shared.holders((job.confirmed or _UNKNOWN) | confirmed)", "pass"),
    ),
    _mutant(
        "who does not know the job does not answer either", APART,
        Acks, "_hear_of_unknown", "state.send(sender, (GOTACK, job_id, scope, False, _UNKNOWN))", "pass",
    ),
    _mutant(
        "the first answer counts for all", APART,
        Acks, "on_gotack", "elif not missing:", "else:",
    ),
    _mutant("an answer is not noted", CALM, Acks, "_confirm", "if node_id not in confirmed:", "if False:"),
    _mutant(
        "an ack waits for its back-off although a link is there again", APART,
        AckRounds, "link_opened", "if self._state.custody.acked and", "if False and",
    ),
    _mutant(
        "a round of acks ends with its first part", APART,
        AckRounds, "_go_on", "if this.at == len(this.jobs):", "if True:",
    ),
    _mutant(
        "the ack of a job that is elsewhere is ignored", CALM,
        Acks, "_keep_dummy", "if not ttl_ms or not state.peers.by_id:", "if True:",
    ),
    _mutant(
        "a dummy ack answers as if it were the job", DUMMIES,
        Acks, "_hear_of_dummy", "WORK_SCOPE, False, _UNKNOWN", "WORK_SCOPE, True, frozenset((self._state.node_id,))",
    ),
    _mutant(
        "an ack that comes from another node is ignored", CALM,
        Acks, "on_setack", "if job is None or job.options.kind:", "if True:",
    ),
    _mutant(
        "an ack is not written down", CRASHES,
        Acks, "_become_done", "if state.journaling:", "if False:",
    ),
    _mutant(
        "an ack tells that it is done, and goes on delivering", CALM,
        Acks, "_become_done", "state.drop(job)", "pass",
    ),
    # Redelivery.
    _mutant(
        "a job is queued again without a question", SLOW,
        Requeueing, "_has_asked", "state.send(node_id, (messages.WILLQUEUE, job.id, WORK_SCOPE))", "pass",
        ("return not missing and not is_late", "return True"),
    ),
    _mutant(
        "nobody waits for the answer to a question", BUSY,
        Requeueing, "_has_asked", "return not missing and not is_late", "return True",
    ),
    _mutant(
        "a silent holder is waited for during one node time-out", HELD,
        Peers, "awaited", "PATIENCE * self.timeout_ms", "self.timeout_ms",
    ),
    _mutant(
        "what one node suspects has failed", HELD,
        Peers, "_may_answer", "peer.flags & FAIL and self.has_quorum", "peer.flags & (PFAIL | FAIL)",
    ),
    _mutant(
        "two holders that ask at the same time let each other go first", BUSY,
        Sharing, "_give_way", "elif comes_first(sender, self._state.node_id, job.id):", "else:",
        ("self._requeueing.ask_again(job, sender)", "pass"),
    ),
    _mutant(
        "what came back from a journal is taken for a job like any other", RETURNS,
        Queueing, "enqueue_new", "job.flags & _LASTING_FLAGS", "job.flags & _LASTING_FLAGS & ~32",
    ),
    _mutant(
        "whose consumer has the job does not say so", SLOW,
        Sharing, "on_willqueue", "elif self._queueing.is_leased(job):", "elif False:",
    ),
    _mutant(
        "the timer goes on when others have the job", BUSY,
        Sharing, "_put_off", "if job.state == ACTIVE and job.options.retry_ms:", "if False:",
    ),
    _mutant(
        "the retry period does not begin anew at the delivery", SLOW,
        Delivery, "take", "unit.requeue_at = requeue_at = state.now + retry_ms", "requeue_at = unit.requeue_at",
    ),
    _mutant(
        "whoever knows a job says that its consumer has it", ROUGH,
        Sharing, "on_willqueue", "elif self._queueing.is_leased(job):", "elif True:",
        (
            "self._queueing.leases.tell(job)",
            "state.tell(job, (messages.WORKING, job.id, WORK_SCOPE, job.options.retry_ms))",
        ),
    ),
    _mutant(
        "a job is not queued again", ROUGH,
        Requeueing, "due", "if 0 < job.requeue_at <= now:",
        "if job.flags & 2:\n        job.requeue_at = 0\n    elif 0 < job.requeue_at <= now:",
    ),
    _mutant(
        "an at-most-once job can be given back", ROUGH,
        Requeueing, "enqueue", "if not retry_ms and (again or (not job.requeue_at and (nack or asked))):", "if False:",
    ),
    _mutant(
        "a copy lives longer than the job", SLOW,
        Copies, "make", "min(stored.expires, longest_ms)", "longest_ms * 4",
    ),
    _mutant(
        "the youngest job comes first", ORDER,
        Queueing, "enqueue_new", "queue.units.push(job)", "job.order_key = -job.order_key\n    queue.units.push(job)",
    ),
    # Copies.
    _mutant(
        "the producer is answered before there are copies", FRAGILE,
        Additions, "_add_several", "if asynchronous:", "if True:",
    ),
    _mutant(
        "one copy less than asked for is enough", FRAGILE_TWICE,
        Replication, "_has_enough", "len(confirmed) >= job.options.replicate",
        "len(confirmed) >= job.options.replicate - 1",
    ),
    _mutant(
        "copies rest for ever", FRAGILE,
        Copies, "_requeue_at", "if stored.retry_ms:", "if False:",
    ),
    _mutant(
        "a node that keeps no copy says that it has one", FULL,
        Replicas, "on_repljob",
        "tell_flags(state, sender)\n        return",
        "tell_flags(state, sender)\n        state.send(sender, (GOTJOB, stored.id))\n        return",
    ),
    _mutant(
        "a copy knows of no other holder", SLOW,
        Replicas, "on_repljob", "job_id, holders = stored.id, stored.holders or frozenset()",
        "job_id, holders = stored.id, frozenset()",
    ),
    _mutant(
        "an at-most-once job that is handed over is queued by nobody", FULL,
        Sharing, "on_enqueue", "job.flags &= ~FLAG_QUEUED_BEFORE", "return",
    ),
    _mutant(
        "an at-most-once job comes a second time with the message that brings it", MESSY,
        Copies, "came_before", "if stored.additional_deliveries <= once.get(stored.id, -1):", "if False:",
    ),
    _mutant(
        "every copy of an at-most-once job waits for the end of its delay", MESSY_FULL,
        Copies, "_requeue_at", "    if stored.retry_ms:", "    if stored.retry_ms or delay_ms:",
    ),
    # Federation.
    _mutant(
        "nobody is asked for jobs", CALM,
        LocalDemand, "_ask", "self._tell(list(state.peers.linked), demand, waiting)", "pass",
    ),
    _mutant(
        "jobs are taken out of the queue and not sent", CALM,
        Federation, "_bring_ready", "state.send(node_id, (YOURJOBS, tuple(jobs), True))", "pass",
    ),
    _mutant(
        "an at-most-once job stays with its giver, too", CALM,
        Transfer, "_leave_to", "self.part_with(job)", "self._queueing.enqueue_new(job, state.queue(job.queue))",
    ),
    _besides(
        _mutant(
            "who takes a job over does not know who had it", CALM,
            Transfer, "take_over", "(stored.holders or frozenset()) | {sender, state.node_id}", "{state.node_id}",
        ),
        _SILENT,
    ),
    _mutant(
        "hunger never ends", CALM,
        LocalDemand, "due", "self.end(demand.queue.name)", "state.schedule.add(demand, state.now + 5_000)",
    ),
    # Coming back.
    _mutant(
        "what is done comes back with the journal", CRASHES,
        Recovery, "_finish", "self._forget(job_id)", "pass",
    ),
    _mutant(
        "what was acknowledged comes back as a job", CRASHES,
        Recovery, "_place", "if stored.state == ACKED:", "if False:",
    ),
    Mutant(
        "an at-most-once job is queued again after a crash", UNSYNCED,
        (
            Edit(
                Recovery, "_place",
                (("job.flags |= FLAG_QUEUED_BEFORE\n        job.requeue_at", "job.requeue_at"),),
            ),
            Edit(
                Recovery, "_take_for_queued",
                (
                    ("job.flags |= FLAG_QUEUED_BEFORE\n    if options.retry_ms:", "if options.retry_ms:"),
                    ("job.requeue_at = 0\n", "job.requeue_at = state.now + 1_000\n"),
                ),
            ),
        ),
    ),
    Mutant(
        "a job is tried once more than it may", RETRIES,
        (
            Edit(DeadLetters, "ends_last_try", (("+ 1:", "+ 0:"),)),
            Edit(DeadLetters, "fate_changed", (("and is_spent(job)", "and False"),)),
        ),
    ),
    _mutant(
        "a NACK takes no try", RETRIES,
        Requeueing, "give_back", "job.nacks += 1", "pass",
    ),
    _mutant(
        "a job that is given back untried has been tried", UNTRIED,
        Requeueing, "take_back", "state.counters.returned += 1", "job.nacks += 1",
    ),
    _mutant(
        "a job that is given back untried waits for its timer", UNTRIED,
        Requeueing, "take_back", "self.queueing.enqueue_new(job, state.queue(job.queue))", "return True",
    ),
    _mutant(
        "the tries of a job are not journaled", RETRIES,
        Fates, "_note", "if self._state.journaling and", "if False and",
    ),
    _mutant(
        "a delivery of a job with terms is not journaled, so that a start counts no try", RETRIES,
        Leases, "announce", "elif job.options.is_rare:", "elif False:",
    ),
    _mutant(
        "a start counts no try of a job that a consumer had", RETRIES,
        Recovery, "_lease", "elif deliveries >= attempt_of(job):", "elif False:",
    ),
    _mutant(
        "a start takes every job for one that nobody had", RETRIES,
        Recovery, "_add", "job.flags = flags | FLAG_CAME_BACK", "job.flags = flags | FLAG_CAME_BACK | FLAG_TAKEN_OUT",
    ),
    _mutant(
        "what became of a job is forgotten with a start", RETRIES,
        Recovery, "_wish", "fate=wishes[6]", "fate=NO_FATE",
    ),
    _mutant(
        "a job that is dead stays in its queue", RETRIES,
        DeadLetters, "fate_changed", "if job.state in (ACTIVE, QUEUED):", "if False:",
    ),
    _mutant(
        "a redriven job does not begin afresh", RETRIES,
        DeadLetters, "redrive", "job.nacks = job.additional_deliveries = 0", "pass",
    ),
    _mutant(
        "a redriven job is queued before other holders have said anything", REDRIVEN_LATE,
        DeadLetters, "redrive", "if retry_ms and job.holders", "if False and job.holders",
    ),
    _mutant(
        "nobody redrives what its first holder does not have", RETRIES,
        Redrives, "due", "if this.some_left and this.left and not this.is_last:", "if False:",
    ),
    _mutant(
        "the older word on a pause wins", POLICIES,
        PolicyTable, "merge", "if register <= known:", "if register >= known:",
    ),
    _mutant(
        "a new word does not count on from the known one", POLICIES,
        PolicyTable, "succeed", "last = 0 if known is None else known.counter", "last = 0",
    ),
    _mutant(
        "who uses a queue that has expired says nothing", IDLE,
        Idleness, "idle_changed", "self._is_in_use(name)", "False",
    ),
    _mutant(
        "a queue that has been used is in use for ever", IDLE,
        Idleness, "idle_changed", "this.heard_at = state.now", "this.heard_at = 0",
    ),
    _mutant(
        "an expiry is told without its floor", IDLE,
        Idleness, "_expire", "(floor,)", "(0,)",
    ),
    _mutant(
        "a node that was away is not told of pauses", POLICIES,
        Policies, "link_opened", "if registers:", "if False:",
    ),
    _mutant(
        "a result is forgotten when everybody knows", RESULTS,
        Acks, "_collect", "job.requeue_at and self._is_kept(job)", "False",
    ),
    _mutant(
        "an acknowledgement counts without its word", MESSY_RESULTS,
        Acks, "_agrees", "return False", "return True",
    ),
    _mutant(
        "a result does not come back from the journal", RESULTS,
        Recovery, "_keep_done", "if left_ms > 0 else 0", "if False else 0",
    ),
    _mutant(
        "a cancelled job is queued again", RESULTS,
        Requeueing, "enqueue", " or (job.flags & FLAG_DROPPED and self._acks.end_undone(job))", "",
    ),
    _mutant(
        "a job that is in a queue goes on when it is cancelled", RESULTS,
        Cancels, "fate_changed", "is_undone(fate) and self._can_end(job)", "False",
    ),
    _mutant(
        "a node that is asked for a result does not remember it", MESSY_RESULTS,
        outcomes, "standing_of", "standing = end_of(fate)", "return Outcome(job_id, NOT_KNOWN, 0, NO_FATE)",
    ),
    _mutant(
        "of what two nodes say of a job the lower counts", RESULTS,
        outcomes, "merge_standings", "max(one.state, other.state)", "min(one.state, other.state)",
    ),
    _mutant(
        "a job that waits where its end is heard counts a try", RESULTS_CALM,
        acks, "last_try", "is_heard and not job.options.terms.keep_result_ms", "is_heard",
    ),
    _mutant(
        "the holder that knows of the last try tells nobody", RESULTS_CALM,
        Acks, "_become_done", "if knows_more and", "if False and",
    ),
    _mutant(
        "of the last try no holder learns what another one knows", RESULTS_CALM,
        Fates, "_learn_last_try", "done.flags = flags", "flags = before",
    ),
    _mutant(
        "those who wait are told of an end before its last try is known", RESULTS_CALM,
        outcomes.Outcomes, "_holds", "until <= state.now or", "True or",
    ),
    _mutant(
        "a job that is done on its way to another node counts a try", RESULTS_CALM,
        Transfer, "_may_take_over", "queued and stored.terms.keep_result_ms", "False",
    ),
    _mutant(
        "what was not answered of pauses is not said again", MESSY_PAUSES,
        Policies, "round_due", "this.left = dict.fromkeys((*this.told, *this.left))", "pass",
    ),
    _mutant(
        "a pause of the cluster is not journaled", POLICIES,
        Policies, "_learn", "if state.journaling:", "if False:",
    ),
    _mutant(
        "a pause of the cluster is not written anew", POLICIES,
        recovery, "_policies", "if register is not None:", "if False:",
    ),
    _mutant(
        "a node learns of a pause and does not follow", POLICIES,
        Policies, "_follow_pause", "self._queueing.follow_policy(name)", "pass",
    ),
    _mutant(
        "a node learns of a default and does not take it", POLICIES,
        PolicyTable, "_follow", "self.defaults[queue] = defaults", "pass",
    ),
    _mutant(
        "a default that is unset is taken all the same", POLICIES,
        PolicyTable, "_follow", "self.defaults.pop(queue, None)", "pass",
    ),
    _mutant(
        "a queue that is paused out hands out all the same", POLICIES,
        Delivery, "take", "if queue.holds & HOLDS:", "if False:",
    ),
    # Groups and throttles.
    _mutant(
        "a throttled queue hands out all the same", FAIR,
        Delivery, "_to_give", "if queue.holds & HOLDS_ALL:", "if False:",
    ),
    _mutant(
        "a throttled queue gives jobs to other nodes", FAIR,
        Federation, "_stock", "queue.holds & HOLDS_ALL or queue.waiters", "queue.waiters",
    ),
    _mutant(
        "a second group that is throttled hands out all the same", FAIR,
        Gates, "_follow", "queue.grouped.block(group)", "pass",
    ),
    _mutant(
        "a queue that comes into being while it is throttled hands out", FAIR,
        Queues, "create", "queue.follow(gate, self._memory)", "pass",
    ),
    _mutant(
        "a node learns of a throttle and does not follow", FAIR,
        Policies, "_announce", "elif field in GATE_FIELDS:", "elif False:",
    ),
    _mutant(
        "a throttle does not end", FAIR,
        Gates, "ended", "self._policies.forget(*end.place)", "pass",
    ),
    _mutant(
        "after a start nothing is throttled any more", FAIR,
        Gates, "resume", "self._follow_all(queue)", "queue.follow(None, self._state.memory)",
    ),
    _mutant(
        "a group keeps the turn until it has no jobs", FAIR,
        GroupedUnits, "_pop_ready", "self._make_ready(group)",
        "self._make_ready(group); self._ring.move_to_end(group, last=False) if self.is_fair else None",
    ),
    _mutant(
        "a group that gets ready goes before all others", FAIR,
        GroupedUnits, "_make_ready", "self._ring[group] = None",
        "self._ring[group] = None; self._ring.move_to_end(group, last=False)",
    ),
    _mutant(
        "a group hands out its youngest job", FAIR,
        GroupedUnits, "_pop_ready", "unit = group.units.pop_first()",
        "unit = group.units.listed()[-1]; group.units.remove(unit)",
    ),
    _mutant(
        "a group hands out nothing any more after its throttle", FAIR,
        Gates, "_follow", "queue.grouped.unblock(group)", "pass",
    ),
    # Schedules.
    _mutant(
        "the id of a scheduled job depends on the node", SCHEDULES,
        Instants, "id_of", "(register.counter, register.node_id)", "(register.counter, self._state.node_id)",
    ),
    _mutant(
        "all nodes fire at once", SCHEDULES_CALM,
        Schedules, "_rank_of", "return ranked(", "return 0 * ranked(",
    ),
    _mutant(
        "that an instant is over is told to nobody, and not journaled", SCHEDULES,
        Policies, "settle", "self.reach(name, SCHEDULE_FIRED_FIELD, instant, firing)",
        "state = self._state; state.queues.policies.merge(name, SCHEDULE_FIRED_FIELD,"
        " Register(instant, state.node_id, state.wall, firing))",
    ),
    _mutant(
        "what two sides know of the last instants is not joined", SCHEDULES_CLOCKS,
        PolicyTable, "merge", "latest._replace(value=joined(known.value, register.value))", "latest",
    ),
    _mutant(
        "of two outcomes of an instant the lesser holds", SCHEDULES,
        registers, "joined", "max(outcome, outcomes.get(instant, 0))", "min(outcome, outcomes.get(instant, 9))",
    ),
    _mutant(
        "an instant that is skipped counts as fired", SCHEDULES,
        Schedules, "_settle", "(plan.instant, outcome)]", "(plan.instant, FIRED)]",
    ),
    _mutant(
        "missed instants are not noted", SCHEDULES_CLOCKS,
        Schedules, "_settle", "*self.instants.missed_before(plan.name, plan.instant), ", "",
    ),
    _mutant(
        "an acknowledgement of a scheduled job goes to its known holders alone", SCHEDULES_APART,
        Acks, "_mistrust", "or (job.options.terms.headers and is_of_schedule(job.id))", "",
    ),
    _mutant(
        "an instant is over before its job is there", SCHEDULES,
        Schedules, "_fire", "plan.is_busy = True", "self._settle(plan, FIRED)",
    ),
    _mutant(
        "missed instants are passed over", SCHEDULES,
        firing, "that_count", "*missed[max(0, len(missed) - setting.catch_up) :], ", "",
    ),
    _mutant(
        "the last missed instant is fired first, and those before it never", SCHEDULES,
        Schedules, "_look", "plan.instant, plan.seen_at = instants[0], state.now",
        "plan.instant, plan.seen_at = instants[-1], state.now",
    ),
    _mutant(
        "an instant is fired early", SCHEDULES_CALM,
        Schedules, "_look", "known, wall = self.instants, state.wall",
        "known, wall = self.instants, state.wall + 3_000",
    ),
    _mutant(
        "schedules are not planned after a start", SCHEDULES,
        Schedules, "start", "self.schedule_changed(name)", "pass",
    ),
    _mutant(
        "an instant that another clock has shown is not over", SCHEDULES_CLOCKS,
        Policies, "on_policy", "wall + AHEAD_MS", "wall",
    ),
    _mutant(
        "a last instant that the clock has not shown yet does not count", SCHEDULES_CLOCKS,
        Instants, "fired_until", "if fired is None else", "if fired is None or fired.counter > self._state.wall else",
    ),
    _mutant(
        "a job that cannot get its copies is given up on all nodes", SCHEDULES,
        Replication, "_fall_short",
        "isinstance(pending.client, BackgroundClient) and pending.client.takes_fewer", "False",
    ),
    _mutant(
        "a steward gives one slot more than there are", LIMITS_CALM,
        Applicants, "choose", "len(table) >= (self.limits.in_flight", "len(table) > (self.limits.in_flight",
    ),
    _mutant(
        "a group has one slot more than it should", LIMITS_CALM,
        Applicants, "_may_group", "table.by_group.get(group, 0) >= most", "table.by_group.get(group, 0) > most",
    ),
    _mutant(
        "a steward accepts the youngest job first", LIMITS_CALM,
        Applicants, "apply",
        "heappush(self._waiting, (applicant.wish.order_key, job_id))",
        "heappush(self._waiting, (-applicant.wish.order_key, job_id))",
    ),
    _mutant(
        "of the jobs that wait for a slot the youngest is the next", LIMITS_CALM,
        Applicants, "apply", "(applicant.wish.order_key, job_id)", "(-applicant.wish.order_key, job_id)",
    ),
    _mutant(
        "WORKING takes a job back whose slot is over", LIMITS_CALM,
        Requeueing, "working", "not self._has_slot(job)", "False",
    ),
    _mutant(
        "a token is never used up", LIMITS_CALM,
        Bucket, "take", "self._level -= self.rate.per_ms", "pass",
    ),
    _mutant(
        "a steward gives before others remember it", LIMITS,
        Stewards, "_hand_over", "if this.applicants.limits.is_available else", "if True else",
    ),
    _mutant(
        "a steward begins with what it remembers itself", LIMITS,
        Stewards, "_has_heard_enough", "if all(node_id in this.answers for node_id in peers.by_id):", "if True:",
    ),
    _mutant(
        "a new steward does not ask who has what", LIMITS,
        Stewards, "_begin", "witness.remember(latest.slots, state.now)", "pass",
    ),
    _mutant(
        "a slot ends as soon as its job is handed out", LIMITS_CALM,
        Admission, "_see", "self._enter(this, unit)", "this.ended[unit.id] = None",
    ),
    _mutant(
        "what consumers of a limited queue have is not written down", LIMITS_CRASH,
        Leases, "announce", "if record is not None:", "if False:",
    ),
    _mutant(
        "a start forgets what consumers of a limited queue have", LIMITS_CRASH,
        Recovery, "finish", "self._resume_leases()", "pass",
    ),
    _mutant(
        "a start does not count what consumers of a limited queue have", LIMITS_CRASH,
        Admission, "start",
        'limited.update({unit: SlotHolder(since, b"") for unit, (since, _) in queue.leased.items()})', "pass",
    ),
    _mutant(
        "a compaction leaves out what consumers have", LIMITS_CRASH,
        recovery, "_lease_to_keep", "return lease_record(state, job)", "return None",
    ),
    _mutant(
        "a restart leaves out what consumers have", LIMITS_CRASH,
        server, "snapshot", "leased = lease_record(state, job)", "leased = None",
    ),
    _mutant(
        "the slot of a job that is delivered once ends with a crash", LIMITS_CRASH,
        Recovery, "_resume_leases", 'state.custody.limited[job] = SlotHolder(since, b"")', "pass",
    ),
    _mutant(
        "a token comes back of a job that was handed out", LIMITS_CALM,
        Stewards, "_end_of", "if is_unused:", "if True:",
    ),
    _mutant(
        "one token that comes back makes two", LIMITS_CALM,
        Bucket, "give_back", "self._level + self.rate.per_ms", "self._level + 2 * self.rate.per_ms",
    ),
    _mutant(
        "a job that comes back is not queued again", CRASHES,
        Recovery, "_add", "job.requeue_at = requeue_at = options.requeue_at", "job.requeue_at, requeue_at = 0, at",
    ),
    _mutant(
        "a compaction leaves out what is queued", COMPACTED,
        recovery, "_outlasts_a_crash", "if job.state in (ACTIVE, QUEUED):", "if job.state == ACTIVE:",
    ),
    _mutant(
        "a restart leaves out what is not queued", CRASHES,
        server, "snapshot", "if job.state in (ACTIVE, DEAD) or (", "if (",
    ),
    # The commit rule.
    _mutant(
        "clients are answered before the commit is over", COMMITS,
        Turn, "end", "client.hold()", "client.flush()",
    ),
    _mutant(
        "messages leave before the commit is over", COMMITS_POWER,
        Turn, "end", "self._in_commit = (clients, batch, self._send_urgent(messages))",
        "self._send(messages); self._in_commit = (clients, batch, [])",
    ),
    _mutant(
        "what could not be committed is not taken back", COMMITS,
        Turn, "_fail", "self._take_back(reason, clients, batch)", "self._batch = []",
    ),
    _mutant(
        "what came during a commit that failed is not taken back", COMMITS,
        Turn, "committed", "self._fail(reason, clients | waiting, batch + later,",
        "self._fail(reason, clients | waiting, batch,",
    ),
    _mutant(
        "a commit begins while another one is under way", COMMITS,
        Turn, "end", "if self.under_way and self.failure is None:", "if False:",
    ),
    _mutant(
        "nobody is answered when a commit is over that took its time", COMMITS,
        Turn, "committed", "client.release()", "pass",
    ),
    _mutant(
        "messages are lost that wait for a commit", COMMITS,
        Turn, "_take_messages", "messages, self._messages = self._messages + messages, []", "self._messages = []",
    ),
    _mutant(
        "urgent messages are lost while a commit is under way", COMMITS_LONG,
        Turn, "_send_urgent", "self._outside.send(urgent)", "pass",
    ),
    _mutant(
        "urgent messages wait for a commit", COMMITS_LONG,
        Turn, "_send_urgent", "if not urgent:", "if True:",
    ),
    _mutant(
        "other nodes learn of copies that could not be kept", COMMITS_MIXED,
        Turn, "_send", "if self.failure is not None:", "if False:",
    ),
    _mutant(
        "a commit that failed is not tried again", COMMITS,
        Turn, "_fail", "self._outside.try_again_later()", "pass",
    ),
    _mutant(
        "additions are refused for good once a commit has failed", COMMITS,
        Turn, "_tried_again", "self.recover()", "pass",
    ),
    _mutant(
        "what is held is released though it could not be made safe", DELAYS_DISKS,
        Turn, "secured", "if reason:", "if False:",
    ),
    _mutant(
        "what is held is never made safe", DELAYS,
        Turn, "end", "self._note_held()", "pass",
    ),
    _mutant(
        "records that others wait for are answered as if there were none", COMMITS,
        Turn, "_hold", "appended = bool(self._outbox.journal)", "appended = False and self.append()",
    ),
    # Delayed jobs whose time comes while their node is down.
    _mutant(
        "a job whose time has come is taken for one that was delivered", DELAYS,
        Recovery, "finish", "if due <= (until or state.wall) or", "if due <= state.wall or",
    ),
    _mutant(
        "an at-most-once job does not wait for the disk", DELAYS,
        Requeueing, "_waits_for_journal", "state.durability.watermark.hold(job)\n    return True", "return False",
    ),
    _mutant(
        "nobody notes that delayed jobs are queued", DELAYS,
        Requeueing, "_waits_for_journal", "state.reach()", "pass",
    ),
    _mutant(
        "a compaction forgets how far delayed jobs were queued", DELAYS,
        driver, "walk", "yield from _watermark(state)", "",
    ),
    _mutant(
        "the watermark lags behind", DELAYS,
        Watermark, "reach", "at = now + self.lead_ms + MARGIN_MS", "at = now + self.lead_ms - 2_000",
    ),
    # Membership.
    _mutant(
        "nobody looks for nodes that others know", CALM,
        FailureDetector, "_hear_of", "self._meetings.look_at(", "(lambda *_: None)(",
    ),
    _mutant(
        "who is met is not taken in", CALM,
        Membership, "greeting_proven", "if greeting.meets:", "if False:",
    ),
    _mutant(
        "a node that answers again stays suspected", APART,
        FailureDetector, "on_pong", "peer.flags &= ~FAILING", "pass",
    ),
    _mutant(
        "a link that is gone is believed to be there", APART,
        Membership, "link_closed", "peer.linked = peer.stale = False", "self._peers.linked[node_id] = peer",
    ),
    # Leaving, memory, ids.
    _mutant(
        "a node that leaves is safe at once", LEAVING,
        Leaving, "_end_walk",
        "self._is_safe = not self._jobs_left and not self._acks_left and not self._on_their_way",
        "self._is_safe = True\n    self._on_their_way.clear()",
    ),
    _mutant(
        "a node that leaves takes no care of what consumers have", LEAVING,
        Leaving, "_see_to", "if self._is_held_elsewhere(job):", "if True:",
    ),
    _mutant(
        "an eviction takes what is needed", FULL,
        Node, "make_room", "_first(state.custody.evictable, EVICTED_PER_CYCLE)",
        "[job for job in state.jobs if job.state in (ACTIVE, QUEUED)]",
    ),
    _mutant("an id comes twice", CALM, JobIds, "next", "ready.pop()", "ready[-1]"),
    _mutant(
        "memory is not given back", CALM,
        State, "let_go", "self.memory.used -= JOB_COST + size", "pass",
    ),
    _mutant(
        "queues stay for ever", CALM,
        State, "collect_queue", "self.queues.remove(queue)", "pass",
    ),
    _mutant(
        "signs of life are not heard", WORKERS,
        Sessions, "heard", "session.heard_at = self._state.now", "pass",
    ),
    _mutant(
        "one death takes the tasks of all workers", WORKERS,
        Workers, "stop", "list(worker.leases)", "list(self._state.custody.bound)",
        ("return self.leases.return_all(worker, ", f"{_TAKES_ALL}; return self.leases.return_all(worker, "),
    ),
    Mutant(
        "what live workers have comes back by its retry period", WORKERS,
        (
            Edit(WorkerLeases, "renew", ((_RENEWS, "pass"),)),
            Edit(Requeueing, "due", (("if job in custody.bound and", "if False and"),)),
        ),
    ),
    _mutant(
        "an element is twice in a reply", LISTS,
        Lists, "_recover_own", "taken.append(unit.job)", "taken += [unit.job, unit.job]",
    ),
    _mutant(
        "nothing is recovered", LISTS,
        Lists, "_recover_own", "since > latest or", "True or",
    ),
    _mutant(
        "what waited is not offered after a crash", LISTS,
        Recovery, "_offer", "self._queueing.enqueue_new(job, state.queue(job.queue))", "pass",
    ),
    _mutant(
        "the end of a worker forgets what it had", WORKERS,
        WorkerLeases, "_put_in_front", "self._requeueing.enqueue(unit, asked=asked, front=True, why=why)", "False",
    ),
    _mutant(
        "what is popped for a worker is nobody's", WORKERS,
        lists, "note_taken", "node.workers.leases.bind(worker, units)", "pass",
    ),
    _mutant(
        "what comes for a worker that waits is nobody's", WORKERS,
        WorkerForm, "row", "self._workers.leases.bind(self._taker, [unit])", "pass",
    ),
    # Keys.
    _mutant(
        "a key is looked for on no other node", KEYS,
        Keys, "_ask", "if self._inquiries.can_ask:", "if False:",
    ),
    _mutant(
        "nobody says that a job with a key is about to be added", KEYS,
        Inquiries, "_found", "return _SOON", "return UNKNOWN",
    ),
    _mutant(
        "a job is named whose producer still waits for copies", KEYS,
        inquiries, "promise_of", "if job.state == WAIT_REPL:", "if False:",
    ),
    _mutant(
        "a copy is named as if its maker had said so", KEYS,
        inquiries, "promise_of", "PENDING if job.id[2:10] == state.node_id[:8] else A_COPY", "PENDING",
    ),
    _mutant(
        "who waits for another node's addition never hears of it", KEYS,
        Keys, "_close", "state.send(node_id, (FOUND, number, (outcome,)))", "pass",
    ),
    _mutant(
        "a job with a key that moves is named by nobody", KEYS,
        Endings, "leave", "self._names[place] = job.id", "pass",
    ),
    # Purges.
    _mutant(
        "a purge ends the jobs of the node that is asked, and no others", PURGES,
        Purges, "on_purge", "self._state.begin_work(self._do_share(sender, queue, number, states, first))",
        "self._report(sender, number, 0, is_over=True)",
    ),
    _mutant(
        "a purge ends no job that is with a consumer, or delayed", PURGES,
        Purges, "_is_meant", "job.state == ACKED or", "job.state != QUEUED or",
    ),
    _mutant(
        "a job that a purge leaves to a holder that does not have it stays", PURGES,
        Purges, "_end_one", "if not (is_mine or share.is_last):", "if not is_mine:",
    ),
    _mutant(
        "a purge drops jobs, and nobody who is away learns that they are done", PURGES,
        Purges, "_end_one", "self._acks.end_undone(job)", "self._acks.delete(job.id)",
    ),
    _mutant(
        "a job that moves while its queue is purged stays", PURGED_ON_THE_MOVE,
        Purges, "end",
        "any(self._is_meant(job, share) and self._end_one(job, share) for share in self.shares.values())", "False",
    ),
    _mutant(
        "a purge ends what it should count", PURGES,
        Purges, "_end_jobs", "is_dry = share.states & DRY != 0", "is_dry = False",
    ),
    _mutant(
        "a purged job is done where another node tells of its end", PURGES,
        Acks, "_note_heard", "if mark == MARK and not job.options.fate.is_cancelled:", "if False:",
    ),
    _mutant(
        "a purge has no second round", PURGES,
        Purges, "_end_round", "if not (this.is_last or this.states & DRY):", "if False:",
    ),
    # Logs.
    _mutant(
        "that a group is done is not written down", LOGS_CRASH,
        PendingEntries, "_note_done", "if self._state.journaling:", "if False:",
    ),
    _mutant(
        "a compaction leaves out who is done", LOGS_CRASH,
        recovery, "_facts", "for scope in event.done:", "for scope in ():",
    ),
    _mutant(
        "what comes back from the journal is done by nobody", LOGS_CRASH,
        Recovery, "_finish", "if isinstance(event, Entry) and name is not None:", "if False:",
    ),
    _besides(
        _mutant(
            "a flush is forgotten in a crash", LOGS_CRASH,
            State, "forget", "if self.journaling:", "if self.journaling and not isinstance(job, Entry):",
        ),
        Edit(GroupStarts, "_note_horizon", (("if state.journaling:", "if False:"),)),
    ),
    _mutant(
        "a deadline passes and nothing happens", LOGS,
        PendingEntries, "due", "self._return(unit)", "pass",
    ),
    _mutant(
        "half of a deadline is given", LOGS,
        PendingEntries, "lease", "unit.requeue_at = state.now + lease_ms",
        "unit.requeue_at = state.now + lease_ms // 2",
    ),
    _mutant(
        "a late acknowledgement is accepted although nobody has the event", LOGS,
        PendingEntries, "is_held", "unit.state == ACTIVE and now <= unit.requeue_at and", "",
    ),
    _mutant(
        "a refused acknowledgement leaves a trace", LOGS,
        PendingEntries, "acknowledge", "if unit is None or not self.is_held(unit):",
        "if unit is not None and not self.is_held(unit):\n"
        "        self.finish(unit.group, unit.entry)\n"
        "    if unit is None or unit.entry.stream is None or unit.group.is_done(unit.entry):",
    ),
    _mutant(
        "what comes back is never given again", LOGS,
        PassedEntries, "_first_of", "if entry.expires_at > now",
        "if isinstance(unit, Entry) and entry.expires_at > now",
    ),
    _mutant(
        "events whose place a group has passed are skipped", LOGS,
        Group, "arrived", "if _place(entry) <= self.position and not self.is_done(entry):", "if False:",
    ),
    _mutant(
        "nobody is woken by what comes back", LOGS,
        PendingEntries, "_back", "make_ready(state, queue, unit.group.stream)", "pass",
    ),
    _mutant(
        "nobody is woken by what is added", LOGS,
        Streams, "publish", "make_ready(state, queue, stream)", "pass",
    ),
    _mutant(
        "an event is given to two consumers of a group", LOGS,
        Group, "take", "self.leased += 1", "self.leased += 1\n    self.position = START\n    self.units.pop(entry)",
    ),
    _mutant(
        "what is given with EX 0 can be had again", LOGS,
        EntryDelivery, "_deliver", "self._pending.finish(group, entry)", "self._pending.lease(unit, 30_000)",
    ),
    _mutant(
        "what is given with EX 0 is not written down", LOGS_CRASH,
        PendingEntries, "_finish", "self._note_done(entry, group.scope)",
        "if unit is None or unit.lease_ms:\n        self._note_done(entry, group.scope)",
    ),
    _mutant(
        "what is given back stays with its consumer", LOGS,
        PendingEntries, "give_back", "self._back(unit, self._state.numbers.next_front(self._state.wall))", "pass",
    ),
    _mutant(
        "events that are done are counted as available", LOGS,
        Group, "finish", "unit = self._drop(entry)", "pass",
    ),
    _mutant(
        "an event that is done for one group is gone for all", LOGS,
        PendingEntries, "acknowledge", "self.finish(unit.group, unit.entry)",
        "self.finish(unit.group, unit.entry)\n    state.forget(unit.entry, b'deleted')",
    ),
    _mutant(
        "a group that begins late begins at the newest event", LOGS,
        Group, "_begin", "self.position: tuple[int, bytes] = START",
        "self.position: tuple[int, bytes] = (self.stream.seen and max(self.stream.seen.values()) or 0, b\"\")",
    ),
    # Logs in a cluster.
    _mutant(
        "the other holders do not hear that a group is done", LOGS_CLUSTER,
        PendingEntries, "finish", "state.tell(entry, (SETACK, entry.id, group.scope, False, entry.holders))", "pass",
    ),
    _mutant(
        "every holder hands out what it holds", LOGS_CLUSTER,
        EntryOwners, "is_elsewhere", "return entry.holders is not None and self.of(entry) != self._state.node_id",
        "return False",
    ),
    _mutant(
        "other nodes take no note of where a group begins", LOGS_CLUSTER,
        GroupStarts, "_hear_of_group", "self.merge_group(stream, group, epoch, floor)", "pass",
    ),
    _mutant(
        "a group that begins now begins behind what its node knows, and nothing else", LOGS_CLUSTER,
        GroupStarts, "start", "asks=now", "asks=False",
    ),
    _mutant(
        "what another node refuses is done all the same", LOGS_CLUSTER,
        Reconciliation, "_refuse", "is_done = job_id in this.doubted and self._adopt(this, job_id)",
        "is_done = not self._adopt(this, job_id) and False",
    ),
    _mutant(
        "what a dead worker had of another node is not given back there", LOGS_CLUSTER,
        GivenEntries, "returned",
        "return self._state.send(unit.granter, (SETTLE, unit.queue, _group_of(unit), 0, RETURN, (unit.id,)))",
        "return True",
    ),
    _mutant(
        "who wants events of another node is not told when some come", LOGS_CLUSTER,
        EntryOffers, "on_want", "want.is_told = has_some", "want.is_told = True",
    ),
    _mutant(
        "a holder is not told what it missed when its link opens", LOGS_APART,
        AckSets, "_collect", "this.entries += [entry for entry in entries if concerns(entry, node_id)]", "pass",
    ),
    _mutant(
        "a node that was away does not hear where groups begin", LOGS_APART,
        GroupStarts, "tell", "if group in stream.begun:", "if False:",
    ),
    _mutant(
        "a node that was away does not hear of a flush", LOGS_APART,
        GroupStarts, "tell", "if stream.horizon:", "if False:",
    ),
    _mutant(
        "with STRICT events come from any node that holds them", LOGS_APART,
        Group, "_next", "self.passed.first(now, strict=strict)", "self.passed.first(now, strict=False)",
        ("self._next_event(now, strict=strict)", "self._next_event(now, strict=False)"),
    ),
    _mutant(
        "a node that does not answer a question is waited for for ever", QUESTIONS,
        Questions, "due",
        "self._miss([node_id for node_id, answer in this.answers.items() if answer is None], this, SILENT)", "pass",
    ),
    _mutant(
        "an answer counts for any question", QUESTIONS,
        Questions, "on_told", "self._open.get(number)", "next(iter(self._open.values()), None)",
    ),
    _mutant(
        "another node is not told what it has asked for", QUESTIONS,
        Questions, "answer", "self._state.send(asked.node_id, (TOLD, asked.number, failed, told))", "pass",
    ),
    _mutant(
        "nodes that are away are left out of the answer", QUESTIONS,
        ClusterAsk, "_nodes", "{node.id, *node.state.peers.by_id}", "{node.id, *node.state.peers.linked}",
    ),
    _mutant(
        "what was acknowledged while nobody could be asked is told to nobody", LOGS_APART,
        Reconciliation, "link_opened", "for job_id, scope in self.orphans:", "for job_id, scope in ():",
    ),
)  # fmt: skip
