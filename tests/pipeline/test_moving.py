"""The verbs that move jobs, with Spark and real daemons; what is done twice, and what is killed on the way."""

import base64
import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from disqued.core.model.outbox import GONE_EXPIRED, JOB_GONE, UNIT_DONE
from disqued.pipeline import command
from disqued.pipeline.commands.consume import Consumption
from disqued.pipeline.connector.mover import QueueMover
from disqued.pipeline.files import locked
from tests import journals
from tests.integration.daemon import HOST, Daemon

Move = Callable[..., list[str]]


@pytest.fixture
def move(spark: SparkSession, daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> Move:
    """Run a verb against the daemon; what it says on stdout, and on stderr."""

    def run(*words: object, node: bool = True, status: int = 0) -> list[str]:
        address = ("--address", f"{HOST}:{daemon.port}") if node else ()
        ended = command.run([str(word) for word in (*words, *address)])
        said = capsys.readouterr()
        assert ended == status, said.err
        return (said.out + said.err).splitlines()

    return run


def bodies_in(spark: SparkSession, folder: Path, form: str = "parquet") -> list[str]:
    rows = spark.read.format(form).load(str(folder)).selectExpr("string(body) body").collect()
    return sorted(row.body for row in rows)


def waiting(daemon: Daemon, queue: str) -> list[str]:
    return sorted(job[2] for job in daemon.call("QPEEK", queue, 1_000))


def fill(daemon: Daemon, queue: str, count: int) -> list[str]:
    return [daemon.call("ADDJOB", queue, f"{number:02}", 0) for number in range(count)]


def left(daemon: Daemon, queue: str) -> list[str]:
    return daemon.call("JSCAN", 0, "COUNT", 1_000, "QUEUE", queue, "STATE", "queued", "STATE", "active")[1]


def test_a_batch_that_fails_on_its_way_into_a_folder_is_there_once_in_the_end(
    move: Move, spark: SparkSession, daemon: Daemon, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        daemon.call("QADD", queue, 500, f"{number:02}")
    words = ("consume", "--queues", queue, "--group", "g", "--to", tmp_path / "out", "--option", "maxJobsPerTrigger=15")
    take = Consumption.take

    def take_and_die(self: Consumption, jobs: Any, number: int) -> None:
        take(self, jobs, number)
        raise KeyError("killed")

    monkeypatch.setattr(Consumption, "take", take_and_die)
    move(*words, status=2)
    monkeypatch.undo()
    assert f"done: 20 jobs are in {tmp_path / 'out'}" in move(*words)[-1]
    assert bodies_in(spark, tmp_path / "out") == [f"{number:02}" for number in range(20)]
    assert sorted(path.name for path in (tmp_path / "out").glob("*batch=*")) == ["batch=00000000", "batch=00000001"]
    assert daemon.call("QGET", queue, "g") is None, "all is acknowledged"
    shutil.rmtree(tmp_path / "out" / "_checkpoint")
    assert "has batches, but not what is known of them" in move(*words, status=2)[-1]


def test_a_folder_is_filled_by_one_run_from_one_source(move: Move, daemon: Daemon, queue: str, tmp_path: Path) -> None:
    fill(daemon, queue, 2)
    export, to = tmp_path / "export", tmp_path / "to"
    words = ("consume", "--queues", queue, "--to")
    move("export", "--queues", queue, "--to", export)
    assert "has something else in it (" in move(*words, export, status=2)[-1]
    assert "is a file: --to names a folder" in move(*words, export / "_SUCCESS", status=2)[-1]
    move(*words, to)
    assert "is there, and is no export (" in move("export", "--queues", queue, "--to", to, "--overwrite", status=2)[-1]
    assert (
        "was filled without --group, and cannot go on with --group g" in move(*words, to, "--group", "g", status=2)[-1]
    )
    with locked(to / "_consume.lock"):
        assert "another run of consume is at work" in move(*words, to, status=2)[-1]
    assert "done: 0 jobs" in move(*words, to)[-1]


def test_what_can_be_mended_is_told_in_one_line(move: Move, queue: str, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("name,body\nann,hello\nbob,\n")
    words = ("import", "--quiet", "--queue", queue, "--from")
    for more, said in (
        (("/nope.csv",), "Path does not exist: file:/nope.csv"),
        ((table,), "--body text says that they are text"),
        ((table, "--as", "parquet"), "table.csv is not a Parquet file"),
        ((table, "--body", "text"), "a row has no body or no queue"),
        ((table, "--body", "text", "--checkpoint", tmp_path / "state"), "is a file: with --checkpoint"),
    ):
        [line] = move(*words, *more, status=2)
        assert line.startswith("disqued-spark: ")
        assert said in line
    [line] = move("export", "--quiet", "--queues", queue, "--to", "/proc/zz", status=2)
    assert "Mkdirs failed" in line
    for verb in (
        ("export",),
        ("consume", "--queues", "q"),
        ("import", "--from", table, "--queue", "q", "--body", "text"),
    ):
        to = () if verb[0] == "import" else ("--to", tmp_path / verb[0])
        [line] = move(*verb, *to, "--quiet", "--address", "127.0.0.1:1", node=False, status=2)
        assert line.startswith("disqued-spark: no node that the option address names can be reached")


def test_what_is_exported_can_be_imported_and_twice_is_once(
    move: Move, daemon: Daemon, queue: str, tmp_path: Path
) -> None:
    bodies = [b"plain", b'com,ma "quoted"\nline', b"\xff\x00", "\N{SNOWMAN}".encode(), b""]
    for body in bodies:
        daemon.call("ADDJOB", queue, body, 0)
    for form in ("csv", "json"):
        export = ("export", "--queues", queue, "--to", tmp_path / form, "--as", form)
        assert f"done: 5 rows are in {tmp_path / form}" in move(*export)[-1]
        said = move("import", "--from", tmp_path / form, "--as", form, "--queue", f"{queue}-{form}")
        assert "done: 5 jobs were added, or were there already" in said[-1]
        with daemon.redis(decode_responses=False) as client:
            found = [job[2] for job in client.execute_command("QPEEK", f"{queue}-{form}", 100)]
        assert sorted(found) == sorted(bodies)
    assert daemon.call("QLEN", queue) == 5, "nothing is taken out of a queue"
    assert "--overwrite lets this export take its place" in move(*export, status=2)[-1]
    daemon.call("ADDJOB", queue, "new", 0)
    assert "done: 6 rows" in move(*export, "--overwrite")[-1]
    move("import", "--from", tmp_path / "json", "--as", "json", "--queue", f"{queue}-json")
    assert daemon.call("QLEN", f"{queue}-json") == 6, "those that were there are not added again"


TEXTS = (
    "", " ", "  a", "a \t", '"', '""', '"a"', '","', "\\", '\\"', '"\\', "\\N", "\\\\N", "a\nb", "a\r\nb", "\r", "\n",
    "\r\n", "null", "#", "'", "\x00", "\x00a", "\ufeff", "\N{SNOWMAN}",
)  # fmt: skip


def test_whatever_is_in_bodies_and_names_of_queues_comes_back_as_it_was(
    move: Move, daemon: Daemon, queue: str, tmp_path: Path
) -> None:
    names = ["", "\\", "\\\\", "\\xff", "\\N", ' , "', "a\r\nb ", "\N{SNOWMAN}"]
    queues = [*(f"{queue}{name}".encode() for name in names), f"{queue}".encode() + b"\xff"]
    with daemon.redis(decode_responses=False) as client:
        for number, name in enumerate(queues):
            client.execute_command("ADDJOB", name, b"body %d" % number, 0)
        for text in TEXTS:
            client.execute_command("ADDJOB", queue, text.encode(), 0)
        before = {name: sorted(job[2] for job in client.execute_command("QPEEK", name, 100)) for name in queues}
        forms = (("csv", "text"), ("csv", "base64"), ("json", "text"), ("parquet", "base64"))
        for form, body in forms:
            move("export", "--queues", f"{queue}*", "--to", tmp_path / f"{form}-{body}", "--as", form, "--body", body)
        for times, (form, body) in enumerate(forms, 2):
            words = ("--from", tmp_path / f"{form}-{body}", "--as", form, "--body", body, "--name", f"{form}-{body}")
            move("import", *words)
            for name in queues:
                after = sorted(job[2] for job in client.execute_command("QPEEK", name, 1_000))
                assert after == sorted(before[name] * times), (form, body, name)


@pytest.mark.parametrize(
    ("form", "body"),
    [
        *((form, body) for form in ("csv", "json") for body in ("text", "base64")),
        ("parquet", "base64"),
        ("store", "text"),
    ],
)
def test_headers_and_groups_come_back_as_they_were(
    move: Move, start: Callable[..., Daemon], daemon: Daemon, queue: str, tmp_path: Path, form: str, body: str
) -> None:
    other = start("--persistence", "aof", "--appendfsync", "always", directory=tmp_path / "data")
    given: dict[str, list[Any]] = {
        "none": [],
        "one": ["HEADER", "size", "32"],
        "two": ["HEADER", "size", "", "HEADER", "traceparent", 'a,b\n"c"'],
    }
    for name, words in given.items():
        other.call("ADDJOB", queue, name, 0, *words, *(("GROUP", f"of {name}\\") if words else ()))
    path = tmp_path / "data" if form == "store" else tmp_path / "out"
    words = ("--as", form, "--body", body)
    if form != "store":
        move("export", "--queues", queue, "--to", path, "--address", f"{HOST}:{other.port}", *words, node=False)
    move("import", "--from", path, *words)
    waiting = {job[2]: daemon.call("SHOW", job[1]) for job in daemon.call("QPEEK", queue, 9)}
    groups = {name: dict(zip(told[::2], told[1::2], strict=True)).get("group") for name, told in waiting.items()}
    assert groups == {"none": None, "one": "of one\\", "two": "of two\\"}
    found = {job[2]: job for job in daemon.call("GETJOB", "COUNT", 9, "WITHHEADERS", "FROM", queue)}
    assert {name: found[name][4] for name in found} == {name: words[1:3] + words[4:] for name, words in given.items()}


@pytest.mark.parametrize("form", ["csv", "json"])
def test_files_say_why_jobs_died(move: Move, daemon: Daemon, queue: str, tmp_path: Path, form: str) -> None:
    job_id = daemon.call("ADDJOB", queue, "x", 0, "MAXTRIES", 2)
    for reason in ("no host", 'no "road", a\\b'):
        daemon.call("GETJOB", "FROM", queue)
        daemon.call("NACK", job_id, "REASON", reason)
    move("export", "--queues", queue, "--option", "states=dead", "--to", tmp_path / "out", "--as", form)
    [part] = (tmp_path / "out").glob(f"part-*.{form}")
    with part.open(newline="") as file:
        [row] = csv.DictReader(file) if form == "csv" else map(json.loads, file)
    assert (row["state"], row["id"]) == ("dead", job_id)
    failures = json.loads(row["failures"]) if form == "csv" else row["failures"]
    assert [one["reason"] for one in failures] == ["no host", 'no "road", a\\\\b']
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", failures[0]["at"])


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ("dear", "the column headers is no JSON object"),
        ([1], "the column headers is array<bigint>; allowed: a map, an object of JSON, or its text"),
        ({"size": "ann!"}, "is no base64"),
    ],
)
def test_headers_that_are_none_end_the_import(
    move: Move, daemon: Daemon, queue: str, tmp_path: Path, headers: Any, said: str
) -> None:
    (tmp_path / "mails.json").write_text(json.dumps({"body": "YW5u", "headers": headers}) + "\n")
    words = ("import", "--from", tmp_path / "mails.json", "--as", "json", "--queue", queue)
    assert said in move(*words, status=2)[-1]
    assert not left(daemon, queue)


def test_rows_without_a_key_are_told_apart_by_what_is_in_them(
    move: Move, daemon: Daemon, queue: str, tmp_path: Path
) -> None:
    (tmp_path / "mails.csv").write_text(f"queue,body\n{queue},ann\n{queue},bob\n{queue},ann\n")
    for _ in range(2):
        move("import", "--from", tmp_path / "mails.csv", "--body", "text")
    assert waiting(daemon, queue) == ["ann", "ann", "bob"]
    (tmp_path / "mails.csv").write_text("name\nann\n")
    assert (
        "the column body is missing; there are name" in move("import", "--from", tmp_path / "mails.csv", status=2)[-1]
    )


@pytest.mark.parametrize("body", ["hello ann", "ann!", "YW5u=", "YW5", "=", "YW\N{EM DASH}u"])
def test_a_body_that_is_no_base64_ends_the_import(
    move: Move, daemon: Daemon, queue: str, tmp_path: Path, body: str
) -> None:
    (tmp_path / "mails.json").write_text(json.dumps({"body": body}) + "\n")
    words = ("import", "--from", tmp_path / "mails.json", "--as", "json", "--queue", queue)
    assert "is no base64" in move(*words, status=2)[-1]
    assert not left(daemon, queue)


def test_base64_may_be_broken_into_lines(move: Move, daemon: Daemon, queue: str, tmp_path: Path) -> None:
    body = base64.encodebytes(b"ann" * 100).decode()
    assert body.count("\n") > 1
    rows = ({"body": body}, {"body": body.replace("\n", "\r\n")}, {"body": ""})
    (tmp_path / "mails.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    move("import", "--from", tmp_path / "mails.json", "--as", "json", "--queue", queue)
    assert waiting(daemon, queue) == ["", "ann" * 100, "ann" * 100]


def test_an_import_that_remembers_files_adds_new_ones_alone(
    move: Move, daemon: Daemon, queue: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    words = ("import", "--from", tmp_path / "in", "--as", "json", "--body", "text", "--queue", queue)
    words = (*words, "--checkpoint", tmp_path / "state")
    (tmp_path / "in" / "one.json").write_text('{"body":"one"}\n')
    move(*words)
    [job] = left(daemon, queue)
    daemon.call("ACKJOB", job)
    (tmp_path / "in" / "two.json").write_text('{"body":"two"}\n')
    move(*words)
    assert waiting(daemon, queue) == ["two"], "what was done meanwhile is not added again"


def test_a_store_is_imported_and_exported(
    move: Move, spark: SparkSession, daemon: Daemon, queue: str, tmp_path: Path, start: Callable[..., Daemon]
) -> None:
    other = start("--persistence", "aof", "--appendfsync", "always", directory=tmp_path / "data")
    fill(other, queue, 3)
    move("export", "--from", tmp_path / "data", "--to", tmp_path / "out", node=False)
    assert bodies_in(spark, tmp_path / "out") == ["00", "01", "02"]
    move("import", "--from", tmp_path / "data", "--as", "store")
    move("import", "--from", tmp_path / "out")  # the same jobs: their ids are in their keys
    assert waiting(daemon, queue) == ["00", "01", "02"]


def test_what_is_no_export_is_not_replaced(move: Move, queue: str, tmp_path: Path) -> None:
    export = ("export", "--queues", queue, "--to", tmp_path / "out")
    move(*export)
    letters = tmp_path / "out" / "letters"
    letters.write_text("dear")
    for to in (tmp_path / "out", letters):
        for more in ((), ("--overwrite",)):
            said = move(*export[:-1], to, *more, status=2)
            assert "is there, and is no export" in said[-1] or "is a file; --to names a folder" in said[-1]
            assert letters.read_text() == "dear"
    letters.unlink()
    move(*export, "--overwrite")


def test_dead_letters_go_back_into_their_queue_and_only_there(
    move: Move, daemon: Daemon, queue: str, tmp_path: Path
) -> None:
    ids = fill(daemon, f"{queue}-dead", 4)
    move("replay", "--queues", f"{queue}-dead", "--to", queue, "--option", "retry=7", "--option", "ttl=900")
    assert waiting(daemon, queue) == ["00", "01", "02", "03"]
    assert left(daemon, f"{queue}-dead") == []
    shown = daemon.call("SHOW", left(daemon, queue)[0])
    named = dict(zip(shown[::2], shown[1::2], strict=True))
    assert (named["retry"], 800 < named["ttl"] <= 900) == (7, True)
    assert named["key"].removeprefix("move/") in ids


def test_a_batch_of_dead_letters_that_was_under_way_is_gone_on_with_by_its_checkpoint(
    move: Move, daemon: Daemon, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("replay", "--queues", f"{queue}-dead", "--to", queue, "--checkpoint", tmp_path / "state")
    for number in range(4):
        # So long that no job comes back by itself.
        daemon.call("ADDJOB", f"{queue}-dead", f"{number:02}", 0, "RETRY", 80_000)
    finished = QueueMover.move

    def move_and_die(self: QueueMover, jobs: Any) -> int:
        finished(self, jobs.limit(2))
        raise KeyError("killed")

    monkeypatch.setattr(QueueMover, "move", move_and_die)
    move(*words, status=2)
    monkeypatch.undo()
    assert len(waiting(daemon, queue)) == 2
    [*done] = daemon.call("GETJOB", "COUNT", 1, "FROM", queue)
    daemon.call("ACKJOB", done[0][1])
    assert f"done: 2 jobs are in {queue}" in move(*words)[-1], "those that were moved before are left out"
    assert sorted([done[0][2], *waiting(daemon, queue)]) == ["00", "01", "02", "03"]
    assert left(daemon, f"{queue}-dead") == []


def test_a_replay_that_is_refused_ends_with_the_reason(move: Move, daemon: Daemon, queue: str, tmp_path: Path) -> None:
    fill(daemon, f"{queue}-dead", 3)
    daemon.call("PAUSE", queue, "in")
    words = ("replay", "--queues", f"{queue}-dead", "--to", queue)
    said = move(*words, status=2)[-1]
    assert said == (
        "disqued-spark: 0 jobs of the batch were moved; 3 were refused, and are where they were: "
        "PAUSED Queue paused in input, try later"
    )


def test_jobs_that_expired_are_replayed_once(
    move: Move, daemon: Daemon, queue: str, tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "old").mkdir()
    store, _ = journals.opened(tmp_path / "old")
    journals.put(store, b"over", b"done", b"over and done", b"there", b"late")
    gone = [(JOB_GONE, journals.job_id(number), GONE_EXPIRED) for number in (0, 2, 4)]
    store.append([*gone, *((UNIT_DONE, journals.job_id(number), b"") for number in (1, 2))])
    store.commit()
    store.close()
    words = ("replay", "--from", tmp_path / "old", "--to", queue, "--ledger", tmp_path / "ledger")
    assert "0 jobs would be added" in move(*words, "--since", "2100-01-01T00:00:00Z", "--dry-run")[-1]
    assert "done: 2 jobs were added" in move(*words)[-1]
    assert waiting(daemon, queue) == ["late", "over"]
    for job in left(daemon, queue):
        daemon.call("ACKJOB", job)
    move(*words)
    assert left(daemon, queue) == [], "what was done meanwhile is in the ledger"


def test_replay_asks_the_table_of_lifecycles(
    move: Move, daemon: Daemon, queue: str, tmp_path: Path, spark: SparkSession
) -> None:
    from disqued.pipeline.tables import LIFECYCLE, Tables

    (tmp_path / "old").mkdir()
    store, _ = journals.opened(tmp_path / "old")
    journals.put(store, b"zero", b"one", b"two")
    store.close()
    ended = {0: "expire", 1: "ack", 2: None}
    rows = [
        {"job_id": journals.job_id(number).decode(), "end": end, "ended_us": 5, "date": "2026-11-22"}
        for number, end in ended.items()
    ]
    table = spark.createDataFrame(rows, LIFECYCLE.schema)
    Tables(spark, str(tmp_path / "tables")).replace(LIFECYCLE, table, [("2026-11-22",)])
    move("replay", "--from", tmp_path / "old", "--tables", tmp_path / "tables", "--to", queue)
    assert waiting(daemon, queue) == ["zero"]


def test_events_are_shown_while_they_are_written(move: Move, tmp_path: Path) -> None:
    folder = tmp_path / "date=2026-11-22" / "node=1f0e2d3c"
    folder.mkdir(parents=True)
    rows = [
        {"v": 1, "boot": 1, "seq": 3 - number, "ts_us": 9 - number, "event": event, "queue": queue, "job_id": "DI"}
        for number, (event, queue) in enumerate([("add", "mail"), ("ack", "mail"), ("add", "else")])
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "_open-1-0000000000000001.jsonl").write_text(text + "no line\n")
    tail = ("tail", "--events", tmp_path, "--once", "--quiet")
    shown = [json.loads(line) for line in move(*tail, "--json", node=False)]
    assert [row["ts_us"] for row in shown] == [7, 8, 9]
    assert [line.split()[2] for line in move(*tail, "--queue", "m*", node=False)] == ["ack", "add"]
    assert len(move(*tail, "--event", "add", "--job", "DI", "--node", "1f0e2d3c", node=False)) == 2
