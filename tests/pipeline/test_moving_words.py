"""What the verbs that move jobs say and refuse; no JVM is needed for that."""

import json
from typing import Any

import pytest

from disqued.pipeline.command import run
from disqued.pipeline.commands.doctor import _told
from disqued.pipeline.commands.tail import TailFilter, lines_of
from disqued.pipeline.jobs.doctor import POISON
from disqued.pipeline.moving import form_of

TO = ("--to", "/tmp/nowhere")
NODE = ("--address", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("consume", "--queues", "q", *TO), "the node is missing: --address HOST:PORT, or DISQUED_ADDRESS"),
        (("consume", "--queues", "q", *TO, *NODE, "--option", "x"), "--option 'x' is none of the source or sink"),
        (
            ("consume", "--queues", "q", *TO, *NODE, "--option", "leaseTime=5"),
            "the option leaseTime is for spark.readStream with group, not for",
        ),
        (
            ("consume", "--queues", "h*", *TO, *NODE),
            "the option queues cannot be 'h*': 'h*' is a pattern, and a stream needs the names",
        ),
        (("import", "--from", "x", *NODE, "--option", "delay=5"), "the option delay needs twoPhase = false"),
        (("export", *TO), "the node is missing"),
        (("export", *TO, "--records", "done", *NODE), "--records is told of stores: --from names one"),
        (
            ("export", *TO, "--from", "x", "--records", "all"),
            "the option records cannot be 'all'; allowed: jobs, added",
        ),
        (("export", *TO, "--from", "/no/such"), "--from: '/no/such' is not there, nor is a journal of that name"),
        (("import", "--from", "/no/such", "--as", "store", *NODE), "--from: '/no/such' is not there"),
        (("replay", "--from", "/no/such*", *NODE), "--from: nothing is called '/no/such*'"),
        (("tail", "--events", "/no/such"), "there is no folder /no/such: --events names the one with date=... in it"),
        (("import", "--from", "x.csv"), "the node is missing"),
        (("import", "--from", "x.csv", *NODE, "--option", "queues=q"), "the option queues is for spark.read"),
        (("replay", *NODE), "name the queues of dead jobs (--queues) and where they go (--to), or stores (--from)"),
        (
            ("replay", *NODE, "--queues", "a", "--to", "b", "--option", "twoPhase=false"),
            "the option twoPhase is for df.write or df.writeStream, not for a move from queue to queue; options for",
        ),
        (("replay", *NODE, "--queues", "a,b", "--to", "b"), "b is the queue that the jobs are taken from; --to is an"),
    ],
)
def test_what_cannot_be_is_said_before_spark_starts(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISQUED_ADDRESS", raising=False)
    monkeypatch.setattr("disqued.pipeline.run.spark_session", lambda *words: pytest.fail("Spark was started"))
    assert run(words) == 2
    assert capsys.readouterr().err.startswith(f"disqued-spark: {said}")


def test_the_form_of_files_is_seen_by_how_they_are_called() -> None:
    names = ("a.csv", "b/*.json", "c.jsonl", "d.parquet", "e")
    assert [form_of(name) for name in names] == ["csv", "json", "json", "parquet", None]


EVENT: dict[str, Any] = {
    "v": 1, "boot": 7, "seq": 3, "ts_us": 1_795_330_562_123_000, "event": "deliver", "job_id": "DI1", "scope": None,
    "queue": "mail", "attempt": 2, "wait_us": 1_500, "ttl_s": 60.0, "client": "127.0.0.1:9", "date": "d", "node": "ab",
}  # fmt: skip


def test_an_event_is_one_line_for_people_or_for_programs() -> None:
    [line] = lines_of([EVENT], as_json=False)
    assert line == ("2026-11-22T06:56:02.123Z ab deliver mail DI1 attempt=2 wait=0.0015s ttl=60s client=127.0.0.1:9\n")
    [bare] = lines_of([{"ts_us": 0, "event": "start", "node": "ab", "reason": "crash"}], as_json=False)
    assert bare == "1970-01-01T00:00:00.000Z ab start - - reason=crash\n"
    [text] = lines_of([EVENT], as_json=True)
    assert json.loads(text) == {name: value for name, value in EVENT.items() if value is not None}


def test_names_that_would_tell_a_terminal_something_or_end_a_line_are_written_so_that_they_print() -> None:
    queue = "a\x1b[2J\nforged\x9b\u2028\u202eü"
    event = {**EVENT, "queue": queue, "client": "\x07"}
    [line] = lines_of([event], as_json=False)
    assert r" deliver a\x1b[2J\nforged\x9b\u2028\u202eü DI1 " in line
    assert line.removesuffix("\n").isprintable()
    [text] = lines_of([event], as_json=True)
    assert text.removesuffix("\n").isprintable()
    assert json.loads(text)["queue"] == queue
    finding = {"kind": POISON, "queue": queue, "job_id": "DI\x1b", "count": 1, "since_us": 0, "detail": "x"}
    assert all(each.isprintable() for each in _told([finding]).splitlines())
    assert r"  a\x1b[2J\nforged\x9b\u2028\u202eü: 1 jobs" in _told([finding])


def test_events_are_chosen_by_patterns_of_queues() -> None:
    assert TailFilter().has({"queue": None})
    assert TailFilter(queues=("m*", "x")).has(EVENT)
    assert not TailFilter(queues=("mai", "*x")).has(EVENT)
    assert not TailFilter(queues=("m*",)).has({"queue": None})
