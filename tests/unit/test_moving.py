"""What is known of a job that is moved, how it is added elsewhere, and how fast."""

import pytest

from disqued.client.errors import ServerError
from disqued.tools.moving import Pace, Taken, read_taken

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
