"""What a user of Spark may say to the connector, each option with its default and what is allowed.

    spark.read.format("disqued").option("address", "10.0.0.1:7711").option("queues", "mail,orders-*")
                                          |
                                  Table.read()  -->  {"address": ..., "queues": ..., "pipeline": 1000}

Spark passes texts, and names in lower case.  An option that is not known is an error and not passed over: a typing
error in `prepareTimeout` would otherwise be found out by its consequences.  Spans are seconds.
"""

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

import attrs

from disqued.client.addresses import read_nodes
from disqued.core.ids import is_job_id
from disqued.suggestions import listed

MOST_SECONDS: Final = 2**31 - 1
DAY_S: Final = 86_400
PAGE: Final = "docs/reference/spark.md"  #: where every option is named
#: One of them makes a name a pattern.
PATTERN: Final = frozenset("*?[")
#: What Spark makes of a list that is given as an option.
_LIST: Final = re.compile(r"""\[(?:'.*'|".*")\]|\(['"].*\)""", re.DOTALL)
GROUP_MAX: Final = 65_000  #: bytes of the name of a group
#: Stores, and exports of them.
KINDS: Final = ("aof", "sqlite", "jsonl", "parquet")
#: What of a store is read: jobs that are there, every job that it has the body of, who is done, what else ended jobs.
RECORDS: Final = ("jobs", "added", "done", "evictions")
STATES: Final = ("queued", "active", "expired", "unknown")


class Use(Enum):
    """What an option is for."""

    READ = "spark.read"
    STORE = "spark.read with path"
    STREAM = "spark.readStream"
    GROUP = "spark.readStream with group"
    EVENTS = "spark.readStream with events"
    WRITE = "df.write and df.writeStream"
    MOVE = "a move from queue to queue"


#: What is done on nodes, and needs their address.
LIVE: Final = frozenset({Use.READ, Use.STREAM, Use.GROUP, Use.WRITE, Use.MOVE})
#: An option that makes it another use than it would be; the first of them counts.
TELLING: Final = {"path": Use.STORE, "events": Use.EVENTS, "group": Use.GROUP}
#: What Spark itself passes on to sources and sinks, and needs nobody's leave.
OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})


@attrs.frozen
class Option:
    """One option."""

    name: str
    #: Makes the value of its text.  Raises ValueError.
    read: Callable[[str], Any]
    #: As a user would write it; None = there is none, and the value is None.
    default: str | None
    allowed: str
    uses: frozenset[Use] = LIVE
    is_needed: bool = False


def _words(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(","))
    if not all(words):
        raise ValueError("nothing stands beside a comma")
    if _LIST.fullmatch(text.strip()):
        raise ValueError("this is a list of Python as a text; names with commas between them are allowed")
    return words


def _addresses(text: str) -> tuple[str, ...]:
    words = _words(text)
    read_nodes(words)
    return words


def _some_of(*allowed: str) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        words = tuple(word.lower() for word in _words(text))
        if not set(words) <= set(allowed):
            raise ValueError
        return words

    return read


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError
        return text.lower()

    return read


