"""Who has a job, and who consumes a queue: SHOW and QCONSUMERS."""

from typing import Any

import attrs
import pytest

from disqued.commands.queue_consumers import ROW
from disqued.commands.table import BLOCKED
from tests.core_fixtures import Server, check
from tests.unit.core.work.test_deadletters import Disk


@attrs.frozen
class Named:
    """A client with a connection: its number, its address, and the name that it has given itself."""

    id: int
    name: bytes = b""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.id}"


ANN, BOB, EVE = Named(1, b"ann"), Named(2, b"bob"), Named(3)


class NumberedServer(Server):
    """A server whose clients have the numbers of their connections."""

    def __call__(self, *args: Any, client: Any = EVE) -> Any:
        self.node.begin(client)
        return self.run(*args, client=client)


@pytest.fixture
def server() -> Server:
    return NumberedServer()


def holder(server: Server, job_id: bytes) -> tuple[Any, Any] | None:
    """Who has a job, and for how long, as SHOW has it; None = the fields are not there."""
    shown = server.show(job_id)
    assert shown is not None
    assert ("consumer" in shown) == ("in-flight-for" in shown) == (shown["phase"] == b"in-flight")
    return (shown["consumer"], shown["in-flight-for"]) if "consumer" in shown else None


def rows(server: Server, queue: str = "q", *options: Any) -> list[dict[str, Any]]:
    """What QCONSUMERS answers, without what is empty; the numbers of clients belong to their names."""
    check(server)
    found = []
    for values in server("QCONSUMERS", queue, *options):
        row = dict(zip(map(bytes.decode, values[::2]), values[1::2], strict=True))
        assert tuple(row) == ROW
        assert row["client"] == {b"ann": 1, b"bob": 2, b"127.0.0.1:3": 3, None: 0}[row["consumer"]]
        assert row["address"] == (b"127.0.0.1:%d" % row["client"] if row["client"] else b"")
        del row["client"], row["address"]
        found.append({name: value for name, value in row.items() if value not in (None, b"", 0)})
    return found


def test_a_queue_without_consumers_has_no_rows(server: Server) -> None:
    assert server("QCONSUMERS", "q") == []
    server.add("q", "x")
    assert rows(server) == []


def test_two_named_clients_have_jobs_of_a_queue(server: Server) -> None:
    first, second, third = (server.add("q", body, "RETRY", 60) for body in "abc")
    server.get(client=ANN)
    server.advance(1_000)
    server.get(count=2, client=BOB)
    server.advance(500)
    assert holder(server, first) == (b"ann", 1_500)
    assert holder(server, second) == holder(server, third) == (b"bob", 500)
    assert rows(server) == [
        {"consumer": b"ann", "connected": 1, "jobs": 1, "oldest-for": 1_500},
        {"consumer": b"bob", "connected": 1, "jobs": 2, "oldest-for": 500},
    ]
    assert rows(server, "q", "COUNT", 1) == rows(server)[:1]
    server("ACKJOB", second, client=BOB)
    server("NACK", third, client=BOB)
    assert holder(server, third) is None
    assert rows(server) == [{"consumer": b"ann", "connected": 1, "jobs": 1, "oldest-for": 1_500}]


def test_a_client_without_a_name_is_known_by_its_address(server: Server) -> None:
    job_id = server.add("q", "x")
    server.get(client=EVE)
    assert holder(server, job_id) == (b"127.0.0.1:3", 0)


def test_one_that_waits_is_shown_before_and_after_it_has_something(server: Server) -> None:
    assert server("GETJOB", "FROM", "q", "other", client=ANN) is BLOCKED
    server.advance(700)
    assert server("GETJOB", "FROM", "q", client=BOB) is BLOCKED
    server.advance(300)
    ann, bob = ({"consumer": name, "connected": 1} for name in (b"ann", b"bob"))
    assert rows(server) == [ann | {"waiting-for": 1_000}, bob | {"waiting-for": 300}]
    assert rows(server, "other") == [ann | {"waiting-for": 1_000}]
    job_id = server.add("q", "x")
    assert holder(server, job_id) == (b"ann", 0)
    assert server("GETJOB", "FROM", "q", client=ANN) is BLOCKED
    server.advance(50)
    assert rows(server) == [ann | {"waiting-for": 50, "jobs": 1, "oldest-for": 50}, bob | {"waiting-for": 350}]
    server.gone(BOB)
    assert [row["consumer"] for row in rows(server)] == [b"ann"]


def test_what_a_client_has_that_is_gone_stays_with_it_until_its_time_is_over(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 5)
    server.get(client=ANN)
    server.gone(ANN)
    server.advance(1_000)
    assert holder(server, job_id) == (b"ann", 1_000)
    assert rows(server) == [{"consumer": b"ann", "jobs": 1, "oldest-for": 1_000}]
    assert ANN not in server.state.custody.consumers
    server.advance(4_000)
    assert holder(server, job_id) is None
    assert rows(server) == []
    server.get(client=BOB)
    assert holder(server, job_id) == (b"bob", 0)


def test_working_keeps_the_consumer_and_takes_up_a_job_that_nobody_is_known_to_have(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 60)
    server.get(client=ANN)
    server.advance(10)
    server("WORKING", job_id, client=BOB)
    assert holder(server, job_id) == (b"ann", 10)
    server("NACK", job_id, client=BOB)
    server("WORKING", job_id, client=BOB)
    assert holder(server, job_id) == (b"bob", 0)


