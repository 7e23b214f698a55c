"""Spans of additions and attempts, with the SDK of OpenTelemetry; nothing is sent here."""

import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode, TraceState, format_span_id, format_trace_id

from disqued.client import Bury, JobCancelled, RetryLater, commands, tracing
from disqued.client.addresses import read_address
from disqued.client.calls import Call, Patience
from disqued.client.job import Job
from disqued.client.nodes import Nodes
from disqued.client.tasks import STOPPED, GiveBack, Phase, Task
from tests.spans import Spans

ROOT = Path(__file__).parents[3]
ID = b"DI" + b"b" * 8 + b"0" * 32 + b"05a0SQ"
TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    return Spans(monkeypatch)


def call_of(**options: Any) -> Call:
    return Call(commands.add("mail", "to: ann", **options), Nodes([read_address("host:1")], Random(3)), Patience(), 0.0)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    with pytest.raises(StopIteration) as ended:
        work.send(None)
    return ended.value.value


def headers_of(call: Call) -> dict[bytes, bytes]:
    words = call.command.words
    found = {words[at + 1]: words[at + 2] for at, word in enumerate(words) if word == b"HEADER"}
    assert found == dict(call.command.headers or ())
    return found


async def added() -> bytes:
    return ID


def test_an_addition_is_a_span_of_its_caller_whose_context_goes_with_the_job(spans: Spans) -> None:
    call = call_of(headers={"size": "32"}, key="k")
    with spans.tracer.start_as_current_span("order"):
        assert run(tracing.sent(call, added())) == ID
    sent, order = spans.take()
    assert (sent.name, sent.kind, sent.parent, sent.links) == ("send mail", SpanKind.PRODUCER, order.context, ())
    assert dict(sent.attributes or {}) == {
        "messaging.system": "disqued", "messaging.operation.name": "send", "messaging.operation.type": "send",
        "messaging.destination.name": "mail", "messaging.message.body.size": 7, "messaging.message.id": ID.decode(),
    }  # fmt: skip
    carried = headers_of(call)
    assert carried.keys() == {b"size", b"traceparent"}
    ids = [format_trace_id(sent.context.trace_id), format_span_id(sent.context.span_id)]
    assert carried[b"traceparent"].decode().split("-")[1:3] == ids
    assert call.command.words[:4] == (b"ADDJOB", b"mail", b"to: ann", b"5000")


def test_tracestate_and_baggage_travel_as_well(spans: Spans) -> None:
    remote = trace.SpanContext(1, 2, True, trace.TraceFlags(1), TraceState([("a", "b")]))
    within = baggage.set_baggage("tenant", "ann", trace.set_span_in_context(trace.NonRecordingSpan(remote)))
    token = context.attach(within)
    try:
        run(tracing.sent(call := call_of(), added()))
    finally:
        context.detach(token)
    assert headers_of(call).keys() == {b"traceparent", b"tracestate", b"baggage"}
    assert headers_of(call)[b"traceparent"].startswith(b"00-" + b"0" * 31 + b"1-")


def test_a_traceparent_of_the_caller_stays_and_the_span_links_to_it(spans: Spans) -> None:
    call = call_of(headers={"traceparent": TRACEPARENT})
    words = call.command.words
    run(tracing.sent(call, added()))
    assert call.command.words == words
    [sent] = spans.take()
    [link] = sent.links
    assert (format_trace_id(link.context.trace_id), format_span_id(link.context.span_id)) == (TRACE_ID, SPAN_ID)
    assert sent.parent is None


@pytest.mark.parametrize(
    "headers", [{str(number): "" for number in range(16)}, {"a": "x" * 8_150}], ids=["count", "bytes"]
)
def test_headers_that_leave_no_room_go_without_a_context(spans: Spans, headers: dict[str, str]) -> None:
    call = call_of(headers=headers)
    run(tracing.sent(call, added()))
    assert headers_of(call).keys() == {name.encode() for name in headers}
    assert len(spans.take()) == 1


def test_what_does_not_fit_is_left_out_from_the_end(spans: Spans) -> None:
    call = call_of(headers={str(number): "" for number in range(15)})
    token = context.attach(baggage.set_baggage("tenant", "ann"))
    try:
        run(tracing.sent(call, added()))
    finally:
        context.detach(token)
    assert headers_of(call).keys() >= {b"traceparent"}
    assert len(headers_of(call)) == 16


def test_an_addition_that_fails_has_its_error(spans: Spans) -> None:
    async def fails() -> bytes:
        raise JobCancelled("no node")

    with pytest.raises(JobCancelled):
        tracing.sent(call_of(), fails()).send(None)
    [sent] = spans.take()
    assert sent.status.status_code is StatusCode.ERROR
    assert (sent.attributes or {})["error.type"] == "disqued.client.errors.JobCancelled"
    assert [event.name for event in sent.events] == ["exception"]


