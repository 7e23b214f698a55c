"""What a program says of TLS: whom it trusts, who it is, and what the certificates of nodes have to name.

    node --certificate--> is it of an authority that we trust?   `ca`
                          is it in the name that was asked for?  `host_name`, `check_host_name`
    we   --certificate--> the node asks itself the same          `certificate`, `key`

The words are the same for both clients; the files are read by each with its own library (`blocking.secure`,
`deferred.secure`), and read anew when they have changed, so that a renewed certificate needs no restart.
"""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Self

import attrs

_YES_AND_NO = {"yes": True, "no": False}
#: What a node says that refuses our certificate, in OpenSSL's words.
_REFUSALS = ("certificate", "unknown ca", "access denied")


def _path(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, PurePath):
        return str(value)
    raise ValueError(f"{value!r} is no path of a file: text or a Path")


@attrs.frozen(kw_only=True)
class Tls:
    """How nodes are reached by TLS.  Files are in the form PEM.

    Raises ValueError for values that do not fit together; files are looked at when a client is made.
    """

    #: File of the certificates to trust; None = those that the system trusts.
    ca: str | PurePath | None = attrs.field(default=None, converter=_path)
    #: File of our own certificate, with those between it and the root; None = we have none.
    certificate: str | PurePath | None = attrs.field(default=None, converter=_path)
    #: File of its key; None = it lies in the same file.
    key: str | PurePath | None = attrs.field(default=None, converter=_path)
    #: What that file is encrypted with.
    key_password: str | None = attrs.field(default=None, repr=False)
    #: What the certificate of every node has to be for; None = the host that the node is reached at.
    host_name: str | None = None
    #: Without it any node that has a certificate of the authority is taken for the one that was meant.
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
        """Read what stands behind a URL: the names of the fields, `check_host_name` yes or no.  Raises ValueError."""
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
        """Say what the certificate of the node at a host has to be for."""
        return self.host_name or host

    @property
    def files(self) -> dict[str, str]:
        """The files that are named, by what they are."""
        named = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
        return {what: str(path) for what, path in named.items() if path is not None}


def is_refusal(words: str) -> bool:
    """Say whether what ended a connection after our side of the handshake is that the node refuses our certificate.

    By TLS 1.3 it says so in the place of its first reply: nothing that was sent has been done.  Other alerts may come
    at any time, after anything.
    """
    return "alert" in words and any(refusal in words for refusal in _REFUSALS)
