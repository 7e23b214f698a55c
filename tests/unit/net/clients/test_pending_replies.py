"""Replies that have not left: those of two steps together, and those that are taken back."""

from typing import Any

from disqued.errors import JournalFailed
from disqued.net.clients.pending_replies import Replies, job_ids


def ids(value: Any) -> list[bytes]:
    return list(value)


def replies(*texts: bytes) -> Replies:
    made = Replies()
    for text in texts:
        made.promises.append((len(made.texts), ids, [text]))
        made.deliveries.append((ids, [text]))
        made.texts.append(text)
    return made


def test_the_promises_of_later_replies_are_still_those_of_their_texts() -> None:
    both = replies(b"a", b"b")
    later = replies(b"c")
    both.extend(later)
    assert (later.texts, later.deliveries, later.promises) == ([], [], [])
    assert both.take_back({b"b", b"c"}, JournalFailed("MISCONF full")) == [b"b", b"c"]
    assert both.texts[0] == b"a"
    assert [text[:1] for text in both.texts[1:]] == [b"-", b"-"]


def test_jobs_are_known_though_the_texts_that_hand_them_out_are_dropped() -> None:
    dropped = replies(b"a", b"b")
    dropped.drop()
    assert not dropped.texts
    assert not dropped.promises
    assert job_ids(dropped.deliveries) == [b"a", b"b"]
