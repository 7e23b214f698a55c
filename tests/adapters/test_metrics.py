"""Metrics: what is exported is true, well formed in both formats, and made in pieces."""

from collections.abc import Callable
from typing import Any

import pytest
import pytest_twisted
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from disqued.commands.table import every_command
from disqued.web.gateway import SLICE_ROWS
from disqued.web.views import metrics
from tests.adapters.http import AdminClient, admin
from tests.adapters.inprocess import RecordingStore, Running, wait_until
from tests.adapters.test_pages import run

Launch = Callable[..., Running]
OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


async def _begin(launch: Launch) -> tuple[Running, AdminClient]:
    running = launch()
    await wait_until(lambda: not running.daemon.loading)
    return running, admin(running)


async def _scrape(client: AdminClient, path: str = "/metrics") -> dict[tuple[str, str], float]:
    """Samples by name and the value of their label."""
    answer = await client.get(path)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in read_text(answer.body.decode())
        for sample in family.samples
    }


def _add(running: Running, *names: bytes, count: int = 1) -> None:
    """Make queues with jobs in the node itself, many at once."""
    node = running.daemon.node
    node.begin()
    options = node.state.shared.options(60_000, 10_000, 0, 1)
    for name in names:
        for _ in range(count):
            node.additions.add("test", name, b"body", options, maxlen=0, timeout_ms=0, asynchronous=False)
    running.daemon.turn.finish_step(None)


def _waiting(running: Running, queue: bytes) -> int:
    """Number of jobs that have to wait for a slot, as the steward has said."""
    asked = running.daemon.node.admission.of(queue)
    return 0 if asked is None else sum(wish.waits for wish in asked.wishes.values())


def _slots(samples: dict[tuple[str, str], float], queue: str) -> list[float]:
    return [samples[f"disqued_slots_{what}", queue] for what in ("in_use", "limit", "awaited", "refused")]


@pytest_twisted.ensureDeferred
async def test_what_clients_did_is_counted(launch: Launch) -> None:
    running, client = await _begin(launch)
    resp = await running.connect()
    before = await _scrape(client)
    for queue in ("a", "a", "b"):
        await resp.call("ADDJOB", queue, "body", 0)
    rows = await resp.call("GETJOB", "COUNT", 2, "FROM", "a")
    await resp.call("NACK", rows[0][1])
    await resp.call("ACKJOB", rows[1][1])
    found = await _scrape(client)
    told = {
        ("disqued_jobs_added_total", ""): 3, ("disqued_queue_jobs_in_total", ""): 4,
        ("disqued_queue_jobs_out_total", ""): 2, ("disqued_queue_len_jobs", ""): 2, ("disqued_queues", ""): 2,
        ("disqued_deliveries_total", ""): 2, ("disqued_nacks_total", ""): 1, ("disqued_acks_total", "ackjob"): 1,
        ("disqued_jobs", "queued"): 2, ("disqued_jobs", "active"): 0, ("disqued_clients", ""): 1,
        ("disqued_job_wait_seconds_count", ""): 2, ("disqued_job_in_flight_seconds_count", ""): 1,
    }  # fmt: skip
    assert {key: found[key] for key in told} == told
    # The table of commands is that of the process, whoever else used it.
    assert found["disqued_commands_total", "addjob"] - before.get(("disqued_commands_total", "addjob"), 0) == 3
    await client.stop()


@pytest_twisted.ensureDeferred
async def test_schedules_and_their_instants_are_counted(launch: Launch) -> None:
    running, client = await _begin(launch)
    resp = await running.connect()
    for name in ("one", "two", "three"):
        await resp.call("SCHEDULE", "SET", name, "EVERY", 3_600, "QUEUE", "a", "BODY", "x")
    await resp.call("SCHEDULE", "PAUSE", "two")
    counters = client.site.gateway.view.counters
    counters.instants_fired, counters.instants_late = 7, 2
    counters.instants_skipped, counters.instants_missed, counters.firings_refused = 3, 4, 5
    found = await _scrape(client)
    told = {
        ("disqued_schedules", "active"): 2, ("disqued_schedules", "paused"): 1, ("disqued_schedules_refused", ""): 0,
        ("disqued_schedules_behind_seconds", ""): 0, ("disqued_schedule_refusals_total", ""): 5,
        ("disqued_schedule_instants_total", "on_time"): 5, ("disqued_schedule_instants_total", "late"): 2,
        ("disqued_schedule_instants_total", "skipped"): 3, ("disqued_schedule_instants_total", "missed"): 4,
    }  # fmt: skip
    assert {key: found[key] for key in told} == told
    await client.stop()


