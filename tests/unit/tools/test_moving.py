"""The mover of the command line: how it runs the machine of `disqued.moves` on links, and how fast."""

from collections.abc import Sequence

import pytest

from disqued.client.errors import ServerError, Uncertain, Unreachable
from disqued.tools.connecting import Failed
from disqued.tools.moving import Mover, MoveRefused, RateLimit

LIMIT = 60.0
ID = b"DI" + b"0" * 44 + b"SQ"


def shown(**facts: object) -> list[object]:
    given: dict[str, object] = {"state": b"active", "ttl": 50, "retry": 5, "repl": 2, **facts}
    return [part for name, value in given.items() for part in (name.encode(), value)]


def test_a_rate_is_kept_on_the_whole() -> None:
    now, slept = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = RateLimit(10, lambda: now[0], sleep)
    pace.wait(5)
    now[0] += 2  # slow work
    pace.wait(10)
    pace.wait(40)
    assert slept == [pytest.approx(0.5), pytest.approx(1.5)]
    RateLimit(None, lambda: now[0], sleep).wait(10**9)
    assert len(slept) == 2


class Side:
    """A node that does what a test says: each answer is for the commands of one call, or is raised."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[list[object]] = []

    def call_all(self, commands: Sequence[Sequence[object]], waits: float = 0.0) -> object:
        self.asked.append([words[0] for words in commands])
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def given(count: int) -> list[object]:
    return [[[b"mail", ID, b"body"]] * count]


def mover(here: Side, there: Side) -> Mover:
    return Mover(here, there, b"mail", b"mail", patience=LIMIT)  # type: ignore[arg-type]


def test_what_may_be_there_is_added_again_with_its_key() -> None:
    here = Side(given(2), [shown(), shown()], [2])
    there = Side(Uncertain("it broke"), Unreachable("it is away"), [b"new", b"new"])
    assert mover(here, there).move(2) == 2
    assert there.asked == [[b"ADDJOB"] * 2] * 3
    assert here.asked == [["GETJOB"], ["SHOW"] * 2, ["ACKJOB"]]


def test_an_at_most_once_job_that_may_be_there_is_never_added_again() -> None:
    here = Side(given(2), [shown(), shown(retry=0)], [1], [1])
    there = Side(Unreachable("it is away"), Uncertain("it broke"))
    with pytest.raises(Failed, match="1 at-most-once jobs were added there; they may be there, and cannot"):
        mover(here, there).move(2)
    assert there.asked == [[b"ADDJOB"] * 2] * 2
    assert here.asked[2:] == [["ACKJOB"], ["NACK"]]


def test_jobs_that_are_over_when_they_are_looked_at_are_passed_over() -> None:
    here = Side(given(1), [None], given(1), [shown()], [1])
    assert mover(here, Side([b"new"])).move(1) == 1
    here = Side(given(1), [None], [None])
    assert mover(here, Side()).move(1) is None


def test_refusals_are_raised_with_what_the_node_said() -> None:
    paused, later = ServerError("PAUSED Queue paused in input, try later"), ServerError("TRYAGAIN later")
    here = Side(given(2), [shown(), shown()], [1], [1])
    with pytest.raises(MoveRefused, match=r"^PAUSED Queue paused in input, try later$") as refused:
        mover(here, Side([b"new", paused])).move(2)
    assert refused.value.moved == 1
    for answers in ([[later]], [given(1), [shown()], [later]]):
        with pytest.raises(ServerError, match=r"^TRYAGAIN later$"):
            mover(Side(*answers), Side([b"new"])).move(1)


def test_the_errors_of_connections_are_raised_as_they_are() -> None:
    here = Side(given(1), [shown()], Uncertain("it broke"))
    with pytest.raises(Uncertain, match="it broke"):
        mover(here, Side([b"new"])).move(1)
    assert here.asked[2:] == [["ACKJOB"]]
