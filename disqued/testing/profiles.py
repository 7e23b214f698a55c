"""The kinds of stories that are told: sizes, weather, loads, and what must be so in each.

    calm         nothing fails, every job comes once, soon, and nobody forgets to acknowledge
    patient      calm, with consumers that take their time: jobs wait for longer than their retry period
    busy         nothing fails, but loops are held up for some hundred milliseconds and messages take their time, while
                 jobs wait, are worked on or are given up for longer than their retry period
    order        calm, and all clients know one node: jobs come in the order in which they were added
    held         two nodes and partitions that are shorter than these wait for each other: nothing comes twice
    partitions   partitions, one-way ones, clogged, cut and slow links; soon after the heal no ack is left
    network      the same, and single messages lost, doubled, late
    crashes      processes and power fail, under `always`; clocks jump, nodes are restarted
    disks        disks are full, syncs fail, journals are written anew
    commits      commits take a while, as in a thread or on a server, while disks are full, syncs fail and power fails
    careless     other policies than `always`, or no journal at all: W copies are all that there is
    delays       delayed jobs whose node is down when their time comes: they come soon after the start, and those with
                 RETRY 0 once, whatever the policy
    delays-clock the same with clocks that jump
    leaving      nodes leave, are stopped when they say that it is safe, and come back empty
    memory       nodes that are full nearly always: copies elsewhere, eviction, refusals
    policies     queues are paused on one node or everywhere, expire, and have defaults set, while processes, power and
                 links fail and messages are lost; all nodes agree on the last word, none hands out what it knows to be
                 paused out, and no queue expires that has jobs
    fair         queues whose groups take turns, and that are throttled as a whole or by group, while processes, power
                 and links fail and messages are lost; no node hands out what it knows to be throttled, and no group
                 waits for more than a turn of each other one
    retries      jobs with few tries and back-offs, which consumers give back with delays and reasons, or bury, while
                 links, processes and power fail and messages are lost; a dead job comes again after REDRIVE alone
    results      producers wait for results on any node and cancel some jobs, while processes, power and links fail and
                 messages are lost; one result for each job, and the same tries of it on all nodes
    results-calm  the same, and nothing fails; some jobs are acknowledged before anybody has had them, and the tries of
                 each are its deliveries
    purges       operators purge queues while links fail and messages are lost, processes and power fail; what a purge
                 has ended everywhere comes back nowhere
    schedules    schedules fire while links fail and messages are lost, processes and power fail, and wall clocks are
                 wrong; each instant has one job, none is missed, and what is done comes back nowhere
    schedules-calm  the same, and nothing fails: each job comes once, soon after its instant
    limits       queues whose jobs are limited in number and rate, while links fail and messages are lost,
                 processes and power fail; no limit is exceeded, and no job waits for ever
    limits-calm  the same, and nothing fails; consumers say WORKING, some of them late or to another node
    limits-crash  the same, and processes and power fail so often that all nodes are down together now and then; some
                 jobs are delivered once at most
    limits-workers  a queue whose jobs are limited in number, and live workers that go on elsewhere with what they have,
                 while processes, links and power fail; nodes come back within the retry period
    workers      calm, with live workers that die and leave; what one has that is alive nobody else gets, and what one
                 that is dead had, elements of lists among it, comes back by that alone
    deaths       the same while processes, links and power fail
    lists        calm, with reliable lists and the events of okq, whose consumers die, give back and recover
    lists-apart  the same, under partitions, crashes and restarts
    logs         events for groups of consumers, who dawdle, die and give back, and some of whom are live workers; a
                 group begins anew now and then; nothing fails
    logs-crash   the same while processes, power and links fail, under `always`
    logs-disks   the same while disks are full, syncs fail and journals are written anew
    logs-apart   the same while links fail and nothing else
    keys         producers who lose their connections and say the same again with a key; one job for each
    keys-crash   the same, while processes and power fail
    storm        everything at once
    wide         nine nodes, everything at once

Each also has long quiet hours, in which nothing may happen but pings.

`RETURNS` is a campaign apart: kills, one-way cuts, two-way cuts, all of these, and late and lost messages, so that
deliveries after an answered acknowledgement can be counted (`returns`).  Faults begin every 6 s, and two of them last
at a time; with a 2 behind the name, every 20 s.

Times are milliseconds where they do not say.
"""

