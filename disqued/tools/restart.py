"""`disqued restart`: a node ends and begins again, and nothing is lost or delivered twice by that.

    --drain      CLUSTER LEAVING yes, until nothing is only there    its jobs are on other nodes
                 SHUTDOWN
    otherwise    CONFIG SET aof-enqueue-jobs-once yes                its jobs come back with their places in the queues,
                 CONFIG REWRITE                                      at-most-once jobs, too
                 SHUTDOWN REWRITE-AOF
    then         wait until the process is over --> the command --> wait until a new process of the same node serves
                 CLUSTER LEAVING no, after --drain --> wait until it and the others see each other

    --all        all nodes answer and see each other --> the above for one node after the other, until one fails

What was changed for a restart that does not come to the shutdown is taken back.  A node that was leaving before is
leaving afterwards.  Spans are seconds.
"""

import contextlib
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs
import click

from disqued.client.addresses import Socket
from disqued.client.errors import DisquedError, ServerError
from disqued.tools.cluster_views import look_at_all, unseen
from disqued.tools.cluster_waits import empty, wait_joined
from disqued.tools.connecting import Failed, Interrupted, NodeConnection, Target, node_options
from disqued.tools.members import Member, info, members
from disqued.tools.values import Number
from disqued.tools.waiting import wait_until

ONCE: Final = "aof-enqueue-jobs-once"
WAIT_S: Final = 300.0
LOCAL: Final = ("127.", "::1", "localhost")
NAME: Final = b"disqued"  #: on the command line of a node
OVER: Final = ("Z", "X")  #: states of a process that has ended, and that nobody has asked after
TERMINAL: Final = 2  #: standard error, where the command writes to
#: What a command may say of the node that it starts.
PLACES: Final = "{host}, {port} and {id}"
#: What the other nodes call it is put into a line for a shell only where it can be nothing but that.
_HARMLESS: Final = re.compile(r"[A-Za-z0-9.:%_][A-Za-z0-9.:%_-]*")


@click.command()
@click.option("--command", "start", metavar="COMMAND",
              help="What starts the node again; a line for the shell that comes back."
              f" {PLACES} in it are those of the node.")  # fmt: skip
@click.option("--unit", metavar="UNIT",
              help="Unit of systemd; the same as --command 'systemctl start UNIT'.")  # fmt: skip
@click.option("--all", "all_nodes", is_flag=True, help="Restart all nodes of the cluster, one after the other.")
@click.option("--drain", is_flag=True, help="Let the node hand all on before, in the place of restoring it afterwards.")
@click.option("--no-config-rewrite", is_flag=True,
              help=f"The command itself gives --{ONCE} yes, as the node has no file to write that to.")  # fmt: skip
@click.option("--wait", "wait_s", type=Number(0), default=WAIT_S, show_default=True, metavar="SECONDS",
              help="How long each step may take.")  # fmt: skip
@node_options
def command(
    target: Target, *, start: str | None, unit: str | None, all_nodes: bool, drain: bool, no_config_rewrite: bool,
    wait_s: float,
) -> None:  # fmt: skip
    """Restart the node that -h and -p name, so that nothing is lost and nothing is delivered twice by that.

    \b
    Examples:
      disqued restart --drain --unit disqued
      disqued restart --drain -h 10.0.0.3 --command 'ssh 10.0.0.3 systemctl start disqued'
      disqued restart -p 7712 --command 'disqued --config node-2.conf > node-2.log 2>&1 &'
      disqued restart --all --drain -h 10.0.0.1 --command 'ssh {host} systemctl start disqued'

    Without --drain the jobs stay on the node: they are written down with their places in the queues, and are there
    again afterwards, at-most-once jobs, too.  Meanwhile jobs that nobody else has a copy of wait.  The node notes it in
    its configuration file, which it has to be able to write.  Under systemd it sees /etc read-only: use --drain there,
    or give it a file in its folder for data; docs/how-to/systemd.md shows how.

    With --drain the other nodes of the cluster get them before, and no job waits; the node comes back empty but for
    copies.

    Clients lose their connections, and open them again.  What the command prints goes to standard error.  This ends
    when the node serves, and all see each other.

    With --all that is done for every node of the cluster, one after the other, first for the one that -h and -p name.
    It begins when all nodes answer and see each other, and ends with the first that does not come back: the others are
    left as they are.

    Exit status 0 when that is so; 1 when a step failed or took too long, with a line that says what to do.
    """
    if (start is None) == (unit is None):
        raise click.UsageError("what starts the node again is given by --command or by --unit, one of them")
    plan = RestartPlan(start, unit, drains=drain, rewrites_config=not no_config_rewrite, wait_s=wait_s)
    if all_nodes:
        restart_all(target, plan)
    else:
        restart(target, plan)


