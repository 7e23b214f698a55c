"""Replies of one client that have not left: their text, the jobs that they hand out, and those that they promise.

Every request adds one, so this is compiled.  Sizes are bytes.
"""

from typing import Any, Final

from disqued.errors import CommandError
from disqued.wire.brief import encode_error
from disqued.wire.pieces import Text

REPLY_COST: Final = 48  #: bytes of memory that a reply takes besides its text


class Replies:
    """Replies that leave together."""

    __slots__ = ("deliveries", "promises", "texts")

    def __init__(self) -> None:
        self.texts: list[Text] = []
        #: Functions that return the ids of the jobs that are handed out, each with the value that it takes: these jobs
        #: go back if the connection is lost first.
        self.deliveries: list[tuple[Any, Any]] = []
        #: For each reply that waits for a commit: its index in `texts`, a function that returns the job ids that it
        #: promises, and its value.
        self.promises: list[tuple[int, Any, Any]] = []

    def extend(self, later: "Replies") -> None:
        """Take over what others have."""
        before = len(self.texts)
        self.texts += later.texts
        self.deliveries += later.deliveries
        self.promises += [(before + at, names, value) for at, names, value in later.promises]
        later.take()

    def take(self) -> tuple[list[Text], list[tuple[Any, Any]]]:
        """Take the texts, and what they hand out."""
        texts, self.texts = self.texts, []
        self.promises.clear()
        return texts, self.take_deliveries()

    def take_deliveries(self) -> list[tuple[Any, Any]]:
        """Take what the replies hand out."""
        deliveries, self.deliveries = self.deliveries, []
        return deliveries

    def take_back(self, unkept: set[bytes], error: CommandError) -> list[bytes]:
        """Replace each reply that tells of one of these jobs or units by an error; returns their ids."""
        taken: list[bytes] = []
        for at, names, value in self.promises:
            told = [job_id for job_id in names(value) if job_id in unkept]
            if told:
                taken += told
                self.texts[at] = encode_error(error.line)
        return taken

    def drop(self) -> None:
        """Forget the texts, which nobody will read; the jobs that they hand out are still known."""
        self.texts.clear()
        self.promises.clear()


#: What nearly every client holds for a commit under way; nothing is ever added to it.
NO_REPLIES: Final = Replies()


def job_ids(deliveries: list[tuple[Any, Any]]) -> list[bytes]:
    """Ids of jobs that replies hand out."""
    return [job_id for names, value in deliveries for job_id in names(value)]
