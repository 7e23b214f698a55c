"""What operators and consumers say of the limits of queues, while faults go on; each returns the lines that it said.

throttle    consumers that were told to slow down throttle queues and groups
fair        an operator lets the groups of a queue take turns, or ends that
"""

from collections.abc import Callable
from random import Random
from typing import Final

from disqued.testing.clients import Load, Operator
from disqued.testing.policies import PolicyChecker
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


#: By the kind of fault; only stories have them that are about them.
OPERATIONS: Final[dict[str, Operate]] = {"throttle": _throttle, "fair": _fair}
