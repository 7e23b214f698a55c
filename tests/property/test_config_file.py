"""Statements about every configuration: what is written reads back, and no text does more harm than an error."""

import contextlib
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from disqued.config import SETTINGS, BadValue, Config, ConfigError, OutputLimit, as_bytes
from disqued.config.kinds import (
    INT64_MAX,
    Addresses,
    AddressesOrNone,
    AddressOrNone,
    Choice,
    EndpointStrings,
    FileName,
    Folder,
    FolderPath,
    Kind,
    Octal,
    OutputLimits,
    Prefix,
    RedisUrl,
    Renames,
    Size,
    SomeOf,
    StoreName,
    Text,
    WholeNumber,
    YesNo,
)
from disqued.config.quoting import quoted, split_words
from disqued.core.model import glob

#: Texts as they come out of files: any character, and bytes that are none.
TEXTS = st.binary(max_size=60).map(lambda source: source.decode("utf-8", "surrogateescape")) | st.text(max_size=30)


def redis_urls() -> st.SearchStrategy[str]:
    """Addresses of Redis servers, with every part there or not."""
    account = st.sampled_from(["", ":secret@", "user:secret@", ":%40%2F@"])
    host = st.sampled_from(["127.0.0.1", "[::1]", "redis.example"]) | st.ip_addresses(v=4).map(str)
    port = st.just("") | st.integers(1, 65535).map(":{}".format)
    database = st.sampled_from(["", "/", "/0", "/15"])
    return st.tuples(st.just("redis://"), account, host, port, database).map("".join)


def values(kind: Kind[Any]) -> st.SearchStrategy[Any]:
    """All values that a kind allows."""
    match kind:
        case WholeNumber() | Size():
            return st.integers(kind.low, kind.high)
        case Octal():
            return st.integers(0, kind.high)
        case YesNo():
            return st.booleans()
        case Choice():
            return st.sampled_from(kind.words)
        case Folder():
            return st.sampled_from([Path("/"), Path("/dev"), Path.cwd(), Path(__file__).resolve().parent])
        case FileName():
            names = TEXTS.map(lambda text: text.replace("/", "").replace("\0", ""))
            return names.filter(lambda name: name not in ("", ".", "..")).map(kind.parse)
        case StoreName():
            return st.sampled_from(kind.known) | st.from_regex(r"[a-z0-9]{1,9}(-[a-z0-9]{1,9}){0,2}", fullmatch=True)
        case RedisUrl():
            return redis_urls()
        case Prefix():
            return st.text(st.characters(categories=["L", "N", "P"], exclude_characters="{}"), min_size=1, max_size=30)
        case FolderPath():
            return TEXTS.map(lambda text: text.replace("\0", "")).filter(bool).map(kind.parse)
        case Text():
            return TEXTS.map(lambda text: text.replace("\0", "")).map(kind.parse)
        case AddressesOrNone():
            return st.just(()) | values(Addresses())
        case AddressOrNone():
            sound = st.ip_addresses().filter(lambda address: not address.is_unspecified)
            return st.just("") | sound.map(str).filter(lambda text: "%" not in text)
        case Addresses():
            return st.lists(st.ip_addresses().map(str), min_size=1, max_size=16, unique=True).map(tuple)
        case SomeOf():
            return st.lists(st.sampled_from(kind.known), min_size=1, unique=True).map(kind.parse_words)
        case EndpointStrings():
            texts = TEXTS.map(lambda text: text.replace("\0", "")).map(Text().parse)
            return st.lists(texts, max_size=4, unique=True).map(kind.parse_words)
        case OutputLimits():
            size = st.integers(0, INT64_MAX)
            return st.builds(OutputLimit, size, size, st.integers(0, 2**31 - 1))
        case Renames():
            name = st.text("ABC \"'\\", min_size=1, max_size=4)
            return st.dictionaries(name, st.just(""), min_size=1, max_size=3).map(lambda pairs: tuple(pairs.items()))
    raise AssertionError(f"a kind that is not known here: {kind}")


