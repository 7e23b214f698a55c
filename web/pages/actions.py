"""Everything that can be done from the page, with its fields, its command and its request."""

from collections.abc import Mapping
from typing import Any, Final

from disqued.config import Setting
from disqued.core.model.job import ACKED, ACTIVE, DEAD, FLAG_PUT_OFF, FLAG_QUEUED_BEFORE, QUEUED, Job
from disqued.web.http.exchange import Role
from disqued.web.pages.lines import PICKED, Action, Input, quoted
from disqued.web.views import rendering
from disqued.web.views.job_views import JobSearch

#: Without a token: the page asks with a dry run first, and who pastes a line has seen the table.
_ACT: Final[dict[str, Any]] = {"dry_run": False, "token": None}
_DEFAULT: Final = "as the node sees fit"
#: Fields of QPOLICY: name, label, and the word before the value; the second part of a back-off has none.
_POLICY: Final = (
    ("ttl", "Time to live, s", "TTL"), ("retry", "Retry, s", "RETRY"), ("replicate", "Copies", "REPLICATE"),
    ("maxlen", "Jobs at most", "MAXLEN"), ("max_tries", "Tries at most", "MAXTRIES"),
    ("backoff.first", "Back-off, s", "BACKOFF"), ("backoff.most", "Back-off at most, s", ""),
    ("keep_dead", "Dead jobs stay, s", "KEEPDEAD"), ("result", "Results stay, s", "RESULT"),
    ("in_flight", "With consumers at most", "INFLIGHT"), ("group_in_flight", "Of each group", "GROUPINFLIGHT"),
    ("rate.count", "Rate: jobs", "RATE"), ("rate.per", "in seconds", "PER"), ("rate.burst", "at once", "BURST"),
    ("group_rate.count", "Rate of each group: jobs", "GROUPRATE"), ("group_rate.per", "in seconds, each group", "PER"),
    ("group_rate.burst", "at once, each group", "BURST"),
)  # fmt: skip
_PARTITION: Final = ("strict", "available")
#: Options of ADDJOB, and of SCHEDULE SET for each job.
JOB_OPTIONS: Final = (
    Input("delay", "Delay, s", "number", hint="none", word="DELAY"),
    Input("retry", "Retry, s", "number", hint=_DEFAULT, word="RETRY"),
    Input("ttl", "Time to live, s", "number", hint="a day", word="TTL"),
    Input("replicate", "Copies", "number", hint=_DEFAULT, word="REPLICATE"),
    Input("maxlen", "Jobs at most in the queue", "number", hint="no limit", word="MAXLEN"),
    Input("max_tries", "Tries at most", "number", hint="no limit", word="MAXTRIES"),
    Input("backoff.first", "Back-off, s", "number", hint="none", word="BACKOFF"),
    Input("backoff.most", "Back-off at most, s", "number", hint="an hour"),
    Input("keep_dead", "Stays when dead, s", "number", hint=_DEFAULT, word="KEEPDEAD"),
    Input("result", "Result stays, s", "number", hint="not kept", word="RESULT"),
    Input("headers", "Headers", "pairs", hint="such as tenant=7 source=web", word="HEADER"),
    Input("group", "Group", hint="none", word="GROUP"),
    Input("asynchronous", "Do not wait for copies", "flag", word="ASYNC"),
)  # fmt: skip
_ENDED: Final = ("wait-repl", "active", "queued", "dead")
_ANY_STATE: Final = (*_ENDED, "acked")


def add_job(queue: bytes | None) -> Action:
    """Add a job: to a queue, or to one that is asked for."""
    to: bytes | Input = Input("queue", "Queue") if queue is None else queue
    return Action(
        "add", "Add the job", "/api/add",
        (
            b"ADDJOB", to, Input("body", "Body", "area"),
            Input("timeout", "Wait for copies, ms", "number", "1000"),
            *JOB_OPTIONS,
        ),
        {} if queue is None else {"queue": queue}, "Added as {result}.",
    )  # fmt: skip


def pause(queue: bytes, now: str, reason: str = "") -> list[Action]:
    """Pause and resume a queue in the whole cluster; its pause is `now`: in, out, all or none."""
    is_in, is_out = now in ("in", "all"), now in ("out", "all")
    ways = [
        ("pause-in", "Resume adding" if is_in else "Pause adding", _pause_words(not is_in, is_out)),
        ("pause-out", "Resume handing out" if is_out else "Pause handing out", _pause_words(is_in, not is_out)),
    ]
    asked = Input("reason", "Reason", value=reason, hint="none", word="REASON")
    return [
        Action(
            key, label, "/api/pause", (b"PAUSE", queue, word, *(() if word == b"none" else (asked,))),
            {"queue": queue, "words": [word]}, "Pause in the whole cluster: {result}.",
        )
        for key, label, word in ways
    ]  # fmt: skip


