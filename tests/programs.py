"""Programs that tests start and watch: none outlives its `with`, and none is waited for without a limit."""

import subprocess
from types import TracebackType
from typing import AnyStr

from tests.limits import LIMIT


class Program(subprocess.Popen[AnyStr]):
    """A program that is killed at the end of its `with`: at once where the block fails, else at the limit."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.wait(LIMIT)
        finally:
            self.kill()  # does nothing to one that has ended
            super().__exit__(kind, error, trace)