MUTABLE = [name for name, setting in SETTINGS.items() if setting.mutable]
CHANGES = st.lists(
    st.sampled_from(MUTABLE).flatmap(
        lambda name: st.tuples(st.just(name), values(SETTINGS[name].kind).map(SETTINGS[name].kind.format))
    ),
    max_size=6,
)
#: Lines of a file that may be right.
LINES = st.sampled_from(sorted(SETTINGS.keys() - {"include", "rename-command", "appendonly"})).flatmap(
    lambda name: values(SETTINGS[name].kind).map(lambda value: f"{name} {SETTINGS[name].kind.written(value)}")
)
COMMENTS = st.sampled_from(["", "", "# text", "  # port 5", "#port 6", "\t"])
#: Lines that may be anything, close enough to right ones to go deep.
WILD_LINES = TEXTS | st.builds(
    lambda name, rest: f"{name} {rest}", st.sampled_from(sorted(SETTINGS.keys() - {"include"})), TEXTS | LINES
)


@given(st.data())
def test_any_value_shown_or_written_reads_back_the_same(data: st.DataObject) -> None:
    setting = SETTINGS[data.draw(st.sampled_from(sorted(SETTINGS)))]
    value = data.draw(values(setting.kind))
    assert setting.parse(setting.kind.format(value)) == value
    assert setting.parse_words(split_words(setting.kind.written(value))) == value


@given(TEXTS)
def test_any_text_in_quotes_reads_back_as_one_word_of_one_line(text: str) -> None:
    line = quoted(text)
    assert line.isprintable()
    assert [as_bytes(word) for word in split_words(line)] == [as_bytes(text)]


def configuration_or_error(text: str) -> Config | ConfigError:
    """Read a text; any other exception is a failure of the test."""
    try:
        return Config.from_text(text)
    except ConfigError as error:
        return error


@given(st.lists(WILD_LINES, max_size=8).map("\n".join) | st.text(st.characters(), max_size=80))
def test_any_text_gives_a_configuration_or_an_error_that_reads_on_one_line(text: str) -> None:
    outcome = configuration_or_error(text)
    if isinstance(outcome, Config):
        assert {name for name, _ in outcome.matching("*")} == {s.name for s in SETTINGS.values() if s.listed}
    else:
        assert outcome.path == "disqued.conf"
        assert 1 <= outcome.line <= text.count("\n") + 1
        assert "\n" not in str(outcome)


@given(st.sampled_from(sorted(SETTINGS)) | st.text(max_size=10), st.text(st.characters(), max_size=30))
def test_config_set_stores_or_refuses_and_nothing_else(name: str, text: str) -> None:
    config = Config()
    before = config.matching("*")
    try:
        config.set(name, text)
    except ConfigError as error:
        refusal = str(error)
        assert refusal.isprintable()
        assert config.matching("*") == before
    else:
        assert config[name.lower()] == SETTINGS[name.lower()].parse(text)


@given(
    main=st.lists(LINES | COMMENTS, max_size=8),
    included=st.lists(LINES | COMMENTS, max_size=4),
    tail=st.lists(LINES | COMMENTS, max_size=4),
    changes=CHANGES,
    ends=st.sampled_from(["\n", "\r\n"]),
)
def test_a_rewritten_file_reads_back_the_same(
    main: list[str], included: list[str], tail: list[str], changes: list[tuple[str, str]], ends: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "disqued.conf")
        path.write_bytes(as_bytes(ends.join([*main, "include more.conf", *tail])))
        Path(folder, "more.conf").write_bytes(as_bytes("\n".join(included)))
        config = Config.from_file(path)
        for name, text in changes:
            with contextlib.suppress(BadValue):  # an open address keeps its password
                config.set(name, text)
        config.rewrite()
        again = Config.from_file(path)
        assert {name: again[name] for name in SETTINGS} == {name: config[name] for name in SETTINGS}
        once = path.read_bytes()
        again.rewrite()
        assert path.read_bytes() == once
        comments = [line for line in (*main, *tail) if line.strip().startswith("#")]
        kept = [line for line in once.decode("utf-8", "surrogateescape").splitlines() if line in comments]
        assert kept == comments


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_a_text_is_covered_by_itself_escaped_and_by_a_star_in_place_of_any_part(head: bytes, tail: bytes) -> None:
    escaped = b"".join(b"\\" + bytes((byte,)) for byte in head)
    assert glob.matches(escaped, head)
    assert glob.matches(escaped + b"*", head + tail)
    assert glob.matches(b"*" + escaped, tail + head)
    assert glob.matches(head, tail) in (True, False)
