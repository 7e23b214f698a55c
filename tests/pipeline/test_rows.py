"""What SHOW tells of jobs as Arrow batches, without a daemon and without Spark."""

from typing import Any

import pytest

from disqued.client.errors import BadReply
from disqued.core.model.fate import NO_FATE, Failure, Fate, Word
from disqued.core.model.terms import NO_TERMS, Terms
from disqued.pipeline.connector import rows
from disqued.pipeline.connector.rows import ARROW, NEEDED, Told, batch_of, groups_of, needed

TOLD = (b"D-1", b"q", b"\xff\x00", 1_795_487_935_123_456_789, 1, 2, b"queued", 300)
JOB: Told = (*TOLD, 4, NO_TERMS, NO_FATE)


def reply_of(*names: bytes, behind: tuple[Any, ...] = ()) -> list[Any]:
    values = dict(zip(NEEDED, TOLD, strict=True))
    return [word for name in names for word in (name, values.get(name, name))] + list(behind)


def test_what_is_needed_is_found_wherever_a_daemon_tells_it() -> None:
    usual, turned = reply_of(*NEEDED), reply_of(*reversed(NEEDED))
    longer = reply_of(b"more", *NEEDED, behind=(b"key", b"k"))
    for reply in (usual, turned, usual, longer, turned, longer):
        assert needed(reply) == JOB


@pytest.mark.parametrize("name", NEEDED)
def test_a_reply_without_what_is_needed_is_refused_by_its_name(name: bytes) -> None:
    needed(reply_of(*NEEDED))
    with pytest.raises(BadReply, match=f"SHOW tells nothing of {name.decode()}$"):
        needed(reply_of(*(each for each in NEEDED if each != name)))
    assert needed(reply_of(*NEEDED)) == JOB


HEADERS = [b"trace", b"ab", b"size", b"\xff"]
TERMS = (b"max-tries", 3, b"backoff", [2, 60], b"keep-dead", 5, b"keep-result", 0, b"headers", HEADERS)
FAILED = [1_795_487_935_123, b"a" * 40, b"worker-1", b"no \xff"]


def test_terms_and_what_became_of_a_job_are_found_behind_that() -> None:
    job = needed(reply_of(*NEEDED, behind=TERMS))
    headers = ((b"trace", b"ab"), (b"size", b"\xff"))
    assert job == (*TOLD, 4, Terms(3, 2_000, 60_000, 5_000, 0, headers), NO_FATE)
    fate = (b"generation", 1, b"attempt", 9, b"failures", [FAILED], b"cancelled", 1, b"progress", b"\xff")
    job = needed(reply_of(*NEEDED, behind=(*TERMS, b"group", b"a\\\xff", *fate)))
    failure = Failure(1_795_487_935_123, b"a" * 40, b"worker-1", b"no \xff")
    became = Fate(generation=1, is_cancelled=True, failures=(failure,), progress=Word(0, b"", b"\xff"))
    assert job == (*TOLD, 9, Terms(3, 2_000, 60_000, 5_000, 0, headers, b"a\\\xff"), became)
    [row] = batch_of([job], "aaaaaaaa").to_pylist()
    assert (row["headers"], row["attempt"], row["group"]) == ([("trace", b"ab"), ("size", b"\xff")], 9, "a\\\\\\xff")
    assert (row["max_tries"], row["backoff_ms"], row["backoff_most_ms"]) == (3, 2_000, 60_000)
    assert (row["keep_dead_ms"], row["keep_result_ms"]) == (5_000, 0)
    assert (row["generation"], row["is_cancelled"], row["progress"]) == (1, True, "\\xff")
    [failed] = row["failures"]
    assert failed.pop("at").timestamp() == pytest.approx(1_795_487_935.123)
    assert failed == {"node": "aaaaaaaa", "who": "worker-1", "reason": "no \\xff"}


def test_spans_that_are_not_whole_seconds_are_texts_in_resp2() -> None:
    values = {**dict(zip(NEEDED, TOLD, strict=True)), b"retry": b"0.25"}
    terms = (
        b"max-tries",
        3,
        b"backoff",
        [b"0.5", 60],
        b"keep-dead",
        b"4.999",
        b"keep-result",
        b"0.001",
        b"headers",
        [],
    )
    job = needed([*(word for pair in values.items() for word in pair), *terms])
    assert job == (*TOLD[:-1], 0.25, 4, Terms(3, 500, 60_000, 4_999, 1), NO_FATE)


def test_places_of_what_is_needed_are_those_of_its_names() -> None:
    named = [NEEDED[place] for place in (rows.QUEUE, rows.BODY, rows.NACKS, rows.DELIVERIES, rows.STATE, rows.RETRY)]
    assert named == [b"queue", b"body", b"nacks", b"additional-deliveries", b"state", b"retry"]
    assert (JOB[rows.ATTEMPT], JOB[rows.TERMS], JOB[rows.FATE]) == (4, NO_TERMS, NO_FATE)


def test_groups_are_told_of_events_alone() -> None:
    groups = [[b"g", b"redo", 2, 0]]
    assert groups_of(reply_of(*NEEDED, behind=(b"groups", groups))) is groups
    assert groups_of(reply_of(*NEEDED)) == ()
    assert groups_of(reply_of(*NEEDED, behind=(b"key", b"groups"))) == ()


def test_rows_are_those_of_one_node_or_of_several() -> None:
    terms = Terms(headers=((b"a", b"b"),), group=b"acme")
    other: Told = (b"D-2", b"\\\xff", b"", None, 0, 0, b"acked", 0, 1, terms, NO_FATE)
    for nodes, seen in (("aaaaaaaa", ["aaaaaaaa"] * 2), (["aaaaaaaa", "bbbbbbbb"], ["aaaaaaaa", "bbbbbbbb"])):
        batch = batch_of([JOB, other], nodes, 7)
        batch.validate(full=True)
        assert batch.schema == ARROW
        columns = batch.to_pydict()
        assert columns["id"] == ["D-1", "D-2"]
        assert columns["queue"] == ["q", "\\\\\\xff"]
        assert columns["body"] == [b"\xff\x00", b""]
        assert [None if each is None else each.microsecond for each in columns["ctime"]] == [123_456, None]
        assert (columns["nacks"], columns["additional_deliveries"]) == ([1, 0], [2, 0])
        assert [each.microsecond for each in columns["attempt_ts"]] == [7, 7]
        assert columns["node"] == seen
        assert (columns["headers"], columns["attempt"]) == ([[], [("a", b"b")]], [4, 1])
        assert (columns["group"], columns["state"]) == ([None, "acme"], ["queued", None])
        assert (columns["max_tries"], columns["failures"], columns["progress"]) == ([0, 0], [[], []], [None, None])


def test_no_rows_are_a_batch_too() -> None:
    batch = batch_of([], [])
    assert (batch.schema, batch.num_rows) == (ARROW, 0)
