"""What a user of Spark may say to the connector, each option with its default and what is allowed.

    spark.read.format("disqued").option("address", "10.0.0.1:7711").option("queues", "mail,orders-*")
                                          |
                                  Table.read()  -->  {"address": ..., "queues": ..., "pipeline": 1000}

Spark passes texts, and names in lower case.  An unknown option is an error: a typing error in `prepareTimeout` would
otherwise show by its consequences alone.  `OPTIONS` is the one table: it parses, and it makes the lists in errors.

Several names stand in one text, with commas between them, or as a JSON array where a name has a comma in it:

    mail, orders-*          ["mail", "orders-*", "to: a, b"]

Spans are seconds, and may have fractions: `0.5`.
"""

import json
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

import attrs

from disqued.client.addresses import read_nodes
from disqued.commands.values import SECOND, in_seconds, read_span
from disqued.core.model.ids import is_job_id
from disqued.suggestions import near

MOST_SECONDS: Final = 2**31 - 1
DAY_S: Final = 86_400
PAGE: Final = "docs/reference/spark.md"  #: where every option is named
#: One of them makes a name a pattern.
PATTERN: Final = frozenset("*?[")
#: A Python list or tuple of strings as Spark writes it in an option.
_LIST: Final = re.compile(r"""\['.*\]|\(['"].*\)""", re.DOTALL)
#: The beginning of a JSON array of strings.  A pattern such as `[ab]*` begins otherwise.
_ARRAY: Final = re.compile(r"""\s*\[\s*"|\s*\[\s*\]\s*\Z""")
GROUP_MAX: Final = 65_000  #: bytes of the name of a group
#: Stores, and exports of them.
KINDS: Final = ("aof", "sqlite", "jsonl", "parquet")
#: What of a store is read: jobs that are there, every job that it has the body of, who is done, what else ended jobs.
RECORDS: Final = ("jobs", "added", "done", "evictions")
STATES: Final = ("queued", "active", "dead", "expired", "unknown")
#: States of jobs of a live queue.
LIVE_STATES: Final = ("queued", "active", "dead")


class ConnectorUse(Enum):
    """What a call does with the connector; the value names the call in errors."""

    READ = "spark.read"
    STORE = "spark.read with path"
    STREAM = "spark.readStream"
    GROUP = "spark.readStream with group"
    EVENTS = "spark.readStream with events"
    WRITE = "df.write"
    WRITE_STREAM = "df.writeStream"
    MOVE = "a move from queue to queue"


#: Uses that need the address of a node.
LIVE: Final = frozenset(ConnectorUse) - {ConnectorUse.STORE, ConnectorUse.EVENTS}
#: Options that choose another use within a call; the first of them counts.
_CHOOSING: Final = {
    ConnectorUse.READ: {"path": ConnectorUse.STORE},
    ConnectorUse.STREAM: {"events": ConnectorUse.EVENTS, "group": ConnectorUse.GROUP},
}
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
    uses: frozenset[ConnectorUse] = LIVE
    is_needed: bool = False


class _Wrong(ValueError):
    """Why a value is wrong, for the error that names the option and what is allowed."""


def _words(text: str) -> tuple[str, ...]:
    if _ARRAY.match(text):
        return _array(text)
    words = tuple(word.strip() for word in text.split(","))
    if _LIST.fullmatch(text.strip()):
        raise _Wrong("this is a Python list; write it with json.dumps")
    if not all(words):
        raise _Wrong("a name is empty")
    return words


def _array(text: str) -> tuple[str, ...]:
    try:
        words = json.loads(text)
    except (ValueError, RecursionError):
        raise _Wrong("this begins like a JSON array of strings and is none") from None
    if not words or not all(isinstance(word, str) and word for word in words):
        raise _Wrong("a JSON array needs one string or more, none of them empty")
    return tuple(words)


def _addresses(text: str) -> tuple[str, ...]:
    words = _words(text)
    read_nodes(words)
    return words


def _names(text: str) -> tuple[str, ...]:
    words = _words(text)
    for word in words:
        if PATTERN & set(word):
            raise _Wrong(f"{word!r} is a pattern, and a stream needs the names themselves")
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


