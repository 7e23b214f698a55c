"""The client's commands: the words that are sent, what is refused before, and how replies and errors read."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from disqued.client import commands, replies
from disqued.client.commands import Command, ConnectionUse
from disqued.client.errors import (
    AccessDenied,
    BadReply,
    JobCancelled,
    NodeCrowded,
    NodeLeaving,
    NotReplicated,
    ServerError,
    UnknownJob,
    server_error,
)
from disqued.client.job import Job
from disqued.client.outcomes import Outcome
from disqued.client.policies import Setting, Slot, read_policy, read_slots
from disqued.client.values import encode_queues

ID = b"DI0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0SQ"
OLD_ID = b"D-0f0c644f-d3ccb51c2cedbd47fcb6f312-05a1"
OTHER = b"DI1f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0SQ"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (commands.add("mail", "to: ann"), b"ADDJOB mail to:_ann 5000"),
        (commands.add(b"mail", b"x", timeout=0.0001), b"ADDJOB mail x 1"),
        (
            commands.add("m", "x", timeout=timedelta(seconds=2), replicate=3, delay=1, retry=timedelta(minutes=1)),
            b"ADDJOB m x 2000 REPLICATE 3 DELAY 1 RETRY 60",
        ),
        (commands.add("m", "x", retry=0, ttl=60.0), b"ADDJOB m x 5000 RETRY 0 TTL 60"),
        (commands.add("m", "x", maxlen=5, asynchronous=True), b"ADDJOB m x 5000 MAXLEN 5 ASYNC"),
        (commands.add("m", "x", asynchronous=True, key="a key"), b"ADDJOB m x 5000 ASYNC KEY a_key"),
        (commands.add("m", "x", key=b"\xff"), b"ADDJOB m x 5000 KEY \xff"),
        (commands.add("m", "x", max_tries=5, keep_dead=60), b"ADDJOB m x 5000 MAXTRIES 5 KEEPDEAD 60"),
        (commands.add("m", "x", backoff=2), b"ADDJOB m x 5000 BACKOFF 2"),
        (commands.add("m", "x", backoff=(2, timedelta(minutes=1))), b"ADDJOB m x 5000 BACKOFF 2 60"),
        (
            commands.add("m", "x", key="k", result_ttl=60, headers={"a": "1", "b": b"\xff"}),
            b"ADDJOB m x 5000 RESULT 60 HEADER a 1 HEADER b \xff KEY k",
        ),
        (commands.add("grüße", "x"), "ADDJOB grüße x 5000".encode()),
        (commands.get("a", b"b"), b"GETJOB COUNT 1 FROM a b"),
        (commands.get("a", count=5, counters=True), b"GETJOB WITHCOUNTERS COUNT 5 FROM a"),
        (commands.get("a", counters=True, headers=True), b"GETJOB WITHCOUNTERS WITHHEADERS COUNT 1 FROM a"),
        (commands.get("a", nohang=True), b"GETJOB NOHANG COUNT 1 FROM a"),
        (commands.get("a", "b", count=5, ordered=True), b"GETJOB ORDERED COUNT 5 FROM a b"),
        (commands.ack(ID, OTHER), b"ACKJOB " + ID + b" " + OTHER),
        (commands.ack(OLD_ID.decode()), b"ACKJOB " + OLD_ID),
        (commands.fast_ack(ID), b"FASTACK " + ID),
        (commands.nack(Job(b"q", ID, b"x")), b"NACK " + ID),
        (commands.nack(ID, OTHER, delay=0, dead=True), b"NACK " + ID + b" " + OTHER + b" DELAY 0 DEAD"),
        (commands.nack(ID, delay=60, reason="no one"), b"NACK " + ID + b" DELAY 60 REASON no_one"),
        (commands.nack(ID, OTHER, untried=True), b"NACK " + ID + b" " + OTHER + b" UNTRIED"),
        (commands.ack(ID, result=""), b"ACKJOB " + ID + b" RESULT "),
        (commands.ack(ID, result="well"), b"ACKJOB " + ID + b" RESULT well"),
        (commands.working(ID), b"WORKING " + ID),
        (commands.working(ID, "half"), b"WORKING " + ID + b" PROGRESS half"),
        (commands.cancel(ID, OTHER), b"CANCEL " + ID + b" " + OTHER),
        (commands.wait_jobs([ID, OTHER]), b"WAITJOB " + ID + b" " + OTHER),
        (commands.wait_jobs(ID, any=True), b"WAITJOB ANY " + ID),
        (commands.outcome(ID), b"WAITJOB " + ID),
        (commands.redrive("q"), b"REDRIVE q"),
        (commands.redrive("q", ID, OTHER, count=5, rate=2), b"REDRIVE q COUNT 5 RATE 2 ID " + ID + b" " + OTHER),
        (commands.purge("q"), b"QPURGE q"),
        (commands.purge("q", states="dead"), b"QPURGE q STATE dead"),
        (commands.scan_jobs(states="queued", count=5), b"JSCAN 0 COUNT 5 STATE queued"),
        (
            commands.purge("q", states=["queued", "dead"], dry_run=True),
            b"QPURGE q STATE queued STATE dead DRYRUN",
        ),
        (commands.policy("q"), b"QPOLICY q GET"),
        (
            commands.set_policy(
                "q",
                replicate=2,
                retry=60,
                ttl=timedelta(hours=1),
                maxlen=9,
                max_tries=5,
                backoff=(10, 600),
                keep_dead=0,
                result_ttl=30,
            ),
            b"QPOLICY q SET REPLICATE 2 RETRY 60 TTL 3600 MAXLEN 9 MAXTRIES 5 BACKOFF 10 600 KEEPDEAD 0 RESULT 30",
        ),
        (commands.set_policy("q", fair=True), b"QPOLICY q SET FAIR"),
        (commands.set_policy("q", idle=timedelta(minutes=10)), b"QPOLICY q SET IDLE 600"),
        (commands.unset_policy("q", "fair"), b"QPOLICY q UNSET fair"),
        (commands.add("q", "b", group="acme"), b"ADDJOB q b 5000 GROUP acme"),
        (commands.throttle("q", 30), b"THROTTLE q 30"),
        (commands.throttle("q", 0.5), b"THROTTLE q 0.5"),
        (
            commands.add(
                "q", "b", delay=0.5, retry=timedelta(milliseconds=250), ttl=4.998765432101234, backoff=(0.1, 2.0)
            ),
            b"ADDJOB q b 5000 DELAY 0.5 RETRY 0.25 TTL 4.999 BACKOFF 0.1 2",
        ),
        (commands.add("q", "b", retry=1e-9, keep_dead=1.5), b"ADDJOB q b 5000 RETRY 0.001 KEEPDEAD 1.5"),
        (commands.nack(ID, delay=0.75), b"NACK " + ID + b" DELAY 0.75"),
        (commands.set_policy("q", ttl=0.5, rate=(3, 0.5)), b"QPOLICY q SET TTL 0.5 RATE 3 PER 0.5"),
        (
            commands.set_schedule("s", "q", "b", every=1.5, jitter=0.5),
            b"SCHEDULE SET s EVERY 1.5 QUEUE q BODY b JITTER 0.5",
        ),
        (commands.throttle("q", timedelta(minutes=1), group="acme"), b"THROTTLE q 60 GROUP acme"),
        (
            commands.set_policy("q", in_flight=5, group_in_flight=1, rate=(10, 1), partition="available"),
            b"QPOLICY q SET INFLIGHT 5 GROUPINFLIGHT 1 RATE 10 PER 1 PARTITION available",
        ),
        (
            commands.set_policy("q", rate=(10, timedelta(minutes=1), 50), group_rate=(1, 2, 3)),
            b"QPOLICY q SET RATE 10 PER 60 BURST 50 GROUPRATE 1 PER 2 BURST 3",
        ),
        (commands.unset_policy("q", "in_flight", "group_rate"), b"QPOLICY q UNSET inflight grouprate"),
        (commands.slots("q"), b"SLOTS q COUNT 100"),
        (
            commands.set_schedule("s", "q", "b", line="@daily", zone="UTC", skip_overlap=True, catch_up=0, jitter=5),
            b"SCHEDULE SET s @daily TZ UTC QUEUE q BODY b OVERLAP skip CATCHUP 0 JITTER 5",
        ),
        (
            commands.set_schedule(
                "s",
                "q",
                "b",
                every=timedelta(hours=1),
                replicate=2,
                retry=60,
                ttl=3_600,
                maxlen=9,
                asynchronous=True,
                max_tries=5,
                backoff=10,
                keep_dead=7,
                headers={"a": "x"},
                group="g",
            ),
            (
                b"SCHEDULE SET s EVERY 3600 QUEUE q BODY b REPLICATE 2 RETRY 60 TTL 3600 MAXLEN 9 ASYNC MAXTRIES 5"
                b" BACKOFF 10 KEEPDEAD 7 HEADER a x GROUP g"
            ),
        ),
        (commands.set_schedule("s", "q", "b", at=2_000_000_000), b"SCHEDULE SET s AT 2000000000 QUEUE q BODY b"),
        (commands.schedule("s"), b"SCHEDULE GET s"),
        (commands.schedules(), b"SCHEDULE LIST *"),
        (commands.delete_schedule("s"), b"SCHEDULE DEL s"),
        (commands.pause_schedule("s"), b"SCHEDULE PAUSE s"),
        (commands.resume_schedule("s"), b"SCHEDULE RESUME s"),
        (commands.fire_schedule("s"), b"SCHEDULE FIRE s"),
        (commands.next_of_schedule("s", 3), b"SCHEDULE NEXT s 3"),
        (commands.unset_policy("q", "max_tries", "ttl"), b"QPOLICY q UNSET maxtries ttl"),
        (commands.qpeek("q", 5, dead=True), b"QPEEK q 5 DEAD"),
        (commands.scan_jobs(states=["dead"]), b"JSCAN 0 COUNT 100 STATE dead"),
        (commands.enqueue(ID), b"ENQUEUE " + ID),
        (commands.dequeue(ID), b"DEQUEUE " + ID),
        (commands.delete(ID), b"DELJOB " + ID),
        (commands.show(ID), b"SHOW " + ID),
        (commands.qlen("q"), b"QLEN q"),
        (commands.qpeek("q", -3), b"QPEEK q -3"),
        (commands.qstat("q"), b"QSTAT q"),
        (commands.qstat("q", full=True), b"QSTAT q FULL"),
        (commands.pause("q"), b"PAUSE q all"),
        (commands.pause("q", "in", node=True), b"PAUSE q none in node"),
        (commands.pause("q", reason="deploy"), b"PAUSE q all REASON deploy"),
        (commands.pause("q", "out"), b"PAUSE q none out"),
        (commands.scan_queues(b"7", minlen=0, maxlen=9), b"QSCAN 7 COUNT 100 MINLEN 0 MAXLEN 9"),
        (
            commands.scan_jobs(queue="q", states=["queued", "active"], count=5),
            b"JSCAN 0 COUNT 5 QUEUE q STATE queued STATE active",
        ),
        (commands.hello(), b"HELLO"),
        (commands.info(), b"INFO"),
        (commands.info("jobs"), b"INFO jobs"),
        (commands.call("CLIENT", b"SETNAME", "x", 3), b"CLIENT SETNAME x 3"),
    ],
)
def test_a_command_is_sent_as_these_words(command: Command, words: bytes) -> None:
    assert b" ".join(word.replace(b" ", b"_") for word in command.words) == words


def test_a_body_of_any_bytes_is_sent_as_it_is() -> None:
    body = bytes(range(256))
    assert commands.add("q", body).words[2] == body


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: commands.add("q", 3), "body is 3, and has to be bytes or text"),
        (lambda: commands.add(None, "x"), "queue is None"),
        (lambda: commands.add("q", "x", retry=-0.0001), "retry is -0.0001 seconds; 0 to 2147483647 are allowed"),
        (lambda: commands.add("q", "x", retry=-1), "retry is -1 seconds"),
        (lambda: commands.add("q", "x", ttl=0), "ttl is 0 seconds; 0.001 to 2147483647 are allowed"),
        (lambda: commands.add("q", "x", delay=2**31), "delay is 214748364"),
        (lambda: commands.add("q", "x", delay="5"), "delay is '5', and has to be a number of seconds or a timedelta"),
        (lambda: commands.add("q", "x", delay=True), "delay is True"),
        (lambda: commands.add("q", "x", delay=float("nan")), "delay is nan"),
        (lambda: commands.add("q", "x", timeout=0), "timeout is 0 seconds; more than 0"),
        (lambda: commands.add("q", "x", replicate=0), "replicate is 0; a whole number from 1 to 65535"),
        (lambda: commands.add("q", "x", maxlen=1.5), "maxlen is 1.5"),
        (lambda: commands.add("q", "x", key=""), "a key of 0 bytes; 1 to 1024 are allowed"),
        (lambda: commands.add("q", "x", key="k" * 1_025), "a key of 1025 bytes"),
        (lambda: commands.add("q", "x", key=17), "key is 17, and has to be bytes or text"),
        (lambda: commands.add("q", "x", max_tries=0), "max_tries is 0; a whole number from 1 to 65535"),
        (lambda: commands.add("q", "x", backoff=0), "backoff is 0 seconds; 0.001 to 2147483647 are allowed"),
        (lambda: commands.add("q", "x", backoff=(1, 0.5)), r"backoff is \(1, 0.5\); the longest delay is at least"),
        (
            lambda: commands.add("q", "x", backoff=(60, 1)),
            r"backoff is \(60, 1\); the longest delay is at least the first",
        ),
        (
            lambda: commands.add("q", "x", backoff=(1, 2, 3)),
            r"backoff is \(1, 2, 3\); a delay, or a first and a longest",
        ),
        (lambda: commands.add("q", "x", keep_dead=-1), "keep_dead is -1 seconds"),
        (lambda: commands.add("q", "x", result_ttl=0), "result_ttl is 0 seconds; 0.001 to 2147483647 are allowed"),
        (lambda: commands.add("q", "x", headers={str(n): "" for n in range(17)}), "17 headers; at most 16"),
        (lambda: commands.add("q", "x", headers={"a": "x" * 8_192}), "headers of 8193 bytes; at most 8192"),
        (lambda: commands.add("q", "x", headers=[("a", "b")]), "headers are .*; a mapping of names"),  # type: ignore[arg-type]
        (lambda: commands.add("q", "x", retry=0, max_tries=2), "max_tries or backoff with retry 0"),
        (lambda: commands.add("q", "x", retry=timedelta(0), backoff=1), "max_tries or backoff with retry 0"),
        (lambda: commands.add("q", "x", retry=0, replicate=2), "replicate is 2 with retry 0; 1 is allowed"),
        (lambda: commands.add("q", "x", delay=60, ttl=60), "delay is 60; less than ttl is allowed: 60"),
        (lambda: commands.redrive("q", rate=1_000_001), "rate is 1000001; a whole number from 1 to 1000000 is allowed"),
        (lambda: commands.add("q", "x", headers={"": "x"}), "header name b''; 1 to 255 printable ASCII"),
        (lambda: commands.add("q", "x", headers={"ü": "x"}), "header name .*; 1 to 255 printable ASCII"),
        (lambda: commands.add("q", "x", headers={"a": 1}), "a header is 1, and has to be bytes or text"),
        (lambda: commands.add("q", "x", headers={"a": "", b"a": ""}), "a header is named as bytes and as text"),
        (lambda: commands.nack(ID, dead=True, untried=True), "untried goes alone, without delay, reason and dead"),
        (lambda: commands.nack(ID, delay=-0.5), "delay is -0.5 seconds; 0 to 2147483647 are allowed"),
        (lambda: commands.nack(ID, reason="x" * 1_025), "reason has 1025 bytes; at most 1024 are allowed"),
        (lambda: commands.working(ID, "x" * 1_025), "progress has 1025 bytes; at most 1024 are allowed"),
        (lambda: commands.ack(ID, OTHER, result="x"), "a result of 2 jobs; a result of one is allowed"),
        (lambda: commands.ack(ID, result=3), "result is 3, and has to be bytes or text"),
        (commands.cancel, "CANCEL without a job"),
        (lambda: commands.wait_jobs([]), "waiting for 0 jobs; 1 to 1000 are allowed"),
        (lambda: commands.wait_jobs([ID] * 1_001), "waiting for 1001 jobs"),
        (lambda: commands.outcome(ID, 0), "timeout is 0 seconds; more than 0"),
        (lambda: commands.redrive("q", count=0), "count is 0"),
        (lambda: commands.redrive("q", timeout=0), "timeout is 0 seconds; more than 0"),
        (lambda: commands.purge("q", states=["acked"]), "a state of 'acked'; wait-repl, active, queued and dead are"),
        (lambda: commands.set_policy("q"), "set_policy without a field"),
        (lambda: commands.set_policy("q", idle=9), "idle is 9 seconds; 10 to 2147483647 are allowed"),
        (lambda: commands.set_policy("q", in_flight=0), "in_flight is 0; a whole number from 1 to 10000"),
        (lambda: commands.set_policy("q", rate=(1,)), r"rate is \(1,\); jobs, seconds and perhaps the burst"),  # type: ignore[arg-type]
        (lambda: commands.set_policy("q", group_rate=(1, 0)), "group_rate is 0 seconds; 0.001 to 1000000 are"),
        (lambda: commands.set_policy("q", rate=(1, 1, 0)), "the burst of rate is 0; a whole number from 1"),
        (lambda: commands.set_policy("q", partition="no"), "a partition of 'no'; strict and available"),  # type: ignore[arg-type]
        (lambda: commands.slots("q", 0), "count is 0; a whole number from 1"),
        (lambda: commands.set_schedule("s", "q", "b"), "one of line, every and at is allowed"),
        (lambda: commands.set_schedule("s", "q", "b", every=5, at=5), "one of line, every and at is allowed"),
        (lambda: commands.set_schedule("s", "q", "b", line="* *"), "a line of .* five or six fields of cron"),
        (lambda: commands.set_schedule("s", "q", "b", every=0.5), "every is 0.5 seconds; 1 to 2147483647 are allowed"),
        (lambda: commands.set_schedule("s", "q", "b", every=5, zone="UTC"), "zone goes with line"),
        (lambda: commands.set_schedule("s", "q", "b", every=5, catch_up=1_001), "catch_up is 1001; a whole number"),
        (lambda: commands.set_schedule("", "q", "b", every=5), "a name of 0 bytes; 1 to 255 are allowed"),
        (lambda: commands.next_of_schedule("s", 0), "count is 0; a whole number from 1"),
        (lambda: commands.fire_schedule("n" * 256), "a name of 256 bytes; 1 to 255 are allowed"),
        (lambda: commands.set_policy("q", max_tries=0), "max_tries is 0; a whole number from 1 to 65535"),
        (lambda: commands.set_policy("q", ttl=0), "ttl is 0 seconds; 0.001 to 2147483647 are allowed"),
        (lambda: commands.add("q", "b", group=""), "a group of 0 bytes; 1 to 255 are allowed"),
        (lambda: commands.throttle("q", 86_401), "seconds is 86401 seconds; 0 to 86400 are allowed"),
        (lambda: commands.throttle("q", 1, group="g" * 256), "a group of 256 bytes; 1 to 255 are allowed"),
        (lambda: commands.unset_policy("q"), "unset_policy without a field"),
        (
            lambda: commands.unset_policy("q", "maxtries"),
            "a field of 'maxtries'; replicate, retry, ttl, maxlen, max_tries, backoff, keep_dead, result_ttl, fair",
        ),
        (commands.get, "no queue is named"),
        (lambda: commands.get("q", count=0), "count is 0"),
        (lambda: commands.get("q", timeout=-1), "timeout is -1 seconds"),
        (lambda: commands.get("q", timeout=1, nohang=True), "nohang does not wait"),
        (commands.ack, "ACKJOB without a job"),
        (lambda: commands.ack("nonsense"), "b'nonsense' is no job id"),
        (lambda: commands.ack(b"D" * 48), "is no job id"),
        (lambda: commands.pause("q", "none", reason="over"), "reason goes with in, out and all in the whole cluster"),
        (lambda: commands.pause("q", "in", reason="here", node=True), "reason goes with in, out and all"),
        (
            lambda: commands.set_policy("q", rate=(1, 1_000_001)),
            "rate is 1000001 seconds; 0.001 to 1000000 are allowed",
        ),
        (lambda: commands.set_policy("q", rate=5), "rate is 5; jobs, seconds and perhaps the burst"),  # type: ignore[arg-type]
        (lambda: commands.set_policy("q", retry=0, backoff=1), "max_tries or backoff with retry 0"),
        (lambda: commands.get(*["q"] * 1_100), "a command of 1108 words; at most 1024 are allowed, so name fewer"),
        (lambda: commands.pause("q", "off"), "a pause of 'off'; none, in, out, all and state are allowed"),
        (lambda: commands.scan_jobs(states=["done"]), "a state of 'done'"),
        (lambda: commands.qpeek("q", 2.0), "count is 2.0"),
        (commands.call, "at least one word"),
        (lambda: commands.call("X", 1.5), "a word is 1.5"),
    ],
)
def test_what_no_node_would_take_is_refused_before_it_is_sent(make: Callable[[], Command], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_only_adding_and_what_the_client_does_not_know_is_not_to_be_repeated() -> None:
    assert not commands.add("q", "x").repeatable
    assert not commands.call("X").repeatable
    assert not commands.purge("q").repeatable
    assert commands.purge("q", dry_run=True).repeatable
    assert commands.add("q", "x", retry_add=True).repeatable
    assert commands.add("q", "x", key="k").repeatable
    assert commands.call("X", repeatable=True).repeatable
    for command in (commands.ack(ID), commands.working(ID), commands.get("q"), commands.qlen("q"), commands.hello()):
        assert command.repeatable


def test_what_waits_goes_by_a_connection_of_its_own() -> None:
    assert (commands.get("q").lane, commands.get("q").waits) == (ConnectionUse.FETCH, None)
    assert (commands.get("q", timeout=2).lane, commands.get("q", timeout=2).waits) == (ConnectionUse.FETCH, 2)
    assert commands.get("q", nohang=True).lane is ConnectionUse.FETCH
    assert (commands.add("q", "x").lane, commands.add("q", "x").waits) == (ConnectionUse.ADD, 5)
    assert commands.working(ID).lane is ConnectionUse.QUICK
    assert commands.call("X", waits=3).lane is ConnectionUse.ADD
    for command in (commands.purge("q", timeout=9), commands.redrive("q", timeout=9)):
        assert (command.lane, command.waits, command.asking(9.0)) == (ConnectionUse.LONG, 9, command.words)


def test_a_fetch_is_asked_for_the_time_that_is_left() -> None:
    assert commands.get("q").asking(1.5) == (b"GETJOB", b"TIMEOUT", b"1500", b"COUNT", b"1", b"FROM", b"q")
    assert commands.get("q").asking(0.0)[2] == b"1", "0 would be for ever"
    assert commands.add("q", "x").asking(9.0) == commands.add("q", "x").words


def test_a_wait_for_progress_goes_on_until_there_is_another_one() -> None:
    command = commands.progress_or_outcome(commands.outcome(ID, 9), b"half", 3.0)
    assert command.asking(1.5) == (b"WAITJOB", b"1500", b"PROGRESS", ID)
    assert (command.lane, command.waits) == (ConnectionUse.WAIT, 3.0)
    assert command.waits_on is not None
    outcomes = [Outcome(ID, "pending", value) for value in (None, b"half", b"most")]
    assert [command.waits_on(each) for each in (*outcomes, Outcome(ID, "acked", b"half"))] == [True, True, False, False]


def test_what_is_said_of_jobs_goes_to_the_node_that_handed_them_out() -> None:
    here, there = (Job(b"q", id_, b"", node=node) for id_, node in ((ID, b"here"), (OTHER, b"there")))
    assert commands.ack(here).near == b"here"
    assert commands.ack(here, there).near == b""
    assert commands.ack(ID).near == b""


# Replies.


def test_the_policy_of_a_queue_is_read_by_the_names_of_arguments() -> None:
    rows = [
        [b"pause", b"in", b"n1", 7], [b"maxtries", b"5", b"n1", 7], [b"backoff", b"10 600", b"n2", 8],
        [b"result", b"30", b"n1", 9], [b"ttl", b"60", b"n1", 9], [b"backoff", b"3", b"n2", 8],
        [b"later", b"x y", b"", 1], [b"rate", b"10 PER 1 BURST 20", b"n1", 7], [b"partition", b"strict", b"n1", 7],
    ]  # fmt: skip
    found = read_policy(rows, b"")
    assert found == {
        "pause": Setting("in", b"n1", 7), "max_tries": Setting(5, b"n1", 7), "backoff": Setting((3,), b"n2", 8),
        "result_ttl": Setting(30, b"n1", 9), "ttl": Setting(60, b"n1", 9), "later": Setting("x y", b"", 1),
        "rate": Setting((10, 1, 20), b"n1", 7), "partition": Setting("strict", b"n1", 7),
    }  # fmt: skip
    assert read_policy(rows[:3], b"")["backoff"].value == (10, 600)
    slot = [b"id", b"acme", b"n1", 65, b"anna"]
    assert read_slots([slot], b"") == [Slot(b"id", b"acme", b"n1", 65, b"anna")]
    assert read_slots([[*slot[:4], None]], b"") == [Slot(b"id", b"acme", b"n1", 65, None)]
    for bad in ([slot[:3]], b"OK", [[*slot[:3], b"65", b"anna"]], [[*slot[:4], 1]]):
        with pytest.raises(BadReply):
            read_slots(bad, b"")
    for bad in ([[b"ttl", b"60", b"n1"]], [[b"ttl", 60, b"n1", 9]], b"OK", [b"ttl"]):
        with pytest.raises(BadReply):
            read_policy(bad, b"")


def test_jobs_read_with_and_without_counters() -> None:
    assert replies.read_jobs([[b"q", ID, b"x"]], b"n") == [Job(b"q", ID, b"x")]
    [job] = replies.read_jobs([[b"q", ID, b"x", b"nacks", 2, b"additional-deliveries", 1]], b"n")
    assert (job.nacks, job.additional_deliveries, job.tries, job.node) == (2, 1, 4, b"n")
    assert job.origin == b"0f0c644f"
    assert Job(b"q", OLD_ID, b"x").origin == b"0f0c644f"
    assert replies.read_jobs(None, b"n") == []


def test_jobs_read_with_their_headers_and_the_number_of_their_delivery() -> None:
    row = [
        b"q",
        ID,
        b"x",
        b"nacks",
        0,
        b"additional-deliveries",
        1,
        b"headers",
        [b"a", b"1", b"b", b"\xff"],
        b"attempt",
        7,
    ]
    [job] = replies.read_jobs([row], b"n")
    assert (job.headers, job.attempt, job.tries) == ({"a": b"1", "b": b"\xff"}, 7, 2)
    assert job.fencing_token == ID + b":7"
    [plain] = replies.read_jobs([[b"q", ID, b"x", b"headers", [], b"attempt", 1]], b"n")
    assert (plain.headers, plain.attempt) == ({}, 1)
    assert {job: 1}[job] == 1, "a job can be kept in a set, whatever its headers are"


def test_outcomes_read_as_what_became_of_jobs() -> None:
    rows = [[ID, b"acked", b"well", 1, b""], [OTHER, b"dead", None, 3, b"no \xff"]]
    assert replies.read_outcomes(rows, b"") == [
        Outcome(ID, "acked", b"well", 1, ""), Outcome(OTHER, "dead", None, 3, "no \ufffd"),
    ]  # fmt: skip
    assert replies.read_outcome(rows[:1], b"") == Outcome(ID, "acked", b"well", 1, "")
    assert replies.read_words([b"done", b"unknown"], b"") == ["done", "unknown"]


def test_descriptions_read_as_mappings() -> None:
    assert replies.read_facts([b"len", 2, b"pause", b"none"], b"") == {"len": 2, "pause": b"none"}
    assert replies.read_facts({b"len": 2}, b"") == {"len": 2}
    assert replies.read_facts(None, b"") is None


def test_spans_read_as_numbers_in_both_protocols() -> None:
    assert [replies.read_seconds(reply, b"") for reply in (60, 0.25, b"0.25")] == [60, 0.25, 0.25]
    shown = [b"retry", b"0.25", b"delay", 5, b"backoff", [b"0.5", 60], b"result", b"0.5", b"ttl", 9]
    assert replies.read_shown(shown, b"") == {
        "retry": 0.25, "delay": 5, "backoff": [0.5, 60], "result": b"0.5", "ttl": 9,
    }  # fmt: skip
    told = replies.read_schedule([b"ttl", b"9.5", b"result", 0, b"body", b"0.5"], b"")
    assert told == {"ttl": 9.5, "result": 0, "body": b"0.5"}
    assert replies.read_shown(None, b"") is None


def test_a_job_is_copied_with_fractions() -> None:
    terms = [b"max-tries", 2, b"backoff", [b"0.5", 60], b"keep-dead", b"1.5", b"keep-result", b"0.25"]
    facts = replies.read_shown(terms, b"")
    assert facts is not None
    words = commands.copy(Job(b"q", ID, b"x"), "dead", 0.5, facts).words
    assert b" ".join(words[3:]) == b"5000 TTL 0.5 MAXTRIES 2 BACKOFF 0.5 60 KEEPDEAD 1.5 RESULT 0.25"


def test_other_replies_read_as_what_they_are() -> None:
    assert replies.read_page([b"7", [b"a", b"b"]], b"") == (b"7", [b"a", b"b"])
    assert replies.read_word(b"none", b"") == "none"
    assert replies.read_info(b"# Server\r\nversion:1.0\r\nurl:http://x\r\n\r\n", b"") == {
        "version": "1.0",
        "url": "http://x",
    }
    told = replies.read_hello([1, b"a" * 40, [b"a" * 40, b"", b"7711", b"1"], [b"b" * 40, b"::1", b"7712", b"5"]], b"")
    assert told.id == b"a" * 40
    assert [(node.host, node.port, node.priority) for node in told.nodes] == [("", 7711, 1), ("::1", 7712, 5)]


@pytest.mark.parametrize(
    ("read", "reply"),
    [
        (replies.read_jobs, b"no array"),
        (replies.read_jobs, [[b"q", ID]]),
        (replies.read_jobs, [[b"q", ID, b"x", b"nacks"]]),
        (replies.read_jobs, [[b"q", ID, b"x", b"headers", [b"a"]]]),
        (replies.read_jobs, [[b"q", ID, b"x", b"attempt", b"1"]]),
        (replies.read_outcomes, [[ID, b"acked", 3, 1, b""]]),
        (replies.read_outcomes, [[ID, b"acked", b"x", 1]]),
        (replies.read_outcome, []),
        (replies.read_words, [3]),
        (replies.read_number, b"3"),
        (replies.read_seconds, b"soon"),
        (replies.read_seconds, None),
        (replies.read_bytes, 3),
        (replies.read_facts, [b"len"]),
        (replies.read_page, [b"0"]),
        (replies.read_hello, [2, b"a"]),
        (replies.read_hello, [1, b"a", [b"b", b"host", b"no port", b"1"]]),
        (replies.read_hello, [1, b"a", [b"b"]]),
        (replies.read_hello, {b"server": b"redis"}),
    ],
)
def test_a_reply_that_no_node_gives_is_told_as_such(read: Callable[[object, bytes], object], reply: object) -> None:
    with pytest.raises(BadReply):
        read(reply, b"")


# Errors.


@pytest.mark.parametrize(
    ("text", "kind", "word"),
    [
        ("NOREPL Not enough reachable nodes", NotReplicated, "NOREPL"),
        ("NOJOB Job not known", UnknownJob, "NOJOB"),
        ("LEAVING This node is leaving", NodeLeaving, "LEAVING"),
        ("NOAUTH Authentication required.", AccessDenied, "NOAUTH"),
        ("WRONGPASS invalid", AccessDenied, "WRONGPASS"),
        ("ERR invalid password", AccessDenied, "ERR"),
        ("ERR max number of clients reached", NodeCrowded, "ERR"),
        ("ERR unknown command 'X'", ServerError, "ERR"),
        ("unknown command 'X'", ServerError, "ERR"),
        ("CANCELLED Job was cancelled", JobCancelled, "CANCELLED"),
        ("BRANDNEW word", ServerError, "BRANDNEW"),
    ],
)
def test_an_error_has_its_class_and_its_word(text: str, kind: type[ServerError], word: str) -> None:
    error = server_error(text)
    assert type(error) is kind
    assert error.word == word
    assert str(error).endswith(text)


@pytest.mark.parametrize("name", ["mail", b"mail"])
def test_the_name_of_one_queue_is_no_list_of_letters(name: bytes | str) -> None:
    assert encode_queues(name) == encode_queues([name]) == (b"mail",)
    assert encode_queues(["mail", b"print"]) == (b"mail", b"print")
    with pytest.raises(ValueError, match="no queue is named"):
        encode_queues([])


@pytest.mark.parametrize(
    "make",
    [
        lambda: commands.pause("q", "in", reason="x\ny"),
        lambda: commands.pause("q", "in", reason=b"\xff"),
        lambda: commands.pause("q", "in", reason="x" * 1_025),
        lambda: commands.cancel(*[ID] * 1_024),
        lambda: commands.redrive("q", *[ID] * 1_022),
    ],
)
def test_what_no_node_takes_is_refused_before_it_is_sent(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"allowed|decode"):
        make()
    commands.cancel(*[ID] * 1_023)
    commands.redrive("q", *[ID] * 1_021)