@attrs.frozen
class RestartPlan:
    """How nodes are restarted."""

    line: str | None  #: for a shell; None = there is a unit
    unit: str | None
    drains: bool
    rewrites_config: bool
    wait_s: float  #: for each step

    def words(self, member: Member) -> list[str]:
        """What starts a node again, as words of a program.  Raises click.UsageError, Failed."""
        text = self.line if self.line is not None else self.unit or ""
        address = member.target.address
        if isinstance(address, Socket):
            if any(place in text for place in ("{host}", "{port}")):
                raise click.UsageError("{host} and {port} are those of -h and -p; a Unix socket (-s) has none")
        else:
            text = text.replace("{port}", str(address[1]))
            text = _placed(text, "{host}", address[0])
        text = _placed(text, "{id}", member.id)
        return ["/bin/sh", "-c", text] if self.line is not None else ["systemctl", "start", text]


def _placed(text: str, place: str, word: str) -> str:
    if place in text and not _HARMLESS.fullmatch(word):
        raise Failed(f"a node is called {word!r}, which is not put into a command as {place}")
    return text.replace(place, word)


def restart(target: Target, plan: RestartPlan) -> None:
    """Restart one node, and say so.  Raises Failed, and the errors of `disqued.client.errors`."""
    began_at = time.monotonic()
    with target.node() as node:
        run = NodeRestart.of(target, node, plan.wait_s, drains=plan.drains)
        words = plan.words(run.member)
        left = f"{target} goes on as before, unless it was ending already"
        try:
            if plan.drains:
                run.drain(node)
            else:
                run.write_down(node, rewrites_config=plan.rewrites_config)
            left = run.down
            run.start(words)
            comes_back = plan.drains and not run.was_leaving
            left = f"{target} was started, and not waited for"
            left += "; CLUSTER LEAVING no when it serves" if comes_back else ""
            run.wait_served(node)
            if comes_back:
                node.call("CLUSTER", "LEAVING", "no")
            left = f"{target} serves, and not waited for is that all see each other"
            wait_joined([run.member, *run.others], plan.wait_s)
        except (KeyboardInterrupt, Interrupted):
            raise Interrupted(f"interrupted: {left}") from None
        jobs = info(node, "jobs")["registered_jobs"]
    click.echo(
        f"{target} was restarted in {time.monotonic() - began_at:.1f} s; it holds {jobs} jobs and sees"
        f" {len(run.others)} other nodes"
    )


def restart_all(target: Target, plan: RestartPlan) -> None:
    """Restart all nodes of a cluster, one after the other, until one fails.  Raises Failed."""
    began_at = time.monotonic()
    known = members(target)
    for number, member in enumerate(known):
        done, rest = known[:number], known[number:]
        if problem := "; ".join(_obstacles(known)):
            raise Failed(f"the cluster is not whole, and no other node may go: {problem}; {_so_far(done, rest)}")
        try:
            restart(member.target, plan)
        except (Failed, DisquedError) as error:
            kind = type(error) if isinstance(error, Failed) else Failed
            raise kind(f"{error}; {_so_far(done, rest[1:])}") from None
    click.echo(f"all {len(known)} nodes were restarted in {time.monotonic() - began_at:.1f} s")


def _obstacles(known: Sequence[Member]) -> list[str]:
    """What is to be in order before a node may go."""
    views = look_at_all(known)
    found = [f"{view.name}: {view.error or 'is loading its jobs'}" for view in views if view.error or view.is_loading]
    return found or unseen(views)


def _so_far(done: Sequence[Member], rest: Sequence[Member]) -> str:
    return f"restarted: {_named(done)}; not touched: {_named(rest)}"


def _named(some: Sequence[Member]) -> str:
    return ", ".join(member.address for member in some) or "none"


