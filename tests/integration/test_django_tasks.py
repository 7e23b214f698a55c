"""Tasks of Django on real nodes: what its interface promises, workers that die, and a node that is lost."""

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import django
import pytest
from asgiref.local import Local
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.utils import timezone

if not settings.configured:
    settings.configure(
        SECRET_KEY="of tests", USE_TZ=True, INSTALLED_APPS=["disqued.client.django"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        TASKS={"default": {"BACKEND": "disqued.client.django.DisquedBackend"}},
    )  # fmt: skip
    django.setup()

from disqued.client.django import DisquedBackend
from disqued.client.django.backend import DEFAULTS
from disqued.client.django.task_interface import (
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from tests.integration import djangotasks as tasks
from tests.integration.client_sides import address
from tests.integration.cluster import Cluster, ends_well
from tests.integration.daemon import LIMIT, Daemon, environment, wait_until
from tests.pages import following

Start = Callable[..., Daemon]
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/django-tasks.md"
EXAMPLE = ROOT / "examples" / "django"


@pytest.fixture
def backend(daemon: Daemon, queue: str) -> Iterator[DisquedBackend]:
    """The default backend, with queues of its own."""
    yield from backend_with([address(daemon)], queue)


def backend_with(nodes: list[str], prefix: str, **options: Any) -> Iterator[DisquedBackend]:
    params = {"QUEUES": ["default", "other"], "OPTIONS": {"NODES": nodes, "PREFIX": prefix, **options}}
    settings.TASKS = {"default": {"BACKEND": "disqued.client.django.DisquedBackend", **params}}
    # What Django itself does in its tests when this setting changes.
    task_backends._settings = task_backends.settings = task_backends.configure_settings(None)
    task_backends._connections = Local()
    made = task_backends["default"]
    assert isinstance(made, DisquedBackend)
    yield made
    made.client.close()


@pytest.fixture
def work(backend: DisquedBackend) -> Iterator[Callable[..., None]]:
    """Start workers in threads, which end with the test."""
    ends: list[Callable[[], None]] = []

    def begin(**options: Any) -> None:
        worker = backend.worker(["default", "other"], **options)
        thread = threading.Thread(target=worker.run)
        thread.start()
        ends.append(worker.stop)
        ends.append(thread.join)

    yield begin
    tasks.hold.set()
    for end in ends:
        end()
    tasks.hold.clear()


def ended(result: TaskResult) -> TaskResult:
    """Wait until a task has ended."""

    def is_over() -> bool:
        result.refresh()
        return result.is_finished

    wait_until(is_over, "the task has ended")
    return result


def test_a_task_is_ready_runs_and_its_result_is_there_for_everybody(
    backend: DisquedBackend, work: Callable[..., None], daemon: Daemon, queue: str
) -> None:
    result = tasks.wait.enqueue()
    again = tasks.wait.get_result(result.id)
    assert (again.status, again.args, again.started_at, again.attempts) == (TaskResultStatus.READY, [], None, 0)
    assert again.enqueued_at == result.enqueued_at
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    work(name="anna")

    def runs() -> bool:
        result.refresh()
        return result.status == TaskResultStatus.RUNNING and bool(result.worker_ids)

    wait_until(runs, "the task runs")
    assert result.worker_ids == ["anna"]
    tasks.hold.set()
    ended(result)
    assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, "waited", 1)
    assert result.enqueued_at is not None
    assert result.started_at is not None
    assert result.finished_at is not None
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    other = DisquedBackend("default", {"OPTIONS": {"NODES": [address(daemon)], "PREFIX": queue}})
    assert other.get_result(result.id) == result
    other.client.close()
    assert daemon.call("QLEN", f"{queue}default") == 0


def test_arguments_and_return_values_come_through(backend: DisquedBackend, work: Callable[..., None]) -> None:
    work(threads=3)
    results = [tasks.double.enqueue(number=n) for n in range(20)]
    assert [ended(result).return_value for result in results] == [2 * n for n in range(20)]
    assert [(result.args, result.kwargs) for result in results] == [([], {"number": n}) for n in range(20)]
    assert ended(tasks.double_soon.enqueue(4)).return_value == 8


def test_tasks_are_added_and_looked_at_from_coroutines(backend: DisquedBackend, work: Callable[..., None]) -> None:
    work()

    async def story() -> TaskResult:
        result = await tasks.double_soon.aenqueue(21)
        async with asyncio.timeout(LIMIT):
            while not result.is_finished:
                await result.arefresh()
                await asyncio.sleep(0.01)
        return await tasks.double_soon.aget_result(result.id)

    assert asyncio.run(story()).return_value == 42


@pytest.mark.parametrize(
    ("task", "arguments", "path", "told"),
    [
        (tasks.fail, ("no",), "builtins.ValueError", "ValueError: no\n"),
        (tasks.leave, (), "builtins.SystemExit", "SystemExit: 3\n"),
        (tasks.not_json, (), "builtins.TypeError", "TypeError: "),
        (tasks.text_of, (70_000,), "disqued.client.django.runs.TooLarge", "; 65536 are allowed\n"),
        (tasks.bury, (), "disqued.client.errors.JobDead", "is dead after 1 try: no use"),
    ],
    ids=["an error", "an exit", "no JSON", "too large", "buried"],
)
def test_what_fails_is_failed_with_its_error(
    backend: DisquedBackend, work: Callable[..., None], task: Any, arguments: tuple[Any, ...], path: str, told: str
) -> None:
    work()
    result = ended(task.enqueue(*arguments))
    assert result.status == TaskResultStatus.FAILED
    [error] = result.errors
    assert error.exception_class_path == path
    assert issubclass(error.exception_class, BaseException)
    assert told in error.traceback
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value
    assert result.attempts == 1


def test_a_task_knows_its_attempt_and_may_be_tried_again(backend: DisquedBackend, work: Callable[..., None]) -> None:
    work(name="anna")
    result = ended(tasks.attempts.enqueue(fails=2))
    assert result.return_value == [3, result.id, ["unknown", "unknown", "anna"]]
    assert result.attempts == 3


def test_a_task_runs_after_its_instant(backend: DisquedBackend, work: Callable[..., None]) -> None:
    work()
    instant = timezone.now() + timedelta(seconds=1.5)
    late = tasks.double.using(run_after=instant).enqueue(1)
    past = tasks.double.using(run_after=timezone.now() - timedelta(days=1)).enqueue(2)
    assert ended(past).return_value == 4
    ended(late)
    assert late.started_at is not None
    assert late.started_at >= instant
    assert tasks.double.get_result(late.id).task.run_after == instant


def test_tasks_run_by_their_priority(backend: DisquedBackend, work: Callable[..., None]) -> None:
    tasks.seen.clear()
    given = [0, -100, 100, 10, -5, 0, 60, 10, -100]
    results = [
        tasks.double.using(priority=priority, queue_name=("default", "other")[n % 2]).enqueue(n)
        for n, priority in enumerate(given)
    ]
    work()
    for result in results:
        assert ended(result).task.priority == given[results.index(result)]
    steps = {60: 50, -5: -10}
    assert [steps.get(given[n], given[n]) for n in tasks.seen] == sorted((steps.get(p, p) for p in given), reverse=True)


def test_a_receiver_that_fails_changes_nothing(backend: DisquedBackend, work: Callable[..., None]) -> None:
    heard: list[str] = []

    def fail(sender: type, task_result: TaskResult, **_: Any) -> None:
        heard.append(task_result.status)
        raise ValueError("planted")

    for signal in (task_enqueued, task_started, task_finished):
        signal.connect(fail)
    tasks.seen.clear()
    work()
    result = ended(tasks.double.enqueue(1))
    for signal in (task_enqueued, task_started, task_finished):
        signal.disconnect(fail)
    assert (result.return_value, result.attempts, tasks.seen) == (2, 1, [1])
    assert sorted(heard) == ["READY", "RUNNING", "SUCCESSFUL"]


def test_an_error_that_has_no_room_is_cut(backend: DisquedBackend, work: Callable[..., None]) -> None:
    work()
    [error] = ended(tasks.fail.enqueue("x" * 70_000)).errors
    assert error.exception_class_path == "builtins.ValueError"
    assert error.traceback.endswith("xxx\n")


def test_spans_may_be_a_timedelta() -> None:
    options = {"TTL": timedelta(days=1), "RETRY": timedelta(minutes=1), "RESULT_TTL": timedelta(hours=1)}
    DisquedBackend("default", {"OPTIONS": options})


def test_signals_are_sent(backend: DisquedBackend, work: Callable[..., None]) -> None:
    heard: list[tuple[str, str, str]] = []
    listeners = []
    for name, signal in (("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished)):

        def hear(sender: type, task_result: TaskResult, name: str = name, **_: Any) -> None:
            heard.append((name, task_result.id, task_result.status))

        signal.connect(hear)
        listeners.append((signal, hear))
    work()
    result = ended(tasks.double.enqueue(1))
    wait_until(lambda: len(heard) == 3, "all signals")
    for signal, hear in listeners:
        signal.disconnect(hear)
    assert heard == [
        ("enqueued", result.id, "READY"),
        ("started", result.id, "RUNNING"),
        ("finished", result.id, "SUCCESSFUL"),
    ]


@pytest.mark.parametrize("name", ["DI" + "0" * 44 + "SQ", "nothing", "", "x" * 5_000])
def test_a_result_that_is_not_there_is_told_as_django_does(backend: DisquedBackend, name: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result(name)


def test_a_job_of_another_kind_is_no_result(backend: DisquedBackend, daemon: Daemon, queue: str) -> None:
    for body in ("no JSON", '{"a": 1}', "[1]"):
        with pytest.raises(TaskResultDoesNotExist):
            backend.get_result(daemon.call("ADDJOB", queue, body, 0))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"NODE": "x"}, "has the OPTIONS NODE; allowed are NODES, PREFIX"),
        ({"NODES": []}, "no node is named"),
        ({"NODES": "http://x"}, "TASKS['default']: "),
        ({"PRIORITIES": []}, "has no PRIORITIES; at least one is needed"),
        ({"PRIORITIES": [0, "high"]}, "PRIORITIES are whole numbers from -100 to 100"),
        ({"RETRY": -1}, "TASKS['default']: retry is"),
        ({"MAX_TRIES": 0}, "TASKS['default']: max_tries is"),
        ({"TTL": "long"}, "TASKS['default']: ttl is"),
        ({"PRIORITIES": "high"}, "PRIORITIES are whole numbers from -100 to 100"),
        ({"RESULT_TTL": None}, "has None as RESULT_TTL; leave it out for its default"),
        ({"PREFIX": b"x"}, "has the PREFIX b'x'; text is allowed"),
    ],
)
def test_options_that_are_wrong_are_told_at_once(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ImproperlyConfigured) as error:
        DisquedBackend("default", {"OPTIONS": options})
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--queue", "nope"), "unknown queue nope; allowed are default, other"),
        (("--threads", "0"), "concurrency is 0"),
        (("--backend", "nope"), "nope"),
    ],
)
def test_a_worker_that_cannot_work_says_why(backend: DisquedBackend, words: tuple[str, ...], told: str) -> None:
    with pytest.raises((CommandError, ImproperlyConfigured), match=told):
        call_command("disqued_worker", *words)


