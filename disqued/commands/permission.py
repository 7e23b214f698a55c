"""May this user run this call?  One question per command, for those alone who may not do everything.

    the command itself            its name is among those granted, as is that of one that CLUSTER ASK lets run elsewhere
    the queues that it names      each has to match a pattern, for reading, writing or both; see `rights_needed`
    the jobs that it names        where it names no queue: the queue of each, which this node has to know
    the workers that it acts on,  every queue that such a worker works on, or has jobs of; one that lives on another
    or takes jobs for             node, which alone knows them all, is acted on there while that node can be reached
    the channels that it names    SUBSCRIBE and PSUBSCRIBE

A job that this node does not know is to such a user one that does not exist: in a list of ids it is passed over, and
alone it is answered NOJOB.  Otherwise whoever has an id could acknowledge it here for a queue that nobody looked at.
A refusal names no queue that the user has not named: ACL LOG does, for those who may see it.

Commands that walk over queues or jobs show those alone that the user may read: `seen_by`.
"""

from collections.abc import Callable
from typing import Any

from disqued.acl.denials import CHANNEL, COMMAND, QUEUE
from disqued.acl.user import DEFAULT, User
from disqued.commands.categories import bar_name, writes
from disqued.commands.table import Command
from disqued.commands.touched import (
    channels_of,
    commands_of,
    job_ids_of,
    names_channels,
    queues_of,
    schedules_of,
    without_jobs,
    workers_of,
)
from disqued.core.model.policies import OWNER_MAX
from disqued.core.model.queues import ADDRESS
from disqued.core.node import Call, Node
from disqued.errors import NoPermission, UnknownJob

#: They are always possible: who may not even do these could not say who they are.
FOR_UNAUTHENTICATED = frozenset({"AUTH", "HELLO", "QUIT", "RESET"})
#: Listening no more is for everybody.
_ENDS_LISTENING = frozenset({"UNSUBSCRIBE", "PUNSUBSCRIBE"})


def check_command(user: User, entry: Command) -> None:
    """Refuse a command that is not granted.  Raises NoPermission (NOPERM)."""
    _check_granted(user, entry.name)


def _check_granted(user: User, command: str) -> None:
    if command not in FOR_UNAUTHENTICATED and not user.may_run(command):
        name = bar_name(command)
        raise NoPermission(
            COMMAND, name.encode(), f"User {_text(user.name)} has no permissions to run the '{name}' command"
        )


def check_names(user: User, entry: Command, call: Call, node: Node, client: Any = None) -> Call:
    """Refuse queues, jobs, channels and other commands that are not granted; returns the call without unknown jobs.

    Raises NoPermission (NOPERM), UnknownJob (NOJOB).
    """
    for command in commands_of(call):
        _check_granted(user, command)
    if not user.all_channels and names_channels(entry) and entry.name not in _ENDS_LISTENING:
        for is_pattern in (False, True):
            for channel in channels_of(entry, call, patterns=is_pattern):
                if not user.may_listen(channel, is_pattern=is_pattern):
                    raise _denied(CHANNEL, user, channel, f"the '{_text(channel[:128])}' channel")
    if user.all_queues:
        return call
    named = queues_of(entry, call)
    for queue in named:
        _check_queue(user, entry, queue)
    _check_schedules(user, entry, call, node)
    for worker_id in workers_of(entry, call) or _own_worker(entry, node, client):
        for queue in queues_of_worker(node, worker_id):
            _check_queue(user, entry, queue, f"a queue of the worker '{_text(worker_id[:128])}'")
        if writes(entry) and _lives_elsewhere(node, worker_id):
            raise _denied(
                QUEUE, user, worker_id, f"the worker '{_text(worker_id[:128])}' here: ask the node on which it lives"
            )
    if named:
        return call
    return _check_jobs(user, entry, call, node)


def _own_worker(entry: Command, node: Node, client: Any) -> list[bytes]:
    """The worker that a call without an id ends: other connections may have let it work on other queues."""
    worker = node.sessions.last_worker_of(client) if entry.name == "WORKER STOP" else None
    return [] if worker is None else [worker.id]


def _lives_elsewhere(node: Node, worker_id: bytes) -> bool:
    """Return whether a worker has its home on another node that can be reached."""
    home = node.homes.known.get(worker_id)
    return home is not None and home.node_id in node.state.peers.linked


def queues_of_worker(node: Node, worker_id: bytes) -> set[bytes]:
    """The queues that a worker works on, and of which it has jobs, as far as this node knows."""
    worker = node.workers.by_id.get(worker_id)
    if worker is not None:
        return {*worker.queues, *(unit.queue for unit in worker.leases)}
    home = node.homes.known.get(worker_id)
    return set() if home is None else {job.queue for job in home.jobs}


def _check_schedules(user: User, entry: Command, call: Call, node: Node) -> None:
    for name in schedules_of(entry, call):
        setting = node.state.queues.policies.schedules.get(name)
        if setting is not None:
            _check_queue(user, entry, setting.job.queue, f"the queue of the schedule '{_text(name[:128])}'")


def _check_jobs(user: User, entry: Command, call: Call, node: Node) -> Call:
    jobs, unknown = node.state.jobs, set()
    for job_id in job_ids_of(entry, call):
        job = jobs.get(job_id)
        if job is None or job.is_dummy:  # a dummy ack has no queue
            unknown.add(job_id)
        else:
            _check_queue(user, entry, job.queue, f"the queue of the job '{_text(job_id)}'")
    if not unknown:
        return call
    known = without_jobs(entry, call, frozenset(unknown))
    if known is None:
        raise UnknownJob
    return known


def rights_needed(entry: Command) -> tuple[bool, bool]:
    """Whether a command reads what queues hold, and whether it changes it; one that hands bodies out does both."""
    needed = _NEEDED.get(entry.name)
    if needed is None:
        changes = writes(entry)
        needed = _NEEDED[entry.name] = (not changes or entry.shows_bodies, changes)
    return needed


_NEEDED: dict[str, tuple[bool, bool]] = {}


def _check_queue(user: User, entry: Command, queue: bytes, called: str = "") -> None:
    """`called`: what the user called it by, who did not name it, and is not to learn its name from a refusal."""
    reads, changes = rights_needed(entry)
    if (reads and not user.may_read(queue)) or (changes and not user.may_write(queue)):
        raise _denied(QUEUE, user, queue, called or f"the '{_text(queue[:128])}' queue")


def _denied(reason: bytes, user: User, name: bytes, what: str) -> NoPermission:
    return NoPermission(reason, name, f"User {_text(user.name)} has no permissions to access {what}")


#: Tells whether a queue of this name may be seen.
Sees = Callable[[bytes], bool]


def seen_by(client: Any) -> Sees | None:
    """What tells whether a client may see a queue of this name; None = it may see all of them."""
    user: User | None = getattr(client, "user", None)
    return None if user is None or user.all_queues else user.may_read


def owner_of(client: Any) -> bytes:
    """Return who a client is, for people: the user, the name of the connection, or both; printable UTF-8.

    That somebody is the default user says nothing: one without a name is its address.
    """
    user: User | None = getattr(client, "user", None)
    user_name = b"" if user is None or user.name == DEFAULT else user.name
    names = (user_name, client.name)
    if not any(names):
        names = (ADDRESS + str(getattr(client, "address", "")).encode(), b"")
    text = ", client ".join(name.decode("utf-8", "replace") for name in names if name)
    printable = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return printable.encode()[:OWNER_MAX].decode("utf-8", "ignore").encode()


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
