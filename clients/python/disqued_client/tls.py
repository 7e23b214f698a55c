"""TLS options: trusted authorities, our own certificate, and the name that nodes must have.

    node --certificate--> is it signed by a trusted authority?   `ca`
                          is it for the expected host?           `host_name`, `check_host_name`
    we   --certificate--> the node checks the same               `certificate`, `key`

The options are the same for all clients.  Each reads the files with its own library (`ssl_context`, `deferred.secure`),
and again when they have changed, so that a renewed certificate needs no restart.
"""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Self

import attrs

_YES_AND_NO = {"yes": True, "no": False}
#: Parts of OpenSSL's errors when a node refuses our certificate.
_REFUSALS = ("certificate", "unknown ca", "access denied")


def _path(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, PurePath):
        return str(value)
    raise ValueError(f"{value!r} is no path of a file: text or a Path")


@attrs.frozen(kw_only=True)
class Tls:
    """TLS options; files are PEM.

    Raises ValueError for values that contradict each other; the client reads the files when it is created.
    """

    #: File of the certificates to trust; None = those of the system.
    ca: str | PurePath | None = attrs.field(default=None, converter=_path)
    #: File of our own certificate, with intermediate ones; None = no certificate.
    certificate: str | PurePath | None = attrs.field(default=None, converter=_path)
    #: File of its key; None = the same file.
    key: str | PurePath | None = attrs.field(default=None, converter=_path)
    #: Password of that file.
    key_password: str | None = attrs.field(default=None, repr=False)
    #: The name that the certificate of every node must have; None = the host of its address.
    host_name: str | None = None
    #: Without it, any node with a certificate of the authority is accepted.
    check_host_name: bool = True

    def __attrs_post_init__(self) -> None:
        if self.certificate is None and (self.key is not None or self.key_password is not None):
            raise ValueError("a key of TLS without its certificate")
        if self.host_name == "":
            raise ValueError("host_name of TLS is empty; without one it is the host that a node is reached at")
        if self.host_name is not None and not self.check_host_name:
            raise ValueError("host_name of TLS is given, and not to be looked at")

    @classmethod
    def of_words(cls, words: Mapping[str, str]) -> Self:
        """Parse the query of a URL: names of the fields, `check_host_name` as yes or no.  Raises ValueError."""
        known = {field.name for field in attrs.fields(cls)}
        given: dict[str, object] = dict(words)
        for name, text in words.items():
            if name not in known:
                raise ValueError(f"{name!r} behind the URL of a node; {', '.join(sorted(known))} are allowed")
            if name == "check_host_name":
                if text not in _YES_AND_NO:
                    raise ValueError(f"check_host_name is {text!r}; yes and no are allowed")
                given[name] = _YES_AND_NO[text]
            elif not text:
                raise ValueError(f"{name} behind the URL of a node is empty")
        return cls(**given)  # type: ignore[arg-type]

    def name_of(self, host: str) -> str:
        """Return the name that the certificate of a node at `host` must have."""
        return self.host_name or host

    @property
    def files(self) -> dict[str, str]:
        """The given files, by their role."""
        named = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
        return {what: str(path) for what, path in named.items() if path is not None}


def is_refusal(words: str) -> bool:
    """Return whether a connection ended after our side of the handshake because the node refuses our certificate.

    With TLS 1.3 that error comes instead of the first reply: no command has been carried out.  Other alerts may come at
    any time.
    """
    return "alert" in words and any(refusal in words for refusal in _REFUSALS)
