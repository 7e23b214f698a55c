r"""Twisted's endpoint strings, taken apart before anything listens on them.

    ssl:7713:interface=127.0.0.1:certKey=a\:b.pem
    kind     parameter           parameter, : and \ within it behind a \

Source: Twisted, twisted.internet.endpoints.
"""

import ipaddress
import re
from typing import Final

#: Kinds that clients can be listened to at; why no others: net/loop/endpoints.py.
KINDS: Final = ("tcp", "tcp6", "ssl", "unix", "systemd")
ALLOWED: Final = (
    "allowed are endpoint strings such as tcp:7712:interface=127.0.0.1, unix:/run/disqued/queue.sock and"
    " ssl:7713:privateKey=node.key:certKey=node.pem:caCerts=ca.pem"
)

_WORD: Final = re.compile(r"((?:[^\\:]|\\.)*)(?::|$)", re.DOTALL)


def words(text: str) -> list[str]:
    """Take a string apart at its colons; each word is as it was written."""
    found = [match[1] for match in _WORD.finditer(text)]
    return found if text.endswith(":") else found[:-1]


def kind(text: str) -> str:
    """Name the kind of endpoint: tcp, ssl, unix ..."""
    return words(text)[0] if text else ""


def parameter(text: str, name: str) -> str | None:
    """Read a parameter that is given by its name; None = it is not given."""
    for word in words(text)[1:]:
        if word.startswith(f"{name}="):
            return re.sub(r"\\(.)", r"\1", word.removeprefix(f"{name}="))
    return None


def without(text: str, *names: str) -> str:
    """Leave parameters out."""
    return ":".join(word for word in words(text) if word.partition("=")[0] not in names)


def is_local(text: str) -> bool:
    """Tell whether nobody but this machine reaches what listens at an endpoint, as far as the string says."""
    if kind(text) == "unix":
        return True
    interface = parameter(text, "interface")
    if kind(text) not in ("tcp", "tcp6", "ssl") or not interface:
        return False
    try:
        return ipaddress.ip_address(interface).is_loopback
    except ValueError:
        return False


def wants_certificates(text: str) -> bool:
    """Tell whether nobody is let in who has no certificate of an authority that the string names."""
    return kind(text) == "ssl" and bool(parameter(text, "caCerts")) and parameter(text, "clientAuth") in (None, "yes")
