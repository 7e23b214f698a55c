"""The path of ADDJOB, GETJOB and ACKJOB takes no more work than it did, which is counted and not timed.

    bytes arrive at the client protocol --> ... --> bytes are written        benchmarks/work.py counts

A machine that is busy cannot fail this, and a call that was added to each command cannot pass.

To renew the table, as a change is worth what it costs or has made something cheaper: run `python -m benchmarks.work`
with each of these versions of CPython, put what it prints here, and say why in the commit.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import work
from benchmarks.profile import SUBJECTS
from benchmarks.work import PIPELINES, Work, compiled_modules, measure
from disqued.core.node import Node

#: {CPython: {(command, commands in a chunk): what one of them takes}}.  Each compiles the same source in its own way.
TABLE = {
    (3, 11): {
        ("addjob", 1): Work(67.08, 1296.2),
        ("addjob", 16): Work(40.52, 791.9),
        ("getjob", 1): Work(63.00, 1062.0),
        ("getjob", 16): Work(36.50, 587.4),
        ("ackjob", 1): Work(62.03, 1077.1),
        ("ackjob", 16): Work(38.47, 652.6),
    },
    (3, 12): {
        ("addjob", 1): Work(67.08, 1220.0),
        ("addjob", 16): Work(40.52, 748.4),
        ("getjob", 1): Work(60.00, 989.0),
        ("getjob", 16): Work(33.50, 547.0),
        ("ackjob", 1): Work(61.03, 999.9),
        ("ackjob", 16): Work(37.47, 604.1),
    },
    (3, 13): {
        ("addjob", 1): Work(67.08, 1226.0),
        ("addjob", 16): Work(40.52, 730.7),
        ("getjob", 1): Work(60.00, 1023.0),
        ("getjob", 16): Work(33.50, 554.0),
        ("ackjob", 1): Work(61.03, 1040.0),
        ("ackjob", 16): Work(37.47, 617.3),
    },
}
MORE_CALLS = 0.5  #: a command, so that one more in each is noticed
MORE_INSTRUCTIONS = 1.03  #: times as many: what a patch release of CPython may change
LESS = 0.9  #: times as many: what is cheaper than that is to be held, so that it does not slip back unseen
RENEW = "see the head of this file for how to renew the table"

VERSION = sys.version_info[:2]
pytestmark = [
    pytest.mark.reference,
    pytest.mark.skipif(VERSION not in TABLE, reason=f"there is no table for CPython {VERSION}; {RENEW}"),
]
CASES = [(name, pipeline) for name in SUBJECTS for pipeline in PIPELINES]


def slips(expected: Work, found: Work) -> list[str]:
    """What is not as the table says."""
    told = []
    if found.calls > expected.calls + MORE_CALLS:
        told.append(f"{found.calls:.2f} calls a command, the table has {expected.calls:.2f}")
    if found.instructions > expected.instructions * MORE_INSTRUCTIONS:
        told.append(f"{found.instructions:.1f} instructions a command, the table has {expected.instructions:.1f}")
    if found.calls < expected.calls * LESS or found.instructions < expected.instructions * LESS:
        told.append(f"{found} is less than a tenth below {expected}: hold what was won")
    return told


@pytest.mark.parametrize(("name", "pipeline"), CASES)
def test_a_command_takes_no_more_work_than_the_table_says(tmp_path: Path, name: str, pipeline: int) -> None:
    told = slips(TABLE[VERSION][name, pipeline], measure(SUBJECTS[name], tmp_path, pipeline))
    assert not told, f"{'; '.join(told)}; {RENEW}"


@pytest.mark.parametrize("version", sorted(TABLE))
def test_every_table_has_every_command(version: tuple[int, int]) -> None:
    assert list(TABLE[version]) == CASES


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_command_takes_no_more_work_with_many_other_jobs_and_queues(tmp_path: Path, name: str) -> None:
    told = slips(TABLE[VERSION][name, 16], measure(SUBJECTS[name], tmp_path, 16, others=20_000))
    assert not [line for line in told if "hold what was won" not in line]


# The check notices what it is for.


@pytest.mark.parametrize(("name", "pipeline"), CASES)
def test_one_more_call_in_each_command_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, pipeline: int
) -> None:
    plain = Node.command

    def command(self: Node, client: Any, call: Any) -> Any:
        return plain(self, client, call)

    monkeypatch.setattr(Node, "command", command)
    told = slips(TABLE[VERSION][name, pipeline], measure(SUBJECTS[name], tmp_path, pipeline))
    assert "calls a command" in "".join(told)


@pytest.mark.parametrize(("name", "pipeline"), CASES)
def test_a_loop_in_each_command_is_noticed_though_it_calls_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, pipeline: int
) -> None:
    plain = Node.command
    twenty: Iterable[int] = tuple(range(20))

    def command(self: Node, client: Any, call: Any) -> Any:
        for _ in twenty:
            pass
        return plain(self, client, call)

    monkeypatch.setattr(Node, "command", command)
    told = slips(TABLE[VERSION][name, pipeline], measure(SUBJECTS[name], tmp_path, pipeline))
    assert "instructions a command" in "".join(told)


def test_what_has_become_much_cheaper_is_to_be_held() -> None:
    assert slips(Work(50, 1000), Work(50, 1000)) == []
    assert slips(Work(50, 1000), Work(46, 950)) == []
    assert "hold what was won" in slips(Work(50, 1000), Work(44, 1000))[0]
    assert "hold what was won" in slips(Work(50, 1000), Work(50, 890))[0]


def test_two_runs_count_the_same(tmp_path: Path) -> None:
    subject = SUBJECTS["addjob"]
    assert measure(subject, tmp_path, 16) == measure(subject, tmp_path, 16)


def test_a_trace_and_a_profile_that_were_there_before_are_there_afterwards(tmp_path: Path) -> None:
    def trace(*_: Any) -> None:
        """Somebody else's."""

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    sys.setprofile(trace)
    try:
        measure(SUBJECTS["ackjob"], tmp_path, 16)
        found = sys.gettrace(), sys.getprofile()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    assert found == (trace, trace)


def test_a_module_that_is_compiled_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = sys.modules[Node.__module__]
    monkeypatch.setattr(module, "__file__", "/lib/disqued/core/node.cpython-311-x86_64-linux-gnu.so")
    assert compiled_modules() == ["disqued.core.node"]
    assert work.main() == 2
    assert "disqued.core.node" in capsys.readouterr().err
