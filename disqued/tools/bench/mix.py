"""Which commands a load is made of, and how often each comes.

    --mix addjob=5,getjob=4,ackjob=1      of ten requests five, four and one, spread as evenly as it goes
    --command once='ADDJOB __queue__ __body__ 0 RETRY 0 REPLICATE 1'      one more name for --mix

A template is words.  In them stand

    __queue__   the queue, the next one of them for each request
    __body__    the body, as long as was asked for
    __id__      a job that this load was told of: handed out by its GETJOBs; without these, added by its ADDJOBs
    __n__       a number that no other request of the load has

An id is used once, and comes again only for commands that leave the job as it is (SHOW, WORKING).  As long as none is
known another command takes the turn, and how often that was is counted.
"""

import math
import shlex
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any, Final, cast

import attrs
import hiredis

QUEUE: Final = b"__queue__"
BODY: Final = b"__body__"
ID: Final = b"__id__"
NUMBER: Final = b"__n__"

DEFAULT: Final = "addjob=1,getjob=1,ackjob=1"
#: The names that need no --command.
KNOWN: Final = {
    "addjob": "ADDJOB __queue__ __body__ 5000",
    "getjob": "GETJOB NOHANG FROM __queue__",
    **{name: f"{name.upper()} __id__" for name in (
        "ackjob", "fastack", "nack", "working", "enqueue", "dequeue", "deljob", "show",
    )},
    "qlen": "QLEN __queue__",
    "qpeek": "QPEEK __queue__ 1",
    "qstat": "QSTAT __queue__",
    "ping": "PING",
    "hello": "HELLO",
}  # fmt: skip
ADDS: Final = b"ADDJOB"
GETS: Final = b"GETJOB"
#: Commands that a job is as it was after.
LEAVE: Final = (b"SHOW", b"WORKING")
LONGEST_ROUND: Final = 10_000  #: requests after which a mix begins anew
READY_MAX: Final = 16 << 20  #: bytes of a command that are kept for all queues, so that it is not made each time
IDS_MAX: Final = 1_000_000  #: that are remembered; the oldest are forgotten


class BadMix(ValueError):
    """A mix or a template that cannot be; says what is wrong and what is allowed."""


@attrs.frozen
class Template:
    """A command of the load."""

    name: str
    words: tuple[bytes, ...]

    @property
    def verb(self) -> bytes:
        """The name of the command, in capitals."""
        return self.words[0].upper()

    @property
    def needs_id(self) -> bool:
        """Tell whether a job has to be known for it."""
        return any(ID in word for word in self.words)

    def queues(self, queues: Sequence[bytes]) -> list[bytes]:
        """The queues that an ADDJOB fills.  Raises BadMix when nobody can know."""
        name = self.words[1] if len(self.words) > 1 else b""
        if any(part in name for part in (BODY, ID, NUMBER)):
            raise BadMix(f"the command {self.name} has a queue of its own for each request: --keep allows that")
        return [name.replace(QUEUE, queue) for queue in queues] if QUEUE in name else [name]


@attrs.frozen
class Mix:
    """The commands of a load, in the order of one round."""

    templates: tuple[Template, ...]
    #: Their numbers, each as often as its weight says.
    round: tuple[int, ...]

    @property
    def handed_out(self) -> bool:
        """Tell whether ids are those of jobs that were handed out; else those that were added."""
        return any(template.verb == GETS for template in self.templates)

    def filled(self, queues: Sequence[bytes]) -> list[bytes]:
        """The queues that jobs are added to.  Raises BadMix."""
        adding = [template for template in self.templates if template.verb == ADDS]
        return sorted({queue for template in adding for queue in template.queues(queues)})


