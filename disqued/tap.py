"""`twistd disqued`: the one place where the parts of the daemon are joined.

Options ---> Config ---> makeService ---> Service --start--> ports listen, the store is loaded
|               |
|               +---- Daemon, Driver, Node, IStore
+-- clock, generator of random numbers, reactor: passed on from here
"""

import ctypes
import gc
import os
import platform
import re
import select
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from twisted.application.service import IServiceCollection, MultiService, Service
from twisted.copyright import version as twisted_version
from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.main import installReactor
from twisted.logger import ILogObserver, Logger
from twisted.python import usage
from twisted.python.failure import Failure

from disqued import __version__
from disqued.acl.aclfile import AclFileError
from disqued.commands import catalogue, table  # noqa: F401 - the catalogue completes the table
from disqued.config import SETTINGS, Config, ConfigError, Setting, Status
from disqued.core.model.clock import Clock
from disqued.core.node import Node
from disqued.cron import CronCalendar
from disqued.net.cluster.identity import Identity, IdentityError
from disqued.net.loop.certificates import CertificateError, TlsListeners, certificates_of
from disqued.net.loop.clock import SystemClock, use_monotonic_time
from disqued.net.loop.endpoints import EndpointError, listen_at
from disqued.net.loop.passed import PassedError, PassedSockets
from disqued.net.loop.socketfile import UnixPort
from disqued.net.loop.transport import EagerPort
from disqued.net.process import logformat
from disqued.net.process.daemon import Daemon
from disqued.net.process.drain import Drain
from disqued.net.process.journald import is_journal, standard_error
from disqued.net.process.notify import Supervision
from disqued.net.process.pidfile import PidFile, PidFileError
from disqued.net.process.secrets import SecretError, read_password, read_secret, renew_password
from disqued.net.process.startup_warnings import weak_settings
from disqued.net.process.statistics import core_build
from disqued.net.process.stopsignals import StopSignals
from disqued.net.process.switching import STORE_FILE, StoreMarker
from disqued.persistence.eventlog.log import EventLog
from disqued.persistence.interface import IStore, StoreError
from disqued.persistence.plugins import UnknownStore, find_store, make_store
from disqued.suggestions import near

if TYPE_CHECKING:
    from disqued.web.server import AdminServer

log = Logger()

M_MMAP_THRESHOLD = -3  #: of malloc.h
MMAP_BYTES = 128 << 10  #: buffers of this size and more are the system's again when they are freed; where glibc begins
OF_PAGE = "http-endpoint"  #: what the certificate of the admin page is called in the log and in INFO
MISUSED = 2  #: exit status, as that of verbs
#: What installs the packages of the admin page where disqued was installed without what it needs.
ADMIN_LINE = 'pip install "disqued[admin]"'


def _described(setting: Setting[Any]) -> str:
    """A setting as `--help` shows it: what it is, what it is when nobody says so, and whether it matters."""
    text = setting.summary
    if setting.status is not Status.LIVE:
        text += f" No effect in this version: {setting.reason}."
    default = setting.default_text
    return f"{text} [default: {default}]" if default else text


def _misused(text: str) -> NoReturn:
    """Say what is wrong with the command line or the file, and end the process as every verb does then."""
    sys.stderr.write(f"disqued: {text}\n")
    raise SystemExit(MISUSED)


#: Options of verbs that somebody may give to a node, and what is right there.
_LETTERS = {
    "h": "-h is the host, in verbs that talk to a node; the help is --help",
    "p": "-p is the port, in verbs that talk to a node; a node has --port",
    "v": "the version is --version",
}


