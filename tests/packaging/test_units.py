"""The units for systemd: sound, isolated, put in place, and such that a daemon runs under what they forbid."""

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from disqued.tools import install_units
from disqued.tools.program import run as run_verb
from disqued.tools.verbs import VERBS
from tests.certificates import make_certificate
from tests.integration.daemon import DAEMON, HOST, LIMIT, ROOT, environment, free_port, launch
from tests.integration.manager import managing

UNITS = ("disqued.service", "disqued@.service", "disqued.socket")
SERVICES = ("disqued.service", "disqued@.service")
MOST_EXPOSURE = 12  #: tenths
PROGRAM = "/bin/true"

Install = Callable[..., int]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Run the tool; everything goes below the folder of the test, and it is not this user's home that counts."""
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)

    def run(*words: str, program: str = PROGRAM) -> int:
        return run_verb(["install-units", "--root", str(tmp_path), "--program", program, *words])

    return run


def analyze(*words: object) -> str:
    """Run systemd-analyze, which has to be content."""
    done = subprocess.run(
        ["systemd-analyze", *map(str, words)], capture_output=True, text=True, check=False, timeout=LIMIT,
        env={**os.environ, "XDG_RUNTIME_DIR": "/tmp", "SYSTEMD_PAGER": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def sections(unit: Path | str) -> Iterator[tuple[str, str]]:
    """The directives of a unit."""
    text = unit if isinstance(unit, str) else unit.read_text()
    for line in text.splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            yield name, value


# What they say.


@pytest.mark.parametrize("flags", [(), ("--user",)])
def test_systemd_finds_no_fault_with_the_units_that_are_put_in_place(
    install: Install, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    assert install(*flags) == 0
    folder = tmp_path / ("home/ann/.config/systemd/user" if flags else "etc/systemd/system")
    (folder / "disqued@blue.service").symlink_to("disqued@.service")
    names = ("disqued.service", "disqued@blue.service", "disqued.socket")
    assert analyze(*flags, "verify", *(folder / name for name in names)) == ""


@pytest.mark.parametrize("name", SERVICES)
def test_the_exposure_of_a_node_is_small(name: str) -> None:
    said = analyze("security", "--offline=yes", f"--threshold={MOST_EXPOSURE}", ROOT / "systemd" / name)
    exposure = re.search(r"Overall exposure level for \S+: (\d+)[.](\d)", said)
    assert exposure is not None
    assert int(exposure[1] + exposure[2]) <= MOST_EXPOSURE


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_supervised_and_keeps_what_breaks_it_away(name: str) -> None:
    said = dict(sections(ROOT / "systemd" / name))
    assert (said["Type"], said["Restart"], said["KillMode"]) == ("notify", "on-failure", "mixed")
    assert said["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert {"WatchdogSec", "TimeoutStartSec", "TimeoutStopSec", "LimitNOFILE", "OOMScoreAdjust", "Slice"} <= said.keys()
    assert "MemoryDenyWriteExecute" not in said  # TLS would not work
    assert "PrivateNetwork" not in said
    assert said["SystemCallErrorNumber"] == "EPERM"


def test_the_two_services_differ_in_their_names_alone() -> None:
    one, many = (dict(sections(ROOT / "systemd" / name)) for name in SERVICES)
    assert {name for name in one | many if one.get(name) != many.get(name)} == {
        "Description", "ExecStart", "StateDirectory", "RuntimeDirectory",
    }  # fmt: skip
    assert all("%i" in many[name] for name in ("ExecStart", "StateDirectory", "RuntimeDirectory"))


def test_the_socket_is_where_a_node_listens_by_default() -> None:
    said = dict(sections(ROOT / "systemd/disqued.socket"))
    assert (said["ListenStream"], said["Backlog"]) == ("127.0.0.1:7711", "511")


def test_the_user_and_the_folder_are_those_of_the_service() -> None:
    said = dict(sections(ROOT / "systemd/disqued.service"))
    [user] = [line.split() for line in (ROOT / "systemd/disqued.sysusers").read_text().splitlines() if line[0] != "#"]
    assert user[:2] == ["u", said["User"]]
    assert f"0750 root {said['Group']}" in (ROOT / "systemd/disqued.tmpfiles").read_text()
    checked = subprocess.run(
        ["systemd-sysusers", "--dry-run", "--replace=/usr/lib/sysusers.d/disqued.conf", "-"],
        input=(ROOT / "systemd/disqued.sysusers").read_text(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to a group")
def test_the_user_is_made_and_the_folder_is_its_group_s(install: Install, tmp_path: Path) -> None:
    assert install() == 0
    for tool in (("systemd-sysusers",), ("systemd-tmpfiles", "--create", "--prefix=/etc/disqued")):
        made = subprocess.run([*tool, f"--root={tmp_path}"], capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
    [line] = [line for line in (tmp_path / "etc/group").read_text().splitlines() if line.startswith("disqued:")]
    [user] = [line for line in (tmp_path / "etc/passwd").read_text().splitlines() if line.startswith("disqued:")]
    assert user.split(":")[5:] == ["/var/lib/disqued", "/usr/sbin/nologin"]
    for name, mode in (("etc/disqued", 0o750), ("etc/disqued/disqued.conf", 0o640)):
        found = (tmp_path / name).stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (0, int(line.split(":")[2]), mode)


# What runs under them.

#: Lets a process do what a unit allows, all else is answered EPERM as the unit wants it; then it becomes the program.
#: The words: the system calls; the address families; the program.
JAIL = """
import ctypes, os, socket, sys
REFUSE, ALLOW, EQUAL = 0x00050001, 0x7FFF0000, 4
class Compare(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]
library = ctypes.CDLL("libseccomp.so.2")
library.seccomp_init.restype = ctypes.c_void_p
filters = ctypes.c_void_p(library.seccomp_init(REFUSE))
for name in sys.argv[1].split():
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number >= 0 and name != "socket":
        assert library.seccomp_rule_add_array(filters, ALLOW, number, 0, None) == 0, name
number = library.seccomp_syscall_resolve_name(b"socket")
for family in sys.argv[2].split():
    compare = Compare(0, EQUAL, getattr(socket, family), 0)
    assert library.seccomp_rule_add_array(filters, ALLOW, number, 1, ctypes.byref(compare)) == 0
assert library.seccomp_load(filters) == 0
os.execv(sys.argv[3], sys.argv[3:])
"""


def system_calls(words: str) -> set[str]:
    """The system calls of groups such as @system-service, those of the groups inside them included."""
    calls: set[str] = set()
    for word in words.split():
        if not word.startswith("@"):
            calls.add(word)
            continue
        listed = [line.strip() for line in analyze("syscall-filter", word).splitlines()[1:]]
        calls |= system_calls(" ".join(line for line in listed if line and not line.startswith("#")))
    return calls


def allowed_by(unit: Path) -> tuple[str, str]:
    """What the filter of a unit lets through, and the address families."""
    calls = system_calls("@default")
    for name, value in sections(unit):
        if name == "SystemCallFilter":
            calls = calls - system_calls(value[1:]) if value.startswith("~") else calls | system_calls(value)
    return " ".join(sorted(calls)), dict(sections(unit))["RestrictAddressFamilies"]


@pytest.mark.parametrize("store", ["aof", "sqlite"])
def test_a_node_with_tls_lives_on_the_system_calls_that_its_unit_allows(tmp_path: Path, store: str) -> None:
    make_certificate(tmp_path / "key", tmp_path / "certificate")
    (tmp_path / "tokens").write_text("ann admin a-token-of-an-admin-0123\n")
    (tmp_path / "tokens").chmod(0o600)
    port = free_port()
    endpoint = f"ssl:{port}:interface={HOST}:privateKey={tmp_path}/key:certKey={tmp_path}/certificate"
    calls, families = allowed_by(ROOT / "systemd/disqued.service")
    with managing(tmp_path) as manager:
        daemon = manager.start(
            "--persistence", store, "--appendfsync", "always", "--http-endpoint", endpoint,
            "--http-token-file", str(tmp_path / "tokens"), "--unixsocket", str(tmp_path / "socket"),
            port=free_port(), program=(sys.executable, "-c", JAIL, calls, families, *DAEMON), WATCHDOG_USEC="100000",
        )  # fmt: skip
        manager.hear_until("READY")
        manager.hear_until("WATCHDOG")
        job = daemon.call("ADDJOB", "q", "body", 0)
        assert daemon.call("GETJOB", "FROM", "q") == [["q", job, "body"]]
        daemon.call("CONFIG", "SET", "events", "all")
        daemon.call("CLUSTER", "MEET", HOST, free_port())
        assert daemon.call("BGREWRITEAOF")
        trusting = ssl.create_default_context(cafile=tmp_path / "certificate")
        with (
            socket.create_connection((HOST, port), timeout=LIMIT) as plain,
            trusting.wrap_socket(plain, server_hostname=HOST) as browser,
        ):
            browser.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert browser.recv(64).startswith(b"HTTP/1.1 200 ")
        daemon.process.send_signal(signal.SIGHUP)
        manager.hear_until("RELOADING")
        daemon.stop()


def test_the_jail_of_these_tests_holds() -> None:
    calls, families = allowed_by(ROOT / "systemd/disqued.service")
    for forbidden in ("os.nice(1)", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)"):
        argv = [sys.executable, "-c", JAIL, calls, families, sys.executable, "-c", f"import os, socket; {forbidden}"]
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        assert "PermissionError" in done.stderr


def test_what_a_unit_starts_is_a_node(tmp_path: Path) -> None:
    """Its command line, as the system's manager and that of a user read it."""
    (tmp_path / "disqued.conf").write_text(install_units.CONFIG)
    command = dict(sections(ROOT / "systemd/disqued.service"))["ExecStart"].split()
    assert command == [
        "/usr/bin/disqued", "--config", "%E/disqued/disqued.conf", "--dir", "%S/disqued",
    ]  # fmt: skip
    daemon = launch(tmp_path / "data", ["--config", str(tmp_path / "disqued.conf")])
    try:
        assert daemon.call("CONFIG", "GET", "persistence") == ["persistence", "aof"]
    finally:
        daemon.stop()


# How they get there.


def test_everything_is_put_where_it_belongs_and_the_next_steps_are_told(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert install() == 0
    names = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert names == {
        *(f"etc/systemd/system/{name}" for name in UNITS),
        "etc/sysusers.d/disqued.conf", "etc/tmpfiles.d/disqued.conf", "etc/disqued/disqued.conf",
    }  # fmt: skip
    unit = tmp_path / "etc/systemd/system/disqued.service"
    assert f"ExecStart={PROGRAM} --config" in unit.read_text()
    assert unit.stat().st_mode & 0o777 == 0o644
    said = capsys.readouterr().out
    assert f"{unit}: written" in said
    assert said.index("systemd-sysusers") < said.index("systemctl daemon-reload") < said.index("systemctl enable --now")


def test_a_package_has_them_below_its_prefix(install: Install, tmp_path: Path) -> None:
    assert install("--prefix", "/usr") == 0
    for name in ("systemd/system/disqued@.service", "sysusers.d/disqued.conf", "tmpfiles.d/disqued.conf"):
        assert (tmp_path / "usr/lib" / name).is_file()
    assert not (tmp_path / "etc/systemd").exists()


def test_the_second_time_changes_nothing(install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert install() == 0
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file()}
    capsys.readouterr()
    assert install() == 0
    assert capsys.readouterr().out.count("is there already") == len(before) == 6
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file()} == before


def test_a_later_version_takes_the_place_of_an_earlier_one(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert install() == 0
    assert install(program="/bin/false") == 0
    assert "ExecStart=/bin/false " in (tmp_path / "etc/systemd/system/disqued.service").read_text()
    assert "disqued.service: replaced" in capsys.readouterr().out


def test_what_somebody_changed_is_left_alone_unless_that_is_forced(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert install() == 0
    folder = tmp_path / "etc/systemd/system"
    changed = (folder / "disqued.service").read_text().replace("WatchdogSec=60s", "WatchdogSec=5s")
    (folder / "disqued.service").write_text(changed)
    (folder / "disqued.socket").unlink()
    capsys.readouterr()
    assert install() == 1
    told = capsys.readouterr().err
    assert f"somebody has changed {folder}/disqued.service; nothing is written" in told
    assert "systemctl edit" in told
    assert "--force" in told
    assert (folder / "disqued.service").read_text() == changed
    assert not (folder / "disqued.socket").exists()
    assert install("--force") == 0
    assert "WatchdogSec=60s" in (folder / "disqued.service").read_text()


def test_a_unit_that_came_from_elsewhere_is_somebody_s(install: Install, tmp_path: Path) -> None:
    path = tmp_path / "etc/systemd/system/disqued.service"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"# caf\xe9\n[Service]\nExecStart=/opt/mine\n")
    assert install() == 1
    assert path.read_bytes() == b"# caf\xe9\n[Service]\nExecStart=/opt/mine\n"


def test_a_configuration_that_is_there_is_kept_by_all_means(install: Install, tmp_path: Path) -> None:
    path = tmp_path / "etc/disqued/disqued.conf"
    path.parent.mkdir(parents=True)
    path.write_text("port 7712\n")
    assert install("--force") == 0
    assert path.read_text() == "port 7712\n"


def test_the_units_of_a_user_ask_for_nothing_that_only_root_can_give(install: Install, tmp_path: Path) -> None:
    assert install("--user") == 0
    unit = tmp_path / "home/ann/.config/systemd/user/disqued.service"
    said = dict(sections(unit))
    privileged = {"User", "Slice", "CapabilityBoundingSet", "ProtectSystem", "PrivateDevices", "OOMScoreAdjust"}
    assert not privileged & said.keys()
    assert (said["Type"], said["WantedBy"], said["NoNewPrivileges"]) == ("notify", "default.target", "yes")
    assert "system-disqued.slice" not in unit.read_text()
    assert (tmp_path / "home/ann/.config/disqued/disqued.conf").is_file()
    assert not (tmp_path / "etc").exists()


@pytest.mark.parametrize(
    ("words", "program", "said"),
    [
        ((), "/bin/no-such", "/bin/no-such is no program that can be run"),
        ((), "/bin/tr ue", "allowed are absolute paths of letters, digits"),
        ((), "bin/true", "allowed are absolute paths"),
        (("--prefix", "usr"), PROGRAM, "--prefix usr: allowed are absolute paths, such as /usr"),
        (("--prefix", "/usr", "--user"), PROGRAM, "--prefix and --user do not go together"),
    ],
)
def test_what_cannot_be_is_refused(
    install: Install,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    program: str,
    said: str,
) -> None:
    assert install(*words, program=program) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_program_is_the_one_that_was_asked_or_that_lies_beside_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "bin/disqued"
    script.parent.mkdir()
    script.touch(0o755)
    monkeypatch.setattr(install_units, "HIDDEN", ())
    for number, (asked, interpreter) in enumerate(((script, "/bin/python3"), ("-c", script.with_name("python3")))):
        monkeypatch.setattr(sys, "argv", [str(asked)])
        monkeypatch.setattr(sys, "executable", str(interpreter))
        assert run_verb(["install-units", "--root", str(tmp_path / f"root{number}")]) == 0
        unit = tmp_path / f"root{number}/etc/systemd/system/disqued.service"
        assert dict(sections(unit))["ExecStart"].startswith(f"{script} --config ")
    script.unlink()
    assert run_verb(["install-units", "--root", str(tmp_path)]) == 2
    assert "the path of the program is not known; name it with --program" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["by its first line", "beside it", "by a link to it"])
def test_a_program_whose_python_the_units_would_hide_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    """A virtual environment in /opt may be one of a Python in /root."""
    script, hidden = tmp_path / "opt/bin/disqued", tmp_path / "root/python3"
    for file in (script, hidden):
        file.parent.mkdir(parents=True)
        file.touch(0o755)
    python = script.with_name("python3")
    python.symlink_to(hidden)
    monkeypatch.setattr(install_units, "HIDDEN", (str(hidden.parent),))
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setattr(sys, "executable", str(python) if how == "beside it" else "/bin/python3")
    if how == "by its first line":
        script.write_text(f"#!{python}\nimport disqued.cli\n")
    elif how == "by a link to it":
        script.unlink()
        script.symlink_to(hidden)
    assert run_verb(["install-units", "--root", str(tmp_path / "target")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert f"lies in {hidden.parent}, " in said.err
    assert "or use --user" in said.err
    assert not (tmp_path / "target").exists()
    assert run_verb(["install-units", "--user", "--root", str(tmp_path / "target")]) == 0


def test_a_program_that_the_units_would_hide_is_refused(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "home/ann/disqued"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    assert install(program="/home/ann/disqued") == 2
    assert "/home/ann/disqued lies in /home, which the units hide from the node" in capsys.readouterr().err
    assert install("--user", program="/home/ann/disqued") == 0


def test_a_folder_that_cannot_be_written_is_named(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "etc").write_text("not a folder")
    assert install() == 1
    assert f"disqued install-units: {tmp_path}/etc" in capsys.readouterr().err


def test_the_console_script_knows_the_tool() -> None:
    assert VERBS["install-units"][1] == "disqued.tools.install_units"
    done = subprocess.run(
        [sys.executable, "-m", "disqued.cli", "install-units", "--prfix", "/usr"],
        capture_output=True, text=True, check=False, env=environment(), cwd="/",
    )  # fmt: skip
    assert done.returncode == 2
    assert "options are --force, --help, --prefix, --program, --root, --user" in done.stderr
