"""What the driver does with jobs that tasks have prepared: it lets consumers have them, or takes them back.

    commit   ADDJOB disqued-spark-commits <token, jobs> KEY write     nobody has begun before: the mark is ours
             ENQUEUE of all jobs
    again    ADDJOB ... KEY write --> a mark with another token       a driver was killed while it queued them:
             jobs that the mark names are queued, unless they have been; the others are dropped, for their rows were
             jobs of the mark, and those are done
    abort    there is no mark: the jobs are dropped                   else it is too late, and nothing is

The mark is a job that nobody is given: its delay is as long as its life.  It ends with the write; that of a batch of a
stream with the commit of the next one, since Spark has noted then that the batch is done.  Without it a batch that is
run again would add those rows anew whose jobs consumers have done meanwhile.

A job that is dropped is deleted from every node.  If one of them is away the others are told that the job is done,
which they remember, and tell that one when it is back.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeAlias
from uuid import uuid4

import attrs

from disqued.client.errors import BadReply, Unreachable
from disqued.moves import span_word
from disqued.pipeline.connector.nodes import NodeAt, NodeLink, Word, ask_each, find_nodes, pieces, scan
from disqued.pipeline.connector.options import DAY_S
from disqued.pipeline.connector.rows import told

#: The queue of the marks.
COMMITS: Final = "disqued-spark-commits"
TOKEN_SIZE: Final = 16  #: bytes of a mark before the jobs
NAME_SIZE: Final = 8  #: bytes of a mark for each job
MS_IN_S: Final = 1_000
NS_IN_US: Final = 1_000
#: A task that Spark ends has two seconds for it (spark.python.task.killTimeout).
KILLED_S: Final = 3.0
AGAIN_S: Final = 0.2  #: between two looks for a node that is away
SPREAD_MS: Final = 2_000  #: by less than that the timers of nodes for one job differ

#: Queues jobs, and returns how many of them the node knew, as far as it is sure.
Enqueue: TypeAlias = Callable[[NodeLink, Sequence[bytes]], int]


def short(job_id: bytes) -> bytes:
    """Name a job in a mark."""
    return blake2b(job_id, digest_size=NAME_SIZE).digest()


@attrs.frozen
class WriteMarker:
    """The word that the jobs of a write are all there."""

    is_ours: bool
    #: As `short` names them.
    jobs: frozenset[bytes]


class WriteCommits:
    """Ends writes; one for each call of Spark."""

    def __init__(self, options: Mapping[str, Any], *, has_keys: bool) -> None:
        """`has_keys`: rows have keys of their own, so that their jobs may have been there before."""
        self._options = options
        self._has_keys = has_keys

    def commit(self, write: str, parts: Mapping[NodeAt, Sequence[bytes]], since_us: int) -> None:
        """Let consumers have the jobs of a write, whose ids are given by the node that knows them, as a rule.

        `since_us` is when the first of its tasks began: with keys of their own rows may have met the jobs of others,
        which are never dropped.  Raises Unreachable when jobs are on no node that answers within `replyTimeout`, and
        ServerError.
        """
        ids = [each for some in parts.values() for each in some]
        mark = self._mark(write, ids)
        if mark.is_ours:
            self._queue(parts, _enqueue)
            return
        self._drop(self._ours([each for each in ids if short(each) not in mark.jobs], since_us))
        named = {node: [each for each in some if short(each) in mark.jobs] for node, some in parts.items()}
        self._queue(named, _enqueue_delayed)

    def abort(self, write: str, ids: Sequence[bytes], since_us: int) -> None:
        """Drop the jobs of a write, and those that tasks prepared without coming to an end.

        Of rows with keys of their own those jobs alone that are as young as that.  Nothing is dropped when a commit has
        begun: what it has not queued is queued when `prepareTimeout` is over.
        """
        if self._has_begun(write):
            return
        self._drop(self._ours(ids, since_us))
        self._sweep(write)

    def end(self, write: str) -> None:
        """Forget the mark of a write that nobody runs again."""
        self._ask_one([b"ACKJOB", self._ask_one(self._mark_words(write, uuid4().bytes))])

    # Marks.

    def _mark(self, write: str, ids: Iterable[bytes]) -> WriteMarker:
        """Add the mark of a write, or meet that which is there."""
        token = uuid4().bytes
        job_id = self._ask_one(self._mark_words(write, token + b"".join(map(short, ids))))
        there = self._body_of(job_id)
        names = frozenset(bytes(each) for each in pieces(there[TOKEN_SIZE:], NAME_SIZE))
        return WriteMarker(there.startswith(token), names)

    def _mark_words(self, write: str, body: bytes) -> list[Word]:
        life_s = self._options["ttl"] or DAY_S
        words: list[Word] = ["ADDJOB", COMMITS, body, round(self._options["replicationTimeout"] * MS_IN_S)]
        # Without REPLICATE as many nodes have it as can, up to three.
        delay_s = life_s - 1 if life_s > 1 else life_s / 2
        return [*words, "TTL", span_word(life_s), "DELAY", span_word(delay_s), "KEY", write]

    def _has_begun(self, write: str) -> bool:
        """Tell whether there is a mark; it is on several nodes, and two of them may be away."""
        found: list[bytes] = []

        def ask(_: NodeAt, link: NodeLink) -> None:
            found.extend(_with_key(link, COMMITS, lambda key: key == write.encode(), self._options["pipeline"]))

        silent = ask_each(find_nodes(self._options, away=True), self._options, ask)
        return bool(found) or len(silent) > 1

    def _body_of(self, job_id: bytes) -> bytes:
        found: list[bytes] = []

        def ask(_: NodeAt, link: NodeLink) -> None:
            reply = None if found else link.ask([b"SHOW", job_id])
            if reply is not None:
                found.append(told(reply)[b"body"] or b"")

        ask_each(find_nodes(self._options), self._options, ask)
        if not found or len(found[0]) < TOKEN_SIZE:
            raise BadReply(f"the job {job_id.decode()} of the queue {COMMITS} is no mark of a write, or gone")
        return found[0]

    def _ask_one(self, words: Sequence[Word]) -> Any:
        """Ask the first node that answers, of what may be asked twice."""
        silent: list[Unreachable] = []
        for node in find_nodes(self._options):
            try:
                with NodeLink(node.address, self._options) as link:
                    return link.ask(words)
            except Unreachable as error:
                silent.append(error)
        raise silent[0]

    # Queueing.

    def _queue(self, parts: Mapping[NodeAt, Sequence[bytes]], enqueue: Enqueue) -> None:
        missing: list[bytes] = []
        for node, ids in parts.items():
            try:
                with NodeLink(node.address, self._options) as link:
                    missing += self._queue_here(link, ids, enqueue)
            except Unreachable:
                missing += ids
        if missing:
            self._queue_elsewhere(missing, enqueue)

    def _queue_here(self, link: NodeLink, ids: Sequence[bytes], enqueue: Enqueue) -> list[bytes]:
        """Queue those that a node knows, and return the others."""
        unknown: list[bytes] = []
        for piece in pieces(ids, self._options["pipeline"]):
            if enqueue(link, piece) < len(piece):
                shown = link.ask_all([(b"SHOW", each) for each in piece])
                unknown += [each for each, reply in zip(piece, shown, strict=True) if reply is None]
        return unknown

    def _may_hide(self, silent: Sequence[Unreachable]) -> bool:
        """Tell whether a job may be on nodes that are away, and nowhere else."""
        return len(silent) >= (self._options["replicate"] or 1)

    def _queue_elsewhere(self, ids: Sequence[bytes], enqueue: Enqueue) -> None:
        """Ask every node, until all jobs are queued, or those that are left have ended.

        They have when so many nodes answer that they would be on one of them: once a commit has begun consumers and the
        TTL alone end its jobs.
        """
        missing = list(ids)
        until = time.monotonic() + self._options["replyTimeout"]

        def ask(_: NodeAt, link: NodeLink) -> None:
            missing[:] = self._queue_here(link, tuple(missing), enqueue)

        while True:
            silent = ask_each(find_nodes(self._options, away=True), self._options, ask)
            if not missing or not self._may_hide(silent):
                return
            if time.monotonic() > until:
                raise Unreachable(
                    f"{len(missing)} jobs that were prepared are on no node that is there: {silent[0]}"
                ) from silent[0]
            time.sleep(AGAIN_S)

    # Dropping.

    def _drop(self, ids: Sequence[bytes]) -> None:
        """Drop jobs from every node, and see to it that those that are away do so, too."""
        if not ids:
            return
        nodes = find_nodes(self._options, away=True)
        away = ask_each(nodes, self._options, lambda *_: None)
        if not away:
            away = ask_each(nodes, self._options, lambda _, link: link.tell(b"DELJOB", ids))
        if away:
            ask_each(nodes, self._options, lambda _, link: link.tell(b"ACKJOB", ids))

    def _ours(self, ids: Sequence[bytes], since_us: int) -> Sequence[bytes]:
        """Choose the jobs that this write has added: all, or with keys of their own those that are as young as that."""
        if not self._has_keys or not ids:
            return ids
        found: dict[bytes, None] = {}

        def ask(_: NodeAt, link: NodeLink) -> None:
            for each, reply in zip(ids, link.ask_all([(b"SHOW", each) for each in ids]), strict=True):
                if isinstance(reply, list) and told(reply)[b"ctime"] // NS_IN_US >= since_us:
                    found[each] = None

        ask_each(find_nodes(self._options), self._options, ask)
        return list(found)

    def _sweep(self, write: str) -> None:
        """Drop what tasks added that could not tell of it, by the keys of this write.

        When one task fails Spark ends the others, and those have some seconds for it.
        """
        queue, mine = self._options["queue"], f"{write}/".encode()
        for pause_s in (0.0, KILLED_S):
            time.sleep(pause_s)
            found: dict[bytes, None] = {}

            def ask(_: NodeAt, link: NodeLink, found: dict[bytes, None] = found) -> None:
                ours = _with_key(link, queue, lambda key: key.startswith(mine), self._options["pipeline"])
                found.update(dict.fromkeys(ours))

            ask_each(find_nodes(self._options), self._options, ask)
            self._drop(list(found))


def _enqueue(link: NodeLink, ids: Sequence[bytes]) -> int:
    queued: int = link.ask([b"ENQUEUE", *ids])
    return queued


def _enqueue_delayed(link: NodeLink, ids: Sequence[bytes]) -> int:
    """Queue those that never were; one that was may be with a consumer, who would get it once more."""
    shown = link.ask_all([(b"SHOW", each) for each in ids])
    delayed = [each for each, reply in zip(ids, shown, strict=True) if _is_delayed(reply)]
    if delayed:
        _enqueue(link, delayed)
    return sum(reply is not None for reply in shown)


def _is_delayed(reply: Any) -> bool:
    """Tell whether a job was never queued: its timer has more left than a retry period.

    If it has less the job is queued within that time anyway.
    """
    if not isinstance(reply, list):
        return False
    job = told(reply)
    left_ms = job[b"next-requeue-within"] or 0
    return bool(job[b"state"] == b"active" and left_ms > float(job[b"retry"]) * MS_IN_S + SPREAD_MS)


def _with_key(link: NodeLink, queue: str | None, is_wanted: Callable[[bytes], bool], pipeline: int) -> list[bytes]:
    """List the jobs of a node that are in no queue, and whose keys are wanted."""
    found: list[bytes] = []
    for ids in pieces(list(scan(link, queue, ("active",))), pipeline):
        shown = link.ask_all([(b"SHOW", each) for each in ids])
        keys = (told(reply).get(b"key") if isinstance(reply, list) else None for reply in shown)
        found += [each for each, key in zip(ids, keys, strict=True) if key is not None and is_wanted(key)]
    return found