def test_the_worker_that_has_a_job_is_named_and_has_a_row_of_its_own(server: Server) -> None:
    server("WORKER", "START", "ID", "press", client=ANN)
    mine, plain = server.add("q", "a"), server.add("q", "b")
    server("GETJOB", "NOHANG", "WORKER", "press", "FROM", "q", client=ANN)
    server.get(client=ANN)
    assert (holder(server, mine), holder(server, plain)) == ((b"press", 0), (b"ann", 0))
    ann = {"consumer": b"ann", "connected": 1, "jobs": 1}
    assert rows(server) == [ann | {"worker": b"press"}, ann]
    server("WORKER", "FAIL", "press")
    assert holder(server, mine) is None
    assert rows(server) == [ann]


def test_elements_of_a_list_are_with_who_popped_them(server: Server) -> None:
    server("RQ.PUSH", "q", "a", "b")
    server("RQ.POP", "q", client=ANN)
    server.advance(30)
    ann = {"consumer": b"ann", "connected": 1, "jobs": 1, "oldest-for": 30}
    assert rows(server) == [ann]
    server("RQ.RECOVER", "q", 1, 10, client=BOB)
    assert rows(server) == [{"consumer": b"bob", "connected": 1, "jobs": 1}]


def test_consumers_of_a_log_have_events_of_their_group(server: Server) -> None:
    server("QADD", "log", 600, "x")
    server("QGET", "log", "mailers", "EX", 60, client=ANN)
    server("QGET", "log", "auditors", "EX", 60, client=ANN)
    assert server("QGET", "log", "mailers", "EX", 60, "BLOCK", 100, client=BOB) is BLOCKED
    server.advance(20)
    ann, bob = ({"consumer": name, "connected": 1} for name in (b"ann", b"bob"))
    held = {"jobs": 1, "oldest-for": 20}
    assert rows(server, "log") == [
        ann | held | {"group": b"mailers"}, ann | held | {"group": b"auditors"},
        bob | {"group": b"mailers", "waiting-for": 20},
    ]  # fmt: skip
    server.advance(60_000)
    # The lease of the first group is over: who waits has the event now.
    assert (rows(server, "log")[0]["consumer"], rows(server, "log")[0]["group"]) == (b"bob", b"mailers")
    assert len(rows(server, "log")) == 1


def test_jobs_that_are_delivered_once_are_with_nobody_in_particular(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 0)
    server.get(client=ANN)
    assert holder(server, job_id) == (None, None)
    assert rows(server) == []


def test_after_a_restart_the_consumer_of_a_lease_is_not_known(server: Server) -> None:
    server("RQ.PUSH", "q", "x")
    server("RQ.POP", "q", client=ANN)
    (job,) = server.state.jobs
    again = Disk(server).restart(controlled=True)
    again.advance(100)
    assert holder(again, job.id) == (None, 100)
    assert rows(again) == [{"jobs": 1, "oldest-for": 100}]


def test_the_jobs_that_are_held_longest_are_named_with_their_consumers(server: Server) -> None:
    first, second, third, last = (server.add("q", body, "RETRY", 60) for body in "abcd")
    server.get(client=ANN)
    server.advance(1_000)
    server.get(count=2, client=BOB)
    server.advance(500)
    server.get(client=ANN)

    def named(*options: Any) -> list[Any]:
        return [row[row.index(b"held") + 1] for row in server("QCONSUMERS", "q", *options)]

    ids = [first, second, third, last]
    ann, bob = [[ids[0], 1_500, 1], [ids[3], 0, 1]], [[ids[1], 500, 1], [ids[2], 500, 1]]
    assert named("JOBS", 20) == [ann, bob]
    assert named("JOBS", 3) == [ann[:1], bob]
    assert named("JOBS", 1) == [ann[:1], []]
    assert named("JOBS", 20, "COUNT", 1) == [ann]


def test_the_events_that_are_held_longest_are_named_too(server: Server) -> None:
    event_id = server("QADD", "log", 600, "x")
    server("QGET", "log", "mailers", "EX", 60, client=ANN)
    server.advance(20)
    ((*_, name, held),) = server("QCONSUMERS", "log", "JOBS", 5)
    assert (name, held) == (b"held", [[event_id, 20, 1]])


def test_very_many_jobs_are_counted_bit_by_bit(server: Server) -> None:
    for number in range(6_000):
        server.add("q", str(number))
    for _ in range(3):
        server.get(count=2_000, client=ANN)
    assert server("QCONSUMERS", "q", client=BOB) is BLOCKED
    server.advance(100)
    ((row,),) = server.answers[BOB]
    assert row[row.index(b"jobs") + 1] == 6_000


@pytest.mark.parametrize("count", ["0", "x"])
def test_how_many_are_shown_has_to_be_a_number_in_its_range(server: Server, count: str) -> None:
    assert server.refusal("QCONSUMERS", "q", "COUNT", count).startswith("ERR")


def test_how_many_jobs_are_named_is_a_number_that_is_not_negative(server: Server) -> None:
    error = "ERR JOBS must not be negative - allowed are whole numbers"
    assert server.refusal("QCONSUMERS", "q", "JOBS", "-1") == error
    assert server("QCONSUMERS", "q", "JOBS", "9" * 12) == []


def test_the_jobs_of_one_client_are_listed_by_its_number(server: Server) -> None:
    one, two, three = (server.add(queue, queue, "RETRY", 60) for queue in ("a", "b", "c"))
    for queue, client in (("a", ANN), ("b", BOB), ("c", ANN)):
        server.get(queue, client=client)

    def ids(number: int) -> list[bytes]:
        return [process.partition(b":")[0] for process, *_ in server("WQ.PROCS", "CLIENT", number)]

    assert ids(ANN.id) == [one, three]
    assert ids(BOB.id) == [two]
    assert ids(EVE.id) == []
    assert server.refusal("WQ.PROCS", "CLIENT", 0) == (
        "ERR CLIENT is the number of a client - allowed are whole numbers from 1"
    )