def _needed(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _group(text: str) -> str:
    if not 0 < len(text.encode()) <= GROUP_MAX:
        raise ValueError
    return text


def _start(text: str) -> str:
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if not is_job_id(text.encode()):
        raise ValueError
    return text


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _between(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text)
        if not least <= number <= most:
            raise ValueError
        return number

    return read


_SECONDS: Final = _between(0, MOST_SECONDS)
_SPAN: Final = _between(1, MOST_SECONDS)
_SINK: Final = frozenset({Use.WRITE})
_ADDING: Final = frozenset({Use.WRITE, Use.MOVE})
_SOURCE: Final = frozenset({Use.READ, Use.STORE, Use.STREAM, Use.GROUP})
_TABLE: Final = frozenset({Use.READ})
_STORE: Final = frozenset({Use.STORE})
_STREAM: Final = frozenset({Use.STREAM})
_GROUP: Final = frozenset({Use.GROUP})
_JOBS: Final = frozenset({Use.STREAM, Use.GROUP})
_EVENTS: Final = frozenset({Use.EVENTS})

OPTIONS: Final = (
    Option("address", _addresses, None, "host:port of a node, or several with commas between them", is_needed=True),
    Option("user", str, None, "a name"),
    Option("password", str, None, "the password of the nodes"),
    Option("connectTimeout", _between(1, DAY_S), "10", f"1 to {DAY_S} seconds"),
    Option("replyTimeout", _between(1, DAY_S), "60", f"1 to {DAY_S} seconds"),
    Option("pipeline", _between(1, 100_000), "1000", "1 to 100000 commands"),
    Option("queues", _words, "*", "names or patterns (* ? [abc]), with commas between them", _SOURCE),
    Option("states", _some_of("queued", "active"), "queued,active", "queued, active or both", _TABLE),
    Option("minPartitions", _between(1, 100_000), "1", "1 to 100000", _SOURCE),
    # Stores.
    Option("path", _words, None, "files and folders, or patterns of them, with commas between them", _STORE, True),
    Option("store", _one_of(*KINDS), None, ", ".join(KINDS), _STORE),
    Option("records", _one_of(*RECORDS), "jobs", ", ".join(RECORDS), _STORE),
    Option("states", _some_of(*STATES), "queued,active,unknown", "one or several of " + ", ".join(STATES), _STORE),
    # Streams of jobs, and of events of logs.
    Option("group", _group, None, f"the name of a group: 1 to {GROUP_MAX} bytes", _GROUP, True),
    Option("maxJobsPerTrigger", _between(1, 1_000_000), "10000", "1 to 1000000 jobs", _JOBS),
    Option("maxBytesPerTrigger", _between(1, 2**40), "67108864", "1 to 1099511627776 bytes", _JOBS | _EVENTS),
    Option("leaseRenewInterval", _between(1, DAY_S), "10", f"1 to {DAY_S} seconds", _STREAM),
    Option("leaseTime", _SPAN, "600", f"1 to {MOST_SECONDS} seconds", _GROUP),
    Option("startingPosition", _start, "earliest", "earliest, latest or the id of an event", _GROUP),
    Option("failOnDataLoss", _flag, "true", "true or false", _JOBS | _EVENTS),
    # The event log.
    Option("events", _needed, None, "the folder of the event log: the one with date=... in it", _EVENTS, True),
    Option("startingPosition", _one_of("earliest", "latest"), "earliest", "earliest or latest", _EVENTS),
    # Writing.
    Option("queue", str, None, "the name of a queue", _SINK),
    Option("retry", _SECONDS, None, f"0 to {MOST_SECONDS} seconds", _ADDING),
    Option("ttl", _SPAN, None, f"1 to {MOST_SECONDS} seconds", _ADDING),
    Option("delay", _SECONDS, "0", f"0 to {MOST_SECONDS} seconds", _ADDING),
    Option("replicate", _between(1, 65_535), None, "1 to 65535 nodes", _ADDING),
    Option("replicationTimeout", _between(1, DAY_S), "10", f"1 to {DAY_S} seconds", _ADDING),
    Option("twoPhase", _flag, "true", "true or false", _SINK),
    Option("prepareTimeout", _SPAN, "3600", f"1 to {MOST_SECONDS} seconds", _SINK),
)


def use_of(given: Mapping[str, str], otherwise: Use) -> Use:
    """Tell which use options are for that name a store, an event log or a group; or the one that it is otherwise."""
    names = {name.lower() for name in given}
    return next((use for name, use in TELLING.items() if name in names), otherwise)


def read_options(given: Mapping[str, str], use: Use) -> dict[str, Any]:
    """Read what was given for a use, and put defaults for the rest; names as in the table.

    Raises ValueError for what is unknown, is for another use, is missing, is not allowed, or contradicts another one.
    """
    for name in given:
        _check_name(name, use)
    texts = {name.lower(): text for name, text in given.items()}
    options = {
        option.name: _value(option, texts.get(option.name.lower(), option.default))
        for option in OPTIONS
        if use in option.uses
    }
    _check_together(options, use)
    return options


def _check_name(name: str, use: Use) -> None:
    named = [option for option in OPTIONS if option.name.lower() == name.lower()]
    if any(use in option.uses for option in named) or name.lower() in OF_SPARK:
        return
    allowed = [each.name for each in OPTIONS if use in each.uses]
    if not named:
        raise ValueError(f"disqued has no option {name!r}; {listed(_options_for(use), allowed, PAGE, name)}")
    raise ValueError(f"the option {named[0].name} is not for {use.value}; {listed(_options_for(use), allowed, PAGE)}")


def _options_for(use: Use) -> str:
    return f"options for {use.value}"


def _value(option: Option, text: str | None) -> Any:
    if text is None:
        if option.is_needed:
            raise ValueError(f"the option {option.name} is missing; allowed: {option.allowed}")
        return None
    try:
        return option.read(text)
    except (ValueError, KeyError) as error:
        # A URL may have a password in it, and the errors of addresses are made so as not to show it.
        what = f": {error}" if option.name == "address" else f" cannot be {text!r}"
        raise ValueError(f"the option {option.name}{what}; allowed: {option.allowed}") from None


def _check_together(options: Mapping[str, Any], use: Use) -> None:
    """Raise ValueError for options that contradict each other."""
    if use is Use.WRITE:
        _check_writing(options)
    elif use in (Use.STREAM, Use.GROUP):
        for queue in options["queues"]:
            if PATTERN & set(queue):
                raise ValueError(f"the option queues has to name the queues of a stream, and {queue!r} is a pattern")
        where = options.get("startingPosition", "earliest")
        if where not in ("earliest", "latest") and len(options["queues"]) > 1:
            raise ValueError("the option startingPosition names an event, and so queues can name its queue alone")


def _check_writing(options: Mapping[str, Any]) -> None:
    ttl, delay, retry = options["ttl"], options["delay"], options["retry"]
    if options["twoPhase"] and delay:
        raise ValueError("the option delay needs twoPhase = false: a commit queues what was prepared, at once")
    wait = options["prepareTimeout"] if options["twoPhase"] else delay
    if wait >= (DAY_S if ttl is None else ttl):
        name = "prepareTimeout" if options["twoPhase"] else "delay"
        life = "a day, which ttl is where it is not given" if ttl is None else f"ttl = {ttl}"
        raise ValueError(f"the option {name} = {wait} is not less than {life}: the jobs would never be delivered")
    if retry == 0 and options["replicate"] != 1:
        raise ValueError("the option retry = 0 (at most once) needs replicate = 1")