def template(name: str, text: str) -> Template:
    """Read a template as it is typed.  Raises BadMix."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadMix(f"the command {name} cannot be read: {str(error).lower()}") from None
    return of_words(name, words)


def of_words(name: str, words: Sequence[str]) -> Template:
    """Make a template of words.  Raises BadMix."""
    if not words or not words[0]:
        raise BadMix(f"the command {name} has no words; it is written like 'ADDJOB __queue__ __body__ 0'")
    return Template(name, tuple(word.encode("utf-8", "surrogateescape") for word in words))


def read_mix(text: str, own: Mapping[str, Template]) -> Mix:
    """Read `name=weight,name=weight`; `own` are the names of --command.  Raises BadMix."""
    known = {name: template(name, words) for name, words in KNOWN.items()} | dict(own)
    weights: dict[str, int] = {}
    for part in text.split(","):
        name, _, weight = (word.strip() for word in part.partition("="))
        if name not in known:
            raise BadMix(
                f"the mix names {name!r}, which is no command; those are {', '.join(known)}, and more by --command"
            )
        if name in weights:
            raise BadMix(f"the mix names {name} twice")
        if weight and not (weight.isascii() and weight.isdecimal() and int(weight)):
            raise BadMix(f"the mix gives {name} the weight {weight!r}; whole numbers from 1 are allowed")
        weights[name] = int(weight or 1)
    return make_mix([known[name] for name in weights], list(weights.values()))


def make_mix(templates: Sequence[Template], weights: Sequence[int]) -> Mix:
    """Spread commands over a round, each as its weight says.  Raises BadMix."""
    divisor = math.gcd(*weights)
    shares = [weight // divisor for weight in weights]
    if sum(shares) > LONGEST_ROUND:
        raise BadMix(f"the weights of the mix add up to {sum(shares)}; {LONGEST_ROUND} are allowed")
    made = Mix(tuple(templates), tuple(_spread(shares)))
    if any(each.needs_id for each in templates) and not any(each.verb in (ADDS, GETS) for each in templates):
        raise BadMix("__id__ is a job that the load was told of: there has to be an ADDJOB or a GETJOB in it, too")
    if all(each.needs_id for each in templates):
        raise BadMix("every command needs an __id__, and none can come first; add one that needs none")
    return made


def _spread(shares: Sequence[int]) -> Iterator[int]:
    """Deal turns out, so that those of each come as evenly as it goes: who is furthest behind has the next one."""
    behind = [0] * len(shares)
    total = sum(shares)
    for _ in range(total):
        behind = [each + share for each, share in zip(behind, shares, strict=True)]
        turn = max(range(len(shares)), key=lambda number: (behind[number], -number))
        behind[turn] -= total
        yield turn


class Requests:
    """Makes the requests of one process, one after the other, as the bytes that are sent."""

    def __init__(self, mix: Mix, queues: Sequence[bytes], body: bytes, first: int = 0, step: int = 1) -> None:
        """`__n__` is first, first + step, ... : processes that begin at 0, 1, 2 and step alike share no number."""
        self.mix = mix
        self.ids: deque[bytes] = deque(maxlen=IDS_MAX)
        #: How often each command had no job, and another one took its turn.
        self.passed_over = [0] * len(mix.templates)
        self._turns = cycle(mix.round)
        self._names = list(queues)
        self._queues = cycle(queues)
        self._body = body
        self._number = first - step
        self._step = step
        self._make = [self._maker(each) for each in mix.templates]
        self._needs_id = [each.needs_id for each in mix.templates]
        self._keeps_id = [each.verb in LEAVE for each in mix.templates]

    def next(self) -> tuple[int, bytes]:
        """The next request: the number of its template, and its bytes."""
        turn = next(self._turns)
        while self._needs_id[turn] and not self.ids:
            self.passed_over[turn] += 1
            turn = next(self._turns)
        self._number += self._step
        return turn, self._make[turn](turn)

    def _maker(self, made: Template) -> Callable[[int], bytes]:
        words = [word.replace(BODY, self._body) for word in made.words]
        if not any(part in word for word in words for part in (QUEUE, ID, NUMBER)):
            ready = encode(words)
            return lambda turn: ready
        fits = len(self._names) * sum(map(len, words)) <= READY_MAX
        if fits and not any(part in word for word in words for part in (ID, NUMBER)):
            made_ready = {queue: encode([word.replace(QUEUE, queue) for word in words]) for queue in self._names}
            return lambda turn: made_ready[next(self._queues)]
        return lambda turn: encode(self._filled(turn, words))

    def _filled(self, turn: int, words: Sequence[bytes]) -> list[bytes]:
        values = {NUMBER: b"%d" % self._number}
        if self._needs_id[turn]:
            values[ID] = self.ids.popleft()
            if self._keeps_id[turn]:
                self.ids.append(values[ID])
        filled = []
        for word in words:
            if QUEUE in word:
                values[QUEUE] = values.get(QUEUE) or next(self._queues)
            for part, value in values.items():
                word = word.replace(part, value)  # noqa: PLW2901 - it grows
            filled.append(word)
        return filled


def encode(words: Sequence[bytes]) -> bytes:
    """Write a command as it is sent."""
    return cast("bytes", hiredis.pack_command(cast("Any", tuple(words))))
