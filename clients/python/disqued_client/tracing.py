"""Spans of OpenTelemetry: one for each addition of a job, and one for each attempt of a worker.

    client.add("mail", ...)    PRODUCER "send mail"; its context goes with the job, as headers
    handler(job)               CONSUMER "process mail", with a link to that context; current while the handler runs

An attempt is a trace of its own that links to the producer, not a child of the producer's span.  A job may run hours
after the request that added it, and several times: as a child it would keep the trace of that request open, and the
request would seem to last until the last try.  The link leads both ways, and each attempt is sampled by itself.

Names and attributes follow the semantic conventions for messaging; the propagator is the global one.  `tracer` is None
without OpenTelemetry, and then nothing else here is used.
"""

from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .calls import Call
from .tasks import Bury, RetryLater, Task, reason_of
from .values import HEADERS_BYTES_MAX, HEADERS_MAX, Headers

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, Tracer
    from opentelemetry.util.types import AttributeValue

tracer: "Tracer | None" = None
with suppress(ImportError):
    from opentelemetry import context, propagate, trace

    tracer = trace.get_tracer("disqued.client")

T = TypeVar("T")

SYSTEM: Final = "disqued"
MESSAGE_ID: Final = "messaging.message.id"
ATTEMPT: Final = "messaging.disqued.message.delivery_attempt"
ERROR_TYPE: Final = "error.type"
TRACEPARENT: Final = b"traceparent"


# Producers.


async def sent(call: Call[T], asking: Coroutine[Any, Any, T]) -> T:
    """Add a job in a span, a child of the caller's; returns what `asking` returns, which carries out the call.

    Where the job brings a traceparent of its own, the span links to it and the job keeps it.
    """
    assert tracer is not None
    _, queue, body, *_ = call.command.words
    given = call.command.headers or ()
    with tracer.start_as_current_span(
        f"send {_text(queue)}", kind=trace.SpanKind.PRODUCER, attributes=_attributes("send", queue, body),
        links=_links_to(_context_of(given)),
    ) as span:  # fmt: skip
        if TRACEPARENT not in dict(given):
            call.carry(_injected(given))
        try:
            result = await asking
        except BaseException as error:
            span.set_attribute(ERROR_TYPE, _name_of(error))
            raise
        if isinstance(result, bytes):
            span.set_attribute(MESSAGE_ID, _text(result))
        return result


def _injected(given: Headers) -> Headers:
    """Return the headers that carry the current context, as far as there is room besides those of the caller."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    names = dict(given)
    found = [(name.encode(), value.encode()) for name, value in carrier.items() if name.encode() not in names]
    while len(given) + len(found) > HEADERS_MAX or _size(given) + _size(found) > HEADERS_BYTES_MAX:
        found.pop()
    return tuple(found)


# Workers.


@contextmanager
def attempt(task: Task) -> Iterator[None]:
    """Open the span of an attempt, which ends with what its task says then; the producer's baggage is current, too."""
    assert tracer is not None
    job = task.job
    producer = _context_of((name.encode(), value) for name, value in job.headers.items())
    root = trace.set_span_in_context(trace.INVALID_SPAN, producer)
    span = tracer.start_span(
        f"process {_text(job.queue)}", root, trace.SpanKind.CONSUMER,
        attributes=_attributes("process", job.queue, job.body) | {MESSAGE_ID: _text(job.id), ATTEMPT: job.attempt},
        links=_links_to(producer),
    )  # fmt: skip
    token = context.attach(trace.set_span_in_context(span, root))
    try:
        yield
    finally:
        context.detach(token)
        _describe(span, task)
        span.end()


def _describe(span: "Span", task: Task) -> None:
    """Say how an attempt ended, if its job is not done."""
    error, back = task.error, task.give_back
    if error is None and not back.reason:
        return
    if task.cancelled.is_set:
        span.add_event("cancelled")
        return
    if error is not None:
        span.set_attribute(ERROR_TYPE, _name_of(error))
        if not isinstance(error, Bury | RetryLater):
            with suppress(Exception):  # of a class whose text fails
                span.record_exception(error)
    reason = back.reason or (reason_of(error) if error is not None else "")
    if back.is_dead:
        reason = f"buried: {reason}"
    elif isinstance(error, RetryLater):
        reason = f"to be tried again in {error.delay:g} s: {reason}"
    span.set_status(trace.StatusCode.ERROR, reason)


# Both.


def _attributes(operation: str, queue: bytes, body: bytes) -> "dict[str, AttributeValue]":
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": _text(queue),
        "messaging.message.body.size": len(body),
    }


def _context_of(headers: Iterable[tuple[bytes, bytes]]) -> "Context":
    """Return the context that the headers of a job carry."""
    return propagate.extract({name.decode(): value.decode(errors="replace") for name, value in headers})


def _links_to(producer: "Context") -> "list[Link]":
    found = trace.get_current_span(producer).get_span_context()
    return [trace.Link(found)] if found.is_valid else []


def _name_of(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _size(headers: Iterable[tuple[bytes, bytes]]) -> int:
    return sum(len(name) + len(value) for name, value in headers)


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")
