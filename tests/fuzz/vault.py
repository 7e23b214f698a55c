"""What strangers and users of few rights must neither see nor change: jobs, a log and a list that are none of theirs.

fill --> vault, vault:log, vault:list: bodies that nobody could guess
what a stranger sends ... --> picture: is all as it was?   look: is nothing of it in what came back?
"""

from typing import Any, Final

import attrs

from tests.fuzz.node import Fuzzed

BODY: Final = b"the body of a job that is none of yours: 5f1d0c3b"
PASSWORD: Final = b"a password that nobody could guess: 93e1a7d4"
NAME: Final = b"vault"
#: Inputs call the job by an id that none has; who has seen an id somewhere knows it, so that it is no secret.
PLACEHOLDER: Final = b"DI" + b"0" * 44 + b"SQ"

_LOOKS: Final = (
    (b"QLEN", NAME), (b"QPEEK", NAME, b"10"), (b"PAUSE", NAME, b"state"), (b"QLEN", b"vault:list"),
    (b"QLEN", b"vault:log"), (b"ACL", b"LIST"), (b"CONFIG", b"GET", b"*"),
    (b"JSCAN", b"0", b"COUNT", b"1000", b"QUEUE", NAME, b"REPLY", b"id"),
)  # fmt: skip


@attrs.define
class Vault:
    """The things on one node."""

    node: Fuzzed
    job: bytes = b""

    def fill(self) -> None:
        """Put everything there."""
        self.job = bytes(self.run(b"ADDJOB", NAME, BODY, b"0"))
        self.run(b"QADD", b"vault:log", b"60", BODY)
        self.run(b"RQ.PUSH", b"vault:list", BODY)

    def run(self, *words: bytes) -> Any:
        """Run a command as somebody within the process, who may do everything.  Raises CommandError."""
        outcome: list[Any] = []
        self.node.daemon.clients.call(words, address="within").addBoth(outcome.append)
        self.node.turn()
        if hasattr(outcome[0], "raiseException"):
            outcome[0].raiseException()
        return outcome[0]

    def aimed(self, data: bytes) -> bytes:
        """An input, with the id of the job in the place of one that none has."""
        return data.replace(PLACEHOLDER, self.job)

    def picture(self) -> list[Any]:
        """All that must not change."""
        return [self.run(*words) for words in _LOOKS]

    def look(self, received: bytes, asked: bytes) -> None:
        """Raise AssertionError when something of it was shown; what was asked with its name may be told it again."""
        assert BODY not in received, received[:2_000]
        assert PASSWORD not in received, received[:2_000]
        assert NAME in asked.lower() or NAME not in received, received[:2_000]
