"""`python -m benchmarks.spark`: take the measures and print them, each as soon as it is there."""

import argparse
import signal
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final, NoReturn

from benchmarks.figures import Row, as_json, conclude, describe
from benchmarks.machine import Processors, facts, stamp
from benchmarks.measure import SEED
from benchmarks.servers import redis_version
from benchmarks.spark import connector, files, jobs
from benchmarks.spark.events import write_history
from disqued.testing.arguments import ExactParser

MILLION: Final = 1_000_000
NAMES: Final = [*jobs.NAMES, *connector.NAMES, *files.NAMES]
THREADS: Final = 2
MEMORY: Final = "3g"


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number; allowed is 1 or more")
    return int(text)


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = ExactParser(prog="python -m benchmarks.spark", description="Measure the data pipeline.")
    parser.add_argument("--events", type=_count, action="append", metavar="N", help="in the history (1000000, 5000000)")
    parser.add_argument("--jobs", type=_count, default=MILLION, metavar="N", help="in a queue (1000000)")
    parser.add_argument("--rounds", type=_count, default=5, help="of each measure (5)")
    parser.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the history ({SEED})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there, too")
    return parser.parse_args(arguments)


def _end(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def main() -> int:
    """Run; returns 0 when all was measured, goals met or not."""
    from disqued.pipeline.session import spark_session

    options = read_options()
    signal.signal(signal.SIGTERM, _end)
    names = options.only or NAMES
    known = {
        **facts(Processors(None, None), redis_version()),
        "pyspark": version("pyspark"),
        "duckdb": version("duckdb"),
    }
    line = f"{stamp(known)}, pyspark {known['pyspark']}, duckdb {known['duckdb']}, {THREADS} threads"
    rows: list[Row] = []

    def tell(row: Row) -> None:
        rows.append(row)
        print(describe(row, line), flush=True)

    conf = {"spark.driver.memory": MEMORY}
    with tempfile.TemporaryDirectory() as folder, spark_session("benchmarks", f"local[{THREADS}]", conf) as spark:
        work = Path(folder)
        if set(names) & set(jobs.NAMES):
            for wanted in options.events or (MILLION, 5 * MILLION):
                logs = work / f"logs-{wanted}"
                events = write_history(logs, wanted, options.seed)
                place = jobs.Place(spark, logs, work / f"work-{wanted}", events, options.rounds)
                jobs.measure(place, names, tell)
        if set(names) & set(connector.NAMES):
            connector.measure(spark, work, (options.jobs, options.rounds), names, tell)
        if set(names) & set(files.NAMES):
            files.measure(spark, work, (options.jobs, options.rounds), names, tell)
    print(conclude(rows))
    if options.json is not None:
        options.json.write_text(as_json(rows, known))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
