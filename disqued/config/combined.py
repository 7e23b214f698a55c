"""What several settings mean together: the port of the bus, where clients come from, what proves who a node is."""

import ipaddress
from collections.abc import Iterable
from typing import Final

from disqued.config import endpoint_strings
from disqued.config.settings import Settings

BUS_PORT_OFFSET: Final = 10_000  #: from the port for clients to that of the cluster bus, unless there is a cluster-port


class CombinedSettings(Settings):
    """The settings, and what follows from several of them."""

    @property
    def has_password(self) -> bool:
        """True when clients have to give a password, whether it was read already or not."""
        return bool(self.requirepass) or self.requirepass_file is not None

    @property
    def clients_come_from_elsewhere(self) -> bool:
        """True when not only this machine reaches what clients connect to, as far as the settings say."""
        by_port = (self.port or self.tls_port) and beyond_loopback(self.bind)
        return bool(by_port) or not all(map(endpoint_strings.is_local, self.endpoint))

    @property
    def admins_come_in_the_clear(self) -> str:
        """The setting by which tokens leave this machine without TLS; empty = they do not, as far as it says."""
        if self.http_endpoint:
            kind = endpoint_strings.kind(self.http_endpoint)
            return (
                "http-endpoint" if kind in ("tcp", "tcp6") and not endpoint_strings.is_local(self.http_endpoint) else ""
            )
        return "http-bind" if self.http_port and beyond_loopback(self.http_bind) else ""

    @property
    def bus_port(self) -> int:
        """The TCP port of the cluster bus; 0 = there is none."""
        return self.cluster_port or (self.client_port and self.client_port + BUS_PORT_OFFSET)

    @property
    def client_port(self) -> int:
        """The TCP port that other nodes give to clients: the plain one, else the one with TLS; 0 = there is none."""
        return self.port or self.tls_port

    @property
    def bus_addresses(self) -> tuple[str, ...]:
        """The addresses that the cluster bus listens on; none where no node could be admitted safely."""
        if not self.bus_port:
            return ()
        if self.cluster_bind:
            return self.cluster_bind
        return tuple(address for address in self.bind if self.nodes_prove_themselves or not beyond_loopback((address,)))

    @property
    def has_cluster_secret(self) -> bool:
        """True when nodes prove to each other that they know a secret."""
        return bool(self.cluster_secret) or self.cluster_secret_file is not None

    @property
    def nodes_prove_themselves(self) -> bool:
        """True when the bus admits nodes of this cluster alone, by a secret or by a certificate."""
        return self.has_cluster_secret or self.tls_cluster


def beyond_loopback(addresses: Iterable[str]) -> bool:
    """Return whether other machines reach one of these addresses."""
    return not all(ipaddress.ip_address(address).is_loopback for address in addresses)
