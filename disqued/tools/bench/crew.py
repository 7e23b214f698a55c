"""The processes of a load, and what they have counted together.

    plans --spawn--> processes --connected--> all begin at one moment --Progress--> bar --Outcome--> Figures
                     Ctrl-C: no more is sent; what was is counted

Times are seconds on the monotonic clock.
"""

import contextlib
import multiprocessing
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from typing import Any, Final

import attrs

from disqued.tools.bench.latencies import Latencies
from disqued.tools.bench.load import CommandTally, Outcome, Plan, Progress, work
from disqued.tools.connecting import Failed
from disqued.tools.waiting import Bar, bar, interruptible

LEAD_S: Final = 0.05  #: from when all are ready to the first request
LISTEN_S: Final = 0.2  #: after which Ctrl-C is looked for
START_S: Final = 60.0  #: how long processes and their connections may take to be there
PERCENTILES: Final = (50.0, 99.0, 99.9, 100.0)


@attrs.frozen
class LoadResult:
    """What came of a load."""

    names: tuple[str, ...]
    tallies: tuple[CommandTally, ...]
    seconds: float
    was_interrupted: bool

    def latencies(self, number: int | None = None) -> Latencies:
        """What the requests of a command took, or of all."""
        chosen = self.tallies if number is None else [self.tallies[number]]
        found = Latencies()
        for tally in chosen:
            found.merge(tally.latencies)
        return found

    @property
    def errors(self) -> int:
        """Replies that are errors."""
        return sum(tally.errors.total() for tally in self.tallies)


class Crew:
    """The processes of one load."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = plans
        self._pipes: list[Pipe] = []
        self._outcomes: dict[int, Outcome] = {}
        self._done = [0] * len(plans)
        self._was_interrupted = False

    def run(self) -> LoadResult:
        """Do all of it.  Raises Failed when a process could not."""
        context = multiprocessing.get_context("spawn")
        with ExitStack() as ends:
            for plan in self._plans:
                ours, theirs = context.Pipe()
                process: Any = context.Process(target=work, args=(plan, theirs), daemon=True)
                process.start()
                theirs.close()
                ends.callback(process.join)
                ends.callback(process.terminate)
                self._pipes.append(ours)
            return self._lead()

    def _lead(self) -> LoadResult:
        for number, pipe in enumerate(self._pipes):
            if not pipe.poll(START_S):
                raise Failed(f"process {number} of the load was not ready after {START_S:g} s")
            self._hear(number, pipe)
        self._check()
        with bar("requests") as drawn, interruptible() as interrupt:
            begin_at = time.monotonic() + LEAD_S
            for pipe in self._pipes:
                pipe.send(begin_at)
            while len(self._outcomes) < len(self._pipes):
                self._listen()
                self._draw(drawn, begin_at)
                if interrupt.came and not self._was_interrupted:
                    self._stop()
        self._check()
        return self._figures(begin_at)

    def _listen(self) -> None:
        """Hear what the processes say that are not done, for a moment at most."""
        open_ = {pipe: number for number, pipe in enumerate(self._pipes) if number not in self._outcomes}
        for pipe in wait(list(open_), LISTEN_S):
            assert isinstance(pipe, Pipe)
            self._hear(open_[pipe], pipe)

    def _stop(self) -> None:
        self._was_interrupted = True
        for number, pipe in enumerate(self._pipes):
            if number not in self._outcomes:
                with contextlib.suppress(OSError):  # it has just ended
                    pipe.send(None)

    def _hear(self, number: int, pipe: Pipe) -> None:
        try:
            word = pipe.recv()
        except EOFError:
            word = self._outcomes.get(number) or Outcome(error=f"process {number} of the load ended by itself")
        match word:
            case Progress(done):
                self._done[number] = done
            case Outcome():
                self._outcomes[number] = word

    def _draw(self, drawn: Bar, begin_at: float) -> None:
        passed = max(time.monotonic() - begin_at, 1e-9)
        done, plan = sum(self._done), self._plans[0]
        note = f"{done / passed:,.0f}/s"
        if plan.requests is None:
            drawn.show(min(passed, plan.seconds or 0), plan.seconds, note)
        else:
            drawn.show(done, sum(each.requests or 0 for each in self._plans), note)

    def _check(self) -> None:
        errors = sorted({outcome.error for outcome in self._outcomes.values() if outcome.error})
        if errors:
            raise Failed("; ".join(errors))

    def _figures(self, begin_at: float) -> LoadResult:
        outcomes = list(self._outcomes.values())
        templates = self._plans[0].mix.templates
        tallies = [CommandTally() for _ in templates]
        for outcome in outcomes:
            for tally, theirs in zip(tallies, outcome.tallies, strict=True):
                tally.latencies.update(theirs.latencies)
                tally.errors.update(theirs.errors)
                tally.empty += theirs.empty
                tally.passed_over += theirs.passed_over
        ended_at = max(outcome.ended_at for outcome in outcomes)
        names = tuple(each.name for each in templates)
        return LoadResult(names, tuple(tallies), ended_at - begin_at, self._was_interrupted)