_SINK: Final = frozenset({ConnectorUse.WRITE, ConnectorUse.WRITE_STREAM})
_ADDING: Final = _SINK | {ConnectorUse.MOVE}
_SOURCE: Final = frozenset({ConnectorUse.READ, ConnectorUse.STORE, ConnectorUse.STREAM, ConnectorUse.GROUP})
_TABLES: Final = frozenset({ConnectorUse.READ, ConnectorUse.STORE})
_TABLE: Final = frozenset({ConnectorUse.READ})
_STORE: Final = frozenset({ConnectorUse.STORE})
_STREAM: Final = frozenset({ConnectorUse.STREAM})
_GROUP: Final = frozenset({ConnectorUse.GROUP})
_JOBS: Final = frozenset({ConnectorUse.STREAM, ConnectorUse.GROUP})
_EVENTS: Final = frozenset({ConnectorUse.EVENTS})

#: How several names stand in one text.
_SEVERAL: Final = "with commas between them or as a JSON array"


def _span(
    name: str, default: str | None, uses: frozenset[ConnectorUse] = LIVE, *, most: int = MOST_SECONDS,
    zero: bool = False,
) -> Option:  # fmt: skip
    """Make an option that is a span to the millisecond; its value is an integer where it is whole."""

    def read(text: str) -> float:
        ms = read_span(_needed(text).encode(), SECOND)
        if not (0 if zero else 1) <= ms <= most * SECOND:
            raise ValueError
        return in_seconds(ms)

    return Option(name, read, default, f"{'' if zero else 'above '}0 to {most} seconds, with fractions", uses)


OPTIONS: Final = (
    Option("address", _addresses, None, f"host:port of a node, or several {_SEVERAL}", is_needed=True),
    Option("user", str, None, "a name"),
    Option("password", str, None, "the password of the nodes"),
    _span("connectTimeout", "10", most=DAY_S),
    _span("replyTimeout", "60", most=DAY_S),
    Option("pipeline", _between(1, 100_000), "1000", "1 to 100000 commands"),
    Option("queues", _words, "*", f"names or patterns (* ? [abc]), {_SEVERAL}", _TABLES),
    Option("queues", _names, None, f"names of queues, {_SEVERAL}", _JOBS, True),
    Option("states", _some_of(*LIVE_STATES), "queued,active", "one or several of " + ", ".join(LIVE_STATES), _TABLE),
    Option("minPartitions", _between(1, 100_000), "1", "1 to 100000", _SOURCE),
    # Stores.
    Option("path", _words, None, f"files and folders, or patterns of them, {_SEVERAL}", _STORE, True),
    Option("store", _one_of(*KINDS), None, ", ".join(KINDS), _STORE),
    Option("records", _one_of(*RECORDS), "jobs", ", ".join(RECORDS), _STORE),
    Option("states", _some_of(*STATES), "queued,active,unknown", "one or several of " + ", ".join(STATES), _STORE),
    # Streams of jobs, and of events of logs.
    Option("group", _group, None, f"the name of a group: 1 to {GROUP_MAX} bytes", _GROUP, True),
    Option("maxJobsPerTrigger", _between(1, 1_000_000), "10000", "1 to 1000000 jobs", _JOBS),
    Option("maxBytesPerTrigger", _between(1, 2**40), "67108864", "1 to 1099511627776 bytes", _JOBS | _EVENTS),
    _span("leaseRenewInterval", "10", _STREAM, most=DAY_S),
    _span("leaseTime", "600", _GROUP),
    Option("startingPosition", _start, "earliest", "earliest, latest or the id of an event", _GROUP),
    Option("failOnDataLoss", _flag, "true", "true or false", _JOBS | _EVENTS),
    # The event log.
    Option("events", _needed, None, "the folder of the event log: the one with date=... in it", _EVENTS, True),
    Option("startingPosition", _one_of("earliest", "latest"), "earliest", "earliest or latest", _EVENTS),
    # Writing.
    Option("queue", str, None, "the name of a queue", _SINK),
    _span("retry", None, _ADDING, zero=True),
    _span("ttl", None, _ADDING),
    _span("delay", "0", _ADDING, zero=True),
    Option("replicate", _between(1, 65_535), None, "1 to 65535 nodes", _ADDING),
    _span("replicationTimeout", "10", _ADDING, most=DAY_S),
    Option("twoPhase", _flag, "true", "true or false", _SINK),
    _span("prepareTimeout", "3600", _SINK),
)


