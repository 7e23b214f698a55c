"""What a command names: queues, jobs, workers, schedules, channels, commands, read off its grammar.

A field says by its kind what its values name (`Kind.names`).  Where a field holds several things at once (a group, a
time-out and queues, say) the class of the command says which of them are queues: `queues_named`.
So does one that lets another command run: `commands_named`.
"""

from functools import cache
from typing import Any

from disqued.commands.table import Command, every_command
from disqued.core.node import Call


def queues_of(entry: Command, call: Call) -> list[bytes]:
    """The queues that a call names; none for one that is about jobs, or about no queue of its own."""
    named = getattr(call, "queues_named", None)
    return list(named()) if named is not None else _values(entry, call, "queue")


def commands_of(call: Call) -> list[str]:
    """The other commands that a call lets run for its client, and that the client needs the right to run."""
    named = getattr(call, "commands_named", None)
    return list(named()) if named is not None else []


def job_ids_of(entry: Command, call: Call) -> list[bytes]:
    """The ids of the jobs that a call names, of a process that of its job."""
    words: list[bytes] | None = getattr(call, "words", None)
    if words is not None and _fields(entry, "job"):
        return list(words[1:])  # a call so long that nothing was read of it yet
    return [getattr(value, "job_id", value) for value in _values(entry, call, "job")]


def workers_of(entry: Command, call: Call) -> list[bytes]:
    """The ids of the workers that a call acts on."""
    return _values(entry, call, "worker")


def schedules_of(entry: Command, call: Call) -> list[bytes]:
    """The names of the schedules that a call names."""
    return _values(entry, call, "schedule")


def channels_of(entry: Command, call: Call, *, patterns: bool) -> list[bytes]:
    """The channels, or patterns of channels, that a call names."""
    return _values(entry, call, "pattern" if patterns else "channel")


def names_channels(entry: Command) -> bool:
    """Tell whether a command has a place for channels."""
    names = _names(entry.name)
    return "channel" in names or "pattern" in names


def without_jobs(entry: Command, call: Any, unknown: frozenset[bytes]) -> Call | None:
    """The same call without these jobs; None when one of them has a place that cannot be empty."""
    words: list[bytes] | None = getattr(call, "words", None)
    if words is not None:
        words[1:] = [word for word in words[1:] if word not in unknown]
        return call  # type: ignore[no-any-return]
    for name, is_list in _fields(entry, "job"):
        value = getattr(call, name)
        if is_list:
            setattr(call, name, [one for one in value if getattr(one, "job_id", one) not in unknown])
        elif getattr(value, "job_id", value) in unknown:
            return None
    return call  # type: ignore[no-any-return]


@cache
def _names(name: str) -> dict[str, list[tuple[str, bool]]]:
    """The fields of a command by what they name, and whether each holds a list; most name nothing."""
    found: dict[str, list[tuple[str, bool]]] = {}
    for field in next(entry.fields for entry in every_command() if entry.name == name):
        if field.arg.kind.names:
            found.setdefault(field.arg.kind.names, []).append((field.name, field.arg.style == "rest"))
    return found


def _fields(entry: Command, what: str) -> list[tuple[str, bool]]:
    return _names(entry.name).get(what, [])


def _values(entry: Command, call: Call, what: str) -> list[Any]:
    found: list[Any] = []
    for name, is_list in _fields(entry, what):
        value = getattr(call, name)
        if is_list:
            found += value
        elif value is not None:
            found.append(value)
    return found