# Workers that are programs.


def program(node: Daemon, *words: str) -> subprocess.Popen[str]:
    """Start `manage.py` of the example."""
    known = environment() | {
        "NODES": address(node),
        "PYTHONPATH": os.pathsep.join(map(str, (EXAMPLE, ROOT / "clients/python", ROOT))),
    }
    return subprocess.Popen(
        [sys.executable, "manage.py", *words],
        cwd=EXAMPLE,
        env=known,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_example_runs_as_its_page_says(start: Start) -> None:
    node, page = start(), "examples/django/README.md"
    worker = program(node, "disqued_worker")
    try:
        with following(page) as lines:
            lines.ran("python manage.py disqued_worker &")
            out, err = program(node, "order", "ann", "12").communicate(timeout=LIMIT)
            assert out == "SUCCESSFUL: Dear ann, you have paid 12.\n", err
            assert f"```\n{out}```" in (EXAMPLE / "README.md").read_text()
            lines.ran("python manage.py order ann 12")
        out, err = program(node, "order", "bob", "-1").communicate(timeout=LIMIT)
        assert out.strip().endswith("ValueError: an order of -1"), err
        worker.terminate()
        out, err = worker.communicate(timeout=LIMIT)
        assert (worker.returncode, out.splitlines()) == (0, [
            "disqued_worker runs tasks of default, mail; SIGTERM stops it", "disqued_worker has stopped; 2 tasks done",
        ]), err  # fmt: skip
    finally:
        worker.kill()
        worker.communicate(timeout=LIMIT)


def test_what_the_page_shows_is_run(start: Start) -> None:
    node = start()
    with following("docs/how-to/django-tasks.md") as lines:
        [shown, command] = lines.lines
        found: dict[str, Any] = {}
        exec(shown, found)  # the settings
        lines.ran(shown)
        [params] = found["TASKS"].values()
        made = DisquedBackend("default", {name: value for name, value in params.items() if name != "BACKEND"})
        assert params["BACKEND"].rpartition(".")[2] == type(made).__name__
        worker = program(node, *command.removeprefix("python manage.py ").split())
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "disqued_worker runs tasks of mail; SIGTERM stops it\n"
            worker.terminate()
            assert worker.wait(LIMIT) == 0
        finally:
            worker.kill()
            worker.communicate(timeout=LIMIT)
        lines.ran(command)


def test_the_page_tells_the_options_and_their_defaults() -> None:
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| (.*?) \|", PAGE.read_text(), re.MULTILINE))
    told = {"RETRY": "300", "TTL": "7 days", "RESULT_TTL": "1 day", "MAX_TRIES": "3", "PREFIX": '`"django:"`'}
    assert rows == {
        "NODES": '`["127.0.0.1:7711"]`', "PRIORITIES": ", ".join(map(str, DEFAULTS["PRIORITIES"])), **told
    }  # fmt: skip
    assert set(rows) == set(DEFAULTS)
    assert (DEFAULTS["RETRY"], DEFAULTS["TTL"], DEFAULTS["RESULT_TTL"]) == (300, 7 * 86_400, 86_400)
    assert (DEFAULTS["MAX_TRIES"], DEFAULTS["PREFIX"], DEFAULTS["NODES"]) == (3, "django:", ["127.0.0.1:7711"])


def worker_program(nodes: list[str], prefix: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start a worker in a process of its own."""
    text = (
        "import tests.integration.test_django_tasks as this\n"
        f"for backend in this.backend_with({nodes!r}, {prefix!r}, **{options!r}):\n"
        "    backend.worker(['default', 'other']).run()\n"
    )
    return subprocess.Popen([sys.executable, "-c", text], env=environment(), cwd=ROOT)


def test_a_task_that_kills_its_worker_is_tried_so_often_and_no_more(daemon: Daemon, queue: str, tmp_path: Path) -> None:
    for backend in backend_with([address(daemon)], queue, MAX_TRIES=2):
        poison = tasks.kill.enqueue(str(tmp_path))
        good = tasks.double.enqueue(4)
        for _ in range(2):
            worker = worker_program([address(daemon)], queue, MAX_TRIES=2)
            assert worker.wait(LIMIT) == 9
        worker = worker_program([address(daemon)], queue)
        try:
            assert ended(good).return_value == 8
            ended(poison)
        finally:
            worker.kill()
            worker.wait(LIMIT)
        assert (poison.status, poison.attempts) == (TaskResultStatus.FAILED, 2)
        assert poison.errors[0].exception_class_path == "disqued.client.errors.JobDead"
        assert "died" in poison.errors[0].traceback
        assert len(list(tmp_path.iterdir())) == 2
        assert backend.get_result(poison.id).status == TaskResultStatus.FAILED


def test_three_nodes_lose_no_task_when_one_is_killed_in_the_middle(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    with ends_well(Cluster(tmp_path / "cluster")) as cluster:
        cluster.start(3)
        nodes = [address(node) for node in cluster.nodes]
        for _ in backend_with(nodes, "shop:", RETRY=5):
            workers = [worker_program(nodes, "shop:", RETRY=5) for _ in range(2)]
            try:
                results = []
                for n in range(120):
                    results.append(tasks.mark.enqueue(str(marks), str(n)))
                    if n == 60:
                        cluster.nodes[0].kill()
                wait_until(lambda: len(list(marks.iterdir())) == 120, "every task has run")
                assert [ended(result).return_value for result in results] == [str(n) for n in range(120)]
            finally:
                for worker in workers:
                    worker.kill()
                    worker.wait(LIMIT)


def test_a_result_is_found_from_a_node_that_does_not_have_it(tmp_path: Path) -> None:
    with ends_well(Cluster(tmp_path)) as cluster:
        cluster.start(3)
        for backend in backend_with([address(cluster.nodes[0])], "shop:"):
            job_id = tasks.double.enqueue(3).id
            for node in cluster.nodes:
                other = DisquedBackend("default", {"OPTIONS": {"NODES": [address(node)], "PREFIX": "shop:"}})
                assert other.get_result(job_id).status == TaskResultStatus.READY
                other.client.close()
            thread_worker = backend.worker(["default"])
            thread = threading.Thread(target=thread_worker.run)
            thread.start()
            ended(tasks.double.get_result(job_id))
            thread_worker.stop()
            thread.join()
            for node in cluster.nodes:
                other = DisquedBackend("default", {"OPTIONS": {"NODES": [address(node)], "PREFIX": "shop:"}})
                assert other.get_result(job_id).return_value == 6
                other.client.close()