@pytest_twisted.ensureDeferred
async def test_dead_failing_redriven_and_cancelled_jobs_and_results_are_counted(launch: Launch) -> None:
    running, client = await _begin(launch)
    resp = await running.connect()
    ids = [await resp.call("ADDJOB", "a", "body", 0, "RESULT", 60) for _ in range(5)]
    await resp.call("GETJOB", "COUNT", 5, "FROM", "a")
    await resp.call("NACK", ids[0], "DEAD")
    await resp.call("NACK", ids[1], "DEAD", "REASON", "poison")
    await resp.call("NACK", ids[2], "DELAY", 60)
    await resp.call("ACKJOB", ids[3], "RESULT", "done")
    assert await resp.call("REDRIVE", "a", "ID", ids[0]) == 1
    await resp.call("CANCEL", ids[0])
    found = await _scrape(client)
    told = {
        ("disqued_jobs_died_total", ""): 2, ("disqued_jobs_redriven_total", ""): 1,
        ("disqued_jobs_cancelled_total", ""): 1, ("disqued_results_kept_total", ""): 2, ("disqued_jobs", "dead"): 1,
        ("disqued_jobs", "acked"): 2, ("disqued_jobs", "active"): 2, ("disqued_jobs_failing", ""): 1,
        ("disqued_jobs_delayed", ""): 1,
    }  # fmt: skip
    assert {key: found[key] for key in told} == told
    assert b"\r\njobs_died:2\r\n" in await resp.call("INFO", "jobs")
    queues = await _scrape(client, "/metrics/per-queue")
    assert (queues["disqued_queue_dead_jobs", "a"], queues["disqued_queue_failing_jobs", "a"]) == (1, 1)
    phases = ("delayed", "ready", "in_flight", "elsewhere", "done")
    assert [queues[f"disqued_queue_{word}_jobs", "a"] for word in phases] == [1, 0, 1, 0, 2]
    assert _slots(queues, "a") == [0, 0, 0, 0]
    await resp.call("QPOLICY", "calls", "SET", "INFLIGHT", 1)
    for _ in range(3):
        await resp.call("ADDJOB", "calls", "x", 0)
    await resp.call("GETJOB", "FROM", "calls")
    for _ in range(2):
        (await running.connect()).send("GETJOB", "FROM", "calls")
    await wait_until(lambda: _waiting(running, b"calls") == 2)
    queues = await _scrape(client, "/metrics/per-queue")
    assert _slots(queues, "calls") == [1, 1, 2, 2]
    assert b"limited_queues:1\r\nslots:1\r\n" in await resp.call("INFO", "queues")
    await client.stop()


@pytest_twisted.ensureDeferred
async def test_commits_are_counted_and_so_are_those_that_fail(launch: Launch) -> None:
    store = RecordingStore()
    running, client = await _begin(lambda: launch(store=store))
    resp = await running.connect()
    await resp.call("ADDJOB", "q", "body", 0)
    found = await _scrape(client)
    assert found["disqued_commits_total", ""] == store.commits == 1
    assert found["disqued_commit_seconds_total", ""] > 0
    store.fails = True
    await resp.call("ADDJOB", "q", "body", 0)
    found = await _scrape(client)
    assert (found["disqued_commits_total", ""], found["disqued_commit_failures_total", ""]) == (1, 1)
    assert found["disqued_read_only", ""] == 1
    assert found["disqued_jobs_refused_total", "journal"] == 1
    store.fails = False
    await client.stop()