def policy(queue: bytes) -> list[Action]:
    """Set defaults of ADDJOB, limits and FAIR for a queue in the whole cluster, and take them back."""
    inputs = [Input(name, label, "number", hint="as it is", word=word) for name, label, word in _POLICY]
    fair = Input("fair", "Groups in turn", "flag", word="FAIR")
    sides = Input("partition", "During a partition", "choice", hint="as it is", word="PARTITION", choices=_PARTITION)
    unset = Input("unset", "Fields", "list", hint="such as maxtries fair", needed=True)
    return [
        Action(
            "policy-set", "Set the policy", "/api/commands/QPOLICY", (b"QPOLICY", queue, b"SET", fair, *inputs, sides),
            {"queue": queue, "sets": True}, "Set in the whole cluster.",
        ),
        Action(
            "policy-unset", "Take fields back", "/api/commands/QPOLICY", (b"QPOLICY", queue, b"UNSET", unset),
            {"queue": queue}, "Taken back in the whole cluster.",
        ),
    ]  # fmt: skip


def throttle(queue: bytes) -> list[Action]:
    """Let a queue, or a group of it, hand nothing out for a while in the whole cluster."""
    seconds = Input("seconds", "Seconds", "number", "30", needed=True)
    group = Input("group", "Group", hint="the whole queue", word="GROUP")
    return [
        Action(
            "throttle", "Throttle", "/api/commands/THROTTLE", (b"THROTTLE", queue, seconds, group), {"queue": queue},
            "Throttled for {result} s in the whole cluster.",
        )
    ]  # fmt: skip


def _pause_words(stops_in: bool, stops_out: bool) -> bytes:
    return {(True, True): b"all", (True, False): b"in", (False, True): b"out"}.get((stops_in, stops_out), b"none")


def on_job(job: Job) -> list[Action]:
    """What can be done with a job as it is now."""
    job_id = job.id
    if job.state == DEAD:
        return [_redrive(job), *_plain(job_id, ("ack", "delete")), *_fated(job)]
    if job.state == QUEUED:
        return [*_plain(job_id, ("dequeue", "ack", "delete")), *_fated(job)]
    return [*_plain(job_id, ("enqueue", "dequeue", "nack", "ack", "delete")), *_fated(job)]


def _redrive(job: Job) -> Action:
    return Action(
        "redrive", "Redrive", "/api/commands/REDRIVE", (b"REDRIVE", job.queue, b"ID", job.id),
        {"queue": job.queue, "by_id": True, "ids": [job.id]}, "Queued again: {result}.",
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
                {"ids": [job.id], "dead": True}, "Dead now: {result}.",
                "It is delivered no more until somebody redrives it.",
            )
        )  # fmt: skip
    if not fate.is_cancelled:
        found.append(
            Action(
                "cancel", "Cancel", "/api/commands/CANCEL", (b"CANCEL", job.id), {"ids": [job.id]},
                "Cancelled: {result}.",
                "It ends on every node; one that a consumer has ends when that gives up or is over its time.",
                ends=True,
            )
        )  # fmt: skip
    return found


def _plain(job_id: bytes, wanted: tuple[str, ...]) -> list[Action]:
    ways = (
        ("enqueue", "Queue now", b"ENQUEUE", "Queued: {result}.", ""),
        ("dequeue", "Take out of the queue", b"DEQUEUE", "Taken out of the queue: {result}.", ""),
        ("nack", "Give back (NACK)", b"NACK", "Given back: {result}.", ""),
        ("ack", "Acknowledge", b"ACKJOB", "Acknowledged: {result}.", "It is done then, and never delivered again."),
        ("delete", "Delete here", b"DELJOB", "Deleted: {result}.", "It is dropped from this node, whatever its state."),
    )
    return [
        Action(key, label, f"/api/{key}", (word, job_id), {"ids": [job_id]}, done, confirm, ends=bool(confirm))
        for key, label, word, done, confirm in ways
        if key in wanted
    ]


def on_worker(worker_id: bytes) -> list[Action]:
    """What can be done with a worker."""
    back = "What it has goes to the front of its queues, for others to take."
    ways = (
        ("fail", "Declare it dead", b"FAIL", "Dead. Tasks queued again: {result}."),
        ("stop", "Stop it in order", b"STOP", "Stopped. Tasks queued again: {result}."),
    )
    return [
        Action(key, label, f"/api/commands/WORKER/{word.decode()}", (b"WORKER", word, worker_id), {"id": worker_id},
               done, back, ends=True)
        for key, label, word, done in ways
    ]  # fmt: skip


def on_groups(queue: bytes) -> list[Action]:
    """What can be done with the groups of consumers of a log."""
    group, at = Input("group", "Group", needed=True), Input("at", "Begins at", value="NOW", hint="FIRST, NOW or an id")
    return [
        Action(
            "group-start", "Let a group begin anew", "/api/commands/QGROUP/START",
            (b"QGROUP", b"START", queue, group, at), {"queue": queue}, "The group begins there: {result}.",
            "What its consumers have, and what it is done with, is forgotten.",
        ),
        Action(
            "group-forget", "Forget a group", "/api/commands/QGROUP/FORGET",
            (b"QGROUP", b"FORGET", queue, group), {"queue": queue}, "Groups forgotten: {result}.",
            "Should it come again it is a new group, and begins at the oldest event.",
        ),
    ]  # fmt: skip


