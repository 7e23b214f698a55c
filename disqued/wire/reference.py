"""The reference of the messages between nodes, as a page of markdown, written from their declarations.

python -m disqued.wire.reference > docs/reference/bus.md
"""

import sys
from collections.abc import Iterator
from itertools import groupby

from disqued.core.model.messages import KINDS, MessageKind
from disqued.wire.messages import CODECS

COMMAND_LINE = "python -m disqued.wire.reference > docs/reference/bus.md"

_INTRODUCTION = f"""\
# Messages between nodes

<!-- Written by `{COMMAND_LINE}`: change core/model/messages.py and the codecs in wire/, not this page. -->

A message begins with its kind, 1 byte. The last column gives the bytes that follow, each part with its size; a part
without a size has the length that was given, or takes the rest of the message. Integers are little-endian and unsigned;
times are milliseconds, passed or left. [How a job lives in a cluster](../explanation/cluster.md) shows the messages in
use.

A message marked *durable* promises that something is durable, or asks for that: it waits for the commit, and is dropped
while nothing can be committed. One marked *urgent* goes ahead of all others on a link.
"""


def page() -> str:
    """The whole page."""
    topics = groupby(sorted(KINDS, key=_order), lambda kind: kind.topic)
    return "\n".join([_INTRODUCTION, *(line for topic, kinds in topics for line in _section(topic, list(kinds)))])


def _order(kind: MessageKind) -> tuple[int, int]:
    """Kinds by topic, and topics by their first kind."""
    return min(other.number for other in KINDS if other.topic == kind.topic), kind.number


def _section(topic: str, kinds: list[MessageKind]) -> Iterator[str]:
    yield from (f"## {topic.capitalize()}", "", "| Kind | Name | Fields | Meaning | Bytes |", "|---|---|---|---|---|")
    for kind in kinds:
        marks = "".join(f" *{mark}*" for mark in ("durable", "urgent") if getattr(kind, mark))
        layout = CODECS[kind.number].layout
        yield f"| {kind.number} | {kind.name}{marks} | {kind.fields} | {kind.meaning} | {layout} |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(page())
