"""Notifications to systemd: loading, ready, alive, reloading, stopping.

    while it loads   STATUS, EXTEND_TIMEOUT_USEC    whenever more was loaded: a load that is stuck is ended
    loaded           READY=1, STATUS                the ports have been open since before the load
    from then on     STATUS                         now and then, where it has changed
    SIGHUP           RELOADING=1 ... READY=1
    leaving          STATUS, EXTEND_TIMEOUT_USEC    see `net.process.drain`
    the end          STOPPING=1                     before anything else is done for it
    all the time     WATCHDOG=1                     from the loop, so that a loop that is blocked is noticed

A message is one datagram to the socket that NOTIFY_SOCKET names; without it nothing is said.  While the socket is full,
what systemd waits for (READY, RELOADING, STOPPING) waits in its order, and what would be old by then is left out.
While nobody listens, everything is.  Neither keeps the node from anything.

Times are seconds; in the names of fields USEC is microseconds.  Source: sd_notify(3), sd_watchdog_enabled(3).
"""

import os
import socket
import time
from collections import deque
from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

if TYPE_CHECKING:
    from disqued.net.process.daemon import Daemon

LOOK_S: Final = 1.0  #: between two looks at how far a load has come
EXTENSION_S: Final = 30  #: in which more has to be loaded, or the start has failed; also the limit of one slice
STATUS_S: Final = 10.0  #: between two looks at whether there is another status to tell
RETRY_S: Final = 0.1  #: pause before a full socket is tried again
WAITING_MAX: Final = 32  #: messages that may wait for it; the oldest are dropped first


class Notifier:
    """Sends messages to the service manager."""

    log = Logger()

    def __init__(self, address: str, reactor: Any) -> None:
        """Take the path of a socket, or its abstract name after an @; "" = there is nobody to tell."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._reactor = reactor
        self._socket: socket.socket | None = None
        self._waiting: deque[bytes] = deque(maxlen=WAITING_MAX)
        self._retry: IDelayedCall | None = None
        self._has_complained = False
        if address and address[0] not in "/@":
            self.log.warn("NOTIFY_SOCKET {address} is left alone; allowed are paths and @names", address=address)
        elif address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    def __bool__(self) -> bool:
        return self._socket is not None

    def tell(self, *fields: str) -> None:
        """Send fields, such as READY=1, now or when there is room again."""
        if self._socket is None or not fields:
            return
        self._waiting.append(_message(fields))
        if self._retry is None:
            self._send_waiting()

    def mention(self, *fields: str) -> bool:
        """Send fields that are worth nothing later; say whether there was room for them."""
        return self._socket is None or (not self._waiting and self._sends(_message(fields)))

    def close(self) -> None:
        """Say nothing more."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send_waiting(self) -> None:
        self._retry = None
        while self._waiting:
            if not self._sends(self._waiting[0]):
                self._retry = self._reactor.callLater(RETRY_S, self._send_waiting)
                return
            self._waiting.popleft()

    def _sends(self, message: bytes) -> bool:
        """Send a message, or find out that nobody listens; False = there is no room."""
        assert self._socket is not None
        try:
            self._socket.sendto(message, self._address)
        except BlockingIOError:
            return False
        except OSError as error:
            self._complain(error.strerror)
        else:
            self._has_complained = False
        return True

    def _complain(self, reason: str | None) -> None:
        if not self._has_complained:
            self._has_complained = True
            self.log.warn("systemd cannot be told how this node is: {reason}", reason=reason)


def _message(fields: Sequence[str]) -> bytes:
    """The text of a message; a line feed within a field would begin another one."""
    return "\n".join(field.replace("\n", " ") for field in fields).encode("utf-8", "replace")


