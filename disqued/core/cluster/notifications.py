"""Events: what those who listen to a queue hear, on whatever node they are.

    a step --> outbox.events --- end of the turn: counts are added up ---> listeners of this node
                                                                      +--> EVENT to nodes where somebody listens

Nothing is kept for who is not there, and nothing is sent twice: an event is a hint, and whoever needs to be sure asks.
Events leave as messages to other nodes do, when what they tell of is as durable as it will be.

A node says LISTEN when the first of its clients begins to listen and when the last one ends, and to each node that it
gets a link to.  So a queue whose events nobody wants costs nothing, here and on the bus.

Source: the Worqr README ("publish"); the Redis manual, "Pub/Sub".
"""

from disqued.core.model import messages
from disqued.core.model.machine import Hear, Machine
from disqued.core.model.outbox import CANCEL, DEAD, DELETE, DONE, EVERYWHERE, HERE_ALONE, RETURNED, WORK, Notification
from disqued.core.model.state import State

#: Types of event; the place in here is their number on the bus.
KINDS = (WORK, RETURNED, DONE, CANCEL, DELETE, DEAD)
PREFIX = b"wq:"  #: of every channel


def channel_of(queue: bytes, kind: bytes) -> bytes:
    """The channel on which events of a type are told; a queue's name may have any bytes, colons too."""
    return b"%b%b:%b" % (PREFIX, queue, kind)


class Notifications(Machine):
    """The machine between what happens and those who listen."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    def hears(self) -> dict[int, Hear]:
        return {messages.LISTEN: self.on_listen, messages.EVENT: self.on_event}

    @property
    def listens(self) -> bool:
        """Tell whether a client of this node listens."""
        return self._state.node_id in self._state.demand.listeners

    def set_listening(self, *, listens: bool) -> None:
        """Note whether clients of this node listen, and tell the other nodes when that has changed."""
        state = self._state
        if listens == self.listens:
            return
        if listens:
            state.demand.listeners[state.node_id] = None
        else:
            del state.demand.listeners[state.node_id]
        for node_id in list(state.peers.linked):
            state.send(node_id, (messages.LISTEN, listens))

    def link_opened(self, node_id: bytes) -> None:
        """Let a node know that somebody listens here."""
        if self.listens:
            self._state.send(node_id, (messages.LISTEN, True))

    def greeted(self, node_id: bytes) -> None:
        """The link of a node to us is new: if somebody listens there it says so on it."""
        self._state.demand.listeners.pop(node_id, None)

    def on_listen(self, sender: bytes, whether: bool) -> None:
        """Hear whether clients of another node listen."""
        if whether:
            self._state.demand.listeners[sender] = None
        else:
            self._state.demand.listeners.pop(sender, None)

    def on_event(self, sender: bytes, queue: bytes, kind: bytes, content: bytes) -> None:
        """Hear what happened on another node."""
        if self.listens:
            self._state.outbox.events.append(Notification(queue, kind, content, HERE_ALONE))

    def tell(self, queue: bytes, kind: bytes, content: int | bytes) -> None:
        """Tell whoever listens, on any node."""
        if self._state.demand.listeners:
            self._state.outbox.events.append(Notification(queue, kind, content))

    def collect(self) -> None:
        """Make messages of what was told since the last time; those for this node are addressed to it.

        A message to this node has one part more: the client that it is for, None = all who listen.
        """
        outbox = self._state.outbox
        events, outbox.events = outbox.events, []
        for event in _added_up(events):
            self._send(event)

    def _send(self, event: Notification) -> None:
        state = self._state
        queue, kind, content, audience = event
        text = content if isinstance(content, bytes) else b"%d" % content
        if audience == EVERYWHERE:
            for node_id in state.demand.listeners:
                if node_id != state.node_id:
                    state.send(node_id, (messages.EVENT, queue, kind, text))
        if audience in (EVERYWHERE, HERE_ALONE):
            if self.listens:
                state.outbox.messages.append((state.node_id, (messages.EVENT, queue, kind, text, None)))
        else:
            state.outbox.messages.append((state.node_id, (messages.EVENT, queue, kind, text, audience)))


def _added_up(events: list[Notification]) -> list[Notification]:
    """Make one of all counts of a queue, a type and an audience, in the place of the first; a count of 0 is none."""
    sums: dict[tuple[bytes, bytes, object], int] = {}
    for event in events:
        if isinstance(event.content, int):
            key = (event.queue, event.kind, event.audience)
            sums[key] = sums.get(key, 0) + event.content
    added: list[Notification] = []
    for event in events:
        if not isinstance(event.content, int):
            added.append(event)
        elif count := sums.pop((event.queue, event.kind, event.audience), 0):
            added.append(event._replace(content=count))
    return added
