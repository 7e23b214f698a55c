"""The path of ADDJOB, GETJOB and ACKJOB takes no more work than it did, which is counted and not timed.

    bytes arrive at a socket, or the client's protocol --> ... --> bytes are written        benchmarks/work.py counts

A machine that is busy cannot fail this, and a call that was added to each command cannot pass.

What is counted is the source.  The compiled build has no such guard: nothing of it can be counted from outside.  It is
made of the same source, so that a call or a loop more is one more there as well; but what it costs there, and whether
the compiler has come to make something slower of the same lines, is seen by `python -m benchmarks` alone.

To renew the table, as a change is worth what it costs or has made something cheaper: run `python -m benchmarks.work`
with each of these versions of CPython, put what it prints here, and say why in the commit.  An interpreter that the
table does not have fails this until it has: what nobody counts is not held.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest

from benchmarks import work
from benchmarks.profile import SUBJECTS
from benchmarks.work import WAYS, Work, compiled_modules, measure
from disqued.core.node import Node
from disqued.core.work.replicas import Replicas
from disqued.net.cluster.linkqueue import LinkQueue, SharedTexts
from disqued.net.loop.handles import Handle
from disqued.persistence.aof.store import AofStore
from disqued.wire.eventlines import EventLines

#: {CPython: {(command, the way in which it comes): what one takes}}.  Each compiles the same source in its own way.
TABLE = {
    (3, 11): {
        ("addjob", "single"): Work(64.16, 1594.3),
        ("addjob", "pipelined"): Work(38.66, 1019.7),
        ("addjob", "journal"): Work(150.22, 2724.0),
        ("addjob", "sockets"): Work(70.78, 1666.6),
        ("addjob", "events"): Work(77.21, 1810.0),
        ("addjob", "copies"): Work(421.16, 8125.1),
        ("getjob", "single"): Work(48.00, 1068.0),
        ("getjob", "pipelined"): Work(30.38, 633.1),
        ("getjob", "journal"): Work(92.00, 1540.0),
        ("getjob", "sockets"): Work(54.69, 1172.8),
        ("getjob", "events"): Work(64.06, 1373.7),
        ("getjob", "copies"): Work(63.44, 1328.6),
        ("ackjob", "single"): Work(58.22, 1444.3),
        ("ackjob", "pipelined"): Work(34.78, 938.3),
        ("ackjob", "journal"): Work(141.22, 2510.3),
        ("ackjob", "sockets"): Work(64.91, 1549.2),
        ("ackjob", "events"): Work(74.27, 1754.0),
        ("ackjob", "copies"): Work(600.41, 11687.6),
    },
    (3, 12): {
        ("addjob", "single"): Work(64.16, 1508.0),
        ("addjob", "pipelined"): Work(38.66, 967.8),
        ("addjob", "journal"): Work(149.22, 2532.6),
        ("addjob", "sockets"): Work(70.78, 1570.0),
        ("addjob", "events"): Work(77.21, 1711.7),
        ("addjob", "copies"): Work(420.91, 7628.9),
        ("getjob", "single"): Work(48.00, 1009.0),
        ("getjob", "pipelined"): Work(30.38, 602.0),
        ("getjob", "journal"): Work(92.00, 1438.0),
        ("getjob", "sockets"): Work(54.69, 1103.5),
        ("getjob", "events"): Work(64.06, 1295.8),
        ("getjob", "copies"): Work(62.38, 1249.7),
        ("ackjob", "single"): Work(58.20, 1371.1),
        ("ackjob", "pipelined"): Work(34.76, 897.4),
        ("ackjob", "journal"): Work(140.20, 2334.1),
        ("ackjob", "sockets"): Work(64.88, 1465.6),
        ("ackjob", "events"): Work(74.25, 1661.9),
        ("ackjob", "copies"): Work(594.88, 10946.5),
    },
    (3, 13): {
        ("addjob", "single"): Work(64.16, 1527.0),
        ("addjob", "pipelined"): Work(38.66, 966.6),
        ("addjob", "journal"): Work(149.22, 2562.9),
        ("addjob", "sockets"): Work(70.78, 1587.3),
        ("addjob", "events"): Work(77.21, 1730.7),
        ("addjob", "copies"): Work(420.91, 7557.0),
        ("getjob", "single"): Work(48.00, 1046.0),
        ("getjob", "pipelined"): Work(30.38, 615.1),
        ("getjob", "journal"): Work(92.00, 1486.4),
        ("getjob", "sockets"): Work(54.69, 1137.7),
        ("getjob", "events"): Work(64.06, 1333.6),
        ("getjob", "copies"): Work(62.38, 1282.1),
        ("ackjob", "single"): Work(58.20, 1401.4),
        ("ackjob", "pipelined"): Work(34.76, 904.4),
        ("ackjob", "journal"): Work(140.20, 2369.8),
        ("ackjob", "sockets"): Work(64.88, 1493.1),
        ("ackjob", "events"): Work(74.25, 1693.0),
        ("ackjob", "copies"): Work(594.88, 10912.2),
    },
}
MORE_CALLS = 0.5  #: a command, so that one more in each is noticed
MORE_INSTRUCTIONS = 1.03  #: times as many: what a patch release of CPython may change
LESS = 0.9  #: times as many: what is cheaper than that is to be held, so that it does not slip back unseen
TERMS = (b"MAXTRIES", b"3", b"BACKOFF", b"1", b"60")
WITH_TERMS = 1.1  #: instructions of a command of a job with terms, as a multiple of those without
NOTED_DELIVERY = 1.5  #: the same of GETJOB with a journal, which hears of the delivery of such a job alone
RENEW = "see the head of this file for how to renew the table"

VERSION = sys.version_info[:2]
pytestmark = pytest.mark.reference
CASES = [(name, way) for name in SUBJECTS for way in WAYS]
#: What the check is tried on: each command in one way, and one command in each.
TRIED = [*((name, "pipelined") for name in SUBJECTS), *(("addjob", way) for way in WAYS if way != "pipelined")]


def said(name: str, way: str) -> Work:
    """What the table says for this interpreter; it has to say something."""
    rows = TABLE.get(VERSION, {})
    assert (name, way) in rows, f"the table does not have {name}, {way} for CPython {VERSION}; {RENEW}"
    return rows[name, way]


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


@pytest.mark.parametrize(("name", "way"), CASES)
def test_a_command_takes_no_more_work_than_the_table_says(tmp_path: Path, name: str, way: str) -> None:
    told = slips(said(name, way), measure(SUBJECTS[name], tmp_path, WAYS[way]))
    assert not told, f"{'; '.join(told)}; {RENEW}"


@pytest.mark.parametrize("way", [way for way in WAYS if way != "sockets"])
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_retry_limit_and_back_off_cost_a_tenth_at_most(tmp_path: Path, name: str, way: str) -> None:
    plain = measure(SUBJECTS[name], tmp_path, WAYS[way])
    found = measure(SUBJECTS[name], tmp_path, attrs.evolve(WAYS[way], terms=TERMS))
    most = NOTED_DELIVERY if (name, way) == ("getjob", "journal") else WITH_TERMS
    assert found.instructions <= plain.instructions * most, f"{found} with terms, {plain} without"


@pytest.mark.parametrize("version", sorted(TABLE))
def test_every_table_has_every_command(version: tuple[int, int]) -> None:
    assert list(TABLE[version]) == CASES


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_command_takes_no_more_work_with_many_other_jobs_and_queues(tmp_path: Path, name: str) -> None:
    told = slips(said(name, "pipelined"), measure(SUBJECTS[name], tmp_path, WAYS["pipelined"], 20_000))
    assert not [line for line in told if "hold what was won" not in line]


# The check notices what it is for.


@pytest.mark.parametrize(("name", "way"), TRIED)
def test_one_more_call_in_each_command_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    plain = Node.command

    def command(self: Node, client: Any, call: Any) -> Any:
        return plain(self, client, call)

    monkeypatch.setattr(Node, "command", command)
    told = slips(said(name, way), measure(SUBJECTS[name], tmp_path, WAYS[way]))
    assert "calls a command" in "".join(told)


@pytest.mark.parametrize(("name", "way"), TRIED)
def test_a_loop_in_each_command_is_noticed_though_it_calls_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    plain = Node.command
    # Each time takes two instructions at least.
    many: Iterable[int] = tuple(range(int(said(name, way).instructions / 25)))

    def command(self: Node, client: Any, call: Any) -> Any:
        for _ in many:
            pass
        return plain(self, client, call)

    monkeypatch.setattr(Node, "command", command)
    told = slips(said(name, way), measure(SUBJECTS[name], tmp_path, WAYS[way]))
    assert "instructions a command" in "".join(told)


@pytest.mark.parametrize(
    ("owner", "name", "way"),
    [
        (Handle, "send", "sockets"),
        (AofStore, "append", "journal"),
        (EventLines, "add", "events"),
        (LinkQueue, "_write", "copies"),
        (Replicas, "on_repljob", "copies"),
    ],
)
def test_one_more_call_behind_the_commands_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, way: str
) -> None:
    plain = getattr(owner, name)

    def wrapped(*given: Any) -> Any:
        return plain(*given)

    monkeypatch.setattr(owner, name, wrapped)
    told = slips(said("addjob", way), measure(SUBJECTS["addjob"], tmp_path, WAYS[way]))
    assert "calls a command" in "".join(told)


def test_a_copy_that_is_written_anew_for_each_node_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedTexts, "keep", lambda texts, waiting, text: None)
    told = slips(said("addjob", "copies"), measure(SUBJECTS["addjob"], tmp_path, WAYS["copies"]))
    assert "calls a command" in "".join(told)


@pytest.mark.parametrize("rows", [{}, {("addjob", "single"): Work(50, 1000)}])
def test_what_the_table_does_not_have_fails_and_says_how_to_renew_it(
    monkeypatch: pytest.MonkeyPatch, rows: dict[tuple[str, str], Work]
) -> None:
    monkeypatch.setitem(TABLE, (3, 99), rows)
    monkeypatch.setattr(sys.modules[__name__], "VERSION", (3, 99))
    with pytest.raises(AssertionError, match="for CPython \\(3, 99\\); see the head of this file for how to renew"):
        said("addjob", "copies")


def test_what_has_become_much_cheaper_is_to_be_held() -> None:
    assert slips(Work(50, 1000), Work(50, 1000)) == []
    assert slips(Work(50, 1000), Work(46, 950)) == []
    assert "hold what was won" in slips(Work(50, 1000), Work(44, 1000))[0]
    assert "hold what was won" in slips(Work(50, 1000), Work(50, 890))[0]


@pytest.mark.parametrize("way", WAYS)
def test_two_runs_count_the_same(tmp_path: Path, way: str) -> None:
    subject = SUBJECTS["addjob"]
    assert measure(subject, tmp_path, WAYS[way]) == measure(subject, tmp_path, WAYS[way])


def test_a_trace_and_a_profile_that_were_there_before_are_there_afterwards(tmp_path: Path) -> None:
    def trace(*_: Any) -> None:
        """Somebody else's."""

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    sys.setprofile(trace)
    try:
        measure(SUBJECTS["ackjob"], tmp_path, WAYS["pipelined"])
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
    monkeypatch.setattr(sys, "argv", ["work"])
    assert work.main() == 2
    assert "disqued.core.node" in capsys.readouterr().err