def test_without_an_sdk_nothing_is_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "tracer", trace.NoOpTracer())
    call = call_of()
    words = call.command.words
    assert run(tracing.sent(call, added())) == ID
    assert call.command.words == words


# Attempts.


def task_of(**headers: bytes) -> Task:
    job = Job(b"mail", ID, b"to: ann", attempt=3, headers=MappingProxyType(headers))
    return Task(job, Phase.RUNNING, None)


def attempted(spans: Spans, task: Task) -> ReadableSpan:
    """Let an attempt end with what the task says."""
    with tracing.attempt(task):
        pass
    [span] = spans.take()
    return span


def test_an_attempt_is_a_trace_of_its_own_that_links_to_the_producer(spans: Spans) -> None:
    begin, task = spans.tracer.start_as_current_span, task_of(traceparent=TRACEPARENT.encode())
    with begin("the program"), tracing.attempt(task), begin("inside"):
        pass
    inside, attempt, _ = spans.take()
    assert (attempt.name, attempt.kind, attempt.parent) == ("process mail", SpanKind.CONSUMER, None)
    assert inside.parent == attempt.context
    [link] = attempt.links
    assert (format_trace_id(link.context.trace_id), format_span_id(link.context.span_id)) == (TRACE_ID, SPAN_ID)
    assert format_trace_id(attempt.context.trace_id) != TRACE_ID
    assert attempt.status.status_code is StatusCode.UNSET
    assert dict(attempt.attributes or {}) == {
        "messaging.system": "disqued", "messaging.operation.name": "process", "messaging.operation.type": "process",
        "messaging.destination.name": "mail", "messaging.message.body.size": 7, "messaging.message.id": ID.decode(),
        "messaging.disqued.message.delivery_attempt": 3,
    }  # fmt: skip


@pytest.mark.parametrize("traceparent", [None, b"", b"00-x", b"\xff\0", TRACEPARENT.upper().encode()])
def test_an_attempt_of_a_job_without_a_sound_traceparent_has_no_link(spans: Spans, traceparent: bytes | None) -> None:
    headers = {} if traceparent is None else {"traceparent": traceparent}
    assert attempted(spans, task_of(**headers)).links == ()


def test_the_context_of_the_program_comes_back_and_baggage_of_the_producer_is_there_meanwhile(spans: Spans) -> None:
    before = context.get_current()
    with tracing.attempt(task_of(traceparent=TRACEPARENT.encode(), baggage=b"tenant=ann")):
        assert baggage.get_baggage("tenant") == "ann"
    assert context.get_current() == before
    assert baggage.get_baggage("tenant") is None


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it has no text")


@pytest.mark.parametrize(
    ("error", "give_back", "description", "recorded"),
    [
        (ValueError("no address"), GiveBack(1, "ValueError: no address"), "ValueError: no address", True),
        (ValueError("no address"), GiveBack(), "ValueError: no address", True),
        (Speechless(), GiveBack(1, "Speechless"), "Speechless", False),
        (RetryLater(5, "closed"), GiveBack(5, "closed"), "to be tried again in 5 s: closed", False),
        (Bury("poison"), GiveBack(None, "poison", is_dead=True), "buried: poison", False),
        (ValueError("x"), GiveBack(None, "too often", is_dead=True), "buried: too often", True),
        (None, GiveBack(0, STOPPED), "the worker stopped", False),
    ],
)
def test_an_attempt_that_failed_says_why(
    spans: Spans, error: Exception | None, give_back: GiveBack, description: str, recorded: bool
) -> None:
    task = task_of()
    task.error, task.give_back = error, give_back
    span = attempted(spans, task)
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, description)
    assert [event.name for event in span.events] == ["exception"] * recorded
    kind = (span.attributes or {}).get("error.type")
    assert kind == (None if error is None else tracing._name_of(error))


def test_a_cancelled_job_is_no_error(spans: Spans) -> None:
    task = task_of()
    task.error = ValueError("it stopped in the middle")
    task.cancelled.is_set = True
    span = attempted(spans, task)
    assert (span.status.status_code, [event.name for event in span.events]) == (StatusCode.UNSET, ["cancelled"])
    assert "error.type" not in (span.attributes or {})


def test_names_that_are_no_text_are_escaped(spans: Spans) -> None:
    task = Task(Job(b"a\xff", ID, b""), Phase.RUNNING, None)
    assert attempted(spans, task).name == "process a\\xff"


def test_without_the_package_the_clients_have_no_tracer() -> None:
    program = """
import sys
sys.modules["opentelemetry"] = None
import disqued.client.aio, disqued.client.blocking, disqued.client.tracing
from disqued.client import Client
print(disqued.client.tracing.tracer, [name for name in sys.modules if name.startswith("opentelemetry.")])
"""
    argv = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "None []\n"
