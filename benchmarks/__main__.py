"""`python -m benchmarks`: take the measures and print them, each as soon as it is there."""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from benchmarks import admin, cluster, limits, resources, throughput
from benchmarks.blast import Refused
from benchmarks.figures import Row, as_json, conclude, describe
from benchmarks.load import LoadFailed
from benchmarks.machine import Processors, facts, stamp
from benchmarks.measure import (
    DEFAULT_LIMIT_S,
    DEFAULT_ROUNDS,
    QUICK_LIMIT_S,
    QUICK_ROUNDS,
    SEED,
    Bench,
    Measure,
    OutOfTime,
)
from benchmarks.raw import ServerError
from benchmarks.servers import ServerMissing, redis_version
from benchmarks.throughput import WrongResult
from disqued.testing.arguments import ExactParser

MEASURES = (*throughput.MEASURES, *resources.MEASURES, *cluster.MEASURES, *limits.MEASURES, *admin.MEASURES)
NAMES = [measure.name for measure in MEASURES]
OPTIONAL = {measure.name for measure in MEASURES if measure.optional}


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rounds; allowed is 1 or more")
    return int(text)


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = ExactParser(prog="python -m benchmarks", description="Measure disqued beside redis-server.")
    parser.add_argument("--quick", action="store_true", help="about a minute: short rounds, three of them, 100 k jobs")
    parser.add_argument("--rounds", type=_positive, help="rounds of each throughput measure (5; with --quick 3)")
    parser.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the random numbers ({SEED})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there, too")
    return parser.parse_args(arguments)


def take(measure: Measure, bench: Bench) -> Row:
    """Take one measure; whatever prevents it is told in the row."""
    try:
        bench.left_s()
        return measure.take(bench, measure.name, measure.title)
    except (LoadFailed, OutOfTime, Refused, ServerError, ServerMissing, WrongResult, OSError) as error:
        return Row(measure.name, measure.title, "", rounds=bench.rounds, note=str(error))


def _end(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def main() -> int:
    """Run; returns 0 when all but what is optional was measured, goals met or not."""
    options = read_options()
    signal.signal(signal.SIGTERM, _end)  # so that the servers are ended
    try:
        redis = redis_version()
    except ServerMissing as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    processors = Processors.find()
    known = facts(processors, redis)
    line = stamp(known)
    processors.become_client()
    bench = Bench(
        processors,
        quick=options.quick,
        rounds=options.rounds or (QUICK_ROUNDS if options.quick else DEFAULT_ROUNDS),
        seed=options.seed,
        until=time.monotonic() + (QUICK_LIMIT_S if options.quick else DEFAULT_LIMIT_S),
    )
    rows = []
    for measure in MEASURES:
        if options.only is None or measure.name in options.only:
            rows.append(take(measure, bench))
            print(describe(rows[-1], line), flush=True)
    print(conclude(rows))
    if options.json is not None:
        options.json.write_text(as_json(rows, known), encoding="utf-8")
    return int(any(row.ours is None and row.name not in OPTIONAL for row in rows))


if __name__ == "__main__":
    sys.exit(main())
