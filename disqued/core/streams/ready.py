"""Streams that have something for consumers that wait, which are served at the end of the step."""

from disqued.core.model.groups import Stream
from disqued.core.model.queues import PAUSE_OUT, Queue
from disqued.core.model.state import State


def make_ready(state: State, queue: Queue, stream: Stream) -> None:
    """Let consumers that wait for a stream be served at the end of the step, of this node and of others."""
    if not queue.pause & PAUSE_OUT and (stream.waiting or queue.name in state.demand.entries):
        state.ready[queue] = None