from typing import Final

import attrs

from disqued.testing.checker import Rules
from disqued.testing.clients import LONG_TTL_S, Load
from disqued.testing.faults import BUSY_MS, KINDS
from disqued.testing.journal import ALWAYS, EVERYSEC, NO, POLICIES
from disqued.testing.streamrecords import StreamRules
from disqued.testing.streams import LIFE_MS, UNENDING_MS, StreamLoad
from disqued.testing.world import Profile

#: Consumers who always finish what they began, and are never short of time.
DILIGENT: Final = Load(
    retries_s=(0, 10, 30), think_ms=2_000, work_ms=100, dies=0.0, nacks=0.0, works_on=0.0, fast_acks=0.0, cancels=0.0
)
#: Also jobs whose time ends in the middle of it all.
HASTY: Final = Load(ttls_s=(LONG_TTL_S, LONG_TTL_S, LONG_TTL_S, 20))
#: Consumers who are slow and never too slow.
PATIENT: Final = attrs.evolve(
    DILIGENT, retries_s=(0, 10), delays_s=(0, 0, 3), ttls_s=(LONG_TTL_S, LONG_TTL_S, 15), work_ms=6_000
)
#: Consumers many of whom are too slow, while jobs wait for longer than their retry period as well.
HURRIED: Final = attrs.evolve(
    DILIGENT, replicate=(1, 2, 3, 3, 3), retries_s=(1, 1, 2, 3), think_ms=150, work_ms=2_500, dies=0.05,
    asynchronous=0.05,
)  # fmt: skip
#: The same, and spans with fractions of a second among theirs.
FRACTIONS: Final = attrs.evolve(HURRIED, retries_s=(0.25, 1, 2, 3), delays_s=(0, 0, 0.5))
#: Tasks that take longer than their retry period.
WORKED: Final = Load(retries_s=(3, 10, 30), works_on=0.0, nacks=0.0, fast_acks=0.0, cancels=0.0, dies=0.0, work_ms=400)
#: Delayed jobs, of which half are delivered at most once.
DELAYED: Final = Load(
    retries_s=(0, 0, 60), delays_s=(3, 8, 15), replicate=(1,), asynchronous=0.0, dies=0.0, nacks=0.0, works_on=0.0,
    acks_elsewhere=0.0, fast_acks=0.0, cancels=0.0,
)  # fmt: skip
#: What is popped and given up is recovered by somebody.
LISTED: Final = Load(retries_s=(2, 10), delays_s=(0, 0, 3), works_on=0.0, fast_acks=0.0, cancels=0.0, dies=0.08)
#: Jobs of a few groups, and of none, which wait for consumers.
GROUPED: Final = Load(retries_s=(2, 5, 10, 30), groups=(b"", b"x", b"y", b"z", b"zz"), think_ms=100)
#: Every job has two copies.
HELD: Final = attrs.evolve(
    DILIGENT, retries_s=(1, 2, 3), replicate=(2,), asynchronous=0.0, by_default=0.0, think_ms=1_000
)
#: Short retry periods, consumers who die, give back or acknowledge elsewhere now and then, and several copies.
RETURNING: Final = attrs.evolve(
    HELD, retries_s=(1, 3), delays_s=(0,), replicate=(2, 2, 3), think_ms=300, work_ms=200, dies=0.03, nacks=0.03,
    acks_elsewhere=0.1, sizes=(10, 100),
)  # fmt: skip
#: Every job can come again until it has a result.
RESULTS: Final = Load(retries_s=(2, 5, 10), cancels=0.0, fast_acks=0.0, works_on=0.15)
#: The same, and consumers fail often, or tell another node; some jobs are acknowledged before anybody has had them.
MISLAID: Final = attrs.evolve(RESULTS, cancels=0.1, dies=0.1, nacks=0.15, acks_elsewhere=0.6)
#: Jobs with several copies, many of which wait, are delayed or are in the hands of consumers when they are purged.
PURGED: Final = Load(
    retries_s=(0, 2, 5, 10), replicate=(1, 2, 3, 3), delays_s=(0, 0, 3, 20), work_ms=3_000, dies=0.1, fast_acks=0.0,
)  # fmt: skip
#: Jobs of a few groups, in queues of which one is not limited.
LIMITED: Final = Load(
    queues=(b"a", b"b", b"c", b"d", b"e"), retries_s=(10, 10, 30), replicate=(1, 2, 3, 3), works_on=0.0, fast_acks=0.0,
    groups=(b"", b"x", b"y", b"z"),
)  # fmt: skip
#: The same, and consumers work on beyond the retry period, and say so there and elsewhere.
LIMITED_LONGER: Final = attrs.evolve(
    LIMITED, retries_s=(1, 10, 30), dies=0.0, acks_elsewhere=0.0, work_ms=1_500, works_on=0.2, works_on_elsewhere=0.3,
)  # fmt: skip
#: Producers whose connections break while they wait.
UNSURE: Final = attrs.evolve(DILIGENT, delays_s=(0, 0, 3), think_ms=1_000, breaks=0.7)
#: Consumers who fail often.
FAILING: Final = Load(
    retries_s=(2, 5, 10), replicate=(1, 2, 2, 3), dies=0.1, nacks=0.4, works_on=0.02, fast_acks=0.0, tries=(1, 2, 3, 5),
    untried=0.2,
)  # fmt: skip
#: The same, and consumers give back most jobs untried, in time.
UNTRIED: Final = attrs.evolve(FAILING, retries_s=(5, 10), dies=0.02, nacks=0.7, tries=(1, 2), untried=0.8)
_APART: Final = ("partition", "cut", "crash", "power", "restart", "compact", "pause", "slow")
_RESTARTS: Final = ("crash", "power", "restart", "compact", "pause")
_PARTED: Final = ("partition", "one_way", "clog", "cut", "slow", "pause")
_NETWORK: Final = ("partition", "one_way", "clog", "cut", "mess", "slow", "pause")
_CRASHES: Final = ("crash", "power", "pause", "restart", "clock", "cut", "slow", "compact")
_CARELESS: Final = ("crash", "power", "cut", "partition")
_LEAVING: Final = ("leaving", "crash", "cut", "slow", "partition")
_MEMORY: Final = ("crash", "partition", "cut", "queue")
_POLICIES: Final = ("queue", "policy", "idle", *_NETWORK, "crash", "power", "restart", "compact")
_FAIR: Final = ("throttle", "fair", *_NETWORK, "crash", "power", "restart", "compact")
_RETRIES: Final = ("partition", "one_way", "cut", "mess", "crash", "power", "restart", "compact", "pause")
_RESULTS: Final = (*_NETWORK, "crash", "power", "restart", "compact")
#: `clog` would block paths later than it says that it does.
_LIMITS: Final = ("partition", "one_way", "cut", "mess", "slow", "pause", "crash", "power", "restart", "compact")
_PURGES: Final = ("partition", "one_way", "cut", "mess", "slow", "pause", "crash", "power", "restart", "compact")
_SCHEDULES: Final = (*_NETWORK, "busy", "crash", "power", "restart", "compact", "set_clock")
_QUESTIONS: Final = ("partition", "one_way", "cut", "crash", "power", "restart")
_DEATHS: Final = ("crash", "power", "cut", "partition", "pause", "restart", "slow")
_DISKS: Final = ("full_disk", "bad_sync", "power", "compact", "restart", "crash")

