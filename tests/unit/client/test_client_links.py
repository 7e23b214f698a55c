"""The connections to one node, for sides whose commands are awaited: what a wait for jobs leaves of its connection."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from disqued.client.base_links import BaseLinks
from disqued.client.blocking.stepping import finish
from disqued.client.calls import Patience
from disqued.client.commands import ConnectionUse
from disqued.client.errors import ServerError
from disqued.client.failures import ConnectionBroken

WORDS = (b"WAITJOB", b"5000", b"id")


class Cancelled(BaseException):
    """A runner's way to cancel a coroutine."""


class Link:
    """A connection that answers as it is told."""

    def __init__(self, answer: Callable[[], object]) -> None:
        self.answer = answer
        self.is_up = self.is_idle = True
        self.confirms: bool | None = None
        self.receipt = None

    async def ask(self, words: tuple[bytes, ...], limit: float) -> object:
        return self.answer()

    def finish(self) -> None:
        self.is_up = False

    async def gone(self) -> object:
        return None


class Links(BaseLinks[Link]):
    """Connections whose waits are answered as they are told."""

    def __init__(self, answer: Callable[[], object]) -> None:
        self.opened: list[Link] = []
        self.answer = answer
        self.patience, self.greetings = Patience(), ()
        super().__init__(("host", 1), self, lambda reply: None)

    async def connect(self, address: object) -> Link:
        self.opened.append(Link(self.answer))
        return self.opened[-1]

    def _opened(self, lane: ConnectionUse) -> Awaitable[Link]:
        raise AssertionError("a wait would hold up what comes behind it on a shared connection")

    async def _fetch(self, words: tuple[bytes, ...], limit: float) -> object:
        raise AssertionError

    def _ask_seated(self, *_: Any) -> Awaitable[object]:
        raise AssertionError


def raises(error: BaseException) -> Callable[[], object]:
    def answer() -> object:
        raise error

    return answer


def test_a_connection_is_used_again_for_the_next_wait() -> None:
    links = Links(lambda: "over")
    for _ in range(3):
        assert finish(links.ask(ConnectionUse.WAIT, WORDS, 1.0)) == "over"
    links.answer = links.opened[0].answer = raises(ServerError("ERR too many"))
    for _ in range(2):
        with pytest.raises(ServerError):
            finish(links.ask(ConnectionUse.WAIT, WORDS, 1.0))
    assert [link.is_up for link in links.opened] == [True]


@pytest.mark.parametrize("error", [Cancelled(), ConnectionBroken()])
def test_a_connection_whose_reply_is_outstanding_is_not_used_again(error: BaseException) -> None:
    links = Links(raises(error))
    with pytest.raises(type(error)):
        finish(links.ask(ConnectionUse.WAIT, WORDS, 1.0))
    links.answer = lambda: "over"
    assert finish(links.ask(ConnectionUse.WAIT, WORDS, 1.0)) == "over"
    assert [link.is_up for link in links.opened] == [False, True]


def test_two_waits_have_a_connection_each() -> None:
    links = Links(lambda: finish(links.ask(ConnectionUse.WAIT, WORDS, 1.0)) if len(links.opened) < 2 else "over")
    assert finish(links.ask(ConnectionUse.WAIT, WORDS, 1.0)) == "over"
    assert len(links.opened) == 2
