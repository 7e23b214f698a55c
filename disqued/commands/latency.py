"""The latency monitor: when the daemon was slow, and in doing what.

An *event* is a kind of work, such as `command` or `aof-write`.  Whoever does such work says how long it took; what
took at least `threshold_ms` is kept as a sample.  An event keeps its 160 last samples, one a second at most: within a
second the worst counts.

    note("command", 120, 1700000000) --> samples of "command": (1700000000, 120) ...
                                              |
                       LATENCY LATEST, HISTORY, GRAPH, DOCTOR

Spans are milliseconds, instants unix seconds; both are passed in.  Source: Redis, src/latency.c.
"""

from collections import deque
from collections.abc import Iterable

import attrs

SAMPLES_MAX = 160
GRAPH_ROWS = 4
GRAPH_COLUMNS = 80

#: What an operator can do about an event, by the beginning of its name; the first that fits counts.
ADVICE = (
    ("fast-command", "A command that should always be quick was not: look for a busy CPU, or memory that is swapped."),
    ("command", "Look at SLOWLOG GET for the commands; ask for less at a time with COUNT instead of BUSYLOOP."),
    ("aof-fsync-always", "The disk makes every commit wait: appendfsync everysec waits only once a second."),
    ("aof", "The disk is slow to write the journal: look at what else uses it, or move `dir` to a faster one."),
    ("eviction", "Memory is short and jobs are evicted: raise maxmemory, or add consumers."),
    ("jobs-processing", "Many deadlines fell together: spread RETRY and DELAY of the jobs."),
)


@attrs.frozen
class Sample:
    """The worst of one second."""

    noted_at: int  #: unix seconds
    ms: int


class Event:
    """The samples of one kind of work, oldest first."""

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self.worst_ms = 0  #: of all that were ever noted

    def note(self, ms: int, noted_at: int) -> None:
        """Keep a sample; one of the same second only if it is worse."""
        self.worst_ms = max(self.worst_ms, ms)
        samples = self.samples
        if samples and samples[-1].noted_at == noted_at:
            samples[-1] = Sample(noted_at, max(ms, samples[-1].ms))
        else:
            samples.append(Sample(noted_at, ms))


class LatencyMonitor:
    """The events of one daemon, by name."""

    def __init__(self, threshold_ms: int) -> None:
        self.threshold_ms = threshold_ms  #: from this span on a sample is kept; 0 = none ever
        self.events: dict[str, Event] = {}

    def note(self, event: str, ms: int, noted_at: int) -> None:
        """Keep what took long enough."""
        if self.threshold_ms and ms >= self.threshold_ms:
            self.events.setdefault(event, Event()).note(ms, noted_at)

    def reset(self, names: Iterable[str]) -> int:
        """Forget the events of these names; returns how many there were."""
        return sum(self.events.pop(name, None) is not None for name in names)

    def graph(self, name: str, now_s: int) -> str:
        """Draw the samples of an event that has some: one column each, oldest on the left."""
        samples = list(self.events[name].samples)[-GRAPH_COLUMNS:]
        spans = [sample.ms for sample in samples]
        low, high = min(spans), max(spans)
        heights = [_height(span, low, high) for span in spans]
        rows = ["".join("#" if height >= row else " " for height in heights) for row in range(GRAPH_ROWS, 0, -1)]
        return "\n".join(
            (
                f"{name} - high {high} ms, low {low} ms (all time high {self.events[name].worst_ms} ms)",
                "-" * GRAPH_COLUMNS,
                *(row.rstrip() for row in rows),
                "-" * GRAPH_COLUMNS,
                f"{len(samples)} samples: oldest {_ago(samples[0], now_s)}, newest {_ago(samples[-1], now_s)}",
                "",
            )
        )

    def report(self, now_s: int) -> str:
        """Say in words what the samples tell, and what can be done about it."""
        if not self.threshold_ms and not self.events:
            return (
                "The latency monitor is off. CONFIG SET latency-monitor-threshold <milliseconds> turns it on: "
                "what takes at least that long is then kept.\n"
            )
        if not self.events:
            return f"Nothing took {self.threshold_ms} ms or longer since the monitor was turned on or reset.\n"
        lines = [f"Work that took {self.threshold_ms} ms or longer:", ""]
        lines += [_findings(name, event, now_s) for name, event in self.events.items()]
        advice = dict.fromkeys(text for name in self.events for start, text in ADVICE if _advice(name) == start)
        if advice:
            lines += ["", "What may help:", "", *(f"- {text}" for text in advice)]
        return "\n".join(lines) + "\n"


def _height(ms: int, low: int, high: int) -> int:
    """Rows of a column, 1 .. GRAPH_ROWS."""
    return GRAPH_ROWS if high == low else 1 + (ms - low) * (GRAPH_ROWS - 1) // (high - low)


def _ago(sample: Sample, now_s: int) -> str:
    seconds = max(0, now_s - sample.noted_at)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return f"{seconds}s ago"


def _findings(name: str, event: Event, now_s: int) -> str:
    """One line on an event: how often, how long, how regular, how far apart."""
    spans = [sample.ms for sample in event.samples]
    mean = sum(spans) / len(spans)
    deviation = sum(abs(span - mean) for span in spans) / len(spans)
    first, last = event.samples[0], event.samples[-1]
    apart = f", one every {(last.noted_at - first.noted_at) / (len(spans) - 1):.1f} s" if len(spans) > 1 else ""
    return (
        f"- {name}: {len(spans)} samples{apart}; mean {mean:.0f} ms, mean deviation {deviation:.0f} ms, "
        f"worst ever {event.worst_ms} ms, last {last.ms} ms {_ago(last, now_s)}"
    )


def _advice(name: str) -> str | None:
    return next((start for start, _ in ADVICE if name.startswith(start)), None)
