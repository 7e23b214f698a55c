"""A history of jobs, made up: published files of an event log, as three nodes would have written them in a day.

Of twenty jobs one is given back once, one comes back by its timer, and one expires; the others are added, copied,
delivered and acknowledged.  Queues are of very different sizes.  Of two hundred and twenty jobs one is not as it must
be, by turns in every way that an audit tells of (`FAULTS`), and so are the logs: the first lines of one are not there,
another has a gap and a line twice, and a clock was set.  The same seed makes the same history.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha1
from pathlib import Path
from random import Random
from typing import Final

NODES: Final = ("1f0e2d3c", "8a9b0c1d", "12e45678")
QUEUES: Final = 50
DAY: Final = "2026-11-20"
START_US: Final = 1_795_132_800_000_000  #: 2026-11-20, 00:00
BOOT: Final = 1_795_132_800
LINES_PER_FILE: Final = 300_000
MS: Final = 1_000
SECOND: Final = 1_000_000
LOST_LINES: Final = 5

Event = tuple[int, int, str]  #: when (us), node, members from `event` on

#: Of so many jobs one has each fault.
FAULT_EVERY: Final = 2_000
#: Lines that tell of such a job: event, node (0 = where it was added, 1 = the other one), age in seconds, the rest.
HELD: Final = (("replicate", 1, 0.001, ""), ("deliver", 0, 1, ""))
DONE: Final = (*HELD, ("ack", 0, 2, ""), ("ack", 1, 2.001, ',"reason":"peer"'))
FAULTS: Final[Sequence[Sequence[tuple[str, int, float, str]]]] = (
    HELD,  # lost
    (*HELD, ("ack", 0, 2, "")),  # a copy is left behind
    (*HELD, ("ack", 0, 2, ""), ("deliver", 1, 1_200, ""), ("expire", 1, 1_800, "")),  # it never hears of the ack
    (*DONE, ("ack", 0, 3, "")),  # acknowledged twice
    (*DONE, ("deliver", 0, 3, "")),  # delivered after its ack
    (*HELD, ("ack", 0, 2, ""), ("deliver", 1, 40, ""), ("ack", 1, 41, ',"reason":"peer"')),  # the ack is late
    (*HELD, ("ack", 0, 2, ""), ("ack", 1, 2.5, "")),  # acknowledged on both
    (*HELD, ("deliver", 1, 1.5, ""), *DONE[2:]),  # delivered by both
    (  # delivered twice, and is to be at most once
        HELD[0], ("deliver", 0, 1, ',"reason":"once"'), ("deliver", 1, 1.5, ',"reason":"once"'), *DONE[2:],
    ),
)  # fmt: skip
AT_MOST_ONCE: Final = len(FAULTS) - 1


def write_history(folder: Path, events: int, seed: int) -> int:
    """Write about so many events below a folder; returns how many there are."""
    told = sorted((*_of_jobs(events, Random(seed)), (START_US + 40_000 * SECOND, 2, '"event":"clock"')))
    by_node: list[list[str]] = [[] for _ in NODES]
    for at_us, teller, members in told:
        lines = by_node[teller]
        lines.append(f'{{"v":1,"boot":{BOOT},"seq":{len(lines) + 1},"ts_us":{at_us},{members}}}\n')
    del by_node[0][: LOST_LINES * 10]
    middle = len(by_node[1]) // 2
    del by_node[1][middle : middle + LOST_LINES]
    by_node[1].append(by_node[1][-1])
    for node, lines in zip(NODES, by_node, strict=True):
        place = folder / f"date={DAY}" / f"node={node}"
        place.mkdir(parents=True)
        for start in range(0, len(lines), LINES_PER_FILE):
            path = place / f"events-{BOOT}-{start + 1:016d}.jsonl"
            path.write_text("".join(lines[start : start + LINES_PER_FILE]))
    return sum(map(len, by_node))


def _of_jobs(events: int, random: Random) -> Iterator[Event]:
    made = number = 0
    while made < events:
        number += 1
        for event in _of_job(number, random):
            made += 1
            yield event


def _of_job(number: int, random: Random) -> Iterator[Event]:
    """What happens to one job."""
    node = random.randrange(len(NODES))
    queue = f"queue-{min(int(random.expovariate(0.15)), QUEUES - 1):02d}"
    job_id = f"DI{NODES[node]}{sha1(b'%d' % number).hexdigest()[:32]}05a0SQ"
    what = f'"job_id":"{job_id}","queue":"{queue}"'
    begun_us = START_US + random.randrange(82_800_000) * MS
    size, client = random.randrange(20, 2_000), f"10.0.0.{random.randrange(200)}:4711"
    fault = number % FAULT_EVERY
    if fault < len(FAULTS):
        retry_s = 0 if fault == AT_MOST_ONCE else 300
        yield begun_us, node, f'"event":"add",{what},"ttl_s":1800,"retry_s":{retry_s},"repl":2,"size":{size}'
        for event, teller, age_s, more in FAULTS[fault]:
            age_us = int(age_s * SECOND)
            yield (
                begun_us + age_us,
                (node + teller) % len(NODES),
                f'"event":"{event}",{what},"age_us":{age_us}{more}',
            )
        return
    yield (
        begun_us, node,
        f'"event":"add",{what},"ttl_s":86400,"retry_s":300,"repl":2,"size":{size},"client":"{client}"',
    )  # fmt: skip
    copy = (node + 1) % len(NODES)
    yield begun_us + MS, copy, f'"event":"replicate",{what},"age_us":1000,"size":{size},"peer":"{NODES[node]}"'
    kind = random.randrange(20)
    if kind == 0:
        yield begun_us + 900_000 * MS, node, f'"event":"expire",{what},"age_us":900000000'
        return
    at_us, attempt = begun_us, 1
    if kind in (1, 2):
        at_us += random.randrange(1, 500) * MS
        yield (
            at_us,
            node,
            f'"event":"deliver",{what},"attempt":1,"age_us":{at_us - begun_us},"wait_us":{at_us - begun_us}',
        )
        at_us += random.randrange(1, 300_000) * MS
        back = "nack" if kind == 1 else "requeue"
        nacks = ',"nacks":1' if kind == 1 else ""
        yield at_us, node, f'"event":"{back}",{what},"attempt":1{nacks},"age_us":{at_us - begun_us}'
        attempt = 2
    wait_us = int(random.lognormvariate(3, 1.5)) * MS
    at_us += wait_us
    age = f'"attempt":{attempt},"age_us":{at_us - begun_us}'
    yield at_us, node, f'"event":"deliver",{what},{age},"wait_us":{wait_us},"client":"{client}"'
    run_us = int(random.lognormvariate(5, 1)) * MS
    at_us += run_us
    age = f'"attempt":{attempt},"age_us":{at_us - begun_us}'
    yield at_us, node, f'"event":"ack",{what},{age},"run_us":{run_us},"client":"{client}"'
    yield at_us + MS, copy, f'"event":"ack",{what},{age},"peer":"{NODES[node]}","reason":"peer"'