def on_log(queue: bytes) -> list[Action]:
    """What can be done with a log as a whole."""
    return [
        Action(
            "flush", "Empty the log (QFLUSH)", "/api/commands/QFLUSH", (b"QFLUSH", queue), {"queue": queue},
            "The log is empty.",
            "All events of the log go, on the other nodes, too, whoever has them, with all that groups made of them.",
            counted=rendering.qstat_path(queue),
        ),
    ]  # fmt: skip


def on_event(queue: bytes, event_id: bytes) -> list[Action]:
    """What can be done with an event of a log, for one of the groups."""
    group = Input("group", "Group", needed=True)
    return [
        Action(
            "group-return", "Give it back for a group", "/api/commands/QGROUP/RETURN",
            (b"QGROUP", b"RETURN", queue, group, event_id), {"queue": queue, "ids": [event_id]},
            "Given back: {result}.",
        ),
    ]  # fmt: skip


def selected() -> list[Action]:
    """What can be done with the jobs that are selected in a table."""
    ways = (
        ("enqueue", "Queue them now", b"ENQUEUE", "Jobs queued: {result}.", ""),
        ("ack", "Acknowledge them", b"ACKJOB", "Jobs acknowledged: {result}.", "The selected jobs are done then."),
        ("delete", "Delete them here", b"DELJOB", "Jobs deleted: {result}.", "They are dropped from this node."),
    )
    found = [
        Action(f"selected-{key}", label, f"/api/{key}", (word, PICKED), {}, done, confirm)
        for key, label, word, done, confirm in ways
    ]
    # In whichever state they are: those that cannot be moved are told of, not passed over.
    meant = {"ids": [PICKED.value], "state": list(_ANY_STATE)}
    return [*found, _move("selected-move", "Move them", meant)]


def bulk(wanted: JobSearch, port: int) -> list[Action]:
    """What can be done with every job of a queue that a search would find."""
    ways = (
        *([] if wanted.state == "dead" else [("requeue", "Queue all now", b"ENQUEUE", "Jobs queued: {result}.")]),
        ("ack", "Acknowledge all", b"ACKJOB", "Jobs acknowledged: {result}."),
        *([] if _is_purge(wanted) else [("delete", "Delete all here", b"DELJOB", "Jobs deleted: {result}.")]),
    )
    body: dict[str, Any] = {"filter": _filter(wanted), **_ACT}
    found = [
        Action(f"bulk-{key}", label, f"/api/bulk/{key}", (), body, done, redis=_loop(wanted, word, port))
        for key, label, word, done in ways
    ]
    if wanted.state == "dead":
        is_plain = not (wanted.text or wanted.older_ms)
        redrive = Action(
            "bulk-redrive", "Redrive all", "/api/bulk/redrive", (b"REDRIVE", wanted.queue) if is_plain else (), body,
            "Jobs queued again: {result}.", redis=None if is_plain else "",
        )  # fmt: skip
        return [redrive, *found, *_purge(wanted)]
    return [*found, *_purge(wanted), _move("bulk-move", "Move all", body["filter"])]


def _is_purge(wanted: JobSearch) -> bool:
    """Return whether QPURGE can mean the jobs of a search."""
    return not (wanted.text or wanted.older_ms or wanted.state == "acked")


def _purge(wanted: JobSearch) -> list[Action]:
    """End the jobs of a queue, or those in one state, in the whole cluster."""
    if not _is_purge(wanted):
        return []
    states = _ENDED if wanted.state == "any" else (wanted.state,)
    words = () if wanted.state == "any" else (b"STATE", wanted.state.encode())
    meant = {"queue": wanted.queue, "state": list(states)}
    return [
        Action(
            "bulk-purge", "Delete all in the cluster", "/api/bulk/purge", (b"QPURGE", wanted.queue, *words),
            {"filter": meant, **_ACT}, "Jobs deleted: {result}.",
        )
    ]  # fmt: skip


def _move(key: str, label: str, meant: Mapping[str, Any]) -> Action:
    """Move the jobs that a filter means to a queue that is asked for."""
    body = {"filter": meant, **_ACT}
    to = Input("to", "To queue", needed=True)
    return Action(key, label, "/api/bulk/move", (to,), body, "Jobs moved: {result}.", redis="")


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


def set_setting(setting: Setting[Any], value: str) -> Action:
    """Change a setting that can be changed while the daemon runs; `value` is what it is now, empty for a secret."""
    return Action(f"set-{setting.name}", "Change", "/api/config",
                  (b"CONFIG", b"SET", setting.name.encode(), Input("value", setting.name, value=value)),
                  {"name": setting.name}, "Changed.", role=Role.ADMIN)  # fmt: skip
