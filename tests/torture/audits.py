"""Faults in millions of events, of which an audit is to find all and nothing else.

    python -m tests.torture.audits --events 10000000

Stories of simulated clusters are told, of many kinds; their event logs are written again and again as those of other
clusters, each time with other faults planted into them; and one audit looks at all of it.  What it costs and what it
found stands on stdout, and the exit status is 1 if it missed a fault or invented one.
"""

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import attrs

from disqued.pipeline.audited import audited
from disqued.pipeline.events import SCHEMA
from disqued.pipeline.jobs.verdicts import AuditTolerance
from disqued.pipeline.session import spark_session
from disqued.testing.arguments import ExactParser
from tests.pipeline.planted import PATIENCE_US, Plant, Story, plant, tell

PROFILES = (
    "crashes", "network", "partitions", "storm", "disks", "keys-crash", "memory", "leaving", "deaths", "lists-apart",
    "logs-crash", "wide", "calm",
)  # fmt: skip
PLANTS = 6  #: per copy of a story
HEALTHY = 0.3  #: part of the copies that get none
COPIES_PER_FILE = 20
DAY = "2026-01-01"  #: of all lines: their files are in no folder of a day
DENSE = 60  #: jobs per producer and burst: more of them per hour of a cluster than in other campaigns


@attrs.define
class Campaign:
    """What was written, and what is to be found in it."""

    folder: Path
    seed: int
    events: int = 0
    copies: int = 0
    jobs: dict[str, str] = attrs.field(factory=dict)  #: kinds of faults, by job
    places: dict[tuple[str, int, int], str] = attrs.field(factory=dict)  #: of logs

    def stories(self, rounds: int) -> Iterator[Story]:
        """Tell stories of every kind."""
        for number in range(rounds):
            for profile in PROFILES:
                with tempfile.TemporaryDirectory() as told:
                    story = tell(profile, self.seed + number, Path(told), hours=0.01, jobs=DENSE)
                say(f"{story.name}: {story.events} events of {len(story.jobs)} jobs")
                yield story

    def write(self, stories: list[Story], events: int) -> None:
        """Write copies of the stories until there are so many events."""
        while self.events < events:
            if self.copies % COPIES_PER_FILE == 0:
                path = self.folder / f"{self.copies // COPIES_PER_FILE:06}.jsonl"
            story = stories[self.copies % len(stories)]
            rng = Random(f"{self.seed} copy {self.copies}")
            plants = [] if rng.random() < HEALTHY else plant(story, rng, PLANTS)
            with path.open("ab") as file:
                for (node, _), text in story.texts(plants, self.copies):
                    # So many clusters would have very many folders: here each line says which node it is of.
                    file.write(text.replace(b'{"v":1,', b'{"v":1,"node":"%b",' % node.encode()))
                    self.events += text.count(b"\n")
            for each in plants:
                self._note(story, each)
            self.copies += 1

    def _note(self, story: Story, each: Plant) -> None:
        if each.job_id is not None:
            self.jobs[story.renamed(each.job_id, self.copies)] = each.kind
        elif each.place is not None:
            node, boot, seq = each.place
            self.places[story.renamed(node, self.copies), boot, seq] = each.kind

    def compare(self, rows: list[Any]) -> tuple[Counter[str], Counter[str], list[Any]]:
        """Hold what was found against what was planted: (found, missed, what nobody planted)."""
        of_jobs = {(row.job_id, row.kind) for row in rows}
        of_logs = {(row.node, row.boot, row.seq, row.kind) for row in rows if row.job_id is None}
        found: Counter[str] = Counter()
        missed: Counter[str] = Counter()
        for job_id, kind in self.jobs.items():
            (found if (job_id, kind) in of_jobs else missed)[kind] += 1
        for place, kind in self.places.items():
            (found if (*place, kind) in of_logs else missed)[kind] += 1
        invented = [
            row for row in rows if row.job_id not in self.jobs and (row.node, row.boot, row.seq) not in self.places
        ]
        return found, missed, invented


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Tell, plant, write, audit, compare."""
    parser = ExactParser(prog="python -m tests.torture.audits", description="Planted faults, and an audit.")
    parser.add_argument("--events", type=int, default=1_000_000, help="so many, at least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="stories of each kind that are told")
    parser.add_argument("--memory", default="3g", help="of the JVM")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="disqued-audit-"))
    try:
        return _run(Campaign(folder, options.seed), options)
    finally:
        shutil.rmtree(folder)


def _run(campaign: Campaign, options: argparse.Namespace) -> int:
    began = time.monotonic()
    stories = list(campaign.stories(options.rounds))
    told_s = time.monotonic() - began
    campaign.write(stories, options.events)
    say(
        f"{len(stories)} stories told in {told_s:.0f} s, {campaign.events} events of {campaign.copies} clusters written"
        f" in {time.monotonic() - began - told_s:.0f} s, {len(campaign.jobs) + len(campaign.places)} faults in them"
    )
    with spark_session("audits", "local[2]", {"spark.driver.memory": options.memory}) as spark:
        began, used = time.monotonic(), time.process_time()
        lines = spark.read.schema(SCHEMA).json(str(campaign.folder))
        result = audited(lines.fillna(DAY, ["date"]), AuditTolerance(patience_us=PATIENCE_US), say)
        seconds = time.monotonic() - began
        rows = result.findings.where("severity <> 'note'").collect()
        jvm: Any = spark.sparkContext._jvm
        process = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}")
        status, times = (process / "status").read_text(), (process / "stat").read_text().rpartition(")")[2].split()
    found, missed, invented = campaign.compare(rows)
    peak_mb = int(status.partition("VmHWM:")[2].split()[0]) // 1024
    cpu_s = sum(map(int, times[11:13])) / os.sysconf("SC_CLK_TCK")
    own_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    say(
        f"{result.events} events of {result.jobs} jobs on {result.nodes} nodes in {seconds:.0f} s,"
        f" {result.events / seconds:.0f} a second; {result.suspects} jobs looked at closely;"
        f" JVM {cpu_s:.0f} s of processor and {peak_mb} MB at most, Python {time.process_time() - used:.0f} s here"
        f" and {own_mb} MB"
    )
    say(f"counts  {result.counts}")
    say(f"found   {sum(found.values())}  {dict(sorted(found.items()))}")
    say(f"missed  {sum(missed.values())}  {dict(sorted(missed.items()))}")
    say(f"false   {len(invented)}")
    for row in invented[:20]:
        say(f"  {row}")
    return int(bool(missed or invented))


if __name__ == "__main__":
    sys.exit(main())