#: What a message may be under way through all that, beside the time of the event that it brings.
LATE_LOGS_MS: Final = 150_000

#: Acks may be evicted, lost with what was not written down, or gone with a node that left before all had heard of them.
CAREFREE: Final = Rules(acks_last=False)

_LOGS: Final = Profile(
    "logs", load=DILIGENT, producers=1, consumers=1, logs=12, jobs=30, bursts=6, quiet_ms=2 * LIFE_MS,
    log_load=StreamLoad(crew_leases_ms=(UNENDING_MS, UNENDING_MS, 5_000)), log_rules=StreamRules(exact=True),
)  # fmt: skip

ALL: Final = (
    Profile("calm", load=DILIGENT, consumers=8, rules=Rules(exactly_once=True, soon_ms=2_000, once_arrives=True)),
    Profile(
        "busy", kinds=("busy",), every_ms=300, jitter_ms=20, load=FRACTIONS, consumers=14, bursts=8, pause_ms=15_000,
        rules=Rules(all_acks_last=True, crossing_ms=BUSY_MS + 100), quiet_ms=0,
    ),
    Profile(
        "order", load=DILIGENT, consumers=8, one_node=True,
        rules=Rules(exactly_once=True, in_order=True, soon_ms=2_500, once_arrives=True),
    ),
    Profile(
        "patient", load=PATIENT, consumers=5, jobs=8, producers=5,
        rules=Rules(all_acks_last=True, exactly_once=True, on_time=True),
    ),
    Profile(
        "held", nodes=2, kinds=("partition",), load=HELD, every_ms=40_000, bursts=8,
        rules=Rules(all_acks_last=True, exactly_once=True),
    ),
    Profile(
        "partitions", nodes=5, kinds=_PARTED, every_ms=6_000,
        asked_at_once=2, rules=Rules(all_acks_last=True, collected_ms=10_000),
    ),
    Profile("network", nodes=5, kinds=_NETWORK, load=HASTY, every_ms=6_000),
    Profile("crashes", nodes=3, kinds=_CRASHES, every_ms=8_000),
    Profile("disks", nodes=3, kinds=_DISKS, every_ms=8_000, rules=CAREFREE),
    Profile("commits", nodes=3, kinds=_DISKS, every_ms=8_000, commit_ms=400, rules=CAREFREE),
    Profile("careless", nodes=4, kinds=_CARELESS, policies=POLICIES, every_ms=15_000, rules=CAREFREE),
    Profile(
        "delays", nodes=1, kinds=("crash", "power", "compact", "restart"), policies=(ALWAYS, EVERYSEC, NO),
        every_ms=6_000, load=DELAYED, consumers=6, rules=Rules(acks_last=False, after_start_ms=5_000),
    ),
    Profile(
        "delays-clock", nodes=2, kinds=("crash", "power", "compact", "clock"), policies=(ALWAYS, EVERYSEC, NO),
        every_ms=4_000, load=attrs.evolve(DELAYED, replicate=(1, 1, 2)), consumers=6, rules=CAREFREE,
    ),
    Profile("leaving", nodes=4, kinds=_LEAVING, every_ms=10_000, rules=CAREFREE),
    Profile("memory", nodes=4, kinds=_MEMORY, load=HASTY, maxmemory=60_000, rules=CAREFREE),
    Profile("policies", nodes=4, kinds=_POLICIES, load=HASTY, every_ms=2_500),
    Profile("fair", nodes=4, kinds=_FAIR, load=GROUPED, consumers=4, every_ms=2_500),
    Profile("retries", nodes=3, kinds=_RETRIES, load=FAILING, every_ms=8_000, redrivers=2),
    Profile("untried", load=UNTRIED, rules=Rules(untried_lives=True)),
    Profile("results", nodes=4, kinds=_RESULTS, load=RESULTS, every_ms=6_000, results=True),
    Profile("results-calm", nodes=4, load=MISLAID, results=True, rules=Rules(tries_are_deliveries=True)),
    Profile("purges", nodes=4, kinds=_PURGES, load=PURGED, consumers=3, every_ms=6_000, purgers=2),
    Profile("questions", nodes=4, kinds=_QUESTIONS, load=HASTY, every_ms=5_000, jitter_ms=50, askers=4),
    Profile(
        "schedules", nodes=4, kinds=_SCHEDULES, producers=2, consumers=3, schedules=4, every_ms=5_000, off_ms=3_000
    ),
    Profile(
        "schedules-calm", load=DILIGENT, producers=2, consumers=3, schedules=6,
        rules=Rules(all_acks_last=True, exactly_once=True),
    ),
    Profile("limits", load=LIMITED, consumers=12, kinds=_LIMITS, every_ms=6_000, limits=True),
    Profile("limits-calm", load=LIMITED_LONGER, consumers=12, limits=True),
    Profile(
        "limits-crash", load=attrs.evolve(LIMITED, retries_s=(0, 10, 30), dies=0.02), consumers=12,
        kinds=("crash", "power", "restart", "compact"), every_ms=3_000, limits=True,
    ),
    Profile(
        "limits-workers", load=attrs.evolve(LIMITED, queues=(b"a", b"e"), retries_s=(60,)), consumers=8, workers=6,
        kinds=("crash", "power", "restart", "cut", "slow"), every_ms=6_000, limits=True,
    ),
    Profile("workers", load=WORKED, consumers=1, workers=8, pushes=1, rules=Rules(workers_keep=True)),
    Profile("deaths", load=WORKED, consumers=1, workers=8, pushes=1, kinds=_DEATHS, every_ms=12_000, rules=CAREFREE),
    Profile("lists", load=LISTED, producers=1, consumers=1, lists=4, jobs=15, rules=Rules()),
    Profile(
        "lists-apart", nodes=4, load=LISTED, producers=1, consumers=1, lists=4, jobs=15, kinds=_APART, every_ms=9_000,
        rules=CAREFREE,
    ),
    _LOGS,
    attrs.evolve(
        _LOGS, name="logs-crash", kinds=(*_RESTARTS, "partition", "cut", "slow"), every_ms=6_000,
        log_load=StreamLoad(), log_rules=StreamRules(on_time_ms=LATE_LOGS_MS), rules=CAREFREE,
    ),
    attrs.evolve(
        _LOGS, name="logs-disks", kinds=_DISKS, every_ms=6_000,
        log_load=StreamLoad(), log_rules=StreamRules(on_time_ms=LATE_LOGS_MS, acks_last=False), rules=CAREFREE,
    ),
    attrs.evolve(
        _LOGS, name="logs-apart", nodes=5, kinds=_PARTED, every_ms=6_000,
        log_load=StreamLoad(), log_rules=StreamRules(on_time_ms=LATE_LOGS_MS, all_acks_last=True), rules=CAREFREE,
    ),
    Profile(
        "keys", load=UNSURE, consumers=5, keyed=True,
        rules=Rules(all_acks_last=True, exactly_once=True, once_arrives=True),
    ),
    Profile(
        "keys-crash", keyed=True, kinds=("crash", "power", "restart", "compact"), every_ms=8_000,
        load=attrs.evolve(UNSURE, replicate=(2, 2, 3), retries_s=(5, 10, 30), asynchronous=0.0, by_default=0.0),
    ),
    Profile("storm", nodes=5, kinds=KINDS, load=HASTY, timeout_ms=5_000, every_ms=5_000, asked_at_once=10,
        rules=CAREFREE,
   ),
    Profile("wide", nodes=9, kinds=KINDS, load=HASTY, every_ms=4_000, rules=CAREFREE),
)  # fmt: skip


def _returns(name: str, *kinds: str) -> tuple[Profile, Profile]:
    often = Profile(
        f"returns-{name}", hours=0.01, kinds=kinds, every_ms=6_000, timeout_ms=2_000, load=RETURNING, consumers=6,
        jobs=30, bursts=10, pause_ms=20_000, quiet_ms=0, rules=CAREFREE,
    )  # fmt: skip
    return often, attrs.evolve(often, name=f"returns-{name}2", every_ms=20_000)


RETURNS: Final = (
    *_returns("kills", "crash", "power", "restart", "pause"),
    *_returns("oneway", "one_way"),
    *_returns("cuts", "partition"),
    *_returns("both", "crash", "partition", "one_way", "cut", "pause"),
    *_returns("delays", "slow", "mess"),
)

BY_NAME: Final = {profile.name: profile for profile in (*ALL, *RETURNS)}


def named(name: str, *, hours: float | None = None) -> Profile:
    """The profile of a name, for as long as asked for.  Raises KeyError."""
    profile = BY_NAME[name]
    return attrs.evolve(profile, hours=hours or profile.hours)
