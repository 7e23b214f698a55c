"""Kinds of units: what the machines of work jobs ask of the machines of streams, which are above them."""

from typing import Protocol

from disqued.core.model.job import Job, Unit
from disqued.core.model.queues import Queue


class StreamMachine(Protocol):
    """The machine that puts entries into streams; `streams.entries` has the theory."""

    def publish(self, job: Job) -> None:
        """Put an entry into its stream, where groups can have it."""

    def expect(self, job: Job) -> None:
        """Note an entry whose delay is not over."""

    def keep(self, job: Job) -> None:
        """Keep a copy of another node's entry."""


class StreamDelivery(Protocol):
    """What delivers the entries of streams; `streams.entrydelivery` has the theory."""

    def serve(self, queue: Queue) -> None:
        """Serve the consumers that wait for a stream."""

    def vanished(self, unit: Unit) -> None:
        """Take back an entry whose consumer was gone before it heard of it."""