@pytest_twisted.ensureDeferred
async def test_a_commit_that_takes_its_time_is_counted_when_it_is_done(launch: Launch) -> None:
    store = RecordingStore(later=True)
    running, client = await _begin(lambda: launch(store=store))
    resp = await running.connect()
    resp.send("ADDJOB", "q", "body", 0)
    await wait_until(lambda: store.under_way is not None)
    assert (await _scrape(client))["disqued_commits_total", ""] == 0
    store.answer()
    assert (await _scrape(client))["disqued_commits_total", ""] == 1
    await client.stop()


@pytest_twisted.ensureDeferred
async def test_both_formats_are_read_by_their_parsers_and_say_the_same(launch: Launch) -> None:
    running, client = await _begin(launch)
    _add(running, *(b"q%d" % number for number in range(250)))
    for path in ("/metrics", "/metrics/per-queue"):
        text = (await client.get(path)).body.decode()
        answer = await client.get(path, headers=OPENMETRICS)
        assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        assert answer.body.endswith(b"# EOF\n")
        assert answer.body.count(b"# EOF") == 1
        opened = {sample.name for family in read_openmetrics(answer.body.decode()) for sample in family.samples}
        plain = {sample.name for family in read_text(text) for sample in family.samples}
        assert opened == plain
        headers = [line for line in text.splitlines() if line.startswith("# TYPE")]
        assert len(headers) == len(set(headers)), "a family begins once"
        odd = await client.get(path, headers={"Accept": "application/openmetrics-text; version=abc"})
        assert odd.status == 200
        assert odd.headers["content-type"].startswith("text/plain")
    await client.stop()


@pytest_twisted.ensureDeferred
async def test_buckets_grow_and_end_with_all(launch: Launch) -> None:
    running, client = await _begin(launch)
    running.daemon.node.state.counters.waiting_buckets[3] = 5
    running.daemon.node.state.counters.waiting_buckets[60] = 2
    text = (await client.get("/metrics")).body.decode()
    (family,) = (family for family in read_text(text) if family.name == "disqued_job_wait_seconds")
    buckets = {sample.labels["le"]: sample.value for sample in family.samples if sample.name.endswith("_bucket")}
    assert [buckets["0.004"], buckets["0.008"], buckets["+Inf"]] == [0, 5, 7]
    assert list(buckets.values()) == sorted(buckets.values())
    await client.stop()


@pytest_twisted.ensureDeferred
async def test_each_queue_has_its_figures(launch: Launch) -> None:
    running, client = await _begin(launch)
    _add(running, b"mail", count=3)
    _add(running, b'a\n"b\\', b"\xff")
    found = await _scrape(client, "/metrics/per-queue")
    assert found["disqued_queue_len_jobs", "mail"] == 3
    assert found["disqued_queue_jobs_in_total", "mail"] == 3
    assert found["disqued_queue_len_jobs", 'a\n"b\\'] == 1
    assert found["disqued_queue_len_jobs", "\\xff"] == 1
    assert found["disqued_queues_left_out", ""] == 0
    await client.stop()


@pytest_twisted.ensureDeferred
async def test_a_queue_of_which_there_are_delayed_jobs_alone_has_its_figures(launch: Launch) -> None:
    running, client = await _begin(launch)
    await run(running, "ADDJOB", "later", "x", 0, "DELAY", 600)
    found = await _scrape(client, "/metrics/per-queue")
    assert (found["disqued_queue_delayed_jobs", "later"], found["disqued_queue_len_jobs", "later"]) == (1, 0)
    assert found["disqued_queues_exported", ""] == 1
    assert (await _scrape(client, "/metrics"))["disqued_queues", ""] == 0
    await client.stop()


@pytest_twisted.ensureDeferred
async def test_names_that_look_the_same_are_told_once(launch: Launch) -> None:
    running, client = await _begin(launch)
    _add(running, b"\xff", b"\\xff")
    found = await _scrape(client, "/metrics/per-queue")
    assert (found["disqued_queues_exported", ""], found["disqued_queues_left_out", ""]) == (1, 1)
    await client.stop()


