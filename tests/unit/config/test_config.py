"""The settings: what a file, the command line and CONFIG may say, and what the answer is when they may not."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from disqued.config import (
    SETTINGS,
    BadValue,
    Config,
    ConfigError,
    File,
    NoConfigFile,
    NotMutable,
    OutputLimit,
    Status,
    UnknownDirective,
    Value,
    as_bytes,
    conf_text,
    markdown_text,
)
from disqued.config.__main__ import main
from disqued.config.kinds import Choice, FileName, FilePath, RedisAddress
from disqued.config.quoting import quoted, split_words
from disqued.core.model import glob

ROOT = Path(__file__).resolve().parents[3]

#: What CONFIG GET * of Disque 1.0-rc1 names.
NAMES_OF_DISQUE = (
    *("requirepass", "unixsocket", "logfile", "pidfile"),
    *("maxmemory", "maxmemory-samples", "timeout", "auto-aof-rewrite-percentage"),
    *("auto-aof-rewrite-min-size", "slowlog-log-slower-than", "latency-monitor-threshold", "slowlog-max-len"),
    *("port", "tcp-backlog", "databases", "maxclients"),
    *("watchdog-period", "hz", "cluster-node-timeout", "tcp-keepalive"),
    *("no-appendfsync-on-rewrite", "daemonize", "activerehashing", "aof-rewrite-incremental-fsync"),
    *("aof-load-truncated", "aof-enqueue-jobs-once", "maxmemory-policy", "loglevel"),
    *("appendfsync", "syslog-facility", "appendonly", "dir"),
    *("client-output-buffer-limit", "unixsocketperm", "bind"),
)

#: What TLS needs.
OWN, CA = "tls-cert-file c\ntls-key-file k", "tls-ca-cert-file ca"

#: A file as people have it for Disque.
FILE_OF_DISQUE = """\
# Example
daemonize no
pidfile /var/run/disque.pid
port 7711
tcp-backlog 511
timeout 0
tcp-keepalive 0
loglevel notice
logfile ""
# syslog-enabled no
syslog-ident disque
maxclients 10000
maxmemory 1gb
maxmemory-policy acks
maxmemory-samples 5
appendonly no
appendfilename "disque.aof"
appendfsync everysec
no-appendfsync-on-rewrite no
auto-aof-rewrite-percentage 100
auto-aof-rewrite-min-size 64mb
aof-load-truncated yes
aof-enqueue-jobs-once no
cluster-config-file nodes-7711.conf
cluster-node-timeout 5000
slowlog-log-slower-than 10000
slowlog-max-len 128
latency-monitor-threshold 0
client-output-buffer-limit normal 0 0 0
hz 10
aof-rewrite-incremental-fsync yes
activerehashing yes
"""


def error_of(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        Config.from_text(text)
    return str(caught.value)


def everything(config: Config) -> dict[str, Any]:
    return {name: config[name] for name in SETTINGS}


def written(folder: Path, text: str, name: str = "disqued.conf") -> Path:
    path = folder / name
    path.write_bytes(as_bytes(text))
    return path


def rewritten(folder: Path, text: str, *changes: tuple[str, str], arguments: tuple[tuple[str, str], ...] = ()) -> str:
    """What CONFIG REWRITE makes of a file, without the line of `dir`, after a check that it reads back the same."""
    path = written(folder, text)
    config = Config.from_file(path)
    config.apply_arguments(arguments)
    for name, value in changes:
        config.set(name, value)
    config.rewrite()
    assert everything(Config.from_file(path)) == everything(config)
    result = path.read_bytes().decode("utf-8", "surrogateescape")
    return result.replace(f"dir {quoted(str(Path.cwd()))}\n", "")


# --- The table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETTINGS)
def test_every_default_is_allowed_and_reads_back_from_how_it_is_written(name: str) -> None:
    setting = SETTINGS[name]
    words = split_words(setting.default_text)
    if setting.name == "dir":
        assert setting.parse_words(words) == Path.cwd()
    elif words:
        assert setting.parse_words(words) == setting.default
    assert setting.kind.describe()


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_explains_itself(name: str) -> None:
    setting = SETTINGS[name]
    assert setting.name == name == name.lower()
    assert setting.group
    assert setting.doc.endswith(".")
    assert len(setting.summary) < 120
    assert bool(setting.reason) == bool(setting.warning) == (setting.status is not Status.LIVE)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_attribute_of_a_setting_is_its_value_or_its_path(name: str) -> None:
    config, setting = Config(), SETTINGS[name]
    assert getattr(Config, name.replace("-", "_")) is setting
    value = getattr(config, name.replace("-", "_"))
    if isinstance(setting.kind, (FileName, FilePath)) and name != "include":
        assert isinstance(setting, File)
        assert value == (config.dir / config[name] if config[name] else None)
    else:
        assert isinstance(setting, Value)
        assert value == config[name]


def test_files_lie_in_the_folder_for_data() -> None:
    folder = Path.cwd().parent
    config = Config.from_text(f"dir {folder}\nunixsocket s\npidfile /run/p\nlogfile l\nappendfilename a")
    assert (config.unixsocket, config.logfile, config.appendfilename) == (folder / "s", folder / "l", folder / "a")
    assert config.pidfile == Path("/run/p")


def test_defaults_are_those_of_disque_but_for_the_safer_ones() -> None:
    config = Config()
    assert (config.port, config.maxmemory, config.maxclients, config.slowlog_max_len) == (7711, 2**30, 10000, 128)
    assert config.bind == ("127.0.0.1",)
    assert config.client_output_buffer_limit == OutputLimit(hard=2**30, soft=2**28, soft_seconds=60)
    assert (config.persistence, config.appendonly) == ("none", False)
    assert config.warnings == []


@pytest.mark.parametrize(
    ("command", "path"), [("conf", "disqued.conf"), ("markdown", "docs/reference/configuration.md")]
)
def test_committed_texts_are_those_of_the_table(command: str, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command]) == 0
    assert (ROOT / path).read_text() == capsys.readouterr().out, (
        f"write it anew: python -m disqued.config {command} > {path}"
    )


def test_the_module_runs_as_a_program_and_names_its_texts() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "disqued.config", "nonsense"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "usage: python -m disqued.config conf|markdown\n"


def test_disqued_conf_as_it_stands_changes_nothing() -> None:
    config = Config.from_text(conf_text(SETTINGS))
    assert everything(config) == everything(Config())
    assert config.warnings == []


def test_disqued_conf_holds_every_setting_and_each_one_can_be_uncommented(tmp_path: Path) -> None:
    written(tmp_path, "", "common.conf")
    text = conf_text(SETTINGS)
    lines = [line[1:] for line in text.splitlines() if line.startswith("#") and line[1:2] not in (" ", "")]
    assert [line.split()[0] for line in lines] == list(SETTINGS)
    config = Config.from_text("\n".join(lines), str(tmp_path / "disqued.conf"))
    expected = everything(Config()) | {"rename-command": (("DEBUG", ""),)}
    assert everything(config) == expected
    config.check()


def test_the_reference_page_has_a_section_for_every_setting_and_says_which_have_no_effect() -> None:
    page = markdown_text(SETTINGS)
    for name, setting in SETTINGS.items():
        section = page.split(f"\n### {name}\n")[1].split("\n#")[0]
        assert ("*No effect" in section) == (setting.status is not Status.LIVE)


# --- The file --------------------------------------------------------------------------------------------------------


def test_comments_blank_lines_case_and_line_ends_mean_nothing() -> None:
    config = Config.from_text("\ufeff# first\r\n\r\n  PORT\t7800  \r\n\n   # last\nLogLevel DEBUG")
    assert (config.port, config.loglevel) == (7800, "debug")


def test_a_file_of_disque_loads_and_says_what_has_no_effect() -> None:
    config = Config.from_text(FILE_OF_DISQUE)
    assert config.client_output_buffer_limit == OutputLimit(0, 0, 0)
    assert config["cluster-config-file"] == "nodes-7711.conf"
    named = {warning.split()[1] for warning in config.warnings}
    assert named == {
        *("daemonize", "syslog-ident", "maxmemory-samples"),
        *("hz", "activerehashing"),
    }
    assert "directive hz has no effect: nothing is polled, every deadline has its exact time" in config.warnings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\n" * 11 + "port 99999", "disqued.conf, line 12: port 99999: allowed are whole numbers from 0 to 65535"),
        ("port ٣", "disqued.conf, line 1: port ٣: allowed are whole numbers from 0 to 65535"),
        ("port", "disqued.conf, line 1: port: takes one value, not 0; allowed are whole numbers from 0 to 65535"),
        (
            "port 7711 # clients",
            'line 1: port "7711 # clients": takes one value, not 3 (a comment needs a line of its own); allowed',
        ),
        ("prot 7711", "disqued.conf, line 1: prot: unknown directive; did you mean port?"),
        ("user ann on", "user: unknown directive; users are lines of the file that aclfile names"),
        ("protected-mode no", "protected-mode: unknown directive; it is always on: beyond the loopback addresses"),
        (
            "zzzzzz 7711",
            "zzzzzz: unknown directive; allowed are those that `disqued --help` and docs/reference/configuration.md",
        ),
        ("appendonly maybe", "disqued.conf, line 1: appendonly maybe: allowed are yes and no"),
        ("appendfsync often", "disqued.conf, line 1: appendfsync often: allowed are always, everysec and no"),
        ("maxmemory 0", "disqued.conf, line 1: maxmemory 0: allowed are sizes from 1 byte up, such as 100mb"),
        ("maxmemory -1gb", "disqued.conf, line 1: maxmemory -1gb: allowed are sizes from 1 byte up, such as 100mb"),
        (
            "maxmemory 9223372036854775807gb",
            "line 1: maxmemory 9223372036854775807gb: too large to be counted in 63 bits; allowed are sizes",
        ),
        ("unixsocketperm 0888", "disqued.conf, line 1: unixsocketperm 0888: allowed are octal numbers from 0 to 777"),
        (
            "dir /there/is/none",
            "disqued.conf, line 1: dir /there/is/none: there is no such folder; allowed are paths of",
        ),
        ("dir /dev/null", "disqued.conf, line 1: dir /dev/null: this is not a folder; allowed are paths of existing"),
        (
            "appendfilename a/b",
            "disqued.conf, line 1: appendfilename a/b: allowed are file names without / of 1 to 255",
        ),
        (
            "bind localhost",
            "disqued.conf, line 1: bind localhost: localhost is not an address; allowed are 1 to 16 IPv4",
        ),
        ("bind ::1 0::1", 'disqued.conf, line 1: bind "::1 0::1": an address is given twice; allowed are'),
        ("bind 127.0.0.1,::1", "bind 127.0.0.1,::1: allowed are 1 to 16 IPv4"),
        ('dir ""', 'dir "": allowed are paths of existing folders'),
        (r'logfile "a\x00"', r'logfile "a\x00": allowed are paths without NUL bytes'),
        (r'include "a\x00"', r'include "a\x00": allowed are paths without NUL bytes'),
        ("bind", "disqued.conf, line 1: bind: allowed are 1 to 16 IPv4 and IPv6 addresses"),
        ("client-output-buffer-limit slave 0 0 0", "allowed are four words: normal, hard limit, soft limit"),
        ('requirepass "abc', "disqued.conf, line 1: requirepass: unbalanced quotes: a quote is not closed"),
        ('requirepass "abc"d', "disqued.conf, line 1: requirepass: unbalanced quotes"),
        ("requirepass \ud800", "disqued.conf, line 1: the line holds something that no UTF-8 file can hold"),
        ("rename-command DEBUG", "allowed are two words: a command and its new name"),
        ("rename-command DEBUG a\nrename-command debug b", "disqued.conf, line 2: rename-command"),
        ("rename-command DEBUG a\nrename-command CONFIG A", "the new name is given already"),
        ("daemonize yes", "disqued.conf, line 1: daemonize yes: going into the background is up to twistd"),
        ("persistence aof\nappendonly no", "line 2: appendonly no: contradicts persistence aof of line 1; keep one of"),
        ("appendonly yes\npersistence none", "line 2: persistence none: contradicts appendonly yes of line 1"),
    ],
)
def test_a_wrong_line_is_reported_with_its_place_and_what_is_allowed(text: str, expected: str) -> None:
    assert expected in error_of(text)


def test_an_error_carries_its_parts_for_programs() -> None:
    with pytest.raises(BadValue) as caught:
        Config.from_text("\nport x", "/etc/disqued.conf")
    error = caught.value
    assert (error.path, error.line, error.directive, error.value) == ("/etc/disqued.conf", 2, "port", "x")
    assert error.allowed == "whole numbers from 0 to 65535"


def test_a_hostile_value_is_shown_short_and_on_one_line() -> None:
    text = error_of('port "' + "\\n\\x1b" * 1000 + '"')
    assert len(text) < 600
    assert text.isprintable()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("5b", 5),
        ("1k", 1000),
        ("1kb", 1024),
        ("2M", 2 * 10**6),
        ("2Mb", 2 << 20),
        ("3g", 3 * 10**9),
        ("3GB", 3 << 30),
    ],
)
def test_sizes_have_decimal_and_binary_units_in_any_case(text: str, size: int) -> None:
    assert Config.from_text(f"maxmemory {text}").maxmemory == size


@pytest.mark.parametrize(("text", "seconds"), [("yes", 300), ("no", 0), ("60", 60), ("0", 0)])
def test_tcp_keepalive_takes_seconds_and_yes_and_no_and_shows_seconds(text: str, seconds: int) -> None:
    config = Config.from_text(f"tcp-keepalive {text}")
    assert config.tcp_keepalive == seconds
    assert config.matching("tcp-keepalive") == [("tcp-keepalive", str(seconds))]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        (" a\tb ", ["a", "b"]),
        (r'"a b" "\n\r\t\b\a\\\"\x41\q"', ["a b", '\n\r\t\b\a\\"Aq']),
        (r"'a \' \n'", ["a ' \\n"]),
        ("''", [""]),
        ('pre"fix"', ["prefix"]),
        (r'"\xff\xc3\xa9"', ["\udcffé"]),
    ],
)
def test_words_are_split_as_in_inline_commands(line: str, words: list[str]) -> None:
    assert split_words(line) == words


@pytest.mark.parametrize("line", ['"', "'", '"a"b', "'a'b", '"a\\"', "'a\\'", 'a"b'])
def test_quotes_that_do_not_balance_are_refused(line: str) -> None:
    with pytest.raises(ValueError, match="unbalanced quotes"):
        split_words(line)


def test_a_directive_given_twice_counts_last_and_is_warned_of() -> None:
    config = Config.from_text("port 1\n\nport 2")
    assert config.port == 2
    assert config.warnings == ["disqued.conf: port is given on lines 1 and 3; the last one counts"]


def test_renames_add_up() -> None:
    config = Config.from_text('rename-command config SECRET\nrename-command DEBUG ""')
    assert config.rename_command == (("CONFIG", "SECRET"), ("DEBUG", ""))
    assert config.warnings == []


def test_bytes_that_are_not_utf_8_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "disqued.conf"
    path.write_bytes(b"# caf\xe9\nrequirepass caf\xe9\n")
    config = Config.from_file(path)
    assert as_bytes(config.requirepass) == b"caf\xe9"
    config.set("maxclients", "5")
    config.rewrite()
    assert b"# caf\xe9\nrequirepass caf\xe9\n" in path.read_bytes()


def test_appendonly_and_persistence_are_two_names_of_one_thing() -> None:
    assert Config.from_text("appendonly yes").persistence == "aof"
    assert Config.from_text("persistence aof").appendonly is True
    config = Config.from_text("appendonly yes")
    config.apply_arguments([("persistence", "none")])
    assert (config.persistence, config.appendonly) == ("none", False)


def test_appendonly_no_leaves_another_store_alone() -> None:
    for text in ("persistence sqlite\nappendonly no", "appendonly no\npersistence sqlite"):
        assert Config.from_text(text).persistence == "sqlite"
    with pytest.raises(BadValue, match="line 2: appendonly yes: contradicts persistence sqlite of line 1"):
        Config.from_text("persistence sqlite\nappendonly yes")


def test_a_store_may_have_any_name_that_a_plugin_could_have() -> None:
    assert Config.from_text("persistence My-Store-2").persistence == "my-store-2"
    for name in ("", "a_b", "-a", "a-", "a--b", "ä", "x" * 65):
        with pytest.raises(BadValue, match="allowed are none, aof, sqlite, redis and names of stores that plugins"):
            Config.from_text(f'persistence "{name}"')


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("redis://127.0.0.1", ("127.0.0.1", 6379, 0, "", "")),
        ("REDIS://localhost:7000/12", ("localhost", 7000, 12, "", "")),
        ("redis://:p%40ss@h/", ("h", 6379, 0, "", "p@ss")),
        ("redis://u:p@[::1]:1/3", ("::1", 1, 3, "u", "p")),
    ],
)
def test_the_url_of_a_redis_server_has_parts(url: str, parts: tuple[str | int, ...]) -> None:
    address = RedisAddress.of(Config.from_text(f"redis-url {url}").redis_url)
    assert (address.host, address.port, address.db, address.user, address.password) == parts
    assert "p@ss" not in repr(address)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("127.0.0.1:6379", "the URL has to begin with redis://"),
        ("rediss://h", r"\(TLS, rediss://, is not spoken\)"),
        ("redis://", "the host, or its port, is not one"),
        ("redis://h:", "the host, or its port, is not one"),
        ("redis://h:0", "the port is not from 1 to 65535"),
        ("redis://h:65536", "the port is not from 1 to 65535"),
        ("redis://[::1", "the host, or its port, is not one"),
        ("redis://h/one", "what follows the last / is not the number of a database"),
        ("redis://h/1/2", "what follows the last / is not the number of a database"),
        ("redis://h?db=1", "blanks, control characters, . and # are not possible"),
        ("redis://user@h", "the user has no password"),
    ],
)
def test_a_wrong_url_of_a_redis_server_is_refused_with_the_reason(url: str, problem: str) -> None:
    with pytest.raises(BadValue, match=problem) as caught:
        Config.from_text(f"redis-url {url}")
    assert "allowed are URLs redis://[[user]:password@]host[:port][/db]" in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "requirepass my-secret phrase",
        f"requirepass {'my-secret' * 100}",
        f"RequirePass {'my-secret' * 100}",
        f"cluster-secret {'my-secret' * 100}",
        'cluster-secret "my-secret',
        "redis-url redis://my-secret@h",
        "redis-url rediss://:my-secret@h",
    ],
)
def test_no_error_shows_a_secret(line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_text(line)
    assert str(caught.value)
    assert "my-secret" not in f"{caught.value} {caught.value.value} {caught.value.args}"


@pytest.mark.parametrize("prefix", ["", "a b", "{a}", "a\\n", "x" * 129])
def test_a_prefix_of_keys_that_would_be_no_name_is_refused(prefix: str) -> None:
    with pytest.raises(BadValue, match="allowed are texts of 1 to 128 bytes without blanks, braces"):
        Config.from_text(f'redis-prefix "{prefix}"')


# --- Files and folders -----------------------------------------------------------------------------------------------


def test_a_relative_dir_and_a_relative_config_path_survive_a_change_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    written(tmp_path, "dir data\nlogfile d.log\npidfile /run/d.pid\n")
    monkeypatch.chdir(tmp_path)
    config = Config.from_file("disqued.conf")
    monkeypatch.chdir("/")
    assert config.dir == tmp_path / "data"
    assert config.matching("dir") == [("dir", str(tmp_path / "data"))]
    assert config.logfile == tmp_path / "data" / "d.log"
    assert config.pidfile == Path("/run/d.pid")
    assert config.unixsocket is None
    config.set("timeout", "5")
    config.rewrite()
    assert (tmp_path / "disqued.conf").read_text().splitlines() == [
        f'dir "{tmp_path}/data"',
        "logfile d.log",
        "pidfile /run/d.pid",
        "# Generated by CONFIG REWRITE",
        "timeout 5",
    ]


def test_a_current_folder_that_was_deleted_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(BadValue, match=r"dir \.: the current folder is not known \(No such file or directory\)"):
        Config()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere.conf: cannot be read: No such file or directory$"):
        Config.from_file(tmp_path / "nowhere.conf")


def test_a_pipe_with_a_name_is_not_waited_for_and_one_of_a_shell_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pipe.conf"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match=r"pipe.conf: cannot be read: it is a pipe; a file is needed$"):
        Config.from_file(path)
    reading, writing = os.pipe()
    with open(reading, "rb"):
        with open(writing, "wb") as file:
            file.write(b"port 7799\n")
        assert Config.from_file(f"/dev/fd/{reading}").port == 7799


def test_an_included_file_is_found_beside_the_file_that_includes_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    written(tmp_path, "port 1\ninclude sub/a.conf\nmaxclients 7\n")
    written(tmp_path / "sub", "include b.conf\nport 2\nmaxclients 8\n", "a.conf")
    written(tmp_path / "sub", "timeout 9\n", "b.conf")
    config = Config.from_file(tmp_path / "disqued.conf")
    assert (config.port, config.maxclients, config.timeout) == (2, 7, 9)
    assert config.warnings == []


def test_an_error_in_an_included_file_names_that_file(tmp_path: Path) -> None:
    written(tmp_path, "include a.conf\n")
    written(tmp_path, "\nport x\n", "a.conf")
    with pytest.raises(BadValue, match=r"/a.conf, line 2: port x: allowed"):
        Config.from_file(tmp_path / "disqued.conf")


def test_a_missing_include_names_the_line_that_wants_it(tmp_path: Path) -> None:
    written(tmp_path, "\ninclude a.conf\n")
    with pytest.raises(ConfigError, match=r"disqued.conf, line 2: include .*/a.conf: cannot be read: No such file"):
        Config.from_file(tmp_path / "disqued.conf")


def test_files_that_include_each_other_are_refused(tmp_path: Path) -> None:
    written(tmp_path, "include a.conf\n")
    written(tmp_path, "include disqued.conf\n", "a.conf")
    with pytest.raises(ConfigError, match=r"a.conf, line 1: .*itself \(disqued.conf > a.conf > disqued.conf\)"):
        Config.from_file(tmp_path / "disqued.conf")


# --- The command line ------------------------------------------------------------------------------------------------


def test_the_command_line_wins_over_the_file() -> None:
    config = Config.from_text("port 1\nbind 127.0.0.1")
    config.apply_arguments([("port", "2"), ("--bind", "127.0.0.1 ::1"), ("port", "3")])
    assert (config.port, config.bind) == (3, ("127.0.0.1", "::1"))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("port", "x", "command line: --port x: allowed are whole numbers from 0 to 65535"),
        ("--prot", "1", "command line: --prot: unknown directive; did you mean port?"),
        (
            "requirepass",
            "\ud800",
            "command line: --requirepass (redacted): holds a character that UTF-8 cannot write; allowed are texts",
        ),
        ("include", "/nowhere", "/nowhere: cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_option_is_named(name: str, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config().apply_arguments([(name, text)])
    assert str(caught.value).startswith(expected)


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(BadValue, match="--appendonly no: contradicts persistence aof; keep one of the two"):
        Config().apply_arguments([("persistence", "aof"), ("appendonly", "no")])


def test_a_rename_of_the_command_line_replaces_that_of_the_file() -> None:
    config = Config.from_text("rename-command DEBUG a\nrename-command CONFIG b")
    config.apply_arguments([("rename-command", 'debug ""')])
    assert config.rename_command == (("CONFIG", "B"), ("DEBUG", ""))


def test_a_file_included_by_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "port 5\n", "extra.conf")
    config = Config.from_text("port 1")
    config.apply_arguments([("include", str(path))])
    assert config.port == 5


# --- What no single line shows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("bind 0.0.0.0", "disqued.conf, line 1: bind 0.0.0.0: beyond the loopback addresses a password is needed"),
        ("bind 127.0.0.1 ::", "beyond the loopback addresses"),
        ("port 0", "disqued.conf, line 1: port 0: without it a tls-port, a unixsocket or an endpoint"),
        (f"unixsocket /{'x' * 107}", "longer than the 107 bytes"),
        ("port 55536", "port 55536: the cluster bus has no port 10000 above it; set cluster-port"),
        ("port 7711\ncluster-port 7711", "line 2: cluster-port 7711: this is the port for clients"),
        ("port 7780", "http-port 7780: clients or the cluster bus have this port; the admin side needs its own"),
        ("http-port 17711", "line 1: http-port 17711: clients or the cluster bus have this port"),
        ("cluster-bind 0.0.0.0", "cluster-bind 0.0.0.0: beyond the loopback addresses nodes have to prove who they"),
        ("cluster-bind 127.0.0.1 192.0.2.1", "set cluster-secret or cluster-secret-file, the same on every node"),
        ("cluster-secret x\ncluster-secret-file y", "there is a cluster-secret, too; give one of the two"),
        ("tls-port 7712", "tls-port 7712: TLS needs a certificate and its key; set tls-cert-file"),
        ("tls-port 7712\ntls-cert-file c", "set tls-key-file"),
        (f"tls-port 7712\n{OWN}", "set tls-ca-cert-file, or tls-auth-clients no"),
        (f"tls-port 7711\n{OWN}\n{CA}", "tls-port 7711: this is the port for clients without TLS"),
        (f"tls-port 17711\n{OWN}\n{CA}\ncluster-port 17711", "cluster-port 17711: this is the port for clients"),
        (f"port 0\ntls-port 55536\n{OWN}\n{CA}", "tls-port 55536: the cluster bus has no port 10000 above it"),
        ("tls-cluster yes", "tls-cluster yes: TLS needs a certificate and its key"),
        (f"tls-cluster yes\n{OWN}", "tls-cluster yes: nodes are known by who has signed"),
        (f"bind 0.0.0.0\ntls-port 7712\n{OWN}\n{CA}", "line 1: bind 0.0.0.0: beyond the loopback addresses a password"),
        (f"bind ::\nport 0\ntls-port 7712\n{OWN}\n{CA}\ntls-auth-clients optional", "`tls-auth-clients yes`"),
        ("endpoint tcp:7712", "endpoint tcp:7712: it is reached from beyond this machine, as far as it says: there a"),
        (
            "endpoint tcp:7712:interface=127.0.0.1 ssl:7713:privateKey=k",
            "endpoint ssl:7713:privateKey=k: it is reached",
        ),
        (
            "endpoint foo:7712",
            "endpoint foo:7712: no endpoint for clients is of the kind 'foo'; allowed are endpoint st",
        ),
        ("endpoint foo:7712:interface=127.0.0.1\nrequirepass x", "is of the kind 'foo'"),
        ("endpoint tcp:7712 7713", "endpoint 7713: no endpoint for clients is of the kind '7713'"),
        ("endpoint ssl:7713:caCerts=ca:clientAuth=optional", "is reached from beyond this machine"),
        ("endpoint systemd:domain=INET:index=0", "is reached from beyond this machine"),
        ("endpoint ${CREDENTIALS_DIRECTORY}/x", "there is no CREDENTIALS_DIRECTORY in the environment"),
    ],
)
def test_settings_that_do_not_go_together_are_refused_by_the_check(text: str, problem: str) -> None:
    config = Config.from_text(text)
    with pytest.raises(BadValue) as caught:
        config.check()
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "bind 0.0.0.0\nrequirepass x",
        "bind 0.0.0.0\naclfile users.acl",
        "bind 127.0.0.2 ::1",
        "port 7780\nhttp-port 0",
        "port 7780\nbind 127.0.0.2",
        "http-port 7712",
        "port 0\nunixsocket /tmp/x",
        "port 0\nunixsocket x\nbind ::",
        "port 55536\ncluster-port 55537",
        "cluster-bind 0.0.0.0\ncluster-secret x",
        "cluster-bind ::\ncluster-secret-file x",
        "cluster-bind ::1",
        'cluster-bind ""',
        "",
        f"tls-port 7712\n{OWN}\n{CA}",
        f"tls-port 7712\n{OWN}\ntls-auth-clients no",
        f"port 0\nbind 0.0.0.0\ntls-port 7712\n{OWN}\n{CA}",
        f"bind 0.0.0.0\nrequirepass x\ntls-port 7712\n{OWN}\ntls-auth-clients no",
        f"cluster-bind 0.0.0.0\ntls-cluster yes\n{OWN}\n{CA}",
        "port 0\nendpoint unix:/tmp/x",
        "endpoint tcp:7712:interface=127.0.0.1 tcp6:7712:interface=\\:\\:1 ssl:7713:interface=127.0.0.1",
        "endpoint ssl:7713:caCerts=ca ssl:7714:caCerts=ca:clientAuth=yes",
        "endpoint tcp:7712\nrequirepass x",
    ],
)
def test_settings_that_go_together_pass_the_check(text: str) -> None:
    Config.from_text(text).check()


@pytest.mark.parametrize(
    ("text", "addresses", "port"),
    [
        ("", ("127.0.0.1",), 17711),
        ("port 7800\nbind 127.0.0.1 ::1", ("127.0.0.1", "::1"), 17800),
        ("bind 127.0.0.1 192.0.2.1\nrequirepass x", ("127.0.0.1",), 17711),
        ("bind 127.0.0.1 192.0.2.1\nrequirepass x\ncluster-secret y", ("127.0.0.1", "192.0.2.1"), 17711),
        ("bind 0.0.0.0\nrequirepass x\ncluster-secret-file y", ("0.0.0.0",), 17711),
        ("bind 0.0.0.0\nrequirepass x", (), 17711),
        ("cluster-bind ::1\ncluster-port 4000", ("::1",), 4000),
        ("port 0\nunixsocket x", (), 0),
        (f"port 0\ntls-port 7712\n{OWN}\n{CA}", ("127.0.0.1",), 17712),
        (f"port 0\nbind 0.0.0.0\ntls-port 7712\n{OWN}\n{CA}", (), 17712),
        (f"port 0\nbind 0.0.0.0\ntls-port 7712\ntls-cluster yes\n{OWN}\n{CA}", ("0.0.0.0",), 17712),
        ("port 0\nunixsocket x\ncluster-port 4000", ("127.0.0.1",), 4000),
    ],
)
def test_other_nodes_are_let_in_where_that_is_safe(text: str, addresses: tuple[str, ...], port: int) -> None:
    config = Config.from_text(text)
    config.check()
    assert (config.bus_addresses, config.bus_port) == (addresses, port)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("tls-protocols tlsv1.3", ("TLSv1.3",)),
        ("tls-protocols TLSv1.3 tlsv1.2", ("TLSv1.2", "TLSv1.3")),
        ("endpoint tcp:1 unix:a", ("tcp:1", "unix:a")),
        ('endpoint "unix:with blank"', ("unix:with blank",)),
        ('endpoint ""', ()),
    ],
)
def test_settings_of_several_words_are_read(text: str, read: tuple[str, ...]) -> None:
    assert Config.from_text(text)[text.split(maxsplit=1)[0]] == read


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tls-protocols TLSv1.1", "allowed are one or more of TLSv1.2, TLSv1.3"),
        ("tls-protocols", "allowed are one or more of TLSv1.2, TLSv1.3"),
        ("endpoint tcp:1 tcp:1", "an endpoint is given twice; allowed are up to 16 endpoint strings"),
        ("endpoint " + " ".join(f"tcp:{number}" for number in range(17)), "allowed are up to 16 endpoint strings"),
    ],
)
def test_wrong_words_among_several_are_refused(text: str, problem: str) -> None:
    with pytest.raises(BadValue, match=problem):
        Config.from_text(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("example.org", "example.org is not an address"),
        ("fe80::1%eth0", "can name no interface of this one"),
        ("0.0.0.0", "stands for all interfaces"),
    ],
)
def test_the_address_that_others_are_told_is_one_address(text: str, problem: str) -> None:
    with pytest.raises(BadValue, match=f"cluster-announce-ip {text}: .*{problem}.*; allowed are IPv4 and IPv6"):
        Config.from_text(f"cluster-announce-ip {text}")


def test_the_address_that_others_are_told_may_be_left_out() -> None:
    assert Config.from_text('cluster-announce-ip ""').cluster_announce_ip == ""
    assert Config.from_text("cluster-announce-ip 2001:DB8::7").cluster_announce_ip == "2001:db8::7"


def test_the_password_that_guards_an_open_address_cannot_be_cleared() -> None:
    config = Config.from_text("bind 0.0.0.0\nrequirepass x")
    with pytest.raises(BadValue, match=r'requirepass "": .*beyond the loopback'):
        config.set("requirepass", "")
    assert config.requirepass == "x"
    config.set("requirepass", "y")
    assert config.requirepass == "y"


# --- CONFIG GET and SET ----------------------------------------------------------------------------------------------


def test_config_get_answers_every_name_that_disque_answers() -> None:
    assert set(NAMES_OF_DISQUE) <= {name for name, _ in Config().matching(b"*")}


def test_config_get_takes_a_pattern_in_any_case() -> None:
    assert Config().matching(b"MAXMEMORY") == [("maxmemory", "1073741824")]
    assert Config().matching("maxmemory-[ps]*") == [("maxmemory-policy", "acks"), ("maxmemory-samples", "5")]
    assert Config().matching(b"nothing\xff*") == []
    assert Config().matching("client-output*") == [("client-output-buffer-limit", "normal 1073741824 268435456 60")]


def test_config_get_keeps_renamed_commands_secret() -> None:
    assert Config.from_text("rename-command CONFIG hidden").matching(b"*rename*") == []


@pytest.mark.parametrize(
    ("pattern", "text", "covered"),
    [
        (b"", b"", True),
        (b"", b"a", False),
        (b"*", b"", True),
        (b"a*", b"abc", True),
        (b"*c", b"abc", True),
        (b"a*b*c", b"axxbxxc", True),
        (b"a*b*c", b"axxbxx", False),
        (b"?", b"", False),
        (b"a?c", b"abc", True),
        (b"[a-c]", b"b", True),
        (b"[c-a]", b"b", True),
        (b"[^a-c]", b"b", False),
        (b"[^a-c]", b"d", True),
        (b"[ab", b"b", True),
        (b"[\\]]", b"]", True),
        (b"\\*", b"*", True),
        (b"\\*", b"a", False),
        (b"a\\", b"a\\", True),
        (b"[]", b"a", False),
        (b"A", b"a", False),
        (b"a**c", b"abc", True),
        (b"*b?d*", b"abbcdd", True),
        (b"*[ab]c*d", b"ccbcad", True),
        (b"*[ab]c*d", b"ccbca", False),
        (b"ab*b", b"ab", False),
        (b"a*[^x]c", b"axcbc", True),
        (b"*[" + bytes(range(1, 90)) + b"]", b"\xff", False),
    ],
)
def test_globs_follow_the_rules_of_redis(pattern: bytes, text: bytes, covered: bool) -> None:
    assert glob.matches(pattern, text) is covered


class Counted(bytes):
    """A text that counts how often one of its bytes is looked at."""

    looks = 0

    def __getitem__(self, key: Any) -> Any:
        Counted.looks += 1
        return super().__getitem__(key)


@pytest.mark.parametrize(
    "pattern", [b"*a" * 200 + b"b", b"*" + b"?" * 200 + b"b*", b"*[ab]" * 80 + b"b*", b"*" + b"a" * 200 + b"b*"]
)
def test_a_glob_looks_at_each_byte_of_a_text_once(pattern: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "looks", 0)
    text = Counted(b"a" * glob.TEXT_MAX)
    assert not glob.matches(pattern, text)
    assert Counted.looks <= len(text)
    assert glob.cost(pattern, text) <= 1 + len(pattern) + len(text)


def test_a_text_that_would_take_long_is_covered_by_plain_patterns_alone() -> None:
    text = b"a" * (glob.TEXT_MAX + 1)
    assert glob.matches(b"a*a", text)
    assert not glob.matches(b"a*?", text)
    assert glob.matches(b"a*?", text[1:])


def test_config_set_changes_the_value_and_tells_who_subscribed() -> None:
    config = Config()
    told: list[int] = []
    config.subscribe("maxmemory", told.append)
    config.set("MaxMemory", "2mb")
    assert (config.maxmemory, told) == (2 * 2**20, [2 * 2**20])


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("nope", "1", UnknownDirective),
        ("port", "1", NotMutable),
        ("dir", "/", NotMutable),
        ("rename-command", "a b", NotMutable),
        ("maxmemory", "x", BadValue),
        ("maxmemory", "0", BadValue),
        ("maxclients", "0", BadValue),
        ("hz", "-1", BadValue),
        ("requirepass", "x" * 513, BadValue),
        ("requirepass", "\ud800", BadValue),
    ],
)
def test_config_set_refuses_and_changes_nothing(name: str, text: str, error: type[ConfigError]) -> None:
    config = Config()
    before = everything(config)
    with pytest.raises(error) as caught:
        config.set(name, text)
    assert caught.value.directive == name
    assert everything(config) == before


def test_config_set_of_a_name_without_effect_is_stored_with_a_warning() -> None:
    config = Config()
    config.set("hz", "50")
    config.set("hz", "60")
    assert config.matching("hz") == [("hz", "60")]
    assert config.warnings == [SETTINGS["hz"].warning]


def test_a_subscriber_that_refuses_takes_the_change_back_for_all() -> None:
    config = Config()
    told: list[int] = []

    def refuse(value: int) -> None:
        raise BadValue("maxclients", str(value), allowed="numbers below the limit of open files")

    config.subscribe("maxclients", told.append)
    config.subscribe("maxclients", refuse)
    with pytest.raises(BadValue, match="maxclients 20000: allowed are numbers below the limit of open files"):
        config.set("maxclients", "20000")
    assert (config.maxclients, told) == (10000, [20000, 10000])


@pytest.mark.parametrize(
    ("before", "name", "text", "stores"),
    [
        ("none", "persistence", "sqlite", ["sqlite"]),
        ("none", "appendonly", "yes", ["aof"]),
        ("aof", "appendonly", "no", ["none"]),
        ("sqlite", "appendonly", "yes", ["aof"]),
        ("sqlite", "appendonly", "no", []),
    ],
)
def test_who_follows_persistence_is_told_by_whichever_name_it_is_set(
    before: str, name: str, text: str, stores: list[str]
) -> None:
    config = Config.from_text(f"persistence {before}")
    told: list[str] = []
    config.subscribe("persistence", told.append)
    config.set(name, text)
    assert told == stores
    assert config.persistence == (stores or [before])[-1]
    assert config.appendonly is (config.persistence == "aof")


@pytest.mark.parametrize(("name", "text", "told"), [("persistence", "aof", []), ("appendonly", "yes", [True, False])])
def test_a_switch_of_stores_that_is_refused_leaves_both_names_as_they_were(
    name: str, text: str, told: list[bool]
) -> None:
    config = Config()
    switches: list[bool] = []

    def refuse(store: str) -> None:
        raise ConfigError("persistence", store, problem="the disk is full")

    config.subscribe("appendonly", switches.append)
    config.subscribe("persistence", refuse)
    with pytest.raises(ConfigError, match="persistence aof: the disk is full"):
        config.set(name, text)
    assert (config.persistence, config.appendonly) == ("none", False)
    assert switches == told


def test_subscribing_to_what_does_not_exist_is_an_error() -> None:
    with pytest.raises(UnknownDirective):
        Config().subscribe("nope", print)


# --- CONFIG REWRITE --------------------------------------------------------------------------------------------------


def test_rewrite_without_a_file_is_refused() -> None:
    with pytest.raises(NoConfigFile, match="running without a config file"):
        Config.from_text("port 1").rewrite()


def test_rewrite_keeps_comments_order_and_lines_that_say_the_same(tmp_path: Path) -> None:
    text = "# mine\nmaxmemory   1024mb\n\n\n\ntimeout 5\n# end\n"
    assert rewritten(tmp_path, text, ("timeout", "7")) == (
        "# mine\nmaxmemory   1024mb\n\ntimeout 7\n# end\n# Generated by CONFIG REWRITE\n"
    )


def test_rewrite_keeps_lines_that_it_does_not_know(tmp_path: Path) -> None:
    path = written(tmp_path, "timeout 5\n")
    config = Config.from_file(path)
    path.write_text('timeout 5\nnext-version yes\nodd "quote\n')
    config.set("timeout", "6")
    config.rewrite()
    assert path.read_text().startswith('timeout 6\nnext-version yes\nodd "quote\n')


def test_rewrite_changes_the_first_line_and_drops_the_others(tmp_path: Path) -> None:
    text = "timeout 1\nport 5\nTIMEOUT 2\n"
    assert rewritten(tmp_path, text).splitlines()[:2] == ["timeout 2", "port 5"]
    assert "TIMEOUT" not in (tmp_path / "disqued.conf").read_text()


def test_rewrite_adds_what_is_not_at_its_default_below_the_mark_and_only_once(tmp_path: Path) -> None:
    first = rewritten(tmp_path, "port 5", ("maxmemory", "3gb"), ("requirepass", 'a "b"'))
    assert first == 'port 5\n# Generated by CONFIG REWRITE\nrequirepass "a \\"b\\""\nmaxmemory 3gb\n'
    second = rewritten(tmp_path, first, ("timeout", "4"))
    assert second == first + "timeout 4\n"


def test_rewrite_writes_a_default_where_the_file_said_otherwise(tmp_path: Path) -> None:
    assert rewritten(tmp_path, "timeout 9\n", ("timeout", "0")).startswith("timeout 0\n")


def test_rewrite_writes_options_of_the_command_line(tmp_path: Path) -> None:
    arguments = (("port", "8"), ("persistence", "aof"))
    assert "persistence aof\n" in rewritten(tmp_path, "port 5\n", arguments=arguments)
    assert rewritten(tmp_path, "appendonly no\n", arguments=(("persistence", "aof"),)).startswith("appendonly yes\n")


@pytest.mark.parametrize(
    ("store", "expected"),
    [("sqlite", "persistence sqlite\n"), ("none", "persistence none\n"), ("aof", "appendonly yes\n")],
)
def test_rewrite_of_a_store_goes_well_with_an_old_line_of_appendonly(tmp_path: Path, store: str, expected: str) -> None:
    written(tmp_path, "persistence redis\n", "a.conf")
    text = rewritten(tmp_path, "include a.conf\nappendonly no\n", ("persistence", store))
    assert expected in text
    assert Config.from_file(tmp_path / "disqued.conf").persistence == store


def test_rewrite_leaves_renames_and_includes_alone(tmp_path: Path) -> None:
    written(tmp_path, "maxclients 5\n", "a.conf")
    written(tmp_path, "maxclients 6\n", "b.conf")
    text = 'rename-command A b\nrename-command C ""\ninclude a.conf\ninclude b.conf\ndatabases 3\n'
    assert rewritten(tmp_path, text) == text + "# Generated by CONFIG REWRITE\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("include a.conf\n", ["include a.conf", "# Generated by CONFIG REWRITE", "maxclients 9"]),
        ("maxclients 3\ninclude a.conf\n", ["include a.conf", "# Generated by CONFIG REWRITE", "maxclients 9"]),
        ("maxclients 3\ninclude a.conf\nmaxclients 4\n", ["include a.conf", "maxclients 9"]),
    ],
)
def test_rewrite_puts_a_value_behind_the_include_that_would_hide_it(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    written(tmp_path, "maxclients 5\n", "a.conf")
    result = rewritten(tmp_path, text, ("maxclients", "9")).splitlines()
    assert [line for line in result if line in expected] == expected
    assert "maxclients 3" not in result


def test_rewrite_keeps_the_line_ends_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "\ufeff# a\r\ntimeout 1\r\n")
    config = Config.from_file(path)
    config.set("timeout", "2")
    config.rewrite()
    lines = path.read_bytes().split(b"\r\n")
    assert lines[:2] == [b"# a", b"timeout 2"]
    assert b"\n" not in b"".join(lines)


def test_rewrite_keeps_permissions_and_follows_a_link_and_leaves_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    path = written(tmp_path / "real", "timeout 1\n")
    path.chmod(0o640)
    link = tmp_path / "disqued.conf"
    link.symlink_to(path)
    config = Config.from_file(link)
    config.set("timeout", "2")
    config.rewrite()
    assert link.is_symlink()
    assert path.read_text().startswith("timeout 2\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(path.parent) == ["disqued.conf"]


@pytest.mark.parametrize(
    ("name", "value", "mode"),
    [("requirepass", "sesame", 0o640), ("requirepass", "", 0o644), ("maxmemory", "1gb", 0o644)],
)
def test_a_rewrite_that_writes_a_secret_takes_the_file_from_other_users(
    tmp_path: Path, name: str, value: str, mode: int
) -> None:
    file = tmp_path / "disqued.conf"
    file.write_text("port 7711\n")
    file.chmod(0o644)
    config = Config.from_file(file)
    config.set(name, value)
    config.rewrite()
    assert file.stat().st_mode & 0o777 == mode


def test_rewrite_makes_the_file_anew_when_it_was_deleted(tmp_path: Path) -> None:
    path = written(tmp_path, "timeout 1\n")
    config = Config.from_file(path)
    path.unlink()
    config.rewrite()
    assert everything(Config.from_file(path)) == everything(config)


def test_a_rewrite_that_fails_leaves_the_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "timeout 1\n")
    config = Config.from_file(path)
    config.set("timeout", "2")

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left on device"):
        config.rewrite()
    assert path.read_text() == "timeout 1\n"
    assert os.listdir(tmp_path) == ["disqued.conf"]


def test_a_choice_of_one_word_is_described_by_that_word() -> None:
    assert Choice(("only",)).describe() == "only"


def test_the_folder_of_the_event_log_has_a_name() -> None:
    for text in ('""', '"a\\x00b"'):
        with pytest.raises(BadValue, match=r"events-dir .*: allowed are paths without NUL bytes"):
            Config.from_text(f"events-dir {text}")
    assert Config.from_text("events-dir logs").events_dir == Path.cwd() / "logs"
