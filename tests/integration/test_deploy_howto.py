"""The page on deploying: three hosts of a network of their own, with its settings, its firewall and its first check."""

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import pytest
import redis

from disqued.config import BadValue, Config
from tests.integration.cluster import HostedCluster, HostedDaemon, ends_well, socket_of
from tests.integration.daemon import DAEMON, LIMIT, PLAIN, Daemon, environment
from tests.integration.howto import Terminal, fences, steps
from tests.network import PREFIX, network
from tests.pages import following

PAGE = "docs/how-to/deploy.md"
[ALONE, TOGETHER] = fences(PAGE)
[FIREWALL] = fences(PAGE, "nft")
STEPS = [step for step in steps(PAGE) if not re.search("python3 -m venv|/bin/pip ", step.typed)]
[MEETING] = [step for step in STEPS if "MEET" in step.typed]
SECRETS, FIRST_CHECK = STEPS[:2], STEPS[3:]

Start = Callable[..., Daemon]


@attrs.define
class GuardedDaemon(HostedDaemon):
    """One that asks for the password of the page."""

    def redis(self, **options: object) -> redis.Redis:
        """Connect as a client that knows it."""
        password = (self.directory.parent / "password").read_text().strip()
        path = str(socket_of(self.directory))
        return redis.Redis(unix_socket_path=path, **{**PLAIN, "password": password, **options})


@attrs.define
class Deployed(HostedCluster):
    """Nodes with the settings of the page, and nothing beside but where their folders are."""

    def launch(self, number: int, port: int = 0) -> Daemon:
        """Start a node on its host."""
        directory = self.directory / f"node-{number}"
        directory.mkdir(exist_ok=True)
        settings = TOGETHER.replace("10.0.0.1", self.address(number)).replace("/etc/disqued", str(self.directory))
        config = directory.with_suffix(".conf")
        config.write_text(settings)
        own = ("--config", str(config), "--dir", str(directory), "--unixsocket", str(socket_of(directory)))
        log_file = directory.with_suffix(".log")
        with log_file.open("ab") as log:
            process = subprocess.Popen(
                [*self.network.inside(number), *DAEMON, *own],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(), cwd="/",
            )  # fmt: skip
        return GuardedDaemon(process, 7711, directory, log_file)


def on(words: Sequence[str], typed: str) -> subprocess.CompletedProcess[str]:
    """Run a line on a host."""
    return subprocess.run(
        [*words, "bash", "-c", typed], capture_output=True, text=True, check=False, timeout=LIMIT, input=FIREWALL_HERE
    )


FIREWALL_HERE = FIREWALL.replace("10.0.0.", f"{PREFIX}.")


def test_three_nodes_are_deployed_as_the_page_says(start: Start, tmp_path: Path) -> None:
    terminal = Terminal(start, tmp_path, {"10.0.0.": f"{PREFIX}."})
    with (
        following(PAGE) as terminal.lines,
        network(4) as hosts,
        ends_well(Deployed(tmp_path, network=hosts)) as nodes,
    ):
        for step in SECRETS:
            terminal.check(step)
        for number in range(3):
            loaded = on(hosts.inside(number), "nft --file -")
            assert (loaded.returncode, loaded.stderr) == (0, "")
            nodes.nodes.append(nodes._ready(nodes.launch(number)))
        terminal.host = hosts.inside(3)
        # A client on a fourth host.
        for step in (MEETING, *FIRST_CHECK):
            terminal.check(step)
        knock = "timeout 2 bash -c '</dev/tcp/{}/{}'"
        assert on(hosts.inside(3), knock.format(hosts.address(0), 7711)).returncode == 0
        assert on(hosts.inside(3), knock.format(hosts.address(0), 17711)).returncode == 124, (
            "the bus is for nodes alone"
        )
        assert on(hosts.inside(1), knock.format(hosts.address(0), 17711)).returncode == 0


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A folder with the files that the settings name."""
    for name in ("password", "cluster.secret"):
        (tmp_path / name).write_text("s" * 40)
        (tmp_path / name).chmod(0o600)
    return tmp_path


@pytest.mark.parametrize("text", [ALONE, TOGETHER], ids=["alone", "together"])
def test_the_settings_of_the_page_are_such_as_a_node_takes(secrets: Path, text: str) -> None:
    Config.from_text(text.replace("/etc/disqued", str(secrets))).check()


def test_beyond_loopback_they_need_their_secrets(secrets: Path) -> None:
    here = TOGETHER.replace("/etc/disqued", str(secrets))
    open_to_all = re.sub(r"^requirepass-file .*\n", "", here, flags=re.MULTILINE)
    with pytest.raises(BadValue, match="beyond the loopback addresses a password is needed"):
        Config.from_text(open_to_all).check()
    unsigned = re.sub(r"^cluster-secret-file .*\n", "", here, flags=re.MULTILINE)
    assert "10.0.0.1" in Config.from_text(here).bus_addresses
    assert "10.0.0.1" not in Config.from_text(unsigned).bus_addresses