@pytest_twisted.ensureDeferred
async def test_queues_beyond_the_limit_are_counted(launch: Launch) -> None:
    running, client = await _begin(launch)
    _add(running, *(b"mail-%d" % number for number in range(7)), b"other")
    found = await _scrape(client, "/metrics/per-queue?limit=5&match=mail-*")
    assert sum(name == "disqued_queue_len_jobs" for name, _ in found) == 5
    assert (found["disqued_queues_exported", ""], found["disqued_queues_left_out", ""]) == (5, 2)
    await client.stop()


@pytest.mark.parametrize("query", ["limit=0", "limit=10001", "limit=x", "unknown=1"])
@pytest_twisted.ensureDeferred
async def test_a_wrong_question_is_told_what_is_allowed(launch: Launch, query: str) -> None:
    _, client = await _begin(launch)
    answer = await client.get(f"/metrics/per-queue?{query}")
    assert answer.status == 400
    assert "allowed" in answer.body["detail"]
    await client.stop()


@pytest_twisted.ensureDeferred
async def test_no_turn_of_the_loop_does_much(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    running, client = await _begin(launch)
    _add(running, *(b"q%d" % number for number in range(3 * SLICE_ROWS)))
    work: list[list[int]] = [[0, 0]]  # queues looked at and samples written, by turn

    def end_turn(reactor: Any, before: Any = metrics.next_turn) -> Any:
        work.append([0, 0])
        return before(reactor)

    def row(*arguments: Any, before: Any = metrics._row) -> Any:
        work[-1][0] += 1
        return before(*arguments)

    def text(encode: Any, found: Any, before: Any = metrics._text) -> Any:
        samples = sum(len(family.samples) for family in found)
        if len(found) > 1:
            work[-1][1] += samples
        else:
            # A family is not cut; the largest ones have samples for each command that was run.
            assert samples <= 2 * len(list(every_command()))
        return before(encode, found)

    for name, double in (("next_turn", end_turn), ("_row", row), ("_text", text)):
        monkeypatch.setattr(metrics, name, double)
    answer = await client.get("/metrics/per-queue?limit=10000")
    assert max(queues for queues, _ in work) <= metrics.LOOKED_AT <= SLICE_ROWS
    assert answer.body.count(b"disqued_queue_len_jobs{") == 3 * SLICE_ROWS
    lines = 3 * SLICE_ROWS * len(metrics.PER_QUEUE)
    assert len(work) >= 3 * SLICE_ROWS // metrics.LOOKED_AT + lines // metrics.LINES
    work[:] = [[0, 0]]
    await client.get("/metrics")
    assert max(samples for _, samples in work) <= metrics.PIECE
    await client.stop()


@pytest_twisted.ensureDeferred
async def test_groups_of_consumers_are_told_of_by_queue_as_many_as_are_asked_for(launch: Launch) -> None:
    running, client = await _begin(launch)
    resp = await running.connect()
    for number in range(3):
        await resp.call("QADD", "events", 60, f"event {number}")
    await resp.call("QGET", "events", 'a"b', "EX", 0)
    await resp.call("QGET", "events", 'a"b')
    await resp.call("QGET", "events", "other")
    text = (await client.get("/metrics/per-queue")).body.decode()
    samples = {
        (sample.name, sample.labels.get("group", "")): sample.value
        for family in read_text(text)
        for sample in family.samples
    }
    assert [samples[f"disqued_group_{what}_events", 'a"b'] for what in ("available", "redo", "inprogress", "done")] == [
        1,
        0,
        1,
        1,
    ]
    assert samples["disqued_group_available_events", "other"] == 2
    assert (samples["disqued_groups_exported", ""], samples["disqued_groups_left_out", ""]) == (2, 0)
    found = await _scrape(client, "/metrics/per-queue?limit=1")
    assert (found["disqued_groups_exported", ""], found["disqued_groups_left_out", ""]) == (1, 1)
