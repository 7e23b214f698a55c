"""The rules of the audit: what is against a promise, what is legal, and what logs leave open."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from disqued.pipeline.jobs import verdicts as kinds
from disqued.pipeline.jobs.verdicts import FAULT, LOSS, SEVERITY, AuditTolerance, Finding
from tests.integration.daemon import ROOT
from tests.pipeline.plain_audit import audit, invented, missed, rows_of
from tests.pipeline.planted import PATIENCE_US, plant, tell

Row = dict[str, Any]
TTL_S = 60
#: 60 s is 1 minute, the hex digits at the end of an id.
JOB = f"DI{'a' * 8}{'0' * 32}0001SQ"
#: A line after which the time of the job is over for long.
LATER_S = 300.0
LIMITS = AuditTolerance(patience_us=PATIENCE_US)


def log(node: str, *said: tuple[Any, ...], boot: int = 1, start_s: float = 0.0, stops: bool = True) -> list[Row]:
    """The log of a boot: (second, event) or (second, event, members), of the job unless it is about the node."""
    rows: list[Row] = [{"event": "start", "reason": "clean", "at": start_s}]
    for at, event, *more in said:
        members: Row = dict(more[0]) if more else {}
        if event not in ("clock", "flush", "other"):
            age = {} if event == "add" else {"age_us": int(at * 1e6)}
            members = {"job_id": JOB, "queue": "q", **age, **members}
        if event == "add":
            members = {"ttl_s": TTL_S, "retry_s": 30, "repl": 1, **members}
        rows.append({"event": "clock" if event == "other" else event, "at": at, **members})
    if stops:
        rows.append({"event": "stop", "at": rows[-1]["at"]})
    # What is only there to let time pass is a line of another job.
    for row, (_, event, *_more) in zip(rows[1:], said, strict=False):
        if event == "other":
            row |= {"event": "working", "job_id": JOB.replace("0000", "ffff"), "queue": "q", "age_us": 0}
    return [
        {"node": node, "boot": boot, "seq": seq, "ts_us": int(row.pop("at") * 1e6), **row}
        for seq, row in enumerate(rows, 1)
    ]


def found(*logs: Sequence[Row]) -> list[str]:
    """The kinds of what is found of the job, and of the logs."""
    rows = [dict(row) for rows in logs for row in rows]
    return [finding.kind for finding in audit(rows) if finding.job_id in (None, JOB)]


LIFE = ((0, "add"), (1, "deliver"), (2, "ack"))


def test_a_job_that_is_added_delivered_and_acknowledged_is_as_it_must_be() -> None:
    assert found(log("a", *LIFE, (LATER_S, "other"))) == []


def test_a_job_of_whose_end_nobody_tells_is_lost_when_its_time_is_over() -> None:
    assert found(log("a", (0, "add"), (1, "deliver"), (LATER_S, "other"))) == [kinds.LOST]
    assert found(log("a", (0, "add"), (1, "deliver"), (TTL_S + 10, "other"))) == []


@pytest.mark.parametrize("end", ["expire", "delete", "evict"])
def test_whatever_ends_a_job_is_an_end(end: str) -> None:
    assert found(log("a", (0, "add"), (50, end), (LATER_S, "other"))) == []


def test_a_job_that_was_refused_or_flushed_is_not_lost() -> None:
    assert found(log("a", (0, "add"), (0, "refuse", {"reason": "misconf"}), (LATER_S, "other"))) == []
    assert found(log("a", (0, "add"), (5, "flush"), (LATER_S, "other"))) == []


def test_where_a_node_crashed_before_the_end_it_is_not_known_what_became_of_a_job() -> None:
    crashed = log("a", (0, "add"), (1, "deliver"), stops=False)
    again = log("a", (LATER_S, "other"), (2 * LATER_S, "other"), boot=2, start_s=5)
    assert found(crashed, again) == [kinds.NOT_KNOWN]


def test_a_clock_that_was_set_proves_nothing_about_what_passed() -> None:
    jumped = log("a", (0, "add"), (1, "deliver"), (3_600, "clock"), (3_601, "other"))
    assert found(jumped) == []
    waited = log("a", (0, "add"), (1, "deliver"), (3_600, "clock"), (3_600 + LATER_S, "other"))
    assert found(waited) == [kinds.LOST]


def test_an_ack_at_a_node_that_did_not_know_the_job_is_no_end_and_no_second_one() -> None:
    unknown = {"reason": "unknown", "age_us": None}
    assert found(log("a", *LIFE, (LATER_S, "other")), log("b", (2, "ack", unknown))) == []
    assert found(log("a", (0, "add"), (LATER_S, "other")), log("b", (2, "ack", unknown))) == [kinds.LOST]


def test_a_copy_of_which_nobody_says_what_became_is_left_behind() -> None:
    copy = log("b", (0, "replicate", {"peer": "a"}), (LATER_S, "other"))
    assert found(log("a", *LIFE, (LATER_S, "other")), copy) == [kinds.ORPHANED]
    told = log("b", (0, "replicate", {"peer": "a"}), (2, "ack", {"reason": "peer", "peer": "a"}), (LATER_S, "other"))
    assert found(log("a", *LIFE, (LATER_S, "other")), told) == []


def test_a_node_that_adds_a_job_which_others_keep_need_not_know_its_end() -> None:
    other = log("b", (0, "replicate"), (0, "enqueue"), (1, "deliver"), (2, "ack"), (LATER_S, "other"))
    elsewhere = log("a", (0, "add", {"reason": "elsewhere"}), (LATER_S, "other"))
    assert found(elsewhere, other) == []
    assert found(log("a", (0, "add"), (LATER_S, "other")), other) == [kinds.ORPHANED], "one that keeps it does"
    assert found(elsewhere) == [kinds.NOT_KNOWN], "those that have it have no log here"
    assert found(log("a", (0, "add"), (LATER_S, "other"))) == [kinds.LOST]


def test_a_node_that_knows_of_an_ack_takes_no_second_one_and_delivers_no_more() -> None:
    assert found(log("a", *LIFE, (3, "ack"))) == [kinds.ACKED_TWICE]
    assert found(log("a", *LIFE, (3, "deliver"), (4, "ack"))) == [kinds.DELIVERED_AFTER_ACK, kinds.ACKED_TWICE]
    heard = log("b", (0, "replicate"), (2, "ack", {"reason": "peer"}), (3, "deliver"))
    assert found(log("a", *LIFE), heard) == [kinds.DELIVERED_AFTER_ACK]


def test_a_node_that_crashed_in_between_may_have_forgotten_the_ack() -> None:
    again = log("a", (10, "deliver"), (11, "ack"), boot=2, start_s=5)
    assert found(log("a", *LIFE, stops=False), again) == [kinds.REDELIVERED]


def test_a_node_that_had_not_heard_of_an_ack_may_deliver_the_job_and_take_another_one() -> None:
    late = log("b", (0, "replicate"), (31, "deliver"), (32, "ack"))
    assert found(log("a", *LIFE), late) == [kinds.ACKED_APART, kinds.REDELIVERED]
    assert not any(SEVERITY[kind] in (FAULT, LOSS) for kind in (kinds.ACKED_APART, kinds.REDELIVERED))


def test_a_node_that_has_not_heard_of_an_ack_after_all_patience_is_at_fault() -> None:
    added = log("a", (0, "add", {"ttl_s": 7_200}), (1, "deliver"), (2, "ack"))
    late = log("b", (0, "replicate"), (2_000, "deliver"), (7_200, "expire"))
    assert found(added, late) == [kinds.ORPHANED]
    # After a start its age is what the journal and the clock say.
    started = log("b", (2_000, "deliver"), (7_200, "expire"), boot=2)
    assert found(added, log("b", (0, "replicate"), stops=False), started) == [kinds.REDELIVERED]


def test_two_nodes_that_both_let_somebody_have_a_job_are_noted() -> None:
    copy = log("b", (0, "replicate"), (5, "deliver"), (9, "ack", {"reason": "peer"}))
    assert found(log("a", (0, "add"), (1, "deliver"), (8, "ack")), copy) == [kinds.DELIVERED_APART]
    given_back = log("a", (0, "add"), (1, "deliver"), (4, "nack"), (8, "ack"))
    assert found(given_back, copy) == []


def test_what_is_delivered_once_at_most_is_delivered_once() -> None:
    once = {"reason": "once"}
    added = (0, "add", {"retry_s": 0})
    ends = (TTL_S, "expire"), (LATER_S, "other")
    assert found(log("a", added, (1, "deliver", once), *ends)) == []
    assert found(log("a", added, (1, "deliver", once), (9, "deliver", once), *ends)) == [kinds.TWICE_ONCE]
    unseen = (2, "requeue", {"reason": "unseen"})
    assert found(log("a", added, (1, "deliver", once), unseen, (9, "deliver", once), *ends)) == []
    crashed = log("a", added, (1, "deliver", once), stops=False)
    assert found(crashed, log("a", (9, "deliver", once), (TTL_S, "expire"), boot=2, start_s=5)) == [kinds.NOT_KNOWN]


ADD_TERMS = (0, "add", {"max_tries": 2, "keep_dead_s": 1_000})
DIES = ((1, "deliver"), (2, "nack"), (3, "deliver"), (4, "nack"), (4, "dead"))


def test_a_dead_job_is_delivered_when_it_was_redriven_and_not_before() -> None:
    assert found(log("a", ADD_TERMS, *DIES, (9, "redriven"), (10, "deliver"), (11, "ack"))) == []
    assert found(log("a", ADD_TERMS, *DIES, (10, "deliver"), (11, "ack"))) == [kinds.DELIVERED_DEAD]
    heard = log("b", (0, "replicate"), (4, "dead", {"reason": "peer"}), (10, "deliver"), (11, "ack"))
    assert found(log("a", ADD_TERMS, *DIES, (11, "ack", {"reason": "peer"})), heard) == [kinds.DELIVERED_DEAD]
    again = log("a", (10, "deliver"), (11, "ack"), boot=2, start_s=5)
    assert found(log("a", ADD_TERMS, *DIES, stops=False), again) == [], "the store may have missed it"


def test_a_job_has_as_many_tries_on_a_node_as_its_terms_say_and_again_after_a_redrive() -> None:
    assert found(log("a", ADD_TERMS, *DIES[:4], (5, "deliver"), (6, "ack"))) == [kinds.TRIED_TOO_OFTEN]
    unseen = (1, "deliver"), (1, "requeue", {"reason": "unseen"})
    assert found(log("a", ADD_TERMS, *unseen, *DIES, (60, "redriven"), *DIES, (60, "ack"))) == []
    # Each side of a partition has its own tries.
    other = log("b", (0, "replicate"), *DIES, (11, "ack", {"reason": "peer"}))
    assert found(log("a", ADD_TERMS, *DIES, (11, "ack")), other) in ([], [kinds.DELIVERED_APART])


def test_a_dead_job_is_lost_when_its_longer_time_is_over_and_not_before() -> None:
    assert found(log("a", ADD_TERMS, *DIES, (LATER_S, "other"))) == []
    assert found(log("a", ADD_TERMS, *DIES, (LATER_S + 1_000, "other"))) == [kinds.LOST]
    assert found(log("a", ADD_TERMS, *DIES, (TTL_S + 1_000, "expire"), (2_000, "other"))) == []


def test_a_cancelled_job_has_ended_and_is_not_delivered_any_more() -> None:
    assert found(log("a", (0, "add"), (1, "cancelled"), (LATER_S, "other"))) == []
    assert found(log("a", (0, "add"), (1, "cancelled"), (2, "deliver"), (3, "ack"))) == [
        kinds.DELIVERED_AFTER_ACK, kinds.ACKED_TWICE,
    ]  # fmt: skip
    both = log("b", (0, "replicate"), (1, "cancelled", {"reason": "peer"}), (LATER_S, "other"))
    assert found(log("a", (0, "add"), (1, "cancelled"), (LATER_S, "other")), both) == []


def test_lines_that_are_missing_and_lines_that_are_there_twice_are_named() -> None:
    whole = log("a", *LIFE, (LATER_S, "other"))
    assert [(f.kind, f.seq) for f in audit([*whole[:2], *whole[3:]])] == [(kinds.GAP, 3)]
    assert [(f.kind, f.seq) for f in audit([*whole, whole[2]])] == [(kinds.DOUBLE, 3)]
    assert [(f.kind, f.seq) for f in audit([*whole[:2], *whole[3:], whole[3]])] == [(kinds.DOUBLE, 4), (kinds.GAP, 3)]


def test_logs_whose_first_files_were_removed_are_no_fault_but_a_later_boot_has_its_beginning() -> None:
    old = log("a", *LIFE, (LATER_S, "other"))
    new = log("a", (2 * LATER_S, "other"), (3 * LATER_S, "other"), boot=2, start_s=LATER_S)
    assert found(old[3:], new) == [kinds.NOT_KNOWN]
    assert found(old, new[1:]) == [kinds.GAP]


def test_a_copy_that_left_may_be_of_a_job_that_is_delivered_once_where_nothing_says_that_it_is_not() -> None:
    deleted = log("a", (0, "replicate"), (1, "delete", {"peer": "c"}), (LATER_S, "other"))
    left = log("b", (0, "replicate"), (20, "enqueue"), (20, "leave", {"peer": "c"}), (LATER_S, "other"))
    assert found(deleted, left) == [], "who added it and who delivered it have no log here"
    often = log("c", (0, "add"), (20, "replicate"), (20, "enqueue"), (21, "deliver"), (22, "ack"), (LATER_S, "other"))
    assert found(deleted, left, often) == [kinds.ORPHANED]
    once = log("c", (0, "add", {"retry_s": 0}), (21, "deliver", {"reason": "once"}), (22, "ack"), (LATER_S, "other"))
    assert found(deleted, left, once) == []
    back = log("a", (0, "replicate"), (2, "ack", {"reason": "peer"}), (3, "replicate"), (4, "ack", {"reason": "peer"}))
    assert found(back) == []
    assert found(back, log("b", (0, "add"), (1, "deliver"), (2, "ack"))) == [kinds.ACKED_TWICE]


def boots_in_a_row() -> list[list[Row]]:
    """Three boots of a node, each of which says where the one before it ended."""
    boots = [log("a", *LIFE, boot=1), log("a", (1_000, "other"), (1_001, "other"), boot=2, start_s=999, stops=False)]
    boots.append(log("a", (2_000, "other"), boot=3, start_s=1_999))
    for before, boot in pairwise(boots):
        boot[0] |= {"after_boot": before[-1]["boot"], "after_seq": before[-1]["seq"]}
    return boots


def test_the_last_lines_of_a_boot_are_missed_if_the_next_one_saw_them() -> None:
    first, second, third = boots_in_a_row()
    assert audit([*first, *second, *third]) == []
    (gap,) = audit([*first, *second[:-2], *third])
    assert (gap.kind, gap.boot, gap.seq, gap.detail) == (kinds.GAP, 2, 2, "2 lines are missing, 2 to 3: the last ones")
    (gap,) = audit([*first[:-1], *second, *third])
    assert (gap.kind, gap.boot, gap.seq, gap.detail) == (kinds.GAP, 1, 5, "line 5 is missing: the last ones")


def test_a_boot_that_is_missing_as_a_whole_is_a_gap_unless_all_before_it_is_missing_too() -> None:
    first, second, third = boots_in_a_row()
    (gap,) = audit([*first, *third])
    assert (gap.kind, gap.boot, gap.seq, gap.detail) == (kinds.GAP, 2, 1, "3 lines are missing, 1 to 3: the whole boot")
    assert gap.at_us == third[0]["ts_us"], "no later than that"
    assert audit([*second, *third]) == audit(third) == [], "logs are not kept for ever"
    assert audit([*first, *second]) == [], "of what comes last nobody tells"


def test_a_log_of_endings_alone_is_no_reason_for_a_fault() -> None:
    terminal = log("b", (2, "ack", {"reason": "peer"}), (LATER_S, "other"))
    assert found(log("a", *LIFE, (LATER_S, "other")), terminal) == []
    assert found(log("a", (2, "ack"), (LATER_S, "other")), log("b", (60, "expire"), (LATER_S, "other"))) == []


@pytest.mark.parametrize(
    ("left_out", "gaps"),
    [
        (range(500, 501), [(500, "line 500 is missing")]),
        (range(999, 1_003), [(999, "4 lines are missing, 999 to 1002")]),
        (range(1_000, 3_001), [(1_000, "2001 lines are missing, 1000 to 3000")]),
        (range(1_001, 2_001), [(1_001, "1000 lines are missing, 1001 to 2000")]),
        ((7, 2_500), [(7, "line 7 is missing"), (2_500, "line 2500 is missing")]),
    ],
)
def test_a_gap_is_told_as_one_wherever_it_is(left_out: Sequence[int], gaps: list[tuple[int, str]]) -> None:
    whole = log("a", *((second, "other") for second in range(3_498)))
    assert len(whole) == 3_500
    rows = [row for row in whole if row["seq"] not in left_out]
    assert [(f.seq, f.detail) for f in audit(rows)] == gaps


def test_lost_lines_and_doubled_ones_do_not_make_up_for_each_other() -> None:
    whole = log("a", *((second, "other") for second in range(998)))
    # The number of lines is right, and so is the sum of their numbers.
    rows = [row for row in whole if row["seq"] not in (500, 504)]
    rows += [row for row in whole if row["seq"] in (501, 503)]
    assert sorted((f.kind, f.seq) for f in audit(rows)) == [
        (kinds.DOUBLE, 501), (kinds.DOUBLE, 503), (kinds.GAP, 500), (kinds.GAP, 504),
    ]  # fmt: skip


def test_what_groups_do_with_an_event_is_judged_by_group() -> None:
    mail, bill = {"scope": "0:mail"}, {"scope": "0:bill"}
    said = [(1, "deliver", mail), (2, "ack", mail), (3, "deliver", bill), (4, "ack", bill), (60, "expire")]
    assert found(log("a", (0, "add", {"retry_s": None}), *said, (LATER_S, "other"))) == []
    twice = log("a", (0, "add", {"retry_s": None}), *said[:2], (3, "deliver", mail), *said[4:], (LATER_S, "other"))
    assert [f.kind for f in audit(twice) if f.scope == "0:mail"] == [kinds.DELIVERED_AFTER_ACK]


def test_the_page_on_the_audit_tells_of_every_kind_and_how_severe_it_is() -> None:
    page = (ROOT / "docs/explanation/audit.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ", page, re.MULTILINE)
    assert rows == list(SEVERITY.items())


@pytest.mark.parametrize("profile", ["crashes", "partitions", "retries", "results"])
def test_nothing_is_found_in_logs_of_a_healthy_cluster_and_all_that_is_planted_there(
    profile: str, tmp_path: Path
) -> None:
    # A dead job lives on for as long again, so that its log has to be longer.
    story = tell(profile, 5, tmp_path / "told", hours=0.4 if profile == "retries" else 0.01)
    assert invented(story, [], audit(rows_of(tmp_path / "told"), LIMITS)) == []
    planted: set[str] = set()
    for copy in range(4):
        plants = plant(story, Random(f"{profile} {copy}"), 6)
        planted |= {each.kind for each in plants}
        story.write(tmp_path / str(copy), plants, copy)
        rows: list[Finding] = audit(rows_of(tmp_path / str(copy)), LIMITS)
        assert missed(story, plants, rows, copy) == []
        assert invented(story, plants, rows, copy) == []
    assert len(planted) > 4


def test_nothing_is_found_where_parts_of_the_logs_are_not_there(tmp_path: Path) -> None:
    story = tell("storm", 21, tmp_path, hours=0.01)
    rows = rows_of(tmp_path)
    known: set[str] = set()
    for seed in range(12):
        left = audit(_cut(rows, Random(seed)), LIMITS)
        assert invented(story, [], left) == []
        known |= {finding.kind for finding in left}
    assert kinds.NOT_KNOWN in known


def _cut(rows: Sequence[Row], rng: Random) -> list[Row]:
    """Leave out a node, the oldest boots and lines of others, and their newest, as removed or not published yet."""
    boots: dict[str, dict[int, list[Row]]] = {}
    for row in rows:
        boots.setdefault(row["node"], {}).setdefault(row["boot"], []).append(row)
    nodes = sorted(boots)
    left: list[Row] = []
    for node in rng.sample(nodes, len(nodes) - rng.randint(0, 1)):
        names = sorted(boots[node])
        first = rng.randrange(len(names))
        last = rng.randrange(first, len(names))
        for number in range(first, last + 1):
            lines = boots[node][names[number]]
            begin = rng.randrange(len(lines)) if number == first else 0
            end = rng.randrange(begin, len(lines)) + 1 if number == last else len(lines)
            left += lines[begin:end]
    return left


def test_a_node_that_tells_of_ends_alone_from_some_moment_on_proves_nothing_from_there() -> None:
    added = log("a", (0, "add"), (1, "other"))
    # Its clock was set forwards by minutes, which no line says; the job is there still.
    ends = log("a", (LATER_S, "ack", {"job_id": JOB.replace("0000", "ffff")}), boot=2, start_s=2)
    assert kinds.LOST not in found(added, ends)
    # It gave the job away, which no line says, either.
    given = log("a", (0, "add", {"retry_s": 0}), (1, "enqueue"))
    expired = log("b", (1, "replicate"), (TTL_S, "expire"), (LATER_S, "other"))
    assert found(given, ends, expired) == []
