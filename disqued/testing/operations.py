"""What operators and consumers say of the limits of queues, while faults go on; each returns the lines that it said.

throttle    consumers that were told to slow down throttle queues and groups
fair        an operator lets the groups of a queue take turns, or ends that
idle        an operator lets a queue expire that is not used, somebody adds a job to it, or its jobs end
"""

from collections.abc import Callable
from random import Random
from typing import Final

from disqued.testing.clients import Load, Operator
from disqued.testing.policies import IDLE_QUEUES, PolicyChecker
from disqued.testing.server import SimServer

Operate = Callable[[SimServer, Load, Random, PolicyChecker], list[str]]


def _throttle(server: SimServer, load: Load, rng: Random, policies: PolicyChecker) -> list[str]:
    said: list[str] = []
    for _ in range(rng.randint(1, 5)):
        queue, group = rng.choice(load.queues), rng.choice((b"", *load.groups))
        words = [b"THROTTLE", queue, b"%d" % rng.randint(1, 20), *([b"GROUP", group] if group else [])]
        said.append(b" ".join(words).decode())
        # It is forgotten when it is over: `policies` would take that for a lost word.
        server.command(Operator(), words)
    return said


def _fair(server: SimServer, load: Load, rng: Random, policies: PolicyChecker) -> list[str]:
    change = rng.choice(((b"SET", b"FAIR"), (b"SET", b"FAIR"), (b"UNSET", b"fair")))
    words = (b"QPOLICY", rng.choice(load.queues), *change)
    policies.say(server, *words)
    return [b" ".join(words).decode()]


def _idle(server: SimServer, load: Load, rng: Random, policies: PolicyChecker) -> list[str]:
    queue = rng.choice(IDLE_QUEUES)
    what = rng.random()
    if what < 0.4:
        words = (b"QPOLICY", queue, b"SET", b"IDLE", b"10", b"TTL", b"%d" % rng.randint(1_000_000, 2_000_000))
        policies.say(server, *words)
        return [b" ".join(words).decode()]
    if what < 0.7:
        policies.use(server, queue)
        return [f"a job for {queue.decode()}"]
    policies.empty(server, queue)
    return [f"QPURGE {queue.decode()}"]


#: By the kind of fault; only stories have them that are about them.
OPERATIONS: Final[dict[str, Operate]] = {"throttle": _throttle, "fair": _fair, "idle": _idle}
