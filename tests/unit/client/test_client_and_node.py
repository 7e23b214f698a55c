"""What a node refuses, whatever jobs and settings it has, the client refuses before anything is sent."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

from disqued.client import commands, replies, seats
from disqued.client.commands import Command
from disqued.errors import BadJobId, CommandError
from tests.core_fixtures import UNKNOWN_ID, Server

NUMBERS = (
    -(2**63), -1, 0, 1, 255, 256, 1_000, 1_001, 10_000, 10_001, 65_535, 65_536, 86_400, 86_401, 10**6, 10**6 + 1,
    365 * 86_400, 365 * 86_400 + 1, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 1.5, "1", True,
)  # fmt: skip
SPANS = (*NUMBERS, timedelta(seconds=1.5), timedelta(days=-1))
TEXTS = ("", "a b", *("x" * size for size in (255, 256, 1_024, 1_025)), "ä" * 600, "a\nb", "\x00", b"\xff", 1, None)
PAIRS = ((0, 0), (1, 1), (2, 1), (1, 2**31 - 1), (1, 2**31), (1,), (1, 2, 3))
RATES = (
    (1,), (0, 1), (1, 0), (1, 1), (10**6, 10**6), (10**6 + 1, 1), (1, 10**6 + 1), (1, 1, 0), (1, 1, 10**6),
    (1, 1, 10**6 + 1), (1, 1, 1, 1), 5,
)  # fmt: skip
HEADERS = (
    {}, {"a": "x"}, {"": "x"}, {"a" * 255: ""}, {"a" * 256: ""}, {"a\n": ""}, {"ä": ""}, {"a": "x" * 8_191},
    {"a": "x" * 8_192}, {f"{number}": "" for number in range(16)}, {f"{number}": "" for number in range(17)},
)  # fmt: skip
STATES = ((), ("queued",), ("dead", "dead"), ("acked",), ("nope",), "queued")
IDS = (
    UNKNOWN_ID, UNKNOWN_ID[:-1], b"", "x", b"D" * 48, b"D" * 40, b"D-" + b"x" * 38,
    b"D-12345678-" + b"x" * 24 + b"-05a1", b"DI" + b"\n" * 44 + b"SQ", 5,
)  # fmt: skip
COUNTS = (0, 1, 2, 500, 1_000, 1_001, *range(1_010, 1_026))

TIMES = {"retry": SPANS, "ttl": SPANS, "keep_dead": SPANS, "result_ttl": SPANS, "backoff": (*SPANS, *PAIRS)}
COMMON = {**TIMES, "replicate": NUMBERS, "maxlen": NUMBERS, "max_tries": NUMBERS}
#: Methods with what is always given, and the values of each argument that are tried.
METHODS: list[tuple[Callable[..., Command[Any]], dict[str, tuple[Any, ...]]]] = [
    (partial(commands.add, "q", "x"), {**COMMON, "timeout": SPANS, "key": TEXTS, "group": TEXTS, "headers": HEADERS}),
    (partial(commands.add, "q", "x", ttl=2**31 - 1), {"delay": SPANS}),
    (partial(commands.add, "q", "x", retry=0), {"max_tries": (1,), "backoff": (1,), "replicate": (1, 2)}),
    (partial(commands.add, "q", "x", ttl=60), {"delay": (59, 60, 61)}),
    (
        partial(commands.set_policy, "q"),
        {
            **COMMON, "in_flight": NUMBERS, "group_in_flight": NUMBERS, "rate": RATES, "group_rate": RATES,
            "partition": ("strict", "available", "", "no", 5),
        },
    ),
    (partial(commands.set_policy, "q", retry=0), {"max_tries": (1,), "backoff": (1,), "replicate": (1, 2)}),
    (partial(commands.get, "q"), {"timeout": SPANS, "count": NUMBERS}),
    (partial(commands.nack, UNKNOWN_ID), {"delay": SPANS, "reason": TEXTS}),
    (partial(commands.nack, UNKNOWN_ID, untried=True), {"delay": (0, 1), "reason": ("", "x"), "dead": (True,)}),
    (partial(commands.working, UNKNOWN_ID), {"progress": TEXTS}),
    (partial(commands.ack, UNKNOWN_ID), {"result": TEXTS}),
    (partial(commands.outcome, UNKNOWN_ID), {"timeout": SPANS}),
    (partial(commands.qpeek, "q"), {"count": NUMBERS}),
    (partial(commands.redrive, "q"), {"count": NUMBERS, "rate": NUMBERS, "timeout": SPANS}),
    (partial(commands.purge, "q"), {"states": STATES, "timeout": SPANS}),
    (partial(commands.slots, "q"), {"count": NUMBERS}),
    (
        partial(commands.set_schedule, "s", "q", "x", every=60),
        {**COMMON, "catch_up": NUMBERS, "group": TEXTS, "zone": ("UTC",), "at": NUMBERS},
    ),
    (partial(commands.set_schedule, "s", "q", "x"), {"every": SPANS, "line": ("", "* *", "@daily", "0 2 * * *")}),
    (partial(commands.set_schedule, "s", "q", "x", every=60, ttl=2**31 - 1), {"jitter": SPANS, "delay": SPANS}),
    (partial(commands.set_schedule, "s", "q", "x", every=60, ttl=60, delay=30), {"jitter": (29, 30)}),
    (partial(commands.set_schedule, queue="q", body="x", every=60), {"name": TEXTS}),
    (partial(commands.throttle, "q"), {"seconds": SPANS}),
    (partial(commands.throttle, "q", 1), {"group": TEXTS}),
    (commands.scan_queues, {"minlen": NUMBERS, "maxlen": NUMBERS, "count": NUMBERS}),
    (commands.scan_jobs, {"queue": TEXTS, "states": STATES, "count": NUMBERS}),
    *(
        (partial(commands.pause, "q", state, node=node), {"reason": TEXTS})
        for state in ("none", "in", "out", "all", "state", "nope") for node in (False, True)
    ),
]  # fmt: skip


def seat(span: Any = 5, name: Any = "") -> Command[bytes]:
    """The first command of a live worker."""
    return Command(seats.take_a_seat(seats.new_seat(Random(1), span, name)), replies.read_bytes)


#: Methods that take any number of ids, or of names.
MANY: dict[str, Callable[..., Command[Any]]] = {
    **{method.__name__: method for method in (
        commands.ack, commands.fast_ack, commands.nack, commands.cancel, commands.enqueue, commands.dequeue,
        commands.delete,
    )},
    "redrive": partial(commands.redrive, "q"), "wait_jobs": lambda *ids: commands.wait_jobs(ids),
    "wait_any": lambda *ids: commands.wait_jobs(ids, any=True),
}  # fmt: skip
OF_NAMES: dict[str, Callable[[int], Command[Any]]] = {
    "get": lambda count: commands.get(*["q"] * count, counters=True, headers=True),
    "purge": lambda count: commands.purge("q", states=["dead"] * count, dry_run=True),
    "scan_jobs": lambda count: commands.scan_jobs(queue="q", states=["dead"] * count),
    "unset_policy": lambda count: commands.unset_policy("q", *["ttl"] * count),
}


def calls() -> Iterator[tuple[str, Callable[[], Command[Any]]]]:
    """Yield all calls, with a name."""
    for method, arguments in [*METHODS, (seat, {"span": SPANS, "name": TEXTS})]:
        for name, values in arguments.items():
            for value in values:
                yield f"{method} {name}={value!r}", partial(method, **{name: value})
    for word, method in MANY.items():
        for job_id in IDS:
            yield f"{word} {job_id!r}", partial(method, job_id)
        for count in COUNTS:
            yield f"{word} of {count} ids", partial(method, *[UNKNOWN_ID] * count)
    for word, method in OF_NAMES.items():
        for count in (*COUNTS, *range(505, 515)):
            yield f"{word} of {count} names", partial(method, count)
    for job_id in IDS:
        yield f"show {job_id!r}", partial(commands.show, job_id)


def test_what_no_node_takes_is_a_value_error_and_everything_else_is_taken() -> None:
    taken = refused = 0
    misread: list[str] = []
    for name, make in calls():
        try:
            command = make()
        except ValueError:
            refused += 1
            continue
        taken += 1
        server = Server()
        server("QPOLICY", "q", "SET", "REPLICATE", 1)  # beside it RETRY 0 may be set alone
        words = command.asking(1.0)
        if words[0] == b"GETJOB":  # as a live worker asks
            server("WORKER", "START", "ID", "me")
            words = (words[0], b"WORKER", b"me", *words[1:])
        try:
            server(*words)
        except CommandError as error:
            if error.code in (CommandError.code, BadJobId.code):
                misread.append(f"{name}: {error.line!r}")
    assert misread == []
    assert taken > 500
    assert refused > 500