class Supervision:
    """What systemd hears of one daemon, and when."""

    def __init__(self, daemon: "Daemon", notifier: Notifier, reactor: Any, *, watchdog_s: float = 0.0) -> None:
        """`watchdog_s`: the silence after which systemd takes the daemon for hung; 0 = it does not watch."""
        self._daemon = daemon
        self._notifier = notifier
        self._reactor = reactor
        self._watchdog_s = watchdog_s
        self._opened: Deferred[None] = succeed(None)
        self._is_ready = False
        self._is_stopping = False
        self._progress = -1  #: of the load, when it was looked at last
        self._told = ""  #: the last status sent
        self._ping = _repeated(self._reactor, notifier.mention, "WATCHDOG=1")
        self._look = _repeated(self._reactor, self._look_at_load)
        self._tell = _repeated(self._reactor, self._tell_state)

    @classmethod
    def of(cls, daemon: "Daemon", reactor: Any, environment: MutableMapping[str, str]) -> "Supervision":
        """Make it as the variables say, which are taken away: they are not meant for other processes."""
        notifier = Notifier(environment.pop("NOTIFY_SOCKET", ""), reactor)
        usec, process = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        is_ours = usec.isascii() and usec.isdigit() and process in ("", str(os.getpid()))
        return cls(daemon, notifier, reactor, watchdog_s=int(usec) / 1e6 if is_ours else 0.0)

    def wait_for(self, opened: "Deferred[None]") -> None:
        """Call the node ready no earlier than this: a port that takes its time has opened."""
        self._opened = opened

    def start(self) -> None:
        """Begin: the ports are open, or will be, and the load begins."""
        if not self._notifier:
            return
        if self._watchdog_s:
            self._ping.start(self._watchdog_s / 2)
        self._look.start(LOOK_S, now=False)

    def _look_at_load(self) -> None:
        """Ask for more time, if there was progress since the last look."""
        slices = self._daemon.loader.slices
        if slices != self._progress:
            self._progress = slices
            self.goes_on(self._daemon.loader.progress())

    def goes_on(self, status: str) -> None:
        """Tell a status, and that what takes long now will take longer."""
        extension = f"EXTEND_TIMEOUT_USEC={EXTENSION_S * 1_000_000}"
        if not self._notifier.mention(extension, *self._changed(status)):
            self._told = ""

    def ready(self) -> None:
        """Tell that the node has loaded its jobs and serves, as soon as every port is open."""
        self._stop_looking()
        self._opened.addCallback(self._tell_ready)

    def _tell_ready(self, _: None) -> None:
        self._is_ready = True
        if self._notifier and not self._is_stopping:
            self._notifier.tell("READY=1", *self._changed(self._state()))
            self._tell.start(STATUS_S, now=False)

    def _stop_looking(self) -> None:
        if self._look.running:
            self._look.stop()

    def _tell_state(self) -> None:
        fields = self._changed(self._state())
        if fields and not self._notifier.mention(*fields):
            self._told = ""

    def _state(self) -> str:
        state = self._daemon.node.state
        nodes = f"; {len(state.peers.by_id) + 1} nodes are known" if state.peers.by_id else ""
        failure = self._daemon.store_failure
        trouble = f"; takes no jobs now: {failure}" if failure else ""
        return f"Serves {len(state.jobs)} jobs in {len(state.queues)} queues{nodes}{trouble}"

    def _changed(self, status: str) -> tuple[str, ...]:
        """The field of a status, if it is not the one that is known."""
        if status == self._told:
            return ()
        self._told = status
        return (f"STATUS={status}",)

    def failed(self, reason: str) -> None:
        """Tell why the node does not start."""
        self._notifier.tell(*self._changed(f"The node does not start: {reason}"))

    def reloading(self) -> None:
        """Tell that settings and files are read anew, until `reloaded`; a node that is not ready yet says nothing."""
        if self._serves:
            self._notifier.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def reloaded(self) -> None:
        """Tell that this is over."""
        if self._serves:
            self._notifier.tell("READY=1")

    @property
    def _serves(self) -> bool:
        return self._is_ready and not self._is_stopping

    def stopping(self, status: str) -> None:
        """Tell that the end has begun; the watchdog is told on, for a blocked end is to be noticed, too."""
        self._is_stopping = True
        self._stop_looking()
        if self._tell.running:
            self._tell.stop()
        self._notifier.tell("STOPPING=1", *self._changed(status))

    def stopped(self) -> None:
        """Say nothing more."""
        if self._ping.running:
            self._ping.stop()
        self._notifier.close()


def _repeated(reactor: Any, call: Any, *arguments: Any) -> LoopingCall:
    repeated = LoopingCall(call, *arguments)
    repeated.clock = reactor
    return repeated
