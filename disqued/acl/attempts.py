"""Rate limit for wrong passwords and tokens, per address, shared by the client port and the admin page.

An address may try ten at once, then one every six seconds; the node does not look at further ones and says so
(WRONGPASS, 429).  A password that was right from the same address before is still accepted: behind a proxy all users
share an address, and none of them may lock out those who have logged in.  A user who logs in there for the first time
since the start of the node has to wait.  The tables are bounded, so that many addresses cannot fill the memory.  Times
are seconds.

    192.0.2.7                     --> 192.0.2.7
    ::ffff:192.0.2.7              --> 192.0.2.7           the same, as a socket for both families tells it
    2001:db8:0:1:aaaa::7%eth0     --> 2001:db8:0:1::/64   who has one address of these has all of them
    no address, as "unix"         --> itself
"""

import ipaddress
from collections import OrderedDict
from math import ceil
from typing import Final

import attrs

BURST: Final = 10  #: wrong ones at once
REFILL_S: Final = 6.0  #: until one more may be tried
REMEMBERED: Final = 1_024  #: addresses, and what was right with theirs
PREFIX: Final = 64  #: bits of an IPv6 address that its owner does not choose


@attrs.define
class _Account:
    left: float
    at: float


class Attempts:
    """The attempts of each address."""

    def __init__(self) -> None:
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._right: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def wait(self, address: str, digest: bytes, now: float) -> int:
        """Return the seconds until an address may try the password with this digest; 0 = now."""
        address = network_of(address)
        account = self._accounts.get(address)
        if account is None or (address, digest) in self._right:
            return 0
        self._refill(account, now)
        return 0 if account.left >= 1 else max(1, ceil((1 - account.left) * REFILL_S))

    def failed(self, address: str, now: float) -> None:
        """Count a wrong attempt."""
        address = network_of(address)
        account = self._accounts.setdefault(address, _Account(BURST, now))
        self._accounts.move_to_end(address)
        self._refill(account, now)
        account.left = max(0.0, account.left - 1)
        if len(self._accounts) > REMEMBERED:
            self._accounts.popitem(last=False)

    def succeeded(self, address: str, digest: bytes) -> None:
        """Remember a right one."""
        right = network_of(address), digest
        self._right[right] = None
        self._right.move_to_end(right)
        if len(self._right) > REMEMBERED:
            self._right.popitem(last=False)

    @staticmethod
    def _refill(account: _Account, now: float) -> None:
        account.left = min(BURST, account.left + max(0.0, now - account.at) / REFILL_S)
        account.at = now


def network_of(address: str) -> str:
    """What an address is counted with: itself, or its network of IPv6; what is no address is itself."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found), PREFIX), strict=False))