def use_of(given: Mapping[str, str], call: ConnectorUse) -> ConnectorUse:
    """Return what a call does with these options: itself, or what an option such as `path` chooses instead."""
    names = {name.lower() for name in given}
    return next((use for name, use in _CHOOSING.get(call, {}).items() if name in names), call)


def read_options(given: Mapping[str, str], use: ConnectorUse) -> dict[str, Any]:
    """Read the options of a use, and add the defaults of the rest; names as in the table.

    Raises ValueError for an option that is unknown, for another use, missing, wrong, or contradicts another one.
    """
    for name in given:
        _check_name(name, (use,))
    texts = {name.lower(): text for name, text in given.items()}
    options = {
        option.name: _value(option, texts.get(option.name.lower(), option.default))
        for option in OPTIONS
        if use in option.uses
    }
    _check_together(options, use)
    return options


def check_source(given: Mapping[str, str]) -> None:
    """Raise ValueError for options that are wrong for `spark.read` and for `spark.readStream`.

    Spark wants the columns before it says which call it is.  What is wrong for one call alone, the reader finds.
    """
    uses = tuple(use_of(given, call) for call in (ConnectorUse.READ, ConnectorUse.STREAM))
    for name in given:
        _check_name(name, uses)
    texts = {name.lower(): text for name, text in given.items()}
    for name in dict.fromkeys(name for use in uses for name in names_of(use)):
        rows = [option for option in OPTIONS if option.name == name and option.uses & set(uses)]
        if name.lower() in texts or all(set(uses) <= option.uses for option in rows):
            _check_any(rows, texts.get(name.lower()))


def _check_any(rows: list[Option], text: str | None) -> None:
    """Raise ValueError for a value that none of these rows of one option allows."""
    errors = []
    for option in rows:
        try:
            _value(option, option.default if text is None else text)
        except ValueError as error:
            errors.append(error)
    if len(errors) == len(rows):
        raise errors[0]


def _check_name(name: str, uses: tuple[ConnectorUse, ...]) -> None:
    """Raise ValueError for an option that none of these uses has."""
    named = [option for option in OPTIONS if option.name.lower() == name.lower()]
    if any(option.uses & set(uses) for option in named) or name.lower() in OF_SPARK:
        return
    lists = "; ".join(f"options for {use.value} are {', '.join(names_of(use))}" for use in uses)
    if named:
        others = " or ".join(each.value for each in ConnectorUse if any(each in option.uses for option in named))
        here = " or ".join(use.value for use in uses)
        raise ValueError(f"the option {named[0].name} is for {others}, not for {here}; {lists}")
    meant = near(name, [each for use in uses for each in names_of(use)])
    guess = f"did you mean {' or '.join(meant)}? " if meant else ""
    raise ValueError(f"disqued has no option {name!r}; {guess}{lists} ({PAGE})")


def names_of(use: ConnectorUse) -> list[str]:
    """Return the names of all options of a use."""
    return [option.name for option in OPTIONS if use in option.uses]


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
        if isinstance(error, _Wrong) and option.name != "address":
            what += f": {error}"
        raise ValueError(f"the option {option.name}{what}; allowed: {option.allowed}") from None


def _check_together(options: Mapping[str, Any], use: ConnectorUse) -> None:
    """Raise ValueError for options that contradict each other."""
    if use in _SINK:
        _check_writing(options)
    elif (
        use is ConnectorUse.GROUP
        and options["startingPosition"] not in ("earliest", "latest")
        and len(options["queues"]) > 1
    ):
        raise ValueError("the option startingPosition names an event; queues can then name its queue alone")


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
