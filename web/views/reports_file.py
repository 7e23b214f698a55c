"""The way to reports.sqlite: read in a thread, so that a slow disk holds up nobody but those who ask for reports.

    route --question--> ReportsFile.ask --a thread, one question after the other--> disqued.reports.reading
          <--answer, or Problem: 404 there is none, 503 it cannot be read--

The file is opened for each question: one that is replaced, damaged, locked or gone is found out by the next one, and
never by the node.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from disqued.reports.reading import MissingReports, NoReports, ReportReader, ask
from disqued.web.http.problems import Problem
from disqued.web.turns import InThread

T = TypeVar("T")

MISSING: Final = "NOREPORTS"
UNREADABLE: Final = "BADREPORTS"


class ReportsFile:
    """The file that `reports-file` names."""

    def __init__(self, path: Path | None, reactor: Any) -> None:
        """`path` None: there are no reports."""
        self.path = path
        self._in_thread = InThread(reactor)

    async def ask(self, question: Callable[[ReportReader], T]) -> T:
        """Answer a question, which is asked in a thread.  Raises Problem 404 NOREPORTS, 503 BADREPORTS."""
        if self.path is None:
            raise Problem(404, "this node shows no reports: the setting reports-file is empty", code=MISSING)
        try:
            answer: T = await self._in_thread.run(ask, self.path, question)
        except MissingReports as error:
            raise Problem(404, str(error), code=MISSING) from None
        except NoReports as error:
            raise Problem(503, str(error), code=UNREADABLE) from None
        return answer
