"""The address of this node: what an operator announces, or else what others used to reach it."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from disqued.core.model.messages import Greeting
from disqued.core.model.own_flags import own_flags
from disqued.core.model.peers import PEERS_MAX
from disqued.core.model.state import State


class OwnAddress:
    """Where others reach this node, and another node that has the same id."""

    __slots__ = ("_announced", "_state", "bus_port", "host", "port", "twin")

    def __init__(self, state: State) -> None:
        self._state = state
        self._announced: str = ""
        self.host: str = ""  #: empty = nobody has told yet
        self.port: int = 0  #: for clients
        self.bus_port: int = 0
        #: Address of another node that says that it has our id; empty = there is none.
        self.twin: str = ""

    def announce(self, host: str, port: int, bus_port: int) -> None:
        """Tell where others reach this node; an empty host is where our links come from."""
        self._announced = canonical(host)
        self.host = self._announced or self.host
        self.port = port
        self.bus_port = bus_port
        self._state.outbox.members_changed = True

    def restore(self, host: str) -> None:
        """Take the address from before a restart, unless another one is announced."""
        self.host = self._announced or canonical(host)

    def greeting(self, meets: bool) -> Greeting:
        """What this node says of itself when a link opens; `meets` is that of the target."""
        state = self._state
        return Greeting(state.node_id, self._announced, self.port, self.bus_port, own_flags(state), meets)

    def learn(self, host: str, *, insist: bool) -> None:
        """Learn the address from how others came to reach us; `insist`: even if there is one."""
        host = canonical(host)
        if host and not self._announced and (insist or not self.host) and host != self.host:
            self.host = host
            self._state.outbox.members_changed = True

    def found_own_id(self, host: str, greeting: Greeting, own_host: str) -> None:
        """Somebody has our id: a link from us to ourselves, or a copy of our data that runs elsewhere."""
        ours = {address for address in (canonical(own_host), self.host) if address}
        if greeting.bus_port != self.bus_port or ours.isdisjoint((canonical(host), canonical(greeting.host))):
            self.twin = f"{canonical(greeting.host) or host}:{greeting.bus_port}"


@lru_cache(PEERS_MAX)
def canonical(host: str) -> str:
    """An address as it is compared; empty for what is none."""
    try:
        address = ip_address(host)
    except ValueError:
        return ""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
