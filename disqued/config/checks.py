"""What no single setting shows: settings that contradict each other, or that together let somebody in."""

import ipaddress
import os
from collections.abc import Iterable
from typing import Final

from disqued.config import credentials, endpoint_strings
from disqued.config.combined import BUS_PORT_OFFSET, CombinedSettings, beyond_loopback
from disqued.config.errors import BadValue
from disqued.config.kinds import FilePath

MAX_SOCKET_PATH_BYTES: Final = 107  #: what the system's socket address has room for
MAX_PORT: Final = 65_535


def check(config: CombinedSettings) -> None:
    """Refuse what no single setting shows. Raises: BadValue."""
    _check_credentials(config)
    _check_clients(config)
    _check_tls(config)
    _check_cluster(config)
    _check_http(config)


def _check_credentials(config: CombinedSettings) -> None:
    for name, setting in config.settings.items():
        texts = config.endpoint if name == "endpoint" else (config[name],)
        names_files = isinstance(setting.kind, FilePath) or name in ("endpoint", "http-endpoint")
        if names_files and any(map(credentials.is_missing, texts)):
            problem = f"there is no {credentials.FOLDER} in the environment; systemd sets it where a unit loads any"
            raise _fault(config, name, f"{problem} (LoadCredential)")


def _check_http(config: CombinedSettings) -> None:
    others = (
        (config.bind, config.port),
        (config.bind, config.tls_port),
        (config.cluster_bind or config.bind, config.bus_port),
    )
    if any(config.http_port and port == config.http_port and _meet(bind, config.http_bind) for bind, port in others):
        raise _fault(config, "http-port", "clients or the cluster bus have this port; the admin side needs its own")
    if config.http_token_file is not None:
        return
    problem = "a token is needed where not only this machine reaches the admin side; set http-token-file"
    if config.http_endpoint:
        raise _fault(config, "http-endpoint", problem)
    if config.http_port and beyond_loopback(config.http_bind):
        raise _fault(config, "http-bind", f"{problem}, or bind 127.0.0.1")


def _check_clients(config: CombinedSettings) -> None:
    if not config.port and not config.tls_port and config.unixsocket is None and not config.endpoint:
        raise _fault(config, "port", "without it a tls-port, a unixsocket or an endpoint is needed to connect to")
    if config.requirepass and config.requirepass_file is not None:
        raise _fault(config, "requirepass-file", "there is a requirepass, too; give one of the two")
    for text in config.endpoint:
        if (kind := endpoint_strings.kind(text)) not in endpoint_strings.KINDS:
            problem = f"no endpoint for clients is of the kind {kind!r}; {endpoint_strings.ALLOWED}"
            raise _fault(config, "endpoint", problem, text)
    if not config.has_password and config.aclfile is None:
        _check_strangers(config)
    if config.unixsocket is not None and len(os.fsencode(config.unixsocket)) > MAX_SOCKET_PATH_BYTES:
        problem = f"with its folder the path is longer than the {MAX_SOCKET_PATH_BYTES} bytes that systems allow"
        raise _fault(config, "unixsocket", problem)


def _check_strangers(config: CombinedSettings) -> None:
    """Let nobody in from elsewhere who shows neither a password nor a certificate."""
    lets_in = config.port or (config.tls_port and config.tls_auth_clients != "yes")
    if lets_in and beyond_loopback(config.bind):
        problem = (
            "beyond the loopback addresses a password is needed; set requirepass or aclfile, or bind 127.0.0.1, or"
            " let nobody in without a certificate: `port 0`, a tls-port and `tls-auth-clients yes`"
        )
        raise _fault(config, "bind", problem)
    for text in config.endpoint:
        if not endpoint_strings.is_local(text) and not endpoint_strings.wants_certificates(text):
            problem = (
                "it is reached from beyond this machine, as far as it says: there a password is needed; set"
                " requirepass or aclfile, or interface=127.0.0.1, or caCerts"
            )
            raise _fault(config, "endpoint", problem, text)


def _check_tls(config: CombinedSettings) -> None:
    """See to it that TLS has what it needs; whether the files are any good is found out when they are read."""
    user = "tls-port" if config.tls_port else "tls-cluster"
    if config.tls_port or config.tls_cluster:
        for name in ("tls-cert-file", "tls-key-file"):
            if not config[name]:
                raise _fault(config, user, f"TLS needs a certificate and its key; set {name}")
    if config.tls_cluster and config.tls_ca_cert_file is None:
        raise _fault(config, "tls-cluster", "nodes are known by who has signed their certificate; set tls-ca-cert-file")
    if config.tls_port and config.tls_auth_clients != "no" and config.tls_ca_cert_file is None:
        problem = "who may sign the certificates of clients is not said; set tls-ca-cert-file, or tls-auth-clients no"
        raise _fault(config, "tls-port", problem)
    if config.tls_port and config.tls_port == config.port:
        raise _fault(
            config, "tls-port", "this is the port for clients without TLS, too; one port speaks one of the two"
        )


def _check_cluster(config: CombinedSettings) -> None:
    if config.bus_port > MAX_PORT:
        problem = f"the cluster bus has no port {BUS_PORT_OFFSET} above it; set cluster-port"
        raise _fault(config, "port" if config.port else "tls-port", problem)
    if config.bus_port and config.bus_port in (config.port, config.tls_port):
        raise _fault(config, "cluster-port", "this is the port for clients; the cluster bus needs one of its own")
    if config.cluster_secret and config.cluster_secret_file is not None:
        raise _fault(config, "cluster-secret-file", "there is a cluster-secret, too; give one of the two")
    if beyond_loopback(config.cluster_bind) and not config.nodes_prove_themselves:
        problem = (
            "beyond the loopback addresses nodes have to prove who they are; set cluster-secret or"
            " cluster-secret-file, the same on every node, or tls-cluster, or bind 127.0.0.1"
        )
        raise _fault(config, "cluster-bind", problem)


def _fault(config: CombinedSettings, name: str, problem: str, text: str | None = None) -> BadValue:
    """Make the error about a setting, or about `text`, a word of it."""
    setting = config.settings[name]
    return setting.fault(setting.kind.format(config[name]) if text is None else text, problem)


def _meet(some: Iterable[str], others: Iterable[str]) -> bool:
    """Return whether two listeners with the same port would be in each other's way."""
    here, there = (frozenset(map(ipaddress.ip_address, addresses)) for addresses in (some, others))
    return bool(here & there) or any(address.is_unspecified for address in here | there)
