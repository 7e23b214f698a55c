"""Spans of OpenTelemetry that a test looks at."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from disqued.client import tracing


class Spans:
    """The spans that have ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("test")
        monkeypatch.setattr(tracing, "tracer", self.tracer)

    def ended(self, name: str = "") -> list[ReadableSpan]:
        """Return those whose names begin so, oldest first."""
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith(name)]

    def take(self) -> list[ReadableSpan]:
        """Return all of them, and forget them."""
        found = self.ended()
        self._exporter.clear()
        return found