@attrs.frozen
class NodeRestart:
    """The restart of one node."""

    member: Member
    others: list[Member]  #: that answered before it
    run_id: str  #: of the process that ends
    #: Of the process; 0 when it is none of this machine, as far as can be seen.
    process_id: int
    drains: bool
    was_leaving: bool
    wait_s: float

    @classmethod
    def of(cls, target: Target, node: NodeConnection, wait_s: float, *, drains: bool) -> "NodeRestart":
        """Look at what there is.  Raises the errors of `disqued.client.errors`."""
        member, *known = members(target)
        facts = info(node, "server")
        others = [view.member for view in look_at_all(known) if not view.error]
        was_leaving = node.call("CLUSTER", "LEAVING") == b"yes"
        process_id = int(facts["process_id"]) if _is_here(target, facts["process_id"]) else 0
        return cls(member, others, facts["run_id"], process_id, drains, was_leaving, wait_s)

    # To the end of the process.

    def drain(self, node: NodeConnection) -> None:
        """Let the node hand all on, and end it."""
        if not self.others:
            raise Failed(
                f"{self.member.address} has no other node that could take its jobs; without --drain they stay on it"
            )
        with self._undone(node, ("CLUSTER", "LEAVING", "yes" if self.was_leaving else "no")):
            empty(node, self.member, self.wait_s)
            self._shut_down(node, "SHUTDOWN")

    def write_down(self, node: NodeConnection, *, rewrites_config: bool) -> None:
        """Let the node write its jobs and queues down, for its next start, and end it."""
        undo = [("CONFIG", "SET", ONCE, "no"), *([("CONFIG", "REWRITE")] if rewrites_config else [])]
        with self._undone(node, *undo):
            node.call("CONFIG", "SET", ONCE, "yes")
            if rewrites_config:
                self._rewrite_config(node)
            self._shut_down(node, "SHUTDOWN", "REWRITE-AOF")

    def _rewrite_config(self, node: NodeConnection) -> None:
        try:
            node.call("CONFIG", "REWRITE")
        except ServerError as error:
            raise Failed(
                f"{self.member.address} cannot note for its next start that its queues are to be restored: {error};"
                f" start it with a configuration file that it may write, or let the command give --{ONCE} yes and say"
                " --no-config-rewrite, or use --drain"
            ) from None

    @contextlib.contextmanager
    def _undone(self, node: NodeConnection, *commands: tuple[str, ...]) -> Iterator[None]:
        """Take back what was changed when the node has not ended."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(DisquedError):
                for words in commands:
                    node.call(*words)
            raise

    def _shut_down(self, node: NodeConnection, *words: str) -> None:
        """End the node, and wait until it has ended.  Raises Failed."""
        try:
            node.call(*words, waits=self.wait_s)
        except ServerError as error:
            raise Failed(f"{self.member.address} does not end: {error}") from None
        except DisquedError:
            pass  # there is no reply: the connection ends
        wait_until(lambda: self._alive(node), self.wait_s, f"{self.member.address} has ended")

    def _alive(self, node: NodeConnection) -> str:
        """Say what there is of the process still; "" when it is over."""
        if self.process_id and _is_running(self.process_id):
            return f"process {self.process_id} is there"
        try:
            return "it answers" if info(node, "server").get("run_id") == self.run_id else ""
        except DisquedError:
            return ""

    # From its beginning on.

    def start(self, words: list[str]) -> None:
        """Run what starts it again.  Raises Failed."""
        shown = words[-1] if words[0] == "/bin/sh" else " ".join(words)
        try:
            done = subprocess.run(  # noqa: S603 - it is what the user asks for
                words, stdin=subprocess.DEVNULL, stdout=TERMINAL, start_new_session=True, timeout=self.wait_s,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Failed(
                f"`{shown}` has not come back after {self.wait_s:g} s (--wait), and was ended; a node in the foreground"
                f" needs a & behind it; {self.down}"
            ) from None
        except OSError as error:
            raise Failed(f"`{shown}` cannot be run: {error.strerror}; {self.down}") from None
        if done.returncode:
            raise Failed(f"`{shown}` has ended with status {done.returncode}; {self.down}")

    @property
    def down(self) -> str:
        """What is to be said while the node has ended and has not been started."""
        if self.drains:
            return f"{self.member.address} is down, its jobs are on the others; CLUSTER LEAVING no when it is started"
        return f"{self.member.address} is down, and has all that it had when it is started"

    def wait_served(self, node: NodeConnection) -> None:
        """Wait until another process of the same node serves.  Raises Failed."""
        wait_until(lambda: self._missing(node), self.wait_s, f"{self.member.address} serves again")

    def _missing(self, node: NodeConnection) -> str:
        try:
            facts = info(node, "server", "persistence")
            if facts["run_id"] == self.run_id:
                return "the process is the one from before"
            if facts.get("loading") == "1":
                return "it is loading its jobs"
            id_ = node.call("CLUSTER", "MYID").decode()
        except (DisquedError, KeyError) as error:
            return str(error)
        if id_ != self.member.id:
            raise Failed(
                f"another node answers at {self.member.address}: {id_}, and not {self.member.id}; was it started with"
                " another data folder (dir)?"
            )
        return ""


def _is_here(target: Target, process_id: str) -> bool:
    """Tell whether a process is one of this machine, and no other one that has its number in a container."""
    if not isinstance(target.address, Socket) and not target.address[0].startswith(LOCAL):
        return False
    with contextlib.suppress(OSError):
        return NAME in Path(f"/proc/{process_id}/cmdline").read_bytes()
    return False


def _is_running(process_id: int) -> bool:
    """Tell whether there is such a process on this machine."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in OVER
