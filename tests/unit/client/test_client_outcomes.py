"""What became of a job, and the id of an added job, which can be waited for."""

import copy
import pickle
from typing import Any

import pytest

from disqued.client.errors import (
    DisquedError,
    JobCancelled,
    JobDead,
    JobExpired,
    JobFailed,
    ResultUnknown,
    ServerError,
    WaitTimeout,
)
from disqued.client.outcomes import AddedJob, Outcome

ID = b"DI0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0SQ"


@pytest.mark.parametrize("value", [b"well", b"", None])
def test_the_result_of_an_acknowledged_job_is_returned(value: bytes | None) -> None:
    assert Outcome(ID, "acked", value, 1).result() == value


@pytest.mark.parametrize(
    ("state", "reason", "kind", "text"),
    [
        ("dead", "no route", JobDead, f"job {ID.decode()} is dead after 3 tries: no route"),
        ("dead", "", JobDead, f"job {ID.decode()} is dead after 3 tries"),
        ("cancelled", "", JobCancelled, f"job {ID.decode()} was cancelled"),
        ("cancelled", "cancelled", JobCancelled, f"job {ID.decode()} was cancelled"),
        ("expired", "", JobExpired, f"job {ID.decode()} has expired"),
        ("unknown", "its result is not kept", ResultUnknown, f"job {ID.decode()} is unknown: its result is not kept"),
        ("a later word", "", ResultUnknown, f"job {ID.decode()} is unknown"),
    ],
)
def test_a_job_that_ended_without_a_result_raises_how_it_ended(
    state: str, reason: str, kind: type[JobFailed], text: str
) -> None:
    outcome = Outcome(ID, state, None, 3, reason)
    assert outcome.is_over
    with pytest.raises(JobFailed) as caught:
        outcome.result()
    assert type(caught.value) is kind
    assert (str(caught.value), caught.value.id, caught.value.tries, caught.value.reason) == (text, ID, 3, reason)


def test_one_try_is_no_tries() -> None:
    with pytest.raises(JobDead) as caught:
        Outcome(ID, "dead", None, 1, "no route").result()
    assert str(caught.value) == f"job {ID.decode()} is dead after 1 try: no route"


def test_a_job_that_has_not_ended_raises_a_timeout() -> None:
    outcome = Outcome(ID, "pending")
    assert not outcome.is_over
    with pytest.raises(TimeoutError) as caught:
        outcome.result()
    assert isinstance(caught.value, WaitTimeout)
    assert isinstance(caught.value, DisquedError)


def test_a_cancelled_job_is_one_error_in_its_handler_and_for_those_who_wait() -> None:
    assert issubclass(JobCancelled, JobFailed)
    assert issubclass(JobCancelled, ServerError)
    assert (JobCancelled("CANCELLED stop").word, JobCancelled("CANCELLED stop").id) == ("CANCELLED", b"")


class Asked:
    """A client that says what it was asked."""

    def wait(self, job: bytes, timeout: Any = None, progress: Any = None) -> Any:
        return "wait", job, timeout, progress

    def outcome(self, job: bytes, timeout: Any = None) -> Any:
        return "outcome", job, timeout


def test_an_added_job_is_its_id_and_can_be_waited_for() -> None:
    added = AddedJob(ID, Asked())
    assert (added, added.id, type(added.id), repr(added), hash(added)) == (ID, ID, bytes, repr(ID), hash(ID))
    assert {ID: 1}[added] == 1
    assert added.decode() == ID.decode()
    assert (added.wait(3), added.outcome()) == (("wait", ID, 3, None), ("outcome", ID, None))
    assert added.wait(3, print) == ("wait", ID, 3, print)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda added: pickle.loads(pickle.dumps(added))])
def test_a_copy_of_an_added_job_is_the_id_alone(copied: Any) -> None:
    found = copied(AddedJob(ID, Asked()))
    assert (found, type(found)) == (ID, bytes)
