"""What is known of a job that is moved, how it is added elsewhere, and how fast."""

from collections.abc import Sequence

import pytest

from disqued.client.errors import ServerError, Uncertain, Unreachable
from disqued.tools.connecting import Failed
from disqued.tools.moving import Mover, Pace, Taken, read_taken

LIMIT = 60.0
ID = b"DI" + b"0" * 44 + b"SQ"


def shown(**facts: object) -> list[object]:
    given: dict[str, object] = {"state": b"active", "ttl": 50, "retry": 5, "repl": 2, **facts}
    return [part for name, value in given.items() for part in (name.encode(), value)]


def test_a_job_keeps_the_rest_of_its_life_and_its_options() -> None:
    taken = read_taken(ID, b"body", shown())
    assert taken == Taken(ID, b"body", 50, 5, 2, b"move/" + ID)
    assert taken.words(b"there", None) == (
        b"ADDJOB", b"there", b"body", 5000, b"REPLICATE", 2, b"TTL", 50, b"RETRY", 5, b"KEY", b"move/" + ID,
    )  # fmt: skip
    assert taken.words(b"there", 3)[5] == 3


def test_a_key_of_its_own_stays() -> None:
    taken = read_taken(ID, b"body", shown(key=b"order-17"))
    assert taken is not None
    assert taken.key == b"order-17"


def test_a_job_that_is_given_once_has_one_copy() -> None:
    taken = read_taken(ID, b"body", shown(retry=0, repl=1))
    assert taken is not None
    assert taken.is_given_once
    assert taken.words(b"there", 3)[5] == 1


@pytest.mark.parametrize(
    ("facts", "ttl", "retry"), [({"ttl": 0}, 1, 5), ({"ttl": 2**40, "retry": 2**40}, 2**31 - 1, 2**31 - 1)]
)
def test_spans_are_such_that_a_node_takes_them(facts: dict[str, object], ttl: int, retry: int) -> None:
    taken = read_taken(ID, b"body", shown(**facts))
    assert taken is not None
    words = taken.words(b"there", None)
    assert (words[7], words[9]) == (ttl, retry)


@pytest.mark.parametrize("reply", [None, shown(state=b"acked"), ServerError("BADID Invalid Job ID format.")])
def test_a_job_that_is_over_is_not_moved(reply: object) -> None:
    assert read_taken(ID, b"body", reply) is None


def test_a_rate_is_kept_on_the_whole() -> None:
    now, slept = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(10, lambda: now[0], sleep)
    pace.wait(5)
    now[0] += 2  # slow work
    pace.wait(10)
    pace.wait(40)
    assert slept == [pytest.approx(0.5), pytest.approx(1.5)]
    Pace(None, lambda: now[0], sleep).wait(10**9)
    assert len(slept) == 2


class Side:
    """A node that does what a test says: each answer is for the commands of one call, or is raised."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[list[object]] = []

    def ask_all(self, commands: Sequence[Sequence[object]], waits: float = 0.0) -> object:
        self.asked.append([words[0] for words in commands])
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask(self, *words: object, waits: float = 0.0) -> object:
        (reply,) = self.ask_all([words])  # type: ignore[misc]
        return reply


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
    here = Side(given(2), [shown(), shown(retry=0)], [1])
    there = Side(Unreachable("it is away"), Uncertain("it broke"))
    with pytest.raises(Failed, match="1 at-most-once jobs were added there; they may be there, and cannot"):
        mover(here, there).move(2)
    assert there.asked == [[b"ADDJOB"] * 2] * 2
    assert here.asked[2:] == [["ENQUEUE"]]


def test_an_at_most_once_job_that_cannot_be_put_back_is_told_with_its_body() -> None:
    refusal = ServerError("PAUSED Queue paused in input, try later")
    here = Side(given(1), [shown(retry=0)], [1], [refusal])
    with pytest.raises(Failed, match=r"neither be added there nor put back; their bodies are \[b'body'\]"):
        mover(here, Side([refusal])).move(1)
    assert here.asked[2:] == [["ACKJOB"], [b"ADDJOB"]]


def test_jobs_that_are_over_when_they_are_looked_at_are_passed_over() -> None:
    here = Side(given(1), [None], given(1), [shown()], [1])
    assert mover(here, Side([b"new"])).move(1) == 1
    here = Side(given(1), [None], [None], [])
    assert mover(here, Side()).move(1) == 0