class Options(usage.Options):
    """Every setting of the configuration file as an option of the command line."""

    longdesc = "One node of disqued, a distributed, in-memory, replicated job queue.  Options win over the file."

    optParameters: ClassVar[list[list[str | None]]] = [
        ["config", "c", None, "Configuration file to read."],
        *(
            [name, None, None, _described(setting)]
            for name, setting in SETTINGS.items()
            if setting.status is not Status.OBSOLETE
        ),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.settings = Config()

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Parse; whatever is wrong ends the process with one line that says so, and the status of misuse."""
        try:
            self._refuse_unknown(sys.argv[1:] if options is None else options)
            super().parseOptions(options)
        except usage.UsageError as error:
            _misused(f"{error}; {self._hint(str(error))}")

    def _refuse_unknown(self, words: Sequence[str]) -> None:
        """Look for options that are none, as getopt takes the beginning of a name for the name.  Raises UsageError."""
        left = iter(words)
        for word in left:
            if word == "-c":
                next(left, None)
            if word == "--" or not word.startswith("-"):
                return
            name, equals, _ = word[2:].partition("=")
            if not word.startswith("--") or name in self.longOpt:
                continue
            if f"{name}=" not in self.longOpt:
                raise usage.UsageError(f"option --{name} not recognized")
            if not equals:
                next(left, None)

    def _hint(self, problem: str) -> str:
        """What helps someone who gave an option that is none."""
        name = re.fullmatch(r"option --?(\S+) not recognized", problem)
        if name and name[1] in _LETTERS:
            return _LETTERS[name[1]]
        guess = ""
        if name and len(name[1]) > 1:
            known = [option.rstrip("=") for option in self.longOpt]
            begun = [option for option in known if option.startswith(name[1])]
            if meant := dict.fromkeys(f"--{option}" for option in (*begun[:2], *near(name[1], known)[:1])):
                guess = f"did you mean {' or '.join(meant)}? "
        return f"{guess}disqued --help names all options"

    def parseArgs(self, *words: str) -> None:
        """Refuse words behind the options."""
        if words:
            what = f"unexpected word {words[0]!r}"
            raise usage.UsageError(f"{what}: options alone start a node, and a verb stands before its options")

    def getSynopsis(self) -> str:
        """The first line of `--help`, by the program that was asked."""
        through_twistd = os.path.basename(sys.argv[0]) == "twistd"
        return f"Usage: {'twistd [options of twistd] ' if through_twistd else ''}disqued [options]"

    def opt_version(self) -> None:
        """Show the versions of disqued and of what it runs on, and how its core is built, and exit."""
        sys.stdout.write(f"disqued {__version__}, core: {core_build()}\n")
        sys.stdout.write(f"Python {platform.python_version()}, Twisted {twisted_version}\n")
        raise SystemExit(0)

    def postOptions(self) -> None:
        """Read the file, then let the options win."""
        given = [(name, text) for name, text in self.items() if name != "config" and text is not None]
        try:
            config = Config() if self["config"] is None else Config.from_file(self["config"])
            config.apply_arguments(given)
            config.check()
        except ConfigError as error:
            _misused(str(error))
        self.settings = config
        _install_reactor()


def _install_reactor() -> None:
    """Make our event loop that of the process, if it has none yet and the system has epoll."""
    if "twisted.internet.reactor" not in sys.modules and hasattr(select, "epoll"):
        from disqued.net.loop.reactor import EpollReactor

        installReactor(EpollReactor())


class Listener(Service):
    """The daemon and the ports that it listens on."""

    log = Logger()

    def __init__(
        self, daemon: Daemon, config: Config, reactor: Any, admin: "AdminServer | None", *,
        supervision: Supervision, passed: PassedSockets,
    ) -> None:  # fmt: skip
        self._daemon = daemon
        self._supervision = supervision
        self._passed = passed
        self._config = config
        self._reactor = reactor
        self._admin = admin
        self._ports: list[Any] = []
        self._pidfile: PidFile | None = None
        self._asked_by = "a signal"  #: who wants the end; the daemon says so when it is the one
        self._farewell = Drain(daemon, supervision.goes_on)
        self._signals = StopSignals(reactor, self._hurry)

    def startService(self) -> None:
        """Listen, then load; until that is done clients hear -LOADING."""
        super().startService()
        for warning in (*self._config.warnings, *weak_settings(self._config, self._daemon.access.users)):
            self.log.warn("{warning}", warning=warning)
        try:
            self._listen()
        except (CannotListenError, CertificateError, EndpointError, PassedError, PidFileError) as error:
            self._refuse(str(error))
        tune_collector()
        tune_allocator()
        self._reactor.addSystemEventTrigger("after", "shutdown", self._exit)
        self._signals.follow()
        self._supervision.start()
        self._daemon.start(self._stop, ready=self._supervision.ready, failed=self._supervision.failed)

    def _refuse(self, problem: str) -> NoReturn:
        """End the start; what is written to standard error goes to the log by now, so the terminal is told as well."""
        self._supervision.failed(problem)
        if self._config.logfile is not None and sys.__stderr__ is not None:
            standard_error(sys.__stderr__, os.environ).write(f"disqued: {problem}\n")
        raise SystemExit(f"disqued: {problem}")

    def _stop(self) -> None:
        """End the process."""
        self._asked_by = "a start that failed" if self._daemon.exit_status else "a command"
        # A start may fail before the loop has begun to turn.
        self._reactor.callWhenRunning(self._reactor.stop)

    def _exit(self) -> None:
        """End the process with the exit status that the daemon wants, if it is not that of success."""
        if self._daemon.exit_status:
            os._exit(self._daemon.exit_status)

    def _listen(self) -> None:
        config, daemon, passed = self._config, self._daemon, self._passed
        for text in (config.http_endpoint, *config.endpoint):
            passed.leave_to(text)
        if config.port:
            for address in config.bind:
                self._listen_at(address, config.port, daemon.clients)
        if config.tls_port:
            certificates = certificates_of(config, config.tls_auth_clients)
            with_tls = daemon.tls.factory("tls-port", certificates, daemon.clients)
            for address in config.bind:
                self._listen_at(address, config.tls_port, with_tls, " with TLS")
        if config.unixsocket is not None:
            self._listen_on(config.unixsocket)
        for text in config.endpoint:
            self._ports.append(listen_at(text, daemon.clients, self._reactor, daemon.tls))
            self.log.info("Listening at {endpoint}", endpoint=text)
        if config.tls_cluster:
            certificates = certificates_of(config, "yes")
            daemon.bus.secure(certificates, partial(daemon.tls.factory, "tls-cluster", certificates))
        if config.bus_port and not config.bus_addresses:
            self.log.warn(
                "No other node can connect here: no address of `bind` is safe without a cluster-secret or tls-cluster"
            )
        daemon.open_bus(config.bus_addresses, config.bus_port, passed.adopt)
        if self._admin is not None:
            self._listen_for_admins(self._admin)
        passed.refuse_rest()
        if config.pidfile is not None:
            self._pidfile = PidFile(config.pidfile)
            self._pidfile.write()

    def _listen_at(self, address: str, port: int, factory: Any, how: str = "") -> None:
        passed = self._passed.adopt(factory, address, port, EagerPort)
        if passed is None:
            self._open(EagerPort(port, factory, self._config.tcp_backlog, address, self._reactor))
        else:
            self._ports.append(passed)
        how += _how(passed)
        self.log.info("Listening on {address}, port {port}{how}", address=address, port=port, how=how)

    def _listen_on(self, file: Path) -> None:
        config, path = self._config, os.fsencode(file)
        passed = self._passed.adopt_unix(self._daemon.clients, path)
        if passed is None:
            mode = config.unixsocketperm or 0o777 & ~_umask()
            self._open(UnixPort(path, self._daemon.clients, config.tcp_backlog, mode, self._reactor))
        else:
            self._ports.append(passed)
        self.log.info("Listening on {path}{how}", path=file, how=_how(passed))

    def _listen_for_admins(self, admin: "AdminServer") -> None:
        from disqued.web.server import AdminError

        try:
            admin.listen(self._admin_failed, self._passed.adopt)
            if admin.certificates is not None:
                self._daemon.tls.take(OF_PAGE, admin.certificates, renews=False)
            self._supervision.wait_for(admin.opened)
        except AdminError as error:
            self._refuse(str(error))

    def _admin_failed(self, problem: str) -> None:
        """End the process after all: an endpoint has failed that took its time."""
        self.log.critical("The node does not start: {reason}", reason=problem)
        self._daemon.exit_status = 1
        self._stop()

    def _open(self, port: Any) -> None:
        port.startListening()
        self._ports.append(port)

    def stopService(self) -> "Deferred[None]":
        """Hand on what is here, if that is wanted; then close the ports, commit, and let go of everything."""
        super().stopService()
        self._signals.stopping()
        self._supervision.stopping(f"Stopping, asked by {self._asked_by}")
        self.log.info("Stopping, asked by {who}", who=self._asked_by)
        said = Deferred.fromCoroutine(self._farewell.say()).addErrback(self._farewell_failed)
        return said.addCallback(self._close).addBoth(self._stopped)

    def _hurry(self) -> None:
        """Stop in order, but hand nothing more on."""
        self.log.info("Asked to stop once more: what was done is made durable and answered, and nothing else is done")
        self._farewell.hurry()

    def _farewell_failed(self, failure: Failure) -> None:
        """Stop all the same: what is here is not lost by that."""
        self.log.failure("Internal error while leaving", failure=failure)

    def _close(self, _: None) -> "Deferred[Any]":
        closed = [maybeDeferred(port.stopListening) for port in self._ports]
        if self._admin is not None:
            closed.append(self._admin.stop())
        return gatherResults([*closed, maybeDeferred(self._daemon.stop)])

    def _stopped(self, outcome: Any) -> Any:
        self._supervision.stopped()
        if self._pidfile is not None:
            self._pidfile.remove()
        self.log.info("Stopped")
        return outcome if isinstance(outcome, Failure) else None


class Root(MultiService):
    """The top of the service tree: brings its own log with it."""

    def __init__(self, observer: Any) -> None:
        super().__init__()
        self._observer = observer

    def setServiceParent(self, parent: Any) -> None:
        """Join the application, and let it log as our settings say, unless twistd was told otherwise."""
        IServiceCollection(parent)
        parent.setComponent(ILogObserver, self._observer)
        super().setServiceParent(parent)


def makeService(options: Options) -> MultiService:
    """Join the parts; nothing listens and nothing is loaded yet."""
    from twisted.internet import reactor

    use_monotonic_time(reactor)
    config = options.settings
    _rename_commands(config)
    clock, rng = SystemClock(), SystemRandom()
    try:
        secret = read_secret(config)
        read_password(config)
        passed = PassedSockets(reactor)
        assert config.cluster_config_file is not None
        identity = Identity.load(config.cluster_config_file, config.client_port, rng)
        name, store = _first_store(config, reactor, clock)
        log_file = logformat.open_log(config)
    except UnknownStore as error:
        _misused(f"persistence: {error}")
    except (IdentityError, PassedError, SecretError, StoreError) as error:
        raise SystemExit(f"disqued: {error}") from None
    except OSError as error:
        raise SystemExit(f"disqued: {error.filename}: {error.strerror}") from None
    observer = logformat.observer(config, log_file, to_journal=is_journal(log_file, os.environ))
    evicts = config.maxmemory_policy != "noeviction"
    node = Node(
        identity.node_id, clock, rng, maxmemory=config.maxmemory, evicts=evicts, calendar=CronCalendar()
    )  # fmt: skip
    root = Root(observer)
    try:
        daemon = Daemon(
            config, node, identity, store, reactor, store_name=name, secret=secret,
            event_log=EventLog(node, reactor, config),
            open_store=lambda name: _open_store(name, config, reactor, clock),
        )  # fmt: skip
    except AclFileError as error:
        raise SystemExit(f"disqued: {error}") from None
    _work_in_rounds(reactor, daemon)
    admin = _admin_of(config, daemon)
    supervision = Supervision.of(daemon, reactor, os.environ)
    logformat.follow_hangups(
        reactor, supervision.reloading, partial(logformat.reopen, config, log_file), partial(renew_password, config),
        daemon.tls.renew,
        *(() if admin is None else (partial(_renew_page, admin, daemon.tls),)), supervision.reloaded,
    )  # fmt: skip
    Listener(daemon, config, reactor, admin, supervision=supervision, passed=passed).setServiceParent(root)
    return root


def _work_in_rounds(reactor: Any, daemon: Daemon) -> None:
    """Let replies leave together where the reactor can do that."""
    if hasattr(select, "epoll"):
        from disqued.net.loop.reactor import EpollReactor

        if isinstance(reactor, EpollReactor):
            reactor.rounds.keep_back_with(daemon.turn)


def _admin_of(config: Config, daemon: Daemon) -> "AdminServer | None":
    """Make the admin side, if it is wanted and its packages are there."""
    if not config.http_port and not config.http_endpoint:
        return None
    try:
        from disqued.web.server import AdminError, AdminServer
    except ImportError as error:
        given = [name for name in ("http-port", "http-endpoint") if config.is_given(name)]
        if given:
            raise SystemExit(f"disqued: {given[0]}: {error}; the packages of the page: {ADMIN_LINE}") from None
        log.info("There is no admin page: {error}; its packages: {line}", error=str(error), line=ADMIN_LINE)
        return None
    try:
        return AdminServer(daemon)
    except AdminError as error:
        raise SystemExit(f"disqued: {error}") from None


def _renew_page(admin: "AdminServer", tls: TlsListeners) -> None:
    """Read the certificate of the admin page again."""
    if admin.renew():
        tls.look(OF_PAGE)


def _open_store(name: str, config: Config, reactor: Any, clock: Clock) -> IStore:
    """Make a store and open it.  Raises StoreError."""
    store = make_store(name, config, reactor, clock)
    store.open()
    return store


def _first_store(config: Config, reactor: Any, clock: Clock) -> tuple[str, IStore]:
    """Open the store that holds the jobs of this folder: its name, and itself.  Raises StoreError.

    That need not be the one that the configuration names by now: the daemon moves the jobs there once they are loaded.
    """
    name, held = config.persistence, StoreMarker(config.dir).read()
    store = make_store(name, config, reactor, clock)
    if held is not None and held != name:
        if store.records:
            if not find_store(held).holds(config):
                raise StoreError(
                    f"{STORE_FILE} says that the jobs are in the store {held}, and there is none; put it back, or"
                    f" remove {STORE_FILE} to start with what {name} holds"
                )
            log.info("The jobs are in the store {held}; they will be moved to {name}", held=held, name=name)
            return held, _open_store(held, config, reactor, clock)
        if not config.aof_enqueue_jobs_once:
            log.warn("The jobs in the store {held} are not loaded: `persistence` is {name}", held=held, name=name)
    store.open()
    return name, store


def _rename_commands(config: Config) -> None:
    """Do what rename-command asks for; a name that is none ends the process."""
    for old, new in config.rename_command:
        if new.upper().encode("utf-8", "surrogateescape") in table.TABLE:
            _misused(f"rename-command {old} {new}: there is a command {new.upper()} already")
        try:
            table.rename(old, new)
        except KeyError:
            _misused(f"rename-command {old}: no command has this name")


def _how(passed: Any) -> str:
    """What the log says of a port that was open already."""
    return "" if passed is None else ", a socket of systemd"


def _umask() -> int:
    """The permissions that this process withholds from the files that it makes."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def tune_collector() -> None:
    """Keep the garbage collector from walking over every job.

    Jobs hold no cycles: they are freed when the last reference goes.  What was made until now lives as long as the
    process.  Young objects are looked at in small portions, so that no collection takes long; all of the heap is
    looked at only after some twenty million new objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 10, 1_000)


def tune_allocator() -> None:
    """Let glibc give large buffers back as soon as they are freed.

    By itself it raises the size from which it asks the system for memory to that of the largest buffer so far, up to
    32 MiB.  Half bodies of many connections then lie between each other on its heap, which cannot shrink: 64 MiB of
    them took 400 MiB.  Source: mallopt(3), M_MMAP_THRESHOLD.
    """
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MMAP_BYTES)


def main() -> None:
    """`disqued`: the same as `twistd -n disqued`."""
    from twisted.scripts.twistd import run

    # Until the log begins: why a node does not start is an error in the journal, too.
    sys.stderr = standard_error(sys.stderr, os.environ)
    sys.argv = [sys.argv[0], "--nodaemon", "--pidfile=", "disqued", *sys.argv[1:]]
    run()
