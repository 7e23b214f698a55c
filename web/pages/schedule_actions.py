"""What can be done with schedules from the page, with its fields, its command and its request.

A form that changes a schedule has all that the schedule says.  What no field can hold, such as a body that is no text,
is kept as it is: it stands in the request, and in the lines of redis-cli and curl.
"""

from typing import Any, Final

import attrs

from disqued.core.model.calendar import AT, CATCH_UP, CRON, EVERY, JobTemplate, ScheduleSetting
from disqued.core.model.spans import seconds_text
from disqued.web.pages.actions import JOB_OPTIONS
from disqued.web.pages.lines import Action, Input

#: What of a schedule is kept: the words of the command, and the value in JSON, by the name of the field.
Kept = dict[str, tuple[list[bytes], Any]]

_FIELDS: Final[tuple[bytes | Input, ...]] = (
    Input("line", "Cron expression", hint="0 2 * * mon-fri", spare=True),
    Input("every", "or interval (s)", "seconds", word="EVERY"),
    Input("at", "or once at (Unix time, s)", "number", word="AT"),
    b"QUEUE", Input("queue", "Queue", needed=True),
    b"BODY", Input("body", "Body", "area"),
    Input("zone", "Time zone", hint="UTC", word="TZ"),
    Input("overlap", "While the previous job is unfinished", "choice", hint="allow", word="OVERLAP", choices=("skip",)),
    Input("catch_up", "Max missed runs to catch up", "number", hint=str(CATCH_UP), word="CATCHUP"),
    Input("jitter", "Jitter (s)", "seconds", hint="none", word="JITTER"),
    *JOB_OPTIONS,
)  # fmt: skip


def set_new() -> Action:
    """Set a schedule whose name is asked for."""
    return _set("schedule-set", "Save schedule", Input("name", "Name", needed=True), {}, {})


def change(name: bytes, setting: ScheduleSetting) -> Action:
    """Set a schedule again, which says `setting` now."""
    return _set("schedule-change", "Save changes", name, _values(setting), kept_of(setting.job))


def _set(key: str, label: str, name: bytes | Input, values: dict[str, str], kept: Kept) -> Action:
    words: list[bytes | Input] = [b"SCHEDULE", b"SET", name]
    for one in _FIELDS:
        if isinstance(one, bytes):
            words.append(one)
        elif one.name in kept:
            words += kept[one.name][0]
        else:
            words.append(attrs.evolve(one, value=values.get(one.name, "")))
    fixed = {field: value for field, (_, value) in kept.items()}
    if isinstance(name, bytes):
        fixed["name"] = name
    return Action(
        key, label, "/api/commands/SCHEDULE/SET", words, fixed, "Saved on all nodes: {result}.", previews=True
    )


def _values(setting: ScheduleSetting) -> dict[str, str]:
    """What a schedule says, as it stands in the fields; what it does not say is empty."""
    job, terms = setting.job, setting.job.terms
    numbers = {
        "at": setting.number // 1_000 if setting.kind == AT else 0, "replicate": job.replicate, "maxlen": job.maxlen,
        "max_tries": terms.max_tries,
    }  # fmt: skip
    spans_ms = {
        "every": setting.number if setting.kind == EVERY else 0, "jitter": setting.jitter_ms, "delay": job.delay_ms,
        "backoff.first": terms.backoff_ms, "backoff.most": terms.backoff_most_ms, "keep_dead": terms.keep_dead_ms,
        "result": terms.keep_result_ms,
    }  # fmt: skip
    found = {name: str(number) if number else "" for name, number in numbers.items()}
    found |= {name: _seconds(ms) if ms else "" for name, ms in spans_ms.items()}
    if terms.max_tries:
        found["keep_dead"] = _seconds(terms.keep_dead_ms)
    is_cron = setting.kind == CRON
    return found | {
        "line": _text(setting.line) if is_cron else "", "zone": _text(setting.zone) if is_cron else "",
        "queue": _text(job.queue), "body": _text(job.body), "overlap": "skip" if setting.skips else "",
        "catch_up": str(setting.catch_up), "retry": _seconds(job.retry_ms), "ttl": _seconds(job.ttl_ms),
        "asynchronous": "1" if job.asynchronous else "", "group": _text(terms.group),
        "headers": " ".join(f"{_text(name)}={_text(value)}" for name, value in terms.headers),
    }  # fmt: skip


def _seconds(ms: int) -> str:
    return seconds_text(ms).decode()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def kept_of(job: JobTemplate) -> Kept:
    """What of the jobs of a schedule no field of a form can hold."""
    found: Kept = {}
    group, headers = job.terms.group, job.terms.headers
    if not (job.queue and _is_line(job.queue)):
        found["queue"] = [job.queue], job.queue
    if not _is_area(job.body):
        found["body"] = [job.body], job.body
    if not all(_is_word(name) and b"=" not in name and (not value or _is_word(value)) for name, value in headers):
        words = [word for header in headers for word in (b"HEADER", *header)]
        found["headers"] = words, [{"name": name, "value": value} for name, value in headers]
    if not _is_line(group):
        found["group"] = [b"GROUP", group], group
    return found


def _is_line(data: bytes) -> bool:
    try:
        return data.decode("utf-8").isprintable()
    except UnicodeDecodeError:
        return False


def _is_word(data: bytes) -> bool:
    return bool(data) and b" " not in data and _is_line(data)


def _is_area(data: bytes) -> bool:
    """Return whether a browser gives back what it was given: it changes other line ends, and NUL."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\r" not in data and b"\0" not in data


def pause(name: bytes, *, is_paused: bool) -> list[Action]:
    """Pause a schedule in the whole cluster, or end that."""
    verb, label, done = ("RESUME", "Resume", "Resumed") if is_paused else ("PAUSE", "Pause", "Paused")
    return [
        Action(
            "schedule-pause", label, f"/api/commands/SCHEDULE/{verb}", (b"SCHEDULE", verb.encode(), name),
            {"name": name}, f"{done} on all nodes: {{result}}.",
        )
    ]  # fmt: skip


def on_schedule(name: bytes) -> list[Action]:
    """What else can be done with a schedule."""
    return [
        Action(
            "fire", "Run now", "/api/commands/SCHEDULE/FIRE", (b"SCHEDULE", b"FIRE", name), {"name": name},
            "Added as {result}.",
        ),
        Action(
            "delete", "Delete schedule", "/api/commands/SCHEDULE/DEL", (b"SCHEDULE", b"DEL", name), {"name": name},
            "Schedules deleted: {result}.", "The schedule stops running on all nodes. Its jobs remain.", ends=True,
            danger=True,
        ),
    ]  # fmt: skip
