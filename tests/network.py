"""Hosts of a network that a test can cut: network namespaces on one bridge, which nobody outside can reach.

                 +-- hub: a bridge --+
                 |         |         |
              host 0    host 1    host 2        10.77.0.1, .2, .3 ...
              drops what comes from hosts that it is cut off from (nftables)

What is dropped is dropped as on a real network: no reset, no error, nothing comes.  It needs the rights of an
administrator and Debian's packages iproute2 and nftables: where they are missing the test fails and says so, for a
network that is cut cannot be had in any other way that is real.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence

import attrs

PREFIX = "10.77.0"
#: Programs for administrators are not where other users look.
PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
RULES = """
table inet cut {
    set away { type ipv4_addr; }
    chain arrivals {
        type filter hook input priority 0; policy accept;
        ip saddr @away drop
    }
}
"""


def run(*words: str, text: str | None = None) -> None:
    """Run a program of an administrator, and say what it said when it fails."""
    program = shutil.which(words[0], path=PATH)
    assert program, f"a test of a network that is cut needs the program {words[0]} (Debian: iproute2, nftables)"
    done = subprocess.run([program, *words[1:]], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (
        f"a test of a network that is cut has to make network namespaces, as root; `{' '.join(words)}`: {done.stderr}"
    )


@attrs.frozen
class Network:
    """Hosts by number, from 0."""

    hosts: Sequence[str]  #: names of namespaces

    def address(self, number: int) -> str:
        """Name the address of a host, which the others reach unless they are cut off."""
        return f"{PREFIX}.{number + 1}"

    def inside(self, number: int) -> Sequence[str]:
        """Make the words that start a program on a host."""
        program = shutil.which("ip", path=PATH)
        assert program
        return (program, "netns", "exec", self.hosts[number])

    def deafen(self, number: int, to: Iterable[int]) -> None:
        """Let a host hear nothing of some others; they hear it, unless they are deafened, too."""
        addresses = ", ".join(self.address(other) for other in to)
        self._nft(number, f"add element inet cut away {{ {addresses} }}")

    def split(self, some: Iterable[int], rest: Iterable[int]) -> None:
        """Cut the network in two."""
        some, rest = list(some), list(rest)
        for number in some:
            self.deafen(number, rest)
        for number in rest:
            self.deafen(number, some)

    def heal(self) -> None:
        """Let everybody hear everybody."""
        for number in range(len(self.hosts)):
            self._nft(number, "flush set inet cut away")

    def _nft(self, number: int, command: str) -> None:
        run("ip", "netns", "exec", self.hosts[number], "nft", command)


@contextlib.contextmanager
def network(count: int) -> Iterator[Network]:
    """Make hosts for as long as the `with` lasts; processes on them have to have ended by then."""
    hosts = [f"disqued-{os.getpid()}-{number}" for number in range(count)]
    hub = f"disqued-{os.getpid()}-hub"
    with contextlib.ExitStack() as stack:
        for name in (hub, *hosts):
            run("ip", "netns", "add", name)
            stack.callback(run, "ip", "netns", "delete", name)
        run("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", hub, "link", "set", "bridge", "up")
        made = Network(hosts)
        for number in range(count):
            _connect(made, hub, number)
        yield made


def _connect(made: Network, hub: str, number: int) -> None:
    """Give a host its address, its way to the bridge and its rules."""
    host, port = made.hosts[number], f"port{number}"
    run("ip", "-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
    run("ip", "-n", hub, "link", "set", port, "master", "bridge", "up")
    run("ip", "-n", host, "address", "add", f"{made.address(number)}/24", "dev", "eth0")
    run("ip", "-n", host, "link", "set", "lo", "up")
    run("ip", "-n", host, "link", "set", "eth0", "up")
    run("ip", "netns", "exec", host, "nft", "--file", "-", text=RULES)
