"""The pure parts of the benchmarks: medians, ratios, goals, the report, and what redis-benchmark prints."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import hiredis
import pytest

from benchmarks import burdens, growth, pauses, plots, profile, work
from benchmarks.__main__ import MEASURES, NAMES, OPTIONAL, read_options, take
from benchmarks.blast import Refused, blast
from benchmarks.figures import Goal, Row, Spread, amount, as_json, conclude, describe, percentile, ratios, spread, told
from benchmarks.load import LoadFailed, parse_report, whole
from benchmarks.machine import ROOT, Processors, stamp
from benchmarks.measure import Bench, Measure, OutOfTime
from benchmarks.raw import words
from benchmarks.servers import HIGHEST_PORT, free_port
from benchmarks.throughput import WrongResult, chunked

CSV = (
    '"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"\n'
    '"ADDJOB q hello 0","28571.43","0.892","0.488","0.855","1.175","1.487","2.543"\n'
)
FACTS = {
    "cpu": "Model T", "cpus": 2, "placement": "server on CPU 0, client on CPU 1", "load_average": 0.5,
    "system": "Linux 6", "core": "compiled", "python": "CPython 3.11", "twisted": "26.10", "hiredis": "3.5",
    "redis": "7.0.15", "commit": "abc1234",
}  # fmt: skip


def row(**changes: object) -> Row:
    """A row with a ratio of 0.5 and a goal of 0.45."""
    values: dict[str, object] = {
        "name": "addjob", "title": "ADDJOB", "unit": "/s", "ours": spread([500.0]), "yardstick": "redis XADD",
        "theirs": spread([1_000.0]), "ratio": spread([0.5]), "goal": Goal(0.45, at_least=True), "rounds": 5,
    }  # fmt: skip
    return Row(**{**values, **changes})  # type: ignore[arg-type]


# ---- figures


def test_a_spread_is_the_median_and_the_extremes() -> None:
    figures = spread([3.0, 1.0, 2.0, 10.0, 2.5])
    assert (figures.median, figures.low, figures.high) == (2.5, 1.0, 10.0)


def test_the_median_of_an_even_number_of_rounds_lies_between_the_two_in_the_middle() -> None:
    assert spread([1.0, 2.0, 4.0, 8.0]).median == 3.0


def test_a_ratio_compares_neighbours_and_not_medians() -> None:
    # The machine was half as fast in the second round, for both.
    figures = ratios([100.0, 50.0, 100.0], [200.0, 100.0, 200.0])
    assert (figures.median, figures.low, figures.high) == (0.5, 0.5, 0.5)


def test_a_ratio_of_unequal_numbers_of_rounds_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])


@pytest.mark.parametrize(("percent", "expected"), [(50, 50.0), (99, 99.0), (100, 100.0), (0.5, 1.0)], ids=str)
def test_a_percentile_is_one_of_the_values(percent: float, expected: float) -> None:
    assert percentile([float(value) for value in range(100, 0, -1)], percent) == expected


@pytest.mark.parametrize(
    ("goal", "figure", "met"),
    [
        (Goal(1.0, at_least=True), 1.0, True),
        (Goal(1.0, at_least=True), 0.99, False),
        (Goal(8.0, unit="s"), 8.0, True),
        (Goal(8.0, unit="s"), 8.1, False),
    ],
)
def test_a_goal_is_met_at_its_bound(goal: Goal, figure: float, met: bool) -> None:
    assert goal.is_met(figure) is met


def test_goals_read_as_they_stand_in_the_design() -> None:
    assert str(Goal(0.45, at_least=True)) == "≥ 0.45"
    assert str(Goal(600, unit="bytes")) == "≤ 600 bytes"


def test_a_goal_without_a_unit_is_held_against_the_ratio() -> None:
    assert row().is_met is True
    assert row(ratio=spread([0.4])).is_met is False


def test_a_goal_with_a_unit_is_held_against_the_figure_itself() -> None:
    assert row(ours=spread([0.7]), ratio=None, goal=Goal(1.0, unit="ms")).is_met is True


@pytest.mark.parametrize("changes", [{"goal": None}, {"ratio": None}, {"goal": Goal(1, unit="s"), "ours": None}])
def test_nothing_is_met_where_there_is_no_goal_or_no_figure(changes: dict[str, object]) -> None:
    assert row(**changes).is_met is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.123, "0.12"), (12.34, "12.3"), (123.4, "123"), (28_571.4, "28 571"), (1_000_000, "1 000 000")],
)
def test_numbers_have_the_digits_that_mean_something(value: float, text: str) -> None:
    assert amount(value) == text


def test_extremes_are_told_where_they_differ() -> None:
    assert told(spread([1.0, 2.0, 3.0]), "s") == "2.00 s (1.00 to 3.00)"
    assert told(spread([2.0]), "s") == "2.00 s"


# ---- the report


def test_each_row_tells_figures_goal_and_what_they_depend_on() -> None:
    text = describe(row(seed=7), stamp(FACTS))
    assert text.splitlines() == [
        "addjob: ADDJOB",
        "  disqued 500 /s",
        "  redis XADD 1 000 /s",
        "  ratio 0.50, goal ≥ 0.45: met",
        (
            "  [Model T x2, Linux 6, load 0.5 at the start, server on CPU 0, client on CPU 1; core compiled, "
            "CPython 3.11, Twisted 26.10, hiredis 3.5, redis 7.0.15; commit abc1234; 5 rounds; seed 7]"
        ),
    ]


def test_a_goal_that_is_missed_is_told_loudly() -> None:
    assert "goal ≥ 0.45: NOT MET" in describe(row(ratio=spread([0.2])), "machine")


def test_a_measure_that_failed_says_why_in_its_row() -> None:
    text = describe(row(ours=None, note="beanstalkd is not installed"), "machine")
    assert "not measured: beanstalkd is not installed" in text
    assert "ratio" not in text


def test_the_last_line_counts_goals_and_names_what_is_missing() -> None:
    rows = [row(), row(name="slow", ratio=spread([0.1])), row(name="gone", ours=None, ratio=None), row(goal=None)]
    assert conclude(rows) == "1 of 2 goals met; not met: slow; not measured: gone"


def test_the_report_for_programs_carries_the_machine_in_each_row() -> None:
    read = json.loads(as_json([row(), row(ours=None, ratio=None, note="why")], FACTS))
    assert [each["machine"] for each in read] == [FACTS, FACTS]
    assert read[0]["ratio"] == {"median": 0.5, "low": 0.5, "high": 0.5}
    assert (read[0]["is_met"], read[1]["is_met"], read[1]["ours"]) == (True, None, None)


# ---- redis-benchmark


def test_the_rate_is_read_from_the_column_of_its_name() -> None:
    assert parse_report(CSV).rate == 28_571.43


def test_lines_that_are_no_figures_are_passed_over() -> None:
    assert parse_report("WARNING: Could not fetch server CONFIG\n" + CSV).rate == 28_571.43


@pytest.mark.parametrize(
    "output",
    [
        "",
        "Could not connect to Redis at 127.0.0.1:1: Connection refused\n",
        CSV.splitlines()[0],
        CSV + CSV.splitlines()[1],
    ],
    ids=["nothing", "no connection", "no figures", "two lines of figures"],
)
def test_output_without_one_line_of_figures_is_refused_and_shown(output: str) -> None:
    with pytest.raises(LoadFailed, match="no figures"):
        parse_report(output)


def test_a_rate_that_is_no_number_is_refused() -> None:
    with pytest.raises(LoadFailed, match="no rate"):
        parse_report(CSV.replace("28571.43", "many"))


@pytest.mark.parametrize(("count", "pipeline", "expected"), [(1, 16, 800), (100_000, 16, 100_000), (999, 1, 1_000)])
def test_every_connection_sends_the_same_number_of_full_pipelines(count: int, pipeline: int, expected: int) -> None:
    assert whole(count, pipeline) == expected


# ---- our own clients


def test_commands_are_spelt_as_arrays_of_strings() -> None:
    assert words(b"ADDJOB", b"", b"a\r\n") == b"*3\r\n$6\r\nADDJOB\r\n$0\r\n\r\n$3\r\na\r\n\r\n"


def test_chunks_are_full() -> None:
    assert chunked([b"a", b"b", b"c", b"d", b"e"], 2) == [b"ab", b"cd"]


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that answers each line with OK, for one connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(4_096):
                    connection.sendall(b"OK\n" * data.count(b"\n"))

        thread = Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join(10)


def test_every_chunk_is_sent_and_answered(echo: int) -> None:
    assert blast(echo, [b"one\ntwo\n"] * 20, 2, b"OK", connections=1) > 0


def test_an_unexpected_reply_ends_the_load(echo: int) -> None:
    with pytest.raises(Refused, match=r"expected b'\+', got b'OK"):
        blast(echo, [b"one\n"], 1, b"+", connections=1)


# ---- the run


def test_a_node_has_room_for_its_bus_above_a_free_port() -> None:
    assert 0 < free_port() <= HIGHEST_PORT


def test_measures_have_names_of_their_own() -> None:
    assert len(set(NAMES)) == len(MEASURES) > 10


def test_only_the_row_of_beanstalkd_may_be_missing() -> None:
    assert sorted(OPTIONAL) == ["put-p16"]


def test_measures_are_chosen_by_name() -> None:
    options = read_options(["--quick", "--only", "ping", "--only", "idle", "--rounds", "7"])
    assert (options.quick, options.only, options.rounds) == (True, ["ping", "idle"], 7)


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--rounds", "many"], ["--only", "nothing"]])
def test_a_wrong_option_ends_with_what_is_allowed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_options(arguments)
    assert ended.value.code == 2
    assert "allowed is 1 or more" in (text := capsys.readouterr().err) or "choose from" in text


def test_a_run_that_is_over_its_time_says_so_in_each_row_that_is_left() -> None:
    bench = Bench(Processors(None, None), until=0.0)
    missing = take(Measure("late", "Too late", lambda *_: row()), bench)
    assert missing.ours is None
    assert "time for the whole run is over" in missing.note


def test_a_measure_that_breaks_leaves_the_others_alone() -> None:
    def fail(bench: Bench, name: str, title: str) -> Row:
        raise OutOfTime("no time")

    assert take(Measure("broken", "Broken", fail), Bench(Processors(None, None))).note == "no time"


def test_a_machine_with_one_processor_is_said_to_bind_nothing() -> None:
    assert str(Processors(None, None)) == "server and client not bound to processors"
    with Processors(None, None).serving():
        pass


@pytest.mark.parametrize("name", sorted(profile.SUBJECTS))
@pytest.mark.parametrize("pipeline", [1, 16])
def test_the_look_inside_finds_every_stage(tmp_path: Path, name: str, pipeline: int) -> None:
    found = profile.stages(profile.SUBJECTS[name], tmp_path, 160, pipeline)
    assert set(found) >= {"parse", "dispatch", "core", "encode"}
    assert all(usec > 0 for usec in found.values())


def drawn(name: str, others: Spread | None = None) -> Row:
    ours, theirs = spread([90.0, 100.0, 110.0]), spread([140.0, 150.0, 160.0])
    goal = Goal(1.25)
    return Row(
        name,
        "A <measure>",
        "rows/s",
        ours,
        "by hand",
        theirs,
        ratios([1.5], [1.0]),
        goal,
        3,
        beside="other",
        others=others,
    )


def test_a_report_is_drawn_with_its_goals_and_whatever_stands_beside_it(tmp_path: Path) -> None:
    report, picture = tmp_path / "report.json", tmp_path / "plot.svg"
    alone = Row("alone", "With nothing beside it", "ms", spread([1.0]))
    report.write_text(as_json([drawn("one"), drawn("two & more", spread([900.0])), alone], FACTS))
    assert plots.main([str(report), str(picture)]) == 0
    text = picture.read_text()
    assert all(word in text for word in (">one<", ">two &amp; more<", ">by hand<", ">other<", ">goal<", ">900<"))
    assert ">alone<" not in text
    assert plots.main([str(report), str(tmp_path / "again.svg")]) == 0
    assert (tmp_path / "again.svg").read_text() == text


def test_the_goal_of_a_ratio_of_times_is_a_rate_that_is_lower_than_that_beside_it() -> None:
    [row] = json.loads(as_json([drawn("one")], FACTS))
    assert plots.goal_of(row) == pytest.approx(150.0 / 1.25)
    row["goal"]["at_least"] = True
    assert plots.goal_of(row) == pytest.approx(150.0 * 1.25)
    row["goal"]["unit"] = "ms"
    assert plots.goal_of(row) is None


def test_a_measure_that_is_not_in_the_report_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    report.write_text(as_json([drawn("one")], FACTS))
    assert plots.main([str(report), str(tmp_path / "plot.svg"), "three"]) == 2
    assert "three" in (said := capsys.readouterr().out)
    assert "one" in said


# ---- growth


class Queue:
    """Stands for a connection to a node with queues, which answers at once."""

    def __init__(self, *, empty: bool = False, slow_s: tuple[float, ...] = ()) -> None:
        self.jobs: dict[bytes, list[bytes]] = {}
        self.said: list[tuple[bytes, ...]] = []
        self.empty = empty
        self.added = 0
        self._slow_s = iter(slow_s)
        self._reader = hiredis.Reader()
        self._waiting: list[Any] = []

    def send(self, data: bytes) -> None:
        self._reader.feed(data)
        while (command := self._reader.gets()) is not False:
            self._waiting.append(self.call(*command))

    def hear(self) -> list[Any]:
        half = max(1, len(self._waiting) // 2)
        heard, self._waiting = self._waiting[:half], self._waiting[half:]
        return heard

    def call(self, *args: bytes) -> Any:
        self.said.append(args)
        time.sleep(next(self._slow_s, 0.0))
        if args[0] == b"ADDJOB":
            self.added += 1
            self.jobs.setdefault(args[1], []).append(b"job %d" % self.added)
            return self.jobs[args[1]][-1]
        if args[0] == b"GETJOB":
            return None if self.empty else [[args[3], self.jobs[args[3]].pop(0), b"body"]]
        return 1


def lane(queue: Queue, pipeline: int, *names: bytes) -> growth.Lane:
    return growth.Lane(queue, growth._in_turn(names, 0), pipeline, b"body", (b"REPLICATE", b"1"))  # type: ignore[arg-type]


def test_a_lane_leads_every_job_its_way_in_chunks() -> None:
    queue = Queue()
    road = lane(queue, 3, b"a", b"b")
    road.begin()
    heard = 0
    while not road.go_on():
        heard += 1
    assert (road.done, heard) == (3, 8)
    assert [said[0] for said in queue.said] == [b"ADDJOB"] * 3 + [b"GETJOB"] * 3 + [b"ACKJOB"] * 3
    assert queue.said[0] == (b"ADDJOB", b"a", b"body", b"10000", b"REPLICATE", b"1")
    assert [said[3] for said in queue.said[3:6]] == [b"a", b"b", b"a"]
    assert sorted(said[1] for said in queue.said[6:]) == [b"job 1", b"job 2", b"job 3"]


def test_a_job_that_cannot_be_fetched_ends_the_load() -> None:
    road = lane(Queue(empty=True), 1, b"a")
    road.begin()
    assert not road.go_on()
    with pytest.raises(WrongResult, match="was empty"):
        road.go_on()
    with pytest.raises(WrongResult, match="was empty"):
        growth.paced([lane(Queue(empty=True), 1, b"a")], 1_000, 0.01)


def test_requests_at_a_rate_use_all_connections_in_turn() -> None:
    queues = [Queue(), Queue()]
    times = growth.paced([lane(queue, 1, b"a") for queue in queues], 100_000, 12 / 100_000)
    assert len(times) == 12
    assert [len(queue.said) for queue in queues] == [6, 6]


def test_who_waits_for_a_slow_reply_has_waited_since_it_was_due() -> None:
    # The first takes 50 ms, in which those after it were due.
    times = growth.paced([lane(Queue(slow_s=(0.05,)), 1, b"a")], 1_000, 0.006)
    assert len(times) == 6
    assert times[0] >= 50
    assert times[5] >= 40


def curve(name: str, title: str, *places: int) -> growth.Curve:
    figure = spread([1.0, 2.0, 3.0])
    return growth.Curve(
        name, title, "things", [growth.Point(at, figure, figure, figure, figure, 57.0) for at in places]
    )


def test_curves_are_drawn_one_picture_for_what_grows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "growth.json"
    curves = [curve("jobs", "Jobs & more", 1, 1_000_000), curve("nodes", "One", 1, 5), curve("nodes-3", "Three", 3, 5)]
    report.write_text(growth.as_json(curves, FACTS))
    assert json.loads(report.read_text())[0]["machine"] == FACTS
    assert plots.main([str(report), str(tmp_path)]) == 0
    assert sorted(file.name for file in tmp_path.glob("*.svg")) == ["growth-jobs.svg", "growth-nodes.svg"]
    text = (tmp_path / "growth-jobs.svg").read_text()
    assert all(word in text for word in (">Jobs &amp; more<", ">things<", ">1 M<", ">processor time a job, µs<"))
    assert all(word in (tmp_path / "growth-nodes.svg").read_text() for word in (">One<", ">Three<"))
    assert plots.main([str(report), str(tmp_path), "jobs"]) == 0
    assert (tmp_path / "growth-jobs.svg").read_text() == text
    assert plots.main([str(report), str(tmp_path), "bodies"]) == 2
    assert "bodies; there are jobs, nodes" in capsys.readouterr().out


def test_what_grows_is_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert growth.read_options(["--only", "nodes", "--quick"]).only == ["nodes"]
    with pytest.raises(SystemExit):
        growth.read_options(["--only", "everything"])
    assert "choose from" in capsys.readouterr().err


def test_one_curve_that_cannot_be_measured_leaves_the_others_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(bench: Bench) -> list[growth.Curve]:
        raise OutOfTime("no time")

    monkeypatch.setattr(growth, "CURVES", {"jobs": fail, "nodes": lambda bench: [curve("nodes", "One", 1)]})
    monkeypatch.setattr(growth, "redis_version", lambda: "7")
    monkeypatch.setattr(Processors, "become_client", lambda self: None)
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    report = tmp_path / "growth.json"
    assert growth.main(["--json", str(report)]) == 1
    assert [each["name"] for each in json.loads(report.read_text())] == ["nodes"]
    assert "not measured: no time" in capsys.readouterr().out


def test_pauses_of_the_collector_are_noted_by_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([1.0, 1.25, 2.0, 2.125, 5.0, 5.5])
    monkeypatch.setattr(pauses, "perf_counter", lambda: next(now))
    watch = pauses.Stopwatch()
    for generation in (0, 0, 2):
        watch("start", {"generation": generation})
        watch("stop", {"generation": generation})
    assert watch.longest_ms == [250.0, 0.0, 500.0]
    assert watch.count == [2, 0, 1]


def test_pauses_are_measured_on_a_node_that_holds_as_many_jobs() -> None:
    argv = [sys.executable, "-m", "benchmarks.pauses", "--jobs", "1000"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("100000 jobs, core "), done
    assert done.stdout.endswith(" ms\n")


# ---- burdens


def test_the_memory_of_a_third_of_the_time_is_its_middle() -> None:
    watched = burdens.Watched(None, memory=[1, 9, 2, 5, 5, 5, 8, 7, 90])  # type: ignore[arg-type]
    assert [watched.third(number) for number in range(3)] == [2, 5, 8]


def test_a_client_acknowledges_what_it_was_given() -> None:
    add, take, ack = burdens._cycle(b"q")
    assert hiredis_words(add(None))[:2] == [b"ADDJOB", b"q"]
    assert hiredis_words(take(b"D-id")) == [b"GETJOB", b"FROM", b"q"]
    assert hiredis_words(ack([[b"q", b"D-other", b"body"]])) == [b"ACKJOB", b"D-other"]


def hiredis_words(data: bytes) -> list[bytes]:
    """The words of one command."""
    reader = hiredis.Reader()
    reader.feed(data)
    found: list[bytes] = reader.gets()
    return found


@pytest.mark.parametrize("words", [["--minutes", "0"], ["--seconds", "-1"], ["--minutes", "nan"], ["--only", "rain"]])
def test_what_is_no_time_and_no_burden_is_refused(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["burdens", *words])
    with pytest.raises(SystemExit) as ended:
        burdens.main()
    assert ended.value.code == 2


def test_the_count_of_work_has_no_options(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["work", "--anything"])
    with pytest.raises(SystemExit) as ended:
        work.main()
    assert ended.value.code == 2
    assert "--anything" in capsys.readouterr().err


def test_the_figures_of_a_burden_are_told_and_a_burden_that_fails_is_no_figure() -> None:
    calm = burdens.Burden("calm", lambda ports, end, pipe: (pipe.send("ready"), end.wait(), pipe.send("done"))[0])
    found = burdens.bear(calm, Processors(None, None), 0.3)
    assert found["outcome"] == "done"
    assert found["most_mib"] >= found["first_third_mib"] > 1
    assert "calm: done, in 0 s" in burdens.tell(found)
    with pytest.raises((EOFError, LoadFailed)):
        burdens.bear(burdens.Burden("broken", lambda ports, end, pipe: sys.exit(1)), Processors(None, None), 0.1)
