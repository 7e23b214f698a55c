"""A story: some nodes, their clients and what goes wrong, from a seed.

    join     every node meets the first one, and all of them link to each other
    age      a safety phase    clients at work, faults as the profile says
             a heal            faults end, every node is up, every link is there
             a liveness phase  consumers on every node take and acknowledge what is left
             quiet             nobody asks for anything any more
             verdict           promises kept, nothing left on any node, no timer but those of failure detection
    ...      and the next age, until the hours of the profile are over

`World(seed, profile).run()` tells it and raises `Broken` when something is wrong; the text names the seed, the faults
and what was found.  The same seed and profile tell the same story: `trace` says so.

Times are integer milliseconds.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import attrs

from disqued.core.cluster.failure_detector import FailureDetector
from disqued.core.cluster.policy_sync import Policies
from disqued.core.cluster.witnesses import SKEW_MS
from disqued.core.model.job import STATE_NAMES, Job
from disqued.core.model.memory import COUNTS_COST, QUEUE_COST
from disqued.core.model.peers import FAILING
from disqued.core.model.policies import cost_of_register
from disqued.core.model.queues import Queue
from disqued.core.work.ackrounds import ASKED_AT_ONCE
from disqued.testing.askers import Asker
from disqued.testing.checker import Checker, NodeName, Request, Rules
from disqued.testing.clients import Consumer, Load, Operator, Producer
from disqued.testing.eventlog import SimEventLog
from disqued.testing.events import EventQueue, TimeStandsStill, generator
from disqued.testing.faults import HOUR_MS, FaultInjector
from disqued.testing.gatewatch import GateWatch
from disqued.testing.grouporder import GroupOrderWatch
from disqued.testing.journal import ALWAYS
from disqued.testing.keys import KeyedProducer
from disqued.testing.limits import SETTINGS, LimitWatch
from disqued.testing.lists import ListConsumer, ListProducer
from disqued.testing.network import SimNetwork
from disqued.testing.pausewatch import PauseWatch
from disqued.testing.purges import Purger
from disqued.testing.redrivers import Redriver
from disqued.testing.results import AGAIN_MS, CancelWatch, Outcomes, ResultConsumer, ResultProducer
from disqued.testing.results import AGREE_MS as AGREE_ON_RESULTS_MS
from disqued.testing.schedules import ScheduleAge
from disqued.testing.server import BUS_PORT, SimServer
from disqued.testing.streamage import StreamAge
from disqued.testing.streamrecords import StreamRules
from disqued.testing.streams import DRAIN_MS, StreamLoad
from disqued.testing.workers import LiveWorker

JOIN_MS = 60_000  #: in which the mesh must be complete
HEAL_MS = 300_000  #: in which all links must be there again after the faults
EXPIRED_MS = 300_000  #: in which a queue must expire whose jobs have ended
AGREE_MS = 130_000  #: in which all nodes know the same of policies: twice as long as they wait for an answer
IDLE_MS = 330_000  #: after which idle queues are gone, too
LOOK_MS = 1_000
LOG_SHOWN = 60  #: faults that a failure shows


class Broken(AssertionError):
    """A promise was broken; the text says which, and how to see it again."""


@attrs.frozen
class Profile:
    """What kind of stories are told."""

    name: str
    nodes: int = 3
    hours: float = 1.0
    kinds: tuple[str, ...] = ()  #: of faults
    every_ms: int = 8_000  #: between the beginnings of two faults, on average
    policies: tuple[str, ...] = (ALWAYS,)  #: each node draws one
    commit_ms: int = 0  #: how long a commit takes at most; 0 = it is done at once
    maxmemory: int = 1 << 30
    timeout_ms: int = 15_000
    jitter_ms: int = 1  #: added to the delay of what nodes say, at most
    asked_at_once: int = ASKED_AT_ONCE  #: acks of which a node asks another one at a time when a link opens
    load: Load = Load()
    producers: int = 4  #: at a time
    results: bool = False  #: producers wait for results, which consumers give
    purgers: int = 0  #: operators who purge queues while faults go on
    redrivers: int = 0  #: operators who redrive dead jobs while faults go on
    askers: int = 0  #: operators who ask all nodes what a command answers
    off_ms: int = 0  #: by which the wall clock of each node is wrong for all its life, at most
    limits: bool = False  #: queues are limited, and jobs have groups
    schedules: int = 0  #: consumers of the jobs of schedules, which are there where there are any
    keyed: bool = False  #: producers use keys, and say again what was not answered
    consumers: int = 5
    workers: int = 0  #: live workers, beside the consumers
    lists: int = 0  #: consumers of reliable lists, beside the others, and as many producers per burst
    pushes: int = 0  #: producers of reliable lists per burst, whose elements the others take
    logs: int = 0  #: consumers of logs, beside the others, and half as many producers per burst
    log_load: StreamLoad = StreamLoad()
    log_rules: StreamRules = StreamRules()
    log_drain_ms: int = DRAIN_MS  #: in which every group must be done with every event after the heal
    jobs: int = 25  #: per producer and burst
    bursts: int = 4  #: per age
    drain_ms: int = 1_200_000  #: in which everything must be delivered, acknowledged and forgotten after the heal
    quiet_ms: int = 900_000  #: after each age, in which nobody does anything
    pause_ms: int = 40_000  #: between two bursts, on average
    one_node: bool = False  #: clients know the first node alone
    rules: Rules = Rules()


class World:
    """The story of one seed."""

    def __init__(
        self, seed: int, profile: Profile, *, without: Iterable[str] = (), events: Path | None = None
    ) -> None:  # fmt: skip
        """Prepare a story; kinds of faults in `without` do not occur in it.  `events`: folder of the event logs."""
        self.seed = seed
        self.profile = profile
        self.without = tuple(without)
        self.load = profile.load
        name = f"{profile.name} {seed}"
        self.rng = generator(f"{name} clients")
        self.events = EventQueue()
        self.network = SimNetwork(self.events, generator(f"{name} network"))
        draw = generator(f"{name} world")
        watch = CancelWatch if profile.results else GateWatch if profile.load.groups else PauseWatch
        self.servers = [
            SimServer(
                self.events, self.network, number, name,
                policy=draw.choice(profile.policies), commit_ms=profile.commit_ms, maxmemory=profile.maxmemory,
                timeout_ms=profile.timeout_ms, asked_at_once=profile.asked_at_once,
                on_life=self._note_life, on_loss=self._note_loss, watch=watch,
            )
            for number in range(profile.nodes)
        ]  # fmt: skip
        if profile.off_ms:
            for server in self.servers:
                server.clock.off_ms = draw.randint(-profile.off_ms, profile.off_ms)
        if events is not None:
            for server in self.servers:
                draws = generator(f"{name} events {server.number}")
                server.event_log = SimEventLog(events, server, draws)
        numbers = {server.id: server.number for server in self.servers}
        for server in self.servers:
            server.numbers = numbers
        self.limits = LimitWatch(self.servers, self.events, fails=bool(profile.kinds))
        self.group_order = GroupOrderWatch(fails=bool(profile.kinds))
        if profile.limits:
            for server in self.servers:
                server.limit_watch = self.limits
                server.order_watch = self.group_order
        self.network.join(self.servers, profile.jitter_ms)
        self.faults = FaultInjector(
            self.servers, self.network, self.load, [kind for kind in profile.kinds if kind not in self.without], name
        )  # fmt: skip
        self.checker = Checker(attrs.evolve(profile.rules))
        self.ages = 0
        self.jobs = 0  #: that were promised, over all ages
        self.deliveries = 0
        self.again_after_ack = 0  #: of these: when an acknowledgement had been heard
        #: Each job of such a delivery, when it was, and the number of the node.
        self.returned: list[tuple[Request, int, NodeName]] = []
        self._consumers: list[Consumer] = []
        self._workers: list[LiveWorker] = []
        self._list_consumers: list[ListConsumer] = []
        self._producers: list[Producer | ListProducer] = []
        self._names = 0
        self._logs = self._new_logs()
        self._schedules = _new_schedules(self)

    @property
    def trace(self) -> str:
        """Tells this story from every other."""
        return self.events.trace

    @property
    def hours(self) -> float:
        """What has passed so far."""
        return self.events.now / HOUR_MS

    def run(self) -> "World":
        """Tell the story.  Raises Broken."""
        try:
            self.join()
            while self.hours < self.profile.hours:
                self._live()
        except Broken:
            raise
        except TimeStandsStill as error:
            raise Broken(self._report([f"time stands still: {error}"])) from None
        except Exception as error:
            raise Broken(self._report([f"an unhandled error: {type(error).__name__}: {error}"])) from error
        finally:
            self._end_logs()
        return self

    def _new_logs(self) -> StreamAge:
        return StreamAge(self.servers, self.profile.log_load, self.profile.log_rules, self.seed, self._name)

    def _note_loss(self, server: SimServer) -> None:
        self.checker.lost_memory(server.number, self.events.now)
        server.known_dead.clear()
        self.faults.policies.forget()
        self._logs.checker.lost_memory(server.number, self.events.now)

    def _note_life(self, server: SimServer, serves: bool) -> None:
        note = self.checker.came_up if serves else self.checker.went_down
        note(server.number, self.events.now)

    def _made_at(self, job_id: bytes) -> int:
        """When a job was made: on other nodes than that which made it a copy seems younger, by the time of its way."""
        jobs = [(server.state, server.state.jobs.get(job_id)) for server in self.servers if server.is_up]
        ages = [job.options.ttl_ms - (job.expires_at - state.now) for state, job in jobs if job is not None]
        return self.events.now - max(ages) if ages else 0

    def _end_logs(self) -> None:
        for server in self.servers:
            if server.event_log is not None and server.is_up:
                server.event_log.stop()

    # Phases.

    def join(self, *, known: bool = False) -> None:
        """Make a cluster of the nodes: they meet the first one, or, if `known`, have each other in their nodes.conf.

        Raises Broken.
        """
        for server in self.servers:
            if known:
                server.remember(self.servers)
            server.start()
        first = self.servers[0]
        for server in self.servers[1:] if not known else ():
            server.node.begin()
            server.node.membership.meet(first.host, 7711, BUS_PORT)
            server.outbox.members_changed = True
            server.driver.finish_step()
        self._wait_until(self._is_whole, JOIN_MS, "the mesh is not complete")
        if self.profile.limits:
            self._pass(2 * SKEW_MS)
            for name, values in SETTINGS.items():
                first.node.begin()
                first.node.policies.set(name, values)
                first.driver.finish_step()
            self._wait_until(self.faults.policies.agree, AGREE_MS, "nodes do not agree on limits")

    def _live(self) -> None:
        self.ages += 1
        self.checker = Checker(self.profile.rules, self._made_at)
        self.checker.returned = self.returned
        self._logs = self._new_logs()
        self._schedules = _new_schedules(self)
        self._be_safe()
        self._heal()
        self._be_alive()
        self._verdict()

    def _be_safe(self) -> None:
        profile, rng = self.profile, self.rng
        length_ms = profile.bursts * profile.pause_ms
        self.faults.rage(self.events.now + length_ms, profile.every_ms)
        self._engage_consumers()
        self._engage_workers()
        for _ in range(profile.lists):
            self._engage_for_lists(self.load)
        self._logs.engage(profile.logs)
        if profile.schedules:
            takers = [generator(f"{self.seed} {self._name('taker')}") for _ in range(profile.schedules)]
            self._schedules.begin(self.checker, self.load, takers)
        operators = self._engage_operators()
        for _ in range(profile.bursts):
            for _ in range(profile.producers):
                name = self._name("producer")
                count = rng.randint(1, 2 * profile.jobs)
                draws = generator(f"{self.seed} {name}")
                kind = KeyedProducer if profile.keyed else ResultProducer if profile.results else Producer
                producer = kind(self.servers, self.checker, self.load, name, draws, count=count)
                producer.home = self.servers[0] if profile.one_node else None
                self._producers.append(producer)
                producer.plan(rng.randint(1, 3_000))
            self._push_lists()
            self._logs.add((profile.logs + 1) // 2, profile.jobs)
            self._pass(rng.randint(profile.pause_ms // 2, profile.pause_ms * 3 // 2))
        for operator in operators:
            operator.end()

    def _engage_consumers(self) -> None:
        for _ in range(self.profile.consumers):
            queues = self.rng.sample(self.load.queues, self.rng.randint(1, len(self.load.queues)))
            self._engage(queues, self.servers[0] if self.profile.one_node else None)

    def _engage_operators(self) -> list[Asker | Purger | Redriver]:
        operators: list[Asker | Purger | Redriver] = []
        for _ in range(self.profile.askers):
            name = self._name("asker")
            draws = generator(f"{self.seed} {name}")
            operators.append(
                Asker(self.servers, self.checker, self.load, name, draws, count_faults=lambda: len(self.faults.log))
            )
        for _ in range(self.profile.purgers):
            name = self._name("purger")
            draws = generator(f"{self.seed} {name}")
            operators.append(
                Purger(self.servers, self.checker, self.load, name, draws, count_faults=lambda: len(self.faults.log))
            )
        for _ in range(self.profile.redrivers):
            name = self._name("redriver")
            draws = generator(f"{self.seed} {name}")
            operators.append(Redriver(self.servers, self.checker, self.load, name, draws))
        for operator in operators:
            operator.plan(operator.rng.randint(1, 5_000))
        return operators

    def _engage_workers(self) -> None:
        for _ in range(self.profile.workers):
            name = self._name("worker")
            worker = LiveWorker(self.servers, self.checker, self.load, name, generator(f"{self.seed} {name}"))
            self._workers.append(worker)
            worker.plan(worker.rng.randint(1, 2_000))

    def _engage_for_lists(self, load: Load, home: SimServer | None = None) -> None:
        name = self._name("list consumer")
        consumer = ListConsumer(self.servers, self.checker, load, name, generator(f"{self.seed} {name}"))
        consumer.home = home
        self._list_consumers.append(consumer)
        consumer.plan(consumer.rng.randint(1, 2_000))

    def _push_lists(self) -> None:
        for _ in range(self.profile.lists + self.profile.pushes):
            name = self._name("list producer")
            draws = generator(f"{self.seed} {name}")
            count = draws.randint(1, 2 * self.profile.jobs)
            producer = ListProducer(self.servers, self.checker, self.load, name, draws, count=count)
            self._producers.append(producer)
            producer.plan(draws.randint(1, 3_000))

    def _engage(self, queues: list[bytes], home: SimServer | None = None, load: Load | None = None) -> None:
        name = self._name("consumer")
        kind = ResultConsumer if self.profile.results else Consumer
        consumer = kind(self.servers, self.checker, load or self.load, name, generator(f"{self.seed} {name}"))
        consumer.queues = queues
        consumer.home = home
        self._consumers.append(consumer)
        consumer.plan(self.rng.randint(1, 2_000))

    def _name(self, what: str) -> str:
        self._names += 1
        return f"{what} {self._names}"

    def _heal(self) -> None:
        self.faults.heal()
        for server in self.servers:
            if server.is_paused:
                server.resume()
            if not server.is_up:
                server.start()
            server.command(Operator(), [b"CLUSTER", b"LEAVING", b"no"])
        self._wait_until(self._is_whole, HEAL_MS, "not every node is linked to every other after the heal")
        self._check_policies()

    def _check_policies(self) -> None:
        """See that all nodes agree on the last word, and follow it; then let all queues go on."""
        policies = self.faults.policies
        self._wait_until(policies.agree, AGREE_MS, "nodes do not agree on the policies of queues")
        kept = (*policies.lost(), *policies.unkept()) if self.profile.rules.acks_last else ()
        wrong = [*policies.unfollowed(), *kept]
        if wrong:
            raise Broken(self._report(wrong))
        for queue in self.load.queues:
            policies.say(self.servers[0], b"PAUSE", queue, b"none")
        self._wait_until(policies.agree, AGREE_MS, "nodes do not agree on the end of the pauses of queues")
        policies.release()
        self._wait_until(policies.have_expired, EXPIRED_MS, "a queue that nobody uses does not expire")

    def _be_alive(self) -> None:
        """Take and acknowledge what is left; then let everybody go home."""
        self.checker.healed(self.events.now)
        self._schedules.healed()
        for consumer in self._consumers:
            consumer.retire()
        self._consumers.clear()
        for worker in self._workers:
            worker.retire()
        self._workers.clear()
        for of_lists in self._list_consumers:
            of_lists.retire()
        self._list_consumers.clear()
        diligent = attrs.evolve(
            self.load, dies=0.0, nacks=0.0, works_on=0.0, fast_acks=0.0, acks_elsewhere=0.0, work_ms=20
        )
        for server in self.servers[:1] if self.profile.one_node else self.servers:
            self._engage(list(self.load.queues), server, diligent)
            # Where nothing fails what dead workers had comes back without being recovered.
            if self.profile.lists or (self.profile.pushes and self.profile.kinds):
                self._engage_for_lists(diligent, server)
        if self.profile.rules.collected_ms is not None:
            self._check_collection(self.profile.rules.collected_ms)
        if self.profile.logs:
            self._drain_logs()
        if self.profile.results:
            self._check_results()
        self._schedules.finish(self._pass)
        self._wait_until(self._is_done, self.profile.drain_ms, "something is left")
        self._schedules.end()
        for producer in self._producers:
            producer.end()
        for consumer in self._consumers:
            consumer.end()
        for of_lists in self._list_consumers:
            of_lists.end()
        self._list_consumers.clear()
        self._producers.clear()
        self._consumers.clear()
        self._pass(max(IDLE_MS, self.profile.quiet_ms))

    def _check_results(self) -> None:
        """See that all nodes keep and answer the same end of a job, soon after the heal."""
        self._pass(AGREE_ON_RESULTS_MS)
        outcomes = Outcomes(self.servers, self.checker, fails=bool(self.profile.kinds))
        outcomes.ask()
        self._pass(2 * AGAIN_MS)
        wrong = outcomes.wrong()
        if wrong:
            raise Broken(self._report(wrong))

    def _drain_logs(self) -> None:
        """Let every group be done with every event, and then let the time of all events end."""
        self._logs.drain(self.events.now)
        end = self.events.now + self.profile.log_drain_ms
        while not self._logs.is_drained():
            if self._logs.checker.violations:
                raise Broken(self._report(self._logs.wrong()))
            if self.events.now >= end:
                what = f"not every group is done with every event {self.profile.log_drain_ms} ms after the heal"
                raise Broken(self._report([what, *self._logs.wrong()]))
            self._pass(LOOK_MS)
        self._logs.end()
        self._pass(max(self.profile.log_load.lives_ms))

    def _check_collection(self, within_ms: int) -> None:
        """See that what was acknowledged before the heal is forgotten everywhere soon after it."""
        done = self.checker.done_by(self.events.now)
        self._pass(within_ms)
        left = [
            f"{server} still keeps job {request.number}, acknowledged at {request.acked_at}"
            for request in done
            for server in self.servers
            if request.job_id is not None and server.state.jobs.get(request.job_id) is not None
        ]
        if left:
            raise Broken(self._report([f"not collected {within_ms} ms after the heal", *left]))

    def _pass(self, ms: int) -> None:
        self.events.run(self.events.now + ms)

    def _wait_until(self, is_so: Callable[[], bool], limit_ms: int, otherwise: str) -> None:
        end = self.events.now + limit_ms
        while not is_so():
            if self.events.now >= end:
                raise Broken(self._report([f"{otherwise} after {limit_ms} ms", *self._found()]))
            self._pass(LOOK_MS)

    # What must be so.

    def _is_whole(self) -> bool:
        others = len(self.servers) - 1
        return all(
            server.is_up
            and server.driver.turn.failure is None
            and len(server.state.peers.linked) == others == len(server.links)
            and not any(peer.flags & FAILING for peer in server.state.peers.by_id.values())
            for server in self.servers
        )

    def _is_done(self) -> bool:
        self._lift_late_pauses()
        self._redrive()
        return (
            all(producer.is_over for producer in self._producers)
            and not any(len(server.state.jobs) for server in self.servers)
            and not self.checker.missing()
            and not self._schedules.missing()
        )

    def _redrive(self) -> None:
        """Do what an operator would, who finds dead jobs: let each be tried again."""
        for server in self.servers:
            for name in [name for name, queue in server.state.queues.by_name.items() if queue.dead]:
                server.command(Operator(), [b"REDRIVE", name])

    def _lift_late_pauses(self) -> None:
        """Do what an operator would, whose PAUSE was on its way to other nodes when everything healed."""
        for server in self.servers:
            for name in [name for name, queue in server.state.queues.by_name.items() if queue.pause]:
                server.command(Operator(), [b"PAUSE", name, b"none"])

    def _verdict(self) -> None:
        wrong = self._found()
        if wrong:
            raise Broken(self._report(wrong))
        self.jobs += sum(request.is_promised for request in self.checker.requests.values())
        self.deliveries += sum(request.deliveries for request in self.checker.requests.values())
        self.again_after_ack += sum(request.again_after_ack for request in self.checker.requests.values())
        self.jobs += self._logs.answered
        self.deliveries += self._logs.checker.deliveries + self._schedules.deliveries

    def _found(self) -> list[str]:
        late = [f"{producer.name} never ended" for producer in self._producers if not producer.is_over]
        suspicions = [
            f"{server} took node {number} for failed"
            for server in self.servers
            for number in sorted(server.suspected if self.profile.rules.nobody_suspected else ())
        ]
        given = [
            f"{server} handed out jobs of {sorted(set(server.pause_watch.broken))}, known to be paused out,"
            " throttled or cancelled, or out of turn"
            for server in self.servers
            if server.pause_watch.broken
        ]
        given += [f"{server} handed out {what}" for server in self.servers for what in server.dead_watch.broken]
        if self.checker.rules.untried_lives:
            given += [
                f"{server} buried {job_id!r}, which nobody tried"
                for server in self.servers
                for job_id, last in sorted(server.known_dead.items())
                if any(self.checker.is_untried(job_id, generation) for generation in range(last + 1))
            ]
        given += [*self.limits.broken[:5], *self.group_order.order.broken]
        of_checkers = [*self.checker.verdict(), *self._logs.wrong(), *self._schedules.wrong()]
        return [*of_checkers, *late, *suspicions, *given, *self._leftovers()]

    def _leftovers(self) -> list[str]:
        """What is still on a node that should be empty."""
        left: list[str] = []
        for server in self.servers:
            if not server.is_up:
                left.append(f"{server} is down")
                continue
            state = server.state
            left += [_shown_job(server, job) for job, _ in zip(state.jobs, range(5), strict=False)]
            queues = state.queues.by_name.values() if self.faults.log else ()
            beginnings = [queue for queue in queues if _is_a_beginning(queue)]
            node = server.node
            for what, table in (
                ("keys to be added", node.keys.adding), ("jobs", state.jobs), ("acked jobs", state.custody.acked),
                ("results", state.custody.settled), ("evictable jobs", state.custody.evictable),
                ("blocked consumers", state.waiting.blocked),
                ("queues", state.queues), ("pieces of work", state.unfinished), ("queues to give", state.demand.giving),
                ("ready queues", state.ready),
                ("bound units", state.custody.bound), ("units elsewhere", state.custody.elsewhere),
                ("workers", node.workers.by_id),
                ("clients of workers", node.sessions.by_client), ("workers of others", node.homes.known),
            ):  # fmt: skip
                if len(table) > (len(beginnings) if what == "queues" else 0):
                    left.append(f"{server} has {len(table)} {what}")
            used = state.memory.used - sum(map(_cost_of, beginnings)) - _cost_of_policies(server)
            if used:
                left.append(f"{server} counts {used} bytes in use")
            left += [f"{server} has a timer left: {timer!r}" for timer in _timers(server) if timer not in beginnings]
        return left

    # Telling what went wrong.

    def _report(self, wrong: list[str]) -> str:
        shown = wrong[:20] + ([f"... and {len(wrong) - 20} more"] if len(wrong) > 20 else [])
        log = self.faults.log[-LOG_SHOWN:]
        return "\n".join(
            (
                f"profile {self.profile.name}, seed {self.seed}, age {self.ages}, at {self.events.now} ms:",
                *(f"  {line}" for line in shown),
                f"faults ({len(self.faults.log)} in all, the last {len(log)}):",
                *(f"  {line}" for line in log),
                f"again: python -m disqued.testing --profile {self.profile.name} --seed {self.seed}"
                + "".join(f" --without {kind}" for kind in self.without),
            )
        )


def _new_schedules(world: World) -> ScheduleAge:
    is_calm = not world.profile.kinds
    are_clocks_set = "set_clock" in world.profile.kinds
    return ScheduleAge(
        world.servers, str(world.ages), is_calm=is_calm, retry_s=60 if is_calm else 5, are_clocks_set=are_clocks_set
    )


def _is_a_beginning(queue: Queue) -> bool:
    """Tell whether nothing is left of a queue but where it was flushed, and where its groups began.

    A node that was started again knows that longer.
    """
    log = queue.stream
    if log is None or log.has_content or not (log.horizon or log.groups):
        return False
    return not any(group.done or group.units or group.waiters for group in log.groups.values())


def _cost_of(queue: Queue) -> int:
    assert queue.stream is not None
    return QUEUE_COST + COUNTS_COST + len(queue.name) + queue.stream.cost


def _cost_of_policies(server: SimServer) -> int:
    """Bytes of registers: what was said of queues is known for a week after it has ended."""
    registers = server.state.queues.policies.registers
    return sum(cost_of_register(queue, register.value) for (queue, _), register in registers.items())


def _timers(server: SimServer) -> list[object]:
    """What is on the schedule of a node, but for failure detection and for the forgetting of policies."""
    schedule = server.state.schedule
    items = [item for at, _, item in schedule._front if item.awake_at == at]
    items += [
        item
        for number, bucket in schedule._buckets.items()
        for item in bucket.items
        if item.awake_at and item.awake_at >> 6 == number
    ]
    return [item for item in items if not isinstance(item, FailureDetector | Policies)]


def _shown_job(server: SimServer, job: Job) -> str:
    now = server.state.now
    confirmed = sorted(server.numbers[node] for node in job.confirmed or ())
    holders = sorted(server.numbers[node] for node in job.holders or ())
    number = job.body.partition(b":")[0].decode("latin-1")
    return (
        f"{server} still has job {number} ({job.id.decode()}), {STATE_NAMES[job.state].decode()}, retry"
        f" {job.options.retry_ms}, flags {job.flags}, holders {holders}, confirmed {confirmed}, requeue in"
        f" {job.requeue_at - now if job.requeue_at else None}, awake in {job.awake_at - now if job.awake_at else None},"
        f" expires in {job.expires_at - now}"
    )
