"""Spans of all clients on real nodes, and the trace ids in the event logs of these; with the SDK of OpenTelemetry."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode, format_trace_id
from twisted.internet.defer import inlineCallbacks
from twisted.internet.task import deferLater

from disqued.client import Bury, RetryLater, RunningJob
from tests.integration.client_sides import AioSide, BlockingSide, DeferredSide, Gate, address, until
from tests.integration.daemon import LIMIT, ROOT, Daemon, environment, wait_until
from tests.spans import Spans

Start = Callable[..., Daemon]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    return Spans(monkeypatch)


@pytest.fixture
def node(start: Start) -> Daemon:
    return start("--events", "all")


def pause(side: Any, then: Callable[[], object]) -> object:
    """Go on in a handler after a moment in which others run, in the way of its side."""
    match side:
        case BlockingSide():
            threading.Event().wait(0.05)
            return then()
        case AioSide():

            async def go_on() -> object:
                await asyncio.sleep(0.05)
                return then()

            return go_on()
    from twisted.internet import reactor

    async def awaits() -> object:
        await deferLater(reactor, 0.05, lambda: None)  # type: ignore[arg-type]
        return then()

    return awaits()


def lines_of(node: Daemon, job_id: bytes) -> list[dict[str, Any]]:
    """What the event log has of a job so far."""
    paths = sorted((Path(node.directory) / "events").rglob("*.jsonl"), key=lambda path: path.name)
    found = [json.loads(line) for path in paths for line in path.read_text().splitlines() if line.endswith("}")]
    return [line for line in found if line.get("job_id") == job_id.decode()]


async def stopped(worker: Any) -> None:
    worker.stop()
    await worker.ended


@pytest_twisted.ensureDeferred
async def test_each_attempt_is_a_span_that_links_to_the_producer_and_the_event_log_has_its_trace(
    side: Any, node: Daemon, queue: str, spans: Spans
) -> None:
    client = side.client(address(node))

    def work(job: RunningJob) -> str:
        with spans.tracer.start_as_current_span("inside"):
            if job.tries == 1:
                raise ValueError("no address")
            return "done"

    added = await client.add(queue, "x", retry=60, backoff=1, result_ttl=60)
    other = await client.add(f"{queue}.other", "y", headers={"traceparent": "?"})
    worker = side.worker(client, [queue], lambda job: pause(side, lambda: work(job)), poll=0.1)
    assert await client.wait(added, LIMIT) == b"done"
    await until(lambda: len(spans.ended("process")) == 2, "two attempts")
    await stopped(worker)
    [sent] = spans.ended(f"send {queue}")[:1]
    attempts, inside = spans.ended("process"), spans.ended("inside")
    assert (sent.kind, sent.attributes and sent.attributes["messaging.message.id"]) == (
        SpanKind.PRODUCER, added.decode(),
    )  # fmt: skip
    for number, (attempt, child) in enumerate(zip(attempts, inside, strict=True), 1):
        assert (attempt.name, attempt.kind, attempt.parent) == (f"process {queue}", SpanKind.CONSUMER, None)
        assert [link.context.span_id for link in attempt.links] == [sent.context.span_id]
        assert [link.context.trace_id for link in attempt.links] == [sent.context.trace_id]
        assert attempt.attributes
        assert attempt.attributes["messaging.disqued.message.delivery_attempt"] == number
        assert attempt.attributes["messaging.message.id"] == added.decode()
        assert child.parent == attempt.context
    assert len({span.context.trace_id for span in (sent, *attempts)}) == 3
    failed, done = attempts
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "ValueError: no address")
    assert [event.name for event in failed.events] == ["exception"]
    assert done.status.status_code is StatusCode.UNSET

    def has_all() -> bool:
        return [line["event"] for line in lines_of(node, added)] == ["add", "deliver", "nack", "deliver", "ack"]

    await until(has_all, "the lines of the job")
    assert {line["trace_id"] for line in lines_of(node, added)} == {format_trace_id(sent.context.trace_id)}
    assert all("trace_id" not in line for line in lines_of(node, other))
    await client.delete(other)


@pytest_twisted.ensureDeferred
async def test_handlers_that_run_together_have_the_contexts_of_their_own_jobs(
    side: Any, node: Daemon, queue: str, spans: Spans
) -> None:
    client = side.client(address(node))
    found: dict[bytes, object] = {}

    def look(job: RunningJob) -> None:
        current = trace.get_current_span()
        assert isinstance(current, ReadableSpan)
        found[job.id] = (current.attributes or {})["messaging.message.id"]

    ids = [await client.add(queue, str(number)) for number in range(8)]
    worker = side.worker(client, [queue], lambda job: pause(side, lambda: look(job)), concurrency=4, poll=0.1)
    await until(lambda: len(spans.ended("process")) == 8, "8 attempts")
    await stopped(worker)
    assert found == {job_id: job_id.decode() for job_id in ids}
    assert trace.get_current_span() is trace.INVALID_SPAN


@pytest_twisted.ensureDeferred
async def test_a_job_that_a_handler_adds_belongs_to_the_trace_of_its_attempt(
    side: Any, node: Daemon, queue: str, spans: Spans
) -> None:
    client = side.client(address(node))
    direct = getattr(client, "inner", client)

    def add(job: RunningJob) -> object:
        return direct.add(f"{queue}.next", job.body)

    await client.add(queue, "x")
    worker = side.worker(client, [queue], add, poll=0.1)
    await until(lambda: spans.ended("process"), "an attempt")
    await stopped(worker)
    [attempt], [following] = spans.ended("process"), spans.ended(f"send {queue}.next")
    assert following.parent == attempt.context
    [job] = await client.get(f"{queue}.next", headers=True)
    assert job.headers["traceparent"].decode().split("-")[1] == format_trace_id(attempt.context.trace_id)
    await client.ack(job)


@pytest_twisted.ensureDeferred
async def test_a_job_that_is_put_off_buried_or_cancelled_says_so(
    side: Any, node: Daemon, queue: str, spans: Spans
) -> None:
    client = side.client(address(node))
    gate = Gate()

    def handler(job: RunningJob) -> object:
        match job.body:
            case b"later":
                raise RetryLater(100, "the shop is closed")
            case b"bury":
                raise Bury("no such user")
            case b"number":
                return 5
        if side.cancels():
            return side.waits(gate, job)
        while not job.is_cancelled:
            threading.Event().wait(0.05)
        raise ValueError("stopped in the middle")

    ids = [await client.add(queue, body, retry=1, result_ttl=60) for body in ("later", "bury", "number", "cancel")]
    worker = side.worker(client, [queue], handler, concurrency=4, poll=0.1)
    await until(lambda: len(spans.ended("process")) >= 3, "three attempts")
    assert await client.cancel(ids[3]) == ["cancelling"]
    await until(lambda: len(spans.ended("process")) >= 4, "the cancelled one")
    await stopped(worker)
    by_id = {(span.attributes or {})["messaging.message.id"]: span for span in spans.ended("process")}
    later, buried, number, cancelled = (by_id[job_id.decode()] for job_id in ids)
    assert later.status.description == "to be tried again in 100 s: the shop is closed"
    assert buried.status.description == "buried: no such user"
    assert number.status.description == "TypeError: the handler returned 5; bytes, text and None are results"
    assert cancelled.status.status_code is StatusCode.UNSET
    assert [[event.name for event in span.events] for span in (later, buried, number, cancelled)] == [
        [], [], ["exception"], ["cancelled"],
    ]  # fmt: skip


@pytest_twisted.ensureDeferred
async def test_inline_callbacks_have_the_context_of_their_attempt(node: Daemon, queue: str, spans: Spans) -> None:
    from twisted.internet import reactor

    side = DeferredSide()
    client = side.client(address(node))
    found: list[object] = []

    @inlineCallbacks
    def handler(job: RunningJob) -> Any:
        yield deferLater(reactor, 0.01, lambda: None)  # type: ignore[arg-type]
        found.append(trace.get_current_span().get_span_context())

    await client.add(queue, "x")
    worker = side.worker(client, [queue], handler, poll=0.1)
    await until(lambda: spans.ended("process"), "an attempt")
    await stopped(worker)
    await side.close()
    assert found == [span.context for span in spans.ended("process")]


PLAIN = """
import sys, threading
if {blocked}:
    sys.modules["opentelemetry"] = None
from disqued.client import tracing
from disqued.client.blocking import Client, Worker

with Client("127.0.0.1:{port}") as client:
    added = client.add("plain", "x", result_ttl=60)
    print(client.show(added).get("headers"))
    worker = Worker(client, ["plain"], lambda job: repr(dict(job.headers)))
    thread = threading.Thread(target=worker.run)
    thread.start()
    print(added.wait(30), tracing.tracer is None)
    worker.stop()
    thread.join()
"""


@pytest.mark.parametrize("blocked", [True, False], ids=["no package", "no SDK"])
def test_without_the_package_or_an_sdk_a_job_has_no_headers_and_is_handled(node: Daemon, blocked: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PLAIN.format(blocked=blocked, port=node.port)],
        capture_output=True, text=True, timeout=LIMIT, check=True, env=environment(), cwd=ROOT,
    )  # fmt: skip
    assert done.stdout in (f"None\nb'{{}}' {blocked}\n", f"[]\nb'{{}}' {blocked}\n")
    wait_until(lambda: len(list(Path(node.directory).rglob("*.jsonl"))) == 1, "an event log")
    assert "trace_id" not in next(iter(Path(node.directory).rglob("*.jsonl"))).read_text()
