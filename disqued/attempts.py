"""Wrong passwords and tokens: how many each address may try, on the port for clients and on the admin side together.

Ten may come at once, then one every six seconds; what comes too soon is not looked at, and hears so (WRONGPASS, 429).
What has been right from an address before is let in all the same: behind a proxy all visitors have one address, and one
of them is not to lock out the others.  What is remembered is bounded, so that nobody fills the memory from many
addresses.  Times are seconds.
"""

from collections import OrderedDict
from math import ceil
from typing import Final

import attrs

BURST: Final = 10  #: wrong ones at once
REFILL_S: Final = 6.0  #: until one more may be tried
REMEMBERED: Final = 1_024  #: addresses, and what was right with theirs


@attrs.define
class _Account:
    left: float
    at: float


class Attempts:
    """What each address has tried."""

    def __init__(self) -> None:
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._right: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def wait(self, address: str, digest: bytes, now: float) -> int:
        """Seconds until something may be tried; 0 = now.  `digest` stands for what it is."""
        account = self._accounts.get(address)
        if account is None or (address, digest) in self._right:
            return 0
        self._refill(account, now)
        return 0 if account.left >= 1 else max(1, ceil((1 - account.left) * REFILL_S))

    def failed(self, address: str, now: float) -> None:
        """Note a wrong one."""
        account = self._accounts.setdefault(address, _Account(BURST, now))
        self._accounts.move_to_end(address)
        self._refill(account, now)
        account.left = max(0.0, account.left - 1)
        if len(self._accounts) > REMEMBERED:
            self._accounts.popitem(last=False)

    def succeeded(self, address: str, digest: bytes) -> None:
        """Note a right one."""
        self._right[address, digest] = None
        self._right.move_to_end((address, digest))
        if len(self._right) > REMEMBERED:
            self._right.popitem(last=False)

    @staticmethod
    def _refill(account: _Account, now: float) -> None:
        account.left = min(BURST, account.left + max(0.0, now - account.at) / REFILL_S)
        account.at = now
