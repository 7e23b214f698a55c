"""Everything that can be done from the page, with its fields, its command and its request."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from disqued.config import Setting
from disqued.core.model.job import ACKED, ACTIVE, DEAD, FLAG_PUT_OFF, FLAG_QUEUED_BEFORE, QUEUED, STATE_NAMES, Job
from disqued.core.model.phases import PHASE_NAMES
from disqued.web.http.exchange import Role
from disqued.web.pages.lines import PICKED, Action, Input, quoted
from disqued.web.views import rendering
from disqued.web.views.job_reports import JobReport
from disqued.web.views.job_views import JobSearch

#: Without a token: the page asks with a dry run first, and who pastes a line has seen the table.
ACT: Final[dict[str, Any]] = {"dry_run": False, "token": None}
_DEFAULT: Final = "default"
_DONE: Final = "Acknowledged jobs count as done on all nodes and are never delivered again."
#: What becomes of jobs, as the questions say that are asked before it is done with many.
REDRIVEN: Final = "Redriven jobs are queued again, and their tries count from the start."
ENDED: Final = "This ends jobs on all nodes, and they cannot be brought back."
_MOVED: Final = "Moved jobs are added to that queue, and end in this one."
_DROPPED: Final = "This node drops its copies, whatever the state of the jobs. Other nodes keep theirs."
#: Fields of QPOLICY: name, label, and the word before the value; the second part of a back-off has none.
_POLICY: Final = (
    ("ttl", "Time to live (s)", "TTL"), ("retry", "Retry (s)", "RETRY"), ("replicate", "Replicas", "REPLICATE"),
    ("maxlen", "Max queue length", "MAXLEN"), ("max_tries", "Max tries", "MAXTRIES"),
    ("backoff.first", "Backoff (s)", "BACKOFF"), ("backoff.most", "Max backoff (s)", ""),
    ("keep_dead", "Dead-letter retention (s)", "KEEPDEAD"), ("result", "Result retention (s)", "RESULT"),
    ("in_flight", "Max in flight", "INFLIGHT"), ("group_in_flight", "Max in flight per group", "GROUPINFLIGHT"),
    ("rate.count", "Rate limit: jobs", "RATE"), ("rate.per", "Rate limit: per (s)", "PER"),
    ("rate.burst", "Rate limit: burst", "BURST"),
    ("group_rate.count", "Group rate limit: jobs", "GROUPRATE"), ("group_rate.per", "Group rate limit: per (s)", "PER"),
    ("group_rate.burst", "Group rate limit: burst", "BURST"), ("idle", "Expires when idle for (s)", "IDLE"),
)  # fmt: skip
_PARTITION: Final = ("strict", "available")
#: Options of ADDJOB, and of SCHEDULE SET for each job.
JOB_OPTIONS: Final = (
    Input("delay", "Delay (s)", "seconds", hint="none", word="DELAY"),
    Input("retry", "Retry (s)", "seconds", hint=_DEFAULT, word="RETRY"),
    Input("ttl", "Time to live (s)", "seconds", hint="1 day", word="TTL"),
    Input("replicate", "Replicas", "number", hint=_DEFAULT, word="REPLICATE"),
    Input("maxlen", "Max queue length", "number", hint="no limit", word="MAXLEN"),
    Input("max_tries", "Max tries", "number", hint="no limit", word="MAXTRIES"),
    Input("backoff.first", "Backoff (s)", "seconds", hint="none", word="BACKOFF"),
    Input("backoff.most", "Max backoff (s)", "seconds", hint="1 hour"),
    Input("keep_dead", "Dead-letter retention (s)", "seconds", hint=_DEFAULT, word="KEEPDEAD"),
    Input("result", "Result retention (s)", "seconds", hint="not kept", word="RESULT"),
    Input("headers", "Headers", "pairs", hint="tenant=7 source=web", word="HEADER"),
    Input("group", "Group", hint="none", word="GROUP"),
    Input("asynchronous", "Replicate asynchronously", "flag", word="ASYNC"),
)  # fmt: skip
#: Words that QPURGE takes, by those of a search.
_ENDED: Final = {"wait-repl": "wait-repl", "ready": "queued", "active": "active", "queued": "queued", "dead": "dead"}
_ANY_STATE: Final = tuple(name.decode() for name in PHASE_NAMES)
#: What requeueing all jobs of a search does, where it is offered: the button, and what the question says.
_REQUEUE: Final = {
    "in-flight": ("Queue all now, though consumers have them", "This delivers jobs again, and they may be done twice."),
    "delayed": ("Queue all now: their delays end", "This delivers jobs at once, instead of after their delays."),
}


def add_job(queue: bytes | None) -> Action:
    """Add a job: to a queue, or to one that is asked for."""
    to: bytes | Input = Input("queue", "Queue") if queue is None else queue
    return Action(
        "add", "Add job", "/api/add",
        (
            b"ADDJOB", to, Input("body", "Body", "area"),
            Input("timeout", "Replication timeout (ms)", "number", "1000"),
            *JOB_OPTIONS,
        ),
        {} if queue is None else {"queue": queue}, "Added as {result}.",
    )  # fmt: skip


def pause(queue: bytes, now: str, reason: str = "") -> list[Action]:
    """Pause a queue on all nodes or on this one, and resume it; its pause is `now`: in, out, all or none."""
    is_in, is_out = now in ("in", "all"), now in ("out", "all")
    ways = [
        ("pause-in", "Resume adds" if is_in else "Pause adds", is_in, _pause_words(not is_in, is_out)),
        ("pause-out", "Resume delivery" if is_out else "Pause delivery", is_out, _pause_words(is_in, not is_out)),
    ]
    why = Input("reason", "Reason (all nodes only)", value=reason, hint="none", word="REASON")
    found = []
    for key, label, is_resume, word in ways:
        here = f"{word} node"
        scopes = {word: "all nodes", here: "this node"}
        scope = Input("words", "Scope", "list", word, choices=tuple(scopes), labels=scopes)
        # A word for all nodes ends the pauses of single nodes, too.
        words = (word.encode(),) if is_resume else (scope,)
        asked = () if word == "none" else (why,)
        fixed: dict[str, Any] = {"queue": queue, "words": [word]} if is_resume else {"queue": queue}
        done = f"{'Adds are' if key == 'pause-in' else 'Delivery is'} {'resumed' if is_resume else 'paused'}."
        found.append(Action(key, label, "/api/pause", (b"PAUSE", queue, *words, *asked), fixed, done))
    return found


def policy(queue: bytes, *, is_set: bool = True) -> list[Action]:
    """Set defaults of ADDJOB, limits and FAIR for a queue on all nodes, and unset them where some are set."""
    inputs = [
        Input(name, label, "seconds" if label.endswith("(s)") else "number", hint="unchanged", word=word)
        for name, label, word in _POLICY
    ]
    fair = Input("fair", "Fair delivery across groups", "flag", word="FAIR")
    sides = Input("partition", "During a partition", "choice", hint="unchanged", word="PARTITION", choices=_PARTITION)
    unset = Input("unset", "Fields", "list", hint="maxtries fair", needed=True)
    ways = [
        Action(
            "policy-set", "Set policy", "/api/commands/QPOLICY", (b"QPOLICY", queue, b"SET", fair, *inputs, sides),
            {"queue": queue, "sets": True}, "Policy set on all nodes.",
        ),
        Action(
            "policy-unset", "Unset fields", "/api/commands/QPOLICY", (b"QPOLICY", queue, b"UNSET", unset),
            {"queue": queue}, "Fields unset on all nodes.",
        ),
    ]  # fmt: skip
    return ways if is_set else ways[:1]


def throttle(queue: bytes) -> list[Action]:
    """Let a queue, or a group of it, hand nothing out for a while in the whole cluster."""
    seconds = Input("seconds", "Duration (s)", "seconds", "30", needed=True)
    group = Input("group", "Group", hint="whole queue", word="GROUP")
    return [
        Action(
            "throttle", "Throttle", "/api/commands/THROTTLE", (b"THROTTLE", queue, seconds, group), {"queue": queue},
            "Throttled on all nodes for {result} s.",
        )
    ]  # fmt: skip


def _pause_words(stops_in: bool, stops_out: bool) -> str:
    return {(True, True): "all", (True, False): "in", (False, True): "out"}.get((stops_in, stops_out), "none")


def on_job(job: Job, best: JobReport) -> list[Action]:
    """What can be done with a job of which this node has a copy, as it is now."""
    job_id = job.id
    if job.state == DEAD:
        return [_redrive(job.queue, job_id), *_plain(job_id, ("ack", "delete")), *_fated(job)]
    if job.state == QUEUED:
        return [*_plain(job_id, ("dequeue", "ack", "delete")), *_fated(job)]
    if job.state == ACKED:
        return _plain(job_id, ("delete",))
    was_queued = job.flags & FLAG_QUEUED_BEFORE
    can_wait = job.state == ACTIVE and (job.options.retry_ms or not was_queued)
    is_out = can_wait and was_queued and not job.flags & FLAG_PUT_OFF and best.phase in _OUT
    queue_now = [_queue_now(job_id, best)] if can_wait and best.phase in _QUEUEABLE else []
    return [*queue_now, *_plain(job_id, (*(["nack"] if is_out else []), "ack", "delete")), *_fated(job)]


#: Phases of a job that is neither in a queue nor with a consumer, on the node that knows most of it.
_QUEUEABLE: Final = ("delayed", "elsewhere")
_OUT: Final = ("in-flight", "elsewhere")  #: of one that a consumer has, or may have


def _queue_now(job_id: bytes, best: JobReport) -> Action:
    words = (b"ENQUEUE", job_id)
    return Action(
        "enqueue", "Queue now", "/api/queue-now", words if best.is_here else (b"CLUSTER", b"ASK", best.node_id, *words),
        {"id": job_id}, "{result}",
    )  # fmt: skip


def on_job_elsewhere(job_id: bytes, best: JobReport) -> list[Action]:
    """What any node can do with a job that another one has."""
    fields = best.fields
    if fields["state"] == STATE_NAMES[ACKED] or fields["queue"] is None:
        return []
    redrive = [_redrive(fields["queue"], job_id)] if fields["state"] == STATE_NAMES[DEAD] else []
    queue_now = [_queue_now(job_id, best)] if best.phase in _QUEUEABLE and (fields["retry"] or fields["delay"]) else []
    return [*redrive, *queue_now, *_plain(job_id, ("ack",)), *([] if fields.get("cancelled") else [_cancel(job_id)])]


def _redrive(queue: bytes, job_id: bytes) -> Action:
    return Action(
        "redrive", "Redrive", "/api/commands/REDRIVE", (b"REDRIVE", queue, b"ID", job_id),
        {"queue": queue, "by_id": True, "ids": [job_id]}, "Jobs redriven: {result}.",
    )  # fmt: skip


def _cancel(job_id: bytes) -> Action:
    return Action(
        "cancel", "Cancel", "/api/commands/CANCEL", (b"CANCEL", job_id), {"ids": [job_id]},
        "The job is {result}.",
        "The job ends on all nodes; one in flight ends once its consumer returns it or runs out of time.",
        ends=True, danger=True,
    )  # fmt: skip


def _fated(job: Job) -> list[Action]:
    """Bury and cancel, where the job can be buried or cancelled."""
    found: list[Action] = []
    fate = job.options.fate
    if job.state == ACKED or job.is_dummy:
        return found
    is_waiting = not job.flags & FLAG_QUEUED_BEFORE or job.flags & FLAG_PUT_OFF
    can_die = job.state == QUEUED or (job.state == ACTIVE and (is_waiting or job.options.retry_ms))
    if can_die and not fate.is_cancelled:
        reason = Input("reason", "Reason", hint="none", word="REASON")
        found.append(
            Action(
                "bury", "Bury", "/api/commands/NACK", (b"NACK", job.id, b"DEAD", reason),
                {"ids": [job.id], "dead": True}, "Jobs buried: {result}.",
                "The job becomes a dead letter: it is not delivered until it is redriven.",
            )
        )  # fmt: skip
    if not fate.is_cancelled:
        found.append(_cancel(job.id))
    return found


def _plain(job_id: bytes, wanted: tuple[str, ...]) -> list[Action]:
    ways = (
        ("dequeue", "Remove from queue", b"DEQUEUE", "Jobs removed from the queue: {result}.", ""),
        ("nack", "Return to queue (NACK)", b"NACK", "Jobs returned to the queue: {result}.", ""),
        ("ack", "Acknowledge", b"ACKJOB", "Jobs acknowledged: {result}.", _DONE),
        ("delete", "Delete (this node)", b"DELJOB", "Jobs deleted: {result}.", _DROPPED),
    )
    return [
        Action(
            key,
            label,
            f"/api/{key}",
            (word, job_id),
            {"ids": [job_id]},
            done,
            confirm,
            ends=bool(confirm),
            danger=bool(confirm),
        )
        for key, label, word, done, confirm in ways
        if key in wanted
    ]


def on_worker(worker_id: bytes) -> list[Action]:
    """What can be done with a worker."""
    back = "The tasks of this worker return to the front of their queues."
    ways = (
        ("fail", "Mark as dead", b"FAIL", "Marked as dead. Tasks requeued: {result}."),
        ("stop", "Stop", b"STOP", "Stopped. Tasks requeued: {result}."),
    )
    return [
        Action(key, label, f"/api/commands/WORKER/{word.decode()}", (b"WORKER", word, worker_id), {"id": worker_id},
               done, back, ends=True, danger=key == "fail")
        for key, label, word, done in ways
    ]  # fmt: skip


def on_node(node_id: bytes, *, is_leaving: bool) -> list[Action]:
    """Drain a node, or let one that drains stay."""
    key, label, word = ("stay", "Stop draining", b"no") if is_leaving else ("drain", "Drain this node", b"yes")
    confirm = (
        "The node hands its jobs to the other nodes, takes no new ones, and sends waiting consumers elsewhere, until "
        "draining is stopped. This page says when it may be stopped."
    )
    return [
        Action(
            key, label, "/api/drain", (b"CLUSTER", b"ASK", node_id, b"CLUSTER", b"LEAVING", word),
            {"leaving": not is_leaving, "node": node_id}, "The node stays." if is_leaving else "The node drains.",
            "" if is_leaving else confirm, danger=not is_leaving, role=Role.ADMIN,
        )
    ]  # fmt: skip


def on_connections() -> list[Action]:
    """What can be done with a connection of this node: end it, or the wait of its client."""
    number, numbered = (Input("id", "Number", "number", word=word, needed=True) for word in ("", "ID"))
    return [
        Action(
            "kill", "Close connection", "/api/commands/CLIENT/KILL",
            (b"CLIENT", b"KILL", numbered), {}, "Connections closed: {result}.",
            "The client loses its connection. Jobs in flight stay with it until their retry time is over.",
            danger=True, role=Role.ADMIN,
        ),
        Action(
            "unblock", "Unblock client", "/api/commands/CLIENT/UNBLOCK", (b"CLIENT", b"UNBLOCK", number), {},
            "Clients unblocked: {result}.",
            "The client is answered as after a time-out. A job that still waits for its copies is not added.",
            danger=True, role=Role.ADMIN,
        ),
    ]  # fmt: skip


def on_groups(queue: bytes) -> list[Action]:
    """What can be done with the groups of consumers of a log."""
    group = Input("group", "Group", needed=True)
    at = Input("at", "Start at", value="NOW", hint="FIRST, NOW or an event id")
    return [
        Action(
            "group-start", "Restart group", "/api/commands/QGROUP/START",
            (b"QGROUP", b"START", queue, group, at), {"queue": queue}, "Group restarted: {result}.",
            "The group loses its position and its events in flight.", danger=True,
        ),
        Action(
            "group-forget", "Delete group", "/api/commands/QGROUP/FORGET",
            (b"QGROUP", b"FORGET", queue, group), {"queue": queue}, "Groups deleted: {result}.",
            "The group loses its position. If its consumers return, it starts at the oldest event.",
            danger=True,
        ),
    ]  # fmt: skip


def on_log(queue: bytes) -> list[Action]:
    """What can be done with a log as a whole."""
    return [
        Action(
            "flush", "Delete all events (all nodes)", "/api/commands/QFLUSH", (b"QFLUSH", queue), {"queue": queue},
            "All events deleted.",
            "This deletes every event on all nodes, with the positions of all consumer groups.",
            counted=rendering.qstat_path(queue), danger=True,
        ),
    ]  # fmt: skip


def on_event(queue: bytes, event_id: bytes) -> list[Action]:
    """What can be done with an event of a log, for one of the groups."""
    group = Input("group", "Group", needed=True)
    return [
        Action(
            "group-return", "Return to group", "/api/commands/QGROUP/RETURN",
            (b"QGROUP", b"RETURN", queue, group, event_id), {"queue": queue, "ids": [event_id]},
            "Events returned: {result}.",
        ),
    ]  # fmt: skip


def selected() -> list[Action]:
    """What can be done with the jobs that are selected in a table."""
    ways = (
        ("enqueue", "Queue selected now", b"ENQUEUE", "Jobs queued: {result}.", ""),
        ("ack", "Acknowledge selected", b"ACKJOB", "Jobs acknowledged: {result}.", _DONE),
        ("delete", "Delete selected (this node)", b"DELJOB", "Jobs deleted: {result}.", _DROPPED),
    )
    found = [
        Action(f"selected-{key}", label, f"/api/{key}", (word, PICKED), {}, done, confirm, danger=bool(confirm))
        for key, label, word, done, confirm in ways
    ]
    # In whichever state they are: those that cannot be moved are told of, not passed over.
    meant = {"ids": [PICKED.value], "state": list(_ANY_STATE)}
    return [*found, _move("selected-move", "Move selected", meant)]


def bulk(wanted: JobSearch, port: int) -> list[Action]:
    """What can be done with every job of a queue that a search would find."""
    ways = (
        *(
            [("requeue", _REQUEUE[wanted.state][0], b"ENQUEUE", "Jobs queued: {result}.", _REQUEUE[wanted.state][1])]
            if wanted.state in _REQUEUE
            else []
        ),
        ("ack", "Acknowledge all", b"ACKJOB", "Jobs acknowledged: {result}.", _DONE),
        *(
            []
            if _is_purge(wanted)
            else [("delete", "Delete all (this node)", b"DELJOB", "Jobs deleted: {result}.", _DROPPED)]
        ),
    )
    body: dict[str, Any] = {"filter": _filter(wanted), **ACT}
    found = [
        Action(f"bulk-{key}", label, f"/api/bulk/{key}", (), body, done, fate, danger=key != "requeue",
               redis=_loop(wanted, word, port))
        for key, label, word, done, fate in ways
    ]  # fmt: skip
    if wanted.state == "dead":
        is_plain = not (wanted.text or wanted.older_ms)
        redrive = Action(
            "bulk-redrive", "Redrive all", "/api/bulk/redrive", (b"REDRIVE", wanted.queue) if is_plain else (), body,
            "Jobs redriven: {result}.", REDRIVEN, redis=None if is_plain else "",
        )  # fmt: skip
        return [redrive, *found, *_purge(wanted)]
    return [*found, *_purge(wanted), _move("bulk-move", "Move all", body["filter"])]


def _is_purge(wanted: JobSearch) -> bool:
    """Return whether QPURGE can mean the jobs of a search."""
    return not (wanted.text or wanted.older_ms) and (wanted.state == "any" or wanted.state in _ENDED)


def _purge(wanted: JobSearch) -> list[Action]:
    """End the jobs of a queue, or those in one state, in the whole cluster."""
    if not _is_purge(wanted):
        return []
    states = dict.fromkeys(_ENDED.values()) if wanted.state == "any" else (_ENDED[wanted.state],)
    words = () if wanted.state == "any" else (b"STATE", _ENDED[wanted.state].encode())
    meant = {"queue": wanted.queue, "state": list(states)}
    return [
        Action(
            "bulk-purge", "Purge (all nodes)", "/api/bulk/purge", (b"QPURGE", wanted.queue, *words),
            {"filter": meant, **ACT}, "Jobs purged: {result}.", ENDED, danger=True,
        )
    ]  # fmt: skip


def _move(key: str, label: str, meant: Mapping[str, Any]) -> Action:
    """Move the jobs that a filter means to a queue that is asked for."""
    body = {"filter": meant, **ACT}
    to = Input("to", "Destination queue", needed=True)
    return Action(key, label, "/api/bulk/move", (to,), body, "Jobs moved: {result}.", _MOVED, redis="")


def _filter(wanted: JobSearch) -> dict[str, Any]:
    states = _ANY_STATE if wanted.state == "any" else (wanted.state,)
    found: dict[str, Any] = {"queue": wanted.queue, "state": list(states)}
    if wanted.older_ms:
        found["older_than_s"] = wanted.older_ms // 1_000
    if wanted.text:
        found["body_contains"] = wanted.text
    return found


def _loop(wanted: JobSearch, command: bytes, port: int) -> str:
    """The loop of a shell that does it with redis-cli; empty where redis-cli cannot tell which jobs are meant.

    redis-cli prints an error like an answer and exits with 0: what does not begin with a cursor is said, and ends it.
    """
    try:
        name = wanted.queue.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    if wanted.text or wanted.older_ms or not name.isprintable():
        return ""
    state = "" if wanted.state == "any" else f" STATE {wanted.state}"
    return (
        f"at=0; while set -- $(redis-cli --raw -p {port} JSCAN $at QUEUE {quoted(name)}{state}); "
        'expr "x${1-}" : \'x[0-9][0-9]*$\' >/dev/null || { echo "ended: $*" >&2; false; }; '
        f'do at=$1; shift; [ $# = 0 ] || redis-cli -p {port} {command.decode()} "$@"; [ "$at" != 0 ] || break; done'
    )


def set_setting(setting: Setting[Any], value: str, choices: Sequence[str] = ()) -> Action:
    """Change a setting that can be changed while the daemon runs; `value` is what it is now, empty for a secret."""
    label = f"New value of {setting.name}" + ("" if choices else f" ({setting.kind.describe()})")
    return Action(f"set-{setting.name}", "Change", "/api/config",
                  (b"CONFIG", b"SET", setting.name.encode(), Input("value", label, value=value, choices=choices)),
                  {"name": setting.name}, "Changed.", role=Role.ADMIN)  # fmt: skip
