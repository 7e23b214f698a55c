"""The page about systemd goes as it is written, as far as that can be where systemd is not process 1."""

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.task import Clock

from disqued.config import Config
from disqued.net.process.loading import Loader
from disqued.tools import install_units
from disqued.tools.program import run as run_verb
from tests.certificates import make_certificate
from tests.integration.cluster import cluster_info
from tests.integration.daemon import HOST, LIMIT, ROOT, free_port, wait_until
from tests.integration.manager import listening, managing
from tests.pages import following

NAME = "docs/how-to/systemd.md"
PAGE = (ROOT / NAME).read_text()
EDITED = re.compile(r"^    \$ systemctl edit(?: --full --force)? (\S+)\n\n```ini\n(.*?)^```", re.MULTILINE | re.DOTALL)


def lines_below(command: str) -> list[str]:
    """What the page shows that a command prints."""
    block = PAGE.split(f"    $ {command}\n", 1)[1]
    shown = []
    for line in block.splitlines():
        if not line.startswith("    ") or line.startswith("    $"):
            break
        shown.append(line.removeprefix("    "))
    return shown


def settings_with(word: str) -> str:
    """The block of settings that holds a word."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```\n", PAGE, re.MULTILINE | re.DOTALL)
    [found] = [text for language, text in blocks if not language and word in text]
    return str(found)


def test_install_units_prints_what_the_page_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_verb(["install-units", "--root", str(tmp_path), "--program", "/bin/true"]) == 0
    said = capsys.readouterr().out.replace(str(tmp_path), "")
    assert said.splitlines() == lines_below("/opt/disqued/bin/disqued install-units")
    with following(NAME) as lines:
        lines.ran("/opt/disqued/bin/disqued install-units")


def test_systemd_finds_no_fault_with_the_drop_ins(tmp_path: Path) -> None:
    assert run_verb(["install-units", "--root", str(tmp_path), "--program", "/bin/true"]) == 0
    folder = tmp_path / "etc/systemd/system"
    (folder / "disqued@blue.service").symlink_to("disqued@.service")
    edited = EDITED.findall(PAGE)
    assert [name for name, _ in edited] == [
        "disqued.service", "disqued.socket", "disqued.service", "disqued@blue.socket"
    ]  # fmt: skip
    for number, (name, text) in enumerate(edited):
        path = folder / name if "@" in name else folder / f"{name}.d" / f"{number}.conf"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("/opt/disqued/bin/disqued", "/bin/true"))
    units = [str(folder / name) for name in ("disqued.service", "disqued.socket", "disqued@blue.socket")]

    def verify() -> str:
        done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    assert verify() == ""
    # It does look at them.
    path.write_text("[Socket]\nListenStream=127.0.0.1:7712\nBacklog=many\n")
    assert "many" in verify()


def test_the_configuration_of_the_page_lies_where_the_unit_lets_the_node_write(tmp_path: Path) -> None:
    unit = install_units.shipped("disqued.service")
    [shipped] = re.findall(r"^ExecStart=\S+ (.+)$", unit, re.MULTILINE)
    [text] = [text for name, text in EDITED.findall(PAGE) if name == "disqued.service" and "ExecStart" in text]
    [shown] = re.findall(r"^ExecStart=\S+ (.+)$", text, re.MULTILINE)
    assert shown == shipped.replace("%E/", "%S/") != shipped
    [folder] = re.findall(r"^StateDirectory=(.+)$", unit, re.MULTILINE)
    [command] = re.findall(r"^    \$ (install -o .*)$", PAGE, re.MULTILINE)
    assert command.endswith(f" /var/lib/{folder}/disqued.conf")
    (tmp_path / "etc.conf").write_text("port 7711\n")
    # The user is made by systemd.
    typed = command.replace("-o disqued -g disqued ", "").replace("/etc/disqued/disqued", str(tmp_path / "etc"))
    typed = typed.replace(f"/var/lib/{folder}", str(tmp_path))
    subprocess.run(["bash", "-c", typed], check=True, timeout=LIMIT)
    assert (tmp_path / "disqued.conf").stat().st_mode & 0o777 == 0o600
    with following(NAME) as lines:
        lines.ran(command)
    assert f"--config %S/{folder}/disqued.conf " in shown


def test_the_help_of_a_restart_shows_what_the_unit_as_it_is_allows(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_verb(["restart", "--help"]) == 0
    examples = re.findall(r"^ +disqued restart (.*--unit .*)$", capsys.readouterr().out, re.MULTILINE)
    assert examples == ["--drain --unit disqued"]


def test_the_sockets_of_the_page_are_those_that_its_settings_ask_for(tmp_path: Path) -> None:
    """By their addresses; that a node takes such sockets, and refuses others, is shown elsewhere."""
    [text] = [text for name, text in EDITED.findall(PAGE) if name == "disqued.socket"]
    settings = Config.from_text(settings_with("cluster-bind") + "requirepass x\ncluster-secret y\n")
    settings.check()
    wanted = {f"{address}:{settings.port}" for address in settings.bind}
    wanted |= {f"{address}:{settings.bus_port}" for address in settings.bus_addresses}
    assert set(re.findall(r"^ListenStream=(.+)$", text, re.MULTILINE)) == wanted | {str(settings.unixsocket)}


def test_a_node_starts_with_the_secrets_of_the_page(tmp_path: Path) -> None:
    store, port = tmp_path / "credstore", free_port()
    commands = re.findall(r"^    \$ (install -d .*|\(umask .*)$", PAGE, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        subprocess.run(["bash", "-c", command.replace("/etc/credstore", str(store))], check=True, timeout=LIMIT)
    make_certificate(store / "disqued.tls-key", tmp_path / "node.pem")
    config = tmp_path / "disqued.conf"
    text = settings_with("requirepass-file").replace("/etc/disqued/node.pem", str(tmp_path / "node.pem"))
    config.write_text(text.replace("ssl:7780:", f"ssl:{port}:interface={HOST}:"))
    with managing(tmp_path) as manager:
        daemon = manager.start("--config", str(config), port=free_port(), CREDENTIALS_DIRECTORY=str(store))
        manager.hear_until("READY")
        with daemon.redis(password=(store / "disqued.requirepass").read_text().strip()) as client:
            assert client.ping()
    with following(NAME) as lines:
        lines.ran(*commands)


def test_the_units_load_the_credentials_that_the_page_names() -> None:
    for name in ("disqued.service", "disqued@.service"):
        loaded = set(re.findall(r"^LoadCredential=(.+)$", install_units.shipped(name), re.MULTILINE))
        assert loaded == set(re.findall(r"CREDENTIALS_DIRECTORY\}/([a-z.-]+)", PAGE))


def test_the_two_nodes_of_the_page_find_each_other_and_one_may_go(tmp_path: Path) -> None:
    with managing(tmp_path) as manager:
        ports = {name: free_port() for name in ("blue", "green")}
        for name, shown in zip(ports, ("7712", "7713"), strict=True):
            text = settings_with(f"port {shown}")
            assert "http-port 778" in text
            (tmp_path / f"{name}.conf").write_text(re.sub(r"^(http-)?port .*\n", "", text, flags=re.MULTILINE))
            manager.start("--config", str(tmp_path / f"{name}.conf"), port=ports[name], data=name)
            manager.hear_until("READY")
        blue, green = manager.started
        joins, waits = "-p 7712 CLUSTER MEET 127.0.0.1 7713", "CONFIG SET cluster-leave-timeout 600"
        typed(f"-p {blue.port} CLUSTER MEET 127.0.0.1 {green.port}", joins)
        for daemon in manager.started:
            wait_until(lambda daemon=daemon: cluster_info(daemon)["cluster_reachable_nodes"] == "1", "one other node")
        blue.call("ADDJOB", "q", "body", 0, "REPLICATE", 1, "RETRY", 0)
        typed(f"-p {blue.port} {waits}", waits)
        blue.stop()
        manager.hear_until("STOPPING")
        leaving = manager.hear()
        assert leaving["EXTEND_TIMEOUT_USEC"] == "30000000"
        assert leaving["STATUS"].startswith("Leaving before the stop: ")
        assert green.call("QLEN", "q") == 1
    with following(NAME) as lines:
        lines.ran(f"redis-cli {joins}", f"redis-cli {waits}")


def typed(words: str, shown: str) -> None:
    """Type a line for redis-cli that stands in the page with other ports."""
    done = subprocess.run(["redis-cli", *words.split()], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert done.stdout.splitlines() == lines_below(f"redis-cli {shown}")


def test_the_status_lines_of_the_page_are_such_as_a_node_tells(tmp_path: Path) -> None:
    with listening() as opened, managing(tmp_path) as manager:
        manager.start(passed={"disqued.socket": opened}, port=opened.getsockname()[1])
        serving = manager.hear_until("READY")[-1]["STATUS"]
    node: Any = SimpleNamespace(state=SimpleNamespace(jobs=[1]))
    store: Any = SimpleNamespace(bytes_total=10, bytes_loaded=4)
    loader = Loader(node, store, Clock(), done=lambda recovery: None, failed=lambda reason: None)
    shown = re.findall(r'^    Status: "(.*)"$', PAGE, re.MULTILINE)
    assert [form(line) for line in shown] == [form(loader.progress()), form(serving)]


def form(status: str) -> str:
    """A status without its numbers, and without what only a cluster has."""
    return re.sub(r"\d+", "N", status.partition(";")[0])
